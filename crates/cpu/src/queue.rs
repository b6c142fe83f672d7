//! The order of a stream: a queue of operations, and how many of them are done.
//!
//! Operations are numbered from 1 as they are submitted and complete in that order, so a point in a stream is a
//! number, and "has this point been reached?" is one comparison. An event without timing is such a point and
//! costs the stream nothing.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use gpustream_hal::WaitPolicy;

// The standard library's, or in `tests/interleavings.rs` a scheduler's that tries all orders of what follows.
use crate::sync::{Arc, AtomicU32, AtomicU64, Condvar, Mutex, Ordering, lock};

/// How long a host thread polls before it sleeps: about what being woken costs. Longer would take a core from the
/// very work it waits for.
const POLL: Duration = Duration::from_micros(50);
/// How long it yields between looks where the policy says so.
const YIELD: Duration = Duration::from_millis(1);

/// How far a stream has got, and who waits for it to get further. `W` is what is woken.
pub(crate) struct Progress<W> {
    done: AtomicU64,
    /// Entries of `waiters` and host threads in `reach`: nobody is there in the common case.
    watchers: AtomicU32,
    waiters: Mutex<Vec<(u64, W)>>,
    wake: Condvar,
}

impl<W> Progress<W> {
    pub(crate) fn new() -> Self {
        Self {
            done: AtomicU64::new(0),
            watchers: AtomicU32::new(0),
            waiters: Mutex::new(Vec::new()),
            wake: Condvar::new(),
        }
    }

    /// Whether operation `number` is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Counts one more operation as done, and hands those who waited for it to `wake`.
    pub(crate) fn advance(&self, mut wake: impl FnMut(W)) {
        // Sequentially consistent, as is the other side: either this sees the watcher, or the watcher sees this.
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        if self.watchers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut ready = Vec::new();
        {
            let mut waiters = lock(&self.waiters);
            let mut index = 0;
            while index < waiters.len() {
                if waiters[index].0 <= done {
                    ready.push(waiters.swap_remove(index).1);
                    self.watchers.fetch_sub(1, Ordering::SeqCst);
                } else {
                    index += 1;
                }
            }
        }
        self.wake.notify_all();
        ready.into_iter().for_each(&mut wake);
    }

    /// Has `waiter` woken when operation `number` is done; gives it back if that is so already.
    pub(crate) fn watch(&self, number: u64, waiter: W) -> Option<W> {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut waiters = lock(&self.waiters);
        if self.done.load(Ordering::SeqCst) >= number {
            self.watchers.fetch_sub(1, Ordering::SeqCst);
            return Some(waiter);
        }
        waiters.push((number, waiter));
        None
    }

    /// Blocks this thread until operation `number` is done or `give_up` says so. False if it gave up.
    pub(crate) fn reach(&self, number: u64, policy: WaitPolicy, give_up: impl Fn() -> bool) -> bool {
        if self.is_done(number) {
            return true;
        }
        let (patience, pause): (_, fn()) = match policy {
            WaitPolicy::Spin => (POLL, std::hint::spin_loop),
            WaitPolicy::Yield => (YIELD, std::thread::yield_now),
            WaitPolicy::Block => (Duration::ZERO, std::hint::spin_loop),
        };
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if self.is_done(number) {
                return true;
            }
            if give_up() {
                return false;
            }
            pause();
        }
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut waiters = lock(&self.waiters);
        let reached = loop {
            if self.done.load(Ordering::SeqCst) >= number {
                break true;
            }
            if give_up() {
                break false;
            }
            waiters = self.wake.wait(waiters).unwrap_or_else(PoisonError::into_inner);
        };
        self.watchers.fetch_sub(1, Ordering::SeqCst);
        reached
    }

    /// Makes every host thread in [`reach`](Self::reach) ask again whether to give up.
    pub(crate) fn interrupt(&self) {
        drop(lock(&self.waiters));
        self.wake.notify_all();
    }
}

/// A point in a stream: its operation `number` and all before it.
pub(crate) struct Mark<S> {
    pub(crate) stream: Arc<S>,
    pub(crate) number: u64,
}

impl<S> Clone for Mark<S> {
    fn clone(&self) -> Self {
        Self { stream: self.stream.clone(), number: self.number }
    }
}
