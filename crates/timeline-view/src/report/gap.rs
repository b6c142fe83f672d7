//! Streams, and the gaps of streams and devices. A stream's gap may be harmless, because other streams can
//! use the device meanwhile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::cause::{Cause, Causes, Culprit, Found};
use super::device::{CauseReport, Devices};
use super::thread::Threads;
use crate::intervals::Intervals;
use crate::lookup::{Lookup, ran};
use gpustream_timeline::{Nanos, Timeline};

/// How many gaps a report lists for each device and each stream.
const LONGEST: usize = 5;

/// A time between two operations while a device or stream was idle.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gap {
    /// Which device or stream was idle.
    pub of: GapOf,
    /// Its name.
    pub name: String,
    /// When, on the timeline's axis.
    pub time: Range<Nanos>,
    /// The operation that ended the gap.
    pub next: Culprit,
    /// The cause that explains most of the gap.
    pub cause: Cause,
    /// The operation or call that is to blame, if we know it. Begin with its source line if you want to close
    /// the gap.
    pub culprit: Option<Culprit>,
}

/// A device or a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GapOf {
    /// The device with this number. Host functions do not keep a device busy.
    Device(u32),
    /// The stream with this number.
    Stream(u64),
}

/// What a stream did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamReport {
    /// The stream's number.
    pub id: u64,
    /// The stream's name.
    pub name: String,
    /// The device's number, if the timeline has the stream.
    pub device: Option<u32>,
    /// How many operations it had.
    pub operations: u64,
    /// How long some operation of the stream ran, including waits for flags and host functions.
    pub busy: Nanos,
    /// The rest of [`Report::total`](crate::Report::total).
    pub idle: Nanos,
}

pub(crate) fn streams(timeline: &Timeline, lookup: &Lookup<'_>, total: Nanos) -> Vec<StreamReport> {
    let mut found: HashMap<u64, (u64, Vec<Range<Nanos>>)> = HashMap::new();
    for operation in &timeline.operations {
        let (operations, times) = found.entry(operation.point.stream).or_default();
        *operations += 1;
        times.extend(ran(operation));
    }
    let report = |id| {
        let (operations, times) = found.remove(&id).unwrap_or_default();
        let busy = times.into_iter().collect::<Intervals>().length();
        StreamReport {
            id,
            name: lookup.stream_name(id),
            device: lookup.stream(id).map(|stream| stream.device),
            operations,
            busy,
            idle: total.saturating_sub(busy),
        }
    };
    lookup.stream_ids().into_iter().map(report).collect()
}

pub(crate) struct Gaps {
    longest: Vec<Gap>,
    causes: BTreeMap<u32, BTreeMap<Cause, (u64, Nanos)>>,
}

impl Gaps {
    pub(crate) fn new(
        timeline: &Timeline,
        lookup: &Lookup<'_>,
        threads: &Threads,
        devices: &Devices,
    ) -> Self {
        let search = Causes::new(timeline, lookup, threads, devices);
        let (mut longest, mut causes) = (Vec::new(), BTreeMap::<u32, BTreeMap<_, (u64, Nanos)>>::new());
        let keep = |of, name: &str, mut gaps: Vec<(Range<Nanos>, usize, Found)>, into: &mut Vec<Gap>| {
            gaps.sort_by_key(|(time, ..)| (Reverse(time.end - time.start), time.start));
            into.extend(gaps.into_iter().take(LONGEST).filter_map(|(time, next, found)| {
                let next = Culprit::operation(timeline.operations.get(next)?, lookup);
                let culprit = found.culprit(timeline, lookup);
                Some(Gap { of, name: name.to_owned(), time, next, cause: found.cause, culprit })
            }));
        };
        for (id, name, device) in devices.each() {
            let gaps = gaps(&device.busy, &device.starts, &search);
            for (time, _, found) in &gaps {
                let (count, sum) = causes.entry(id).or_default().entry(found.cause).or_default();
                *count += 1;
                *sum += time.end - time.start;
            }
            keep(GapOf::Device(id), name, gaps, &mut longest);
        }
        let mut starts: HashMap<u64, Vec<(Nanos, usize)>> = HashMap::new();
        for (at, operation) in timeline.operations.iter().enumerate() {
            if let Some(ran) = ran(operation) {
                starts.entry(operation.point.stream).or_default().push((ran.start, at));
            }
        }
        for id in lookup.stream_ids() {
            let Some(mut starts) = starts.remove(&id) else { continue };
            starts.sort_unstable();
            let busy =
                starts.iter().filter_map(|&(_, at)| timeline.operations.get(at).and_then(ran)).collect();
            keep(GapOf::Stream(id), &lookup.stream_name(id), gaps(&busy, &starts, &search), &mut longest);
        }
        Self { longest, causes }
    }

    pub(crate) fn causes(&self, device: u32) -> Vec<CauseReport> {
        let causes = self.causes.get(&device).into_iter().flatten();
        let mut causes: Vec<_> =
            causes.map(|(&cause, &(gaps, time))| CauseReport { cause, gaps, time }).collect();
        causes.sort_by_key(|cause| (Reverse(cause.time), cause.cause));
        causes
    }

    pub(crate) fn longest(self) -> Vec<Gap> {
        self.longest
    }
}

/// Returns the times between the intervals of `busy`, each with the operation that ended it and the cause.
fn gaps(
    busy: &Intervals,
    starts: &[(Nanos, usize)],
    search: &Causes<'_>,
) -> Vec<(Range<Nanos>, usize, Found)> {
    let pairs = busy.ranges().iter().zip(busy.ranges().iter().skip(1));
    let gaps = pairs.map(|(before, next)| before.end..next.start);
    gaps.filter_map(|gap| {
        let at = starts.partition_point(|&(start, _)| start < gap.end);
        let &(_, next) = starts.get(at)?;
        let found = search.find(&gap, next);
        Some((gap, next, found))
    })
    .collect()
}
