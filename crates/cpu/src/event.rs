//! Events: points in streams.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpustream_hal::{ErrorKind, EventOptions, Events, RawEvent, RawStream, Result};

use crate::capture::{self, CapturedPoint};
use crate::device::CpuDevice;
use crate::error::error;
use crate::queue::{Mark, Stream};
use crate::sync::lock;
use crate::work::{Task, TimedEvent};

/// An event.
pub(crate) struct Event {
    options: EventOptions,
    state: Mutex<EventState>,
}

#[derive(Default)]
struct EventState {
    /// The point of the last record.
    mark: Option<Mark>,
    /// The number of the last record, so that a timestamp of an earlier record is not mistaken for the last
    /// one's.
    records: u64,
    stamp: Option<Instant>,
    /// The point of the last record, if it was in a capture.
    captured: Option<CapturedPoint<Stream>>,
}

impl Event {
    /// Returns the event behind a handle.
    ///
    /// # Safety
    /// The handle is alive.
    pub(crate) unsafe fn borrow(raw: RawEvent) -> ManuallyDrop<Arc<Self>> {
        // SAFETY: made by `Arc::into_raw` in `event_create`, and alive by the caller's promise.
        ManuallyDrop::new(unsafe { Arc::from_raw(raw.0 as *const Self) })
    }

    fn record_on(self: &Arc<Self>, stream: &Arc<Stream>) -> Result<()> {
        stream.shared().alive()?;
        // We take this out first, because we must never take a stream's lock while holding an event's.
        if let Some(capture) = stream.capture() {
            let point = capture.point(stream);
            let mut state = lock(&self.state);
            state.captured = Some(point);
            return Ok(());
        }
        if self.options.timing {
            let record = {
                let mut state = lock(&self.state);
                state.records += 1;
                state.stamp = None;
                state.records
            };
            stream.submit(Task::Timestamp { event: self.clone(), record })?;
        }
        let number = stream.mark();
        let mut state = lock(&self.state);
        state.captured = None;
        match &mut state.mark {
            Some(mark) if Arc::ptr_eq(&mark.stream, stream) => mark.number = number,
            mark => *mark = Some(Mark { stream: stream.clone(), number }),
        }
        Ok(())
    }

    /// Makes work that is submitted to `stream` from now on come after the last record.
    pub(crate) fn wait_on(&self, stream: &Arc<Stream>) -> Result<()> {
        let (mark, captured) = {
            let state = lock(&self.state);
            (state.mark.clone(), state.captured.clone())
        };
        if let Some(point) = captured {
            return capture::join(stream, &point);
        }
        if let Some(capture) = stream.capture() {
            return Err(capture::refuse_outside_wait(&capture));
        }
        match mark {
            Some(mark) => stream.submit_wait(mark),
            None => Ok(()),
        }
    }
}

impl TimedEvent for Event {
    fn stamp(&self, record: u64, now: Instant) {
        let mut state = lock(&self.state);
        if state.records == record {
            state.stamp = Some(now);
        }
    }
}

// SAFETY: an event is done when its queue has reached its record.
unsafe impl Events for CpuDevice {
    fn event_create(&self, options: EventOptions) -> Result<RawEvent> {
        self.shared.alive()?;
        let event = Arc::new(Event { options, state: Mutex::default() });
        Ok(RawEvent(Arc::into_raw(event) as usize))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()> {
        // SAFETY: made by `Arc::into_raw`, and not used again. A pending timestamp has its own count.
        drop(unsafe { Arc::from_raw(event.0 as *const Event) });
        Ok(())
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (event, stream) = unsafe { (Event::borrow(event), self.stream(stream)) };
        event.record_on(&stream)
    }

    unsafe fn event_query(&self, event: RawEvent) -> Result<bool> {
        // SAFETY: passed on to the caller.
        let event = unsafe { Event::borrow(event) };
        self.shared.alive()?;
        let state = lock(&event.state);
        refuse_captured(&state)?;
        let done = state.mark.as_ref().is_none_or(|mark| mark.stream.is_done(mark.number));
        drop(state);
        // The operations of a lost device count as done, but that must not look like success.
        self.shared.alive()?;
        Ok(done)
    }

    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()> {
        // SAFETY: passed on to the caller.
        let event = unsafe { Event::borrow(event) };
        self.shared.not_forked()?;
        let mark = {
            let state = lock(&event.state);
            refuse_captured(&state)?;
            state.mark.clone()
        };
        match mark {
            Some(mark) => mark.stream.reach(mark.number, event.options.wait),
            None => self.shared.alive(),
        }
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration> {
        // SAFETY: passed on to the caller.
        let (start, end) = unsafe { (Event::borrow(start), Event::borrow(end)) };
        self.shared.alive()?;
        // We take one lock at a time, because both may be the same event.
        let first = lock(&start.state).stamp;
        let second = lock(&end.state).stamp;
        match (first, second) {
            (Some(start), Some(end)) => Ok(end.saturating_duration_since(start)),
            _ => Err(error(
                ErrorKind::InvalidArgument,
                "the time between two events is only known if both have timing and are done: wait for both first",
            )),
        }
    }
}

fn refuse_captured(state: &EventState) -> Result<()> {
    if state.captured.is_none() {
        return Ok(());
    }
    Err(error(
        ErrorKind::Captured,
        "the event was recorded in a capture, so it is a point in a graph and the host cannot wait for it: wait for a launch \
         of the graph instead",
    ))
}
