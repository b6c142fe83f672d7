//! Traces that take their times from events, on drivers that log. Each test has its own process, and finds no CUPTI
//! there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::ops::Range;
use std::thread;

use gpustream::hal::StreamOptions;
use gpustream::timeline::Timeline;
use gpustream::{Device, Stream};
use recorder::{Call, Recorder};

use crate::fakes::{Fake, in_child, on_each};

/// Plays a scene on each driver, without a library that measures times.
fn by_events(scene: impl Fn(&Fake, &Recorder)) {
    in_child(&[("GPUSTREAM_CUPTI_LIBRARY", "none")], || on_each(scene));
}

/// Returns the calls that `work` makes for its own stream, in words. The first fill tells which stream that is.
fn words(recorder: &Recorder, work: impl FnOnce()) -> Vec<&'static str> {
    let ((), calls) = recorder.record(work);
    let stream =
        |call: &Call| call.args.iter().find(|(name, _)| *name == "stream").map(|(_, stream)| *stream);
    let own = calls.iter().find(|call| call.word() == "fill").and_then(stream);
    // The thread that collects has its own stream and asks about events, so we leave its calls out.
    calls.iter().filter(|call| own.is_some() && stream(call) == own).map(Call::word).collect()
}

/// Returns when the operations ran, in the order of submission.
fn ran(timeline: &Timeline) -> Vec<Range<u64>> {
    let mut operations: Vec<_> = timeline.operations.iter().collect();
    operations.sort_by_key(|operation| operation.submitted.start);
    operations.into_iter().map(|operation| operation.ran.clone().unwrap()).collect()
}

fn fill_twice(stream: &Stream) -> gpustream::Result<()> {
    let mut x = stream.alloc::<u32>(10)?;
    stream.fill(&mut x, 1)?;
    stream.fill(&mut x, 2)
}

/// If the previous operation is still running, an operation begins when that one ends. So it needs only one event.
#[test]
fn operations_in_a_row_take_an_event_each() {
    by_events(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let stream = device.stream().unwrap();
        fill_twice(&stream).unwrap();
        let trace = device.trace().unwrap();
        recorder.hold();
        let calls = words(recorder, || fill_twice(&stream).unwrap());
        assert_eq!(calls, ["record", "fill", "record", "fill", "record"], "{}", fake.name);
        recorder.release();
        stream.synchronize().unwrap();
        let calls = words(recorder, || {
            fill_twice(&stream).unwrap();
        });
        assert_eq!(
            calls,
            ["record", "fill", "record", "record", "fill", "record"],
            "nothing runs: {}",
            fake.name
        );
        let ran = ran(&trace.stop().unwrap());
        assert_eq!(ran.len(), 4);
        assert_eq!(ran[0].end, ran[1].start, "{ran:?}");
    });
}

/// If the trace waited for the whole context, it would break the capture.
#[test]
fn a_trace_ends_while_another_thread_captures() {
    by_events(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let (stream, captured) = (device.stream().unwrap(), device.stream().unwrap());
        let trace = device.trace().unwrap();
        fill_twice(&stream).unwrap();
        let graph = captured.capture(|captured| {
            let (timeline, calls) =
                recorder.record(|| thread::scope(|s| s.spawn(|| trace.stop()).join().unwrap()));
            assert_eq!(timeline?.operations.len(), 2);
            assert!(calls.iter().all(|call| call.word() != "sync device"), "{}", fake.name);
            fill_twice(captured)
        });
        graph.unwrap().launch(&captured).unwrap();
    });
}

/// An event that is recorded after a wait can hold up more than its own stream, so we must not record one there.
#[test]
fn operations_behind_a_wait_begin_when_it_ends() {
    by_events(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = a.alloc::<u32>(10).unwrap();
        let mut y = a.alloc::<u32>(10).unwrap();
        let trace = device.trace().unwrap();
        recorder.hold();
        fill_twice(&b).unwrap();
        a.fill(&mut x, 1).unwrap();
        let calls = words(recorder, || b.fill(&mut x, 2).unwrap());
        assert_eq!(calls, ["wait", "fill", "record"], "{}", fake.name);
        a.fill(&mut y, 2).unwrap();
        recorder.release();
        let ran = ran(&trace.stop().unwrap());
        assert_eq!(ran.len(), 5);
        assert!(ran[3].start >= ran[1].end.max(ran[2].end), "{ran:?}");
    });
}

/// Untraced work may hold up the stream, so the operation needs an event that says when it began.
#[test]
fn operations_that_wait_for_untraced_work_have_their_own_start() {
    by_events(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let untraced = Device::open(fake.name).unwrap();
        let (a, b) = (untraced.stream().unwrap(), device.stream().unwrap());
        let blocking = device.stream_with(StreamOptions::default().blocking_with_default(true)).unwrap();
        let handed_out = device.stream().unwrap();
        let _ = handed_out.as_raw();
        let trace = device.trace().unwrap();
        recorder.hold();
        for stream in [&blocking, &handed_out] {
            let calls = words(recorder, || fill_twice(stream).unwrap());
            assert_eq!(calls, ["record", "fill", "record", "record", "fill", "record"], "{}", fake.name);
        }
        fill_twice(&b).unwrap();
        fill_twice(&a).unwrap();
        let reached = a.record().unwrap();
        let calls = words(recorder, || {
            b.wait(&reached).unwrap();
            fill_twice(&b).unwrap();
        });
        assert_eq!(calls, ["wait", "record", "fill", "record", "fill", "record"], "{}", fake.name);
        recorder.release();
        assert_eq!(trace.stop().unwrap().operations.len(), 8);
    });
}
