//! Streams: queues of work that the device runs in order.

use std::ffi::c_void;

use crate::handle::{RawBuffer, RawEvent};
use crate::{Error, Result};

pub use crate::handle::RawStream;

/// A host function that runs in stream order, and must neither call the driver nor unwind.
pub type HostFn = unsafe extern "C" fn(data: *mut c_void);

/// Options of a new stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// The priority: lower is more urgent; clamped to [`DeviceLimits::stream_priorities`](crate::DeviceInfo).
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

/// The words for which a stream's wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitValue {
    /// A word of this value or more (`CU_STREAM_WAIT_VALUE_GEQ`, `hipStreamWaitValueGte`). Value and word are below
    /// 2^31: beyond, CUDA compares around the circle of 32 bits, and HIP does not.
    AtLeast(u32),
    /// A word of this value alone (`CU_STREAM_WAIT_VALUE_EQ`, `hipStreamWaitValueEq`).
    Equal(u32),
    /// A word that has at least one of these bits (`CU_STREAM_WAIT_VALUE_AND`, `hipStreamWaitValueAnd`).
    AnyBit(u32),
}

impl WaitValue {
    /// Returns whether `word` ends the wait.
    #[must_use]
    pub const fn is_met(self, word: u32) -> bool {
        match self {
            Self::AtLeast(value) => word >= value,
            Self::Equal(value) => word == value,
            Self::AnyBit(bits) => word & bits != 0,
        }
    }

    /// Returns the number by which CUDA and HIP know the comparison, and the value to compare with.
    #[must_use]
    pub const fn comparison(self) -> (u32, u32) {
        match self {
            Self::AtLeast(value) => (0, value),
            Self::Equal(value) => (1, value),
            Self::AnyBit(bits) => (2, bits),
        }
    }
}

/// Making, ordering and waiting for streams.
///
/// # Safety
/// An implementor promises that a stream's work runs in the order of its submission; that handles stay valid until they
/// are destroyed and no two living ones are equal; that "done" ([`stream_query`](Self::stream_query),
/// [`stream_synchronize`](Self::stream_synchronize)) is said only when nothing submitted before touches memory any
/// more; that work behind [`stream_wait_event`](Self::stream_wait_event) begins only after the event; that nothing looks
/// at the word of a [`stream_wait_value32`](Self::stream_wait_value32) any more once the wait is done; and that a host
/// function is called at most once, with its own data, and never where the call that took the function failed.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
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
        None
    }

    /// Destroys a stream; work already submitted still completes (`cuStreamDestroy`).
    ///
    /// # Errors
    /// The driver's failure.
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
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if the device failed; [`Captured`](crate::ErrorKind::Captured)
    /// while the stream is being captured.
    ///
    /// # Safety
    /// `stream` is alive and of this device.
    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool>;

    /// Blocks until everything submitted is done (`cuStreamSynchronize`).
    ///
    /// # Errors
    /// As for [`stream_query`](Self::stream_query).
    ///
    /// # Safety
    /// `stream` is alive and of this device.
    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()>;

    /// Makes work submitted to `stream` from now on wait for `event`'s last record (`cuStreamWaitEvent`). An event
    /// of another device of the same backend is allowed.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if the stream is captured and the event is no part of that capture,
    /// or the event's capture has ended; otherwise the driver's failure.
    ///
    /// # Safety
    /// Both are alive; `event` has been recorded.
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()>;

    /// Tells that the host has written a word for which streams may wait. Devices that look at words by themselves need not
    /// know.
    fn word_written(&self) {}

    /// Makes work submitted to `stream` from now on wait until the word at `address` is as `until` says
    /// (`cuStreamWaitValue32`, `hipStreamWaitValue32`). Such work comes after the write of that word, and after
    /// everything before the write. Where the device is lost, the wait ends as other work does.
    ///
    /// # Errors
    /// `Unsupported` where [`DeviceFeatures::stream_wait_value`](crate::DeviceInfo) says no.
    ///
    /// # Safety
    /// `stream` is alive and not being captured. `address` is the device's for four aligned bytes of page-locked
    /// memory, which are alive until the wait is done, and which the host reaches by atomics alone.
    unsafe fn stream_wait_value32(
        &self,
        stream: RawStream,
        address: RawBuffer,
        until: WaitValue,
    ) -> Result<()> {
        Err(Error::unsupported("waiting for a word in stream order"))
    }

    /// Writes the word at `address` in stream order (`cuStreamWriteValue32`, `hipStreamWriteValue32`). A reader of the
    /// value comes after all work before the write.
    ///
    /// # Errors
    /// `Unsupported` where the backend has no such call.
    ///
    /// # Safety
    /// As for [`stream_wait_value32`](Self::stream_wait_value32).
    unsafe fn stream_write_value32(&self, stream: RawStream, address: RawBuffer, value: u32) -> Result<()> {
        Err(Error::unsupported("writing a word in stream order"))
    }

    /// Runs `function(data)` on a host thread in stream order (`cuLaunchHostFunc`, `hipLaunchHostFunc`, before
    /// 5.3 `hipStreamAddCallback`). After a device fault the function may never run.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if the stream's capture has failed or cannot have the call; else the
    /// driver's failure.
    ///
    /// # Safety
    /// `stream` is alive; `data` may be used from another thread, until the call has happened or the device is
    /// lost.
    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::WaitValue;

    #[test]
    fn words_end_the_waits_that_name_them() {
        let met = |until: WaitValue| [0, 4, 5, 6, 7].map(|word| until.is_met(word));
        assert_eq!(met(WaitValue::AtLeast(5)), [false, false, true, true, true]);
        assert_eq!(met(WaitValue::Equal(5)), [false, false, true, false, false]);
        assert_eq!(met(WaitValue::AnyBit(3)), [false, false, true, true, true]);
    }
}
