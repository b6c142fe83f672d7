//! Importing tensors, and the errors for those that we cannot import.

use std::fmt::Debug;
use std::ptr;

use gpustream::half::{bf16, f16};
use gpustream::{Bool, ErrorKind};
use gpustream_dlpack::ffi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion};
use gpustream_dlpack::{Element, Form};

use crate::stream;
use crate::theirs::{Make, Theirs};

/// Asserts that a tensor is refused and deleted once.
#[track_caller]
fn refused<T: Element>(theirs: &Theirs, kind: ErrorKind, says: &[&str]) {
    fn check<T: Element, F: Form + Make>(theirs: &Theirs, kind: ErrorKind, says: &[&str]) {
        let made = theirs.managed::<F, f32>(&[0.0; 24]);
        let error = made.taken::<T>(&stream()).unwrap_err();
        assert_eq!(error.call_site().map(|operation| operation.label), Some("from_dlpack"), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
        for word in says {
            assert!(error.to_string().contains(word), "{word:?} in {error}");
        }
        assert_eq!(made.count(), 1, "{error}");
    }
    check::<T, DLManagedTensor>(theirs, kind, says);
    check::<T, DLManagedTensorVersioned>(theirs, kind, says);
}

fn values_go_both_ways<F: Form + Make>() {
    let stream = stream();
    let made = Theirs::f32(&[2, 3]).strides(&[3, 1]).managed::<F, f32>(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let mut tensor = made.taken::<f32>(&stream).unwrap();
    assert_eq!((tensor.shape(), tensor.len(), tensor.is_read_only()), (&[2, 3][..], 6, false));
    assert_eq!(tensor.view().as_raw().0, made.address.addr(), "a copy");
    assert_eq!(stream.download(&tensor.view()).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    stream.fill(&mut tensor.view_mut().unwrap(), 7.0).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: the values stay until the deleter is called, and the device is done with them.
    assert_eq!(unsafe { std::slice::from_raw_parts(made.address, 6) }, [7.0; 6]);
    drop(tensor);
    assert_eq!(made.count(), 1);
}

#[test]
fn values_of_either_form_are_used_where_they_are() {
    values_go_both_ways::<DLManagedTensor>();
    values_go_both_ways::<DLManagedTensorVersioned>();
}

#[test]
fn one_run_of_elements_is_taken_in_whatever_its_strides_say() {
    let scalar = Theirs::f32(&[]);
    let empty = Theirs { has_address: false, ..Theirs::f32(&[3, 0, 2]) };
    let cases = [
        (Theirs::f32(&[24]), vec![24]),
        (Theirs::f32(&[2, 3, 4]), vec![2, 3, 4]),
        (Theirs::f32(&[2, 3, 4]).strides(&[12, 4, 1]), vec![2, 3, 4]),
        // A single element has no neighbour in its dimension.
        (Theirs::f32(&[1, 6, 1, 4]).strides(&[-7, 4, 0, 1]), vec![1, 6, 1, 4]),
        (Theirs::f32(&[1]).strides(&[i64::MIN]), vec![1]),
        (scalar.clone(), vec![]),
        (scalar.strides(&[]), vec![]),
        (empty.clone(), vec![3, 0, 2]),
        (empty.strides(&[1, 1, 1]), vec![3, 0, 2]),
        (Theirs::f32(&[i64::MAX, 0, i64::MAX]), vec![i64::MAX as usize, 0, i64::MAX as usize]),
        // Part of a larger allocation.
        (Theirs { byte_offset: 8, ..Theirs::f32(&[22]) }, vec![22]),
        // There is only one CPU, whatever its number.
        (Theirs { device: DLDevice { device_type: 1, device_id: 7 }, ..Theirs::f32(&[24]) }, vec![24]),
    ];
    let stream = stream();
    let values: Vec<f32> = (0..24u8).map(f32::from).collect();
    for (theirs, shape) in cases {
        let made = theirs.managed::<DLManagedTensorVersioned, f32>(&values);
        let tensor = made.taken::<f32>(&stream).unwrap();
        assert_eq!(tensor.shape(), shape);
        let first = theirs.byte_offset as usize / 4;
        assert_eq!(
            stream.download(&tensor.view()).unwrap(),
            values[first..first + tensor.len()],
            "{shape:?}"
        );
        drop(tensor);
        assert_eq!(made.count(), 1, "{shape:?}");
    }
}

#[test]
fn strides_that_are_no_view_are_refused() {
    let advice = "make it contiguous first";
    let cases: [(&[i64], &[i64]); 6] = [
        (&[4, 6], &[1, 4]),       // transposed
        (&[2, 3], &[4, 1]),       // with gaps between rows
        (&[6], &[2]),             // every other element
        (&[6], &[-1]),            // backwards
        (&[4, 6], &[0, 1]),       // one row as all rows
        (&[2, 1, 3], &[4, 1, 1]), // gaps, seen through a dimension of one
    ];
    for (shape, strides) in cases {
        let says = [format!("{shape:?}"), format!("{strides:?}"), advice.to_owned()];
        let says: Vec<&str> = says.iter().map(String::as_str).collect();
        refused::<f32>(&Theirs::f32(shape).strides(strides), ErrorKind::InvalidArgument, &says);
    }
}

#[test]
fn shapes_and_addresses_that_make_no_sense_are_refused() {
    let invalid = ErrorKind::InvalidArgument;
    refused::<f32>(&Theirs::f32(&[2, -3]), invalid, &["[2, -3]", "negative"]);
    refused::<f32>(&Theirs::f32(&[i64::MAX, 2]), invalid, &["larger than memory"]);
    refused::<f32>(&Theirs::f32(&[i64::MAX / 4 + 1, 1]), invalid, &["larger than memory"]);
    refused::<f32>(&Theirs::f32(&[1 << 32, 1 << 32]), invalid, &["larger than memory"]);
    refused::<f32>(
        &Theirs { has_address: false, ..Theirs::f32(&[6]) },
        invalid,
        &["cannot be at address 0x0"],
    );
    let far = Theirs { byte_offset: u64::MAX - 3, ..Theirs::f32(&[6]) };
    refused::<f32>(&far, invalid, &["offset of 18446744073709551612 bytes"]);
    let odd = Theirs { byte_offset: 2, ..Theirs::f32(&[6]) };
    refused::<f32>(&odd, invalid, &["multiple of 4"]);
}

#[test]
fn shape_of_no_numbers_is_refused() {
    type Change = fn(&mut DLManagedTensor);
    let changes: [(Change, &str); 2] = [
        (|managed| managed.dl_tensor.shape = ptr::null_mut(), "1 dimensions, but no shape"),
        (|managed| managed.dl_tensor.ndim = -1, "-1 dimensions"),
    ];
    for (change, says) in changes {
        let mut made = Theirs::f32(&[6]).managed::<DLManagedTensor, f32>(&[0.0; 6]);
        // SAFETY: the header is not shared.
        change(unsafe { made.header.as_mut() });
        let error = made.taken::<f32>(&stream()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(made.count(), 1);
    }
}

#[test]
fn memory_of_another_device_is_refused() {
    for (device_type, device_id, says) in [
        (2, 1, &["cuda:1", "cpu:0", "copy it there first"][..]),
        (10, 0, &["hip:0", "copy it there first"]),
        (3, 0, &["pinned by CUDA", "ordinary host memory"]),
        (11, 0, &["pinned by ROCm"]),
        (13, 0, &["migrates", "copy it to the device first"]),
        (99, 5, &["device 5 of DLPack type 99"]),
    ] {
        let theirs = Theirs { device: DLDevice { device_type, device_id }, ..Theirs::f32(&[6]) };
        refused::<f32>(&theirs, ErrorKind::DeviceMismatch, says);
    }
}

#[test]
fn every_type_of_element_has_its_code() {
    fn check<T: Element + PartialEq + Debug>(code: u8, values: [T; 2]) {
        let element = DLDataType { code, bits: size_of::<T>() as u8 * 8, lanes: 1 };
        let theirs = Theirs { element, ..Theirs::f32(&[2]) };
        let (stream, made) = (stream(), theirs.managed::<DLManagedTensorVersioned, T>(&values));
        let tensor = made.taken::<T>(&stream).unwrap();
        assert_eq!(stream.download(&tensor.view()).unwrap(), values);
    }
    check(0, [i8::MIN, 1]);
    check(0, [i16::MIN, 1]);
    check(0, [i32::MIN, 1]);
    check(0, [i64::MIN, 1]);
    check(1, [u8::MAX, 1]);
    check(1, [u16::MAX, 1]);
    check(1, [u32::MAX, 1]);
    check(1, [u64::MAX, 1]);
    check(2, [f16::MAX, f16::ONE]);
    check(2, [f32::MAX, 1.0]);
    check(2, [f64::MAX, 1.0]);
    check(4, [bf16::MAX, bf16::ONE]);
    check(6, [Bool::TRUE, Bool::FALSE]);
}

#[test]
fn elements_of_another_type_are_refused() {
    let of = |code, bits, lanes| Theirs { element: DLDataType { code, bits, lanes }, ..Theirs::f32(&[2]) };
    let invalid = ErrorKind::InvalidArgument;
    refused::<f32>(&of(2, 64, 1), invalid, &["float64", "convert it to float32 first"]);
    refused::<f64>(&of(2, 32, 1), invalid, &["float32", "convert it to float64 first"]);
    refused::<u32>(&of(0, 32, 1), invalid, &["int32", "uint32"]);
    refused::<f16>(&of(4, 16, 1), invalid, &["bfloat16", "float16"]);
    refused::<u8>(&of(6, 8, 1), invalid, &["are bool", "uint8"]);
    refused::<f32>(&of(5, 64, 1), invalid, &["complex64", "view of its real numbers"]);
    refused::<f64>(&of(5, 64, 1), invalid, &["complex64"]);
    refused::<f32>(&of(2, 32, 4), invalid, &["vectors of 4 float32", "one number for each lane"]);
    refused::<f32>(&of(2, 32, 0), invalid, &["vectors of 0"]);
    refused::<u8>(&of(200, 8, 1), invalid, &["code 200"]);
}

#[test]
fn version_that_is_not_known_is_refused_unseen() {
    let mut made = Theirs::f32(&[6]).managed::<DLManagedTensorVersioned, f32>(&[0.0; 6]);
    // SAFETY: the header is not shared.
    let header = unsafe { made.header.as_mut() };
    header.version = DLPackVersion { major: 2, minor: 5 };
    // Another version may have anything after the deleter.
    header.dl_tensor.shape = ptr::without_provenance_mut(1);
    header.dl_tensor.ndim = i32::MAX;
    let error = made.taken::<f32>(&stream()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("DLPack 2.5") && error.to_string().contains("max_version=(1, 0)"),
        "{error}"
    );
    assert_eq!(made.count(), 1);
}

#[test]
fn read_only_tensor_gives_shared_views_alone() {
    let theirs = Theirs { read_only: true, ..Theirs::f32(&[2]) };
    let (stream, made) = (stream(), theirs.managed::<DLManagedTensorVersioned, f32>(&[1.0, 2.0]));
    assert!(made.managed().is_read_only().unwrap());
    assert_eq!(made.count(), 1);

    let made = theirs.managed::<DLManagedTensorVersioned, f32>(&[1.0, 2.0]);
    let mut tensor = made.taken::<f32>(&stream).unwrap();
    assert!(tensor.is_read_only());
    assert_eq!(stream.download(&tensor.view()).unwrap(), [1.0, 2.0]);
    let error = tensor.view_mut().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[test]
fn tensor_without_a_deleter_is_left_alone() {
    let mut made = Theirs::f32(&[2]).managed::<DLManagedTensor, f32>(&[1.0, 2.0]);
    // SAFETY: the header is not shared.
    unsafe { made.header.as_mut() }.deleter = None;
    let stream = stream();
    let tensor = made.taken::<f32>(&stream).unwrap();
    assert_eq!(stream.download(&tensor.view()).unwrap(), [1.0, 2.0]);
    drop(tensor);
    stream.device().synchronize().unwrap();
    assert!(made.deletions.try_recv().is_err());
}
