//! Events: points in a stream that other streams and host threads can wait for.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use gpustream_core::operation::{call_site, named, refused};
use gpustream_core::reentrancy;
use gpustream_core::stream::{EventContents, EventKind, Mark, StreamCore};
use gpustream_core::trace;
use gpustream_core::track::Point;
use gpustream_hal::{CallSite, Error, ErrorKind, RawEvent, Result};

/// A point in a stream, made by [`Stream::record`](crate::Stream::record). It keeps its stream alive.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// let (a, b) = (device.stream()?, device.stream()?);
/// let event = a.record()?;
/// b.wait(&event)?;            // device side: returns at once
/// event.synchronize()?;       // host side: blocks
/// assert!(event.is_done()?);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// In async code, await an event on any executor:
///
/// ```
/// # async fn work(stream: &gpustream::Stream) -> gpustream::Result<()> {
/// let event = stream.record()?;
/// event.await?;
/// # Ok(()) }
/// ```
///
/// An `Event` is `Send` and `Sync`. Dropping it does not block. Streams that already wait for it still do.
pub struct Event {
    pub(crate) stream: Arc<StreamCore>,
    contents: ManuallyDrop<Box<EventContents>>,
}

impl Event {
    #[inline]
    pub(crate) fn new(stream: &Arc<StreamCore>, contents: Box<EventContents>) -> Self {
        Self { stream: stream.clone(), contents: ManuallyDrop::new(contents) }
    }

    #[inline]
    pub(crate) fn contents(&self) -> &EventContents {
        &self.contents
    }

    #[inline]
    pub(crate) fn mark(&self) -> &Mark {
        &self.contents.mark
    }

    #[inline]
    pub(crate) fn kind(&self) -> &EventKind {
        &self.contents.kind
    }

    /// Returns the driver's handle (`CUevent`, `hipEvent_t`), so that another library's streams can wait for this event while
    /// the value is alive. For the other direction there is [`Stream::wait_raw`](crate::Stream::wait_raw).
    pub fn as_raw(&self) -> RawEvent {
        self.mark().cell.raw
    }

    /// Refuses to query or wait for an event of a capture, or any event inside a host closure.
    pub(crate) fn check_not_captured(&self) -> Result<()> {
        reentrancy::check_outside()?;
        match self.kind() {
            EventKind::Captured(_) => Err(refused(
                "ask about an event that was recorded inside it, because each launch reaches that event again",
            )),
            EventKind::Ordinary | EventKind::Special => Ok(()),
        }
    }

    /// Returns true if the point has been reached (`cuEventQuery`). Never blocks.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if the device failed.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || {
            self.check_not_captured()?;
            self.stream.poll_event(self.mark())
        })
    }

    /// Blocks until the point has been reached (`cuEventSynchronize`).
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if the device failed; [`HostPanic`](crate::ErrorKind::HostPanic) if a host
    /// closure of the stream panicked.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let place = Location::caller();
        named(CallSite { label: "synchronize", location: place }, || self.wait_at(place))
    }

    fn wait_at(&self, place: &'static Location<'static>) -> Result<()> {
        self.check_not_captured()?;
        let point = Some(Point { stream: self.stream.id, number: self.mark().number });
        trace::waiting("synchronize", place, point, || self.stream.synchronize(&self.mark().cell))?;
        self.stream.set_reached(self.mark());
        self.stream.report_failures()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let contents = unsafe { ManuallyDrop::take(&mut self.contents) };
        self.stream.take_back(contents);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event(after {} of stream {})", self.mark().number, self.stream.id)
    }
}

/// An [`Event`] that also takes the device's time, made by [`Stream::record_timed`](crate::Stream::record_timed).
///
/// It is a type of its own because a timestamp costs the device time, so ordinary events don't take one.
///
/// A `TimedEvent` is `Send` and `Sync`. Dropping it does not block.
#[derive(Debug)]
pub struct TimedEvent(pub(crate) Event);

impl TimedEvent {
    /// Returns the device time between `earlier` and this event, exact to about half a microsecond. Blocks until both points
    /// have been reached.
    ///
    /// # Errors
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if the events belong to two devices.
    #[track_caller]
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration> {
        named(call_site("elapsed_since"), || {
            let (start, end) = (&earlier.0, &self.0);
            if !Arc::ptr_eq(&start.stream.device, &end.stream.device) {
                return Err(Error::new(
                    ErrorKind::DeviceMismatch,
                    "the two events were recorded on different devices, whose clocks cannot be compared; record both on one device",
                ));
            }
            start.synchronize()?;
            end.synchronize()?;
            // SAFETY: both are alive, were made with timing, and have been reached.
            unsafe { end.stream.device.event_elapsed(start.mark().cell.raw, end.mark().cell.raw) }
        })
    }

    /// Returns the event, if you only want to wait for it.
    pub fn as_event(&self) -> &Event {
        &self.0
    }
}

impl std::ops::Deref for TimedEvent {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.0
    }
}
