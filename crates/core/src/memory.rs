//! Blocks of memory, and the points that the host must wait for before it touches one.
//!
//! A block is one live allocation. If you drop its owner, the block's range goes back to the pool together with its uses.
//! The next owner's accesses come after the uses that are still running. So freeing never waits, and we never return memory
//! to the driver while a stream uses it.
//!
//! This layer knows the tracker and the driver's calls for page-locking. It does not know streams, and it knows pools only
//! through [`Home`].

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

/// How often memory went back to a driver, on any device of the process.
static RETURNED: AtomicU64 = AtomicU64::new(0);

/// Call this before memory goes back to a driver, because its addresses may soon mean other memory.
pub(crate) fn note_return() {
    RETURNED.fetch_add(1, Ordering::AcqRel);
}

/// Returns a number that changes whenever memory goes back to a driver.
pub(crate) fn returned() -> u64 {
    RETURNED.load(Ordering::Acquire)
}

/// Returns the size and alignment of `len` elements. Every allocation asks for both, because the host may see the memory,
/// and then it must be aligned for its elements.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] for more bytes than there are addresses.
#[inline]
pub fn layout_of<T>(len: usize) -> Result<Layout> {
    Layout::array::<T>(len).map_err(|_| {
        Error::new(
            ErrorKind::OutOfMemory,
            format!(
                "you asked for {len} elements of {} bytes, but the address space is smaller than that; ask for fewer",
                size_of::<T>()
            ),
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

/// Returns the points that the host must wait for before it accesses `range`: its writers for a read, all its users for a
/// write.
pub fn pending(block: &Block, range: &Range<usize>, mode: Mode) -> SmallVec<[Point; 4]> {
    let mut points = SmallVec::new();
    block.history.lock().conflicts(range, mode, |old| points.push(old.point));
    points
}
