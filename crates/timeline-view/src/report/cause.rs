//! What causes gaps.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::device::{Devices, Engine, is_most};
use super::thread::{Thread, Threads};
use crate::lookup::{Lookup, ran};
use gpustream_timeline::{Nanos, Operation, SourceLine, Timeline, WorkKind};

/// Why a device or a stream was idle between two operations: the reason that explains most of the gap.
///
/// The *next* operation is the one that ended the gap. It could not start before it was submitted, nor before
/// the operations that it waits for had ended. We look at whichever was later, if it explains at least half
/// of the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The next operation was submitted after the gap began, and none of the following explains what the host
    /// did meanwhile. If you cannot make the host faster, let it submit fewer and larger operations, or one
    /// graph.
    HostLate,
    /// The next operation was submitted late, because its thread was waiting for something. You may be able
    /// to submit first and wait later.
    HostWaited,
    /// The next operation was submitted late, because an allocation on its thread reached the driver. You may
    /// be able to allocate earlier, or to use the same memory again.
    Allocation,
    /// The next operation copies from or to memory that is not page-locked, or it was submitted late because
    /// its thread was inside the call of such a copy. Use pinned memory if you can.
    Pageable,
    /// The next operation waited for one on another stream, or for a host function on its own stream.
    Operation,
    /// An operation on the legacy default stream had to end first. Or the next operation is on that stream,
    /// and one on another stream had to end. You can avoid this gap by not using the legacy stream.
    Legacy,
    /// Everything was ready, but the engine was busy with operations of other streams.
    Engine,
    /// Everything was ready, but the device took its time. Launching costs some, and we may not see what
    /// happens inside a graph.
    Device,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HostLate => "the host came too late",
            Self::HostWaited => "the host waited",
            Self::Allocation => "an allocation reached the driver",
            Self::Pageable => "a pageable copy",
            Self::Operation => "waited for an operation",
            Self::Legacy => "the legacy stream",
            Self::Engine => "the engine was busy",
            Self::Device => "the device took its time",
        })
    }
}

/// The operation or call that caused a gap.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Culprit {
    /// The operation's label, or the call's name.
    pub label: Cow<'static, str>,
    /// The line.
    pub place: SourceLine,
    /// The stream's name, if this is an operation.
    pub stream: Option<String>,
}

impl Culprit {
    pub(crate) fn operation(operation: &Operation, lookup: &Lookup<'_>) -> Self {
        Self {
            label: operation.label.clone(),
            place: operation.place.clone(),
            stream: Some(lookup.stream_name(operation.point.stream)),
        }
    }
}

/// A cause, and which record is to blame.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) cause: Cause,
    pub(crate) blamed: Blamed,
}

/// The index of a record in the timeline's lists.
#[derive(Clone, Copy)]
pub(crate) enum Blamed {
    Nothing,
    Operation(usize),
    Span(usize),
}

impl Found {
    const fn new(cause: Cause, blamed: Blamed) -> Self {
        Self { cause, blamed }
    }

    pub(crate) fn culprit(self, timeline: &Timeline, lookup: &Lookup<'_>) -> Option<Culprit> {
        match self.blamed {
            Blamed::Nothing => None,
            Blamed::Operation(at) => Some(Culprit::operation(timeline.operations.get(at)?, lookup)),
            Blamed::Span(at) => {
                let span = timeline.spans.get(at)?;
                Some(Culprit { label: span.label.clone(), place: span.place.clone(), stream: None })
            }
        }
    }
}

/// Finds causes.
pub(crate) struct Causes<'a> {
    timeline: &'a Timeline,
    lookup: &'a Lookup<'a>,
    threads: &'a Threads,
    devices: &'a Devices,
    ends: HashMap<u32, Ends>,
}

/// When each operation of a device ended, and its index, sorted by time: those on its legacy stream, and the
/// others.
#[derive(Default)]
struct Ends {
    legacy: Vec<(Nanos, usize)>,
    others: Vec<(Nanos, usize)>,
}

impl<'a> Causes<'a> {
    pub(crate) fn new(
        timeline: &'a Timeline,
        lookup: &'a Lookup<'a>,
        threads: &'a Threads,
        devices: &'a Devices,
    ) -> Self {
        let mut ends: HashMap<u32, Ends> = HashMap::new();
        if timeline.streams.iter().any(|stream| stream.legacy) {
            for (at, operation) in timeline.operations.iter().enumerate() {
                let Some((stream, ran)) = lookup.stream(operation.point.stream).zip(ran(operation)) else {
                    continue;
                };
                let ends = ends.entry(stream.device).or_default();
                if stream.legacy { &mut ends.legacy } else { &mut ends.others }.push((ran.end, at));
            }
        }
        for ends in ends.values_mut() {
            ends.legacy.sort_unstable();
            ends.others.sort_unstable();
        }
        Self { timeline, lookup, threads, devices, ends }
    }

    /// Returns why nothing ran in `gap`, which the operation `next` ended. A cause must explain at least half
    /// of the gap; only the legacy stream may explain less.
    pub(crate) fn find(&self, gap: &Range<Nanos>, next: usize) -> Found {
        let device = Found::new(Cause::Device, Blamed::Nothing);
        let Some(operation) = self.timeline.operations.get(next) else { return device };
        let in_gap = |time: Nanos| time.clamp(gap.start, gap.end);
        if ran(operation).is_some_and(|ran| ran.start < gap.end) {
            // The operation was already running, so the gap is between its pieces.
            return device;
        }
        let waited_for = self.waited_for(next, operation);
        let done = in_gap(waited_for.map_or(0, |(end, _)| end));
        let mut submitted = in_gap(operation.submitted.end);
        if matches!(operation.work, WorkKind::Copy { pageable: true, .. }) {
            // The driver moves such a copy through its own memory, beginning when the call begins.
            submitted = in_gap(operation.submitted.start);
            if is_most(gap.end - done.max(submitted), gap) {
                return Found::new(Cause::Pageable, Blamed::Operation(next));
            }
        }
        if is_most(done.max(submitted) - gap.start, gap) {
            return match waited_for {
                Some((_, at)) if done >= submitted => Found::new(Cause::Operation, Blamed::Operation(at)),
                _ => self.late(operation, &(gap.start..submitted)),
            };
        }
        if let Some(at) = self.legacy(gap, operation) {
            return Found::new(Cause::Legacy, Blamed::Operation(at));
        }
        let engine = self.lookup.device_of(operation).zip(Engine::of(&operation.work));
        let busy = engine.and_then(|(device, engine)| {
            self.devices.kept_busy(device, engine, done.max(submitted), gap.end)
        });
        busy.map_or(device, |at| Found::new(Cause::Engine, Blamed::Operation(at)))
    }

    /// Returns end and index of the operation that ended last among those that `operation` waits for.
    fn waited_for(&self, at: usize, operation: &Operation) -> Option<(Nanos, usize)> {
        let after = operation.after.iter().filter_map(|point| self.lookup.operation(*point));
        let all = after.chain(self.lookup.before(at));
        all.filter_map(|at| Some((ran(self.timeline.operations.get(at)?)?.end, at))).max()
    }

    /// Returns why the host submitted an operation only at the end of `late`.
    fn late(&self, operation: &Operation, late: &Range<Nanos>) -> Found {
        let host = Found::new(Cause::HostLate, Blamed::Nothing);
        let Some(thread) = self.threads.get(operation.thread) else { return host };
        let Thread { waits, allocations, pageable, .. } = thread;
        let causes =
            [(Cause::HostWaited, waits), (Cause::Allocation, allocations), (Cause::Pageable, pageable)];
        let longest = causes.into_iter().max_by_key(|(_, times)| times.set.within(late));
        match longest {
            Some((cause, times)) if is_most(times.set.within(late), late) => {
                let blamed = times.last_before(late.end).map_or(Blamed::Nothing, |at| match cause {
                    Cause::Pageable => Blamed::Operation(at),
                    _ => Blamed::Span(at),
                });
                Found::new(cause, blamed)
            }
            _ => host,
        }
    }

    /// Returns the last operation that ended in the gap and that had to come before `operation` because of
    /// the legacy stream's rule.
    fn legacy(&self, gap: &Range<Nanos>, operation: &Operation) -> Option<usize> {
        let stream = self.lookup.stream(operation.point.stream)?;
        let ends = self.ends.get(&stream.device)?;
        let ends = if stream.legacy { &ends.others } else { &ends.legacy };
        let at = ends.partition_point(|&(end, _)| end <= gap.end);
        let (end, found) = *ends.get(at.checked_sub(1)?)?;
        let earlier = self.timeline.operations.get(found)?.submitted.end <= operation.submitted.end;
        (end > gap.start && earlier).then_some(found)
    }
}
