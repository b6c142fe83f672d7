//! Events: points in a stream that the host and other streams can wait for.

use std::time::Duration;

use crate::{RawStream, Result};

pub use crate::handle::RawEvent;

/// The way a host thread waits for the device.
///
/// Backends know `Block` and otherwise wait as the driver's context does, which spins unless the program has set
/// another way. That setting (`cuDevicePrimaryCtxSetFlags`, `hipSetDeviceFlags`) is left alone: the context is shared
/// with every other library in the process. So `Yield` is a loop of queries above the backend, and a wait for a stream
/// that must not spin is a wait for an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Polls without giving up the core: least latency.
    #[default]
    Spin,
    /// Polls, and yields the core between looks.
    Yield,
    /// Sleeps until the driver wakes the thread.
    Block,
}

/// Options of a new event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOptions {
    /// Whether the event takes a timestamp when it is recorded. Off by default: a timestamp costs the device time.
    pub timing: bool,
    /// The way [`Events::event_synchronize`] waits.
    pub wait: WaitPolicy,
}

impl EventOptions {
    /// Sets whether the event takes a timestamp when it is recorded.
    #[must_use]
    pub const fn timing(mut self, timing: bool) -> Self {
        self.timing = timing;
        self
    }

    /// Sets how host threads wait for the event.
    #[must_use]
    pub const fn wait(mut self, wait: WaitPolicy) -> Self {
        self.wait = wait;
        self
    }
}

/// Making, recording and waiting for events.
///
/// # Safety
/// An implementor promises that handles stay valid until they are destroyed and no two living ones are equal, and that
/// "done" ([`event_query`](Self::event_query), [`event_synchronize`](Self::event_synchronize)) is said only when
/// nothing that was submitted to the stream before the last record touches memory any more.
pub unsafe trait Events {
    /// Makes an event (`cuEventCreate`, `hipEventCreateWithFlags`).
    ///
    /// # Errors
    /// The driver's failure.
    fn event_create(&self, options: EventOptions) -> Result<RawEvent>;

    /// Destroys an event (`cuEventDestroy`). A host function must not call this.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `event` came from this device and is not used again. The stream of its last record is alive, or that stream's
    /// work is done.
    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()>;

    /// Marks this point of `stream` (`cuEventRecord`). Recording again replaces the earlier mark for later
    /// waits; waits already submitted keep theirs.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// Both are alive and of this device.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()>;

    /// Returns whether the marked point has been reached; never blocks (`cuEventQuery`).
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if the device failed; [`Captured`](crate::ErrorKind::Captured)
    /// for an event whose last record is part of a capture.
    ///
    /// # Safety
    /// `event` is alive, and so is the stream of its last record.
    unsafe fn event_query(&self, event: RawEvent) -> Result<bool>;

    /// Blocks until the marked point has been reached (`cuEventSynchronize`).
    ///
    /// # Errors
    /// As for [`event_query`](Self::event_query).
    ///
    /// # Safety
    /// As for [`event_query`](Self::event_query).
    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()>;

    /// Returns the device time between two reached marks (`cuEventElapsedTime`; about half a microsecond of
    /// resolution).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// Both are alive, were made with timing, and have been reached.
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration>;
}
