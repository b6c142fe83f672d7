//! Options for opening a device.

use gpustream_hal::WaitPolicy;

use crate::pool::{MemoryOptions, PoolPolicy};
use crate::staging::StagingOptions;
use crate::track::Tracking;

/// Options for opening a device. Each has a default.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// `None` if there is no tracking; see [`without_tracking`](Self::without_tracking).
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
    /// Sets who orders operations, the library or you. [`without_tracking`](Self::without_tracking) turns tracking off.
    #[must_use]
    pub fn tracking(mut self, tracking: Tracking) -> Self {
        self.tracking = Some(tracking);
        self
    }

    /// Sets how host threads wait for streams, events and pinned memory; `Stream::record_with` sets it for one event. The
    /// driver has such a setting for the whole process, which we do not change.
    #[must_use]
    pub fn wait(mut self, wait: WaitPolicy) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the pool that device memory comes from. The environment variable `GPUSTREAM_POOL` (`driver`, `none`) sets it if
    /// you leave [`PoolPolicy::Library`] here.
    #[must_use]
    pub fn pool(mut self, pool: PoolPolicy) -> Self {
        self.memory.pool = pool;
        self
    }

    /// Limits how many bytes of device memory this handle of the device may take. An allocation that would exceed the limit
    /// first returns freed memory to the driver. If that does not help, it fails as if the device had no more memory.
    ///
    /// | memory | counts | because |
    /// |---|---|---|
    /// | buffers, of streams, graphs and pipelines | yes | we count what our pool has reserved, or what the driver's pool has given out |
    /// | texel buffers | yes | |
    /// | arrays | yes | we count their texels; a driver may pad them |
    /// | `Device::alloc_shared` | yes | we count the driver's pieces, 2 MiB on GPUs |
    /// | managed memory | yes | all of it may be on the device at once, even if it is elsewhere now |
    /// | memory imported from other processes | no | the exporter counts it |
    /// | memory of other libraries, such as `Buffer::from_raw` | no | they allocated it |
    /// | pinned, write-combined and registered memory, flags, shared events | no | it is host memory |
    /// | kernels' code and variables, the driver's streams and graphs | no | the driver takes it, and does not say how much |
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory.limit = Some(bytes);
        self
    }

    /// Sets how many bytes of pinned memory a stream's uploads may have in flight. If they have as many, the next upload
    /// waits for the device. The default is `GPUSTREAM_STAGING_MIB`, or else 4 MiB for each thread that copies. A stream
    /// keeps at most a quarter of that, and at most 4 MiB, for its next copies. It keeps them until `Device::trim` or, if
    /// several threads have copied, until ten seconds have passed without such a copy.
    #[must_use]
    pub fn staging_ring(mut self, bytes: usize) -> Self {
        self.staging.ring = bytes;
        self
    }

    /// Sets how many threads copy ordinary slices, the calling one included; more than 256 count as 256. The default is
    /// `GPUSTREAM_STAGING_THREADS`, or else half the machine's cores, but not more than 8. The first copy that is large
    /// enough starts the other threads; they end, and give the pinned memory back, after ten seconds without such a copy.
    #[must_use]
    pub fn staging_threads(mut self, threads: usize) -> Self {
        self.staging.threads = threads;
        self
    }

    /// Turns tracking off: the library neither adds waits nor checks for them. It still frees memory only after its last
    /// use.
    ///
    /// # Safety
    /// You must order all operations on different streams that touch the same memory, including access from the host. Note
    /// that all child nodes of one graph touch the memory that was allocated while that graph was recorded.
    #[must_use]
    pub unsafe fn without_tracking(mut self) -> Self {
        self.tracking = None;
        self
    }
}
