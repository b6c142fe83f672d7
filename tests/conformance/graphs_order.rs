//! If you set a graph's nodes or record it again, its edges may not suit the new memory. Then it must not run.

use conformance::{assert_all, kernels_and_streams, next, open_again, refused, sync, tests};
use gpustream::{
    Device, DeviceOptions, ErrorKind, Graph, GraphUpdate, Launch, Node, Result, Stream, Tracking,
};

use crate::conditions::has_conditions;
use crate::graphs::N;

tests! {
    Plain: nodes_set_to_common_memory_are_refused_at_the_launch, two_nodes_swap_their_memory,
        ordered_nodes_may_be_set_to_common_memory, a_node_set_between_a_copy_and_its_source_is_refused,
        reads_and_disjoint_parts_need_no_order, the_short_way_is_for_memory_of_the_same_node,
        what_a_child_touches_is_compared, memory_inside_a_graph_is_compared, many_nodes_are_set_at_once,
        a_node_that_the_driver_refused_counts_as_both, tracking_decides_whether_set_nodes_are_compared,
        an_update_records_its_edges_anew, cooperative_kernels_follow_each_other;
    Plain if has_conditions: what_a_body_touches_is_compared, cooperative_bodies_follow_each_other;
}

/// Checks that the graph cannot be launched because of these two nodes.
fn assert_unordered(graph: &Graph, s: &Stream, nodes: [&str; 2]) {
    for _ in 0..2 {
        refused(
            graph.launch(s),
            ErrorKind::Hazard,
            &[nodes[0], nodes[1], "graphs_order.rs", "build the graph again"],
        );
    }
}

/// Builds a graph of two nodes without an order.
fn two_nodes(
    device: &Device,
    one: impl FnOnce(&Stream) -> Result<()>,
    other: impl FnOnce(&Stream) -> Result<()>,
) -> Result<(Graph, [Node; 2])> {
    let mut builder = device.graph_builder()?;
    let nodes = [builder.node(&[], |s| one(s))?, builder.node(&[], |s| other(s))?];
    let graph = builder.build()?;
    assert_eq!(graph.edge_count(), 0);
    Ok((graph, nodes))
}

fn nodes_set_to_common_memory_are_refused_at_the_launch(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y, z) = (s.full(N, 1u32)?, s.full(N, 2u32)?, s.full(N, 3u32)?);
    let (mut graph, [_, mixing]) =
        two_nodes(device, |s| kernels.step(s, &mut x, 1, N), |s| kernels.mix(s, &z, &mut y, N))?;
    graph.launch(&s)?;
    graph.set_node(mixing, |s| kernels.mix(s, &x, &mut y, N))?;
    assert_unordered(&graph, &s, ["node 0 (`step` at", "node 1 (`mix` at"]);
    assert_eq!(s.download(&x)?, [next(1, 1); N], "nothing ran");
    assert_eq!(s.download(&y)?, [next(2, 3); N], "nothing ran");
    graph.set_node(mixing, |s| kernels.mix(s, &z, &mut y, N))?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [next(next(1, 1), 1); N]);
    assert_all(&s, &y, next(next(2, 3), 3))
}

fn two_nodes_swap_their_memory(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut arrays = [s.full(N, 1u32)?, s.full(N, 2u32)?];
    let [x, y] = &mut arrays;
    let (mut graph, [one, other]) =
        two_nodes(device, |s| kernels.step(s, x, 1, N), |s| kernels.step(s, y, 2, N))?;
    let mut wants = [1, 2];
    for round in 0..5 {
        graph.launch(&s)?;
        wants = [next(wants[0], 1), next(wants[1], 2)];
        arrays.swap(0, 1);
        wants.swap(0, 1);
        let [x, y] = &mut arrays;
        graph.set_node(one, |s| kernels.step(s, x, 1, N))?;
        if round % 2 == 0 {
            assert_unordered(&graph, &s, ["node 0", "node 1"]);
        }
        graph.set_node(other, |s| kernels.step(s, y, 2, N))?;
    }
    for (array, want) in arrays.iter().zip(wants) {
        assert_all(&s, array, want)?;
    }
    Ok(())
}

fn ordered_nodes_may_be_set_to_common_memory(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y, mut z) = (s.full(N, 1u32)?, s.full(N, 2u32)?, s.full(N, 3u32)?);
    let mut builder = device.graph_builder()?;
    let first = builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    // There are two branches between the first node and the last one.
    let branch = builder.node(&[first], |s| kernels.step(s, &mut y, 2, N))?;
    let other = builder.node(&[first], |s| kernels.step(s, &mut z, 3, N))?;
    let joined = builder.join(&[branch, other])?;
    let mut w = s.full(N, 4u32)?;
    let last = builder.node(&[joined], |s| kernels.step(s, &mut w, 4, N))?;
    let mut graph = builder.build()?;
    graph.set_node(last, |s| kernels.step(s, &mut x, 4, N))?;
    graph.set_node(branch, |s| kernels.mix(s, &x, &mut y, N))?;
    graph.launch(&s)?;
    let want = next(1, 1);
    assert_eq!(s.download(&y)?, [next(2, want); N]);
    assert_eq!(s.download(&x)?, [next(want, 4); N]);
    graph.set_node(other, |s| kernels.step(s, &mut y, 3, N))?;
    assert_unordered(&graph, &s, ["node 1 (`mix`", "node 2 (`step`"]);
    Ok(())
}

/// Otherwise the copy could see some elements from before the kernel, and some from after.
fn a_node_set_between_a_copy_and_its_source_is_refused(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, y, mut to) = (s.full(N, 1u32)?, s.full(N, 2u32)?, s.full(N, 3u32)?);
    let mut host = device.pinned::<u32>(N)?;
    let (mut graph, [_, down]) =
        two_nodes(device, |s| kernels.step(s, &mut x, 1, N), |s| s.copy(&y, &mut host))?;
    graph.set_node(down, |s| s.copy(&x, &mut host))?;
    assert_unordered(&graph, &s, ["node 0 (`step`", "node 1 (`copy`"]);
    let (mut graph, [_, inside]) =
        two_nodes(device, |s| kernels.step(s, &mut x, 1, N), |s| s.copy(&y, &mut to))?;
    graph.set_node(inside, |s| s.copy(&x, &mut to))?;
    assert_unordered(&graph, &s, ["node 0 (`step`", "node 1 (`copy`"]);
    assert_eq!(s.download(&to)?, [3; N]);
    Ok(())
}

fn reads_and_disjoint_parts_need_no_order(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (x, mut y) = (s.full(N, 1u32)?, s.full(2 * N, 2u32)?);
    let (z, half) = (s.full(N, 3u32)?, N / 2);
    let mut builder = device.graph_builder()?;
    let one = builder.node(&[], |s| kernels.mix(s, &x, &mut y.slice_mut(..N)?, N))?;
    let other = builder.node(&[], |s| kernels.mix(s, &z, &mut y.slice_mut(N..)?, N))?;
    let mut graph = builder.build()?;
    graph.set_node(other, |s| kernels.mix(s, &x, &mut y.slice_mut(N..)?, N))?;
    graph.launch(&s)?;
    graph.set_node(one, |s| kernels.mix(s, &x, &mut y.slice_mut(..half)?, half))?;
    graph.set_node(other, |s| kernels.mix(s, &x, &mut y.slice_mut(half..N)?, half))?;
    graph.launch(&s)?;
    graph.set_node(one, |s| kernels.mix(s, &x, &mut y.slice_mut(..=half)?, half))?;
    assert_unordered(&graph, &s, ["node 0", "node 1"]);
    let twice = next(next(2, 1), 1);
    let want: Vec<u32> = (0..2 * N).map(|at| if at < N { twice } else { next(2, 1) }).collect();
    assert_eq!(s.download(&y)?, want);
    Ok(())
}

/// If you set a node to the same launch again, we skip the checks. That must not happen for another node.
fn the_short_way_is_for_memory_of_the_same_node(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let (mut graph, [one, other]) =
        two_nodes(device, |s| kernels.step(s, &mut x, 1, N), |s| kernels.step(s, &mut y, 2, N))?;
    graph.set_node(one, |s| kernels.step(s, &mut x, 3, N))?;
    graph.set_node(one, |s| kernels.step(s, &mut x, 4, N))?;
    graph.set_node(other, |s| kernels.step(s, &mut y, 5, N))?;
    graph.launch(&s)?;
    graph.set_node(other, |s| kernels.step(s, &mut x, 6, N))?;
    assert_unordered(&graph, &s, ["node 0", "node 1"]);
    graph.set_node(other, |s| kernels.step(s, &mut x, 7, N))?;
    assert_unordered(&graph, &s, ["node 0", "node 1"]);
    assert_eq!(s.download(&x)?, [next(1, 4); N]);
    assert_all(&s, &y, next(2, 5))
}

fn what_a_child_touches_is_compared(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let child = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    let mut builder = device.graph_builder()?;
    builder.child(&[], &child)?;
    let node = builder.node(&[], |s| kernels.step(s, &mut y, 2, N))?;
    let mut graph = builder.build()?;
    graph.set_node(node, |s| kernels.step(s, &mut x, 2, N))?;
    assert_unordered(&graph, &s, ["node 0 (`child`", "node 1 (`step`"]);
    Ok(())
}

fn what_a_body_touches_is_compared(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y, mut word) = (s.full(N, 1u32)?, s.full(N, 2u32)?, s.full(1, 1u32)?);
    let mut builder = device.graph_builder()?;
    builder.if_(&[], &word, |s| kernels.step(s, &mut x, 1, N))?;
    let node = builder.node(&[], |s| kernels.step(s, &mut y, 2, N))?;
    let mut graph = builder.build()?;
    graph.launch(&s)?;
    graph.set_node(node, |s| kernels.step(s, &mut x, 2, N))?;
    assert_unordered(&graph, &s, ["node 0 (`if`", "node 1 (`step`"]);
    graph.set_node(node, |s| kernels.step(s, &mut word, 2, 1))?;
    assert_unordered(&graph, &s, ["node 0 (`if`", "node 1 (`step`"]);
    graph.set_node(node, |s| kernels.step(s, &mut y, 3, N))?;
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [next(next(1, 1), 1); N]);
    assert_all(&s, &y, next(next(2, 2), 3))
}

/// Both buffers lie at the same place, so the first node still writes there.
fn memory_inside_a_graph_is_compared(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut y, mut kept) = (s.full(N, 2u32)?, None);
    let mut builder = device.graph_builder()?;
    let first = builder.node(&[], |s| s.zeros::<u32>(N).map(drop))?;
    builder.node(&[first], |s| s.zeros::<u32>(N).map(|memory| kept = Some(memory)))?;
    let node = builder.node(&[], |s| kernels.step(s, &mut y, 1, N))?;
    let mut graph = builder.build()?;
    graph.launch(&s)?;
    let memory = kept.as_mut().unwrap();
    graph.set_node(node, |s| kernels.step(s, memory, 1, N))?;
    assert_unordered(&graph, &s, ["(`zeros`", "node 2 (`step`"]);
    Ok(())
}

/// There are so many nodes that we compare them in another way.
fn many_nodes_are_set_at_once(device: &Device) -> Result<()> {
    const NODES: usize = 30;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut arrays = (0..NODES as u32).map(|value| s.full(N, value)).collect::<Result<Vec<_>>>()?;
    let mut wants: Vec<u32> = (0..NODES as u32).collect();
    let mut builder = device.graph_builder()?;
    let nodes = arrays.iter_mut().map(|x| builder.node(&[], |s| kernels.step(s, x, 1, N)));
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    let mut graph = builder.build()?;
    for round in 1..4 {
        for (at, &node) in nodes.iter().enumerate() {
            graph.set_node(node, |s| kernels.step(s, &mut arrays[(at + round) % NODES], round as u32, N))?;
            if at + 1 < NODES && at % 7 == 0 {
                refused(graph.launch(&s), ErrorKind::Hazard, &["`step`"]);
            }
        }
        graph.launch(&s)?;
        for want in &mut wants {
            *want = next(*want, round as u32);
        }
    }
    for (array, want) in arrays.iter().zip(wants) {
        assert_all(&s, array, want)?;
    }
    Ok(())
}

/// If the driver fails, we cannot know whether it has taken a part of the new work, so the node counts as having both.
fn a_node_that_the_driver_refused_counts_as_both(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y, z) = (s.full(N, 1u32)?, s.full(N, 2u32)?, s.full(N, 3u32)?);
    let (mut graph, [one, other]) =
        two_nodes(device, |s| kernels.step(s, &mut x, 1, N), |s| kernels.step(s, &mut y, 2, N))?;
    // A node cannot change its kind of work.
    assert!(graph.set_node(other, |s| s.fill(&mut x, 9)).is_err());
    assert_unordered(&graph, &s, ["node 0 (`step`", "node 1 (`fill`"]);
    graph.set_node(one, |s| kernels.mix(s, &z, &mut x, N))?;
    assert_unordered(&graph, &s, ["node 0 (`mix`", "node 1 (`fill`"]);
    graph.set_node(one, |s| kernels.mix(s, &z, &mut y, N))?;
    assert_unordered(&graph, &s, ["node 0 (`mix`", "node 1 (`fill`"]);
    graph.set_node(one, |s| kernels.mix(s, &z, &mut x, N))?;
    graph.set_node(other, |s| kernels.step(s, &mut y, 2, N))?;
    graph.launch(&s)?;
    // If we refuse the work before the driver sees it, nothing changes.
    assert!(graph.set_node(other, |s| s.upload_into(&[0; N], &mut x)).is_err());
    graph.launch(&s)?;
    assert_eq!(s.download(&x)?, [next(next(1, 3), 3); N]);
    assert_all(&s, &y, next(next(2, 2), 2))
}

fn tracking_decides_whether_set_nodes_are_compared(device: &Device) -> Result<()> {
    let strict = DeviceOptions::default().tracking(Tracking::Strict);
    // SAFETY: nothing else uses the memory of the nodes below, and both write the same there.
    let untracked = unsafe { DeviceOptions::default().without_tracking() };
    for (options, is_refused) in [(strict, true), (untracked, false)] {
        let device = open_again(device, options)?;
        let s = device.stream()?;
        let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
        s.synchronize()?;
        let (mut graph, [_, other]) = two_nodes(&device, |s| s.fill(&mut x, 3), |s| s.fill(&mut y, 3))?;
        graph.set_node(other, |s| s.fill(&mut x, 3))?;
        if is_refused {
            assert_unordered(&graph, &s, ["node 0", "node 1"]);
        } else {
            graph.launch(&s)?;
            s.synchronize()?;
            assert_eq!(s.download(&x)?, [3; N]);
        }
    }
    Ok(())
}

/// The new work conflicts although the old work did not. If the graph kept its edges, both nodes would run at once.
fn an_update_records_its_edges_anew(device: &Device) -> Result<()> {
    let (kernels, [s, t]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let (mut graph, [_, other]) =
        two_nodes(device, |s| kernels.step(s, &mut x, 1, N), |s| kernels.step(s, &mut y, 2, N))?;
    graph.set_node(other, |s| kernels.step(s, &mut x, 2, N))?;
    assert_unordered(&graph, &s, ["node 0", "node 1"]);
    let outcome = graph.update(&s, |s| {
        t.wait(&s.record()?)?;
        kernels.step(s, &mut x, 3, N)?;
        kernels.step(&t, &mut x, 4, N)
    })?;
    assert_eq!((outcome, graph.edge_count()), (GraphUpdate::TopologyChanged, 1));
    let mut want = 1;
    for _ in 0..5 {
        graph.launch(&s)?;
        want = next(next(want, 3), 4);
    }
    assert_eq!(s.download(&x)?, [want; N]);
    // Now in the other order, and then once more with the same edges.
    for (value, expected) in [(5, GraphUpdate::TopologyChanged), (6, GraphUpdate::Updated)] {
        let outcome = graph.update(&s, |s| {
            t.wait(&s.record()?)?;
            kernels.step(s, &mut x, value, N)?;
            kernels.step(&t, &mut y, value, N)
        })?;
        assert_eq!((outcome, graph.edge_count()), (expected, 0));
        graph.launch(&s)?;
    }
    assert_eq!(s.download(&x)?, [next(next(want, 5), 6); N]);
    assert_all(&s, &y, next(next(2, 5), 6))
}

/// Returns a kernel whose blocks wait for each other. It has its own memory.
fn ring(device: &Device, s: &Stream) -> Result<Option<impl FnMut(&Stream) -> Result<()> + use<>>> {
    if !device.info().features.cooperative_launch {
        return Ok(None);
    }
    let kernels = sync::Kernels::load(device)?;
    let (mut x, mut after, mut arrivals) = (s.full(N, 1u32)?, s.zeros::<u32>(N)?, s.zeros::<u32>(1)?);
    s.synchronize()?;
    let launch = Launch::new([2, 1, 1], [32, 1, 1]).cooperative(true);
    Ok(Some(move |s: &Stream| kernels.ring(s, &launch, &mut x, &mut after, &mut arrivals, 2, N)))
}

/// If two such kernels ran at once, each could hold a part of the device and wait for the rest for ever.
fn cooperative_kernels_follow_each_other(device: &Device) -> Result<()> {
    let (kernels, [s, t]) = kernels_and_streams(device)?;
    let (Some(mut one), Some(mut other)) = (ring(device, &s)?, ring(device, &s)?) else { return Ok(()) };
    let mut x = s.full(N, 1u32)?;
    let captured = s.capture(|s| {
        t.wait(&s.record()?)?;
        one(s)?;
        kernels.step(&t, &mut x, 1, N)?;
        other(&t)
    })?;
    assert_eq!((captured.node_count(), captured.edge_count()), (3, 2));
    assert!(captured.dot().contains("n0 -> n2;"), "{}", captured.dot());
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| one(s))?;
    builder.node(&[], |s| kernels.step(s, &mut x, 2, N))?;
    builder.node(&[], |s| other(s))?;
    let built = builder.build()?;
    assert_eq!((built.node_count(), built.edge_count()), (3, 1));
    // A child that contains such a kernel counts as one.
    let mut builder = device.graph_builder()?;
    builder.child(&[], &built)?;
    let [mut third, mut fourth] = [ring(device, &s)?.unwrap(), ring(device, &s)?.unwrap()];
    let node = builder.node(&[], |s| third(s))?;
    builder.node(&[node], |s| fourth(s))?;
    let parent = builder.build()?;
    assert_eq!((parent.node_count(), parent.edge_count()), (3, 2));
    let strict = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let u = strict.stream()?;
    let mut builder = strict.graph_builder()?;
    builder.node(&[], |s| ring(&strict, &u)?.unwrap()(s))?;
    builder.node(&[], |s| ring(&strict, &u)?.unwrap()(s))?;
    assert_eq!(builder.build()?.edge_count(), 1);
    for graph in [&captured, &built, &parent] {
        graph.launch(&s)?;
    }
    assert_all(&s, &x, next(next(next(1, 1), 2), 2))
}

fn cooperative_bodies_follow_each_other(device: &Device) -> Result<()> {
    let (_, [s, t]) = kernels_and_streams(device)?;
    let (Some(mut one), Some(mut other)) = (ring(device, &s)?, ring(device, &s)?) else { return Ok(()) };
    let flag = device.flag()?;
    let captured = s.capture(|s| {
        t.wait(&s.record()?)?;
        s.if_(&flag, |s| one(s))?;
        other(&t)
    })?;
    let mut builder = device.graph_builder()?;
    builder.if_(&[], &flag, |s| one(s))?;
    builder.node(&[], |s| other(s))?;
    for graph in [captured, builder.build()?] {
        assert!(graph.dot().contains("n0 -> n1;"), "{}", graph.dot());
        for value in [0, 1] {
            flag.set(value);
            graph.launch(&s)?;
            s.synchronize()?;
        }
    }
    Ok(())
}
