//! Host threads: how long they submitted, waited and allocated.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::intervals::Intervals;
use crate::lookup::{Lookup, around, ran};
use gpustream_timeline::{Nanos, SpanKind, Timeline, WorkKind};

/// What a thread did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadReport {
    /// The thread's number.
    pub id: u64,
    /// The thread's name.
    pub name: String,
    /// How many operations the thread submitted.
    pub operations: u64,
    /// The time inside the calls that submitted them.
    pub submitting: Nanos,
    /// How long the thread waited for something to be done, and could do nothing else.
    pub waiting: Nanos,
    /// The time of allocations that reached the driver.
    pub allocating: Nanos,
    /// The time from the first to the last thing on the thread, minus `waiting`.
    pub busy: Nanos,
}

/// The times of one kind on a thread, and the records that they belong to.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) set: Intervals,
    /// Start, end, and index in the timeline's list, sorted by start.
    pub(crate) records: Vec<(Nanos, Nanos, usize)>,
}

impl Times {
    fn add(&mut self, time: &Range<Nanos>, record: usize) {
        self.records.push((time.start, time.end, record));
    }

    fn close(&mut self) {
        self.records.sort_unstable();
        self.set = self.records.iter().map(|&(start, end, _)| start..end).collect();
    }

    /// Returns the last record that begins before `time`.
    pub(crate) fn last_before(&self, time: Nanos) -> Option<usize> {
        let at = self.records.partition_point(|&(start, ..)| start < time);
        self.records.get(at.checked_sub(1)?).map(|&(.., record)| record)
    }
}

#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) waits: Times,
    pub(crate) allocations: Times,
    pub(crate) submissions: Times,
    /// Submissions of copies from or to memory that is not page-locked.
    pub(crate) pageable: Times,
    /// From the first to the last thing; `None` if there is nothing yet.
    extent: Option<Range<Nanos>>,
}

impl Thread {
    /// Returns when the first thing began.
    pub(crate) fn start(&self) -> Nanos {
        self.extent.as_ref().map_or(0, |extent| extent.start)
    }

    /// Records that something happened at this time.
    fn reach(&mut self, time: &Range<Nanos>) {
        let extent = self.extent.take().into_iter().chain([time.clone()]);
        self.extent = extent.reduce(around);
    }

    /// Returns the times between the first and the last thing while the thread did not wait.
    fn busy(&self) -> impl Iterator<Item = Range<Nanos>> {
        self.extent.iter().flat_map(|extent| self.waits.set.complement(extent.clone()))
    }
}

pub(crate) struct Threads(BTreeMap<u64, Thread>);

impl Threads {
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let mut threads: BTreeMap<u64, Thread> = BTreeMap::new();
        for (at, operation) in timeline.operations.iter().enumerate() {
            let time = &operation.submitted;
            let thread = threads.entry(operation.thread).or_default();
            thread.reach(time);
            thread.submissions.add(time, at);
            if matches!(operation.work, WorkKind::Copy { pageable: true, .. }) {
                thread.pageable.add(time, at);
            }
        }
        for (at, span) in timeline.spans.iter().enumerate() {
            let thread = threads.entry(span.thread).or_default();
            thread.reach(&span.time);
            match span.kind {
                SpanKind::Wait(_) => thread.waits.add(&span.time, at),
                SpanKind::Allocation { .. } => thread.allocations.add(&span.time, at),
                _ => {}
            }
        }
        for instant in &timeline.instants {
            threads.entry(instant.thread).or_default().reach(&(instant.time..instant.time));
        }
        for thread in threads.values_mut() {
            for times in
                [&mut thread.waits, &mut thread.allocations, &mut thread.submissions, &mut thread.pageable]
            {
                times.close();
            }
        }
        Self(threads)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Thread> {
        self.0.get(&id)
    }

    /// Returns when at least one thread was busy or a host function ran.
    pub(crate) fn busy(&self, timeline: &Timeline) -> Intervals {
        let functions = timeline.operations.iter().filter(|operation| operation.work == WorkKind::Host);
        let threads = self.0.values().flat_map(Thread::busy);
        threads.chain(functions.filter_map(ran)).collect()
    }

    pub(crate) fn reports(&self, lookup: &Lookup<'_>) -> Vec<ThreadReport> {
        let report = |(&id, thread): (&u64, &Thread)| ThreadReport {
            id,
            name: lookup.thread_name(id),
            operations: thread.submissions.records.len() as u64,
            submitting: thread.submissions.set.length(),
            waiting: thread.waits.set.length(),
            allocating: thread.allocations.set.length(),
            busy: thread.busy().map(|range| range.end - range.start).sum(),
        };
        self.0.iter().map(report).collect()
    }
}
