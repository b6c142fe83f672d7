//! How a device is opened.

use gpustream_hal::WaitPolicy;

use crate::pool::{MemoryOptions, PoolPolicy};
use crate::staging::StagingOptions;
use crate::track::Tracking;

/// How to open a device.
///
/// ```
/// use gpustream::{Device, DeviceOptions, Tracking, WaitPolicy};
/// let options = DeviceOptions::default().tracking(Tracking::Strict).wait(WaitPolicy::Block).memory_limit(1 << 30);
/// let device = Device::open_with("cpu", options)?;
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// None where neither the library nor the user was asked to: see [`without_tracking`](Self::without_tracking).
    pub(crate) tracking: Option<Tracking>,
    pub(crate) wait: WaitPolicy,
    pub(crate) memory: MemoryOptions,
    pub(crate) staging: StagingOptions,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            tracking: Some(Tracking::default()),
            wait: WaitPolicy::default(),
            memory: MemoryOptions::default(),
            staging: StagingOptions::default(),
        }
    }
}

impl DeviceOptions {
    /// Sets who orders operations. For nobody see [`without_tracking`](Self::without_tracking).
    #[must_use]
    pub fn tracking(mut self, tracking: Tracking) -> Self {
        self.tracking = Some(tracking);
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
    pub fn pool(mut self, pool: PoolPolicy) -> Self {
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
        self.tracking = None;
        self
    }
}
