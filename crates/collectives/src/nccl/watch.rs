//! Watching calls and the work that they enqueue: a thread for each communicator ends what lasts too long, since a call of NCCL's
//! waits for a lost rank for ever, and so does a kernel.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gpustream::{Error, Event, ExitHold, Failures, Result, Stream};

use super::comm::Comm;
use crate::broken::Broken;
use crate::call::Signature;

/// The name of the library for the end of the process.
const LIBRARY: &str = "NCCL";

/// The time between two looks at pending work.
const PERIOD: Duration = Duration::from_millis(10);

/// The calls of one communicator whose work is pending, and the thread that looks after them. Once this is dropped and all
/// work is done, the thread closes the communicator.
pub(super) struct Watch(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when there is a first call, after a look, and at the end.
    changed: Condvar,
}

struct State {
    /// The call that a thread is in, and when it began. There is one at a time.
    calling: Option<(Signature, Instant)>,
    pending: VecDeque<Pending>,
    /// The point behind the newest call, while that is pending.
    end: Weak<Event>,
    /// Points of calls that are done, while others are pending. The next calls drop them, at a time at which their streams can
    /// take them back.
    past: Vec<Arc<Event>>,
    /// The reason why the communicator was broken: what is enqueued from here on has failed.
    broken: Option<Broken>,
    thread: Thread,
    life: Life,
}

enum Life {
    Open,
    /// There are no more calls. The process does not end before the communicator is closed.
    Closing(Option<ExitHold>),
}

/// The work of the thread.
#[derive(PartialEq)]
enum Thread {
    /// It waits for a call.
    Idle,
    /// It has taken the calls out, to look at their work.
    Looking,
    /// It comes back by itself.
    Between,
}

/// A call whose work may not be done.
struct Pending {
    call: Signature,
    /// The point in the stream before the work, and the one behind it, which may be the one before the next call's.
    before: Arc<Event>,
    after: Arc<Event>,
    failures: Failures,
    /// The time at which the stream was seen to have come to the work.
    since: Option<Instant>,
}

impl Watch {
    /// Starts the thread.
    pub(super) fn start(comm: Arc<Comm>) -> Result<Self> {
        let state = State {
            calling: None,
            pending: VecDeque::new(),
            end: Weak::new(),
            past: Vec::new(),
            broken: None,
            thread: Thread::Between,
            life: Life::Open,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let watched = shared.clone();
        let thread = thread::Builder::new().name("gpustream-nccl".into());
        thread.spawn(move || watched.watch(&comm)).map_err(Error::external)?;
        Ok(Self(shared))
    }

    /// Returns the point in the stream before the next call: the one behind the call before, where nothing has come between.
    pub(super) fn before(&self, stream: &Stream) -> Result<Arc<Event>> {
        let end = self.0.lock().end.upgrade();
        match end.filter(|end| stream.is_unchanged_since(end)) {
            Some(end) => Ok(end),
            None => Ok(Arc::new(stream.record()?)),
        }
    }

    /// Watches a call until the value is dropped. The caller holds the communicator.
    pub(super) fn call(&self, call: Signature) -> Calling<'_> {
        let mut state = self.0.lock();
        state.calling = Some((call, Instant::now()));
        if state.thread == Thread::Idle {
            self.0.changed.notify_all();
        }
        Calling(&self.0)
    }

    /// Watches the work of a call between `before` and the end of what the stream has. The call is watched meanwhile.
    pub(super) fn add(&self, call: Signature, stream: &Stream, before: Arc<Event>) -> Result<()> {
        let past = self.0.lock().past.pop();
        drop(past);
        let after = Arc::new(stream.record()?);
        let pending = Pending { call, before, after, failures: stream.failures(), since: None };
        let mut state = self.0.lock();
        if let Some(broken) = &state.broken {
            pending.failures.keep(Error::external(broken.clone()));
            return Ok(());
        }
        state.end = Arc::downgrade(&pending.after);
        state.pending.push_back(pending);
        Ok(())
    }

    /// Reports to the streams of all pending calls that their work failed, and of those to come. What breaks the communicator
    /// comes after.
    pub(super) fn fail(&self, broken: &Broken) {
        self.0.fail(broken);
    }
}

/// A call that is watched.
pub(super) struct Calling<'a>(&'a Shared);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.lock().calling = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.lock().life = Life::Closing(ExitHold::of(LIBRARY));
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, comm: &Comm) {
        loop {
            let mut state = self.lock();
            while state.pending.is_empty() && state.calling.is_none() && matches!(state.life, Life::Open) {
                state.thread = Thread::Idle;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let is_held = matches!(state.life, Life::Closing(Some(_)));
            let hold = if is_held { None } else { ExitHold::of(LIBRARY) };
            if !is_held && hold.is_none() {
                // The process is ending, and takes NCCL down.
                return;
            }
            if state.pending.is_empty() && state.calling.is_none() {
                drop(state);
                return comm.close();
            }
            let is_late = |(_, since): &(Signature, Instant)| since.elapsed() > comm.limit;
            let late_call = state.calling.filter(is_late).map(|(call, _)| call);
            // Looked at without the lock: asking the driver takes its time, and calls go on meanwhile.
            let calls = std::mem::take(&mut state.pending);
            state.thread = Thread::Looking;
            drop(state);
            let (left, done, late) = look(calls, comm.limit);
            let first = left.front().map(|pending| pending.call);
            let mut state = self.lock();
            for pending in left.into_iter().rev() {
                state.pending.push_front(pending);
            }
            state.past.extend(done);
            let forgotten =
                if state.pending.is_empty() { std::mem::take(&mut state.past) } else { Vec::new() };
            state.thread = Thread::Between;
            drop(state);
            drop(forgotten);
            self.changed.notify_all();
            let broken = match late.or(late_call) {
                Some(call) => Some(Broken::Stalled { call: call.to_string(), limit: comm.limit }),
                None => first.and_then(|call| comm.failure(call)),
            };
            if let Some(broken) = broken {
                // Waits must find the failure once the work ends, which it does by the second call.
                self.fail(&broken);
                comm.break_up(broken);
            }
            drop(hold);
            thread::sleep(PERIOD);
        }
    }

    fn fail(&self, broken: &Broken) {
        let state = self.lock();
        let mut state = self
            .changed
            .wait_while(state, |state| state.thread == Thread::Looking)
            .unwrap_or_else(PoisonError::into_inner);
        state.broken.get_or_insert_with(|| broken.clone());
        for Pending { after, failures, .. } in state.pending.drain(..) {
            if !after.is_done().unwrap_or(false) {
                failures.keep(Error::external(broken.clone()));
            }
        }
    }
}

/// Returns the calls whose work is not done, the points of the others, and the first call whose work has lasted beyond the limit.
fn look(
    calls: VecDeque<Pending>,
    limit: Duration,
) -> (VecDeque<Pending>, Vec<Arc<Event>>, Option<Signature>) {
    let (mut left, mut done) = (VecDeque::<Pending>::new(), Vec::new());
    let now = Instant::now();
    for mut call in calls {
        // A call that begins where one ends that is not done needs no question.
        if !left.back().is_some_and(|front| Arc::ptr_eq(&front.after, &call.before)) {
            // A device that has failed does nothing more, and says so itself.
            if !matches!(call.after.is_done(), Ok(false)) {
                done.push(call.after);
                continue;
            }
            if call.since.is_none() && call.before.is_done().unwrap_or(true) {
                call.since = Some(now);
            }
        }
        left.push_back(call);
    }
    let is_late = |call: &&Pending| call.since.is_some_and(|since| now.duration_since(since) > limit);
    let late = left.iter().find(is_late).map(|call| call.call);
    (left, done, late)
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("pending", &self.0.lock().pending.len()).finish()
    }
}
