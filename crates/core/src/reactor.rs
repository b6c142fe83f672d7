//! The thread that polls events for futures.
//!
//! A driver can call you back when a stream gets to a point. But such a callback costs the device several microseconds, and
//! it does not say if the work succeeded: after a fault it may come although nothing was done, or never come. So we ask the
//! driver instead, because its answer includes the fault. We only ask about the oldest event of each stream. We ask quickly
//! at first, then more and more slowly while nothing happens, and sleep if no future is waiting.

use std::collections::{HashMap, VecDeque};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{hint, mem};

use gpustream_hal::thread::with_signals_blocked;
use gpustream_hal::{Error, ErrorKind, Result};

use crate::process;
use crate::stream::{Mark, StreamCore};
use crate::sync::{Mutex, lock};
use crate::trace::{self, InstantKind};
use crate::track::StreamId;

/// How long after the last change the thread polls without a pause.
const SPIN: Duration = Duration::from_micros(50);

/// How long after the last change the thread yields the core between two polls.
const YIELD: Duration = Duration::from_millis(1);

/// The longest pause between two polls.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The state that a future and the reactor share.
pub struct Wait {
    state: Mutex<WaitState>,
}

struct WaitState {
    /// The number of points that have not been reached.
    remaining: usize,
    /// The first failure.
    error: Option<Error>,
    waker: Option<Waker>,
}

impl WaitState {
    fn outcome(&mut self) -> Option<Result<()>> {
        (self.remaining == 0).then(|| self.error.take().map_or(Ok(()), Err))
    }
}

impl Wait {
    pub fn new(points: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(WaitState { remaining: points, error: None, waker: None }) })
    }

    /// Returns the outcome if we know it. Otherwise we call `waker` as soon as there may be one.
    pub fn poll(&self, waker: &Waker) -> Option<Result<()>> {
        let mut state = lock(&self.state);
        if state.remaining > 0 && !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            drop(state);
            // We clone and drop wakers with no lock held, because the executor's code may do anything there.
            let mut new = Some(waker.clone());
            state = lock(&self.state);
            if state.remaining > 0 {
                mem::swap(&mut state.waker, &mut new);
            }
            let outcome = state.outcome();
            drop(state);
            drop(new);
            return outcome;
        }
        state.outcome()
    }

    /// Forgets the waker. Call this if the future is dropped.
    pub fn leave(&self) {
        let waker = lock(&self.state).waker.take();
        // Dropped with no lock held: the waker may be a task's last handle.
        drop(waker);
    }

    /// Notes that one of the points has been reached, or that it never will be.
    pub(crate) fn reach(&self, outcome: Result<()>) {
        let mut state = lock(&self.state);
        match outcome {
            // Earlier errors have set this to 0 already.
            Ok(()) => state.remaining = state.remaining.saturating_sub(1),
            Err(error) => {
                state.remaining = 0;
                state.error.get_or_insert(error);
            }
        }
        let waker = if state.remaining == 0 { state.waker.take() } else { None };
        drop(state);
        // We call the waker with no lock held, because the executor's code may do anything. If it panics, that must not
        // harm the other waiters.
        if let Some(waker) = waker {
            if trace::is_on() {
                trace::instant("woken", None, InstantKind::Woken);
            }
            let wake = || panic::catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(mem::forget);
            let _ = process::users_code(wake);
        }
    }
}

/// A point of a stream that a future waits for.
pub struct Awaited {
    pub stream: Arc<StreamCore>,
    pub mark: Mark,
    pub wait: Arc<Wait>,
}

impl Awaited {
    /// Returns the outcome, or `None` if the point has been neither reached nor failed.
    fn query(&self) -> Option<Result<()>> {
        if Arc::strong_count(&self.wait) == 1 {
            // The future was dropped.
            return Some(Ok(()));
        }
        match self.stream.poll_mark(&self.mark) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }
}

struct Reactor {
    inbox: Mutex<Vec<Awaited>>,
    thread: Thread,
    /// How many points futures wait for, for [`is_idle`].
    pending: AtomicUsize,
}

static REACTOR: OnceLock<Option<Reactor>> = OnceLock::new();

/// Returns true if no future is waiting right now.
pub fn is_idle() -> bool {
    REACTOR.get().is_none_or(|reactor| {
        reactor.as_ref().is_none_or(|reactor| reactor.pending.load(Ordering::Relaxed) == 0)
    })
}

/// Watches `points`, and tells their waits when they are reached. Starts the thread on first use.
///
/// # Errors
/// [`ErrorKind::Driver`] if the thread cannot be started.
pub fn watch(points: impl IntoIterator<Item = Awaited>) -> Result<()> {
    let reactor = REACTOR.get_or_init(|| {
        process::register("reactor", wake);
        let builder = thread::Builder::new().name("gpustream-reactor".into());
        let handle = with_signals_blocked(|| builder.spawn(run)).ok()?;
        let thread = handle.thread().clone();
        Some(Reactor { inbox: Mutex::default(), thread, pending: AtomicUsize::new(0) })
    });
    let Some(reactor) = reactor else {
        return Err(Error::new(
            ErrorKind::Driver,
            "the library could not start the thread that polls events for futures; let the process start one more thread, or \
             wait with a call that blocks",
        ));
    };
    let mut inbox = lock(&reactor.inbox);
    let before = inbox.len();
    inbox.extend(points);
    reactor.pending.fetch_add(inbox.len() - before, Ordering::Relaxed);
    drop(inbox);
    reactor.thread.unpark();
    Ok(())
}

/// Wakes the thread, if there is one.
fn wake() {
    if let Some(Some(reactor)) = REACTOR.get() {
        reactor.thread.unpark();
    }
}

fn run() {
    let Some(reactor) = REACTOR.wait() else { return };
    let mut watched = Watched::default();
    let mut last_change = Instant::now();
    loop {
        let arrived = mem::take(&mut *lock(&reactor.inbox));
        let has_more = !arrived.is_empty();
        watched.take_in(arrived);
        let Some(reached) = process::at_driver(|| watched.poll()) else {
            // The process is ending, so we leak the points with the streams and events that they hold.
            return mem::forget(watched);
        };
        reactor.pending.fetch_sub(reached, Ordering::Relaxed);
        if has_more || reached > 0 {
            last_change = Instant::now();
            continue;
        }
        // If a new point arrives, each kind of rest ends.
        match Rest::after(watched.is_empty(), last_change.elapsed()) {
            Rest::Spin => hint::spin_loop(),
            Rest::Yield => thread::yield_now(),
            Rest::Pause(time) => thread::park_timeout(time),
            Rest::Sleep => {
                thread::park();
                last_change = Instant::now();
            }
        }
    }
}

/// The points that futures wait for. Each stream's points are in stream order, so the first one is reached first.
#[derive(Default)]
struct Watched(HashMap<StreamId, VecDeque<Awaited>>);

impl Watched {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take_in(&mut self, points: Vec<Awaited>) {
        for point in points {
            let queue = self.0.entry(point.stream.id).or_default();
            let at = queue.partition_point(|other| other.mark.record <= point.mark.record);
            queue.insert(at, point);
        }
    }

    /// Asks about the oldest point of each stream, and tells the waits of the points that have been reached. Returns how
    /// many that was.
    fn poll(&mut self) -> usize {
        let mut reached = 0;
        for queue in self.0.values_mut() {
            while let Some(outcome) = queue.front().and_then(Awaited::query)
                && let Some(point) = queue.pop_front()
            {
                point.wait.reach(outcome);
                reached += 1;
            }
        }
        self.0.retain(|_, queue| !queue.is_empty());
        reached
    }
}

/// How the thread rests until it polls again.
#[derive(Debug, PartialEq)]
enum Rest {
    Spin,
    Yield,
    Pause(Duration),
    /// Sleeps until there is a point to watch.
    Sleep,
}

impl Rest {
    /// Chooses a rest. The longer nothing has happened, the longer it is.
    fn after(nobody_waits: bool, quiet: Duration) -> Self {
        if nobody_waits {
            Self::Sleep
        } else if quiet < SPIN {
            Self::Spin
        } else if quiet < YIELD {
            Self::Yield
        } else {
            Self::Pause((quiet / 16).min(LONGEST_PAUSE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_without_a_time_limit_if_no_future_waits() {
        for micros in [0, 10, 100, 10_000, 10_000_000] {
            assert_eq!(Rest::after(true, Duration::from_micros(micros)), Rest::Sleep);
        }
    }

    /// We notice the end of a short wait soon, and a long wait costs little.
    #[test]
    fn pauses_grow_with_the_wait() {
        assert_eq!(Rest::after(false, Duration::ZERO), Rest::Spin);
        assert_eq!(Rest::after(false, SPIN), Rest::Yield);
        let mut last = Duration::ZERO;
        for millis in 1..100 {
            let quiet = Duration::from_millis(millis);
            let Rest::Pause(pause) = Rest::after(false, quiet) else { panic!("{quiet:?} without a pause") };
            assert!(
                pause >= last && pause <= LONGEST_PAUSE && pause <= quiet / 10,
                "{pause:?} after {quiet:?}"
            );
            last = pause;
        }
        assert_eq!(last, LONGEST_PAUSE);
    }
}
