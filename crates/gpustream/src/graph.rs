//! Graphs: work that you record once and launch many times.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use gpustream_core::operation::{Caller, call_site, named};
use gpustream_core::record::nodes::HostNodes;
use gpustream_core::record::{Contents, OwnedExec, OwnedGraph};
use gpustream_core::reentrancy;
use gpustream_core::stream::Capture;
use gpustream_core::sync::{Mutex, lock};
use gpustream_hal::{Error, ErrorKind, GraphSize, GraphUpdate, RawGraph, Result};

use crate::device::Device;
use crate::dot::{dot, recorded};
use crate::graph_builder::{Node, NodeTable};
use crate::graph_stream::GraphStream;
use crate::stream::Stream;

/// Recorded work, ready to launch. A graph owns all the memory, kernels and closures that it uses, so you may drop your own
/// handles of them, and even of their devices, before the graph.
///
/// ```
/// # use gpustream::Device;
/// # fn main() -> gpustream::Result<()> {
/// # let device = Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let source = device.pinned_from(&[1.0f32; 64])?;
/// let mut x = stream.zeros::<f32>(64)?;
/// let graph = stream.capture(|s| s.copy(&source, &mut x))?;
/// for _ in 0..10 {
///     graph.launch(&stream)?;
/// }
/// assert_eq!(stream.download(&x)?, [1.0; 64]);
/// # Ok(())
/// # }
/// ```
///
/// A `Graph` is `Send` and `Sync`. Dropping it returns at once. Pending runs still finish, and everything that they use lives
/// until then.
pub struct Graph {
    parts: ManuallyDrop<GraphParts>,
    /// The nodes, if they were made one by one. The table is not part of `parts`, because it holds the device, and the device
    /// holds parked parts.
    table: Option<NodeTable>,
    device: Device,
}

/// What a launch may still be using after the graph is dropped.
struct GraphParts {
    exec: OwnedExec,
    /// Locked during calls with `exec` and with the recorded graph, because drivers do not lock their graphs and threads may
    /// share a `Graph`.
    calls: Mutex<()>,
    /// The graph that the executable was made from. We keep it so that it can become a child.
    recorded: OwnedGraph,
    contents: Contents,
    size: GraphSize,
    /// True if the executable may have work of two recordings, in an order that suits neither.
    is_mixed: bool,
}

impl Stream {
    /// Records the operations that `work` submits to this stream instead of running them. Another stream joins the capture if
    /// it waits for an event that was recorded inside, or by [`GraphStream::fork`]. Does not wait for the device.
    ///
    /// Inside the graph the tracker orders operations as it does outside. Copies must be between device and pinned memory. If
    /// `work` waits on the host or uses the stream on another thread, that call returns [`ErrorKind::Captured`], and afterwards
    /// stream and buffers work as before. You also get [`ErrorKind::Captured`] if the capture begins while another thread waits
    /// for the whole device.
    ///
    /// Allocations inside, with [`alloc`](Self::alloc) and similar calls, make no node. The memory belongs to the recording.
    /// When you drop the buffer, a later allocation inside can get the same memory, if it has a similar length and comes after
    /// the buffer's uses. Outside the graph the memory is not reused as long as the graph lives. So temporaries that follow
    /// each other share memory, and branches that can run at the same time do not. If a buffer leaves the closure, you can use
    /// it like any other, and each launch writes to it what the nodes write.
    ///
    /// ```
    /// # fn main() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1u32, 2, 3])?;
    /// let mut result = None;
    /// let graph = stream.capture(|s| {
    ///     let temporary = s.duplicate(&x)?;
    ///     result = Some(s.duplicate(&temporary)?);
    ///     Ok(())
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!(result.map(|y| stream.download(&y)).transpose()?, Some(vec![1, 2, 3]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if an operation cannot be recorded, and the error of `work`.
    #[track_caller]
    pub fn capture(&self, work: impl FnOnce(&GraphStream<'_>) -> Result<()>) -> Result<Graph> {
        named(call_site("capture"), || {
            let (recorded, contents) = self.capture_parts(work)?;
            Ok(Graph::new(&self.device, GraphParts::new(recorded, contents)?, None))
        })
    }

    pub(crate) fn capture_parts(
        &self,
        work: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<(OwnedGraph, Contents)> {
        /// Ends the capture, even if the closure panics.
        struct Ending<'a>(&'a Stream, Arc<Capture>);
        impl Ending<'_> {
            fn end(&self) -> Result<(OwnedGraph, Contents)> {
                let (raw, contents) = self.1.end()?;
                Ok((OwnedGraph { raw, device: self.0.core.device.clone() }, contents))
            }
        }
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                if !self.1.is_over() {
                    // The graph is dropped, because it will never be launched.
                    drop(self.end());
                }
            }
        }

        let ending = Ending(self, Capture::begin(&self.core)?);
        let outcome = work(&GraphStream(self));
        let ended = ending.end();
        outcome?;
        ended
    }
}

/// Contents that a graph is about to refer to. Unless they are taken out, they are added to the graph's contents. That happens
/// even if the driver fails or a backend panics, because the executable may then already refer to a part of them.
struct Added<'a> {
    contents: &'a mut Contents,
    new: Option<Contents>,
}

impl Added<'_> {
    fn take(mut self) -> Contents {
        self.new.take().unwrap_or_default()
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        if let Some(new) = self.new.take() {
            self.contents.merge(new);
        }
    }
}

impl GraphParts {
    fn new(recorded: OwnedGraph, contents: Contents) -> Result<Self> {
        reentrancy::check_outside()?;
        // SAFETY: the graph is alive.
        let size = unsafe { recorded.device.graph_size(recorded.raw) }?;
        let (exec, calls) = (recorded.instantiate()?, Mutex::new(()));
        Ok(Self { exec, calls, recorded, contents, size, is_mixed: false })
    }
}

impl Graph {
    fn new(device: &Device, parts: GraphParts, table: Option<NodeTable>) -> Self {
        Self { parts: ManuallyDrop::new(parts), table, device: device.clone() }
    }

    /// Makes a graph of explicit nodes. `host_nodes` are the nodes that call a closure.
    pub(crate) fn of_nodes(
        device: &Device,
        recorded: OwnedGraph,
        contents: Contents,
        mut table: NodeTable,
        host_nodes: &HostNodes,
    ) -> Result<Self> {
        let mut parts = GraphParts::new(recorded, contents)?;
        table.own_calls(&*parts.exec.device, parts.exec.raw, &mut parts.contents, host_nodes)?;
        Ok(Self::new(device, parts, Some(table)))
    }

    /// Calls `make` with the recorded graph and its contents.
    pub(crate) fn with_recorded<T>(&self, make: impl FnOnce(RawGraph, &Contents) -> Result<T>) -> Result<T> {
        let _alone = lock(&self.parts.calls);
        make(self.parts.recorded.raw, &self.parts.contents)
    }

    /// Enqueues one run on `stream`, after all earlier work that touches the same memory. Runs of one graph follow each other,
    /// even on different streams.
    ///
    /// # Errors
    /// [`ErrorKind::HostBorrowed`] if you hold a guard on pinned memory that the graph touches; [`ErrorKind::DeviceMismatch`]
    /// if the stream belongs to another device. [`ErrorKind::Hazard`] if you [set](Self::set_node) nodes so that two of them
    /// conflict and are not ordered (the error names both), and after an [`update`](Self::update) in which the driver failed.
    #[track_caller]
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let entry = stream.enter(call_site("graph"))?;
        entry.named(self.device.check_made(stream, "graph"))?;
        entry.named(self.check_order(&entry.caller))?;
        let parts = &self.parts;
        let launch = || {
            entry.launch_graph(self.node_count() as u32, &parts.contents.uses, |device, raw| {
                let _alone = lock(&parts.calls);
                parts.contents.calls.iter().for_each(|call| call.launched_on(&stream.core.failures));
                // SAFETY: both are alive, and the graph owns what it refers to.
                unsafe { device.graph_launch(parts.exec.raw, raw) }
                    .inspect_err(|_| parts.contents.calls.iter().for_each(|call| call.not_launched()))
            })
        };
        entry.named(if parts.contents.watched {
            stream.launch_watched(&parts.contents, launch)
        } else {
            launch()
        })
    }

    /// Checks that the order of the nodes still suits what they do now.
    #[inline]
    fn check_order(&self, caller: &Caller) -> Result<()> {
        if self.parts.is_mixed {
            return Err(mixed());
        }
        self.table.as_ref().map_or(Ok(()), |table| table.check_order(caller))
    }

    /// Records new work into the same executable, which is cheaper than a new graph. If the new work has another shape, we must
    /// make a new executable after all; then you get [`GraphUpdate::TopologyChanged`]. Either way the next launch runs the new
    /// work.
    ///
    /// # Errors
    /// As for [`capture`](Stream::capture); the graph is then as it was. If the driver itself fails, it may have taken a part
    /// of the new work, which is not ordered with the rest. The graph then keeps the memory, kernels and closures of both
    /// recordings, and you cannot launch it until an update succeeds.
    #[track_caller]
    pub fn update(
        &mut self,
        stream: &Stream,
        work: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<GraphUpdate> {
        named(call_site("update"), || {
            self.device.check_made(stream, "graph")?;
            let (recorded, contents) = stream.capture_parts(work)?;
            let parts = &mut *self.parts;
            // Drivers make only one executable of a recording with conditional nodes, and a pending run may need that one.
            let conditional = parts.contents.conditional || contents.conditional;
            // The executable's order was made for the old work and may not suit the new.
            let other_order =
                recorded.device.update_ignores_edges() && !contents.has_edges_of(&parts.contents);
            // A driver may read a node that calls a closure only when a run reaches it. So if a run is pending, it keeps the
            // executable and we update another.
            let anew = conditional || other_order;
            let pending = !anew && parts.contents.calls.iter().any(|call| call.is_pending());
            let another = pending.then(|| parts.recorded.instantiate()).transpose()?;
            let exec = another.as_ref().unwrap_or(&parts.exec).raw;
            // The graph keeps both contents until we know what the driver did.
            let new = Added { contents: &mut parts.contents, new: Some(contents) };
            let outcome = if anew {
                GraphUpdate::TopologyChanged
            } else {
                // This stays so unless the driver succeeds, or another executable takes the place of this one.
                parts.is_mixed = another.is_none();
                // SAFETY: both are alive, and if the driver does not compare their order, we have.
                unsafe { recorded.device.graph_update(exec, recorded.raw) }?
            };
            // Pending runs may still use the old recording's contents.
            let (old, values): (Box<dyn Send>, _) = if outcome == GraphUpdate::Updated {
                let contents = new.take();
                (parts.recorded, parts.is_mixed) = (recorded, false);
                let exec = another.map(|another| std::mem::replace(&mut parts.exec, another));
                let mut old = std::mem::replace(&mut parts.contents, contents);
                let values = old.take_values();
                (Box::new((exec, old)), values)
            } else {
                let mut anew = GraphParts::new(recorded, Contents::default())?;
                anew.contents = new.take();
                let mut old = std::mem::replace(parts, anew);
                let values = old.contents.take_values();
                (Box::new(old), values)
            };
            self.table = None;
            self.device.park(old, values);
            Ok(outcome)
        })
    }

    /// Replaces the operation of one node by another of the same kind, with other arguments or another shape
    /// (`cuGraphExecKernelNodeSetParams` and similar calls). Dependencies stay as they are. The graph also keeps the memory and
    /// kernels that the node used before.
    ///
    /// So two nodes that run at the same time may come to touch the same memory. We check that at the next
    /// [`launch`](Self::launch), which refuses to run nodes that need an order and have none. `set_node` itself does not check,
    /// otherwise you could not swap the memory of two nodes with two calls. If the driver refuses the operation, the node
    /// counts as touching the memory of both operations until you set it again.
    ///
    /// ```
    /// # use gpustream::ErrorKind;
    /// # fn main() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let (mut x, mut y) = (stream.zeros::<u32>(8)?, stream.zeros::<u32>(8)?);
    /// let mut builder = device.graph_builder()?;
    /// let first = builder.node(&[], |s| s.fill(&mut x, 1))?;
    /// let second = builder.node(&[], |s| s.fill(&mut y, 2))?;
    /// let mut graph = builder.build()?;
    /// graph.set_node(first, |s| s.fill(&mut y, 1))?;
    /// assert_eq!(graph.launch(&stream).unwrap_err().kind(), ErrorKind::Hazard);
    /// graph.set_node(second, |s| s.fill(&mut x, 2))?;
    /// graph.launch(&stream)?;
    /// assert_eq!(stream.download(&y)?, [1; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Runs that you have already launched keep the old work, closures included. We drop a replaced closure when a later run
    /// reaches the node, or with the graph. `work` must submit on the thread that it is called on. Does not block.
    ///
    /// # Errors
    /// [`ErrorKind::NotANode`] if `work` submits no operation or several, or one that cannot be a node.
    /// [`ErrorKind::InvalidArgument`] if the node belongs to another graph, or if you called [`update`](Self::update), because
    /// that makes new nodes. Also if a cooperative launch replaces an ordinary one or the other way round, or if the clusters
    /// differ, because drivers cannot change that. [`ErrorKind::Driver`] or [`ErrorKind::InvalidArgument`] if the driver
    /// refuses. CUDA does so, for example, if a copy was made for other memory and now gets memory from CUDA's own pool.
    #[track_caller]
    pub fn set_node(&mut self, node: Node, work: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        named(call_site("set_node"), || {
            reentrancy::check_outside()?;
            let Some(table) = &mut self.table else {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "this graph was captured, so you cannot name its nodes; build it with `Device::graph_builder`, or use `update`",
                ));
            };
            let GraphParts { exec, contents, .. } = &mut *self.parts;
            table.replace(&self.device, exec.raw, node, contents, work)
        })
    }

    /// Enqueues on `stream` what the driver would otherwise do at the first launch (`cuGraphUpload`). Does not block.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the stream belongs to another device; [`ErrorKind::Captured`] if it is being captured.
    #[track_caller]
    pub fn prepare(&self, stream: &Stream) -> Result<()> {
        named(call_site("prepare"), || {
            self.device.check_made(stream, "graph")?;
            stream.core.call_driver("prepare a graph inside it", |raw| {
                let GraphParts { exec, calls, .. } = &*self.parts;
                let _alone = lock(calls);
                // SAFETY: both are alive.
                unsafe { exec.device.graph_upload(exec.raw, raw) }
            })
        })
    }

    /// Returns how many nodes the driver made from the work.
    pub fn node_count(&self) -> usize {
        self.parts.size.nodes
    }

    /// Returns how many dependencies there are between the nodes.
    pub fn edge_count(&self) -> usize {
        self.parts.size.edges
    }

    /// Returns the operations in Graphviz's language, each with the operations that it follows directly.
    pub fn dot(&self) -> String {
        dot(self.parts.contents.operations.iter().map(recorded))
    }

    /// Returns the device that the graph belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

#[cold]
fn mixed() -> Error {
    Error::new(
        ErrorKind::Hazard,
        "the driver failed in the last `Graph::update`, so the graph may mix its former work with the new work, in no order; \
         update it again, or record a new graph",
    )
}

impl Drop for Graph {
    /// Keeps the parts until pending runs are done. Does not block.
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let mut parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        let values = parts.contents.take_values();
        self.device.park(Box::new(parts), values);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes, {} edges)", self.node_count(), self.edge_count())
    }
}
