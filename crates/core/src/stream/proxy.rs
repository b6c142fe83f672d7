//! Events beside captures on HIP, where a captured stream takes its earlier events along.
//!
//! A HIP event keeps in mind the stream that it was recorded on. While that stream is captured, HIP refuses another stream's
//! wait for the event, and any thread's question about it breaks the capture, although the event marks work from before.
//! Others hold such events at any moment: a thread waits for its download, a future polls, a second stream is about to wait.
//! No lock helps, since a host thread's wait blocks inside the driver.
//!
//! So the driver does not capture the stream, but its proxy: a stream of ours beside it, which is given nothing else, and
//! on which nobody has an event. Questions, waits and events of the stream itself go on as if nothing was captured.
//!
//! A proxy cannot stand in for a stream whose handle others have ([`is_shared`](StreamCore::is_shared)): they submit to
//! the handle inside the capture. Such a stream is captured itself. Then questions about its events are asked under its lock
//! and not during the capture, so a host thread waits by asking again and again, and a stream that has to wait tries again
//! after the capture. Only the capturing thread gets an error, since it would wait for itself.

use std::time::Duration;

use gpustream_hal::{Error, ErrorKind, RawStream, Result, StreamOptions, WaitPolicy};

use super::{EventCell, Recording, StreamCore, StreamState};
use crate::operation::refused;
use crate::sync::thread;

impl StreamCore {
    /// Returns the handle that the driver is to capture, once the driver has everything that was submitted.
    ///
    /// # Errors
    /// The failure of an operation that was held back, and that of making a stream.
    pub(super) fn handle_to_capture(&self, state: &mut StreamState) -> Result<RawStream> {
        let raw = self.caught_up(state)?;
        if self.is_shared() || !self.device.info().quirks.capture_closes_events {
            return Ok(raw);
        }
        if let Some(proxy) = self.proxy.get() {
            return Ok(*proxy);
        }
        // The state's lock keeps others from making a second one.
        let proxy = self.device.stream_create(StreamOptions::default())?;
        Ok(*self.proxy.get_or_init(|| proxy))
    }

    /// Returns the proxy that this thread captures in place of the stream.
    pub(super) fn understudy_here(&self) -> Option<RawStream> {
        if !self.is_recorded() {
            return None;
        }
        match self.state.lock().recording() {
            Recording::Capture(capture, raw) if capture.check_thread().is_ok() => {
                Some(*raw).filter(|raw| *raw != self.raw)
            }
            _ => None,
        }
    }

    /// Whether a capture of this stream forbids the use of its events.
    fn closes_events(&self) -> bool {
        self.is_shared() && self.device.info().quirks.capture_closes_events
    }

    /// Asks the driver whether an event of this stream has been reached. Where a capture forbids the question the answer is no.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    pub(super) fn query(&self, cell: &EventCell) -> Result<bool> {
        if !self.closes_events() {
            // SAFETY: the event is alive, and was recorded on this stream.
            return unsafe { cell.query() };
        }
        // Another thread may wait for room in the stream, with the state locked.
        let Some(state) = self.try_state() else { return Ok(false) };
        // SAFETY: as above; no capture begins while the state is locked.
        if state.is_recorded() { Ok(false) } else { unsafe { cell.query() } }
    }

    /// Blocks until an event of this stream has been reached.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed; [`ErrorKind::Captured`] if this thread captures the stream in a
    /// way that forbids the wait.
    pub fn synchronize(&self, cell: &EventCell) -> Result<()> {
        if !self.closes_events() {
            // SAFETY: the event is alive, and was recorded on this stream.
            return unsafe { cell.synchronize() };
        }
        while !self.query(cell)? {
            self.check_not_captured_here()?;
            match cell.wait {
                WaitPolicy::Block => thread::sleep(PAUSE),
                WaitPolicy::Spin | WaitPolicy::Yield => thread::yield_now(),
            }
        }
        Ok(())
    }

    /// Lets the capture end that had the driver refuse a wait for one of this stream's events with `refusal`; the wait is to be
    /// tried again. The caller holds no lock.
    ///
    /// # Errors
    /// `refusal` where it had another reason; [`ErrorKind::Captured`] if this thread captures the stream.
    pub fn outlast_capture(&self, refusal: Error) -> Result<()> {
        if refusal.kind() != ErrorKind::Captured || !self.closes_events() {
            return Err(refusal);
        }
        self.check_not_captured_here()?;
        while self.is_recorded() {
            thread::yield_now();
        }
        // SAFETY: a stream in reach is alive.
        if self.is_reachable() && unsafe { self.device.is_capturing(self.raw) }? {
            // By somebody else.
            return Err(refusal);
        }
        Ok(())
    }

    fn check_not_captured_here(&self) -> Result<()> {
        match self.state.lock().recording() {
            Recording::Capture(capture, _) if capture.check_thread().is_ok() => Err(refused(CLOSED)),
            _ => Ok(()),
        }
    }
}

const CLOSED: &str = "wait inside it for the captured stream's earlier work, since this driver forbids that for a stream whose \
                      handle others have; wait before the capture, or capture a stream whose handle was not taken";

/// The pause between two questions of a thread that is to sleep while it waits.
const PAUSE: Duration = Duration::from_micros(100);
