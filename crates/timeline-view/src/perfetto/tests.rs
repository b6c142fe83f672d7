//! Checks files as Perfetto understands them, with a model of it: events are sorted by time (events with the
//! same time stay in the file's order), and the end of a slice belongs to the last open slice of its track.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::collections::HashMap;
use std::ops::Range;

use gpustream_timeline::perfetto::Writer;
use gpustream_timeline::perfetto::format::{CLEARED, Kind, PACKET_TAG};
use gpustream_timeline::{
    Nanos, Operation, Piece, Point, Record, SourceLine, Span, SpanKind, Stream, WorkKind,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::read;
use super::schema::{EventType, Packet};
use super::texts::Texts;

#[path = "../../tests/any_records/mod.rs"]
mod any_records;

/// A slice that Perfetto shows, with its category and label.
#[derive(Debug)]
struct Slice {
    category: String,
    label: String,
    time: Range<Nanos>,
    parent: Option<usize>,
}

#[derive(Default)]
struct Shown {
    slices: Vec<Slice>,
    /// The slices at both ends of each arrow.
    arrows: Vec<(usize, usize)>,
}

impl Shown {
    /// Returns the arrows between operations and waits, as labels.
    fn arrows(&self) -> Vec<(&str, &str)> {
        let name = |index: usize| {
            let slice = &self.slices[index];
            let owner = slice.parent.filter(|_| slice.category == "arrow");
            owner.map_or(&*slice.label, |owner| &self.slices[owner].label)
        };
        let arrows = self.arrows.iter().filter(|(from, _)| self.slices[*from].category != "submission");
        let mut arrows: Vec<_> = arrows.map(|(from, to)| (name(*from), name(*to))).collect();
        arrows.sort_unstable();
        arrows
    }
}

fn encoded(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns the packets of a file, each with its bytes.
fn packets(mut bytes: &[u8]) -> Vec<(Packet, &[u8])> {
    let mut packets = vec![];
    while !bytes.is_empty() {
        assert_eq!(bytes[0], PACKET_TAG);
        bytes = &bytes[1..];
        let length = prost::encoding::decode_varint(&mut bytes).unwrap() as usize;
        let (packet, rest) = bytes.split_at(length);
        packets.push((Packet::decode(packet).unwrap(), packet));
        bytes = rest;
    }
    packets
}

fn shown(bytes: &[u8]) -> Shown {
    let mut texts = Texts::default();
    let mut events = vec![];
    for (packet, _) in packets(bytes) {
        if u64::from(packet.sequence_flags) & CLEARED != 0 {
            texts.clear();
        }
        texts.add(packet.interned_data.unwrap_or_default()).unwrap();
        events.extend(packet.track_event.map(|event| (packet.timestamp.unwrap(), event)));
    }
    events.sort_by_key(|(time, _)| *time);

    let mut shown = Shown::default();
    let mut stacks: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut flows: HashMap<u64, usize> = HashMap::new();
    for (time, event) in events {
        let stack = stacks.entry(event.track_uuid).or_default();
        match event.r#type() {
            EventType::SliceBegin | EventType::Instant => {
                let index = shown.slices.len();
                shown.slices.push(Slice {
                    category: texts.get(Kind::Category, event.category_iids[0]).unwrap().to_owned(),
                    label: texts.get(Kind::Event, event.name_iid.unwrap()).unwrap().to_owned(),
                    time: time..time,
                    parent: stack.last().copied(),
                });
                if event.r#type() == EventType::SliceBegin {
                    stack.push(index);
                }
                for flow in event.flow_ids {
                    assert_eq!(flows.insert(flow, index), None, "two slices open one flow");
                }
                let ended = event.legacy_event.map(|legacy| legacy.bind_id);
                let arrows = event.terminating_flow_ids.into_iter().chain(ended);
                shown.arrows.extend(arrows.filter_map(|flow| Some((*flows.get(&flow)?, index))));
            }
            EventType::SliceEnd => {
                let index = stack.pop().unwrap();
                shown.slices[index].time.end = time;
                let from = event.legacy_event.and_then(|legacy| flows.get(&legacy.bind_id));
                shown.arrows.extend(from.map(|from| (*from, index)));
            }
            EventType::Counter | EventType::Unspecified => panic!("{event:?}"),
        }
    }
    assert!(stacks.values().all(Vec::is_empty), "a slice without an end");
    shown
}

fn operation(stream: u64, number: u64, ran: Range<Nanos>) -> Operation {
    Operation {
        point: Point { stream, number },
        label: format!("{stream}:{number}").into(),
        place: SourceLine::default(),
        thread: 1,
        submitted: 1..2,
        ran: Some(ran),
        work: WorkKind::Other,
        after: vec![],
        pieces: vec![],
    }
}

fn after(points: &[(u64, u64)], operation: Operation) -> Record {
    let after = points.iter().map(|(stream, number)| Point { stream: *stream, number: *number }).collect();
    Record::Operation(Operation { after, ..operation })
}

fn wait(stream: u64, number: u64, time: Range<Nanos>) -> Record {
    let kind = SpanKind::Wait(Some(Point { stream, number }));
    Record::Span(Span { thread: 1, time, label: "wait".into(), place: SourceLine::default(), kind })
}

fn time() -> impl Strategy<Value = Range<Nanos>> {
    (0..30_u64, 0..10_u64).prop_map(|(start, length)| start..start + length)
}

proptest! {
    /// Each field must have the number and form from the schema, and the schema must know all of them,
    /// because prost would drop unknown ones.
    #[test]
    fn packets_have_the_bytes_that_prost_writes(records in vec(any_records::record(), 0..40)) {
        for (packet, bytes) in packets(&encoded(&records)) {
            prop_assert_eq!(packet.encode_to_vec(), bytes, "{:?}", packet);
        }
    }

    /// Slices of one stream and one thread that overlap, touch and are empty, in any order.
    #[test]
    fn every_slice_is_shown_in_its_own_time(
        operations in vec((time(), time(), vec(time(), 0..4)), 0..30),
        waits in vec(time(), 0..30),
    ) {
        let mut records = vec![];
        let mut expected = vec![];
        let mut expect = |category: &str, label: String, time: &Range<Nanos>| {
            expected.push((category.to_owned(), label, time.clone()));
        };
        for (number, (submitted, ran, pieces)) in (1..).zip(&operations) {
            expect("operation", format!("1:{number}"), ran);
            expect("submission", format!("1:{number}"), submitted);
            let piece = |(nth, ran): (usize, &Range<Nanos>)| {
                let label = format!("{number}.{nth}");
                expect("piece", label.clone(), ran);
                Piece { label: label.into(), ran: ran.clone(), work: WorkKind::Other }
            };
            let pieces = pieces.iter().enumerate().map(piece).collect();
            let submitted = submitted.clone();
            records.push(Record::Operation(Operation { submitted, pieces, ..operation(1, number, ran.clone()) }));
        }
        for time in &waits {
            expect("wait", "wait".into(), time);
            records.push(wait(1, 1, time.clone()));
        }
        let shown = shown(&encoded(&records));
        let slices = shown.slices.into_iter().filter(|slice| slice.category != "arrow");
        let mut slices: Vec<_> = slices.map(|slice| (slice.category, slice.label, slice.time)).collect();
        let order = |a: &(String, String, Range<Nanos>), b: &(String, String, Range<Nanos>)| {
            (&a.0, &a.1, a.2.start, a.2.end).cmp(&(&b.0, &b.1, b.2.start, b.2.end))
        };
        slices.sort_by(order);
        expected.sort_by(order);
        prop_assert_eq!(slices, expected);
    }
}

#[test]
fn pieces_that_overlap_are_on_other_tracks_than_those_that_follow() {
    let piece = |label: &'static str, ran| Piece { label: label.into(), ran, work: WorkKind::Other };
    let pieces =
        vec![piece("a", 10..20), piece("b", 20..40), piece("beside b", 25..35), piece("after b", 40..50)];
    let shown = shown(&encoded(&[Record::Operation(Operation { pieces, ..operation(1, 1, 10..50) })]));
    let inside =
        |slice: &&Slice| slice.parent.is_some_and(|parent| shown.slices[parent].category == "operation");
    let inside: Vec<_> = shown.slices.iter().filter(inside).map(|slice| &*slice.label).collect();
    assert_eq!(inside, ["a", "b", "after b"]);
}

#[test]
fn arrows_come_from_the_operation_that_was_waited_for_in_whatever_order_both_are_known() {
    let early = Record::Operation(operation(1, 1, 10..20));
    let one = after(&[(1, 1)], operation(2, 1, 20..30));
    let other = after(&[(1, 1)], operation(3, 1, 20..30));
    let host = wait(1, 1, 5..40);
    let expected = [("1:1", "2:1"), ("1:1", "3:1"), ("1:1", "wait")];
    for records in
        [[&early, &one, &other, &host], [&host, &one, &early, &other], [&other, &one, &host, &early]]
    {
        assert_eq!(shown(&encoded(&records.map(Clone::clone))).arrows(), expected);
    }
}

#[test]
fn operation_that_waits_for_several_has_an_arrow_from_each() {
    let records = [
        Record::Operation(operation(1, 1, 10..20)),
        Record::Operation(operation(2, 1, 10..20)),
        Record::Operation(operation(3, 1, 10..20)),
        Record::Operation(operation(4, 1, 10..20)),
        after(&[(1, 1), (2, 1), (3, 1), (4, 1)], operation(5, 1, 20..30)),
    ];
    let expected = [("1:1", "5:1"), ("2:1", "5:1"), ("3:1", "5:1"), ("4:1", "5:1")];
    assert_eq!(shown(&encoded(&records)).arrows(), expected);
}

#[test]
fn point_without_an_operation_stands_for_the_one_before() {
    let first = Record::Operation(operation(1, 5, 10..20));
    let later = Record::Operation(operation(1, 9, 50..60));
    let waits = after(&[(1, 7)], operation(2, 1, 20..30));
    let host = wait(1, 8, 5..40);
    let expected = [("1:5", "2:1"), ("1:5", "wait")];
    // The next operation is known before it, or comes later, or the trace ends first.
    for records in [
        vec![&first, &later, &waits, &host],
        vec![&first, &waits, &host, &later],
        vec![&waits, &host, &first, &later],
        vec![&waits, &host, &first],
    ] {
        let records: Vec<_> = records.into_iter().cloned().collect();
        assert_eq!(shown(&encoded(&records)).arrows(), expected);
    }
}

#[test]
fn stream_that_gets_another_name_keeps_its_tracks() {
    let named =
        |name: &str| Record::Stream(Stream { id: 1, device: 0, name: name.to_owned(), legacy: false });
    let (first, later) = (operation(1, 1, 10..20), operation(1, 2, 20..30));
    let bytes = encoded(&[
        named("stream 1"),
        Record::Operation(first.clone()),
        named("halo"),
        Record::Operation(later.clone()),
    ]);
    let tracks = packets(&bytes).into_iter().filter_map(|(packet, _)| packet.track_descriptor);
    let tracks: Vec<_> = tracks.filter(|track| track.description.is_some()).collect();
    let [one, other] = tracks.as_slice() else { panic!("{tracks:?}") };
    assert_eq!((one.uuid, one.name.as_deref()), (other.uuid, Some("stream 1")));
    assert_eq!(other.name.as_deref(), Some("halo"));
    let timeline = read(&bytes).unwrap();
    assert_eq!((timeline.streams.len(), &*timeline.streams[0].name), (1, "halo"));
    assert_eq!(timeline.operations, [first, later]);
}
