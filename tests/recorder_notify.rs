//! What futures and host closures ask of the drivers, on drivers that log it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use conformance::toolbox::Toolbox;
use gpustream::{Device, ErrorKind, Result, Stream};
use recorder::Recorder;

type Load = fn() -> Recorder;

const FAKES: [(&str, Load); 2] =
    [("cuda", fake_cuda::load), ("hip", || fake_hip::load(fake_hip::Profile::Rocm6))];

/// Runs a scene on both drivers, and waits until nothing calls them any more.
fn on_both(scene: impl Fn(&Recorder, &Device)) {
    for (name, load) in FAKES {
        let recorder = load();
        let before = recorder.live();
        let device = Device::open(name).unwrap();
        scene(&recorder, &device);
        recorder.release();
        drop(device);
        // What closures dropped is on its way.
        let deadline = Instant::now() + Duration::from_mins(1);
        while recorder.live() != before {
            assert!(Instant::now() < deadline, "{name}: {:?} became {:?}", before, recorder.live());
            thread::yield_now();
        }
        assert_eq!(recorder.violations(), [""; 0], "{name}");
    }
}

/// The closure calls all there is, then drops the last handles of all of it: the stream it runs on, and the device.
fn calls_inside(submit: impl Fn(&Stream, Box<dyn Fn() + Send + Sync>) -> Result<()>) {
    on_both(|_, device| {
        let mine = Device::open(device.info().backend).unwrap();
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
        let builder = mine.graph().unwrap();
        give.send((tools, (mine, stream, events, registered, builder))).unwrap();
        let answers = told.recv().expect("the closure's answers; it may have panicked");
        assert!(answers.iter().all(|(_, kind)| *kind == Some(ErrorKind::InHostClosure)), "{answers:?}");
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
