//! The one thread that looks at events on behalf of futures.
//!
//! Drivers can call back when a stream gets somewhere, but such a call costs the device several microseconds and
//! carries no status: after a fault it may come with nothing done, or never. So the reactor asks the driver,
//! which answers with the fault itself. It asks about the oldest event of each stream only, quickly at first and
//! ever more slowly while nothing happens, and sleeps when nobody waits.

use std::collections::{HashMap, VecDeque};
use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use gpustream_hal::{Error, ErrorKind, Result};

use crate::stream_core::{Mark, StreamCore};
use crate::sync::lock;
use crate::track::StreamId;

/// For this long after something happened the thread polls without pause.
const SPIN: Duration = Duration::from_micros(50);

/// For this long it polls and yields the core in between.
const YIELD: Duration = Duration::from_millis(1);

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// What a future and the reactor share.
pub(crate) struct Wait {
    state: Mutex<WaitState>,
}

struct WaitState {
    /// Points still ahead.
    remaining: usize,
    /// The first failure.
    error: Option<Error>,
    waker: Option<Waker>,
}

impl Wait {
    pub(crate) fn new(points: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(WaitState { remaining: points, error: None, waker: None }) })
    }

    /// The outcome once there is one; until then `waker` is called when there may be.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<()>> {
        let mut state = lock(&self.state);
        if state.remaining > 0 {
            state.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
            return None;
        }
        Some(state.error.take().map_or(Ok(()), Err))
    }

    /// The future is gone, so nobody is to be woken.
    pub(crate) fn leave(&self) {
        let waker = lock(&self.state).waker.take();
        // With no lock held: it may be a task's last handle.
        drop(waker);
    }

    /// One of the points has been reached, or will never be.
    fn reach(&self, outcome: Result<()>) {
        let mut state = lock(&self.state);
        state.remaining = match &outcome {
            Ok(()) => state.remaining - 1,
            Err(_) => 0,
        };
        if let Err(error) = outcome {
            state.error.get_or_insert(error);
        }
        let waker = if state.remaining == 0 { state.waker.take() } else { None };
        drop(state);
        // Called with no lock held: it may run anything.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// One point of one stream that somebody waits for.
pub(crate) struct Entry {
    pub(crate) stream: Arc<StreamCore>,
    pub(crate) mark: Mark,
    pub(crate) wait: Arc<Wait>,
}

impl Entry {
    /// Whether the point has been reached; a failure is an answer too.
    fn query(&self) -> Option<Result<()>> {
        if Arc::strong_count(&self.wait) == 1 {
            // The future was dropped.
            return Some(Ok(()));
        }
        query(&self.stream, &self.mark).transpose()
    }
}

/// `Ok(Some(()))` when the point has been reached.
pub(crate) fn query(stream: &StreamCore, mark: &Mark) -> Result<Option<()>> {
    if !stream.is_known_done(mark.number) {
        // SAFETY: the event is alive, and so is the stream it was recorded on.
        if !unsafe { stream.device.event_query(mark.cell.raw) }? {
            return Ok(None);
        }
        stream.set_done(mark.number);
    }
    Ok(Some(()))
}

struct Reactor {
    inbox: Mutex<Vec<Entry>>,
    thread: Thread,
    /// Points waited for, for [`is_idle`].
    pending: AtomicUsize,
}

static REACTOR: OnceLock<Option<Reactor>> = OnceLock::new();

/// Whether nobody waits through the reactor at the moment.
pub(crate) fn is_idle() -> bool {
    REACTOR.get().is_none_or(|reactor| {
        reactor.as_ref().is_none_or(|reactor| reactor.pending.load(Ordering::Relaxed) == 0)
    })
}

/// Has the waits of `entries` told when their points are reached. Starts the thread on first use.
pub(crate) fn watch(entries: impl IntoIterator<Item = Entry>) -> Result<()> {
    let reactor = REACTOR.get_or_init(|| {
        let handle = thread::Builder::new().name("gpustream-reactor".into()).spawn(run).ok()?;
        let thread = handle.thread().clone();
        Some(Reactor { inbox: Mutex::default(), thread, pending: AtomicUsize::new(0) })
    });
    let Some(reactor) = reactor else {
        return Err(Error::new(ErrorKind::Driver, "the thread that waits for futures could not be started"));
    };
    let mut inbox = lock(&reactor.inbox);
    let before = inbox.len();
    inbox.extend(entries);
    reactor.pending.fetch_add(inbox.len() - before, Ordering::Relaxed);
    drop(inbox);
    reactor.thread.unpark();
    Ok(())
}

fn run() {
    let Some(reactor) = REACTOR.wait() else { return };
    // Per stream, in the order in which the points will be reached.
    let mut pending: HashMap<StreamId, VecDeque<Entry>> = HashMap::new();
    let mut last_change = Instant::now();
    loop {
        let arrived = std::mem::take(&mut *lock(&reactor.inbox));
        let mut changed = !arrived.is_empty();
        for entry in arrived {
            let queue = pending.entry(entry.stream.id).or_default();
            let at = queue.partition_point(|other| other.mark.number <= entry.mark.number);
            queue.insert(at, entry);
        }
        for queue in pending.values_mut() {
            while let Some(outcome) = queue.front().and_then(Entry::query) {
                if let Some(entry) = queue.pop_front() {
                    reactor.pending.fetch_sub(1, Ordering::Relaxed);
                    entry.wait.reach(outcome);
                    changed = true;
                }
            }
        }
        pending.retain(|_, queue| !queue.is_empty());
        if pending.is_empty() && !changed {
            thread::park();
            last_change = Instant::now();
        } else if changed {
            last_change = Instant::now();
        } else {
            pause(last_change.elapsed());
        }
    }
}

/// Waits a little, the longer the more time has gone by without anything happening. A new entry ends it.
fn pause(quiet: Duration) {
    if quiet < SPIN {
        hint::spin_loop();
    } else if quiet < YIELD {
        thread::yield_now();
    } else {
        thread::park_timeout((quiet / 16).min(LONGEST_PAUSE));
    }
}
