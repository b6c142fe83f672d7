//! Modules and launches.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fake_hip::Profile;
use gpustream_hal::{ErrorKind, LaunchConfig, Occupancy, StreamOptions};

use super::{assert_call, module, start};
use crate::PROFILE;

#[test]
fn a_module_is_loaded_asked_and_unloaded() {
    let (recorder, device) = start();
    let (module, calls) = recorder.record(|| module(&*device));
    assert_call(&calls, "hipModuleLoadData", &[]);
    // SAFETY: the module is loaded until the last line.
    unsafe {
        let (function, calls) = recorder.record(|| device.module_function(module, "scale").unwrap());
        assert_call(&calls, "hipModuleGetFunction", &[("module", module.0 as u64)]);
        let (info, calls) = recorder.record(|| device.function_info(function).unwrap());
        let names: Vec<_> = calls.iter().map(|call| call.name).collect();
        assert_eq!(names, ["hipFuncGetAttribute"; 4]);
        assert_eq!((info.max_threads_per_block, info.registers), (1024, 32));
        assert_eq!((info.static_shared, info.local), (0, 0));
        let (params, calls) = recorder.record(|| device.function_params(function).unwrap());
        assert!(params.is_none() && calls.is_empty());
        let ((), calls) =
            recorder.record(|| device.function_set_max_dynamic_shared(function, 64 << 10).unwrap());
        assert!(calls.is_empty(), "AMD devices need no opt-in: {calls:?}");
        let ((), calls) = recorder.record(|| device.module_unload(module).unwrap());
        assert_call(&calls, "hipModuleUnload", &[("module", module.0 as u64)]);
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

/// HIP is given no length, copies nothing and builds late: the bytes must stay.
#[test]
fn the_image_outlives_the_callers() {
    let (recorder, device) = start();
    let mut image = fake_hip::image(&[("scale", &[8])]);
    // SAFETY: the driver is a fake, which reads images safely.
    let module = unsafe { device.module_load(&image) }.unwrap();
    image.fill(0);
    drop(image);
    // SAFETY: the module is loaded.
    unsafe {
        device.module_function(module, "scale").unwrap();
        device.module_unload(module).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_missing_kernel_is_named() {
    let (_recorder, device) = start();
    let module = module(&*device);
    for name in ["no_such", "with\0zero"] {
        // SAFETY: the module is loaded.
        let error = unsafe { device.module_function(module, name) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KernelNotFound);
        assert!(error.message().contains(name), "{error}");
    }
    // SAFETY: loaded, and not used again.
    unsafe { device.module_unload(module) }.unwrap();
}

#[test]
fn images_that_do_not_load_say_why() {
    let (_recorder, device) = start();
    // SAFETY: the driver is a fake, which reads images safely.
    assert_eq!(unsafe { device.module_load(b"other arch") }.unwrap_err().kind(), ErrorKind::NoImageForDevice);
    // SAFETY: the driver is a fake, which reads images safely.
    let error = unsafe { device.module_load(b"damaged") }.unwrap_err();
    // From 6 on the fake answers with a code that the bindings do not know: kept, not misread.
    let (kind, code) = match PROFILE {
        Profile::Rocm5 => (ErrorKind::InvalidModule, 200),
        Profile::Rocm6 => (ErrorKind::Driver, 911),
        Profile::Rocm7 => (ErrorKind::Driver, 916),
    };
    assert_eq!((error.kind(), error.code()), (kind, Some(code)));
    assert_eq!(error.call(), Some("hipModuleLoadData"));
}

#[test]
fn a_launch_passes_shape_and_arguments() {
    let (recorder, device) = start();
    let module = module(&*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let kernel_saw = Arc::clone(&seen);
    recorder.on_kernel("scale", move |run| {
        kernel_saw.store(run.integer(2), Ordering::SeqCst);
        run.grid == [3, 2, 1] && run.block == [64, 4, 1] && run.shared == 1024 && run.float(1) == 2.5
    });
    let (mut pointer, mut factor, mut count) = (0_u64, 2.5_f32, 77_usize);
    let args: [*mut c_void; 3] =
        [(&raw mut pointer).cast(), (&raw mut factor).cast(), (&raw mut count).cast()];
    let mut config = LaunchConfig::new([3, 2, 1], [64, 4, 1]);
    config.dynamic_shared = 1024;
    // SAFETY: handles are alive, and the arguments are as the kernel wants them.
    unsafe {
        let function = device.module_function(module, "scale").unwrap();
        let ((), calls) = recorder.record(|| device.launch(function, &config, &args, stream).unwrap());
        let shape = [("grid_x", 3), ("grid_y", 2), ("grid_z", 1), ("block_x", 64), ("block_y", 4)];
        assert_call(&calls, "hipModuleLaunchKernel", &shape);
        let rest =
            [("shared", 1024), ("stream", stream.0 as u64), ("params", args.as_ptr() as u64), ("extra", 0)];
        assert_call(&calls, "hipModuleLaunchKernel", &rest);
        device.stream_synchronize(stream).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 77);

        // Plain stream order is a correct answer to early dependent launch.
        config.early_dependent = true;
        let ((), calls) = recorder.record(|| device.launch(function, &config, &args, stream).unwrap());
        assert_call(&calls, "hipModuleLaunchKernel", &[]);
        device.stream_synchronize(stream).unwrap();
        device.stream_destroy(stream).unwrap();
        device.module_unload(module).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_cooperative_launch_where_the_version_has_it() {
    let (recorder, device) = start();
    let module = module(&*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let mut config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
    config.cooperative = true;
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: handles are alive; the kernel does nothing.
    unsafe {
        let function = device.module_function(module, "scale").unwrap();
        let (answer, calls) = recorder.record(|| device.launch(function, &config, &args, stream));
        if PROFILE == Profile::Rocm5 {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("hipModuleLaunchCooperativeKernel"), "{error}");
            assert!(error.message().contains("HIP 5.5"), "{error}");
        } else {
            answer.unwrap();
            assert_call(&calls, "hipModuleLaunchCooperativeKernel", &[("grid_x", 2), ("block_x", 64)]);
        }
        device.stream_synchronize(stream).unwrap();
        device.stream_destroy(stream).unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn what_cannot_be_launched_is_refused() {
    let (recorder, device) = start();
    let module = module(&*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: handles are alive; nothing is launched.
    unsafe {
        let function = device.module_function(module, "scale").unwrap();
        let launch = |config: &LaunchConfig| {
            recorder.record(|| device.launch(function, config, &args, stream).unwrap_err())
        };
        let mut clustered = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
        clustered.cluster = [2, 1, 1];
        let (error, calls) = launch(&clustered);
        assert_eq!((error.kind(), calls.len()), (ErrorKind::Unsupported, 0));
        // HIP counts a dimension's threads in 32 bits.
        let (error, calls) = launch(&LaunchConfig::new([1 << 24, 1, 1], [256, 1, 1]));
        assert_eq!((error.kind(), calls.len()), (ErrorKind::InvalidLaunch, 0));
        // HIP answers "invalid value" to every wrong shape.
        let (error, calls) = launch(&LaunchConfig::new([1, 1, 1], [1025, 1, 1]));
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidLaunch, Some(1)));
        assert_call(&calls, "hipModuleLaunchKernel", &[("block_x", 1025)]);

        // A stream of another device is refused, and not by us.
        let other = gpustream_hip::backend().open(1).unwrap();
        let foreign = other.stream_create(StreamOptions::default()).unwrap();
        let config = LaunchConfig::new([1, 1, 1], [64, 1, 1]);
        let error = device.launch(function, &config, &args, foreign).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(400)));
        other.stream_destroy(foreign).unwrap();
        device.stream_destroy(stream).unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn occupancy_is_asked_of_the_driver() {
    let (recorder, device) = start();
    let module = module(&*device);
    // SAFETY: the module is loaded until the last line.
    unsafe {
        let function = device.module_function(module, "scale").unwrap();
        let (occupancy, calls) = recorder.record(|| device.occupancy(function, 256, 1024).unwrap());
        assert_eq!(occupancy, Occupancy::new(8));
        let args = [("function", function.0 as u64), ("block", 256), ("shared", 1024)];
        assert_call(&calls, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", &args);
        let (suggestion, calls) = recorder.record(|| device.suggested_launch(function, 1024).unwrap());
        assert_eq!((suggestion.blocks, suggestion.threads_per_block), (208, 1024));
        let args = [("shared", 1024), ("limit", 0)];
        assert_call(&calls, "hipModuleOccupancyMaxPotentialBlockSize", &args);
        device.module_unload(module).unwrap();
    }
}
