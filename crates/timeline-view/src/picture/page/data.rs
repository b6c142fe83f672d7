//! The records of a picture, as JSON for the page.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::super::kind::{Kind, Look};
use super::super::row::{Row, Source};
use super::super::{Panel, Picture, describe, group_name, marks};
use super::json::{List, Text};
use crate::report::bytes;
use gpustream_timeline::{Nanos, Operation, SpanKind, WorkKind};

/// Strings that are written once and referred to by number.
#[derive(Default)]
struct Strings {
    numbers: HashMap<String, usize>,
    all: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> usize {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}

/// Returns an object with everything that the page shows.
pub(super) fn write(picture: &Picture<'_>) -> String {
    let parts = picture.prepared();
    let window = picture.window(&parts);
    let mut strings = Strings::default();
    let written: Vec<_> = parts.iter().map(|part| write_part(part, parts.len() > 1, &mut strings)).collect();
    format!(
        "{{\"from\":{},\"to\":{},\"arrows\":{},\"kinds\":{},\"marks\":{},\"parts\":{},\"strings\":{}}}",
        window.start,
        window.end,
        picture.arrows,
        List(Kind::ALL.into_iter().map(kind)),
        List(marks::Mark::ALL.into_iter().map(mark)),
        List(&written),
        List(strings.all.iter().map(|text| Text(text)))
    )
}

fn kind(kind: Kind) -> String {
    let Look { name, glyph, colours, stripes, framed, .. } = kind.look();
    format!(
        "{{\"name\":{},\"glyph\":{},\"colours\":{},\"stripes\":{},\"framed\":{framed}}}",
        Text(name),
        Text(glyph),
        List(colours.iter().map(|colours| List(colours.iter().map(|colour| Text(colour))))),
        Text(stripes)
    )
}

fn mark(mark: marks::Mark) -> String {
    let (class, path) = mark.shape();
    format!("{{\"name\":{},\"class\":{},\"path\":{}}}", Text(mark.name()), Text(class), Text(path))
}

fn write_part(part: &Panel<'_>, is_one_of_several: bool, strings: &mut Strings) -> String {
    let length = part.extent.end.saturating_sub(part.extent.start);
    let several = part.timeline.devices.len() > 1 || !is_one_of_several;
    let mut pieces = Vec::new();
    let rows: Vec<_> = part
        .rows
        .iter()
        .map(|row| {
            let heading = if several { group_name(part, row.group) } else { String::new() };
            write_row(part, row, &heading, strings, &mut pieces)
        })
        .collect();
    let mut text = format!(
        "{{\"name\":{},\"length\":{length},\"lost\":{},\"rows\":{}",
        Text(part.name),
        part.timeline.lost,
        List(&rows)
    );
    let _ = write!(text, ",{}", operations(part, strings));
    let _ = write!(text, ",\"pieces\":{}", List(&pieces));
    let spans: Vec<_> = part.timeline.spans.iter().map(|span| write_span(part, span, strings)).collect();
    let _ = write!(text, ",\"spans\":{}}}", List(&spans));
    text
}

/// Returns the columns of a row: starts as differences, and sources as 4 × the record's index + its kind.
fn write_row(
    part: &Panel<'_>,
    row: &Row<'_>,
    heading: &str,
    strings: &mut Strings,
    pieces: &mut Vec<String>,
) -> String {
    let labels: Vec<_> = row.slices.iter().map(|slice| strings.number(slice.label)).collect();
    let sources: Vec<_> = row
        .slices
        .iter()
        .map(|slice| match slice.source {
            Source::Operation(at) => 4 * at,
            Source::Submission(at) => 4 * at + 1,
            Source::Span(at) => 4 * at + 2,
            Source::Piece(at, number) => {
                let piece =
                    part.timeline.operations.get(at).and_then(|operation| operation.pieces.get(number));
                let (text, bytes) = piece.map_or((0, 0), |piece| write_work(&piece.work, strings));
                pieces.push(format!("[{at},{text},{bytes}]"));
                4 * (pieces.len() - 1) + 3
            }
        })
        .collect();
    let instants: Vec<_> = row.instants.iter().filter_map(|&at| part.timeline.instants.get(at)).collect();
    let instants = instants.into_iter().map(|instant| {
        let time = instant.time.saturating_sub(part.extent.start);
        let lines = describe::instant(instant, part.extent.start);
        let mark = marks::Mark::of(&instant.kind) as usize;
        format!("[{time},{mark},{}]", strings.number(&lines.join("\n")))
    });
    let instants: Vec<_> = instants.collect();
    format!(
        "{{\"name\":{},\"heading\":{},\"stream\":{},\"lanes\":{},\"starts\":{},\"lengths\":{},\"lane\":{},\"kinds\":{},\
         \"labels\":{},\"sources\":{},\"instants\":{},\"times\":{},\"values\":{}}}",
        Text(&row.name),
        Text(heading),
        row.stream.is_some(),
        row.lanes,
        List(differences(row.slices.iter().map(|slice| slice.time.start))),
        List(row.slices.iter().map(|slice| slice.time.end.saturating_sub(slice.time.start))),
        List(row.slices.iter().map(|slice| slice.lane)),
        List(row.slices.iter().map(|slice| slice.kind as usize)),
        List(&labels),
        List(&sources),
        List(&instants),
        List(differences(row.values.iter().map(|&(time, _)| time))),
        List(row.values.iter().map(|&(_, bytes)| bytes)),
    )
}

/// Returns the differences between consecutive times. The times must be ascending.
fn differences(times: impl Iterator<Item = Nanos> + Clone) -> impl Iterator<Item = Nanos> + Clone {
    let before = std::iter::once(0).chain(times.clone());
    times.zip(before).map(|(time, before)| time.saturating_sub(before))
}

/// Returns the columns of the operations: what we know about them apart from their slices.
fn operations(part: &Panel<'_>, strings: &mut Strings) -> String {
    let operations = &part.timeline.operations;
    let places: Vec<_> = operations.iter().map(|one| strings.number(&describe::place(&one.place))).collect();
    let work: Vec<_> = operations.iter().map(|one| write_work(&one.work, strings)).collect();
    let after = operations.iter().enumerate().filter(|(_, one)| !one.after.is_empty()).map(
        |(at, one): (usize, &Operation)| {
            let before = one.after.iter().filter_map(|point| part.lookup.operation(*point));
            List(std::iter::once(at).chain(before).collect::<Vec<_>>()).to_string()
        },
    );
    let after: Vec<_> = after.collect();
    format!(
        "\"places\":{},\"work\":{},\"bytes\":{},\"after\":{}",
        List(&places),
        List(work.iter().map(|(text, _)| text)),
        List(work.iter().map(|(_, bytes)| bytes)),
        List(&after)
    )
}

/// Returns the number of a short text about some work, and its bytes. The page adds the rate.
fn write_work(work: &WorkKind, strings: &mut Strings) -> (usize, u64) {
    let bytes = bytes(work);
    (strings.number(&describe::work_without_bytes(work)), bytes)
}

/// Returns place and text, and the operation that was waited for, or -1.
fn write_span(part: &Panel<'_>, span: &gpustream_timeline::Span, strings: &mut Strings) -> String {
    let place = strings.number(&describe::place(&span.place));
    let text = strings.number(&describe::span(span).join("\n"));
    let point = match span.kind {
        SpanKind::Wait(point) => point.and_then(|point| part.lookup.operation(point)),
        _ => None,
    };
    format!("[{place},{text},{}]", point.map_or(-1, |at| at as i64))
}
