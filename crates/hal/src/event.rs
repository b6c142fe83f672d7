//! Events: points in a stream that the host and other streams can wait for.

use std::time::Duration;

use crate::{RawStream, Result};

pub use crate::handle::RawEvent;

/// How a host thread waits for the device.
///
/// Backends only know `Block`. Otherwise they wait as the driver's context does, and it spins unless your program has chosen
/// another way (`cuDevicePrimaryCtxSetFlags`, `hipSetDeviceFlags`). We leave that setting alone, because we share the
/// context with every other library in the process. So we do `Yield` above the backend, by asking in a loop. And if you must
/// wait for a stream without spinning, wait for an event instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Polls without giving up the core. This has the least latency.
    #[default]
    Spin,
    /// Polls, and yields the core between polls.
    Yield,
    /// Sleeps until the driver wakes the thread.
    Block,
}

/// Options of a new event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOptions {
    /// Whether the event takes a timestamp when you record it. Off by default, because a timestamp costs time on the device.
    pub timing: bool,
    /// How [`Events::event_synchronize`] waits.
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

/// Making events, recording them and waiting for them.
///
/// # Safety
/// If you implement this, you promise that handles stay valid until they are destroyed and no two living ones are equal, and
/// that you only say "done" ([`event_query`](Self::event_query), [`event_synchronize`](Self::event_synchronize)) when
/// nothing that was submitted to the stream before the last record touches memory any more.
pub unsafe trait Events {
    /// Makes an event (`cuEventCreate`, `hipEventCreateWithFlags`).
    ///
    /// # Errors
    /// The driver's failure.
    fn event_create(&self, options: EventOptions) -> Result<RawEvent>;

    /// Destroys an event (`cuEventDestroy`). You must not call this in a host function.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `event` came from this device, and you do not use it again. The stream of its last record is alive, or that stream's
    /// work is done.
    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()>;

    /// Marks this point of `stream` (`cuEventRecord`). If you record again, later waits use the new mark; waits that you
    /// have already submitted keep the old one.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// Both are alive and of this device.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()>;

    /// Returns true if the marked point has been reached (`cuEventQuery`). Never blocks.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if the device failed; [`Captured`](crate::ErrorKind::Captured) if the
    /// event was last recorded in a capture.
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

    /// Returns the device time between two marks that have been reached (`cuEventElapsedTime`). The resolution is about half
    /// a microsecond.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// Both are alive, were made with timing, and have been reached.
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration>;
}
