//! The records of a trace, kept in memory, each with its kind.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::{Counter, Device, Instant, Operation, Record, Span, Stream, Thread};

/// A trace in memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timeline {
    /// The devices.
    pub devices: Vec<Device>,
    /// The streams, in the order in which they were first used.
    pub streams: Vec<Stream>,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The operations, in the order in which they became known.
    pub operations: Vec<Operation>,
    /// Waits and other stretches of time of threads.
    pub spans: Vec<Span>,
    /// Moments of threads.
    pub instants: Vec<Instant>,
    /// The values of counters.
    pub counters: Vec<Counter>,
    /// The number of records that were lost.
    pub lost: u64,
}

impl Timeline {
    /// Adds a record. A device, stream or thread that is known takes the new record's values; this looks for it among all of
    /// them. [`extend`](Self::extend) takes many records, and no longer for each.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Device(device) => put(&mut self.devices, device, |device, one| device.id == one.id),
            Record::Stream(stream) => put(&mut self.streams, stream, |stream, one| stream.id == one.id),
            Record::Thread(thread) => put(&mut self.threads, thread, |thread, one| thread.id == one.id),
            other => self.push(other),
        }
    }

    /// Adds a record behind those of its kind.
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

/// The places of a timeline's devices, streams and threads, for one that grows by many of them.
#[derive(Default)]
struct Index {
    devices: HashMap<u32, usize>,
    streams: HashMap<u64, usize>,
    threads: HashMap<u64, usize>,
}

impl Index {
    fn of(timeline: &Timeline) -> Self {
        let mut known = Self::default();
        // The first of several with one number is the one that is found.
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

    /// Adds a record to the timeline whose places these are.
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

/// Puts a record at the place of the one with its number, or behind the others.
fn put_at<T, K>(place: Entry<'_, K, usize>, all: &mut Vec<T>, new: T) {
    let at = *place.or_insert(all.len());
    match all.get_mut(at) {
        Some(old) => *old = new,
        None => all.push(new),
    }
}
