//! Streams: queues of work that the device runs in order.

use std::ffi::c_void;

use crate::handle::{RawBuffer, RawEvent};
use crate::{Error, ErrorKind, Result};

pub use crate::handle::RawStream;

/// A host function that runs in stream order, and must neither call the driver nor unwind.
pub type HostFn = unsafe extern "C" fn(data: *mut c_void);

/// A function that a backend calls on threads of its own, once for each part of some work.
pub type HostPartFn = unsafe extern "C" fn(data: *mut c_void, part: u32);

/// Options of a new stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// The priority. Lower is more urgent. Clamped to [`DeviceLimits::stream_priorities`](crate::DeviceInfo).
    pub priority: i32,
    /// Whether work on the legacy default stream and on this one wait for each other.
    pub blocking_with_default: bool,
    /// How many multiprocessors the stream's kernels run on, at least. `None` for the whole device.
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

    /// Keeps the stream's kernels on a part of the device, with at least this many multiprocessors. Drivers round the number
    /// up, on many devices to a multiple of eight. Kernels of other streams may run on that part as well. Streams that ask
    /// for the same number get different parts as long as the device has enough. Copies by GPUs are not affected. In a
    /// graph, the driver chooses the multiprocessors of each node.
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

/// Which words end a stream's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitValue {
    /// This value or more (`CU_STREAM_WAIT_VALUE_GEQ`, `hipStreamWaitValueGte`). Value and word must be below 2^31, because
    /// above that CUDA compares around the circle of 32 bits, and HIP does not.
    AtLeast(u32),
    /// Exactly this value (`CU_STREAM_WAIT_VALUE_EQ`, `hipStreamWaitValueEq`).
    Equal(u32),
    /// Any word with at least one of these bits (`CU_STREAM_WAIT_VALUE_AND`, `hipStreamWaitValueAnd`).
    AnyBit(u32),
}

impl WaitValue {
    /// Returns true if `word` ends the wait.
    #[must_use]
    pub const fn is_met(self, word: u32) -> bool {
        match self {
            Self::AtLeast(value) => word >= value,
            Self::Equal(value) => word == value,
            Self::AnyBit(bits) => word & bits != 0,
        }
    }

    /// Returns the number that CUDA and HIP use for the comparison, and the value to compare with.
    #[must_use]
    pub const fn comparison(self) -> (u32, u32) {
        match self {
            Self::AtLeast(value) => (0, value),
            Self::Equal(value) => (1, value),
            Self::AnyBit(bits) => (2, bits),
        }
    }
}

/// Making streams, ordering them and waiting for them.
///
/// # Safety
/// If you implement this, you promise that a stream's work runs in the order of its submission; that handles stay valid
/// until they are destroyed, and no two living ones are equal; that you only say "done"
/// ([`stream_query`](Self::stream_query), [`stream_synchronize`](Self::stream_synchronize)) when nothing submitted before
/// touches memory any more; that work after [`stream_wait_event`](Self::stream_wait_event) begins only after the event; that
/// nothing looks at the word of a [`stream_wait_value32`](Self::stream_wait_value32) any more once the wait is done; and
/// that you call a host function at most once, with its own data, and never if the call that took the function failed.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Streams {
    /// Makes a stream (`cuStreamCreateWithPriority`, `hipStreamCreateWithPriority`; on a part of the device
    /// `cuGreenCtxStreamCreate`, `hipExtStreamCreateWithCUMask`). If you give a number of multiprocessors, it must be at
    /// least one and at most the device's.
    ///
    /// # Errors
    /// `Unsupported` if you ask for a part of the device and the backend cannot do that, or not together with the other
    /// options.
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream>;

    /// Returns how many multiprocessors a stream was given. `None` if it is on the whole device.
    ///
    /// # Safety
    /// `stream` is alive and of this device.
    unsafe fn stream_multiprocessors(&self, stream: RawStream) -> Option<u32> {
        None
    }

    /// Destroys a stream (`cuStreamDestroy`). Work that you submitted still completes.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `stream` came from [`stream_create`](Self::stream_create) of this device, and you do not use it again. If it is on a
    /// part of the device, its work is done, and graphs that were captured on it are gone.
    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()>;

    /// Returns the handle of a stream that the driver made.
    ///
    /// # Errors
    /// `Unsupported` if the backend has none.
    fn stream_default(&self, which: DefaultStream) -> Result<RawStream>;

    /// Returns true if everything submitted is done (`cuStreamQuery`). Never blocks. "Not ready" is `Ok(false)`.
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

    /// Makes work that you submit to `stream` from now on wait for `event`'s last record (`cuStreamWaitEvent`). The event
    /// may be on another device of the same backend.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if the stream is captured and the event is not part of that capture, or if
    /// the event's capture has ended; otherwise the driver's failure.
    ///
    /// # Safety
    /// Both are alive; `event` has been recorded.
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()>;

    /// Call this when the host has written a word that streams may wait for. A device that looks at words by itself need not
    /// know.
    fn word_written(&self) {}

    /// Makes work that you submit to `stream` from now on wait until the word at `address` is as `until` says
    /// (`cuStreamWaitValue32`, `hipStreamWaitValue32`). Such work comes after the write of that word, and after everything
    /// before the write. If the device is lost, the wait ends just as other work does.
    ///
    /// # Errors
    /// `Unsupported` if [`DeviceFeatures::stream_wait_value`](crate::DeviceInfo) says no.
    ///
    /// # Safety
    /// `stream` is alive and not being captured. `address` is the device's address for four aligned bytes of page-locked
    /// memory. These stay alive until the wait is done, and the host reaches them only through atomics.
    unsafe fn stream_wait_value32(
        &self,
        stream: RawStream,
        address: RawBuffer,
        until: WaitValue,
    ) -> Result<()> {
        Err(Error::unsupported("waiting for a word in stream order"))
    }

    /// Writes the word at `address` in stream order (`cuStreamWriteValue32`, `hipStreamWriteValue32`). If you read the
    /// value, you come after all work before the write.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no such call.
    ///
    /// # Safety
    /// As for [`stream_wait_value32`](Self::stream_wait_value32).
    unsafe fn stream_write_value32(&self, stream: RawStream, address: RawBuffer, value: u32) -> Result<()> {
        Err(Error::unsupported("writing a word in stream order"))
    }

    /// Runs `function(data)` on a host thread in stream order (`cuLaunchHostFunc`, `hipLaunchHostFunc`, before 5.3
    /// `hipStreamAddCallback`). After a device fault the function may never run.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if the stream's capture has failed or cannot have the call; otherwise the
    /// driver's failure.
    ///
    /// # Safety
    /// `stream` is alive; another thread may use `data`, until the call has happened or the device is lost.
    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()>;

    /// Runs `function(data, part)` for each part from 0 to `parts - 1`, in stream order, on the threads that run the device's
    /// kernels. Parts run at once if threads are free. They begin in their order, and later work waits for all of them. After
    /// a device fault some may never run. No vendor has such a call.
    ///
    /// # Errors
    /// `Unsupported` if the device's kernels do not run on the host; else as for [`stream_host_fn`](Self::stream_host_fn).
    ///
    /// # Safety
    /// As for [`stream_host_fn`](Self::stream_host_fn), until all parts have been called, and from several threads at once.
    unsafe fn stream_host_parts(
        &self,
        stream: RawStream,
        function: HostPartFn,
        data: *mut c_void,
        parts: u32,
    ) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "only the CPU device runs closures in parts, because its kernels run on the host too; write a kernel for this \
             device, or run one closure with `Stream::external_host`",
        ))
    }
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
