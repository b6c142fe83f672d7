//! Roughly, the addresses where the library has page-locked memory in this process: the lowest and the highest.
//!
//! If a driver reads a slice during the call, and the slice is page-locked, the call waits for the stream, because the
//! driver then lets the device read the slice in stream order. Your slice may be page-locked, because you can get one from a
//! guard on pinned memory.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bounds of all devices of the process.
pub static PAGE_LOCKED: Bounds = Bounds::new();

/// The lowest address, and the one after the highest. The bounds never shrink.
pub struct Bounds {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Bounds {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(usize::MAX), end: AtomicUsize::new(0) }
    }

    /// Adds `bytes` bytes from `start` on. Relaxed orderings are enough, because we hand out those bytes only afterwards.
    pub(crate) fn include(&self, start: usize, bytes: usize) {
        self.start.fetch_min(start, Ordering::Relaxed);
        self.end.fetch_max(start.saturating_add(bytes), Ordering::Relaxed);
    }

    /// Returns true if any of `bytes` may lie within the bounds.
    #[inline]
    pub fn may_hold(&self, bytes: &[u8]) -> bool {
        let range = bytes.as_ptr_range();
        range.start.addr() < self.end.load(Ordering::Relaxed)
            && range.end.addr() > self.start.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_may_be() {
        let (bytes, bounds) = ([0u8; 64], Bounds::new());
        assert!(!bounds.may_hold(&bytes));
        let start = bytes.as_ptr().addr();
        bounds.include(start + 40, 8);
        bounds.include(start + 8, 16);
        assert!(bounds.may_hold(&bytes) && bounds.may_hold(&bytes[8..9]) && bounds.may_hold(&bytes[30..31]));
        assert!(!bounds.may_hold(&bytes[..8]) && !bounds.may_hold(&bytes[48..]));
    }
}
