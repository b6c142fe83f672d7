//! Your limit on device memory, applied to what the pools ask for.

use std::sync::Arc;

use gpustream_hal::Result;

use super::Source;
use crate::memory::{Budget, BudgetShare, MemoryKind};
use crate::pool::arena::Slab;

pub(in crate::pool) struct Limit<S> {
    source: S,
    budget: Arc<Budget>,
}

/// Returns true if memory of this kind counts. `DeviceOptions::memory_limit` says why.
const fn counts(kind: MemoryKind) -> bool {
    match kind {
        MemoryKind::Device | MemoryKind::Managed | MemoryKind::Array | MemoryKind::Texels => true,
        MemoryKind::Pinned | MemoryKind::WriteCombined | MemoryKind::Registered => false,
    }
}

impl<S> Limit<S> {
    pub(super) fn new(source: S, most: Option<u64>) -> Self {
        Self { source, budget: Budget::new(most) }
    }

    /// Counts `size` bytes that we are about to ask for. They count until we [give them back](Self::give_back).
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](gpustream_hal::ErrorKind::OutOfMemory) if that exceeds the limit. Then nothing is
    /// counted.
    pub(in crate::pool) fn take(&self, kind: MemoryKind, size: usize) -> Result<()> {
        if counts(kind) { self.budget.take(size) } else { Ok(()) }
    }

    /// Stops counting `size` bytes.
    pub(in crate::pool) fn give_back(&self, kind: MemoryKind, size: usize) {
        if counts(kind) {
            self.budget.give_back(size);
        }
    }

    /// Counts device memory that is not a slab, for as long as the share lives.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub(in crate::pool) fn share(&self, bytes: usize) -> Result<BudgetShare> {
        self.budget.share(bytes)
    }
}

impl<S: Source> Source for Limit<S> {
    fn alloc(&self, kind: MemoryKind, size: usize, bytes: usize) -> Result<Slab> {
        self.take(kind, size)?;
        self.source.alloc(kind, size, bytes).inspect_err(|_| self.give_back(kind, size))
    }

    unsafe fn free(&self, kind: MemoryKind, slab: Slab) {
        // SAFETY: handed on.
        unsafe { self.source.free(kind, slab) };
        self.give_back(kind, slab.size);
    }
}

#[cfg(test)]
mod tests {
    use gpustream_hal::{Error, ErrorKind};

    use super::*;

    /// A source with room for at most 100 bytes at a time.
    struct Small;

    impl Source for Small {
        fn alloc(&self, _: MemoryKind, size: usize, bytes: usize) -> Result<Slab> {
            if bytes > 100 {
                return Err(Error::new(ErrorKind::OutOfMemory, "small"));
            }
            Ok(Slab { start: 512, size, host: 0 })
        }

        unsafe fn free(&self, _: MemoryKind, _: Slab) {}
    }

    #[test]
    fn a_limit_counts_device_memory_and_what_is_refused_does_not_count() {
        let limit = Limit::new(Small, Some(150));
        let slab = limit.alloc(MemoryKind::Device, 100, 100).unwrap();
        assert_eq!(limit.alloc(MemoryKind::Device, 51, 51).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(
            limit.alloc(MemoryKind::Pinned, 100, 100).is_ok()
                && limit.alloc(MemoryKind::Managed, 100, 100).is_err()
        );
        let other = limit.alloc(MemoryKind::Device, 50, 50).unwrap();
        // SAFETY: nothing uses the slabs.
        unsafe {
            limit.free(MemoryKind::Device, slab);
            limit.free(MemoryKind::Device, other);
        }
        assert!(limit.alloc(MemoryKind::Device, 150, 150).is_err(), "the source has no room");
        assert!(limit.alloc(MemoryKind::Device, 150, 100).is_ok(), "what the source refused is not counted");
    }
}
