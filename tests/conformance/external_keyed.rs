//! Another library's calls with a key: a replayed step records them once, and then runs their work without making them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conformance::{assert_all, kernels_and_streams, next, on_threads, refused, sync, tests};
use gpustream::hal::{FillPattern, RawBuffer, RawStream};
use gpustream::{Buffer, Device, Error, ErrorKind, Replay, Result, Stream};

use crate::graphs::N;

tests! {
    Alone: calls_are_recorded_once, another_key_or_other_memory_calls_again,
        no_call_is_lost_while_memory_goes_back, recorded_work_runs_by_itself_if_the_step_changes, failed_recording_leaves_the_step_usable,
        panic_in_a_recording_leaves_the_step_usable, calls_that_cannot_be_recorded_are_an_error,
        memory_that_went_back_is_not_used, several_threads_record_at_once, without_a_step_it_is_an_ordinary_call,
        graph_builder_takes_the_calls;
}

/// Counts how often another library was called.
#[derive(Default)]
struct Calls(AtomicU32);

impl Calls {
    fn take(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Fills a buffer through another library's call. The value is the call's key.
fn fill(stream: &Stream, x: &mut Buffer<u32>, value: u32, calls: &Calls) -> Result<()> {
    let (count, device) = (x.len(), stream.device());
    let call = |raw, x: *mut u32| {
        calls.0.fetch_add(1, Ordering::Relaxed);
        // SAFETY: memory and stream are alive.
        unsafe { device.raw().fill(RawBuffer(x.addr()), FillPattern::U32(value), count, raw) }
    };
    // SAFETY: the call goes to the stream that is given, writes `x` alone, and depends only on the key and on `x`.
    unsafe { stream.external_keyed("fill_raw", x, value.into(), call) }
}

/// Runs a step of a kernel, a keyed fill and another kernel.
fn run(
    step: &mut Replay,
    (kernels, s): (&sync::Kernels, &Stream),
    x: &mut Buffer<u32>,
    (value, after): (u32, u32),
    calls: &Calls,
) -> Result<()> {
    step.run(s, |s| {
        kernels.step(s, x, 1, N)?;
        fill(s, x, value, calls)?;
        kernels.step(s, x, after, N)
    })?;
    assert_all(s, x, next(value, after))
}

fn calls_are_recorded_once(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut step, calls) = (s.zeros::<u32>(N)?, device.replay(), Calls::default());
    for t in 0..10 {
        run(&mut step, (&kernels, &s), &mut x, (7, t), &calls)?;
    }
    if step.fallback().is_some() {
        assert_eq!(calls.take(), 10, "this device's graphs are not used");
        return Ok(());
    }
    assert_eq!(calls.take(), 2, "one that runs, and one that is recorded");
    let stats = step.stats();
    assert_eq!((stats.runs, stats.launches, stats.recordings), (10, 9, 1), "{stats:?}");
    assert_eq!((stats.plain, stats.segments, stats.nodes), (3, 1, 3), "{stats:?}");
    Ok(())
}

fn another_key_or_other_memory_calls_again(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.zeros::<u32>(N)?, s.zeros::<u32>(N)?);
    let (mut step, calls) = (device.replay(), Calls::default());
    for t in 0..40 {
        run(&mut step, (&kernels, &s), &mut x, (7 + t / 10, t), &calls)?;
        run(&mut step, (&kernels, &s), &mut y, (7 + t / 10, t), &calls)?;
    }
    assert_eq!((s.download(&x)?, s.download(&y)?), (vec![next(10, 39); N], vec![next(10, 39); N]));
    let calls = calls.take();
    assert!(step.fallback().is_some() || (8..40).contains(&calls), "{calls} calls");
    Ok(())
}

/// Another thread may give memory back to the driver between a call's recording and its place in the step.
fn no_call_is_lost_while_memory_goes_back(device: &Device) -> Result<()> {
    /// Tells the other thread when a thread ends, even if it panics.
    struct Ending<'a>(&'a AtomicU32);
    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    let running = AtomicU32::new(3);
    on_threads(4, |thread| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let (mut x, calls) = (s.zeros::<u32>(N)?, Calls::default());
        if thread == 3 {
            while running.load(Ordering::Relaxed) > 0 {
                s.capture(|s| fill(s, &mut x, 6, &calls))?.launch(&s)?;
                device.trim();
            }
            return Ok(());
        }
        let _ending = Ending(&running);
        (0..20).try_for_each(|_| {
            let (mut x, mut y) = (s.zeros::<u32>(N)?, s.zeros::<u32>(N)?);
            let mut step = device.replay();
            for t in 0..40 {
                run(&mut step, (&kernels, &s), &mut x, (7 + t / 10, t), &calls)?;
                run(&mut step, (&kernels, &s), &mut y, (7 + t / 10, t), &calls)?;
            }
            Ok(())
        })
    })
}

/// The operation after the recorded one changes from run to run, so the step has to run its operations one by one.
fn recorded_work_runs_by_itself_if_the_step_changes(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.zeros::<u32>(N)?, s.zeros::<u32>(N)?);
    let (mut step, calls) = (device.replay(), Calls::default());
    for t in 0..20u32 {
        step.run(&s, |s| {
            fill(s, &mut x, 5, &calls)?;
            match t % 3 {
                0 => kernels.step(s, &mut x, t, N),
                1 => s.copy(&x, &mut y),
                _ => Ok(()),
            }
        })?;
        assert_all(&s, &x, if t % 3 == 0 { next(5, t) } else { 5 })?;
    }
    assert_all(&s, &y, 5)?;
    let calls = calls.take();
    assert!(step.fallback().is_some() || calls < 20, "{calls} calls");
    drop(step);
    s.synchronize()
}

/// Runs a step four times. In the second run its call has this outcome. Then checks that the step still works, and returns how
/// each run ended.
fn with_outcome(device: &Device, outcome: &dyn Fn(RawStream) -> Result<()>) -> Result<Vec<Result<()>>> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut step, calls) = (s.zeros::<u32>(N)?, device.replay(), Calls::default());
    let mut outcomes = Vec::new();
    for t in 0..4 {
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            step.run(&s, |s| {
                kernels.step(s, &mut x, 1, N)?;
                let call = |raw, _| if t == 1 { outcome(raw) } else { Ok(()) };
                // SAFETY: nothing is enqueued that touches memory.
                unsafe { s.external_keyed("theirs", &mut x, 0, call) }
            })
        }));
        outcomes.push(attempt.unwrap_or_else(|_| Err(Error::external("panicked"))));
    }
    for t in 0..4 {
        run(&mut step, (&kernels, &s), &mut x, (7, t), &calls)?;
    }
    Ok(outcomes)
}

fn failed_recording_leaves_the_step_usable(device: &Device) -> Result<()> {
    let outcomes = with_outcome(device, &|_| Err(Error::external("theirs")))?;
    let errors = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    assert_eq!(errors.map(Error::message).collect::<Vec<_>>(), ["theirs"]);
    Ok(())
}

fn panic_in_a_recording_leaves_the_step_usable(device: &Device) -> Result<()> {
    let outcomes = with_outcome(device, &|_| panic!("theirs, as the test expects"))?;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1, "{outcomes:?}");
    Ok(())
}

/// The call waits for its stream, and a capture cannot record that.
fn calls_that_cannot_be_recorded_are_an_error(device: &Device) -> Result<()> {
    // SAFETY: the stream is alive.
    let outcomes = with_outcome(device, &|raw| unsafe { device.raw().stream_synchronize(raw) })?;
    if device.replay().fallback().is_some() {
        return Ok(());
    }
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].kind(), ErrorKind::Captured, "{}", failed[0]);
    Ok(())
}

/// A recording refers to memory by its address. Once the memory has gone back to the driver, the address may mean other memory.
fn memory_that_went_back_is_not_used(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut step, calls) = (device.replay(), Calls::default());
    for t in 0..12 {
        let mut x = s.zeros::<u32>(N)?;
        run(&mut step, (&kernels, &s), &mut x, (7, t), &calls)?;
        drop(x);
        s.synchronize()?;
        if t % 3 == 2 {
            device.trim();
        }
    }
    Ok(())
}

fn several_threads_record_at_once(device: &Device) -> Result<()> {
    let device = Arc::new(device.clone());
    on_threads(4, |thread| {
        let (kernels, [s]) = kernels_and_streams(&device)?;
        let (mut x, calls) = (s.zeros::<u32>(N)?, Calls::default());
        for round in 0..10 {
            let mut step = device.replay();
            for t in 0..3 {
                run(&mut step, (&kernels, &s), &mut x, (100 * thread + round, t), &calls)?;
            }
        }
        Ok(())
    })
}

fn without_a_step_it_is_an_ordinary_call(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, calls) = (s.zeros::<u32>(N)?, Calls::default());
    for t in 0..3 {
        fill(&s, &mut x, 4, &calls)?;
        kernels.step(&s, &mut x, t, N)?;
        assert_all(&s, &x, next(4, t))?;
    }
    assert_eq!(calls.take(), 3);
    let graph = s.capture(|s| {
        fill(s, &mut x, 6, &calls)?;
        kernels.step(s, &mut x, 1, N)
    })?;
    for _ in 0..3 {
        graph.launch(&s)?;
    }
    assert_all(&s, &x, next(6, 1))?;
    assert_eq!(calls.take(), 1);
    Ok(())
}

fn graph_builder_takes_the_calls(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (mut x, mut y) = (stream.zeros::<u32>(N)?, stream.zeros::<u32>(N)?);
    let mut builder = device.graph_builder()?;
    let theirs = |value| {
        move |raw, x: *mut u32| {
            // SAFETY: memory and stream are alive.
            unsafe { device.raw().fill(RawBuffer(x.addr()), FillPattern::U32(value), N, raw) }
        }
    };
    // SAFETY: the calls go to the stream that is given, and write the buffer that they get.
    unsafe {
        refused(
            builder.external(&[], "theirs", &mut x, |_, _| Err(Error::external("no"))),
            ErrorKind::External,
            &["no"],
        );
        let first = builder.external(&[], "theirs", &mut x, theirs(3))?;
        builder.node(&[first], |s| s.copy(&x, &mut y))?;
        // This one follows the copy, because it writes what the copy reads.
        builder.external(&[], "theirs", &mut x, theirs(4))?;
    }
    builder.build()?.launch(&stream)?;
    assert_all(&stream, &x, 4)?;
    assert_all(&stream, &y, 3)
}
