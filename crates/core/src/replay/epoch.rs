//! Epochs: numbers on histories. With them, a segment's later operations need no uses of their own.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::track::Mode;

/// The epoch of a segment, for histories whose last change is a use of all the memory by the segment.
///
/// One use stands for every use by the segment that is not stronger, because all operations of a segment are done together.
/// If another stream, or a graph that holds no borrow, finds the use in the history, it first makes us release the segment,
/// and that ends the epoch. So if an operation finds the epoch valid under its stream's lock, it comes before them, and has
/// nothing else to check.
#[derive(Clone, Copy)]
pub(crate) struct SegmentEpoch {
    /// The number on histories of memory that the segment reads. No other segment has it.
    read: NonZeroU64,
    /// The number on histories of memory that the segment writes. No other segment has it.
    write: NonZeroU64,
}

impl SegmentEpoch {
    /// Returns the epoch of a new segment.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let read = NonZeroU64::MIN.saturating_add(NEXT.fetch_add(2, Ordering::Relaxed));
        Self { read, write: read.saturating_add(1) }
    }

    /// Returns the number to set on the history of memory that the segment uses in that mode.
    pub(crate) fn of(self, mode: Mode) -> NonZeroU64 {
        if mode == Mode::Write { self.write } else { self.read }
    }

    /// Returns true if a history with this number needs no further use by the segment in that mode.
    #[inline]
    pub(crate) fn covers(self, number: Option<NonZeroU64>, mode: Mode) -> bool {
        number == Some(self.write) || number == Some(self.read) && mode == Mode::Read
    }
}
