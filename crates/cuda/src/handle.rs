//! The handles of [`gpustream_hal`] as CUDA's own.

use cudarc::driver::sys::{
    CUarray, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUstream,
};
use gpustream_hal::{
    RawArray, RawBuffer, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule, RawStream,
};

pub(crate) fn stream_of(stream: RawStream) -> CUstream {
    stream.0 as CUstream
}

/// Returns whether this is the legacy default stream: the null handle, or `CU_STREAM_LEGACY`.
pub(crate) fn is_legacy(stream: RawStream) -> bool {
    stream.0 <= 1
}

pub(crate) fn event_of(event: RawEvent) -> CUevent {
    event.0 as CUevent
}

pub(crate) fn address_of(buffer: RawBuffer) -> CUdeviceptr {
    buffer.0 as CUdeviceptr
}

pub(crate) fn array_of(array: RawArray) -> CUarray {
    array.0 as CUarray
}

pub(crate) fn module_of(module: RawModule) -> CUmodule {
    module.0 as CUmodule
}

pub(crate) fn function_of(function: RawFunction) -> CUfunction {
    function.0 as CUfunction
}

pub(crate) fn graph_of(graph: RawGraph) -> CUgraph {
    graph.0 as CUgraph
}

pub(crate) fn exec_of(exec: RawGraphExec) -> CUgraphExec {
    exec.0 as CUgraphExec
}

pub(crate) fn node_of(node: RawGraphNode) -> CUgraphNode {
    node.0 as CUgraphNode
}
