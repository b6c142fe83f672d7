//! We know what these programs do, so their traces must say what ran, in which order, and what waited for what.

use std::ops::Range;
use std::sync::Arc;

use conformance::executor::{block_on, is_pending};
use conformance::{
    Child, Gate, ONE, assert_all, globals, kernels_and_streams, next, on_threads, open_again, overlaps,
    refused, tests,
};
use gpustream::timeline::{Clock, Direction, Operation, Point, SourceLine, SpanKind, Timeline, WorkKind};
use gpustream::{
    ArrayShape, CopyBatch, Device, DeviceOptions, Error, ErrorKind, Launch, Location, Pitched, Result, Trace,
    ViewMut,
};
use gpustream_kernels::reduce::Reduce as _;
use gpustream_kernels::scan::Scan as _;
use gpustream_timeline_view::perfetto;

tests! {
    Alone: a_thousand_traces_leak_nothing, operations_are_named_and_timed, waits_are_arrows,
        copies_have_directions_and_exact_bytes, host_waits_name_what_they_waited_for,
        graphs_and_steps_are_operations, graphs_are_seen_by_node, captures_are_not_operations,
        memory_is_counted, only_the_traced_device_is_in_it, traces_beside_each_other_hear_the_same,
        dropped_trace_waits_for_nothing, threads_trace_at_once, host_closures_cannot_trace,
        a_panic_inside_leaves_the_trace_usable, a_variable_traces_the_process,
        everything_is_noted_at_your_line, streams_have_the_names_that_you_give,
        devices_of_all_backends_are_in_one_file, a_trace_that_cannot_be_written_is_one_error,
        two_processes_with_one_file_write_two;
    Alone if overlaps: kernels_at_once_overlap;
    Part: traced, killed, everywhere, traced_up_to_a_limit;
}

const N: usize = 3000;

/// Returns the operations with this label, in the order of submission.
fn labelled<'a>(timeline: &'a Timeline, label: &str) -> Vec<&'a Operation> {
    let mut found: Vec<_> = timeline.operations.iter().filter(|it| it.label == label).collect();
    found.sort_by_key(|it| it.submitted.start);
    found
}

fn ran(operation: &Operation) -> Range<u64> {
    operation.ran.clone().unwrap_or_else(|| panic!("the trace does not say when this ran: {operation:?}"))
}

/// Returns how many nanoseconds an interval's length may be off, because both of its ends are.
fn slack(timeline: &Timeline) -> u64 {
    timeline.devices.iter().map(|device| 2 * device.error).max().unwrap_or(0) + 1000
}

fn operations_are_named_and_timed(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let trace = device.trace()?;
    let line = line!() + 1;
    kernels.step(&a, &mut x, 1, N)?;
    kernels.step(&a, &mut x, 2, N)?;
    let timeline = trace.stop()?;
    assert_eq!(timeline.lost, 0);
    let [known] = timeline.devices.as_slice() else { panic!("{:?}", timeline.devices) };
    assert!(known.name.starts_with(&format!("{}:{}", device.info().backend, device.info().ordinal)));
    assert_eq!(known.clock == Clock::Host, device.info().backend == gpustream::BackendName::CPU);
    let steps = labelled(&timeline, "step");
    let [first, second] = steps.as_slice() else { panic!("{:?}", timeline.operations) };
    assert!(first.place.file.ends_with("traces.rs") && first.place.line == line, "{:?}", first.place);
    assert_eq!(second.point, Point { number: first.point.number + 1, ..first.point });
    assert!(timeline.streams.iter().any(|stream| stream.id == first.point.stream && !stream.legacy));
    let WorkKind::Kernel { grid, block } = first.work else { panic!("{:?}", first.work) };
    assert!(grid.iter().chain(&block).all(|&extent| extent > 0));
    assert!(ran(first).end <= ran(second).start + slack(&timeline), "{first:?} {second:?}");
    assert!(first.submitted.start <= ran(first).start + slack(&timeline), "{first:?}");
    assert!(timeline.threads.iter().any(|thread| thread.id == first.thread));
    // A trace must not note anything after its end.
    kernels.step(&a, &mut x, 3, N)?;
    assert_eq!(labelled(&device.trace()?.stop()?, "step").len(), 0);
    Ok(())
}

fn waits_are_arrows(device: &Device) -> Result<()> {
    let (kernels, [a, b, c]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.zeros::<u32>(N)?, c.zeros::<u32>(N)?);
    device.synchronize()?;
    let trace = device.trace()?;
    let gate = Gate::on(&kernels, &a)?;
    kernels.step(&a, &mut x, 1, N)?;
    kernels.step(&b, &mut x, 2, N)?;
    c.wait(&b.record()?)?;
    kernels.step(&c, &mut y, 3, N)?;
    kernels.step(&c, &mut y, 4, N)?;
    gate.open();
    let timeline = trace.stop()?;
    let steps = labelled(&timeline, "step");
    let [one, two, three, four] = steps.as_slice() else { panic!("{:?}", timeline.operations) };
    assert_eq!(
        (two.after.as_slice(), three.after.as_slice()),
        ([one.point].as_slice(), [two.point].as_slice())
    );
    assert!(one.after.is_empty() && four.after.is_empty(), "no waits, no arrows");
    let slack = slack(&timeline);
    assert!(ran(one).end <= ran(two).start + slack && ran(two).end <= ran(three).start + slack);
    Ok(())
}

/// Each kernel ends only when the other one has begun.
fn kernels_at_once_overlap(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (first, second) = (device.flag()?, device.flag()?);
    device.synchronize()?;
    let trace = device.trace()?;
    kernels.arrive(&a, &ONE, &mut first.clone(), &second)?;
    kernels.arrive(&b, &ONE, &mut second.clone(), &first)?;
    let timeline = trace.stop()?;
    let meetings = labelled(&timeline, "arrive");
    let [one, two] = meetings.as_slice() else { panic!("{:?}", timeline.operations) };
    let slack = slack(&timeline);
    assert!(
        ran(one).start < ran(two).end + slack && ran(two).start < ran(one).end + slack,
        "{one:?} {two:?}"
    );
    Ok(())
}

fn copies_have_directions_and_exact_bytes(device: &Device) -> Result<()> {
    let [a] = [device.stream()?];
    let long = vec![7u8; (8 << 20) + 5];
    let trace = device.trace()?;
    let x = a.upload(&long)?;
    let mut y = a.alloc::<u8>(long.len())?;
    a.copy(&x, &mut y)?;
    a.fill(&mut y, 9)?;
    let back = a.download(&x)?;
    let few = a.upload(&[1u8, 2, 3])?;
    let timeline = trace.stop()?;
    assert!(back == long && few.len() == 3);
    let bytes = |wanted: Direction| -> u64 {
        let of = |it: &Operation| match it.work {
            WorkKind::Copy { direction, bytes, .. } if direction == wanted => bytes,
            _ => 0,
        };
        timeline.operations.iter().map(of).sum()
    };
    let len = long.len() as u64;
    let [up, down, inside] = [Direction::Up, Direction::Down, Direction::Inside].map(bytes);
    // If host and device share memory, the trace counts these as copies inside it.
    assert_eq!(up + down + inside, 3 * len + 3);
    if device.info().backend != gpustream::BackendName::CPU {
        assert_eq!((up, down, inside), (len + 3, len, len));
    }
    let fills = timeline.operations.iter().filter(|it| it.work == WorkKind::Fill { bytes: len });
    assert_eq!(fills.count(), 1);
    assert!(timeline.operations.iter().all(|it| it.ran.is_some()), "{timeline:?}");
    // A slice goes through pinned memory, and the host works on it before it submits the copy. A few bytes go with the
    // command.
    let from_slices = |it: &&Operation| matches!(it.work, WorkKind::Copy { pageable: true, .. });
    let staged: Vec<_> = timeline.operations.iter().filter(from_slices).collect();
    assert!(staged.iter().all(|it| it.label == "upload"), "{staged:?}");
    let of = |it: &&Operation| match it.work {
        WorkKind::Copy { bytes, .. } => bytes,
        _ => 0,
    };
    assert!((len..=len + 3).contains(&staged.iter().map(of).sum()), "{staged:?}");
    Ok(())
}

fn host_waits_name_what_they_waited_for(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let trace = device.trace()?;
    kernels.step(&a, &mut x, 1, N)?;
    let line = line!() + 1;
    a.synchronize()?;
    let timeline = trace.stop()?;
    let step = labelled(&timeline, "step")[0];
    let waits: Vec<_> =
        timeline.spans.iter().filter(|span| span.kind == SpanKind::Wait(Some(step.point))).collect();
    let [wait] = waits.as_slice() else { panic!("{:?}", timeline.spans) };
    assert_eq!((wait.label.as_ref(), wait.place.line, wait.thread), ("synchronize", line, step.thread));
    assert!(wait.time.start >= step.submitted.end && wait.time.end + slack(&timeline) >= ran(step).end);
    Ok(())
}

/// Returns the label and line of each record, except of those that belong to no line.
fn places(timeline: &Timeline) -> Vec<(&str, &SourceLine)> {
    let operations = timeline.operations.iter().map(|it| (&*it.label, &it.place));
    let spans = timeline.spans.iter().map(|it| (&*it.label, &it.place));
    let instants = timeline.instants.iter().map(|it| (&*it.label, &it.place));
    // A driver's thread runs closures and wakes futures, whenever it wants to.
    operations
        .chain(spans)
        .chain(instants)
        .filter(|(label, _)| !["host closure", "woken"].contains(label))
        .collect()
}

fn everything_is_noted_at_your_line(device: &Device) -> Result<()> {
    let long = vec![1u32; (2 << 20) + 5];
    let device = open_again(device, DeviceOptions::default())?;
    let trace = device.trace()?;
    let first = line!();
    let (kernels, [a, b]) = kernels_and_streams(&device)?;
    let (mut x, mut y) = (a.upload(&long)?, b.zeros::<u32>(long.len())?);
    a.copy(&x, &mut y)?;
    b.upload_into(&long[..N], &mut x.slice_mut(..N)?)?;
    assert!(a.download(&x)? == long);
    a.download_into(&y.slice(..N)?, &mut vec![0; N])?;
    a.fill(&mut y, 7)?;
    drop(a.full(N, [1u32, 2, 3])?);
    drop(a.duplicate(&x)?);
    let mut host = device.pinned_from(&long)?;
    a.copy(&x, &mut host)?;
    assert_eq!(host.read()?[0], 1);
    host.slice_mut(..N)?.write()?.fill(2);
    a.copy_box(&x, Pitched::new_2d(10), &mut y, Pitched::new_2d(20), [10, 10, 1])?;
    let mut batch = CopyBatch::new();
    batch.add(&x, &mut y)?;
    a.copy_batch(batch)?;
    block_on(a.download_async(&x.slice(..N)?))?;
    kernels.step(&a, &mut x.slice_mut(..N)?, 1, N)?;
    a.host_fn(|| ())?;
    a.host_fn_repeat(|| ())?;
    a.record()?.synchronize()?;
    let gate = Gate::on(&kernels, &a)?;
    let event = a.record()?;
    let (mut done, mut reached) = (a.synchronize_async(), Box::pin(async { (&event).await }));
    assert!(is_pending(&mut done) && is_pending(&mut reached));
    gate.open();
    block_on(done)?;
    block_on(reached)?;
    a.capture(|a| kernels.step(a, &mut y, 1, N))?.launch(&a)?;
    let mut step = device.replay();
    for _ in 0..3 {
        step.run(&a, |a| kernels.step(a, &mut x, 1, N))?;
        step.run(&b, |a| a.fill(&mut y, 1))?;
    }
    let mut pipeline = device.pipeline().chunks(N).depth(2);
    pipeline.in_place([&mut host.slice_mut(..3 * N)?], |s, [x]| kernels.step(s, x, 1, N))?;
    let mut output = vec![0; 3 * N];
    pipeline.map(&long[..3 * N], &mut output, |s, it| s.copy(&it.input, &mut it.output))?;
    pipeline.generate(3, |s, it: &mut ViewMut<'_, u32>| s.fill(it, 1), |_, _| Ok::<_, Error>(()))?;
    if device.info().features.managed_memory {
        let mut shared = device.managed::<u32>(N)?;
        a.prefetch(&shared, Location::Device)?;
        a.fill(&mut shared, 1)?;
        assert_eq!(shared.read()?[0], 1);
    }
    if device.info().features.textures {
        let array = a.upload_array(&long[..N], ArrayShape::new_1d(N))?;
        assert_eq!(a.download_array(&array)?.len(), N);
        a.copy_from_array(&array, &mut x.slice_mut(..N)?)?;
    }
    let globals = globals::Kernels::load(&device)?;
    globals.set_factors(&a, &[1, 2, 3, 4])?;
    globals.factors()?.download(&a)?;
    let floats = a.full(N, 1.0f32)?;
    for total in [a.sum(&floats)?, a.max(&floats)?, a.dot(&floats, &floats)?] {
        assert!(a.download(&total)?[0] >= 1.0);
    }
    a.inclusive_scan(&floats, &mut a.duplicate(&floats)?)?;
    a.wait_for(&b)?;
    a.synchronize()?;
    let last = line!();
    device.synchronize()?;
    let timeline = trace.stop()?;
    let is_here = |place: &SourceLine| {
        let is_here = place.file.ends_with("conformance/traces.rs") && (first..last).contains(&place.line);
        is_here || place.file.ends_with("harness/gate.rs")
    };
    let mut elsewhere: Vec<_> = places(&timeline).into_iter().filter(|(_, place)| !is_here(place)).collect();
    elsewhere.sort_by_key(|(label, place)| (*label, &*place.file, place.line));
    elsewhere.dedup();
    assert_eq!(elsewhere, [], "these are the library's own lines");
    Ok(())
}

fn streams_have_the_names_that_you_give(device: &Device) -> Result<()> {
    let (kernels, [a, b, c]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    a.set_name("solver");
    device.synchronize()?;
    let trace = device.trace()?;
    kernels.step(&a, &mut x, 1, N)?;
    kernels.step(&b, &mut x, 2, N)?;
    kernels.step(&c, &mut x, 3, N)?;
    b.set_name("halo");
    // From here on, the trace may know the name.
    kernels.step(&b, &mut x, 4, N)?;
    let timeline = trace.stop()?;
    let id = |at: usize| labelled(&timeline, "step")[at].point.stream;
    let named: Vec<_> = timeline.streams.iter().map(|stream| (stream.id, &*stream.name)).collect();
    let own = format!("stream {}", id(2));
    assert_eq!(named, [(id(0), "solver"), (id(1), "halo"), (id(2), &own)]);
    // A later trace knows them from the beginning.
    let trace = device.trace()?;
    kernels.step(&b, &mut x, 5, N)?;
    assert_eq!(trace.stop()?.streams[0].name, "halo");
    assert_eq!((a.name().as_deref(), c.name()), (Some("solver"), None));
    Ok(())
}

fn graphs_and_steps_are_operations(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let graph = a.capture(|a| {
        kernels.step(a, &mut x, 1, N)?;
        kernels.step(a, &mut x, 2, N)
    })?;
    let mut y = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let trace = device.trace()?;
    graph.launch(&a)?;
    let mut replay = device.replay();
    for _ in 0..4 {
        replay.run(&a, |a| {
            kernels.step(a, &mut y, 1, N)?;
            kernels.step(a, &mut y, 2, N)
        })?;
    }
    let timeline = trace.stop()?;
    let [run] = labelled(&timeline, "graph")[..] else { panic!("{:?}", timeline.operations) };
    assert_eq!(run.work, WorkKind::Graph { operations: 2 });
    let times = ran(run);
    assert!(run.pieces.iter().all(|piece| times.start <= piece.ran.start && piece.ran.end <= times.end));
    // A step's first run submits its operations one by one.
    let (plain, steps) = (labelled(&timeline, "step"), labelled(&timeline, "replayed step"));
    if replay.stats().launches == 0 {
        assert_eq!((plain.len(), steps.len()), (8, 0));
    } else {
        assert_eq!((plain.len(), steps.len()), (2, 3), "{:?}", timeline.operations);
        assert!(steps.iter().all(|step| step.work == WorkKind::Step { operations: 2 } && step.ran.is_some()));
        assert_eq!(steps[0].point.number, plain[1].point.number + 2);
    }
    Ok(())
}

fn graphs_are_seen_by_node(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let (grids, block) = ([[3, 1, 1], [5, 1, 1]], [64, 1, 1]);
    let [one, other] = grids.map(|grid| Launch::new(grid, block));
    let graph = a.capture(|a| {
        a.fill(&mut x, 7)?;
        kernels.step_with(a, &one, &mut x, 1, N)?;
        kernels.step_with(a, &other, &mut x, 2, N)
    })?;
    a.synchronize()?;
    let trace = device.trace()?;
    graph.launch(&a)?;
    graph.launch(&a)?;
    let timeline = trace.stop()?;
    let expected = grids.map(|grid| WorkKind::Kernel { grid, block });
    let slack = slack(&timeline);
    for run in labelled(&timeline, "graph") {
        let times = ran(run);
        if timeline.devices.iter().any(|device| device.clock == Clock::Events) {
            assert_eq!(run.pieces, [], "events see the whole");
            continue;
        }
        let kernels = run.pieces.iter().filter(|piece| matches!(piece.work, WorkKind::Kernel { .. }));
        assert_eq!(kernels.clone().map(|piece| piece.work).collect::<Vec<_>>(), expected, "{run:?}");
        assert!(kernels.clone().all(|piece| piece.label.contains("step")), "{run:?}");
        let ends = kernels.clone().map(|piece| piece.ran.end);
        assert!(ends.zip(kernels.skip(1)).all(|(end, next)| end <= next.ran.start + slack), "{run:?}");
        assert!(run.pieces.iter().all(|it| times.start <= it.ran.start && it.ran.end <= times.end));
        if device.info().backend == gpustream::BackendName::CPU {
            assert_eq!(run.pieces.len(), 3, "{run:?}");
            assert_eq!(run.pieces[0].work, WorkKind::Fill { bytes: 4 * N as u64 });
        }
    }
    assert_eq!(labelled(&timeline, "graph").len(), 2);
    Ok(())
}

fn captures_are_not_operations(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    a.synchronize()?;
    let trace = device.trace()?;
    let graph = a.capture(|a| kernels.step(a, &mut x, 1, N))?;
    assert_eq!(graph.node_count(), 1, "a trace adds no nodes");
    let timeline = trace.stop()?;
    assert_eq!(timeline.operations.len(), 0, "{:?}", timeline.operations);
    graph.launch(&a)?;
    assert_all(&a, &x, next(1, 1))
}

fn memory_is_counted(device: &Device) -> Result<()> {
    let a = device.stream()?;
    let trace = device.trace()?;
    let x = a.alloc::<u8>(1 << 20)?;
    let before = device.memory_stats().used;
    drop(x);
    let timeline = trace.stop()?;
    let used: Vec<_> =
        timeline.counters.iter().filter(|it| it.label == "memory in use").map(|it| it.bytes).collect();
    assert_eq!(used.iter().max(), Some(&before));
    assert_eq!(used.last(), Some(&device.memory_stats().used));
    let asked = timeline
        .spans
        .iter()
        .filter(|span| matches!(span.kind, SpanKind::Allocation { bytes, .. } if bytes >= 1 << 20));
    assert_eq!(asked.count(), 1, "{:?}", timeline.spans);
    Ok(())
}

fn only_the_traced_device_is_in_it(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (here, there) = (device.stream()?, other.stream()?);
    let trace = other.trace()?;
    let (x, y) = (here.full(N, 1u32)?, there.full(N, 2u32)?);
    let timeline = trace.stop()?;
    assert_eq!((x.len(), y.len()), (N, N));
    assert_eq!(timeline.operations.len(), 1, "{:?}", timeline.operations);
    let both = Trace::of(&[device, &other])?;
    let (x, y) = (here.full(N, 1u32)?, there.full(N, 2u32)?);
    let timeline = both.stop()?;
    assert_eq!((x.len(), y.len()), (N, N));
    assert_eq!((timeline.operations.len(), timeline.devices.len()), (2, 2));
    Ok(())
}

fn traces_beside_each_other_hear_the_same(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let outer = device.trace()?;
    kernels.step(&a, &mut x, 1, N)?;
    let inner = device.trace()?;
    kernels.step(&a, &mut x, 2, N)?;
    let (inner, outer) = (inner.stop()?, outer.stop()?);
    let (inner, outer) = (labelled(&inner, "step"), labelled(&outer, "step"));
    assert_eq!(outer.len(), 2);
    assert_eq!(inner.last(), outer.last());
    Ok(())
}

fn a_thousand_traces_leak_nothing(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let resident = || {
        let pages: Option<u64> = std::fs::read_to_string("/proc/self/statm")
            .ok()
            .and_then(|text| text.split(' ').nth(1)?.parse().ok());
        4096 * pages.unwrap_or(0)
    };
    let mut rounds = |count: u32| -> Result<()> {
        for _ in 0..count {
            let trace = device.trace()?;
            kernels.step(&a, &mut x, 1, N)?;
            assert_eq!(labelled(&trace.stop()?, "step").len(), 1);
        }
        Ok(())
    };
    rounds(200)?;
    let before = resident();
    rounds(800)?;
    let more = resident().saturating_sub(before);
    assert!(more < 16 << 20, "{more} bytes more after 800 traces");
    Ok(())
}

fn dropped_trace_waits_for_nothing(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    a.synchronize()?;
    let trace = device.trace()?;
    let gate = Gate::on(&kernels, &a)?;
    kernels.step(&a, &mut x, 1, N)?;
    drop(trace);
    assert!(!a.is_done()?);
    gate.open();
    assert_all(&a, &x, next(1, 1))
}

fn threads_trace_at_once(device: &Device) -> Result<()> {
    on_threads(4, |index| {
        let (kernels, [a]) = kernels_and_streams(device)?;
        let mut x = a.zeros::<u32>(N)?;
        for round in 0..20 {
            let trace = device.trace()?;
            kernels.step(&a, &mut x, round, N)?;
            kernels.step(&a, &mut x, round, N)?;
            if index == 0 {
                drop(trace);
                continue;
            }
            let timeline = trace.stop()?;
            let steps = labelled(&timeline, "step");
            assert!(steps.len() >= 2 && steps.iter().all(|it| it.ran.is_some()), "{steps:?}");
        }
        Ok(())
    })
}

fn host_closures_cannot_trace(device: &Device) -> Result<()> {
    let a = device.stream()?;
    let trace = Arc::new(std::sync::Mutex::new(Some(device.trace()?)));
    let inside = trace.clone();
    let device_inside = device.clone();
    a.host_fn(move || {
        refused(device_inside.trace().map(drop), ErrorKind::InHostClosure, &["host closure"]);
        let trace = inside.lock().ok().and_then(|mut trace| trace.take());
        if let Some(trace) = trace {
            refused(trace.stop().map(drop), ErrorKind::InHostClosure, &["host closure"]);
        }
    })?;
    a.synchronize()
}

fn a_panic_inside_leaves_the_trace_usable(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let trace = device.trace()?;
    // SAFETY: nothing is enqueued.
    let outside = || unsafe { a.external("foreign", (), |_, ()| -> Result<()> { panic!("on purpose") }) };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(outside)).is_err());
    kernels.step(&a, &mut x, 1, N)?;
    // SAFETY: nothing is enqueued.
    unsafe { a.external("foreign", (), |_, ()| Ok::<(), gpustream::Error>(())) }?;
    let timeline = trace.stop()?;
    assert!(labelled(&timeline, "step")[0].ran.is_some());
    assert_eq!(labelled(&timeline, "foreign")[0].work, WorkKind::External);
    assert_all(&a, &x, next(1, 1))
}

/// Returns the file into which a child traces itself.
fn file_of_child() -> std::path::PathBuf {
    std::env::var_os("GPUSTREAM_TRACE").expect("set by the parent").into()
}

/// Runs a few operations. The environment says whether and where they are traced.
fn traced(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    kernels.step(&a, &mut x, 1, N)?;
    kernels.step(&b, &mut x, 2, N)?;
    assert_all(&b, &x, next(next(1, 1), 2))
}

/// Is killed without a proper end, once the library has written the operations.
fn killed(device: &Device) -> Result<()> {
    traced(device)?;
    let written = || {
        let timeline = std::fs::read(file_of_child()).ok().and_then(|bytes| perfetto::read(&bytes).ok());
        timeline.is_some_and(|timeline| labelled(&timeline, "step").len() == 2)
    };
    while !written() {
        std::thread::yield_now();
    }
    std::process::abort();
}

fn check_file(bytes: &[u8]) {
    let timeline = perfetto::read(bytes).unwrap_or_else(|error| panic!("{error}"));
    let steps = labelled(&timeline, "step");
    let [one, two] = steps.as_slice() else { panic!("{:?}", timeline.operations) };
    assert_eq!(two.after, [one.point]);
    assert!(ran(one).end <= ran(two).start + slack(&timeline));
}

fn a_variable_traces_the_process(device: &Device) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.pftrace");
    let child = |part| Child::of(device, part).env("GPUSTREAM_TRACE", file.to_str().expect("a plain name"));
    let output = child("traces::traced").env("GPUSTREAM_TRACE_SUMMARY", "1").succeeds()?;
    assert!(output.contains("step"), "{output}");
    check_file(&std::fs::read(&file).expect("the trace"));
    let killed = child("traces::killed").run()?;
    assert_eq!(killed.code, None, "{}", killed.output);
    check_file(&std::fs::read(&file).expect("the trace"));
    Ok(())
}

/// Runs an operation on each device of each backend.
fn everywhere(_: &Device) -> Result<()> {
    for (number, device) in (1..).zip(Device::all().into_iter().flatten()) {
        let (kernels, [a]) = kernels_and_streams(&device)?;
        let mut x = a.full(N, number)?;
        kernels.step(&a, &mut x, 1, N)?;
        assert_all(&a, &x, next(number, 1))?;
    }
    Ok(())
}

fn devices_of_all_backends_are_in_one_file(device: &Device) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.pftrace");
    Child::of(device, "traces::everywhere")
        .env("GPUSTREAM_TRACE", file.to_str().expect("a plain name"))
        .env("GPUSTREAM_CPU_DEVICES", "2")
        .succeeds()?;
    let timeline = perfetto::read(&std::fs::read(&file).expect("the trace")).expect("a trace");
    let opened = format!("{}:{}", device.info().backend, device.info().ordinal);
    for name in ["cpu:0", "cpu:1", &opened] {
        // The child opens its own device twice.
        let known: Vec<_> = timeline.devices.iter().filter(|known| known.name.starts_with(name)).collect();
        let is_known = |id| known.iter().any(|known| known.id == id);
        let streams: Vec<_> = timeline.streams.iter().filter(|stream| is_known(stream.device)).collect();
        let steps = labelled(&timeline, "step");
        let is_own = |step: &&&Operation| streams.iter().any(|stream| stream.id == step.point.stream);
        let own: Vec<_> = steps.iter().filter(is_own).collect();
        let [step] = own.as_slice() else { panic!("{name}: {own:?}") };
        assert!(ran(step).start + slack(&timeline) >= step.submitted.start, "{name}: {step:?}");
    }
    Ok(())
}

fn a_trace_that_cannot_be_written_is_one_error(device: &Device) -> Result<()> {
    let child = |file| Child::of(device, "traces::traced").env("GPUSTREAM_TRACE", file);
    let output = child("/dev/full").succeeds()?;
    assert_eq!(output.matches("the trace ends here, and the program goes on").count(), 1, "{output}");
    let nowhere = child("/nowhere/run.pftrace").run()?;
    assert_ne!(nowhere.code, Some(0));
    assert!(nowhere.output.contains("GPUSTREAM_TRACE=/nowhere/run.pftrace"), "{}", nowhere.output);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.pftrace");
    let output = Child::of(device, "traces::traced_up_to_a_limit")
        .env("GPUSTREAM_TRACE", file.to_str().expect("a plain name"))
        .succeeds()?;
    assert!(output.contains("ulimit -f") && output.contains("the trace ends here"), "{output}");
    Ok(())
}

/// Traces more than the process's files may hold. If the library did not look at the limit, a signal would end the
/// process.
fn traced_up_to_a_limit(device: &Device) -> Result<()> {
    let limit = libc::rlimit { rlim_cur: 4000, rlim_max: libc::RLIM_INFINITY };
    // We load the module before we set the limit, because loading may write files.
    let kernels = conformance::sync::Kernels::load(device)?;
    // SAFETY: the call reads a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    for _ in 0..1000 {
        kernels.step(&s, &mut x, 1, N)?;
    }
    s.synchronize()
}

/// The first process's trace must stay whole. The second process must say which file it writes instead.
fn two_processes_with_one_file_write_two(device: &Device) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.pftrace");
    let first = std::fs::File::create(&path).expect("a file");
    first.lock().expect("a lock");
    let output = Child::of(device, "traces::traced")
        .env("GPUSTREAM_TRACE", path.to_str().expect("a plain name"))
        .succeeds()?;
    assert!(output.contains("another process is writing its trace there"), "{output}");
    assert_eq!(first.metadata().expect("a file").len(), 0);
    let files = std::fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file").path());
    let files: Vec<_> = files.filter(|file| *file != path).collect();
    let [other] = &files[..] else { panic!("{files:?}") };
    assert!(other.extension().is_some_and(|extension| extension == "pftrace"), "{}", other.display());
    assert!(output.contains(&*other.to_string_lossy()), "{output}");
    check_file(&std::fs::read(other).expect("the trace"));
    Ok(())
}
