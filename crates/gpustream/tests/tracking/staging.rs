//! Threads that help with a copy may die. The copy must report that, and everything must go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gpustream::{Device, DeviceOptions, ErrorKind, PoolPolicy};

use crate::paper::{self, Live, Paper};
use crate::write;

/// We copy so many bytes that a second thread helps.
const LEN: usize = 4 << 20;

/// Lets a helping thread die. The calling thread waits in its first allocation until another thread helps, and that thread dies
/// in the same call.
fn let_a_helper_die(paper: &Paper, device: &Device) {
    // The pool must have no memory for the pieces, because we need a driver call for each.
    device.synchronize().unwrap();
    device.trim();
    let caller = thread::current().id();
    let arrived = Arc::new(AtomicBool::new(false));
    paper.inside("pinned_alloc", move || {
        if thread::current().id() != caller {
            arrived.store(true, Ordering::Release);
            panic!("on purpose");
        }
        while !arrived.load(Ordering::Acquire) {
            thread::yield_now();
        }
    });
}

#[test]
fn a_staging_thread_that_dies_is_reported_and_everything_goes_on() {
    for pool in [PoolPolicy::Library, PoolPolicy::Unpooled] {
        let options = DeviceOptions::default().pool(pool).staging_threads(2);
        let (paper, device, kernel, [a, b]) = paper::open(options);
        let values = vec![1u8; LEN];
        let mut x = a.upload(&values).unwrap();
        let_a_helper_die(&paper, &device);
        let error = a.upload_into(&values, &mut x).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostPanic, "{error}");
        let_a_helper_die(&paper, &device);
        let error = a.download(&x).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostPanic, "{error}");
        paper.as_usual();
        write(&kernel, &b, &mut x);
        a.upload_into(&values, &mut x).unwrap();
        assert_eq!(b.download(&x).unwrap().len(), LEN);
        drop(x);
        drop((a, b, kernel, device));
        assert_eq!(paper.state().violations, Vec::<String>::new());
        assert_eq!(paper.live(), Live::default());
    }
}

/// If a thread dies inside the driver after its use of the memory was entered, we must not wait for it either.
#[test]
fn a_copy_that_dies_in_the_driver_holds_up_nobody() {
    let (paper, device, kernel, [a, b]) = paper::open(DeviceOptions::default());
    let (mut x, mut host) = (a.zeros::<u8>(1000).unwrap(), device.pinned::<u8>(1000).unwrap());
    paper.inside("copy_to_host", || panic!("on purpose"));
    thread::scope(|scope| scope.spawn(|| a.copy(&x, &mut host)).join()).unwrap_err();
    paper.as_usual();
    write(&kernel, &b, &mut x);
    drop(host.write().unwrap());
    a.copy(&x, &mut host).unwrap();
    drop(host.read().unwrap());
    drop((x, host));
    a.synchronize().unwrap();
    device.trim();
    assert_eq!((device.memory_stats().reserved, device.pinned_stats().reserved), (0, 0));
    drop((a, b, kernel, device));
    assert_eq!(paper.state().violations, Vec::<String>::new());
    assert_eq!(paper.live(), Live::default());
}
