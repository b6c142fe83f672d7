//! Streams and events.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fake_hip::Profile;
use gpustream_hal::{DefaultStream, ErrorKind, EventOptions, RawStream, StreamOptions, WaitPolicy};

use super::{assert_call, signed, start};
use crate::PROFILE;

#[test]
fn streams_carry_flags_and_priority() {
    let (recorder, device) = start();
    let before = recorder.live().streams;
    let (stream, calls) =
        recorder.record(|| device.stream_create(StreamOptions::default().priority(-1)).unwrap());
    assert_call(&calls, "hipStreamCreateWithPriority", &[("flags", 1), ("priority", signed(-1))]);
    let options = StreamOptions::default().blocking_with_default(true);
    let (blocking, calls) = recorder.record(|| device.stream_create(options).unwrap());
    assert_call(&calls, "hipStreamCreateWithPriority", &[("flags", 0), ("priority", 0)]);
    for stream in [stream, blocking] {
        // SAFETY: alive, and not used again.
        let ((), calls) = recorder.record(|| unsafe { device.stream_destroy(stream) }.unwrap());
        assert_call(&calls, "hipStreamDestroy", &[("stream", stream.0 as u64)]);
    }
    assert_eq!(recorder.live().streams, before);
}

#[test]
fn default_streams_are_the_handles_that_every_version_has() {
    let (recorder, device) = start();
    let (legacy, calls) = recorder.record(|| device.stream_default(DefaultStream::Legacy).unwrap());
    assert!(calls.is_empty());
    assert_eq!(legacy, RawStream(0));
    let own = device.stream_default(DefaultStream::PerThread).unwrap();
    assert_eq!(own, RawStream(2));
    // SAFETY: the driver's own streams are always alive.
    unsafe {
        assert!(device.stream_query(legacy).unwrap());
        device.stream_synchronize(own).unwrap();
    }
}

#[test]
fn pending_work_is_not_ready_and_not_an_error() {
    let (recorder, device) = start();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let event = device.event_create(EventOptions::default()).unwrap();
    recorder.hold();
    // SAFETY: both are alive throughout.
    unsafe {
        device.event_record(event, stream).unwrap();
        let (done, calls) = recorder.record(|| device.stream_query(stream).unwrap());
        assert!(!done);
        assert_call(&calls, "hipStreamQuery", &[("stream", stream.0 as u64)]);
        assert!(!device.event_query(event).unwrap());
        recorder.release();
        device.stream_synchronize(stream).unwrap();
        device.event_synchronize(event).unwrap();
        assert!(device.stream_query(stream).unwrap());
        let (done, calls) = recorder.record(|| device.event_query(event).unwrap());
        assert!(done);
        assert_call(&calls, "hipEventQuery", &[("event", event.0 as u64)]);
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_wait_orders_one_stream_after_another() {
    let (recorder, device) = start();
    let [a, b] = [(); 2].map(|()| device.stream_create(StreamOptions::default()).unwrap());
    let event = device.event_create(EventOptions::default()).unwrap();
    // SAFETY: all are alive throughout.
    unsafe {
        let ((), calls) = recorder.record(|| device.event_record(event, a).unwrap());
        assert_call(&calls, "hipEventRecord", &[("event", event.0 as u64), ("stream", a.0 as u64)]);
        let ((), calls) = recorder.record(|| device.stream_wait_event(b, event).unwrap());
        let args = [("stream", b.0 as u64), ("event", event.0 as u64), ("flags", 0)];
        assert_call(&calls, "hipStreamWaitEvent", &args);
        device.event_destroy(event).unwrap();
        device.stream_destroy(a).unwrap();
        device.stream_destroy(b).unwrap();
    }
}

#[test]
fn events_carry_timing_and_waiting() {
    let (recorder, device) = start();
    let cases = [
        (EventOptions::default(), 2),
        (EventOptions::default().wait(WaitPolicy::Yield), 2),
        (EventOptions::default().wait(WaitPolicy::Block), 3),
        (EventOptions::default().timing(true), 0),
        (EventOptions::default().timing(true).wait(WaitPolicy::Block), 1),
    ];
    for (options, flags) in cases {
        let (event, calls) = recorder.record(|| device.event_create(options).unwrap());
        assert_call(&calls, "hipEventCreateWithFlags", &[("flags", flags)]);
        // SAFETY: alive, and not used again.
        let ((), calls) = recorder.record(|| unsafe { device.event_destroy(event) }.unwrap());
        assert_call(&calls, "hipEventDestroy", &[("event", event.0 as u64)]);
    }
}

#[test]
fn time_between_two_events() {
    let (recorder, device) = start();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let [start, end] = [(); 2].map(|()| device.event_create(EventOptions::default().timing(true)).unwrap());
    // SAFETY: all are alive throughout.
    unsafe {
        device.event_record(start, stream).unwrap();
        device.event_record(end, stream).unwrap();
        device.event_synchronize(end).unwrap();
        let (elapsed, calls) = recorder.record(|| device.event_elapsed(start, end).unwrap());
        assert_call(&calls, "hipEventElapsedTime", &[("start", start.0 as u64), ("end", end.0 as u64)]);
        // The fake's clock ticks a microsecond for each operation.
        assert!(elapsed > Duration::from_nanos(900) && elapsed < Duration::from_nanos(1100), "{elapsed:?}");

        let unrecorded = device.event_create(EventOptions::default().timing(true)).unwrap();
        let error = device.event_elapsed(start, unrecorded).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Driver, Some(400)));
        for event in [start, end, unrecorded] {
            device.event_destroy(event).unwrap();
        }
        device.stream_destroy(stream).unwrap();
    }
}

unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the stream's work.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_functions_run_by_whichever_function_the_version_has() {
    let (recorder, device) = start();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    // SAFETY: the counter outlives the work, which is waited for.
    let ((), calls) = recorder.record(|| unsafe { device.stream_host_fn(stream, add_one, data) }.unwrap());
    let name = if PROFILE == Profile::Rocm5 { "hipStreamAddCallback" } else { "hipLaunchHostFunc" };
    assert_call(&calls, name, &[("stream", stream.0 as u64)]);
    // SAFETY: the stream is alive.
    unsafe { device.stream_synchronize(stream) }.unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 1);

    // A refused one is not called, and nothing is left behind.
    recorder.fail_next(name, 900);
    // SAFETY: the counter outlives the call, which is refused.
    let error = unsafe { device.stream_host_fn(stream, add_one, data) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Captured);
    // SAFETY: alive, and not used again.
    unsafe { device.stream_destroy(stream) }.unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 1);
}
