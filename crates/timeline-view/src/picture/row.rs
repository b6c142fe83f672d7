//! The rows of a picture: streams, threads and counters, and the slices in them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::kind::Kind;
use crate::lookup::{Lookup, ran};
use gpustream_timeline::{Counter, Nanos, Timeline};

/// How many lanes a row may have. If more slices overlap, they must share the last lane, and you can only see
/// the topmost.
const LANES: usize = 8;

pub(super) struct Row<'a> {
    pub(super) name: String,
    pub(super) group: Group,
    /// The slices, sorted by start.
    pub(super) slices: Vec<Slice<'a>>,
    pub(super) lanes: usize,
    /// The instants' indices in the timeline, sorted by time.
    pub(super) instants: Vec<usize>,
    /// The values of a counter, sorted by time.
    pub(super) values: Vec<(Nanos, u64)>,
    /// The stream's number, for arrows.
    pub(super) stream: Option<u64>,
}

/// Rows with a common heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Group {
    /// Streams and counters of a device.
    Device(u32),
    /// Streams whose device is unknown.
    Unknown,
    /// Threads.
    Host,
}

/// A time range in a row.
pub(super) struct Slice<'a> {
    pub(super) time: Range<Nanos>,
    pub(super) lane: usize,
    pub(super) kind: Kind,
    pub(super) label: &'a str,
    pub(super) source: Source,
}

/// The record that a slice shows, by its index in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Operation(usize),
    Piece(usize, usize),
    Submission(usize),
    Span(usize),
}

impl<'a> Slice<'a> {
    /// Makes a slice that does not end before it begins.
    fn new(time: &Range<Nanos>, kind: Kind, label: &'a str, source: Source) -> Self {
        Self { time: time.start..time.end.max(time.start), lane: 0, kind, label, source }
    }
}

impl<'a> Row<'a> {
    fn new(name: String, group: Group) -> Self {
        Row { name, group, slices: vec![], lanes: 0, instants: vec![], values: vec![], stream: None }
    }

    /// Shifts all times so that `origin` becomes 0.
    pub(super) fn begin_at(&mut self, origin: Nanos) {
        let shift = |time: &mut Nanos| *time = time.saturating_sub(origin);
        self.values.iter_mut().for_each(|(time, _)| shift(time));
        for slice in &mut self.slices {
            shift(&mut slice.time.start);
            shift(&mut slice.time.end);
        }
    }

    fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.instants.is_empty() && self.values.is_empty()
    }

    /// Adds slices in their own lanes, below the existing ones. An overlap of up to `tolerance` does not
    /// count.
    fn stack(&mut self, mut slices: Vec<Slice<'a>>, tolerance: Nanos) {
        // Longer ones come first, so that nested slices are below the one around them.
        slices.sort_by_key(|slice| (slice.time.start, Reverse(slice.time.end)));
        let mut ends: Vec<Nanos> = Vec::new();
        for slice in &mut slices {
            let start = slice.time.start.saturating_add(tolerance);
            let free = ends.iter().position(|&end| end <= start);
            let lane = free.unwrap_or(ends.len().min(LANES - 1));
            match ends.get_mut(lane) {
                Some(end) => *end = (*end).max(slice.time.end),
                None => ends.push(slice.time.end),
            }
            slice.lane = self.lanes + lane;
        }
        self.lanes += ends.len();
        self.slices.append(&mut slices);
    }
}

/// Returns the rows that are not empty: for each device its streams and counters, then the threads.
pub(super) fn rows<'a>(timeline: &'a Timeline, lookup: &Lookup<'_>) -> Vec<Row<'a>> {
    let mut rows = streams(timeline, lookup);
    rows.append(&mut counters(timeline));
    rows.append(&mut threads(timeline, lookup));
    rows.retain(|row| !row.is_empty());
    let order = |group| match group {
        Group::Device(id) => lookup.device_place(id).unwrap_or(usize::MAX),
        Group::Unknown | Group::Host => usize::MAX,
    };
    // The sort is stable, so the rows of a group keep their order.
    rows.sort_by_key(|row| (order(row.group), row.group));
    for row in &mut rows {
        row.slices.sort_by_key(|slice| (slice.time.start, slice.lane));
    }
    rows
}

fn streams<'a>(timeline: &'a Timeline, lookup: &Lookup<'_>) -> Vec<Row<'a>> {
    let mut found: HashMap<u64, (Vec<Slice<'a>>, Vec<Slice<'a>>)> = HashMap::new();
    for (at, operation) in timeline.operations.iter().enumerate() {
        let Some(time) = ran(operation) else { continue };
        let (whole, pieces) = found.entry(operation.point.stream).or_default();
        let kind = Kind::of_work(&operation.work);
        whole.push(Slice::new(&time, kind, &operation.label, Source::Operation(at)));
        for (number, piece) in operation.pieces.iter().enumerate() {
            let kind = Kind::of_work(&piece.work);
            pieces.push(Slice::new(&piece.ran, kind, &piece.label, Source::Piece(at, number)));
        }
    }
    let row = |id| {
        let (whole, pieces) = found.remove(&id).unwrap_or_default();
        let device = lookup.stream(id).map(|stream| stream.device);
        let mut row = Row::new(lookup.stream_name(id), device.map_or(Group::Unknown, Group::Device));
        row.stream = Some(id);
        let known = device.and_then(|id| lookup.device(id));
        // A stream's operations follow each other. If the clock is a little off, that is no reason for
        // another lane.
        row.stack(whole, known.map_or(0, |device| device.error));
        row.stack(pieces, 0);
        row
    };
    lookup.stream_ids().into_iter().map(row).collect()
}

fn counters<'a>(timeline: &Timeline) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut known: HashMap<(u32, &str), usize> = HashMap::new();
    for Counter { device, label, time, bytes } in &timeline.counters {
        let at = *known.entry((*device, label)).or_insert_with(|| {
            rows.push(Row::new(label.to_string(), Group::Device(*device)));
            rows.len() - 1
        });
        if let Some(row) = rows.get_mut(at) {
            row.values.push((*time, *bytes));
        }
    }
    for row in &mut rows {
        row.values.sort_by_key(|&(time, _)| time);
    }
    rows
}

fn threads<'a>(timeline: &'a Timeline, lookup: &Lookup<'_>) -> Vec<Row<'a>> {
    let mut found: BTreeMap<u64, (Vec<Slice<'a>>, Vec<usize>)> = BTreeMap::new();
    for (at, operation) in timeline.operations.iter().enumerate() {
        let (kind, source) = (Kind::Submission, Source::Submission(at));
        let slice = Slice::new(&operation.submitted, kind, &operation.label, source);
        found.entry(operation.thread).or_default().0.push(slice);
    }
    for (at, span) in timeline.spans.iter().enumerate() {
        let slice = Slice::new(&span.time, Kind::of_span(&span.kind), &span.label, Source::Span(at));
        found.entry(span.thread).or_default().0.push(slice);
    }
    for (at, instant) in timeline.instants.iter().enumerate() {
        found.entry(instant.thread).or_default().1.push(at);
    }
    let row = |(id, (slices, mut instants)): (u64, (Vec<_>, Vec<usize>))| {
        let mut row = Row::new(lookup.thread_name(id), Group::Host);
        row.stack(slices, 0);
        instants.sort_by_key(|&at| timeline.instants.get(at).map(|instant| instant.time));
        row.instants = instants;
        row
    };
    let mut rows: Vec<_> = found.into_iter().map(|(id, of)| (id, row((id, of)))).collect();
    rows.sort_by_key(|&(id, _)| (lookup.thread_place(id).unwrap_or(usize::MAX), id));
    rows.into_iter().map(|(_, row)| row).collect()
}
