//! Conditional nodes.
//!
//! Only a kernel can set the driver's condition. So we put a kernel of our own before each conditional node, and if the node
//! repeats, another one at the end of its body. The kernel reads the word that decides, and sets the condition to match.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{
    CUgraph, CUgraphNode, CUstreamCaptureStatus, CUstreamUpdateCaptureDependencies_flags,
};
use gpustream_hal::driver::Status;
use gpustream_hal::lock::lock;
use gpustream_hal::{
    Conditional, Error, ErrorKind, GraphNode, Graphs, Launch, LaunchConfig, Modules, NodePlace, RawBuffer,
    RawFunction, RawGraph, RawGraphNode, RawStream, Repeat, Result, Work,
};

use crate::declarations::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CUDA_CONDITIONAL_NODE_PARAMS, CUgraphConditionalNodeType,
    CUgraphNodeParams, CUgraphNodeParams_union, CUgraphNodeType,
};
use crate::device::CudaDevice;
use crate::error::error;
use crate::handle::{graph_of, node_of, stream_of};

/// `set_condition(handle, word)` sets the condition to 1 if the word is not zero, and to 0 otherwise. It calls the driver's
/// function `cudaGraphSetConditional`, which the driver's compiler knows by name.
const SETTER: &[u8] = b"\
.version 6.0
.target sm_50
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry set_condition (.param .u64 handle, .param .u64 word)
{
    .reg .pred %is_set;
    .reg .b32 %value;
    .reg .b64 %handle, %word;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %word, [word];
    cvta.to.global.u64 %word, %word;
    ld.volatile.global.u32 %value, [%word];
    setp.ne.u32 %is_set, %value, 0;
    selp.u32 %value, 1, 0, %is_set;
    {
        .param .b64 to;
        .param .b32 be;
        st.param.b64 [to], %handle;
        st.param.b32 [be], %value;
        call.uni cudaGraphSetConditional, (to, be);
    }
    ret;
}
\0";

#[cold]
fn no_end() -> Error {
    error(
        ErrorKind::Captured,
        "the driver does not say which node the captured stream ends with, so nothing can follow the condition; build the \
         graph with `Device::graph_builder` instead",
    )
}

/// One thread.
const ONE: LaunchConfig = LaunchConfig::new([1; 3], [1; 3]);

impl CudaDevice {
    /// Returns the kernel that sets conditions. We load it once in a process, because the driver takes a tenth of a second to
    /// compile it.
    fn setter(&self) -> Result<RawFunction> {
        let mut loaded = lock(&self.driver.setters[self.info.ordinal]);
        if let Some(function) = *loaded {
            return Ok(function);
        }
        // SAFETY: `SETTER` is valid PTX, and we never unload the module.
        let function = unsafe {
            self.module_load(SETTER).and_then(|module| self.module_function(module, "set_condition"))
        }?;
        *loaded = Some(function);
        Ok(function)
    }

    /// Calls `with` with a launch that sets `conditional`'s condition from `word`.
    fn with_setter<T>(
        &self,
        conditional: &Conditional,
        word: RawBuffer,
        with: impl FnOnce(RawFunction, &[*mut c_void]) -> Result<T>,
    ) -> Result<T> {
        let (mut handle, mut word) = (conditional.handle, word.0);
        with(self.setter()?, &[(&raw mut handle).cast(), (&raw mut word).cast()])
    }

    /// Returns the graph that the stream is being captured into, and the node before its next one if there is exactly one.
    ///
    /// # Errors
    /// `Captured` if the capture is broken.
    ///
    /// # Safety
    /// The stream must be alive, with a capture going on.
    unsafe fn captured(&self, stream: RawStream) -> Result<(CUgraph, Option<CUgraphNode>)> {
        let api = self.enter()?;
        let (mut state, mut graph, mut ends, mut count) = (0_u32, ptr::null_mut(), ptr::null(), 0);
        let state: *mut CUstreamCaptureStatus = (&raw mut state).cast();
        // SAFETY: the pointers are to locals, and the enum's is to an integer; the caller vouches for the stream.
        let mut answer = unsafe {
            api.cuStreamGetCaptureInfo_v2(
                stream_of(stream),
                state,
                ptr::null_mut(),
                &raw mut graph,
                &raw mut ends,
                &raw mut count,
            )
        };
        // If the capture is broken, the driver returns success and no graph.
        if answer.status == Some(Status::SUCCESS) && graph.is_null() {
            answer.status = Some(Status::CAPTURE_INVALIDATED);
        }
        answer.ok()?;
        // SAFETY: the driver's array has `count` elements, until the next call with this stream.
        Ok((graph, (count == 1).then(|| unsafe { *ends })))
    }

    /// Begins a conditional node; see [`Graphs::conditional_begin`] for the contract.
    pub(crate) unsafe fn begin_condition(&self, place: NodePlace<'_>, repeat: Repeat) -> Result<Conditional> {
        let graph = match place {
            NodePlace::After(graph, _) => graph_of(graph),
            // SAFETY: the caller vouches for the stream.
            NodePlace::EndOf(stream) => unsafe { self.captured(stream) }?.0,
        };
        let (api, context) = (self.enter()?, self.context.raw);
        let (mut handle, mut node) = (0, ptr::null_mut());
        // Each launch sets this default, so the body does not run unless something sets the condition. SAFETY: the pointer is to
        // a local; the caller vouches for the graph.
        unsafe {
            api.cuGraphConditionalHandleCreate(
                &raw mut handle,
                graph,
                context,
                0,
                CU_GRAPH_COND_ASSIGN_DEFAULT,
            )
        }
        .ok()?;
        let mut params = CUgraphNodeParams {
            type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            __bindgen_anon_1: CUgraphNodeParams_union { reserved1: [0; 29] },
            reserved2: 0,
        };
        params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: match repeat {
                Repeat::Once => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
                Repeat::While => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
            },
            size: 1,
            phGraph_out: ptr::null_mut(),
            ctx: context,
        };
        // SAFETY: the pointers are to locals. For parameters of this kind the driver has written the address of its array, which
        // has one body.
        let body = unsafe {
            api.cuGraphAddNode(&raw mut node, graph, ptr::null(), 0, &raw mut params).ok()?;
            *params.__bindgen_anon_1.conditional.phGraph_out
        };
        Ok(Conditional { node: RawGraphNode(node as usize), handle, body: RawGraph(body as usize), repeat })
    }

    /// Gives a conditional node its place and its word; see [`Graphs::conditional_end`] for the contract.
    pub(crate) unsafe fn end_condition(
        &self,
        place: NodePlace<'_>,
        conditional: &Conditional,
        word: RawBuffer,
        last: RawGraphNode,
    ) -> Result<()> {
        self.with_setter(conditional, word, |function, args| {
            let setter = GraphNode::Work(Work::Kernel { function, config: &ONE, args });
            if conditional.repeat == Repeat::While {
                // SAFETY: the caller vouches for the nodes and the word.
                unsafe { self.graph_add_node(conditional.body, &[last], &setter) }?;
            }
            let node = node_of(conditional.node);
            match place {
                NodePlace::After(graph, after) => {
                    // SAFETY: the caller vouches for the nodes and the word.
                    let first = node_of(unsafe { self.graph_add_node(graph, after, &setter) }?);
                    let api = self.enter()?;
                    // SAFETY: both nodes belong to this graph.
                    unsafe {
                        api.cuGraphAddDependencies(graph_of(graph), &raw const first, &raw const node, 1)
                    }
                    .ok()
                    .inspect_err(|_| {
                        // Without it, nothing sets the condition. SAFETY: only this function knows the node.
                        let _ = unsafe { api.cuGraphDestroyNode(first) };
                    })
                }
                // SAFETY: the caller vouches for the stream and the word.
                NodePlace::EndOf(stream) => unsafe {
                    self.launch(function, &ONE, args, stream)?;
                    let (graph, first) = self.captured(stream)?;
                    let first = first.ok_or_else(no_end)?;
                    let (api, mut end) = (self.enter()?, node);
                    api.cuGraphAddDependencies(graph, &raw const first, &raw const node, 1).ok()?;
                    let set = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
                    api.cuStreamUpdateCaptureDependencies(stream_of(stream), &raw mut end, 1, set as u32).ok()
                },
            }
        })
    }
}
