//! Tensors for another library: their fields, and who owns the memory when.

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use gpustream::hal::{FillPattern, RawStream};
use gpustream::half::bf16;
use gpustream::{Bool, Device, ErrorKind, StreamOptions};
use gpustream_dlpack::ffi::{DLDataType, DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use gpustream_dlpack::{Element, Form, Managed, into_dlpack, into_dlpack_with_owner};

use crate::stream;

fn shape_and_strides(tensor: &DLTensor) -> (Vec<i64>, Vec<i64>) {
    let ndim = tensor.ndim as usize;
    // SAFETY: the tensor says so.
    let numbers = |address: *mut i64| unsafe { slice::from_raw_parts(address, ndim) }.to_vec();
    (numbers(tensor.shape), numbers(tensor.strides))
}

fn described<F: Form>() {
    let stream = stream();
    let buffer = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let address = buffer.as_raw().0;
    let managed: Managed<F> = into_dlpack(buffer, &[2, 3, 1], &stream).unwrap();
    assert!(!managed.is_read_only().unwrap());
    let tensor = managed.tensor().unwrap();
    assert_eq!(tensor.data.addr(), address, "a copy");
    assert_eq!((tensor.device.device_type, tensor.device.device_id, tensor.byte_offset), (1, 0, 0));
    assert_eq!((tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), (2, 32, 1));
    assert_eq!(shape_and_strides(&tensor), (vec![2, 3, 1], vec![3, 1, 1]));
    // SAFETY: on the CPU, the work is done.
    let values = unsafe { slice::from_raw_parts(tensor.data.cast::<f32>(), 6) };
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn tensor_of_either_form_says_what_the_buffer_is() {
    described::<DLManagedTensor>();
    described::<DLManagedTensorVersioned>();
    let managed =
        into_dlpack::<DLManagedTensorVersioned, _>(stream().zeros::<f32>(1).unwrap(), &[], &stream());
    // SAFETY: the pointer is to a tensor of that form until a value owns it again.
    let version = unsafe { managed.unwrap().into_raw().as_ref() }.version;
    assert_eq!((version.major, version.minor), (1, 3));
}

#[test]
fn wait_of_an_export_is_noted_at_your_line() {
    let stream = stream();
    let buffer = stream.zeros::<f32>(3).unwrap();
    let trace = stream.device().trace().unwrap();
    let line = line!() + 1;
    let tensor: Managed<DLManagedTensor> = into_dlpack(buffer, &[3], &stream).unwrap();
    let timeline = trace.stop().unwrap();
    drop(tensor);
    // Threads of other tests wait too.
    let places = timeline.spans.iter().map(|span| (&*span.label, &*span.place.file, span.place.line));
    assert!(
        places.clone().any(|place| place == ("synchronize", file!(), line)),
        "{:?}",
        places.collect::<Vec<_>>()
    );
}

#[test]
fn shape_has_as_many_elements_as_the_buffer() {
    let stream = stream();
    for (shape, says) in [
        (&[2, 4][..], "has 8 elements, but the buffer has 6"),
        (&[], "has 1 elements"),
        (&[6, 0], "has 0 elements"),
        (&[usize::MAX, 2], "larger than memory"),
        (&[0, usize::MAX], "larger than memory"),
    ] {
        let buffer = stream.zeros::<f32>(6).unwrap();
        let error = into_dlpack::<DLManagedTensor, _>(buffer, shape, &stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn tensor_without_elements_has_no_address() {
    let stream = stream();
    let buffer = stream.alloc::<f32>(0).unwrap();
    let managed = into_dlpack::<DLManagedTensorVersioned, _>(buffer, &[3, 0], &stream).unwrap();
    let tensor = managed.tensor().unwrap();
    assert!(tensor.data.is_null());
    assert_eq!(shape_and_strides(&tensor), (vec![3, 0], vec![0, 1]));
}

#[test]
fn every_type_of_element_has_its_code() {
    fn code<T: Element>() -> (u8, u8, u16) {
        let stream = stream();
        let managed = into_dlpack::<DLManagedTensor, T>(stream.zeros(1).unwrap(), &[1], &stream).unwrap();
        let DLDataType { code, bits, lanes } = managed.tensor().unwrap().dtype;
        (code, bits, lanes)
    }
    assert_eq!([code::<i8>(), code::<u64>(), code::<f64>()], [(0, 8, 1), (1, 64, 1), (2, 64, 1)]);
    assert_eq!([code::<bf16>(), code::<Bool>()], [(4, 16, 1), (6, 8, 1)]);
}

#[test]
fn work_on_the_cpu_is_done_when_the_tensor_is_there() {
    let stream = stream();
    let mut buffer = stream.zeros::<u32>(1000).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let says = done.clone();
    stream
        .host_fn(move || {
            (0..1000).for_each(|_| thread::yield_now());
            says.store(true, Ordering::Release);
        })
        .unwrap();
    stream.fill(&mut buffer, 5).unwrap();
    let managed = into_dlpack::<DLManagedTensor, _>(buffer, &[1000], &stream).unwrap();
    assert!(done.load(Ordering::Acquire));
    let tensor = managed.tensor().unwrap();
    // SAFETY: on the CPU, the work is done.
    assert_eq!(unsafe { slice::from_raw_parts(tensor.data.cast::<u32>(), 1000) }, [5; 1000]);
}

#[test]
fn memory_comes_back_with_the_deleter() {
    let stream = stream();
    let device = stream.device();
    let before = device.memory_stats().used;
    let buffer = stream.zeros::<f32>(1 << 16).unwrap();
    let address = buffer.as_raw();
    let theirs =
        into_dlpack::<DLManagedTensorVersioned, _>(buffer, &[1 << 8, 1 << 8], &stream).unwrap().into_raw();
    assert!(device.memory_stats().used >= before + (4 << 16));
    // The consumer is another library on its own thread.
    let theirs = theirs.addr().get();
    thread::spawn(move || {
        let theirs: *mut DLManagedTensorVersioned =
            std::ptr::with_exposed_provenance_mut::<c_void>(theirs).cast();
        // SAFETY: the consumer owns the tensor, and deletes it once.
        unsafe { (*theirs).deleter.unwrap()(theirs) };
    })
    .join()
    .unwrap();
    assert_eq!(device.memory_stats().used, before);
    assert_eq!(stream.alloc::<f32>(1 << 16).unwrap().as_raw(), address, "the memory is used again");
}

/// Owns a stream that was made elsewhere.
struct Owner {
    device: Device,
    stream: RawStream,
    /// How many bytes were in use when the owner was dropped.
    used: Arc<AtomicU64>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.used.store(self.device.memory_stats().used, Ordering::Release);
        // SAFETY: the stream has no other users left.
        unsafe {
            self.device.raw().stream_synchronize(self.stream).unwrap();
            self.device.raw().stream_destroy(self.stream).unwrap();
        }
    }
}

#[test]
fn owner_of_the_consumers_stream_outlives_the_tensor() {
    let ours = stream();
    let device = ours.device();
    let before = device.memory_stats().used;
    for _ in 0..10 {
        let raw = device.raw().stream_create(StreamOptions::default()).unwrap();
        let used = Arc::new(AtomicU64::new(u64::MAX));
        let owner = Owner { device: device.clone(), stream: raw, used: used.clone() };
        // SAFETY: the owner destroys the stream, and lives as long.
        let theirs = unsafe { device.stream_from_raw(raw) };
        let buffer = ours.full(1 << 16, 1u32).unwrap();
        let address = buffer.as_raw();
        let tensor =
            into_dlpack_with_owner::<DLManagedTensor, _>(buffer, &[1 << 16], &theirs, owner).unwrap();
        drop(theirs);
        assert_eq!(used.load(Ordering::Acquire), u64::MAX, "the owner is kept");
        // SAFETY: the memory belongs to the consumer, which works on its own stream.
        unsafe { device.raw().fill(address, FillPattern::U32(2), 1 << 16, raw) }.unwrap();
        drop(tensor);
        assert_eq!(used.load(Ordering::Acquire), before, "the memory goes first");
        let next = ours.full(1 << 16, 3u32).unwrap();
        assert!(ours.download(&next).unwrap().iter().all(|&value| value == 3));
    }
}
