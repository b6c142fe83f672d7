//! Watching calls and the work that they enqueue: a thread for each communicator ends what lasts too long, since a call of NCCL's
//! waits for a lost rank for ever, and so does a kernel.

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

/// The time between two looks at pending work.
const PERIOD: Duration = Duration::from_millis(10);

/// Pending sections from which on a call looks itself which of them are done: their events then serve again while they lie in
/// the processor's cache, and the thread finds few of them.
const MANY: usize = 256;

/// The bytes up to which the time of an event matters to a call: it takes a stream some two microseconds.
const SMALL: usize = 4 << 20;

/// The most small calls in one section. The time limit counts for all of them together.
const MOST: usize = 16;

/// The calls of one communicator whose work is pending, and the thread that looks after them. Once this is dropped and all
/// work is done, the thread closes the communicator.
pub(super) struct Watchdog(Arc<WatchdogShared>);

struct WatchdogShared {
    team: Arc<LocalRanks>,
    state: Mutex<WatchdogState>,
    /// The watcher of the graphs that contain calls.
    graphs: OnceLock<Weak<GraphWatcher>>,
    /// Notified when there is a first call, after a look, at a failure, and at the end.
    changed: Condvar,
}

struct WatchdogState {
    /// The call that a thread is in. There is one at a time.
    calling: Option<Signature>,
    /// The number of calls that threads were in.
    called: u64,
    /// The pending calls, in the order in which NCCL does their work, whatever the streams.
    pending: VecDeque<PendingCalls>,
    /// The number of pending sections at which the next call looks which are done.
    many: usize,
    /// The section of the newest call, if that is small, and the number of its calls.
    newest: (Weak<StreamWatcher>, usize),
    /// Sections that are done, while others are pending. The next calls drop them, at a time at which their streams can take the
    /// events back.
    past: Vec<PendingCalls>,
    /// The reason why the communicator was broken: work that is enqueued from here on has failed.
    broken: Option<CommunicatorFailure>,
    /// Whether the thread has ended the communicator for that reason.
    ended: bool,
    thread: WatchdogThread,
    life: Life,
}

enum Life {
    Open,
    /// There are no more calls. The process does not end before the communicator is closed.
    Closing(Option<ExitHold>),
}

/// The work of the thread.
#[derive(PartialEq)]
enum WatchdogThread {
    /// It waits for a call.
    Idle,
    /// It has taken the calls out, to look at their work.
    Looking,
    /// It comes back by itself.
    Between,
}

/// Calls that follow each other in a stream, whose work may not be done.
struct PendingCalls {
    /// The first of them.
    call: Signature,
    /// The section that begins in front of the work, and the one that ends behind it. They are mostly the same.
    begin: Arc<StreamWatcher>,
    end: Arc<StreamWatcher>,
    failures: Failures,
    /// The time at which the stream was seen to have come to the work.
    since: Option<Instant>,
}

impl Watchdog {
    /// Starts the thread, and joins the team.
    pub(super) fn start(comm: Arc<Comm>, team: Arc<LocalRanks>) -> Result<Self> {
        let state = WatchdogState {
            calling: None,
            called: 0,
            pending: VecDeque::new(),
            many: MANY,
            newest: (Weak::new(), 0),
            past: Vec::new(),
            broken: None,
            ended: false,
            thread: WatchdogThread::Between,
            life: Life::Open,
        };
        let (state, graphs) = (Mutex::new(state), OnceLock::new());
        let shared = Arc::new(WatchdogShared { team, state, graphs, changed: Condvar::new() });
        let watched = shared.clone();
        let member: Weak<WatchdogShared> = Arc::downgrade(&shared);
        shared.team.join(member);
        let thread = thread::Builder::new().name("gpustream-nccl".into());
        with_signals_blocked(|| thread.spawn(move || watched.watch(&comm))).map_err(Error::external)?;
        Ok(Self(shared))
    }

    /// Watches a call of so many bytes until the value is dropped. The caller holds the communicator.
    ///
    /// # Errors
    /// The reason why the communicator is about to be broken.
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

    /// Makes the watcher of the graphs that contain calls. There is one.
    pub(super) fn graphs(&self, comm: &Arc<Comm>) -> Arc<GraphWatcher> {
        let (shared, checked) = (self.0.clone(), comm.clone());
        // The break-up may still wait for another thread's call, and that thread has the communicator then.
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

    /// Reports a failure to the streams of all pending and later calls, of this rank and of the others in the process. The
    /// caller breaks the communicator afterwards, for the reason that is returned: that of the first failure.
    pub(super) fn fail(&self, broken: &CommunicatorFailure) -> CommunicatorFailure {
        self.0.team.fail(broken)
    }
}

/// A call that is watched.
pub(super) struct Calling<'a> {
    shared: &'a WatchdogShared,
    is_small: bool,
    grown: Option<Arc<StreamWatcher>>,
}

impl Calling<'_> {
    /// Returns the section of the call before, to which this one's work may be added.
    pub(super) fn grown(&self) -> Option<&StreamWatcher> {
        self.grown.as_deref()
    }

    /// Watches the work of a call, from the section `front` to the section `behind`. Either is `None` where the work
    /// was added to the section before: that of the call before, or `front`.
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
        // The next event that the stream records is one of those that this gives back.
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

    /// Returns whether there are graphs that contain calls, once there is no other owner of their watcher.
    fn is_in_graphs(&self) -> bool {
        self.graphs.get().is_some_and(|watcher| watcher.strong_count() > 0)
    }

    /// Returns the reason why the communicator was broken, or is about to be.
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
        // The number of the call that a thread was seen in, and the time.
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
                // The process is ending, and takes NCCL down.
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
                // The process may end while graphs are there.
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
            // Looked at without the lock: asking the driver takes its time, and calls go on meanwhile.
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
                // Waits must find the failure once the work ends, which it does by the second call.
                comm.break_up(self.team.fail(&broken));
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
        if state.thread == WatchdogThread::Idle {
            self.changed.notify_all();
        }
    }
}

impl WatchdogState {
    /// Returns whether there is nothing for the thread to do.
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.calling.is_none() && (self.broken.is_none() || self.ended)
    }

    /// Returns the reason why the communicator was broken, or is about to be, as an error.
    fn check(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), |broken| Err(Error::external(broken)))
    }

    /// Returns the failure for which the thread has yet to end the communicator.
    fn take_failure(&mut self) -> Option<CommunicatorFailure> {
        let broken = self.broken.clone().filter(|_| !self.ended);
        self.ended |= broken.is_some();
        broken
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

/// Takes out the calls whose work is done. Asks about few of them, and only about the first if that is not done, so
/// that the newest section can grow.
fn take_done(calls: &mut VecDeque<PendingCalls>) -> impl Iterator<Item = PendingCalls> {
    // A device that has failed does nothing more, and says so itself.
    let is_done = |call: &PendingCalls| !matches!(call.end.is_done(), Ok(false));
    let any = calls.front().is_some_and(is_done);
    let done = if any { calls.partition_point(is_done) } else { 0 };
    calls.drain(..done)
}

impl PendingCalls {
    /// Returns the call if its work, which is the first that is not done, has lasted beyond the limit.
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
