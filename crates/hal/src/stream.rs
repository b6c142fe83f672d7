//! Streams: queues of work that the device runs in order.

use std::ffi::c_void;

use crate::Result;
use crate::handle::RawEvent;

pub use crate::handle::RawStream;

/// A host function that runs in stream order, and must neither call the driver nor unwind.
pub type HostFn = unsafe extern "C" fn(data: *mut c_void);

/// Options of a new stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// The priority: lower is more urgent; clamped to [`DeviceInfo::stream_priorities`](crate::DeviceInfo).
    pub priority: i32,
    /// Whether work on the legacy default stream and on this one wait for each other.
    pub blocking_with_default: bool,
    /// The least number of multiprocessors on which kernels of the stream run; `None` for the whole device.
    pub multiprocessors: Option<u32>,
}

impl StreamOptions {
    /// Sets the priority; lower is more urgent.
    #[must_use]
    pub const fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets whether work on the legacy default stream and on this one wait for each other.
    #[must_use]
    pub const fn blocking_with_default(mut self, blocking: bool) -> Self {
        self.blocking_with_default = blocking;
        self
    }

    /// Keeps the stream's kernels to a part of the device, of at least so many multiprocessors. Drivers round the number
    /// up, to a multiple of eight on many devices. Kernels of other streams may run on that part as well; streams that
    /// ask for equal numbers get different parts while the device has enough. Copies of GPUs are not affected. The driver
    /// chooses the multiprocessors of a graph's nodes.
    #[must_use]
    pub const fn multiprocessors(mut self, at_least: u32) -> Self {
        self.multiprocessors = Some(at_least);
        self
    }
}

/// The streams that a driver makes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The stream that synchronises with every blocking stream.
    Legacy,
    /// The stream of the calling host thread.
    PerThread,
}

/// Making, ordering and waiting for streams.
///
/// # Safety
/// An implementor promises that a stream's work runs in the order of its submission; that handles stay valid until they
/// are destroyed and no two living ones are equal; that "done" ([`stream_query`](Self::stream_query),
/// [`stream_synchronize`](Self::stream_synchronize)) is said only when nothing submitted before touches memory any
/// more; that work behind [`stream_wait_event`](Self::stream_wait_event) begins only after the event; and that a host
/// function is called at most once, with its own data, and never where the call that took the function failed.
pub unsafe trait Streams {
    /// Makes a stream (`cuStreamCreateWithPriority`, `hipStreamCreateWithPriority`; on a part of the device
    /// `cuGreenCtxStreamCreate`, `hipExtStreamCreateWithCUMask`). A number of multiprocessors is at least one and at most
    /// the device's.
    ///
    /// # Errors
    /// `Unsupported` for a part of the device where the backend has none, or not with the other options.
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream>;

    /// Returns the number of multiprocessors that a stream was given; `None` for one on the whole device.
    ///
    /// # Safety
    /// `stream` is alive and of this device.
    unsafe fn stream_multiprocessors(&self, stream: RawStream) -> Option<u32> {
        let _ = stream;
        None
    }

    /// Destroys a stream; work already submitted still completes (`cuStreamDestroy`).
    ///
    /// # Safety
    /// `stream` came from [`stream_create`](Self::stream_create) of this device and is not used again. The work of a
    /// stream on a part of the device is done, and graphs that were captured on such a stream are gone.
    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()>;

    /// Returns the handle of a stream that the driver made.
    ///
    /// # Errors
    /// `Unsupported` where the backend has none.
    fn stream_default(&self, which: DefaultStream) -> Result<RawStream>;

    /// Returns whether everything submitted is done; never blocks (`cuStreamQuery`). "Not ready" is `Ok(false)`.
    ///
    /// # Safety
    /// `stream` is alive and of this device.
    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool>;

    /// Blocks until everything submitted is done (`cuStreamSynchronize`).
    ///
    /// # Safety
    /// `stream` is alive and of this device.
    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()>;

    /// Makes work submitted to `stream` from now on wait for `event`'s last record (`cuStreamWaitEvent`). An event
    /// of another device of the same backend is allowed.
    ///
    /// # Safety
    /// Both are alive; `event` has been recorded.
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()>;

    /// Runs `function(data)` on a host thread in stream order (`cuLaunchHostFunc`, `hipLaunchHostFunc`, before
    /// 5.3 `hipStreamAddCallback`). After a device fault the function may never run.
    ///
    /// # Safety
    /// `stream` is alive; `data` may be used from another thread, until the call has happened or the device is
    /// lost.
    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()>;
}
