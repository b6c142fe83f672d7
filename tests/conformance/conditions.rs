//! Graphs with conditions. A word in memory decides whether a body runs, and how often.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use conformance::executor::is_pending;
use conformance::{
    Gate, ONE, assert_all, kernels_and_streams, next, on_threads, open_again, overlaps, refused, sync, tests,
    until,
};
use gpustream::{
    Buffer, Device, DeviceOptions, ErrorKind, Flag, Graph, GraphStream, GraphUpdate, Result, Stream, Tracking,
};

use crate::graphs::N;

tests! {
    Plain if has_conditions: a_body_runs_as_long_as_its_flag_is_set, a_body_runs_if_its_flag_is_set,
        memory_of_the_graph_decides, conditions_nest, conditions_nest_as_deep_as_documented,
        the_host_ends_a_loop, a_branch_has_conditions_of_its_own, a_captured_condition_follows_other_lanes, a_graph_keeps_what_a_body_uses,
        a_conditional_graph_is_updated, calls_that_no_body_can_hold_are_refused, failed_bodies_never_run,
        a_body_without_an_order_leaves_its_condition_in_the_graph, threads_fill_one_body,
        a_condition_is_drawn_with_its_body, a_dropped_graph_finishes_its_loop;
    // compute-sanitizer breaks conditional graphs if several runs are pending, so these are skipped there.
    Plain if has_conditions, overlaps: another_stream_ends_a_loop, the_work_around_a_condition_is_ordered,
        threads_launch_one_conditional_graph;
}

/// Returns true if the device's graphs can have conditions. If they cannot, checks that the error says so.
pub(crate) fn has_conditions(device: &Device) -> bool {
    if !device.info().features.conditional_nodes {
        let (s, flag) = (device.stream().unwrap(), device.flag().unwrap());
        let mut x = s.zeros::<u32>(1).unwrap();
        let captured = s.capture(|s| s.if_(&flag, |s| s.fill(&mut x, 1)));
        refused(
            captured,
            ErrorKind::Unsupported,
            &["cannot have conditions", "let the host look at the flag"],
        );
    }
    device.info().features.conditional_nodes
}

/// Makes two graphs of the same work: one by a capture, one as a node.
fn both_ways(
    device: &Device,
    s: &Stream,
    mut work: impl FnMut(&GraphStream<'_>) -> Result<()>,
) -> Result<[Graph; 2]> {
    let captured = s.capture(&mut work)?;
    let mut builder = device.graph_builder()?;
    builder.node(&[], work)?;
    Ok([captured, builder.build()?])
}

/// A loop whose body counts `left` down and takes a step with `x`.
struct Loop {
    left: Buffer<u32>,
    go_on: Flag,
    x: Buffer<u32>,
}

impl Loop {
    fn new(device: &Device, s: &Stream) -> Result<Self> {
        Ok(Self { left: s.zeros(1)?, go_on: device.flag()?, x: s.full(N, 1)? })
    }

    fn record(&mut self, kernels: &sync::Kernels, s: &GraphStream<'_>) -> Result<()> {
        let Self { left, go_on, x } = self;
        s.while_(go_on, |s| {
            kernels.step(s, x, 3, N)?;
            kernels.count_down(s, &ONE, left, &mut go_on.clone())
        })
    }

    /// Sets up a run of this many rounds.
    fn prepare(&mut self, s: &Stream, rounds: u32) -> Result<()> {
        s.fill(&mut self.left, rounds)?;
        s.synchronize()?;
        self.go_on.set(rounds);
        Ok(())
    }
}

fn rounds(x: u32, rounds: u32) -> u32 {
    (0..rounds).fold(x, |x, _| next(x, 3))
}

fn a_body_runs_as_long_as_its_flag_is_set(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut it = Loop::new(device, &s)?;
    let mut want = 1;
    for graph in both_ways(device, &s, |s| it.record(&kernels, s))? {
        for count in [3, 0, 1, 1000] {
            it.prepare(&s, count)?;
            graph.launch(&s)?;
            want = rounds(want, count);
            assert_all(&s, &it.x, want)?;
            assert_eq!(it.go_on.get(), 0);
        }
    }
    Ok(())
}

fn a_body_runs_if_its_flag_is_set(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (flag, mut x) = (device.flag()?, s.full(N, 1u32)?);
    let graphs = both_ways(device, &s, |s| {
        s.if_(&flag, |s| {
            kernels.step(s, &mut x, 1, N)?;
            kernels.step(s, &mut x, 2, N)
        })
    })?;
    let mut want = 1;
    for graph in &graphs {
        for value in [1, 0, u32::MAX, 1 << 31] {
            flag.set(value);
            graph.launch(&s)?;
            want = if value == 0 { want } else { next(next(want, 1), 2) };
            assert_all(&s, &x, want)?;
        }
    }
    Ok(())
}

fn memory_of_the_graph_decides(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut source = device.pinned::<u32>(2)?;
    let (mut word, mut x) = (s.zeros::<u32>(2)?, s.full(N, 1u32)?);
    // You give no order here, so the library must find it from the bytes that these operations touch.
    let captured = s.capture(|s| {
        s.copy(&source, &mut word)?;
        s.if_(&word.slice(1..2)?, |s| kernels.step(s, &mut x, 1, N))?;
        s.fill(&mut word, 0)?;
        s.while_(&word.slice(..1)?, |s| kernels.step(s, &mut x, 2, N))
    })?;
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| s.copy(&source, &mut word))?;
    builder.if_(&[], &word.slice(1..2)?, |s| kernels.step(s, &mut x, 1, N))?;
    builder.node(&[], |s| s.fill(&mut word, 0))?;
    builder.while_(&[], &word.slice(..1)?, |s| kernels.step(s, &mut x, 2, N))?;
    let mut want = 1;
    for graph in [captured, builder.build()?] {
        for value in [0, 1] {
            source.write()?.copy_from_slice(&[1, value]);
            graph.launch(&s)?;
            want = if value == 0 { want } else { next(want, 1) };
            assert_all(&s, &x, want)?;
        }
    }
    Ok(())
}

fn conditions_nest(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut outer, mut inner) = (Loop::new(device, &s)?, Loop::new(device, &s)?);
    let (seven, sometimes) = (device.pinned_from(&[7u32])?, device.flag()?);
    let mut ones = s.zeros::<u32>(1)?;
    let graphs = both_ways(device, &s, |s| {
        let Loop { left, go_on, x } = &mut outer;
        s.while_(go_on, |s| {
            s.copy(&seven, &mut inner.left)?;
            kernels.raise_flag(s, &ONE, &mut inner.go_on.clone(), 1)?;
            inner.record(&kernels, s)?;
            s.if_(&sometimes, |s| kernels.step(s, &mut ones, 1, 1))?;
            kernels.step(s, x, 3, N)?;
            kernels.count_down(s, &ONE, left, &mut go_on.clone())
        })
    })?;
    let (mut wants, mut counted) = ([1, 1], 0);
    for (graph, value) in graphs.iter().zip([0, 1]) {
        sometimes.set(value);
        outer.prepare(&s, 5)?;
        graph.launch(&s)?;
        wants = [rounds(wants[0], 5), rounds(wants[1], 35)];
        counted = (0..5 * value).fold(counted, |x, _| next(x, 1));
        assert_all(&s, &outer.x, wants[0])?;
        assert_all(&s, &inner.x, wants[1])?;
        assert_all(&s, &ones, counted)?;
    }
    Ok(())
}

/// Without a limit, the driver, a picture of the graph or its destructor could overflow a stack.
fn conditions_nest_as_deep_as_documented(device: &Device) -> Result<()> {
    const LEVELS: usize = 64;
    fn nest(s: &GraphStream<'_>, flag: &Flag, x: &mut Buffer<u32>, levels: usize) -> Result<()> {
        if levels == 0 { s.fill(x, 5) } else { s.if_(flag, |s| nest(s, flag, x, levels - 1)) }
    }
    let (_, [s]) = kernels_and_streams(device)?;
    let (flag, mut x) = (device.flag()?, s.full(N, 1u32)?);
    flag.set(1);
    for (at, graph) in both_ways(device, &s, |s| nest(s, &flag, &mut x, LEVELS))?.into_iter().enumerate() {
        assert_eq!(graph.dot().matches("subgraph").count(), LEVELS);
        s.fill(&mut x, at as u32)?;
        graph.launch(&s)?;
        assert_all(&s, &x, 5)?;
        s.synchronize()?;
    }
    let too_deep = ["level 65", "at most 64"];
    refused(
        s.capture(|s| nest(s, &flag, &mut x, LEVELS + 1)).map(drop),
        ErrorKind::InvalidArgument,
        &too_deep,
    );
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| nest(s, &flag, &mut x, LEVELS + 1));
    refused(node.map(drop), ErrorKind::InvalidArgument, &too_deep);
    Ok(())
}

fn the_host_ends_a_loop(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (go_on, seen) = (device.flag()?, device.flag()?);
    let graphs =
        both_ways(device, &s, |s| s.while_(&go_on, |s| kernels.raise_flag(s, &ONE, &mut seen.clone(), 1)))?;
    for graph in &graphs {
        seen.set(0);
        go_on.set(1);
        graph.launch(&s)?;
        until(|| Ok(seen.get() == 1))?;
        seen.set(0);
        // We cleared the word, so if it is set again, the body has run again.
        until(|| Ok(seen.get() == 1))?;
        let mut finished = s.synchronize_async();
        assert!(is_pending(&mut finished));
        go_on.set(0);
        s.synchronize()?;
    }
    Ok(())
}

fn another_stream_ends_a_loop(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (go_on, seen) = (device.flag()?, device.flag()?);
    let graph = a.capture(|s| s.while_(&go_on, |s| kernels.raise_flag(s, &ONE, &mut seen.clone(), 1)))?;
    for _ in 0..20 {
        seen.set(0);
        go_on.set(1);
        graph.launch(&a)?;
        // The loop has begun, and this kernel runs beside it.
        kernels.arrive(&b, &ONE, &mut device.flag()?, &seen)?;
        kernels.raise_flag(&b, &ONE, &mut go_on.clone(), 0)?;
        a.synchronize()?;
        b.synchronize()?;
    }
    Ok(())
}

fn the_work_around_a_condition_is_ordered(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut it = Loop::new(device, &a)?;
    let graph = a.capture(|s| it.record(&kernels, s))?;
    it.prepare(&a, 4)?;
    // Another stream is writing the body's memory, so the run must wait for it. Later work on that memory must wait for
    // the run.
    let gate = Gate::adding(&kernels, &b, &mut it.x, 5)?;
    graph.launch(&a)?;
    kernels.step(&b, &mut it.x, 9, N)?;
    let mut finished = b.synchronize_async();
    assert!(is_pending(&mut finished));
    gate.open();
    assert_all(&b, &it.x, next(rounds(6, 4), 9))
}

fn a_captured_condition_follows_other_lanes(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut it = Loop::new(device, &a)?;
    a.synchronize()?;
    let graph = a.capture(|a| {
        b.wait(&a.record()?)?;
        kernels.step(&b, &mut it.x, 7, N)?;
        // Both branches touch the memory, and you have not given an order.
        it.record(&kernels, a)?;
        kernels.step(&b, &mut it.x, 8, N)?;
        a.wait(&b.record()?)
    })?;
    let dot = graph.dot();
    for edge in ["n0 -> n1;", "n1 -> n2;"] {
        assert!(dot.contains(edge), "{edge} is missing in {dot}");
    }
    let mut want = 1;
    for count in [3, 0] {
        it.prepare(&a, count)?;
        graph.launch(&a)?;
        want = next(rounds(next(want, 7), count), 8);
        assert_all(&a, &it.x, want)?;
    }
    Ok(())
}

fn a_graph_keeps_what_a_body_uses(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.full(N, 1u32)?;
    let (mut target, go_on) = (device.pinned::<u32>(N)?, device.flag()?);
    let graphs = {
        let own = sync::Kernels::load(device)?;
        let (mut left, mut y, flag) = (s.zeros::<u32>(1)?, s.full(N, 2u32)?, go_on.clone());
        let two = device.pinned_from(&[2u32])?;
        both_ways(device, &s, |s| {
            s.while_(&flag, |s| {
                s.copy(&two, &mut left)?;
                own.mix(s, &x, &mut y, N)?;
                own.count_down(s, &ONE, &mut left, &mut flag.clone())?;
                kernels.raise_flag(s, &ONE, &mut flag.clone(), 0)?;
                s.copy(&y, &mut target)
            })
        })?
    };
    // If the graph's memory had been freed too early, these would get it.
    let others: Vec<Buffer<u32>> = (0..8).map(|_| s.full(N, 77)).collect::<Result<_>>()?;
    let mut want = 2;
    for graph in &graphs {
        go_on.set(1);
        graph.launch(&s)?;
        want = want * 5 + 1;
        s.synchronize()?;
        assert_eq!(*target.read()?, vec![want; N]);
    }
    others.iter().try_for_each(|other| assert_all(&s, other, 77))
}

fn threads_launch_one_conditional_graph(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut it = Loop::new(device, &s)?;
    let graph = s.capture(|s| {
        s.fill(&mut it.left, 5)?;
        kernels.raise_flag(s, &ONE, &mut it.go_on.clone(), 1)?;
        it.record(&kernels, s)
    })?;
    on_threads(4, |_| {
        let s = device.stream()?;
        (0..10).try_for_each(|_| graph.launch(&s))
    })?;
    assert_all(&s, &it.x, rounds(1, 200))
}

fn a_conditional_graph_is_updated(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut it, flag) = (Loop::new(device, &s)?, device.flag()?);
    flag.set(1);
    let mut graph = s.capture(|s| it.record(&kernels, s))?;
    let mut plain = s.capture(|s| kernels.step(s, &mut it.x, 1, N))?;
    it.prepare(&s, 2)?;
    // The pending runs must still do the old work.
    graph.launch(&s)?;
    plain.launch(&s)?;
    let changed = graph.update(&s, |s| s.if_(&flag, |s| kernels.step(s, &mut it.x, 5, N)))?;
    assert_eq!(changed, GraphUpdate::TopologyChanged);
    graph.launch(&s)?;
    plain.update(&s, |s| s.if_(&flag, |s| kernels.step(s, &mut it.x, 6, N)))?;
    plain.launch(&s)?;
    graph.update(&s, |s| kernels.step(s, &mut it.x, 7, N))?;
    graph.launch(&s)?;
    assert_all(&s, &it.x, next(next(next(next(rounds(1, 2), 1), 5), 6), 7))
}

fn calls_that_no_body_can_hold_are_refused(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let (flag, mut x) = (device.flag()?, s.full(N, 1u32)?);
    flag.set(1);
    let words = s.zeros::<u32>(2)?;
    let mut builder = device.graph_builder()?;
    refused(builder.if_(&[], &words, |_| Ok(())), ErrorKind::InvalidArgument, &["one `u32`", "2 elements"]);
    refused(builder.if_(&[], &flag, |_| Ok(())), ErrorKind::NotANode, &["an empty body"]);
    let captured = s.capture(|s| {
        refused(s.while_(&flag, |_| Ok(())), ErrorKind::NotANode, &["an empty body"]);
        s.if_(&flag, |body| {
            let no_node = |result, text| refused(result, ErrorKind::NotANode, &[text]);
            no_node(body.host_fn_repeat(|| ()), "a host closure in the body");
            no_node(body.download(&x).map(drop), "copy to pinned memory");
            no_node(body.record().map(drop), "do this in a node");
            no_node(body.synchronize(), "wait for its stream");
            let refuse = |result, text| refused(result, ErrorKind::Captured, &[text]);
            refuse(kernels.step(s, &mut x, 8, N), "the stream around a condition");
            refuse(s.record().map(drop), "the stream around a condition");
            refuse(s.if_(&flag, |_| Ok(())), "the stream around a condition");
            body.if_(&flag, |inner| {
                no_node(kernels.step(body, &mut x, 9, N), "the stream around a condition");
                kernels.step(inner, &mut x, 1, N)
            })?;
            kernels.step(body, &mut x, 2, N)
        })?;
        kernels.step(s, &mut x, 3, N)
    })?;
    captured.launch(&other)?;
    assert_all(&s, &x, next(next(next(1, 1), 2), 3))?;
    refused(builder.child(&[], &captured), ErrorKind::Unsupported, &["conditional nodes"]);
    let once = builder.node(&[], |s| {
        s.if_(&flag, |s| kernels.step(s, &mut x, 4, N))?;
        refused(s.if_(&flag, |_| Ok(())), ErrorKind::NotANode, &["several operations into one node"]);
        Ok(())
    })?;
    let mut built = builder.build()?;
    let set = built.set_node(once, |s| kernels.step(s, &mut x, 5, N));
    assert!(set.is_err(), "drivers cannot put a kernel into a node with a condition");
    built.launch(&s)?;
    assert_all(&s, &x, next(next(next(next(1, 1), 2), 3), 4))
}

fn failed_bodies_never_run(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (flag, mut x) = (device.flag()?, s.full(N, 1u32)?);
    flag.set(1);
    let fail = |s: &GraphStream<'_>, x: &mut Buffer<u32>| {
        let failing = s.while_(&flag, |s| {
            kernels.step(s, x, 1, N)?;
            s.if_(&flag, |s| kernels.step(s, x, 2, N))?;
            s.synchronize()
        });
        refused(failing, ErrorKind::NotANode, &["wait for its stream"]);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            s.while_(&flag, |s| {
                // The graph must keep what the failed body refers to, although that body never runs.
                let own = sync::Kernels::load(device)?;
                own.step(s, &mut device.stream()?.full(N, 9u32)?, 3, N)?;
                panic!("in a body")
            })
        }));
        assert!(panicked.is_err());
    };
    let captured = s.capture(|s| {
        fail(s, &mut x);
        kernels.step(s, &mut x, 4, N)?;
        fail(s, &mut x);
        s.if_(&flag, |s| kernels.step(s, &mut x, 5, N))
    })?;
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| {
        fail(s, &mut x);
        kernels.step(s, &mut x, 6, N)
    })?;
    builder.if_(&[], &flag, |s| kernels.step(s, &mut x, 7, N))?;
    captured.launch(&s)?;
    builder.build()?.launch(&s)?;
    assert_all(&s, &x, next(next(next(next(1, 4), 5), 6), 7))?;
    // If the capture fails because of the body, the stream is as it was before.
    let failed = s.capture(|s| s.while_(&flag, |s| s.synchronize()));
    refused(failed, ErrorKind::NotANode, &["wait for its stream"]);
    kernels.step(&s, &mut x, 8, N)?;
    assert_all(&s, &x, next(next(next(next(next(1, 4), 5), 6), 7), 8))
}

/// The graph still contains the driver's conditional node, so it cannot be copied into another graph.
fn a_body_without_an_order_leaves_its_condition_in_the_graph(device: &Device) -> Result<()> {
    let device = &open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (flag, mut x) = (device.flag()?, s.full(N, 1u32)?);
    flag.set(1);
    let mut builder = device.graph_builder()?;
    builder.node(&[], |s| kernels.step(s, &mut x, 1, N))?;
    let unordered = builder.if_(&[], &flag, |s| {
        let own = sync::Kernels::load(device)?;
        own.step(s, &mut x, 2, N)
    });
    refused(unordered, ErrorKind::Hazard, &["nothing orders the two"]);
    let graph = builder.build()?;
    refused(device.graph_builder()?.child(&[], &graph), ErrorKind::Unsupported, &["conditional nodes"]);
    graph.launch(&s)?;
    assert_all(&s, &x, next(1, 1))
}

/// A forked stream takes part in the capture, with conditions of its own, until the capture ends.
fn a_branch_has_conditions_of_its_own(device: &Device) -> Result<()> {
    let (kernels, [s, other, free]) = kernels_and_streams(device)?;
    let flag = device.flag()?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 1u32)?);
    s.synchronize()?;
    let graph = s.capture(|s| {
        assert!(s.fork(s)?.is_recorded(), "a stream is its own branch");
        let branch = s.fork(&other)?;
        kernels.step(s, &mut x, 1, N)?;
        branch.if_(&flag, |body| {
            refused(body.fork(&free).map(drop), ErrorKind::NotANode, &["fork"]);
            kernels.step(body, &mut y, 2, N)
        })?;
        s.wait_for(&branch)
    })?;
    assert!(!graph.dot().contains("n0 -> n1;"), "{}", graph.dot());
    assert!(!other.is_recorded() && !free.is_recorded());
    for value in [0, 1] {
        flag.set(value);
        graph.launch(&s)?;
        s.synchronize()?;
    }
    assert_all(&s, &x, next(next(1, 1), 1))?;
    assert_all(&s, &y, next(1, 2))?;
    // A branch that never meets the stream again belongs to the graph, too.
    let open = s.capture(|s| {
        let branch = s.fork(&other)?;
        kernels.step(&branch, &mut x, 3, N)
    })?;
    kernels.step(&other, &mut x, 4, N)?;
    open.launch(&s)?;
    assert_all(&s, &x, next(next(next(next(1, 1), 1), 4), 3))
}

/// Several threads may use a body's stream at once, like any other stream.
fn threads_fill_one_body(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let flag = device.flag()?;
    let mut parts = (0..4).map(|_| s.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    flag.set(1);
    let graphs = both_ways(device, &s, |s| {
        s.if_(&flag, |s| {
            thread::scope(|scope| {
                let fill = |x: &mut Buffer<u32>| (0..50).try_for_each(|_| kernels.step(s, x, 2, N));
                let threads: Vec<_> = parts.iter_mut().map(|x| scope.spawn(move || fill(x))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })
        })
    })?;
    graphs.iter().try_for_each(|graph| graph.launch(&s))?;
    let want = (0..100).fold(1, |x, _| next(x, 2));
    parts.iter().try_for_each(|x| assert_all(&s, x, want))
}

fn a_condition_is_drawn_with_its_body(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut it = Loop::new(device, &s)?;
    let dot = s.capture(|s| it.record(&kernels, s))?.dot();
    for text in [
        "n0 [label=\"while\"",
        "shape=diamond",
        "subgraph cluster_n0",
        "n0_0 [label=\"step\"",
        "n0_0 -> n0_1",
    ] {
        assert!(dot.contains(text), "{text} is missing in {dot}");
    }
    Ok(())
}

fn a_dropped_graph_finishes_its_loop(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut it = Loop::new(device, &s)?;
    for graph in both_ways(device, &s, |s| it.record(&kernels, s))? {
        it.prepare(&s, 300)?;
        graph.launch(&s)?;
        drop(graph);
    }
    assert_all(&s, &it.x, rounds(1, 600))
}
