//! A device that turns each call into a graph's node instead of running it, so that the explicit nodes of a graph
//! are written with the same typed calls as everything else.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpustream_hal::{
    self as hal, Buffers, Copy3d, DefaultStream, Device, DeviceInfo, EventOptions, Events, FillPattern,
    FunctionInfo, GraphNode, Graphs, HostFn, HostPtr, Launch, LaunchConfig, Modules, ParamInfo,
    PinnedOptions, RawBuffer, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule,
    RawStream, Result, StreamOptions, Streams,
};
use smallvec::SmallVec;

use crate::capture::refused;
use crate::sync::lock;

/// Where the next call goes.
pub(crate) enum Target {
    /// Becomes a node of the graph, behind these.
    Add { graph: RawGraph, after: SmallVec<[RawGraphNode; 4]> },
    /// Replaces the work of one node.
    Set { exec: RawGraphExec, node: RawGraphNode },
}

pub(crate) struct NodeRecorder {
    device: Arc<dyn Device>,
    target: Mutex<Option<Target>>,
    /// The node that the last call made.
    made: Mutex<Option<RawGraphNode>>,
}

impl NodeRecorder {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, target: Mutex::new(None), made: Mutex::new(None) }
    }

    /// Says where the next call goes; one call only.
    pub(crate) fn aim(&self, target: Target) {
        *lock(&self.target) = Some(target);
    }

    /// The node that the last call made.
    pub(crate) fn take_made(&self) -> Option<RawGraphNode> {
        lock(&self.made).take()
    }

    /// # Safety
    /// What the node refers to is alive and stays so as long as the graph.
    unsafe fn node(&self, node: &GraphNode<'_>) -> Result<()> {
        match lock(&self.target).take() {
            Some(Target::Add { graph, after }) => {
                // SAFETY: the builder aims at a live graph of this device; the rest is the caller's word.
                let made = unsafe { self.device.graph_add_node(graph, &after, node) }?;
                *lock(&self.made) = Some(made);
                Ok(())
            }
            // SAFETY: as above, with the executable that the node was made for.
            Some(Target::Set { exec, node: old }) => unsafe { self.device.graph_set_node(exec, old, node) },
            None => Err(refused("make one node of an operation that takes several calls; split it")),
        }
    }
}

fn no<T>() -> Result<T> {
    Err(refused("do that in a node of a graph; nodes are kernels, copies, fills and host closures"))
}

impl Streams for NodeRecorder {
    fn stream_create(&self, _: StreamOptions) -> Result<RawStream> {
        no()
    }
    unsafe fn stream_destroy(&self, _: RawStream) -> Result<()> {
        no()
    }
    fn stream_default(&self, _: DefaultStream) -> Result<RawStream> {
        no()
    }
    unsafe fn stream_query(&self, _: RawStream) -> Result<bool> {
        no()
    }
    unsafe fn stream_synchronize(&self, _: RawStream) -> Result<()> {
        no()
    }
    unsafe fn stream_wait_event(&self, _: RawStream, _: RawEvent) -> Result<()> {
        no()
    }
    unsafe fn stream_host_fn(&self, _: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::Host { function, data }) }
    }
}

impl Events for NodeRecorder {
    fn event_create(&self, _: EventOptions) -> Result<RawEvent> {
        no()
    }
    unsafe fn event_destroy(&self, _: RawEvent) -> Result<()> {
        no()
    }
    unsafe fn event_record(&self, _: RawEvent, _: RawStream) -> Result<()> {
        no()
    }
    unsafe fn event_query(&self, _: RawEvent) -> Result<bool> {
        no()
    }
    unsafe fn event_synchronize(&self, _: RawEvent) -> Result<()> {
        no()
    }
    unsafe fn event_elapsed(&self, _: RawEvent, _: RawEvent) -> Result<Duration> {
        no()
    }
}

impl Buffers for NodeRecorder {
    fn alloc(&self, _: usize) -> Result<RawBuffer> {
        no()
    }
    unsafe fn free(&self, _: RawBuffer) -> Result<()> {
        no()
    }
    fn pinned_alloc(&self, _: usize, _: PinnedOptions) -> Result<HostPtr> {
        no()
    }
    unsafe fn pinned_free(&self, _: HostPtr) -> Result<()> {
        no()
    }
    unsafe fn pinned_device_address(&self, _: HostPtr) -> Result<RawBuffer> {
        no()
    }
    unsafe fn fill(&self, dst: RawBuffer, pattern: FillPattern, count: usize, _: RawStream) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::Fill { dst, pattern, count }) }
    }
    unsafe fn copy_to_device(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        _: RawStream,
    ) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::CopyToDevice { dst, src: src.cast_mut(), bytes }) }
    }
    unsafe fn copy_to_host(&self, dst: HostPtr, src: RawBuffer, bytes: usize, _: RawStream) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::CopyToHost { dst, src, bytes }) }
    }
    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        _: RawStream,
    ) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::CopyOnDevice { dst, src, bytes }) }
    }
    unsafe fn copy_3d(&self, copy: &Copy3d, _: RawStream) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::Copy3d(*copy)) }
    }
}

impl Modules for NodeRecorder {
    fn target_rank(&self, _: &str) -> Option<u32> {
        None
    }
    fn module_load(&self, _: &[u8]) -> Result<RawModule> {
        no()
    }
    unsafe fn module_unload(&self, _: RawModule) -> Result<()> {
        no()
    }
    unsafe fn module_function(&self, _: RawModule, _: &str) -> Result<RawFunction> {
        no()
    }
    unsafe fn function_params(&self, _: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        no()
    }
    unsafe fn function_info(&self, _: RawFunction) -> Result<FunctionInfo> {
        no()
    }
}

impl Launch for NodeRecorder {
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        _: RawStream,
    ) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::Kernel { function, config: *config, args }) }
    }
}

impl Graphs for NodeRecorder {}

impl Device for NodeRecorder {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }
    fn synchronize(&self) -> Result<()> {
        no()
    }
    fn memory(&self) -> Result<(u64, u64)> {
        hal::Device::memory(&*self.device)
    }
}
