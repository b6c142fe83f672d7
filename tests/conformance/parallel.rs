//! The CPU device's workers can run a closure in parts. Other devices refuse that.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};

use conformance::{Gate, assert_all, kernels_and_streams, next, open_again, refused, tests};
use gpustream::interop::check_outside_closures;
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, Part, Result, Stream, StreamOptions, Tracking};

tests! {
    Plain if runs_closures_in_parts: parts_cover_the_elements_once, parts_keep_to_the_order_of_streams,
        a_panic_of_a_part_is_reported_by_the_next_wait, a_graph_runs_all_parts_in_each_launch,
        a_node_is_set_to_another_closure_while_launches_are_pending, a_step_runs_the_closure_of_each_run,
        closures_are_dropped_after_their_last_part, calls_inside_a_part_are_refused, misuse_is_refused;
    Plain if has_two_workers: parts_run_on_several_workers_at_once;
    Plain if runs_no_closures_in_parts: devices_without_parts_refuse_them;
}

fn runs_closures_in_parts(device: &Device) -> bool {
    device.info().backend == gpustream::BackendName::CPU
}

fn runs_no_closures_in_parts(device: &Device) -> bool {
    !runs_closures_in_parts(device)
}

/// Returns true if two workers can share an operation. In checked mode only one worker runs it.
fn has_two_workers(device: &Device) -> bool {
    runs_closures_in_parts(device)
        && device.info().multiprocessors > 1
        && !std::env::var("GPUSTREAM_CHECK").is_ok_and(|check| check == "1")
}

const N: usize = 10_000;

/// Does what the kernel `step` does, in parts.
fn step(stream: &Stream, x: &mut Buffer<u32>, value: u32, parts: u32) -> Result<()> {
    let len = x.len();
    let closure = move |part: Part, x: *mut u32| {
        let range = part.range(len);
        // SAFETY: the ranges of the parts lie in `x`, and do not overlap.
        let mine = unsafe { std::slice::from_raw_parts_mut(x.add(range.start), range.len()) };
        for x in mine.iter_mut() {
            *x = next(*x, value);
        }
    };
    // SAFETY: the closure writes `x` alone.
    unsafe { stream.external_parallel("step_in_parts", x, parts, closure) }
}

/// Runs a closure that touches no memory.
fn parts(stream: &Stream, count: u32, closure: impl Fn(Part) + Send + Sync + 'static) -> Result<()> {
    // SAFETY: the closure touches no memory of the library.
    unsafe { stream.external_parallel("parts", (), count, move |part, ()| closure(part)) }
}

fn parts_cover_the_elements_once(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut want = 1;
    let mut x = stream.full(N, 1u32)?;
    for count in [1, 2, 3, 7, 64, 1000, N as u32 + 1] {
        step(&stream, &mut x, count, count)?;
        want = next(want, count);
        assert_all(&stream, &x, want)?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        parts(&stream, count, move |part| noted.lock().unwrap().push((part.index, part.count)))?;
        stream.synchronize()?;
        let mut seen = seen.lock().unwrap();
        seen.sort_unstable();
        assert_eq!(*seen, (0..count).map(|index| (index, count)).collect::<Vec<_>>());
    }
    // If a stream has only one worker, it runs the parts one after the other.
    let narrow = device.stream_with(StreamOptions::default().multiprocessors(1))?;
    step(&narrow, &mut x, 5, 9)?;
    assert_all(&narrow, &x, next(want, 5))
}

/// Each part waits until the other one has begun, so they must run at the same time.
fn parts_run_on_several_workers_at_once(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    for _ in 0..20 {
        let both = Barrier::new(2);
        parts(&stream, 2, move |_| {
            both.wait();
        })?;
    }
    let both = Barrier::new(2);
    let graph = stream.capture(|stream| {
        parts(stream, 2, move |_| {
            both.wait();
        })
    })?;
    for _ in 0..20 {
        graph.launch(&stream)?;
    }
    stream.synchronize()
}

fn parts_keep_to_the_order_of_streams(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 1u32)?, b.zeros::<u32>(N)?);
    let gate = Gate::on(&kernels, &a)?;
    kernels.step(&a, &mut x, 2, N)?;
    step(&a, &mut x, 3, 16)?;
    // Another stream's copy must wait for all parts. Later parts must wait for that copy.
    b.copy(&x, &mut y)?;
    step(&b, &mut x, 4, 16)?;
    kernels.step(&a, &mut x, 5, N)?;
    assert!(!b.is_done()?);
    gate.open();
    let after = next(next(1, 2), 3);
    assert_all(&b, &y, after)?;
    assert_all(&a, &x, next(next(after, 4), 5))
}

fn a_panic_of_a_part_is_reported_by_the_next_wait(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let ran = Arc::new(AtomicU32::new(0));
    let counted = ran.clone();
    let closure = move |part: Part| {
        counted.fetch_add(1, Ordering::SeqCst);
        if part.index == 3 {
            resume_unwind(Box::new("on purpose"));
        }
    };
    parts(&stream, 8, closure.clone())?;
    refused(stream.synchronize(), ErrorKind::HostPanic, &["on purpose"]);
    assert_eq!(ran.load(Ordering::SeqCst), 8, "the other parts run");
    stream.synchronize()?;
    let (recorded_on, launched_on) = (device.stream()?, device.stream()?);
    let graph = recorded_on.capture(|stream| parts(stream, 8, closure))?;
    for launches in 2..4 {
        graph.launch(&launched_on)?;
        refused(launched_on.synchronize(), ErrorKind::HostPanic, &["on purpose"]);
        assert_eq!(ran.load(Ordering::SeqCst), 8 * launches);
    }
    recorded_on.synchronize()
}

fn a_graph_runs_all_parts_in_each_launch(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let captured = a.capture(|a| {
        kernels.step(a, &mut x, 2, N)?;
        step(a, &mut x, 3, 16)?;
        kernels.step(a, &mut x, 4, N)
    })?;
    assert_eq!(captured.edge_count(), 2, "the memory orders the nodes");
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| step(s, &mut x, 5, 7))?;
    builder.node(&[], |s| step(s, &mut x, 6, 1))?;
    builder.child(&[], &captured)?;
    let built = builder.build()?;
    let mut want = 1;
    for _ in 0..3 {
        captured.launch(&b)?;
        built.launch(&a)?;
        for value in [2, 3, 4, 5, 6, 2, 3, 4] {
            want = next(want, value);
        }
    }
    assert_all(&b, &x, want)?;
    let mut captured = captured;
    captured.update(&a, |a| {
        kernels.step(a, &mut x, 7, N)?;
        step(a, &mut x, 8, 5)?;
        kernels.step(a, &mut x, 9, N)
    })?;
    captured.launch(&a)?;
    assert_all(&a, &x, next(next(next(want, 7), 8), 9))
}

fn a_node_is_set_to_another_closure_while_launches_are_pending(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noting = |value: u32| {
        let seen = seen.clone();
        move |_: Part| seen.lock().unwrap().push(value)
    };
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| parts(s, 3, noting(1)))?;
    let mut graph = builder.build()?;
    let gate = Gate::on(&kernels, &s)?;
    graph.launch(&s)?;
    graph.launch(&s)?;
    graph.set_node(node, |s| parts(s, 3, noting(2)))?;
    graph.launch(&s)?;
    refused(
        graph.set_node(node, |s| parts(s, 4, noting(3))),
        ErrorKind::InvalidArgument,
        &["in 3 parts", "in 4"],
    );
    refused(
        graph.set_node(node, |s| s.host_fn_repeat(|| ())),
        ErrorKind::InvalidArgument,
        &["host_fn_repeat"],
    );
    graph.launch(&s)?;
    gate.open();
    s.synchronize()?;
    assert_eq!(*seen.lock().unwrap(), [[1; 6], [2; 6]].concat());
    Ok(())
}

fn a_step_runs_the_closure_of_each_run(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut replay = device.replay();
    let mut want = 1;
    for round in 0..5 {
        replay.run(&s, |s| {
            kernels.step(s, &mut x, 2, N)?;
            step(s, &mut x, round, 8)?;
            kernels.step(s, &mut x, 3, N)
        })?;
        want = next(next(next(want, 2), round), 3);
    }
    assert_all(&s, &x, want)
}

fn closures_are_dropped_after_their_last_part(device: &Device) -> Result<()> {
    /// Reports when it is dropped, and how many parts had ended.
    struct Told(mpsc::Sender<(u32, bool)>, AtomicU32, Buffer<u32>);
    impl Drop for Told {
        fn drop(&mut self) {
            let is_outside = check_outside_closures().is_ok();
            self.0.send((self.1.load(Ordering::SeqCst), is_outside)).unwrap();
        }
    }
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (sender, dropped) = mpsc::channel();
    let closure = || -> Result<_> {
        let told = Told(sender.clone(), AtomicU32::new(0), s.zeros(N)?);
        Ok(move |_: Part| {
            let told: &Told = &told;
            assert_eq!(told.2.len(), N);
            told.1.fetch_add(1, Ordering::SeqCst);
        })
    };
    parts(&s, 9, closure()?)?;
    assert_eq!(dropped.recv().unwrap(), (9, false));
    // Now we drop a graph while its launch is pending.
    let own = closure()?;
    let graph = s.capture(|s| parts(s, 9, own))?;
    let gate = Gate::on(&kernels, &s)?;
    graph.launch(&s)?;
    drop(graph);
    assert!(dropped.try_recv().is_err());
    gate.open();
    s.synchronize()?;
    device.trim();
    assert_eq!(dropped.recv().unwrap().0, 9);
    // If a call is refused, the closure is dropped at once.
    refused(parts(&s, 0, closure()?), ErrorKind::InvalidArgument, &["0 parts"]);
    assert_eq!(dropped.try_recv().unwrap(), (0, true));
    let strict = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [a, b]) = kernels_and_streams(&strict)?;
    let gate = Gate::on(&kernels, &a)?;
    let mut x = a.zeros::<u32>(N)?;
    let own = closure()?;
    // SAFETY: the closure does not touch the memory.
    let hazard = unsafe { b.external_parallel("parts", &mut x, 2, move |part, _| own(part)) };
    refused(hazard, ErrorKind::Hazard, &[]);
    assert_eq!(dropped.try_recv().unwrap(), (0, true));
    gate.open();
    a.synchronize()
}

fn calls_inside_a_part_are_refused(device: &Device) -> Result<()> {
    let stream = Arc::new(device.stream()?);
    let (inside, answers) = (stream.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = answers.clone();
    parts(&stream, 4, move |_| {
        let kinds = [inside.synchronize(), parts(&inside, 2, |_| ())].map(|it| it.unwrap_err().kind());
        noted.lock().unwrap().extend(kinds);
    })?;
    stream.synchronize()?;
    assert_eq!(*answers.lock().unwrap(), [ErrorKind::InHostClosure; 8]);
    Ok(())
}

fn misuse_is_refused(device: &Device) -> Result<()> {
    let (s, flag) = (device.stream()?, device.flag()?);
    let captured = s.capture(|s| {
        refused(
            s.if_(&flag, |body| parts(body, 2, |_| ())),
            ErrorKind::NotANode,
            &["a host closure in the body"],
        );
        let other = std::thread::scope(|scope| scope.spawn(|| parts(s, 2, |_| ())).join());
        refused(other.unwrap(), ErrorKind::Captured, &["another thread"]);
        Ok(())
    });
    captured.map(drop)
}

fn devices_without_parts_refuse_them(device: &Device) -> Result<()> {
    let s = device.stream()?;
    refused(parts(&s, 2, |_| ()), ErrorKind::Unsupported, &["CPU device", "external_host"]);
    let mut builder = device.graph_builder()?;
    refused(builder.node(&[], |s| parts(s, 2, |_| ())), ErrorKind::Unsupported, &[]);
    refused(s.capture(|s| parts(s, 2, |_| ())), ErrorKind::Unsupported, &[]);
    assert_all(&s, &s.full(N, 3u32)?, 3)
}
