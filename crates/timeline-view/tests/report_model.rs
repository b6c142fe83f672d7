//! Compares reports of random timelines with a model that looks at every nanosecond and every pair of
//! operations.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod made_up;

use std::collections::BTreeSet;
use std::ops::Range;

use gpustream_timeline::{Direction, Nanos, Point, Timeline, WorkKind};
use gpustream_timeline_view::{Engine, GapOf, Link, Overlap, PathStep, Report};
use made_up::{KERNEL, copy, timeline};
use proptest::prelude::*;

const STREAMS: u64 = 3;

prop_compose! {
    fn range(most: Nanos)(start in 0..most, length in 0..most / 3) -> Range<Nanos> {
        start..start + length
    }
}

fn work() -> impl Strategy<Value = WorkKind> {
    prop_oneof![
        Just(KERNEL),
        (0..100u64).prop_map(|bytes| copy(Direction::Up, bytes)),
        (0..100u64).prop_map(|bytes| copy(Direction::Down, bytes)),
        (0..100u64).prop_map(|bytes| WorkKind::Fill { bytes }),
        Just(WorkKind::Host),
        Just(WorkKind::Other),
    ]
}

prop_compose! {
    fn timelines()(
        operations in prop::collection::vec(
            (1..=STREAMS, work(), range(60), prop::option::weighted(0.9, range(60)), 0..4u64, 0..20u64),
            0..25,
        ),
        waits in prop::collection::vec(range(60), 0..4),
    ) -> Timeline {
        let mut made = timeline(STREAMS);
        for (stream, work, submitted, ran, after, number) in operations {
            let added = made_up::add(&mut made, stream, "some", work, submitted, 0..0);
            added.ran = ran;
            if after != 0 && after != stream {
                added.after.push(Point { stream: after, number });
            }
        }
        for time in waits {
            made_up::wait(&mut made, time, 1, 1);
        }
        made
    }
}

/// Returns the nanoseconds in intervals.
fn cells(ranges: impl IntoIterator<Item = Range<Nanos>>) -> BTreeSet<Nanos> {
    ranges.into_iter().flatten().collect()
}

/// Returns the nanoseconds while a `wanted` operation ran.
fn ran(timeline: &Timeline, wanted: impl Fn(Engine) -> bool) -> BTreeSet<Nanos> {
    let operations = timeline.operations.iter().filter(|one| Engine::of(&one.work).is_some_and(&wanted));
    cells(operations.filter_map(|one| one.ran.clone()))
}

fn both(a: &BTreeSet<Nanos>, b: &BTreeSet<Nanos>) -> Nanos {
    a.intersection(b).count() as Nanos
}

/// Returns the lengths of the longest gaps between the first and last nanosecond of a set.
fn longest_gaps(busy: &BTreeSet<Nanos>) -> Vec<Nanos> {
    let pairs = busy.iter().zip(busy.iter().skip(1));
    let mut gaps: Vec<_> = pairs.map(|(a, b)| b - a - 1).filter(|&length| length > 0).collect();
    gaps.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
    gaps.truncate(5);
    gaps
}

/// Returns the operation that a point stands for, by looking at all of them.
fn at(timeline: &Timeline, point: Point) -> Option<usize> {
    let all = timeline.operations.iter().enumerate();
    let upto = all.filter(|(_, one)| one.point.stream == point.stream && one.point.number <= point.number);
    upto.filter(|(_, one)| one.ran.is_some()).max_by_key(|(_, one)| one.point.number).map(|(at, _)| at)
}

/// Returns the copy that ended last before a ready copy could start, if their engine was mostly busy in
/// between.
fn kept_busy(timeline: &Timeline, copy: usize, ready: Nanos) -> Option<usize> {
    let engine = Engine::of(&timeline.operations[copy].work)?;
    let start = timeline.operations[copy].ran.clone()?.start;
    let waited: BTreeSet<_> = (ready..start).collect();
    let busy = both(&waited, &ran(timeline, |one| one == engine));
    let is_copy = matches!(engine, Engine::Up | Engine::Down | Engine::Inside);
    if !is_copy || busy == 0 || 2 * busy < waited.len() as Nanos {
        return None;
    }
    let same =
        timeline.operations.iter().enumerate().filter(|(_, one)| Engine::of(&one.work) == Some(engine));
    let ends = same.filter_map(|(at, one)| Some((one.ran.clone()?.end, at)));
    ends.filter(|&(end, _)| end <= start).max().filter(|&(end, _)| end > ready).map(|(_, at)| at)
}

proptest! {
    #[test]
    fn busy_times_and_overlaps_are_those_of_single_nanoseconds(made in timelines()) {
        let report = Report::of(&made);
        let device = &report.devices[0];
        let busy = ran(&made, |engine| engine != Engine::Host);
        prop_assert_eq!(device.busy, busy.len() as Nanos);
        prop_assert_eq!(device.busy + device.idle, report.total);
        prop_assert_eq!(report.device, device.busy);
        let mut sum = 0;
        for engine in &device.engines {
            let of_engine = ran(&made, |one| one == engine.engine);
            prop_assert_eq!(engine.busy, of_engine.len() as Nanos, "{:?}", engine.engine);
            sum += if engine.engine == Engine::Host { 0 } else { engine.busy };
            let bytes = made.operations.iter().filter(|one| Engine::of(&one.work) == Some(engine.engine));
            let bytes: u64 = bytes.map(|one| match one.work {
                WorkKind::Copy { bytes, .. } | WorkKind::Fill { bytes } => bytes,
                _ => 0,
            }).sum();
            prop_assert_eq!(engine.bytes, bytes);
        }
        prop_assert_eq!(device.hidden, Overlap { time: sum - device.busy, of: sum });
        let copies = ran(&made, |one| matches!(one, Engine::Up | Engine::Down | Engine::Inside));
        let kernels = ran(&made, |one| one == Engine::Kernels);
        let [up, down] = [Engine::Up, Engine::Down].map(|wanted| ran(&made, |one| one == wanted));
        let with_kernels = Overlap { time: both(&copies, &kernels), of: copies.len() as Nanos };
        prop_assert_eq!(device.copies_with_kernels, with_kernels);
        let directions = Overlap { time: both(&up, &down), of: up.union(&down).count() as Nanos };
        prop_assert_eq!(device.both_directions, directions);

        let submitted = made.operations.iter().map(|one| one.submitted.clone());
        let waits = made.spans.iter().map(|span| span.time.clone());
        let of_thread: Vec<_> = submitted.chain(waits.clone()).collect();
        let first = of_thread.iter().map(|time| time.start).min().unwrap_or(0);
        let last = of_thread.iter().map(|time| time.end).max().unwrap_or(0);
        let host: BTreeSet<_> = &(first..last).collect::<BTreeSet<_>>() - &cells(waits);
        let functions = ran(&made, |one| one == Engine::Host);
        let host = host.union(&functions).count() as Nanos;
        prop_assert_eq!(report.host, host);
        prop_assert_eq!(report.remaining, report.total - host.max(report.device));
    }

    #[test]
    fn gaps_are_those_between_busy_nanoseconds(made in timelines()) {
        let report = Report::of(&made);
        let lengths = |of| {
            let gaps = report.gaps.iter().filter(|gap| gap.of == of);
            gaps.map(|gap| gap.time.end - gap.time.start).collect::<Vec<_>>()
        };
        let busy = ran(&made, |engine| engine != Engine::Host);
        prop_assert_eq!(lengths(GapOf::Device(0)), longest_gaps(&busy));
        for stream in 1..=STREAMS {
            let of_stream = made.operations.iter().filter(|one| one.point.stream == stream);
            let busy = cells(of_stream.filter_map(|one| one.ran.clone()));
            prop_assert_eq!(lengths(GapOf::Stream(stream)), longest_gaps(&busy));
        }
        let inner = busy.last().map_or(0, |last| 1 + last - busy.first().unwrap()) - busy.len() as Nanos;
        prop_assert_eq!(report.devices[0].causes.iter().map(|cause| cause.time).sum::<Nanos>(), inner);
    }

    #[test]
    fn path_goes_to_the_last_that_had_to_end_before(made in timelines()) {
        let path = Report::of(&made).path;
        let key = |at: usize| made.operations[at].ran.clone().map(|ran| (ran.end, ran.start, at));
        let last = (0..made.operations.len()).filter_map(key).max().map(|(.., at)| at);
        prop_assert_eq!(path.steps.last().map(|step| step.operation), last);
        for (before, step) in [None].into_iter().chain(path.steps.iter().map(Some)).zip(&path.steps) {
            let operation = &made.operations[step.operation];
            let previous = Point { stream: operation.point.stream, number: operation.point.number - 1 };
            let stream = at(&made, previous).map(|at| (at, Link::Stream));
            let after = operation.after.iter().filter_map(|&point| at(&made, point)).map(|at| (at, Link::After));
            let had_to_end = stream.into_iter().chain(after).filter(|&(at, _)| key(at) < key(step.operation));
            let last = had_to_end.max_by_key(|&(at, _)| key(at));
            let ready = last.map_or(0, |(at, _)| key(at).unwrap().0).max(operation.submitted.end);
            if let Some(at) = kept_busy(&made, step.operation, ready).filter(|&at| key(at) < key(step.operation)) {
                prop_assert_eq!((before.map(|step| step.operation), step.link), (Some(at), Link::Engine));
                continue;
            }
            match last {
                Some((at, link)) if key(at).unwrap().0 >= operation.submitted.end => {
                    prop_assert_eq!((before.map(|step| step.operation), step.link), (Some(at), link));
                }
                _ => prop_assert_eq!(step.link, Link::Host),
            }
        }
        let sum = |part: fn(&PathStep) -> Nanos| path.steps.iter().map(part).sum::<Nanos>();
        prop_assert_eq!(path.running, sum(|step| step.ran));
        prop_assert_eq!(path.host + path.device, sum(|step| step.waited));
        prop_assert_eq!(path.time, path.running + path.host + path.device);
        prop_assert_eq!(path.labels.iter().map(|label| label.time).sum::<Nanos>(), path.running);
    }
}
