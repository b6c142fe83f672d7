//! Host access to memory: waits until streams are done with it.

use std::ops::Range;

use gpustream_hal::Result;

use super::StreamTable;
use crate::memory::{self, Block};
use crate::track::Mode;

/// Blocks until the device is done with `range`: for a read, until its writers are done; for a write, until all its users
/// are.
///
/// # Errors
/// Those of [`wait_number`](super::StreamCore::wait_number).
#[track_caller]
pub fn wait_for(block: &Block, range: &Range<usize>, mode: Mode) -> Result<()> {
    for point in memory::pending(block, range, mode) {
        if let Some(stream) = StreamTable::shared().get(point.stream) {
            stream.wait_number(point.number)?;
        }
    }
    Ok(())
}

/// Returns true if [`wait_for`] would return at once.
///
/// # Errors
/// [`DeviceLost`](gpustream_hal::ErrorKind::DeviceLost) if the device failed.
pub fn is_done(block: &Block, range: &Range<usize>, mode: Mode) -> Result<bool> {
    for point in memory::pending(block, range, mode) {
        if let Some(stream) = StreamTable::shared().get(point.stream)
            && !stream.poll_number(point.number)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}
