//! A machine without libamdhip64, and another library under its name.

use std::fs;

use gpustream_hal::{Backend, ErrorKind};
use gpustream_hip::Hip;

#[test]
fn a_missing_library_says_what_was_tried_and_what_to_install() {
    // SAFETY: nothing is there that could be called.
    let hip = unsafe { Hip::at("/nowhere/libamdhip64.so.6") };
    for error in [hip.device_count().unwrap_err(), hip.open(0).err().unwrap()] {
        assert_eq!((error.kind(), error.backend()), (ErrorKind::DriverMissing, Some("hip")));
        for words in ["/nowhere/libamdhip64.so.6", "install", "GPUSTREAM_HIP_LIBRARY"] {
            assert!(error.message().contains(words), "{error}");
        }
    }
    let probe = hip.probe();
    assert_eq!((probe.library, probe.tried.len()), (None, 1));
    assert!(probe.tried[0].contains("/nowhere/libamdhip64.so.6"), "{:?}", probe.tried);
    assert!(probe.problem.is_some());
}

#[test]
fn a_file_that_is_no_library_is_an_error_too() {
    let path = std::env::temp_dir().join(format!("gpustream-not-a-library-{}.so", std::process::id()));
    fs::write(&path, "not a library").unwrap();
    // SAFETY: the file is no library.
    let error = unsafe { Hip::at(&path) }.device_count().unwrap_err();
    fs::remove_file(&path).unwrap();
    assert_eq!(error.kind(), ErrorKind::DriverMissing);
}

#[test]
fn another_library_is_recognised_by_what_it_lacks() {
    // SAFETY: its initialisers have run in every process.
    let error = unsafe { Hip::at("libm.so.6") }.device_count().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DriverMissing);
    assert!(error.message().contains("is no libamdhip64") && error.message().contains("hipInit"), "{error}");
}

/// This program contains the backend and, in its debug information, every prototype of hip-runtime-sys; yet it needs
/// no libamdhip64 to start, and has not loaded one.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_linked() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("amdhip64"), "{maps}");
}
