//! Streams can wait for flags and set them, in stream order. The host and kernels may do so at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conformance::executor::{block_on, is_pending};
use conformance::{
    Gate, ONE, assert_all, kernels_and_streams, open_again, overlaps, refused, streams, tests, until,
};
use gpustream::{Device, DeviceOptions, ErrorKind, Flag, Result, Stream, WaitValue};

tests! {
    Plain if waits_for_flags: the_host_ends_a_wait, a_stream_ends_the_wait_of_another,
        each_comparison_lets_its_values_pass, waits_and_writes_have_their_place_in_the_stream,
        many_streams_wait_at_once, a_dropped_stream_still_waits, a_flag_lives_as_long_as_its_waits_and_writes,
        a_wait_for_a_flag_keeps_memory_in_order, streams_of_another_handle_share_a_flag,
        flags_of_other_threads_stay_out_of_captures, values_that_never_come_are_refused;
    Plain if waits_for_flags, overlaps: a_kernel_ends_a_wait;
    Plain: a_set_flag_comes_after_the_work_before_it, recordings_take_no_flags_and_go_on;
}

const OPEN: WaitValue = WaitValue::Equal(1);
const N: usize = 1000;

/// Returns true if the device's streams can wait for flags. If they cannot, checks that the error says so.
pub(crate) fn waits_for_flags(device: &Device) -> bool {
    if !device.info().features.stream_wait_value {
        let (s, flag) = (device.stream().unwrap(), device.flag().unwrap());
        refused(s.wait_flag(&flag, OPEN), ErrorKind::Unsupported, &["cannot wait for flags"]);
    }
    device.info().features.stream_wait_value
}

fn the_host_ends_a_wait(device: &Device) -> Result<()> {
    let [s] = streams(device)?;
    let mut x = s.full(N, 1u32)?;
    s.synchronize()?;
    let gate = Gate::new(device)?;
    s.wait_flag(gate.flag(), OPEN)?;
    s.fill(&mut x, 2)?;
    let mut finished = s.synchronize_async();
    assert!(!s.is_done()? && is_pending(&mut finished));
    gate.open();
    block_on(finished)?;
    assert_all(&s, &x, 2)
}

fn a_stream_ends_the_wait_of_another(device: &Device) -> Result<()> {
    let [a, b] = streams(device)?;
    for wait_first in [true, false] {
        let flag = device.flag()?;
        let gate = Gate::new(device)?;
        if wait_first {
            b.wait_flag(&flag, WaitValue::AtLeast(3))?;
        }
        a.wait_flag(gate.flag(), OPEN)?;
        a.set_flag(&flag, 3)?;
        if !wait_first {
            b.wait_flag(&flag, WaitValue::AtLeast(3))?;
        }
        assert!(!b.is_done()?, "the flag has not been set");
        gate.open();
        b.synchronize()?;
        assert_eq!(flag.get(), 3);
    }
    Ok(())
}

fn a_kernel_ends_a_wait(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (gate, mut arrived) = (Gate::new(device)?, device.flag()?);
    a.wait_flag(&arrived, OPEN)?;
    assert!(!a.is_done()?);
    // The kernel sets the flag and goes on, so `b` is not done yet.
    kernels.arrive(&b, &ONE, &mut arrived, gate.flag())?;
    a.synchronize()?;
    assert!(!b.is_done()?);
    gate.open();
    b.synchronize()
}

fn a_set_flag_comes_after_the_work_before_it(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (flag, ran) = (device.flag()?, Arc::new(AtomicU32::new(0)));
    for round in 1..=20 {
        let count = ran.clone();
        s.host_fn(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })?;
        s.set_flag(&flag, round)?;
        until(|| Ok(flag.get() == round))?;
        assert_eq!(ran.load(Ordering::Relaxed), round);
    }
    Ok(())
}

fn each_comparison_lets_its_values_pass(device: &Device) -> Result<()> {
    let [s] = streams(device)?;
    let largest = (1 << 31) - 1;
    let cases = [
        (WaitValue::AtLeast(7), [0, 6], [7, largest]),
        (WaitValue::AtLeast(largest), [0, largest - 1], [largest, largest]),
        (WaitValue::Equal(7), [6, u32::MAX], [7, 7]),
        (WaitValue::Equal(u32::MAX), [0, 1], [u32::MAX, u32::MAX]),
        (WaitValue::AnyBit(0x8000_0010), [0, 0x7fff_ffef], [0x10, 0x8000_0000]),
    ];
    for (until, others, passing) in cases {
        for value in passing {
            let flag = device.flag()?;
            flag.set(others[0]);
            s.wait_flag(&flag, until)?;
            let event = s.record()?;
            let opened = OpenAtEnd(&flag, value);
            for other in others {
                flag.set(other);
                // We ask often, so that the device has time to see the value.
                for _ in 0..100 {
                    assert!(!event.is_done()?, "{until:?} is not met by {other}");
                }
            }
            drop(opened);
            s.synchronize()?;
        }
    }
    Ok(())
}

/// Sets a flag when it is dropped, so that a test that fails does not hang.
struct OpenAtEnd<'a>(&'a Flag, u32);

impl Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

fn waits_and_writes_have_their_place_in_the_stream(device: &Device) -> Result<()> {
    let [s] = streams(device)?;
    let (gate, progress) = (Gate::new(device)?, device.flag()?);
    let mut x = s.full(N, 1u32)?;
    let mut y = s.zeros::<u32>(N)?;
    s.set_flag(&progress, 1)?;
    s.wait_flag(&progress, WaitValue::Equal(1))?;
    s.copy(&x, &mut y)?;
    s.wait_flag(gate.flag(), OPEN)?;
    s.fill(&mut x, 2)?;
    s.set_flag(&progress, 2)?;
    until(|| Ok(progress.get() != 0))?;
    assert_eq!(progress.get(), 1, "the second write waits for the gate");
    gate.open();
    assert_all(&s, &x, 2)?;
    assert_eq!(progress.get(), 2);
    assert_all(&s, &y, 1)
}

/// On the CPU there must be more streams than workers. On a GPU there are few, because its streams share hardware
/// queues.
fn many_streams_wait_at_once(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let count = if device.info().backend == gpustream::BackendName::CPU { 500 } else { 2 };
    let waiting = (0..count).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let mut go = device.flag()?;
    let opened = OpenAtEnd(&go.clone(), 1);
    let done = waiting.iter().map(|_| device.flag()).collect::<Result<Vec<_>>>()?;
    for (stream, done) in waiting.iter().zip(&done) {
        stream.wait_flag(&go, OPEN)?;
        stream.set_flag(done, 5)?;
    }
    assert!(done.iter().all(|done| done.get() == 0));
    kernels.raise_flag(&s, &ONE, &mut go, 1)?;
    waiting.iter().try_for_each(Stream::synchronize)?;
    assert!(done.iter().all(|done| done.get() == 5));
    drop(opened);
    Ok(())
}

fn a_dropped_stream_still_waits(device: &Device) -> Result<()> {
    let [s] = streams(device)?;
    let (gate, done) = (Gate::new(device)?, device.flag()?);
    s.wait_flag(gate.flag(), OPEN)?;
    s.set_flag(&done, 1)?;
    drop(s);
    // When you make a stream, the library looks for streams that it can destroy.
    drop((device.stream()?, device.stream()?));
    assert_eq!(done.get(), 0);
    gate.open();
    until(|| Ok(done.get() == 1))
}

/// A new flag must not get the dropped flag's memory as long as a stream may read or write it.
fn a_flag_lives_as_long_as_its_waits_and_writes(device: &Device) -> Result<()> {
    let [a, b] = streams(device)?;
    let gate = Gate::new(device)?;
    let (awaited, written) = (device.flag()?, device.flag()?);
    a.wait_flag(gate.flag(), OPEN)?;
    a.set_flag(&awaited, 5)?;
    a.set_flag(&written, 6)?;
    b.wait_flag(&awaited, WaitValue::Equal(5))?;
    drop((awaited, written));
    let others = (0..20).map(|_| device.flag()).collect::<Result<Vec<_>>>()?;
    for flag in &others {
        flag.set(7);
    }
    gate.open();
    a.synchronize()?;
    b.synchronize()?;
    assert!(others.iter().all(|flag| flag.get() == 7), "a dropped flag's stream wrote to another flag");
    Ok(())
}

/// The library orders memory as usual. So a stream that waits for a flag also holds up the streams that wait for it.
fn a_wait_for_a_flag_keeps_memory_in_order(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let gate = Gate::new(device)?;
    let mut x = a.full(N, 1u32)?;
    a.wait_flag(gate.flag(), OPEN)?;
    kernels.step(&a, &mut x, 2, N)?;
    kernels.step(&b, &mut x, 3, N)?;
    let mut host = device.pinned::<u32>(N)?;
    b.copy(&x, &mut host)?;
    assert!(!b.is_done()? && host.try_read().is_err());
    gate.open();
    assert_eq!(*host.read()?, [38; N]);
    Ok(())
}

fn streams_of_another_handle_share_a_flag(device: &Device) -> Result<()> {
    let [a] = streams(device)?;
    let again = open_again(device, DeviceOptions::default())?;
    let b = again.stream()?;
    let flag = device.flag()?;
    a.wait_flag(&flag, WaitValue::AnyBit(2))?;
    b.set_flag(&flag, 3)?;
    a.synchronize()?;
    // We close this handle while its stream waits for a flag that belongs to the other one.
    b.wait_flag(&flag, WaitValue::Equal(4))?;
    let done = device.flag()?;
    b.set_flag(&done, 1)?;
    assert_eq!(done.get(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| flag.set(4));
        drop((b, again));
    });
    assert_eq!(done.get(), 1, "the last handle was dropped before the work was done");
    Ok(())
}

/// The library must refuse before it calls the driver, so that the recording can go on.
fn recordings_take_no_flags_and_go_on(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let flag = device.flag()?;
    let mut x = s.full(N, 1u32)?;
    s.synchronize()?;
    let refuses = |s: &Stream, kind| {
        if device.info().features.stream_wait_value {
            refused(s.wait_flag(&flag, OPEN), kind, &["wait_flag", "launches the graph"]);
        }
        refused(s.set_flag(&flag, 1), kind, &["set_flag", "launches the graph"]);
    };
    let graph = s.capture(|s| {
        refuses(s, ErrorKind::Captured);
        s.fill(&mut x, 2)
    })?;
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| {
        refuses(s, ErrorKind::NotANode);
        s.fill(&mut x, 3)
    })?;
    let mut built = builder.build()?;
    built.set_node(node, |s| {
        refuses(s, ErrorKind::NotANode);
        s.fill(&mut x, 4)
    })?;
    graph.launch(&s)?;
    assert_all(&s, &x, 2)?;
    built.launch(&s)?;
    assert_all(&s, &x, 4)?;
    assert_eq!(flag.get(), 0);
    // While another thread captures the stream, this thread is refused.
    let t = device.stream()?;
    t.capture(|t| {
        std::thread::scope(|scope| {
            let set = scope.spawn(|| t.set_flag(&flag, 1));
            refused(set.join().expect("no panic"), ErrorKind::Captured, &["set_flag"]);
        });
        t.fill(&mut x, 5)
    })?;
    s.set_flag(&flag, 1)?;
    s.synchronize()?;
    assert_eq!(flag.get(), 1);
    Ok(())
}

/// Another thread captures the stream again and again. Each use of a flag must run or be refused, and none may end up
/// in a graph.
fn flags_of_other_threads_stay_out_of_captures(device: &Device) -> Result<()> {
    let [s] = streams(device)?;
    let flag = device.flag()?;
    let captured = &s;
    let want = std::thread::scope(|scope| -> Result<u32> {
        let capturing = scope.spawn(move || {
            (0..300)
                .try_for_each(|_| captured.capture(|_| Ok(())).map(|graph| assert_eq!(graph.node_count(), 0)))
        });
        let mut want = 0;
        for value in 1.. {
            let last = capturing.is_finished();
            for used in
                [s.set_flag(&flag, value).map(|()| want = value), s.wait_flag(&flag, WaitValue::Equal(want))]
            {
                if let Err(error) = used {
                    assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
                }
            }
            if last {
                break;
            }
        }
        capturing.join().expect("no panic").map(|()| want)
    })?;
    s.synchronize()?;
    assert_eq!(flag.get(), want);
    Ok(())
}

fn values_that_never_come_are_refused(device: &Device) -> Result<()> {
    let [s] = streams(device)?;
    let flag = device.flag()?;
    let wait = |until| s.wait_flag(&flag, until);
    refused(wait(WaitValue::AtLeast(1 << 31)), ErrorKind::InvalidArgument, &["wait_flag", "2147483648"]);
    refused(wait(WaitValue::AnyBit(0)), ErrorKind::InvalidArgument, &["wait_flag", "no bits"]);
    s.synchronize()
}
