//! The shared part of a stream: numbering, clock, and how far it has come.
//!
//! One rule prevents deadlock and inversion: a number is taken and the driver is called under the stream's own
//! lock, and no thread ever holds two streams' locks. A hand-over therefore records on the other stream first
//! (under its lock), lets go, and takes its own.
//!
//! Another thread may begin to capture a stream whenever its lock is free, and the driver would then put into that
//! thread's graph whatever it is given. So nothing is known of a capture but what was seen under the lock that the
//! driver's call is made with, and whoever takes the lock a second time looks a second time. A capture begins under the
//! lock together with the driver's, and the stream runs again only after the driver's has ended.

mod capture;
mod context;
mod mark;
mod short_path;
mod sink;
mod submit;
mod table;
mod wait;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, TryLockError};

use gpustream_hal::{self as hal, Error, ErrorKind, RawStream, Result, WaitPolicy};
use smallvec::SmallVec;

use crate::host_call::Panicked;
use crate::inside;
use crate::operation::refused;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::track::{Clock, Point, StreamId};
use mark::Owed;

pub(crate) use capture::{Capture, CapturedPoint};
pub(crate) use context::ContextHold;
pub(crate) use mark::{EventCell, Mark, Recorded};
pub(crate) use short_path::{Chunk, ShortPath, Up};
pub(crate) use sink::{Recording, Sink};
pub(crate) use table::{Adopting, StreamTable, prune};
pub(crate) use wait::{is_ready, wait_for};

pub(crate) struct StreamState {
    /// The last number given out.
    number: u64,
    /// How many events have been recorded.
    records: u64,
    /// What this stream is ordered after.
    pub(crate) clock: Clock,
    /// Recorded events, oldest first.
    marks: VecDeque<Mark>,
    /// The memory of the host's that the last operation touched, if there is no event yet by which to wait for exactly that
    /// operation. Recorded before anything else is submitted, but for what touches the same memory again.
    owed: SmallVec<[Owed; 2]>,
    /// Events nobody holds any more.
    free: Vec<Arc<EventCell>>,
    /// Dropped events, for the next ones.
    #[allow(clippy::vec_box)] // the boxes are what is kept
    spare: Vec<Box<Recorded>>,
    /// The device has let go of the stream; nothing comes back to it.
    closed: bool,
    pub(crate) recording: Recording,
}

pub(crate) struct StreamCore {
    pub(crate) id: StreamId,
    pub(crate) raw: RawStream,
    pub(crate) device: Arc<dyn hal::Device>,
    pub(crate) state: Mutex<StreamState>,
    pub(crate) short_path: ShortPath,
    /// The last number given out, for those who do not wait for the lock.
    counted: AtomicU64,
    /// Everything up to this number is known to be done.
    completed: AtomicU64,
    /// How many dropped events the stream keeps; each holds the stream.
    resting: AtomicUsize,
    pub(crate) panicked: Arc<Panicked>,
    pub(crate) sink: Sink,
    /// Whether `raw` was made by us.
    owned: bool,
    /// How many `Stream`s refer to a stream that was not. Changed with the table's [`Adopting`] lock held.
    handles: AtomicUsize,
    /// How host threads wait for its events.
    wait: WaitPolicy,
    /// Set when the last `Stream` of one that was not made by us was dropped. Its owner may then destroy it.
    retired: AtomicBool,
    /// The only thread on which `raw` means this stream: it is that thread's default stream.
    thread: Option<ThreadId>,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.owned {
            let (device, raw) = (self.device.clone(), self.raw);
            inside::outside(move || {
                // SAFETY: the device drops an entry only when the stream's work is done and nobody else holds it.
                let _ = unsafe { device.stream_destroy(raw) };
            });
        }
    }
}

impl StreamCore {
    pub(crate) fn new(
        id: StreamId,
        raw: RawStream,
        device: Arc<dyn hal::Device>,
        wait: WaitPolicy,
        owned: bool,
    ) -> Self {
        let state = StreamState {
            number: 0,
            records: 0,
            clock: Clock::default(),
            marks: VecDeque::new(),
            owed: SmallVec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            closed: false,
            recording: Recording::None,
        };
        Self {
            id,
            raw,
            device,
            state: Mutex::new(state),
            short_path: ShortPath::default(),
            counted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            resting: AtomicUsize::new(0),
            panicked: Arc::default(),
            sink: Sink::Driver,
            owned,
            handles: AtomicUsize::new(1),
            wait,
            retired: AtomicBool::new(false),
            thread: None,
        }
    }

    /// A stream whose operations become nodes of graphs. It has no driver's stream.
    pub(crate) fn of_nodes(sink: Sink, device: Arc<dyn hal::Device>) -> Self {
        let mut core = Self::new(StreamId(0), RawStream(0), device, WaitPolicy::default(), false);
        core.sink = sink;
        lock(&core.state).recording = Recording::Node;
        core
    }

    /// The default stream of the calling thread. The driver's handle means another stream on every thread, so
    /// only this one may use it. The others go by events: each submission gets one.
    pub(crate) fn of_this_thread(
        id: StreamId,
        raw: RawStream,
        device: Arc<dyn hal::Device>,
        wait: WaitPolicy,
    ) -> Self {
        let mut core = Self::new(id, raw, device, wait, false);
        core.thread = Some(thread::current().id());
        core
    }

    /// Whether it is a stream of `device`'s context, which several opened devices may share.
    pub(crate) fn is_in_context_of(&self, device: &dyn hal::Device) -> bool {
        self.device.context() == device.context() && self.device.info().backend == device.info().backend
    }

    /// Whether both stand for one stream of the driver's.
    pub(super) fn is_same_stream(&self, other: &Self) -> bool {
        (self.raw, self.thread) == (other.raw, other.thread) && self.is_in_context_of(&*other.device)
    }

    /// Whether only one thread may use it.
    pub(crate) fn is_one_threads(&self) -> bool {
        self.thread.is_some()
    }

    #[inline]
    fn is_elsewhere(&self) -> bool {
        self.thread.is_some_and(|thread| thread != thread::current().id())
    }

    /// Refuses another thread's default stream, and every stream inside a host closure.
    #[inline]
    pub(crate) fn check_thread(&self) -> Result<()> {
        inside::check_outside()?;
        if self.is_elsewhere() { Err(another_threads()) } else { Ok(()) }
    }

    /// Whether the driver's stream was made by us.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.owned
    }

    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether calls with `raw` reach this stream.
    #[inline]
    pub(crate) fn is_reachable(&self) -> bool {
        !self.is_elsewhere() && !self.is_retired()
    }

    /// One more `Stream` refers to it; `false` if it is retired, and another core is to take its place. In a capture it
    /// comes back instead: another core would not know that the driver puts its work into the graph.
    pub(super) fn add_handle(&self, _: &Adopting<'_>) -> bool {
        if self.is_retired() {
            let state = lock(&self.state);
            if !state.is_recorded() {
                return false;
            }
            // With the lock held, so that the capture lasts until then.
            self.retired.store(false, Ordering::Release);
        }
        self.handles.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A `Stream` of a stream that was not made by us goes. With the last goes its owner's promise that it is there:
    /// from then on nothing but events recorded on it is asked.
    pub(crate) fn let_go(&self) {
        // Held until it is retired, so that a core that takes its place finds nothing left to be recorded.
        let _adopting = StreamTable::shared().adopting();
        if self.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let mut state = lock(&self.state);
        // A capture has marked the end of what was submitted before it, as has every use of a thread's stream.
        if !state.is_recorded() && !self.is_elsewhere() && self.mark_end(&mut state).is_err() {
            // SAFETY: the stream is alive.
            if unsafe { self.device.stream_synchronize(self.raw) }.is_ok() {
                self.set_done(state.number);
            }
        }
        self.retired.store(true, Ordering::Release);
    }

    /// Everything that an operation submitted now would come after.
    pub(crate) fn past(&self) -> Clock {
        let state = lock(&self.state);
        let mut past = state.clock.clone();
        past.advance(Point { stream: self.id, number: state.number });
        past
    }

    /// The number of the last submission.
    pub(crate) fn submitted(&self) -> u64 {
        lock(&self.state).number
    }

    /// As [`submitted`](Self::submitted), or one more: the driver may not have been given that one yet. Never waits for a
    /// thread that submits, which may itself wait for room in the stream.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Acquire)
    }

    /// Whether everything up to `number` is known to be done, without asking the driver.
    #[inline]
    pub(crate) fn is_known_done(&self, number: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= number
    }

    /// As [`is_known_done`](Self::is_known_done), but asks where a wait may not be possible any more, and knows what
    /// the host closure that we are in comes after.
    #[inline]
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.is_known_done(number)
            || inside::is_past(Point { stream: self.id, number })
            || self.is_retired() && self.query_by_event(number).is_ok_and(|clock| clock.is_some())
    }

    /// Everything up to `number` is done.
    pub(crate) fn set_done(&self, number: u64) {
        // Not `fetch_max`, which ThreadSanitizer does not see.
        let mut done = self.completed.load(Ordering::Relaxed);
        while done < number {
            match self.completed.compare_exchange_weak(done, number, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => done = now,
            }
        }
    }

    /// Whether everything submitted is done; never blocks. A stream that is being captured is not, nor one that somebody
    /// is using at this moment: who submits may wait for room in it.
    pub(crate) fn query(&self) -> Result<bool> {
        let clock = self.query_alone()?;
        if let Some(clock) = &clock {
            StreamTable::shared().set_done(clock);
        }
        Ok(clock.is_some())
    }

    /// As [`query`](Self::query), but if it is, leaves it to the caller to tell the other streams what of theirs
    /// is done with it.
    pub(crate) fn query_alone(&self) -> Result<Option<Clock>> {
        let Some(state) = self.try_state() else { return Ok(None) };
        if state.is_recorded() {
            return Ok(None);
        }
        self.query_locked(state)
    }

    /// The state, unless somebody has it.
    pub(crate) fn try_state(&self) -> Option<MutexGuard<'_, StreamState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`query_alone`](Self::query_alone), for a stream that is known not to be captured.
    pub(crate) fn query_locked(&self, state: MutexGuard<'_, StreamState>) -> Result<Option<Clock>> {
        let number = state.number;
        if !self.is_reachable() {
            drop(state);
            return self.query_by_event(number);
        }
        // SAFETY: the stream is alive: one that is not ours cannot retire while its lock is held.
        let done = unsafe { self.device.stream_query(self.raw) }?;
        if done {
            self.set_done(number);
        }
        Ok(done.then(|| state.clock.clone()))
    }

    /// As [`query_alone`](Self::query_alone), for a stream that is out of reach.
    #[cold]
    fn query_by_event(&self, number: u64) -> Result<Option<Clock>> {
        if self.is_known_done(number) {
            return Ok(Some(Clock::default()));
        }
        let Some(mark) = self.last_mark().filter(|mark| mark.number >= number) else { return Ok(None) };
        Ok(self.is_reached(&mark)?.then_some(mark.clock))
    }

    /// Blocks until everything submitted is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.check_thread()?;
        let mut state = self.running("make the host wait for a stream that is being captured")?;
        // By an event: the stream itself may be captured by another thread before the driver hears of the wait. And
        // how a driver waits for a stream is up to the context, which others share; for an event it is ours.
        let Mark { number, cell, clock, .. } = self.mark(&mut state)?.clone();
        drop(state);
        // SAFETY: it was just recorded on this stream, which is alive.
        unsafe { cell.synchronize() }?;
        StreamTable::shared().set_done(&clock);
        self.finish(number, cell);
        self.panicked.report()
    }

    /// Blocks until nothing is pending, whatever the outcome. Nobody else may have the stream: it must not be captured.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        if self.owned {
            // SAFETY: the stream is alive.
            return unsafe { self.device.stream_synchronize(self.raw) };
        }
        self.wait_for_end()
    }

    /// Blocks until everything submitted so far is done. By an event, since the stream may be captured meanwhile, or
    /// its owner destroy it as soon as its value goes.
    ///
    /// # Errors
    /// [`ErrorKind::Driver`] where no event covers all of it and none can be recorded any more.
    pub(crate) fn wait_for_end(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let number = state.number;
        if self.is_known_done(number) {
            return Ok(());
        }
        if self.is_reachable() && !state.is_recorded() {
            self.mark_end(&mut state)?;
        }
        let mark = state.marks.back().filter(|mark| mark.number >= number).cloned();
        drop(state);
        match mark {
            // SAFETY: the event is alive and was recorded on this stream.
            Some(mark) => unsafe { mark.cell.synchronize() },
            None => Err(Error::new(
                ErrorKind::Driver,
                "no event tells when the stream's last operations are done",
            )),
        }
    }

    /// As [`wait_for_end`](Self::wait_for_end), and remembers that the work was done.
    pub(crate) fn settle(&self) -> Result<()> {
        let number = self.submitted();
        self.wait_for_end()?;
        self.set_done(number);
        Ok(())
    }

    /// Blocks until the submission of that number is done.
    pub(crate) fn synchronize_number(&self, number: u64) -> Result<()> {
        if self.is_done(number) {
            return Ok(());
        }
        let Some((number, cell)) = self.event_for(number)? else { return Ok(()) };
        // SAFETY: the event is alive and was recorded on this stream, which is alive.
        unsafe { cell.synchronize() }?;
        self.finish(number, cell);
        self.panicked.report()
    }

    /// Whether the submission of that number is done; never blocks.
    pub(crate) fn query_number(&self, number: u64) -> Result<bool> {
        if self.is_done(number) {
            return Ok(true);
        }
        self.mark_for(number)?.map_or(Ok(true), |mark| self.query_mark(&mark))
    }

    /// Whether only the device's table, and events that were dropped, hold the stream.
    pub(crate) fn is_orphan(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 + self.resting.load(Ordering::Acquire)
    }

    /// Breaks the circle of stream and spare events; the device lets go of the stream.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let spare = std::mem::take(&mut state.spare);
        self.resting.store(0, Ordering::Release);
        drop(state);
        // With no lock held: this drops driver events, and gives back memory.
        drop(spare);
        self.short_path.close();
    }

    /// The state of a stream that is not being captured, for what cannot be part of a recording, nor be done inside a
    /// host closure. It is not captured for as long as the state is held.
    pub(crate) fn running(&self, what: &str) -> Result<MutexGuard<'_, StreamState>> {
        // Before the lock, which somebody may hold who waits for this very closure.
        inside::check_outside()?;
        let state = lock(&self.state);
        if state.is_recorded() { Err(refused(what)) } else { Ok(state) }
    }

    /// Refuses at once what would be refused later: another thread may begin a capture as soon as this returns.
    pub(crate) fn check_not_capturing(&self, what: &str) -> Result<()> {
        self.running(what).map(drop)
    }
}

impl StreamState {
    /// The number of the last submission.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether operations are recorded instead of run.
    pub(crate) fn is_recorded(&self) -> bool {
        !matches!(self.recording, Recording::None)
    }

    /// Forgets what the clock need not say: where the other stream's work is known to be done.
    pub(crate) fn prune_clock(&mut self) {
        if self.clock.len() > 16 {
            self.clock.retain(|point| !StreamTable::shared().is_known_done(point));
        }
    }
}

#[cold]
fn another_threads() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "this is the default stream of another thread; take this thread's, or make a stream, which all threads can use",
    )
}
