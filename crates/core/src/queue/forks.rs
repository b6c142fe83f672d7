//! The order in which HIP ends the streams of a capture.

use std::collections::HashMap;

use crate::track::StreamId;

/// The streams that HIP ends with each stream of a capture: those that waited for an event of that stream, the first stream
/// of the capture excepted. HIP would follow a circle among them without end, so none is entered here.
pub(super) struct Forks {
    origin: StreamId,
    parents: HashMap<StreamId, StreamId>,
    children: HashMap<StreamId, Vec<StreamId>>,
}

impl Forks {
    pub(super) fn new(origin: StreamId) -> Self {
        Self { origin, parents: HashMap::new(), children: HashMap::new() }
    }

    /// Enters a wait of `to` for an event of `from`, as HIP does (`hipStreamWaitEvent_common`). Where that would close a circle
    /// nothing is entered, and the stream by which the wait can go round is returned: the first one, which may wait for any
    /// other, and for which any other may wait.
    pub(super) fn enter(&mut self, from: StreamId, to: StreamId) -> Option<StreamId> {
        if to == self.origin || self.parents.get(&from) == Some(&to) {
            return None;
        }
        if self.ends(to, from) {
            return Some(self.origin);
        }
        self.parents.insert(to, from);
        let children = self.children.entry(from).or_default();
        if !children.contains(&to) {
            children.push(to);
        }
        None
    }

    /// Whether HIP ends `other` with `stream`.
    fn ends(&self, stream: StreamId, other: StreamId) -> bool {
        let mut children = self.children.get(&stream).into_iter().flatten();
        stream == other || children.any(|&child| self.ends(child, other))
    }
}
