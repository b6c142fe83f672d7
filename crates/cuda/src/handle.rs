//! Turns [`gpustream_hal`]'s handles into CUDA's.

use cudarc::driver::sys::{
    CUarray, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUstream,
};
use gpustream_hal::{RawStream, handles_of_driver};

handles_of_driver! {
    stream_of: RawStream => CUstream;
    event_of: RawEvent => CUevent;
    address_of: RawBuffer => CUdeviceptr;
    array_of: RawArray => CUarray;
    module_of: RawModule => CUmodule;
    function_of: RawFunction => CUfunction;
    graph_of: RawGraph => CUgraph;
    exec_of: RawGraphExec => CUgraphExec;
    node_of: RawGraphNode => CUgraphNode;
}

/// Returns true for the legacy default stream: the null handle, or `CU_STREAM_LEGACY`.
pub(crate) fn is_legacy(stream: RawStream) -> bool {
    stream.0 <= 1
}
