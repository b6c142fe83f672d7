//! The errors that the driver's failures become.

use std::ptr;

use gpustream_hal::{
    Device, ErrorKind, EventOptions, FillPattern, LaunchConfig, PinnedOptions, RawBuffer, RawEvent,
    RawFunction, RawGraph, RawGraphExec, RawModule, RawStream, Result, StreamOptions,
};

use super::{pick, start};
use crate::backend;

type Case = ([&'static str; 2], fn(&dyn Device) -> Result<()>);

/// A method for each function that can fail at run time.
macro_rules! cases {
    (|$device:ident| $($names:tt: $call:expr,)*) => {
        &[$(($names, |$device| {
            // SAFETY: the armed fault keeps every call from happening, so handles and addresses may be nothing.
            unsafe { $call }
        })),*]
    };
}

#[allow(unused_unsafe)] // Some of the methods are safe.
const CASES: &[Case] = cases! { |device|
    ["cuCtxGetCurrent", "hipGetDevice"]: device.synchronize(),
    ["cuCtxSynchronize", "hipDeviceSynchronize"]: device.synchronize(),
    ["cuMemGetInfo_v2", "hipMemGetInfo"]: device.memory().map(drop),
    ["cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer"]: device.can_access_peer(1).map(drop),
    ["cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess"]: device.enable_peer_access(1),
    ["cuStreamCreateWithPriority", "hipStreamCreateWithPriority"]: device.stream_create(StreamOptions::default()).map(drop),
    ["cuStreamDestroy_v2", "hipStreamDestroy"]: device.stream_destroy(RawStream(0)),
    ["cuStreamQuery", "hipStreamQuery"]: device.stream_query(RawStream(0)).map(drop),
    ["cuStreamSynchronize", "hipStreamSynchronize"]: device.stream_synchronize(RawStream(0)),
    ["cuStreamWaitEvent", "hipStreamWaitEvent"]: device.stream_wait_event(RawStream(0), RawEvent(0)),
    ["cuEventCreate", "hipEventCreateWithFlags"]: device.event_create(EventOptions::default()).map(drop),
    ["cuEventDestroy_v2", "hipEventDestroy"]: device.event_destroy(RawEvent(0)),
    ["cuEventRecord", "hipEventRecord"]: device.event_record(RawEvent(0), RawStream(0)),
    ["cuEventQuery", "hipEventQuery"]: device.event_query(RawEvent(0)).map(drop),
    ["cuEventSynchronize", "hipEventSynchronize"]: device.event_synchronize(RawEvent(0)),
    ["cuEventElapsedTime", "hipEventElapsedTime"]: device.event_elapsed(RawEvent(0), RawEvent(0)).map(drop),
    ["cuMemAlloc_v2", "hipMalloc"]: device.alloc(16).map(drop),
    ["cuMemFree_v2", "hipFree"]: device.free(RawBuffer(0)),
    ["cuMemFreeAsync", "hipFreeAsync"]: device.free_async(RawBuffer(0), RawStream(0)),
    ["cuMemHostAlloc", "hipHostMalloc"]: device.pinned_alloc(16, PinnedOptions::default()).map(drop),
    ["cuMemFreeHost", "hipHostFree"]: device.pinned_free(ptr::null_mut()),
    ["cuMemHostRegister_v2", "hipHostRegister"]: device.host_register(ptr::null_mut(), 16),
    ["cuMemHostUnregister", "hipHostUnregister"]: device.host_unregister(ptr::null_mut()),
    ["cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer"]: device.pinned_device_address(ptr::null_mut()).map(drop),
    ["cuMemAllocManaged", "hipMallocManaged"]: device.managed_alloc(16).map(drop),
    ["cuMemsetD8Async", "hipMemsetD8Async"]: device.fill(RawBuffer(0), FillPattern::U8(0), 1, RawStream(0)),
    ["cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"]: device.copy_to_device(RawBuffer(0), ptr::null(), 1, RawStream(0)),
    ["cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"]: device.copy_to_host(ptr::null_mut(), RawBuffer(0), 1, RawStream(0)),
    ["cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"]: device.copy_on_device(RawBuffer(0), RawBuffer(0), 1, RawStream(0)),
    ["cuMemcpyPeerAsync", "hipMemcpyPeerAsync"]: device.copy_from_peer(RawBuffer(0), RawBuffer(0), 1, 1, RawStream(0)),
    ["cuModuleLoadDataEx", "hipModuleLoadData"]: device.module_load(b"fake module\n").map(drop),
    ["cuModuleUnload", "hipModuleUnload"]: device.module_unload(RawModule(0)),
    ["cuModuleGetFunction", "hipModuleGetFunction"]: device.module_function(RawModule(0), "k").map(drop),
    ["cuFuncGetAttribute", "hipFuncGetAttribute"]: device.function_info(RawFunction(0)).map(drop),
    ["cuLaunchKernel", "hipModuleLaunchKernel"]: device.launch(RawFunction(0), &LaunchConfig::new([1; 3], [1; 3]), &[], RawStream(0)),
    ["cuOccupancyMaxActiveBlocksPerMultiprocessor", "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"]: device.occupancy(RawFunction(0), 64, 0).map(drop),
    ["cuOccupancyMaxPotentialBlockSize", "hipModuleOccupancyMaxPotentialBlockSize"]: device.suggested_launch(RawFunction(0), 0).map(drop),
    ["cuStreamBeginCapture_v2", "hipStreamBeginCapture"]: device.capture_begin(RawStream(0)),
    ["cuStreamEndCapture", "hipStreamEndCapture"]: device.capture_end(RawStream(0)).map(drop),
    ["cuStreamIsCapturing", "hipStreamIsCapturing"]: device.is_capturing(RawStream(0)).map(drop),
    ["cuGraphCreate", "hipGraphCreate"]: device.graph_create().map(drop),
    ["cuGraphDestroy", "hipGraphDestroy"]: device.graph_destroy(RawGraph(0)),
    ["cuGraphGetNodes", "hipGraphGetNodes"]: device.graph_size(RawGraph(0)).map(drop),
    ["cuGraphInstantiateWithFlags", "hipGraphInstantiate"]: device.graph_instantiate(RawGraph(0)).map(drop),
    ["cuGraphLaunch", "hipGraphLaunch"]: device.graph_launch(RawGraphExec(0), RawStream(0)),
    ["cuGraphExecUpdate_v2", "hipGraphExecUpdate"]: device.graph_update(RawGraphExec(0), RawGraph(0)).map(drop),
    ["cuGraphExecDestroy", "hipGraphExecDestroy"]: device.graph_exec_destroy(RawGraphExec(0)),
};

#[test]
fn every_call_reports_its_name_code_and_kind() {
    let (recorder, device) = start();
    for &(names, call) in CASES {
        let name = pick(names);
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
            let plain = name.strip_suffix("_v2").unwrap_or(name);
            assert_eq!((error.call(), error.code()), (Some(plain), Some(i64::from(code))));
            assert_eq!(error.backend(), Some(pick(["cuda", "hip"])));
        }
    }
    assert_eq!(recorder.violations(), [""; 0]);
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
    backend().open(1).unwrap().synchronize().unwrap();
}
