//! Text about a slice, for tooltips. They should answer what you may ask about it: what it did, when and how
//! long, which line submitted it, and what it waited for.

use std::ops::Range;

use super::row::{Slice, Source};
use crate::lookup::Lookup;
use crate::report::bytes;
use crate::text::{Bytes, Time, rate};
use gpustream_timeline::{
    Direction, Instant, InstantKind, Nanos, Point, SourceLine, Span, SpanKind, Timeline, WorkKind,
};

/// Returns a source line as text, or nothing if the line is unknown.
pub(super) fn place(place: &SourceLine) -> String {
    if place.line == 0 { String::new() } else { format!("{}:{}", place.file, place.line) }
}

/// Describes work in a few words: `1 MiB at 24.5 GB/s to the device`, `grid 256, block 128`.
fn work(work: &WorkKind, time: Nanos) -> String {
    let (bytes, rate) = (bytes(work), rate(bytes(work), time));
    let words = work_without_bytes(work);
    match (bytes, &*rate) {
        (0, _) => words,
        (_, "") => format!("{} {words}", Bytes(bytes)),
        _ => format!("{} at {rate} {words}", Bytes(bytes)),
    }
}

/// Describes work in a few words, without bytes and rate.
pub(super) fn work_without_bytes(work: &WorkKind) -> String {
    match work {
        WorkKind::Kernel { grid, block } => format!("grid {}, block {}", extent(*grid), extent(*block)),
        WorkKind::Copy { direction, pageable, .. } => {
            let direction = match direction {
                Direction::Up => "to the device",
                Direction::Down => "to the host",
                Direction::Inside => "within the device",
                Direction::Peer => "from another device",
                _ => "copied",
            };
            format!("{direction}{}", if *pageable { ", pageable" } else { "" })
        }
        WorkKind::Fill { .. } => "filled".to_owned(),
        WorkKind::Host => "a function of the host's".to_owned(),
        WorkKind::Graph { operations } => format!("a graph of {operations} operations"),
        WorkKind::Step { operations } => format!("a step of {operations} operations"),
        WorkKind::External => "another library's".to_owned(),
        _ => String::new(),
    }
}

/// Returns the numbers of a grid or block, without trailing ones.
fn extent([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}×{y}"),
        _ => format!("{x}×{y}×{z}"),
    }
}

/// Returns beginning, end and length of a time.
pub(super) fn when(time: &Range<Nanos>) -> String {
    format!("{} to {}: {}", Time(time.start), Time(time.end), Time(time.end.saturating_sub(time.start)))
}

/// Returns the lines about a slice.
pub(super) fn slice(slice: &Slice<'_>, timeline: &Timeline, lookup: &Lookup<'_>) -> Vec<String> {
    let length = slice.time.end.saturating_sub(slice.time.start);
    let mut lines = vec![slice.label.to_owned(), when(&slice.time)];
    let operation = |at: usize| timeline.operations.get(at);
    match slice.source {
        Source::Operation(at) => {
            if let Some(operation) = operation(at) {
                lines.push(work(&operation.work, length));
                lines.push(place(&operation.place));
                lines.extend(operation.after.iter().map(|point| after(*point, timeline, lookup)));
            }
        }
        Source::Piece(at, number) => {
            if let Some(operation) = operation(at) {
                let piece = operation.pieces.get(number);
                lines.extend(piece.map(|piece| work(&piece.work, length)));
                lines.push(format!("in {}", operation.label));
            }
        }
        Source::Submission(at) => {
            if let Some(operation) = operation(at) {
                lines.push(format!("submission to {}", lookup.stream_name(operation.point.stream)));
                lines.push(place(&operation.place));
            }
        }
        Source::Span(at) => {
            if let Some(span) = timeline.spans.get(at) {
                lines.push(place(&span.place));
                lines.extend(self::span(span));
                if let SpanKind::Wait(Some(point)) = span.kind {
                    lines.push(after(point, timeline, lookup));
                }
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Returns the lines about a span, except what it waited for.
pub(super) fn span(span: &Span) -> Vec<String> {
    match &span.kind {
        SpanKind::Allocation { bytes, .. } => vec![Bytes(*bytes).to_string()],
        SpanKind::User { fields } => named(fields).collect(),
        _ => Vec::new(),
    }
}

/// Returns the lines about an instant. `origin` is the beginning of the timeline.
pub(super) fn instant(instant: &Instant, origin: Nanos) -> Vec<String> {
    let mut lines = vec![instant.label.to_string(), Time(instant.time.saturating_sub(origin)).to_string()];
    match &instant.kind {
        InstantKind::Lint(message) => lines.push(message.clone()),
        InstantKind::User { fields } => lines.extend(named(fields)),
        _ => {}
    }
    lines.push(place(&instant.place));
    lines.retain(|line| !line.is_empty());
    lines
}

fn named<'a>(
    fields: &'a [(std::borrow::Cow<'static, str>, String)],
) -> impl Iterator<Item = String> + use<'a> {
    fields.iter().map(|(name, value)| format!("{name} = {value}"))
}

fn after(point: Point, timeline: &Timeline, lookup: &Lookup<'_>) -> String {
    let stream = lookup.stream_name(point.stream);
    match lookup.operation(point).and_then(|at| timeline.operations.get(at)) {
        Some(operation) => format!("waited for {} on {stream}", operation.label),
        None => format!("waited for {stream}"),
    }
}
