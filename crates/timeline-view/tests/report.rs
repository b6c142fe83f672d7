//! Reports of made-up timelines, with figures that were calculated by hand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod made_up;

use gpustream_timeline::{Direction, Point, Span, SpanKind, Timeline, WorkKind};
use gpustream_timeline_view::{Cause, Engine, GapOf, Link, Overlap, Report};
use made_up::{KERNEL, add, copy, line, snapshot, timeline, user, wait};

/// Returns the cause of the only gap of stream 1, and the label of its culprit.
fn cause(timeline: &Timeline) -> (Cause, Option<String>) {
    let report = Report::of(timeline);
    let gaps: Vec<_> = report.gaps.iter().filter(|gap| gap.of == GapOf::Stream(1)).collect();
    let [gap] = gaps[..] else { panic!("one gap is expected: {gaps:?}") };
    (gap.cause, gap.culprit.as_ref().map(|culprit| culprit.label.to_string()))
}

#[test]
fn empty_timeline_has_a_report_of_nothing() {
    let report = Report::of(&Timeline::default());
    assert_eq!((report.total, report.remaining, report.labels.len()), (0, 0, 0));
    assert_eq!(report.to_string().lines().count(), 1, "{report}");
}

#[test]
fn engines_streams_and_overlap_are_unions_and_bytes_are_sums() {
    let mut made = timeline(3);
    add(&mut made, 1, "copy", copy(Direction::Up, 1000), 0..10, 100..200);
    add(&mut made, 2, "saxpy", KERNEL, 10..20, 150..250);
    add(&mut made, 3, "saxpy", KERNEL, 20..30, 240..300);
    add(&mut made, 1, "copy", copy(Direction::Up, 3), 30..40, 180..220);
    add(&mut made, 2, "copy", copy(Direction::Down, 5000), 40..50, 250..400);
    add(&mut made, 3, "copy", copy(Direction::Up, 7), 50..60, 380..390);
    add(&mut made, 3, "copy", copy(Direction::Up, 11), 60..70, 0..0).ran = None;
    add(&mut made, 1, "closure", WorkKind::Host, 70..80, 500..600);
    wait(&mut made, 80..700, 1, 3);

    let report = Report::of(&made);
    assert_eq!((report.total, report.unknown), (700, 1));
    let [device] = &report.devices[..] else { panic!("one device") };
    // From 100 to 400 there is always something.
    assert_eq!((device.busy, device.idle), (300, 400));
    let engines: Vec<_> =
        device.engines.iter().map(|one| (one.engine, one.operations, one.bytes, one.busy)).collect();
    assert_eq!(
        engines,
        [
            (Engine::Kernels, 2, 0, 150),
            (Engine::Up, 4, 1021, 130),
            (Engine::Down, 1, 5000, 150),
            (Engine::Host, 1, 0, 100)
        ]
    );
    // Copies: 100 to 220 and 250 to 400; kernels: 150 to 300.
    assert_eq!(device.copies_with_kernels, Overlap { time: 70 + 50, of: 120 + 150 });
    assert_eq!(device.both_directions, Overlap { time: 10, of: 120 + 150 });
    assert_eq!(device.hidden, Overlap { time: 430 - 300, of: 430 });
    let streams: Vec<_> = report.streams.iter().map(|one| (one.operations, one.busy, one.idle)).collect();
    assert_eq!(streams, [(3, 120 + 100, 480), (2, 250, 450), (3, 70, 630)]);
    let [thread] = &report.threads[..] else { panic!("one thread") };
    assert_eq!((thread.operations, thread.submitting, thread.waiting, thread.busy), (8, 80, 620, 80));
    // The host's 80, and 100 in the closure. The device's 300 are more.
    assert_eq!((report.host, report.device, report.remaining), (180, 300, 400));
    let labels: Vec<_> =
        report.labels.iter().map(|one| (&*one.label, one.count, one.time, one.bytes)).collect();
    assert_eq!(
        labels,
        [("saxpy", 2, 160, 0), ("copy", 3, 150, 1010), ("copy", 1, 150, 5000), ("closure", 1, 100, 0)]
    );
    assert!((report.labels.iter().map(|label| label.share).sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn pieces_stand_for_their_graph() {
    let mut made = made_up::everything();
    made.operations.retain(|one| one.label == "step");
    let report = Report::of(&made);
    let labels: Vec<_> = report.labels.iter().map(|one| (&*one.label, one.count, one.time)).collect();
    assert_eq!(labels, [("gemm", 2, 87_000), ("softmax", 1, 35_000)]);
    assert_eq!(report.devices[0].busy, 289_000 - 172_000);
    assert_eq!(report.streams[0].busy, 290_000 - 172_000);
}

#[test]
fn gap_is_the_hosts_when_the_submission_ended_late() {
    let mut made = timeline(1);
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 1, "second", KERNEL, 180..190, 200..300);
    assert_eq!(cause(&made), (Cause::HostLate, None));
    // A span that the program has opened explains nothing, because the host was late anyway.
    user(&mut made, 100..180, "load");
    assert_eq!(cause(&made), (Cause::HostLate, None));
    wait(&mut made, 20..140, 1, 1);
    assert_eq!(cause(&made), (Cause::HostLate, None), "the wait is the smaller part");
    wait(&mut made, 140..160, 1, 1);
    assert_eq!(cause(&made), (Cause::HostWaited, Some("synchronize".to_owned())));
}

#[test]
fn gap_is_an_allocations_when_it_kept_the_host() {
    let mut made = timeline(1);
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 1, "second", KERNEL, 180..190, 200..300);
    let kind = SpanKind::Allocation { device: 0, bytes: 4096 };
    made.spans.push(Span { thread: 1, time: 110..175, label: "alloc".into(), place: line(5), kind });
    assert_eq!(cause(&made), (Cause::Allocation, Some("alloc".to_owned())));
    // Another thread's allocation does not hold up this thread.
    made.spans[0].thread = 2;
    assert_eq!(cause(&made), (Cause::HostLate, None));
}

#[test]
fn gap_is_a_pageable_copys_when_it_is_next_or_kept_the_host() {
    let pageable = WorkKind::Copy { direction: Direction::Up, bytes: 4096, pageable: true };
    let mut made = timeline(2);
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 1, "from a Vec", pageable, 30..210, 200..300);
    assert_eq!(cause(&made), (Cause::Pageable, Some("from a Vec".to_owned())));
    // The copy is on another stream, but the thread was inside its call.
    let copy = made.operations.last_mut().unwrap();
    copy.point = Point { stream: 2, number: 1 };
    copy.submitted = 30..180;
    add(&mut made, 1, "second", KERNEL, 185..190, 200..300);
    assert_eq!(cause(&made), (Cause::Pageable, Some("from a Vec".to_owned())));
}

#[test]
fn gap_names_the_operation_of_another_stream_that_was_waited_for() {
    let mut made = timeline(2);
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 2, "long", KERNEL, 10..20, 20..195);
    add(&mut made, 2, "later", KERNEL, 20..30, 195..400);
    let next = add(&mut made, 1, "second", KERNEL, 30..40, 200..300);
    // No operation has the number 7, so the last one before it counts.
    next.after = vec![Point { stream: 2, number: 1 }];
    assert_eq!(cause(&made), (Cause::Operation, Some("long".to_owned())));
    let report = Report::of(&made);
    let gap = report.gaps.iter().find(|gap| gap.of == GapOf::Stream(1)).unwrap();
    let culprit = gap.culprit.as_ref().unwrap();
    assert_eq!((culprit.stream.as_deref(), culprit.place.line), (Some("stream 2"), 21));
    assert!(report.to_string().contains("long (src/main.rs:21) on stream 2"), "{report}");
    // It was submitted after the other one's end, so the host was later.
    made.operations.last_mut().unwrap().submitted = 100..198;
    assert_eq!(cause(&made), (Cause::HostLate, None));
}

#[test]
fn gap_of_a_device_is_a_host_functions_when_the_stream_waited_for_it() {
    let mut made = timeline(1);
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 1, "closure", WorkKind::Host, 10..20, 100..190);
    add(&mut made, 1, "second", KERNEL, 20..30, 200..300);
    let report = Report::of(&made);
    let gap = report.gaps.iter().find(|gap| gap.of == GapOf::Device(0)).unwrap();
    assert_eq!((gap.time.clone(), gap.cause), (100..200, Cause::Operation));
    assert_eq!(gap.culprit.as_ref().unwrap().label, "closure");
    let causes = &report.devices[0].causes;
    assert_eq!(
        causes.iter().map(|one| (one.cause, one.gaps, one.time)).collect::<Vec<_>>(),
        [(Cause::Operation, 1, 100)]
    );
}

#[test]
fn gap_is_the_legacy_streams_when_an_operation_of_it_had_to_end() {
    let mut made = timeline(2);
    made.streams[1].legacy = true;
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 2, "on the default stream", copy(Direction::Up, 1), 10..20, 100..195);
    add(&mut made, 1, "second", KERNEL, 20..30, 200..300);
    assert_eq!(cause(&made), (Cause::Legacy, Some("on the default stream".to_owned())));
    made.streams[1].legacy = false;
    assert_eq!(cause(&made), (Cause::Device, None));
    // The other way round, the legacy stream waits for the others.
    made.streams[0].legacy = true;
    assert_eq!(cause(&made), (Cause::Legacy, Some("on the default stream".to_owned())));
}

#[test]
fn gap_is_the_engines_when_another_stream_kept_it_busy() {
    let mut made = timeline(2);
    add(&mut made, 1, "first", KERNEL, 0..10, 20..100);
    add(&mut made, 2, "other copy", copy(Direction::Up, 1), 10..20, 30..195);
    add(&mut made, 1, "copy", copy(Direction::Up, 1), 20..30, 200..300);
    assert_eq!(cause(&made), (Cause::Engine, Some("other copy".to_owned())));
    // The last step's link is the engine, although only the hardware made it wait.
    let steps = Report::of(&made).path.steps;
    let steps: Vec<_> = steps.iter().map(|step| (step.operation, step.link, step.waited)).collect();
    assert_eq!(steps, [(1, Link::Host, 30), (2, Link::Engine, 5)]);
    // Copies down have their own engine.
    made.operations[2].work = copy(Direction::Down, 1);
    assert_eq!(cause(&made), (Cause::Device, None));
}

#[test]
fn longest_gaps_come_first_and_are_five() {
    let mut made = timeline(1);
    let mut at = 100;
    for gap in [5, 40, 10, 30, 20, 60, 50] {
        add(&mut made, 1, "kernel", KERNEL, 0..1, at..at + 10);
        at += 10 + gap;
    }
    add(&mut made, 1, "kernel", KERNEL, 0..1, at..at + 10);
    let report = Report::of(&made);
    let lengths = |of| {
        let gaps = report.gaps.iter().filter(|gap| gap.of == of);
        gaps.map(|gap| gap.time.end - gap.time.start).collect::<Vec<_>>()
    };
    assert_eq!(lengths(GapOf::Stream(1)), [60, 50, 40, 30, 20]);
    assert_eq!(lengths(GapOf::Device(0)), [60, 50, 40, 30, 20]);
    let sum: u64 = report.devices[0].causes.iter().map(|cause| cause.time).sum();
    assert_eq!(sum, 215, "causes are of all gaps");
}

#[test]
fn critical_path_follows_streams_arrows_and_waits() {
    let mut made = timeline(2);
    add(&mut made, 1, "load", copy(Direction::Up, 1), 0..10, 15..100);
    add(&mut made, 2, "other", KERNEL, 10..20, 25..60);
    add(&mut made, 2, "work", KERNEL, 20..30, 105..200).after = vec![Point { stream: 1, number: 1 }];
    wait(&mut made, 30..210, 2, 2);
    add(&mut made, 1, "store", copy(Direction::Down, 1), 230..240, 245..300);
    add(&mut made, 1, "end", KERNEL, 240..250, 300..310);

    let path = Report::of(&made).path;
    let steps: Vec<_> = path
        .steps
        .iter()
        .map(|step| (&*made.operations[step.operation].label, step.link, step.waited, step.ran))
        .collect();
    assert_eq!(
        steps,
        [
            ("load", Link::Host, 15, 85),
            ("work", Link::After, 5, 95),
            ("store", Link::Host, 45, 55),
            ("end", Link::Stream, 0, 10)
        ]
    );
    assert_eq!((path.time, path.running, path.host, path.device), (310, 245, 60, 5));
}

#[test]
fn times_that_contradict_each_other_end_the_path() {
    let mut made = timeline(2);
    // Each waits for the other, and both run at the same time.
    add(&mut made, 1, "a", KERNEL, 0..1, 10..20).after = vec![Point { stream: 2, number: 1 }];
    add(&mut made, 2, "b", KERNEL, 1..2, 10..20).after = vec![Point { stream: 1, number: 1 }];
    let backwards = std::ops::Range { start: 40, end: 30 };
    add(&mut made, 2, "backwards", KERNEL, backwards.clone(), backwards);
    let report = Report::of(&made);
    assert_eq!(report.path.steps.len(), 2);
    assert_eq!(report.unknown, 1);
}

#[test]
fn printed_report_names_everything_once() {
    let mut made = made_up::everything();
    made.lost = 12;
    snapshot("report.txt", &Report::of(&made).to_string());
}

#[test]
fn many_operations_are_no_quadratic_work() {
    // Quadratic work would take hours.
    let report = Report::of(&made_up::many(200_000));
    assert_eq!(report.streams.iter().map(|stream| stream.operations).sum::<u64>(), 200_000);
}
