//! No driver is called once the process has begun to exit, whoever is at work then.
//!
//! Each scene is played by a child: this executable again, told by the environment which one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::env;
use std::future::Future;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use conformance::exits::{CODE, RUNS, exit_from_a_drop, exit_from_a_waker};
use gpustream::{Device, WaitPolicy};
use recorder::Recorder;

use crate::fakes::{FAKES, ONE, increment, load_kernel};

/// Which driver's fake, and which scene.
const PART: &str = "GPUSTREAM_EXIT_PART";

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// The last handler to run, as a driver's would: from here on a call ends the process in another way. Whoever is still at
/// it has the time to make one.
extern "C" fn taken_down() {
    recorder::take_down();
    thread::sleep(Duration::from_millis(50));
}

type Scene = fn(&Recorder, &Device);

const SCENES: [(&str, Scene); 5] = [
    ("thread", |_, _| exit(CODE)),
    ("closure", |_, device| device.stream().unwrap().host_fn(|| exit(CODE)).unwrap()),
    ("waker", wake),
    // A device of its own, on which nothing is stuck.
    ("drop", |_, device| exit_from_a_drop(Device::open(device.info().backend).unwrap()).unwrap()),
    ("closure that is waited for", closure_that_is_waited_for),
];

/// Played by children alone.
#[test]
fn child() {
    let Ok(part) = env::var(PART) else { return };
    let (name, scene) = part.split_once(' ').unwrap();
    thread::spawn(|| {
        thread::sleep(Duration::from_mins(5));
        eprintln!("it hangs");
        std::process::abort();
    });
    // SAFETY: the handler is a function of this program's. It is asked for before the library's is, so it runs after it.
    assert_eq!(unsafe { atexit(taken_down) }, 0);
    let fake = FAKES.iter().find(|fake| fake.name == name).unwrap();
    let recorder = (fake.load)();
    recorder.on_kernel("increment", |_| false);
    let device = Device::open(name).unwrap();
    // The reactor asks about a stream that gets nowhere …
    let stuck = device.stream().unwrap();
    let mut x = stuck.alloc::<u32>(10).unwrap();
    let kernel = load_kernel(fake, &device).unwrap();
    increment(&kernel, &stuck, ONE, &mut x).unwrap();
    let mut future = Box::pin(stuck.synchronize_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // … and another thread destroys what a closure left.
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

/// The library's thread calls what wakes a future.
fn wake(_: &Recorder, device: &Device) {
    let s = device.stream().unwrap();
    let (open, closed) = mpsc::channel::<()>();
    s.host_fn(move || {
        let _ = closed.recv();
    })
    .unwrap();
    exit_from_a_waker(s.synchronize_async(), || drop(open))
}

/// A driver's call waits for the closure that exits: the process does not wait for the call.
fn closure_that_is_waited_for(recorder: &Recorder, device: &Device) {
    static WAITS: AtomicBool = AtomicBool::new(false);
    let other = Device::open(device.info().backend).unwrap();
    let s = other.stream().unwrap();
    s.host_fn(|| {
        while !WAITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        exit(CODE)
    })
    .unwrap();
    // Waits for the device's work.
    thread::spawn(move || drop((s, other)));
    recorder.wait_until_someone_waits();
    WAITS.store(true, Ordering::SeqCst);
}

#[test]
fn no_driver_is_called_after_the_process_began_to_exit() {
    for fake in &FAKES {
        for (scene, _) in SCENES {
            // That scene takes the library's patience, every time.
            let runs = if scene == "closure that is waited for" { 1 } else { RUNS };
            for run in 0..runs {
                let part = format!("{} {scene}", fake.name);
                let mut command = Command::new(env::current_exe().unwrap());
                let output =
                    command.args(["--exact", "child", "--nocapture"]).env(PART, &part).output().unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                assert_eq!(
                    output.status.code(),
                    Some(CODE),
                    "{part}, run {run}: {:?}\n{text}",
                    output.status
                );
            }
        }
    }
}
