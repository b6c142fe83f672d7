//! Memory, fills and copies.

use fake_hip::Profile;
use gpustream_hal::{
    Copy3d, CopyEnd, Device, ErrorKind, FillPattern, ManagedAdvice, PinnedOptions, RawStream, StreamOptions,
};

use super::{assert_call, signed, start};
use crate::PROFILE;

const PORTABLE_MAPPED_COHERENT: u64 = 0x4000_0003;

fn stream(device: &dyn Device) -> RawStream {
    device.stream_create(StreamOptions::default()).unwrap()
}

#[test]
fn device_memory() {
    let (recorder, device) = start();
    let (buffer, calls) = recorder.record(|| device.alloc(1000).unwrap());
    assert_call(&calls, "hipMalloc", &[("bytes", 1000)]);
    // SAFETY: allocated, and not used again.
    let ((), calls) = recorder.record(|| unsafe { device.free(buffer) }.unwrap());
    assert_call(&calls, "hipFree", &[("pointer", buffer.0 as u64)]);

    recorder.set_memory(0, 0);
    let error = device.alloc(1 << 40).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.starts_with("hip: out of memory (hipErrorOutOfMemory); free buffers"), "{text}");
    assert!(text.ends_with("(hipMalloc returned 2)"), "{text}");
}

#[test]
fn the_drivers_pool_where_the_version_has_one() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    // SAFETY: the stream is alive throughout; the memory is used by nothing.
    unsafe {
        let (answer, calls) = recorder.record(|| device.alloc_async(4096, stream));
        if PROFILE == Profile::Rocm5 {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("HIP 5.7.31921 has no memory pool"), "{error}");
            assert!(calls.is_empty(), "{calls:?}");
        } else {
            assert_call(&calls, "hipMallocAsync", &[("bytes", 4096), ("stream", stream.0 as u64)]);
            let buffer = answer.unwrap();
            let ((), calls) = recorder.record(|| device.free_async(buffer, stream).unwrap());
            let args = [("pointer", buffer.0 as u64), ("stream", stream.0 as u64)];
            assert_call(&calls, "hipFreeAsync", &args);
        }
        device.stream_synchronize(stream).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn pinned_memory_is_portable_mapped_and_coherent() {
    let (recorder, device) = start();
    let (pinned, calls) = recorder.record(|| device.pinned_alloc(64, PinnedOptions::default()).unwrap());
    assert_call(&calls, "hipHostMalloc", &[("bytes", 64), ("flags", PORTABLE_MAPPED_COHERENT)]);
    // SAFETY: pinned memory that nothing else uses, freed once.
    unsafe {
        let (_, calls) = recorder.record(|| device.pinned_device_address(pinned).unwrap());
        assert_call(&calls, "hipHostGetDevicePointer", &[("host", pinned as u64), ("flags", 0)]);
        let ((), calls) = recorder.record(|| device.pinned_free(pinned).unwrap());
        assert_call(&calls, "hipHostFree", &[("pointer", pinned as u64)]);
    }
    let options = PinnedOptions::default().write_combined(true);
    let (pinned, calls) = recorder.record(|| device.pinned_alloc(64, options).unwrap());
    assert_call(&calls, "hipHostMalloc", &[("flags", PORTABLE_MAPPED_COHERENT | 4)]);
    // SAFETY: pinned memory that nothing else uses, freed once.
    unsafe { device.pinned_free(pinned) }.unwrap();
}

#[test]
fn host_memory_is_registered_for_all_devices() {
    let (recorder, device) = start();
    let mut memory = vec![0_u8; 4096];
    let pointer = memory.as_mut_ptr();
    // SAFETY: the memory outlives its registration.
    unsafe {
        let ((), calls) = recorder.record(|| device.host_register(pointer, 4096).unwrap());
        let args = [("pointer", pointer as u64), ("bytes", 4096), ("flags", 3)];
        assert_call(&calls, "hipHostRegister", &args);
        let ((), calls) = recorder.record(|| device.host_unregister(pointer).unwrap());
        assert_call(&calls, "hipHostUnregister", &[("pointer", pointer as u64)]);
    }
}

#[test]
fn managed_memory_moves_and_is_advised() {
    let (recorder, _) = start();
    let device = gpustream_hip::backend().open(1).unwrap();
    let stream = stream(&*device);
    let (buffer, calls) = recorder.record(|| device.managed_alloc(4096).unwrap());
    assert_call(&calls, "hipMallocManaged", &[("bytes", 4096), ("flags", 1)]);
    // SAFETY: managed memory that is alive throughout.
    unsafe {
        for (to_device, target) in [(true, 1), (false, signed(-1))] {
            let ((), calls) =
                recorder.record(|| device.managed_prefetch(buffer, 4096, to_device, stream).unwrap());
            assert_call(&calls, "hipMemPrefetchAsync", &[("bytes", 4096), ("to", target)]);
        }
        let cases = [
            (ManagedAdvice::ReadMostly, 1, 1),
            (ManagedAdvice::PreferDevice, 3, 1),
            (ManagedAdvice::PreferHost, 3, signed(-1)),
            (ManagedAdvice::AccessedByDevice, 5, 1),
        ];
        for (advice, number, target) in cases {
            let ((), calls) = recorder.record(|| device.managed_advise(buffer, 4096, advice).unwrap());
            assert_call(&calls, "hipMemAdvise", &[("advice", number), ("to", target)]);
        }
        device.stream_synchronize(stream).unwrap();
        device.free(buffer).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn fills_and_copies_do_what_they_say() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let a = device.alloc(16).unwrap();
    let b = device.alloc(16).unwrap();
    let pinned = device.pinned_alloc(16, PinnedOptions::default()).unwrap();
    // SAFETY: all ranges are allocated, and the stream is waited for before the host looks.
    unsafe {
        let fills = [
            (FillPattern::U8(7), "hipMemsetD8Async", 7, 16),
            (FillPattern::U16(0x1234), "hipMemsetD16Async", 0x1234, 8),
            (FillPattern::U32(0xdead_beef), "hipMemsetD32Async", 0xdead_beef, 4),
        ];
        for (pattern, name, value, count) in fills {
            let ((), calls) = recorder.record(|| device.fill(a, pattern, count, stream).unwrap());
            assert_call(&calls, name, &[("dst", a.0 as u64), ("value", value), ("count", count as u64)]);
        }
        let ((), calls) = recorder.record(|| device.copy_on_device(b, a, 16, stream).unwrap());
        let args = [("dst", b.0 as u64), ("src", a.0 as u64), ("bytes", 16), ("stream", stream.0 as u64)];
        assert_call(&calls, "hipMemcpyDtoDAsync", &args);
        let ((), calls) = recorder.record(|| device.copy_to_host(pinned, b, 16, stream).unwrap());
        assert_call(&calls, "hipMemcpyDtoHAsync", &[("dst", pinned as u64), ("src", b.0 as u64)]);
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(pinned, 16), [0xef, 0xbe, 0xad, 0xde].repeat(4));

        let source = [3_u8; 16];
        let ((), calls) = recorder.record(|| device.copy_to_device(a, source.as_ptr(), 16, stream).unwrap());
        assert_call(&calls, "hipMemcpyHtoDAsync", &[("dst", a.0 as u64), ("bytes", 16)]);
        let ((), calls) = recorder.record(|| device.copy_from_peer(b, a, 1, 16, stream).unwrap());
        assert_call(&calls, "hipMemcpyPeerAsync", &[("dst_device", 0), ("src_device", 1), ("bytes", 16)]);
        device.copy_to_host(pinned, b, 16, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(pinned, 16), source);
        device.free(a).unwrap();
        device.free(b).unwrap();
        device.pinned_free(pinned).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

/// Two planes of three rows of four bytes, out of a wider and higher block.
pub(crate) fn strided(dst: CopyEnd, src: CopyEnd) -> Copy3d {
    Copy3d { dst, dst_pitch: 8, dst_rows: 4, src, src_pitch: 16, src_rows: 5, width: 4, height: 3, depth: 2 }
}

#[test]
fn strided_copies_name_pitch_rows_and_direction() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let host = device.pinned_alloc(256, PinnedOptions::default()).unwrap();
    let on_device = device.alloc(256).unwrap();
    let back = device.pinned_alloc(256, PinnedOptions::default()).unwrap();
    // SAFETY: all ranges are allocated, and the stream is waited for before the host looks.
    unsafe {
        for at in 0..160 {
            *host.add(at) = at as u8;
        }
        back.write_bytes(0, 256);
        let down = strided(CopyEnd::Device(on_device), CopyEnd::Host(host));
        let ((), calls) = recorder.record(|| device.copy_3d(&down, stream).unwrap());
        assert_call(&calls, "hipMemcpy3DAsync", &[("stream", stream.0 as u64)]);
        device.copy_to_host(back, on_device, 64, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        for (z, y, x) in [(0, 0, 0), (0, 2, 3), (1, 0, 1), (1, 2, 2)] {
            let (from, to) = ((z * 5 + y) * 16 + x, (z * 4 + y) * 8 + x);
            assert_eq!(*back.add(to), from as u8, "plane {z}, row {y}, byte {x}");
        }
        device.pinned_free(host).unwrap();
        device.pinned_free(back).unwrap();
        device.free(on_device).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}
