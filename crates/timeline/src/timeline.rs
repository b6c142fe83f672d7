//! The records of a trace, kept in memory, each with its kind.

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
    /// Adds a record. A device, stream or thread that is known takes the new record's values.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Device(device) => put(&mut self.devices, device, |device| u64::from(device.id)),
            Record::Stream(stream) => put(&mut self.streams, stream, |stream| stream.id),
            Record::Thread(thread) => put(&mut self.threads, thread, |thread| thread.id),
            Record::Operation(operation) => self.operations.push(operation),
            Record::Span(span) => self.spans.push(span),
            Record::Instant(instant) => self.instants.push(instant),
            Record::Counter(counter) => self.counters.push(counter),
            Record::Lost(lost) => self.lost += lost,
        }
    }
}

impl Extend<Record> for Timeline {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.add(record));
    }
}

impl FromIterator<Record> for Timeline {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        let mut timeline = Self::default();
        timeline.extend(records);
        timeline
    }
}

fn put<T>(known: &mut Vec<T>, new: T, id: impl Fn(&T) -> u64) {
    match known.iter_mut().find(|one| id(one) == id(&new)) {
        Some(old) => *old = new,
        None => known.push(new),
    }
}
