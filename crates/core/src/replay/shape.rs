//! A shape of a segment: the operations that came, and the graph that we made from them.

use std::sync::Arc;

use gpustream_hal::{self as hal, CallSite, DriverNode, GraphNode, RawGraphNode, RawStream, Result};
use smallvec::SmallVec;

use super::ReplayRecording;
use super::order::Order;
use super::sequence::{Candidate, Deferred, Difference, Lag, Sequence, recorded};
use crate::memory;
use crate::record::{OwnedExec, OwnedGraph};

/// A shape of a segment.
pub(super) struct Shape {
    pub(super) sequence: Sequence,
    /// `None` before the first launch, or if the driver refused to change the graph.
    pub(super) graph: Option<Built>,
    /// What each node still lacks of its operation.
    lags: Vec<Lag>,
    /// True if any node lacks something.
    any_lags: bool,
    /// The number that [`memory::returned`] returned at the last launch.
    returned: u64,
    /// The last operation that got other memory since we compared the graph's order with the sequence's.
    moved: Option<CallSite>,
    /// Why we made the graph, or will make the next one.
    pub(super) cause: ReplayRecording,
    /// True if the graph runs its operations one after the other.
    pub(super) chained: bool,
    /// How many launches there were.
    pub(super) launches: u64,
    /// The number of the last run that used the shape.
    pub(super) last_run: u64,
    /// Which shape came in the segment's next run, by index.
    pub(super) next: usize,
}

/// A graph that we made from a sequence.
pub(super) struct Built {
    exec: OwnedExec,
    /// Kept as long as the executable, because we name the executable's nodes by this graph's nodes.
    _graph: OwnedGraph,
    /// They refer to the arguments in the sequence of the same shape.
    nodes: Vec<DriverNode>,
    pub(super) order: Order,
}

/// How much work a launch was for the driver.
#[derive(Default)]
pub(super) struct Effort {
    /// True if we made a graph.
    pub(super) built: bool,
    /// True if all nodes were as they should be, so that only the launch was left.
    pub(super) ready: bool,
    /// How many nodes we set.
    pub(super) set: u64,
    /// A graph that another one has replaced. You must not drop it yet, because its launches may be pending.
    pub(super) replaced: Option<Built>,
}

impl Shape {
    pub(super) fn new(sequence: Sequence, cause: ReplayRecording, in_order: bool, run: u64) -> Self {
        Self {
            lags: vec![Lag::None; sequence.len()],
            any_lags: false,
            returned: memory::returned(),
            sequence,
            graph: None,
            moved: None,
            cause,
            chained: in_order,
            launches: 0,
            last_run: run,
            next: 0,
        }
    }

    /// Replaces operation `index` with one that differs from it.
    pub(super) fn replace(&mut self, index: usize, offer: &Candidate<'_>, difference: Difference) {
        let lag = self.sequence.replace(index, offer);
        if difference == Difference::Memory {
            self.moved = Some(offer.operation());
        }
        self.note_lag(index, lag);
    }

    /// Takes the values of the first `len` operations from `other`, whose operations differ at most in these, and recordings that
    /// this shape does not have yet.
    pub(super) fn take_values(&mut self, other: &Sequence, len: usize) {
        for index in 0..len {
            if self.sequence.difference_from(other, index) == Difference::None {
                self.sequence.take_recording(other, index);
            } else {
                let lag = self.sequence.take_values(other, index);
                self.note_lag(index, lag);
            }
        }
    }

    /// If memory went back to the driver since the last launch, notes that the nodes of copies and fills must be set again.
    /// The driver looks at their memory when they are set, and an address may mean other memory now.
    fn check_memory(&mut self) {
        let returned = memory::returned();
        if std::mem::replace(&mut self.returned, returned) == returned {
            return;
        }
        for index in 0..self.sequence.len() {
            if self.sequence.is_copy_or_fill(index) {
                self.note_lag(index, Lag::Work);
            }
        }
    }

    /// Notes what a node lacks of its operation. We must set the node before the next launch.
    #[inline]
    pub(super) fn note_lag(&mut self, index: usize, lag: Lag) {
        self.lags[index] = self.lags[index].max(lag);
        self.any_lags = true;
    }

    /// Launches the sequence's operations as one graph. If there is no graph yet, makes it first. Otherwise sets the nodes
    /// whose operations have changed.
    ///
    /// # Safety
    /// The stream is alive and of `device`, and everything that the operations refer to stays alive until they are done.
    pub(super) unsafe fn launch(
        &mut self,
        device: &Arc<dyn hal::Device>,
        stream: RawStream,
        effort: &mut Effort,
    ) -> Result<()> {
        self.check_memory();
        if let Some(operation) = self.moved.take()
            && let Some(built) = &self.graph
            && !built.order.suits(&self.sequence)
        {
            // A chain is right for any memory, so a shape never needs a third graph.
            self.chained = true;
            self.cause = ReplayRecording::new("other dependencies", operation);
            effort.replaced = self.graph.take();
        }
        let built = match &mut self.graph {
            Some(built) => {
                if std::mem::take(&mut self.any_lags) {
                    let (sequence, lags) = (&self.sequence, &mut self.lags);
                    // SAFETY: `lags` names every node whose operation has changed; the rest is this function's contract.
                    unsafe { built.set_nodes(&**device, sequence, lags, &mut effort.set) }?;
                }
                built
            }
            none => {
                self.lags.fill(Lag::None);
                self.any_lags = false;
                effort.built = true;
                // SAFETY: by this function's contract.
                none.insert(unsafe { Built::new(device, &self.sequence, self.chained) }?)
            }
        };
        effort.ready = true;
        // SAFETY: both are alive, and so is everything that the operations refer to.
        unsafe { device.graph_launch(built.exec.raw, stream) }?;
        self.launches += 1;
        Ok(())
    }
}

impl Built {
    /// Makes a graph from a sequence.
    ///
    /// # Safety
    /// Everything that the operations refer to is alive.
    unsafe fn new(device: &Arc<dyn hal::Device>, sequence: &Sequence, in_order: bool) -> Result<Self> {
        let order = Order::of(sequence, in_order);
        let graph = OwnedGraph { raw: device.graph_create()?, device: device.clone() };
        let mut nodes: Vec<DriverNode> = Vec::with_capacity(sequence.len());
        for index in 0..sequence.len() {
            let before: SmallVec<[RawGraphNode; 4]> =
                order.after(index).iter().map(|&before| nodes[before].raw).collect();
            let deferred = sequence.deferred(index);
            let node = match deferred {
                Deferred::Work(work) => GraphNode::Work(work),
                Deferred::Calls(calls) => GraphNode::Child(recorded(calls)?.graph()),
            };
            // SAFETY: the graph and its nodes are alive and of this device; the rest is this function's contract.
            let node = unsafe { device.graph_add_node(graph.raw, &before, &node) }?;
            nodes.push(match deferred {
                Deferred::Work(work) => device.describe_node(node, &work),
                Deferred::Calls(_) => DriverNode::new(node),
            });
        }
        Ok(Self { exec: graph.instantiate()?, _graph: graph, nodes, order })
    }

    /// Sets the nodes that `lags` names, and adds their number to `set`.
    ///
    /// # Safety
    /// The graph was made from `sequence`, and everything that its operations refer to is alive.
    unsafe fn set_nodes(
        &mut self,
        device: &dyn hal::Device,
        sequence: &Sequence,
        lags: &mut [Lag],
        set: &mut u64,
    ) -> Result<()> {
        let mut any_stale = false;
        for (index, (node, lag)) in self.nodes.iter_mut().zip(lags).enumerate() {
            match std::mem::take(lag) {
                Lag::None => {}
                Lag::Values if node.is_described() => {
                    node.stale = true;
                    any_stale = true;
                }
                Lag::Values | Lag::Work => {
                    let Deferred::Work(work) = sequence.deferred(index) else { continue };
                    // SAFETY: the executable is alive and was made from these nodes; the rest is this function's contract.
                    unsafe { device.graph_set_node(self.exec.raw, node.raw, &work) }?;
                    *node = device.describe_node(node.raw, &work);
                    *set += 1;
                }
            }
        }
        if any_stale {
            // SAFETY: the executable is alive and was made from these nodes. Each node was described when it got its work,
            // and the sequence keeps the work's arguments. The rest is this function's contract.
            *set += unsafe { device.graph_set_values(self.exec.raw, &mut self.nodes) }?;
        }
        Ok(())
    }
}
