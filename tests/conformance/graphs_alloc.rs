//! You can allocate in nodes, in bodies and during updates, as in captures. You can also call library functions there
//! that need temporaries.

use conformance::{ONE, Random, assert_all, kernels_and_streams, next, open_again, refused, tests};
use gpustream::half::f16;
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, GraphUpdate, Pipeline, Result, Stream, ViewMut};
use gpustream_kernels::convert::Convert;
use gpustream_kernels::reduce::Reduce as _;
use gpustream_kernels::scan::Scan as _;

use crate::captures_alloc::{SIZE, after_temporaries, by_temporaries};
use crate::conditions::has_conditions;
use crate::graphs::N;
use crate::pool::under_each;

tests! {
    Plain: nodes_allocate, an_update_allocates, a_builder_that_is_dropped_gives_all_back,
        pipelines_that_wait_are_refused, library_functions_are_recorded,
        operations_that_read_slices_are_refused, random_recordings_compute_the_same,
        random_nodes_compute_the_same;
    Plain if has_conditions: bodies_allocate;
}

fn nodes_allocate(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s, other]) = kernels_and_streams(device)?;
        let mut x = s.full(N, 1u32)?;
        s.synchronize()?;
        let before = device.memory_stats().live;
        let mut builder = device.graph_builder()?;
        let nothing = builder.node(&[], |s| s.alloc::<u32>(N).map(drop));
        refused(nothing, ErrorKind::NotANode, &["submitted nothing"]);
        let mut last = builder.join(&[])?;
        let (mut addresses, mut beside) = (Vec::new(), None);
        for value in 0..10 {
            let mut temporary = None;
            last = builder.node(&[last], |s| {
                temporary = Some(s.full(N, value)?);
                Ok(())
            })?;
            let mut temporary = temporary.unwrap();
            last = builder.node(&[last], |s| kernels.step(s, &mut temporary, 7, N))?;
            last = builder.node(&[last], |s| kernels.mix(s, &temporary, &mut x, N))?;
            addresses.push(temporary.as_raw());
            drop(temporary);
            if value == 4 {
                // This node has no order with the others.
                builder.node(&[], |s| {
                    beside = Some(s.full(N, 77u32)?);
                    Ok(())
                })?;
            }
        }
        addresses.dedup();
        assert_eq!(addresses.len(), 1);
        let beside = beside.unwrap();
        assert_ne!(beside.as_raw(), addresses[0]);
        let graph = builder.build()?;
        assert_eq!((graph.node_count(), device.memory_stats().live - before), (32, 2));
        let mut want = 1;
        for s in [&s, &other, &s] {
            graph.launch(s)?;
            want = after_temporaries(want, 10);
            assert_all(s, &x, want)?;
            assert_all(s, &beside, 77)?;
        }
        // The builder is gone, and the recording with it, so memory that we drop now stays with the graph.
        drop(beside);
        let fresh = s.full(N, 5u32)?;
        graph.launch(&other)?;
        assert_all(&s, &fresh, 5)
    })
}

fn an_update_allocates(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let mut x = s.full(N, 1u32)?;
        let mut graph = s.capture(|s| by_temporaries(&kernels, s, &mut x, 5))?;
        graph.launch(&s)?;
        let mut want = after_temporaries(1, 5);
        for rounds in [5, 6, 6] {
            let outcome = graph.update(&s, |s| by_temporaries(&kernels, s, &mut x, rounds))?;
            assert!(rounds == 5 || outcome != GraphUpdate::Updated || graph.node_count() == 18);
            graph.launch(&s)?;
            want = after_temporaries(want, rounds);
            assert_all(&s, &x, want)?;
        }
        // If an update fails, the graph keeps the memory that it had.
        let failed = graph.update(&s, |s| {
            by_temporaries(&kernels, s, &mut x, 6)?;
            s.synchronize()
        });
        refused(failed, ErrorKind::Captured, &["wait for its stream"]);
        let between = s.full(N, 5u32)?;
        graph.launch(&s)?;
        assert_all(&s, &between, 5)?;
        assert_all(&s, &x, after_temporaries(want, 6))?;
        // You can also set a node to memory that you allocate for it.
        let mut builder = device.graph_builder()?;
        let first = builder.node(&[], |s| kernels.mix(s, &between, &mut x, N))?;
        let mut built = builder.build()?;
        let mut filled = None;
        built.set_node(first, |s| {
            let temporary = s.alloc::<u32>(N)?;
            kernels.mix(s, &temporary, &mut x, N)?;
            filled = Some(temporary);
            Ok(())
        })?;
        s.fill(filled.as_mut().unwrap(), 6)?;
        s.fill(&mut x, 2)?;
        built.launch(&s)?;
        assert_all(&s, &x, next(2, 6))
    })
}

/// A body may run again, so its first operations also come after its last ones. So a body must not take memory that was
/// used before it.
fn bodies_allocate(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let (mut x, go_on) = (s.full(N, 1u32)?, device.flag()?);
        let mut left = s.zeros::<u32>(1)?;
        s.synchronize()?;
        let before = device.memory_stats().live;
        let graph = s.capture(|s| {
            let mut outer = s.full(N, 2u32)?;
            kernels.step(s, &mut outer, 3, N)?;
            let address = outer.as_raw();
            s.while_(&go_on, |body| {
                kernels.mix(body, &outer, &mut x, N)?;
                drop(outer);
                // The body must not get this memory, and the stream around it must not either, because it does not know
                // yet that the body uses it.
                assert_ne!(body.full(N, 4u32)?.as_raw(), address);
                assert_ne!(s.alloc::<u32>(N)?.as_raw(), address);
                by_temporaries(&kernels, body, &mut x, 3)?;
                kernels.count_down(body, &ONE, &mut left, &mut go_on.clone())
            })?;
            let again = s.full(N, 5u32)?;
            assert_eq!(again.as_raw(), address);
            kernels.mix(s, &again, &mut x, N)
        })?;
        assert_eq!(device.memory_stats().live - before, 2);
        let mut want = 1;
        for rounds in [2, 0, 5] {
            s.fill(&mut left, rounds)?;
            s.synchronize()?;
            go_on.set(rounds);
            graph.launch(&s)?;
            want = (0..rounds).fold(want, |x, _| after_temporaries(next(x, next(2, 3)), 3));
            want = next(want, 5);
            assert_all(&s, &x, want)?;
        }
        drop(graph);
        // If a body fails, its memory is freed too.
        let failed = s.capture(|s| {
            s.if_(&go_on, |body| {
                by_temporaries(&kernels, body, &mut x, 3)?;
                let _held = body.full(N, 1u32)?;
                body.synchronize()
            })
        });
        refused(failed, ErrorKind::NotANode, &[]);
        s.synchronize()?;
        device.trim();
        assert_eq!(device.memory_stats().live, before);
        Ok(())
    })
}

fn a_builder_that_is_dropped_gives_all_back(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let mut builder = device.graph_builder()?;
        let mut left = None;
        builder.node(&[], |s| {
            left = Some(s.full(N, 2u32)?);
            Ok(())
        })?;
        builder.node(&[], |s| {
            s.alloc::<u32>(N)?;
            kernels.step(s, left.as_mut().unwrap(), 1, N)
        })?;
        drop(builder);
        let mut left = left.unwrap();
        assert_eq!(device.memory_stats().live, 1);
        s.fill(&mut left, 4)?;
        assert_all(&s, &left, 4)?;
        drop(left);
        assert_eq!(device.memory_stats().live, 0);
        Ok(())
    })
}

/// A pipeline that makes the host wait for pieces cannot be recorded. One that works in place can.
fn pipelines_that_wait_are_refused(device: &Device) -> Result<()> {
    let mut pipeline = device.pipeline().chunks(N);
    let mut array = device.pinned_from(&vec![1u32; 2 * N])?;
    let [input, mut output] = [vec![1u32; N], vec![0u32; N]];
    let refuse = |pipeline: &mut Pipeline<'_>, output: &mut [u32]| {
        let mapped = pipeline.map(&input, output, |s, piece| s.copy(&piece.input, &mut piece.output));
        refused(mapped, ErrorKind::Captured, &["pipeline"]);
        let work = |s: &Stream, frame: &mut ViewMut<'_, u32>| s.fill(frame, 1);
        refused(pipeline.generate(1, work, |_, _| Ok(())), ErrorKind::Captured, &["pipeline"]);
    };
    let s = device.stream()?;
    // The pipeline's streams join the capture through an event: first one of them, then both.
    for lane in 0..2 {
        s.capture(|s| {
            let start = s.record()?;
            pipeline.streams()?.skip(lane).take(1).try_for_each(|lane| lane.wait(&start))?;
            refuse(&mut pipeline, &mut output);
            Ok(())
        })?;
    }
    let graph = s.capture(|s| {
        let start = s.record()?;
        pipeline.streams()?.try_for_each(|lane| lane.wait(&start))?;
        refuse(&mut pipeline, &mut output);
        pipeline.in_place([&mut array], |s, [piece]| s.fill(piece, 5))
    })?;
    assert_eq!(*array.read()?, vec![1; 2 * N]);
    graph.launch(&s)?;
    assert_eq!(*array.read()?, vec![5; 2 * N]);
    drop(graph);
    array.write()?.fill(2);
    pipeline.in_place([&mut array], |s, [piece]| s.fill(piece, 6))?;
    assert_eq!(*array.read()?, vec![6; 2 * N]);
    Ok(())
}

/// Library functions with temporaries can be recorded without changes.
fn library_functions_are_recorded(device: &Device) -> Result<()> {
    const LONG: usize = 100_000;
    let (s, other) = (device.stream()?, device.stream()?);
    let convert = Convert::load(device)?;
    let (mut x, mut sums) = (s.full(LONG, 1u32)?, s.zeros::<u32>(LONG)?);
    let y = s.full(LONG, 2.0f32)?;
    let mut results = None;
    let graph = s.capture(|s| {
        s.inclusive_scan(&x, &mut sums)?;
        let (sum, dot) = (s.sum(&y)?, s.dot(&y, &y)?);
        refused(convert.download::<f32, f16>(s, &y), ErrorKind::Captured, &["copy to pinned memory"]);
        results = Some([sum, dot]);
        Ok(())
    })?;
    let nodes = graph.node_count();
    for value in [1, 3] {
        s.fill(&mut x, value)?;
        graph.launch(&other)?;
        let want: Vec<u32> = (1..=LONG as u32).map(|index| index * value).collect();
        assert_eq!(s.download(&sums)?, want);
        let results = results.as_ref().unwrap();
        assert_eq!((s.download(&results[0])?, s.download(&results[1])?), (vec![2e5], vec![4e5]));
    }
    let alone = s.capture(|s| {
        s.inclusive_scan(&x, &mut sums)?;
        s.sum(&y)?;
        s.dot(&y, &y).map(drop)
    })?;
    assert_eq!(alone.node_count(), nodes, "the refused download left a node");
    Ok(())
}

fn operations_that_read_slices_are_refused(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let s = device.stream()?;
        let graph = s.capture(|s| {
            refused(s.upload(&[1u32; 10]), ErrorKind::Captured, &["copy pinned memory"]);
            refused(s.upload(&vec![1u32; 1 << 20]), ErrorKind::Captured, &["copy pinned memory"]);
            let x = s.zeros::<u32>(N)?;
            refused(s.download(&x), ErrorKind::Captured, &["copy to pinned memory"]);
            Ok(())
        })?;
        assert_eq!(graph.node_count(), 1);
        let mut builder = device.graph_builder()?;
        refused(
            builder.node(&[], |s| s.upload(&[1u32; 10]).map(drop)),
            ErrorKind::NotANode,
            &["copy pinned memory"],
        );
        Ok(())
    })
}

/// Random fills, copies, kernels, drops and meetings on three branches must compute what the host computes.
fn random_recordings_compute_the_same(device: &Device) -> Result<()> {
    const MOST: usize = 6;
    for seed in 1..8 {
        // About half of the devices have room for so few blocks that the branches must share them.
        let is_scarce = seed % 2 == 1;
        let options = DeviceOptions::default();
        let options = if is_scarce { options.memory_limit(8 * SIZE) } else { options };
        let device = open_again(device, options)?;
        let spread = if device.info().quirks.checked { 1 } else { 50 };
        let (kernels, streams): (_, [Stream; 3]) = kernels_and_streams(&device)?;
        let mut random = Random(seed * 977);
        let mut hosts = (0..MOST).map(|_| device.pinned::<u32>(N)).collect::<Result<Vec<_>>>()?;
        let mut live: Vec<(Buffer<u32>, Vec<u32>)> = Vec::new();
        let origin = &streams[0];
        let graph = origin.capture(|origin| {
            let start = origin.record()?;
            streams[1..].iter().try_for_each(|s| s.wait(&start))?;
            for value in 0..300u32 {
                let s = &streams[random.below(3)];
                match random.below(8) {
                    0..3 => {
                        if live.len() == MOST {
                            drop(live.swap_remove(random.below(MOST)));
                        }
                        let len = N - random.below(if is_scarce { spread } else { N });
                        live.push((s.full(len, value)?, vec![value; len]));
                    }
                    3..5 if !live.is_empty() => {
                        let at = random.below(live.len());
                        let (x, want) = &mut live[at];
                        kernels.step(s, x, value, want.len())?;
                        for x in want.iter_mut() {
                            *x = next(*x, value);
                        }
                    }
                    5..7 if live.len() > 1 => {
                        let at = random.below(live.len());
                        let (mut y, mut want) = live.swap_remove(at);
                        let (x, from) = &live[random.below(live.len())];
                        let len = want.len().min(from.len());
                        kernels.mix(s, x, &mut y, len)?;
                        want.iter_mut().zip(from).for_each(|(y, x)| *y = next(*y, *x));
                        live.push((y, want));
                    }
                    _ => s.wait(&streams[random.below(3)].record()?)?,
                }
            }
            live.iter().zip(&mut hosts).enumerate().try_for_each(|(index, ((x, want), host))| {
                streams[index % 3].copy(x, &mut host.slice_mut(..want.len())?)
            })
        })?;
        for round in 0..3 {
            // The graph must not touch this memory, and work on it must not touch the graph's memory.
            let others = (0..if is_scarce { 0 } else { 5 })
                .map(|value| streams[1].full(N, value))
                .collect::<Result<Vec<_>>>()?;
            graph.launch(&streams[round])?;
            for ((_, want), host) in live.iter().zip(&hosts) {
                assert_eq!(host.slice(..want.len())?.read()?[..], want[..], "seed {seed}");
            }
            (0u32..).zip(&others).try_for_each(|(value, other)| assert_all(&streams[2], other, value))?;
        }
    }
    Ok(())
}

/// Does the same with nodes. Each comes after some of the earlier ones.
fn random_nodes_compute_the_same(device: &Device) -> Result<()> {
    const MOST: usize = 5;
    for seed in 1..6 {
        let device = open_again(device, DeviceOptions::default())?;
        let (kernels, [a, b]) = kernels_and_streams(&device)?;
        let mut random = Random(seed * 613);
        let mut hosts = (0..MOST).map(|_| device.pinned::<u32>(N)).collect::<Result<Vec<_>>>()?;
        let mut live: Vec<(Buffer<u32>, u32)> = Vec::new();
        let mut builder = device.graph_builder()?;
        let mut nodes = vec![builder.join(&[])?];
        for value in 0..200u32 {
            let after: Vec<_> = (0..random.below(3)).map(|_| nodes[random.below(nodes.len())]).collect();
            let after = if random.below(2) == 0 { &nodes[nodes.len() - 1..] } else { &after };
            let node = match random.below(6) {
                0..3 => {
                    if live.len() == MOST {
                        drop(live.swap_remove(random.below(MOST)));
                    }
                    builder.node(after, |s| {
                        live.push((s.full(N, value)?, value));
                        Ok(())
                    })?
                }
                3..5 if !live.is_empty() => {
                    let at = random.below(live.len());
                    let (x, want) = &mut live[at];
                    *want = next(*want, value);
                    builder.node(after, |s| kernels.step(s, x, value, N))?
                }
                _ if live.len() > 1 => {
                    let (mut y, want) = live.swap_remove(random.below(live.len()));
                    let (x, from) = &live[random.below(live.len())];
                    let (node, want) =
                        (builder.node(after, |s| kernels.mix(s, x, &mut y, N))?, next(want, *from));
                    live.push((y, want));
                    node
                }
                _ => builder.join(after)?,
            };
            nodes.push(node);
        }
        for ((x, _), host) in live.iter().zip(&mut hosts) {
            builder.node(&[], |s| s.copy(x, host))?;
        }
        let graph = builder.build()?;
        for s in [&a, &b, &a] {
            graph.launch(s)?;
            for ((_, want), host) in live.iter().zip(&hosts) {
                assert_eq!(*host.read()?, [*want; N], "seed {seed}");
            }
        }
    }
    Ok(())
}
