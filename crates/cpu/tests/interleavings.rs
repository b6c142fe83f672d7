//! Tests the progress of a stream in every order that the threads can access it in.
//!
//! The scheduler of `shuttle` runs the code of `progress.rs` again and again, and switches threads at a
//! different access each time until no order is left. It reports lost wake-ups as deadlocks. If we only ran
//! the code on real threads, we might wait years for the one bad order. It treats atomic accesses as
//! sequentially consistent, and those accesses in our code that decide the outcome are sequentially
//! consistent too.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::time::Instant;

use gpustream_hal::WaitPolicy;
use shuttle::thread;
use sync::{Arc, AtomicU32, AtomicU64, Ordering};

/// The module that `progress.rs` finds as `crate::sync`.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

#[path = "../src/progress.rs"]
#[allow(dead_code, unreachable_pub, reason = "a test uses its part")]
mod progress;

use progress::Progress;

/// Runs `program` in every order. `None` means no limit.
fn in_every_order(program: impl Fn() + Send + Sync + 'static) {
    shuttle::check_dfs(program, None);
}

#[test]
fn a_watcher_is_woken_once_whenever_it_comes() {
    in_every_order(|| {
        let progress = Arc::new(Progress::<Arc<AtomicU32>>::new());
        let woken = Arc::new(AtomicU32::new(0));
        let stream = {
            let progress = progress.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    progress.advance(|waiter| {
                        waiter.fetch_add(1, Ordering::SeqCst);
                    });
                }
            })
        };
        if let Some(at_once) = progress.watch(2, woken.clone()) {
            assert!(progress.is_done(2));
            at_once.fetch_add(1, Ordering::SeqCst);
        }
        stream.join().unwrap();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn no_waiter_is_woken_early() {
    in_every_order(|| {
        let progress = Arc::new(Progress::<u64>::new());
        let done = Arc::new(AtomicU64::new(0));
        let stream = {
            let (progress, done) = (progress.clone(), done.clone());
            thread::spawn(move || {
                for number in 1..=2 {
                    done.store(number, Ordering::SeqCst);
                    progress.advance(|waiting_for| assert!(waiting_for <= number));
                }
            })
        };
        if progress.watch(1, 1).is_some() {
            assert!(done.load(Ordering::SeqCst) >= 1);
        }
        stream.join().unwrap();
    });
}

#[test]
fn a_host_thread_that_sleeps_is_woken() {
    in_every_order(|| {
        let progress = Arc::new(Progress::<()>::new());
        let host = {
            let progress = progress.clone();
            thread::spawn(move || assert!(progress.reach(1, WaitPolicy::Block, || None)))
        };
        progress.advance(|()| {});
        host.join().unwrap();
    });
}

/// Two threads sleep until different numbers, and another is woken in between. There are too many orders, so
/// we try random ones.
#[test]
fn each_of_several_waiters_is_woken_when_it_is_due() {
    let program = || {
        let progress = Arc::new(Progress::<Arc<AtomicU32>>::new());
        let woken = Arc::new(AtomicU32::new(0));
        let hosts = [1, 2].map(|number| {
            let progress = progress.clone();
            thread::spawn(move || assert!(progress.reach(number, WaitPolicy::Block, || None)))
        });
        for _ in 0..2 {
            progress.advance(|waiter| {
                waiter.fetch_add(1, Ordering::SeqCst);
            });
        }
        if let Some(at_once) = progress.watch(2, woken.clone()) {
            at_once.fetch_add(1, Ordering::SeqCst);
        }
        for host in hosts {
            host.join().unwrap();
        }
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    };
    shuttle::check_random(program, 3000);
}

#[test]
fn a_limit_that_is_set_wakes_the_host() {
    in_every_order(|| {
        let progress = Arc::new(Progress::<()>::new());
        let lost = Arc::new(AtomicU32::new(0));
        let host = {
            let (progress, lost) = (progress.clone(), lost.clone());
            thread::spawn(move || {
                let limit = || (lost.load(Ordering::SeqCst) != 0).then(Instant::now);
                assert!(!progress.reach(1, WaitPolicy::Block, limit));
            })
        };
        lost.store(1, Ordering::SeqCst);
        progress.interrupt();
        host.join().unwrap();
    });
}
