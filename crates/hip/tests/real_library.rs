//! The real libamdhip64, if it is installed and there is no AMD GPU.

use std::path::Path;

use gpustream_hal::ErrorKind;

/// Returns true if the test can run here. If it cannot, says why.
fn installed() -> bool {
    let probe = gpustream_hip::backend().probe();
    if probe.library.is_none() {
        eprintln!("SKIPPED: no libamdhip64 is installed (Debian: apt-get install libamdhip64-5)");
        return false;
    }
    if Path::new("/dev/kfd").exists() {
        eprintln!("SKIPPED: this machine may have an AMD GPU, and the test is about having none");
        return false;
    }
    true
}

#[test]
fn without_a_gpu_the_real_library_gives_no_device() {
    if !installed() {
        return;
    }
    let backend = gpustream_hip::backend();
    for error in [backend.device_count().unwrap_err(), backend.open(0).err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
        assert!(error.message().contains("finds no AMD GPU"), "{error}");
    }
    let probe = backend.probe();
    eprintln!("{probe:?}");
    assert!(probe.library.is_some_and(|path| path.to_string_lossy().contains("libamdhip64")));
    let version = probe.runtime_version.unwrap();
    let major: u32 = version.split('.').next().unwrap().parse().unwrap();
    assert!((5..=9).contains(&major), "{version}");
    assert!(probe.problem.is_some_and(|problem| problem.contains("no AMD GPU")));
}
