//! No object is destroyed while it is in use, all are destroyed in the end, and soundness rests on no destructor.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gpustream::{DeviceOptions, ErrorKind};

use crate::order::Call;
use crate::paper::{self, Live, Paper};
use crate::{Mem, touch};

fn count(paper: &Paper, matches: impl Fn(&Call) -> bool) -> usize {
    paper.state().log.iter().filter(|call| matches(call)).count()
}

#[test]
fn a_dropped_buffer_is_freed_after_its_last_use_on_every_stream() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let kernel = paper::kernel(&device);
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = a.alloc::<u8>(100).unwrap();
    touch(&kernel, &a, &mut [Mem::Read(x.slice(..).unwrap())]).unwrap();
    touch(&kernel, &b, &mut [Mem::Read(x.slice(..).unwrap())]).unwrap();
    let freed = |paper: &Paper| count(paper, |call| matches!(call, Call::Free { .. }));
    let ((), calls) = paper.calls_of(|| drop(x));
    assert_eq!(calls, [], "dropping makes no driver call");
    assert_eq!(device.trim(), 0);
    paper.finish_stream(a.as_raw());
    assert_eq!(device.trim(), 0);
    assert_eq!(freed(&paper), 0, "b may still read it");
    paper.finish_stream(b.as_raw());
    assert!(device.trim() >= 512);
    assert_eq!(freed(&paper), 1);
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn dropped_pinned_memory_is_not_handed_out_before_its_last_use() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = device.stream().unwrap();
    let host = device.pinned_from(&[1u8; 100]).unwrap();
    let mut x = a.alloc::<u8>(100).unwrap();
    a.copy(&host, &mut x).unwrap();
    let address = host.as_raw();
    drop(host);
    // The host would write into memory that the copy still reads.
    let other = device.pinned::<u8>(100).unwrap();
    assert_ne!(other.as_raw(), address);
    // The pool notices that the copy is done before it asks the driver for more.
    paper.finish_all();
    let mut more = Vec::new();
    while more.last() != Some(&address) {
        assert!(more.len() < 10_000, "the memory was never allocated again");
        let again = device.pinned::<u8>(100).unwrap();
        assert_eq!(*again.read().unwrap(), [0; 100], "fresh memory is zero");
        more.push(again.as_raw());
        std::mem::forget(again);
    }
}

#[test]
fn a_dropped_stream_and_its_events_live_until_the_work_is_done() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = device.stream().unwrap();
    let mut x = a.alloc::<u8>(100).unwrap();
    a.fill(&mut x, 1).unwrap();
    let event = a.record().unwrap();
    let destroyed = |paper: &Paper| count(paper, |call| matches!(call, Call::StreamDestroy { .. }));
    let ((), calls) = paper.calls_of(|| drop(a));
    assert_eq!(calls, [], "dropping makes no driver call");
    // Making a stream lets the library look for streams it can destroy.
    let b = device.stream().unwrap();
    assert_eq!(destroyed(&paper), 0);
    paper.finish_all();
    event.synchronize().unwrap();
    drop(device.stream().unwrap());
    assert_eq!(destroyed(&paper), 0, "the event keeps its stream alive");
    drop(event);
    device.trim();
    assert!(destroyed(&paper) >= 1);
    b.fill(&mut x, 2).unwrap();
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn a_module_is_unloaded_when_its_kernels_are_done() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let kernel = paper::kernel(&device);
    let a = device.stream().unwrap();
    let x = a.alloc::<u8>(100).unwrap();
    touch(&kernel, &a, &mut [Mem::Read(x.slice(..).unwrap())]).unwrap();
    drop(kernel);
    device.trim();
    assert_eq!(paper.live().modules, 1, "the kernel may be running");
    paper.finish_all();
    device.trim();
    assert_eq!(paper.live().modules, 0);
}

#[test]
fn the_last_handle_waits_and_returns_everything() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let kernel = paper::kernel(&device);
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.upload(&[1u8; 1000]).unwrap();
    touch(&kernel, &b, &mut [Mem::Write(x.slice_mut(..).unwrap())]).unwrap();
    let host = device.pinned::<u8>(10).unwrap();
    let flag = device.flag().unwrap();
    let event = b.record().unwrap();
    drop((device, kernel, a, x, host, flag, event));
    assert_ne!(paper.live(), Live::default(), "b keeps the device open");
    drop(b);
    assert_eq!(paper.live(), Live::default());
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn forgetting_anything_leaks_and_breaks_nothing() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let kernel = paper::kernel(&device);
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut host = device.pinned::<u8>(100).unwrap();
    let mut x = a.alloc::<u8>(100).unwrap();
    // The borrow of a forgotten guard has ended, so the device may write again.
    mem::forget(host.write().unwrap());
    a.fill(&mut x, 1).unwrap();
    a.copy(&x, &mut host).unwrap();
    mem::forget(host.read().unwrap());
    a.copy(&x, &mut host).unwrap();
    mem::forget(a.record().unwrap());
    touch(&kernel, &b, &mut [Mem::Read(x.slice(..).unwrap())]).unwrap();
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

#[test]
fn host_closures_run_in_order_and_their_panics_are_reported() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = device.stream().unwrap();
    let count = Arc::new(AtomicU32::new(0));
    for expected in 0..3 {
        let count = count.clone();
        a.host_fn(move || assert_eq!(count.fetch_add(1, Ordering::SeqCst), expected)).unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst), 0, "submitting does not run it");
    a.synchronize().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    a.host_fn(|| panic!("on purpose")).unwrap();
    let error = a.synchronize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostPanic);
    assert!(error.message().contains("on purpose"), "{error}");
    a.synchronize().unwrap();
}

#[test]
fn a_closure_may_hold_the_last_handles() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = device.stream().unwrap();
    let x = a.zeros::<u8>(100).unwrap();
    let event = a.record().unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let seen = ran.clone();
    let held = (x, event, paper::kernel(&device), device.clone());
    a.host_fn(move || {
        drop(held);
        seen.store(true, Ordering::SeqCst);
    })
    .unwrap();
    drop((a, device));
    paper.finish_all();
    assert!(ran.load(Ordering::SeqCst));
    // Another thread closes the device, since the driver may not be called from its callback.
    let deadline = Instant::now() + Duration::from_mins(5);
    while paper.live() != Live::default() {
        assert!(Instant::now() < deadline, "{:?}", paper.live());
        thread::yield_now();
    }
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

/// A driver whose queue is full blocks a call until there is room, possibly until the closure has ended. So a closure
/// must not wait for a lock that is held during a call.
#[test]
fn a_closure_waits_for_no_call_that_may_wait_for_it() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = Arc::new(device.stream().unwrap());
    let (x, mut y) = (a.zeros::<u8>(100).unwrap(), a.zeros::<u8>(100).unwrap());
    let mut host = device.pinned::<u8>(100).unwrap();
    a.copy(&x, &mut host).unwrap();
    let (event, timed) = (a.record().unwrap(), a.record_timed().unwrap());
    let kernel = paper::kernel(&device);
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

#[test]
fn a_refused_closure_is_dropped() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = device.stream().unwrap();
    let token = Arc::new(());
    let held = token.clone();
    paper.fail_in(0, ErrorKind::Driver);
    let error = a.host_fn(move || drop(held)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn a_lost_device_is_reported_by_every_wait_and_frees_nothing_early() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let a = device.stream().unwrap();
    let mut host = device.pinned::<u8>(100).unwrap();
    let mut x = a.alloc::<u8>(100).unwrap();
    a.fill(&mut x, 1).unwrap();
    a.copy(&x, &mut host).unwrap();
    let event = a.record().unwrap();
    paper.lose();
    let kinds = [
        a.synchronize().unwrap_err().kind(),
        a.is_done().unwrap_err().kind(),
        event.synchronize().unwrap_err().kind(),
        event.is_done().unwrap_err().kind(),
        device.synchronize().unwrap_err().kind(),
        host.read().unwrap_err().kind(),
        host.is_done().unwrap_err().kind(),
        a.download(&x).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::DeviceLost; 8]);
    drop(x);
    assert_eq!(device.trim(), 0);
    drop((a, event, host, device));
}

/// A submission looks at the table of streams while it holds its stream's lock; making a stream removes old entries
/// from that table. Neither may wait for the other.
#[test]
fn submitting_and_making_streams_do_not_wait_for_each_other() {
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let paper = Paper::new();
        let device = paper.open(DeviceOptions::default());
        let kernel = paper::kernel(&device);
        let streams: Vec<_> = (0..24).map(|_| device.stream().unwrap()).collect();
        let mut x = streams[0].zeros::<u8>(100).unwrap();
        let submitting = AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                while submitting.load(Ordering::Relaxed) {
                    drop(device.stream().unwrap());
                }
            });
            // The writer comes after so many readers that its stream asks which of them are done.
            for round in 0..300 {
                for stream in &streams {
                    touch(&kernel, stream, &mut [Mem::Read(x.slice(..).unwrap())]).unwrap();
                }
                let writer = &streams[round % streams.len()];
                touch(&kernel, writer, &mut [Mem::Write(x.slice_mut(..).unwrap())]).unwrap();
            }
            submitting.store(false, Ordering::Relaxed);
        });
        done.send(()).unwrap();
    });
    finished.recv_timeout(Duration::from_mins(5)).expect("the two wait for each other");
}
