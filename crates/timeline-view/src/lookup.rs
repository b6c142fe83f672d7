//! Finds records by number.

use std::collections::HashMap;
use std::ops::Range;

use gpustream_timeline::{Device, Nanos, Operation, Point, Stream, Timeline, WorkKind};

/// The order of the operations on each stream, and names for what records refer to by number.
pub(crate) struct Lookup<'a> {
    timeline: &'a Timeline,
    devices: HashMap<u64, usize>,
    streams: HashMap<u64, usize>,
    threads: HashMap<u64, usize>,
    orders: HashMap<u64, Vec<StreamPosition>>,
}

/// Where an operation is in its stream's order.
struct StreamPosition {
    number: u64,
    operation: usize,
    /// This operation, or if its time is unknown, the last one before it whose time is known.
    timed: Option<usize>,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(timeline: &'a Timeline) -> Self {
        let mut orders: HashMap<u64, Vec<StreamPosition>> = HashMap::new();
        for (at, operation) in timeline.operations.iter().enumerate() {
            let entry = StreamPosition { number: operation.point.number, operation: at, timed: None };
            orders.entry(operation.point.stream).or_default().push(entry);
        }
        for order in orders.values_mut() {
            order.sort_unstable_by_key(|entry| (entry.number, entry.operation));
            let mut timed = None;
            for entry in order {
                if timeline.operations.get(entry.operation).is_some_and(|found| ran(found).is_some()) {
                    timed = Some(entry.operation);
                }
                entry.timed = timed;
            }
        }
        Self {
            devices: positions(&timeline.devices, |device| device.id.into()),
            streams: positions(&timeline.streams, |stream| stream.id),
            threads: positions(&timeline.threads, |thread| thread.id),
            timeline,
            orders,
        }
    }

    /// Returns the operation that a point stands for: the last one up to it whose time is known. A point may
    /// have a number that the trace does not have, because records can be lost.
    pub(crate) fn operation(&self, point: Point) -> Option<usize> {
        let order = self.orders.get(&point.stream)?;
        let at = order.partition_point(|entry| entry.number <= point.number);
        order.get(at.checked_sub(1)?)?.timed
    }

    /// Returns the last operation before this one on its stream whose time is known.
    pub(crate) fn before(&self, at: usize) -> Option<usize> {
        let point = self.timeline.operations.get(at)?.point;
        let order = self.orders.get(&point.stream)?;
        let place = order.partition_point(|entry| (entry.number, entry.operation) < (point.number, at));
        order.get(place.checked_sub(1)?)?.timed
    }

    pub(crate) fn stream(&self, id: u64) -> Option<&'a Stream> {
        self.timeline.streams.get(*self.streams.get(&id)?)
    }

    /// Returns the device that an operation ran on, if the stream is known.
    pub(crate) fn device_of(&self, operation: &Operation) -> Option<u32> {
        self.stream(operation.point.stream).map(|stream| stream.device)
    }

    /// Returns the stream's name. If a truncated file lacks the stream, makes a name from its number.
    pub(crate) fn stream_name(&self, id: u64) -> String {
        self.stream(id).map_or_else(|| format!("stream {id}"), |stream| stream.name.clone())
    }

    /// Returns a device's index in the timeline.
    pub(crate) fn device_place(&self, id: u32) -> Option<usize> {
        self.devices.get(&id.into()).copied()
    }

    pub(crate) fn device(&self, id: u32) -> Option<&'a Device> {
        self.timeline.devices.get(self.device_place(id)?)
    }

    /// Returns a thread's index in the timeline.
    pub(crate) fn thread_place(&self, id: u64) -> Option<usize> {
        self.threads.get(&id).copied()
    }

    pub(crate) fn thread_name(&self, id: u64) -> String {
        let thread = self.thread_place(id).and_then(|at| self.timeline.threads.get(at));
        thread.map_or_else(|| format!("thread {id}"), |thread| thread.name.clone())
    }

    /// Returns the streams, sorted by device and number. Those that only operations mention come last.
    pub(crate) fn stream_ids(&self) -> Vec<u64> {
        let listed = self.timeline.streams.iter().map(|stream| stream.id);
        let others = self.orders.keys().copied().filter(|id| self.stream(*id).is_none());
        let mut ids: Vec<_> = listed.chain(others).collect();
        let device = |id: u64| self.stream(id).and_then(|stream| self.device_place(stream.device));
        ids.sort_by_key(|&id| (device(id).unwrap_or(usize::MAX), id));
        ids
    }
}

/// Returns the index of each record by its number.
fn positions<T>(all: &[T], id: impl Fn(&T) -> u64) -> HashMap<u64, usize> {
    all.iter().enumerate().map(|(at, one)| (id(one), at)).collect()
}

/// Returns when an operation ran, if that is known and does not run backwards. A damaged file may claim that
/// an operation ended before it began; we treat that as unknown.
pub(crate) fn ran(operation: &Operation) -> Option<Range<Nanos>> {
    operation.ran.clone().filter(|ran| ran.start <= ran.end)
}

/// Returns true if we should look at the pieces of an operation instead of the operation, because it has some
/// and consists of nothing else. A graph, for example, keeps the device busy only while one of its nodes
/// runs.
pub(crate) fn is_its_pieces(operation: &Operation) -> bool {
    let of_parts = matches!(
        operation.work,
        WorkKind::Graph { .. } | WorkKind::Step { .. } | WorkKind::External | WorkKind::Other
    );
    of_parts && !operation.pieces.is_empty()
}

/// Returns the shortest interval that contains both.
pub(crate) fn around(one: Range<Nanos>, other: Range<Nanos>) -> Range<Nanos> {
    one.start.min(other.start)..one.end.max(other.end)
}

/// Returns the time from the first to the last thing in the timeline: operations, spans and instants.
pub(crate) fn extent(timeline: &Timeline) -> Range<Nanos> {
    let operations = timeline.operations.iter().flat_map(|operation| {
        let pieces = operation.pieces.iter().map(|piece| piece.ran.clone());
        std::iter::once(operation.submitted.clone()).chain(ran(operation)).chain(pieces)
    });
    let spans = timeline.spans.iter().map(|span| span.time.clone());
    let instants = timeline.instants.iter().map(|instant| instant.time..instant.time);
    let all = operations.chain(spans).chain(instants);
    all.reduce(around).unwrap_or(0..0)
}
