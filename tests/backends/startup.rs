//! What you are told if the driver is missing, too old or has no device. A backend looks only once in a process, so
//! each test runs in its own.

use std::process::Command;
use std::{env, thread};

use gpustream_hal::{ErrorKind, Source};

use super::device::VERSION;
use super::{Vendor, pick};
use crate::{Options, VENDOR, backend, load_with, options};

/// Runs the calling test again in a new process that has these `variables`. That process runs `case`.
pub(crate) fn in_own_process(variables: &[(&str, &str)], case: impl FnOnce()) {
    const INSIDE: &str = "GPUSTREAM_TEST_CASE";
    if env::var_os(INSIDE).is_some() {
        return case();
    }
    let test = thread::current().name().unwrap().to_owned();
    let output = Command::new(env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env(INSIDE, &test)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Asserts that you can neither count nor open devices, and that both errors contain these words.
#[track_caller]
fn assert_refused(kind: ErrorKind, words: &[&str]) {
    for error in [backend().device_count().unwrap_err(), backend().open(0).err().unwrap()] {
        assert_eq!((error.kind(), error.backend()), (kind, Some(pick(["cuda", "hip"]))));
        for word in words {
            assert!(error.message().contains(word), "{word:?} in {error}");
        }
    }
    assert!(backend().probe().problem.is_some());
}

const LIBRARY: [&str; 2] = ["GPUSTREAM_CUDA_LIBRARY", "GPUSTREAM_HIP_LIBRARY"];

#[test]
fn missing_library_from_the_environment_says_what_was_tried() {
    let variables = [(pick(LIBRARY), "/nowhere/lib.so.1")];
    in_own_process(&variables, || {
        assert_refused(ErrorKind::DriverUnusable, &["/nowhere/lib.so.1", "install", pick(LIBRARY)]);
        let probe = backend().probe();
        assert_eq!((probe.library, probe.tried.len()), (None, 1));
        assert!(probe.tried[0].contains("/nowhere/lib.so.1"), "{:?}", probe.tried);
    });
}

#[test]
fn library_of_another_kind_is_recognized() {
    in_own_process(&[(pick(LIBRARY), "libm.so.6")], || {
        let words = pick([
            ["libm.so.6", "is not a libcuda", "cuInit"],
            ["libm.so.6", "is not a libamdhip64", "hipInit"],
        ]);
        assert_refused(ErrorKind::DriverUnusable, &words);
    });
}

#[test]
fn missing_functions_are_all_named() {
    let [one, two] = pick([["cuMemAlloc_v2", "cuLaunchKernelEx"], ["hipMalloc", "hipModuleLaunchKernel"]]);
    in_own_process(&[], || {
        let mut options = options();
        options.without.extend([one, two]);
        let _recorder = load_with(options);
        assert_refused(ErrorKind::DriverUnusable, &[one, two, "install"]);
        let error = backend().open(0).err().unwrap();
        assert!(!error.message().contains("Free"), "{error}");
    });
}

#[test]
fn old_driver_is_refused_with_its_version() {
    in_own_process(&[], || {
        let _recorder = load_with(Options { version: pick([11_080, 40_521_401]), ..options() });
        let words = pick([["CUDA 11.8", "12.0", "install"], ["HIP 4.5.21401", "5.0.0", "install"]]);
        assert_refused(ErrorKind::DriverUnusable, &words);
    });
}

/// What you should check if a driver finds no device.
const CHECKS: [&[&str]; 2] = [
    &[VERSION, "nvidia-smi", "CUDA_VISIBLE_DEVICES"],
    &[VERSION, "/dev/kfd", "render", "HIP_VISIBLE_DEVICES"],
];

fn assert_no_device(init: u32) {
    in_own_process(&[], || {
        let _recorder = load_with(Options { init, devices: 0, ..options() });
        assert_refused(ErrorKind::NoDevice, pick(CHECKS));
        let probe = backend().probe();
        assert!(probe.library.is_some());
        assert_eq!(probe.runtime_version.as_deref(), Some(VERSION));
    });
}

/// Asserts that you cannot use a driver if its initialisation returns this code, and that the error contains this
/// advice.
fn assert_unusable(init: u32, advice: &str) {
    in_own_process(&[], || {
        let _recorder = load_with(Options { init, ..options() });
        assert_refused(ErrorKind::DriverUnusable, &[advice]);
        assert_eq!(backend().open(0).err().unwrap().code(), Some(init.into()));
    });
}

/// Both vendors call this code an unknown error.
#[test]
fn driver_that_does_not_start_cannot_be_used() {
    assert_unusable(999, pick(["kernel modules", ""]));
}

#[test]
fn driver_of_another_version_than_the_kernels_cannot_be_used() {
    assert_unusable(803, pick(["reboot", ""]));
}

#[test]
fn driver_that_waits_for_the_fabric_cannot_be_used() {
    assert_unusable(802, pick(["fabric manager", ""]));
}

#[test]
fn driver_whose_devices_another_process_holds_cannot_be_used() {
    assert_unusable(46, pick(["another process", ""]));
}

#[test]
fn driver_that_finds_no_device_says_what_to_check() {
    assert_no_device(100);
}

#[test]
fn driver_that_counts_no_device_says_what_to_check() {
    assert_no_device(0);
}

#[test]
fn missing_compiler_is_unsupported() {
    let path = "/nowhere/librtc.so.1";
    in_own_process(&[(pick(["GPUSTREAM_NVRTC_LIBRARY", "GPUSTREAM_HIPRTC_LIBRARY"]), path)], || {
        let mut options = options();
        // Up to ROCm 6, libamdhip64 contains the compiler too.
        if matches!(VENDOR, Vendor::Rocm(5 | 6)) {
            options.without.push("hiprtcCompileProgram");
        }
        let _recorder = load_with(options);
        let device = backend().open(0).unwrap();
        let source = Source { name: "k.cu", text: "", headers: &[], options: &[], kernels: &[] };
        // SAFETY: no options.
        for error in [unsafe { device.compile(&source) }.unwrap_err(), device.compiler().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(path) && error.message().contains("install"), "{error}");
        }
    });
}
