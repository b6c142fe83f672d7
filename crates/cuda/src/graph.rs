//! Graphs.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraph,
    CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUlaunchAttributeID, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};
use gpustream_hal::{
    Copy3d, CopyEnd, Error, ErrorKind, FillPattern, GraphNode, GraphSize, GraphUpdate, Graphs, LaunchConfig,
    RawBuffer, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawStream, Result, Work,
};

use crate::buffer::{self, memcpy_3d};
use crate::device::CudaDevice;
use crate::driver::{Driver, Status, call};
use crate::launch::Attributes;
use crate::{module, stream};

const NOT_CAPTURING: u32 = 0;
const CAPTURING: u32 = 1;

impl CudaDevice {
    /// The recording's state, an integer in the enum's place: newer drivers may have more.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn capture_state(&self, stream: RawStream) -> Result<u32> {
        let driver = self.enter()?;
        let mut state = NOT_CAPTURING;
        let state_ptr: *mut CUstreamCaptureStatus = (&raw mut state).cast();
        // SAFETY: the pointer is to a local of the enum's size; the caller vouches for the stream.
        unsafe { call!(driver, cuStreamIsCapturing(stream::raw(stream), state_ptr))? };
        Ok(state)
    }
}

// SAFETY: each method is the CUDA call that it names, and answers what the driver answered.
unsafe impl Graphs for CudaDevice {
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        let driver = self.enter()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the caller vouches for the stream.
        unsafe { call!(driver, cuStreamBeginCapture_v2(stream::raw(stream), mode)) }
    }

    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        let driver = self.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the stream.
        unsafe { call!(driver, cuStreamEndCapture(stream::raw(stream), &raw mut graph))? };
        Ok(RawGraph(graph as usize))
    }

    /// There is something to do only where the call that ends a recording was refused for a reason of its own.
    unsafe fn capture_abandon(&self, stream: RawStream) -> Result<()> {
        // SAFETY: the caller vouches for the stream.
        if unsafe { self.capture_state(stream) }? == NOT_CAPTURING {
            return Ok(());
        }
        // SAFETY: as above; it is being captured, on this thread. Nobody else knows the graph.
        unsafe { self.capture_end(stream).and_then(|graph| self.graph_destroy(graph)) }
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        // SAFETY: the caller vouches for the stream.
        match unsafe { self.capture_state(stream) }? {
            NOT_CAPTURING => Ok(false),
            CAPTURING => Ok(true),
            _ => Err(Error::new(
                ErrorKind::Captured,
                "the capture was broken by an earlier call that cannot be captured: see that call's error",
            )
            .with_backend("cuda")),
        }
    }

    fn graph_create(&self) -> Result<RawGraph> {
        let driver = self.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(driver, cuGraphCreate(&raw mut graph, 0))? };
        Ok(RawGraph(graph as usize))
    }

    unsafe fn graph_add_node(
        &self,
        graph: RawGraph,
        dependencies: &[RawGraphNode],
        node: &GraphNode<'_>,
    ) -> Result<RawGraphNode> {
        let driver = self.enter()?;
        let graph = raw(graph);
        let context = self.context.raw;
        // A node handle is a pointer-sized integer in both worlds.
        let (deps, count) = (dependencies.as_ptr().cast::<CUgraphNode>(), dependencies.len());
        let mut added = ptr::null_mut();
        let out = &raw mut added;
        // SAFETY: `out` is a local; each parameter block is a local that the driver copies before it returns;
        // the caller vouches for handles, arguments and what the node refers to.
        unsafe {
            match *node {
                GraphNode::Empty => call!(driver, cuGraphAddEmptyNode(out, graph, deps, count))?,
                GraphNode::Work(Work::Kernel { function, config, args }) => {
                    let params = kernel(function, config, args);
                    call!(driver, cuGraphAddKernelNode_v2(out, graph, deps, count, &raw const params))?;
                    set_attributes(driver, added, &Attributes::of(config)).inspect_err(|_| {
                        // Nobody knows of the node, and the next launch would run it.
                        let _ = call!(driver, cuGraphDestroyNode(added));
                    })?;
                }
                GraphNode::Work(Work::Fill { dst, pattern, count: elements }) => {
                    let params = fill(dst, pattern, elements);
                    call!(driver, cuGraphAddMemsetNode(out, graph, deps, count, &raw const params, context))?;
                }
                GraphNode::Work(Work::Host { function, data }) => {
                    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data };
                    call!(driver, cuGraphAddHostNode(out, graph, deps, count, &raw const params))?;
                }
                GraphNode::Child(child) => {
                    call!(driver, cuGraphAddChildGraphNode(out, graph, deps, count, raw(child)))?;
                }
                GraphNode::Work(ref other) => {
                    let params = copy(other)?;
                    call!(driver, cuGraphAddMemcpyNode(out, graph, deps, count, &raw const params, context))?;
                }
            }
        }
        Ok(RawGraphNode(added as usize))
    }

    unsafe fn graph_size(&self, graph: RawGraph) -> Result<GraphSize> {
        let driver = self.enter()?;
        let (graph, null) = (raw(graph), ptr::null_mut());
        let (mut nodes, mut edges) = (0, 0);
        // SAFETY: null arrays ask for the numbers alone, which go to locals; the caller vouches for the graph.
        unsafe {
            call!(driver, cuGraphGetNodes(graph, null, &raw mut nodes))?;
            if let Some(get_edges) = driver.api.cuGraphGetEdges_v2 {
                let status = get_edges(graph, null, null, ptr::null_mut(), &raw mut edges);
                driver.check("cuGraphGetEdges", status)?;
            } else {
                call!(driver, cuGraphGetEdges(graph, null, null, &raw mut edges))?;
            }
        }
        Ok(GraphSize { nodes, edges })
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(driver, cuGraphDestroy(raw(graph))) }
    }

    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        let driver = self.enter()?;
        let mut exec = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the graph.
        unsafe { call!(driver, cuGraphInstantiateWithFlags(&raw mut exec, raw(graph), 0))? };
        Ok(RawGraphExec(exec as usize))
    }

    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        let driver = self.enter_for(stream)?;
        // SAFETY: the caller vouches for both handles and for what the graph refers to.
        unsafe { call!(driver, cuGraphLaunch(raw_exec(exec), stream::raw(stream))) }
    }

    unsafe fn graph_upload(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for both handles.
        unsafe { call!(driver, cuGraphUpload(raw_exec(exec), stream::raw(stream))) }
    }

    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        let driver = self.enter()?;
        let mut info = MaybeUninit::<CUgraphExecUpdateResultInfo>::zeroed();
        // SAFETY: the pointer is to a local; the caller vouches for both handles.
        let status =
            unsafe { (driver.api.cuGraphExecUpdate_v2)(raw_exec(exec), raw(graph), info.as_mut_ptr()) };
        if status == Status::GRAPH_EXEC_UPDATE_FAILURE {
            // The result is the first field, a C enum, read as an integer.
            // SAFETY: zeroed at least, and large and aligned enough for the integer.
            let result = unsafe { info.as_ptr().cast::<u32>().read() };
            // 1 is a failure "described by the return code"; the others name a difference (topology, node
            // type, function, parameters, attributes) that instantiating again removes.
            if result > 1 {
                return Ok(GraphUpdate::TopologyChanged);
            }
        }
        driver.check("cuGraphExecUpdate", status)?;
        Ok(GraphUpdate::Updated)
    }

    unsafe fn graph_set_node(&self, exec: RawGraphExec, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        // Without a current context the driver was seen to crash here.
        let driver = self.enter()?;
        let (exec, node, context) = (raw_exec(exec), node.0 as CUgraphNode, self.context.raw);
        // SAFETY: each parameter block is a local that the driver copies before it returns; the caller vouches
        // for handles, arguments and what the work refers to.
        unsafe {
            match *work {
                Work::Kernel { function, config, args } => {
                    let params = kernel(function, config, args);
                    call!(driver, cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const params))
                }
                Work::Fill { dst, pattern, count } => {
                    let params = fill(dst, pattern, count);
                    call!(driver, cuGraphExecMemsetNodeSetParams(exec, node, &raw const params, context))
                }
                Work::Host { function, data } => {
                    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(function), userData: data };
                    call!(driver, cuGraphExecHostNodeSetParams(exec, node, &raw const params))
                }
                ref other => {
                    let params = copy(other)?;
                    call!(driver, cuGraphExecMemcpyNodeSetParams(exec, node, &raw const params, context))
                }
            }
        }
    }

    unsafe fn graph_exec_destroy(&self, exec: RawGraphExec) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(driver, cuGraphExecDestroy(raw_exec(exec))) }
    }
}

fn kernel(function: RawFunction, config: &LaunchConfig, args: &[*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: module::raw(function),
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

/// The copy that a node makes; a one-dimensional one is one row.
fn copy(work: &Work<'_>) -> Result<CUDA_MEMCPY3D> {
    let (dst, src, bytes) = match *work {
        Work::CopyToDevice { dst, src, bytes } => {
            (CopyEnd::Device(dst), CopyEnd::Host(src.cast_mut()), bytes)
        }
        Work::CopyToHost { dst, src, bytes } => (CopyEnd::Host(dst), CopyEnd::Device(src), bytes),
        Work::CopyOnDevice { dst, src, bytes } => (CopyEnd::Device(dst), CopyEnd::Device(src), bytes),
        Work::Copy3d(ref copy) => return Ok(memcpy_3d(copy)),
        _ => return Err(Error::unsupported("this kind of graph node").with_backend("cuda")),
    };
    Ok(memcpy_3d(&Copy3d {
        dst,
        dst_pitch: bytes,
        dst_rows: 1,
        src,
        src_pitch: bytes,
        src_rows: 1,
        width: bytes,
        height: 1,
        depth: 1,
    }))
}

fn fill(dst: RawBuffer, pattern: FillPattern, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    let value = match pattern {
        FillPattern::U8(value) => value.into(),
        FillPattern::U16(value) => value.into(),
        FillPattern::U32(value) => value,
    };
    let element = pattern.width();
    CUDA_MEMSET_NODE_PARAMS {
        dst: buffer::raw(dst),
        pitch: count * element,
        value,
        elementSize: element as u32,
        width: count,
        height: 1,
    }
}

/// Gives a new kernel node its launch attributes (`cuGraphKernelNodeSetAttribute`).
///
/// An early dependent launch is a property of edges in a graph, not of nodes; without it the plain order
/// holds, which is a correct answer.
///
/// # Safety
/// `node` is a kernel node.
unsafe fn set_attributes(driver: &Driver, node: CUgraphNode, attributes: &Attributes) -> Result<()> {
    for attribute in attributes.list() {
        if attribute.id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION {
            continue;
        }
        // SAFETY: the value is the member of the union that the identifier names; the caller vouches for the node.
        unsafe {
            call!(driver, cuGraphKernelNodeSetAttribute(node, attribute.id, &raw const attribute.value))?;
        }
    }
    Ok(())
}

/// The driver's handle.
const fn raw(graph: RawGraph) -> CUgraph {
    graph.0 as CUgraph
}

/// The driver's handle.
const fn raw_exec(exec: RawGraphExec) -> CUgraphExec {
    exec.0 as CUgraphExec
}
