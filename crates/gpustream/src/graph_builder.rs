//! Graphs that you build node by node.

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
    self as hal, CallSite, Error, ErrorKind, GraphNode, RawGraph, RawGraphExec, RawGraphNode, RawStream,
    Result,
};
use smallvec::SmallVec;

use crate::device::Device;
use crate::external::Operands;
use crate::graph::Graph;
use crate::graph_stream::GraphStream;
use crate::launch::Arg;
use crate::stream::Stream;

/// A node of a graph under construction, and later of the graph that you build from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub(crate) index: usize,
    pub(crate) builder: u64,
}

/// Builds a [`Graph`] node by node, with the same calls that submit work to a stream.
///
/// A node runs after the nodes that you name, and after earlier nodes if it conflicts with them in memory.
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
/// A `GraphBuilder` is `Send` and `Sync`. If you drop it, its nodes are gone and have never run.
pub struct GraphBuilder {
    graph: OwnedGraph,
    adder: Arc<NodeAdder>,
    /// The stream that each node's `work` submits its operation to.
    stream: Stream,
    id: u64,
}

impl Device {
    /// Begins a graph of explicit nodes (`cuGraphCreate`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend has no graphs.
    #[track_caller]
    pub fn graph_builder(&self) -> Result<GraphBuilder> {
        named(call_site("graph_builder"), || {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            reentrancy::check_outside()?;
            let device = self.0.raw.clone();
            let raw = device.graph_create()?;
            // SAFETY: this device has just made the graph, which lives as long as the builder, and only the builder has the
            // adder.
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
    /// Adds one operation, which runs after the nodes `after`. `work` gets a stream that stands for the node, and must submit
    /// exactly one launch, copy, fill or [`host_fn_repeat`](Stream::host_fn_repeat) to it.
    ///
    /// [`alloc`](Stream::alloc) makes no node, and [`zeros`](Stream::zeros) makes one. The memory belongs to the graph, as in a
    /// [capture](Stream::capture): once you drop the buffer, later nodes that come after its users can get the memory.
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
    /// [`ErrorKind::NotANode`] if `work` submits no operation or several, or one that cannot be a node;
    /// [`ErrorKind::InvalidArgument`] if a node belongs to another builder. You can go on with the builder.
    #[track_caller]
    pub fn node(
        &mut self,
        after: &[Node],
        work: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<Node> {
        named(call_site("node"), || {
            let index = self.adder.operations();
            self.adder.open(&self.indices(after)?);
            let outcome = work(&GraphStream(&self.stream));
            if self.adder.operations() == index {
                outcome?;
                return Err(nothing());
            }
            // The node exists even if a second operation was refused.
            outcome.map(|()| Node { index, builder: self.id })
        })
    }

    /// Adds a node that does nothing and runs after `after`, so that branches can meet there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a node belongs to another graph.
    #[track_caller]
    pub fn join(&mut self, after: &[Node]) -> Result<Node> {
        self.raw_node(after, call_site("join"), &GraphNode::Empty, &GraphUses::default())
    }

    /// Adds a copy of another graph as one node. Child graphs and [conditions](Self::if_) nest up to 64 levels deep.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the graph belongs to another device; [`ErrorKind::InvalidArgument`] if it is nested too
    /// deep; [`ErrorKind::Unsupported`] if it has [conditions](Self::while_), because drivers cannot copy these.
    #[track_caller]
    pub fn child(&mut self, after: &[Node], child: &Graph) -> Result<Node> {
        let operation = call_site("child");
        if !self.stream.device.is_same(child.device()) {
            let message = "a graph and its child must belong to one device; record the child with this builder's device";
            return Err(Error::new(ErrorKind::DeviceMismatch, message).with_call_site(operation));
        }
        child.with_recorded(|raw, contents| self.recorded_child(after, operation, raw, contents))
    }

    fn recorded_child(
        &mut self,
        after: &[Node],
        call_site: CallSite,
        raw: RawGraph,
        contents: &Contents,
    ) -> Result<Node> {
        if contents.conditional {
            return Err(conditional_child().with_call_site(call_site));
        }
        named(call_site, || check_levels(contents.levels + 1))?;
        let node = self.raw_node(after, call_site, &GraphNode::Child(raw), &contents.uses)?;
        self.adder.keep_all(contents);
        Ok(node)
    }

    /// Adds another library's work as one node. It runs after the nodes that you name and after those that it conflicts with.
    ///
    /// We call `call` once, before this function returns, with a stream that is being captured, and what it enqueues there
    /// becomes the node's graph. Otherwise this is like [`Stream::external`], which explains `memory` and `call`.
    ///
    /// ```
    /// use gpustream::hal::{FillPattern, RawBuffer};
    /// # fn main() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let (mut builder, mut x) = (device.graph_builder()?, stream.zeros::<u32>(8)?);
    /// let theirs = |raw, x: *mut u32| {
    ///     // SAFETY: the memory is that of `x`, which has 8 elements, and the stream is the one that we are given.
    ///     unsafe { device.raw().fill(RawBuffer(x as usize), FillPattern::U32(7), 8, raw) }
    /// };
    /// // SAFETY: `theirs` only enqueues a fill of `x` in the stream that it gets.
    /// unsafe { builder.external(&[], "theirs", &mut x, theirs) }?;
    /// builder.build()?.launch(&stream)?;
    /// assert_eq!(stream.download(&x)?, [7; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `call`, of [`Stream::capture`] and of [`child`](Self::child).
    ///
    /// # Safety
    /// As for [`Stream::external`] in a capture.
    #[track_caller]
    pub unsafe fn external<'a, M: Operands<'a>>(
        &mut self,
        after: &[Node],
        label: &'static str,
        memory: M,
        call: impl FnOnce(RawStream, M::Addresses) -> Result<()>,
    ) -> Result<Node> {
        let call_site = call_site(label);
        let stream = self.stream.device.stream()?;
        // SAFETY: by this function's contract.
        let recorded = stream.capture_parts(|stream| unsafe { stream.external(label, memory, call) });
        let (graph, contents) = named(call_site, || recorded)?;
        self.recorded_child(after, call_site, graph.raw, &contents)
    }

    /// Adds a node that runs a graph of another library, for example one that the library's work was captured into. It runs
    /// after the nodes that you name and after those that it conflicts with. `memory` names what the graph's work touches, as
    /// in [`Stream::external`]. The driver copies the graph, so you may destroy it afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the device cannot reach the memory. The driver's error if it cannot copy the graph, for
    /// example because it has memory nodes or conditional nodes.
    ///
    /// # Safety
    /// `graph` must belong to this device's driver. It may only touch memory of this library that `memory` names, and only
    /// write what you pass for writing. Everything else that it uses (kernels, host memory) must outlive the graph that you
    /// build.
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
        call_site: CallSite,
        node: &GraphNode<'_>,
        uses: &GraphUses,
    ) -> Result<Node> {
        let entry = self.stream.enter(call_site)?;
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
    /// The driver's error if it refuses the graph.
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
        "the child has conditional nodes, which drivers cannot copy; record its work again in this graph",
    )
}

#[cold]
fn nothing() -> Error {
    Error::new(
        ErrorKind::NotANode,
        "the closure submitted nothing, so there is no node; submit exactly one operation",
    )
}

impl Node {
    #[inline]
    fn index_in(self, builder: u64) -> Result<usize> {
        if self.builder == builder {
            return Ok(self.index);
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            "the node belongs to another graph; pass a node that this graph's builder returned",
        ))
    }
}

/// What a built graph needs to change its nodes.
pub(crate) struct NodeTable {
    nodes: Vec<RawGraphNode>,
    /// The nodes' order. The table owns it until `setter` is made, and then the setter does. So it is with the next two.
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
    /// Gives each node of `exec` that calls a closure a call of its own, so that it can be changed later. `exec` has not been
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
            // SAFETY: the executable is alive and has this node, and the graph keeps the call that the node gets.
            unsafe { device.graph_set_node(exec, node, &own.work()) }?;
            *call = own.clone();
            self.calls.push((node, own));
        }
        Ok(())
    }

    /// Puts the one operation of `work` into `node` of `exec`, and the memory and kernels that it uses into `contents`.
    #[inline]
    pub(crate) fn replace(
        &mut self,
        device: &Device,
        exec: RawGraphExec,
        node: Node,
        contents: &mut Contents,
        work: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        /// Closes the setter, even if the closure panics after it has set the node.
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
            // SAFETY: the executable belongs to this device. Only its graph has the setter, and opens it while the executable
            // is alive.
            let setter = unsafe { NodeSetter::new(raw, exec, attributed, calls, order) };
            let setter = Arc::new(setter);
            (node_stream(device, Destination::set(setter.clone())), setter)
        });
        // SAFETY: the graph is borrowed exclusively, and each change ends by closing the setter.
        unsafe { setter.open(node, index) };
        let closing = Closing(setter, contents);
        work(stream)?;
        let set = setter.is_set();
        drop(closing);
        if set { Ok(()) } else { Err(nothing()) }
    }
}

impl NodeTable {
    /// Checks that the order of the nodes still suits the memory that they touch. Once after a change is enough.
    #[inline]
    pub(crate) fn check_order(&self, caller: &Caller) -> Result<()> {
        match &self.setter {
            // SAFETY: only `replace` opens the setter. It borrows the table exclusively and closes the setter again.
            Some((_, setter)) if caller.rules.tracking.is_some() => unsafe { setter.check_order() },
            _ => Ok(()),
        }
    }
}

/// Makes a stream whose operations become nodes.
pub(crate) fn node_stream(device: &Device, destination: Destination) -> Stream {
    // SAFETY: the stream has no raw handle, and a `Stream` checks its calls.
    let core = unsafe { StreamCore::of_nodes(destination, device.0.raw.clone()) };
    Stream { core: Arc::new(core), device: device.clone() }
}
