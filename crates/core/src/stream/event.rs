//! Recording events, and waiting for them on the device.

use std::sync::Arc;

use gpustream_hal::{Error, EventOptions, Result, WaitPolicy};

use super::table::known_done;
use super::{
    EventCell, EventContents, EventKind, Mark, Recording, StateGuard, StreamCore, StreamState, StreamTable,
};
use crate::operation::{no_node, refused};
use crate::track::Point;

impl StreamCore {
    /// Records an event at the stream's end. Inside a capture, each launch of the graph reaches the event anew.
    ///
    /// # Errors
    /// Those of [`check_thread`](Self::check_thread) and of the driver;
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) in a node under construction.
    #[inline]
    pub fn record_event(self: &Arc<Self>) -> Result<Box<EventContents>> {
        self.check_thread()?;
        let mut state = self.state.lock();
        if state.is_recorded() {
            return self.record_captured(state);
        }
        let contents = self.event(&mut state)?;
        self.record_contents(&mut state, contents)
    }

    /// Like [`record_event`](Self::record_event), but host threads wait for this event by the given policy.
    ///
    /// # Errors
    /// As for [`record_event`](Self::record_event).
    pub fn record_event_with(self: &Arc<Self>, wait: WaitPolicy) -> Result<Box<EventContents>> {
        self.check_thread()?;
        let cell = EventCell::new(&self.device, EventOptions::default().wait(wait))?;
        let mut state = self.state.lock();
        if state.is_recorded() {
            return self.record_captured(state);
        }
        self.record_contents(&mut state, EventContents::new(cell, EventKind::Special))
    }

    /// Records an event that takes the device's time. Host threads wait for it by the given policy.
    ///
    /// # Errors
    /// As for [`record_event`](Self::record_event); [`Captured`](gpustream_hal::ErrorKind::Captured) in a recording, because
    /// events cannot take the time there.
    pub fn record_timed_event(&self, wait: WaitPolicy) -> Result<Box<EventContents>> {
        self.check_thread()?;
        let cell = EventCell::new(&self.device, EventOptions::default().timing(true).wait(wait))?;
        let mut state = self.running("take the time inside it; record timed events around a launch")?;
        self.record_contents(&mut state, EventContents::new(cell, EventKind::Special))
    }

    #[inline]
    fn record_contents(
        &self,
        state: &mut StreamState,
        mut contents: Box<EventContents>,
    ) -> Result<Box<EventContents>> {
        let raw = self.caught_up(state)?;
        // SAFETY: event and stream are alive and of this device.
        unsafe { self.device.event_record(contents.mark.cell.raw, raw) }?;
        let number = self.number_of_end(state);
        state.renew_mark(number, &mut contents.mark);
        Ok(contents)
    }

    #[cold]
    fn record_captured(self: &Arc<Self>, state: StateGuard<'_>) -> Result<Box<EventContents>> {
        let Recording::Capture(capture, _) = state.recording() else { return Err(no_node()) };
        let capture = capture.clone();
        drop(state);
        capture.check_thread()?;
        let cell = EventCell::new(&self.device, EventOptions::default())?;
        let kind = EventKind::Captured(capture.record(self, &cell)?);
        Ok(EventContents::new(cell, kind))
    }

    /// Orders everything that you submit to this stream from now on after an event that `recorder` recorded. If that order
    /// holds already, makes no driver call. Both streams must be of one backend.
    ///
    /// # Errors
    /// Those of [`check_thread`](Self::check_thread) and of the driver;
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) if one of them is recorded and the other is not part of the recording.
    #[inline]
    pub fn wait_event(self: &Arc<Self>, recorder: &Self, event: &EventContents) -> Result<()> {
        self.check_thread()?;
        if let EventKind::Captured(point) = &event.kind {
            if !Arc::ptr_eq(&self.device, &recorder.device) {
                return Err(refused("let a stream of another device join it; a graph stays on one device"));
            }
            return point.capture.wait(self, &event.mark.cell, point);
        }
        while let Some(refusal) = self.wait_once(recorder, event)? {
            recorder.outlast_capture(refusal)?;
        }
        Ok(())
    }

    /// Like [`wait_event`](Self::wait_event), for an event outside of captures. If the driver refuses, returns its error.
    fn wait_once(&self, recorder: &Self, event: &EventContents) -> Result<Option<Error>> {
        let mark = &event.mark;
        let point = Point { stream: recorder.id, number: mark.number };
        let mut state = self.state.lock();
        // An event also stands for the work that its stream waited for, even if that work has no number there.
        let mut points = mark.clock.points().chain((point.number > 0).then_some(point));
        if state.is_recorded() {
            // If a point has been reached, the graph need not depend on it.
            return if points.all(known_done) {
                Ok(None)
            } else {
                Err(refused(
                    "wait inside it for an event recorded outside; make the stream that launches the graph wait instead",
                ))
            };
        }
        if points.all(|point| point.stream == self.id || state.clock.covers(point)) {
            return Ok(None);
        }
        // The host must be able to wait for the last operation without also waiting for the event.
        self.pay_all(&mut state)?;
        let raw = self.caught_up(&mut state)?;
        // SAFETY: both are alive, and the event has been recorded.
        if let Err(refusal) = unsafe { self.device.stream_wait_event(raw, mark.cell.raw) } {
            return Ok(Some(refusal));
        }
        state.clock.merge(&mark.clock);
        state.clock.advance(point);
        state.note_wait(point);
        state.prune_clock();
        Ok(None)
    }

    /// Returns a recorded event that comes after everything submitted so far, and records one if there is none. In a
    /// recording, `what` completes the error "you cannot …".
    ///
    /// # Errors
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) in a recording,
    /// [`InHostClosure`](gpustream_hal::ErrorKind::InHostClosure) in a host closure, and those of the driver.
    pub fn end_mark(&self, what: &str) -> Result<Mark> {
        let mut state = self.running(what)?;
        Ok(self.mark(&mut state)?.clone())
    }

    /// Asks if everything submitted so far is done, and reports failures. Never blocks.
    ///
    /// # Errors
    /// Those of [`check_thread`](Self::check_thread) and of the driver; what failed on the stream;
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) in a recording.
    pub fn is_done(&self) -> Result<bool> {
        self.check_thread()?;
        let state =
            self.running("ask if its stream is done; launch the graph and ask the stream that runs it")?;
        let Some(clock) = self.poll_locked(state)? else { return Ok(false) };
        StreamTable::shared().set_done(&clock);
        self.report_failures()?;
        Ok(true)
    }
}
