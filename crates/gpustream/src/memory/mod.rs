//! Blocks of memory, and waiting until the device is done with them.
//!
//! A block is one live allocation. When its owner is dropped its range goes back to the pool together with its
//! uses, and the next owner's first write is ordered after what is still running. So freeing never waits, and
//! nothing that a stream still uses is returned to the driver.

mod block;
mod guard;
mod page_locked;
mod registration;

use std::ops::Range;

use gpustream_hal::Result;
use smallvec::SmallVec;

pub(crate) use block::{Block, Kind};
pub(crate) use guard::{HostGuard, HostReplay};
pub(crate) use page_locked::PAGE_LOCKED;
pub(crate) use registration::Registration;

use crate::device::DeviceCore;
use crate::track::{Mode, Point};

/// Blocks until the device is done with `range`: with its writers for a read, with everyone for a write.
pub(crate) fn wait_for(device: &DeviceCore, block: &Block, range: &Range<usize>, mode: Mode) -> Result<()> {
    for point in pending(block, range, mode) {
        if let Some(stream) = device.stream(point.stream) {
            stream.synchronize_number(point.number)?;
        }
    }
    Ok(())
}

/// Whether [`wait_for`] would return at once.
pub(crate) fn is_ready(device: &DeviceCore, block: &Block, range: &Range<usize>, mode: Mode) -> Result<bool> {
    for point in pending(block, range, mode) {
        if let Some(stream) = device.stream(point.stream)
            && !stream.query_number(point.number)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The points that [`wait_for`] waits for.
pub(crate) fn pending(block: &Block, range: &Range<usize>, mode: Mode) -> SmallVec<[Point; 4]> {
    let mut points = SmallVec::new();
    block.history.lock().conflicts(range, mode, |old| points.push(old.point));
    points
}
