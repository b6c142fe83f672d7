//! The handles of [`gpustream_hal`] as HIP's own.

use gpustream_hal::{
    RawArray, RawBuffer, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule, RawStream,
};

use crate::ffi::{
    hipArray_t, hipDeviceptr_t, hipEvent_t, hipFunction_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t,
    hipModule_t, hipStream_t,
};

pub(crate) fn stream_of(stream: RawStream) -> hipStream_t {
    stream.0 as hipStream_t
}

/// Returns whether this is one of the driver's own streams: null, `hipStreamLegacy` or `hipStreamPerThread`.
pub(crate) fn is_default(stream: RawStream) -> bool {
    stream.0 <= 2
}

pub(crate) fn event_of(event: RawEvent) -> hipEvent_t {
    event.0 as hipEvent_t
}

pub(crate) fn address_of(buffer: RawBuffer) -> hipDeviceptr_t {
    buffer.0 as hipDeviceptr_t
}

pub(crate) fn array_of(array: RawArray) -> hipArray_t {
    array.0 as hipArray_t
}

pub(crate) fn module_of(module: RawModule) -> hipModule_t {
    module.0 as hipModule_t
}

pub(crate) fn function_of(function: RawFunction) -> hipFunction_t {
    function.0 as hipFunction_t
}

pub(crate) fn graph_of(graph: RawGraph) -> hipGraph_t {
    graph.0 as hipGraph_t
}

pub(crate) fn exec_of(exec: RawGraphExec) -> hipGraphExec_t {
    exec.0 as hipGraphExec_t
}

pub(crate) fn node_of(node: RawGraphNode) -> hipGraphNode_t {
    node.0 as hipGraphNode_t
}
