//! The driver calls of futures and host closures, on drivers that log them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use conformance::executor::is_pending;
use conformance::library_threads::ReactorThread;
use conformance::toolbox::Toolbox;
use gpustream::{Device, ErrorKind, Result, Stream};
use recorder::Recorder;

use crate::fakes::on_both;

/// Submits a closure that makes every call of the library. Then it drops the last handles of everything, including its
/// own stream and the device.
fn calls_inside(submit: impl Fn(&Stream, Box<dyn Fn() + Send + Sync>) -> Result<()>) {
    on_both(|_, device, []| {
        let mine = Device::open(device.info().backend.as_str()).unwrap();
        let stream = Arc::new(mine.stream().unwrap());
        let mut tools = Toolbox::new(&mine, &stream).unwrap();
        let events: Vec<_> = (0..100).map(|_| (stream.record(), stream.record_timed())).collect();
        let (give, take) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (take, tell) = (Mutex::new(take), Mutex::new(tell));
        let closure = Box::new(move || {
            let (mut tools, held): (Toolbox, _) = take.lock().unwrap().recv().unwrap();
            let answers = tools.call_everything();
            drop((tools, held));
            tell.lock().unwrap().send(answers).unwrap();
        });
        submit(&stream, closure).unwrap();
        tools.submit().unwrap();
        let registered = mine.register(vec![1u32; 1000]).unwrap();
        let builder = mine.graph_builder().unwrap();
        give.send((tools, (mine, stream, events, registered, builder))).unwrap();
        let answers = told.recv().expect("the closure's answers; it may have panicked");
        assert!(answers.iter().all(|(_, kind)| *kind == Some(ErrorKind::InHostClosure)), "{answers:?}");
    });
}

#[test]
fn a_closure_calls_no_driver() {
    calls_inside(|stream, closure| stream.host_fn(closure));
}

#[test]
fn a_node_calls_no_driver() {
    calls_inside(|stream, closure| {
        // The graph is dropped while its launch is pending.
        stream.capture(|s| s.host_fn_repeat(closure))?.launch(stream)
    });
}

/// A driver must not be called from its own callback, so a callback must not destroy what belongs to the driver.
#[test]
fn handles_that_a_closure_drops_are_destroyed_outside_of_it() {
    on_both(|recorder, device, [a, b]| {
        let held = (b.record().unwrap(), b.record_timed().unwrap(), b.alloc::<u32>(16 << 20).unwrap(), b);
        recorder.hold();
        a.host_fn(move || drop(held)).unwrap();
        recorder.release();
        a.synchronize().unwrap();
        device.synchronize().unwrap();
        device.trim();
    });
}

/// Returns how many calls other threads have made so far.
fn calls_elsewhere(recorder: &Recorder) -> usize {
    let me = thread::current().id();
    recorder.calls().iter().filter(|call| call.thread != me).count()
}

/// Checks that the reactor goes to sleep, and that nothing wakes it while this thread submits work and asks.
fn sleeps(recorder: &Recorder, stream: &Stream) {
    let reactor = ReactorThread::find().expect("a reactor");
    let look = || (calls_elsewhere(recorder), reactor.switches());
    // The reactor may need a while to see that no future waits. If it waits for a lock, that also looks like sleep. So
    // it must stay the same for some time while other threads can run.
    let (mut before, mut looks) = (look(), 0);
    while looks < 50 {
        thread::yield_now();
        let now = look();
        let rests = reactor.sleeps_until_woken() != Some(false) && now == before;
        looks = if rests { looks + 1 } else { 0 };
        before = now;
    }
    for _ in 0..1000 {
        let event = stream.record().unwrap();
        assert!(!event.is_done().unwrap());
    }
    assert_eq!(before, look());
}

/// If there are no futures, the reactor must neither call the driver nor wake up, whatever you submit meanwhile.
#[test]
fn an_idle_reactor_does_nothing() {
    on_both(|recorder, _, [stream, busy]| {
        let mut x = stream.alloc::<u32>(10).unwrap();
        let mut y = busy.alloc::<u32>(10).unwrap();
        recorder.hold();
        stream.fill(&mut x, 1).unwrap();
        let mut finished = stream.synchronize_async();
        assert!(is_pending(&mut finished));
        let asked = calls_elsewhere(recorder);
        while calls_elsewhere(recorder) == asked {
            thread::yield_now();
        }
        // After the last future has resolved, …
        recorder.release();
        while is_pending(&mut finished) {
            thread::yield_now();
        }
        recorder.hold();
        busy.fill(&mut y, 1).unwrap();
        sleeps(recorder, &busy);
        // … and after you have dropped the last one, although its work goes on.
        let mut futures = [
            busy.synchronize_async(),
            stream.synchronize_async(),
            busy.record().unwrap().synchronize_async(),
        ];
        assert!(is_pending(&mut futures[0]) && is_pending(&mut futures[2]));
        drop(futures);
        sleeps(recorder, &busy);
        assert!(!busy.is_done().unwrap());
    });
}

/// If there is room, asking for it must cost no driver call, apart from an event now and then.
#[test]
fn room_costs_next_to_nothing() {
    on_both(|recorder, _, [stream]| {
        let mut x = stream.alloc::<u32>(10).unwrap();
        let mut submit = |operations| {
            recorder.record(|| {
                for value in 0..operations {
                    assert!(!is_pending(&mut stream.room_async()), "operation {value}");
                    stream.fill(&mut x, value).unwrap();
                }
            })
        };
        let ((), few) = submit(120);
        assert_eq!(few.len(), 120, "{few:?}");
        let ((), many) = submit(2000);
        // At most the event, two looks at it, and one at the stream.
        assert!(many.len() <= 2000 + 4 * 2000_usize.div_ceil(128), "{}", many.len());
    });
}

/// The reactor must sleep between looks. It must look at a stream once, however many futures wait for it.
#[test]
fn long_waits_cost_little() {
    const LOOKS: usize = 40;
    on_both(|recorder, _, [stream]| {
        let mut x = stream.alloc::<u32>(10).unwrap();
        recorder.hold();
        stream.fill(&mut x, 1).unwrap();
        let mut futures: Vec<_> = (0..100).map(|_| stream.synchronize_async()).collect();
        assert!(futures.iter_mut().all(is_pending));
        let begun = Instant::now();
        // By then the reactor pauses for two milliseconds between looks.
        while begun.elapsed() < Duration::from_millis(50) {
            thread::sleep(Duration::from_millis(5));
        }
        let (before, start) = (calls_elsewhere(recorder), Instant::now());
        while calls_elsewhere(recorder) < before + 2 * LOOKS {
            thread::sleep(Duration::from_millis(5));
        }
        let (looks, time) = (calls_elsewhere(recorder) - before, start.elapsed());
        // A look consists of a context check and a question. On a busy machine a pause may be longer, but never
        // shorter.
        let least = Duration::from_millis(looks as u64 / 2);
        assert!(time > least, "{looks} calls in {time:?}");
        recorder.release();
        while futures.iter_mut().any(is_pending) {
            thread::yield_now();
        }
    });
}
