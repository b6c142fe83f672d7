//! How a device is opened.

use gpustream_hal::WaitPolicy;

use crate::pool::{MemoryOptions, MemoryPool};
use crate::staging::StagingOptions;

/// Who orders operations that touch the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracking {
    /// The library: it adds the waits that are missing, and only those.
    #[default]
    Auto,
    /// The user: a missing wait is an [`ErrorKind::Hazard`](crate::ErrorKind::Hazard) that names both operations with file and line.
    Strict,
    /// Nobody checks; see [`DeviceOptions::without_tracking`].
    #[doc(hidden)]
    Off,
}

/// How to open a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    pub(crate) tracking: Tracking,
    pub(crate) wait: WaitPolicy,
    pub(crate) memory: MemoryOptions,
    pub(crate) staging: StagingOptions,
}

impl DeviceOptions {
    /// Sets who orders operations.
    #[must_use]
    pub fn tracking(mut self, tracking: Tracking) -> Self {
        if tracking != Tracking::Off {
            self.tracking = tracking;
        }
        self
    }

    /// Sets how host threads wait, for streams, events and pinned memory; [`Stream::record_with`](crate::Stream::record_with) sets it for one
    /// event. The driver's own setting belongs to the whole process and stays as it is.
    #[must_use]
    pub fn wait(mut self, wait: WaitPolicy) -> Self {
        self.wait = wait;
        self
    }

    /// Sets where device memory comes from. Without this, the environment variable `GPUSTREAM_POOL` (`driver`,
    /// `none`) may.
    #[must_use]
    pub fn pool(mut self, pool: MemoryPool) -> Self {
        self.memory.pool = pool;
        self
    }

    /// Sets how many bytes of device memory this device may reserve at most; beyond that allocations fail as if the
    /// device had no more.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory.limit = Some(bytes);
        self
    }

    /// Sets how many bytes of pinned memory a stream's uploads may have under way: past that they wait for the
    /// device. Without this it is `GPUSTREAM_STAGING_MIB`, or else 4 MiB for each thread that copies. Of that a stream
    /// keeps at most a quarter, and 4 MiB, for its next copies, until [`Device::trim`](crate::Device::trim) or, where several threads have
    /// copied, ten seconds without such a copy.
    #[must_use]
    pub fn staging_ring(mut self, bytes: usize) -> Self {
        self.staging.ring = bytes;
        self
    }

    /// Sets how many threads copy ordinary slices, the calling one included; more than 256 count as 256. Without this
    /// it is `GPUSTREAM_STAGING_THREADS`, or else half of the machine's cores, at most 8. The others are started by the
    /// first copy that is worth it, and end when there has been none for ten seconds; the pinned memory goes with
    /// them.
    #[must_use]
    pub fn staging_threads(mut self, threads: usize) -> Self {
        self.staging.threads = threads;
        self
    }

    /// Neither adds waits nor checks for them. Memory is still freed only after its last use.
    ///
    /// # Safety
    /// The caller orders all operations of different streams that touch the same memory, host access included.
    #[must_use]
    pub unsafe fn without_tracking(mut self) -> Self {
        self.tracking = Tracking::Off;
        self
    }
}
