//! A trace in memory, with a list for each kind of record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{Counter, Device, Instant, Operation, Record, Span, Stream, Thread};

/// A trace in memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timeline {
    /// The devices.
    pub devices: Vec<Device>,
    /// The streams, ordered by their first use.
    pub streams: Vec<Stream>,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The operations. They are not sorted by time: an operation is added when we learn of it.
    pub operations: Vec<Operation>,
    /// Waits and other times of threads.
    pub spans: Vec<Span>,
    /// Moments on threads.
    pub instants: Vec<Instant>,
    /// The values of counters.
    pub counters: Vec<Counter>,
    /// How many records were lost, because they came faster than they could be kept.
    pub lost: u64,
}

impl Timeline {
    /// Adds a record. If the timeline already has this device, stream or thread, it takes the new values.
    ///
    /// The call must search for it, so if you add many records, use [`extend`](Self::extend), which searches
    /// once.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Device(device) => put(&mut self.devices, device, |device, one| device.id == one.id),
            Record::Stream(stream) => put(&mut self.streams, stream, |stream, one| stream.id == one.id),
            Record::Thread(thread) => put(&mut self.threads, thread, |thread, one| thread.id == one.id),
            other => self.push(other),
        }
    }

    /// Appends a record to the list of its kind.
    fn push(&mut self, record: Record) {
        match record {
            Record::Device(device) => self.devices.push(device),
            Record::Stream(stream) => self.streams.push(stream),
            Record::Thread(thread) => self.threads.push(thread),
            Record::Operation(operation) => self.operations.push(operation),
            Record::Span(span) => self.spans.push(span),
            Record::Instant(instant) => self.instants.push(instant),
            Record::Counter(counter) => self.counters.push(counter),
            Record::Lost(lost) => self.lost = self.lost.saturating_add(lost),
        }
    }
}

/// Where a timeline's devices, streams and threads are in its lists. It makes adding many of them fast.
#[derive(Default)]
struct Index {
    devices: HashMap<u32, usize>,
    streams: HashMap<u64, usize>,
    threads: HashMap<u64, usize>,
}

impl Index {
    fn of(timeline: &Timeline) -> Self {
        let mut known = Self::default();
        // If several have the same number, we use the first.
        for (at, one) in timeline.devices.iter().enumerate() {
            known.devices.entry(one.id).or_insert(at);
        }
        for (at, one) in timeline.streams.iter().enumerate() {
            known.streams.entry(one.id).or_insert(at);
        }
        for (at, one) in timeline.threads.iter().enumerate() {
            known.threads.entry(one.id).or_insert(at);
        }
        known
    }

    /// Adds a record to the timeline that this is an index of.
    fn add(&mut self, timeline: &mut Timeline, record: Record) {
        match record {
            Record::Device(one) => put_at(self.devices.entry(one.id), &mut timeline.devices, one),
            Record::Stream(one) => put_at(self.streams.entry(one.id), &mut timeline.streams, one),
            Record::Thread(one) => put_at(self.threads.entry(one.id), &mut timeline.threads, one),
            other => timeline.push(other),
        }
    }
}

impl Extend<Record> for Timeline {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        let mut known = Index::of(self);
        records.into_iter().for_each(|record| known.add(self, record));
    }
}

impl FromIterator<Record> for Timeline {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        let mut timeline = Self::default();
        timeline.extend(records);
        timeline
    }
}

fn put<T>(known: &mut Vec<T>, new: T, is_same: impl Fn(&T, &T) -> bool) {
    match known.iter_mut().find(|one| is_same(one, &new)) {
        Some(old) => *old = new,
        None => known.push(new),
    }
}

/// Replaces the record with the same number, or appends a new one.
fn put_at<T, K>(place: Entry<'_, K, usize>, all: &mut Vec<T>, new: T) {
    let at = *place.or_insert(all.len());
    match all.get_mut(at) {
        Some(old) => *old = new,
        None => all.push(new),
    }
}
