//! A program's choices about a device's memory.

/// The choice of the pool that device memory comes from; see
/// [`DeviceOptions::pool`](crate::device_options::DeviceOptions::pool).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolPolicy {
    /// The library's stream-ordered pool: slabs from the driver, split and merged here.
    #[default]
    Library,
    /// The driver's own stream-ordered pool (`cuMemAllocAsync`), on devices that have one: slower, and shared with
    /// other users of the driver. Copies from and to other devices work; kernels of other devices do not reach the
    /// memory. Graphs' own memory, which a capture or a node allocates, is from the driver's plain allocator: a driver
    /// would record the calls of its pool.
    Driver,
    /// No pool: every allocation is the driver's own, which suits debuggers and sanitizers. Slow.
    Unpooled,
}

/// The options of a device's memory: the pool, and the limit on the bytes taken from the driver, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryOptions {
    pub(crate) pool: PoolPolicy,
    pub(crate) limit: Option<u64>,
}

impl MemoryOptions {
    /// Takes the environment's choice where the program made none.
    pub(crate) fn or(mut self, pool: Option<PoolPolicy>) -> Self {
        if self.pool == PoolPolicy::Library {
            self.pool = pool.unwrap_or_default();
        }
        self
    }
}
