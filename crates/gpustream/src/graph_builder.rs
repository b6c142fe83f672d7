//! Graphs made of explicit nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_core::operation::{Caller, call_site, named};
use gpustream_core::record::attributes::Attributed;
use gpustream_core::record::nodes::{Finished, HostNodes};
use gpustream_core::record::setter::NodeCalls;
use gpustream_core::record::{
    Contents, GraphUses, NodeAdder, NodeOrder, NodeSetter, OwnedGraph, check_levels,
};
use gpustream_core::reentrancy;
use gpustream_core::stream::{Destination, StreamCore};
use gpustream_hal::{
    self as hal, CallSite, Error, ErrorKind, GraphNode, RawGraph, RawGraphExec, RawGraphNode, Result,
};
use smallvec::SmallVec;

use crate::device::Device;
use crate::graph::Graph;
use crate::launch::Arg;
use crate::stream::Stream;

/// A node of a graph under construction, and of the graph made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub(crate) index: usize,
    pub(crate) builder: u64,
}

/// Builds a [`Graph`] node by node, with the calls that submit work to a stream.
///
/// A node runs after the nodes that it was given to follow, and after earlier nodes that it conflicts with in memory.
///
/// ```
/// # fn main() -> gpustream::Result<()> {
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let (source, mut x) = (device.pinned_from(&[1u32; 8])?, stream.zeros::<u32>(8)?);
/// let mut host = device.pinned::<u32>(8)?;
/// let mut builder = device.graph_builder()?;
/// let up = builder.node(&[], |s| s.copy(&source, &mut x))?;
/// let down = builder.node(&[up], |s| s.copy(&x, &mut host))?;
/// let graph = builder.build()?;
/// graph.launch(&stream)?;
/// assert_eq!(*host.read()?, [1; 8]);
/// # let _ = down; Ok(())
/// # }
/// ```
///
/// A `GraphBuilder` is `Send` and `Sync`. Dropping it drops the nodes, which have not run.
pub struct GraphBuilder {
    graph: OwnedGraph,
    adder: Arc<NodeAdder>,
    /// The stream that `work` submits each node's operation to.
    stream: Stream,
    id: u64,
}

impl Device {
    /// Begins a graph of explicit nodes (`cuGraphCreate`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend has no graphs.
    #[track_caller]
    pub fn graph_builder(&self) -> Result<GraphBuilder> {
        named(call_site("graph_builder"), || {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            reentrancy::check_outside()?;
            let device = self.0.raw.clone();
            let raw = device.graph_create()?;
            // SAFETY: the graph was just made by this device, and lives as long as the builder, which alone has the adder.
            let adder = Arc::new(unsafe { NodeAdder::new(device.clone(), raw) });
            Ok(GraphBuilder {
                graph: OwnedGraph { raw, device },
                stream: node_stream(self, Destination::node(adder.clone())),
                adder,
                id: NEXT.fetch_add(1, Ordering::Relaxed),
            })
        })
    }
}

impl GraphBuilder {
    /// Adds one operation, which runs after the nodes `after`. The stream given to `work` stands for the node: one
    /// launch, copy, fill or [`host_fn_repeat`](Stream::host_fn_repeat) goes into it.
    ///
    /// [`alloc`](Stream::alloc) makes no node, and [`zeros`](Stream::zeros) makes one. The memory belongs to the graph, as in
    /// a [capture](Stream::capture): once the buffer is dropped, it serves nodes that come after the nodes which use it.
    ///
    /// ```
    /// # fn main() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let (mut builder, mut x) = (device.graph_builder()?, None);
    /// let zeros = builder.node(&[], |s| s.zeros::<u32>(8).map(|zeros| x = Some(zeros)))?;
    /// if let Some(x) = &mut x {
    ///     builder.node(&[zeros], |s| s.fill(&mut x.slice_mut(..4)?, 7))?;
    /// }
    /// builder.build()?.launch(&stream)?;
    /// assert_eq!(x.map(|x| stream.download(&x)).transpose()?, Some(vec![7, 7, 7, 7, 0, 0, 0, 0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotANode`] for none or several operations, and for operations that no node can be;
    /// [`ErrorKind::InvalidArgument`] for a node of another builder. The builder stays usable.
    #[track_caller]
    pub fn node(&mut self, after: &[Node], work: impl FnOnce(&Stream) -> Result<()>) -> Result<Node> {
        named(call_site("node"), || {
            let index = self.adder.operations();
            self.adder.open(&self.indices(after)?);
            let outcome = work(&self.stream);
            if self.adder.operations() == index {
                outcome?;
                return Err(nothing());
            }
            // The node exists even where a second operation was refused.
            outcome.map(|()| Node { index, builder: self.id })
        })
    }

    /// Adds a node that does nothing and runs after `after`: a point where branches meet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph.
    #[track_caller]
    pub fn join(&mut self, after: &[Node]) -> Result<Node> {
        self.raw_node(after, call_site("join"), &GraphNode::Empty, &GraphUses::default())
    }

    /// Adds all of another graph as one node, which is a copy. Child graphs and [conditions](Stream::if_) nest up to 64 levels
    /// deep.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] for a graph of another device, [`ErrorKind::InvalidArgument`] for one too deep,
    /// [`ErrorKind::Unsupported`] for one with [conditions](Stream::while_), which drivers do not copy.
    #[track_caller]
    pub fn child(&mut self, after: &[Node], child: &Graph) -> Result<Node> {
        let operation = call_site("child");
        if !self.stream.device.is_same(child.device()) {
            let message = "a graph and its child belong to one device; record the child with this device";
            return Err(Error::new(ErrorKind::DeviceMismatch, message).with_call_site(operation));
        }
        child.with_recorded(|raw, contents| {
            if contents.conditional {
                return Err(conditional_child().with_call_site(operation));
            }
            named(operation, || check_levels(contents.levels + 1))?;
            let node = self.raw_node(after, operation, &GraphNode::Child(raw), &contents.uses)?;
            self.adder.keep_all(contents);
            Ok(node)
        })
    }

    /// Adds a node that runs a graph of another library's, such as one that its work was captured into, after the given
    /// nodes and after those that conflict with it. `memory` names what the graph's work touches, as in
    /// [`Stream::external`]. The driver copies the graph, which may be destroyed afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] for memory that the graph's device cannot reach; the driver's where it cannot copy the
    /// graph, as one with memory nodes or conditional nodes.
    ///
    /// # Safety
    /// `graph` is a graph of this device's driver, and touches no memory of this library's but `memory`, and writes none
    /// but what was given to be written. Everything else that it uses (kernels, host memory) outlives the graph that is
    /// built.
    #[track_caller]
    pub unsafe fn child_from_raw(
        &mut self,
        after: &[Node],
        label: &'static str,
        memory: &[Arg<'_>],
        graph: RawGraph,
    ) -> Result<Node> {
        let operation = call_site(label);
        let uses = GraphUses::of(&self.stream.accesses(&self.stream.enter(operation)?, memory)?);
        self.raw_node(after, operation, &GraphNode::Child(graph), &uses)
    }

    fn raw_node(
        &mut self,
        after: &[Node],
        operation: CallSite,
        node: &GraphNode<'_>,
        uses: &GraphUses,
    ) -> Result<Node> {
        let entry = self.stream.enter(operation)?;
        let index = self.adder.operations();
        let after = entry.named(self.indices(after))?;
        entry.named(self.adder.add(&entry.caller, node, uses, &after))?;
        Ok(Node { index, builder: self.id })
    }

    fn indices(&self, nodes: &[Node]) -> Result<SmallVec<[usize; 4]>> {
        nodes.iter().map(|node| node.index_in(self.id)).collect()
    }

    /// Makes the graph launchable (`cuGraphInstantiate`).
    ///
    /// # Errors
    /// The driver's error where it refuses the graph.
    #[track_caller]
    pub fn build(self) -> Result<Graph> {
        named(call_site("build"), || {
            let Finished { contents, nodes, order, attributed, host_nodes } = self.adder.finish();
            let table = NodeTable { nodes, order, attributed, calls: Vec::new(), id: self.id, setter: None };
            Graph::of_nodes(&self.stream.device, self.graph, contents, table, &host_nodes)
        })
    }
}

#[cold]
fn conditional_child() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a child with conditional nodes, which drivers do not copy; record its work again in this graph",
    )
}

#[cold]
fn nothing() -> Error {
    Error::new(
        ErrorKind::NotANode,
        "the closure submitted nothing, so there is no node; submit one operation",
    )
}

impl Node {
    #[inline]
    fn index_in(self, builder: u64) -> Result<usize> {
        if self.builder == builder {
            return Ok(self.index);
        }
        Err(Error::new(ErrorKind::InvalidArgument, "the node belongs to another graph"))
    }
}

/// The state with which a built graph changes its nodes.
pub(crate) struct NodeTable {
    nodes: Vec<RawGraphNode>,
    /// The nodes' order. The table owns it until `setter` is made, and then the setter does; so with the next two.
    order: NodeOrder,
    /// The nodes with launch attributes.
    attributed: Attributed,
    /// The closures that the executable's nodes call.
    calls: NodeCalls,
    id: u64,
    /// Made by the first change.
    setter: Option<(Stream, Arc<NodeSetter>)>,
}

impl NodeTable {
    /// Gives each node of `exec` that calls a closure a call of its own, which can be changed. `exec` has not been
    /// launched yet.
    pub(crate) fn own_calls(
        &mut self,
        device: &dyn hal::Device,
        exec: RawGraphExec,
        contents: &mut Contents,
        host_nodes: &HostNodes,
    ) -> Result<()> {
        for &(node, recorded) in host_nodes {
            let Some(call) = contents.calls.iter_mut().find(|call| Arc::as_ptr(call).addr() == recorded)
            else {
                continue;
            };
            let Some(own) = call.for_executable().map(Arc::new) else { continue };
            // SAFETY: the executable is alive and made of this node, and its graph keeps the call that the node gets.
            unsafe { device.graph_set_node(exec, node, &own.work()) }?;
            *call = own.clone();
            self.calls.push((node, own));
        }
        Ok(())
    }

    /// Puts the one operation of `work` into `node` of `exec`, and the memory and kernels that it refers to into
    /// `contents`.
    #[inline]
    pub(crate) fn replace(
        &mut self,
        device: &Device,
        exec: RawGraphExec,
        node: Node,
        contents: &mut Contents,
        work: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        /// Closes the setter, also where the closure panics after it has set the node.
        struct Closing<'a>(&'a NodeSetter, &'a mut Contents);
        impl Drop for Closing<'_> {
            fn drop(&mut self) {
                self.0.close();
                if let Some(new) = self.0.take_new() {
                    self.1.merge(new);
                }
            }
        }

        let index = node.index_in(self.id)?;
        let Some(&node) = self.nodes.get(index) else { return Err(nothing()) };
        let (attributed, calls, order) = (&mut self.attributed, &mut self.calls, &mut self.order);
        let (stream, setter) = self.setter.get_or_insert_with(|| {
            let (attributed, calls) = (std::mem::take(attributed), std::mem::take(calls));
            let (order, raw) = (std::mem::take(order), device.0.raw.clone());
            // SAFETY: the executable is of this device, and its graph, which alone has the setter, opens it while alive.
            let setter = unsafe { NodeSetter::new(raw, exec, attributed, calls, order) };
            let setter = Arc::new(setter);
            (node_stream(device, Destination::set(setter.clone())), setter)
        });
        // SAFETY: the graph is borrowed exclusively, and each change closes the setter at its end.
        unsafe { setter.open(node, index) };
        let closing = Closing(setter, contents);
        work(stream)?;
        let set = setter.is_set();
        drop(closing);
        if set { Ok(()) } else { Err(nothing()) }
    }
}

impl NodeTable {
    /// Checks, once after a change, that the nodes are ordered as the memory that they touch now demands.
    #[inline]
    pub(crate) fn check_order(&self, caller: &Caller) -> Result<()> {
        match &self.setter {
            // SAFETY: the setter is opened by `replace` alone, which borrows the table exclusively and closes it.
            Some((_, setter)) if caller.rules.tracking.is_some() => unsafe { setter.check_order() },
            _ => Ok(()),
        }
    }
}

/// Makes a stream whose operations go into nodes.
pub(crate) fn node_stream(device: &Device, destination: Destination) -> Stream {
    // SAFETY: the stream has no raw handle, and a `Stream` checks its calls.
    let core = unsafe { StreamCore::of_nodes(destination, device.0.raw.clone()) };
    Stream { core: Arc::new(core), device: device.clone() }
}
