//! Modules, kernels and launches.

use std::ffi::c_void;
use std::ptr;
use std::sync::mpsc::channel;

use gpustream_hal::{ErrorKind, LaunchConfig, Occupancy};

use super::{Vendor, assert_one, names, pick, scale, start, stream};
use crate::{VENDOR, backend, image, image_with_globals};

#[test]
fn module_is_loaded_asked_and_unloaded() {
    let (recorder, device) = start();
    let image = image(&[("scale", &[8, 4, 8]), ("nothing", &[])]);
    // SAFETY: the driver is a fake, which reads images safely; the module is loaded until the last call.
    unsafe {
        let (module, calls) = recorder.record(|| device.module_load(&image).unwrap());
        assert_one(&calls, ["cuModuleLoadDataEx", "hipModuleLoadData"], &[]);
        let of_module = [("module", module.0 as u64)];
        let (scale, calls) = recorder.record(|| device.module_function(module, "scale").unwrap());
        assert_one(&calls, ["cuModuleGetFunction", "hipModuleGetFunction"], &of_module);
        let nothing = device.module_function(module, "nothing").unwrap();

        let (info, calls) = recorder.record(|| device.function_info(scale).unwrap());
        assert_eq!(names(&calls), [pick(["cuFuncGetAttribute", "hipFuncGetAttribute"]); 4]);
        assert_eq!((info.max_threads_per_block, info.registers), (1024, pick([16, 32])));
        assert_eq!((info.static_shared, info.local), (0, 0));

        // You cannot ask HIP for parameters, and its devices need no opt-in.
        for (function, sizes) in [(scale, &[(0, 8), (8, 4), (16, 8)][..]), (nothing, &[])] {
            let (params, calls) = recorder.record(|| device.function_params(function).unwrap());
            let found = params.map(|params| params.iter().map(|p| (p.offset, p.size)).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), pick([Some(sizes), None]));
            assert_eq!(names(&calls), vec!["cuFuncGetParamInfo"; pick([sizes.len() + 1, 0])]);
        }
        let raise = || device.function_set_max_dynamic_shared(scale, 60_000).unwrap();
        let ((), calls) = recorder.record(raise);
        let set: Vec<_> =
            calls.iter().map(|call| (call.name, call.arg("attribute"), call.arg("value"))).collect();
        assert_eq!(set, pick([&[("cuFuncSetAttribute", 8, 60_000)][..], &[]]));

        let ((), calls) = recorder.record(|| device.module_unload(module).unwrap());
        assert_one(&calls, ["cuModuleUnload", "hipModuleUnload"], &of_module);
    }
}

#[test]
fn variables_are_found_by_one_call_each() {
    let (recorder, device) = start();
    let image = image_with_globals(&[("scale", &[8])], &[("factors", 16), ("_ZN2ns1vE", 4)]);
    // SAFETY: the driver is a fake, which reads images safely; the module is loaded until the last call.
    unsafe {
        let module = device.module_load(&image).unwrap();
        let of_module = [("module", module.0 as u64)];
        let mut seen = Vec::new();
        for (name, size) in [("factors", 16), ("_ZN2ns1vE", 4), ("factors", 16)] {
            let ((address, bytes), calls) = recorder.record(|| device.module_global(module, name).unwrap());
            assert_one(&calls, ["cuModuleGetGlobal_v2", "hipModuleGetGlobal"], &of_module);
            assert_eq!(bytes, size);
            seen.push(address);
        }
        assert!(seen[0] == seen[2] && seen[0] != seen[1]);
        for name in ["no_such", "scale", "with\0zero"] {
            let error = device.module_global(module, name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::GlobalNotFound);
            assert!(error.message().contains(name), "{error}");
        }
        device.module_unload(module).unwrap();
    }
}

/// HIP gets no length, does not copy the image and may build it later, so the backend must keep the bytes.
#[test]
fn image_need_not_outlive_the_load() {
    let (_recorder, device) = start();
    let mut image = image(&[("scale", &[8])]);
    // SAFETY: the driver is a fake, which reads images safely; the module is loaded until the last call.
    unsafe {
        let module = device.module_load(&image).unwrap();
        image.fill(0);
        drop(image);
        device.module_function(module, "scale").unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn missing_kernel_is_named() {
    let (_recorder, device) = start();
    let (module, _) = scale(&*device);
    // SAFETY: the module is loaded until the last call.
    unsafe {
        for name in ["no_such", "with\0zero"] {
            let error = device.module_function(module, name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KernelNotFound);
            assert!(error.message().contains(name), "{error}");
        }
        device.module_unload(module).unwrap();
    }
}

#[test]
fn refused_images_say_why() {
    let (_recorder, device) = start();
    // SAFETY: the driver is a fake, which reads images safely.
    let [other, damaged] =
        [&b"other arch"[..], b"damaged"].map(|image| unsafe { device.module_load(image) }.unwrap_err());
    assert_eq!(other.kind(), ErrorKind::NoImageForDevice);
    // Since ROCm 6 this is a code that the bindings do not know. We must keep it and not misread it.
    let (kind, code) = match VENDOR {
        Vendor::Cuda | Vendor::Rocm(5) => (ErrorKind::InvalidModule, 200),
        Vendor::Rocm(6) => (ErrorKind::Driver, 911),
        Vendor::Rocm(_) => (ErrorKind::Driver, 916),
    };
    assert_eq!((damaged.kind(), damaged.code()), (kind, Some(code)));
    assert_eq!(damaged.call(), Some(pick(["cuModuleLoadDataEx", "hipModuleLoadData"])));
}

#[test]
fn launch_passes_shape_and_arguments_in_one_call() {
    let (recorder, device) = start();
    let (module, scale) = scale(&*device);
    let stream = stream(&*device);
    let (ran, runs) = channel();
    recorder.on_kernel("scale", move |run| ran.send(run.clone()).is_ok());
    let (mut pointer, mut factor, mut count) = (0_u64, 2.5_f32, 77_usize);
    let args: [*mut c_void; 3] =
        [(&raw mut pointer).cast(), (&raw mut factor).cast(), (&raw mut count).cast()];
    let mut config = LaunchConfig::new([3, 2, 1], [64, 4, 1]);
    config.dynamic_shared = 1024;
    recorder.clear();
    // SAFETY: handles are alive, and the arguments are as the kernel wants them.
    unsafe {
        device.launch(scale, &config, &args, stream).unwrap();
        let calls = recorder.calls();
        let expected =
            pick([["cuCtxGetCurrent", "cuLaunchKernelEx"], ["hipGetDevice", "hipModuleLaunchKernel"]]);
        assert_eq!(names(&calls), expected, "a launch and the look at the thread's device");
        let given = [("function", scale.0), ("params", args.as_ptr().addr()), ("extra", 0)];
        for (name, value) in given {
            assert_eq!(calls[1].arg(name), value as u64, "{name}");
        }
        device.stream_synchronize(stream).unwrap();
        device.stream_destroy(stream).unwrap();
        device.module_unload(module).unwrap();
    }
    let run = runs.try_recv().unwrap();
    assert_eq!((run.grid, run.block, run.shared), ([3, 2, 1], [64, 4, 1], 1024));
    assert_eq!(run.attributes, []);
    assert_eq!((run.pointer::<f32>(0), run.float(1), run.integer(2)), (ptr::null_mut(), 2.5, 77));
}

/// Numbers from `CUlaunchAttributeID`.
const COOPERATIVE: u32 = 2;
const CLUSTER: u32 = 4;
const EARLY: u32 = 6;

#[test]
fn launch_options_take_the_call_and_the_attribute_that_the_version_has() {
    type Case = (fn(&mut LaunchConfig), Option<&'static str>, u32);
    let cooperative = match VENDOR {
        Vendor::Cuda => Some("cuLaunchKernelEx"),
        Vendor::Rocm(5) => None,
        Vendor::Rocm(_) => Some("hipModuleLaunchCooperativeKernel"),
    };
    let cases: [Case; 3] = [
        (|config| config.cooperative = true, cooperative, COOPERATIVE),
        (|config| config.cluster = [2, 1, 1], pick([Some("cuLaunchKernelEx"), None]), CLUSTER),
        // If a version has no early start, plain stream order is correct.
        (
            |config| config.early_dependent = true,
            Some(pick(["cuLaunchKernelEx", "hipModuleLaunchKernel"])),
            EARLY,
        ),
    ];
    let (recorder, device) = start();
    let (module, scale) = scale(&*device);
    let stream = stream(&*device);
    let (ran, runs) = channel();
    recorder.on_kernel("scale", move |run| ran.send((run.grid, run.block, run.attributes.clone())).is_ok());
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: handles are alive, and there are as many arguments as parameters, none shorter.
    unsafe {
        for (set, expected, attribute) in cases {
            let mut config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
            set(&mut config);
            let (answer, calls) = recorder.record(|| device.launch(scale, &config, &args, stream));
            assert_eq!(names(&calls), Vec::from_iter(expected));
            if expected.is_some() {
                answer.unwrap();
            } else {
                let error = answer.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                let lacks = ["hipModuleLaunchCooperativeKernel", "HIP 5.5"];
                let is_named = lacks.iter().all(|part| error.message().contains(part));
                assert!(is_named || !config.cooperative, "{error}");
            }
            device.stream_synchronize(stream).unwrap();
            let attributes = pick([vec![attribute], vec![]]);
            assert_eq!(runs.try_recv().ok(), expected.map(|_| ([2, 1, 1], [64, 1, 1], attributes)));
        }
        device.stream_destroy(stream).unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn launch_that_cannot_be_is_refused() {
    let (recorder, device) = start();
    let other = backend().open(1).unwrap();
    let (module, scale) = scale(&*device);
    let (here, foreign) = (stream(&*device), stream(&*other));
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: handles are alive; nothing is launched.
    unsafe {
        let launch = |config: &LaunchConfig, stream| {
            recorder.record(|| device.launch(scale, config, &args, stream).unwrap_err())
        };
        // The backend must translate this, because drivers say "invalid value" for every wrong shape.
        let (error, calls) = launch(&LaunchConfig::new([1, 1, 1], [1025, 1, 1]), here);
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidLaunch, Some(1)));
        assert_one(&calls[..1], ["cuLaunchKernelEx", "hipModuleLaunchKernel"], &[]);
        let mut cooperative = LaunchConfig::new([1, 1, 1], [1025, 1, 1]);
        cooperative.cooperative = true;
        let (error, _) = launch(&cooperative, here);
        let kind = if VENDOR == Vendor::Rocm(5) { ErrorKind::Unsupported } else { ErrorKind::InvalidLaunch };
        assert_eq!(error.kind(), kind);
        // The driver refuses a stream of another device.
        let (error, calls) = launch(&LaunchConfig::new([1, 1, 1], [64, 1, 1]), foreign);
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(400)));
        assert_one(&calls[..1], ["cuLaunchKernelEx", "hipModuleLaunchKernel"], &[]);
        if VENDOR != Vendor::Cuda {
            // HIP counts a dimension's threads in 32 bits, so we must refuse more before the call.
            let (error, calls) = launch(&LaunchConfig::new([1 << 24, 1, 1], [256, 1, 1]), here);
            assert_eq!((error.kind(), calls.len()), (ErrorKind::InvalidLaunch, 0));
        }
        device.stream_destroy(here).unwrap();
        other.stream_destroy(foreign).unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn occupancy_is_asked_of_the_driver() {
    let (recorder, device) = start();
    let (module, scale) = scale(&*device);
    // SAFETY: the module is loaded until the last call.
    unsafe {
        let (occupancy, calls) = recorder.record(|| device.occupancy(scale, 256, 1024).unwrap());
        assert_eq!(occupancy, Occupancy::new(8));
        let names = [
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
        ];
        assert_one(&calls, names, &[("function", scale.0 as u64), ("block", 256), ("shared", 1024)]);
        let (suggestion, calls) = recorder.record(|| device.suggested_launch(scale, 1024).unwrap());
        assert_eq!((suggestion.blocks, suggestion.threads_per_block), (pick([264, 208]), 1024));
        let names = ["cuOccupancyMaxPotentialBlockSize", "hipModuleOccupancyMaxPotentialBlockSize"];
        assert_one(&calls, names, &[("shared", 1024), ("limit", 0)]);
        device.module_unload(module).unwrap();
    }
}
