//! Streams and events.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpustream_hal::{
    DefaultStream, ErrorKind, EventOptions, PinnedOptions, RawStream, StreamOptions, WaitPolicy, WaitValue,
};

use super::startup::in_own_process;
use super::{Vendor, add_one, assert_call, assert_one, names, pick, signed, start, stream};
use crate::VENDOR;

#[test]
fn streams_carry_flags_and_priority() {
    let (recorder, device) = start();
    let before = recorder.live().streams;
    let names = ["cuStreamCreateWithPriority", "hipStreamCreateWithPriority"];
    let (stream, calls) =
        recorder.record(|| device.stream_create(StreamOptions::default().priority(-1)).unwrap());
    assert_one(&calls, names, &[("flags", 1), ("priority", signed(-1))]);
    let options = StreamOptions::default().blocking_with_default(true);
    let (blocking, calls) = recorder.record(|| device.stream_create(options).unwrap());
    assert_one(&calls, names, &[("flags", 0), ("priority", 0)]);
    for stream in [stream, blocking] {
        // SAFETY: alive, and not used again.
        let ((), calls) = recorder.record(|| unsafe { device.stream_destroy(stream) }.unwrap());
        assert_one(&calls, ["cuStreamDestroy_v2", "hipStreamDestroy"], &[("stream", stream.0 as u64)]);
    }
    assert_eq!(recorder.live().streams, before);
}

/// Green contexts are made once in a process, so this test needs its own.
#[test]
fn stream_on_a_part_gets_whole_groups_that_differ() {
    in_own_process(&[], || {
        let (recorder, device) = start();
        let ask = |least| StreamOptions::default().multiprocessors(least);
        let make = |least| recorder.record(|| device.stream_create(ask(least)).unwrap());
        let made: Vec<_> = [20, 20, 17, 9].map(make).into();
        // SAFETY: the streams are alive.
        let given = made.iter().map(|(stream, _)| unsafe { device.stream_multiprocessors(*stream) });
        assert_eq!(given.collect::<Vec<_>>(), [24, 24, 24, 16].map(Some));
        let (whole, calls) = make(device.info().multiprocessors);
        // SAFETY: the stream is alive.
        let given = unsafe { device.stream_multiprocessors(whole) };
        assert_eq!(given, Some(device.info().multiprocessors));
        if VENDOR == Vendor::Cuda {
            let all = [
                "cuDeviceGetDevResource",
                "cuDevSmResourceSplitByCount",
                "cuDevSmResourceSplitByCount",
                "cuDevResourceGenerateDesc",
                "cuGreenCtxCreate",
                "cuGreenCtxStreamCreate",
            ];
            assert_eq!(names(&made[0].1), all);
            // We get the whole device, because the driver has no group of that size.
            assert_eq!(names(&calls), [&all[..2], &all[3..]].concat());
        } else {
            let asked = ["hipDeviceGetAttribute", "hipExtStreamCreateWithCUMask"];
            assert_eq!(names(&made[0].1), asked);
            assert_eq!(made[0].1[1].arg("words"), 4, "104 bits");
        }
        let streams = made.iter().map(|(stream, _)| *stream).chain([whole]);
        for stream in streams {
            // SAFETY: alive, and not used again.
            let ((), calls) = recorder.record(|| unsafe { device.stream_destroy(stream) }.unwrap());
            assert_one(&calls, ["cuStreamDestroy_v2", "hipStreamDestroy"], &[]);
        }
    });
}

#[test]
fn ordinary_stream_is_on_no_part() {
    let (_recorder, device) = start();
    let stream = stream(&*device);
    // SAFETY: alive, and not used after its end.
    unsafe {
        assert_eq!(device.stream_multiprocessors(stream), None);
        let legacy = device.stream_default(DefaultStream::Legacy).unwrap();
        assert_eq!(device.stream_multiprocessors(legacy), None);
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn default_streams_are_the_handles_that_every_version_has() {
    let (recorder, device) = start();
    let (streams, calls) = recorder.record(|| {
        [DefaultStream::Legacy, DefaultStream::PerThread].map(|which| device.stream_default(which).unwrap())
    });
    assert!(calls.is_empty());
    assert_eq!(streams, [pick([1, 0]), 2].map(RawStream));
    // SAFETY: the driver's own streams are always alive.
    unsafe {
        assert!(device.stream_query(streams[0]).unwrap());
        for stream in streams {
            let ((), calls) = recorder.record(|| device.stream_synchronize(stream).unwrap());
            assert_one(&calls, ["cuStreamSynchronize", "hipStreamSynchronize"], &[]);
        }
    }
}

#[test]
fn pending_work_is_not_ready_and_not_an_error() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let event = device.event_create(EventOptions::default()).unwrap();
    let (of_stream, of_event) = ([("stream", stream.0 as u64)], [("event", event.0 as u64)]);
    recorder.hold();
    // SAFETY: both are alive throughout.
    unsafe {
        device.event_record(event, stream).unwrap();
        for done in [false, true] {
            if done {
                recorder.release();
                let ((), calls) = recorder.record(|| device.stream_synchronize(stream).unwrap());
                assert_one(&calls, ["cuStreamSynchronize", "hipStreamSynchronize"], &of_stream);
                let ((), calls) = recorder.record(|| device.event_synchronize(event).unwrap());
                assert_one(&calls, ["cuEventSynchronize", "hipEventSynchronize"], &of_event);
                let ((), calls) = recorder.record(|| device.synchronize().unwrap());
                assert_one(&calls, ["cuCtxSynchronize", "hipDeviceSynchronize"], &[]);
            }
            let (answer, calls) = recorder.record(|| device.stream_query(stream).unwrap());
            assert_eq!(answer, done);
            assert_one(&calls, ["cuStreamQuery", "hipStreamQuery"], &of_stream);
            let (answer, calls) = recorder.record(|| device.event_query(event).unwrap());
            assert_eq!(answer, done);
            assert_one(&calls, ["cuEventQuery", "hipEventQuery"], &of_event);
        }
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

/// A query must see the end as soon as the device is released. You need not wait first.
#[test]
fn query_sees_the_end_without_a_wait() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let event = device.event_create(EventOptions::default()).unwrap();
    recorder.hold();
    // SAFETY: both are alive until the end.
    unsafe {
        device.event_record(event, stream).unwrap();
        recorder.release();
        assert!(device.event_query(event).unwrap());
        assert!(device.stream_query(stream).unwrap());
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn synchronize_blocks_until_the_device_gets_there() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let event = device.event_create(EventOptions::default()).unwrap();
    recorder.hold();
    // SAFETY: both are alive until the end.
    unsafe { device.event_record(event, stream) }.unwrap();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the event is alive to the end.
            unsafe { device.event_synchronize(event) }.unwrap();
            done.store(1, Ordering::SeqCst);
        });
        recorder.wait_until_someone_waits();
        assert_eq!(done.load(Ordering::SeqCst), 0);
        recorder.release();
    });
    assert_eq!(done.load(Ordering::SeqCst), 1);
    // SAFETY: nothing uses them any more.
    unsafe {
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn wait_orders_one_stream_after_another() {
    let (recorder, device) = start();
    let [a, b] = [(); 2].map(|()| stream(&*device));
    let event = device.event_create(EventOptions::default()).unwrap();
    // SAFETY: all are alive throughout.
    unsafe {
        let ((), calls) = recorder.record(|| device.event_record(event, a).unwrap());
        let args = [("event", event.0 as u64), ("stream", a.0 as u64)];
        assert_one(&calls, ["cuEventRecord", "hipEventRecord"], &args);
        let ((), calls) = recorder.record(|| device.stream_wait_event(b, event).unwrap());
        let args = [("stream", b.0 as u64), ("event", event.0 as u64), ("flags", 0)];
        assert_one(&calls, ["cuStreamWaitEvent", "hipStreamWaitEvent"], &args);
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
        assert_one(&calls, ["cuEventCreate", "hipEventCreateWithFlags"], &[("flags", flags)]);
        // SAFETY: alive, and not used again.
        let ((), calls) = recorder.record(|| unsafe { device.event_destroy(event) }.unwrap());
        assert_one(&calls, ["cuEventDestroy_v2", "hipEventDestroy"], &[("event", event.0 as u64)]);
    }
}

#[test]
fn time_between_two_events_is_the_devices() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let [start, end] = [(); 2].map(|()| device.event_create(EventOptions::default().timing(true)).unwrap());
    // SAFETY: all are alive throughout.
    unsafe {
        device.event_record(start, stream).unwrap();
        device.event_record(end, stream).unwrap();
        device.event_synchronize(end).unwrap();
        let (elapsed, calls) = recorder.record(|| device.event_elapsed(start, end).unwrap());
        let args = [("start", start.0 as u64), ("end", end.0 as u64)];
        assert_one(&calls, ["cuEventElapsedTime", "hipEventElapsedTime"], &args);
        // The fake's clock ticks one microsecond for each operation.
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

#[test]
fn host_functions_run_by_whichever_function_the_version_has() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    // SAFETY: the counter outlives the work, which is waited for.
    let ((), calls) = recorder.record(|| unsafe { device.stream_host_fn(stream, add_one, data) }.unwrap());
    let name = match VENDOR {
        Vendor::Cuda => "cuLaunchHostFunc",
        Vendor::Rocm(5) => "hipStreamAddCallback",
        Vendor::Rocm(_) => "hipLaunchHostFunc",
    };
    assert_call(&calls, name, &[("stream", stream.0 as u64)]);
    // SAFETY: the stream is alive.
    unsafe { device.stream_synchronize(stream) }.unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 1);

    // If the driver refuses the function, we must not call it, and nothing may be left behind.
    recorder.fail_next(name, 900);
    // SAFETY: the counter outlives the call, which is refused.
    let error = unsafe { device.stream_host_fn(stream, add_one, data) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Captured);
    // SAFETY: alive, and not used again.
    unsafe { device.stream_destroy(stream) }.unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 1);
}

/// Each is one call. The waiting stream goes on when another stream writes a word that ends the wait.
#[test]
fn words_are_waited_for_and_written_in_stream_order() {
    let (recorder, device) = start();
    assert!(device.info().features.stream_wait_value);
    let [a, b] = [(); 2].map(|()| stream(&*device));
    let host = device.pinned_alloc(4, PinnedOptions::default()).unwrap();
    // SAFETY: all are alive until they are destroyed, in order, after their last use; the word is aligned.
    unsafe {
        let word = device.pinned_device_address(host).unwrap();
        let cases = [
            (WaitValue::AtLeast(7), 0, 7, [6, 9]),
            (WaitValue::Equal(5), 1, 5, [9, 5]),
            (WaitValue::AnyBit(0b110), 2, 0b110, [8, 12]),
        ];
        for (until, comparison, value, [other, meets]) in cases {
            let at = ("address", word.0 as u64);
            let ((), calls) = recorder.record(|| device.stream_write_value32(b, word, other).unwrap());
            let args = [("stream", b.0 as u64), at, ("value", other.into()), ("flags", 0)];
            assert_one(&calls, ["cuStreamWriteValue32_v2", "hipStreamWriteValue32"], &args);
            device.stream_synchronize(b).unwrap();
            let ((), calls) = recorder.record(|| device.stream_wait_value32(a, word, until).unwrap());
            let args = [("stream", a.0 as u64), at, ("value", value), ("flags", comparison)];
            assert_one(&calls, ["cuStreamWaitValue32_v2", "hipStreamWaitValue32"], &args);
            if VENDOR != Vendor::Cuda {
                assert_eq!(calls[0].arg("mask"), u32::MAX.into());
            }
            assert!(!device.stream_query(a).unwrap(), "{until:?} is not met by {other}");
            device.stream_write_value32(b, word, meets).unwrap();
            device.stream_synchronize(a).unwrap();
        }
        device.pinned_free(host).unwrap();
        device.stream_destroy(a).unwrap();
        device.stream_destroy(b).unwrap();
    }
}
