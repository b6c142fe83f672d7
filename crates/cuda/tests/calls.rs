//! Every method makes exactly the driver calls its documentation names, with the right arguments.

mod support;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{
    Copy3d, CopyEnd, DefaultStream, EventOptions, FillPattern, LaunchConfig, ManagedAdvice, PinnedOptions,
    RawBuffer, StreamOptions, WaitPolicy,
};
use support::{add_kernel, open};

/// Runs an expression and compares the names of the driver calls it made.
macro_rules! calls {
    ($recorder:expr, $names:expr, $body:expr) => {{
        $recorder.clear();
        // SAFETY: the handles are alive and the ranges allocated, in each use below.
        #[allow(unused_unsafe, clippy::undocumented_unsafe_blocks)]
        let value = unsafe { $body }.unwrap();
        assert_eq!($recorder.names(), $names);
        value
    }};
}

#[test]
fn a_launch_is_one_call_beside_the_context_check() {
    let (recorder, device) = open();
    let (module, add) = add_kernel(&recorder, &*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let buffer = device.alloc(4).unwrap();
    // SAFETY: stream and buffer are alive.
    unsafe { device.fill(buffer, FillPattern::U32(1), 1, stream) }.unwrap();
    let (mut target, mut value) = (buffer.0, 41u32);
    let mut args: [*mut c_void; 2] = [(&raw mut target).cast(), (&raw mut value).cast()];
    let mut config = LaunchConfig::new([2, 1, 1], [32, 4, 1]);
    config.dynamic_shared = 256;

    recorder.clear();
    // SAFETY: all alive, two arguments of the kernel's sizes.
    unsafe { device.launch(add, &config, &args, stream) }.unwrap();
    let calls = recorder.calls();
    let names: Vec<_> = calls.iter().map(|call| call.name).collect();
    assert_eq!(names, ["cuCtxGetCurrent", "cuLaunchKernel"]);
    let shape = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared"];
    assert_eq!(shape.map(|name| calls[1].arg(name)), [2, 1, 1, 32, 4, 1, 256]);
    assert_eq!(calls[1].arg("stream"), stream.0 as u64);
    assert_eq!(calls[1].arg("function"), add.0 as u64);

    for attribute in 0..3 {
        let mut config = LaunchConfig::new([2, 1, 1], [32, 1, 1]);
        match attribute {
            0 => config.cooperative = true,
            1 => config.cluster = [2, 1, 1],
            _ => config.early_dependent = true,
        }
        calls!(recorder, ["cuLaunchKernelEx"], device.launch(add, &config, &args, stream));
    }

    let mut out = 0u32;
    // SAFETY: the copy is done before `out` goes: ordinary memory makes the call wait.
    unsafe { device.copy_to_host((&raw mut out).cast(), buffer, 4, stream) }.unwrap();
    assert_eq!(out, 1 + 4 * 41, "four launches");
    args.reverse();

    calls!(recorder, ["cuStreamDestroy_v2"], device.stream_destroy(stream));
    calls!(recorder, ["cuMemFree_v2"], device.free(buffer));
    calls!(recorder, ["cuModuleUnload"], device.module_unload(module));
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn streams_and_events() {
    let (recorder, device) = open();
    let options = StreamOptions::default().priority(-3);
    let stream = calls!(recorder, ["cuStreamCreateWithPriority"], device.stream_create(options));
    let call = recorder.work()[0].clone();
    assert_eq!((call.arg("flags"), call.arg("priority") as i32), (1, -3), "non-blocking");
    let blocking = StreamOptions::default().blocking_with_default(true);
    let other = calls!(recorder, ["cuStreamCreateWithPriority"], device.stream_create(blocking));
    assert_eq!(recorder.work()[0].arg("flags"), 0);

    let event = calls!(recorder, ["cuEventCreate"], device.event_create(EventOptions::default()));
    assert_eq!(recorder.work()[0].arg("flags"), 2, "no timing");
    let blocking = EventOptions::default().wait(WaitPolicy::Block);
    let blocking = calls!(recorder, ["cuEventCreate"], device.event_create(blocking));
    assert_eq!(recorder.work()[0].arg("flags"), 3, "no timing, sleep");
    let timed = [0, 1].map(|_| {
        calls!(recorder, ["cuEventCreate"], device.event_create(EventOptions::default().timing(true)))
    });
    assert_eq!(recorder.work()[0].arg("flags"), 0);

    calls!(recorder, ["cuEventRecord"], device.event_record(event, stream));
    let call = recorder.work()[0].clone();
    assert_eq!((call.arg("event"), call.arg("stream")), (event.0 as u64, stream.0 as u64));
    calls!(recorder, ["cuStreamWaitEvent"], device.stream_wait_event(other, event));
    let call = recorder.work()[0].clone();
    assert_eq!((call.arg("stream"), call.arg("event")), (other.0 as u64, event.0 as u64));

    assert!(calls!(recorder, ["cuEventQuery"], device.event_query(event)));
    assert!(calls!(recorder, ["cuStreamQuery"], device.stream_query(other)));
    calls!(recorder, ["cuEventSynchronize"], device.event_synchronize(event));
    calls!(recorder, ["cuStreamSynchronize"], device.stream_synchronize(other));
    calls!(recorder, ["cuCtxSynchronize"], device.synchronize());
    for event in timed {
        calls!(recorder, ["cuEventRecord"], device.event_record(event, stream));
    }
    let elapsed = calls!(recorder, ["cuEventElapsedTime"], device.event_elapsed(timed[0], timed[1]));
    assert!(elapsed > std::time::Duration::ZERO);

    for event in [event, blocking, timed[0], timed[1]] {
        calls!(recorder, ["cuEventDestroy_v2"], device.event_destroy(event));
    }
    for stream in [stream, other] {
        calls!(recorder, ["cuStreamDestroy_v2"], device.stream_destroy(stream));
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn not_ready_is_an_answer_not_an_error() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let event = device.event_create(EventOptions::default()).unwrap();
    recorder.hold();
    // SAFETY: both are alive until the end.
    unsafe {
        device.event_record(event, stream).unwrap();
        assert!(!device.event_query(event).unwrap());
        assert!(!device.stream_query(stream).unwrap());
        recorder.release();
        assert!(device.event_query(event).unwrap());
        assert!(device.stream_query(stream).unwrap());
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn a_wait_blocks_until_the_device_gets_there() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let event = device.event_create(EventOptions::default()).unwrap();
    recorder.hold();
    // SAFETY: both are alive until the end.
    unsafe { device.event_record(event, stream) }.unwrap();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the event is alive to the end.
            unsafe { device.event_synchronize(event) }.unwrap();
            done.store(1, Ordering::SeqCst);
        });
        recorder.wait_until_someone_waits();
        assert_eq!(done.load(Ordering::SeqCst), 0);
        recorder.release();
    });
    assert_eq!(done.load(Ordering::SeqCst), 1);
    // SAFETY: nothing uses them any more.
    unsafe {
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn default_streams_need_no_call() {
    let (recorder, device) = open();
    let legacy = calls!(recorder, [""; 0], device.stream_default(DefaultStream::Legacy));
    let per_thread = calls!(recorder, [""; 0], device.stream_default(DefaultStream::PerThread));
    assert_eq!((legacy.0, per_thread.0), (1, 2));
    calls!(recorder, ["cuStreamSynchronize"], device.stream_synchronize(legacy));
}

#[test]
fn host_functions_run_on_another_thread() {
    unsafe extern "C" fn tell(data: *mut c_void) {
        // SAFETY: the test passes its flag.
        unsafe { &*data.cast::<AtomicU32>() }.store(1, Ordering::SeqCst);
    }
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let flag = AtomicU32::new(0);
    let data = (&raw const flag).cast_mut().cast();
    calls!(recorder, ["cuLaunchHostFunc"], device.stream_host_fn(stream, tell, data));
    calls!(recorder, ["cuStreamSynchronize"], device.stream_synchronize(stream));
    assert_eq!(flag.load(Ordering::SeqCst), 1);
    calls!(recorder, ["cuStreamDestroy_v2"], device.stream_destroy(stream));
}

#[test]
fn memory() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let before = recorder.live();

    let a = calls!(recorder, ["cuMemAlloc_v2"], device.alloc(1000));
    assert_eq!(recorder.work()[0].arg("bytes"), 1000);
    let b = calls!(recorder, ["cuMemAllocAsync"], device.alloc_async(1000, stream));
    let managed = calls!(recorder, ["cuMemAllocManaged"], device.managed_alloc(1000));
    assert_eq!(recorder.work()[0].arg("flags"), 1, "global");
    let pinned = calls!(recorder, ["cuMemHostAlloc"], device.pinned_alloc(1000, PinnedOptions::default()));
    assert_eq!(recorder.work()[0].arg("flags"), 3, "portable, mapped");
    let combined = PinnedOptions::default().write_combined(true);
    let combined = calls!(recorder, ["cuMemHostAlloc"], device.pinned_alloc(1000, combined));
    assert_eq!(recorder.work()[0].arg("flags"), 7, "portable, mapped, write-combined");
    calls!(recorder, ["cuMemHostGetDevicePointer_v2"], device.pinned_device_address(pinned));
    let mut own = vec![0u8; 4096];
    calls!(recorder, ["cuMemHostRegister_v2"], device.host_register(own.as_mut_ptr(), own.len()));
    assert_eq!(recorder.work()[0].arg("flags"), 3);
    calls!(recorder, ["cuMemHostUnregister"], device.host_unregister(own.as_mut_ptr()));

    calls!(recorder, ["cuMemsetD8Async"], device.fill(a, FillPattern::U8(7), 1000, stream));
    calls!(recorder, ["cuMemsetD16Async"], device.fill(a, FillPattern::U16(0x0201), 2, stream));
    calls!(
        recorder,
        ["cuMemsetD32Async"],
        device.fill(a.offset(4), FillPattern::U32(0x0605_0403), 1, stream)
    );
    calls!(recorder, ["cuMemcpyDtoDAsync_v2"], device.copy_on_device(b, a, 1000, stream));
    calls!(recorder, ["cuMemcpyDtoHAsync_v2"], device.copy_to_host(pinned, b, 1000, stream));
    // SAFETY: 1000 bytes, and the copies are done.
    let bytes = unsafe { std::slice::from_raw_parts(pinned, 1000) };
    assert_eq!(bytes[..10], [1, 2, 1, 2, 3, 4, 5, 6, 7, 7]);
    calls!(recorder, ["cuMemcpyHtoDAsync_v2"], device.copy_to_device(a, pinned, 1000, stream));
    let call = recorder.work()[0].clone();
    assert_eq!(call.arg("dst"), a.0 as u64);
    assert_eq!((call.arg("src"), call.arg("bytes")), (pinned as u64, 1000));
    calls!(recorder, ["cuMemcpyBatchAsync"], device.copy_inline(a, [1u8; 8].as_ptr(), 8, stream));
    calls!(recorder, ["cuMemcpyPeerAsync"], device.copy_from_peer(b, a, 0, 1000, stream));

    calls!(recorder, ["cuMemPrefetchAsync_v2"], device.managed_prefetch(managed, 1000, true, stream));
    assert_eq!(recorder.work()[0].arg("location"), 1 << 32, "device 0");
    calls!(recorder, ["cuMemPrefetchAsync_v2"], device.managed_prefetch(managed, 1000, false, stream));
    assert_eq!(recorder.work()[0].arg("location"), 2 << 32, "host");
    for (advice, code, kind) in [
        (ManagedAdvice::ReadMostly, 1, 1),
        (ManagedAdvice::PreferDevice, 3, 1),
        (ManagedAdvice::PreferHost, 3, 2),
        (ManagedAdvice::AccessedByDevice, 5, 1),
    ] {
        calls!(recorder, ["cuMemAdvise_v2"], device.managed_advise(managed, 1000, advice));
        let call = recorder.work()[0].clone();
        assert_eq!((call.arg("advice"), call.arg("location") >> 32), (code, kind));
    }
    let (free, total) = calls!(recorder, ["cuMemGetInfo_v2"], device.memory());
    assert!(free < total);

    calls!(recorder, ["cuMemFree_v2"], device.free(a));
    calls!(recorder, ["cuMemFreeAsync"], device.free_async(b, stream));
    calls!(recorder, ["cuMemFree_v2"], device.free(managed));
    for pinned in [pinned, combined] {
        calls!(recorder, ["cuMemFreeHost"], device.pinned_free(pinned));
    }
    assert_eq!(recorder.live(), before);
    calls!(recorder, ["cuStreamDestroy_v2"], device.stream_destroy(stream));
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_strided_copy_moves_the_box_and_nothing_else() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    // 2 planes of 3 rows of 4 bytes, in planes of 5 rows of 8 bytes on the device.
    let buffer = device.alloc(80).unwrap();
    let host = device.pinned_alloc(24, PinnedOptions::default()).unwrap();
    let back = device.pinned_alloc(80, PinnedOptions::default()).unwrap();
    // SAFETY: 24 bytes, and no copy uses them yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(host, 24) };
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 + 1);
    let copy = Copy3d {
        dst: CopyEnd::Device(buffer.offset(9)),
        dst_pitch: 8,
        dst_rows: 5,
        src: CopyEnd::Host(host),
        src_pitch: 4,
        src_rows: 3,
        width: 4,
        height: 3,
        depth: 2,
    };
    calls!(recorder, ["cuMemsetD8Async"], device.fill(buffer, FillPattern::U8(0), 80, stream));
    calls!(recorder, ["cuMemcpy3DAsync_v2"], device.copy_3d(&copy, stream));
    calls!(recorder, ["cuMemcpyDtoHAsync_v2"], device.copy_to_host(back, buffer, 80, stream));
    // SAFETY: 80 bytes, and the copy is done.
    let back_bytes = unsafe { std::slice::from_raw_parts(back, 80) };
    for (i, &byte) in back_bytes.iter().enumerate() {
        let (plane, row, column) = (i / 40, i / 8 % 5, i % 8);
        let inside = (1..4).contains(&row) && (1..5).contains(&column);
        let expected = if inside { plane * 12 + (row - 1) * 4 + column } else { 0 };
        assert_eq!(usize::from(byte), expected, "byte {i}");
    }
    // SAFETY: all copies are done.
    unsafe {
        device.free(buffer).unwrap();
        device.pinned_free(host).unwrap();
        device.pinned_free(back).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn modules_and_kernels() {
    let (recorder, device) = open();
    let image = fake_cuda::image(&[("saxpy", &[4, 8, 8, 8]), ("nothing", &[])]);
    let module = calls!(recorder, ["cuModuleLoadDataEx"], device.module_load(&image));
    let saxpy = calls!(recorder, ["cuModuleGetFunction"], device.module_function(module, "saxpy"));
    let params = calls!(recorder, ["cuFuncGetParamInfo"; 5], device.function_params(saxpy)).unwrap();
    let offsets: Vec<_> = params.iter().map(|param| (param.offset, param.size)).collect();
    assert_eq!(offsets, [(0, 4), (8, 8), (16, 8), (24, 8)]);
    let nothing = calls!(recorder, ["cuModuleGetFunction"], device.module_function(module, "nothing"));
    assert_eq!(calls!(recorder, ["cuFuncGetParamInfo"], device.function_params(nothing)), Some(Vec::new()));

    let info = calls!(recorder, ["cuFuncGetAttribute"; 4], device.function_info(saxpy));
    assert_eq!(info.max_threads_per_block, 1024);
    calls!(recorder, ["cuFuncSetAttribute"], device.function_set_max_dynamic_shared(saxpy, 100_000));
    let call = recorder.work()[0].clone();
    assert_eq!((call.arg("attribute"), call.arg("value")), (8, 100_000));
    let names = ["cuOccupancyMaxActiveBlocksPerMultiprocessor"];
    let occupancy = calls!(recorder, names, device.occupancy(saxpy, 256, 0));
    assert_eq!(occupancy.blocks_per_multiprocessor, 8);
    let suggested = calls!(recorder, ["cuOccupancyMaxPotentialBlockSize"], device.suggested_block(saxpy, 0));
    assert_eq!(suggested, (264, 1024));
    calls!(recorder, ["cuModuleUnload"], device.module_unload(module));
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn peers() {
    let (recorder, device) = open();
    let peer = gpustream_cuda::backend().open(1).unwrap();
    assert!(calls!(recorder, ["cuDeviceGet", "cuDeviceCanAccessPeer"], device.can_access_peer(1)));
    assert!(calls!(recorder, [""; 0], device.can_access_peer(0)));
    assert_eq!(device.can_access_peer(7).unwrap_err().kind(), gpustream_hal::ErrorKind::NoDevice);
    calls!(recorder, ["cuCtxEnablePeerAccess"], device.enable_peer_access(1));
    calls!(recorder, ["cuCtxEnablePeerAccess"], device.enable_peer_access(1));

    let (here, there) = (device.alloc(64).unwrap(), peer.alloc(64).unwrap());
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    calls!(recorder, ["cuMemcpyPeerAsync"], device.copy_from_peer(here, there, 1, 64, stream));
    let call = recorder.work()[0].clone();
    assert_ne!(call.arg("dst_context"), call.arg("src_context"));
    // SAFETY: the copy is done.
    unsafe {
        device.stream_destroy(stream).unwrap();
        device.free(here).unwrap();
        peer.free(there).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_device_knows_what_it_is() {
    let (_recorder, device) = open();
    let info = device.info();
    assert_eq!((info.backend, info.ordinal, info.arch.as_str()), ("cuda", 0, "sm_90"));
    assert_eq!(info.name, "Fake H200");
    assert_eq!((info.multiprocessors, info.warp_size), (132, 32));
    assert_eq!(info.max_grid, [0x7fff_ffff, 65_535, 65_535]);
    assert_eq!(info.shared_memory_per_block_optin, 232_448);
    assert_eq!(info.stream_priorities, (0, -5));
    assert!(info.memory_pools && info.managed_memory && info.cooperative_launch && info.cluster_launch);
    assert!(info.early_dependent_launch && info.peer_access && info.free_synchronizes);
    assert!(info.driver.contains("13.0"), "{}", info.driver);
    assert!(info.to_string().starts_with("cuda:0 Fake H200 (sm_90, 141.0 GiB"), "{info}");
}

#[test]
fn opening_twice_shares_the_context() {
    let (recorder, first) = open();
    let second = gpustream_cuda::backend().open(0).unwrap();
    assert_eq!(recorder.count("cuDevicePrimaryCtxRetain"), 0, "retained when first opened");
    let stream = first.stream_create(StreamOptions::default()).unwrap();
    calls!(recorder, ["cuStreamSynchronize"], second.stream_synchronize(stream));
    calls!(recorder, ["cuStreamDestroy_v2"], second.stream_destroy(stream));
}

#[test]
fn the_fake_notices_misuse() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let buffer = device.alloc(64).unwrap();
    recorder.hold();
    // SAFETY: the fake survives what a device would not: the copy runs after its memory is gone.
    unsafe {
        device.copy_on_device(buffer.offset(32), buffer, 32, stream).unwrap();
        device.free(buffer).unwrap();
        assert_eq!(recorder.violations().len(), 1, "{:?}", recorder.violations());
        recorder.release();
        assert_eq!(recorder.violations().len(), 2, "{:?}", recorder.violations());
        device.stream_destroy(stream).unwrap();
        assert!(device.stream_synchronize(stream).is_err());
        assert!(device.free(RawBuffer(0x1234)).is_err());
    }
    assert_eq!(recorder.violations().len(), 4, "{:?}", recorder.violations());
}
