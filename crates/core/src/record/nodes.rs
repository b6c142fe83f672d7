//! Nodes made one by one: each operation becomes a node of a graph under construction.
//!
//! A node runs after the nodes that it was told to follow, and after earlier nodes that it conflicts with.

use std::sync::Arc;

use gpustream_hal::{self as hal, GraphNode, Operation, RawGraph, RawGraphNode, Result, Work};
use smallvec::SmallVec;

use super::attributes::Attributed;
use super::lanes::{Lanes, Place};
use super::scope::{Operations, Scope, add};
use super::{Contents, GraphUses};
use crate::inside;
use crate::memory::Access;
use crate::operation::{Kept, Submission, refused};
use crate::sync::{Mutex, lock};
use crate::track::{Point, Tracking};

/// The nodes that call a closure, each with the address of its [`RepeatedCall`](crate::host_call::RepeatedCall).
pub type HostNodes = Vec<(RawGraphNode, usize)>;

/// A graph under construction, which takes the operation of one node after the other.
pub struct NodeAdder {
    device: Arc<dyn hal::Device>,
    graph: RawGraph,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    scope: Scope,
    /// The driver's nodes, by operation.
    nodes: Vec<RawGraphNode>,
    lanes: Lanes,
    /// The predecessors of the one operation that may come; `None` after that operation came. The stream that stands
    /// for the node is lent out until then.
    next: Option<Operations>,
    attributed: Attributed,
    host_nodes: HostNodes,
}

/// A finished graph.
pub struct Finished {
    pub contents: Contents,
    /// The driver's nodes, by operation.
    pub nodes: Vec<RawGraphNode>,
    pub attributed: Attributed,
    pub host_nodes: HostNodes,
}

impl NodeAdder {
    /// Creates an adder for `graph`, which outlives the adder.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(device: Arc<dyn hal::Device>, graph: RawGraph) -> Self {
        Self { device, graph, inner: Mutex::default() }
    }

    /// Lets one operation in, which follows the operations `after`.
    pub fn open(&self, after: &[usize]) {
        lock(&self.inner).next = Some(after.into());
    }

    /// Returns the number of operations.
    pub fn operations(&self) -> usize {
        lock(&self.inner).scope.len()
    }

    /// Makes a node of an operation.
    ///
    /// # Safety
    /// As for [`StreamCore::submit`](crate::queue::StreamCore::submit).
    pub(crate) unsafe fn submit(&self, submission: &Submission<'_>) -> Result<()> {
        inside::check_outside()?;
        let &Submission { operation, accesses, ref call, kept, rules, .. } = submission;
        let inner = &mut *lock(&self.inner);
        let Some(after) = inner.next.clone() else {
            return Err(refused("put several operations into one node; add a node for each"));
        };
        let work = call.node()?;
        // SAFETY: the graph keeps alive the values that the work refers to; the rest is this function's contract.
        let node =
            unsafe { inner.make(self, rules.tracking, operation, &GraphNode::Work(*work), accesses, after)? };
        // Only now: if the operation was refused, another one may be tried in its place.
        inner.next = None;
        inner.attributed.add(node, work);
        if let Work::Host { data, .. } = work {
            inner.host_nodes.push((node, data.addr()));
        }
        inner.scope.keep(kept);
        Ok(())
    }

    /// Adds a node that no stream's operation makes, following the operations `after`: a join, or another graph with
    /// its `uses`.
    pub fn add(
        &self,
        tracking: Option<Tracking>,
        operation: Operation,
        node: &GraphNode<'_>,
        uses: &GraphUses,
        after: &[usize],
    ) -> Result<()> {
        inside::check_outside()?;
        let inner = &mut *lock(&self.inner);
        let accesses: Vec<Access<'_>> = uses.accesses().collect();
        let accesses: Vec<&Access<'_>> = accesses.iter().collect();
        // SAFETY: the node has no work, or is a graph that is alive and whose contents are kept.
        unsafe { inner.make(self, tracking, operation, node, &accesses, after.into()) }.map(drop)
    }

    /// Calls `work` with the tracker, and with the question which points come before the node under construction.
    pub(crate) fn in_scope<T>(
        &self,
        work: impl FnOnce(&mut Scope, &dyn Fn(Point) -> bool) -> T,
    ) -> Result<T> {
        inside::check_outside()?;
        let Inner { scope, lanes, next, .. } = &mut *lock(&self.inner);
        // After its operation came, the node is the last one.
        let after = next.clone().unwrap_or_else(|| scope.len().checked_sub(1).into_iter().collect());
        let mut place = lanes.place(&after);
        place.follow_all(lanes, &after);
        Ok(work(scope, &|point| place.is_after(point)))
    }

    /// Keeps the values that a child graph keeps.
    pub fn keep_all(&self, child: &Contents) {
        let scope = &mut lock(&self.inner).scope;
        for keep in &child.keep {
            scope.contents.keep(keep.clone());
        }
        for call in &child.calls {
            scope.keep(Kept::Closure(&call.recorded()));
        }
    }

    /// Ends the construction, and returns the graph.
    pub fn finish(&self) -> Finished {
        let Inner { mut scope, nodes, attributed, host_nodes, .. } = std::mem::take(&mut *lock(&self.inner));
        Finished { contents: scope.finish(), nodes, attributed, host_nodes }
    }
}

impl Inner {
    /// Finds the place of an operation that follows `after`, and adds to `after` the operations that this one conflicts
    /// with.
    fn place(
        &self,
        tracking: Option<Tracking>,
        operation: Operation,
        accesses: &[&Access<'_>],
        after: &mut Operations,
    ) -> Result<Place> {
        let mut place = self.lanes.place(after);
        place.follow_all(&self.lanes, after);
        for access in accesses {
            let lane = (place.point.stream, &*place.clock);
            for point in self.scope.missing(tracking, operation, lane, access)? {
                let index = self.lanes.index(point);
                self.lanes.follow(&mut place, index);
                add(after, &[index]);
            }
        }
        Ok(place)
    }

    /// Adds a node that follows the operations `after`, and enters it.
    ///
    /// # Safety
    /// As for [`graph_add_node`](hal::Graphs::graph_add_node).
    unsafe fn make(
        &mut self,
        adder: &NodeAdder,
        tracking: Option<Tracking>,
        operation: Operation,
        node: &GraphNode<'_>,
        accesses: &[&Access<'_>],
        mut after: Operations,
    ) -> Result<RawGraphNode> {
        let place = self.place(tracking, operation, accesses, &mut after)?;
        let before: SmallVec<[RawGraphNode; 4]> =
            after.iter().filter_map(|&index| self.nodes.get(index).copied()).collect();
        // SAFETY: the graph and its nodes are alive and of this device; the rest is this function's contract.
        let node = unsafe { adder.device.graph_add_node(adder.graph, &before, node) }?;
        self.scope.enter(place.point, operation, accesses, after);
        self.lanes.push(place);
        self.nodes.push(node);
        Ok(node)
    }
}
