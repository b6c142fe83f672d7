//! Marks: events at a stream's end, so that other streams and the host can wait for it.

use std::borrow::Borrow;
use std::iter;
use std::sync::Arc;

use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{
    self as hal, Error, ErrorKind, EventOptions, RawEvent, RawStream, Result, WaitPolicy, unheard,
};

use super::watcher::LatePoint;
use super::{CapturedPoint, StreamCore, StreamState};
use crate::memory::{Access, Remembered};
use crate::operation::HostWait;
use crate::reentrancy;
use crate::sync::thread;
use crate::track::Clock;

/// A stream keeps this many marks before it looks if old ones can go.
const MARKS: usize = 32;

/// A stream keeps this many events for its next records, because a driver takes twice as long to make one as to record it.
const SPARE: usize = 256;

/// At most so many short copies after an operation share its event. Together they take the device some 20 microseconds.
const SHORT_COPIES: u8 = 15;

/// A stream has room if no more operations than this are pending. The drivers' queues have twice as many places, so a few
/// hundred operations fit between two looks.
const ROOM: u64 = 512;

/// A stream that someone asks for room gets a mark after this many operations.
const ROOM_STEP: u64 = 128;

/// A driver event. Once no one else holds it, its stream uses it again.
pub struct EventCell {
    pub raw: RawEvent,
    device: Arc<dyn hal::Device>,
    pub(super) wait: WaitPolicy,
}

impl EventCell {
    /// Makes a driver's event.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn new(device: &Arc<dyn hal::Device>, options: EventOptions) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { raw: device.event_create(options)?, device: device.clone(), wait: options.wait }))
    }

    /// Asks the driver whether the event has been reached.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    ///
    /// # Safety
    /// The event has been recorded, on a stream that is alive or whose work is done.
    pub(super) unsafe fn query(&self) -> Result<bool> {
        // SAFETY: by this function's contract.
        unsafe { self.device.event_query(self.raw) }
    }

    /// Blocks until the event has been reached. How it waits was decided when the event was made.
    ///
    /// # Errors
    /// Those of [`query`](Self::query).
    ///
    /// # Safety
    /// As for [`query`](Self::query).
    pub(super) unsafe fn synchronize(&self) -> Result<()> {
        if self.wait == WaitPolicy::Yield {
            // Drivers only yield if we tell the whole context to, and we share that with other code in the process.
            // SAFETY: by this function's contract.
            while !unsafe { self.query() }? {
                thread::yield_now();
            }
            return Ok(());
        }
        // SAFETY: by this function's contract.
        unsafe { self.device.event_synchronize(self.raw) }
    }
}

impl Drop for EventCell {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), self.raw);
        reentrancy::outside(move || {
            // SAFETY: the last holder is gone. The stream of the last record is alive or has finished its work. If this
            // fails, there is nothing we can do.
            let _ = unsafe { device.event_destroy(raw) };
        });
    }
}

/// A recorded event. Everything up to `number` comes before it, and so does everything in `clock`.
#[derive(Clone)]
pub struct Mark {
    pub number: u64,
    /// Counts the records on the stream. Marks with the same submission number are reached in this order, because the stream
    /// may wait for other streams between them.
    pub record: u64,
    pub cell: Arc<EventCell>,
    pub clock: Clock,
}

impl Mark {
    /// Makes a mark for an event that we have not recorded yet.
    #[inline]
    fn of(cell: Arc<EventCell>) -> Self {
        Self { number: 0, record: 0, cell, clock: Clock::default() }
    }
}

/// The contents of a `gpustream::Event`. When you drop the event, they go back to the stream for the next one, so that
/// recording allocates nothing and moves little.
pub struct EventContents {
    pub mark: Mark,
    pub kind: EventKind,
}

impl EventContents {
    /// Makes the contents of an event that we have not recorded yet.
    pub fn new(cell: Arc<EventCell>, kind: EventKind) -> Box<Self> {
        Box::new(Self { mark: Mark::of(cell), kind })
    }
}

/// The kind of an event: who may wait for it, and what becomes of its contents.
pub enum EventKind {
    /// They go back to the stream, for the next event.
    Ordinary,
    /// The driver's event takes the time, or has its own wait policy.
    Special,
    /// It was recorded inside a capture, at that place.
    Captured(CapturedPoint),
}

/// An event that we must record before the stream goes on.
pub(super) enum Owed {
    /// For a use of memory that the host can reach.
    Use(Remembered),
    /// For a use of memory, if we know of no later access that covers it.
    Any,
    /// For those who hold the point.
    Point(LatePoint),
}

impl Owed {
    /// Returns true if every host access that waits for this use also waits for `access`.
    fn is_covered_by(&self, access: &Access<'_>) -> bool {
        matches!(self, Self::Use(owed) if owed.is_covered_by(access))
    }
}

impl StreamCore {
    /// Records an event so that the host can wait for the last operation alone. We skip it if the host will wait for
    /// `accesses` as well, and no one watches the operation. We also put it off if `next` is a short copy, unless there have
    /// been many. Call this before you submit those accesses, each time you lock the stream to submit something.
    ///
    /// # Errors
    /// Those of [`mark`](Self::mark).
    #[inline]
    pub(crate) fn pay<'a>(
        &self,
        state: &mut StreamState,
        accesses: &(impl Iterator<Item: Borrow<Access<'a>>> + Clone),
        next: HostWait,
    ) -> Result<()> {
        if state.owed.is_empty() {
            return Ok(());
        }
        cold_path();
        self.pay_owed(state, accesses, next)
    }

    /// Like [`pay`](Self::pay), before something that touches no memory.
    pub(super) fn pay_all(&self, state: &mut StreamState) -> Result<()> {
        self.pay(state, &iter::empty::<&Access<'_>>(), HostWait::Alone)
    }

    #[inline(never)]
    fn pay_owed<'a>(
        &self,
        state: &mut StreamState,
        accesses: &(impl Iterator<Item: Borrow<Access<'a>>> + Clone),
        next: HostWait,
    ) -> Result<()> {
        // If the same operation comes again, it names its memory in the same order, so we look for each after the last one
        // found.
        let mut rest = accesses.clone();
        let covered = |owed: &Owed| {
            matches!(owed, Owed::Point(_))
                || rest.any(|access| owed.is_covered_by(access.borrow()))
                || accesses.clone().any(|access| owed.is_covered_by(access.borrow()))
        };
        if !state.owed.iter().all(covered) {
            if next == HostWait::WithShortCopies && state.put_off < SHORT_COPIES && !state.is_watched() {
                state.put_off += 1;
                return Ok(());
            }
            let raw = self.caught_up_in_segment(state)?;
            let number = state.number;
            self.mark_on(state, raw, number)?;
        } else if state.is_watched() {
            let raw = self.caught_up_in_segment(state)?;
            let mark = self.record_mark(state, raw, state.number)?;
            state.pay_points(&mark);
        }
        // What is left, the host waits for together with these accesses.
        state.owed.clear();
        state.put_off = 0;
        Ok(())
    }

    /// The last mark. On a thread's default stream it covers everything submitted.
    pub(super) fn last_mark(&self) -> Option<Mark> {
        self.state.lock().marks.back().cloned()
    }

    /// Returns the oldest mark that covers `number`, and records one if there is none. `None` if `number` is done.
    ///
    /// # Errors
    /// Those of [`mark`](Self::mark).
    pub fn mark_for(&self, number: u64) -> Result<Option<Mark>> {
        reentrancy::check_outside()?;
        let mut state = self.state.lock();
        Ok(self.covering(&mut state, number)?.cloned())
    }

    /// Returns a mark to wait for before you submit more, so that the driver has room for your next operations. `None` if
    /// there is room: if no more than [`ROOM`] operations are pending, as far as we know, or if the stream is recorded.
    ///
    /// # Errors
    /// Those of [`mark`](Self::mark).
    pub fn mark_for_room(&self) -> Result<Option<Mark>> {
        if self.known_done(self.counted().saturating_sub(ROOM_STEP)) || self.is_recorded() {
            return Ok(None);
        }
        reentrancy::check_outside()?;
        let mut state = self.state.lock();
        let marked = state.marks.back().map_or(0, |mark| mark.number);
        // If we leave a mark from time to time, later calls wait for no more than they have to.
        if state.number >= marked + ROOM_STEP {
            self.mark(&mut state)?;
        }
        let number = state.number.saturating_sub(ROOM);
        if self.known_done(number) {
            return Ok(None);
        }
        Ok(self.covering(&mut state, number)?.cloned())
    }

    pub(super) fn covering<'s>(&self, state: &'s mut StreamState, number: u64) -> Result<Option<&'s Mark>> {
        match state.marks.iter().position(|mark| mark.number >= number) {
            Some(oldest) => Ok(Some(&state.marks[oldest])),
            // It may be done since the caller looked. Then its marks are gone, and we may be unable to record a new one,
            // because the stream may be captured, or its owner may have destroyed it.
            None if self.known_done(number) => Ok(None),
            None => self.mark(state).map(Some),
        }
    }

    /// Records an event at the stream's current end.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if the stream is recorded; [`ErrorKind::InvalidArgument`] if it is out of reach; or the
    /// failure of a deferred operation.
    pub(crate) fn mark<'s>(&self, state: &'s mut StreamState) -> Result<&'s Mark> {
        let raw = self.caught_up(state)?;
        let number = self.number_of_end(state);
        self.mark_on(state, raw, number)
    }

    /// Records an event on `raw`, the stream's handle. It has received the submissions up to `number`.
    pub(super) fn mark_on<'s>(
        &self,
        state: &'s mut StreamState,
        raw: RawStream,
        number: u64,
    ) -> Result<&'s Mark> {
        let mark = self.record_mark(state, raw, number)?;
        if state.marks.len() >= MARKS {
            self.forget_marks(state);
        }
        state.pay_points(&mark);
        state.owed.clear();
        state.put_off = 0;
        state.marks.push_back(mark);
        Ok(&state.marks[state.marks.len() - 1])
    }

    /// Records an event on `raw`, like [`mark_on`](Self::mark_on), but only for the caller.
    pub(super) fn record_mark(&self, state: &mut StreamState, raw: RawStream, number: u64) -> Result<Mark> {
        self.check_thread()?;
        if state.is_recorded() {
            return Err(
                self.refusal("wait for its stream; launch the graph and wait for the stream that runs it")
            );
        }
        if self.is_retired() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "you dropped the last `Stream` for this driver stream, and its owner may have destroyed it since then; \
                 keep a `Stream` until its work is done",
            ));
        }
        let cell = match state.free.pop() {
            Some(cell) => cell,
            None => EventCell::new(&self.device, EventOptions::default().wait(self.wait))?,
        };
        // SAFETY: event and stream are alive and of this device.
        unsafe { self.device.event_record(cell.raw, raw) }?;
        Ok(state.new_mark(number, cell))
    }

    /// Makes room among the marks. Removes the marks that have been reached. If there are none, removes every other one of
    /// the older half. That makes waits coarser, but never wrong.
    pub(super) fn forget_marks(&self, state: &mut StreamState) {
        // Even if we know that the number is done, that says nothing about the mark's clock, because the stream may have waited
        // for other streams between that submission and the mark.
        let is_reached = |mark: &Mark| {
            // SAFETY: the event is alive and was recorded on this stream, which is not captured: its caller records.
            let asked = || matches!(unheard(|| unsafe { mark.cell.query() }), Ok(true));
            self.known_done(mark.number) || asked().then(|| self.set_reached(mark)).is_some()
        };
        // Marks are reached in order, so we need not ask for each. Usually either none is reached or most are.
        if state.marks.front().is_some_and(is_reached) {
            let reached = state.marks.partition_point(is_reached);
            for _ in 0..reached {
                if let Some(mark) = state.marks.pop_front() {
                    state.recycle(mark.cell);
                }
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

    /// Returns contents for an event that you want to record.
    ///
    /// # Errors
    /// The driver's failure to make an event.
    #[inline]
    pub(crate) fn event(&self, state: &mut StreamState) -> Result<Box<EventContents>> {
        if let Some(contents) = state.spare.pop() {
            return Ok(contents);
        }
        let cell = EventCell::new(&self.device, EventOptions::default().wait(self.wait))?;
        Ok(EventContents::new(cell, EventKind::Ordinary))
    }

    /// Keeps the contents of a dropped event for the next one, unless a thread waits for the event or has locked the state,
    /// because dropping an event must not wait.
    pub fn take_back(&self, contents: Box<EventContents>) {
        if matches!(contents.kind, EventKind::Ordinary)
            && Arc::strong_count(&contents.mark.cell) == 1
            && let Some(mut state) = self.try_state()
            && state.spare.len() < SPARE
        {
            state.spare.push(contents);
        }
    }

    /// Makes sure that an event covers everything submitted so far. During a capture we cannot record one outside the
    /// capture, and after the stream's last value was dropped we cannot record one at all.
    pub(crate) fn mark_end(&self, state: &mut StreamState) -> Result<()> {
        let marked = state.marks.back().map_or(0, |mark| mark.number);
        if marked < state.number && !self.known_done(state.number) {
            self.mark(state)?;
        }
        Ok(())
    }
}

impl StreamState {
    /// Returns the mark of an event that we have just recorded, after the submissions up to `number`.
    #[inline]
    pub(crate) fn new_mark(&mut self, number: u64, cell: Arc<EventCell>) -> Mark {
        let mut mark = Mark::of(cell);
        self.renew_mark(number, &mut mark);
        mark
    }

    /// Updates the mark of an event that we have just recorded again, at the stream's end, after the submissions up to
    /// `number`.
    #[inline]
    pub(crate) fn renew_mark(&mut self, number: u64, mark: &mut Mark) {
        self.records += 1;
        (mark.number, mark.record) = (number, self.records);
        mark.clock.clone_from(&self.clock);
    }

    /// Gives the event that we have just recorded to the points that are owed one.
    fn pay_points(&mut self, mark: &Mark) {
        self.owed.retain(|owed| {
            if let Owed::Point(point) = owed {
                // A point is owed an event until it has its mark.
                let _ = point.set(mark.clone());
            }
            !matches!(owed, Owed::Point(_))
        });
    }

    /// Keeps an event for later, unless a thread still waits for it.
    pub(super) fn recycle(&mut self, cell: Arc<EventCell>) {
        if Arc::strong_count(&cell) == 1 && self.free.len() < SPARE {
            self.free.push(cell);
        }
    }
}
