//! The driver calls of a replayed step, on drivers that log them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

use gpustream::hal::FillPattern;
use gpustream::{Arg, Buffer, Device, Error, ErrorKind, Kernel, Launch, ParamInfo, Replay, Result, Stream};
use recorder::{Call, Recorder};

use crate::fakes::{Fake, ONE, increment, load_kernels, load_module, on_each, run_kernel, words};

/// A device, and a step of two kernels and a fill.
struct Scene<'a> {
    recorder: &'a Recorder,
    device: Device,
    stream: Stream,
    kernel: Kernel,
    x: Buffer<u32>,
    y: Buffer<u32>,
    step: Replay,
}

impl<'a> Scene<'a> {
    fn new(fake: &Fake, recorder: &'a Recorder) -> Self {
        let device = Device::open(fake.name).unwrap();
        run_kernel(recorder);
        let module = load_module(fake, &device).unwrap();
        let kernel = module.kernel_with("increment", &SIZES).unwrap();
        let stream = device.stream().unwrap();
        let (x, y) = (stream.full(100, 1u32).unwrap(), stream.full(100, 1u32).unwrap());
        device.synchronize().unwrap();
        let step = device.replay();
        Self { recorder, device, stream, kernel, x, y, step }
    }

    /// Runs the step with `value`, and returns the calls in words that both vendors share.
    fn run(&mut self, value: u32) -> Vec<&'static str> {
        let Self { recorder, stream, kernel, x, y, step, .. } = self;
        let (outcome, calls) = recorder.record(|| {
            step.run(stream, |s| {
                s.fill(y, value)?;
                increment(kernel, s, ONE, x)?;
                increment(kernel, s, ONE, y)
            })
        });
        outcome.unwrap();
        words(&calls)
    }

    fn check(&self, x: u32, y: u32) {
        assert_eq!(self.stream.download(&self.x).unwrap(), [x; 100]);
        assert_eq!(self.stream.download(&self.y).unwrap(), [y; 100]);
    }
}

/// The kernel's parameters. We must give their sizes, because HIP cannot say them.
const SIZES: [ParamInfo; 2] = [ParamInfo { offset: 0, size: 8 }, ParamInfo { offset: 8, size: 8 }];

const PLAIN: [&str; 3] = ["fill", "launch", "launch"];

#[test]
fn unchanged_run_is_one_call_and_a_changed_value_one_more() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        assert_eq!(scene.run(7), PLAIN, "the first run submits each operation");
        let recorded = scene.run(7);
        let count = |word| recorded.iter().filter(|call| **call == word).count();
        assert_eq!((count("GraphCreate"), count("instantiate"), count("GraphAddKernelNode")), (1, 1, 2));
        assert_eq!(recorded.last(), Some(&"GraphLaunch"));
        assert!(!recorded.contains(&"launch"));
        assert_eq!(scene.run(7), ["GraphLaunch"]);
        assert_eq!(scene.run(8), ["GraphExecMemsetNodeSetParams", "GraphLaunch"]);
        assert_eq!(scene.run(8), ["GraphLaunch"]);
        scene.check(1 + 5, 9);
    });
}

/// The second run records the other library's calls as one node of its graph, and from then on nothing is called.
#[test]
fn recorded_calls_are_part_of_the_one_launch() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        let made = Cell::new(0);
        let mut run = |key: u64| {
            let Scene { recorder, device, stream, kernel, x, y, step } = &mut scene;
            let theirs = |raw, [to]: [_; 1]| {
                made.set(made.get() + 1);
                // SAFETY: memory and stream are alive.
                unsafe { device.raw().fill(to, FillPattern::U32(key as u32), 100, raw) }
            };
            let (outcome, calls) = recorder.record(|| {
                step.run(stream, |s| {
                    // SAFETY: the fill goes to the stream that is given, writes `y` alone, and depends on the key.
                    unsafe { s.external_keyed("theirs", &[Arg::write(y)], key, theirs) }?;
                    increment(kernel, s, ONE, x)?;
                    increment(kernel, s, ONE, y)
                })
            });
            outcome.unwrap();
            assert_eq!(stream.download(y).unwrap(), [key as u32 + 1; 100]);
            words(&calls)
        };
        assert_eq!(run(7), PLAIN, "the first run submits each operation");
        let recorded = run(7);
        let count = |word| recorded.iter().filter(|call| **call == word).count();
        assert_eq!((count("GraphAddChildGraphNode"), count("GraphAddKernelNode")), (1, 2), "{recorded:?}");
        assert_eq!((count("instantiate"), count("launch")), (1, 0), "{recorded:?}");
        assert_eq!(recorded.last(), Some(&"GraphLaunch"));
        assert_eq!(run(7), ["GraphLaunch"]);
        assert_eq!(run(7), ["GraphLaunch"]);
        assert_eq!(made.get(), 2);
        assert_eq!(run(8), PLAIN, "another key is another operation");
        assert_eq!(made.get(), 3);
        run(8);
        assert_eq!((run(8), made.get()), (vec!["GraphLaunch"], 4));
    });
}

#[test]
fn value_that_came_with_other_memory_is_not_taken_for_the_nodes() {
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        recorder.on_kernel("store", |run| {
            // SAFETY: the launch passes memory of one such element.
            unsafe { run.pointer::<u64>(1).write(run.integer(0)) };
            true
        });
        let module = load_kernels(fake, &device, &[("store", &[8, 8])]).unwrap();
        let kernel = module.kernel_with("store", &SIZES).unwrap();
        let stream = device.stream().unwrap();
        let mut memory = [stream.full(1, 0u64).unwrap(), stream.full(1, 0u64).unwrap()];
        let mut step = device.replay();
        let mut store = |value: u64, at: usize| {
            let (outcome, calls) = recorder.record(|| {
                let args = [Arg::value(&value), Arg::write(&mut memory[at])];
                // SAFETY: the kernel writes the one element.
                step.run(&stream, |s| unsafe { kernel.launch(s, &ONE, &args) })
            });
            outcome.unwrap();
            assert_eq!(stream.download(&memory[at]).unwrap(), [value]);
            words(&calls)
        };
        for _ in 0..2 {
            store(7, 0);
        }
        // The last launch had the value 8 too, but with other memory. This node still has 7, so it must be set.
        store(8, 1);
        assert_eq!(store(8, 0), ["GraphExecKernelNodeSetParams", "GraphLaunch"]);
    });
}

#[test]
fn node_keeps_the_last_shape_that_it_was_given() {
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        recorder.on_kernel("increment", |run| {
            // SAFETY: the launch passes memory of one such element.
            unsafe { run.pointer::<u64>(0).write(u64::from(run.grid[0]) << 32 | run.integer(1)) };
            true
        });
        let module = load_module(fake, &device).unwrap();
        let kernel = module.kernel_with("increment", &SIZES).unwrap();
        let stream = device.stream().unwrap();
        let mut memory: [_; 6] = std::array::from_fn(|_| stream.full(1, 0u64).unwrap());
        let mut step = device.replay();
        let mut run = |blocks: u32, value: u64, at: usize| {
            let (outcome, calls) = recorder.record(|| {
                let args = [Arg::write(&mut memory[at]), Arg::value(&value)];
                let launch = Launch::new([blocks, 1, 1], [1, 1, 1]);
                // SAFETY: the kernel writes the one element.
                step.run(&stream, |s| unsafe { kernel.launch(s, &launch, &args) })
            });
            outcome.unwrap();
            assert_eq!(stream.download(&memory[at]).unwrap(), [u64::from(blocks) << 32 | value]);
            // Later calls may destroy graphs that are not needed any more, so we leave them out.
            calls.iter().map(Call::word).take(2).collect::<Vec<_>>()
        };
        // A step keeps four graphs side by side. If other memory comes after that, one of the graphs must take it.
        for at in [0, 0, 1, 1, 2, 2, 3, 3] {
            run(1, 7, at);
        }
        let set = ["GraphExecKernelNodeSetParams", "GraphLaunch"];
        assert_eq!(run(2, 7, 0), set, "earlier memory in another shape");
        assert_eq!(run(2, 7, 4), set, "other memory in another shape");
        assert_eq!(run(2, 7, 5), set, "other memory alone");
        assert_eq!(run(2, 8, 5), set, "another value, in the shape that the node has now");
        assert_eq!(run(3, 8, 5), set, "another shape alone");
        assert_eq!(run(3, 9, 5), set, "another value of that");
    });
}

#[test]
fn driver_that_refuses_a_graph_gets_the_operations() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        assert_eq!(scene.run(7), PLAIN);
        recorder.fail_next("instantiate", 801);
        let calls = scene.run(7);
        assert_eq!(calls.iter().filter(|call| PLAIN.contains(call)).count(), 3);
        assert!(recorder.disarm());
        assert_eq!(scene.run(7), PLAIN, "the driver is not asked again");
        assert!(scene.step.fallback().unwrap().contains("refused"));
        scene.check(1 + 3, 8);
    });
}

#[test]
fn driver_that_refuses_a_change_gets_the_operations() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        for _ in 0..3 {
            scene.run(7);
        }
        recorder.fail_next("GraphExecMemsetNodeSetParams", 1);
        let calls = scene.run(8);
        assert_eq!(calls[0], "GraphExecMemsetNodeSetParams");
        assert_eq!(calls.iter().filter(|call| PLAIN.contains(call)).count(), 3, "{calls:?}");
        scene.check(1 + 4, 9);
        scene.run(8);
        assert_eq!(scene.run(8), ["GraphLaunch"]);
        assert_eq!(scene.step.stats().recordings, 2);
        scene.check(1 + 6, 9);
    });
}

#[test]
fn failed_launch_is_the_runs_error() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        for _ in 0..3 {
            scene.run(7);
        }
        recorder.fail_next("GraphLaunch", 2);
        let Scene { stream, x, kernel, step, y, .. } = &mut scene;
        let error = step
            .run(stream, |s| {
                s.fill(y, 7)?;
                increment(kernel, s, ONE, x)?;
                increment(kernel, s, ONE, y)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.to_string().contains("fill"), "{error}");
        scene.check(1 + 3, 8);
        assert_eq!(scene.run(7), ["GraphLaunch"]);
        scene.check(1 + 4, 8);
    });
}

/// The driver refused first, so you must hear of that first, as you would without the step.
#[test]
fn refusal_is_reported_before_the_closures_error_and_after_its_panic() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        for _ in 0..3 {
            scene.run(7);
        }
        let Scene { stream, x, kernel, step, y, .. } = &mut scene;
        let mut submit = |s: &Stream| {
            s.fill(y, 7)?;
            increment(kernel, s, ONE, x)?;
            increment(kernel, s, ONE, y)
        };
        recorder.fail_next("GraphLaunch", 2);
        let own = |s: &Stream| submit(s).and(Err::<(), _>(Error::new(ErrorKind::InvalidArgument, "its own")));
        assert_eq!(step.run(stream, own).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(recorder.disarm());

        recorder.fail_next("GraphLaunch", 2);
        let panics = |s: &Stream| submit(s).map(|()| panic::resume_unwind(Box::new("on purpose")));
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| step.run::<()>(stream, panics)));
        assert!(outcome.is_err() && recorder.disarm());
        let error = stream.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        stream.synchronize().unwrap();
        scene.check(1 + 3, 8);
    });
}

#[test]
fn memory_made_inside_is_the_drivers_in_the_first_run_alone() {
    on_each(|fake, recorder| {
        let Scene { stream, kernel, mut step, .. } = Scene::new(fake, recorder);
        for run in 0..6 {
            let (outcome, calls) = recorder.record(|| {
                step.run(&stream, |s| {
                    for _ in 0..3 {
                        let mut temporaries = [s.alloc::<u32>(100)?, s.alloc(5000)?, s.alloc(1 << 20)?];
                        for memory in &mut temporaries {
                            s.fill(memory, 1)?;
                            increment(&kernel, s, ONE, memory)?;
                        }
                    }
                    Ok(())
                })
            });
            outcome.unwrap();
            let words = words(&calls);
            let drivers = words.iter().filter(|word| word.contains("lloc")).count();
            assert!(run == 0 || drivers == 0, "run {run}: {words:?}");
            assert!(run < 2 || words == ["GraphLaunch"], "run {run}: {words:?}");
        }
    });
}

#[test]
fn operation_that_fails_by_itself_is_named_and_ends_the_run() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        for _ in 0..3 {
            scene.run(7);
        }
        recorder.fail_next("launch", 701);
        let Scene { stream, x, kernel, step, .. } = &mut scene;
        // The second operation is not the expected one, so the first one must be submitted by itself.
        let run = |s: &Stream| -> Result<()> {
            increment(kernel, s, ONE, x)?;
            s.synchronize()
        };
        let error = step.run(stream, run).unwrap_err();
        assert_eq!(error.code(), Some(701), "{error}");
        assert!(error.to_string().contains("increment"), "{error}");
        assert_eq!(scene.run(7), ["GraphLaunch"]);
        scene.check(1 + 4, 8);
    });
}

#[test]
fn memory_that_went_back_to_the_driver_is_set_anew() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        for _ in 0..3 {
            scene.run(7);
        }
        drop(scene.stream.alloc::<u8>(256 << 20).unwrap());
        scene.device.synchronize().unwrap();
        assert!(scene.device.trim() > 0);
        // The driver looks at a fill's memory when you make or set the node, but never at a kernel's memory.
        assert_eq!(scene.run(7), ["GraphExecMemsetNodeSetParams", "GraphLaunch"]);
        assert_eq!(scene.run(7), ["GraphLaunch"]);
        scene.check(1 + 5, 8);
    });
}

#[test]
fn modules_of_former_runs_are_unloaded() {
    on_each(|fake, recorder| {
        let mut scene = Scene::new(fake, recorder);
        let before = recorder.live().modules;
        for _ in 0..40 {
            let Scene { device, stream, x, step, .. } = &mut scene;
            let kernel = load_module(fake, device).unwrap().kernel_with("increment", &SIZES).unwrap();
            let run = |s: &Stream| {
                s.fill(x, 7)?;
                increment(&kernel, s, ONE, x)
            };
            step.run(stream, run).unwrap();
            stream.synchronize().unwrap();
        }
        // A step keeps a few courses side by side, so a few modules may stay.
        assert!(recorder.live().modules <= before + 5, "{:?}", recorder.live());
        scene.check(8, 1);
    });
}
