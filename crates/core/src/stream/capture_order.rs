//! How HIP ends the streams of a capture one after the other.

use std::collections::HashMap;

use crate::track::StreamId;

/// For each stream of a capture, the streams that HIP ends together with it. These are the streams that waited for one of
/// its events, except the capture's first stream. HIP would follow a circle among them forever, so we never enter one.
pub(super) struct CaptureTree {
    origin: StreamId,
    parents: HashMap<StreamId, StreamId>,
    children: HashMap<StreamId, Vec<StreamId>>,
}

impl CaptureTree {
    pub(super) fn new(origin: StreamId) -> Self {
        Self { origin, parents: HashMap::new(), children: HashMap::new() }
    }

    /// Enters that `to` waits for an event of `from`, as HIP does (`hipStreamWaitEvent_common`). If that would close a
    /// circle, we enter nothing, and return a stream that we can route the wait through instead. That is the first one,
    /// because it may wait for any other, and any other may wait for it.
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

    /// Returns true if HIP ends `other` together with `stream`.
    fn ends(&self, stream: StreamId, other: StreamId) -> bool {
        let mut found = vec![stream];
        let mut looked_at = 0;
        while let Some(stream) = found.get(looked_at) {
            if *stream == other {
                return true;
            }
            looked_at += 1;
            for &child in self.children.get(stream).into_iter().flatten() {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_close_a_circle_go_by_the_first_stream() {
        let [origin, a, b, c] = std::array::from_fn(|_| StreamId::next());
        let mut tree = CaptureTree::new(origin);
        for to in [a, b, c] {
            assert_eq!(tree.enter(origin, to), None);
        }
        assert_eq!(tree.enter(a, a), Some(origin));
        assert_eq!(tree.enter(a, b), None);
        assert_eq!(tree.enter(b, a), None, "a child that joins its parent");
        assert_eq!(tree.enter(b, c), None);
        assert_eq!(tree.enter(c, a), Some(origin));
        assert_eq!(tree.enter(c, origin), None);
        assert_eq!(tree.enter(origin, a), None);
    }

    /// There are far more paths from the first stream to the last than we could ever walk.
    #[test]
    fn streams_that_wait_for_all_others_are_looked_at_once() {
        let streams: Vec<_> = (0..100).map(|_| StreamId::next()).collect();
        let mut tree = CaptureTree::new(streams[0]);
        for (index, &to) in streams.iter().enumerate() {
            for &from in &streams[..index] {
                assert_eq!(tree.enter(from, to), None);
            }
        }
        assert_eq!(tree.enter(streams[99], streams[1]), Some(streams[0]));
    }
}
