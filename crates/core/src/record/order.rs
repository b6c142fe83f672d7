//! Checks that a built graph's order still suits the memory that its nodes touch, once you have set some of them.
//!
//! A graph gets its edges when it is built, for the memory that its nodes touch then. If you set a node, it may touch other
//! memory, but the edges stay, because drivers cannot add one to an executable. So the node may now touch the same memory as
//! a node that runs at the same time:
//!
//! ```text
//!     built:  A writes x    B writes y        no edge, and none is needed
//!     set:    A writes x    B reads x         the graph still runs both at once
//! ```
//!
//! So we keep each node's accesses, with its place in the order. We note which nodes have changed, and compare them with the
//! nodes that can run at the same time. We do that when you launch the graph and not when you set a node, because you may
//! swap the memory of two nodes with two calls, and between these the order is wrong.

use gpustream_hal::{CallSite, Error, ErrorKind, Result};
use smallvec::SmallVec;

use super::chains::{ChainPosition, Chains};
use crate::memory::{Access, Remembered};

/// If at most this many nodes have changed, we compare each with the nodes that may run at the same time. If more have, one
/// walk through all nodes takes less time.
const FEW: usize = 8;

/// The nodes of a graph. Their order was made for what they touched at first.
#[derive(Default)]
pub struct NodeOrder {
    pub(super) chains: Chains,
    nodes: Vec<NodeWork>,
    /// The nodes whose accesses have changed since we last found all nodes to be in order.
    changed: Vec<usize>,
}

/// What a node does now.
struct NodeWork {
    call_site: CallSite,
    /// The graph keeps the blocks alive. If the driver failed to set the node, this has the accesses of the old work and of
    /// the new one.
    accesses: SmallVec<[Remembered; 4]>,
    /// True if the node is in [`NodeOrder::changed`].
    is_changed: bool,
}

impl NodeOrder {
    /// Adds the next node at `place`.
    pub(super) fn push(&mut self, place: ChainPosition, call_site: CallSite, accesses: &[&Access<'_>]) {
        let accesses = accesses.iter().map(|access| Remembered::of(access)).collect();
        self.nodes.push(NodeWork { call_site, accesses, is_changed: false });
        self.chains.push(place);
    }

    /// Returns the accesses of a node.
    #[inline]
    pub(super) fn accesses(&self, node: usize) -> &[Remembered] {
        self.nodes.get(node).map_or(&[], |node| &node.accesses)
    }

    /// Notes that a node does the same as before, but for a call on another line.
    #[inline]
    pub(super) fn came_from(&mut self, node: usize, call_site: CallSite) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.call_site = call_site;
        }
    }

    /// Adds the accesses that a node is about to make, next to those that it has. Returns false if they are the same.
    pub(super) fn add(&mut self, node: usize, call_site: CallSite, accesses: &[&Access<'_>]) -> bool {
        let Some(found) = self.nodes.get_mut(node) else { return false };
        found.call_site = call_site;
        if found.has(accesses) {
            return false;
        }
        found.accesses.extend(accesses.iter().map(|access| Remembered::of(access)));
        if !std::mem::replace(&mut found.is_changed, true) {
            self.changed.push(node);
        }
        true
    }

    /// Keeps only the last `count` accesses of a node, because the driver has taken those.
    pub(super) fn keep_last(&mut self, node: usize, count: usize) {
        if let Some(NodeWork { accesses, .. }) = self.nodes.get_mut(node) {
            accesses.drain(..accesses.len().saturating_sub(count));
        }
    }

    /// Forgets which nodes have changed, because all are in order.
    pub(super) fn forget_changes(&mut self) {
        for node in self.changed.drain(..) {
            self.nodes[node].is_changed = false;
        }
    }

    /// Checks that the changed nodes are ordered with all nodes that they conflict with.
    ///
    /// # Errors
    /// [`ErrorKind::Hazard`] if two nodes are not. The error names them.
    #[cold]
    pub(super) fn check(&self) -> Result<()> {
        let unordered = if self.changed.len() <= FEW {
            self.changed.iter().find_map(|&node| {
                let conflicts = |&other: &usize| self.nodes[node].conflicts_with(&self.nodes[other]);
                self.chains.beside(node).find(conflicts).map(|other| [node.min(other), node.max(other)])
            })
        } else {
            self.chains.unordered(|node| self.nodes[node].accesses.iter().map(Remembered::parts))
        };
        unordered.map_or(Ok(()), |nodes| Err(self.hazard(nodes)))
    }

    fn hazard(&self, [one, other]: [usize; 2]) -> Error {
        let message = format!(
            "after `Graph::set_node`, node {one} ({}) and node {other} ({}) touch the same memory and one of them writes \
             it, but the graph does not order the two, because a node keeps the dependencies that it was built with. Set \
             one of them to other memory, or build the graph again with this memory or with a dependency between the two. \
             The builder's first node is node 0",
            self.nodes[one].call_site, self.nodes[other].call_site
        );
        Error::new(ErrorKind::Hazard, message)
    }
}

impl NodeWork {
    /// Returns true if the node makes exactly these accesses.
    fn has(&self, accesses: &[&Access<'_>]) -> bool {
        self.accesses.len() == accesses.len()
            && self.accesses.iter().zip(accesses).all(|(own, access)| own.is(access))
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        self.accesses.iter().any(|one| other.accesses.iter().any(|other| one.conflicts_with(other)))
    }
}
