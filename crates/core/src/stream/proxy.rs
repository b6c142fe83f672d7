//! HIP only: a second stream for captures, because a captured stream would take its earlier events along.
//!
//! A HIP event remembers the stream that recorded it. While that stream is captured, HIP refuses to let another stream wait
//! for the event. And if any thread asks about the event, the capture breaks. Both happen although the event marks work
//! from before the capture. Other threads may use such events at any moment: one waits for its download, a future polls, a
//! second stream is about to wait. A lock does not help, because a host thread blocks inside the driver.
//!
//! So we let the driver capture not the stream itself but its proxy. That is a stream of ours which gets no other work, so
//! no one has an event on it. Meanwhile you can ask about the stream, wait for it and record events on it as if nothing were
//! captured.
//!
//! A proxy does not work if other code has the stream's handle ([`is_shared`](StreamCore::is_shared)), because it would
//! submit to that handle inside the capture. Such a stream is captured itself. Then we only ask about its events under its
//! lock, and not during the capture. So a host thread waits by asking again and again, and if a stream has to wait, it tries
//! again after the capture. Only the capturing thread gets an error, because it would wait for itself.

use std::time::Duration;

use gpustream_hal::{Error, ErrorKind, RawStream, Result, StreamOptions, WaitPolicy};

use super::{EventCell, Recording, StreamCore, StreamState};
use crate::operation::refused;
use crate::sync::thread;

impl StreamCore {
    /// Returns the handle for the driver to capture, after the driver has received everything that was submitted.
    ///
    /// # Errors
    /// The failure of a deferred operation, and that of making a stream.
    pub(super) fn handle_to_capture(&self, state: &mut StreamState) -> Result<RawStream> {
        let raw = self.caught_up(state)?;
        if self.is_shared() || !self.device.info().quirks.capture_closes_events {
            return Ok(raw);
        }
        if let Some(proxy) = self.proxy.get() {
            return Ok(*proxy);
        }
        // We hold the state's lock, so no one else can make a second one.
        let proxy = self.device.stream_create(StreamOptions::default())?;
        Ok(*self.proxy.get_or_init(|| proxy))
    }

    /// If this thread captures a proxy in place of the stream, returns it.
    pub(super) fn proxy_here(&self) -> Option<RawStream> {
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

    /// Returns true if a capture of this stream forbids the use of its events.
    fn closes_events(&self) -> bool {
        self.is_shared() && self.device.info().quirks.capture_closes_events
    }

    /// Asks the driver if an event of this stream has been reached. If a capture forbids the question, the answer is no.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    pub(super) fn query(&self, cell: &EventCell) -> Result<bool> {
        if !self.closes_events() {
            // SAFETY: the event is alive, and was recorded on this stream.
            return unsafe { cell.query() };
        }
        // Another thread may hold the lock while it waits for room in the stream.
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

    /// Call this if the driver refused, with `refusal`, to wait for an event that this stream recorded. If a capture was
    /// the reason, waits until it ends, so that you can try again. You must not hold any lock.
    ///
    /// # Errors
    /// `refusal` if it had another reason; [`ErrorKind::Captured`] if this thread captures the stream.
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
            // Another thread does.
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

const CLOSED: &str = "wait inside it for the captured stream's earlier work, because this driver forbids that if other \
                      code has the stream's handle; wait before the capture, or capture a stream whose handle you did not \
                      take";

/// How long a thread pauses between two questions, if it should sleep while it waits.
const PAUSE: Duration = Duration::from_micros(100);
