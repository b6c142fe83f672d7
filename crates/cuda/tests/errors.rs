//! Failures: each code has its kind and advice, whatever call it comes from.

mod support;

use std::ffi::c_void;

use gpustream_hal::{ErrorKind, FillPattern, LaunchConfig, StreamOptions};
use support::{add_kernel, open};

#[test]
fn each_code_has_its_kind() {
    let kinds = [
        (1, ErrorKind::InvalidArgument),
        (2, ErrorKind::OutOfMemory),
        (3, ErrorKind::DriverMissing),
        (34, ErrorKind::DriverMissing),
        (35, ErrorKind::DriverMissing),
        (46, ErrorKind::NoDevice),
        (100, ErrorKind::NoDevice),
        (101, ErrorKind::NoDevice),
        (200, ErrorKind::InvalidModule),
        (209, ErrorKind::NoImageForDevice),
        (214, ErrorKind::DeviceLost),
        (218, ErrorKind::InvalidModule),
        (221, ErrorKind::NoImageForDevice),
        (222, ErrorKind::NoImageForDevice),
        (400, ErrorKind::Driver),
        (500, ErrorKind::KernelNotFound),
        (700, ErrorKind::DeviceLost),
        (701, ErrorKind::InvalidLaunch),
        (702, ErrorKind::DeviceLost),
        (710, ErrorKind::DeviceLost),
        (714, ErrorKind::DeviceLost),
        (715, ErrorKind::DeviceLost),
        (716, ErrorKind::DeviceLost),
        (717, ErrorKind::DeviceLost),
        (718, ErrorKind::DeviceLost),
        (719, ErrorKind::DeviceLost),
        (720, ErrorKind::InvalidLaunch),
        (801, ErrorKind::Unsupported),
        (803, ErrorKind::DriverMissing),
        (900, ErrorKind::Captured),
        (901, ErrorKind::Captured),
        (904, ErrorKind::Captured),
        (907, ErrorKind::Captured),
        (908, ErrorKind::Captured),
        (999, ErrorKind::Driver),
    ];
    let (recorder, device) = open();
    for (code, kind) in kinds {
        recorder.fail_next("cuMemAlloc_v2", code);
        let error = device.alloc(64).unwrap_err();
        assert_eq!(error.kind(), kind, "{code}");
        assert_eq!((error.backend(), error.call()), (Some("cuda"), Some("cuMemAlloc")));
        assert_eq!(error.code(), Some(code.into()));
    }
}

#[test]
fn a_code_from_a_newer_driver_is_an_ordinary_error() {
    let (recorder, device) = open();
    for code in [10_000, 123_456, u32::MAX] {
        recorder.fail_next("cuMemAlloc_v2", code);
        let error = device.alloc(64).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(code.into())));
        assert!(error.to_string().contains(&code.to_string()), "{error}");
    }
}

#[test]
fn a_refused_launch_is_an_invalid_launch() {
    let (recorder, device) = open();
    let (module, add) = add_kernel(&recorder, &*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let (mut target, mut value) = (0usize, 0u32);
    let args: [*mut c_void; 2] = [(&raw mut target).cast(), (&raw mut value).cast()];
    // SAFETY: refused before anything runs; handles are alive.
    unsafe {
        let wide = LaunchConfig::new([1, 1, 1], [2048, 1, 1]);
        let error = device.launch(add, &wide, &args, stream).unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::InvalidLaunch, Some("cuLaunchKernel")));
        let mut cooperative = wide;
        cooperative.cooperative = true;
        let error = device.launch(add, &cooperative, &args, stream).unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::InvalidLaunch, Some("cuLaunchKernelEx")));
        device.stream_destroy(stream).unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn a_fault_in_a_kernel_reaches_whatever_comes_next() {
    let (recorder, device) = open();
    let (_, add) = add_kernel(&recorder, &*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let buffer = device.alloc(4).unwrap();
    let (mut target, mut value) = (buffer.0, 0u32);
    let args: [*mut c_void; 2] = [(&raw mut target).cast(), (&raw mut value).cast()];
    recorder.hold();
    recorder.fault_kernel("add", 700);
    // SAFETY: all alive; the device is lost afterwards, which is what this is about.
    unsafe {
        device.launch(add, &LaunchConfig::new([1, 1, 1], [1, 1, 1]), &args, stream).unwrap();
        recorder.release();
        for error in [
            device.stream_synchronize(stream).unwrap_err(),
            device.stream_query(stream).map(|_| ()).unwrap_err(),
            device.fill(buffer, FillPattern::U8(0), 4, stream).unwrap_err(),
            device.alloc(4).map(|_| ()).unwrap_err(),
            device.synchronize().unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.code()), (ErrorKind::DeviceLost, Some(700)));
        }
    }
}

#[test]
fn modules_that_do_not_load_say_why() {
    let (recorder, device) = open();
    // SAFETY: the driver is a fake, which reads images safely.
    let kind = |image: &[u8]| unsafe { device.module_load(image) }.unwrap_err().kind();
    assert_eq!(kind(b"damaged"), ErrorKind::InvalidModule);
    assert_eq!(kind(b"other arch"), ErrorKind::NoImageForDevice);
    // SAFETY: the driver is a fake, which reads images safely.
    let error = unsafe { device.module_load(b"bad ptx") }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule);
    assert!(error.to_string().contains("line 7: fake parsing error"), "{error}");
    recorder.clear();
    assert_eq!(kind(b""), ErrorKind::InvalidModule);
    assert_eq!(kind(b"\x7fELF cut short"), ErrorKind::InvalidModule);
    assert_eq!(recorder.names(), [""; 0], "the driver would read beyond the end");

    // SAFETY: the driver is a fake, which reads images safely.
    let module = unsafe { device.module_load(&fake_cuda::image(&[("here", &[])])) }.unwrap();
    // SAFETY: loaded above.
    unsafe {
        let error = device.module_function(module, "elsewhere").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KernelNotFound);
        assert!(error.to_string().contains("`elsewhere`"), "{error}");
        assert_eq!(device.module_function(module, "a\0b").unwrap_err().kind(), ErrorKind::KernelNotFound);
        device.module_unload(module).unwrap();
    }
}

#[test]
fn a_failing_context_check_is_an_error_of_its_own() {
    let (recorder, device) = open();
    recorder.fail_next("cuCtxGetCurrent", 201);
    let error = device.alloc(8).unwrap_err();
    assert_eq!(error.call(), Some("cuCtxGetCurrent"));
    assert_eq!(recorder.count("cuMemAlloc_v2"), 0, "nothing was tried without a context");
}

#[test]
fn no_such_device() {
    let (_recorder, _device) = open();
    let error = gpustream_cuda::backend().open(7).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.to_string().contains("has 2, numbered from 0"), "{error}");
}
