//! Graphs: work recorded once and launched many times.

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
use crate::stream::Stream;

/// Recorded work, ready to launch. A graph owns all the memory, kernels and closures that it refers to, also memory of
/// handles and devices that are dropped before the graph.
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
/// A `Graph` is `Send` and `Sync`. Dropping it returns at once: pending runs finish, and all that they use lives until
/// then.
pub struct Graph {
    parts: ManuallyDrop<GraphParts>,
    /// The nodes, where they were made one by one. The table is not among the parts, since it holds the device, which
    /// holds parked parts.
    table: Option<NodeTable>,
    device: Device,
}

/// The parts of a graph that a launch may still be using after the graph is dropped.
struct GraphParts {
    exec: OwnedExec,
    /// Held during calls with `exec`, and with the graph that it was made from: drivers do not lock their graphs, and
    /// threads may share the `Graph`.
    calls: Mutex<()>,
    /// The graph that the executable was made from, for use as a child.
    recorded: OwnedGraph,
    contents: Contents,
    size: GraphSize,
    /// Whether the executable may have some of the work of two recordings, in an order that suits neither.
    is_mixed: bool,
}

impl Stream {
    /// Records the operations that `work` submits to this stream, and to the streams that join by waiting for an event
    /// recorded inside, instead of running them.
    ///
    /// The tracker orders operations inside the graph as it does outside. Copies must be between device and
    /// pinned memory; host waits and use from another thread are an [`ErrorKind::Captured`] at the call
    /// that tried, after which stream and buffers work as before. A capture that begins while another thread waits for
    /// the whole device is an [`ErrorKind::Captured`] too.
    ///
    /// [`alloc`](Self::alloc) and its kin work inside, and make no node for the allocation. The memory belongs to the
    /// recording: once the buffer is dropped, a later allocation inside gets the memory if that is of a similar length and
    /// comes after the buffer's uses, and nobody else while the graph lives. So temporaries one after the other need the
    /// memory of one, and branches that can run at once have memory of their own. A buffer that leaves the closure is like
    /// any other; each launch writes what the nodes write there.
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
    /// [`ErrorKind::Captured`] for operations that cannot be recorded, and the error of `work`.
    #[track_caller]
    pub fn capture(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<Graph> {
        named(call_site("capture"), || {
            let (recorded, contents) = self.capture_parts(work)?;
            Ok(Graph::new(&self.device, GraphParts::new(recorded, contents)?, None))
        })
    }

    fn capture_parts(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<(OwnedGraph, Contents)> {
        /// Ends the capture also where the closure panics.
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
                    // Nobody will launch the graph.
                    drop(self.end());
                }
            }
        }

        let ending = Ending(self, Capture::begin(&self.core)?);
        let outcome = work(self);
        let ended = ending.end();
        outcome?;
        ended
    }
}

/// The contents that a graph is about to refer to. Unless taken out they are added to the graph's contents, also where
/// the driver fails, or a backend panics, when part of them is in the executable.
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

    /// Makes a graph of explicit nodes; `host_nodes` are the nodes that call a closure.
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

    /// Enqueues one run on `stream`, ordered after all earlier work that touches the same memory. Runs of one graph
    /// follow each other.
    ///
    /// # Errors
    /// [`ErrorKind::HostBorrowed`] where a guard is held on pinned memory that the graph touches,
    /// [`ErrorKind::DeviceMismatch`] for a stream of another device. [`ErrorKind::Hazard`] if nodes were
    /// [set](Self::set_node) to memory in common and are not ordered, with both nodes, and after an
    /// [`update`](Self::update) in which the driver failed.
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

    /// Checks that the nodes are in an order that suits what they do now.
    #[inline]
    fn check_order(&self, caller: &Caller) -> Result<()> {
        if self.parts.is_mixed {
            return Err(mixed());
        }
        self.table.as_ref().map_or(Ok(()), |table| table.check_order(caller))
    }

    /// Records anew into the same executable. [`GraphUpdate::TopologyChanged`] says that the new work did not fit, and
    /// that a new executable was made, which costs more; the next launch runs the new work in both cases.
    ///
    /// # Errors
    /// As for [`capture`](Stream::capture); the graph is then as it was. If the driver fails to put the work in, it may have
    /// taken a part, which nothing orders with the rest: then the graph keeps the memory, kernels and closures of both
    /// works, and refuses to be launched, until an update succeeds.
    #[track_caller]
    pub fn update(
        &mut self,
        stream: &Stream,
        work: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<GraphUpdate> {
        named(call_site("update"), || {
            self.device.check_made(stream, "graph")?;
            let (recorded, contents) = stream.capture_parts(work)?;
            let parts = &mut *self.parts;
            // Drivers make one executable of a recording with conditional nodes, and a pending run may need that one.
            let conditional = parts.contents.conditional || contents.conditional;
            // An order that was made for the old work may not suit the new.
            let other_order =
                recorded.device.update_ignores_edges() && !contents.has_edges_of(&parts.contents);
            // A driver may read a node that calls a closure only when a run gets there. So a pending run keeps the
            // executable, and another one is updated.
            let anew = conditional || other_order;
            let pending = !anew && parts.contents.calls.iter().any(|call| call.is_pending());
            let another = pending.then(|| parts.recorded.instantiate()).transpose()?;
            let exec = another.as_ref().unwrap_or(&parts.exec).raw;
            // The graph keeps both contents until the driver has answered.
            let new = Added { contents: &mut parts.contents, new: Some(contents) };
            let outcome = if anew {
                GraphUpdate::TopologyChanged
            } else {
                // Unless the driver succeeds, or another executable takes the place of this one.
                parts.is_mixed = another.is_none();
                // SAFETY: both are alive, and their order was compared if the driver does not.
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

    /// Puts another operation of the same kind into one node (`cuGraphExecKernelNodeSetParams` and its kin): other
    /// arguments, another shape. Dependencies stay as they are; the graph keeps the node's former memory and kernels
    /// too.
    ///
    /// So two nodes that run at once may come to touch the same memory. The next [`launch`](Self::launch) compares the nodes
    /// that were set with those beside them, and refuses to run nodes that need an order and have none. `set_node` itself
    /// does not, so that two nodes may swap their memory by two calls. If the driver refuses the operation, the node counts as
    /// touching the memory of both until it is set again.
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
    /// Runs already launched keep the old work, closures included: a closure that was replaced is dropped when the
    /// first run after its last one comes to the node, or with the graph. `work` must submit from the thread that it is
    /// called on.
    ///
    /// # Errors
    /// [`ErrorKind::NotANode`] for none or several operations, and for operations that no node can be;
    /// [`ErrorKind::InvalidArgument`] for a node of another graph, or after [`update`](Self::update), which makes
    /// the nodes anew, and for a launch that is cooperative where the node's was not, or the other way round, or in
    /// other clusters: drivers cannot change that. [`ErrorKind::Driver`] or [`ErrorKind::InvalidArgument`] where the
    /// driver refuses, as CUDA does with memory of its own pool in a copy that was made for other memory.
    #[track_caller]
    pub fn set_node(&mut self, node: Node, work: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        named(call_site("set_node"), || {
            reentrancy::check_outside()?;
            let Some(table) = &mut self.table else {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "this graph was captured, so its nodes have no names; build it with `Device::graph_builder`, or use `update`",
                ));
            };
            let GraphParts { exec, contents, .. } = &mut *self.parts;
            table.replace(&self.device, exec.raw, node, contents, work)
        })
    }

    /// Prepares the first launch now: enqueues on `stream` what the driver would otherwise do then (`cuGraphUpload`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] for a stream of another device, [`ErrorKind::Captured`] for one that is being
    /// captured.
    #[track_caller]
    pub fn prepare(&self, stream: &Stream) -> Result<()> {
        named(call_site("prepare"), || {
            self.device.check_made(stream, "graph")?;
            stream.core.check_thread()?;
            let mut state = stream.core.running("prepare a graph inside it")?;
            let raw = stream.core.caught_up(&mut state)?;
            let GraphParts { exec, calls, .. } = &*self.parts;
            let _alone = lock(calls);
            // SAFETY: both are alive.
            unsafe { exec.device.graph_upload(exec.raw, raw) }
        })
    }

    /// Returns how many nodes the driver made of the work.
    pub fn node_count(&self) -> usize {
        self.parts.size.nodes
    }

    /// Returns how many dependencies there are between the nodes.
    pub fn edge_count(&self) -> usize {
        self.parts.size.edges
    }

    /// Returns the operations, and the operations that each follows directly, in Graphviz's language.
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
        "the driver failed in the last `Graph::update`, so the graph may have some of its former work and some of the new, \
         which nothing orders; update it again, or record a new graph",
    )
}

impl Drop for Graph {
    /// Parks the parts until pending runs are done, and returns at once.
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
