//! Options of opening a device.

use gpustream_hal::WaitPolicy;

use crate::pool::{MemoryOptions, PoolPolicy};
use crate::staging::StagingOptions;
use crate::track::Tracking;

/// Options of opening a device, each of which has a default.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// `None` if nobody orders operations; see [`without_tracking`](Self::without_tracking).
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

    /// Sets the most bytes of device memory that this handle of the device may take; allocations beyond that fail as if the
    /// device had no more, after freed memory went back to the driver.
    ///
    /// | memory | counts | because |
    /// |---|---|---|
    /// | buffers, of streams, graphs and pipelines | yes | by what the pool has reserved, or the driver's pool given out |
    /// | texel buffers | yes | |
    /// | arrays | yes | by their texels; a driver may pad them |
    /// | `Device::alloc_shared` | yes | by the driver's pieces, 2 MiB on GPUs |
    /// | managed memory | yes | all of it may lie on the device at once, wherever it lies now |
    /// | memory imported from other processes | no | the exporter has taken it |
    /// | memory of other libraries, such as `Buffer::from_raw` | no | they have taken it |
    /// | pinned, write-combined and registered memory, flags, shared events | no | it is the host's |
    /// | kernels' code and variables, the driver's streams and graphs | no | the driver takes it, and does not say how much |
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
