//! Objects must never be destroyed while in use and must always be destroyed in the end, and soundness must not need a
//! destructor.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gpustream::{DeviceOptions, ErrorKind};

use crate::paper::{self, Live};
use crate::{read, write};

#[test]
fn a_module_is_unloaded_when_its_kernels_are_done() {
    let (paper, device, kernel, [a]) = paper::open(DeviceOptions::default());
    let x = a.alloc::<u8>(100).unwrap();
    read(&kernel, &a, &x);
    drop(kernel);
    device.trim();
    assert_eq!(paper.live().modules, 1, "the kernel may be running");
    paper.finish_all();
    device.trim();
    assert_eq!(paper.live().modules, 0);
}

#[test]
fn forgetting_anything_leaks_and_breaks_nothing() {
    let (paper, device, kernel, [a, b]) = paper::open(DeviceOptions::default());
    let mut host = device.pinned::<u8>(100).unwrap();
    let mut x = a.alloc::<u8>(100).unwrap();
    // The forgotten guard's borrow has ended, so the device may write again.
    mem::forget(host.write().unwrap());
    a.fill(&mut x, 1).unwrap();
    a.copy(&x, &mut host).unwrap();
    mem::forget(host.read().unwrap());
    a.copy(&x, &mut host).unwrap();
    mem::forget(a.record().unwrap());
    read(&kernel, &b, &x);
    let (used, freed) = (x.as_raw(), device.memory_stats().used);
    mem::forget(x);
    assert_eq!(device.memory_stats().used, freed, "forgotten memory stays used");
    device.synchronize().unwrap();
    device.trim();
    let y = a.alloc::<u8>(100).unwrap();
    assert_ne!(y.as_raw(), used, "forgotten memory is never allocated again");
    mem::forget(host);
    mem::forget(a);
    let mut z = b.alloc::<u8>(100).unwrap();
    b.fill(&mut z, 3).unwrap();
    drop((b, y, z, kernel, device));
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

/// If a driver's queue is full, a call blocks until there is room, perhaps until a closure has ended. So the closure must
/// not need a lock that we hold during the call.
#[test]
fn a_closure_waits_for_no_call_that_may_wait_for_it() {
    let (paper, device, kernel, []) = paper::open(DeviceOptions::default());
    let a = Arc::new(device.stream().unwrap());
    let (x, mut y) = (a.zeros::<u8>(100).unwrap(), a.zeros::<u8>(100).unwrap());
    let mut host = device.pinned::<u8>(100).unwrap();
    a.copy(&x, &mut host).unwrap();
    let (event, timed) = (a.record().unwrap(), a.record_timed().unwrap());
    let (tell, told) = mpsc::channel();
    let own = a.clone();
    a.host_fn(move || {
        let outcomes = [
            own.synchronize(),
            own.is_done().map(drop),
            own.record().map(drop),
            own.alloc::<u8>(100).map(drop),
            own.upload(&[1u8; 100]).map(drop),
            own.download(&x).map(drop),
            own.copy(&x, &mut host),
            own.host_fn(|| ()),
            own.host_fn_repeat(|| ()),
            own.capture(|_| Ok(())).map(drop),
            event.synchronize(),
            own.device().synchronize(),
        ];
        own.device().trim();
        drop((own, x, host, event, timed, kernel));
        let _ = tell.send(outcomes.map(|outcome| outcome.map_err(|error| error.kind())));
    })
    .unwrap();
    let (arrive, arrived) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    paper.inside("fill", move || {
        arrive.send(()).unwrap();
        let _ = wait.lock().unwrap().recv();
    });
    let submitting = thread::spawn(move || a.fill(&mut y, 1).unwrap());
    arrived.recv().unwrap();
    let driver = paper.clone();
    let finishing = thread::spawn(move || driver.finish_all());
    let outcomes = told.recv_timeout(Duration::from_mins(5)).expect("the closure waits for the call");
    assert_eq!(outcomes, [Err(ErrorKind::InHostClosure); 12]);
    drop(go);
    submitting.join().unwrap();
    finishing.join().unwrap();
    drop(device);
    let deadline = Instant::now() + Duration::from_mins(5);
    while paper.live() != Live::default() {
        assert!(Instant::now() < deadline, "{:?}", paper.live());
        thread::yield_now();
    }
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

/// A submission reads the table of streams while it holds its stream's lock, and making a stream removes old entries from that
/// table. If one waited for the other, this could deadlock.
#[test]
fn submitting_and_making_streams_do_not_wait_for_each_other() {
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let (_paper, device, kernel, []) = paper::open(DeviceOptions::default());
        let streams: Vec<_> = (0..24).map(|_| device.stream().unwrap()).collect();
        let mut x = streams[0].zeros::<u8>(100).unwrap();
        let submitting = AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                while submitting.load(Ordering::Relaxed) {
                    drop(device.stream().unwrap());
                }
            });
            // There are so many readers before the writer that its stream has to ask which of them are done.
            for round in 0..300 {
                for stream in &streams {
                    read(&kernel, stream, &x);
                }
                let writer = &streams[round % streams.len()];
                write(&kernel, writer, &mut x);
            }
            submitting.store(false, Ordering::Relaxed);
        });
        done.send(()).unwrap();
    });
    finished.recv_timeout(Duration::from_mins(5)).expect("the two wait for each other");
}
