//! A device that turns each call into a graph's node instead of running it, so that the explicit nodes of a graph
//! are written with the same typed calls as everything else.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use gpustream_hal::{
    self as hal, Buffers, Copy3d, DefaultStream, Device, DeviceInfo, Error, ErrorKind, EventOptions, Events,
    FillPattern, FunctionInfo, GraphNode, Graphs, HostFn, HostPtr, Launch, LaunchConfig, Modules, ParamInfo,
    PinnedOptions, RawBuffer, RawEvent, RawFunction, RawGraph, RawGraphNode, RawModule, RawStream, Result,
    StreamOptions, Streams,
};
use smallvec::SmallVec;

use crate::capture::refused;
use crate::sync::{Mutex, lock};

/// Where the calls go that this device is made of.
pub(crate) trait NodeTarget: Send + Sync {
    /// Makes `work` a node, or the work of one.
    ///
    /// # Safety
    /// What `work` refers to is alive and stays so as long as the graph.
    unsafe fn take(&self, device: &dyn Device, work: &GraphNode<'_>) -> Result<()>;
}

pub(crate) struct NodeRecorder<T> {
    device: Arc<dyn Device>,
    target: Arc<T>,
}

impl<T: NodeTarget> NodeRecorder<T> {
    pub(crate) fn new(device: Arc<dyn Device>, target: Arc<T>) -> Self {
        Self { device, target }
    }

    /// # Safety
    /// As for [`NodeTarget::take`].
    unsafe fn node(&self, work: &GraphNode<'_>) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.target.take(&*self.device, work) }
    }
}

/// Adds a node to a graph under construction.
#[derive(Default)]
pub(crate) struct NodeAdder(Mutex<Adding>);

#[derive(Default)]
struct Adding {
    /// The next node's graph, and the nodes it follows.
    aim: Option<(RawGraph, SmallVec<[RawGraphNode; 4]>)>,
    /// The node that the last call made.
    made: Option<RawGraphNode>,
    attributed: Attributed,
    host_nodes: HostNodes,
}

/// The nodes that call a closure, and where the [`RepeatedCall`](crate::host_call::RepeatedCall) of each lies.
pub(crate) type HostNodes = Vec<(RawGraphNode, usize)>;

/// The nodes whose kernels have launch attributes, and these. Drivers take them for nodes of a graph alone: in an
/// executable they stay.
#[derive(Default)]
pub(crate) struct Attributed(Vec<(RawGraphNode, Attributes)>);

/// Whether the launch is cooperative, and its clusters. An early start has no effect in a node.
type Attributes = (bool, [u32; 3]);

const NO_ATTRIBUTES: Attributes = (false, [1; 3]);

fn attributes(config: &LaunchConfig) -> Attributes {
    (config.cooperative, config.cluster)
}

impl Attributed {
    fn add(&mut self, node: RawGraphNode, work: &GraphNode<'_>) {
        if let GraphNode::Kernel { config, .. } = work
            && attributes(config) != NO_ATTRIBUTES
        {
            self.0.push((node, attributes(config)));
        }
    }

    /// Refuses to put a launch into `node` whose attributes are not the node's.
    #[inline]
    pub(crate) fn check(&self, node: RawGraphNode, work: &GraphNode<'_>) -> Result<()> {
        match work {
            GraphNode::Kernel { config, .. } if !(config.is_plain() && self.0.is_empty()) => {
                self.check_attributes(node, config)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn check_attributes(&self, node: RawGraphNode, config: &LaunchConfig) -> Result<()> {
        let of_node = self.0.iter().find(|(other, _)| *other == node).map_or(NO_ATTRIBUTES, |found| found.1);
        if of_node == attributes(config) {
            return Ok(());
        }
        let words = |(cooperative, [x, y, z]): Attributes| {
            let kind = if cooperative { "a cooperative launch" } else { "an ordinary launch" };
            format!("{kind} in clusters of {x} by {y} by {z}")
        };
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the node was made for {}, which cannot be changed, and was given {}; build the graph anew",
                words(of_node),
                words(attributes(config))
            ),
        ))
    }
}

impl NodeAdder {
    /// Says where the next call goes; one call only.
    pub(crate) fn aim(&self, graph: RawGraph, after: SmallVec<[RawGraphNode; 4]>) {
        lock(&self.0).aim = Some((graph, after));
    }

    /// The node that the last call made.
    pub(crate) fn take_made(&self) -> Option<RawGraphNode> {
        lock(&self.0).made.take()
    }

    pub(crate) fn take_attributed(&self) -> Attributed {
        std::mem::take(&mut lock(&self.0).attributed)
    }

    pub(crate) fn take_host_nodes(&self) -> HostNodes {
        std::mem::take(&mut lock(&self.0).host_nodes)
    }
}

impl NodeTarget for NodeAdder {
    unsafe fn take(&self, device: &dyn Device, work: &GraphNode<'_>) -> Result<()> {
        let mut adding = lock(&self.0);
        let (graph, after) = adding.aim.take().ok_or_else(several_calls)?;
        // SAFETY: the builder aims at a live graph of this device; the rest is the caller's word.
        let node = unsafe { device.graph_add_node(graph, &after, work) }?;
        adding.made = Some(node);
        adding.attributed.add(node, work);
        if let GraphNode::Host { data, .. } = *work {
            adding.host_nodes.push((node, data.addr()));
        }
        Ok(())
    }
}

#[cold]
pub(crate) fn several_calls() -> Error {
    refused("make one node of an operation that takes several calls; split it")
}

fn no<T>() -> Result<T> {
    Err(refused("do that in a node of a graph; nodes are kernels, copies, fills and host closures"))
}

// SAFETY: each call is refused or handed to the target, which has the real device make a node of it.
unsafe impl<T: NodeTarget> Streams for NodeRecorder<T> {
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

// SAFETY: each call is refused or handed to the target, which has the real device make a node of it.
unsafe impl<T: NodeTarget> Events for NodeRecorder<T> {
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

// SAFETY: each call is refused or handed to the target, which has the real device make a node of it.
unsafe impl<T: NodeTarget> Buffers for NodeRecorder<T> {
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

// SAFETY: each call is refused or handed to the target, which has the real device make a node of it.
unsafe impl<T: NodeTarget> Modules for NodeRecorder<T> {
    fn target_rank(&self, _: &str) -> Option<u32> {
        None
    }
    unsafe fn module_load(&self, _: &[u8]) -> Result<RawModule> {
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

// SAFETY: each call is refused or handed to the target, which has the real device make a node of it.
unsafe impl<T: NodeTarget> Launch for NodeRecorder<T> {
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        _: RawStream,
    ) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.node(&GraphNode::Kernel { function, config, args }) }
    }
}

// SAFETY: nothing is implemented.
unsafe impl<T: NodeTarget> Graphs for NodeRecorder<T> {}

// SAFETY: facts are the real device's, and nothing else answers.
unsafe impl<T: NodeTarget> Device for NodeRecorder<T> {
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
