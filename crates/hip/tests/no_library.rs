//! A machine without libamdhip64, and a file that only has its name.

use std::fs;

use gpustream_hal::{Backend, ErrorKind};
use gpustream_hip::Hip;

#[test]
fn file_that_is_no_library_is_an_error() {
    let path = std::env::temp_dir().join(format!("gpustream-not-a-library-{}.so", std::process::id()));
    fs::write(&path, "not a library").unwrap();
    // SAFETY: the file is not a library, so none of its code can run.
    let error = unsafe { Hip::at(&path) }.device_count().unwrap_err();
    fs::remove_file(&path).unwrap();
    assert_eq!(error.kind(), ErrorKind::DriverUnusable);
}

/// This program contains the backend and, in its debug information, every prototype of hip-runtime-sys. Yet it must
/// start without a libamdhip64, and must not have loaded one.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_linked() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("amdhip64"), "{maps}");
}
