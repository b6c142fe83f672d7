//! Nodes made one by one: each operation becomes a node of a graph under construction.
//!
//! A node runs after the nodes it was said to follow, and after earlier ones that it conflicts with. Nodes that follow
//! each other directly share a lane and its clock, so that a long chain costs no more than its length.

use std::sync::Arc;

use gpustream_hal::{self as hal, GraphNode, Operation, RawGraph, RawGraphNode, Result, Work};
use smallvec::SmallVec;

use super::attributes::Attributed;
use super::scope::{Operations, Scope, add};
use super::{Contents, GraphUses, no_node, refused, several_calls};
use crate::device::Tracking;
use crate::host_call;
use crate::stream_core::{Access, Call, Kept, Submission, hazard};
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point, StreamId};

/// The nodes that call a closure, and where the [`RepeatedCall`](crate::host_call::RepeatedCall) of each lies.
pub(crate) type HostNodes = Vec<(RawGraphNode, usize)>;

/// Takes the operation of one node after the other.
pub(crate) struct NodeAdder {
    device: Arc<dyn hal::Device>,
    graph: RawGraph,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    scope: Scope,
    placed: Vec<Placed>,
    /// The operations of each lane, in order.
    lanes: Vec<Vec<usize>>,
    next: Next,
    attributed: Attributed,
    host_nodes: HostNodes,
}

/// The node that is being made.
#[derive(Default)]
enum Next {
    /// None.
    #[default]
    Closed,
    /// One operation may come, which follows these.
    Open(Operations),
    /// It came.
    Taken,
}

/// An operation that has become a node.
struct Placed {
    node: RawGraphNode,
    point: Point,
    /// What it comes after, besides the earlier operations of its lane.
    clock: Arc<Clock>,
}

/// The graph that was made.
pub(crate) struct Finished {
    pub(crate) contents: Contents,
    /// The driver's nodes, by operation.
    pub(crate) nodes: Vec<RawGraphNode>,
    pub(crate) attributed: Attributed,
    pub(crate) host_nodes: HostNodes,
}

impl NodeAdder {
    /// For `graph`, which outlives this.
    pub(crate) fn new(device: Arc<dyn hal::Device>, graph: RawGraph) -> Self {
        Self { device, graph, inner: Mutex::default() }
    }

    /// Lets one operation in, which follows the operations `after`.
    pub(crate) fn open(&self, after: &[usize]) {
        lock(&self.inner).next = Next::Open(SmallVec::from_slice(after));
    }

    /// Lets no more in.
    pub(crate) fn close(&self) {
        lock(&self.inner).next = Next::Closed;
    }

    /// How many operations there are.
    pub(crate) fn operations(&self) -> usize {
        lock(&self.inner).scope.len()
    }

    /// Makes a node of an operation.
    ///
    /// # Safety
    /// As for [`StreamCore::submit`](crate::stream_core::StreamCore::submit).
    pub(crate) unsafe fn submit<'a>(
        &self,
        submission: Submission<'a, impl Iterator<Item = &'a Access<'a>> + Clone>,
    ) -> Result<()> {
        host_call::check_outside()?;
        let Submission { operation, accesses, call, kept, rules, .. } = submission;
        let inner = &mut *lock(&self.inner);
        let mut after = match std::mem::replace(&mut inner.next, Next::Taken) {
            Next::Open(after) => after,
            other => {
                inner.next = other;
                return Err(refused("put several operations into one node; add a node for each"));
            }
        };
        let open = after.clone();
        let mut make = || {
            let work = match call {
                Call::Work(work) if work.is_node() => work,
                Call::Work(_) => return Err(no_node()),
                Call::Several(_) => return Err(several_calls()),
            };
            let place = inner.place(rules.tracking, operation, accesses.clone(), &mut after)?;
            let before = inner.nodes(&after);
            // SAFETY: the graph is alive and of this device, and keeps what the work refers to; the rest is handed on.
            let node = unsafe { self.device.graph_add_node(self.graph, &before, &GraphNode::Work(work)) }?;
            inner.attributed.add(node, &work);
            if let Work::Host { data, .. } = work {
                inner.host_nodes.push((node, data.addr()));
            }
            Ok((node, place))
        };
        // Another operation may be tried in place of one that was refused.
        let (node, place) = make().inspect_err(|_| inner.next = Next::Open(open))?;
        inner.enter(node, place, operation, accesses, after);
        inner.scope.keep(kept);
        Ok(())
    }

    /// Adds a node that no stream's operation makes, following the operations `after`: a join, or another graph with its
    /// `uses`.
    pub(crate) fn add(
        &self,
        tracking: Option<Tracking>,
        operation: Operation,
        node: &GraphNode<'_>,
        uses: &GraphUses,
        after: &[usize],
    ) -> Result<()> {
        host_call::check_outside()?;
        let inner = &mut *lock(&self.inner);
        let accesses: Vec<Access<'_>> = uses.accesses().collect();
        let mut after = SmallVec::from_slice(after);
        let place = inner.place(tracking, operation, accesses.iter(), &mut after)?;
        let before = inner.nodes(&after);
        // SAFETY: all handles are alive and of this device, and the graph keeps what the node refers to.
        let node = unsafe { self.device.graph_add_node(self.graph, &before, node) }?;
        inner.enter(node, place, operation, accesses.iter(), after);
        Ok(())
    }

    /// Keeps what a child graph keeps.
    pub(crate) fn keep_all(&self, child: &Contents) {
        let scope = &mut lock(&self.inner).scope;
        for keep in &child.keep {
            scope.contents.keep(keep.clone());
        }
        for call in &child.calls {
            scope.keep(Kept::Closure(&call.recorded()));
        }
    }

    /// Ends the making of the graph.
    pub(crate) fn finish(&self) -> Finished {
        let Inner { mut scope, placed, attributed, host_nodes, .. } = std::mem::take(&mut *lock(&self.inner));
        let nodes = placed.into_iter().map(|placed| placed.node).collect();
        Finished { contents: scope.finish(), nodes, attributed, host_nodes }
    }
}

impl Inner {
    /// Finds the place of an operation that follows `after`, and adds to these what it conflicts with.
    fn place<'a>(
        &self,
        tracking: Option<Tracking>,
        operation: Operation,
        accesses: impl Iterator<Item = &'a Access<'a>>,
        after: &mut Operations,
    ) -> Result<(Point, Arc<Clock>)> {
        // The lane of a predecessor that is its lane's last operation, else a new one.
        let last = |placed: &&Placed| self.lanes[lane(placed.point)].len() as u64 == placed.point.number;
        let placed = after.iter().filter_map(|&index| self.placed.get(index));
        let before = placed.clone().find(last);
        let (stream, number, mut clock) = match before {
            Some(before) => (before.point.stream, before.point.number + 1, before.clock.clone()),
            None => (StreamId(self.lanes.len() as u64), 1, Arc::default()),
        };
        placed.for_each(|placed| come_after(&mut clock, stream, placed));
        for access in accesses {
            for old in self.scope.missing(stream, &clock, access) {
                match tracking {
                    Some(Tracking::Strict) => return Err(hazard(operation, old.operation)),
                    None => {}
                    Some(Tracking::Auto) => {
                        let index = self.lanes[lane(old.point)][old.point.number as usize - 1];
                        come_after(&mut clock, stream, &self.placed[index]);
                        add(after, &[index]);
                    }
                }
            }
        }
        Ok((Point { stream, number }, clock))
    }

    fn nodes(&self, operations: &[usize]) -> SmallVec<[RawGraphNode; 4]> {
        operations.iter().filter_map(|&index| self.placed.get(index)).map(|placed| placed.node).collect()
    }

    fn enter<'a>(
        &mut self,
        node: RawGraphNode,
        (point, clock): (Point, Arc<Clock>),
        operation: Operation,
        accesses: impl Iterator<Item = &'a Access<'a>>,
        after: Operations,
    ) {
        if self.lanes.len() == lane(point) {
            self.lanes.push(Vec::new());
        }
        self.lanes[lane(point)].push(self.placed.len());
        self.placed.push(Placed { node, point, clock });
        self.scope.enter(point, operation, accesses, after);
    }
}

/// Where the lane of `point` stands in the list.
fn lane(point: Point) -> usize {
    point.stream.0 as usize
}

/// An operation of lane `stream` with this clock comes after `placed`.
fn come_after(clock: &mut Arc<Clock>, stream: StreamId, placed: &Placed) {
    let news = |point: Point| point.stream != stream && !clock.covers(point);
    let clocks_differ = !Arc::ptr_eq(clock, &placed.clock) && placed.clock.points().any(news);
    let point_is_new = news(placed.point);
    if clocks_differ || point_is_new {
        let clock = Arc::make_mut(clock);
        if clocks_differ {
            clock.merge(&placed.clock);
        }
        if point_is_new {
            clock.advance(placed.point);
        }
    }
}
