//! Once the process has begun to exit, the library must not call a driver, whichever of its threads are at work.
//!
//! A child plays each scene. It is this executable again, with the scene's name in the environment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::env;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use conformance::executor::is_pending;
use conformance::exits::{CODE, RUNS, exit_from_a_drop, exit_from_a_waker};
use conformance::{Child, Ended};
use gpustream::{Device, WaitPolicy};
use recorder::Recorder;

use crate::fakes::{FAKES, Fake, ONE, increment, load_kernel};

/// The variable that names the fake driver and the scene.
const PART: &str = "GPUSTREAM_EXIT_PART";

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// The last exit handler that runs, like a driver's. After this a driver call ends the process with another code. We
/// wait a little, so that threads that are still at work have time to make such a call.
extern "C" fn taken_down() {
    recorder::take_down();
    thread::sleep(Duration::from_millis(50));
}

type Scene = fn(&Recorder, &Device);

/// Drivers that do not answer.
const STUCK: [(&str, &str); 3] = [
    ("stuck handler", "the driver's own exit handler has not returned within 1 s"),
    ("stuck call", "of the library's calls to a driver have not returned within 1 s"),
    ("stuck trace", "a driver that was asked for the last times of a trace has not returned within 1 s"),
];

const SCENES: [(&str, Scene); 8] = [
    ("thread", |_, _| exit(CODE)),
    ("closure", |_, device| device.stream().unwrap().host_fn(|| exit(CODE)).unwrap()),
    ("waker", wake),
    // On this second handle no stream is stuck.
    ("drop", |_, device| exit_from_a_drop(Device::open(device.info().backend.as_str()).unwrap()).unwrap()),
    ("closure that is waited for", closure_that_is_waited_for),
    (STUCK[0].0, |_, _| exit(CODE)),
    (STUCK[1].0, |recorder, _| {
        recorder.stick_next("ask event");
        exit(CODE)
    }),
    (STUCK[2].0, |_, _| {
        extern "C" fn first() {
            recorder::stick_this_thread();
        }
        // SAFETY: the handler is a function of this program.
        assert_eq!(unsafe { atexit(first) }, 0);
        exit(CODE)
    }),
];

/// Plays a scene if this process is a child. Otherwise it does nothing.
#[test]
fn child() {
    let Ok(part) = env::var(PART) else { return };
    let (name, scene) = part.split_once(' ').unwrap();
    // SAFETY: the handler is a function of this program. It is registered before the library's, so it runs after that.
    assert_eq!(unsafe { atexit(taken_down) }, 0);
    let fake = FAKES.iter().find(|fake| fake.name == name).unwrap();
    let recorder = (fake.load)();
    if scene == STUCK[0].0 {
        recorder::stick_at_exit();
    }
    recorder.on_kernel("increment", |_| false);
    let device = Device::open(name).unwrap();
    // The reactor asks about a stream that never finishes …
    let stuck = device.stream().unwrap();
    let mut x = stuck.alloc::<u32>(10).unwrap();
    let kernel = load_kernel(fake, &device).unwrap();
    increment(&kernel, &stuck, ONE, &mut x).unwrap();
    let mut future = stuck.synchronize_async();
    assert!(is_pending(&mut future));
    // … and another thread destroys the handles that a closure dropped.
    let s = device.stream().unwrap();
    let events: Vec<_> = (0..3000).map(|_| s.record_with(WaitPolicy::Block).unwrap()).collect();
    let before = recorder.count("destroy event");
    s.host_fn(move || drop(events)).unwrap();
    while recorder.count("destroy event") < before + 10 {
        thread::yield_now();
    }
    let scene = SCENES.iter().find(|(other, _)| *other == scene).unwrap().1;
    scene(&recorder, &device);
    std::mem::forget((recorder, kernel, x, stuck, future, s));
    loop {
        thread::park();
    }
}

/// Exits inside a waker. The library's thread calls it.
fn wake(_: &Recorder, device: &Device) {
    let s = device.stream().unwrap();
    let (open, closed) = mpsc::channel::<()>();
    s.host_fn(move || {
        let _ = closed.recv();
    })
    .unwrap();
    exit_from_a_waker(s.synchronize_async(), || drop(open))
}

/// Exits inside a closure while a driver call waits for that closure. The process must not wait for the call.
fn closure_that_is_waited_for(recorder: &Recorder, device: &Device) {
    static WAITS: AtomicBool = AtomicBool::new(false);
    let other = Device::open(device.info().backend.as_str()).unwrap();
    let s = other.stream().unwrap();
    s.host_fn(|| {
        while !WAITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        exit(CODE)
    })
    .unwrap();
    // This drop waits for the device's work.
    thread::spawn(move || drop((s, other)));
    recorder.wait_until_someone_waits();
    WAITS.store(true, Ordering::SeqCst);
}

#[test]
fn no_driver_is_called_after_the_process_began_to_exit() {
    // Most of the time nothing happens, so we can test the drivers at the same time.
    thread::scope(|scope| FAKES.iter().for_each(|fake| drop(scope.spawn(|| exit_in_each_scene(fake)))));
}

fn exit_in_each_scene(fake: &Fake) {
    for (scene, _) in SCENES.iter().filter(|(scene, _)| !STUCK.iter().any(|(stuck, _)| stuck == scene)) {
        // This scene lasts until the library gives up waiting for its threads, so we play it only once.
        let runs = if *scene == "closure that is waited for" { 1 } else { RUNS };
        for run in 0..runs {
            let part = format!("{} {scene}", fake.name);
            let ended = play(&part, &[]);
            assert_eq!(ended.code, Some(CODE), "{part}, run {run}: {}", ended.output);
        }
    }
}

fn play(part: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(PART, part).envs(variables.iter().copied());
    Child::of_command(part, command).run().unwrap()
}

/// If a driver does not answer, you get a warning, and the process ends with its own code.
#[test]
fn driver_that_does_not_answer_does_not_keep_the_process() {
    for fake in &FAKES {
        for (scene, warning) in STUCK {
            let traced = if scene == STUCK[2].0 { "1" } else { "0" };
            let variables = [("GPUSTREAM_EXIT_SECONDS", "1"), ("GPUSTREAM_TRACE_SUMMARY", traced)];
            let ended = play(&format!("{} {scene}", fake.name), &variables);
            assert_eq!(ended.code, Some(CODE), "{} {scene}: {}", fake.name, ended.output);
            assert!(ended.output.contains(warning), "{} {scene}: {}", fake.name, ended.output);
        }
    }
}
