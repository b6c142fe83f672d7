//! Graphs: work recorded once and launched many times, beside ordinary work and ordered with it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, thread};

use conformance::harness::{Gate, open_again, refused};
use conformance::{sync, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, GraphUpdate, Launch, Result, Stream, Tracking};

tests! {
    Plain: capturing_runs_nothing, a_fork_and_its_join, the_tracker_orders_inside, strict_mode_inside,
        captured_branches_run_at_once, built_branches_run_at_once, replays_wait_for_ordinary_work,
        ordinary_work_waits_for_replays, replays_follow_each_other, a_graph_owns_what_it_uses, a_graph_dropped_in_use,
        closures_run_in_every_launch, panics_of_closures_are_reported, an_update_of_the_same_shape,
        an_update_of_another_shape, a_failed_update_changes_nothing, single_nodes_are_set, setting_nodes_is_checked,
        children_and_joins, sizes_and_pictures, guards_keep_launches_out, forgotten_guards_keep_launches_out,
        a_host_wait_is_refused, an_allocation_is_refused, another_thread_is_refused, captures_do_not_nest,
        times_are_refused, outside_events_are_refused, events_of_ended_captures_are_refused,
        a_failing_closure_ends_the_capture, a_panic_ends_the_capture, an_empty_graph, graphs_of_another_opening,
        nodes_are_single_operations, many_nodes;
}

const ONE: Launch = Launch::new([1; 3], [1; 3]);
const N: usize = 3000;

fn next(x: u32, value: u32) -> u32 {
    x.wrapping_mul(5).wrapping_add(value)
}

/// Everything still works after what went before.
fn usable(device: &Device, streams: &[&Stream]) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let mut x = streams[0].full(N, 1u32)?;
    for (value, s) in streams.iter().enumerate() {
        kernels.step(s, &mut x, value as u32, N)?;
    }
    let graph = streams[0].capture(|s| kernels.step(s, &mut x, 9, N))?;
    graph.launch(streams[0])?;
    let want = next((0..streams.len() as u32).fold(1, next), 9);
    assert_eq!(streams[0].download(&x)?, vec![want; N]);
    Ok(())
}

fn capturing_runs_nothing(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        kernels.step(s, &mut x, 2, N)
    })?;
    assert_eq!(s.download(&x)?, [1; N]);
    graph.upload(&s)?;
    let mut want = 1;
    for _ in 0..10 {
        graph.launch(&s)?;
        want = next(next(want, 1), 2);
    }
    assert_eq!(s.download(&x)?, vec![want; N]);
    Ok(())
}

/// A second stream joins by waiting for an event recorded inside, and is joined again by itself.
fn a_fork_and_its_join(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
    let (mut x, mut y, mut z) = (a.full(N, 1u32)?, a.full(N, 2u32)?, a.zeros::<u32>(N)?);
    let graph = a.capture(|a| {
        kernels.step(a, &mut x, 1, N)?;
        b.wait(&a.record()?)?;
        kernels.step(&b, &mut y, 2, N)?;
        kernels.step(a, &mut x, 3, N)?;
        a.wait(&b.record()?)?;
        kernels.mix(a, &x, &mut z, N)?;
        // Left to its own: the capture's end joins it.
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

/// Nothing but the tracker says that the branches meet.
fn the_tracker_orders_inside(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (a, b, c) = (device.stream()?, device.stream()?, device.stream()?);
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
    assert_eq!(a.download(&y)?, vec![want_y; N]);
    Ok(())
}

fn strict_mode_inside(device: &Device) -> Result<()> {
    let device = &open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
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
    assert_eq!(a.download(&x)?, vec![next(next(1, 1), 2); N]);
    Ok(())
}

/// Two kernels, each waiting for the other's flag: they end only if both run at once.
fn captured_branches_run_at_once(device: &Device) -> Result<()> {
    if !device.info().concurrent_kernels {
        return Ok(());
    }
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
    let (mut first, mut second) = (device.flag()?, device.flag()?);
    let (see_first, see_second) = (first.clone(), second.clone());
    let graph = a.capture(|a| {
        b.wait(&a.record()?)?;
        kernels.arrive(a, &ONE, &mut first, &see_second)?;
        kernels.arrive(&b, &ONE, &mut second, &see_first)
    })?;
    for _ in 0..3 {
        see_first.set(0);
        see_second.set(0);
        graph.launch(&a)?;
        a.synchronize()?;
        assert_eq!((see_first.get(), see_second.get()), (1, 1));
    }
    Ok(())
}

fn built_branches_run_at_once(device: &Device) -> Result<()> {
    if !device.info().concurrent_kernels {
        return Ok(());
    }
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut first, mut second) = (device.flag()?, device.flag()?);
    let (see_first, see_second) = (first.clone(), second.clone());
    let mut x = s.full(N, 1u32)?;
    let mut builder = device.graph()?;
    let start = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    let left = builder.node(&[start], |s| kernels.arrive(s, &ONE, &mut first, &see_second))?;
    let right = builder.node(&[start], |s| kernels.arrive(s, &ONE, &mut second, &see_first))?;
    builder.node(&[left, right], |s| kernels.step(s, &mut x, 2, N))?;
    let graph = builder.build()?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, vec![next(next(1, 1), 2); N]);
    Ok(())
}

fn replays_wait_for_ordinary_work(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
    let mut x = a.full(N, 1u32)?;
    let graph = a.capture(|s| kernels.step(s, &mut x, 3, N))?;
    a.synchronize()?;
    let gate = Gate::new(device)?;
    kernels.add_when(&b, gate.flag(), &mut x, 1, N)?;
    graph.launch(&a)?;
    assert!(!a.is_done()?, "the replay waits for what b does to the same memory");
    gate.open();
    assert_eq!(a.download(&x)?, [13; N]);
    Ok(())
}

fn ordinary_work_waits_for_replays(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
    let (mut x, mut other) = (a.full(N, 1u32)?, a.full(N, 1u32)?);
    let mut host = device.pinned::<u32>(N)?;
    let gate = Gate::new(device)?;
    let graph = a.capture(|s| {
        kernels.add_when(s, gate.flag(), &mut x, 1, N)?;
        s.copy(&x, &mut host)
    })?;
    a.synchronize()?;
    graph.launch(&a)?;
    kernels.step(&b, &mut other, 1, N)?;
    assert_eq!(b.download(&other)?, [6; N], "what the graph does not touch does not wait for it");
    kernels.step(&b, &mut x, 3, N)?;
    assert!(!b.is_done()? && !host.is_ready()?);
    gate.open();
    assert_eq!(*host.read()?, [2; N]);
    assert_eq!(b.download(&x)?, [13; N]);
    Ok(())
}

/// On whichever streams; what tracks nothing tells them apart is the closure's count.
fn replays_follow_each_other(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let streams = (0..4).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let mut x = streams[0].full(N, 1u32)?;
    let mut value = device.pinned_from(&[0u32; N])?;
    let graph = streams[0].capture(|s| {
        kernels.step(s, &mut x, 7, N)?;
        s.copy(&x, &mut value)
    })?;
    let mut want = 1;
    for round in 0..40 {
        graph.launch(&streams[round * 3 % 4])?;
        want = next(want, 7);
    }
    assert_eq!(*value.read()?, vec![want; N]);
    Ok(())
}

/// Buffers, pinned memory, kernels, closures and the streams it was captured on may all go.
fn a_graph_owns_what_it_uses(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut y = s.zeros::<u32>(N)?;
    let ran = Arc::new(AtomicU32::new(0));
    let graph = {
        let kernels = sync::Kernels::load(device)?;
        let (a, b) = (device.stream()?, device.stream()?);
        let (x, source) = (a.full(N, 3u32)?, device.pinned_from(&[4u32; N])?);
        let mut staged = a.zeros::<u32>(N)?;
        a.synchronize()?;
        let count = ran.clone();
        a.capture(|a| {
            b.wait(&a.record()?)?;
            b.copy(&source, &mut staged)?;
            kernels.mix(a, &x, &mut y, N)?;
            kernels.mix(a, &staged, &mut y, N)?;
            a.host_fn_repeat(move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        })?
    };
    // What was dropped must not be given to these.
    let others = (0..20).map(|_| s.full(N, 99u32)).collect::<Result<Vec<_>>>()?;
    let pinned = (0..20).map(|_| device.pinned_from(&[99u32; N])).collect::<Result<Vec<_>>>()?;
    let mut want = 0;
    for _ in 0..3 {
        graph.launch(&s)?;
        want = next(next(want, 3), 4);
    }
    assert_eq!(s.download(&y)?, vec![want; N]);
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    assert_eq!(Arc::strong_count(&ran), 2, "the graph holds the closure");
    drop((graph, others, pinned));
    device.synchronize()?;
    device.trim();
    assert_eq!(Arc::strong_count(&ran), 1, "with the graph the closure goes");
    Ok(())
}

fn a_graph_dropped_in_use(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut y = s.zeros::<u32>(N)?;
    let gate = Gate::new(device)?;
    let x = s.full(N, 7u32)?;
    let graph = s.capture(|s| kernels.copy_when(s, gate.flag(), &x, &mut y, N))?;
    s.synchronize()?;
    graph.launch(&s)?;
    drop((graph, x, kernels));
    let others = (0..10).map(|_| device.stream()?.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    assert!(!s.is_done()?);
    gate.open();
    assert_eq!(s.download(&y)?, [7; N]);
    drop(others);
    Ok(())
}

fn closures_run_in_every_launch(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut flag = device.flag()?;
    let (seen, sum) = (flag.clone(), Arc::new(AtomicU32::new(0)));
    let total = sum.clone();
    let graph = s.capture(|s| {
        kernels.raise_flag(s, &ONE, &mut flag, 5)?;
        s.host_fn_repeat(move || {
            total.fetch_add(seen.get(), Ordering::SeqCst);
            seen.set(100);
        })
    })?;
    for _ in 0..10 {
        graph.launch(&s)?;
    }
    s.synchronize()?;
    assert_eq!(sum.load(Ordering::SeqCst), 50);
    refused(s.capture(|s| s.host_fn(|| ())), ErrorKind::Captured, &["host_fn_repeat"]);
    usable(device, &[&s])
}

/// By the stream that launched, however the graph was made.
fn panics_of_closures_are_reported(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let captured = a.capture(|s| s.host_fn_repeat(|| panic::resume_unwind(Box::new("captured"))))?;
    let mut builder = device.graph()?;
    builder.node(&[], |s| s.host_fn_repeat(|| panic::resume_unwind(Box::new("built"))))?;
    let built = builder.build()?;
    let mut builder = device.graph()?;
    builder.child(&[], &built)?;
    let nested = builder.build()?;
    for (graph, text) in [(&captured, "captured"), (&built, "built"), (&nested, "built")] {
        graph.launch(&b)?;
        refused(b.synchronize(), ErrorKind::HostPanic, &[text]);
        b.synchronize()?;
        a.synchronize()?;
    }
    usable(device, &[&a, &b])
}

fn an_update_of_the_same_shape(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let gate = Gate::new(device)?;
    let mut graph = s.capture(|s| kernels.add_when(s, gate.flag(), &mut x, 1, N))?;
    s.synchronize()?;
    graph.launch(&s)?;
    // The launch under way keeps the old work.
    let outcome = graph.update(&s, |s| kernels.add_when(s, gate.flag(), &mut y, 10, N))?;
    assert_eq!(outcome, GraphUpdate::Updated);
    graph.launch(&s)?;
    gate.open();
    assert_eq!(s.download(&x)?, [2; N]);
    assert_eq!(s.download(&y)?, [12; N]);
    Ok(())
}

fn an_update_of_another_shape(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut graph = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    graph.launch(&s)?;
    let outcome = graph.update(&s, |s| {
        kernels.step(s, &mut y, 2, N)?;
        s.copy(&y, &mut x)
    })?;
    assert_eq!(outcome, GraphUpdate::TopologyChanged);
    assert_eq!(graph.nodes(), 2);
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [12; N]);
    assert_eq!(s.download(&y)?, [12; N]);
    Ok(())
}

fn a_failed_update_changes_nothing(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut graph = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    let failed = graph.update(&s, |s| {
        kernels.step(s, &mut y, 2, N)?;
        s.synchronize()
    });
    refused(failed, ErrorKind::Captured, &["host wait"]);
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [6; N]);
    assert_eq!(s.download(&y)?, [2; N]);
    usable(device, &[&s])
}

fn single_nodes_are_set(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let (mut host, mut other_host) = (device.pinned::<u32>(N)?, device.pinned::<u32>(N)?);
    let mut builder = device.graph()?;
    let up = builder.node(&[], |s| s.fill(&mut y, 3))?;
    let run = builder.node(&[up], |s| kernels.mix(s, &y, &mut x, N))?;
    let down = builder.node(&[run], |s| s.copy(&x, &mut host))?;
    let mut graph = builder.build()?;
    graph.launch(&s)?;
    graph.set(up, |s| s.fill(&mut y, 4))?;
    graph.set(down, |s| s.copy(&x, &mut other_host))?;
    graph.launch(&s)?;
    assert_eq!(*host.read()?, [8; N]);
    assert_eq!(*other_host.read()?, [44; N]);
    // Other memory, which the graph now owns and tracks.
    {
        let z = s.full(N, 100u32)?;
        graph.set(run, |s| kernels.mix(s, &z, &mut x, N))?;
    }
    let others = (0..10).map(|_| s.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    for round in 0..100u32 {
        if round % 2 == 0 {
            graph.set(up, |s| s.fill(&mut y, round))?;
        }
        graph.launch(&s)?;
    }
    let want = (0..100).fold(44, |x, _| next(x, 100));
    assert_eq!(*other_host.read()?, vec![want; N]);
    assert_eq!(device.stream()?.download(&y)?, [98; N]);
    drop(others);
    Ok(())
}

fn setting_nodes_is_checked(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    let mut builder = device.graph()?;
    let node = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    let mut graph = builder.build()?;
    let mut builder = device.graph()?;
    let stranger = builder.node(&[], |s| kernels.step(s, &mut x, 2, N))?;
    refused(builder.node(&[node], |s| s.fill(&mut x, 1)), ErrorKind::InvalidArgument, &["another graph"]);
    drop(builder);
    refused(
        graph.set(stranger, |s| kernels.step(s, &mut x, 3, N)),
        ErrorKind::InvalidArgument,
        &["another graph"],
    );
    refused(graph.set(node, |_| Ok(())), ErrorKind::Captured, &["nothing"]);
    let twice = graph.set(node, |s| {
        kernels.step(s, &mut x, 1, N)?;
        kernels.step(s, &mut x, 1, N)
    });
    refused(twice, ErrorKind::Captured, &["several operations"]);
    refused(graph.set(node, Stream::synchronize), ErrorKind::Captured, &[]);
    graph.set(node, |s| kernels.step(s, &mut x, 4, N))?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [9; N]);
    let mut captured = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    refused(captured.set(node, |s| kernels.step(s, &mut x, 3, N)), ErrorKind::InvalidArgument, &["update"]);
    Ok(())
}

fn children_and_joins(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let child = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        kernels.step(s, &mut x, 2, N)
    })?;
    let mut builder = device.graph()?;
    let first = builder.child(&[], &child)?;
    let beside = builder.node(&[], |s| kernels.step(s, &mut y, 3, N))?;
    let both = builder.join(&[first, beside])?;
    builder.node(&[both], |s| kernels.mix(s, &x, &mut y, N))?;
    // Ordered by what it touches, with no edge said.
    builder.child(&[], &child)?;
    let graph = builder.build()?;
    drop(child);
    let (mut want_x, mut want_y) = (1, 2);
    for _ in 0..4 {
        graph.launch(&s)?;
        want_x = next(next(want_x, 1), 2);
        want_y = next(next(want_y, 3), want_x);
        want_x = next(next(want_x, 1), 2);
    }
    assert_eq!(s.download(&x)?, vec![want_x; N]);
    assert_eq!(s.download(&y)?, vec![want_y; N]);
    Ok(())
}

fn sizes_and_pictures(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        s.copy(&x, &mut y)
    })?;
    assert_eq!((graph.nodes(), graph.edges()), (2, 1));
    let dot = graph.dot();
    for part in ["digraph {", "label=\"step\"", "label=\"copy\"", "n0 -> n1;", "graphs.rs:"] {
        assert!(dot.contains(part), "{dot} has no {part}");
    }
    let mut builder = device.graph()?;
    let a = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    let b = builder.node(&[], |s| kernels.step(s, &mut y, 1, N))?;
    builder.join(&[a, b])?;
    let graph = builder.build()?;
    assert_eq!((graph.nodes(), graph.edges()), (3, 2));
    let dot = graph.dot();
    assert!(dot.contains("n0 -> n2;") && dot.contains("n1 -> n2;") && !dot.contains("n0 -> n1;"), "{dot}");
    Ok(())
}

fn guards_keep_launches_out(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    let (mut host, mut source) = (device.pinned::<u32>(N)?, device.pinned_from(&[5u32; N])?);
    s.synchronize()?;
    let writes = s.capture(|s| s.copy(&x.slice(..100)?, &mut host.slice_mut(..100)?))?;
    let reads = s.capture(|s| s.copy(&source, &mut x))?;
    let guard = host.read()?;
    refused(writes.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
    drop(guard);
    let beside = host.slice(100..)?.read().map(|guard| guard.len())?;
    assert_eq!(beside, N - 100);
    writes.launch(&s)?;
    let guard = source.read()?;
    reads.launch(&s)?;
    drop(guard);
    let guard = source.write()?;
    refused(reads.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
    drop(guard);
    reads.launch(&s)?;
    writes.launch(&s)?;
    assert_eq!(host.read()?[..100], [5; 100]);
    Ok(())
}

/// Soundness does not rest on a guard's destructor.
fn forgotten_guards_keep_launches_out(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.full(N, 1u32)?;
    let mut host = device.pinned::<u32>(N)?;
    let graph = s.capture(|s| s.copy(&x, &mut host))?;
    let kept: &'static [u32] = Box::leak(Box::new(host.read()?.to_vec()));
    mem::forget(host.read()?);
    refused(graph.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
    assert_eq!(kept, [0; N]);
    // Another graph is none of its business.
    usable(device, &[&s])
}

/// Refuses inside a capture, which goes on, and afterwards all is as before.
fn refused_inside<T>(device: &Device, offence: impl Fn(&Stream) -> Result<T>) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        refused(offence(s), ErrorKind::Captured, &[]);
        kernels.step(s, &mut x, 2, N)
    })?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, vec![next(next(1, 1), 2); N]);
    // Where the closure hands the error on, the capture ends with it.
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
    let x = device.stream()?.full(N, 1u32)?;
    device.synchronize()?;
    refused_inside(device, |s| s.download(&x))?;
    refused_inside(device, |s| s.download_into(&x, &mut [0; N]))?;
    refused_inside(device, |s| crate::notify::block_on(s.finished()))?;
    refused_inside(device, |s| s.host_fn(|| ()))
}

fn an_allocation_is_refused(device: &Device) -> Result<()> {
    refused_inside(device, |s| s.alloc::<u32>(N))?;
    refused_inside(device, |s| s.zeros::<u32>(N))?;
    refused_inside(device, |s| s.upload(&[1u32; N]))
}

fn another_thread_is_refused(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let mut x = device.stream()?.full(N, 1u32)?;
    device.synchronize()?;
    let x = std::sync::Mutex::new(&mut x);
    refused_inside(device, |s| {
        let work = || kernels.step(s, *x.lock().unwrap(), 1, N);
        thread::scope(|scope| scope.spawn(work).join()).unwrap()
    })?;
    refused_inside(device, |s| thread::scope(|scope| scope.spawn(|| s.record()).join()).unwrap())
}

fn captures_do_not_nest(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    s.synchronize()?;
    let graph = s.capture(|s| s.fill(&mut x, 2))?;
    refused_inside(device, |s| s.capture(|_| Ok(())))?;
    refused_inside(device, |s| graph.launch(s))?;
    // Two captures at once, on streams of their own, are nobody's business.
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

fn times_are_refused(device: &Device) -> Result<()> {
    refused_inside(device, Stream::record_timed)
}

fn outside_events_are_refused(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (s, other) = (device.stream()?, device.stream()?);
    let gate = Gate::new(device)?;
    kernels.spin(&other, &ONE, gate.flag())?;
    let event = other.record()?;
    refused(s.capture(|s| s.wait(&event)), ErrorKind::Captured, &["outside"]);
    gate.open();
    other.synchronize()?;
    usable(device, &[&s, &other])?;
    // What has been reached is no dependency.
    s.capture(|s| s.wait(&event)).map(drop)
}

fn events_of_ended_captures_are_refused(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
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

/// The streams that had joined are free again too.
fn a_failing_closure_ends_the_capture(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
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
    let kernels = sync::Kernels::load(device)?;
    let (a, b) = (device.stream()?, device.stream()?);
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

fn an_empty_graph(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let graph = s.capture(|_| Ok(()))?;
    assert_eq!((graph.nodes(), graph.edges()), (0, 0));
    graph.launch(&s)?;
    device.graph()?.build()?.launch(&s)?;
    s.synchronize()
}

fn graphs_of_another_opening(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (s, t) = (device.stream()?, other.stream()?);
    let mut x = s.full(N, 1u32)?;
    let mut graph = s.capture(|s| s.fill(&mut x, 2))?;
    refused(graph.launch(&t), ErrorKind::DeviceMismatch, &[]);
    refused(graph.update(&t, |_| Ok(())), ErrorKind::DeviceMismatch, &[]);
    refused(other.graph()?.child(&[], &graph), ErrorKind::DeviceMismatch, &[]);
    let joined = s.capture(|s| {
        refused(t.wait(&s.record()?), ErrorKind::Captured, &["another device"]);
        Ok(())
    });
    joined.map(drop)?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [2; N]);
    usable(&other, &[&t])
}

fn nodes_are_single_operations(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    let mut builder = device.graph()?;
    refused(builder.node(&[], |_| Ok(())), ErrorKind::Captured, &["submit one operation"]);
    refused(builder.node(&[], Stream::synchronize), ErrorKind::Captured, &[]);
    refused(builder.node(&[], |s| s.zeros::<u32>(N).map(drop)), ErrorKind::Captured, &[]);
    refused(builder.node(&[], |s| s.host_fn(|| ())), ErrorKind::Captured, &[]);
    let node = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    builder.node(&[node], |s| kernels.step(s, &mut x, 2, N))?;
    let graph = builder.build()?;
    assert_eq!((graph.nodes(), graph.edges()), (2, 1));
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, vec![next(next(1, 1), 2); N]);
    Ok(())
}

fn many_nodes(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(10, 1u32)?;
    let graph = s.capture(|s| (0..1000).try_for_each(|value| kernels.step(s, &mut x, value, 10)))?;
    assert_eq!((graph.nodes(), graph.edges()), (1000, 999));
    graph.launch(&s)?;
    graph.launch(&s)?;
    let once = |x| (0..1000).fold(x, next);
    assert_eq!(s.download(&x)?, [once(once(1)); 10]);
    Ok(())
}
