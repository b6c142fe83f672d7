//! You can change a graph as a whole by recording it again, or one node at a time.

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use conformance::{Gate, args, assert_all, kernels_and_streams, next, refused, tests};
use gpustream::{Buffer, Device, Error, ErrorKind, GraphUpdate, Launch, Result, Stream};

use crate::graphs::{N, one_node, usable};

tests! {
    Plain: an_update_of_the_same_shape_changes_later_launches, an_update_of_another_shape_replaces_the_graph,
        a_failed_update_changes_nothing, single_nodes_are_set, a_closure_is_set, setting_nodes_is_checked,
        nodes_of_failing_closures_are_owned, each_call_may_be_a_threads_first,
        a_node_is_set_by_the_thread_that_asked, launch_attributes_of_a_node_stay_as_made,
        repeated_launches_set_only_what_differs;
}

fn an_update_of_the_same_shape_changes_later_launches(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let gate = Gate::new(device)?;
    let mut graph = s.capture(|s| kernels.add_when(s, gate.flag(), &mut x, 1, N))?;
    s.synchronize()?;
    graph.launch(&s)?;
    // The pending launch must still do the old work.
    let outcome = graph.update(&s, |s| kernels.add_when(s, gate.flag(), &mut y, 10, N))?;
    assert_eq!(outcome, GraphUpdate::Updated);
    graph.launch(&s)?;
    gate.open();
    assert_eq!(s.download(&x)?, [2; N]);
    assert_all(&s, &y, 12)
}

fn an_update_of_another_shape_replaces_the_graph(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut graph = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    graph.launch(&s)?;
    let outcome = graph.update(&s, |s| {
        kernels.step(s, &mut y, 2, N)?;
        s.copy(&y, &mut x)
    })?;
    assert_eq!(outcome, GraphUpdate::TopologyChanged);
    assert_eq!(graph.node_count(), 2);
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [12; N]);
    assert_all(&s, &y, 12)
}

fn a_failed_update_changes_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut graph = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    let failed = graph.update(&s, |s| {
        kernels.step(s, &mut y, 2, N)?;
        s.synchronize()
    });
    refused(failed, ErrorKind::Captured, &["wait for its stream"]);
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [6; N]);
    assert_eq!(s.download(&y)?, [2; N]);
    usable(device, &[&s])
}

fn single_nodes_are_set(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let (mut host, mut other_host) = (device.pinned::<u32>(N)?, device.pinned::<u32>(N)?);
    let mut builder = device.graph_builder()?;
    let up = builder.node(&[], |s| s.fill(&mut y, 3))?;
    let run = builder.node(&[up], |s| kernels.mix(s, &y, &mut x, N))?;
    let down = builder.node(&[run], |s| s.copy(&x, &mut host))?;
    let mut graph = builder.build()?;
    graph.launch(&s)?;
    graph.set_node(up, |s| s.fill(&mut y, 4))?;
    graph.set_node(down, |s| s.copy(&x, &mut other_host))?;
    graph.launch(&s)?;
    assert_eq!(*host.read()?, [8; N]);
    assert_eq!(*other_host.read()?, [44; N]);
    // The node gets other memory. The graph must keep that memory and track it.
    {
        let z = s.full(N, 100u32)?;
        graph.set_node(run, |s| kernels.mix(s, &z, &mut x, N))?;
    }
    let _others = (0..10).map(|_| s.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    for round in 0..100u32 {
        if round % 2 == 0 {
            graph.set_node(up, |s| s.fill(&mut y, round))?;
        }
        graph.launch(&s)?;
    }
    let want = (0..100).fold(44, |x, _| next(x, 100));
    assert_eq!(*other_host.read()?, vec![want; N]);
    assert_eq!(device.stream()?.download(&y)?, [98; N]);
    Ok(())
}

/// Earlier launches must still call the old closure, so the graph keeps both.
fn a_closure_is_set(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let gate = Gate::new(device)?;
    let count = Arc::new(AtomicU32::new(0));
    let adding = |amount: u32| {
        let count = count.clone();
        move || {
            count.fetch_add(amount, Ordering::SeqCst);
        }
    };
    let mut builder = device.graph_builder()?;
    let first = builder.node(&[], |s| kernels.add_when(s, gate.flag(), &mut x, 1, N))?;
    let node = builder.node(&[first], |s| s.host_fn_repeat(adding(1)))?;
    let joined = builder.join(&[node])?;
    let mut graph = builder.build()?;
    s.synchronize()?;
    graph.launch(&s)?;
    graph.set_node(node, |s| s.host_fn_repeat(adding(100)))?;
    graph.launch(&s)?;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    gate.open();
    s.synchronize()?;
    assert_eq!(count.load(Ordering::SeqCst), 101);
    graph.set_node(node, |s| s.host_fn_repeat(|| panic::resume_unwind(Box::new("on purpose"))))?;
    graph.launch(&s)?;
    refused(s.synchronize(), ErrorKind::HostPanic, &["on purpose"]);
    // You cannot give a node another kind of work, and you cannot give a join any work.
    assert!(graph.set_node(node, |s| s.fill(&mut x, 9)).is_err());
    assert!(graph.set_node(joined, |s| s.fill(&mut x, 9)).is_err());
    graph.set_node(node, |s| s.host_fn_repeat(adding(1000)))?;
    graph.launch(&s)?;
    s.synchronize()?;
    assert_eq!(count.load(Ordering::SeqCst), 1101);
    assert_all(&s, &x, 5)
}

fn setting_nodes_is_checked(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let (mut graph, node) = one_node(device, |s| kernels.step(s, &mut x, 1, N))?;
    let mut builder = device.graph_builder()?;
    let stranger = builder.node(&[], |s| kernels.step(s, &mut x, 2, N))?;
    refused(builder.node(&[node], |s| s.fill(&mut x, 1)), ErrorKind::InvalidArgument, &["another graph"]);
    drop(builder);
    refused(
        graph.set_node(stranger, |s| kernels.step(s, &mut x, 3, N)),
        ErrorKind::InvalidArgument,
        &["another graph"],
    );
    refused(graph.set_node(node, |_| Ok(())), ErrorKind::NotANode, &["nothing"]);
    let twice = graph.set_node(node, |s| {
        kernels.step(s, &mut x, 1, N)?;
        kernels.step(s, &mut x, 1, N)
    });
    refused(twice, ErrorKind::NotANode, &["several operations"]);
    refused(graph.set_node(node, Stream::synchronize), ErrorKind::NotANode, &[]);
    graph.set_node(node, |s| kernels.step(s, &mut x, 4, N))?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [9; N]);
    let mut captured = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    refused(
        captured.set_node(node, |s| kernels.step(s, &mut x, 3, N)),
        ErrorKind::InvalidArgument,
        &["update"],
    );
    Ok(())
}

/// A driver may need a context that a thread gets only with its first call, so here each call is a thread's first.
fn each_call_may_be_a_threads_first(device: &Device) -> Result<()> {
    fn elsewhere<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| scope.spawn(work).join()).unwrap()
    }
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut host) = (s.full(N, 1u32)?, device.pinned::<u32>(N)?);
    let mut builder = elsewhere(|| device.graph_builder())?;
    let step = elsewhere(|| builder.node(&[], |s| kernels.step(s, &mut x, 1, N)))?;
    let down = elsewhere(|| builder.node(&[step], |s| s.copy(&x, &mut host)))?;
    let mut graph = elsewhere(|| builder.build())?;
    elsewhere(|| graph.set_node(step, |s| kernels.step(s, &mut x, 2, N)))?;
    elsewhere(|| graph.set_node(down, |s| s.copy(&x, &mut host)))?;
    elsewhere(|| graph.prepare(&s))?;
    elsewhere(|| graph.launch(&s))?;
    assert_eq!(*host.read()?, [7; N]);
    elsewhere(|| graph.update(&s, |s| s.fill(&mut x, 9)))?;
    elsewhere(|| graph.launch(&s))?;
    elsewhere(|| {
        drop(graph);
        Ok(())
    })?;
    assert_eq!(elsewhere(|| s.download(&x))?, [9; N]);
    Ok(())
}

fn a_node_is_set_by_the_thread_that_asked(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (mut x, mut y) = (s.full(N, 0u32)?, s.full(N, 0u32)?);
    let (mut graph, node) = one_node(device, |s| s.fill(&mut x, 1))?;
    graph.set_node(node, |s| {
        let other = thread::scope(|scope| scope.spawn(|| s.fill(&mut y, 2)).join()).unwrap();
        refused(other, ErrorKind::NotANode, &["another thread"]);
        s.fill(&mut x, 3)
    })?;
    graph.launch(&s)?;
    assert_eq!((s.download(&x)?, s.download(&y)?), (vec![3; N], vec![0; N]));
    Ok(())
}

/// The driver has already taken the new work. So the graph must keep its memory and track it, even if your closure then
/// fails or panics.
fn nodes_of_failing_closures_are_owned(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, w) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| kernels.mix(s, &w, &mut x, N))?;
    let other = builder.node(&[node], |s| kernels.mix(s, &w, &mut x, N))?;
    let mut graph = builder.build()?;
    let (mut y, z) = (s.full(N, 7u32)?, s.full(N, 9u32)?);
    refused(
        graph.set_node(node, |s| {
            kernels.mix(s, &y, &mut x, N)?;
            Err(Error::new(ErrorKind::InvalidArgument, "on purpose"))
        }),
        ErrorKind::InvalidArgument,
        &["on purpose"],
    );
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
        graph.set_node(other, |s| {
            kernels.mix(s, &z, &mut x, N)?;
            panic::resume_unwind(Box::new("on purpose"))
        })
    }));
    assert!(panicked.is_err());
    drop(z);
    let _others = (0..20).map(|_| s.full(N, 99u32)).collect::<Result<Vec<_>>>()?;
    let gate = Gate::new(device)?;
    let other_stream = device.stream()?;
    kernels.add_when(&other_stream, gate.flag(), &mut y, 1, N)?;
    graph.launch(&s)?;
    assert!(!s.is_done()?, "the launch waits for what another stream does to y");
    gate.open();
    assert_all(&s, &x, next(next(1, 8), 9))
}

/// A grid barrier would hang if the node is not cooperative, so you cannot set such a node to a cooperative launch.
fn launch_attributes_of_a_node_stay_as_made(device: &Device) -> Result<()> {
    const SHAPE: Launch = Launch::exact([2, 1, 1], [8, 1, 1]);
    let (kernels, [s]) = kernels_and_streams(device)?;
    let info = device.info();
    let others = [
        (SHAPE.cooperative(true), info.features.cooperative_launch),
        (SHAPE.cluster([2, 1, 1]), info.features.cluster_launch),
    ];
    for (other, _) in others.iter().filter(|(_, present)| *present) {
        for (made, set) in [(&SHAPE, other), (other, &SHAPE)] {
            let mut x = s.full(10, 1u32)?;
            let (mut graph, node) = one_node(device, |s| kernels.step_with(s, made, &mut x, 1, 10))?;
            let changed = graph.set_node(node, |s| kernels.step_with(s, set, &mut x, 2, 10));
            refused(changed, ErrorKind::InvalidArgument, &["cannot be changed", "build the graph again"]);
            graph.launch(&s)?;
            assert_eq!(s.download(&x)?, [next(1, 1); 10]);
            graph.set_node(node, |s| kernels.step_with(s, made, &mut x, 3, 10))?;
            graph.launch(&s)?;
            assert_eq!(s.download(&x)?, [next(next(1, 1), 3); 10]);
        }
        // If a launch suits one node, it may still not suit another.
        let mut x = s.full(10, 1u32)?;
        let mut builder = device.graph_builder()?;
        let plain = builder.node(&[], |s| kernels.step_with(s, &SHAPE, &mut x, 1, 10))?;
        let with = builder.node(&[plain], |s| kernels.step_with(s, other, &mut x, 1, 10))?;
        let mut graph = builder.build()?;
        graph.set_node(plain, |s| kernels.step_with(s, &SHAPE, &mut x, 2, 10))?;
        let changed = graph.set_node(with, |s| kernels.step_with(s, &SHAPE, &mut x, 3, 10));
        refused(changed, ErrorKind::InvalidArgument, &["cannot be changed", "build the graph again"]);
        graph.launch(&s)?;
        assert_eq!(s.download(&x)?, [next(next(1, 2), 1); 10]);
    }
    Ok(())
}

/// What a node does with one of two arrays.
#[derive(Clone)]
enum Change {
    /// `x = next(x, k)` for a part of the array.
    Step(usize, Range<usize>, u32),
    /// `x = next(x, y)` for all elements of both.
    Mix { of: usize, with: usize },
    /// Reverses each block. The numbers say how many blocks there are, and how many elements a block has.
    Reverse(usize, u32, u32),
}

/// If a launch differs from the last one only in its scalars, we take a shortcut. We must not take it if another launch
/// was set in between.
fn repeated_launches_set_only_what_differs(device: &Device) -> Result<()> {
    use Change::{Mix, Reverse, Step};
    let (kernels, [s]) = kernels_and_streams(device)?;
    let args = args::Kernels::load(device)?;
    let put = |s: &Stream, arrays: &mut [Buffer<u32>; 2], change: &Change| match change {
        Step(of, range, k) => kernels.step(s, &mut arrays[*of].slice_mut(range.clone())?, *k, range.len()),
        Mix { of, with } => {
            let [x, y] = arrays.get_disjoint_mut([*of, *with]).unwrap();
            kernels.mix(s, y, x, N)
        }
        Reverse(of, blocks, threads) => {
            let launch = Launch::new([*blocks, 1, 1], [*threads, 1, 1]).shared(4 * threads);
            args.reverse_dynamic(s, &launch, &mut arrays[*of])
        }
    };
    let mut arrays = [s.full(N, 1u32)?, s.full(N, 2u32)?];
    let mut model = [vec![1u32; N], vec![2; N]];
    let mut nodes = [Step(0, 0..N, 1), Step(1, 0..N, 1)];
    let mut builder = device.graph_builder()?;
    let first = builder.node(&[], |s| put(s, &mut arrays, &nodes[0]))?;
    let second = builder.node(&[first], |s| put(s, &mut arrays, &nodes[1]))?;
    let mut graph = builder.build()?;
    let changes = [
        (0, Step(0, 0..N, 2)),
        (1, Step(0, 0..N, 3)),
        (1, Step(0, 0..N, 4)),
        (0, Step(1, 0..N, 5)),
        (1, Step(0, 0..8, 6)),
        (1, Step(0, 0..8, 7)),
        (1, Step(0, 8..16, 8)),
        (1, Step(0, 8..15, 9)),
        (0, Mix { of: 0, with: 1 }),
        (1, Mix { of: 0, with: 1 }),
        (1, Mix { of: 1, with: 0 }),
        (0, Reverse(0, 4, 16)),
        (1, Reverse(0, 4, 16)),
        (1, Reverse(0, 2, 32)),
        (0, Reverse(0, 1, 16)),
        (0, Step(0, 8..15, 10)),
        (0, Step(0, 8..15, 11)),
    ];
    for (at, change) in changes {
        graph.set_node([first, second][at], |s| put(s, &mut arrays, &change))?;
        nodes[at] = change;
        graph.launch(&s)?;
        for node in &nodes {
            match node {
                Step(of, range, k) => model[*of][range.clone()].iter_mut().for_each(|x| *x = next(*x, *k)),
                Mix { of, with } => {
                    let [x, y] = model.get_disjoint_mut([*of, *with]).unwrap();
                    x.iter_mut().zip(y).for_each(|(x, y)| *x = next(*x, *y));
                }
                Reverse(of, blocks, threads) => model[*of]
                    .chunks_exact_mut(*threads as usize)
                    .take(*blocks as usize)
                    .for_each(<[u32]>::reverse),
            }
        }
        for (array, wanted) in arrays.iter().zip(&model) {
            assert_eq!(s.download(array)?, *wanted);
        }
    }
    Ok(())
}
