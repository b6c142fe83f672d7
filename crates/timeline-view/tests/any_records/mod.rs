//! Arbitrary records, as `proptest` strategies.
#![allow(unreachable_pub, reason = "tests of the crate and beside it use this")]

use std::borrow::Cow;
use std::ops::Range;

use gpustream_timeline::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Point, Record,
    SourceLine, Span, SpanKind, Stream, Thread, WorkKind,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-c: #\n\u{e9}]{1,8}"]
}

fn label() -> impl Strategy<Value = Cow<'static, str>> {
    text().prop_map(Cow::Owned)
}

/// Only a few numbers, so that records refer to each other, and the largest one.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(u64::MAX)]
}

/// Only a few times, so that many ranges touch and overlap.
fn time() -> impl Strategy<Value = Range<Nanos>> {
    (0..20_u64, 0..10_u64, prop_oneof![9 => Just(0), 1 => Just(u64::MAX - 40)])
        .prop_map(|(start, length, base)| base + start..base + start + length)
}

fn point() -> impl Strategy<Value = Point> {
    (id(), id()).prop_map(|(stream, number)| Point { stream, number })
}

fn place() -> impl Strategy<Value = SourceLine> {
    (label(), prop_oneof![Just(0), any::<u32>()]).prop_map(|(file, line)| SourceLine { file, line })
}

fn work() -> impl Strategy<Value = WorkKind> {
    let direction =
        prop::sample::select(vec![Direction::Up, Direction::Down, Direction::Inside, Direction::Peer]);
    prop_oneof![
        any::<([u32; 3], [u32; 3])>().prop_map(|(grid, block)| WorkKind::Kernel { grid, block }),
        (direction, any::<u64>(), any::<bool>()).prop_map(|(direction, bytes, pageable)| WorkKind::Copy {
            direction,
            bytes,
            pageable
        }),
        any::<u64>().prop_map(|bytes| WorkKind::Fill { bytes }),
        any::<u32>().prop_map(|operations| WorkKind::Graph { operations }),
        any::<u32>().prop_map(|operations| WorkKind::Step { operations }),
        Just(WorkKind::Host),
        Just(WorkKind::External),
        Just(WorkKind::Other),
    ]
}

fn fields() -> impl Strategy<Value = Vec<(Cow<'static, str>, String)>> {
    vec((label(), text()), 0..3)
}

fn operation() -> impl Strategy<Value = Operation> {
    let piece = (label(), time(), work()).prop_map(|(label, ran, work)| Piece { label, ran, work });
    let what = (point(), label(), place(), work());
    let when = (id(), time(), option::of(time()));
    (what, when, vec(point(), 0..3), vec(piece, 0..4)).prop_map(
        |((point, label, place, work), (thread, submitted, ran), after, pieces)| Operation {
            point,
            label,
            place,
            thread,
            submitted,
            ran,
            work,
            after,
            pieces,
        },
    )
}

fn span() -> impl Strategy<Value = Span> {
    let kind = prop_oneof![
        option::of(point()).prop_map(SpanKind::Wait),
        (0..3_u32, any::<u64>()).prop_map(|(device, bytes)| SpanKind::Allocation { device, bytes }),
        fields().prop_map(|fields| SpanKind::User { fields }),
    ];
    (id(), time(), label(), place(), kind).prop_map(|(thread, time, label, place, kind)| Span {
        thread,
        time,
        label,
        place,
        kind,
    })
}

fn instant() -> impl Strategy<Value = Instant> {
    let kind = prop_oneof![
        Just(InstantKind::Future),
        Just(InstantKind::Woken),
        Just(InstantKind::HostClosure),
        text().prop_map(InstantKind::Lint),
        fields().prop_map(|fields| InstantKind::User { fields }),
    ];
    (id(), any::<u64>(), label(), place(), kind).prop_map(|(thread, time, label, place, kind)| Instant {
        thread,
        time,
        label,
        place,
        kind,
    })
}

/// Returns any record. Few of them are far from the others.
pub fn record() -> impl Strategy<Value = Record> {
    let clock = prop::sample::select(vec![Clock::Host, Clock::Cupti, Clock::Rocprofiler, Clock::Events]);
    prop_oneof![
        1 => (0..3_u32, text(), clock, any::<u64>(), "[a-c: #\u{e9}]{0,8}").prop_map(
            |(id, name, clock, error, reason)| Record::Device(Device { id, name, clock, error, reason })
        ),
        1 => (id(), 0..3_u32, text(), any::<bool>())
            .prop_map(|(id, device, name, legacy)| Record::Stream(Stream { id, device, name, legacy })),
        1 => (id(), text()).prop_map(|(id, name)| Record::Thread(Thread { id, name })),
        4 => operation().prop_map(Record::Operation),
        3 => span().prop_map(Record::Span),
        2 => instant().prop_map(Record::Instant),
        2 => (0..3_u32, label(), any::<u64>(), any::<u64>())
            .prop_map(|(device, label, time, bytes)| Record::Counter(Counter { device, label, time, bytes })),
        1 => (1..100_u64).prop_map(Record::Lost),
    ]
}
