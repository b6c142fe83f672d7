//! How much memory to ask a source for.

use gpustream_hal::{ErrorKind, Result};

use super::SMALL;
use super::arena::Slab;
use super::source::Source;
use crate::memory::MemoryKind;

/// Asks for a slab to cut up. If there is no room for one, asks only for the request's size. `reserved` bytes are reserved
/// already.
///
/// # Errors
/// Those of [`Source::alloc`].
pub(super) fn alloc_slab(
    source: &impl Source,
    kind: MemoryKind,
    size: usize,
    reserved: usize,
) -> Result<Slab> {
    let preferred = slab_size(kind, size, reserved);
    match source.alloc(kind, preferred, preferred) {
        Err(error) if preferred > size && error.kind() == ErrorKind::OutOfMemory => {
            source.alloc(kind, size, size)
        }
        outcome => outcome,
    }
}

/// Returns how many bytes to ask for. The more we have reserved, the larger the slabs are. So there are only a few slabs,
/// and the memory that may lie idle is a share of the memory in use.
pub(super) fn slab_size(kind: MemoryKind, size: usize, reserved: usize) -> usize {
    let (small, least, most) = match kind {
        MemoryKind::Device => (2 << 20, 16 << 20, 512 << 20),
        // Page-locking takes time in proportion to the size.
        MemoryKind::Pinned
        | MemoryKind::WriteCombined
        | MemoryKind::Managed
        | MemoryKind::Registered
        | MemoryKind::Array
        | MemoryKind::Texels => (256 << 10, 1 << 20, 64 << 20),
    };
    if size <= SMALL {
        return small;
    }
    let wanted = (reserved / 16).clamp(least, most);
    let grain = small;
    size.max(wanted).checked_next_multiple_of(grain).unwrap_or(size)
}
