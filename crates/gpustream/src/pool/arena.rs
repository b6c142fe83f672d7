//! Slabs cut into ranges: splitting, merging, and which stream may have what.
//!
//! A free range remembers the uses its last owners left behind. It is in the list of the stream that all of them
//! precede, or in the list of the idle where none is left. Neighbours in one list are merged as they are freed;
//! neighbours in different lists are joined only when somebody needs the room, for the joint range then waits for
//! the uses of both.

use super::lists::{FreeList, Link, NONE};
use super::{GRANULE, Holder};
use crate::track::{Point, StreamId, Uses, merge_uses};

/// The list of ranges that nothing uses any more.
pub(crate) const IDLE: StreamId = StreamId(0);

/// The list of ranges whose uses no one stream is known to follow.
pub(crate) const MIXED: StreamId = StreamId(u32::MAX);

/// What `State::Free` counts in: an index into the arena's lists.
type ListIndex = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its number is not in use.
    Vacant,
    Free(ListIndex),
    Live,
}

#[derive(Clone, Copy)]
struct Span {
    start: usize,
    left: u32,
    right: u32,
    slab: u32,
    state: State,
    /// Whether there are `uses`.
    used: bool,
}

/// What is seldom looked at, apart from what always is.
struct Details {
    /// Of a free range: what must be done before it may be used.
    uses: Uses,
    /// Of a live range.
    holder: Holder,
}

/// What a driver gave in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slab {
    /// The device's address of the first byte.
    pub(crate) start: usize,
    pub(crate) size: usize,
    /// The host's address, or zero.
    pub(crate) host: usize,
}

struct SlabEntry {
    slab: Slab,
    first: u32,
}

struct OwnedList<L> {
    stream: StreamId,
    list: L,
    count: usize,
}

/// A range handed out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) host: usize,
    pub(crate) size: usize,
    pub(crate) uses: Uses,
}

/// Slabs and their ranges. Addresses are numbers here; nothing is read or written there.
pub(crate) struct Arena<L> {
    spans: Vec<Span>,
    details: Vec<Details>,
    links: Vec<Link>,
    vacant: Vec<u32>,
    lists: Vec<OwnedList<L>>,
    slabs: Vec<Option<SlabEntry>>,
    reserved: usize,
    free: usize,
    /// Ranges that were freed with uses since the last [`settle`](Self::settle).
    unsettled: usize,
    unsettled_bytes: usize,
}

impl<L: FreeList> Default for Arena<L> {
    fn default() -> Self {
        Self {
            spans: Vec::new(),
            details: Vec::new(),
            links: Vec::new(),
            vacant: Vec::new(),
            lists: vec![OwnedList { stream: IDLE, list: L::default(), count: 0 }],
            slabs: Vec::new(),
            reserved: 0,
            free: 0,
            unsettled: 0,
            unsettled_bytes: 0,
        }
    }
}

impl<L: FreeList> Arena<L> {
    /// Bytes of all slabs.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes of all free ranges.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Bytes of the longest free range.
    pub(crate) fn longest_free(&self) -> usize {
        self.free_ids().map(|id| self.size(id)).max().unwrap_or(0)
    }

    /// Who holds the live ranges, with their sizes.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Holder)> {
        self.spans
            .iter()
            .zip(self.links.iter().zip(&self.details))
            .filter(|(span, _)| span.state == State::Live)
            .map(|(_, (link, details))| (link.size, &details.holder))
    }

    /// Adds a slab, all of it free.
    pub(crate) fn add_slab(&mut self, slab: Slab) {
        let index = self.slabs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        let first = self.new_span(slab.start, slab.size, index as u32);
        self.slabs[index] = Some(SlabEntry { slab, first });
        self.reserved += slab.size;
        self.list(first, 0);
    }

    /// A range of `size` bytes, a multiple of the granule, that is idle or follows in `stream`'s order.
    #[inline]
    pub(crate) fn take(&mut self, size: usize, stream: Option<StreamId>, holder: Holder) -> Option<Taken> {
        let idle = self.lists[0].list.find(size, &self.links);
        let own = stream
            .and_then(|stream| self.find_list(stream))
            .and_then(|index| self.lists[index as usize].list.find(size, &self.links));
        let id = match (own, idle) {
            (Some(own), Some(idle)) if self.size(idle) < self.size(own) => idle,
            (Some(own), _) => own,
            (None, idle) => idle?,
        };
        self.hand_out(id, size, holder)
    }

    /// A range of `size` bytes out of neighbours that are all `usable`, joined for the purpose: the shortest such
    /// run. What is left of it goes to the list of `owner`. Looks at every range.
    pub(crate) fn gather(
        &mut self,
        size: usize,
        owner: StreamId,
        holder: Holder,
        mut usable: impl FnMut(&Uses) -> bool,
    ) -> Option<Taken> {
        let mut best: Option<(u32, u32, usize)> = None;
        for entry in self.slabs.iter().flatten() {
            let (mut first, mut length) = (NONE, 0);
            let mut id = entry.first;
            while id != NONE {
                let span = &self.spans[id as usize];
                if matches!(span.state, State::Free(_)) && usable(&self.details[id as usize].uses) {
                    if first == NONE {
                        first = id;
                    }
                    length += self.size(id);
                    while length - self.size(first) >= size {
                        length -= self.size(first);
                        first = self.spans[first as usize].right;
                    }
                    if length >= size && best.is_none_or(|(_, _, least)| length < least) {
                        best = Some((first, id, length));
                    }
                } else {
                    (first, length) = (NONE, 0);
                }
                id = span.right;
            }
        }
        let (first, last, _) = best?;
        let mut joined = first;
        self.unlist(first);
        while joined != last {
            let right = self.spans[first as usize].right;
            joined = right;
            self.unlist(right);
            self.move_uses(right, first);
            self.absorb(first, right);
        }
        let owner = if self.spans[first as usize].used { owner } else { IDLE };
        let index = self.list_of(owner);
        self.list(first, index);
        self.hand_out(first, size, holder)
    }

    /// Takes back a range. `owner` is the stream that all `uses` precede, [`IDLE`] where there are none, or
    /// [`MIXED`].
    #[inline]
    pub(crate) fn release(&mut self, id: u32, uses: Uses, owner: StreamId) {
        debug_assert_eq!(self.spans[id as usize].state, State::Live);
        let index = self.list_of(owner);
        if !uses.is_empty() {
            self.spans[id as usize].used = true;
            self.details[id as usize].uses = uses;
            self.unsettled += 1;
            self.unsettled_bytes += self.size(id);
        }
        self.free += self.size(id);
        self.merge_and_list(id, index);
    }

    /// Whether so much was freed with uses that it is time to [`settle`](Self::settle): until then it does not merge
    /// with its neighbours, and requests cut up the long ranges that are left. Not so often that the look at every
    /// range would cost much for each.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        (self.unsettled >= 8 && self.unsettled_bytes > self.reserved / 16)
            || self.unsettled > 16 + self.spans.len() / 16
    }

    /// Drops the uses that are `done`: ranges without any join the idle, and those that wait for one stream alone
    /// that stream's. Says whether there were such.
    pub(crate) fn settle(&mut self, mut done: impl FnMut(Point) -> bool) -> bool {
        let mut settled = false;
        (self.unsettled, self.unsettled_bytes) = (0, 0);
        for id in 0..self.spans.len() as u32 {
            let span = &mut self.spans[id as usize];
            let State::Free(index) = span.state else { continue };
            if index == 0 {
                continue;
            }
            let uses = &mut self.details[id as usize].uses;
            uses.retain(|old| !done(old.point));
            span.used = !uses.is_empty();
            let owner = match uses.as_slice() {
                [] => IDLE,
                [only] => only.point.stream,
                _ => continue,
            };
            if owner == IDLE || self.lists[index as usize].stream == MIXED {
                settled = true;
                self.unlist(id);
                let index = self.list_of(owner);
                self.merge_and_list(id, index);
            }
        }
        settled
    }

    /// Bytes that are free and not idle.
    pub(crate) fn pending(&self) -> usize {
        self.free_ids().filter(|&id| self.spans[id as usize].used).map(|id| self.size(id)).sum()
    }

    /// Takes out the slabs that are idle from end to end.
    pub(crate) fn remove_idle_slabs(&mut self) -> Vec<Slab> {
        let mut removed = Vec::new();
        for index in 0..self.slabs.len() {
            let Some(SlabEntry { slab, first }) = &self.slabs[index] else { continue };
            let (slab, first) = (*slab, *first);
            let span = &self.spans[first as usize];
            if span.state == State::Free(0) && span.right == NONE {
                self.unlist(first);
                self.retire(first);
                self.slabs[index] = None;
                self.reserved -= slab.size;
                self.free -= slab.size;
                removed.push(slab);
            }
        }
        removed
    }

    /// Takes out all slabs. Nothing uses them any more.
    pub(crate) fn remove_all_slabs(&mut self) -> Vec<Slab> {
        let slabs = self.slabs.drain(..).flatten().map(|entry| entry.slab).collect();
        *self = Self::default();
        slabs
    }

    #[inline]
    fn size(&self, id: u32) -> usize {
        self.links[id as usize].size
    }

    fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.spans.len() as u32).filter(|&id| matches!(self.spans[id as usize].state, State::Free(_)))
    }

    #[inline]
    fn find_list(&self, stream: StreamId) -> Option<ListIndex> {
        self.lists.iter().position(|list| list.stream == stream).map(|index| index as ListIndex)
    }

    #[inline]
    fn list_of(&mut self, stream: StreamId) -> ListIndex {
        if stream == IDLE {
            return 0;
        }
        self.find_list(stream).unwrap_or_else(|| self.new_list(stream))
    }

    /// A list for a stream new here; in place of one that is empty, since streams come and go.
    #[cold]
    fn new_list(&mut self, stream: StreamId) -> ListIndex {
        if let Some(index) = (1..self.lists.len()).find(|&index| self.lists[index].count == 0) {
            self.lists[index].stream = stream;
            return index as ListIndex;
        }
        self.lists.push(OwnedList { stream, list: L::default(), count: 0 });
        self.lists.len() as ListIndex - 1
    }

    #[inline]
    fn new_span(&mut self, start: usize, size: usize, slab: u32) -> u32 {
        let span = Span { start, left: NONE, right: NONE, slab, state: State::Live, used: false };
        self.free += size;
        if let Some(id) = self.vacant.pop() {
            self.spans[id as usize] = span;
            self.links[id as usize] = Link::new(size);
            return id;
        }
        self.spans.push(span);
        self.details.push(Details { uses: Uses::new(), holder: Holder::NOBODY });
        self.links.push(Link::new(size));
        self.spans.len() as u32 - 1
    }

    #[inline]
    fn retire(&mut self, id: u32) {
        self.spans[id as usize].state = State::Vacant;
        self.vacant.push(id);
    }

    #[inline]
    fn list(&mut self, id: u32, index: ListIndex) {
        let owned = &mut self.lists[index as usize];
        owned.list.insert(id, &mut self.links);
        owned.count += 1;
        self.spans[id as usize].state = State::Free(index);
    }

    #[inline]
    fn unlist(&mut self, id: u32) {
        if let State::Free(index) = self.spans[id as usize].state {
            let owned = &mut self.lists[index as usize];
            owned.list.remove(id, &mut self.links);
            owned.count -= 1;
            self.spans[id as usize].state = State::Live;
        }
    }

    /// Lists a range that is in no list, together with its neighbours in the same one.
    #[inline]
    fn merge_and_list(&mut self, id: u32, index: ListIndex) {
        let (left, right) = (self.spans[id as usize].left, self.spans[id as usize].right);
        let mut id = id;
        if right != NONE && self.spans[right as usize].state == State::Free(index) {
            self.unlist(right);
            self.move_uses(right, id);
            self.absorb(id, right);
        }
        if left != NONE && self.spans[left as usize].state == State::Free(index) {
            self.unlist(left);
            self.move_uses(id, left);
            self.absorb(left, id);
            id = left;
        }
        self.list(id, index);
    }

    #[inline]
    fn move_uses(&mut self, from: u32, to: u32) {
        if std::mem::take(&mut self.spans[from as usize].used) {
            let uses = std::mem::take(&mut self.details[from as usize].uses);
            merge_uses(&mut self.details[to as usize].uses, uses);
            self.spans[to as usize].used = true;
        }
    }

    /// Makes `right`, the right neighbour, part of `id`. Neither is in a list.
    #[inline]
    fn absorb(&mut self, id: u32, right: u32) {
        let beyond = self.spans[right as usize].right;
        self.links[id as usize].size += self.size(right);
        self.spans[id as usize].right = beyond;
        if beyond != NONE {
            self.spans[beyond as usize].left = id;
        }
        self.retire(right);
    }

    /// Hands out the first `size` bytes of a free range; the rest stays free, behind the same uses.
    #[inline]
    fn hand_out(&mut self, id: u32, size: usize, holder: Holder) -> Option<Taken> {
        let State::Free(index) = self.spans[id as usize].state else { return None };
        self.unlist(id);
        let whole = self.size(id);
        if whole - size >= GRANULE {
            let Span { start, right, slab, .. } = self.spans[id as usize];
            let rest = self.new_span(start + size, whole - size, slab);
            // Counted already.
            self.free -= whole - size;
            self.links[id as usize].size = size;
            self.spans[id as usize].right = rest;
            self.spans[rest as usize].left = id;
            self.spans[rest as usize].right = right;
            if right != NONE {
                self.spans[right as usize].left = rest;
            }
            if self.spans[id as usize].used {
                self.spans[rest as usize].used = true;
                self.details[rest as usize].uses = self.details[id as usize].uses.clone();
            }
            self.merge_and_list(rest, index);
        }
        let size = self.size(id);
        self.free -= size;
        let span = &mut self.spans[id as usize];
        span.state = State::Live;
        let details = &mut self.details[id as usize];
        details.holder = holder;
        let uses =
            if std::mem::take(&mut span.used) { std::mem::take(&mut details.uses) } else { Uses::new() };
        let (start, slab) = (span.start, span.slab);
        let host = match &self.slabs[slab as usize] {
            Some(SlabEntry { slab, .. }) if slab.host != 0 => slab.host + (start - slab.start),
            _ => 0,
        };
        Some(Taken { id, start, host, size, uses })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::lists::{BestFit, Segregated};
    use crate::track::Use;

    const SLAB: usize = 64 * GRANULE;

    fn use_at(stream: u32, number: u64) -> Use {
        let operation = Holder::NOBODY.operation;
        Use { point: Point { stream: StreamId(stream), number }, operation, recycled: true }
    }

    fn slab(start: usize, size: usize) -> Slab {
        Slab { start, size, host: 0 }
    }

    impl<L: FreeList> Arena<L> {
        /// Every byte of every slab is in exactly one range, and every free range in exactly one list.
        fn check(&self) {
            let mut seen = 0;
            let (mut free, mut reserved) = (0, 0);
            let mut counts = vec![0; self.lists.len()];
            for (index, entry) in self.slabs.iter().enumerate() {
                let Some(SlabEntry { slab, first }) = entry else { continue };
                let (mut id, mut at, mut left) = (*first, slab.start, NONE);
                let mut before = None;
                while id != NONE {
                    let span = &self.spans[id as usize];
                    assert_eq!((span.start, span.left, span.slab), (at, left, index as u32));
                    assert!(self.size(id) > 0 && self.size(id).is_multiple_of(GRANULE));
                    assert_ne!(span.state, State::Vacant);
                    if let State::Free(list) = span.state {
                        counts[list as usize] += 1;
                        free += self.size(id);
                        assert_eq!(list != 0, span.used, "idle means without uses");
                        assert_eq!(span.used, !self.details[id as usize].uses.is_empty());
                        assert_ne!(before, Some(list), "neighbours in one list are merged");
                        before = Some(list);
                    } else {
                        before = None;
                    }
                    seen += 1;
                    at += self.size(id);
                    left = id;
                    id = span.right;
                }
                assert_eq!(at, slab.start + slab.size);
                reserved += slab.size;
            }
            assert_eq!(self.lists.iter().map(|list| list.count).collect::<Vec<_>>(), counts);
            assert_eq!((self.free, self.reserved), (free, reserved));
            assert_eq!(seen + self.vacant.len(), self.spans.len());
        }
    }

    #[test]
    fn a_freed_range_goes_to_its_stream_at_once_and_to_others_when_done() {
        let mut arena = Arena::<Segregated>::default();
        arena.add_slab(slab(0x1000, 4 * GRANULE));
        let (a, b) = (Some(StreamId(1)), Some(StreamId(2)));
        let take = |arena: &mut Arena<Segregated>, stream| arena.take(4 * GRANULE, stream, Holder::NOBODY);
        let first = take(&mut arena, a).unwrap();
        assert!(first.uses.is_empty());
        arena.release(first.id, Uses::from_slice(&[use_at(1, 5)]), StreamId(1));
        assert!(take(&mut arena, b).is_none(), "stream 1 may still use it");
        assert!(take(&mut arena, None).is_none());
        let again = take(&mut arena, a).unwrap();
        assert_eq!((again.start, again.uses.len()), (0x1000, 1));
        arena.release(again.id, again.uses, StreamId(1));
        assert!(!arena.settle(|point| point.number < 5));
        assert!(arena.settle(|point| point.number <= 5));
        assert!(take(&mut arena, b).unwrap().uses.is_empty());
        arena.check();
    }

    #[test]
    fn joined_ranges_wait_for_the_uses_of_all_their_parts() {
        let mut arena = Arena::<Segregated>::default();
        arena.add_slab(slab(0, 4 * GRANULE));
        let parts: Vec<_> = (0..4).map(|_| arena.take(GRANULE, None, Holder::NOBODY).unwrap()).collect();
        for (part, stream) in parts.into_iter().zip([1, 2, 1, 3]) {
            arena.release(part.id, Uses::from_slice(&[use_at(stream, 7)]), StreamId(stream));
        }
        arena.check();
        let none = arena.gather(2 * GRANULE, StreamId(1), Holder::NOBODY, |uses| {
            uses.iter().all(|old| old.point.stream == StreamId(1))
        });
        assert!(none.is_none());
        let all = arena.gather(3 * GRANULE, MIXED, Holder::NOBODY, |_| true).unwrap();
        let streams: Vec<u32> = all.uses.iter().map(|old| old.point.stream.0).collect();
        assert_eq!((all.start, streams), (0, vec![1, 2]));
        arena.check();
        let rest = arena.gather(GRANULE, MIXED, Holder::NOBODY, |_| true).unwrap();
        assert_eq!(rest.uses.len(), 1);
        arena.check();
    }

    #[test]
    fn the_shortest_run_is_gathered() {
        let mut arena = Arena::<Segregated>::default();
        arena.add_slab(slab(0, 10 * GRANULE));
        let sizes = [1, 3, 1, 2, 3];
        let parts: Vec<_> =
            sizes.iter().map(|&n| arena.take(n * GRANULE, None, Holder::NOBODY).unwrap()).collect();
        for (index, part) in parts.into_iter().enumerate() {
            if index != 2 {
                let stream = 10 + index as u32;
                arena.release(part.id, Uses::from_slice(&[use_at(stream, 1)]), StreamId(stream));
            }
        }
        let taken = arena.gather(3 * GRANULE, MIXED, Holder::NOBODY, |_| true).unwrap();
        assert_eq!((taken.start, taken.uses.len()), (GRANULE, 1));
        arena.check();
    }

    #[test]
    fn only_slabs_without_any_use_are_removed() {
        let mut arena = Arena::<Segregated>::default();
        arena.add_slab(slab(0, SLAB));
        arena.add_slab(slab(1 << 30, SLAB));
        let held = arena.take(SLAB, None, Holder::NOBODY).unwrap();
        let used = arena.take(SLAB, None, Holder::NOBODY).unwrap();
        arena.release(used.id, Uses::from_slice(&[use_at(1, 1)]), StreamId(1));
        assert_eq!(arena.remove_idle_slabs(), []);
        assert_eq!(arena.pending(), SLAB);
        arena.settle(|_| true);
        assert_eq!(arena.remove_idle_slabs().len(), 1);
        arena.check();
        arena.release(held.id, Uses::new(), IDLE);
        assert_eq!(arena.remove_idle_slabs().len(), 1);
        assert_eq!(arena.reserved(), 0);
        arena.check();
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take { units: usize, stream: u32 },
        Release { which: usize, streams: Vec<u32> },
        Settle { stream: u32 },
        Gather { units: usize, stream: u32 },
        Trim,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let units = || prop_oneof![4 => 1usize..20, 1 => 1usize..64];
        let step = prop_oneof![
            6 => (units(), 0u32..4).prop_map(|(units, stream)| Step::Take { units, stream }),
            6 => (any::<usize>(), prop::collection::vec(1u32..4, 0..3))
                .prop_map(|(which, streams)| Step::Release { which, streams }),
            1 => (1u32..4).prop_map(|stream| Step::Settle { stream }),
            2 => (units(), 1u32..4).prop_map(|(units, stream)| Step::Gather { units, stream }),
            1 => Just(Step::Trim),
        ];
        prop::collection::vec(step, 1..300)
    }

    /// Against a map from every granule to who has it and what was done there last.
    fn follow<L: FreeList>(steps: Vec<Step>) {
        struct Live {
            taken: Taken,
        }
        let mut arena = Arena::<L>::default();
        let mut live: Vec<Live> = Vec::new();
        // Uses that must be seen by whoever gets the granule next.
        let mut left: std::collections::HashMap<usize, Vec<Use>> = std::collections::HashMap::new();
        let mut next_slab = 1 << 40;
        let mut number = 0;
        let mut done = [0u64; 4];
        for step in steps {
            let mut got = None;
            match step {
                Step::Take { units, stream } => {
                    let size = units * GRANULE;
                    let who = (stream > 0).then_some(StreamId(stream));
                    let taken = arena.take(size, who, Holder::NOBODY).or_else(|| {
                        arena.add_slab(slab(next_slab, SLAB));
                        next_slab += 2 * SLAB;
                        arena.take(size, who, Holder::NOBODY)
                    });
                    let taken = taken.expect("a fresh slab has room");
                    for old in &taken.uses {
                        assert_eq!(Some(old.point.stream), who, "only what precedes the stream's next work");
                    }
                    got = Some(taken);
                }
                Step::Release { which, streams } if !live.is_empty() => {
                    let Live { taken } = live.swap_remove(which % live.len());
                    let mut uses = Uses::new();
                    for &stream in &streams {
                        number += 1;
                        let new = use_at(stream, number);
                        merge_uses(&mut uses, Uses::from_slice(&[new]));
                    }
                    for at in (taken.start..taken.start + taken.size).step_by(GRANULE) {
                        left.insert(at, uses.to_vec());
                    }
                    let owner = match uses.as_slice() {
                        [] => IDLE,
                        [only] => only.point.stream,
                        _ => MIXED,
                    };
                    arena.release(taken.id, uses, owner);
                }
                Step::Release { .. } => {}
                Step::Settle { stream } => {
                    done[stream as usize] = number;
                    arena.settle(|point| done[point.stream.0 as usize] >= point.number);
                }
                Step::Gather { units, stream } => {
                    let stream = StreamId(stream);
                    got = arena.gather(units * GRANULE, stream, Holder::NOBODY, |uses| {
                        uses.iter().all(|old| old.point.stream == stream)
                    });
                }
                Step::Trim => {
                    for slab in arena.remove_idle_slabs() {
                        assert!(live.iter().all(
                            |it| it.taken.start < slab.start || it.taken.start >= slab.start + slab.size
                        ));
                    }
                }
            }
            if let Some(taken) = got {
                let range = taken.start..taken.start + taken.size;
                for other in &live {
                    let end = other.taken.start + other.taken.size;
                    assert!(end <= range.start || other.taken.start >= range.end, "no overlap");
                }
                for at in range.step_by(GRANULE) {
                    for old in left.remove(&at).unwrap_or_default() {
                        let known = done[old.point.stream.0 as usize] >= old.point.number;
                        let seen = taken.uses.iter().any(|it| {
                            it.point.stream == old.point.stream && it.point.number >= old.point.number
                        });
                        assert!(known || seen, "{old:?} would be forgotten");
                    }
                }
                live.push(Live { taken });
            }
            arena.check();
            let used: usize = live.iter().map(|it| it.taken.size).sum();
            assert_eq!(used + arena.free(), arena.reserved(), "nothing is lost");
        }
        for Live { taken } in live {
            arena.release(taken.id, Uses::new(), IDLE);
        }
        arena.settle(|_| true);
        arena.check();
        arena.remove_idle_slabs();
        assert_eq!((arena.reserved(), arena.free()), (0, 0), "everything merges back");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn segregated_arena_follows_the_model(steps in steps()) {
            follow::<Segregated>(steps);
        }

        #[test]
        fn best_fit_arena_follows_the_model(steps in steps()) {
            follow::<BestFit>(steps);
        }
    }
}
