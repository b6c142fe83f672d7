//! Opening and describing devices.

use fake_hip::Profile;
use gpustream_hal::ErrorKind;

use super::{assert_call, start};
use crate::PROFILE;

/// The version as people write it.
const VERSION: &str = match PROFILE {
    Profile::Rocm5 => "5.7.31921",
    Profile::Rocm6 => "6.4.43483",
    Profile::Rocm7 => "7.15.51803",
};

#[test]
fn a_device_is_described_by_attributes_whatever_the_layout() {
    let (_recorder, device) = start();
    let info = device.info();
    assert_eq!((info.backend, info.ordinal), ("hip", 0));
    assert_eq!(info.name, "Fake Instinct MI210");
    assert_eq!(info.arch, "gfx90a");
    assert_eq!(info.warp_size, 64);
    assert_eq!(info.multiprocessors, 104);
    assert_eq!(info.max_block, [1024, 1024, 1024]);
    assert_eq!(info.max_grid, [i32::MAX as u32, 65_536, 65_536]);
    assert_eq!(info.max_threads_per_multiprocessor, 2048);
    // There is no opt-in attribute: the two limits are one.
    assert_eq!((info.shared_memory_per_block, info.shared_memory_per_block_optin), (64 << 10, 64 << 10));
    assert_eq!((info.stream_priorities.least, info.stream_priorities.greatest), (1, -1));
    assert_eq!(info.memory_pools, PROFILE != Profile::Rocm5);
    assert!(info.concurrent_kernels && info.cooperative_launch && info.managed_memory && info.peer_access);
    assert!(!info.cluster_launch && !info.early_dependent_launch);
    assert_eq!(info.driver, VERSION);
}

#[test]
fn features_choose_between_images() {
    let (_recorder, device) = start();
    assert!(device.target_rank("gfx90a:xnack-") > device.target_rank("gfx90a"));
    assert!(device.target_rank("gfx90a").is_some());
    for other in ["gfx90a:xnack+", "gfx942", "gfx9-generic", "sm_90", "x86-64-v3"] {
        assert_eq!(device.target_rank(other), None, "{other}");
    }
}

#[test]
fn an_unknown_ordinal_says_which_exist() {
    let _recorder = fake_hip::load(PROFILE);
    let error = gpustream_hip::backend().open(2).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.message().contains("hip:0 to hip:1"), "{error}");
    assert_eq!(gpustream_hip::backend().device_count().unwrap(), 2);
}

#[test]
fn the_probe_names_library_and_version() {
    let _recorder = fake_hip::load(PROFILE);
    let probe = gpustream_hip::backend().probe();
    assert!(probe.library.is_some());
    assert_eq!(probe.runtime_version.as_deref(), Some(VERSION));
    assert_eq!(probe.driver_version.as_deref(), Some(VERSION));
    assert_eq!(probe.tried.first().map(String::as_str), Some("libamdhip64.so.7"));
    assert_eq!(probe.problem, None);
    assert_eq!(probe.runtime_compiler.is_some(), PROFILE != Profile::Rocm7);
}

#[test]
fn the_device_synchronises_and_tells_its_memory() {
    let (recorder, device) = start();
    let ((), calls) = recorder.record(|| device.synchronize().unwrap());
    assert_call(&calls, "hipDeviceSynchronize", &[]);
    recorder.set_memory(0, 1 << 30);
    let (memory, calls) = recorder.record(|| device.memory().unwrap());
    assert_call(&calls, "hipMemGetInfo", &[]);
    assert!(memory.free <= memory.total && memory.total >= 1 << 30);
}

#[test]
fn peer_access_that_is_enabled_already_is_success() {
    let (recorder, device) = start();
    assert!(device.can_access_peer(1).unwrap());
    assert!(!device.can_access_peer(0).unwrap());
    recorder.fail_next("hipDeviceEnablePeerAccess", 704);
    let ((), calls) = recorder.record(|| device.enable_peer_access(1).unwrap());
    assert_call(&calls, "hipDeviceEnablePeerAccess", &[("peer", 1), ("flags", 0)]);
    recorder.fail_next("hipDeviceEnablePeerAccess", 217);
    assert_eq!(device.enable_peer_access(1).unwrap_err().kind(), ErrorKind::Unsupported);
}
