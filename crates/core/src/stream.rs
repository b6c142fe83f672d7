//! Streams: we number their submissions, order them, and know how far each stream has come.
//!
//! | module | knows |
//! |---|---|
//! | `entry` | what one call has already checked on its way in |
//! | `submit` | the waits that an operation needs, the driver's call, and the use that the operation leaves behind |
//! | `event` | recording an event, and making a stream wait for one |
//! | `mark` | events at a stream's end, so that other streams and the host can wait for it |
//! | `watcher` | operations that a listener watches, through events that we record late |
//! | `progress` | known, poll, wait: how far the stream has come |
//! | `capture` | streams that the driver is recording |
//! | `proxy` | a second stream for captures, because HIP would take the first stream's events along |
//! | `destination` | the places where operations can go |
//! | `table` | the process's streams, by number |
//! | `context` | keeps captures and waits for a whole context apart |
//! | `wait` | host access to memory |
//! | `replay` | operations that are deferred for a graph |
//! | `short_copies` | pinned memory that a stream keeps for short copies |
//!
//! One rule prevents deadlocks and keeps numbers in the driver's order: a stream takes a number and calls the driver under
//! its own lock, and no thread ever holds the locks of two streams. So to hand work over, we first record on the other
//! stream under that stream's lock, unlock it, and only then lock our own.
//!
//! Whenever a stream's lock is free, another thread may begin to capture the stream. The driver would then put everything
//! that we submit into that thread's graph. So if you read the state, call the driver under the same lock; otherwise you
//! cannot trust the state. If you unlock and lock again, look again. A capture begins under the lock, together with the
//! driver's capture, and the stream counts as running only after the driver's capture has ended.
//!
//! This layer knows memory, operations and recordings. It does not know pools, devices or the handles that users hold.

mod capture;
mod capture_order;
mod context;
mod destination;
mod entry;
mod event;
mod mark;
mod progress;
mod proxy;
mod replay;
mod short_copies;
mod submit;
mod table;
mod wait;
mod watcher;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use gpustream_hal::{self as hal, Error, ErrorKind, RawStream, Result, WaitPolicy};

use crate::failures::Failures;
use crate::fast_path_mutex::{FastPathMutex, FastPathMutexGuard};
use crate::operation::{not_a_node, refused};
use crate::reentrancy::{self, OutsideClosures};
use crate::replay::ReplayStep;
use crate::sync::thread::{self, ThreadId};
use crate::trace::{self, InStream, StreamName};
use crate::track::{Clock, Point, StreamId};
use mark::Owed;

pub use capture::{Capture, CapturedPoint};
pub(crate) use context::ContextHold;
pub use destination::Destination;
pub(crate) use destination::Recording;
pub use entry::StreamEntry;
pub use mark::{EventCell, EventContents, EventKind, Mark};
pub use replay::ReplayRun;
pub(crate) use short_copies::{Chunk, ShortCopies, Up};
pub use submit::Begun;
pub(crate) use table::Adopting;
pub use table::{StreamTable, known_done, prune};
pub use wait::{is_done, wait_for};
pub use watcher::StreamWatcher;

/// We note at most this many points that a stream waited for, because a stream can wait often and never get any work.
const MOST_WAITED: usize = 64;

/// The state of a stream that is locked.
pub(crate) type StateGuard<'a> = FastPathMutexGuard<'a, StreamState>;

/// What changes under the stream's lock.
#[derive(Default)]
pub(crate) struct StreamState {
    /// The last number given out.
    number: u64,
    /// The number of events recorded so far.
    records: u64,
    /// The points of other streams that this stream comes after.
    pub clock: Clock,
    /// True if the last operation leaves something to do after its calls: it touches memory that the host may wait for, or a
    /// listener or another thread waits for the operation itself.
    concludes: bool,
    /// The points that the stream has waited for since its last operation. We only note them while a trace listens.
    waited: Vec<Point>,
    /// Recorded events, oldest first.
    marks: VecDeque<Mark>,
    /// Events that would tell exactly when the last operation is done, and that we have not recorded yet. We record one
    /// before the next submission. For host memory we skip it if that submission touches the same memory in the same way.
    owed: Vec<Owed>,
    /// How many short copies we have put that event off for.
    put_off: u8,
    /// Driver events that are free to use again.
    free: Vec<Arc<EventCell>>,
    /// The contents of dropped `gpustream::Event`s, which the next events reuse.
    #[allow(clippy::vec_box)] // the boxes are what is kept
    spare: Vec<Box<EventContents>>,
    recording: Recording,
    /// The step that is running now, if there is one.
    step: Option<Box<ReplayStep>>,
}

/// A stream. Its `Stream`s share it with everything that waits for its work.
pub struct StreamCore {
    pub id: StreamId,
    /// The driver's handle. If you put something into the stream, or ask about its end, take the handle from
    /// [`caught_up`](Self::caught_up) instead.
    raw: RawStream,
    pub device: Arc<dyn hal::Device>,
    /// Its fast path is enabled during a run of a step.
    pub(crate) state: FastPathMutex<StreamState>,
    pub(crate) short_copies: ShortCopies,
    /// The last number that we gave out, readable without the lock.
    counted: AtomicU64,
    /// True if the stream's operations are recorded instead of run. Readable without the lock.
    recorded: AtomicBool,
    /// True if other code may submit to the driver's stream, because it made the stream or you took the raw handle.
    shared: AtomicBool,
    /// We know that everything up to this number is done.
    completed: AtomicU64,
    /// The failures that the next wait will report.
    pub failures: Arc<Failures>,
    /// The name that traces show.
    pub name: Arc<StreamName>,
    destination: Destination,
    origin: Origin,
    /// How many `Stream`s refer to this stream, if it is not ours. Only changed under the table's [`Adopting`] lock.
    handles: AtomicUsize,
    /// How host threads wait for the stream's events.
    wait: WaitPolicy,
    /// Set when the last `Stream` of a stream that is not ours is dropped. Then its owner may destroy it.
    retired: AtomicBool,
    /// The driver's stream that we capture in place of this one. We make it when we first need it.
    proxy: OnceLock<RawStream>,
}

/// Who made a stream, and so who destroys it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We made it, so we destroy it.
    Ours,
    /// We made it. Its work and the legacy default stream's work wait for each other.
    Blocking,
    /// The driver or your own code made it, and may destroy it once no `Stream` refers to it.
    Foreign,
    /// The driver made it: it is the default stream of this thread. On other threads the same driver's handle means another
    /// stream.
    Thread(ThreadId),
    /// It stands for a node of a graph. The driver has no such stream.
    Node,
}

impl Origin {
    fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::Blocking)
    }

    /// The default stream of the calling thread. Other threads can only wait for it through events, so each submission to it
    /// gets one.
    pub fn this_thread() -> Self {
        Self::Thread(thread::current().id())
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.is_ours() {
            let (device, raw, proxy) = (self.device.clone(), self.raw, self.proxy.take());
            reentrancy::outside(move || {
                for raw in proxy.into_iter().chain([raw]) {
                    // SAFETY: the device drops an entry only once the stream's work is done and no one else holds it. A
                    // proxy has no work and is in no capture, because a capture holds its streams.
                    let _ = unsafe { device.stream_destroy(raw) };
                }
            });
        }
    }
}

impl StreamCore {
    /// Makes the core for a stream of the driver.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(
        raw: RawStream,
        device: Arc<dyn hal::Device>,
        wait: WaitPolicy,
        origin: Origin,
    ) -> Self {
        Self::with_destination(raw, device, wait, origin, Destination::DRIVER)
    }

    /// Makes a stream whose operations become nodes of graphs. It has no driver's stream.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn of_nodes(destination: Destination, device: Arc<dyn hal::Device>) -> Self {
        Self::with_destination(RawStream(0), device, WaitPolicy::default(), Origin::Node, destination)
    }

    fn with_destination(
        raw: RawStream,
        device: Arc<dyn hal::Device>,
        wait: WaitPolicy,
        origin: Origin,
        destination: Destination,
    ) -> Self {
        let recording = if origin == Origin::Node { Recording::Node } else { Recording::None };
        let state = StreamState { recording, ..StreamState::default() };
        Self {
            id: StreamId::next(),
            raw,
            device,
            recorded: AtomicBool::new(state.is_recorded()),
            shared: AtomicBool::new(!origin.is_ours()),
            state: FastPathMutex::new(state),
            short_copies: ShortCopies::default(),
            counted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failures: Arc::default(),
            name: Arc::default(),
            destination,
            origin,
            handles: AtomicUsize::new(1),
            wait,
            retired: AtomicBool::new(false),
            proxy: OnceLock::new(),
        }
    }

    /// Returns true if this is a stream in the context of `device`. Several opened devices may share a context.
    pub(crate) fn is_in_context_of(&self, device: &dyn hal::Device) -> bool {
        self.device.context() == device.context() && self.device.info().backend == device.info().backend
    }

    /// Returns true if both stand for the same driver stream.
    pub(super) fn is_same_stream(&self, other: &Self) -> bool {
        self.raw == other.raw && self.thread() == other.thread() && self.is_in_context_of(&*other.device)
    }

    /// Returns true if only one thread may use this stream.
    pub(crate) fn is_one_threads(&self) -> bool {
        matches!(self.origin, Origin::Thread(_))
    }

    /// Returns the driver's handle, for the calls of an operation that has [`begun`](StreamEntry::begin).
    #[inline]
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Returns the number of multiprocessors of a stream on a part of the device. Captured nodes run on that part too.
    pub fn part(&self) -> Option<u32> {
        if !self.is_ours() {
            return None;
        }
        // SAFETY: the stream is alive, and of this device.
        unsafe { self.device.stream_multiprocessors(self.raw) }
    }

    #[inline]
    fn thread(&self) -> Option<ThreadId> {
        if let Origin::Thread(thread) = self.origin { Some(thread) } else { None }
    }

    #[inline]
    fn is_elsewhere(&self) -> bool {
        self.thread().is_some_and(is_another)
    }

    /// Refuses another thread's default stream, and every stream inside a host closure.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that may not call the library; [`ErrorKind::InvalidArgument`] for the
    /// default stream of another thread.
    #[inline]
    pub fn check_thread(&self) -> Result<OutsideClosures> {
        let outside = reentrancy::check_outside()?;
        if self.is_elsewhere() { Err(another_threads()) } else { Ok(outside) }
    }

    /// Returns true if this library made the driver's stream.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.origin.is_ours()
    }

    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Returns true if calls with `raw` reach this stream.
    #[inline]
    pub(crate) fn is_reachable(&self) -> bool {
        !self.is_elsewhere() && !self.is_retired()
    }

    /// Counts one more `Stream` that refers to this core. Returns false if the core is retired, so that you must make a new
    /// one. But if a retired core's stream is being captured, the core comes back, because a new core would not know that
    /// the driver puts its work into the graph.
    pub(super) fn add_handle(&self, _: &Adopting<'_>) -> bool {
        if self.is_retired() {
            let state = self.state.lock();
            if !state.is_recorded() {
                return false;
            }
            // We do this with the lock held, so that the capture cannot end before.
            self.retired.store(false, Ordering::Release);
        }
        self.handles.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts one `Stream` less on a stream that is not ours. After the last one, the owner may destroy the driver's
    /// stream, so from then on we only ask about events that were recorded on it.
    pub fn let_go(&self) {
        // Held until the core is retired, so that a new core in its place finds nothing left to record.
        let _adopting = StreamTable::shared().adopting();
        if self.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let mut state = self.state.lock();
        // A capture marks the end of what was submitted before it, and each use of a per-thread default stream marks the
        // end too.
        if !state.is_recorded() && !self.is_elsewhere() && self.mark_end(&mut state).is_err() {
            // SAFETY: the stream is alive.
            let ended =
                self.caught_up(&mut state).and_then(|raw| unsafe { self.device.stream_synchronize(raw) });
            if ended.is_ok() {
                self.set_done(state.number);
            }
        }
        self.retired.store(true, Ordering::Release);
    }

    /// Returns everything that an operation would come after if you submitted it now.
    pub fn past(&self) -> Clock {
        let state = self.state.lock();
        let mut past = state.clock.clone();
        past.advance(Point { stream: self.id, number: state.number });
        past
    }

    /// Returns the place of an operation, for a trace.
    pub(super) fn place(&self, number: u64, after: Vec<Point>) -> InStream {
        let point = Point { stream: self.id, number };
        let name = self.name.clone();
        InStream { stream: self.raw, point, name, after, is_exclusive: self.is_exclusive() }
    }

    /// Returns true if other code may submit to the driver's stream.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Returns true if we know all operations on the stream, and everything that they wait for.
    pub(super) fn is_exclusive(&self) -> bool {
        self.origin == Origin::Ours && !self.is_shared()
    }

    /// Returns the number that an event recorded now stands for. If other code uses the stream, this is a new number,
    /// because that code's work has no number of its own, and a wait for the event waits for that work too.
    #[inline]
    pub(crate) fn number_of_end(&self, state: &mut StreamState) -> u64 {
        if self.is_shared() {
            state.number += 1;
            self.counted.store(state.number, Ordering::Release);
        }
        state.number
    }

    /// Gives the driver everything that is deferred, and returns the number of the last submission.
    pub fn submitted(&self) -> u64 {
        let mut state = self.state.lock();
        // We ignore errors, because an operation that the driver refuses never runs.
        let _ = self.caught_up(&mut state);
        state.number
    }

    /// Returns the number of the last submission, which may still be deferred. Takes no lock, because a thread that submits
    /// may hold it while it waits for room in the stream.
    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Acquire)
    }

    /// Locks the state if it is free.
    pub(crate) fn try_state(&self) -> Option<StateGuard<'_>> {
        self.state.try_lock()
    }

    /// Returns true if only the table holds the stream.
    pub(crate) fn is_orphan(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    /// Locks the state of a stream that is not being captured. No capture can begin while you hold the state. `what`
    /// completes the error "you cannot …".
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] in a capture and [`ErrorKind::NotANode`] on a stream of nodes; [`ErrorKind::InHostClosure`]
    /// inside a host closure.
    pub(crate) fn running(&self, what: &str) -> Result<StateGuard<'_>> {
        // We check this before we lock, because the lock's holder may be waiting for this very closure.
        reentrancy::check_outside()?;
        let state = self.state.lock();
        if state.is_recorded() { Err(self.refusal(what)) } else { Ok(state) }
    }

    /// Returns the error for something that you cannot do with a recorded stream. `what` completes "you cannot …".
    #[cold]
    pub fn refusal(&self, what: &str) -> Error {
        if self.destination.is_driver() { refused(what) } else { not_a_node(what) }
    }

    /// Makes a driver's call on a stream that is not being captured, after everything that was submitted. The call must not
    /// touch tracked memory. `what` completes the error "you cannot …".
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] in a recording; the failure of a deferred operation; the error of `call`.
    pub fn call_driver<T>(&self, what: &str, call: impl FnOnce(RawStream) -> Result<T>) -> Result<T> {
        self.check_thread()?;
        let mut state = self.running(what)?;
        call(self.caught_up(&mut state)?)
    }

    /// Returns true if operations are recorded instead of run. Another thread may change that at any time, but for the
    /// capturing thread the answer stays right.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    /// Returns the capture that the stream takes part in.
    fn capture(&self) -> Option<Arc<Capture>> {
        match self.state.lock().recording() {
            Recording::Capture(capture, _) => Some(capture.clone()),
            _ => None,
        }
    }

    /// Sets what we do with operations from now on.
    fn set_recording(&self, state: &mut StreamState, recording: Recording) {
        state.recording = recording;
        self.recorded.store(state.is_recorded(), Ordering::Release);
    }
}

impl StreamState {
    /// Returns what records the stream's operations, if anything does.
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Notes for traces that the stream now waits for `point`.
    #[inline]
    pub(crate) fn note_wait(&mut self, point: Point) {
        if trace::is_on() && self.waited.len() < MOST_WAITED {
            self.waited.push(point);
        }
    }

    /// Returns true if operations are recorded instead of run.
    pub(crate) fn is_recorded(&self) -> bool {
        !matches!(self.recording, Recording::None)
    }

    /// Removes the points that are known to be done from a long clock.
    pub(crate) fn prune_clock(&mut self) {
        if self.clock.len() > 16 {
            self.clock.retain(|point| !known_done(point));
        }
    }
}

#[cold]
fn is_another(thread: ThreadId) -> bool {
    thread != thread::current().id()
}

#[cold]
fn another_threads() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "this is the default stream of another thread, and only that thread may use it; take this thread's default \
         stream, or make a stream, which every thread may use",
    )
}
