//! Sources of memory, each around one small interface and on top of another: the limit asks the log, the log the driver.

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
    /// The slab came from here. All its uses are done, and nobody holds any of it.
    unsafe fn free(&self, kind: MemoryKind, slab: Slab);
}

/// The source of a device's memory.
pub(super) type DeviceMemory = Limit<Log<Allocators>>;

/// Returns the source of a device's memory, of which `most` bytes may be reserved.
pub(super) fn device_memory(device: Arc<dyn hal::Device>, most: Option<u64>) -> DeviceMemory {
    Limit::new(Log::new(device.clone(), Allocators::new(device)), most)
}
