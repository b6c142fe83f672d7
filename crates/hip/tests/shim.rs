//! The HIP-over-CUDA shim, over a CUDA recorder: the backend's calls arrive in libcuda, mean the same there, and work. On a
//! machine with an NVIDIA GPU the conformance suite goes the same way for real.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Also in the tests' helpers.

mod scene;

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{
    Backend, Device, ErrorKind, EventOptions, FillPattern, LaunchConfig, PinnedOptions, StreamOptions,
};
use gpustream_hip::Hip;
use scene::add_one;

/// Builds the shim once, and returns the folder with its libraries.
fn shim() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hip-shim");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/hip/shim/build.sh");
        let status = Command::new(script).arg(&folder).status().expect("a shell");
        assert!(status.success(), "the shim does not build");
        folder
    })
}

/// Runs a test through each version's shim.
fn each_version(test: impl Fn(&fake_cuda::Recorder, &dyn Device, u32)) {
    let recorder = fake_cuda::load();
    let libraries = [
        (5, "libamdhip64.so.5"),
        (6, "libamdhip64.so.6"),
        (7, "libamdhip64.so.7"),
        (7, "libamdhip64-documented-memset.so.7"),
    ];
    for (major, library) in libraries {
        // SAFETY: the shim behaves like a libamdhip64.
        let hip = unsafe { Hip::at(shim().join(library)) };
        let device = hip.open(0).unwrap_or_else(|error| panic!("{library}: {error:?}"));
        recorder.clear();
        test(&recorder, &*device, major);
        assert_eq!(recorder.violations(), [""; 0], "{library}");
    }
}

#[test]
fn device_is_the_nvidia_one_under_a_name_of_its_own() {
    each_version(|_, device, major| {
        let info = device.info();
        assert_eq!((info.arch.as_str(), info.warp_size), ("gfxcuda90", 32));
        assert_eq!((info.name.as_str(), info.multiprocessors), ("Fake H200", 132));
        assert!(info.driver.starts_with(&format!("{major}.")), "{}", info.driver);
        assert_eq!(info.limits.max_grid, [i32::MAX as u32, 65_535, 65_535]);
        assert_eq!(info.limits.max_block, [1024, 1024, 64]);
        assert_eq!(
            (info.limits.shared_memory_per_block, info.limits.shared_memory_per_block_optin),
            (49_152, 232_448)
        );
        assert_eq!(info.limits.async_engine_count, 3);
        assert_eq!((info.limits.stream_priorities.least, info.limits.stream_priorities.greatest), (0, -5));
        assert_eq!(info.features.memory_pools, major > 5);
        assert!(
            info.features.concurrent_kernels && info.features.peer_access && info.features.cooperative_launch
        );
        assert!(device.target_rank("gfxcuda90").is_some());
        assert_eq!(device.target_rank("sm_90"), None);
        assert_eq!(device.target_rank("gfx90a"), None);
    });
}

#[test]
fn calls_arrive_as_cudas() {
    each_version(|recorder, device, _| {
        // SAFETY: everything is alive until we destroy it.
        unsafe {
            let ((), calls) = recorder.record(|| {
                let stream = device.stream_create(StreamOptions::default().priority(-3)).unwrap();
                let event = device.event_create(EventOptions::default()).unwrap();
                device.event_record(event, stream).unwrap();
                device.stream_wait_event(stream, event).unwrap();
                device.event_destroy(event).unwrap();
                device.stream_destroy(stream).unwrap();
            });
            let names: Vec<_> = calls.iter().map(|call| call.name).collect();
            assert_eq!(
                names,
                [
                    "cuStreamCreateWithPriority",
                    "cuEventCreate",
                    "cuEventRecord",
                    "cuStreamWaitEvent",
                    "cuEventDestroy_v2",
                    "cuStreamDestroy_v2"
                ]
            );
            assert_eq!((calls[0].arg("flags"), calls[0].arg("priority")), (1, -3_i32 as u64));
            assert_eq!(calls[1].arg("flags"), 2);

            let (pinned, calls) =
                recorder.record(|| device.pinned_alloc(64, PinnedOptions::default()).unwrap());
            assert_eq!((calls[0].name, calls[0].arg("flags")), ("cuMemHostAlloc", 3));
            device.pinned_free(pinned).unwrap();
        }
    });
}

#[test]
fn every_method_does_its_work() {
    each_version(|recorder, device, major| drop(scene::every_method(recorder, device, major == 5)));
}

#[test]
fn host_functions_run_in_order_and_callbacks_are_not_captured() {
    each_version(|_, device, major| {
        let counter = AtomicU32::new(0);
        let data: *mut c_void = (&raw const counter).cast_mut().cast();
        // SAFETY: everything is alive until we destroy it; the counter outlives the work.
        unsafe {
            let stream = device.stream_create(StreamOptions::default()).unwrap();
            device.stream_host_fn(stream, add_one, data).unwrap();
            device.stream_synchronize(stream).unwrap();
            assert_eq!(counter.load(Ordering::SeqCst), 1);
            device.capture_begin(stream).unwrap();
            let captured = device.stream_host_fn(stream, add_one, data);
            assert_eq!(captured.is_err(), major == 5);
            let graph = device.capture_end(stream).unwrap();
            device.graph_destroy(graph).unwrap();
            device.stream_destroy(stream).unwrap();
        }
    });
}

#[test]
fn work_of_two_devices_stays_apart() {
    let _recorder = fake_cuda::load();
    // SAFETY: the shim behaves like a libamdhip64.
    let hip = unsafe { Hip::at(shim().join("libamdhip64.so.6")) };
    assert_eq!(hip.device_count().unwrap(), 2);
    let [first, second] = [0, 1].map(|ordinal| hip.open(ordinal).unwrap());
    // SAFETY: everything is alive until we destroy it.
    unsafe {
        let stream = second.stream_create(StreamOptions::default()).unwrap();
        let (a, b) = (first.alloc(16).unwrap(), second.alloc(16).unwrap());
        first.fill(a, FillPattern::U8(3), 16, gpustream_hal::RawStream(0)).unwrap();
        first.synchronize().unwrap();
        second.copy_from_peer(b, a, 0, 16, stream).unwrap();
        second.stream_synchronize(stream).unwrap();
        second.enable_peer_access(0).unwrap();
        second.enable_peer_access(0).unwrap();

        // If a stream belongs to another device than the current one, HIP refuses the launch, so the shim must do so
        // too.
        let module = first.module_load(&fake_cuda::image(&[("nothing", &[])])).unwrap();
        let function = first.module_function(module, "nothing").unwrap();
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]);
        let error = first.launch(function, &config, &[], stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(400)));
        first.module_unload(module).unwrap();
        first.free(a).unwrap();
        second.free(b).unwrap();
        second.stream_destroy(stream).unwrap();
    }
}

#[test]
fn failures_come_through_with_their_codes() {
    each_version(|recorder, device, _| {
        for (code, kind) in
            [(2, ErrorKind::OutOfMemory), (700, ErrorKind::DeviceLost), (801, ErrorKind::Unsupported)]
        {
            recorder.fail_next("cuMemAlloc_v2", code);
            let error = device.alloc(16).unwrap_err();
            assert_eq!((error.kind(), error.call()), (kind, Some("hipMalloc")));
        }
        // SAFETY: the driver is a fake, so it can read any image safely.
        assert_eq!(unsafe { device.module_load(b"damaged") }.unwrap_err().kind(), ErrorKind::InvalidModule);
    });
}
