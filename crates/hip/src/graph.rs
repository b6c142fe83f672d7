//! Graphs.

use std::ffi::c_void;
use std::ptr;

use gpustream_hal::driver::Status;
use gpustream_hal::{
    CopyDirection, DriverNode, ErrorKind, GraphNode, GraphSize, GraphUpdate, Graphs, LaunchConfig,
    RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawStream, Result, Work,
};

use crate::api::Api;
use crate::buffer::copy_params;
use crate::device::HipDevice;
use crate::error::error;
#[allow(clippy::wildcard_imports)] // Structs and results under HIP's own names.
use crate::ffi::*;
use crate::handle::{address_of, exec_of, function_of, graph_of, node_of, stream_of};
use crate::launch::check;

/// Returns a kernel node's parameters. HIP reads `args` while it makes the node.
fn kernel_params(function: RawFunction, config: &LaunchConfig, args: &[*mut c_void]) -> hipKernelNodeParams {
    let shape = |[x, y, z]: [u32; 3]| dim3 { x, y, z };
    hipKernelNodeParams {
        blockDim: shape(config.block),
        extra: ptr::null_mut(),
        func: function_of(function),
        gridDim: shape(config.grid),
        kernelParams: args.as_ptr().cast_mut(),
        sharedMemBytes: config.dynamic_shared,
    }
}

/// Returns a plain copy's destination, source, size and direction; `None` for other work.
fn work_params(work: &Work<'_>) -> Option<(*mut c_void, *const c_void, usize, hipMemcpyKind)> {
    let Work::Copy(copy) = *work else { return None };
    let kind = match copy.direction() {
        CopyDirection::ToDevice => hipMemcpyHostToDevice,
        CopyDirection::ToHost => hipMemcpyDeviceToHost,
        CopyDirection::OnDevice | CopyDirection::FromPeer => hipMemcpyDeviceToDevice,
    };
    Some((address_of(copy.dst.address()), address_of(copy.src.address()), copy.bytes, kind))
}

fn unknown_node<T>() -> Result<T> {
    Err(error(ErrorKind::Unsupported, "the HIP backend does not know this kind of graph node"))
}

/// Gives a new kernel node its launch attributes (`hipGraphKernelNodeSetAttribute`): cooperative or not.
///
/// # Safety
/// `node` is a kernel node.
unsafe fn set_attributes(api: &Api, node: hipGraphNode_t, config: &LaunchConfig) -> Result<()> {
    if !config.cooperative {
        return Ok(());
    }
    let (which, value) =
        (hipKernelNodeAttributeCooperative, hipKernelNodeAttrValue { cooperative: 1, rest: [0; 31] });
    // SAFETY: the caller vouches for the node; the value is larger than in any version.
    unsafe { api.hipGraphKernelNodeSetAttribute(node, which, &raw const value) }.ok()
}

// SAFETY: each method makes the HIP call that it names, and returns what the driver said.
unsafe impl Graphs for HipDevice {
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the stream.
        let answer = unsafe { api.hipStreamBeginCapture(stream_of(stream), hipStreamCaptureModeRelaxed) };
        answer.ok()
    }

    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        let api = self.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the stream.
        unsafe { api.hipStreamEndCapture(stream_of(stream), &raw mut graph) }.ok()?;
        if graph.is_null() {
            return Err(error(
                ErrorKind::Captured,
                "HIP ended the capture without a graph, because an earlier call broke it: see that call's error",
            ));
        }
        Ok(RawGraph(graph as usize))
    }

    /// If `hipStreamEndCapture` fails on ROCm 6, it leaves the stream's status as it was, and every later use of the stream
    /// fails. But HIP still accepts a new capture, unless the status is "active". If that capture ends well, it resets this
    /// stream and those that had joined. So we break an active capture, and then capture nothing.
    unsafe fn capture_abandon(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        let stream = stream_of(stream);
        let mut status = hipStreamCaptureStatusNone;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointers are to locals. The caller vouches for the stream, which this thread captured; the graph has no
        // other owner.
        unsafe {
            api.hipStreamIsCapturing(stream, &raw mut status).ok()?;
            if status == hipStreamCaptureStatusNone {
                return Ok(());
            }
            if status == hipStreamCaptureStatusActive {
                // A query invalidates the capture, and that is what we want.
                let _ = api.hipStreamQuery(stream);
            }
            api.hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed).ok()?;
            api.hipStreamEndCapture(stream, &raw mut graph).ok()?;
            if graph.is_null() { Ok(()) } else { api.hipGraphDestroy(graph).ok() }
        }
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        let api = self.enter()?;
        let mut status = hipStreamCaptureStatusNone;
        // SAFETY: the pointer is to a local; the caller vouches for the stream.
        unsafe { api.hipStreamIsCapturing(stream_of(stream), &raw mut status) }.ok()?;
        if status == hipStreamCaptureStatusInvalidated {
            let message =
                "the capture was broken by an earlier call that cannot be captured: see that call's error";
            return Err(error(ErrorKind::Captured, message));
        }
        Ok(status == hipStreamCaptureStatusActive)
    }

    fn graph_create(&self) -> Result<RawGraph> {
        let api = &self.api;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.hipGraphCreate(&raw mut graph, 0) }.ok()?;
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
        // To both sides a node handle is an integer as large as a pointer.
        let (deps, count): (*const hipGraphNode_t, _) = (dependencies.as_ptr().cast(), dependencies.len());
        let mut added = ptr::null_mut();
        let out = &raw mut added;
        if let GraphNode::Work(work) = node
            && let Some((dst, src, bytes, kind)) = work_params(work)
        {
            // SAFETY: the caller vouches for handles and ranges.
            unsafe { api.hipGraphAddMemcpyNode1D(out, graph, deps, count, dst, src, bytes, kind) }.ok()?;
            return Ok(RawGraphNode(added as usize));
        }
        // SAFETY: `out` is a local. HIP copies each parameter block, also a local, before it returns. The caller vouches for
        // handles, arguments and what the node refers to.
        unsafe {
            match *node {
                GraphNode::Empty => api.hipGraphAddEmptyNode(out, graph, deps, count).ok()?,
                GraphNode::Work(Work::Kernel { function, config, args }) => {
                    check(config)?;
                    let params = kernel_params(function, config, args);
                    api.hipGraphAddKernelNode(out, graph, deps, count, &raw const params).launched()?;
                    set_attributes(api, added, config).inspect_err(|_| {
                        // You could never learn about this node, but the next launch would run it, so we must remove
                        // it.
                        let _ = api.hipGraphDestroyNode(added);
                    })?;
                }
                GraphNode::Work(Work::Copy3d(copy)) => {
                    let params = copy_params(copy);
                    api.hipGraphAddMemcpyNode(out, graph, deps, count, &raw const params).ok()?;
                }
                GraphNode::Work(Work::Fill(fill)) => {
                    let add = |params| api.hipGraphAddMemsetNode(out, graph, deps, count, params);
                    self.driver.memset_order.call(&fill, add).ok()?;
                }
                GraphNode::Work(Work::Host { function, data }) => {
                    let params = hipHostNodeParams { fn_: Some(function), userData: data };
                    api.hipGraphAddHostNode(out, graph, deps, count, &raw const params).ok()?;
                }
                GraphNode::Child(child) => {
                    api.hipGraphAddChildGraphNode(out, graph, deps, count, graph_of(child)).ok()?;
                }
                GraphNode::Work(_) => return unknown_node(),
            }
        }
        Ok(RawGraphNode(added as usize))
    }

    unsafe fn graph_size(&self, graph: RawGraph) -> Result<GraphSize> {
        let api = &self.api;
        let (graph, null) = (graph_of(graph), ptr::null_mut());
        let (mut nodes, mut edges) = (0, 0);
        // SAFETY: with null arrays the driver only counts, and writes the counts to locals; the caller vouches for the graph.
        unsafe {
            api.hipGraphGetNodes(graph, null, &raw mut nodes).ok()?;
            api.hipGraphGetEdges(graph, null, null, &raw mut edges).ok()?;
        }
        Ok(GraphSize { nodes, edges })
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<()> {
        let api = &self.api;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipGraphDestroy(graph_of(graph)) }.ok()
    }

    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        let api = self.enter()?;
        let mut exec = ptr::null_mut();
        let (no_node, no_log) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the pointer is to a local; the caller vouches for the graph; node and log may be null.
        let answer = unsafe { api.hipGraphInstantiate(&raw mut exec, graph_of(graph), no_node, no_log, 0) };
        answer.ok()?;
        Ok(RawGraphExec(exec as usize))
    }

    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for both handles and for what the graph refers to.
        unsafe { api.hipGraphLaunch(exec_of(exec), stream_of(stream)) }.ok()
    }

    /// Does nothing before HIP 5.3, which brought `hipGraphUpload`. The first launch must then prepare the graph.
    unsafe fn graph_upload(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        if self.api.hipGraphUpload.is_none() {
            return Ok(());
        }
        let api = self.enter()?;
        // SAFETY: the caller vouches for both handles.
        unsafe { api.hipGraphUpload(exec_of(exec), stream_of(stream)) }.ok()
    }

    fn update_ignores_edges(&self) -> bool {
        true
    }

    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        let api = self.enter()?;
        let mut node = ptr::null_mut();
        let mut result = hipGraphExecUpdateSuccess;
        // SAFETY: the pointers are to locals; the caller vouches for both handles.
        let answer =
            unsafe { api.hipGraphExecUpdate(exec_of(exec), graph_of(graph), &raw mut node, &raw mut result) };
        // Every value beyond "described by the return code" says that this graph needs its own executable.
        let refused = answer.status == Some(Status::GRAPH_EXEC_UPDATE_FAILURE);
        if refused && result > hipGraphExecUpdateError {
            return Ok(GraphUpdate::TopologyChanged);
        }
        answer.ok()?;
        Ok(GraphUpdate::Updated)
    }

    unsafe fn graph_set_node(&self, exec: RawGraphExec, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        let api = self.enter()?;
        let (exec, node) = (exec_of(exec), node_of(node));
        if let Some((dst, src, bytes, kind)) = work_params(work) {
            // SAFETY: the caller vouches for handles and ranges.
            let answer = unsafe { api.hipGraphExecMemcpyNodeSetParams1D(exec, node, dst, src, bytes, kind) };
            return answer.ok();
        }
        // SAFETY: HIP copies each parameter block, which is a local, before it returns. The caller vouches for handles, arguments
        // and what the work refers to.
        unsafe {
            match *work {
                Work::Kernel { function, config, args } => {
                    check(config)?;
                    let params = kernel_params(function, config, args);
                    api.hipGraphExecKernelNodeSetParams(exec, node, &raw const params).launched()
                }
                Work::Copy3d(copy) => {
                    let mut params = copy_params(copy);
                    api.hipGraphExecMemcpyNodeSetParams(exec, node, &raw mut params).ok()
                }
                Work::Fill(fill) => {
                    let set = |params| api.hipGraphExecMemsetNodeSetParams(exec, node, params);
                    self.driver.memset_order.call(&fill, set).ok()
                }
                Work::Host { function, data } => {
                    let params = hipHostNodeParams { fn_: Some(function), userData: data };
                    api.hipGraphExecHostNodeSetParams(exec, node, &raw const params).ok()
                }
                _ => unknown_node(),
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
        for node in nodes {
            if let Some(params) = node.take_stale() {
                // SAFETY: `kernel_params` made the description; the caller vouches for handles and arguments.
                unsafe { api.hipGraphExecKernelNodeSetParams(exec, node_of(node.raw), params) }.launched()?;
                set += 1;
            }
        }
        Ok(set)
    }

    unsafe fn graph_exec_destroy(&self, exec: RawGraphExec) -> Result<()> {
        let api = &self.api;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipGraphExecDestroy(exec_of(exec)) }.ok()
    }
}
