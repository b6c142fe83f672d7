//! You can build graphs node by node.

use conformance::{ONE, assert_all, kernels_and_streams, next, refused, tests};
use gpustream::{Device, ErrorKind, Launch, Result};

use crate::graphs::N;

tests! {
    Plain: built_branches_run_at_once, children_and_joins_run_in_order, nodes_are_single_operations,
        grid_barriers_work_in_graphs, early_launches_keep_the_order_in_graphs,
        children_nest_as_deep_as_documented;
}

fn built_branches_run_at_once(device: &Device) -> Result<()> {
    if !device.info().features.concurrent_kernels {
        return Ok(());
    }
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (first, second) = (device.flag()?, device.flag()?);
    let mut x = s.full(N, 1u32)?;
    let mut builder = device.graph_builder()?;
    let start = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    let left = builder.node(&[start], |s| kernels.arrive(s, &ONE, &mut first.clone(), &second))?;
    let right = builder.node(&[start], |s| kernels.arrive(s, &ONE, &mut second.clone(), &first))?;
    builder.node(&[left, right], |s| kernels.step(s, &mut x, 2, N))?;
    let graph = builder.build()?;
    graph.launch(&s)?;
    assert_all(&s, &x, next(next(1, 1), 2))
}

fn children_and_joins_run_in_order(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let child = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        kernels.step(s, &mut x, 2, N)
    })?;
    let mut builder = device.graph_builder()?;
    let first = builder.child(&[], &child)?;
    let beside = builder.node(&[], |s| kernels.step(s, &mut y, 3, N))?;
    let both = builder.join(&[first, beside])?;
    builder.node(&[both], |s| kernels.mix(s, &x, &mut y, N))?;
    // We give no edge, so the library must order the child by the memory that it touches.
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
    assert_all(&s, &y, want_y)
}

fn nodes_are_single_operations(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut builder = device.graph_builder()?;
    refused(builder.node(&[], |_| Ok(())), ErrorKind::NotANode, &["submit exactly one operation"]);
    refused(builder.node(&[], |s| s.synchronize()), ErrorKind::NotANode, &[]);
    refused(
        builder.node(&[], |s| s.alloc::<u32>(N).map(drop)),
        ErrorKind::NotANode,
        &["submit exactly one operation"],
    );
    refused(builder.node(&[], |s| s.host_fn(|| ())), ErrorKind::NotANode, &[]);
    let node = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    // CUDA refuses two edges between the same two nodes, so the library must drop one.
    builder.node(&[node, node], |s| kernels.step(s, &mut x, 2, N))?;
    builder.join(&[node, node])?;
    let graph = builder.build()?;
    assert_eq!((graph.node_count(), graph.edge_count()), (3, 2));
    graph.launch(&s)?;
    assert_all(&s, &x, next(next(1, 1), 2))
}

/// In each round the kernel reads values that another block wrote in the round before.
fn grid_barriers_work_in_graphs(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let blocks = kernels.module().kernel("ring")?.occupancy(128, 0)? * device.info().multiprocessors;
    let launch = Launch::new([blocks, 1, 1], [128, 1, 1]).cooperative(true);
    let mut want: Vec<u32> = (0..N as u32).collect();
    let (mut x, mut after, mut arrivals) = (s.upload(&want)?, s.zeros::<u32>(N)?, s.zeros::<u32>(1)?);
    let captured = s.capture(|s| kernels.ring(s, &launch, &mut x, &mut after, &mut arrivals, 3, N));
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| kernels.ring(s, &launch, &mut x, &mut after, &mut arrivals, 4, N));
    if !device.info().features.cooperative_launch {
        refused(captured, ErrorKind::Unsupported, &["a cooperative launch"]);
        refused(node, ErrorKind::Unsupported, &["a cooperative launch"]);
        return Ok(());
    }
    let (captured, node, mut built) = (captured?, node?, builder.build()?);
    captured.launch(&s)?;
    built.launch(&s)?;
    built.set_node(node, |s| kernels.ring(s, &launch, &mut x, &mut after, &mut arrivals, 5, N))?;
    built.launch(&s)?;
    for _ in 0..3 + 4 + 5 {
        want = (0..N).map(|i| next(want[i], want[(i + 1) % N])).collect();
    }
    assert_eq!(s.download(&x)?, want);
    Ok(())
}

fn early_launches_keep_the_order_in_graphs(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    // SAFETY: the kernel waits for its predecessor before it reads or writes.
    let launch = unsafe { Launch::new([16, 1, 1], [128, 1, 1]).early_dependent() };
    let captured =
        s.capture(|s| (0..20).try_for_each(|value| kernels.early_step(s, &launch, &mut x, value, N)))?;
    assert_eq!((captured.node_count(), captured.edge_count()), (20, 19));
    let mut builder = device.graph_builder()?;
    let mut last = builder.node(&[], |s| kernels.early_step(s, &launch, &mut x, 20, N))?;
    for value in 21..40 {
        last = builder.node(&[last], |s| kernels.early_step(s, &launch, &mut x, value, N))?;
    }
    let built = builder.build()?;
    for graph in [&captured, &built, &captured, &built] {
        graph.launch(&s)?;
    }
    let want = (0..2).fold(1, |x, _| (0..40).fold(x, next));
    assert_all(&s, &x, want)
}

/// Drivers walk graphs recursively, so there is a limit. If a child is nested too deeply, you cannot add it.
fn children_nest_as_deep_as_documented(device: &Device) -> Result<()> {
    const LEVELS: u32 = 64;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut graph = s.capture(|s| kernels.step(s, &mut x, 0, N))?;
    for level in 1..=LEVELS {
        let mut builder = device.graph_builder()?;
        builder.child(&[], &graph)?;
        builder.node(&[], |s| kernels.step(s, &mut x, level, N))?;
        graph = builder.build()?;
    }
    let mut builder = device.graph_builder()?;
    refused(builder.child(&[], &graph).map(drop), ErrorKind::InvalidArgument, &["level 65", "at most 64"]);
    let beside = builder.node(&[], |s| kernels.step(s, &mut x, 7, N))?;
    builder.join(&[beside])?;
    builder.build()?.launch(&s)?;
    graph.launch(&s)?;
    let want = (0..=LEVELS).fold(next(1, 7), next);
    assert_all(&s, &x, want)
}
