//! The order of a stream: a queue of operations, and how many of them are done.
//!
//! Operations are numbered from 1 when they are submitted, and complete in that order. So a point in a stream
//! is just a number, and "has this point been reached?" is one comparison. An event without timing is such a
//! point and costs the stream nothing.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use gpustream_hal::WaitPolicy;

// These come from the standard library. In `tests/interleavings.rs` they come from a scheduler that tries all
// orders of what follows.
use crate::sync::{Arc, AtomicU64, Condvar, Mutex, Ordering, lock};

/// How long a host thread polls before it sleeps: about what it costs to be woken. Polling longer would take
/// a core from the work that the thread is waiting for.
const POLL: Duration = Duration::from_micros(50);
/// How long a host thread polls and yields, if the policy says so.
const YIELD: Duration = Duration::from_millis(1);
/// How often a host thread looks if its wait has a limit.
const LOOK: Duration = Duration::from_millis(1);

/// How many operations of a stream are done, and who waits for more. `W` is a waiter.
pub(crate) struct Progress<W> {
    done: AtomicU64,
    /// The lowest number that a waiter or host thread waits for; usually [`NOBODY`]. It is written with
    /// `waiting` locked.
    due: AtomicU64,
    waiting: Mutex<Waiting<W>>,
    wake: Condvar,
}

/// No stream gets that far.
const NOBODY: u64 = u64::MAX;

struct Waiting<W> {
    waiters: Vec<(u64, W)>,
    /// The numbers that host threads asleep in `reach` wait for.
    hosts: Vec<u64>,
}

impl<W> Waiting<W> {
    /// Returns the lowest number above `done` that a waiter or host thread waits for.
    fn due_after(&self, done: u64) -> u64 {
        let numbers = self.waiters.iter().map(|(number, _)| *number).chain(self.hosts.iter().copied());
        numbers.filter(|&number| number > done).min().unwrap_or(NOBODY)
    }
}

impl<W> Progress<W> {
    pub(crate) fn new() -> Self {
        Self {
            done: AtomicU64::new(0),
            due: AtomicU64::new(NOBODY),
            waiting: Mutex::new(Waiting { waiters: Vec::new(), hosts: Vec::new() }),
            wake: Condvar::new(),
        }
    }

    /// Returns whether operation `number` is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Returns how many operations are done.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Counts one more operation as done, and passes those that waited for it to `wake`.
    pub(crate) fn advance(&self, mut wake: impl FnMut(W)) {
        // Sequentially consistent, like `expect`: either this sees the number that `expect` records, or
        // `expect` sees this.
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        if done < self.due.load(Ordering::SeqCst) {
            return;
        }
        let mut ready = Vec::new();
        {
            let mut waiting = lock(&self.waiting);
            let mut index = 0;
            while index < waiting.waiters.len() {
                if waiting.waiters[index].0 <= done {
                    ready.push(waiting.waiters.swap_remove(index).1);
                } else {
                    index += 1;
                }
            }
            self.due.store(waiting.due_after(done), Ordering::SeqCst);
        }
        self.wake.notify_all();
        ready.into_iter().for_each(&mut wake);
    }

    /// Records a wait for operation `number`, with `waiting` locked. Returns false if the operation is
    /// already done.
    fn expect(&self, number: u64) -> bool {
        self.due.fetch_min(number, Ordering::SeqCst);
        self.done.load(Ordering::SeqCst) < number
    }

    /// Wakes `waiter` when operation `number` is done. If it already is, returns the waiter instead.
    pub(crate) fn watch(&self, number: u64, waiter: W) -> Option<W> {
        let mut waiting = lock(&self.waiting);
        if !self.expect(number) {
            return Some(waiter);
        }
        waiting.waiters.push((number, waiter));
        None
    }

    /// Blocks this thread until operation `number` is done. Returns false if the moment from `limit` comes
    /// first. `limit` is called again after each [`interrupt`](Self::interrupt).
    pub(crate) fn reach(&self, number: u64, policy: WaitPolicy, limit: impl Fn() -> Option<Instant>) -> bool {
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
            if limit().is_some() {
                break;
            }
            pause();
        }
        let mut waiting = lock(&self.waiting);
        waiting.hosts.push(number);
        let limit = loop {
            if !self.expect(number) {
                break None;
            }
            let limit = limit();
            if limit.is_some() {
                break limit;
            }
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        };
        if let Some(index) = waiting.hosts.iter().position(|&other| other == number) {
            waiting.hosts.swap_remove(index);
        }
        drop(waiting);
        limit.is_none_or(|limit| self.reach_until(number, limit))
    }

    /// Blocks this thread until operation `number` is done or `limit` has come. Returns true if the operation
    /// is done.
    #[cold]
    fn reach_until(&self, number: u64, limit: Instant) -> bool {
        while !self.is_done(number) {
            if Instant::now() >= limit {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Makes every host thread in [`reach`](Self::reach) call its `limit` again.
    pub(crate) fn interrupt(&self) {
        drop(lock(&self.waiting));
        self.wake.notify_all();
    }
}

/// A point in a stream: operation `number` and everything before it.
pub(crate) struct Point<S> {
    pub(crate) stream: Arc<S>,
    pub(crate) number: u64,
}

impl<S> Clone for Point<S> {
    fn clone(&self) -> Self {
        Self { stream: self.stream.clone(), number: self.number }
    }
}
