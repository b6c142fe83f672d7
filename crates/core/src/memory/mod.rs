//! Blocks of memory, and the points that host access to a block waits for.
//!
//! A block is one live allocation. When the owner of a block is dropped, the block's range goes back to the pool
//! together with its uses, and the next owner's accesses come after the uses that still run. So freeing never waits,
//! and memory that a stream still uses is never returned to the driver.
//!
//! This layer knows the tracker, and the driver's calls for page-locking. Streams are unknown here, and so are the
//! pools but for [`Home`].

mod access;
mod array;
mod block;
mod budget;
mod guard;
mod page_locked;
mod registration;

use std::alloc::Layout;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_hal::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::track::{Mode, Point};
pub use access::Access;
pub(crate) use access::Remembered;
pub use array::ArrayMemory;
pub(crate) use block::{Backing, Filling, Home, Returned};
pub use block::{Block, MemoryKind};
pub(crate) use budget::Budget;
pub use budget::BudgetShare;
pub use guard::HostGuard;
pub(crate) use guard::{check_guards, enter_graph_memory};
pub use page_locked::PAGE_LOCKED;
pub use registration::Registration;

/// The number of times that memory went back to a driver, of all devices of the process.
static RETURNED: AtomicU64 = AtomicU64::new(0);

/// Notes that memory is about to go back to a driver: its addresses may soon mean other memory.
pub(crate) fn note_return() {
    RETURNED.fetch_add(1, Ordering::AcqRel);
}

/// Returns a number that changes whenever memory goes back to a driver.
pub(crate) fn returned() -> u64 {
    RETURNED.load(Ordering::Acquire)
}

/// Returns the size and alignment of `len` elements. Every allocation asks for both, so that memory which the host sees is
/// aligned for its elements, of whatever kind it is.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] for more bytes than there are addresses.
#[inline]
pub fn layout_of<T>(len: usize) -> Result<Layout> {
    Layout::array::<T>(len).map_err(|_| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!("{len} elements of {} bytes exceed the address space", size_of::<T>()),
        )
    })
}

/// Returns the size of `len` elements in bytes.
///
/// # Errors
/// As for [`layout_of`].
#[inline]
pub fn byte_len<T>(len: usize) -> Result<usize> {
    layout_of::<T>(len).map(|layout| layout.size())
}

/// Returns the points that host access to `range` waits for: its writers for a read, all its users for a write.
pub fn pending(block: &Block, range: &Range<usize>, mode: Mode) -> SmallVec<[Point; 4]> {
    let mut points = SmallVec::new();
    block.history.lock().conflicts(range, mode, |old| points.push(old.point));
    points
}
