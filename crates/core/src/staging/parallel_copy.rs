//! Threads that help with one call's pieces.
//!
//! The calling thread works too, so a call never depends on whether a helper comes. If a helper comes late, the call is
//! closed. The call returns when all helpers that came have left, because they work on memory that the call borrows. A
//! helper that panics leaves like any other, and the call reports the panic.
//!
//! To wake a thread can take up to 50 µs on a virtual machine, and in that time you can copy a megabyte. So a helper stays
//! awake for a moment after each call. A caller wakes one helper, and that one wakes the next. Short calls wake none.

use std::collections::{HashMap, VecDeque};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{hint, thread};

use gpustream_hal::thread::with_signals_blocked;
use gpustream_hal::{Error, ErrorKind, Result};

use super::IDLE;
use crate::deferred_drop::Untold;
use crate::process;
use crate::sync::{Condvar, Mutex, lock};

/// How long a waiter spins before it sleeps.
const AWAKE: Duration = Duration::from_micros(100);

/// If two calls follow each other within this time, we wake a helper even for a short call.
const RECENT: Duration = Duration::from_millis(1);

/// The pieces of a call. Each is handed out once.
pub struct Claims {
    next: AtomicUsize,
    count: usize,
}

impl Claims {
    pub fn new(count: usize) -> Self {
        Self { next: AtomicUsize::new(0), count }
    }

    /// Claims a piece that no other thread has.
    pub fn next(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.count).then_some(index)
    }

    /// Claims pieces one by one, until there are no more.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        std::iter::from_fn(|| self.next())
    }

    /// Hands out no more pieces.
    fn stop(&self) {
        self.next.store(self.count, Ordering::Relaxed);
    }
}

type Work<'a> = dyn Fn(&Claims) -> Result<()> + Sync + 'a;

/// A closure that runs when there have been no calls for some time.
pub(crate) type Tidy = Box<dyn FnOnce() + Send>;

/// One call, and the helpers inside it.
struct ParallelCopy {
    claims: Claims,
    /// Valid until the copy is closed and no thread is inside.
    work: *const Work<'static>,
    state: Mutex<ParallelCopyState>,
    left: Condvar,
}

// SAFETY: `work` points to something `Sync`. Only threads inside the call use it, and the call waits for those.
unsafe impl Send for ParallelCopy {}
// SAFETY: `work` points to something `Sync`. Only threads inside the call use it, and the call waits for those. The other
// fields are `Sync` themselves.
unsafe impl Sync for ParallelCopy {}

#[derive(Default)]
struct ParallelCopyState {
    inside: usize,
    closed: bool,
    failure: Option<Untold>,
}

impl ParallelCopy {
    /// Works on the call's pieces, unless the call is over.
    fn help(&self) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.inside += 1;
        drop(state);
        // SAFETY: the call waits for this thread before the values that `work` borrows go away.
        let work = unsafe { &*self.work };
        let outcome = attempt(work, &self.claims);
        let mut state = lock(&self.state);
        if let Err(error) = outcome {
            self.claims.stop();
            state.failure.get_or_insert(Untold::new(error));
        }
        state.inside -= 1;
        drop(state);
        self.left.notify_all();
    }

    /// Closes the call and waits for the helpers inside. If one failed, returns its failure.
    fn close(&self) -> Option<Untold> {
        lock(&self.state).closed = true;
        stay_awake(|| lock(&self.state).inside == 0);
        let mut state = lock(&self.state);
        while state.inside > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.take()
    }
}

/// Spins until `over` returns true, but not longer than [`AWAKE`]. Returns true if `over` did.
fn stay_awake(over: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if over() {
            return true;
        }
        if start.elapsed() >= AWAKE {
            return false;
        }
        // Each hint takes up to 50 ns.
        (0..4).for_each(|_| hint::spin_loop());
    }
}

/// Runs `work`, and turns a panic into an error.
fn attempt(work: &Work<'_>, claims: &Claims) -> Result<()> {
    panic::catch_unwind(AssertUnwindSafe(|| work(claims))).unwrap_or_else(|payload| {
        // We leak the payload, because it may itself panic when dropped.
        std::mem::forget(payload);
        Err(Error::new(
            ErrorKind::HostPanic,
            "a thread that copies host memory panicked, so the copy is incomplete; do not use the destination",
        ))
    })
}

/// Runs `work` on this thread and up to `helpers` others until all claims are taken and worked on. A short call wakes no
/// helper, unless it closely follows another call. `tidy` is a closure to run after some time without calls, and the number
/// of its owner.
///
/// # Errors
/// The first failure among the pieces. After it, no thread begins another piece.
pub fn run(
    claims: Claims,
    helpers: usize,
    is_short: bool,
    work: &Work<'_>,
    tidy: (usize, Tidy),
) -> Result<()> {
    #[allow(clippy::transmute_ptr_to_ptr)] // a cast may not lengthen a trait object's lifetime
    // SAFETY: only the lifetime changes. We call `close` below before this function returns, and `attempt` does not unwind
    // past it.
    let shared = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
    let copy = Arc::new(ParallelCopy { claims, work: shared, state: Mutex::default(), left: Condvar::new() });
    CopyThreads::get().call(&copy, helpers, is_short, tidy);
    let own = attempt(work, &copy.claims);
    if own.is_err() {
        copy.claims.stop();
    }
    let failure = copy.close();
    own.and_then(|()| failure.map_or(Ok(()), Untold::tell))
}

/// The process's helper threads. They wait for calls, and end after some time without any.
struct CopyThreads {
    state: Mutex<CopyThreadsState>,
    called: Condvar,
    /// How many helpers are wanted, for helpers that look without the lock.
    wanted: AtomicUsize,
}

#[derive(Default)]
struct CopyThreadsState {
    calls: VecDeque<Arc<ParallelCopy>>,
    threads: usize,
    /// How many of the threads sleep and would have to be woken.
    asleep: usize,
    /// How many of the threads are awake and have nothing to do.
    idle: usize,
    last_call: Option<Instant>,
    /// The closures to run after some time without calls, by the number of their owner.
    tidy: HashMap<usize, Tidy>,
}

impl CopyThreads {
    fn get() -> &'static Self {
        static CREW: OnceLock<CopyThreads> = OnceLock::new();
        CREW.get_or_init(|| Self {
            state: Mutex::default(),
            called: Condvar::new(),
            wanted: AtomicUsize::new(0),
        })
    }

    /// Asks `helpers` threads to help, and starts the missing ones. If we cannot start a thread, fewer help.
    fn call(
        &'static self,
        copy: &Arc<ParallelCopy>,
        mut helpers: usize,
        is_short: bool,
        (owner, tidy): (usize, Tidy),
    ) {
        let mut state = lock(&self.state);
        let recent = state.last_call.replace(Instant::now()).is_some_and(|last| last.elapsed() < RECENT);
        state.tidy.insert(owner, tidy);
        // A call that is over needs no help.
        state.calls.retain(|call| !lock(&call.state).closed);
        if is_short && !recent {
            helpers = helpers.min(state.idle.saturating_sub(state.calls.len()));
        }
        state.calls.extend(std::iter::repeat_n(copy, helpers).cloned());
        self.wanted.store(state.calls.len(), Ordering::Release);
        let missing = helpers.saturating_sub(state.threads);
        for _ in 0..missing {
            process::register("copies", || {});
            let builder = thread::Builder::new().name("gpustream-copy".into());
            let started = with_signals_blocked(|| builder.spawn(|| self.serve()));
            if started.is_err() {
                break;
            }
            state.threads += 1;
        }
        let wakes = state.needs_waking();
        drop(state);
        if wakes {
            self.called.notify_one();
        }
    }

    /// The body of a helper: helps with calls until there have been none for some time.
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(copy) = state.calls.pop_front() {
                self.wanted.store(state.calls.len(), Ordering::Release);
                let wakes = state.needs_waking();
                drop(state);
                if wakes {
                    self.called.notify_one();
                }
                copy.help();
                drop(copy);
                state = lock(&self.state);
                state.idle += 1;
                drop(state);
                stay_awake(|| self.wanted.load(Ordering::Acquire) > 0);
                state = lock(&self.state);
                state.idle -= 1;
                continue;
            }
            state.asleep += 1;
            let (woken, timeout) =
                self.called.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.asleep -= 1;
            let quiet = state.last_call.is_none_or(|last| last.elapsed() >= IDLE);
            if timeout.timed_out() && quiet && state.calls.is_empty() {
                state.threads -= 1;
                let tidy = if state.threads == 0 { std::mem::take(&mut state.tidy) } else { HashMap::new() };
                drop(state);
                for tidy in tidy.into_values() {
                    process::at_driver(tidy);
                }
                return;
            }
        }
    }
}

impl CopyThreadsState {
    /// Returns true if a call wants more helpers than are awake.
    fn needs_waking(&self) -> bool {
        self.asleep > 0 && self.calls.len() > self.idle
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn every_piece_is_worked_on_once_whoever_comes() {
        for helpers in [1, 3, 7] {
            let seen: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
            let work = |claims: &Claims| {
                while let Some(index) = claims.next() {
                    seen[index].fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            run(Claims::new(seen.len()), helpers, false, &work, (0, Box::new(|| ()))).unwrap();
            assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }

    /// Runs a call with a helper inside: in its own work, the calling thread waits until a helper has come.
    fn with_a_helper_inside(helper: impl Fn() -> Result<()> + Sync) -> Result<()> {
        let caller = thread::current().id();
        let arrived = AtomicBool::new(false);
        let work = |_: &Claims| {
            if thread::current().id() == caller {
                while !arrived.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                return Ok(());
            }
            arrived.store(true, Ordering::Release);
            helper()
        };
        run(Claims::new(2), 1, false, &work, (0, Box::new(|| ())))
    }

    #[test]
    fn after_some_time_without_calls_there_is_tidying_up() {
        let (done, is_done) = std::sync::mpsc::channel();
        // Other tests make calls too, so the tidying waits until they are done.
        run(Claims::new(2), 1, false, &|_| Ok(()), (1, Box::new(move || done.send(()).unwrap()))).unwrap();
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_helper_that_dies_is_reported_and_not_waited_for() {
        let error = with_a_helper_inside(|| panic!("on purpose")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostPanic);
        // And the next call has helpers again.
        with_a_helper_inside(|| Ok(())).unwrap();
    }

    #[test]
    fn a_helpers_error_is_the_calls() {
        let error = with_a_helper_inside(|| Err(Error::unsupported("this"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_callers_panic_is_an_error_after_everyone_left() {
        let caller = thread::current().id();
        let inside = AtomicUsize::new(0);
        let work = |claims: &Claims| {
            assert_ne!(thread::current().id(), caller, "on purpose");
            inside.fetch_add(1, Ordering::SeqCst);
            while claims.next().is_some() {}
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        };
        assert_eq!(
            run(Claims::new(10), 2, false, &work, (0, Box::new(|| ()))).unwrap_err().kind(),
            ErrorKind::HostPanic
        );
        assert_eq!(inside.load(Ordering::SeqCst), 0);
    }
}
