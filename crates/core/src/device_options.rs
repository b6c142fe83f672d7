//! Options of opening a device.

use gpustream_hal::WaitPolicy;

use crate::pool::{MemoryOptions, PoolPolicy};
use crate::staging::StagingOptions;
use crate::track::Tracking;

/// Options of opening a device, each of which has a default.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// `None` where nobody orders operations; see [`without_tracking`](Self::without_tracking).
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
    /// Sets the side that orders operations; [`without_tracking`](Self::without_tracking) is for neither.
    #[must_use]
    pub fn tracking(mut self, tracking: Tracking) -> Self {
        self.tracking = Some(tracking);
        self
    }

    /// Sets how host threads wait for streams, events and pinned memory; `Stream::record_with` sets it for one event. The
    /// driver's own setting, which is the whole process's, is not changed.
    #[must_use]
    pub fn wait(mut self, wait: WaitPolicy) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the pool that device memory comes from. The environment variable `GPUSTREAM_POOL` (`driver`, `none`) sets
    /// it where the program leaves [`PoolPolicy::Library`].
    #[must_use]
    pub fn pool(mut self, pool: PoolPolicy) -> Self {
        self.memory.pool = pool;
        self
    }

    /// Sets the most bytes of device memory that this device may reserve; allocations beyond that fail as if the device
    /// had no more.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory.limit = Some(bytes);
        self
    }

    /// Sets how many bytes of pinned memory a stream's uploads may have under way; further uploads wait for the device.
    /// The default is `GPUSTREAM_STAGING_MIB`, or else 4 MiB for each thread that copies. A stream keeps at most a
    /// quarter of that, and at most 4 MiB, for its next copies, until `Device::trim` or, where several threads have
    /// copied, until ten seconds have passed without such a copy.
    #[must_use]
    pub fn staging_ring(mut self, bytes: usize) -> Self {
        self.staging.ring = bytes;
        self
    }

    /// Sets how many threads copy ordinary slices, the calling one included; more than 256 count as 256. The default is
    /// `GPUSTREAM_STAGING_THREADS`, or else half of the machine's cores, at most 8. The first copy that is large enough
    /// starts the other threads; they end, and give the pinned memory back, after ten seconds without such a copy.
    #[must_use]
    pub fn staging_threads(mut self, threads: usize) -> Self {
        self.staging.threads = threads;
        self
    }

    /// Turns tracking off: the library neither adds waits nor checks for them. Memory is still freed only after its
    /// last use.
    ///
    /// # Safety
    /// The caller orders all operations of different streams that touch the same memory, host access included. All child
    /// nodes of one graph touch the memory that was allocated while the graph was recorded.
    #[must_use]
    pub unsafe fn without_tracking(mut self) -> Self {
        self.tracking = None;
        self
    }
}
