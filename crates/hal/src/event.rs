//! Events: points in a stream that others can wait for.

use std::time::Duration;

use crate::{RawStream, Result};

pub use crate::handle::RawEvent;

/// How a host thread waits for the device.
///
/// Backends know `Block` and otherwise wait as the driver's context does, which spins unless the program has set it
/// otherwise. That setting (`cuDevicePrimaryCtxSetFlags`, `hipSetDeviceFlags`) is left alone: the context is shared
/// with every other library in the process. So `Yield` is a loop of queries above the backend, and a stream that is
/// not to spin is waited for by an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Poll without giving up the core: least latency.
    #[default]
    Spin,
    /// Poll, yielding the core between looks.
    Yield,
    /// Sleep until the driver wakes the thread.
    Block,
}

/// How to make an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOptions {
    /// Take a timestamp when recorded. Off by default: it costs the device time.
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

/// Making, recording and waiting for events.
///
/// # Safety
/// An implementor promises that handles stay valid until they are destroyed and no two living ones are equal, and that
/// "done" ([`event_query`](Self::event_query), [`event_synchronize`](Self::event_synchronize)) is said only when
/// nothing that was submitted to the stream before the last record touches memory any more.
pub unsafe trait Events {
    /// Makes an event (`cuEventCreate`, `hipEventCreateWithFlags`).
    fn event_create(&self, options: EventOptions) -> Result<RawEvent>;

    /// Destroys an event (`cuEventDestroy`). Not to be called from a host function.
    ///
    /// # Safety
    /// `event` came from this device and is not used again. The stream it was recorded on is alive, or its work is
    /// done.
    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()>;

    /// Marks this point of `stream` (`cuEventRecord`). Recording again replaces the earlier mark for later
    /// waits; waits already submitted keep theirs.
    ///
    /// # Safety
    /// Both are alive and of this device.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()>;

    /// Whether the marked point has been reached; never blocks (`cuEventQuery`).
    ///
    /// # Safety
    /// `event` is alive, and so is the stream of its last record.
    unsafe fn event_query(&self, event: RawEvent) -> Result<bool>;

    /// Blocks until the marked point has been reached (`cuEventSynchronize`).
    ///
    /// # Safety
    /// As for [`event_query`](Self::event_query).
    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()>;

    /// Device time between two reached marks (`cuEventElapsedTime`; about half a microsecond of resolution).
    ///
    /// # Safety
    /// Both are alive, were made with timing, and have been reached.
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration>;
}
