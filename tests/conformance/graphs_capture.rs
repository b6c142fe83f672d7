//! What a capture records, and which calls are refused meanwhile.

use std::panic::{self, AssertUnwindSafe};
use std::thread;

use conformance::executor::block_on;
use conformance::{Gate, ONE, assert_all, kernels_and_streams, next, open_again, refused, sync, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, Result, Stream, Tracking};

use crate::graphs::{N, usable};

tests! {
    Plain: capturing_runs_nothing, a_forked_stream_joins_the_capture_again,
        streams_wait_for_each_other_in_turn, the_tracker_orders_inside, strict_mode_reports_hazards_inside,
        captured_branches_run_at_once, a_host_wait_is_refused, another_thread_is_refused,
        work_of_other_threads_stays_out, captures_do_not_nest, timed_events_are_refused,
        outside_events_are_refused, events_of_ended_captures_are_refused, a_failing_closure_ends_the_capture,
        a_panic_ends_the_capture, a_graph_of_many_nodes_runs_in_order, fills_of_every_width_are_captured;
}

fn capturing_runs_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        kernels.step(s, &mut x, 2, N)
    })?;
    assert_eq!(s.download(&x)?, [1; N]);
    graph.prepare(&s)?;
    let mut want = 1;
    for _ in 0..10 {
        graph.launch(&s)?;
        want = next(next(want, 1), 2);
    }
    assert_all(&s, &x, want)
}

/// A second stream joins when it waits for an event that was recorded inside. The end of the capture joins all streams
/// again.
fn a_forked_stream_joins_the_capture_again(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y, mut z) = (a.full(N, 1u32)?, a.full(N, 2u32)?, a.zeros::<u32>(N)?);
    let graph = a.capture(|a| {
        kernels.step(a, &mut x, 1, N)?;
        b.wait(&a.record()?)?;
        kernels.step(&b, &mut y, 2, N)?;
        kernels.step(a, &mut x, 3, N)?;
        a.wait(&b.record()?)?;
        kernels.mix(a, &x, &mut z, N)?;
        // `a` does not wait for this, so the end of the capture must.
        kernels.mix(&b, &x, &mut y, N)
    })?;
    let (mut want_x, mut want_y, mut want_z) = (1u32, 2u32, 0u32);
    for _ in 0..5 {
        graph.launch(&a)?;
        want_x = next(next(want_x, 1), 3);
        want_z = next(want_z, want_x);
        want_y = next(next(want_y, 2), want_x);
    }
    assert_eq!(b.download(&x)?, vec![want_x; N]);
    assert_eq!(b.download(&y)?, vec![want_y; N]);
    assert_eq!(b.download(&z)?, vec![want_z; N]);
    usable(device, &[&a, &b])
}

/// If HIP knew of all these waits, it would follow them in a circle without end. It must not get a stream's wait for
/// itself either.
fn streams_wait_for_each_other_in_turn(device: &Device) -> Result<()> {
    let (kernels, [origin, a, b, c]) = kernels_and_streams(device)?;
    let mut x = origin.zeros::<u32>(N)?;
    let (mut want, turns) = (0, 4);
    let graph = origin.capture(|origin| {
        let start = origin.record()?;
        for value in 0..turns {
            for (s, other) in [(&a, &b), (&b, &c), (&c, &a)] {
                s.wait(&start)?;
                s.wait(&s.record()?)?;
                kernels.step(s, &mut x, value, N)?;
                other.wait(&start)?;
                other.wait(&s.record()?)?;
            }
        }
        Ok(())
    })?;
    for launch in [&origin, &b] {
        graph.launch(launch)?;
        want = (0..turns).flat_map(|value| [value; 3]).fold(want, next);
        assert_all(launch, &x, want)?;
    }
    Ok(())
}

/// The branches meet here, and only the tracker orders them.
fn the_tracker_orders_inside(device: &Device) -> Result<()> {
    let (kernels, [a, b, c]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 1u32)?, a.full(N, 2u32)?);
    let graph = a.capture(|a| {
        let start = a.record()?;
        b.wait(&start)?;
        c.wait(&start)?;
        for value in 0..10 {
            kernels.mix(&b, &x, &mut y, N)?;
            kernels.mix(&c, &y, &mut x, N)?;
            kernels.step(a, &mut x, value, N)?;
        }
        Ok(())
    })?;
    let (mut want_x, mut want_y) = (1u32, 2u32);
    for _ in 0..3 {
        graph.launch(&c)?;
        for value in 0..10 {
            want_y = next(want_y, want_x);
            want_x = next(next(want_x, want_y), value);
        }
    }
    assert_eq!(a.download(&x)?, vec![want_x; N]);
    assert_all(&a, &y, want_y)
}

fn strict_mode_reports_hazards_inside(device: &Device) -> Result<()> {
    let device = &open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    a.synchronize()?;
    let graph = a.capture(|a| {
        b.wait(&a.record()?)?;
        kernels.step(a, &mut x, 1, N)?;
        refused(kernels.step(&b, &mut x, 2, N), ErrorKind::Hazard, &["step"]);
        b.wait(&a.record()?)?;
        kernels.step(&b, &mut x, 2, N)
    })?;
    graph.launch(&a)?;
    refused(b.download(&x), ErrorKind::Hazard, &["graph", "download"]);
    assert_all(&a, &x, next(next(1, 1), 2))
}

/// Each kernel waits for the other kernel's flag, so they can end only if both run at once.
fn captured_branches_run_at_once(device: &Device) -> Result<()> {
    if !device.info().features.concurrent_kernels {
        return Ok(());
    }
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (first, second) = (device.flag()?, device.flag()?);
    let graph = a.capture(|a| {
        b.wait(&a.record()?)?;
        kernels.arrive(a, &ONE, &mut first.clone(), &second)?;
        kernels.arrive(&b, &ONE, &mut second.clone(), &first)
    })?;
    for _ in 0..3 {
        first.set(0);
        second.set(0);
        graph.launch(&a)?;
        a.synchronize()?;
        assert_eq!((first.get(), second.get()), (1, 1));
    }
    Ok(())
}

/// Checks that `offence` is refused inside a capture, that the capture goes on, and that you can use the stream
/// afterwards.
fn refused_inside<T>(device: &Device, offence: impl Fn(&Stream) -> Result<T>) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        refused(offence(s), ErrorKind::Captured, &[]);
        kernels.step(s, &mut x, 2, N)
    })?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, vec![next(next(1, 1), 2); N]);
    // If the closure returns the error, the capture ends with it.
    refused(s.capture(|s| offence(s).map(drop)), ErrorKind::Captured, &[]);
    kernels.step(&s, &mut x, 3, N)?;
    assert_eq!(s.download(&x)?, vec![next(next(next(1, 1), 2), 3); N]);
    usable(device, &[&s])
}

fn a_host_wait_is_refused(device: &Device) -> Result<()> {
    refused_inside(device, Stream::synchronize)?;
    refused_inside(device, Stream::is_done)?;
    refused_inside(device, |s| s.record()?.synchronize())?;
    refused_inside(device, |s| s.record()?.is_done())?;
    refused_inside(device, |s| block_on(s.record()?.synchronize_async()))?;
    refused_inside(device, |s| s.device().synchronize())?;
    let x = device.stream()?.full(N, 1u32)?;
    conformance::synchronize(device)?;
    refused_inside(device, |s| s.download(&x))?;
    refused_inside(device, |s| s.download_into(&x, &mut [0; N]))?;
    refused_inside(device, |s| block_on(s.synchronize_async()))?;
    // Such a future would be ready at once, before the graph has written the memory.
    refused_inside(device, |s| block_on(s.download_async(&x)))?;
    refused(
        device.graph_builder()?.node(&[], |s| block_on(s.download_async(&x)).map(drop)),
        ErrorKind::NotANode,
        &["download"],
    );
    refused_inside(device, |s| s.host_fn(|| ()))
}

fn another_thread_is_refused(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let mut x = device.stream()?.full(N, 1u32)?;
    conformance::synchronize(device)?;
    let x = std::sync::Mutex::new(&mut x);
    refused_inside(device, |s| {
        let work = || kernels.step(s, *x.lock().unwrap(), 1, N);
        thread::scope(|scope| scope.spawn(work).join()).unwrap()
    })?;
    refused_inside(device, |s| thread::scope(|scope| scope.spawn(|| s.record()).join()).unwrap())
}

/// One thread makes empty captures on a stream that another thread uses. Each operation must run or be refused, and
/// none may be recorded. `interleavings` tries thousands of orders of the two threads on a model.
fn work_of_other_threads_stays_out(device: &Device) -> Result<()> {
    let (a, b, c) = (device.stream()?, device.stream()?, device.stream()?);
    let (mut x, mut y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    a.synchronize()?;
    let captured = &b;
    thread::scope(|scope| {
        let capturing = scope.spawn(move || {
            (0..300)
                .try_for_each(|_| captured.capture(|_| Ok(())).map(|graph| assert_eq!(graph.node_count(), 0)))
        });
        let mut want = 0;
        for value in 1.. {
            let last = capturing.is_finished();
            // This copy must wait for `a`, so it takes the stream's lock twice. The capture may begin in between.
            a.fill(&mut x, value)?;
            match b.copy(&x, &mut y) {
                Ok(()) => want = value,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Captured, "{error}"),
            }
            match b.synchronize() {
                Err(error) if error.kind() != ErrorKind::Captured => return Err(error),
                _ => assert_eq!(c.download(&y)?, [want; N]),
            }
            if last {
                break;
            }
        }
        capturing.join().unwrap()
    })?;
    usable(device, &[&a, &b, &c])
}

fn captures_do_not_nest(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    s.synchronize()?;
    let graph = s.capture(|s| s.fill(&mut x, 2))?;
    refused_inside(device, |s| s.capture(|_| Ok(())))?;
    refused_inside(device, |s| graph.launch(s))?;
    // Two captures on different streams may go on at once.
    let (a, b) = (device.stream()?, device.stream()?);
    let mut inner = None;
    let outer = a.capture(|a| {
        a.fill(&mut x.slice_mut(..10)?, 3)?;
        let event = a.record()?;
        inner = Some(b.capture(|b| {
            refused(b.wait(&event), ErrorKind::Captured, &["another capture"]);
            b.fill(&mut x.slice_mut(10..20)?, 4)
        })?);
        a.fill(&mut x.slice_mut(20..30)?, 5)
    })?;
    graph.launch(&s)?;
    outer.launch(&a)?;
    inner.as_ref().unwrap().launch(&b)?;
    let got = s.download(&x)?;
    assert_eq!([got[0], got[10], got[20], got[30]], [3, 4, 5, 2]);
    Ok(())
}

fn timed_events_are_refused(device: &Device) -> Result<()> {
    refused_inside(device, Stream::record_timed)
}

fn outside_events_are_refused(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &other)?;
    let event = other.record()?;
    refused(s.capture(|s| s.wait(&event)), ErrorKind::Captured, &["outside"]);
    gate.open();
    other.synchronize()?;
    usable(device, &[&s, &other])?;
    // The event is already reached, so the wait has nothing to do.
    s.capture(|s| s.wait(&event)).map(drop)
}

fn events_of_ended_captures_are_refused(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let mut inside = None;
    let graph = a.capture(|a| {
        kernels.step(a, &mut x, 1, N)?;
        inside = Some(a.record()?);
        Ok(())
    })?;
    let event = inside.unwrap();
    refused(b.wait(&event), ErrorKind::Captured, &["has ended"]);
    refused(event.synchronize(), ErrorKind::Captured, &[]);
    refused(event.is_done(), ErrorKind::Captured, &[]);
    graph.launch(&b)?;
    assert_eq!(b.download(&x)?, [6; N]);
    usable(device, &[&a, &b])
}

/// The streams that had joined must be usable too.
fn a_failing_closure_ends_the_capture(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    for _ in 0..3 {
        let failed = a.capture(|a| {
            b.wait(&a.record()?)?;
            kernels.step(&b, &mut x, 1, N)?;
            kernels.step(a, &mut x, 1, N + 1)
        });
        refused(failed, ErrorKind::ContractViolated, &["n <= len(x)"]);
        kernels.step(&b, &mut x, 0, N)?;
        kernels.step(&a, &mut x, 0, N)?;
    }
    assert_eq!(b.download(&x)?, [5u32.pow(6); N]);
    usable(device, &[&b, &a])
}

fn a_panic_ends_the_capture(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
        a.capture(|a| {
            b.wait(&a.record()?)?;
            kernels.step(&b, &mut x, 1, N)?;
            panic::resume_unwind(Box::new("on purpose"))
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(b.download(&x)?, [1; N]);
    usable(device, &[&b, &a])
}

fn a_graph_of_many_nodes_runs_in_order(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(10, 1u32)?;
    let graph = s.capture(|s| (0..1000).try_for_each(|value| kernels.step(s, &mut x, value, 10)))?;
    assert_eq!((graph.node_count(), graph.edge_count()), (1000, 999));
    graph.launch(&s)?;
    graph.launch(&s)?;
    let once = |x| (0..1000).fold(x, next);
    assert_all(&s, &x, once(once(1)))
}

/// A wide value is copied from memory that the graph owns. Such a fill takes several operations, so it cannot be a
/// single node.
fn fills_of_every_width_are_captured(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (mut x, mut y) = (s.zeros::<f64>(N)?, s.zeros::<[u32; 3]>(N)?);
    let graph = s.capture(|s| {
        s.fill(&mut x, 1.25)?;
        s.fill(&mut y, [1, 2, 3])
    })?;
    // If the graph had freed its memory, it would copy these bytes instead.
    drop((0..8).map(|_| device.pinned_from(&[7u8; 4096])).collect::<Result<Vec<_>>>()?);
    for _ in 0..2 {
        graph.launch(&s)?;
        assert_eq!((s.download(&x)?, s.download(&y)?), (vec![1.25; N], vec![[1, 2, 3]; N]));
        s.fill(&mut x, 0.0)?;
        s.fill(&mut y, [0; 3])?;
    }
    let mut builder = device.graph_builder()?;
    refused(builder.node(&[], |s| s.fill(&mut x, 1.25)), ErrorKind::NotANode, &["wider than four bytes"]);
    builder.node(&[], |s| s.fill(&mut y, [9; 3]))?;
    builder.build()?.launch(&s)?;
    assert_eq!(s.download(&y)?, vec![[9; 3]; N]);
    Ok(())
}
