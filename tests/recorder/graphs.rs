//! The driver calls of captures and graphs, on drivers that log them. The library must never make a call that would
//! break a capture.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::thread;

use fake_cuda::codes;
use gpustream::{
    CopyBatch, DefaultStream, Device, DeviceOptions, ErrorKind, GraphStream, GraphUpdate, PoolPolicy, Result,
    Stream, StreamOptions,
};
use recorder::Call;

use crate::fakes::{on_both, on_each, open_again};

/// This runs on CUDA only, because HIP has no conditional nodes.
#[test]
fn conditions_take_these_calls() {
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        if !device.info().features.conditional_nodes {
            return;
        }
        let (s, flag) = (device.stream().unwrap(), device.flag().unwrap());
        let (mut x, mut y) = (s.full(100, 1u32).unwrap(), s.full(100, 2u32).unwrap());
        let begin = ["cuGraphConditionalHandleCreate", "cuGraphAddNode"];
        let begin_captured = ["cuStreamGetCaptureInfo_v2", begin[0], begin[1]];
        let (fill, setter) = ("cuGraphAddMemsetNode", "cuGraphAddKernelNode_v2");
        let attach =
            ["cuStreamGetCaptureInfo_v2", "cuGraphAddDependencies", "cuStreamUpdateCaptureDependencies"];
        let names = |calls: Vec<recorder::Call>| calls.iter().map(|call| call.name).collect::<Vec<_>>();
        let graph = s
            .capture(|s| {
                // This also loads the kernel that sets conditions, so it is already there below.
                s.if_(&flag, |s| s.fill(&mut x, 1))?;
                let (done, calls) = recorder.record(|| s.while_(&flag, |s| s.fill(&mut x, 2)));
                assert_eq!(
                    names(calls),
                    [&begin_captured[..], &[fill, setter, "cuLaunchKernelEx"], &attach].concat()
                );
                done
            })
            .unwrap();
        graph.launch(&s).unwrap();
        let mut builder = device.graph_builder().unwrap();
        let first = builder.node(&[], |s| s.fill(&mut y, 3)).unwrap();
        let (added, calls) = recorder.record(|| {
            builder.while_(&[first], &flag, |s| {
                s.fill(&mut x, 4)?;
                s.if_(&flag, |s| s.fill(&mut y, 5))
            })
        });
        added.unwrap();
        let (edge, inner) = ("cuGraphAddDependencies", [fill, setter, "cuGraphAddDependencies"]);
        let outer = [setter, setter, edge];
        assert_eq!(names(calls), [&begin[..], &[fill], &begin, &inner, &outer].concat());
        let built = builder.build().unwrap();
        assert_eq!(built.node_count(), 3, "the fill, the kernel that sets the condition, and the condition");
        built.launch(&s).unwrap();
    });
}

/// CUDA refuses two edges between the same two nodes, so the library must drop one.
#[test]
fn nodes_named_twice_are_followed_once() {
    on_both(|_, device, [s]| {
        let mut x = s.full(100, 1u32).unwrap();
        let child = s.capture(|s| s.fill(&mut x, 2)).unwrap();
        let mut builder = device.graph_builder().unwrap();
        let first = builder.node(&[], |s| s.fill(&mut x, 3)).unwrap();
        builder.node(&[first, first], |s| s.fill(&mut x, 4)).unwrap();
        builder.join(&[first, first]).unwrap();
        builder.child(&[first, first], &child).unwrap();
        assert_eq!(builder.build().unwrap().node_count(), 4);
    });
}

/// If the driver fails to place the condition, the graph must not run, because nothing would order the condition after
/// the work that sets its word.
#[test]
fn capture_with_half_a_condition_fails() {
    on_both(|recorder, device, [s]| {
        let flag = device.flag().unwrap();
        if !device.info().features.conditional_nodes {
            return;
        }
        let mut x = s.full(100, 1u32).unwrap();
        for call in ["cuGraphAddDependencies", "cuStreamUpdateCaptureDependencies"] {
            let captured = s.capture(|s| {
                recorder.fail_next(call, codes::OUT_OF_MEMORY);
                let failed = s.if_(&flag, |s| s.fill(&mut x, 2)).unwrap_err();
                assert_eq!(failed.kind(), ErrorKind::OutOfMemory, "{failed}");
                Ok(())
            });
            assert_eq!(captured.unwrap_err().kind(), ErrorKind::OutOfMemory, "{call}");
        }
        s.fill(&mut x, 3).unwrap();
        assert_eq!(s.download(&x).unwrap(), [3; 100]);
    });
}

/// At any of these calls a driver would end the capture with an error. ROCm 6 would also make the stream unusable. So
/// we must refuse them first.
#[test]
fn misuse_is_refused_before_any_driver_call() {
    on_both(|recorder, device, [s, other]| {
        let mut x = s.full(1000, 1u32).unwrap();
        let y = s.full(1000, 2u32).unwrap();
        let mut pending = other.full(1000, 3u32).unwrap();
        let graph = s.capture(|s| s.fill(&mut pending, 4)).unwrap();
        device.synchronize().unwrap();
        recorder.hold();
        other.fill(&mut pending, 5).unwrap();
        let outside = other.record().unwrap();
        let captured = s
            .capture(|s| {
                s.fill(&mut x, 6)?;
                let inside = s.record()?;
                let offences: [(&str, &dyn Fn() -> Result<()>); 17] = [
                    ("synchronize", &|| s.synchronize()),
                    ("is_done", &|| s.is_done().map(drop)),
                    ("device.synchronize", &|| device.synchronize()),
                    ("event.synchronize", &|| inside.synchronize()),
                    ("event.is_done", &|| inside.is_done().map(drop)),
                    ("upload", &|| s.upload(&[1u32; 1000]).map(drop)),
                    ("long upload", &|| s.upload(&vec![1u32; 1 << 22]).map(drop)),
                    ("download", &|| s.download(&y).map(drop)),
                    ("download_into", &|| s.download_into(&y, &mut [0; 1000])),
                    ("host_fn", &|| s.host_fn(|| ())),
                    ("record_timed", &|| s.record_timed().map(drop)),
                    ("wait for what is outside", &|| s.wait(&outside)),
                    ("capture", &|| s.capture(|_| Ok(())).map(drop)),
                    ("launch", &|| graph.launch(s)),
                    ("preparation of a graph", &|| graph.prepare(s)),
                    ("record on another thread", &|| on_another_thread(|| s.record().map(drop))),
                    ("copy on another thread", &|| on_another_thread(|| s.host_fn_repeat(|| ()))),
                ];
                for (what, offence) in offences {
                    let (outcome, calls) = recorder.record(offence);
                    let Err(error) = outcome else { panic!("{what} was accepted") };
                    assert_eq!(error.kind(), ErrorKind::Captured, "{what}: {error}");
                    // You can make and destroy an event without disturbing the capture.
                    let heard: Vec<_> = calls
                        .iter()
                        .filter(|call| {
                            !call.name.contains("EventCreate") && !call.name.contains("EventDestroy")
                        })
                        .collect();
                    assert!(heard.is_empty(), "{what}: {heard:?}");
                }
                s.fill(&mut x, 7)
            })
            .unwrap();
        assert_eq!((captured.node_count(), captured.edge_count()), (2, 1));
        recorder.release();
        captured.launch(&s).unwrap();
        assert_eq!(s.download(&x).unwrap(), [7; 1000]);
        assert_eq!(s.download(&y).unwrap(), [2; 1000]);
    });
}

/// If the pool has memory, an allocation inside makes no call. Otherwise the driver must be asked by a call that
/// belongs to no stream, even if you prefer the driver's pool.
#[test]
fn allocations_inside_belong_to_no_stream() {
    for policy in [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled] {
        on_each(|fake, recorder| {
            let device = Device::open_with(fake.name, DeviceOptions::default().pool(policy)).unwrap();
            let s = device.stream().unwrap();
            drop(s.alloc::<u32>(1000).unwrap());
            s.synchronize().unwrap();
            let is_pooled = policy == PoolPolicy::Library;
            if !is_pooled {
                device.trim();
            }
            let words = |work: &dyn Fn() -> Result<()>| {
                let (outcome, calls) = recorder.record(work);
                outcome.unwrap();
                calls.iter().map(Call::word).filter(|&word| word != "ask stream").collect::<Vec<_>>()
            };
            let first = if is_pooled { vec![] } else { vec!["alloc"] };
            let in_capture = |s: &GraphStream<'_>| {
                assert_eq!(words(&|| s.alloc::<u32>(1000).map(drop)), first, "{policy:?}");
                assert_eq!(words(&|| s.alloc::<u32>(1000).map(drop)), [""; 0], "{policy:?}");
                assert_eq!(words(&|| s.zeros::<u32>(1000).map(drop)), ["fill"], "{policy:?}");
                // This memory was touched by a node.
                assert_eq!(words(&|| s.alloc::<u32>(1000).map(drop)), [""; 0], "{policy:?}");
                Ok(())
            };
            let graph = s.capture(in_capture).unwrap();
            assert_eq!((graph.node_count(), device.memory_stats().live), (1, 1), "{policy:?}");
            graph.launch(&s).unwrap();
            let mut builder = device.graph_builder().unwrap();
            builder
                .node(&[], |s| {
                    assert_eq!(words(&|| s.alloc::<u32>(1000).map(drop)), first, "{policy:?}");
                    assert_eq!(words(&|| s.alloc::<u32>(1000).map(drop)), [""; 0], "{policy:?}");
                    s.zeros::<u32>(1000).map(drop)
                })
                .unwrap();
            builder.build().unwrap().launch(&s).unwrap();
        });
    }
}

/// Two handles of a device have separate pools. Memory from one must never go to the other, even if both allocate on
/// the same stream.
#[test]
fn handles_keep_their_memory_apart_in_one_capture() {
    on_both(|_, first, []| {
        let second = open_again(first);
        let a = first.default_stream(DefaultStream::PerThread).unwrap();
        let b = second.default_stream(DefaultStream::PerThread).unwrap();
        let mut left = None;
        let graph = a.capture(|a| {
            for value in 0..4u32 {
                let (mine, others) = (a.full(1000, value)?, b.full(1000, value)?);
                assert_ne!(mine.as_raw(), others.as_raw());
                left = Some(b.duplicate(&mine)?);
            }
            Ok(())
        });
        let graph = graph.unwrap();
        assert_eq!([first, &second].map(|device| device.memory_stats().live), [1, 3]);
        graph.launch(&b).unwrap_err();
        graph.launch(&a).unwrap();
        assert_eq!(b.download(left.as_ref().unwrap()).unwrap(), [3; 1000]);
        drop((left, b, second));
        graph.launch(&a).unwrap();
        a.synchronize().unwrap();
    });
}

/// HIP follows waits in a circle until the thread's stack ends, and the fake reports such a circle. If a wait would
/// close one, it must go through the first stream.
#[test]
fn streams_of_a_capture_wait_in_no_circle() {
    on_both(|recorder, _, [origin, a, b]| {
        let mut x = origin.zeros::<u32>(10).unwrap();
        let captured = origin.capture(|origin| {
            let start = origin.record()?;
            a.wait(&start)?;
            b.wait(&start)?;
            b.wait(&a.record()?)?;
            b.wait(&start)?;
            recorder.clear();
            a.wait(&b.record()?)?;
            assert_eq!(
                recorder.count("wait"),
                if a.device().info().backend == gpustream::BackendName::HIP { 2 } else { 1 }
            );
            recorder.clear();
            a.wait(&a.record()?)?;
            assert_eq!(recorder.count("wait"), 0, "for itself");
            a.fill(&mut x, 1)?;
            b.fill(&mut x, 2)?;
            a.fill(&mut x, 3)
        });
        let graph = captured.unwrap();
        graph.launch(&origin).unwrap();
        assert_eq!(origin.download(&x).unwrap(), [3; 10]);
    });
}

fn on_another_thread(work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    thread::scope(|scope| scope.spawn(work).join()).unwrap()
}

#[test]
fn empty_and_failed_captures_leave_nothing() {
    on_both(|recorder, device, [s]| {
        let before = recorder.live();
        for _ in 0..3 {
            let graph = s.capture(|_| Ok(())).unwrap();
            graph.launch(&s).unwrap();
            s.synchronize().unwrap();
            drop(graph);
            assert!(s.capture(|s| s.synchronize()).is_err());
            let panics = || s.capture(|_| panic::resume_unwind(Box::new("on purpose")));
            assert!(panic::catch_unwind(AssertUnwindSafe(panics)).is_err());
        }
        device.synchronize().unwrap();
        device.trim();
        let after = recorder.live();
        assert_eq!((after.graphs, after.graph_execs), (before.graphs, before.graph_execs));
    });
}

/// A list for closures. Each notes there that it was called.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<u32>>>);

impl Notes {
    fn noting(&self, number: u32) -> impl Fn() + Send + Sync + use<> {
        let notes = self.0.clone();
        move || notes.lock().unwrap().push(number)
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// HIP reads a node's closure only when a run reaches the node. If you set another closure meanwhile, that run must
/// still call the old one.
#[test]
fn pending_runs_keep_the_closures_they_were_launched_with() {
    on_both(|recorder, device, [s]| {
        let notes = Notes::default();
        let mut builder = device.graph_builder().unwrap();
        let first = builder.node(&[], |s| s.host_fn_repeat(notes.noting(1))).unwrap();
        let second = builder.node(&[first], |s| s.host_fn_repeat(notes.noting(10))).unwrap();
        let mut graph = builder.build().unwrap();
        for _ in 0..3 {
            recorder.hold();
            graph.set_node(first, |s| s.host_fn_repeat(notes.noting(1))).unwrap();
            graph.launch(&s).unwrap();
            graph.launch(&s).unwrap();
            // You set another closure before the next launch, so this one is never called.
            graph.set_node(first, |s| s.host_fn_repeat(notes.noting(2))).unwrap();
            graph.set_node(first, |s| s.host_fn_repeat(notes.noting(3))).unwrap();
            graph.launch(&s).unwrap();
            graph.set_node(first, |s| s.host_fn_repeat(notes.noting(4))).unwrap();
            graph.set_node(second, |s| s.host_fn_repeat(notes.noting(40))).unwrap();
            graph.launch(&s).unwrap();
            recorder.release();
            s.synchronize().unwrap();
            assert_eq!(notes.take(), [1, 10, 1, 10, 3, 10, 4, 40]);
            graph.set_node(second, |s| s.host_fn_repeat(notes.noting(10))).unwrap();
        }
    });
}

#[test]
fn a_closure_is_put_into_a_node_without_the_driver() {
    on_both(|recorder, device, [s]| {
        let held = Arc::new(());
        let mut builder = device.graph_builder().unwrap();
        let node = builder.node(&[], |s| s.host_fn_repeat(|| ())).unwrap();
        let mut graph = builder.build().unwrap();
        for _ in 0..10 {
            let mine = held.clone();
            let put = || graph.set_node(node, |s| s.host_fn_repeat(move || drop(mine.clone())));
            let (outcome, calls) = recorder.record(put);
            outcome.unwrap();
            assert_eq!(calls, []);
        }
        // If no run needs a closure any more, it is dropped.
        assert_eq!(Arc::strong_count(&held), 2);
        graph.launch(&s).unwrap();
        s.synchronize().unwrap();
        graph.set_node(node, |s| s.host_fn_repeat(|| ())).unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    });
}

#[test]
fn an_update_leaves_pending_runs_their_closures() {
    on_both(|recorder, _, [s]| {
        let notes = Notes::default();
        let record = |number| {
            let notes = &notes;
            move |s: &GraphStream<'_>| {
                s.host_fn_repeat(notes.noting(number))?;
                s.host_fn_repeat(notes.noting(10 * number))
            }
        };
        let mut graph = s.capture(record(1)).unwrap();
        recorder.hold();
        graph.launch(&s).unwrap();
        assert_eq!(graph.update(&s, record(2)).unwrap(), GraphUpdate::Updated);
        graph.launch(&s).unwrap();
        graph.launch(&s).unwrap();
        // This update is refused and changes nothing. The next one has another shape.
        assert!(graph.update(&s, |s| record(3)(s).and_then(|()| s.synchronize())).is_err());
        assert_eq!(
            graph.update(&s, |s| s.host_fn_repeat(notes.noting(4))).unwrap(),
            GraphUpdate::TopologyChanged
        );
        graph.launch(&s).unwrap();
        recorder.release();
        s.synchronize().unwrap();
        assert_eq!(notes.take(), [1, 10, 2, 20, 2, 20, 4]);
        // No launch is pending now, so the update can change the same executable.
        let (updated, calls) = recorder.record(|| graph.update(&s, |s| s.host_fn_repeat(notes.noting(5))));
        assert_eq!(updated.unwrap(), GraphUpdate::Updated);
        assert!(calls.iter().all(|call| !call.name.contains("Instantiate")), "{calls:?}");
        graph.launch(&s).unwrap();
        s.synchronize().unwrap();
        assert_eq!(notes.take(), [5]);
    });
}

/// A parent copies its child's nodes. If you set a closure in one of them, the other must not change, even if launches
/// are pending.
#[test]
fn a_child_and_its_parent_keep_closures_of_their_own() {
    on_both(|recorder, device, [s, t]| {
        let notes = Notes::default();
        let mut builder = device.graph_builder().unwrap();
        let inner = builder.node(&[], |s| s.host_fn_repeat(notes.noting(1))).unwrap();
        let mut child = builder.build().unwrap();
        child.launch(&s).unwrap();
        child.set_node(inner, |s| s.host_fn_repeat(notes.noting(2))).unwrap();
        let mut builder = device.graph_builder().unwrap();
        let outer = builder.node(&[], |s| s.host_fn_repeat(notes.noting(10))).unwrap();
        let middle = builder.child(&[outer], &child).unwrap();
        builder.child(&[middle], &child).unwrap();
        let mut parent = builder.build().unwrap();
        s.synchronize().unwrap();
        notes.take();
        recorder.hold();
        parent.launch(&s).unwrap();
        child.launch(&t).unwrap();
        child.set_node(inner, |s| s.host_fn_repeat(notes.noting(3))).unwrap();
        parent.set_node(outer, |s| s.host_fn_repeat(notes.noting(20))).unwrap();
        parent.launch(&s).unwrap();
        child.launch(&t).unwrap();
        recorder.release();
        s.synchronize().unwrap();
        t.synchronize().unwrap();
        let (child, parent): (Vec<u32>, _) =
            notes.take().into_iter().partition(|number| [2, 3].contains(number));
        assert_eq!((child, parent), (vec![2, 3], vec![10, 1, 1, 20, 1, 1]));
    });
}

/// The driver may have taken any part of the new work. So the graph must keep the memory of both until an update
/// succeeds. It must not run either, because old and new work have no order.
#[test]
fn memory_of_an_update_that_the_driver_fails_stays() {
    on_each(|fake, recorder| {
        let device =
            Device::open_with(fake.name, DeviceOptions::default().pool(PoolPolicy::Unpooled)).unwrap();
        let s = device.stream().unwrap();
        for (failing, other_shape) in [("update", false), ("instantiate", true)] {
            let mut x = s.full(1000, 1u32).unwrap();
            let mut graph = s.capture(|s| s.fill(&mut x, 0x0102_0304)).unwrap();
            let mut y = s.full(1 << 20, 1u32).unwrap();
            s.synchronize().unwrap();
            recorder.fail_next(failing, codes::OUT_OF_MEMORY);
            let failed = graph.update(&s, |s| {
                s.fill(&mut y, 0x0102_0305)?;
                if other_shape { s.fill(&mut y, 0x0102_0306) } else { Ok(()) }
            });
            recorder.disarm();
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::OutOfMemory, "{}", fake.name);
            let held = recorder.live().bytes;
            drop((x, y));
            device.trim();
            assert_eq!(recorder.live().bytes, held, "{}: the executable may refer to it", fake.name);
            // HIP is never asked to update to another shape, so there nothing is half done.
            let is_whole = other_shape && fake.name == "hip";
            let refused = graph.launch(&s).err().map(|error| error.kind());
            assert_eq!(refused, if is_whole { None } else { Some(ErrorKind::Hazard) }, "{}", fake.name);
            // The next update that succeeds frees the old memory.
            let mut z = s.full(1000, 1u32).unwrap();
            graph.update(&s, |s| s.fill(&mut z, 0x0102_0307)).unwrap();
            s.synchronize().unwrap();
            drop(device.stream().unwrap());
            device.trim();
            assert!(recorder.live().bytes < held, "{}: never freed", fake.name);
            graph.launch(&s).unwrap();
            assert_eq!(s.download(&z).unwrap(), [0x0102_0307; 1000]);
        }
        recorder.release();
    });
}

/// HIP's update does not compare edges. It would run the new work in the old order, and nothing would separate the two.
#[test]
fn an_update_that_needs_other_edges_is_a_new_executable() {
    on_both(|recorder, _, [s, t]| {
        let (mut x, mut y) = (s.full(1000, 1u32).unwrap(), s.full(1000, 2u32).unwrap());
        let mut graph = s
            .capture(|s| {
                t.wait(&s.record()?)?;
                s.fill(&mut x, 3)?;
                t.fill(&mut y, 4)
            })
            .unwrap();
        assert_eq!((graph.node_count(), graph.edge_count()), (2, 0));
        for expected in [GraphUpdate::TopologyChanged, GraphUpdate::Updated] {
            recorder.clear();
            let outcome = graph.update(&s, |s| {
                t.wait(&s.record()?)?;
                s.fill(&mut x, 5)?;
                t.fill(&mut x, 6)
            });
            assert_eq!(outcome.unwrap(), expected);
            let made = usize::from(expected == GraphUpdate::TopologyChanged);
            assert_eq!(recorder.count("instantiate"), made);
        }
        assert_eq!((graph.node_count(), graph.edge_count()), (2, 1));
        graph.launch(&s).unwrap();
        assert_eq!(s.download(&x).unwrap(), [6; 1000]);
        assert_eq!(s.download(&y).unwrap(), [2; 1000]);
    });
}

/// A batch of copies is one operation but several nodes. So the nodes' edges may differ although the operations' edges
/// are equal.
#[test]
fn batches_of_other_lengths_are_other_edges() {
    on_both(|_, _, [s, t]| {
        let (x, mut y, mut z) =
            (s.full(10, 1u32).unwrap(), s.full(20, 2u32).unwrap(), s.full(20, 3u32).unwrap());
        let mut record = |s: &Stream, are_two: [bool; 2]| -> Result<()> {
            t.wait(&s.record()?)?;
            for (stream, to, are_two) in [(s, &mut y, are_two[0]), (&t, &mut z, are_two[1])] {
                let mut batch = CopyBatch::new();
                let (left, right) = to.split_at_mut(10)?;
                batch.add(&x, left)?;
                if are_two {
                    batch.add(&x, right)?;
                }
                stream.copy_batch(batch)?;
            }
            Ok(())
        };
        let mut graph = s.capture(|s| record(s, [true, false])).unwrap();
        assert_eq!((graph.node_count(), graph.edge_count()), (3, 1));
        assert_eq!(graph.update(&s, |s| record(s, [false, true])).unwrap(), GraphUpdate::TopologyChanged);
        graph.launch(&s).unwrap();
        let (first, second) = (s.download(&y).unwrap(), s.download(&z).unwrap());
        assert_eq!((&first[..10], &first[10..]), (&[1; 10][..], &[2; 10][..]));
        assert_eq!(second, [1; 20]);
    });
}

/// The nodes run on the part of the device that their stream had, so the driver must keep that part.
#[test]
fn a_stream_on_a_part_is_destroyed_after_the_graphs_that_were_captured_there() {
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let (other, part) = (device.stream().unwrap(), StreamOptions::default().multiprocessors(20));
        let stream = device.stream_with(part).unwrap();
        assert_eq!(stream.multiprocessors(), 24);
        let mut x = other.zeros::<u32>(10).unwrap();
        let graph = stream.capture(|s| s.fill(&mut x, 3)).unwrap();
        let raw = stream.as_raw().0 as u64;
        drop(stream);
        let ((), before) = recorder.record(|| {
            for _ in 0..3 {
                drop(device.stream().unwrap());
                graph.launch(&other).unwrap();
            }
            assert_eq!(other.download(&x).unwrap(), [3; 10]);
        });
        let ((), after) = recorder.record(|| drop((graph, x, other, device)));
        let place = |calls: &[recorder::Call], name: &str, argument: Option<(&str, u64)>| {
            let is_it = |call: &recorder::Call| {
                call.name.contains(name) && argument.is_none_or(|(name, value)| call.arg(name) == value)
            };
            calls.iter().position(is_it)
        };
        let stream = Some(("stream", raw));
        assert_eq!(place(&before, "StreamDestroy", stream), None, "{}: {before:?}", fake.name);
        let exec = place(&after, "GraphExecDestroy", None).unwrap();
        let destroyed = place(&after, "StreamDestroy", stream).unwrap();
        assert!(exec < destroyed, "{}: {after:?}", fake.name);
    });
}
