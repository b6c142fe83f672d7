//! The driver's default streams, priorities, streams that others made, and the lint's report of calls that serialise
//! the device.

use conformance::{
    Child, Gate, ONE, assert_all, kernels_and_streams, next, on_threads, open_again, overlaps, refused, sync,
    tests,
};
use gpustream::{
    DefaultStream, Device, DeviceOptions, ErrorKind, Result, Stream, StreamOptions, StreamPriorities,
};

tests! {
    Alone: legacy_and_blocking_streams_wait_for_each_other;
    Alone if overlaps: legacy_and_non_blocking_streams_overlap, threads_have_streams_of_their_own;
    Plain: memory_is_tracked_over_default_streams, values_of_one_stream_share_its_capture,
        a_stream_taken_anew_inside_a_capture_is_still_part_of_it,
        a_shared_stream_outlives_the_handle_it_came_from, long_copies_on_default_streams_arrive,
        another_threads_stream_is_refused, foreign_streams_are_one_queue,
        foreign_streams_may_be_destroyed_after_their_work, priorities_change_no_order,
        the_lint_report_names_lines, the_lint_is_silent_unless_asked;
    Part: serialise;
}

const N: usize = 3000;

fn legacy_and_blocking_streams_wait_for_each_other(device: &Device) -> Result<()> {
    let legacy = device.default_stream(DefaultStream::Legacy)?;
    let blocking = device.stream_with(StreamOptions::default().blocking_with_default(true))?;
    waits_for(&legacy, &blocking, "the legacy stream waits for the blocking one")?;
    waits_for(&blocking, &legacy, "the blocking stream waits for the legacy one")
}

fn waits_for(waiting: &Stream, spinning: &Stream, rule: &str) -> Result<()> {
    let kernels = sync::Kernels::load(waiting.device())?;
    let mut x = waiting.full(N, 1u32)?;
    waiting.synchronize()?;
    let gate = Gate::new(waiting.device())?;
    gate.hold(&kernels, spinning)?;
    kernels.step(waiting, &mut x, 1, N)?;
    let event = waiting.record()?;
    assert!(!event.is_done()?, "{rule}");
    gate.open();
    event.synchronize()?;
    assert_all(waiting, &x, 6)
}

fn legacy_and_non_blocking_streams_overlap(device: &Device) -> Result<()> {
    let legacy = device.default_stream(DefaultStream::Legacy)?;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &legacy)?;
    kernels.step(&s, &mut x, 1, N)?;
    s.synchronize()?;
    assert!(!legacy.record()?.is_done()?);
    gate.open();
    legacy.synchronize()
}

/// Each thread's kernel waits for the other thread's kernel. If both threads had the same stream, this would hang.
fn threads_have_streams_of_their_own(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let flags = [device.flag()?, device.flag()?];
    on_threads(2, |thread| {
        let [here, there] = [thread, 1 - thread].map(|thread| &flags[thread as usize]);
        let s = device.default_stream(DefaultStream::PerThread)?;
        kernels.arrive(&s, &ONE, &mut here.clone(), there)?;
        s.synchronize()
    })
}

fn memory_is_tracked_over_default_streams(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut want = 1u32;
    for value in 0..20 {
        for which in [DefaultStream::Legacy, DefaultStream::PerThread] {
            kernels.step(&device.default_stream(which)?, &mut x, value, N)?;
            want = next(want, value);
        }
        kernels.step(&s, &mut x, value, N)?;
        want = next(want, value);
    }
    assert_all(&s, &x, want)
}

/// You can have several values for one stream: a thread's default stream taken twice, taken from another handle, or
/// made from the raw stream. If you capture through one value and submit through the other, the operation is part of
/// the graph.
fn values_of_one_stream_share_its_capture(device: &Device) -> Result<()> {
    let s = device.default_stream(DefaultStream::PerThread)?;
    let again = open_again(device, DeviceOptions::default())?;
    let foreign = device.stream()?;
    // SAFETY: the streams outlive the values and their work.
    let (default, adopted) =
        unsafe { (device.stream_from_raw(s.as_raw()), device.stream_from_raw(foreign.as_raw())) };
    let here = device.default_stream(DefaultStream::PerThread)?;
    let there = again.default_stream(DefaultStream::PerThread)?;
    for (captured, other) in [(&s, &here), (&s, &default), (&s, &there), (&there, &s), (&foreign, &adopted)] {
        let mut x = other.full(N, 1u32)?;
        other.synchronize()?;
        let graph = captured.capture(|_| other.fill(&mut x, 2))?;
        assert_eq!((graph.node_count(), other.download(&x)?[0]), (1, 1), "{captured:?} and {other:?}");
        graph.launch(captured)?;
        captured.synchronize()?;
        assert_eq!(other.download(&x)?, [2; N]);
    }
    Ok(())
}

/// If a stream has joined a capture, the driver goes on recording it even after you have dropped its last value.
fn a_stream_taken_anew_inside_a_capture_is_still_part_of_it(device: &Device) -> Result<()> {
    let own = device.default_stream(DefaultStream::PerThread)?;
    drop(own);
    let again = open_again(device, DeviceOptions::default())?;
    let s = device.stream()?;
    for elsewhere in [false, true] {
        let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 1u32)?);
        let mut host = device.pinned::<u32>(N)?;
        s.synchronize()?;
        let graph = s.capture(|s| {
            s.fill(&mut x, 2)?;
            let event = s.record()?;
            let joined = device.default_stream(DefaultStream::PerThread)?;
            joined.wait(&event)?;
            if elsewhere {
                std::thread::scope(|scope| scope.spawn(|| drop(joined)).join().unwrap());
            } else {
                drop(joined);
            }
            // Another handle of the device must find it as well.
            assert!(again.default_stream(DefaultStream::PerThread)?.synchronize().is_err());
            device.default_stream(DefaultStream::PerThread)?.copy(&x, &mut host)?;
            device.default_stream(DefaultStream::PerThread)?.fill(&mut y, 3)
        })?;
        assert_eq!(graph.dot().matches("label").count(), 3, "{}", graph.dot());
        // Afterwards the stream works as before, and the graph owns the memory that it refers to.
        assert_eq!(device.default_stream(DefaultStream::PerThread)?.download(&x)?, [1; N]);
        drop((x, y));
        graph.launch(&s)?;
        assert_eq!(*host.read()?, [2; N]);
    }
    Ok(())
}

fn a_shared_stream_outlives_the_handle_it_came_from(device: &Device) -> Result<()> {
    let own = device.default_stream(DefaultStream::PerThread)?;
    drop(own);
    let kernels = sync::Kernels::load(device)?;
    let first = open_again(device, DeviceOptions::default())?;
    let of_first = first.default_stream(DefaultStream::PerThread)?;
    let mut gone = of_first.full(N, 1u32)?;
    let s = device.default_stream(DefaultStream::PerThread)?;
    let mut x = s.full(N, 1u32)?;
    of_first.fill(&mut gone, 2)?;
    drop((gone, of_first, first));
    kernels.step(&s, &mut x, 1, N)?;
    // Another stream must still wait for the shared stream's work.
    let t = device.stream()?;
    kernels.step(&t, &mut x, 2, N)?;
    assert_eq!(t.download(&x)?, [32; N]);
    drop(x);
    device.trim();
    s.synchronize()
}

/// The calling thread must make these long copies by itself, because "the per-thread stream" means another stream on a
/// staging thread.
fn long_copies_on_default_streams_arrive(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default().staging_threads(4))?;
    for which in [DefaultStream::Legacy, DefaultStream::PerThread] {
        let s = device.default_stream(which)?;
        for round in 0..20u8 {
            let values: Vec<u8> = (0..5 << 20).map(|index: usize| (index % 251) as u8 ^ round).collect();
            let x = s.upload(&values)?;
            assert!(s.download(&x)? == values, "{which:?}, round {round}");
        }
    }
    Ok(())
}

/// The driver's handle means "the stream of the calling thread", so on another thread it would name another queue.
fn another_threads_stream_is_refused(device: &Device) -> Result<()> {
    let s = device.default_stream(DefaultStream::PerThread)?;
    let kernels = &sync::Kernels::load(device)?;
    let mut x = s.full(N, 1u32)?;
    kernels.step(&s, &mut x, 1, N)?;
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                refused(s.record(), ErrorKind::InvalidArgument, &["thread"]);
                refused(s.synchronize(), ErrorKind::InvalidArgument, &["thread"]);
                refused(kernels.step(&s, &mut x, 2, N), ErrorKind::InvalidArgument, &["thread"]);
                // But this thread can use the memory on another stream.
                let t = device.stream()?;
                kernels.step(&t, &mut x, 3, N)?;
                assert_eq!(t.download(&x)?, [33; N]);
                Ok(())
            })
            .join()
    })
    .unwrap()
}

fn foreign_streams_are_one_queue(device: &Device) -> Result<()> {
    let (kernels, [owner]) = kernels_and_streams(device)?;
    // SAFETY: `owner` outlives the value and its work.
    let adopted = unsafe { device.stream_from_raw(owner.as_raw()) };
    let mut x = owner.full(N, 1u32)?;
    let mut want = 1u32;
    for value in 0..20 {
        kernels.step(if value % 2 == 0 { &adopted } else { &owner }, &mut x, value, N)?;
        want = next(want, value);
    }
    assert_eq!(adopted.download(&x)?, vec![want; N]);
    drop(adopted);
    assert_eq!(owner.download(&x)?, vec![want; N], "the stream is still there");
    Ok(())
}

/// You may destroy a foreign stream once you have dropped its value and its work is done. The library must not call the
/// driver with that stream any more.
fn foreign_streams_may_be_destroyed_after_their_work(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    for _ in 0..10 {
        let raw = device.raw().stream_create(StreamOptions::default())?;
        // SAFETY: destroyed after the value is gone and all work is done.
        let adopted = unsafe { device.stream_from_raw(raw) };
        let mut x = adopted.full(N, 1u32)?;
        kernels.step(&adopted, &mut x, 1, N)?;
        drop(adopted);
        // SAFETY: the stream is no longer used.
        unsafe {
            device.raw().stream_synchronize(raw)?;
            device.raw().stream_destroy(raw)?;
        }
        kernels.step(&s, &mut x, 2, N)?;
        assert_eq!(s.download(&x)?, [32; N]);
        drop(x);
        device.trim();
    }
    conformance::synchronize(device)
}

fn priorities_change_no_order(device: &Device) -> Result<()> {
    let StreamPriorities { least, greatest } = device.info().limits.stream_priorities;
    assert!(greatest <= least, "lower is more urgent: {least} to {greatest}");
    let urgent = device.stream_with(StreamOptions::default().priority(greatest))?;
    let idle = device.stream_with(StreamOptions::default().priority(least))?;
    let kernels = sync::Kernels::load(device)?;
    let mut x = idle.full(N, 1u32)?;
    // A stream with a high priority must still wait if one with a low priority writes its memory.
    kernels.step(&idle, &mut x, 1, N)?;
    kernels.step(&urgent, &mut x, 2, N)?;
    assert_all(&urgent, &x, 32)
}

/// Makes calls that serialise the device, in a child with `GPUSTREAM_LINT=1`.
fn serialise(device: &Device) -> Result<()> {
    for _ in 0..3 {
        device.synchronize()?;
        drop(device.stream_with(StreamOptions::default().blocking_with_default(true))?);
        drop(device.default_stream(DefaultStream::Legacy)?);
        device.trim();
    }
    let s = device.stream()?;
    for _ in 0..3 {
        // There is no pool, so the driver frees the memory in each round.
        drop(s.upload(&[1u32; 10])?);
        s.synchronize()?;
    }
    Ok(())
}

fn the_lint_report_names_lines(device: &Device) -> Result<()> {
    let child = Child::of(device, "default_streams::serialise").env("GPUSTREAM_LINT", "1");
    let output = child.env("GPUSTREAM_POOL", "none").succeeds()?;
    let mut parts = vec![
        "waiting for the whole device",
        "a blocking stream and the legacy default stream wait for each other",
        "the legacy default stream waits for every blocking stream",
        "the host copies an ordinary slice",
    ];
    if device.info().quirks.free_synchronizes {
        parts.extend(["returning memory to the driver", "this allocation first returns freed memory"]);
    }
    for part in parts {
        let of_this_file = |line: &&str| line.contains(part) && line.contains("default_streams.rs:");
        assert_eq!(output.lines().filter(of_this_file).count(), 1, "{part}, once: {output}");
    }
    Ok(())
}

fn the_lint_is_silent_unless_asked(device: &Device) -> Result<()> {
    let output = Child::of(device, "default_streams::serialise").env("GPUSTREAM_LINT", "0").succeeds()?;
    assert_eq!(output, "");
    Ok(())
}
