//! How devices and their peers are opened and described.

use gpustream_hal::{ErrorKind, Identity};

use super::startup::in_own_process;
use super::{Vendor, assert_call, assert_one, names, pick, start, stream};
use crate::{VENDOR, backend, load_with, options};

/// The version that the fake plays, as the backend writes it.
pub(crate) const VERSION: &str = match VENDOR {
    Vendor::Cuda => "CUDA 13.0",
    Vendor::Rocm(5) => "5.7.31921",
    Vendor::Rocm(6) => "6.4.43483",
    Vendor::Rocm(_) => "7.15.51803",
};

#[test]
fn device_is_described_as_the_driver_describes_it() {
    let (_recorder, device) = start();
    let info = device.info();
    assert_eq!((info.backend.as_str(), info.ordinal), (pick(["cuda", "hip"]), 0));
    assert_eq!(info.name, pick(["Fake H200", "Fake Instinct MI210"]));
    assert_eq!(info.arch, pick(["sm_90", "gfx90a"]));
    assert_eq!((info.multiprocessors, info.warp_size), pick([(132, 32), (104, 64)]));
    assert_eq!(info.limits.max_block, [1024, 1024, pick([64, 1024])]);
    assert_eq!(info.limits.max_grid, [i32::MAX as u32, pick([65_535, 65_536]), pick([65_535, 65_536])]);
    assert_eq!((info.limits.max_threads_per_block, info.limits.max_threads_per_multiprocessor), (1024, 2048));
    // HIP has no attribute for an opt-in, so both limits are the same.
    let shared = (info.limits.shared_memory_per_block, info.limits.shared_memory_per_block_optin);
    assert_eq!(shared, pick([(48 << 10, 232_448), (64 << 10, 64 << 10)]));
    let priorities = (info.limits.stream_priorities.least, info.limits.stream_priorities.greatest);
    assert_eq!(priorities, pick([(0, -5), (1, -1)]));
    assert_eq!(info.features.memory_pools, VENDOR != Vendor::Rocm(5));
    assert!(
        info.features.concurrent_kernels
            && info.features.cooperative_launch
            && info.features.managed_memory
            && info.features.peer_access
    );
    assert!(info.quirks.free_synchronizes);
    assert_eq!(
        [info.features.cluster_launch, info.features.early_dependent_launch],
        [pick([true, false]); 2]
    );
    assert!(info.driver.ends_with(VERSION), "{}", info.driver);
    let begin = pick(["cuda:0 Fake H200 (sm_90, 141.0 GiB", "hip:0 Fake Instinct MI210 (gfx90a, 141.0 GiB"]);
    assert!(info.to_string().starts_with(begin), "{info}");
    let uuid = pick(["GPU-41414141-4141-4141-4141-414141414141", "GPU-AAAAAAAAAAAAAAAA"]);
    assert_eq!(info.uuid.as_deref(), Some(uuid));
    assert_eq!(info.pci.map(|pci| pci.to_string()).as_deref(), Some("0000:3b:00.0"));
}

#[test]
fn device_is_named_without_being_opened() {
    let recorder = load_with(options());
    backend().device_count().unwrap();
    let (identity, calls) = recorder.record(|| backend().identity(1).unwrap());
    let uuid = pick(["GPU-42424242-4242-4242-4242-424242424242", "GPU-BBBBBBBBBBBBBBBB"]);
    assert_eq!(identity, Identity { uuid: Some(uuid.to_owned()), pci: "0000:3c:00.0".parse().ok() });
    let only_asks = |name: &&str| name.starts_with("cuDeviceGet") || name.starts_with("hipDeviceGet");
    assert!(names(&calls).iter().all(|name| only_asks(name) || *name == "hipGetDeviceCount"), "{calls:?}");
    assert_eq!(backend().identity(2).unwrap_err().kind(), ErrorKind::NoDevice);
}

#[test]
fn names_that_the_driver_lacks_are_none() {
    in_own_process(&[], || {
        let mut options = options();
        let absent = pick([
            ["cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId"],
            ["hipDeviceGetUuid", "hipDeviceGetPCIBusId"],
        ]);
        options.without.extend(absent);
        let _recorder = load_with(options);
        assert_eq!(backend().identity(0).unwrap(), Identity::default());
        let device = backend().open(0).unwrap();
        assert_eq!((device.info().uuid.as_deref(), device.info().pci), (None, None));
    });
}

#[test]
fn unknown_ordinal_says_which_exist() {
    let _recorder = load_with(options());
    assert_eq!(backend().device_count().unwrap(), 2);
    let error = backend().open(2).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.message().contains(pick(["cuda:0 to cuda:1", "hip:0 to hip:1"])), "{error}");
}

#[test]
fn probe_names_library_and_version() {
    let _recorder = load_with(options());
    let probe = backend().probe();
    let library = backend().library().unwrap();
    assert_eq!(probe.library, Some(library.path));
    assert_eq!(probe.tried.last(), Some(&library.found_by));
    assert_eq!(probe.runtime_version.as_deref(), Some(VERSION));
    assert_eq!(probe.tried.first().map(String::as_str), Some(pick(["libcuda.so.1", "libamdhip64.so.7"])));
    if let Vendor::Rocm(version) = VENDOR {
        assert_eq!(probe.driver_version.as_deref(), Some(VERSION));
        assert_eq!(probe.runtime_compiler.is_some(), version < 7);
        assert_eq!(probe.problem, None);
    }
}

#[test]
fn device_that_is_opened_twice_knows_its_handles() {
    let (recorder, first) = start();
    let (second, calls) = recorder.record(|| backend().open(0).unwrap());
    assert!(calls.iter().all(|call| call.name != "cuDevicePrimaryCtxRetain"), "retained when first opened");
    let stream = stream(&*first);
    // SAFETY: the stream is alive until the last call.
    unsafe {
        let ((), calls) = recorder.record(|| second.stream_synchronize(stream).unwrap());
        assert_one(&calls, ["cuStreamSynchronize", "hipStreamSynchronize"], &[]);
        second.stream_destroy(stream).unwrap();
    }
}

#[test]
fn peer_access_that_is_enabled_already_is_success() {
    let (recorder, device) = start();
    // CUDA retains a device's context when you first use it.
    let peer = backend().open(1).unwrap();
    let (can, calls) = recorder.record(|| device.can_access_peer(1).unwrap());
    assert!(can);
    // CUDA must first ask for the other device's handle.
    assert_one(&calls[pick([1, 0])..], ["cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer"], &[("peer", 1)]);
    assert!(!device.can_access_peer(0).unwrap());
    let enable = pick(["cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess"]);
    recorder.fail_next(enable, 704);
    for _ in 0..2 {
        let ((), calls) = recorder.record(|| device.enable_peer_access(1).unwrap());
        assert_call(&calls, enable, &[("flags", 0)]);
    }
    recorder.fail_next(enable, 217);
    assert_eq!(device.enable_peer_access(1).unwrap_err().kind(), ErrorKind::Unsupported);
    drop(peer);
}
