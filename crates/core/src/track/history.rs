//! Which operations used which bytes of one allocation.

use std::cell::Cell;
use std::ops::Range;

use gpustream_hal::CallSite;
use gpustream_hal::cold_path::cold_path;
use smallvec::SmallVec;

use super::{Point, StreamId};

/// How an operation touches a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads. Conflicts with earlier writes.
    Read,
    /// Writes, and perhaps reads. Conflicts with every earlier use.
    Write,
    /// Touches memory that several operations may touch at once, such as a flag. Conflicts with no earlier use, but keeps
    /// the memory alive.
    Shared,
}

/// One use of a range: its point, and the call that made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) point: Point,
    pub(crate) call_site: CallSite,
    /// True if an earlier owner of the memory made this use. You cannot know of it, so we wait for it even if you order
    /// operations yourself.
    pub(crate) recycled: bool,
    /// The last submission of the stream, up to `point`, that wrote; 0 if none did. A read only has to wait for that one.
    wrote: u64,
}

impl Use {
    /// Makes a use by `call_site`. The history adds whether it writes.
    #[inline]
    pub(crate) fn new(point: Point, call_site: CallSite) -> Self {
        Self { point, call_site, recycled: false, wrote: 0 }
    }

    /// Creates a write that an earlier owner made.
    #[cfg(test)]
    pub(crate) fn of_earlier_owner(point: Point, call_site: CallSite) -> Self {
        Self { point, call_site, recycled: true, wrote: point.number }
    }

    #[inline]
    fn with_mode(self, mode: Mode) -> Self {
        if mode == Mode::Write { Self { wrote: self.point.number, ..self } } else { self }
    }
}

/// A list of uses, at most one per stream. There is room for one inside, so that a history fits into few cache lines. A
/// second one needs memory of its own, and the list keeps that memory for later.
pub(crate) type Uses = SmallVec<[Use; 1]>;

/// A range of bytes that all have the same uses.
#[derive(Clone, Debug)]
struct Segment {
    end: usize,
    /// True if anything has written these bytes since we handed out the allocation.
    written: bool,
    /// The last writer. Until something writes, the uses of earlier owners.
    writers: Uses,
    /// Who has read since `writers`, one use per stream.
    readers: Uses,
}

/// For each byte of an allocation, the last writer and the readers since.
///
/// Segments are sorted and cover `0..len` without gaps. If you always use a buffer as a whole, it has one segment.
#[derive(Clone, Debug)]
pub struct History {
    segments: SmallVec<[Segment; 1]>,
    /// Pruning is worth a try once there are more uses than this.
    prune_above: usize,
    /// Where the last search ended. Programs often go through a buffer piece by piece, so the next one ends near there.
    near: Cell<usize>,
}

/// We do not prune if there are at most this many uses.
const FEW: usize = 64;

impl History {
    /// Creates a history without uses, for an allocation of `len` bytes.
    pub(crate) fn new(len: usize, written: bool) -> Self {
        let whole = Segment { end: len, written, writers: Uses::new(), readers: Uses::new() };
        Self { segments: SmallVec::from_buf([whole]), prune_above: FEW, near: Cell::new(0) }
    }

    /// Calls `conflict` with every earlier use that must come before an access.
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

    /// Adds the use that `new` makes. A write replaces the earlier uses, because it comes after them and later accesses come
    /// after it. Returns true if there may be more segments now.
    ///
    /// We make the use in the place where it stays. If we built it elsewhere in parts and then copied it whole, the
    /// processor would have to wait until the parts are in the cache.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a tenth of a launch's instructions")]
    pub(crate) fn insert(&mut self, range: &Range<usize>, mode: Mode, new: impl Fn() -> Use) -> bool {
        // The usual case: there is one segment, and the access uses all of it.
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

    /// Like [`insert`](Self::insert). Returns true if the use covers all the memory. Then the history has one segment.
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
            // One segment replaces all those that the write covers.
            let writers = Uses::from_slice(&[new.with_mode(mode)]);
            let merged = Segment { end: range.end, written: true, writers, readers: Uses::new() };
            self.segments.drain(first + 1..last);
            self.segments[first] = merged;
        } else {
            self.segments[first..last].iter_mut().for_each(|segment| segment.insert(mode, || new));
        }
    }

    /// Returns the index of the segment with the byte at `at`.
    #[inline]
    fn first_of(&self, at: usize) -> usize {
        if self.segments.len() == 1 { 0 } else { self.first_up_to(at + 1) }
    }

    /// Returns the index of the first segment that goes at least up to `end`.
    fn first_up_to(&self, end: usize) -> usize {
        let is_before = |segment: &Segment| segment.end < end;
        let is_first = |index: usize| {
            let before = index.checked_sub(1).and_then(|before| self.segments.get(before));
            before.is_none_or(is_before)
                && self.segments.get(index).is_some_and(|segment| !is_before(segment))
        };
        let near = self.near.get();
        let index = (near..near + 3).find(|index| is_first(*index));
        let index = index.unwrap_or_else(|| self.segments.partition_point(is_before));
        self.near.set(index);
        index
    }

    /// Makes `at` a boundary, and returns the index of the segment that starts there.
    fn split_at(&mut self, at: usize) -> usize {
        if at == 0 {
            return 0;
        }
        let index = self.first_up_to(at);
        if self.segments[index].end != at {
            let mut left = self.segments[index].clone();
            left.end = at;
            self.segments.insert(index, left);
        }
        index + 1
    }

    /// Returns true if all bytes of `range` have been written since we handed out the allocation.
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

    /// Declares `range` written, for a writer that the tracker cannot see.
    pub fn set_written(&mut self, range: &Range<usize>) {
        self.declare(range, true);
    }

    /// Declares `range` unwritten, because its bytes are left over from an earlier use. It is a mistake to read them before
    /// a new write.
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

    /// Returns true if all uses are by `stream`. To be cheap, it may say no although they are, namely if there are several
    /// segments.
    #[inline]
    pub(crate) fn is_only(&self, stream: StreamId) -> bool {
        let [one] = self.segments.as_slice() else { return false };
        one.writers.iter().chain(&one.readers).all(|old| old.point.stream == stream)
    }

    /// Returns every use, in any order. It may return some more than once.
    #[cfg(test)]
    pub(crate) fn uses(&self) -> impl Iterator<Item = &Use> {
        self.segments.iter().flat_map(|segment| segment.writers.iter().chain(&segment.readers))
    }

    /// Returns true if there are so many uses that you should [`prune`](Self::prune).
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.segments.len() > self.prune_above
            || matches!(self.segments.as_slice(), [one] if one.uses() > self.prune_above)
    }

    /// Forgets the uses that are `done`, and joins neighbouring segments that no longer differ.
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
        // Twice what is left, so that we do not search a history that stays large again and again.
        self.prune_above = FEW.max(2 * self.segments.iter().map(|segment| 1 + segment.uses()).sum::<usize>());
    }

    /// Begins the history of a new allocation of `len` bytes, all of them unwritten. Accesses come after the `uses` that
    /// earlier owners of the memory left, just as after the present owner's. Even reads come after earlier writes: it is
    /// unspecified which bytes a read finds, but they must not change during the read.
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

    /// Returns true if nothing has written any byte since we handed out the allocation.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.segments.iter().all(|segment| !segment.written)
    }

    /// Begins the next allocation, of `len` bytes, in memory whose last owner is gone. The history still covers all bytes
    /// that earlier owners had, because a graph touches them in each launch.
    pub(crate) fn begin_again(&mut self, len: usize) {
        let len = len.max(self.segments.last().map_or(0, |last| last.end));
        let uses = self.end();
        self.begin(len, uses);
    }

    /// Ends the allocation, and returns the uses that the memory's next owner must come after, if there are any.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<Uses> {
        // Lists are long, so we only move one if it has something in it.
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
        // The usual case: only one stream works here.
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

    /// Replaces all uses with a write. This is a separate function so that the code of the usual case lies close together.
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

/// Returns the only use in a list. If the list has ever had several, they lie elsewhere, and we do not look there.
#[inline]
fn only(uses: &mut Uses) -> Option<&mut Use> {
    if uses.spilled() {
        return None;
    }
    if let [one] = uses.as_mut_slice() { Some(one) } else { None }
}

/// Adds the uses in `more` to `uses`, and keeps only the latest of each stream.
#[inline]
pub(crate) fn merge_uses(uses: &mut Uses, more: Uses) {
    if uses.is_empty() {
        *uses = more;
    } else {
        more.into_iter().for_each(|new| merge_use(uses, new));
    }
}

/// Adds a use. We keep one per stream, the latest, because it comes after the stream's others.
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
