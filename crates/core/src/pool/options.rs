//! What you can choose about a device's memory.

/// Where device memory comes from; see [`DeviceOptions::pool`](crate::device_options::DeviceOptions::pool).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolPolicy {
    /// From our own stream-ordered pool. We take slabs from the driver, and split and merge them.
    #[default]
    Library,
    /// From the driver's own stream-ordered pool (`cuMemAllocAsync`), on devices that have one. It is slower, and we share
    /// it with other users of the driver. Copies from and to other devices work, but kernels on other devices cannot reach
    /// the memory. The memory that a capture or a node of a graph allocates comes from the driver's plain allocator, because
    /// a driver would record the calls of its pool.
    Driver,
    /// No pool: each allocation is the driver's own. Use this with debuggers and sanitizers. It is slow.
    Unpooled,
}

/// The options for a device's memory: the pool, and a limit on the bytes that we take from the driver, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryOptions {
    pub(crate) pool: PoolPolicy,
    pub(crate) limit: Option<u64>,
}

impl MemoryOptions {
    /// Takes the environment's choice if you made none.
    pub(crate) fn or(mut self, pool: Option<PoolPolicy>) -> Self {
        if self.pool == PoolPolicy::Library {
            self.pool = pool.unwrap_or_default();
        }
        self
    }
}
