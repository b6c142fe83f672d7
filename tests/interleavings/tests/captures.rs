//! Captures while other threads work. Shuttle runs each program in many orders: it may switch to another thread at each
//! lock and at each call of the driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod driver;

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::{future::Future, pin::pin};

use driver::{COPY, Driver};
use gpustream::hal::{Image, ParamInfo};
use gpustream::{
    Arg, Buffer, ErrorKind, Event, GlobalMemory, GlobalVariable, Kernel, Launch, ModuleSource, Result,
    Stream, TextureOptions,
};
use shuttle::thread;

/// Runs the program in random orders, and in orders with few switches between threads, because most races need only a
/// few.
fn in_many_orders(program: impl Fn() + Send + Sync + 'static) {
    // Programs take turns, because all devices of the process share some locks.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Arc::new(program);
    let again = program.clone();
    shuttle::check_random(move || program(), 1000);
    shuttle::check_pct(move || again(), 1000, 3);
}

/// Returns the value, or `None` if a capture refused the call. Any other error fails the test.
fn unless_captured<T>(outcome: Result<T>) -> Option<T> {
    outcome.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Captured, "{error}")).ok()
}

/// Makes two empty captures. If another thread's work gets into one, the graph is not empty.
fn capture_nothing(stream: &Stream) {
    for _ in 0..2 {
        if let Some(graph) = unless_captured(stream.capture(|_| Ok(()))) {
            assert_eq!(graph.node_count(), 0, "another thread's work is in the graph");
        }
    }
}

/// Two streams of a device. Another thread may capture `b`.
struct Scene {
    driver: Driver,
    a: Stream,
    b: Arc<Stream>,
    x: Buffer<u32>,
}

impl Scene {
    fn new() -> Self {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), Arc::new(device.stream().unwrap()));
        let x = a.alloc(4).unwrap();
        Self { driver, a, b, x }
    }

    /// Starts a thread that captures `b`.
    fn start_capturing(&self) -> thread::JoinHandle<()> {
        let b = self.b.clone();
        thread::spawn(move || capture_nothing(&b))
    }
}

/// `b.fill` releases the lock of `b` while it takes the lock of `a`. If a capture of `b` begins in between, we must
/// refuse the fill.
#[test]
fn work_that_waits_for_another_stream_stays_out_of_a_capture() {
    in_many_orders(|| {
        let scene = Scene::new();
        let capturing = scene.start_capturing();
        let Scene { driver, a, b, mut x } = scene;
        a.fill(&mut x, 0x0101_0102).unwrap();
        let ran = unless_captured(b.fill(&mut x, 0x0101_0103)).is_some();
        capturing.join().unwrap();
        let want: &[u32] = if ran { &[0x0101_0102, 0x0101_0103] } else { &[0x0101_0102] };
        assert_eq!(driver.steps(), want);
    });
}

/// A wait or a question would break the capture, so the driver must not get one.
#[test]
fn waits_and_questions_are_refused_while_another_thread_captures() {
    let questions: [fn(&Stream) -> Result<()>; 7] = [
        Stream::synchronize,
        |s| s.is_done().map(drop),
        |s| s.record()?.synchronize(),
        |s| s.record_timed()?.synchronize(),
        |s| {
            let mut future = pin!(s.synchronize_async());
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => Ok(()),
            }
        },
        |s| s.device().synchronize(),
        |s| {
            s.device().trim();
            Ok(())
        },
    ];
    for question in questions {
        in_many_orders(move || {
            let scene = Scene::new();
            let capturing = scene.start_capturing();
            let Scene { driver, a, b, mut x } = scene;
            let filled = unless_captured(b.fill(&mut x, 7)).is_some();
            unless_captured(question(&b));
            // Another stream can still wait for what `b` did before its capture.
            a.fill(&mut x, 8).unwrap();
            a.synchronize().unwrap();
            capturing.join().unwrap();
            assert_eq!(driver.steps(), if filled { vec![7, 8] } else { vec![8] });
        });
    }
}

/// On some drivers a capture breaks if you ask about earlier events of its stream, or wait for them. Then the driver
/// must get no such call, and another stream can still wait for the earlier work.
#[test]
fn earlier_events_are_left_alone_while_another_thread_captures() {
    let uses: [fn(&Stream, &Event) -> Result<()>; 2] = [
        |_, event| {
            event.is_done()?;
            event.synchronize()
        },
        |a, event| a.wait(event),
    ];
    for is_shared in [false, true] {
        for with in uses {
            in_many_orders(move || {
                let driver = Driver::closing_events();
                let device = driver.open();
                let a = device.stream().unwrap();
                let b = Arc::new(if is_shared {
                    // SAFETY: the model's streams are never destroyed.
                    unsafe { device.stream_from_raw(driver.foreign_stream()) }
                } else {
                    device.stream().unwrap()
                });
                let mut x = a.alloc::<u32>(4).unwrap();
                b.fill(&mut x, 7).unwrap();
                let event = b.record().unwrap();
                let capturing = thread::spawn({
                    let b = b.clone();
                    move || capture_nothing(&b)
                });
                with(&a, &event).unwrap();
                a.fill(&mut x, 8).unwrap();
                a.synchronize().unwrap();
                capturing.join().unwrap();
                assert_eq!(driver.steps(), [7, 8]);
            });
        }
    }
}

/// A stream that joined the capture must stay captured until the driver has ended the capture, because the driver would
/// still record its work.
#[test]
fn a_stream_that_joined_is_free_only_after_the_driver_has_let_go() {
    in_many_orders(|| {
        let Scene { driver, a, b, mut x } = Scene::new();
        let mut y = a.alloc::<u32>(4).unwrap();
        let joining = b.clone();
        let capturing = thread::spawn(move || {
            let graph = a.capture(|a| {
                joining.wait(&a.record()?)?;
                joining.fill(&mut x, 1)?;
                a.fill(&mut x, 2)
            });
            assert_eq!(graph.unwrap().node_count(), 2);
        });
        let mut ran = 0;
        for _ in 0..2 {
            ran += usize::from(unless_captured(b.fill(&mut y, 3)).is_some());
        }
        capturing.join().unwrap();
        b.fill(&mut y, 4).unwrap();
        assert_eq!(driver.steps(), [vec![3; ran], vec![4]].concat());
    });
}

/// Two handles of the device have a `Stream` for the same stream, and one of the two is dropped during a capture.
#[test]
fn values_of_one_stream_share_its_captures() {
    in_many_orders(|| {
        let driver = Driver::default();
        let (first, second) = (driver.open(), driver.open());
        let raw = driver.foreign_stream();
        // SAFETY: the driver keeps its streams.
        let adopt = move |device: &gpustream::Device| unsafe { device.stream_from_raw(raw) };
        let mut x = second.stream().unwrap().alloc::<u32>(4).unwrap();
        let capturing = thread::spawn(move || {
            let value = adopt(&first);
            capture_nothing(&value);
        });
        let mut ran = 0;
        for _ in 0..2 {
            let value = adopt(&second);
            ran += usize::from(unless_captured(value.fill(&mut x, 3)).is_some());
        }
        capturing.join().unwrap();
        let value = adopt(&second);
        value.fill(&mut x, 4).unwrap();
        value.synchronize().unwrap();
        assert_eq!(driver.steps(), [vec![3; ran], vec![4]].concat());
    });
}

/// We cannot record another event on such a stream, and its last event is dropped once a host thread has waited for it.
#[test]
fn work_of_a_stream_whose_value_is_gone_is_waited_for() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let stream = device.stream().unwrap();
        // SAFETY: the driver keeps its streams.
        let foreign = unsafe { device.stream_from_raw(driver.foreign_stream()) };
        let (mut x, mut y) = (foreign.alloc::<u32>(4).unwrap(), device.pinned::<u32>(4).unwrap());
        foreign.fill(&mut x, 5).unwrap();
        foreign.fill(&mut y, 6).unwrap();
        drop(foreign);
        let waiting = thread::spawn(move || drop(y.read().unwrap()));
        stream.fill(&mut x, 7).unwrap();
        stream.synchronize().unwrap();
        waiting.join().unwrap();
        assert_eq!(driver.steps(), [5, 6, 7]);
    });
}

/// Meanwhile another thread may submit an operation to the same stream that waits for a third stream. The host must not
/// wait for that one.
#[test]
fn the_host_waits_for_its_operation_alone() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), Arc::new(device.stream().unwrap()));
        let (mut x, mut y) = (a.alloc::<u32>(4).unwrap(), device.pinned::<u32>(4).unwrap());
        a.fill(&mut x, 5).unwrap();
        let (other, told) = (b.clone(), driver.clone());
        let waiting = thread::spawn(move || {
            other.fill(&mut y, 6).unwrap();
            drop(y.read().unwrap());
            assert_eq!(told.ran().last(), Some(&6), "the host has waited for more");
        });
        b.fill(&mut x, 7).unwrap();
        waiting.join().unwrap();
    });
}

/// A launch of a graph holds no borrow, so two threads may launch at once. One launch must come before the other, and a
/// reader must wait for both.
#[test]
fn graphs_that_write_the_same_memory_are_ordered() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
        let streams = [a.as_raw(), b.as_raw()];
        let mut x = c.alloc::<u32>(4).unwrap();
        let mut y = c.alloc::<u32>(4).unwrap();
        c.fill(&mut x, 1).unwrap();
        c.synchronize().unwrap();
        let first = a.capture(|a| a.fill(&mut x, 2)).unwrap();
        let second = b.capture(|b| b.fill(&mut x, 3)).unwrap();
        let launching = thread::spawn(move || {
            first.launch(&a).unwrap();
            (first, a)
        });
        second.launch(&b).unwrap();
        let first = launching.join().unwrap();
        assert!(driver.are_ordered(streams));
        c.copy(&x, &mut y).unwrap();
        c.synchronize().unwrap();
        let steps = driver.steps();
        assert_eq!((steps.len(), steps.last()), (4, Some(&COPY)), "{steps:?}");
        drop(first);
    });
}

/// You may write to an array that a texture still refers to, so one thread can write what another thread's kernel
/// fetches.
#[test]
fn a_write_is_ordered_with_another_threads_fetch() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let streams = [a.as_raw(), b.as_raw()];
        let image = Image { backend: "model", targets: &["model"], bytes: &[], symbols: &[] };
        let source = ModuleSource { name: "model", images: &[image], globals: &[] };
        // SAFETY: the model runs no code.
        let module = unsafe { device.load_module(&source) }.unwrap();
        let params = [ParamInfo { offset: 0, size: 8 }, ParamInfo { offset: 8, size: 4 }];
        let kernel = module.kernel_with("fetch", &params).unwrap();
        let mut buffer = device.texel_buffer::<u32>(4).unwrap();
        let texture = buffer.texture(TextureOptions::default()).unwrap();
        let writing = thread::spawn(move || {
            a.fill(&mut buffer, 2).unwrap();
            (a, buffer)
        });
        let args = [Arg::texture(&texture), Arg::value(&3u32)];
        // SAFETY: the model's kernels touch nothing.
        unsafe { kernel.launch(&b, &Launch::covering(4), &args) }.unwrap();
        let kept = writing.join().unwrap();
        assert!(driver.are_ordered(streams));
        drop(kept);
    });
}

/// A launch of a graph holds no borrow, so a guard may be taken at any moment during it. Either the guard waits for the
/// run, or the launch is refused. If the graph only reads, we must not refuse it because of a reader.
#[test]
fn no_graph_writes_what_the_host_reads() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let (mut x, mut host) = (a.alloc::<u32>(4).unwrap(), device.pinned::<u32>(4).unwrap());
        let writes = a.capture(|a| a.fill(&mut host, 2)).unwrap();
        let reads = b.capture(|b| b.copy(&host, &mut x)).unwrap();
        let writing = thread::spawn(move || {
            let outcome = writes.launch(&a);
            (outcome.map_err(|error| error.kind()), writes, a)
        });
        let guard = host.read().unwrap();
        let (outcome, ..) = writing.join().unwrap();
        assert_eq!(driver.pending(), 0, "a graph is about to write under the guard");
        reads.launch(&b).unwrap();
        drop(guard);
        let ran = match outcome {
            Ok(()) => 2,
            Err(kind) => {
                assert_eq!(kind, ErrorKind::HostBorrowed);
                1
            }
        };
        assert_eq!(driver.steps().len(), ran);
    });
}

/// The driver has no room for the graph's launch, so the launching thread is stuck. A guard that does not conflict with
/// the graph must not wait for that thread.
#[test]
fn guards_wait_for_no_room() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let a = device.stream().unwrap();
        let mut x = a.alloc::<u32>(4).unwrap();
        let (mut read, mut half) = (device.pinned::<u32>(4).unwrap(), device.pinned::<u32>(8).unwrap());
        let graph = a.capture(|a| {
            a.copy(&read, &mut x)?;
            a.fill(&mut half.slice_mut(..4)?, 3)
        });
        let graph = graph.unwrap();
        driver.set_full(true);
        let launching = thread::spawn(move || {
            graph.launch(&a).unwrap();
            (graph, a)
        });
        driver.until_waited_for();
        drop((read.read().unwrap(), read.try_read().unwrap()));
        drop(half.slice(4..).unwrap().read().unwrap());
        drop(half.slice_mut(4..).unwrap().write().unwrap());
        assert_eq!(driver.pending(), 0, "the launch waits for room");
        driver.set_full(false);
        drop(read.write().unwrap());
        assert_eq!(driver.ran(), [COPY, 3], "a writer waits for the run");
        let kept = launching.join().unwrap();
        drop(kept);
    });
}

/// Drivers do not lock their graphs, so the library must.
#[test]
fn one_graph_is_launched_by_one_thread_at_a_time() {
    in_many_orders(|| {
        let Scene { driver, a, b, mut x } = Scene::new();
        let graph = Arc::new(a.capture(|a| a.fill(&mut x, 2)).unwrap());
        let same = graph.clone();
        let launching = thread::spawn(move || same.launch(&a).unwrap());
        graph.launch(&b).unwrap();
        launching.join().unwrap();
        assert_eq!(driver.steps(), [2, 2]);
    });
}

/// Another thread drops a buffer of a recording and allocates: before the recording ends, while it ends, or after it.
#[test]
fn memory_of_a_recording_stays_inside_it() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let handed = Arc::new(shuttle::sync::Mutex::new(None::<Buffer<u32>>));
        let taken = handed.clone();
        let dropping = thread::spawn(move || {
            let buffer = taken.lock().unwrap().take();
            drop(buffer);
            b.alloc::<u32>(4).unwrap()
        });
        let mut addresses = Vec::new();
        let graph = a.capture(|a| {
            for value in 1..4 {
                let mut temporary = a.alloc::<u32>(4)?;
                a.fill(&mut temporary, value)?;
                addresses.push(temporary.as_raw());
                if value == 1 {
                    *handed.lock().unwrap() = Some(temporary);
                }
            }
            Ok(())
        });
        let graph = graph.unwrap();
        graph.launch(&a).unwrap();
        let others = (dropping.join().unwrap(), a.alloc::<u32>(4).unwrap());
        assert!(![others.0.as_raw(), others.1.as_raw()].iter().any(|other| addresses.contains(other)));
        let late = handed.lock().unwrap().take();
        drop((late, graph, others));
        a.synchronize().unwrap();
        device.trim();
        assert_eq!((driver.steps(), device.memory_stats().live), (vec![1, 2, 3], 0));
    });
}

/// The other thread gets the memory while the step still holds back the operations on it.
#[test]
fn operations_held_back_are_seen_by_other_threads() {
    in_many_orders(|| {
        let Scene { driver, a, b, x } = Scene::new();
        let device = a.device().clone();
        let mut y = a.alloc::<u32>(4).unwrap();
        // The memory, and the value that was submitted last.
        let shared = Arc::new(shuttle::sync::Mutex::new((x, 0)));
        let (handed, told) = (shared.clone(), driver.clone());
        let reading = thread::spawn(move || {
            let mut z = b.alloc::<u32>(4).unwrap();
            let mut shared = handed.lock().unwrap();
            let (x, last) = &mut *shared;
            if *last > 0 {
                b.copy(x, &mut z).unwrap();
                b.synchronize().unwrap();
                let ran = told.ran();
                let copied = ran.iter().position(|step| *step == COPY).unwrap();
                assert!(ran[..copied].contains(last), "{ran:?} lacks {last}");
            }
        });
        let mut step = device.replay();
        for value in 1..4 {
            step.run(&a, |s| {
                let mut shared = shared.lock().unwrap();
                s.fill(&mut shared.0, value)?;
                shared.1 = value;
                drop(shared);
                s.fill(&mut y, 10 + value)
            })
            .unwrap();
        }
        reading.join().unwrap();
        let steps: Vec<u32> = driver.steps().into_iter().filter(|step| *step != COPY).collect();
        assert_eq!(steps, [1, 11, 2, 12, 3, 13]);
        assert_eq!(step.stats().runs, 3);
    });
}

/// Another thread launches a graph, which holds no borrow and writes what the step's kernels write. This is hard,
/// because a kernel of a step looks at its memory only if no earlier kernel of the same segment did.
#[test]
fn kernels_held_back_are_ordered_with_another_threads_graph() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let streams = [a.as_raw(), b.as_raw()];
        let image = Image { backend: "model", targets: &["model"], bytes: &[], symbols: &[] };
        let source = ModuleSource { name: "model", images: &[image], globals: &[] };
        // SAFETY: the model runs no code.
        let module = unsafe { device.load_module(&source) }.unwrap();
        let params = [ParamInfo { offset: 0, size: 8 }, ParamInfo { offset: 8, size: 4 }];
        let kernel = module.kernel_with("write", &params).unwrap();
        let x = Arc::new(shuttle::sync::Mutex::new(a.alloc::<u32>(4).unwrap()));
        let mut step = device.replay();
        let mut run = |x: &shuttle::sync::Mutex<Buffer<u32>>| {
            step.run(&a, |s| {
                (1..4u32).try_for_each(|value| {
                    let x = &mut *x.lock().unwrap();
                    // SAFETY: the model's kernels touch nothing.
                    unsafe { kernel.launch(s, &Launch::covering(4), &[Arg::write(x), Arg::value(&value)]) }
                })
            })
            .unwrap();
        };
        run(&x);
        let shared = x.clone();
        let launching = thread::spawn(move || {
            let graph = b.capture(|b| b.fill(&mut *shared.lock().unwrap(), 9)).unwrap();
            graph.launch(&b).unwrap();
            (graph, b)
        });
        run(&x);
        run(&x);
        let kept = launching.join().unwrap();
        assert!(driver.are_ordered(streams));
        let steps: Vec<u32> = driver.steps().into_iter().filter(|step| *step != 9).collect();
        assert_eq!(steps, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
        drop(kept);
    });
}

/// Kernels use their module's variables without a borrow, so two threads may launch at once. One launch must come
/// before the other.
#[test]
fn launches_that_share_variables_are_ordered() {
    in_many_orders(|| {
        let driver = Driver::default();
        let device = driver.open();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let streams = [a.as_raw(), b.as_raw()];
        let image = Image { backend: "model", targets: &["model"], bytes: &[], symbols: &[] };
        let variables = [GlobalVariable { name: "counter", memory: GlobalMemory::Device }];
        let source = ModuleSource { name: "model", images: &[image], globals: &variables };
        // SAFETY: the model runs no code.
        let module = unsafe { device.load_module(&source) }.unwrap();
        let params = [ParamInfo { offset: 0, size: 8 }, ParamInfo { offset: 8, size: 4 }];
        let kernel = module.kernel_with("write", &params).unwrap();
        let launch = |stream: &Stream, kernel: &Kernel, value: u32| {
            let mut own = stream.alloc::<u32>(4).unwrap();
            let args = [Arg::write(&mut own), Arg::value(&value)];
            // SAFETY: the model's kernels touch nothing.
            unsafe { kernel.launch(stream, &Launch::covering(4), &args) }.unwrap();
            own
        };
        let of_thread = kernel.clone();
        let launching = thread::spawn(move || (launch(&a, &of_thread, 1), a));
        let kept = (launch(&b, &kernel, 2), b);
        let others = launching.join().unwrap();
        assert!(driver.are_ordered(streams));
        drop((kept, others));
    });
}

#[test]
fn steps_stay_out_of_another_threads_capture() {
    in_many_orders(|| {
        let Scene { driver, b, mut x, .. } = Scene::new();
        let capturing = {
            let b = b.clone();
            thread::spawn(move || capture_nothing(&b))
        };
        let mut step = b.device().replay();
        let mut want = Vec::new();
        for value in 1..4 {
            let _ = unless_captured(step.run(&b, |s| {
                s.fill(&mut x, value)?;
                want.push(value);
                s.fill(&mut x, 10 + value)?;
                want.push(10 + value);
                Ok(())
            }));
        }
        capturing.join().unwrap();
        assert_eq!(driver.steps(), want);
    });
}
