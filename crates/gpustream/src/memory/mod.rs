//! Blocks of memory, and waiting until the device is done with them.
//!
//! A block is one live allocation. When its owner is dropped its range goes back to the pool together with its
//! uses, and the next owner's first write is ordered after what is still running. So freeing never waits, and
//! nothing that a stream still uses is returned to the driver.

mod access;
mod block;
mod guard;
mod page_locked;
mod registration;

use std::ops::Range;

use gpustream_hal::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::track::{Mode, Point};
pub(crate) use access::Access;
pub(crate) use block::{Block, Filling, Home, Kind, Place, Returned};
pub(crate) use guard::{HostGuard, HostReplay};
pub(crate) use page_locked::PAGE_LOCKED;
pub(crate) use registration::Registration;

/// The size of `len` elements in bytes.
pub(crate) fn byte_len<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>()).ok_or_else(|| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("{len} elements of {} bytes exceed the address space", size_of::<T>()),
        )
    })
}

/// The points that host access to `range` waits for: the writers of it for a read, all its users for a write.
pub(crate) fn pending(block: &Block, range: &Range<usize>, mode: Mode) -> SmallVec<[Point; 4]> {
    let mut points = SmallVec::new();
    block.history.lock().conflicts(range, mode, |old| points.push(old.point));
    points
}
