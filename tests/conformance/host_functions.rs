//! Host closures run in stream order. Whatever they do, they may delay only their own stream.

use std::panic;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};

use conformance::executor::{block_on, is_pending};
use conformance::toolbox::{Answers, Toolbox};
use conformance::{
    Gate, ONE, assert_all, kernels_and_streams, next, open_again, refused, runs_beside_closures,
    streams_are_independent, sync, synchronize, tests, until,
};
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, Event, Graph, Pinned, Result, Stream};

use crate::graphs::usable;

tests! {
    Plain: closures_run_in_order, later_work_waits_for_closures, a_panic_is_reported_by_the_next_wait,
        a_panic_of_a_node_is_reported_by_the_next_wait, a_panic_that_panics_when_dropped_is_reported,
        a_panic_is_reported_where_its_run_was_launched, a_future_of_two_streams_reports_a_panic_of_either,
        closures_of_several_streams_run_at_once_if_the_device_can,
        a_closure_may_drop_the_last_handles_of_everything, a_node_may_drop_the_last_handles_of_everything,
        library_calls_of_a_closure_are_refused, library_calls_of_a_node_are_refused,
        memory_of_earlier_work_can_be_read, memory_of_other_work_is_refused;
    Plain if runs_beside_closures: a_blocked_closure_holds_up_its_stream_alone,
        a_blocked_node_holds_up_its_launch_alone, a_node_may_drop_its_own_graph;
}

const N: usize = 3000;

fn closures_run_in_order(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..100 {
        let order = order.clone();
        s.host_fn(move || order.lock().unwrap().push(number))?;
    }
    s.synchronize()?;
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
    Ok(())
}

/// A closure delays its stream as a kernel does.
fn later_work_waits_for_closures(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut done = device.flag()?;
    let (open, closed) = mpsc::channel::<()>();
    let seen = done.clone();
    let early = Arc::new(AtomicU32::new(0));
    let early_in = early.clone();
    s.host_fn(move || {
        let _ = closed.recv();
        early_in.store(seen.get() + 1, Ordering::SeqCst);
    })?;
    kernels.raise_flag(&s, &ONE, &mut done, 7)?;
    assert!(!s.is_done()?);
    drop(open);
    s.synchronize()?;
    assert_eq!(early.load(Ordering::SeqCst), 1, "the kernel ran before the closure had ended");
    assert_eq!(done.get(), 7);
    Ok(())
}

fn panicking() {
    panic::resume_unwind(Box::new("on purpose"));
}

/// Checks that each kind of wait reports a panic once, and that the work around the closure is done. `submit` puts the
/// panicking closure on a stream.
fn panics_reach_waits(device: &Device, submit: impl Fn(&Stream) -> Result<()>) -> Result<()> {
    type Wait = fn(&Device, &Stream, &Event, &Pinned<u32>) -> Result<()>;
    let waits: &[(&str, Wait)] = &[
        ("stream", |_, s, _, _| s.synchronize()),
        ("event", |_, _, event, _| event.synchronize()),
        ("device", |device, _, _, _| synchronize(device)),
        ("guard", |_, _, _, host| host.read().map(drop)),
        ("query", |_, s, _, _| {
            while !s.is_done()? {}
            Ok(())
        }),
        ("download", |_, s, _, host| s.download(host).map(drop)),
        ("future of the stream", |_, s, _, _| block_on(s.synchronize_async())),
        ("future of the event", |_, _, event, _| block_on(event.synchronize_async())),
        ("future of the memory", |_, _, _, host| block_on(host.synchronize_async())),
    ];
    let (kernels, [s, beside]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut host = device.pinned::<u32>(N)?;
    for (what, wait) in waits {
        s.fill(&mut x, 1)?;
        submit(&s)?;
        kernels.step(&s, &mut x, 2, N)?;
        s.copy(&x, &mut host)?;
        let event = s.record()?;
        let Err(error) = wait(device, &s, &event, &host) else { panic!("{what}: no word of the panic") };
        assert_eq!(error.kind(), ErrorKind::HostPanic, "{what}: {error}");
        assert!(error.message().contains("on purpose"), "{what}: {error}");
        wait(device, &s, &event, &host).unwrap_or_else(|error| panic!("{what}: once more: {error}"));
        assert_eq!(*host.read()?, [7; N], "{what}: what comes after it is done");
        beside.synchronize()?;
    }
    usable(device, &[&s, &beside])
}

fn a_panic_is_reported_by_the_next_wait(device: &Device) -> Result<()> {
    panics_reach_waits(device, |s| s.host_fn(panicking))
}

/// When the future first looks, the stream with the panic is done, and the other one is not.
fn a_future_of_two_streams_reports_a_panic_of_either(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (x, y) = (a.full(N, 3u32)?, b.full(N, 3u32)?);
    let (mut host, mut done) = (device.pinned::<u32>(2 * N)?, device.flag()?);
    a.host_fn(panicking)?;
    a.copy(&x, &mut host.slice_mut(..N)?)?;
    kernels.raise_flag(&a, &ONE, &mut done, 1)?;
    until(|| Ok(done.get() == 1))?;
    let gate = Gate::new(device)?;
    gate.hold(&kernels, &b)?;
    b.copy(&y, &mut host.slice_mut(N..)?)?;
    let mut ready = host.synchronize_async();
    assert!(is_pending(&mut ready));
    gate.open();
    refused(block_on(ready), ErrorKind::HostPanic, &["on purpose"]);
    assert!(host.read()?.iter().all(|&value| value == 3));
    Ok(())
}

fn a_panic_of_a_node_is_reported_by_the_next_wait(device: &Device) -> Result<()> {
    let graph = Mutex::new(None);
    panics_reach_waits(device, |s| {
        let graph = &mut *graph.lock().unwrap();
        if graph.is_none() {
            *graph = Some(s.capture(|s| s.host_fn_repeat(panicking))?);
        }
        graph.as_ref().unwrap().launch(s)
    })
}

/// The stream that launched this run must report the panic. The streams of other runs must not.
fn a_panic_is_reported_where_its_run_was_launched(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let runs = Arc::new(AtomicU32::new(0));
    let begun = runs.clone();
    let graph = a.capture(|s| {
        s.host_fn_repeat(move || {
            if begun.fetch_add(1, Ordering::SeqCst) == 1 {
                panicking();
            }
        })
    })?;
    let gate = Gate::on(&kernels, &a)?;
    for stream in [&b, &a, &b] {
        // The runs follow each other, so the first one may already be done.
        graph.launch(stream)?;
    }
    gate.open();
    b.synchronize()?;
    refused(a.synchronize(), ErrorKind::HostPanic, &["on purpose"]);
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    usable(device, &[&a, &b])
}

fn a_panic_that_panics_when_dropped_is_reported(device: &Device) -> Result<()> {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic::resume_unwind(Box::new("again"));
        }
    }
    let s = device.stream()?;
    s.host_fn(|| panic::resume_unwind(Box::new(Bomb)))?;
    refused(s.synchronize(), ErrorKind::HostPanic, &["no message"]);
    let held = Bomb;
    s.host_fn(move || drop(held))?;
    refused(s.synchronize(), ErrorKind::HostPanic, &["again"]);
    usable(device, &[&s])
}

/// Checks that other streams accept work while `block` delays `s`. If streams are independent, their work must also
/// finish meanwhile, and every kind of wait must return. Otherwise that happens once `s` goes on.
fn others_go_on(device: &Device, s: &Stream, block: impl Fn(Receiver<()>) -> Result<()>) -> Result<()> {
    let beside = streams_are_independent(device);
    let kernels = sync::Kernels::load(device)?;
    let streams = [device.stream()?, device.stream()?];
    let mut mine = s.full(N, 1u32)?;
    let mut theirs = [streams[0].full(N, 1u32)?, streams[1].full(N, 1u32)?];
    let mut host = device.pinned::<u32>(N)?;
    s.synchronize()?;
    let mut want = 1u32;
    for value in 0..3 {
        let (open, closed) = mpsc::channel();
        block(closed)?;
        kernels.step(s, &mut mine, value, N)?;
        let after = s.record()?;
        want = next(want, value);
        assert!(!s.is_done()? && !after.is_done()?, "it is blocked");
        for (stream, x) in streams.iter().zip(&mut theirs) {
            kernels.step(stream, x, value, N)?;
            if beside {
                stream.record()?.synchronize()?;
                stream.copy(x, &mut host)?;
                assert_eq!(*host.read()?, [want; N]);
                block_on(stream.synchronize_async())?;
                stream.synchronize()?;
                assert_all(stream, x, want)?;
                assert!(!s.is_done()? && !after.is_done()?, "it is blocked");
            }
        }
        drop(open);
        assert_all(&streams[0], &theirs[0], want)?;
        assert_all(&streams[1], &theirs[1], want)?;
        assert_all(s, &mine, want)?;
    }
    Ok(())
}

fn a_blocked_closure_holds_up_its_stream_alone(device: &Device) -> Result<()> {
    let s = device.stream()?;
    others_go_on(device, &s, |closed| {
        s.host_fn(move || {
            let _ = closed.recv();
        })
    })
}

fn a_blocked_node_holds_up_its_launch_alone(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let door = Arc::new(Mutex::new(None::<Receiver<()>>));
    let inside = door.clone();
    let graph = s.capture(|s| {
        s.host_fn_repeat(move || {
            let closed = inside.lock().unwrap().take();
            let _ = closed.map(|closed| closed.recv());
        })
    })?;
    others_go_on(device, &s, |closed| {
        *door.lock().unwrap() = Some(closed);
        graph.launch(&s)
    })
}

/// On other devices closures run one after the other, so there a closure must not wait for another one.
fn closures_of_several_streams_run_at_once_if_the_device_can(device: &Device) -> Result<()> {
    let streams = (0..3).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let arrived = Arc::new(AtomicU32::new(0));
    let all = if device.info().features.concurrent_host_functions { streams.len() as u32 } else { 1 };
    for s in &streams {
        let arrived = arrived.clone();
        s.host_fn(move || {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < all {
                std::thread::yield_now();
            }
        })?;
    }
    streams.iter().try_for_each(Stream::synchronize)?;
    assert_eq!(arrived.load(Ordering::SeqCst), 3);
    Ok(())
}

/// Makes one value of each kind, with work pending. Only these values keep the device open.
fn one_of_each(device: Device) -> Result<(Arc<Stream>, impl Send)> {
    let s = Arc::new(device.stream()?);
    let kernels = sync::Kernels::load(&device)?;
    let mut x = s.full(N, 1u32)?;
    let mut tools = Toolbox::new(&device, &s)?;
    let gate = Gate::adding(&kernels, &s, &mut x, 1)?;
    let graph = s.capture(|s| kernels.step(s, &mut x, 1, N))?;
    graph.launch(&s)?;
    let registered = device.register(vec![1u32; N])?;
    let default = device.default_stream(gpustream::DefaultStream::Legacy)?;
    let download = s.download_async(&x);
    let events = (0..100).map(|_| s.record()).collect::<Result<Vec<_>>>()?;
    let timed = s.record_timed()?;
    let builder = device.graph_builder()?;
    tools.submit()?;
    gate.open();
    let held = (kernels, x, tools, graph, registered, default, download, events, timed, builder, gate);
    Ok((s, (held, device)))
}

/// Waits until the library's thread has dropped what earlier closures left to it. When it frees memory, the driver may
/// wait until the device is idle and block all other calls. If a closure then waits for a thread in such a call,
/// neither ever returns.
fn wait_for_what_is_left(device: &Device) -> Result<()> {
    // The same thread drops owners of foreign memory, and does so in order. So when this owner is gone, everything
    // before it is gone too.
    let (owner, gone) = mpsc::channel::<()>();
    // SAFETY: there is no memory.
    drop(unsafe { Buffer::<u32>::from_raw(&device.stream()?, ptr::null_mut(), 0, owner) }?);
    assert!(gone.recv().is_err());
    Ok(())
}

/// Runs a closure that drops the last handles of everything. It gets them while it runs. `submit` puts the closure on
/// the stream. If that makes a graph, `submit` returns it, and the closure drops it too.
fn drop_everything_inside(
    device: &Device,
    submit: impl Fn(&Stream, Box<dyn Fn() + Send + Sync>) -> Result<Option<Graph>>,
) -> Result<()> {
    for _ in 0..3 {
        wait_for_what_is_left(device)?;
        let (s, held) = one_of_each(open_again(device, DeviceOptions::default())?)?;
        let (give, take) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (take, tell) = (Mutex::new(take), Mutex::new(tell));
        let closure = Box::new(move || {
            drop(take.lock().unwrap().recv());
            let _ = tell.lock().unwrap().send(());
        });
        let graph = submit(&s, closure)?;
        assert!(give.send((s, graph, held)).is_ok());
        assert_eq!(told.recv(), Ok(()));
    }
    usable(device, &[&device.stream()?])
}

fn a_closure_may_drop_the_last_handles_of_everything(device: &Device) -> Result<()> {
    drop_everything_inside(device, in_a_closure)
}

fn a_node_may_drop_the_last_handles_of_everything(device: &Device) -> Result<()> {
    drop_everything_inside(device, in_a_node)
}

fn in_a_closure(s: &Stream, closure: Box<dyn Fn() + Send + Sync>) -> Result<Option<Graph>> {
    s.host_fn(closure)?;
    Ok(None)
}

fn in_a_node(s: &Stream, closure: Box<dyn Fn() + Send + Sync>) -> Result<Option<Graph>> {
    let graph = s.capture(|s| s.host_fn_repeat(closure))?;
    graph.launch(s)?;
    Ok(Some(graph))
}

/// The closure also drops the stream, while launches of the graph are pending.
fn a_node_may_drop_its_own_graph(device: &Device) -> Result<()> {
    wait_for_what_is_left(device)?;
    let (kernels, [beside]) = kernels_and_streams(device)?;
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    let (give, take) = mpsc::channel::<(Graph, Stream)>();
    let (tell, told) = mpsc::channel();
    let (take, tell) = (Mutex::new(take), Mutex::new(tell));
    let graph = s.capture(|s| {
        s.host_fn_repeat(move || {
            if let Ok(own) = take.lock().unwrap().recv() {
                drop(own);
                let _ = tell.lock().unwrap().send(());
            }
        })?;
        kernels.step(s, &mut x, 1, N)
    })?;
    graph.launch(&s)?;
    graph.launch(&s)?;
    give.send((graph, s)).unwrap();
    drop(give);
    assert_eq!(told.recv(), Ok(()));
    assert_eq!(beside.download(&x)?, [31; N]);
    usable(device, &[&beside])
}

/// Makes every call of the library inside a closure, and returns how each ended. `submit` puts the closure on the
/// toolbox's stream, and later work there is pending.
fn answers(
    device: &Device,
    submit: impl FnOnce(&Stream, Box<dyn Fn() + Send + Sync>) -> Result<Option<Graph>>,
) -> Result<Answers> {
    let s = Arc::new(device.stream()?);
    let mut tools = Toolbox::new(device, &s)?;
    tools.load_kernels()?;
    s.synchronize()?;
    let (give, take) = mpsc::channel::<Toolbox>();
    let (tell, told) = mpsc::channel();
    let (take, tell) = (Mutex::new(take), Mutex::new(tell));
    let graph = submit(
        &s,
        Box::new(move || {
            let Ok(mut tools) = take.lock().unwrap().recv() else { return };
            let answers = tools.call_everything();
            tools.call_the_harmless();
            let _ = tell.lock().unwrap().send((answers, tools));
        }),
    )?;
    tools.submit()?;
    assert!(give.send(tools).is_ok());
    let (answers, tools) = told.recv().expect("the closure's answers; it may have panicked");
    s.synchronize()?;
    drop((tools, graph));
    usable(device, &[&s])?;
    Ok(answers)
}

fn library_calls_of_a_closure_are_refused(device: &Device) -> Result<()> {
    answers(device, in_a_closure).map(|answers| all_refused(&answers))
}

fn library_calls_of_a_node_are_refused(device: &Device) -> Result<()> {
    answers(device, in_a_node).map(|answers| all_refused(&answers))
}

fn all_refused(answers: &Answers) {
    let wrong: Vec<_> = answers.iter().filter(|(_, kind)| *kind != Some(ErrorKind::InHostClosure)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// When the closure runs, its stream has finished all earlier work and everything that it waited for. So you can read
/// that memory without a call to the driver.
fn memory_of_earlier_work_can_be_read(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 1u32)?, b.full(N, 2u32)?);
    let (mut first, mut second) = (device.pinned::<u32>(N)?, device.pinned::<u32>(N)?);
    a.synchronize()?;
    b.synchronize()?;
    let gate = Gate::adding(&kernels, &b, &mut y, 5)?;
    b.copy(&y, &mut second)?;
    a.wait(&b.record()?)?;
    kernels.step(&a, &mut x, 3, N)?;
    a.copy(&x, &mut first)?;
    let (tell, told) = mpsc::channel();
    a.host_fn(move || {
        let mut read = || -> Result<(u32, u32)> {
            assert!(first.is_done()? && second.is_done()?);
            second.write()?[0] = 100;
            Ok((first.read()?.iter().sum(), second.read()?.iter().sum()))
        };
        let _ = tell.send(read());
    })?;
    assert!(told.try_recv().is_err());
    gate.open();
    let sums = told.recv().expect("the closure's answer")?;
    assert_eq!(sums, (8 * N as u32, 7 * (N as u32 - 1) + 100));
    a.synchronize()
}

/// The memory belongs to later work, or to a stream that the closure's stream has not waited for. You get an error,
/// because a wait might never end.
fn memory_of_other_work_is_refused(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let x = a.full(N, 1u32)?;
    let mut behind = device.pinned::<u32>(N)?;
    let mut beside = device.pinned_from(&[1u32; N])?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &b, &mut beside, 5)?;
    let (give, take) = mpsc::channel::<[Pinned<u32>; 2]>();
    let (tell, told) = mpsc::channel();
    a.host_fn(move || {
        let Ok(both) = take.recv() else { return };
        let kinds = both.iter().map(|host| host.read().map(drop).map_err(|error| error.kind()));
        let _ = tell.send((kinds.collect::<Vec<_>>(), both));
    })?;
    a.copy(&x, &mut behind)?;
    give.send([behind, beside]).unwrap();
    let (kinds, [behind, beside]) = told.recv().expect("the closure's answer");
    assert_eq!(kinds, [Err(ErrorKind::InHostClosure); 2]);
    gate.open();
    assert_eq!((behind.read()?[0], beside.read()?[0]), (1, 6));
    a.synchronize()
}
