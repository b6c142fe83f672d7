//! The addresses at which this process has page-locked memory of the library's, roughly: the lowest and the highest.
//!
//! A driver that reads a slice during the call waits for the stream if the slice is page-locked, because it then has
//! the device read the slice in stream order. A caller's slice may be page-locked: a guard on pinned memory gives one.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bounds of all devices of the process.
pub static PAGE_LOCKED: Bounds = Bounds::new();

/// The lowest address, and the one behind the highest. Bounds never shrink.
pub struct Bounds {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Bounds {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(usize::MAX), end: AtomicUsize::new(0) }
    }

    /// Takes in `bytes` bytes from `start` on. Relaxed orderings are enough, because those bytes are handed out only
    /// afterwards.
    pub(crate) fn include(&self, start: usize, bytes: usize) {
        self.start.fetch_min(start, Ordering::Relaxed);
        self.end.fetch_max(start.saturating_add(bytes), Ordering::Relaxed);
    }

    /// Returns whether some of `bytes` may lie within the bounds.
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
