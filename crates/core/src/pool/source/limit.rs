//! The program's limit of device memory.

use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_hal::{Error, ErrorKind, Result};
use gpustream_timeline::text::Bytes;

use super::Source;
use crate::memory::Kind;
use crate::pool::arena::Slab;

/// A limit of the bytes of device memory that are reserved at one time.
pub(in crate::pool) struct Limit<S> {
    source: S,
    most: Option<u64>,
    /// The bytes of device memory that are reserved, or being asked for.
    reserved: AtomicU64,
}

impl<S> Limit<S> {
    pub(super) fn new(source: S, most: Option<u64>) -> Self {
        Self { source, most, reserved: AtomicU64::new(0) }
    }

    /// Counts `size` bytes that are being asked for. They count until they are [given back](Self::give_back).
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] beyond the limit; nothing is counted then.
    pub(in crate::pool) fn take(&self, kind: Kind, size: usize) -> Result<()> {
        let Some(most) = self.most.filter(|_| kind == Kind::Device) else { return Ok(()) };
        let fits = |reserved: u64| reserved.checked_add(size as u64).filter(|&sum| sum <= most);
        let taken = self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| over(most))
    }

    /// Counts `size` bytes no longer.
    pub(in crate::pool) fn give_back(&self, kind: Kind, size: usize) {
        if self.most.is_some() && kind == Kind::Device {
            self.reserved.fetch_sub(size as u64, Ordering::Relaxed);
        }
    }
}

impl<S: Source> Source for Limit<S> {
    fn alloc(&self, kind: Kind, size: usize, bytes: usize) -> Result<Slab> {
        self.take(kind, size)?;
        self.source.alloc(kind, size, bytes).inspect_err(|_| self.give_back(kind, size))
    }

    unsafe fn free(&self, kind: Kind, slab: Slab) {
        // SAFETY: handed on.
        unsafe { self.source.free(kind, slab) };
        self.give_back(kind, slab.size);
    }
}

#[cold]
fn over(most: u64) -> Error {
    let message = format!("the limit of {} for this device would be exceeded", Bytes(most));
    Error::new(ErrorKind::OutOfMemory, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has room for nothing above 100 bytes.
    struct Small;

    impl Source for Small {
        fn alloc(&self, _: Kind, size: usize, bytes: usize) -> Result<Slab> {
            if bytes > 100 {
                return Err(Error::new(ErrorKind::OutOfMemory, "small"));
            }
            Ok(Slab { start: 512, size, host: 0 })
        }

        unsafe fn free(&self, _: Kind, _: Slab) {}
    }

    #[test]
    fn a_limit_counts_device_memory_and_what_is_refused_does_not_count() {
        let limit = Limit::new(Small, Some(150));
        let slab = limit.alloc(Kind::Device, 100, 100).unwrap();
        assert_eq!(limit.alloc(Kind::Device, 51, 51).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(limit.alloc(Kind::Pinned, 100, 100).is_ok());
        let other = limit.alloc(Kind::Device, 50, 50).unwrap();
        // SAFETY: nobody uses the slabs.
        unsafe {
            limit.free(Kind::Device, slab);
            limit.free(Kind::Device, other);
        }
        assert!(limit.alloc(Kind::Device, 150, 150).is_err(), "the source has no room");
        assert!(limit.alloc(Kind::Device, 150, 100).is_ok(), "what the source refused is not counted");
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let limit = Limit::new(Small, None);
        assert!((0..10).all(|_| limit.alloc(Kind::Device, usize::MAX, 1).is_ok()));
    }
}
