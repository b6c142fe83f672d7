//! The uses of one allocation, by byte range.

use std::ops::Range;

use gpustream_hal::CallSite;
use gpustream_hal::cold_path::cold_path;
use smallvec::SmallVec;

use super::{Point, StreamId};

/// The way an operation touches a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads; conflicts with earlier writes.
    Read,
    /// Writes, and perhaps reads; conflicts with every earlier use.
    Write,
    /// Touches memory that several operations may touch at once (a flag); conflicts with no earlier use, but keeps the
    /// memory alive.
    Shared,
}

/// One use of a range: its point, and the operation that made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) point: Point,
    pub(crate) operation: CallSite,
    /// Whether an earlier owner of the memory left this use behind. The present owner cannot know of such a use, so the
    /// library waits for it even where the user orders operations.
    pub(crate) recycled: bool,
    /// The number of the stream's last submission, up to `point`, that wrote; 0 if none did. Reads wait for that one.
    wrote: u64,
}

impl Use {
    /// Creates a use by `operation`. The history adds whether the use writes.
    #[inline]
    pub(crate) fn new(point: Point, operation: CallSite) -> Self {
        Self { point, operation, recycled: false, wrote: 0 }
    }

    /// Creates a write that an earlier owner left behind.
    #[cfg(test)]
    pub(crate) fn of_earlier_owner(point: Point, operation: CallSite) -> Self {
        Self { point, operation, recycled: true, wrote: point.number }
    }

    #[inline]
    fn with_mode(self, mode: Mode) -> Self {
        if mode == Mode::Write { Self { wrote: self.point.number, ..self } } else { self }
    }
}

/// A list of uses, at most one of each stream. Room for one keeps a history in few cache lines; a second takes memory of its
/// own, which the list keeps.
pub(crate) type Uses = SmallVec<[Use; 1]>;

/// A range of bytes that have the same uses.
#[derive(Clone, Debug)]
struct Segment {
    end: usize,
    /// Whether anything has written these bytes since the allocation was handed out.
    written: bool,
    /// The last writer; until something writes, the uses of earlier owners.
    writers: Uses,
    /// Readers since `writers`, one per stream.
    readers: Uses,
}

/// The last writer of every byte of an allocation, and the readers since.
///
/// Segments are sorted and cover `0..len`; each starts where its predecessor ends. A buffer that is always used whole
/// has one segment.
#[derive(Clone, Debug)]
pub struct History {
    segments: SmallVec<[Segment; 1]>,
    /// The number of uses above which pruning is worth a try.
    prune_above: usize,
}

/// The number of uses up to which nothing is pruned.
const FEW: usize = 64;

impl History {
    /// Creates a history without uses, for an allocation of `len` bytes.
    pub(crate) fn new(len: usize, written: bool) -> Self {
        let whole = Segment { end: len, written, writers: Uses::new(), readers: Uses::new() };
        Self { segments: SmallVec::from_buf([whole]), prune_above: FEW }
    }

    /// Calls `conflict` with every earlier use that an access must be ordered after.
    #[inline]
    pub(crate) fn conflicts(&self, range: &Range<usize>, mode: Mode, mut conflict: impl FnMut(&Use)) {
        if mode == Mode::Shared || range.is_empty() {
            return;
        }
        let first = self.first_of(range.start);
        let mut start = 0;
        for segment in &self.segments[first..] {
            if start >= range.end {
                break;
            }
            start = segment.end;
            if mode == Mode::Write {
                segment.writers.iter().chain(&segment.readers).for_each(&mut conflict);
                continue;
            }
            for writer in &segment.writers {
                if writer.wrote == writer.point.number {
                    conflict(writer);
                } else if writer.wrote > 0 {
                    let point = Point { number: writer.wrote, ..writer.point };
                    conflict(&Use { point, ..*writer });
                }
            }
        }
    }

    /// Adds the use that `new` makes. A write takes the place of the earlier uses: the write comes after them, and later
    /// accesses come after the write. Returns whether there may be more segments now.
    ///
    /// The use is made where it stays. Built elsewhere first, in parts, and copied whole, it would keep the processor waiting
    /// until the parts are in the cache.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a tenth of a launch's instructions")]
    pub(crate) fn insert(&mut self, range: &Range<usize>, mode: Mode, new: impl Fn() -> Use) -> bool {
        // The usual case: one segment, used whole.
        if !self.segments.spilled()
            && let [segment] = self.segments.as_mut_slice()
            && range.start == 0
            && range.end == segment.end
        {
            segment.insert(mode, new);
            return false;
        }
        cold_path();
        if range.is_empty() {
            return false;
        }
        self.insert_range(range, mode, new());
        true
    }

    /// As [`insert`](Self::insert). Returns whether the use is of all the memory, which has one segment.
    #[inline]
    pub(crate) fn insert_whole(&mut self, range: &Range<usize>, mode: Mode, new: impl Fn() -> Use) -> bool {
        let whole = matches!(self.segments.as_slice(), [one] if range.start == 0 && range.end == one.end);
        self.insert(range, mode, new);
        whole
    }

    #[inline(never)]
    fn insert_range(&mut self, range: &Range<usize>, mode: Mode, new: Use) {
        let first = self.split_at(range.start);
        let last = self.split_at(range.end);
        if mode == Mode::Write {
            // One segment takes the place of all those that are overwritten.
            let writers = Uses::from_slice(&[new.with_mode(mode)]);
            let merged = Segment { end: range.end, written: true, writers, readers: Uses::new() };
            self.segments.drain(first + 1..last);
            self.segments[first] = merged;
        } else {
            self.segments[first..last].iter_mut().for_each(|segment| segment.insert(mode, || new));
        }
    }

    /// Returns the index of the segment that holds the byte at `at`.
    #[inline]
    fn first_of(&self, at: usize) -> usize {
        if self.segments.len() == 1 { 0 } else { self.segments.partition_point(|segment| segment.end <= at) }
    }

    /// Makes `at` a boundary; returns the index of the segment that starts there.
    fn split_at(&mut self, at: usize) -> usize {
        if at == 0 {
            return 0;
        }
        let index = self.segments.partition_point(|segment| segment.end < at);
        if self.segments[index].end != at {
            let mut left = self.segments[index].clone();
            left.end = at;
            self.segments.insert(index, left);
        }
        index + 1
    }

    /// Returns whether all bytes of `range` have been written since the allocation was handed out.
    pub fn is_written(&self, range: &Range<usize>) -> bool {
        let mut start = range.start;
        let overlaps = |segment: &&Segment| {
            let overlaps = start < range.end;
            start = segment.end;
            overlaps
        };
        let first = if range.is_empty() { self.segments.len() } else { self.first_of(range.start) };
        self.segments[first..].iter().take_while(overlaps).all(|segment| segment.written)
    }

    /// Declares `range` written, by a writer that the tracker does not see.
    pub fn set_written(&mut self, range: &Range<usize>) {
        self.declare(range, true);
    }

    /// Declares `range` unwritten: its bytes belong to an earlier use, and reading them before a new write is a
    /// mistake.
    pub fn set_unwritten(&mut self, range: &Range<usize>) {
        self.declare(range, false);
    }

    fn declare(&mut self, range: &Range<usize>, written: bool) {
        if range.is_empty() {
            return;
        }
        let first = self.split_at(range.start);
        let last = self.split_at(range.end);
        self.segments[first..last].iter_mut().for_each(|segment| segment.written = written);
    }

    /// Returns whether all uses are by `stream`. The answer is cheap: a history of several segments says no.
    #[inline]
    pub(crate) fn is_only(&self, stream: StreamId) -> bool {
        let [one] = self.segments.as_slice() else { return false };
        one.writers.iter().chain(&one.readers).all(|old| old.point.stream == stream)
    }

    /// Returns every use, in no order, and some more than once.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> impl Iterator<Item = &Use> {
        self.segments.iter().flat_map(|segment| segment.writers.iter().chain(&segment.readers))
    }

    /// Returns whether there are so many uses that it is time to [`prune`](Self::prune).
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.segments.len() > self.prune_above
            || matches!(self.segments.as_slice(), [one] if one.uses() > self.prune_above)
    }

    /// Forgets the uses for which `done` holds, and joins neighbouring segments that no longer differ.
    pub(crate) fn prune(&mut self, mut done: impl FnMut(Point) -> bool) {
        for segment in &mut self.segments {
            segment.writers.retain(|writer| !done(writer.point));
            segment.readers.retain(|reader| !done(reader.point));
        }
        self.segments.dedup_by(|right, left| {
            let same = left.is_idle() && right.is_idle() && left.written == right.written;
            if same {
                left.end = right.end;
            }
            same
        });
        // Twice the rest, so that a history that stays large is not searched again and again.
        self.prune_above = FEW.max(2 * self.segments.iter().map(|segment| 1 + segment.uses()).sum::<usize>());
    }

    /// Begins the history of a new allocation of `len` bytes, of which none is written. Accesses come after the `uses`
    /// that the memory's earlier owners left, as after those of the present owner. Reads come after earlier writes too:
    /// the bytes that a read finds are unspecified, but may not change during the read.
    #[inline]
    pub(crate) fn begin(&mut self, len: usize, uses: Option<Uses>) {
        if self.segments.len() > 1 {
            self.segments.truncate(1);
        }
        if let [whole] = self.segments.as_mut_slice() {
            (whole.end, whole.written) = (len, false);
            whole.readers.clear();
            match uses {
                Some(uses) => whole.writers = uses,
                None => whole.writers.clear(),
            }
        }
        self.prune_above = FEW;
    }

    /// Returns whether nothing has written any byte since the allocation was handed out.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.segments.iter().all(|segment| !segment.written)
    }

    /// Begins the next allocation, of `len` bytes, in memory whose last owner is gone. The history still covers all bytes
    /// that earlier owners had: a graph touches these in each launch.
    pub(crate) fn begin_again(&mut self, len: usize) {
        let len = len.max(self.segments.last().map_or(0, |last| last.end));
        let uses = self.end();
        self.begin(len, uses);
    }

    /// Ends the allocation, and returns the uses that the next owner of the memory must come after, if there are any.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<Uses> {
        // Lists are long, and moved only where there is something in them.
        if self.segments.iter().all(Segment::is_idle) { None } else { Some(self.end_used()) }
    }

    fn end_used(&mut self) -> Uses {
        let mut left = Uses::new();
        for segment in &mut self.segments {
            merge_uses(&mut left, std::mem::take(&mut segment.readers));
            segment.writers.drain(..).for_each(|writer| merge_use(&mut left, writer));
        }
        left.iter_mut().for_each(|old| old.recycled = true);
        left
    }
}

impl Segment {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as for a history")]
    fn insert(&mut self, mode: Mode, new: impl Fn() -> Use) {
        // The usual case: one stream at work.
        if mode == Mode::Write {
            self.written = true;
            if let Some(last) = only(&mut self.writers)
                && !self.readers.spilled()
                && self.readers.is_empty()
            {
                *last = new().with_mode(mode);
            } else {
                cold_path();
                self.replace_uses(new().with_mode(mode));
            }
        } else if let Some(last) = only(&mut self.readers)
            && last.point.stream == new().point.stream
        {
            *last = new();
        } else {
            cold_path();
            self.add_reader(new());
        }
    }

    /// Puts a write in the place of all uses. Apart from the usual case, whose code then lies close together.
    #[inline(never)]
    fn replace_uses(&mut self, write: Use) {
        self.writers.clear();
        self.writers.push(write);
        self.readers.clear();
    }

    #[inline(never)]
    fn add_reader(&mut self, read: Use) {
        merge_use(&mut self.readers, read);
    }

    #[inline]
    fn uses(&self) -> usize {
        self.writers.len() + self.readers.len()
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.uses() == 0
    }
}

/// Returns the use of a list of one. A list that has had several lies elsewhere, and is not looked at.
#[inline]
fn only(uses: &mut Uses) -> Option<&mut Use> {
    if uses.spilled() {
        return None;
    }
    if let [one] = uses.as_mut_slice() { Some(one) } else { None }
}

/// Adds the uses in `more` to `uses`, and keeps the latest of each stream.
#[inline]
pub(crate) fn merge_uses(uses: &mut Uses, more: Uses) {
    if uses.is_empty() {
        *uses = more;
    } else {
        more.into_iter().for_each(|new| merge_use(uses, new));
    }
}

/// Adds a use, and keeps one per stream: the latest, which comes after the stream's others.
#[inline]
fn merge_use(uses: &mut Uses, new: Use) {
    let same: Option<&mut Use> = uses.iter_mut().find(|old| same_stream(old, new.point.stream));
    match same {
        Some(old) => {
            let wrote = old.wrote.max(new.wrote);
            if old.point.number <= new.point.number {
                *old = new;
            }
            old.wrote = wrote;
        }
        None => uses.push(new),
    }
}

#[inline]
fn same_stream(old: &Use, stream: StreamId) -> bool {
    old.point.stream == stream
}
