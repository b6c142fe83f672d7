//! Which error you get if a driver call fails.

use std::ptr;

use gpustream_hal::{
    Device, ErrorKind, EventOptions, FillPattern, LaunchConfig, PinnedOptions, RawBuffer, RawEvent,
    RawFunction, RawGraph, RawGraphExec, RawModule, RawStream, Result, StreamOptions, WaitValue,
};

use super::{pick, scale, start, stream};
use crate::backend;

type Case = ([&'static str; 2], fn(&dyn Device) -> Result<()>);

/// For each driver function that can fail at run time, a method that calls it.
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
    ["cuStreamWaitValue32_v2", "hipStreamWaitValue32"]: device.stream_wait_value32(RawStream(0), RawBuffer(0), WaitValue::Equal(0)),
    ["cuStreamWriteValue32_v2", "hipStreamWriteValue32"]: device.stream_write_value32(RawStream(0), RawBuffer(0), 0),
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
    ["cuPointerGetAttribute", "hipPointerGetAttribute"]: device.ordinal_of(RawBuffer(0)).map(drop),
    ["cuMemAllocManaged", "hipMallocManaged"]: device.managed_alloc(16).map(drop),
    ["cuMemsetD8Async", "hipMemsetD8Async"]: device.fill(RawBuffer(0), FillPattern::U8(0), 1, RawStream(0)),
    ["cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"]: device.copy_to_device(RawBuffer(0), ptr::null(), 1, RawStream(0)),
    ["cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"]: device.copy_to_host(ptr::null_mut(), RawBuffer(0), 1, RawStream(0)),
    ["cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"]: device.copy_on_device(RawBuffer(0), RawBuffer(0), 1, RawStream(0)),
    ["cuMemcpyPeerAsync", "hipMemcpyPeerAsync"]: device.copy_from_peer(RawBuffer(0), RawBuffer(0), 1, 1, RawStream(0)),
    ["cuModuleLoadDataEx", "hipModuleLoadData"]: device.module_load(b"fake module\n").map(drop),
    ["cuModuleUnload", "hipModuleUnload"]: device.module_unload(RawModule(0)),
    ["cuModuleGetFunction", "hipModuleGetFunction"]: device.module_function(RawModule(0), "k").map(drop),
    ["cuModuleGetGlobal_v2", "hipModuleGetGlobal"]: device.module_global(RawModule(0), "v").map(drop),
    ["cuFuncGetAttribute", "hipFuncGetAttribute"]: device.function_info(RawFunction(0)).map(drop),
    ["cuLaunchKernelEx", "hipModuleLaunchKernel"]: device.launch(RawFunction(0), &LaunchConfig::new([1; 3], [1; 3]), &[], RawStream(0)),
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
    // What HIP keeps for `hipGetLastError` differs between versions, so we must not depend on it.
    assert!(!recorder.calls().iter().any(|call| call.name.contains("LastError")));
}

#[test]
fn each_code_has_its_kind() {
    const KINDS: &[(&[u32], ErrorKind)] = &[
        (&[1], ErrorKind::InvalidArgument),
        (&[2], ErrorKind::OutOfMemory),
        (&[35, 46, 803], ErrorKind::DriverUnusable),
        (&[100, 101], ErrorKind::NoDevice),
        (&[200, 218], ErrorKind::InvalidModule),
        (&[209, 222], ErrorKind::NoImageForDevice),
        (&[214, 700, 702, 710, 714, 715, 716, 717, 718, 719], ErrorKind::DeviceLost),
        (&[500], ErrorKind::KernelNotFound),
        (&[701, 720], ErrorKind::InvalidLaunch),
        (&[801], ErrorKind::Unsupported),
        (&[900, 901, 904, 907, 908], ErrorKind::Captured),
        // The last three are codes that a future driver may return.
        (&[400, 999, 10_000, 123_456, u32::MAX], ErrorKind::Driver),
    ];
    let (recorder, device) = start();
    let of_cuda = [(&[3, 34, 102][..], ErrorKind::DriverUnusable), (&[221], ErrorKind::NoImageForDevice)];
    for (codes, kind) in KINDS.iter().chain(pick([&of_cuda[..], &[]])) {
        for &code in *codes {
            recorder.fail_next(pick(["cuMemAlloc_v2", "hipMalloc"]), code);
            let error = device.alloc(64).unwrap_err();
            assert_eq!((error.kind(), error.code()), (*kind, Some(code.into())), "{error}");
            assert!(error.to_string().contains(&code.to_string()), "{error}");
        }
    }
}

#[test]
fn failed_look_at_the_threads_device_stops_the_call() {
    let (recorder, device) = start();
    let look = pick(["cuCtxGetCurrent", "hipGetDevice"]);
    recorder.fail_next(look, 201);
    assert_eq!(device.alloc(8).unwrap_err().call(), Some(look));
    assert_eq!(recorder.count("alloc"), 0);
}

#[test]
fn fault_in_a_kernel_is_the_error_of_all_later_calls() {
    let (recorder, device) = start();
    let (_, scale) = scale(&*device);
    let stream = stream(&*device);
    let buffer = device.alloc(4).unwrap();
    let mut value = 0_u64;
    let args = [(&raw mut value).cast(); 3];
    recorder.hold();
    recorder.fault_kernel("scale", 700);
    // SAFETY: all are alive, and the device is lost afterwards.
    unsafe {
        device.launch(scale, &LaunchConfig::new([1; 3], [1; 3]), &args, stream).unwrap();
        recorder.release();
        for error in [
            device.stream_synchronize(stream).unwrap_err(),
            device.stream_query(stream).unwrap_err(),
            device.fill(buffer, FillPattern::U8(0), 4, stream).unwrap_err(),
            device.alloc(4).unwrap_err(),
            device.synchronize().unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.code()), (ErrorKind::DeviceLost, Some(700)));
        }
    }
}

#[test]
fn lost_device_says_so_until_the_end() {
    let (recorder, device) = start();
    recorder.lose_device(0, 700);
    for _ in 0..2 {
        let error = device.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        assert!(error.message().contains("an illegal memory access was encountered"), "{error}");
    }
    // You can still use the other device.
    backend().open(1).unwrap().synchronize().unwrap();
}
