//! You can submit another library's work to our streams. Then it is ordered, waited for, recorded and reported like a
//! launch. Here the driver itself plays the other library: we call it through the backend's own device.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use conformance::executor::{block_on, is_pending};
use conformance::toolbox::Toolbox;
use conformance::{
    Child, Gate, Random, assert_all, kernels_and_streams, next, on_threads, open_again, refused, tests,
};
use gpustream::hal::{EventOptions, Fill, FillPattern, RawBuffer, RawStream};
use gpustream::{
    Arg, Buffer, Device, DeviceOptions, Error, ErrorKind, Result, Stream, StreamOptions, Tracking,
};

tests! {
    Plain: other_libraries_work_is_ordered_by_its_memory, values_and_errors_come_back_as_they_are,
        the_library_is_refused_inside, a_panic_inside_leaves_the_stream_usable, captures_record_it,
        replayed_steps_run_it_every_time, explicit_nodes_take_graphs_instead,
        a_child_graph_is_ordered_by_its_memory, host_work_is_ordered_by_its_memory,
        events_are_waited_for_both_ways, events_stand_for_the_work_of_others,
        strict_tracking_reports_a_missing_order, random_hand_overs_match_plain_rust,
        threads_do_not_mix_their_calls, failures_wait_for_the_next_wait,
        failures_reach_the_streams_that_come_after, unreported_errors_may_call_the_library,
        the_lint_reports_a_stray_capture;
    Part: stray_capture;
}

const N: usize = 3000;

/// Fills `count` words as another library would.
fn fill_raw(device: &Device, to: RawBuffer, value: u32, count: usize, stream: RawStream) -> Result<()> {
    // SAFETY: memory and stream are alive, and the caller says so to the tracker.
    unsafe { device.raw().fill(to, FillPattern::U32(value), count, stream) }
}

/// Fills a buffer with a call that we do not know.
fn fill(stream: &Stream, x: &mut Buffer<u32>, value: u32) -> Result<()> {
    let (count, device) = (x.len(), stream.device());
    // SAFETY: the call goes to the stream that is given, and writes `x` alone.
    unsafe {
        stream.external("fill_raw", &[Arg::write(x)], |raw, [to]| fill_raw(device, to, value, count, raw))
    }
}

/// Copies a buffer with a call that we do not know.
fn copy(stream: &Stream, x: &Buffer<u32>, y: &mut Buffer<u32>) -> Result<()> {
    let (bytes, device) = (4 * x.len(), stream.device());
    // SAFETY: the call goes to the stream that is given, reads `x` and writes `y`.
    unsafe {
        stream.external("copy_raw", (x, y), |raw, (from, to)| {
            let [from, to] = [from.addr(), to.addr()].map(RawBuffer);
            device.raw().copy_on_device(to, from, bytes, raw)
        })
    }
}

fn other_libraries_work_is_ordered_by_its_memory(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 7u32)?, a.zeros::<u32>(N)?);
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    copy(&b, &x, &mut y)?;
    assert!(!b.is_done()?, "the copy waits for the kernel");
    kernels.step(&a, &mut y, 2, N)?;
    gate.open();
    assert_all(&b, &y, next(8, 2))?;
    a.download(&x).map(|x| assert_eq!(x, [8; N]))
}

#[derive(Debug)]
enum TheirError {
    Code(i32),
    Ours(Error),
}

impl From<Error> for TheirError {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

fn values_and_errors_come_back_as_they_are(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut x = stream.full(N, 1u32)?;
    // SAFETY: nothing is enqueued.
    unsafe {
        let value: Result<_, TheirError> = stream.external("value", &x, |_, _| Ok("handle"));
        assert_eq!(value.unwrap(), "handle");
        let failed: Result<(), _> = stream.external("code", &mut x, |_, _| Err(TheirError::Code(13)));
        assert!(matches!(failed, Err(TheirError::Code(13))), "{failed:?}");
        let capture = stream.capture(|s| {
            let inside = || s.external("inside", (), |_, ()| Ok(()));
            let ours: Result<(), _> = stream.external("ours", (), |_, ()| inside());
            match ours {
                Err(TheirError::Ours(error)) => assert_eq!(error.kind(), ErrorKind::InHostClosure, "{error}"),
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        drop(capture?);
    }
    assert_all(&stream, &x, 1)
}

fn the_library_is_refused_inside(device: &Device) -> Result<()> {
    let stream = Arc::new(device.stream()?);
    let mut toolbox = Toolbox::new(device, &stream)?;
    toolbox.load_kernels()?;
    let (kernels, [_]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &stream)?;
    toolbox.submit()?;
    let (raw, mut leaving) = (stream.as_raw(), Some(stream.full(N, 5u32)?));
    // SAFETY: nothing is enqueued.
    let answers = unsafe {
        stream.external("toolbox", (), |given, ()| {
            assert_eq!((given, stream.as_raw()), (raw, raw));
            // If you drop a value here, it goes to another thread.
            drop(leaving.take());
            Ok::<_, Error>(toolbox.call_everything())
        })
    }?;
    gate.open();
    for (what, kind) in answers {
        assert_eq!(kind, Some(ErrorKind::InHostClosure), "{what}");
    }
    assert_all(&stream, &stream.full(N, 3u32)?, 3)
}

fn a_panic_inside_leaves_the_stream_usable(device: &Device) -> Result<()> {
    let (kernels, [stream]) = kernels_and_streams(device)?;
    let mut x = stream.zeros::<u32>(N)?;
    let mut replay = device.replay();
    for way in ["run", "capture", "replay"] {
        let work = |stream: &Stream, x: &mut Buffer<u32>| -> Result<()> {
            kernels.step(stream, x, 1, N)?;
            // SAFETY: nothing is enqueued.
            unsafe { stream.external("panics", x, |_, _| panic!("theirs, as the test expects")) }
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| match way {
            "run" => work(&stream, &mut x),
            "capture" => stream.capture(|stream| work(stream, &mut x)).map(drop),
            _ => replay.run(&stream, |stream| work(stream, &mut x)),
        }));
        assert!(panicked.is_err(), "{way}");
        fill(&stream, &mut x, 4)?;
        replay.run(&stream, |stream| kernels.step(stream, &mut x, 1, N))?;
        stream.capture(|stream| kernels.step(stream, &mut x, 2, N))?.launch(&stream)?;
        assert_all(&stream, &x, next(next(4, 1), 2))?;
    }
    Ok(())
}

fn captures_record_it(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    assert!(!a.is_recorded());
    let graph = a.capture(|a| {
        assert!(a.is_recorded());
        fill(a, &mut x, 3)?;
        // Stream `b` must join the capture before it uses the memory.
        b.wait(&a.record()?)?;
        copy(&b, &x, &mut y)?;
        kernels.step(a, &mut y, 1, N)
    })?;
    assert!(!a.is_recorded());
    a.fill(&mut x, 9)?;
    a.fill(&mut y, 9)?;
    drop(x);
    for _ in 0..3 {
        graph.launch(&a)?;
    }
    assert_all(&a, &y, next(3, 1))
}

fn replayed_steps_run_it_every_time(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(N)?;
    let mut step = device.replay();
    for run in 0..10u32 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, 1, N)?;
            kernels.step(s, &mut x, 1, N)?;
            fill(s, &mut x, run)?;
            kernels.step(s, &mut x, 2, N)?;
            kernels.step(s, &mut x, run, N)
        })?;
        assert_all(&s, &x, next(next(run, 2), run))?;
    }
    Ok(())
}

fn explicit_nodes_take_graphs_instead(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut x = stream.zeros::<u32>(N)?;
    let mut builder = device.graph_builder()?;
    refused(
        builder.node(&[], |s| fill(s, &mut x, 1)),
        ErrorKind::NotANode,
        &["GraphBuilder::external", "fill_raw"],
    );
    builder.node(&[], |s| s.fill(&mut x, 2))?;
    builder.build()?.launch(&stream)?;
    assert_all(&stream, &x, 2)
}

fn a_child_graph_is_ordered_by_its_memory(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(N)?;
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| s.fill(&mut x, 1))?;
    let theirs = device.raw().graph_create()?;
    // SAFETY: the graph writes `x` alone, and is copied before it is destroyed.
    unsafe {
        let work =
            gpustream::hal::Work::Fill(Fill { dst: x.as_raw(), pattern: FillPattern::U32(6), count: N });
        device.raw().graph_add_node(theirs, &[], &gpustream::hal::GraphNode::Work(work))?;
        builder.child_from_raw(&[], "theirs", &[Arg::write(&mut x)], theirs)?;
        device.raw().graph_destroy(theirs)?;
    }
    builder.node(&[], |s| kernels.step(s, &mut x, 2, N))?;
    let graph = builder.build()?;
    assert!(graph.dot().contains("theirs"));
    graph.launch(&s)?;
    graph.launch(&s)?;
    assert_all(&s, &x, next(6, 2))
}

fn host_work_is_ordered_by_its_memory(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let mut host = device.pinned::<u32>(N)?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 5)?;
    a.copy(&x, &mut host)?;
    // SAFETY: the closure writes `host` alone, which the host reaches.
    unsafe {
        b.external_host("negate", &mut host, move |host| {
            let values = std::slice::from_raw_parts_mut(host, N);
            values.fill(!values[0]);
        })
    }?;
    a.copy(&host, &mut x)?;
    gate.open();
    assert_all(&a, &x, !5)?;
    assert_eq!(*host.read()?, [!5; N]);
    Ok(())
}

/// Another library may submit to a stream, and we do not see it. If you record an event there, it must cover that work
/// too. This must hold each time you record one, and also for a stream that waits for the stream that waits.
fn events_stand_for_the_work_of_others(device: &Device) -> Result<()> {
    let (kernels, [a, own, b, c]) = kernels_and_streams(device)?;
    let raw = device.raw();
    let made = raw.stream_create(StreamOptions::default())?;
    // SAFETY: destroyed below, when its work is done and the value gone.
    let adopted = unsafe { device.stream_from_raw(made) };
    for theirs in [&own, &adopted] {
        let mut x = b.zeros::<u32>(N)?;
        let address = x.as_raw();
        for value in 1..4 {
            b.synchronize()?;
            let gate = Gate::on(&kernels, &a)?;
            let held = a.record()?;
            // SAFETY: all of it is alive, and nothing else uses `x` meanwhile.
            unsafe {
                raw.stream_wait_event(theirs.as_raw(), held.as_raw())?;
                raw.fill(address, FillPattern::U32(value), N, theirs.as_raw())?;
            }
            let event = theirs.record()?;
            b.wait(&event)?;
            c.wait(&b.record()?)?;
            assert!(
                is_pending(&mut event.synchronize_async()) && !b.is_done()? && !c.is_done()?,
                "{value} on {theirs:?}"
            );
            kernels.step(&c, &mut x, 1, N)?;
            gate.open();
            assert_all(&c, &x, next(value, 1))?;
            theirs.synchronize()?;
        }
    }
    drop(adopted);
    // SAFETY: its work is done, and its value is gone.
    unsafe { raw.stream_destroy(made) }
}

fn events_are_waited_for_both_ways(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 7u32)?;
    a.synchronize()?;
    let raw = device.raw();
    let event = raw.event_create(EventOptions::default())?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    // SAFETY: event and streams are alive, and the event is recorded before anything waits for it.
    unsafe {
        raw.event_record(event, a.as_raw())?;
        b.wait_raw(event)?;
        assert!(!b.is_done()?, "b waits for their event");
        let ours = b.record()?;
        let theirs = device.stream()?;
        raw.stream_wait_event(theirs.as_raw(), ours.as_raw())?;
        assert!(!theirs.is_done()?, "their stream waits for our event");
        gate.open();
        theirs.synchronize()?;
        assert!(a.is_done()?);
        raw.event_destroy(event)?;
    }
    assert_all(&a, &x, 8)
}

fn strict_tracking_reports_a_missing_order(device: &Device) -> Result<()> {
    let strict = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [a, b]) = kernels_and_streams(&strict)?;
    let mut x = a.full(N, 7u32)?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    refused(fill(&b, &mut x, 2), ErrorKind::Hazard, &["fill_raw", "add_when"]);
    b.wait(&a.record()?)?;
    fill(&b, &mut x, 3)?;
    gate.open();
    assert_all(&b, &x, 3)
}

/// Our kernels and another library's calls, on random streams and buffers, directly or recorded.
fn random_hand_overs_match_plain_rust(device: &Device) -> Result<()> {
    const BUFFERS: usize = 5;
    const LEN: usize = 300;
    for seed in 1..=10u64 {
        let (kernels, streams) = kernels_and_streams::<3>(device)?;
        let mut random = Random(seed * 0x9e37_79b9);
        let mut buffers: Vec<_> = (0..BUFFERS).map(|_| streams[0].full(LEN, 1u32)).collect::<Result<_>>()?;
        let mut want = [1u32; BUFFERS];
        for _ in 0..200 {
            let (stream, value) = (&streams[random.below(3)], random.below(100) as u32);
            let (x, y) = (random.below(BUFFERS), random.below(BUFFERS - 1));
            let y = if y >= x { y + 1 } else { y };
            match random.below(5) {
                0 => {
                    kernels.step(stream, &mut buffers[x], value, LEN)?;
                    want[x] = next(want[x], value);
                }
                1 => {
                    fill(stream, &mut buffers[x], value)?;
                    want[x] = value;
                }
                2 => {
                    let [from, to] = buffers.get_disjoint_mut([x, y]).unwrap();
                    copy(stream, from, to)?;
                    want[y] = want[x];
                }
                3 => {
                    let [from, to] = buffers.get_disjoint_mut([x, y]).unwrap();
                    kernels.mix(stream, from, to, LEN)?;
                    want[y] = next(want[y], want[x]);
                }
                _ => {
                    // We give the memory to the other library and take it back as the other library's memory.
                    let ours = std::mem::replace(&mut buffers[x], stream.alloc(1)?);
                    let theirs = ours.into_raw(stream)?;
                    fill_raw(device, theirs.as_raw(), value, LEN, stream.as_raw())?;
                    let (address, stream) = (theirs.as_raw(), &streams[random.below(3)]);
                    stream.wait(&theirs.stream().record()?)?;
                    // SAFETY: `theirs` keeps the memory, and `stream` comes after the fill.
                    buffers[x] = unsafe { Buffer::from_raw(stream, address.as_mut_ptr(), LEN, theirs) }?;
                    want[x] = value;
                }
            }
        }
        for (buffer, want) in buffers.iter().zip(want) {
            assert_all(&streams[1], buffer, want)?;
        }
    }
    Ok(())
}

type Wait = fn(&Stream, &Buffer<u32>) -> Result<()>;

const WAITS: [(&str, Wait); 5] = [
    ("stream", |a, _| a.synchronize()),
    ("query", |a, _| {
        while !a.is_done()? {
            std::thread::yield_now();
        }
        Ok(())
    }),
    ("event", |a, _| a.record()?.synchronize()),
    ("download", |a, x| a.download(x).map(drop)),
    ("future", |a, x| block_on(a.download_async(x)).map(drop)),
];

/// Each kind of wait must report a failure once, whether work is pending or not. After that the stream goes on.
fn failures_wait_for_the_next_wait(device: &Device) -> Result<()> {
    for (name, wait) in WAITS {
        for pending in [true, false] {
            let (_, [a]) = kernels_and_streams(device)?;
            let x = a.full(N, 7u32)?;
            if !pending {
                a.synchronize()?;
            }
            let failures = a.failures();
            thread::spawn(move || failures.keep(Error::external("the other host is gone")))
                .join()
                .expect("nothing panics there");
            refused(wait(&a, &x), ErrorKind::External, &["the other host is gone"]);
            wait(&a, &x).map_err(|error| error.with_context(format_args!("{name}, pending: {pending}")))?;
            assert_all(&a, &x, 7)?;
            let failures = a.failures();
            drop((x, a));
            failures.keep(Error::external("nobody waits"));
        }
    }
    Ok(())
}

/// A stream may come after the failed one through memory, through an event, or through a third stream. It must report
/// the failure once, whether the failed stream has already reported it or not.
fn failures_reach_the_streams_that_come_after(device: &Device) -> Result<()> {
    for (name, wait) in WAITS {
        for reported in [false, true] {
            let (_, [a, by_memory, by_event, by_another, before]) = kernels_and_streams(device)?;
            let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
            before.wait(&a.record()?)?;
            let mut of_before = before.full(N, 7u32)?;
            fill(&a, &mut x, 7)?;
            let failures = a.failures();
            by_memory.copy(&x, &mut y)?;
            by_event.wait(&a.record()?)?;
            let of_event = by_event.full(N, 7u32)?;
            let z = by_another.duplicate(&y)?;
            a.fill(&mut x, 8)?;
            failures.keep(Error::external("the other host is gone"));
            failures.keep(Error::external("and another one"));
            let told = |stream: &Stream, x: &Buffer<u32>, text: &str| {
                refused(wait(stream, x), ErrorKind::External, &[text]);
                let again = wait(stream, x);
                again.map_err(|error| error.with_context(format_args!("{name}, reported: {reported}")))
            };
            wait(&before, &of_before)?;
            if reported {
                told(&a, &x, "and another one")?;
            }
            told(&by_memory, &y, "the other host is gone")?;
            told(&by_event, &of_event, "the other host is gone")?;
            told(&by_another, &z, "the other host is gone")?;
            before.copy(&x, &mut of_before)?;
            told(&before, &of_before, "the other host is gone")?;
            if !reported {
                told(&a, &x, "and another one")?;
            }
            assert_all(&a, &x, 8)?;
        }
    }
    Ok(())
}

/// An error of yours. Its destructor waits for a stream and reports whether that worked. If it runs on another thread,
/// it panics.
struct Calling(Weak<Stream>, Sender<bool>, ThreadId);

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calling")
    }
}

impl fmt::Display for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other host is gone")
    }
}

impl std::error::Error for Calling {}

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(stream) = self.0.upgrade() {
            let _ = self.1.send(stream.synchronize().is_ok());
            if thread::current().id() != self.2 {
                resume_unwind(Box::new("on purpose"));
            }
        }
    }
}

/// An error is dropped without a report if a later failure replaces it, or if too many are kept. The later failure may
/// come from a closure on the driver's thread. The destructor is your code, so it may call the library.
fn unreported_errors_may_call_the_library(device: &Device) -> Result<()> {
    const KEPT_FOR_OTHERS: usize = 64;
    let (a, b) = (device.stream()?, Arc::new(device.stream()?));
    let (told, dropped) = mpsc::channel();
    let error = || Calling(Arc::downgrade(&b), told.clone(), thread::current().id());
    let keep = || a.failures().keep(Error::external(error()));
    // The first one is kept for other streams too.
    keep();
    for _ in 0..10 {
        keep();
    }
    a.host_fn(|| resume_unwind(Box::new("closed")))?;
    refused(a.synchronize(), ErrorKind::HostPanic, &["closed"]);
    for _ in 0..10 {
        assert!(dropped.recv().expect("this thread has a sender"));
    }
    // Each of these is kept for other streams.
    for _ in 0..KEPT_FOR_OTHERS {
        let x = a.zeros::<u32>(N)?;
        keep();
        refused(a.download(&x), ErrorKind::External, &["the other host is gone"]);
    }
    assert!(dropped.recv().expect("this thread has a sender"));
    drop(b);
    Ok(())
}

/// Each operation consists of two raw calls, and another thread's operation must not get between them.
fn threads_do_not_mix_their_calls(device: &Device) -> Result<()> {
    let (_, [stream]) = kernels_and_streams(device)?;
    let shared = stream.zeros::<u32>(N)?;
    let to = shared.as_raw();
    on_threads(4, |thread| {
        for round in 0..50 {
            let mut own = stream.zeros::<u32>(N)?;
            let value = 1000 * thread + round;
            // SAFETY: `shared` is touched here alone, by operations of one stream.
            unsafe {
                stream.external("two calls", &[Arg::write(&mut own)], |raw, [own]| {
                    fill_raw(device, to, value, N, raw)?;
                    device.raw().copy_on_device(own, to, 4 * N, raw)
                })
            }?;
            assert_all(&stream, &own, value)?;
        }
        Ok(())
    })
}

fn the_lint_reports_a_stray_capture(device: &Device) -> Result<()> {
    Child::of(device, "external::stray_capture").env("GPUSTREAM_LINT", "1").succeeds().map(drop)
}

fn stray_capture(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    // SAFETY: nothing is enqueued. That the capture is left open is the fault that the lint reports.
    let outcome: Result<()> =
        unsafe { stream.external("captures", (), |raw, ()| device.raw().capture_begin(raw)) };
    refused(outcome, ErrorKind::Captured, &["`captures`", "began or ended a capture"]);
    // SAFETY: the capture is the one that was begun above.
    let graph = unsafe { device.raw().capture_end(stream.as_raw()) }?;
    // SAFETY: nothing else has the graph.
    unsafe { device.raw().graph_destroy(graph) }?;
    // SAFETY: nothing is enqueued.
    unsafe { stream.external("keeps to it", (), |_, ()| Ok(())) }
}
