//! The shared part of a stream: numbering, clock, marks, and how an operation is submitted.
//!
//! One rule prevents deadlock and inversion: a number is taken and the driver is called under the stream's own
//! lock, and no thread ever holds two streams' locks. A hand-over therefore records on the other stream first
//! (under its lock), lets go, and takes its own.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use gpustream_hal::{self as hal, Error, ErrorKind, EventOptions, Operation, RawEvent, RawStream, Result};
use smallvec::SmallVec;

use crate::capture::{Capture, refused};
use crate::device::{DeviceCore, StreamTable, Tracking};
use crate::event::Recorded;
use crate::host_call;
use crate::memory::Block;
use crate::sync::lock;
use crate::track::{Clock, Mode, Point, StreamId, Use};

/// The hint on a history that streams share: no stream's number.
const MIXED: u32 = 0;

/// Marks kept per stream before old ones are looked at.
const MARKS: usize = 32;

/// One range that an operation touches.
pub(crate) struct Access<'a> {
    pub(crate) block: &'a Arc<Block>,
    pub(crate) range: Range<usize>,
    pub(crate) mode: Mode,
}

/// A driver event. Recycled through its stream once nobody else holds it.
pub(crate) struct EventCell {
    pub(crate) raw: RawEvent,
    device: Arc<dyn hal::Device>,
}

impl EventCell {
    pub(crate) fn new(device: &Arc<dyn hal::Device>, options: EventOptions) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { raw: device.event_create(options)?, device: device.clone() }))
    }
}

impl Drop for EventCell {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), self.raw);
        host_call::outside(move || {
            // SAFETY: the last holder is gone. The stream of the last record is alive or has finished its work. A
            // failure leaves nothing to do.
            let _ = unsafe { device.event_destroy(raw) };
        });
    }
}

/// A recorded event: everything up to `number` precedes it, and with that everything in `clock`.
#[derive(Clone)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) cell: Arc<EventCell>,
    pub(crate) clock: Clock,
}

pub(crate) struct StreamState {
    /// The last number given out.
    number: u64,
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
    /// Everything up to this number is known to be done.
    completed: AtomicU64,
    /// How many dropped events the stream keeps; each holds the stream.
    resting: AtomicUsize,
    /// What a host closure's panic said, until a wait reports it.
    pub(crate) panicked: Mutex<Option<String>>,
    /// Whether `raw` was made by us.
    owned: bool,
    /// The only thread on which `raw` means this stream: it is that thread's default stream.
    thread: Option<ThreadId>,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the device drops an entry only when the stream's work is done and nobody else holds it.
            let _ = unsafe { self.device.stream_destroy(self.raw) };
        }
    }
}

impl StreamCore {
    pub(crate) fn new(id: StreamId, raw: RawStream, device: Arc<dyn hal::Device>, owned: bool) -> Self {
        let state = StreamState {
            number: 0,
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
            completed: AtomicU64::new(0),
            resting: AtomicUsize::new(0),
            panicked: Mutex::new(None),
            owned,
            thread: None,
        }
    }

    /// The default stream of the calling thread. The driver's handle means another stream on every thread, so
    /// only this one may use it. The others go by events: each submission gets one.
    pub(crate) fn of_this_thread(id: StreamId, raw: RawStream, device: Arc<dyn hal::Device>) -> Self {
        let mut core = Self::new(id, raw, device, false);
        core.thread = Some(thread::current().id());
        core
    }

    #[inline]
    fn is_elsewhere(&self) -> bool {
        self.thread.is_some_and(|thread| thread != thread::current().id())
    }

    /// Refuses another thread's default stream.
    #[inline]
    pub(crate) fn check_thread(&self) -> Result<()> {
        if self.is_elsewhere() { Err(another_threads()) } else { Ok(()) }
    }

    /// The last mark, which on a thread's default stream covers everything submitted.
    fn last_mark(&self) -> Option<Mark> {
        lock(&self.state).marks.back().cloned()
    }

    /// Submits one operation: adds the waits that its accesses need, calls the driver, and remembers the use.
    ///
    /// `call` must enqueue on this stream and return; it makes the driver calls of the operation. Returns the
    /// capture that recorded it, if it was not run.
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    pub(crate) fn submit<'a, I>(
        &self,
        device: &DeviceCore,
        operation: Operation,
        accesses: I,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<Option<Arc<Capture>>>
    where
        I: Iterator<Item = &'a Access<'a>> + Clone,
    {
        self.check_thread().map_err(|error| error.with_operation(operation))?;
        let mut state = lock(&self.state);
        if let Some(capture) = state.capture() {
            drop(state);
            capture
                .submit(device, self, operation, accesses, call)
                .map_err(|error| error.with_operation(operation))?;
            return Ok(Some(capture));
        }
        // The usual case: nobody but this stream has used the memory.
        if !accesses.clone().all(|access| access.block.history.hint() == self.id.0) {
            state = self.order(device, state, operation, accesses.clone())?;
        }
        let point = Point { stream: self.id, number: state.number + 1 };
        for access in accesses.clone() {
            let new = Use { point, operation, recycled: false };
            if access.block.in_graph.load(Ordering::Acquire) {
                self.enter_beside_graphs(&state, access, new);
                continue;
            }
            let mut history = access.block.history.lock();
            if history.hint() != self.id.0 {
                history.set_hint(MIXED);
            }
            history.insert(&access.range, access.mode, new);
            if history.is_crowded() {
                access.block.prune(&mut history);
            }
        }
        let result = call(&*self.device, self.raw);
        // Taken also on failure: the driver may have enqueued part of it.
        state.number += 1;
        let guarded = |access: &Access<'_>| access.block.is_host() && access.mode != Mode::Shared;
        if self.thread.is_some() {
            // Whoever waits for this from another thread finds the event. Also on failure, as above.
            let marked = self.mark(device, &mut state);
            if result.is_ok() {
                marked?;
            }
        } else if result.is_ok() && accesses.clone().any(guarded) {
            // Host access waits for exactly this operation, so it needs an event of its own.
            self.mark(device, &mut state)?;
        }
        drop(state);
        if device.blocking && result.is_ok() {
            // SAFETY: the stream is alive as long as `self`.
            unsafe { self.device.stream_synchronize(self.raw) }
                .map_err(|error| error.with_operation(operation))?;
        }
        result.map(|()| None).map_err(|error| error.with_operation(operation))
    }

    /// Adds the waits that an operation with these accesses needs.
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    fn order<'s, 'a>(
        &'s self,
        device: &DeviceCore,
        mut state: MutexGuard<'s, StreamState>,
        operation: Operation,
        accesses: impl Iterator<Item = &'a Access<'a>> + Clone,
    ) -> Result<MutexGuard<'s, StreamState>> {
        let mut missing = self.missing(&state, accesses.clone());
        if missing.is_empty() {
            return Ok(state);
        }
        while !missing.is_empty() {
            // Lets go of the lock meanwhile, so there may be something new to wait for.
            state = self.order_after(device, state, operation, &missing)?;
            missing = self.missing(&state, accesses.clone());
        }
        // Not before: what this operation relies on must stay until it is entered.
        state.prune_clock(device);
        Ok(state)
    }

    /// The uses that an operation with these accesses must be ordered after and is not.
    fn missing<'a>(
        &self,
        state: &StreamState,
        accesses: impl Iterator<Item = &'a Access<'a>>,
    ) -> SmallVec<[Use; 4]> {
        let mut missing = SmallVec::new();
        for access in accesses {
            let history = access.block.history.lock();
            history.conflicts(&access.range, access.mode, |old| {
                if old.point.stream != self.id && !state.clock.covers(old.point) {
                    missing.push(*old);
                }
            });
            if history.is_only(self.id) {
                history.set_hint(self.id.0);
            }
        }
        missing
    }

    /// Enters a use of memory that graphs refer to. Their launches hold no borrow, so one may have come in from
    /// another thread since we looked: its use stays beside the new one. The two race, as the threads do, but
    /// the memory is not handed on before both are done.
    fn enter_beside_graphs(&self, state: &StreamState, access: &Access<'_>, new: Use) {
        let mut history = access.block.history.lock();
        let mut unordered: SmallVec<[Use; 4]> = SmallVec::new();
        history.conflicts(&access.range, access.mode, |old| {
            if old.point.stream != self.id && !state.clock.covers(old.point) {
                unordered.push(*old);
            }
        });
        history.set_hint(MIXED);
        history.insert(&access.range, access.mode, new);
        for old in unordered {
            history.insert(&access.range, Mode::Read, old);
        }
        if history.is_crowded() {
            access.block.prune(&mut history);
        }
    }

    /// Makes this stream wait for `missing`, or says that the user should have.
    #[cold]
    fn order_after<'s>(
        &'s self,
        device: &DeviceCore,
        state: MutexGuard<'s, StreamState>,
        operation: Operation,
        missing: &[Use],
    ) -> Result<MutexGuard<'s, StreamState>> {
        drop(state);
        let mut waits: SmallVec<[(Point, Option<Mark>); 4]> = SmallVec::new();
        let mut running: SmallVec<[(Point, Arc<Self>); 4]> = SmallVec::new();
        for old in missing {
            let other =
                device.stream(old.point.stream).filter(|other| !other.is_known_done(old.point.number));
            match (other, device.tracking) {
                (None, _) => waits.push((old.point, None)),
                (Some(_), Tracking::Strict) if !old.recycled => {
                    return Err(hazard(operation, old.operation));
                }
                (Some(_), Tracking::Off) if !old.recycled => waits.push((old.point, None)),
                (Some(other), _) => match running.iter_mut().find(|(point, _)| point.stream == other.id) {
                    Some((point, _)) => point.number = point.number.max(old.point.number),
                    None => running.push((old.point, other)),
                },
            }
        }
        for (point, other) in without_implied(running) {
            let mark = other.mark_for(device, point.number)?;
            waits.push((Point { stream: other.id, number: mark.number }, Some(mark)));
        }
        let mut state = lock(&self.state);
        for (point, mark) in waits {
            if let Some(mark) = mark
                && !state.clock.covers(point)
            {
                // SAFETY: both are alive, and the event has been recorded.
                unsafe { self.device.stream_wait_event(self.raw, mark.cell.raw) }
                    .map_err(|error| error.with_operation(operation))?;
                state.clock.merge(&mark.clock);
            }
            state.clock.advance(point);
        }
        Ok(state)
    }

    /// What waiting for submission `number` would wait for besides this stream's own work.
    fn clock_at(&self, number: u64) -> Clock {
        let state = lock(&self.state);
        let mark = state.marks.iter().find(|mark| mark.number >= number);
        mark.map_or(&state.clock, |mark| &mark.clock).clone()
    }

    /// The oldest mark that covers `number`, recording one if there is none.
    pub(crate) fn mark_for(&self, device: &DeviceCore, number: u64) -> Result<Mark> {
        let mut state = lock(&self.state);
        if let Some(mark) = state.marks.iter().find(|mark| mark.number >= number) {
            return Ok(mark.clone());
        }
        self.mark(device, &mut state)
    }

    /// Records an event at the stream's present end.
    pub(crate) fn mark(&self, device: &DeviceCore, state: &mut StreamState) -> Result<Mark> {
        self.check_thread()?;
        let cell = match state.free.pop() {
            Some(cell) => cell,
            None => EventCell::new(&self.device, EventOptions::default().with_wait(device.wait))?,
        };
        // SAFETY: event and stream are alive and of this device.
        unsafe { self.device.event_record(cell.raw, self.raw) }?;
        let mark = Mark { number: state.number, cell, clock: state.clock.clone() };
        if state.marks.len() >= MARKS {
            self.forget_marks(state);
        }
        state.marks.push_back(mark.clone());
        Ok(mark)
    }

    /// Asks the driver how far the stream has come, and marks its end so that the next look can tell more.
    pub(crate) fn look(&self, device: &DeviceCore) {
        // An error says nothing about being done; whoever waits next is told.
        if !matches!(self.query(device), Ok(false)) {
            return;
        }
        let mut state = lock(&self.state);
        if state.capture().is_none() {
            self.forget_marks(&mut state);
            let _ = self.mark_before_capture(device, &mut state);
        }
    }

    /// Makes room among the marks: those that are done go; if none is, the older half is thinned out, which
    /// makes waits for it coarser and never wrong.
    fn forget_marks(&self, state: &mut StreamState) {
        while let Some(oldest) = state.marks.front() {
            // A number that is known to be done says nothing of the mark's clock: the stream may have waited for
            // others between that submission and the mark.
            if !self.is_known_done(oldest.number) {
                // SAFETY: the event is alive and was recorded on this stream.
                if !matches!(unsafe { self.device.event_query(oldest.cell.raw) }, Ok(true)) {
                    break;
                }
                self.finish_mark(oldest);
            }
            if let Some(mark) = state.marks.pop_front() {
                state.recycle(mark.cell);
            }
        }
        if state.marks.len() >= MARKS {
            for index in (0..MARKS / 4).rev() {
                if let Some(mark) = state.marks.remove(2 * index) {
                    state.recycle(mark.cell);
                }
            }
        }
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

    /// Everything up to `number` is done.
    pub(crate) fn set_done(&self, number: u64) {
        self.completed.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether everything submitted is done; never blocks.
    pub(crate) fn query(&self, device: &DeviceCore) -> Result<bool> {
        let clock = self.query_alone()?;
        if let Some(clock) = &clock {
            device.streams.set_done(clock);
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
        let (number, clock) = (state.number, state.clock.clone());
        drop(state);
        if self.is_elsewhere() {
            return self.query_elsewhere(number);
        }
        // SAFETY: the stream is alive.
        let done = unsafe { self.device.stream_query(self.raw) }?;
        if done {
            self.set_done(number);
        }
        Ok(done.then_some(clock))
    }

    /// As [`query_alone`](Self::query_alone), for another thread's default stream.
    #[cold]
    fn query_elsewhere(&self, number: u64) -> Result<Option<Clock>> {
        if self.is_known_done(number) {
            return Ok(Some(Clock::default()));
        }
        let Some(mark) = self.last_mark() else { return Ok(None) };
        // SAFETY: the event is alive and was recorded on this stream.
        if mark.number < number || !unsafe { self.device.event_query(mark.cell.raw) }? {
            return Ok(None);
        }
        self.set_done(number);
        Ok(Some(mark.clock))
    }

    /// Blocks until everything submitted is done.
    pub(crate) fn synchronize(&self, device: &DeviceCore) -> Result<()> {
        self.check_thread()?;
        self.check_not_capturing("make the host wait for a stream that is being captured")?;
        let state = lock(&self.state);
        let (number, clock) = (state.number, state.clock.clone());
        drop(state);
        // SAFETY: the stream is alive.
        unsafe { self.device.stream_synchronize(self.raw) }?;
        self.set_done(number);
        device.streams.set_done(&clock);
        self.report_panic()
    }

    /// Blocks until nothing is pending, whatever the outcome.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        if self.is_elsewhere() {
            // SAFETY: the event is alive and was recorded on this stream.
            return self
                .last_mark()
                .map_or(Ok(()), |mark| unsafe { self.device.event_synchronize(mark.cell.raw) });
        }
        // SAFETY: the stream is alive.
        unsafe { self.device.stream_synchronize(self.raw) }
    }

    /// Blocks until the submission of that number is done.
    pub(crate) fn synchronize_number(&self, device: &DeviceCore, number: u64) -> Result<()> {
        if self.is_known_done(number) {
            return Ok(());
        }
        let mark = self.mark_for(device, number)?;
        // SAFETY: the event is alive and was recorded on this stream, which is alive.
        unsafe { self.device.event_synchronize(mark.cell.raw) }?;
        self.finish_mark(&mark);
        self.report_panic()
    }

    /// Whether the submission of that number is done; never blocks.
    pub(crate) fn query_number(&self, device: &DeviceCore, number: u64) -> Result<bool> {
        if self.is_known_done(number) {
            return Ok(true);
        }
        let mark = self.mark_for(device, number)?;
        // SAFETY: as above.
        let done = unsafe { self.device.event_query(mark.cell.raw) }?;
        if done {
            self.finish_mark(&mark);
        }
        Ok(done)
    }

    /// The mark has been reached, so all that it is ordered after is done too.
    pub(crate) fn finish_mark(&self, mark: &Mark) {
        self.set_done(mark.number);
        StreamTable::shared().set_done(&mark.clock);
    }

    /// An event to record anew.
    #[inline]
    pub(crate) fn spare(&self, state: &mut StreamState) -> Option<Box<Recorded>> {
        let spare = state.spare.pop();
        self.resting.store(state.spare.len(), Ordering::Release);
        spare
    }

    /// Keeps what a dropped event was made of for the next one. Not if somebody still waits for it, nor if the
    /// stream is busy at the moment: dropping an event waits for nothing.
    pub(crate) fn take_back(recorded: Box<Recorded>) {
        if Arc::strong_count(&recorded.mark.cell) > 1 {
            return;
        }
        let stream = Arc::as_ptr(&recorded.stream);
        // SAFETY: `recorded` holds the stream; it is dropped after the guard below, or lies in the stream's own list,
        // which is emptied only under the lock that the guard holds.
        let stream = unsafe { &*stream };
        if let Ok(mut state) = stream.state.try_lock()
            && !state.closed
            && state.spare.len() < MARKS
        {
            state.spare.push(recorded);
            stream.resting.store(state.spare.len(), Ordering::Release);
        }
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

    /// Refuses what cannot be part of a recording.
    pub(crate) fn check_not_capturing(&self, what: &str) -> Result<()> {
        match lock(&self.state).capture() {
            Some(_) => Err(refused(what)),
            None => Ok(()),
        }
    }

    /// Makes sure that what has been submitted can be waited for while the stream is being captured: until the
    /// capture ends nothing can be recorded outside of it.
    pub(crate) fn mark_before_capture(&self, device: &DeviceCore, state: &mut StreamState) -> Result<()> {
        let marked = state.marks.back().map_or(0, |mark| mark.number);
        if marked < state.number && !self.is_known_done(state.number) {
            self.mark(device, state)?;
        }
        Ok(())
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
    pub(crate) fn prune_clock(&mut self, device: &DeviceCore) {
        if self.clock.len() > 16 {
            self.clock.retain(|point| !device.streams.is_known_done(point));
        }
    }

    /// Keeps an event for later, unless somebody still waits on it.
    fn recycle(&mut self, cell: Arc<EventCell>) {
        if Arc::strong_count(&cell) == 1 && self.free.len() < MARKS {
            self.free.push(cell);
        }
    }
}

/// Leaves out the points that come before others anyway, so that each wait is needed.
fn without_implied(
    mut points: SmallVec<[(Point, Arc<StreamCore>); 4]>,
) -> SmallVec<[(Point, Arc<StreamCore>); 4]> {
    if points.len() < 2 {
        return points;
    }
    let clocks: SmallVec<[Clock; 4]> =
        points.iter().map(|(point, stream)| stream.clock_at(point.number)).collect();
    let mut kept: SmallVec<[bool; 4]> = SmallVec::from_elem(true, points.len());
    for candidate in 0..points.len() {
        kept[candidate] = false;
        let covered =
            |point: Point| (0..clocks.len()).any(|other| kept[other] && clocks[other].covers(point));
        // All of those left out, since the candidate may have been what covered another.
        kept[candidate] = !(0..points.len()).all(|index| kept[index] || covered(points[index].0));
    }
    let mut kept = kept.into_iter();
    points.retain(|_| kept.next() == Some(true));
    points
}

#[cold]
fn another_threads() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "this is the default stream of another thread; take this thread's, or make a stream, which all threads can use",
    )
}

#[cold]
pub(crate) fn hazard(new: Operation, old: Operation) -> Error {
    let message = format!(
        "{new} touches memory that {old} used last on another stream, and nothing orders the two; record an event \
         after the earlier one and make this stream wait for it (`let e = a.record()?; b.wait(&e)?`), or use \
         Tracking::Auto"
    );
    Error::new(ErrorKind::Hazard, message).with_operation(new)
}
