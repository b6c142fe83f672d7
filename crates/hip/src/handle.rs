//! Turns [`gpustream_hal`]'s handles into HIP's.

use gpustream_hal::{RawStream, handles_of_driver};

use crate::ffi::{
    hipArray_t, hipDeviceptr_t, hipEvent_t, hipFunction_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t,
    hipModule_t, hipStream_t,
};

handles_of_driver! {
    stream_of: RawStream => hipStream_t;
    event_of: RawEvent => hipEvent_t;
    address_of: RawBuffer => hipDeviceptr_t;
    array_of: RawArray => hipArray_t;
    module_of: RawModule => hipModule_t;
    function_of: RawFunction => hipFunction_t;
    graph_of: RawGraph => hipGraph_t;
    exec_of: RawGraphExec => hipGraphExec_t;
    node_of: RawGraphNode => hipGraphNode_t;
}

/// Returns true for the driver's own streams: null, `hipStreamLegacy` and `hipStreamPerThread`.
pub(crate) fn is_default(stream: RawStream) -> bool {
    stream.0 <= 2
}
