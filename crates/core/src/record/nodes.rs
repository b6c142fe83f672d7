//! Nodes made one by one: each operation becomes a node of a graph under construction.
//!
//! A node runs after the nodes that you told it to follow, and after earlier nodes that it conflicts with. The nodes of a
//! conditional node's body follow each other.

use std::sync::Arc;

use gpustream_hal::{self as hal, CallSite, GraphNode, NodePlace, RawGraph, RawGraphNode, Result, Work};
use smallvec::SmallVec;

use super::attributes::Attributed;
use super::chains::ChainPosition;
use super::condition::{Body, Condition};
use super::scope::{Needs, Operations, Scope, add};
use super::{Contents, GraphUses, NodeOrder};
use crate::memory::Access;
use crate::operation::{Caller, Operation, Retained, not_a_node};
use crate::sync::{Mutex, lock};
use crate::track::Point;

/// The nodes that call a closure, each with the address of its [`RepeatedCall`](crate::host_call::RepeatedCall).
pub type HostNodes = Vec<(RawGraphNode, usize)>;

/// A graph under construction, which takes the operation of one node after the other.
pub struct NodeAdder {
    device: Arc<dyn hal::Device>,
    graph: RawGraph,
    /// How many graphs this one is nested in, as a body.
    level: usize,
    inner: Mutex<AdderState>,
}

#[derive(Default)]
struct AdderState {
    scope: Scope,
    /// The driver's nodes, by operation.
    nodes: Vec<RawGraphNode>,
    order: NodeOrder,
    next: Next,
    attributed: Attributed,
    host_nodes: HostNodes,
}

/// Which operations may come next.
enum Next {
    /// None. The text completes the error "you cannot …".
    Closed(&'static str),
    /// One, and it follows these. Until it comes, the stream that stands for the node is lent out.
    One(Operations),
    /// Any number. Each follows the one before.
    Each,
}

const TAKEN: Next = Next::Closed("put several operations into one node; add a node for each");
const IN_BODY: Next = Next::Closed(AROUND_BODY);
pub(crate) const AROUND_BODY: &str =
    "use the stream around a condition while its body is made; submit to the stream that the body gets";

impl Default for Next {
    fn default() -> Self {
        Self::Closed("submit to the stream of a node or body that is finished; add another node")
    }
}

/// A finished graph.
pub struct Finished {
    pub contents: Contents,
    /// The driver's nodes, by operation.
    pub nodes: Vec<RawGraphNode>,
    pub order: NodeOrder,
    pub attributed: Attributed,
    pub host_nodes: HostNodes,
}

impl NodeAdder {
    /// Creates an adder for `graph`. The graph must outlive the adder.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(device: Arc<dyn hal::Device>, graph: RawGraph) -> Self {
        Self { device, graph, level: 0, inner: Mutex::default() }
    }

    /// Creates an adder for a body. It takes operations until you finish it.
    ///
    /// # Safety
    /// As for [`new`](Self::new), until the adder is finished.
    pub(super) unsafe fn of_body(device: Arc<dyn hal::Device>, body: RawGraph, level: usize) -> Self {
        let inner = AdderState { next: Next::Each, ..AdderState::default() };
        Self { device, graph: body, level, inner: Mutex::new(inner) }
    }

    /// Lets one operation in. It follows the operations `after`.
    pub fn open(&self, after: &[usize]) {
        lock(&self.inner).next = Next::One(without_repeats(after));
    }

    /// Returns the number of operations.
    pub fn operations(&self) -> usize {
        lock(&self.inner).scope.len()
    }

    /// Returns the node that was added last.
    pub(super) fn last(&self) -> Option<RawGraphNode> {
        lock(&self.inner).nodes.last().copied()
    }

    /// Makes a node of an operation.
    ///
    /// # Safety
    /// As for [`StreamEntry::submit`](crate::stream::StreamEntry::submit).
    pub(crate) unsafe fn submit(&self, submission: &Operation<'_>) -> Result<()> {
        let &Operation { caller, accesses, ref call, kept, .. } = submission;
        let inner = &mut *lock(&self.inner);
        let after = inner.after()?;
        let work = call.node()?;
        if let (Next::Each, Work::Host { .. } | Work::HostParts { .. }) = (&inner.next, work) {
            return Err(not_a_node(
                "call a host closure in the body of a condition, where drivers take none; call the closure after the graph",
            ));
        }
        let needs = Needs { accesses, whole_device: work.is_cooperative() };
        // SAFETY: the graph keeps alive the values that the work refers to; the rest is this function's contract.
        let node = unsafe { inner.make(self, caller, &GraphNode::Work(*work), needs, after)? };
        // We do this only now, because if the operation was refused, you may try another one in its place.
        inner.next.advance();
        inner.attributed.add(node, work);
        if let Work::Host { data, .. } | Work::HostParts { data, .. } = work {
            inner.host_nodes.push((node, data.addr()));
        }
        inner.scope.keep(kept);
        Ok(())
    }

    /// Adds a node that is not a stream's operation: a join, or another graph with its `uses`. It follows the operations
    /// `after`.
    ///
    /// # Errors
    /// [`Hazard`](gpustream_hal::ErrorKind::Hazard) if you order operations yourself and forgot an edge; the driver's
    /// refusal.
    pub fn add(
        &self,
        caller: &Caller,
        node: &GraphNode<'_>,
        uses: &GraphUses,
        after: &[usize],
    ) -> Result<()> {
        let inner = &mut *lock(&self.inner);
        let accesses: Vec<Access<'_>> = uses.accesses().collect();
        let accesses: Vec<&Access<'_>> = accesses.iter().collect();
        let needs = Needs { accesses: &accesses, whole_device: uses.whole_device };
        // SAFETY: the node has no work, or is a graph that is alive and whose contents are kept.
        unsafe { inner.make(self, caller, node, needs, without_repeats(after)) }.map(drop)
    }

    /// Calls `work` with the tracker, and with a closure that tells if a point comes before the node under construction.
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce(&mut Scope, &dyn Fn(Point) -> bool) -> T) -> T {
        let inner = &mut *lock(&self.inner);
        let after = inner.followed();
        let AdderState { scope, order, .. } = inner;
        let mut place = order.chains.place(&after);
        place.follow_all(&order.chains, &after);
        work(scope, &|point| place.is_after(point))
    }

    /// Keeps the values of a child graph that was added.
    pub fn keep_all(&self, child: &Contents) {
        let scope = &mut lock(&self.inner).scope;
        scope.contents.levels = scope.contents.levels.max(child.levels + 1);
        for keep in &child.keep {
            scope.contents.keep(keep.clone());
        }
        for call in &child.calls {
            scope.keep(Retained::Closure(&call.recorded()));
        }
        scope.contents.watched |= child.watched;
    }

    /// Adds a conditional node. We call `fill` with an adder, and it puts the body there.
    ///
    /// # Safety
    /// As for [`StreamEntry::submit`](crate::stream::StreamEntry::submit), for the word and for each operation of the body.
    pub(crate) unsafe fn condition(
        &self,
        caller: &Caller,
        condition: &Condition<'_>,
        fill: impl FnOnce(&Arc<Self>) -> Result<()>,
    ) -> Result<()> {
        /// Lets operations in again after the body, as before it.
        struct Reopening<'a>(&'a NodeAdder, Option<Next>);
        impl Drop for Reopening<'_> {
            fn drop(&mut self) {
                if let Some(next) = self.1.take() {
                    lock(&self.0.inner).next = next;
                }
            }
        }

        let place = NodePlace::After(self.graph, &[]);
        let mut reopening = Reopening(self, None);
        let body = {
            let inner = &mut *lock(&self.inner);
            inner.after()?;
            // SAFETY: the graph is alive and of this device.
            let body = unsafe { Body::begin(&self.device, place, condition.repeat, self.level + 1) }?;
            reopening.1 = Some(std::mem::replace(&mut inner.next, IN_BODY));
            body
        };
        let keep = |contents| lock(&self.inner).scope.contents.merge(contents);
        let (conditional, body, last) = body.fill(condition.word, fill, keep)?;
        drop(reopening);
        let inner = &mut *lock(&self.inner);
        let accesses: Vec<Access<'_>> = body.uses.accesses().collect();
        let accesses: Vec<&Access<'_>> = accesses.iter().collect();
        let needs = Needs { accesses: &accesses, whole_device: body.uses.whole_device };
        let add = || {
            let mut after = inner.after()?;
            let place = inner.place(caller, needs, &mut after)?;
            let before = inner.nodes_of(&after);
            // SAFETY: the graph keeps what the body refers to and the word; the rest is this function's contract.
            unsafe {
                let place = NodePlace::After(self.graph, &before);
                self.device.conditional_end(place, &conditional, condition.address, last)
            }?;
            Ok((place, after))
        };
        match add() {
            Ok((place, after)) => {
                inner.next.advance();
                inner.enter(place, caller.call_site, needs, after, conditional.node);
                inner.scope.take_body(body);
                Ok(())
            }
            Err(error) => {
                // The driver's graph still has the node, so we keep what its body refers to.
                inner.scope.contents.merge(body);
                Err(error)
            }
        }
    }

    /// Ends the construction and returns the graph. You must not add to it any more.
    pub fn finish(&self) -> Finished {
        let AdderState { mut scope, nodes, order, attributed, host_nodes, .. } =
            std::mem::take(&mut *lock(&self.inner));
        Finished { contents: scope.finish(), nodes, order, attributed, host_nodes }
    }
}

/// Returns each operation once, because drivers refuse a second edge between two nodes.
fn without_repeats(operations: &[usize]) -> Operations {
    let mut once = Operations::new();
    add(&mut once, operations);
    once
}

impl Next {
    /// Moves on after an operation came.
    fn advance(&mut self) {
        if matches!(self, Self::One(_)) {
            *self = TAKEN;
        }
    }
}

impl AdderState {
    /// Returns the operations that the next one follows.
    fn after(&self) -> Result<Operations> {
        if let Next::Closed(what) = self.next { Err(not_a_node(what)) } else { Ok(self.followed()) }
    }

    /// Returns the operations that the next one follows. If none may come, returns the last one.
    fn followed(&self) -> Operations {
        match &self.next {
            Next::One(after) => after.clone(),
            Next::Closed(_) | Next::Each => self.scope.len().checked_sub(1).into_iter().collect(),
        }
    }

    /// Returns the driver's nodes of `operations`.
    fn nodes_of(&self, operations: &Operations) -> SmallVec<[RawGraphNode; 4]> {
        operations.iter().filter_map(|&index| self.nodes.get(index).copied()).collect()
    }

    /// Finds the place of an operation that follows `after`, and adds to `after` the operations that this one conflicts
    /// with.
    fn place(&self, caller: &Caller, needs: Needs<'_>, after: &mut Operations) -> Result<ChainPosition> {
        let chains = &self.order.chains;
        let mut place = chains.place(after);
        place.follow_all(chains, after);
        let mut follow = |place: &mut ChainPosition, point| {
            let index = chains.index(point);
            chains.follow(place, index);
            add(after, &[index]);
        };
        for access in needs.accesses {
            let missing = self.scope.missing(caller, place.in_chain(), access)?;
            missing.into_iter().for_each(|point| follow(&mut place, point));
        }
        if needs.whole_device
            && let Some(point) = self.scope.missing_device(place.in_chain())
        {
            follow(&mut place, point);
        }
        Ok(place)
    }

    /// Enters the operation of a node that was just added and that follows the operations `after`.
    fn enter(
        &mut self,
        place: ChainPosition,
        call_site: CallSite,
        needs: Needs<'_>,
        after: Operations,
        node: RawGraphNode,
    ) {
        self.scope.enter(place.point, call_site, needs, after);
        self.order.push(place, call_site, needs.accesses);
        self.nodes.push(node);
    }

    /// Adds a node that follows the operations `after`, and enters its operation.
    ///
    /// # Safety
    /// As for [`graph_add_node`](hal::Graphs::graph_add_node).
    unsafe fn make(
        &mut self,
        adder: &NodeAdder,
        caller: &Caller,
        node: &GraphNode<'_>,
        needs: Needs<'_>,
        mut after: Operations,
    ) -> Result<RawGraphNode> {
        let place = self.place(caller, needs, &mut after)?;
        let before = self.nodes_of(&after);
        // SAFETY: the graph and its nodes are alive and of this device; the rest is this function's contract.
        let node = unsafe { adder.device.graph_add_node(adder.graph, &before, node) }?;
        self.enter(place, caller.call_site, needs, after, node);
        Ok(node)
    }
}
