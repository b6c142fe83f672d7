//! Watches calls and the work that they enqueue. If a rank is lost, an NCCL call or kernel waits for it
//! forever, so each communicator has a thread that ends whatever takes too long.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gpustream::hal::thread::with_signals_blocked;
use gpustream::interop::{ExitHold, Failures, GraphWatcher, StreamWatcher};
use gpustream::{Error, Result, Stream};

use super::comm::{Comm, LIBRARY};
use super::local_ranks::{LocalRank, LocalRanks};
use crate::call::Signature;
use crate::failure::CommunicatorFailure;

/// How long the thread sleeps between two looks at pending work. If it were shorter, the thread would take
/// time from your program.
const PERIOD: Duration = Duration::from_millis(10);

/// If this many sections are pending, the next call itself looks which of them are done. Their events can
/// then be reused while they are still in the processor's cache, and the thread has less to do.
const MANY: usize = 256;

/// Up to this many bytes, the time of an event matters to a call: an event takes a stream about two
/// microseconds.
const SMALL: usize = 4 << 20;

/// How many small calls may share a section. They also share one time limit.
const MOST: usize = 16;

/// One communicator's calls with pending work, and the thread that watches them. Once this is dropped and all
/// work is done, the thread closes the communicator.
pub(super) struct Watchdog(Arc<WatchdogShared>);

struct WatchdogShared {
    local_ranks: Arc<LocalRanks>,
    state: Mutex<WatchdogState>,
    /// The watcher of the graphs that contain calls.
    graphs: OnceLock<Weak<GraphWatcher>>,
    /// Notified at the first call, after a look, at a failure, and at the end.
    changed: Condvar,
}

struct WatchdogState {
    /// The call that a thread is in. There is at most one.
    calling: Option<Signature>,
    /// How many calls threads have been in.
    called: u64,
    /// The pending calls, in the order that NCCL does their work. That order does not depend on the streams,
    /// so if the first is not done, we need not ask about the others.
    pending: VecDeque<PendingCalls>,
    /// If this many sections are pending, the next call looks which of them are done.
    many: usize,
    /// The section of the newest call, if it is small, and how many calls the section has.
    newest: (Weak<StreamWatcher>, usize),
    /// Sections that are done while others are still pending. The next calls drop them, because then their
    /// streams can take the events back.
    past: Vec<PendingCalls>,
    /// Why the communicator was broken. Work that is enqueued from now on has failed.
    broken: Option<CommunicatorFailure>,
    ending: Ending,
    thread: WatchdogThread,
    life: Life,
}

/// How far the thread has come with ending the communicator after a failure.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// There is no failure, or some ranks in this process have not reported it yet.
    No,
    /// The thread must end the communicator now.
    Due,
    Begun,
}

enum Life {
    Open,
    /// There will be no more calls. The process must not end before the communicator is closed.
    Closing(Option<ExitHold>),
}

/// What the thread is doing.
#[derive(PartialEq)]
enum WatchdogThread {
    /// It waits for a call.
    Idle,
    /// It has taken the calls out and looks at their work.
    Looking,
    /// It sleeps, and comes back by itself.
    Between,
}

/// Consecutive calls in a stream whose work may not be done.
struct PendingCalls {
    /// The first of them.
    call: Signature,
    /// The section that begins before the work, and the section that ends after it. Usually they are the
    /// same.
    begin: Arc<StreamWatcher>,
    end: Arc<StreamWatcher>,
    failures: Failures,
    /// When we saw that the stream had reached the work.
    since: Option<Instant>,
}

impl Watchdog {
    /// Starts the thread, and registers this rank with the others in the process.
    pub(super) fn start(comm: Arc<Comm>, local_ranks: Arc<LocalRanks>) -> Result<Self> {
        let state = WatchdogState {
            calling: None,
            called: 0,
            pending: VecDeque::new(),
            many: MANY,
            newest: (Weak::new(), 0),
            past: Vec::new(),
            broken: None,
            ending: Ending::No,
            thread: WatchdogThread::Between,
            life: Life::Open,
        };
        let (state, graphs) = (Mutex::new(state), OnceLock::new());
        let shared = Arc::new(WatchdogShared { local_ranks, state, graphs, changed: Condvar::new() });
        let watched = shared.clone();
        let member: Weak<WatchdogShared> = Arc::downgrade(&shared);
        shared.local_ranks.join(member);
        let thread = thread::Builder::new().name("gpustream-nccl".into());
        with_signals_blocked(|| thread.spawn(move || watched.watch(&comm))).map_err(Error::external)?;
        Ok(Self(shared))
    }

    /// Watches a call of so many bytes until the returned value is dropped. The caller must hold the
    /// communicator.
    ///
    /// # Errors
    /// Why the communicator is about to be broken.
    pub(super) fn call(&self, call: Signature, bytes: usize) -> Result<Calling<'_>> {
        let mut state = self.0.lock();
        state.check()?;
        state.calling = Some(call);
        state.called += 1;
        if state.thread == WatchdogThread::Idle {
            self.0.changed.notify_all();
        }
        let is_small = bytes <= SMALL;
        let (newest, calls) = &state.newest;
        let grown = if is_small && *calls < MOST { newest.upgrade() } else { None };
        Ok(Calling { shared: &self.0, is_small, grown })
    }

    /// Makes the watcher of the graphs that contain calls. There is only one.
    pub(super) fn graphs(&self, comm: &Arc<Comm>) -> Arc<GraphWatcher> {
        let (shared, checked) = (self.0.clone(), comm.clone());
        // Breaking the communicator may still be waiting for another thread's call, and that thread then
        // holds the communicator.
        let check = move || shared.check().and_then(|()| checked.check());
        let (shared, comm) = (self.0.clone(), comm.clone());
        let launched = move |run, failures| {
            if let Some(call) = comm.recorded() {
                shared.add_run(call, run, failures);
            }
        };
        let watcher = Arc::new(GraphWatcher::new(check, launched));
        let _ = self.0.graphs.set(Arc::downgrade(&watcher));
        watcher
    }

    /// Reports a failure to the streams of all pending and later calls, of this rank and of the others in the
    /// process. Returns the first failure's reason. You must then break the communicator for that reason.
    pub(super) fn fail(&self, broken: &CommunicatorFailure) -> CommunicatorFailure {
        self.0.local_ranks.fail(broken)
    }
}

/// A call that is being watched.
pub(super) struct Calling<'a> {
    shared: &'a WatchdogShared,
    is_small: bool,
    grown: Option<Arc<StreamWatcher>>,
}

impl Calling<'_> {
    /// Returns the section of the previous call, if this call's work may be added to it.
    pub(super) fn grown(&self) -> Option<&StreamWatcher> {
        self.grown.as_deref()
    }

    /// Watches the work of a call, from section `front` to section `behind`. Either is `None` if the work was
    /// added to the section before it: that of the previous call, or `front`.
    pub(super) fn add(
        &self,
        call: Signature,
        stream: &Stream,
        front: Option<StreamWatcher>,
        behind: Option<StreamWatcher>,
    ) {
        let has_grown = front.is_none() && behind.is_none();
        let begin = front.map(Arc::new).or_else(|| self.grown.clone());
        let end = behind.map(Arc::new).or_else(|| begin.clone());
        let mut state = self.shared.lock();
        if let Some(broken) = &state.broken {
            stream.failures().keep(Error::external(broken.clone()));
            return;
        }
        if has_grown {
            state.newest.1 += 1;
            return;
        }
        let (Some(begin), Some(end)) = (begin, end) else { return };
        state.newest = (if self.is_small { Arc::downgrade(&end) } else { Weak::new() }, 1);
        state.pending.push_back(PendingCalls { call, begin, end, failures: stream.failures(), since: None });
        let past = state.take_past();
        drop(state);
        // The stream will reuse one of the events that this returns.
        drop(past);
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.shared.lock().calling = None;
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.lock().life = Life::Closing(ExitHold::of(LIBRARY));
        self.0.changed.notify_all();
    }
}

impl WatchdogShared {
    fn lock(&self) -> MutexGuard<'_, WatchdogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if there are graphs that contain calls. Only call it once the watcher has no other owner.
    fn is_in_graphs(&self) -> bool {
        self.graphs.get().is_some_and(|watcher| watcher.strong_count() > 0)
    }

    /// Returns why the communicator was broken or is about to be.
    fn check(&self) -> Result<()> {
        self.lock().check()
    }

    /// Watches a run of a graph that contains the call.
    fn add_run(&self, call: Signature, run: Arc<StreamWatcher>, failures: Failures) {
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return failures.keep(Error::external(broken.clone()));
        }
        state.pending.push_back(PendingCalls { call, begin: run.clone(), end: run, failures, since: None });
        if state.thread == WatchdogThread::Idle {
            self.changed.notify_all();
        }
    }

    fn watch(&self, comm: &Comm) {
        // The number of the call that a thread was last seen in, and when.
        let mut seen = (0, Instant::now());
        loop {
            let mut state = self.lock();
            while state.is_idle() && matches!(state.life, Life::Open) {
                state.thread = WatchdogThread::Idle;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let is_held = matches!(state.life, Life::Closing(Some(_)));
            let hold = if is_held { None } else { ExitHold::of(LIBRARY) };
            if !is_held && hold.is_none() {
                // The process is ending and takes NCCL down.
                return;
            }
            if let Some(broken) = state.take_failure() {
                drop(state);
                comm.break_up(broken);
                drop(hold);
                continue;
            }
            if state.is_idle() {
                if !self.is_in_graphs() {
                    drop(state);
                    return comm.close();
                }
                // The process may end while graphs exist.
                let closing = std::mem::replace(&mut state.life, Life::Closing(None));
                drop(state);
                drop((closing, hold));
                thread::sleep(PERIOD);
                continue;
            }
            if seen.0 != state.called {
                seen = (state.called, Instant::now());
            }
            let late_call = state.calling.filter(|_| seen.1.elapsed() > comm.limit);
            // We look without the lock, because asking the driver takes time, and calls can go on meanwhile.
            let mut calls = std::mem::take(&mut state.pending);
            state.thread = WatchdogThread::Looking;
            drop(state);
            let done: Vec<_> = take_done(&mut calls).collect();
            let late = calls.front_mut().and_then(|call| call.late(comm.limit));
            let first = calls.front().map(|pending| pending.call);
            let mut state = self.lock();
            calls.append(&mut state.pending);
            state.pending = calls;
            state.past.extend(done);
            let forgotten =
                if state.pending.is_empty() { std::mem::take(&mut state.past) } else { Vec::new() };
            state.thread = WatchdogThread::Between;
            drop(state);
            drop(forgotten);
            self.changed.notify_all();
            let broken = match late.or(late_call) {
                Some(call) => {
                    Some(CommunicatorFailure::Stalled { call: call.to_string(), limit: comm.limit })
                }
                None => first.and_then(|call| comm.failure(call)),
            };
            if let Some(broken) = broken {
                // The failure must be there before the work ends, which the second call does.
                comm.break_up(self.local_ranks.fail(&broken));
            }
            drop(hold);
            thread::sleep(PERIOD);
        }
    }
}

impl LocalRank for WatchdogShared {
    fn fail(&self, broken: &CommunicatorFailure) {
        let state = self.lock();
        let mut state = self
            .changed
            .wait_while(state, |state| state.thread == WatchdogThread::Looking)
            .unwrap_or_else(PoisonError::into_inner);
        state.broken.get_or_insert_with(|| broken.clone());
        for PendingCalls { end, failures, .. } in state.pending.drain(..) {
            if !end.is_done().unwrap_or(false) {
                failures.keep(Error::external(broken.clone()));
            }
        }
    }

    fn end(&self) {
        let mut state = self.lock();
        if state.ending == Ending::No {
            state.ending = Ending::Due;
        }
        if state.thread == WatchdogThread::Idle {
            self.changed.notify_all();
        }
    }
}

impl WatchdogState {
    /// Returns true if the thread has nothing to do.
    fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.calling.is_none()
            && (self.broken.is_none() || self.ending == Ending::Begun)
    }

    /// Returns why the communicator was broken or is about to be, as an error.
    fn check(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), |broken| Err(Error::external(broken)))
    }

    /// Returns the failure if the thread must still end the communicator because of it.
    fn take_failure(&mut self) -> Option<CommunicatorFailure> {
        if self.ending != Ending::Due {
            return None;
        }
        self.ending = Ending::Begun;
        self.broken.clone()
    }

    /// Returns a section that is done, if there is one.
    fn take_past(&mut self) -> Option<PendingCalls> {
        if self.pending.len() >= self.many {
            self.past.extend(take_done(&mut self.pending));
            self.many = MANY.max(2 * self.pending.len());
        }
        self.past.pop()
    }
}

/// Takes out the calls whose work is done. Asks about only a few of them. If the first is not done, asks
/// about no others, so that the newest section can still grow.
fn take_done(calls: &mut VecDeque<PendingCalls>) -> impl Iterator<Item = PendingCalls> {
    // A failed device does nothing more, and reports that itself.
    let is_done = |call: &PendingCalls| !matches!(call.end.is_done(), Ok(false));
    let any = calls.front().is_some_and(is_done);
    let done = if any { calls.partition_point(is_done) } else { 0 };
    calls.drain(..done)
}

impl PendingCalls {
    /// Returns the call if its work has taken longer than the limit. It must be the first that is not done.
    fn late(&mut self, limit: Duration) -> Option<Signature> {
        if self.since.is_none() && self.begin.has_begun().unwrap_or(true) {
            self.since = Some(Instant::now());
        }
        self.since.is_some_and(|since| since.elapsed() > limit).then_some(self.call)
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("pending", &self.0.lock().pending.len()).finish()
    }
}
