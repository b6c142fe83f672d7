//! Slabs cut into ranges: how we split and merge them, and which streams may have a range.
//!
//! A free range remembers the uses that its last owners left behind. If all of them come before the next work of one stream,
//! the range is in that stream's list. If no use is left, it is in the list of the idle. When we free a range, we merge it
//! with its neighbours in the same list. We only join neighbours of different lists if we need the room, because the joint
//! range then waits for the uses of both.

use std::iter;

use super::lists::{Link, Neighbour, Segregated};
use super::{GRANULE, Holder};
use crate::memory::{Backing, Filling};
use crate::track::{Point, StreamId, Uses, merge_uses};

/// Which stream's work must end before a free range is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// None, because nothing uses the range any more.
    Idle,
    /// All uses of the range come before the next work of this stream.
    Stream(StreamId),
    /// Several.
    Several,
}

/// An index into the arena's lists.
type ListIndex = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeState {
    /// This number is not in use.
    Vacant,
    Free(ListIndex),
    Live,
}

/// The part of a range that every request looks at. Ranges have numbers, and refer to their neighbours by number.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    left: Neighbour,
    right: Neighbour,
    slab: u32,
    state: RangeState,
    /// True if `Details::uses` has any.
    used: bool,
}

/// The part of a range that we seldom look at. It is separate so that the other part stays small.
struct Details {
    /// For a free range: the uses that the next owner must come after.
    uses: Uses,
    /// For a live range: its holder.
    holder: Holder,
}

/// Memory that a driver gave us in one piece.
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
    /// How many bytes are really there, because we round the slab's size up to granules.
    bytes: usize,
}

struct OwnedList {
    owner: Owner,
    list: Segregated,
    count: usize,
}

/// A range that we have handed out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) id: u32,
    pub(crate) start: usize,
    pub(crate) host: usize,
    pub(crate) size: usize,
    pub(crate) uses: Option<Uses>,
}

impl From<Taken> for Filling {
    #[inline]
    fn from(Taken { id, start, host, size, uses }: Taken) -> Self {
        Self { place: Backing::Arena(id), start, host, size, uses }
    }
}

/// Slabs and their ranges. Addresses are just numbers here: we never read or write through them.
pub(crate) struct Arena {
    spans: Vec<Span>,
    details: Vec<Details>,
    links: Vec<Link>,
    vacant: Vec<u32>,
    lists: Vec<OwnedList>,
    slabs: Vec<Option<SlabEntry>>,
    reserved: usize,
    free: usize,
    /// How many ranges were freed with uses since the last [`settle`](Self::settle).
    unsettled: usize,
    unsettled_bytes: usize,
}

impl Default for Arena {
    fn default() -> Self {
        Self {
            spans: Vec::new(),
            details: Vec::new(),
            links: Vec::new(),
            vacant: Vec::new(),
            lists: vec![OwnedList { owner: Owner::Idle, list: Segregated::default(), count: 0 }],
            slabs: Vec::new(),
            reserved: 0,
            free: 0,
            unsettled: 0,
            unsettled_bytes: 0,
        }
    }
}

impl Arena {
    /// Returns the bytes of all slabs.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Returns the bytes of all free ranges.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Returns the bytes of the longest free range.
    pub(crate) fn longest_free(&self) -> usize {
        self.free_ids().map(|id| self.size(id)).max().unwrap_or(0)
    }

    /// Returns the sizes and the holders of the live ranges.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Holder)> {
        self.spans
            .iter()
            .zip(self.links.iter().zip(&self.details))
            .filter(|(span, _)| span.state == RangeState::Live)
            .map(|(_, (link, details))| (link.size, &details.holder))
    }

    /// Adds a slab with `bytes` bytes, and hands out all of it, even if other ranges are free.
    pub(crate) fn take_new(&mut self, slab: Slab, bytes: usize, holder: Holder) -> Option<Taken> {
        let id = self.add_slab(slab);
        if let Some(entry) = self.slabs.iter_mut().flatten().find(|entry| entry.first == id) {
            entry.bytes = bytes;
        }
        self.hand_out(id, slab.size, holder)
    }

    /// Hands out a whole slab that is free and has `bytes` bytes, no matter which stream used it last. Looks at every slab.
    pub(crate) fn take_slab(&mut self, bytes: usize, holder: Holder) -> Option<Taken> {
        let is_free = |entry: &&SlabEntry| {
            let first = &self.spans[entry.first as usize];
            entry.bytes == bytes
                && matches!(first.state, RangeState::Free(_))
                && first.right == Neighbour::NONE
        };
        let id = self.slabs.iter().flatten().find(is_free)?.first;
        self.hand_out(id, self.size(id), holder)
    }

    /// Adds a slab that is all free, and returns the number of its only range.
    pub(crate) fn add_slab(&mut self, slab: Slab) -> u32 {
        let index = self.slabs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        let first = self.new_span(slab.start, slab.size, index as u32);
        self.slabs[index] = Some(SlabEntry { slab, first, bytes: slab.size });
        self.reserved += slab.size;
        self.list(first, 0);
        first
    }

    /// Hands out a range of `size` bytes. This must be a multiple of the granule. The range is idle, or its uses come
    /// before the next work of `stream`.
    #[inline]
    pub(crate) fn take(&mut self, size: usize, stream: Option<StreamId>, holder: Holder) -> Option<Taken> {
        let idle = self.lists[0].list.find(size, &self.links);
        let own = stream
            .and_then(|stream| self.find_list(Owner::Stream(stream)))
            .and_then(|index| self.lists[index as usize].list.find(size, &self.links));
        let id = match (own, idle) {
            (Some(own), Some(idle)) if self.size(idle) < self.size(own) => idle,
            (Some(own), _) => own,
            (None, idle) => idle?,
        };
        self.hand_out(id, size, holder)
    }

    /// Hands out a range of `size` bytes by joining free neighbours that are all `usable`. Takes the shortest such run, and
    /// puts the rest of it into the list of `owner`. Looks at every range.
    pub(crate) fn gather(
        &mut self,
        size: usize,
        owner: Owner,
        holder: Holder,
        mut usable: impl FnMut(&Uses) -> bool,
    ) -> Option<Taken> {
        let mut best: Option<(u32, u32, usize)> = None;
        for entry in self.slabs.iter().flatten() {
            // The run of usable neighbours up to here, without those at its beginning that we do not need.
            let (mut run, mut length) = (None, 0);
            for id in self.from(entry.first) {
                let is_free = matches!(self.spans[id as usize].state, RangeState::Free(_));
                if !is_free || !usable(&self.details[id as usize].uses) {
                    (run, length) = (None, 0);
                    continue;
                }
                let mut first = run.unwrap_or(id);
                length += self.size(id);
                while length - self.size(first) >= size
                    && let Some(next) = self.right_of(first)
                {
                    length -= self.size(first);
                    first = next;
                }
                run = Some(first);
                if length >= size && best.is_none_or(|(_, _, least)| length < least) {
                    best = Some((first, id, length));
                }
            }
        }
        let (first, last, _) = best?;
        let mut joined = first;
        self.unlist(first);
        while joined != last
            && let Some(right) = self.right_of(first)
        {
            joined = right;
            self.unlist(right);
            self.move_uses(right, first);
            self.absorb(first, right);
        }
        let owner = if self.spans[first as usize].used { owner } else { Owner::Idle };
        let index = self.list_of(owner);
        self.list(first, index);
        self.hand_out(first, size, holder)
    }

    /// Takes back a range with its `uses`. `owner` says which stream they wait for.
    #[inline]
    pub(crate) fn release(&mut self, id: u32, uses: Option<Uses>, owner: Owner) {
        debug_assert_eq!(self.spans[id as usize].state, RangeState::Live);
        let index = self.list_of(owner);
        if let Some(uses) = uses {
            self.spans[id as usize].used = true;
            self.details[id as usize].uses = uses;
            self.unsettled += 1;
            self.unsettled_bytes += self.size(id);
        }
        self.free += self.size(id);
        self.merge_and_list(id, index);
    }

    /// Returns true if so much was freed with uses that you should [`settle`](Self::settle). Until you do, those ranges do
    /// not merge with their neighbours, and requests cut up the long ranges that are left. But settling looks at every
    /// range, so the limits keep it rare enough to cost little per range.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        (self.unsettled >= 8 && self.unsettled_bytes > self.reserved / 16)
            || self.unsettled > 16 + self.spans.len() / 16
    }

    /// Drops the uses that are `done`. Ranges without uses become idle, and ranges that only wait for one stream move to
    /// that stream's list. Returns true if there were any.
    pub(crate) fn settle(&mut self, mut done: impl FnMut(Point) -> bool) -> bool {
        let mut settled = false;
        (self.unsettled, self.unsettled_bytes) = (0, 0);
        for id in 0..self.spans.len() as u32 {
            let span = &mut self.spans[id as usize];
            let RangeState::Free(index) = span.state else { continue };
            if index == 0 {
                continue;
            }
            let uses = &mut self.details[id as usize].uses;
            uses.retain(|old| !done(old.point));
            span.used = !uses.is_empty();
            let owner = match uses.as_slice() {
                [] => Owner::Idle,
                [only] => Owner::Stream(only.point.stream),
                _ => continue,
            };
            if owner == Owner::Idle || self.lists[index as usize].owner == Owner::Several {
                settled = true;
                self.unlist(id);
                let index = self.list_of(owner);
                self.merge_and_list(id, index);
            }
        }
        settled
    }

    /// Returns how many bytes are free but not idle.
    pub(crate) fn pending(&self) -> usize {
        self.free_ids().filter(|&id| self.spans[id as usize].used).map(|id| self.size(id)).sum()
    }

    /// Takes out the slabs that are completely idle.
    pub(crate) fn remove_idle_slabs(&mut self) -> Vec<Slab> {
        let mut removed = Vec::new();
        for index in 0..self.slabs.len() {
            let Some(SlabEntry { slab, first, .. }) = &self.slabs[index] else { continue };
            let (slab, first) = (*slab, *first);
            let span = &self.spans[first as usize];
            if span.state == RangeState::Free(0) && span.right == Neighbour::NONE {
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

    #[inline]
    fn right_of(&self, id: u32) -> Option<u32> {
        self.spans[id as usize].right.get()
    }

    /// Returns the ranges of a slab from range `first` on.
    fn from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        iter::successors(Some(first), |&id| self.right_of(id))
    }

    #[inline]
    fn size(&self, id: u32) -> usize {
        self.links[id as usize].size
    }

    fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.spans.len() as u32)
            .filter(|&id| matches!(self.spans[id as usize].state, RangeState::Free(_)))
    }

    #[inline]
    fn find_list(&self, owner: Owner) -> Option<ListIndex> {
        self.lists.iter().position(|list| list.owner == owner).map(|index| index as ListIndex)
    }

    #[inline]
    fn list_of(&mut self, owner: Owner) -> ListIndex {
        if owner == Owner::Idle {
            return 0;
        }
        self.find_list(owner).unwrap_or_else(|| self.new_list(owner))
    }

    /// Makes a list for an owner that has none. Reuses an empty list if there is one, because streams come and go.
    #[cold]
    fn new_list(&mut self, owner: Owner) -> ListIndex {
        if let Some(index) = (1..self.lists.len()).find(|&index| self.lists[index].count == 0) {
            self.lists[index].owner = owner;
            return index as ListIndex;
        }
        self.lists.push(OwnedList { owner, list: Segregated::default(), count: 0 });
        self.lists.len() as ListIndex - 1
    }

    #[inline]
    fn new_span(&mut self, start: usize, size: usize, slab: u32) -> u32 {
        let span = Span {
            start,
            left: Neighbour::NONE,
            right: Neighbour::NONE,
            slab,
            state: RangeState::Live,
            used: false,
        };
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
        self.spans[id as usize].state = RangeState::Vacant;
        self.vacant.push(id);
    }

    #[inline]
    fn list(&mut self, id: u32, index: ListIndex) {
        let owned = &mut self.lists[index as usize];
        owned.list.insert(id, &mut self.links);
        owned.count += 1;
        self.spans[id as usize].state = RangeState::Free(index);
    }

    #[inline]
    fn unlist(&mut self, id: u32) {
        if let RangeState::Free(index) = self.spans[id as usize].state {
            let owned = &mut self.lists[index as usize];
            owned.list.remove(id, &mut self.links);
            owned.count -= 1;
            self.spans[id as usize].state = RangeState::Live;
        }
    }

    /// Puts a range into a list, and joins it with its neighbours in that list. The range must not be in a list yet.
    #[inline]
    fn merge_and_list(&mut self, id: u32, index: ListIndex) {
        let (left, right) = (self.spans[id as usize].left, self.spans[id as usize].right);
        let mut id = id;
        if let Some(right) = right.get()
            && self.spans[right as usize].state == RangeState::Free(index)
        {
            self.unlist(right);
            self.move_uses(right, id);
            self.absorb(id, right);
        }
        if let Some(left) = left.get()
            && self.spans[left as usize].state == RangeState::Free(index)
        {
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

    /// Merges `right`, the right neighbour, into `id`. Neither may be in a list.
    #[inline]
    fn absorb(&mut self, id: u32, right: u32) {
        let beyond = self.spans[right as usize].right;
        self.links[id as usize].size += self.size(right);
        self.spans[id as usize].right = beyond;
        if let Some(beyond) = beyond.get() {
            self.spans[beyond as usize].left = Neighbour::of(id);
        }
        self.retire(right);
    }

    /// Hands out the first `size` bytes of a free range. The rest stays free, with the same uses.
    #[inline]
    fn hand_out(&mut self, id: u32, size: usize, holder: Holder) -> Option<Taken> {
        let RangeState::Free(index) = self.spans[id as usize].state else { return None };
        self.unlist(id);
        let whole = self.size(id);
        if whole - size >= GRANULE {
            let Span { start, right, slab, .. } = self.spans[id as usize];
            let rest = self.new_span(start + size, whole - size, slab);
            // We have counted the rest already.
            self.free -= whole - size;
            self.links[id as usize].size = size;
            self.spans[id as usize].right = Neighbour::of(rest);
            self.spans[rest as usize].left = Neighbour::of(id);
            self.spans[rest as usize].right = right;
            if let Some(right) = right.get() {
                self.spans[right as usize].left = Neighbour::of(rest);
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
        span.state = RangeState::Live;
        let details = &mut self.details[id as usize];
        details.holder = holder;
        let uses = std::mem::take(&mut span.used).then(|| std::mem::take(&mut details.uses));
        let (start, slab) = (span.start, span.slab);
        let host = match &self.slabs[slab as usize] {
            Some(SlabEntry { slab, .. }) if slab.host != 0 => slab.host + (start - slab.start),
            _ => 0,
        };
        Some(Taken { id, start, host, size, uses })
    }
}

#[cfg(test)]
mod tests;
