//! Memory, fills and copies.

use gpustream_hal::{
    Copy1d, Copy3d, CopyEnd, DefaultStream, Device, ErrorKind, FillPattern, ManagedAdvice, PinnedOptions,
    RawBuffer, RawStream,
};

use super::{Vendor, assert_call, assert_one, names, pick, signed, start, stream};
use crate::{Call, Recorder, VENDOR, backend};

fn address(address: usize) -> (&'static str, u64) {
    ("address", address as u64)
}

#[test]
fn device_memory_is_allocated_counted_and_freed() {
    let (recorder, device) = start();
    let before = recorder.live();
    let (buffer, calls) = recorder.record(|| device.alloc(1000).unwrap());
    assert_one(&calls, ["cuMemAlloc_v2", "hipMalloc"], &[("bytes", 1000)]);
    let (memory, calls) = recorder.record(|| device.memory().unwrap());
    assert_one(&calls, ["cuMemGetInfo_v2", "hipMemGetInfo"], &[]);
    assert!(memory.free < memory.total);
    // SAFETY: allocated, and not used again.
    let ((), calls) = recorder.record(|| unsafe { device.free(buffer) }.unwrap());
    assert_one(&calls, ["cuMemFree_v2", "hipFree"], &[address(buffer.0)]);
    assert_eq!(recorder.live(), before);

    recorder.set_memory(0, 0);
    let error = device.alloc(1 << 40).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    // Other tests of this process make the fake behave as if there had been a fault, so this prefix may be there.
    let text = error.to_string().replacen("the device failed earlier: ", "", 1);
    let [begin, end] = pick([
        ["cuda: out of memory (CUDA_ERROR_OUT_OF_MEMORY); free buffers", "(cuMemAlloc returned 2)"],
        ["hip: out of memory (hipErrorOutOfMemory); free buffers", "(hipMalloc returned 2)"],
    ]);
    assert!(text.starts_with(begin), "{text}");
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn full_device_refuses_large_requests_and_serves_small_ones() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    recorder.set_memory(0, recorder.live().bytes + (1 << 20));
    assert_eq!(device.alloc(2 << 20).unwrap_err().kind(), ErrorKind::OutOfMemory);
    if VENDOR != Vendor::Rocm(5) {
        // SAFETY: the stream is alive.
        let error = unsafe { device.alloc_async(2 << 20, stream) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
    let small = device.alloc(1 << 19).unwrap();
    // SAFETY: out of use.
    unsafe {
        device.free(small).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn drivers_pool_is_used_if_the_version_has_one() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let before = recorder.live();
    // SAFETY: the stream is alive throughout; the memory is used by nothing.
    unsafe {
        let (answer, calls) = recorder.record(|| device.alloc_async(4096, stream));
        if VENDOR == Vendor::Rocm(5) {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("HIP 5.7.31921 has no memory pool"), "{error}");
            assert!(calls.is_empty(), "{calls:?}");
        } else {
            let of_stream = ("stream", stream.0 as u64);
            assert_one(&calls, ["cuMemAllocAsync", "hipMallocAsync"], &[("bytes", 4096), of_stream]);
            let buffer = answer.unwrap();
            let ((), calls) = recorder.record(|| device.free_async(buffer, stream).unwrap());
            assert_one(&calls, ["cuMemFreeAsync", "hipFreeAsync"], &[address(buffer.0), of_stream]);
        }
        device.stream_synchronize(stream).unwrap();
        assert_eq!(recorder.live(), before);
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn pinned_memory_is_portable_and_mapped() {
    let (recorder, device) = start();
    let before = recorder.live();
    // HIP's memory is coherent only if you set a flag. CUDA's always is.
    let portable_mapped = pick([3, 0x4000_0003]);
    let names = ["cuMemHostAlloc", "hipHostMalloc"];
    let (pinned, calls) = recorder.record(|| device.pinned_alloc(64, PinnedOptions::default()).unwrap());
    assert_one(&calls, names, &[("bytes", 64), ("flags", portable_mapped)]);
    let options = PinnedOptions::default().write_combined(true);
    let (combined, calls) = recorder.record(|| device.pinned_alloc(64, options).unwrap());
    assert_one(&calls, names, &[("flags", portable_mapped | 4)]);
    // SAFETY: pinned memory that nothing else uses, freed once.
    unsafe {
        let (_, calls) = recorder.record(|| device.pinned_device_address(pinned).unwrap());
        let args = [address(pinned as usize), ("flags", 0)];
        assert_one(&calls, ["cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer"], &args);
        let (owner, calls) = recorder.record(|| device.ordinal_of(RawBuffer(pinned as usize)).unwrap());
        assert_eq!(owner, Some(0));
        let args = [("attribute", 9), address(pinned as usize)];
        assert_one(&calls, ["cuPointerGetAttribute", "hipPointerGetAttribute"], &args);
        assert_eq!(
            device.ordinal_of(RawBuffer(16)).unwrap(),
            None,
            "an address that the driver does not know"
        );
        for pinned in [pinned, combined] {
            let ((), calls) = recorder.record(|| device.pinned_free(pinned).unwrap());
            assert_one(&calls, ["cuMemFreeHost", "hipHostFree"], &[address(pinned as usize)]);
        }
    }
    assert_eq!(recorder.live(), before);
}

#[test]
fn host_memory_is_registered_for_all_devices() {
    let (recorder, device) = start();
    let mut memory = vec![0_u8; 4096];
    let pointer = memory.as_mut_ptr();
    let at = address(pointer as usize);
    // SAFETY: the memory outlives its registration.
    unsafe {
        let ((), calls) = recorder.record(|| device.host_register(pointer, 4096).unwrap());
        let args = [at, ("bytes", 4096), ("flags", 3)];
        assert_one(&calls, ["cuMemHostRegister_v2", "hipHostRegister"], &args);
        let ((), calls) = recorder.record(|| device.host_unregister(pointer).unwrap());
        assert_one(&calls, ["cuMemHostUnregister", "hipHostUnregister"], &[at]);
    }
}

#[test]
fn managed_memory_moves_and_is_advised() {
    let (recorder, _) = start();
    let device = backend().open(1).unwrap();
    let stream = stream(&*device);
    let before = recorder.live();
    let (buffer, calls) = recorder.record(|| device.managed_alloc(4096).unwrap());
    assert_one(&calls, ["cuMemAllocManaged", "hipMallocManaged"], &[("bytes", 4096), ("flags", 1)]);
    // CUDA's location has a kind before the device's number: 1 is a device and 2 is the host.
    let to = |cuda: u64, hip: i32| (pick(["location", "to"]), pick([cuda, signed(hip)]));
    let (here, host) = (to(1 << 32 | 1, 1), to(2 << 32, -1));
    // SAFETY: managed memory that is alive throughout.
    unsafe {
        for (to_device, target) in [(true, here), (false, host)] {
            let ((), calls) =
                recorder.record(|| device.managed_prefetch(buffer, 4096, to_device, stream).unwrap());
            assert_one(&calls, ["cuMemPrefetchAsync_v2", "hipMemPrefetchAsync"], &[("bytes", 4096), target]);
        }
        let cases = [
            (ManagedAdvice::ReadMostly, 1, here),
            (ManagedAdvice::PreferDevice, 3, here),
            (ManagedAdvice::PreferHost, 3, host),
            (ManagedAdvice::AccessedByDevice, 5, here),
        ];
        for (advice, number, target) in cases {
            let ((), calls) = recorder.record(|| device.managed_advise(buffer, 4096, advice).unwrap());
            assert_one(&calls, ["cuMemAdvise_v2", "hipMemAdvise"], &[("advice", number), target]);
        }
        device.stream_synchronize(stream).unwrap();
        let ((), calls) = recorder.record(|| device.free(buffer).unwrap());
        assert_one(&calls, ["cuMemFree_v2", "hipFree"], &[address(buffer.0)]);
        assert_eq!(recorder.live(), before);
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn fills_and_copies_move_the_bytes_in_one_call() {
    let (recorder, device) = start();
    // CUDA retains a device's context when you first use it.
    drop(backend().open(1).unwrap());
    let stream = stream(&*device);
    let a = device.alloc(16).unwrap();
    let b = device.alloc(16).unwrap();
    let pinned = device.pinned_alloc(16, PinnedOptions::default()).unwrap();
    // SAFETY: all ranges are allocated, and the stream is waited for before the host looks.
    unsafe {
        let fills = [
            (a, FillPattern::U8(7), 16),
            (a, FillPattern::U16(0x0201), 2),
            (a.offset(4), FillPattern::U32(0x605_0403), 1),
            (a.offset(8), FillPattern::U32(0xdead_beef), 1),
        ];
        for (dst, pattern, count) in fills {
            let ((), calls) = recorder.record(|| device.fill(dst, pattern, count, stream).unwrap());
            let name = format!("{}D{}Async", pick(["cuMemset", "hipMemset"]), pattern.width() * 8);
            let args = [("dst", dst.0 as u64), ("value", pattern.value().into()), ("count", count as u64)];
            assert_call(&calls, &name, &args);
        }
        let of_stream = ("stream", stream.0 as u64);
        let ((), calls) = recorder.record(|| device.copy_on_device(b, a, 16, stream).unwrap());
        let args = [("dst", b.0 as u64), ("src", a.0 as u64), ("bytes", 16), of_stream];
        assert_one(&calls, ["cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"], &args);
        let ((), calls) = recorder.record(|| device.copy_to_host(pinned, b, 16, stream).unwrap());
        let args = [("dst", pinned as u64), ("src", b.0 as u64)];
        assert_one(&calls, ["cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"], &args);
        device.stream_synchronize(stream).unwrap();
        let expected = [1, 2, 1, 2, 3, 4, 5, 6, 0xef, 0xbe, 0xad, 0xde, 7, 7, 7, 7];
        assert_eq!(std::slice::from_raw_parts(pinned, 16), expected);

        let source = [3_u8; 16];
        let ((), calls) = recorder.record(|| device.copy_to_device(a, source.as_ptr(), 16, stream).unwrap());
        let args = [("dst", a.0 as u64), ("src", source.as_ptr() as u64), ("bytes", 16)];
        assert_one(&calls, ["cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"], &args);
        let ((), calls) = recorder.record(|| device.copy_from_peer(b, a, 1, 16, stream).unwrap());
        assert_one(&calls, ["cuMemcpyPeerAsync", "hipMemcpyPeerAsync"], &[("bytes", 16)]);
        let [to, from] = pick([["dst_context", "src_context"], ["dst_device", "src_device"]]);
        let [to, from] = [calls[0].arg(to), calls[0].arg(from)];
        assert_eq!(
            (from - to, VENDOR == Vendor::Cuda || to == 0),
            (1, true),
            "contexts of the fake count up as devices do"
        );
        device.copy_to_host(pinned, b, 16, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(pinned, 16), source);
        if VENDOR == Vendor::Cuda {
            let batch = "cuMemcpyBatchAsync";
            let cases = [
                (0, &[1][..], "cuMemsetD8Async"),
                (2, &[2, 3], "cuMemsetD16Async"),
                (4, &[4, 5, 6, 7], "cuMemsetD32Async"),
                (9, &[8, 9], batch),
                (1, &[10], "cuMemsetD8Async"),
                (11, &[11, 12, 13], batch),
            ];
            for (at, bytes, name) in cases {
                let to = a.offset(at);
                let ((), calls) =
                    recorder.record(|| device.copy_inline(to, bytes.as_ptr(), bytes.len(), stream).unwrap());
                assert_one(&calls, [name, ""], &[]);
            }
            let ((), calls) =
                recorder.record(|| device.copy_inline(a.offset(5), [1; 4].as_ptr(), 4, stream).unwrap());
            assert_one(&calls, [batch, ""], &[]);
            device.copy_to_host(pinned, a, 16, stream).unwrap();
            device.stream_synchronize(stream).unwrap();
            let expected = [1, 10, 2, 3, 4, 1, 1, 1, 1, 8, 9, 11, 12, 13, 3, 3];
            assert_eq!(std::slice::from_raw_parts(pinned, 16), expected);
        }
        device.free(a).unwrap();
        device.free(b).unwrap();
        device.pinned_free(pinned).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

/// Copies 1, 2 and 3 bytes in different directions, and returns the calls.
pub(crate) fn copy_batch(recorder: &Recorder, device: &dyn Device, stream: RawStream) -> Vec<Call> {
    let near = device.alloc(16).unwrap();
    let far = device.pinned_alloc(16, PinnedOptions::default()).unwrap();
    // SAFETY: inside the pinned memory.
    let result = unsafe { far.add(8) };
    let (near_end, far_end) = (|at| CopyEnd::Device(near.offset(at)), CopyEnd::Host);
    let copies = [
        Copy1d { dst: near_end(0), src: far_end(far), bytes: 1 },
        Copy1d { dst: near_end(1), src: near_end(4), bytes: 2 },
        Copy1d { dst: far_end(result), src: near_end(8), bytes: 3 },
    ];
    // SAFETY: all ranges are allocated and disjoint, and the stream is waited for before the host looks.
    unsafe {
        far.write_bytes(7, 16);
        for (at, value) in [(0, 0), (4, 4), (8, 8)] {
            device.fill(near.offset(at), FillPattern::U8(value), 4, stream).unwrap();
        }
        device.stream_synchronize(stream).unwrap();
        let ((), calls) = recorder.record(|| device.copy_batch(&copies, stream).unwrap());
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(far, 12), [7, 7, 7, 7, 7, 7, 7, 7, 8, 8, 8, 7]);
        device.copy_to_host(far, near, 4, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(far, 4), [7, 4, 4, 0]);
        device.free(near).unwrap();
        device.pinned_free(far).unwrap();
        calls
    }
}

#[test]
fn batch_of_copies_is_one_call_if_the_driver_can() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let calls = copy_batch(&recorder, &*device, stream);
    let single = [
        ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2"],
        ["hipMemcpyHtoDAsync", "hipMemcpyDtoDAsync", "hipMemcpyDtoHAsync"],
    ];
    match VENDOR {
        Vendor::Cuda => {
            let args = [("count", 3), ("kinds", 1), ("stream", stream.0 as u64)];
            assert_call(&calls, "cuMemcpyBatchAsync", &args);
        }
        Vendor::Rocm(7) => {
            let args = [("count", 3), ("kinds", 0), ("attributes", 0), ("stream", stream.0 as u64)];
            assert_call(&calls, "hipMemcpyBatchAsync", &args);
        }
        Vendor::Rocm(_) => assert_eq!(names(&calls), single[1]),
    }
    // CUDA refuses a batch on the legacy default stream, so there each copy is a call. You can use one on the thread's
    // default stream.
    let legacy = device.stream_default(DefaultStream::Legacy).unwrap();
    assert_eq!(names(&copy_batch(&recorder, &*device, legacy)), pick(single));
    let of_thread = device.stream_default(DefaultStream::PerThread).unwrap();
    let calls = copy_batch(&recorder, &*device, of_thread);
    assert_eq!(names(&calls), pick([vec!["cuMemcpyBatchAsync"], single[1].to_vec()]));
    // SAFETY: alive, and not used again.
    unsafe { device.stream_destroy(stream) }.unwrap();
}

#[test]
fn strided_copy_moves_the_box_and_nothing_else() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    // Two planes of 3 rows of 4 bytes. They come from planes of 6 rows of 12 bytes, and go to planes of 5 rows of 8
    // bytes.
    let buffer = device.alloc(80).unwrap();
    let host = device.pinned_alloc(144, PinnedOptions::default()).unwrap();
    let back = device.pinned_alloc(80, PinnedOptions::default()).unwrap();
    // SAFETY: 144 bytes, and no copy uses them yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(host, 144) };
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 + 1);
    let copy = Copy3d {
        dst: CopyEnd::Device(buffer.offset(9)),
        dst_pitch: 8,
        dst_rows: 5,
        src: CopyEnd::Host(host),
        src_pitch: 12,
        src_rows: 6,
        width: 4,
        height: 3,
        depth: 2,
    };
    // SAFETY: all ranges are allocated, and the stream is waited for before the host looks.
    unsafe {
        device.fill(buffer, FillPattern::U8(0), 80, stream).unwrap();
        let ((), calls) = recorder.record(|| device.copy_3d(&copy, stream).unwrap());
        assert_one(&calls, ["cuMemcpy3DAsync_v2", "hipMemcpy3DAsync"], &[("stream", stream.0 as u64)]);
        device.copy_to_host(back, buffer, 80, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        for (i, &byte) in std::slice::from_raw_parts(back, 80).iter().enumerate() {
            let (plane, row, column) = (i / 40, i / 8 % 5, i % 8);
            let inside = (1..4).contains(&row) && (1..5).contains(&column);
            let expected = if inside { (plane * 6 + row - 1) * 12 + column } else { 0 };
            assert_eq!(usize::from(byte), expected, "byte {i}");
        }
        device.free(buffer).unwrap();
        device.pinned_free(host).unwrap();
        device.pinned_free(back).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn misuse_is_a_violation_for_the_fake() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let buffer = device.alloc(64).unwrap();
    recorder.hold();
    let assert_found = |count| {
        let violations = recorder.violations();
        assert_eq!(violations.len(), count, "{violations:?}");
    };
    // SAFETY: the fake survives misuse that a device would not: here a copy runs after its memory is freed.
    unsafe {
        device.copy_on_device(buffer.offset(32), buffer, 32, stream).unwrap();
        device.free(buffer).unwrap();
        assert_found(1);
        recorder.release();
        assert_found(1);
        device.stream_destroy(stream).unwrap();
        assert!(device.stream_synchronize(stream).is_err());
        assert!(device.free(RawBuffer(0x1234)).is_err());
    }
    assert_found(2);
}
