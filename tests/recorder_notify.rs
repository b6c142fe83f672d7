//! What futures and host closures ask of the drivers, on drivers that log it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use conformance::toolbox::Toolbox;
use gpustream::{Device, ErrorKind, Finished, Result, Stream};
use recorder::Recorder;

use fakes::on_both;

fn is_pending(future: &mut Finished) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// The closure calls all there is, then drops the last handles of all of it: the stream it runs on, and the device.
fn calls_inside(submit: impl Fn(&Stream, Box<dyn Fn() + Send + Sync>) -> Result<()>) {
    on_both(|_, device| {
        let mine = Device::open(device.info().backend).unwrap();
        let stream = Arc::new(mine.stream().unwrap());
        let mut tools = Toolbox::new(&mine, &stream).unwrap();
        let calls = tools.calls();
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
        let builder = mine.graph().unwrap();
        give.send((tools, (mine, stream, events, registered, builder))).unwrap();
        let answers = told.recv().expect("the closure's answers; it may have panicked");
        assert!(answers.iter().all(|(_, kind)| *kind == Some(ErrorKind::InHostClosure)), "{answers:?}");
        assert_eq!(answers.len(), calls);
    });
}

#[test]
fn a_closure_reaches_no_driver() {
    calls_inside(|stream, closure| stream.host_fn(closure));
}

#[test]
fn a_node_reaches_no_driver() {
    calls_inside(|stream, closure| {
        // Dropped while its launch is pending.
        stream.capture(|s| s.host_fn_repeat(closure))?.launch(stream)
    });
}

/// Drivers may not be called by their own callbacks, where these destroy their last handle.
#[test]
fn what_a_closure_drops_is_destroyed_outside_of_it() {
    on_both(|recorder, device| {
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let held = (b.record().unwrap(), b.record_timed().unwrap(), b.alloc::<u32>(16 << 20).unwrap(), b);
        recorder.hold();
        a.host_fn(move || drop(held)).unwrap();
        recorder.release();
        a.synchronize().unwrap();
        device.synchronize().unwrap();
        device.trim();
    });
}

/// What the reactor's thread has done so far.
#[derive(Clone, Debug, PartialEq)]
struct Activity {
    /// Driver calls.
    calls: usize,
    /// Nanoseconds on a processor, and how often it was put on one: each time that it woke up.
    on_cpu: u64,
    turns: u64,
}

/// The reactor's thread, seen from outside.
struct Watch<'a> {
    recorder: &'a Recorder,
    schedstat: PathBuf,
}

impl<'a> Watch<'a> {
    /// Of a reactor that has been started.
    fn new(recorder: &'a Recorder) -> Self {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
        let is_reactor = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("gpustream-react"))
        };
        let task = { tasks }.find(is_reactor).expect("a reactor");
        Self { recorder, schedstat: task.join("schedstat") }
    }

    fn look(&self) -> Activity {
        // Not every kernel keeps it; the calls count in any case.
        let text = fs::read_to_string(&self.schedstat).unwrap_or_else(|_| "0 0 0".to_owned());
        let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let me = thread::current().id();
        let calls = self.recorder.calls().iter().filter(|call| call.thread != me).count();
        Activity { calls, on_cpu: numbers[0], turns: numbers[2] }
    }

    /// What is done while this thread works on its own, submitting and waiting, for so long.
    fn during(&self, time: Duration, stream: &Stream) -> [Activity; 2] {
        let before = self.look();
        let start = Instant::now();
        while start.elapsed() < time {
            let event = stream.record().unwrap();
            assert!(!event.is_done().unwrap());
        }
        [before, self.look()]
    }

    /// Nothing at all is done from some moment on. It may take the thread a while to see that nobody waits.
    fn sleeps(&self, stream: &Stream) {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let [before, after] = self.during(Duration::from_millis(10), stream);
            if before == after {
                break;
            }
            assert!(Instant::now() < deadline, "it never rests: {before:?}, {after:?}");
        }
        // More than a hundred times as long as it ever pauses.
        let [before, after] = self.during(Duration::from_millis(300), stream);
        assert_eq!(before, after);
    }
}

/// Whatever goes on meanwhile: nobody polls, and nobody is woken.
#[test]
fn an_idle_reactor_does_nothing() {
    on_both(|recorder, device| {
        let (stream, busy) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = stream.alloc::<u32>(10).unwrap();
        let mut y = busy.alloc::<u32>(10).unwrap();
        recorder.hold();
        stream.fill(&mut x, 1).unwrap();
        let mut finished = stream.finished();
        assert!(is_pending(&mut finished));
        let watch = Watch::new(recorder);
        let asked = watch.look().calls;
        while watch.look().calls == asked {
            thread::yield_now();
        }
        // After the last future has resolved, …
        recorder.release();
        while is_pending(&mut finished) {
            thread::yield_now();
        }
        recorder.hold();
        busy.fill(&mut y, 1).unwrap();
        watch.sleeps(&busy);
        // … and after the last one was dropped, though its work goes on.
        let mut futures = [busy.finished(), stream.finished(), busy.record().unwrap().done()];
        assert!(is_pending(&mut futures[0]) && is_pending(&mut futures[2]));
        drop(futures);
        watch.sleeps(&busy);
        assert!(!busy.is_done().unwrap());
    });
}

/// It sleeps between looks, and looks once for a stream however many wait for it.
#[test]
fn long_waits_cost_little() {
    const LOOKS: usize = 40;
    on_both(|recorder, device| {
        let stream = device.stream().unwrap();
        let mut x = stream.alloc::<u32>(10).unwrap();
        recorder.hold();
        stream.fill(&mut x, 1).unwrap();
        let mut futures: Vec<_> = (0..100).map(|_| stream.finished()).collect();
        assert!(futures.iter_mut().all(is_pending));
        let (watch, begun) = (Watch::new(recorder), Instant::now());
        // By then it pauses for two milliseconds between looks.
        while begun.elapsed() < Duration::from_millis(50) {
            thread::sleep(Duration::from_millis(5));
        }
        let (before, start) = (watch.look(), Instant::now());
        while watch.look().calls < before.calls + 2 * LOOKS {
            thread::sleep(Duration::from_millis(5));
        }
        let (after, time) = (watch.look(), start.elapsed());
        let looks = after.calls - before.calls;
        // A look is a context check and a question.
        let least = Duration::from_millis(looks as u64 / 2);
        assert!(time > least, "{looks} calls in {time:?}");
        let busy = Duration::from_nanos(after.on_cpu - before.on_cpu);
        assert!(busy < time / 4, "{busy:?} of {time:?}");
        recorder.release();
        while futures.iter_mut().any(is_pending) {
            thread::yield_now();
        }
    });
}
