//! You record a graph once and launch it many times. Its runs are ordered with ordinary work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{mem, panic};

use conformance::{Gate, ONE, assert_all, kernels_and_streams, next, open_again, refused, sync, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, Graph, Node, Result, Stream};

tests! {
    Plain: replays_wait_for_ordinary_work, ordinary_work_waits_for_replays, replays_follow_each_other,
        a_graph_owns_what_it_uses, a_graph_dropped_in_use_finishes, closures_run_in_every_launch,
        panics_of_closures_are_reported, graphs_tell_their_size_and_draw_themselves, guards_keep_launches_out,
        guards_keep_every_kind_of_graph_out, forgotten_guards_keep_launches_out,
        an_empty_graph_can_be_launched, graphs_of_another_opening_are_refused, parts_are_tracked_apart,
        forgotten_graphs_break_nothing, launches_of_two_threads_are_ordered;
}

pub(crate) const N: usize = 3000;

/// Builds a graph of one node.
pub(crate) fn one_node(device: &Device, work: impl FnOnce(&Stream) -> Result<()>) -> Result<(Graph, Node)> {
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| work(s))?;
    Ok((builder.build()?, node))
}

/// Builds a graph that contains nothing but `graph`.
pub(crate) fn nested(graph: &Graph, device: &Device) -> Result<Graph> {
    let mut builder = device.graph_builder()?;
    builder.child(&[], graph)?;
    builder.build()
}

/// Checks that streams, copies and launches still work.
pub(crate) fn usable(device: &Device, streams: &[&Stream]) -> Result<()> {
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

fn replays_wait_for_ordinary_work(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let graph = a.capture(|s| kernels.step(s, &mut x, 3, N))?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &b, &mut x, 1)?;
    graph.launch(&a)?;
    assert!(!a.is_done()?, "the replay waits for what b does to the same memory");
    gate.open();
    assert_all(&a, &x, 13)
}

fn ordinary_work_waits_for_replays(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
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
    assert!(!b.is_done()? && !host.is_done()?);
    gate.open();
    assert_eq!(*host.read()?, [2; N]);
    assert_all(&b, &x, 13)
}

/// Launches must run one after the other, on whichever streams. If one were lost or overlapped another, the result
/// would differ.
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

/// You may drop buffers, pinned memory, kernels, closures and the capture's streams before you launch the graph.
fn a_graph_owns_what_it_uses(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut y = s.zeros::<u32>(N)?;
    let ran = Arc::new(AtomicU32::new(0));
    let graph = {
        let (kernels, [a, b]) = kernels_and_streams(device)?;
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
    // These must not get the memory that we dropped above.
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
    conformance::synchronize(device)?;
    device.trim();
    assert_eq!(Arc::strong_count(&ran), 1, "with the graph the closure goes");
    Ok(())
}

fn a_graph_dropped_in_use_finishes(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut y = s.zeros::<u32>(N)?;
    let gate = Gate::new(device)?;
    let x = s.full(N, 7u32)?;
    let graph = s.capture(|s| kernels.copy_when(s, gate.flag(), &x, &mut y, N))?;
    s.synchronize()?;
    graph.launch(&s)?;
    drop((graph, x, kernels));
    let _others = (0..10).map(|_| device.stream()?.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    assert!(!s.is_done()?);
    gate.open();
    assert_all(&s, &y, 7)
}

fn closures_run_in_every_launch(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
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

/// The stream that launches the graph must report the panic, however the graph was made.
fn panics_of_closures_are_reported(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let captured = a.capture(|s| s.host_fn_repeat(|| panic::resume_unwind(Box::new("captured"))))?;
    let panics = |s: &Stream| s.host_fn_repeat(|| panic::resume_unwind(Box::new("built")));
    let (built, _) = one_node(device, panics)?;
    let nested = nested(&built, device)?;
    for (graph, text) in [(&captured, "captured"), (&built, "built"), (&nested, "built")] {
        graph.launch(&b)?;
        refused(b.synchronize(), ErrorKind::HostPanic, &[text]);
        b.synchronize()?;
        a.synchronize()?;
    }
    usable(device, &[&a, &b])
}

fn graphs_tell_their_size_and_draw_themselves(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        s.copy(&x, &mut y)
    })?;
    assert_eq!((graph.node_count(), graph.edge_count()), (2, 1));
    let dot = graph.dot();
    for part in ["digraph {", "label=\"step\"", "label=\"copy\"", "n0 -> n1;", "graphs.rs:"] {
        assert!(dot.contains(part), "{dot} has no {part}");
    }
    let mut builder = device.graph_builder()?;
    let a = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    let b = builder.node(&[], |s| kernels.step(s, &mut y, 1, N))?;
    builder.join(&[a, b])?;
    let graph = builder.build()?;
    assert_eq!((graph.node_count(), graph.edge_count()), (3, 2));
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

/// A guard must keep a launch out if and only if the launch would touch the guarded memory. The graphs here were built
/// node by node, nested, or updated.
fn guards_keep_every_kind_of_graph_out(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.full(N, 6u32)?;
    let (mut host, mut other) = (device.pinned::<u32>(N)?, device.pinned::<u32>(N)?);
    s.synchronize()?;
    let (mut built, node) = one_node(device, |s| s.copy(&x, &mut host))?;
    let nested = nested(&built, device)?;
    let mut updated = s.capture(|s| s.copy(&x, &mut host))?;
    for graph in [&built, &nested, &updated] {
        let guard = host.read()?;
        refused(graph.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
        drop(guard);
        graph.launch(&s)?;
    }
    built.set_node(node, |s| s.copy(&x, &mut other))?;
    updated.update(&s, |s| s.copy(&x, &mut other))?;
    for graph in [&built, &updated] {
        let guard = other.read()?;
        refused(graph.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
        drop(guard);
    }
    // After the update the graph does not touch the old memory any more.
    let guard = host.read()?;
    updated.launch(&s)?;
    drop(guard);
    built.launch(&s)?;
    assert_eq!((host.read()?[N - 1], other.read()?[N - 1]), (6, 6));
    if device.info().features.managed_memory {
        let mut managed = device.managed::<u32>(N)?;
        let graph = s.capture(|s| s.fill(&mut managed, 7))?;
        let guard = managed.read()?;
        refused(graph.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
        drop(guard);
        graph.launch(&s)?;
        assert_eq!(managed.read()?[0], 7);
    }
    Ok(())
}

fn forgotten_guards_keep_launches_out(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.full(N, 1u32)?;
    let mut host = device.pinned::<u32>(N)?;
    let graph = s.capture(|s| s.copy(&x, &mut host))?;
    let kept: &'static [u32] = Box::leak(Box::new(host.read()?.to_vec()));
    mem::forget(host.read()?);
    refused(graph.launch(&s), ErrorKind::HostBorrowed, &["guard"]);
    assert_eq!(kept, [0; N]);
    // A forgotten guard must not keep out graphs that touch other memory.
    usable(device, &[&s])
}

fn an_empty_graph_can_be_launched(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let graph = s.capture(|_| Ok(()))?;
    assert_eq!((graph.node_count(), graph.edge_count()), (0, 0));
    graph.launch(&s)?;
    device.graph_builder()?.build()?.launch(&s)?;
    s.synchronize()
}

fn graphs_of_another_opening_are_refused(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (s, t) = (device.stream()?, other.stream()?);
    let mut x = s.full(N, 1u32)?;
    let mut graph = s.capture(|s| s.fill(&mut x, 2))?;
    refused(graph.launch(&t), ErrorKind::DeviceMismatch, &["the graph", "the handle that made the graph"]);
    refused(graph.update(&t, |_| Ok(())), ErrorKind::DeviceMismatch, &[]);
    refused(other.graph_builder()?.child(&[], &graph), ErrorKind::DeviceMismatch, &[]);
    let joined = s.capture(|s| {
        refused(t.wait(&s.record()?), ErrorKind::Captured, &["another device"]);
        Ok(())
    });
    joined.map(drop)?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [2; N]);
    usable(&other, &[&t])
}

/// If two nodes use different parts of a buffer, they must not count as using the same memory, however many nodes there
/// are.
fn parts_are_tracked_apart(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let gate = Gate::new(device)?;
    let graph = a.capture(|a| {
        kernels.add_when(a, gate.flag(), &mut x.slice_mut(..100)?, 1, 100)?;
        (1..10).try_for_each(|i| kernels.step(a, &mut x.slice_mut(100 * i..100 * (i + 1))?, 2, 100))
    })?;
    a.synchronize()?;
    graph.launch(&a)?;
    assert_eq!(b.download(&x.slice(1000..)?)?, [1; N - 1000], "the graph does not touch these");
    kernels.step(&b, &mut x.slice_mut(950..1050)?, 3, 100)?;
    assert!(!b.is_done()?, "it does touch some of these");
    gate.open();
    let got = b.download(&x)?;
    assert_eq!([got[0], got[99], got[100], got[949]], [2, 2, 7, 7]);
    assert_eq!([got[950], got[999], got[1000], got[1049], got[1050]], [38, 38, 8, 8, 1]);
    Ok(())
}

fn forgotten_graphs_break_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut y = s.zeros::<u32>(N)?;
    let gate = Gate::new(device)?;
    let (x, z) = (s.full(N, 7u32)?, s.full(N, 8u32)?);
    let graph = s.capture(|s| {
        mem::forget(s.record()?);
        kernels.copy_when(s, gate.flag(), &x, &mut y, N)
    })?;
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| kernels.mix(s, &z, &mut y, N))?;
    mem::forget(builder);
    s.synchronize()?;
    graph.launch(&s)?;
    mem::forget(graph);
    drop((x, z, kernels));
    let _others = (0..20).map(|_| s.full(N, 99u32)).collect::<Result<Vec<_>>>()?;
    gate.open();
    assert_eq!(s.download(&y)?, [7; N]);
    usable(device, &[&s])
}

/// Each launch changes the memory that the other one reads, and only the library can order them. The many fills make
/// its search through earlier uses slow, so that a race has time to show. `interleavings` tries many orders.
fn launches_of_two_threads_are_ordered(device: &Device) -> Result<()> {
    const ROUNDS: u32 = 40;
    let kernels = sync::Kernels::load(device)?;
    let streams = [device.stream()?, device.stream()?];
    let mut x = streams[0].full(1 << 18, 1u32)?;
    let mut others = (0..500).map(|_| streams[0].zeros::<u32>(1)).collect::<Result<Vec<_>>>()?;
    conformance::synchronize(device)?;
    let mut record = |s: &Stream| {
        s.capture(|s| {
            kernels.step(s, &mut x, 7, 1 << 18)?;
            others.iter_mut().try_for_each(|other| s.fill(other, 1))
        })
    };
    let graphs = [record(&streams[0])?, record(&streams[1])?];
    for _ in 0..ROUNDS {
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let launch = |index: usize| {
                together.wait();
                graphs[index].launch(&streams[index])
            };
            let other = scope.spawn(move || launch(0));
            launch(1).and(other.join().unwrap())
        })?;
    }
    let want = (0..2 * ROUNDS).fold(1, |x, _| next(x, 7));
    assert!(streams[0].download(&x)?.iter().all(|&it| it == want));
    Ok(())
}
