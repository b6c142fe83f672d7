//! Sources of memory. They all have one small interface, so we can stack them: the limit asks the log, and the log asks the
//! driver.

mod allocators;
mod limit;
mod log;

use std::sync::Arc;

use gpustream_hal::{self as hal, Result};

use super::arena::Slab;
use crate::memory::MemoryKind;
use allocators::Allocators;
pub(super) use limit::Limit;
use log::Log;

/// A source of memory in large pieces.
pub(super) trait Source {
    /// Asks for a slab of `bytes` bytes, which counts as `size` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`](gpustream_hal::ErrorKind::OutOfMemory) if there is no room.
    fn alloc(&self, kind: MemoryKind, size: usize, bytes: usize) -> Result<Slab>;

    /// Gives a slab back.
    ///
    /// # Safety
    /// The slab came from here, all its uses are done, and no block holds any of it.
    unsafe fn free(&self, kind: MemoryKind, slab: Slab);
}

/// Where a device's pools get memory.
pub(super) type DeviceMemory = Limit<Log<Allocators>>;

/// Returns where a device's pools get memory. They may reserve at most `most` bytes.
pub(super) fn device_memory(device: Arc<dyn hal::Device>, most: Option<u64>) -> DeviceMemory {
    Limit::new(Log::new(device.clone(), Allocators::new(device)), most)
}
