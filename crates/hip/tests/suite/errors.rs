//! The errors that the driver's failures become.

use std::ptr;

use gpustream_hal::{
    Device, ErrorKind, EventOptions, FillPattern, LaunchConfig, PinnedOptions, RawBuffer, RawEvent,
    RawFunction, RawGraph, RawGraphExec, RawModule, RawStream, Result, StreamOptions,
};

use super::start;

type Case = (&'static str, fn(&dyn Device) -> Result<()>);

/// A method for each HIP function that can fail at run time.
macro_rules! cases {
    (|$device:ident| $($function:literal: $call:expr,)*) => {
        &[$(($function, |$device| {
            // SAFETY: the armed fault keeps every call from happening, so handles and addresses may be nothing.
            unsafe { $call }
        })),*]
    };
}

#[allow(unused_unsafe)] // Some of the methods are safe.
const CASES: &[Case] = cases! { |device|
    "hipGetDevice": device.synchronize(),
    "hipDeviceSynchronize": device.synchronize(),
    "hipMemGetInfo": device.memory().map(drop),
    "hipDeviceCanAccessPeer": device.can_access_peer(1).map(drop),
    "hipDeviceEnablePeerAccess": device.enable_peer_access(1),
    "hipStreamCreateWithPriority": device.stream_create(StreamOptions::default()).map(drop),
    "hipStreamDestroy": device.stream_destroy(RawStream(0)),
    "hipStreamQuery": device.stream_query(RawStream(0)).map(drop),
    "hipStreamSynchronize": device.stream_synchronize(RawStream(0)),
    "hipStreamWaitEvent": device.stream_wait_event(RawStream(0), RawEvent(0)),
    "hipEventCreateWithFlags": device.event_create(EventOptions::default()).map(drop),
    "hipEventDestroy": device.event_destroy(RawEvent(0)),
    "hipEventRecord": device.event_record(RawEvent(0), RawStream(0)),
    "hipEventQuery": device.event_query(RawEvent(0)).map(drop),
    "hipEventSynchronize": device.event_synchronize(RawEvent(0)),
    "hipEventElapsedTime": device.event_elapsed(RawEvent(0), RawEvent(0)).map(drop),
    "hipMalloc": device.alloc(16).map(drop),
    "hipFree": device.free(RawBuffer(0)),
    "hipFreeAsync": device.free_async(RawBuffer(0), RawStream(0)),
    "hipHostMalloc": device.pinned_alloc(16, PinnedOptions::default()).map(drop),
    "hipHostFree": device.pinned_free(ptr::null_mut()),
    "hipHostRegister": device.host_register(ptr::null_mut(), 16),
    "hipHostUnregister": device.host_unregister(ptr::null_mut()),
    "hipHostGetDevicePointer": device.pinned_device_address(ptr::null_mut()).map(drop),
    "hipMallocManaged": device.managed_alloc(16).map(drop),
    "hipMemsetD8Async": device.fill(RawBuffer(0), FillPattern::U8(0), 1, RawStream(0)),
    "hipMemcpyHtoDAsync": device.copy_to_device(RawBuffer(0), ptr::null(), 1, RawStream(0)),
    "hipMemcpyDtoHAsync": device.copy_to_host(ptr::null_mut(), RawBuffer(0), 1, RawStream(0)),
    "hipMemcpyDtoDAsync": device.copy_on_device(RawBuffer(0), RawBuffer(0), 1, RawStream(0)),
    "hipMemcpyPeerAsync": device.copy_from_peer(RawBuffer(0), RawBuffer(0), 1, 1, RawStream(0)),
    "hipModuleLoadData": device.module_load(b"fake module\n").map(drop),
    "hipModuleUnload": device.module_unload(RawModule(0)),
    "hipModuleGetFunction": device.module_function(RawModule(0), "k").map(drop),
    "hipFuncGetAttribute": device.function_info(RawFunction(0)).map(drop),
    "hipModuleLaunchKernel": device.launch(RawFunction(0), &LaunchConfig::new([1; 3], [1; 3]), &[], RawStream(0)),
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor": device.occupancy(RawFunction(0), 64, 0).map(drop),
    "hipModuleOccupancyMaxPotentialBlockSize": device.suggested_block(RawFunction(0), 0).map(drop),
    "hipStreamBeginCapture": device.capture_begin(RawStream(0)),
    "hipStreamEndCapture": device.capture_end(RawStream(0)).map(drop),
    "hipStreamIsCapturing": device.is_capturing(RawStream(0)).map(drop),
    "hipGraphCreate": device.graph_create().map(drop),
    "hipGraphDestroy": device.graph_destroy(RawGraph(0)),
    "hipGraphGetNodes": device.graph_size(RawGraph(0)).map(drop),
    "hipGraphInstantiate": device.graph_instantiate(RawGraph(0)).map(drop),
    "hipGraphLaunch": device.graph_launch(RawGraphExec(0), RawStream(0)),
    "hipGraphExecUpdate": device.graph_update(RawGraphExec(0), RawGraph(0)).map(drop),
    "hipGraphExecDestroy": device.graph_exec_destroy(RawGraphExec(0)),
};

#[test]
fn every_call_reports_its_name_code_and_kind() {
    let (recorder, device) = start();
    for (name, call) in CASES {
        for (code, kind) in [
            (2, ErrorKind::OutOfMemory),
            (700, ErrorKind::DeviceLost),
            (719, ErrorKind::DeviceLost),
            (801, ErrorKind::Unsupported),
            (900, ErrorKind::Captured),
            (12_345, ErrorKind::Driver),
        ] {
            recorder.fail_next(name, code);
            let error = call(&*device).expect_err(name);
            assert!(recorder.disarm(), "{name} was not called");
            assert_eq!(error.kind(), kind, "{name} with {code}: {error}");
            assert_eq!((error.call(), error.code()), (Some(*name), Some(i64::from(code))));
            assert_eq!(error.backend(), Some("hip"));
        }
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

/// The state behind `hipGetLastError` differs between versions; nothing may depend on it.
#[test]
fn the_last_error_is_never_asked_for() {
    let (recorder, device) = start();
    recorder.fail_next("hipMalloc", 2);
    device.alloc(16).unwrap_err();
    let buffer = device.alloc(16).unwrap();
    // SAFETY: allocated, and not used again.
    unsafe { device.free(buffer) }.unwrap();
    let asked = recorder.calls().iter().filter(|call| call.name.contains("LastError")).count();
    assert_eq!(asked, 0);
}

#[test]
fn a_lost_device_says_so_until_the_end() {
    let (recorder, device) = start();
    recorder.lose_device(0, 700);
    for _ in 0..2 {
        let error = device.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.message().contains("an illegal memory access was encountered"), "{error}");
    }
    // The other device is another one.
    gpustream_hip::backend().open(1).unwrap().synchronize().unwrap();
}
