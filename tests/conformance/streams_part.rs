//! A stream can run on a part of the device. Its kernels stay there, and otherwise it works like any stream.

use std::collections::HashSet;

use conformance::{
    Gate, ONE, assert_all, has_cooperative_launches, kernels_and_streams, next, overlaps, refused, sync,
    tests,
};
use gpustream::{Device, ErrorKind, Launch, Result, Stream, StreamOptions};

use crate::lifetimes::dropped_in_use;

tests! {
    Alone if has_parts: kernels_stay_on_their_part;
    Plain if has_parts: a_part_is_at_least_as_large_as_asked,
        memory_kernels_and_events_are_shared_with_other_streams,
        priorities_go_together_with_parts_or_are_refused, a_stream_on_a_part_dropped_in_use_finishes_its_work,
        a_graph_outlives_the_stream_on_a_part_that_it_was_captured_on, many_streams_on_parts_come_and_go;
    Plain if has_parts, has_cooperative_launches: cooperative_grids_fit_the_part;
    Plain if has_parts, overlaps: equal_parts_overlap_in_time;
    Plain: parts_that_no_device_has_are_refused;
}

const N: usize = 3000;

fn part(least: u32) -> StreamOptions {
    StreamOptions::default().multiprocessors(least)
}

/// Returns true if the driver can make streams on a part of the device.
pub(crate) fn has_parts(device: &Device) -> bool {
    !device.stream_with(part(1)).is_err_and(|error| error.kind() == ErrorKind::Unsupported)
}

/// Returns a stream on at least this many multiprocessors.
fn on_part(device: &Device, least: u32) -> Result<Stream> {
    device.stream_with(part(least))
}

/// Returns how many multiprocessors a long kernel's blocks ran on, if the backend tells, and how many blocks ran at
/// once.
fn places(kernels: &sync::Kernels, stream: &Stream) -> Result<(usize, u32)> {
    let device = stream.device().info();
    // There are many times more blocks than can run at once, and each takes much longer than it takes to start a block.
    let blocks = 64 * device.multiprocessors;
    let launch = Launch::new([blocks, 1, 1], [1, 1, 1]);
    let (mut places, mut running) = (stream.zeros::<u32>(blocks as usize)?, stream.zeros::<u32>(2)?);
    kernels.where_blocks_run(stream, &launch, &mut places, &mut running, 20_000)?;
    let places: HashSet<u32> = stream.download(&places)?.into_iter().collect();
    Ok((places.len(), stream.download(&running)?[1]))
}

fn kernels_stay_on_their_part(device: &Device) -> Result<()> {
    let (kernels, [whole]) = kernels_and_streams(device)?;
    let (all, _) = places(&kernels, &whole)?;
    for least in [1, device.info().multiprocessors.div_ceil(2)] {
        let stream = on_part(device, least)?;
        let given = stream.multiprocessors();
        let (used, at_once) = places(&kernels, &stream)?;
        assert!(used <= given as usize, "{used} multiprocessors for a stream that was given {given}");
        match device.info().backend.as_str() {
            "cpu" => assert!(at_once <= given, "{at_once} blocks at once on {given} threads"),
            // The kernel would have had room for more. Otherwise the test would prove nothing.
            "cuda" if given < device.info().multiprocessors => assert!(all > used, "{all} and {used}"),
            _ => {}
        }
    }
    Ok(())
}

fn a_part_is_at_least_as_large_as_asked(device: &Device) -> Result<()> {
    let all = device.info().multiprocessors;
    assert_eq!(device.stream()?.multiprocessors(), all);
    for least in [1, 2, all / 3, all - 1, all].into_iter().filter(|least| *least > 0) {
        let stream = on_part(device, least)?;
        assert!((least..=all).contains(&stream.multiprocessors()), "{least} of {all}: {stream:?}");
    }
    Ok(())
}

fn parts_that_no_device_has_are_refused(device: &Device) -> Result<()> {
    let all = device.info().multiprocessors;
    for least in [0, all + 1, u32::MAX] {
        let texts = [format!("on {least} multiprocessors"), format!("ask for 1 to {all}")];
        refused(device.stream_with(part(least)), ErrorKind::InvalidArgument, &[&texts[0], &texts[1]]);
    }
    Ok(())
}

fn memory_kernels_and_events_are_shared_with_other_streams(device: &Device) -> Result<()> {
    let (kernels, [whole]) = kernels_and_streams(device)?;
    let stream = on_part(device, 1)?;
    let (mut x, mut y) = (whole.full(N, 1u32)?, stream.full(N, 2u32)?);
    let mut host = device.pinned::<u32>(N)?;
    // `x` goes from one stream to the other and back, so the tracker must order them.
    let gate = Gate::adding(&kernels, &whole, &mut x, 1)?;
    kernels.mix(&stream, &x, &mut y, N)?;
    kernels.step(&whole, &mut x, 3, N)?;
    let event = stream.record()?;
    let timed = stream.record_timed()?;
    assert!(!event.is_done()? && !stream.is_done()?);
    stream.copy(&y, &mut host)?;
    whole.wait(&event)?;
    gate.open();
    event.synchronize()?;
    assert!(stream.record_timed()?.elapsed_since(&timed).is_ok());
    assert_eq!(*host.read()?, [next(2, 2); N]);
    assert_all(&stream, &x, next(2, 3))?;
    let called = device.flag()?;
    let flag = called.clone();
    stream.host_fn(move || flag.set(1))?;
    stream.fill(&mut y, 9)?;
    assert_all(&whole, &y, 9)?;
    assert_eq!(called.get(), 1);
    Ok(())
}

/// Two streams have a half each, or smaller parts of equal size. Each one's kernel waits for the other one's.
fn equal_parts_overlap_in_time(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let least = (device.info().multiprocessors / 2).max(1);
    let (a, b) = (on_part(device, least)?, on_part(device, least)?);
    let (first, second) = (device.flag()?, device.flag()?);
    kernels.arrive(&a, &ONE, &mut first.clone(), &second)?;
    kernels.arrive(&b, &ONE, &mut second.clone(), &first)?;
    a.synchronize()?;
    b.synchronize()
}

/// The blocks wait for each other. If they do not all fit on the part, the launch must be refused, because it would
/// never end.
fn cooperative_grids_fit_the_part(device: &Device) -> Result<()> {
    const THREADS: u32 = 256;
    let kernels = sync::Kernels::load(device)?;
    let stream = on_part(device, 1)?;
    let ring = kernels.module().kernel("ring")?;
    let at_once = ring.occupancy(THREADS, 0)? * stream.multiprocessors();
    let n = (2 * at_once * THREADS) as usize;
    let (mut x, mut after) = (stream.full(n, 1u32)?, stream.zeros::<u32>(n)?);
    let blocks = |blocks| Launch::new([blocks, 1, 1], [THREADS, 1, 1]);
    let mut run = |launch| {
        let mut arrivals = stream.zeros::<u32>(1)?;
        kernels.ring(&stream, &launch, &mut x, &mut after, &mut arrivals, 1, n)
    };
    run(blocks(at_once))?;
    run(Launch::filling(n))?;
    let texts = [format!("{} blocks", at_once + 1), format!("{at_once} at once")];
    refused(run(blocks(at_once + 1)), ErrorKind::InvalidLaunch, &[&texts[0], &texts[1]]);
    assert_all(&stream, &x, next(next(1, 1), 6))
}

fn priorities_go_together_with_parts_or_are_refused(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let greatest = device.info().limits.stream_priorities.greatest;
    for options in [part(1).priority(greatest), part(1).blocking_with_default(true)] {
        match device.stream_with(options) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.message().contains("part of a device"), "{error}");
            }
            Ok(stream) => {
                let mut x = stream.full(N, 1u32)?;
                kernels.step(&stream, &mut x, 1, N)?;
                assert_all(&stream, &x, 6)?;
            }
        }
    }
    Ok(())
}

fn a_stream_on_a_part_dropped_in_use_finishes_its_work(device: &Device) -> Result<()> {
    let (kernels, [b]) = kernels_and_streams(device)?;
    let a = on_part(device, 1)?;
    let x = dropped_in_use(device, &kernels, a, &b)?;
    drop(device.stream()?);
    assert_all(&b, &x, 42)
}

fn a_graph_outlives_the_stream_on_a_part_that_it_was_captured_on(device: &Device) -> Result<()> {
    let (kernels, [whole, other]) = kernels_and_streams(device)?;
    let stream = on_part(device, 1)?;
    let (mut x, mut y) = (whole.full(N, 1u32)?, whole.full(N, 2u32)?);
    whole.synchronize()?;
    // One capture begins on this stream. This stream joins the other one.
    let first = stream.capture(|s| kernels.step(s, &mut x, 1, N))?;
    let second = other.capture(|s| {
        kernels.step(s, &mut y, 1, N)?;
        stream.wait(&s.record()?)?;
        kernels.step(&stream, &mut y, 2, N)
    })?;
    first.launch(&stream)?;
    stream.synchronize()?;
    drop(stream);
    for _ in 0..3 {
        // When you make a stream, the library destroys streams that it does not need any more.
        drop(device.stream()?);
        first.launch(&whole)?;
        second.launch(&whole)?;
    }
    assert_all(&whole, &x, (0..4).fold(1, |x, _| next(x, 1)))?;
    assert_all(&whole, &y, (0..3).fold(2, |y, _| next(next(y, 1), 2)))?;
    drop((first, second));
    drop(device.stream()?);
    kernels.step(&whole, &mut x, 1, N)?;
    whole.synchronize()
}

fn many_streams_on_parts_come_and_go(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let mut x = device.stream()?.full(N, 1u32)?;
    let mut want = 1;
    for round in 0..30 {
        let stream = on_part(device, 1 + round % device.info().multiprocessors)?;
        kernels.step(&stream, &mut x, round, N)?;
        want = next(want, round);
    }
    assert_all(&device.stream()?, &x, want)
}
