//! The shared part of a stream: numbering, clock, and how far it has come.
//!
//! One rule prevents deadlock and inversion: a number is taken and the driver is called under the stream's own
//! lock, and no thread ever holds two streams' locks. A hand-over therefore records on the other stream first
//! (under its lock), lets go, and takes its own.

mod mark;
mod submit;
mod table;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use gpustream_hal::{self as hal, Error, ErrorKind, RawStream, Result, WaitPolicy};

use crate::capture::{Capture, refused};
use crate::device::has_ended;
use crate::event::Recorded;
use crate::host_call;
use crate::staging::ShortPath;
use crate::sync::lock;
use crate::track::{Clock, Point, StreamId};

pub(crate) use mark::{EventCell, Mark};
pub(crate) use submit::{Access, Waited, hazard};
pub(crate) use table::StreamTable;

pub(crate) struct StreamState {
    /// The last number given out.
    number: u64,
    /// How many events have been recorded.
    records: u64,
    /// What this stream is ordered after.
    pub(crate) clock: Clock,
    /// Recorded events, oldest first.
    marks: VecDeque<Mark>,
    /// Events nobody holds any more.
    free: Vec<Arc<EventCell>>,
    /// Dropped events, for the next ones.
    #[allow(clippy::vec_box)] // the boxes are what is kept
    spare: Vec<Box<Recorded>>,
    /// The device has let go of the stream; nothing comes back to it.
    closed: bool,
    /// The recording that this stream takes part in.
    pub(crate) capture: Option<Arc<Capture>>,
}

pub(crate) struct StreamCore {
    pub(crate) id: StreamId,
    pub(crate) raw: RawStream,
    pub(crate) device: Arc<dyn hal::Device>,
    pub(crate) state: Mutex<StreamState>,
    pub(crate) short_path: ShortPath,
    /// Everything up to this number is known to be done.
    completed: AtomicU64,
    /// How many dropped events the stream keeps; each holds the stream.
    resting: AtomicUsize,
    /// What a host closure's panic said, until a wait reports it.
    pub(crate) panicked: Mutex<Option<String>>,
    /// What turns this stream's operations into nodes of a graph, where that is what it is for.
    pub(crate) nodes: Option<Arc<Capture>>,
    /// Whether `raw` was made by us.
    owned: bool,
    /// How host threads wait for its events.
    wait: WaitPolicy,
    /// The value of a stream that was not is gone, and its owner may destroy it.
    retired: AtomicBool,
    /// The only thread on which `raw` means this stream: it is that thread's default stream.
    thread: Option<ThreadId>,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.owned {
            let (device, raw) = (self.device.clone(), self.raw);
            host_call::outside(move || {
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
            free: Vec::new(),
            spare: Vec::new(),
            closed: false,
            capture: None,
        };
        Self {
            id,
            raw,
            device,
            state: Mutex::new(state),
            short_path: ShortPath::default(),
            completed: AtomicU64::new(0),
            resting: AtomicUsize::new(0),
            panicked: Mutex::new(None),
            nodes: None,
            owned,
            wait,
            retired: AtomicBool::new(false),
            thread: None,
        }
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
        host_call::check_outside()?;
        if self.is_elsewhere() { Err(another_threads()) } else { Ok(()) }
    }

    /// Whether the driver's stream was made by us.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.owned
    }

    #[inline]
    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether calls with `raw` reach this stream.
    #[inline]
    pub(crate) fn is_reachable(&self) -> bool {
        !self.is_elsewhere() && !self.is_retired()
    }

    /// The value of somebody else's stream goes, and with it their promise that it is there: from now on nothing but
    /// events recorded on it is asked.
    pub(crate) fn retire(&self) {
        let mut state = lock(&self.state);
        // A capture has marked the end of what was submitted before it, as has every use of a thread's stream.
        if state.capture().is_none() && !self.is_elsewhere() && self.mark_end(&mut state).is_err() {
            // SAFETY: the stream is alive.
            if has_ended(&unsafe { self.device.stream_synchronize(self.raw) }) {
                self.set_done(state.number);
            }
        }
        self.retired.store(true, Ordering::Release);
    }

    /// The number of the last submission.
    pub(crate) fn submitted(&self) -> u64 {
        lock(&self.state).number
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
            || host_call::is_past(Point { stream: self.id, number })
            || self.is_retired() && self.query_by_event(number).is_ok_and(|clock| clock.is_some())
    }

    /// Everything up to `number` is done.
    pub(crate) fn set_done(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether everything submitted is done; never blocks.
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
        let state = lock(&self.state);
        if state.capture().is_some() {
            return Ok(None);
        }
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
        self.check_not_capturing("make the host wait for a stream that is being captured")?;
        let mut state = lock(&self.state);
        let (number, clock) = (state.number, state.clock.clone());
        let cell = match self.wait {
            WaitPolicy::Spin => None,
            _ => Some(self.mark(&mut state)?.cell.clone()),
        };
        drop(state);
        match cell {
            // SAFETY: the stream is alive.
            None => unsafe { self.device.stream_synchronize(self.raw) }?,
            // How a driver waits for a stream is up to the context, which others share; for an event it is ours.
            // SAFETY: it was just recorded on this stream, which is alive.
            Some(cell) => unsafe { cell.synchronize() }?,
        }
        self.set_done(number);
        StreamTable::shared().set_done(&clock);
        self.report_panic()
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
        if self.is_reachable() && state.capture().is_none() {
            self.mark_end(&mut state)?;
        }
        let mark = state.marks.back().filter(|mark| mark.number >= number).cloned();
        drop(state);
        match mark {
            // SAFETY: the event is alive and was recorded on this stream.
            Some(mark) => unsafe { mark.cell.synchronize() },
            None if self.is_known_done(number) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Driver,
                "no event tells when the stream's last operations are done",
            )),
        }
    }

    /// As [`wait_for_end`](Self::wait_for_end), and remembers it where that was possible.
    pub(crate) fn settle(&self) {
        let number = self.submitted();
        if has_ended(&self.wait_for_end()) {
            self.set_done(number);
        }
    }

    /// Blocks until the submission of that number is done.
    pub(crate) fn synchronize_number(&self, number: u64) -> Result<()> {
        if self.is_done(number) {
            return Ok(());
        }
        let (number, cell) = self.event_for(number)?;
        // SAFETY: the event is alive and was recorded on this stream, which is alive.
        unsafe { cell.synchronize() }?;
        self.finish(number, cell);
        self.report_panic()
    }

    /// Whether the submission of that number is done; never blocks.
    pub(crate) fn query_number(&self, number: u64) -> Result<bool> {
        if self.is_done(number) {
            return Ok(true);
        }
        self.query_mark(&self.mark_for(number)?)
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
        // With no lock held: this drops driver events.
        drop(spare);
    }

    /// Refuses what cannot be part of a recording, nor be done inside a host closure.
    pub(crate) fn check_not_capturing(&self, what: &str) -> Result<()> {
        // Before the lock, which somebody may hold who waits for this very closure.
        host_call::check_outside()?;
        match lock(&self.state).capture() {
            Some(_) => Err(refused(what)),
            None => Ok(()),
        }
    }

    pub(crate) fn report_panic(&self) -> Result<()> {
        match lock(&self.panicked).take() {
            None => Ok(()),
            Some(text) => Err(Error::new(
                ErrorKind::HostPanic,
                format!("a host closure of this stream panicked: {text}"),
            )),
        }
    }
}

impl StreamState {
    /// The number of the last submission.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The recording that the stream takes part in at the moment.
    #[inline]
    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        self.capture.as_ref().filter(|capture| !capture.is_over()).cloned()
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
