//! Every method makes exactly the driver calls its documentation names, with the right arguments.

mod support;

use std::ffi::c_void;

use gpustream_hal::{FillPattern, LaunchConfig, RawBuffer, StreamOptions};
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
    let suggested = calls!(recorder, ["cuOccupancyMaxPotentialBlockSize"], device.suggested_launch(saxpy, 0));
    assert_eq!((suggested.blocks, suggested.threads_per_block), (264, 1024));
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
    assert_eq!((info.stream_priorities.least, info.stream_priorities.greatest), (0, -5));
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
