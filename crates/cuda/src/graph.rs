//! Graphs.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUlaunchAttributeID, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};
use gpustream_hal::driver::Status;
use gpustream_hal::{
    Conditional, DriverNode, ErrorKind, Fill, GraphNode, GraphSize, GraphUpdate, Graphs, LaunchConfig,
    NodePlace, RawBuffer, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawStream, Repeat, Result, Work,
};

use crate::api::Api;
use crate::buffer::copy_params;
use crate::cupti::{graph_calls, note_graph};
use crate::device::CudaDevice;
use crate::error::error;
use crate::handle::{address_of, exec_of, function_of, graph_of, node_of, stream_of};
use crate::launch::Attributes;

const NOT_CAPTURING: u32 = 0;
const CAPTURING: u32 = 1;

/// Returns a kernel node's parameters. The driver reads `args` while it makes the node.
fn kernel_params(
    function: RawFunction,
    config: &LaunchConfig,
    args: &[*mut c_void],
) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function_of(function),
        gridDimX: config.grid[0],
        gridDimY: config.grid[1],
        gridDimZ: config.grid[2],
        blockDimX: config.block[0],
        blockDimY: config.block[1],
        blockDimZ: config.block[2],
        sharedMemBytes: config.dynamic_shared,
        kernelParams: args.as_ptr().cast_mut(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// Returns the parameters for a node that copies; a one-dimensional copy is one row.
fn work_params(work: &Work<'_>) -> Result<CUDA_MEMCPY3D> {
    match *work {
        Work::Copy(copy) => Ok(copy_params(&copy.as_row())),
        Work::Copy3d(copy) => Ok(copy_params(copy)),
        _ => {
            let message = "the CUDA backend does not know this kind of graph node";
            Err(error(ErrorKind::Unsupported, message))
        }
    }
}

/// Returns a fill node's parameters.
fn fill_params(Fill { dst, pattern, count }: Fill) -> CUDA_MEMSET_NODE_PARAMS {
    let element = pattern.width();
    CUDA_MEMSET_NODE_PARAMS {
        dst: address_of(dst),
        pitch: count * element,
        value: pattern.value(),
        elementSize: element as u32,
        width: count,
        height: 1,
    }
}

/// Gives a new kernel node its launch attributes (`cuGraphKernelNodeSetAttribute`).
///
/// In a graph, an early dependent launch belongs to an edge, not to a node. We may leave it out, because the kernels
/// then run in plain order, which is correct too.
///
/// # Safety
/// `node` is a kernel node.
unsafe fn set_attributes(api: &Api, node: CUgraphNode, config: &LaunchConfig) -> Result<()> {
    for attribute in Attributes::of(config).list() {
        if attribute.id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION {
            continue;
        }
        // SAFETY: the identifier names this member of the union; the caller vouches for the node.
        unsafe { api.cuGraphKernelNodeSetAttribute(node, attribute.id, &raw const attribute.value) }.ok()?;
    }
    Ok(())
}

impl CudaDevice {
    /// Returns the recording's state as an integer. It must not be the enum, because a newer driver may have more
    /// states.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn capture_state(&self, stream: RawStream) -> Result<u32> {
        let api = self.enter()?;
        let mut state = NOT_CAPTURING;
        let state_ptr: *mut CUstreamCaptureStatus = (&raw mut state).cast();
        // SAFETY: the pointer is to a local with the enum's size; the caller vouches for the stream.
        unsafe { api.cuStreamIsCapturing(stream_of(stream), state_ptr) }.ok()?;
        Ok(state)
    }
}

// SAFETY: each method makes the CUDA call that it names, and returns what the driver said.
unsafe impl Graphs for CudaDevice {
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the caller vouches for the stream.
        unsafe { api.cuStreamBeginCapture_v2(stream_of(stream), mode) }.ok()
    }

    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        let api = self.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the stream.
        unsafe { api.cuStreamEndCapture(stream_of(stream), &raw mut graph) }.ok()?;
        Ok(RawGraph(graph as usize))
    }

    /// If the call that should have ended the recording was refused for a reason of its own, this ends it. Otherwise it does
    /// nothing.
    unsafe fn capture_abandon(&self, stream: RawStream) -> Result<()> {
        // SAFETY: the caller vouches for the stream.
        if unsafe { self.capture_state(stream) }? == NOT_CAPTURING {
            return Ok(());
        }
        // SAFETY: the caller vouches for the stream and that this thread is capturing it. The graph has no other owner.
        unsafe { self.capture_end(stream).and_then(|graph| self.graph_destroy(graph)) }
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        // SAFETY: the caller vouches for the stream.
        match unsafe { self.capture_state(stream) }? {
            NOT_CAPTURING => Ok(false),
            CAPTURING => Ok(true),
            _ => Err(error(
                ErrorKind::Captured,
                "the capture was broken by an earlier call that cannot be captured: see that call's error",
            )),
        }
    }

    fn graph_create(&self) -> Result<RawGraph> {
        let api = self.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.cuGraphCreate(&raw mut graph, 0) }.ok()?;
        Ok(RawGraph(graph as usize))
    }

    unsafe fn graph_add_node(
        &self,
        graph: RawGraph,
        dependencies: &[RawGraphNode],
        node: &GraphNode<'_>,
    ) -> Result<RawGraphNode> {
        let api = self.enter()?;
        let graph = graph_of(graph);
        let context = self.context.raw;
        // To both sides a node handle is an integer as large as a pointer.
        let (deps, count) = (dependencies.as_ptr().cast::<CUgraphNode>(), dependencies.len());
        let mut added = ptr::null_mut();
        let out = &raw mut added;
        // SAFETY: `out` is a local. The driver copies each parameter block, also a local, before it returns. The caller vouches
        // for handles, arguments and what the node refers to.
        unsafe {
            match *node {
                GraphNode::Empty => api.cuGraphAddEmptyNode(out, graph, deps, count).ok()?,
                GraphNode::Work(Work::Kernel { function, config, args }) => {
                    let params = kernel_params(function, config, args);
                    api.cuGraphAddKernelNode_v2(out, graph, deps, count, &raw const params).launched()?;
                    set_attributes(api, added, config).inspect_err(|_| {
                        // You could never learn about this node, but the next launch would run it, so we must remove
                        // it.
                        let _ = api.cuGraphDestroyNode(added);
                    })?;
                }
                GraphNode::Work(Work::Fill(fill)) => {
                    let params = fill_params(fill);
                    api.cuGraphAddMemsetNode(out, graph, deps, count, &raw const params, context).ok()?;
                }
                GraphNode::Work(Work::Host { function, data }) => {
                    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data };
                    api.cuGraphAddHostNode(out, graph, deps, count, &raw const params).ok()?;
                }
                GraphNode::Child(child) => {
                    api.cuGraphAddChildGraphNode(out, graph, deps, count, graph_of(child)).ok()?;
                }
                GraphNode::Work(ref other) => {
                    let params = work_params(other)?;
                    api.cuGraphAddMemcpyNode(out, graph, deps, count, &raw const params, context).ok()?;
                }
            }
        }
        Ok(RawGraphNode(added as usize))
    }

    unsafe fn conditional_begin(&self, place: NodePlace<'_>, repeat: Repeat) -> Result<Conditional> {
        // SAFETY: passed on to the caller.
        unsafe { self.begin_condition(place, repeat) }
    }

    unsafe fn conditional_end(
        &self,
        place: NodePlace<'_>,
        conditional: &Conditional,
        word: RawBuffer,
        last: RawGraphNode,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.end_condition(place, conditional, word, last) }
    }

    unsafe fn graph_size(&self, graph: RawGraph) -> Result<GraphSize> {
        let api = self.enter()?;
        let (graph, null) = (graph_of(graph), ptr::null_mut());
        let (mut nodes, mut edges) = (0, 0);
        // SAFETY: with null arrays the driver only counts, and writes the counts to locals; the caller vouches for the graph.
        unsafe {
            api.cuGraphGetNodes(graph, null, &raw mut nodes).ok()?;
            let answer = if api.cuGraphGetEdges_v2.is_some() {
                api.cuGraphGetEdges_v2(graph, null, null, ptr::null_mut(), &raw mut edges)
            } else {
                api.cuGraphGetEdges(graph, null, null, &raw mut edges)
            };
            answer.ok()?;
        }
        Ok(GraphSize { nodes, edges })
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<()> {
        let api = self.enter()?;
        let _together = graph_calls::together();
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuGraphDestroy(graph_of(graph)) }.ok()
    }

    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        let api = self.enter()?;
        let _alone = graph_calls::alone();
        note_graph();
        let mut exec = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the graph.
        unsafe { api.cuGraphInstantiateWithFlags(&raw mut exec, graph_of(graph), 0) }.ok()?;
        Ok(RawGraphExec(exec as usize))
    }

    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        let api = self.enter_for(stream)?;
        let _together = graph_calls::together();
        // SAFETY: the caller vouches for both handles and for what the graph refers to.
        unsafe { api.cuGraphLaunch(exec_of(exec), stream_of(stream)) }.ok()
    }

    unsafe fn graph_upload(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        let _together = graph_calls::together();
        // SAFETY: the caller vouches for both handles.
        unsafe { api.cuGraphUpload(exec_of(exec), stream_of(stream)) }.ok()
    }

    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        let api = self.enter()?;
        let _alone = graph_calls::alone();
        let mut info = MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
        // SAFETY: the pointer is to a local; the caller vouches for both handles.
        let answer = unsafe { api.cuGraphExecUpdate_v2(exec_of(exec), graph_of(graph), info.as_mut_ptr()) };
        if answer.status == Some(Status::GRAPH_EXEC_UPDATE_FAILURE) {
            // SAFETY: the first field is a C enum. It is at least zeroed, and we read it as an integer.
            let result = unsafe { info.as_ptr().cast::<u32>().read() };
            // Every value beyond "described by the return code" says that this graph needs its own executable.
            if result > 1 {
                return Ok(GraphUpdate::TopologyChanged);
            }
        }
        answer.ok()?;
        Ok(GraphUpdate::Updated)
    }

    unsafe fn graph_set_node(&self, exec: RawGraphExec, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        // A context must be current here: without one we saw the driver crash.
        let api = self.enter()?;
        let _together = graph_calls::together();
        let (exec, node, context) = (exec_of(exec), node_of(node), self.context.raw);
        // SAFETY: the driver copies each parameter block, which is a local, before it returns. The caller vouches for handles,
        // arguments and what the work refers to.
        unsafe {
            match *work {
                Work::Kernel { function, config, args } => {
                    let params = kernel_params(function, config, args);
                    api.cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params).launched()
                }
                Work::Fill(fill) => {
                    let params = fill_params(fill);
                    api.cuGraphExecMemsetNodeSetParams(exec, node, &raw const params, context).ok()
                }
                Work::Host { function, data } => {
                    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data };
                    api.cuGraphExecHostNodeSetParams(exec, node, &raw const params).ok()
                }
                ref other => {
                    let params = work_params(other)?;
                    api.cuGraphExecMemcpyNodeSetParams(exec, node, &raw const params, context).ok()
                }
            }
        }
    }

    fn describe_node(&self, node: RawGraphNode, work: &Work<'_>) -> DriverNode {
        match *work {
            Work::Kernel { function, config, args } => {
                DriverNode::described(node, kernel_params(function, config, args))
            }
            _ => DriverNode::new(node),
        }
    }

    unsafe fn graph_set_values(&self, exec: RawGraphExec, nodes: &mut [DriverNode]) -> Result<u64> {
        let (api, exec, mut set) = (self.enter()?, exec_of(exec), 0);
        let _together = graph_calls::together();
        for node in nodes {
            if let Some(params) = node.take_stale() {
                // SAFETY: `kernel_params` made the description; the caller vouches for handles and arguments.
                unsafe { api.cuGraphExecKernelNodeSetParams_v2(exec, node_of(node.raw), params) }
                    .launched()?;
                set += 1;
            }
        }
        Ok(set)
    }

    unsafe fn graph_exec_destroy(&self, exec: RawGraphExec) -> Result<()> {
        let api = self.enter()?;
        let _together = graph_calls::together();
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuGraphExecDestroy(exec_of(exec)) }.ok()
    }
}
