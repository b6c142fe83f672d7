//! Marks: events recorded at a stream's end, by which others wait for it.

use std::borrow::Borrow;
use std::sync::Arc;

use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{
    self as hal, Error, ErrorKind, EventOptions, RawEvent, RawStream, Result, WaitPolicy, unheard,
};

use super::watcher::LatePoint;
use super::{CapturedPoint, StreamCore, StreamState};
use crate::memory::{Access, Remembered};
use crate::operation::refused;
use crate::reentrancy;
use crate::sync::thread;
use crate::track::Clock;

/// Marks kept per stream before old ones are looked at.
const MARKS: usize = 32;

/// Events kept per stream for the next records. A driver takes twice as long to make one as to record it.
const SPARE: usize = 256;

/// A driver event. Recycled through its stream once nobody else holds it.
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

    /// Blocks until the event has been reached, in the way it was made for.
    ///
    /// # Errors
    /// Those of [`query`](Self::query).
    ///
    /// # Safety
    /// As for [`query`](Self::query).
    pub(super) unsafe fn synchronize(&self) -> Result<()> {
        if self.wait == WaitPolicy::Yield {
            // Drivers yield only where the whole context is told to, and others in the process share that.
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
            // SAFETY: the last holder is gone. The stream of the last record is alive or has finished its work. A
            // failure leaves nothing to do.
            let _ = unsafe { device.event_destroy(raw) };
        });
    }
}

/// A recorded event: everything up to `number` precedes it, and with that everything in `clock`.
#[derive(Clone)]
pub struct Mark {
    pub number: u64,
    /// The number of the record on the stream. Marks of one submission number are reached in this order: the stream may
    /// wait for others between them.
    pub record: u64,
    pub cell: Arc<EventCell>,
    pub clock: Clock,
}

impl Mark {
    /// Makes the mark of an event that has yet to be recorded.
    #[inline]
    fn of(cell: Arc<EventCell>) -> Self {
        Self { number: 0, record: 0, cell, clock: Clock::default() }
    }
}

/// The contents of a `gpustream::Event`. They go back to the stream when the event is dropped and serve for the next one, so that
/// recording allocates nothing, and moves little.
pub struct EventContents {
    pub mark: Mark,
    pub kind: EventKind,
}

impl EventContents {
    /// Makes the contents of an event that has yet to be recorded.
    pub fn new(cell: Arc<EventCell>, kind: EventKind) -> Box<Self> {
        Box::new(Self { mark: Mark::of(cell), kind })
    }
}

/// The kind of an event, which says who may wait for it and what becomes of its contents.
pub enum EventKind {
    /// They go back to the stream, for the next event.
    Ordinary,
    /// The driver's event takes the time, or has a wait policy of its own.
    Special,
    /// Recorded inside a capture, at that place.
    Captured(CapturedPoint),
}

/// An event that is recorded before something follows.
pub(super) enum Owed {
    /// For a use of memory that the host reaches.
    Use(Remembered),
    /// For a use of memory that no later access is known to cover.
    Any,
    /// For the holders of the point.
    Point(LatePoint),
}

impl Owed {
    /// Whether every host access that waits for this use waits for `access` too.
    fn is_covered_by(&self, access: &Access<'_>) -> bool {
        matches!(self, Self::Use(owed) if owed.is_covered_by(access))
    }
}

impl StreamCore {
    /// Records the event by which the host can wait for the last operation alone, unless the host will wait for `accesses`
    /// as well, and nobody watches the operation. Called before they are submitted, under each lock that something is submitted
    /// under.
    ///
    /// # Errors
    /// Those of [`mark`](Self::mark).
    #[inline]
    pub(crate) fn pay<'a>(
        &self,
        state: &mut StreamState,
        accesses: &(impl Iterator<Item: Borrow<Access<'a>>> + Clone),
    ) -> Result<()> {
        if state.owed.is_empty() {
            return Ok(());
        }
        cold_path();
        self.pay_owed(state, accesses)
    }

    #[inline(never)]
    fn pay_owed<'a>(
        &self,
        state: &mut StreamState,
        accesses: &(impl Iterator<Item: Borrow<Access<'a>>> + Clone),
    ) -> Result<()> {
        // The same operation again names its memory in the same order, so each is looked for behind the last one found.
        let mut rest = accesses.clone();
        let covered = |owed: &Owed| {
            matches!(owed, Owed::Point(_))
                || rest.any(|access| owed.is_covered_by(access.borrow()))
                || accesses.clone().any(|access| owed.is_covered_by(access.borrow()))
        };
        if !state.owed.iter().all(covered) {
            let raw = self.caught_up_in_segment(state)?;
            let number = state.number;
            self.mark_on(state, raw, number)?;
        } else if state.is_watched() {
            let raw = self.caught_up_in_segment(state)?;
            let mark = self.record_mark(state, raw, state.number)?;
            state.pay_points(&mark);
        }
        Ok(())
    }

    /// The last mark, which on a thread's default stream covers everything submitted.
    pub(super) fn last_mark(&self) -> Option<Mark> {
        self.state.lock().marks.back().cloned()
    }

    /// The oldest mark that covers `number`, recording one if there is none; `None` if `number` is done.
    ///
    /// # Errors
    /// Those of [`mark`](Self::mark).
    pub fn mark_for(&self, number: u64) -> Result<Option<Mark>> {
        reentrancy::check_outside()?;
        let mut state = self.state.lock();
        Ok(self.covering(&mut state, number)?.cloned())
    }

    pub(super) fn covering<'s>(&self, state: &'s mut StreamState, number: u64) -> Result<Option<&'s Mark>> {
        match state.marks.iter().position(|mark| mark.number >= number) {
            Some(oldest) => Ok(Some(&state.marks[oldest])),
            // Perhaps done since the caller looked. Then its marks are gone, and no new one may be possible: the stream may be
            // captured, or destroyed by its owner.
            None if self.known_done(number) => Ok(None),
            None => self.mark(state).map(Some),
        }
    }

    /// Records an event at the stream's present end.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] on a stream that is recorded, [`ErrorKind::InvalidArgument`] on one that is out of reach,
    /// and the failure of an operation that was held back.
    pub(crate) fn mark<'s>(&self, state: &'s mut StreamState) -> Result<&'s Mark> {
        let raw = self.caught_up(state)?;
        let number = self.number_of_end(state);
        self.mark_on(state, raw, number)
    }

    /// Records an event on `raw`, the stream's handle, to which the submissions up to `number` went.
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
        state.marks.push_back(mark);
        Ok(&state.marks[state.marks.len() - 1])
    }

    /// Records an event on `raw`, as [`mark_on`](Self::mark_on) does, for the caller alone.
    pub(super) fn record_mark(&self, state: &mut StreamState, raw: RawStream, number: u64) -> Result<Mark> {
        self.check_thread()?;
        if state.is_recorded() {
            return Err(refused(
                "wait for a stream that is being captured; its work runs when the graph is launched",
            ));
        }
        if self.is_retired() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the last `Stream` for this driver stream was dropped, and its owner may have destroyed it",
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

    /// Makes room among the marks: removes the marks that are reached, or else every other one of the older half, which makes
    /// waits coarser and never wrong.
    pub(super) fn forget_marks(&self, state: &mut StreamState) {
        while let Some(oldest) = state.marks.front() {
            // A number that is known to be done says nothing of the mark's clock: the stream may have waited for
            // others between that submission and the mark.
            if !self.known_done(oldest.number) {
                // SAFETY: the event is alive and was recorded on this stream, which is not captured: its caller records.
                if !matches!(unheard(|| unsafe { oldest.cell.query() }), Ok(true)) {
                    break;
                }
                self.set_reached(oldest);
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

    /// Returns the contents of an event to record.
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

    /// Keeps a dropped event's contents for the next one, unless somebody waits for the event or has the state: dropping an
    /// event waits for nothing.
    pub fn take_back(&self, contents: Box<EventContents>) {
        if matches!(contents.kind, EventKind::Ordinary)
            && Arc::strong_count(&contents.mark.cell) == 1
            && let Some(mut state) = self.try_state()
            && state.spare.len() < SPARE
        {
            state.spare.push(contents);
        }
    }

    /// Makes sure that an event covers everything submitted so far. During a capture none can be recorded outside of it, and
    /// after the drop of the stream's last value none at all.
    pub(crate) fn mark_end(&self, state: &mut StreamState) -> Result<()> {
        let marked = state.marks.back().map_or(0, |mark| mark.number);
        if marked < state.number && !self.known_done(state.number) {
            self.mark(state)?;
        }
        Ok(())
    }
}

impl StreamState {
    /// The mark of an event that has just been recorded, after the submissions up to `number`.
    #[inline]
    pub(crate) fn new_mark(&mut self, number: u64, cell: Arc<EventCell>) -> Mark {
        let mut mark = Mark::of(cell);
        self.renew_mark(number, &mut mark);
        mark
    }

    /// Makes the mark of an event that has just been recorded again one of the stream's end, after the submissions up to
    /// `number`.
    #[inline]
    pub(crate) fn renew_mark(&mut self, number: u64, mark: &mut Mark) {
        self.records += 1;
        (mark.number, mark.record) = (number, self.records);
        mark.clock.clone_from(&self.clock);
    }

    /// Gives the points that are owed an event the one just recorded.
    fn pay_points(&mut self, mark: &Mark) {
        self.owed.retain(|owed| {
            if let Owed::Point(point) = owed {
                // A point is owed until it has its mark.
                let _ = point.set(mark.clone());
            }
            !matches!(owed, Owed::Point(_))
        });
    }

    /// Keeps an event for later, unless somebody still waits on it.
    pub(super) fn recycle(&mut self, cell: Arc<EventCell>) {
        if Arc::strong_count(&cell) == 1 && self.free.len() < SPARE {
            self.free.push(cell);
        }
    }
}
