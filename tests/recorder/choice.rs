//! Which device you get if drivers work, are broken, or have no device. Each such machine is a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::env;

use fake_hip::Profile;
use gpustream::{Device, Error, ErrorKind};
use recorder::Recorder;

use crate::fakes::in_child;

/// `cuInit` and `hipInit` return this code if there is no device.
const NONE: u32 = 100;

/// Loads both drivers with two devices each. `cuInit` and `hipInit` return these codes.
fn machine(cuda: u32, hip: u32) -> Recorder {
    drop(fake_cuda::load_with(fake_cuda::Options { init: cuda, ..fake_cuda::Options::default() }));
    fake_hip::load_with(fake_hip::Options { init: hip, ..fake_hip::Options::of(Profile::Rocm6) })
}

/// Runs a scene once for each of these codes, each time in its own process and without a device's name in the
/// environment.
fn with_each(codes: &[u32], scene: impl Fn(u32)) {
    const CODE: &str = "GPUSTREAM_TEST_CODE";
    for code in codes {
        let here = || scene(env::var(CODE).unwrap().parse().unwrap());
        if in_child(&[("GPUSTREAM_DEVICE", ""), (CODE, &code.to_string())], here).is_none() {
            return;
        }
    }
}

#[track_caller]
fn refused(opened: gpustream::Result<Device>, kind: ErrorKind, words: &[&str]) -> Error {
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} in {error}");
    }
    error
}

#[test]
fn broken_driver_ends_the_choice_and_the_error_says_what_all_backends_say() {
    with_each(&[46, 802, 803, 999], |code| {
        let _machine = machine(code, NONE);
        let words =
            ["cuda: ", "hip: HIP 6.4", "finds no AMD GPU", "cpu: has the device cpu:0", "GPUSTREAM_DEVICE"];
        let alone = Device::open("cuda:0").unwrap_err();
        for opened in [Device::best(), Device::best_gpu(), Device::open("gpu")] {
            let error = refused(opened, ErrorKind::DriverUnusable, &words[..3]);
            assert_eq!((error.code(), error.backend()), (Some(code.into()), Some("cuda")));
            assert!(error.message().ends_with(alone.message()), "the same advice: {error}");
        }
        refused(Device::best(), ErrorKind::DriverUnusable, &words);
        assert!(!Device::best_gpu().unwrap_err().message().contains("cpu:0"));
        assert_eq!(Device::open("cpu").unwrap().info().backend.as_str(), "cpu");
    });
}

#[test]
fn broken_driver_is_not_passed_over_for_the_other_vendors() {
    with_each(&[802], |code| {
        let _machine = machine(code, 0);
        refused(Device::best(), ErrorKind::DriverUnusable, &["hip: has 2 devices, hip:0 and so on"]);
        assert_eq!(Device::open("hip:1").unwrap().info().ordinal, 1);
    });
}

#[test]
fn broken_driver_is_not_passed_over_for_the_cpu() {
    with_each(&[999], |code| {
        let _machine = machine(NONE, code);
        refused(Device::best(), ErrorKind::DriverUnusable, &["cuda: CUDA 13.0", "finds no NVIDIA GPU"]);
    });
}

#[test]
fn device_that_is_counted_and_not_opened_ends_the_choice() {
    with_each(&[46, 2], |code| {
        let machine = machine(0, 0);
        for opened in [Device::best, Device::best_gpu] {
            machine.fail_next("cuDevicePrimaryCtxRetain", code);
            let error = opened().unwrap_err();
            assert_eq!(error.code(), Some(code.into()), "{error}");
            assert!(error.message().contains("hip: has 2 devices"), "{error}");
        }
        assert_eq!(Device::best().unwrap().info().backend.as_str(), "cuda");
    });
}

#[test]
fn machine_without_a_gpu_gives_the_cpu_unless_you_ask_for_a_gpu() {
    with_each(&[NONE], |_| {
        let _machine = machine(NONE, NONE);
        assert_eq!(Device::best().unwrap().info().backend.as_str(), "cpu");
        for opened in [Device::best_gpu(), Device::open("gpu")] {
            refused(opened, ErrorKind::NoDevice, &["no GPU", "finds no NVIDIA GPU", "finds no AMD GPU"]);
        }
    });
}

#[test]
fn the_environment_asks_for_a_gpu() {
    in_child(&[("GPUSTREAM_DEVICE", "gpu")], || {
        let _machine = machine(NONE, NONE);
        refused(Device::best(), ErrorKind::NoDevice, &["GPUSTREAM_DEVICE=gpu", "finds no NVIDIA GPU"]);
    });
}

#[test]
fn first_gpu_is_the_best() {
    with_each(&[0], |_| {
        let _machine = machine(NONE, 0);
        for opened in [Device::best(), Device::best_gpu(), Device::open("gpu")] {
            assert_eq!(opened.unwrap().info().backend, gpustream::BackendName::HIP);
        }
    });
}

#[test]
fn name_in_the_environment_counts_more() {
    in_child(&[("GPUSTREAM_DEVICE", "hip:1")], || {
        let _machine = machine(0, 0);
        for opened in [Device::best(), Device::best_gpu()] {
            let device = opened.unwrap();
            assert_eq!((device.info().backend.as_str(), device.info().ordinal), ("hip", 1));
        }
        assert_eq!(Device::open("gpu").unwrap().info().backend.as_str(), "cuda");
    });
}

#[test]
fn the_environments_cpu_is_no_gpu() {
    in_child(&[("GPUSTREAM_DEVICE", "cpu")], || {
        assert_eq!(Device::best().unwrap().info().backend.as_str(), "cpu");
        refused(Device::best_gpu(), ErrorKind::InvalidArgument, &["GPUSTREAM_DEVICE=cpu", "asks for a GPU"]);
    });
}

#[test]
fn library_that_the_environment_names_is_meant_to_be_used() {
    for (variable, name) in [
        ("GPUSTREAM_CUDA_LIBRARY", "/nowhere/libcuda.so.1"),
        ("GPUSTREAM_HIP_LIBRARY", "libgpustream-nowhere.so"),
        ("GPUSTREAM_CUDA_LIBRARY", "libm.so.6"),
    ] {
        let here = || {
            // The other driver has no device.
            let _cuda = (variable == "GPUSTREAM_HIP_LIBRARY").then(|| machine(NONE, NONE));
            refused(Device::best(), ErrorKind::DriverUnusable, &["cpu: has the device cpu:0"]);
        };
        if in_child(&[("GPUSTREAM_DEVICE", ""), (variable, name)], here).is_none() {
            return;
        }
    }
}

#[test]
fn devices_are_opened_by_uuid_and_by_their_place_on_the_bus() {
    with_each(&[0], |_| {
        let _machine = machine(0, 0);
        for ordinal in 0..2 {
            for backend in ["cuda", "hip"] {
                let info = Device::open(&format!("{backend}:{ordinal}")).unwrap().info().clone();
                let (uuid, pci) = (info.uuid.unwrap(), info.pci.unwrap());
                for name in [uuid.clone(), uuid.to_lowercase(), pci.to_string(), format!("0000{pci}")] {
                    let found = Device::open(&format!("{backend}:{name}")).unwrap();
                    assert_eq!(
                        (found.info().backend.as_str(), found.info().ordinal),
                        (backend, ordinal),
                        "{name}"
                    );
                }
            }
        }
        let there = [
            "cuda:0 (GPU-41414141-4141-4141-4141-414141414141, 0000:3b:00.0), cuda:1",
            "CUDA_VISIBLE_DEVICES",
        ];
        for name in ["cuda:GPU-00000000-0000-0000-0000-000000000000", "cuda:0000:01:00.0", "cuda:MIG-x"] {
            refused(Device::open(name), ErrorKind::NoDevice, &[&[name][..], &there].concat());
        }
        refused(Device::open("cpu:0000:3b:00.0"), ErrorKind::NoDevice, &["cpu:0 (no UUID, no PCI address)"]);
        refused(Device::open("cuda:x"), ErrorKind::InvalidArgument, &["`cuda:x`", "cuda:GPU-", "`gpu`"]);
    });
}

#[test]
fn the_environment_has_a_uuid() {
    in_child(&[("GPUSTREAM_DEVICE", "cuda:GPU-42424242-4242-4242-4242-424242424242")], || {
        let _machine = machine(0, NONE);
        assert_eq!(Device::best().unwrap().info().ordinal, 1);
    });
}

#[test]
fn instances_of_one_gpu_share_its_place_and_have_uuids_of_their_own() {
    with_each(&[0], |_| {
        let _cuda =
            fake_cuda::load_with(fake_cuda::Options { instances: true, ..fake_cuda::Options::default() });
        let second = "MIG-42424242-4242-4242-4242-424242424242";
        let device = Device::open(&format!("cuda:{second}")).unwrap();
        assert_eq!((device.info().ordinal, device.info().uuid.as_deref()), (1, Some(second)));
        let place = format!("cuda:{}", device.info().pci.unwrap());
        refused(Device::open(&place), ErrorKind::InvalidArgument, &[&place, "several devices", second]);
    });
}

/// Returns what the listed devices are called, with the code of each error.
fn listed(devices: Vec<gpustream::Result<Device>>) -> Vec<String> {
    let name = |device: gpustream::Result<Device>| match device {
        Ok(device) => format!("{}:{}", device.info().backend, device.info().ordinal),
        Err(error) => format!("{}: {:?} {:?}", error.backend().unwrap(), error.kind(), error.code().unwrap()),
    };
    devices.into_iter().map(name).collect()
}

#[test]
fn machine_lists_what_is_installed() {
    with_each(&[NONE, 0], |hip| {
        let _machine = machine(NONE, hip);
        let hip: &[_] = if hip == NONE { &[] } else { &["hip:0", "hip:1"] };
        assert_eq!(listed(Device::all()), [hip, &["cpu:0"]].concat());
        assert!(Device::all().into_iter().collect::<gpustream::Result<Vec<_>>>().is_ok());
    });
}

#[test]
fn broken_driver_is_listed_as_its_error() {
    with_each(&[999], |code| {
        let _machine = machine(code, NONE);
        assert_eq!(listed(Device::all()), ["cuda: DriverUnusable 999", "cpu:0"]);
        let error = refused(Device::all().remove(0), ErrorKind::DriverUnusable, &["all", file!()]);
        assert_eq!(error.backend(), Some("cuda"));
    });
}

#[test]
fn all_devices_of_one_backend_are_opened_or_none() {
    with_each(&[0], |_| {
        let machine = machine(0, NONE);
        let of = |name| Device::all_of(name).map(|devices| listed(devices.into_iter().map(Ok).collect()));
        let refused = |name, kind, words: &[&str]| {
            let error = of(name).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            for word in words.iter().chain(&["all_of", file!()]) {
                assert!(error.to_string().contains(word), "{word:?} in {error}");
            }
        };
        // The library keeps a context once it has one, so this comes first.
        machine.fail_next("cuDevicePrimaryCtxRetain", 2);
        refused("cuda", ErrorKind::OutOfMemory, &["device 0: "]);
        for name in ["cuda", "gpu"] {
            assert_eq!(of(name).unwrap(), ["cuda:0", "cuda:1"]);
        }
        assert_eq!(of("cpu").unwrap(), ["cpu:0"]);
        refused("hip", ErrorKind::NoDevice, &["finds no AMD GPU"]);
        refused("cuda:1", ErrorKind::InvalidArgument, &["`cuda:1` names one device", "as in `cuda`"]);
        refused("vulkan", ErrorKind::Unsupported, &["there is no backend named `vulkan`"]);
    });
}

/// A fake counts as a driver once it is loaded, so here we do not load them.
#[test]
fn machine_without_any_driver_has_the_cpu() {
    with_each(&[0], |_| {
        let missing = |name| Device::open(name).is_err_and(|error| error.kind() == ErrorKind::DriverMissing);
        if !missing("cuda") || !missing("hip") {
            eprintln!("SKIPPED: this machine has a driver");
            return;
        }
        assert_eq!(Device::best().unwrap().info().backend.as_str(), "cpu");
        assert_eq!(listed(Device::all()), ["cpu:0"]);
        refused(Device::best_gpu(), ErrorKind::NoDevice, &["cannot open libcuda", "cannot open libamdhip64"]);
    });
}
