//! Seals: numbers on histories, by which a segment's later operations need no uses of their own.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::track::Mode;

/// The seal of a segment, for histories whose last change is a use of all the memory by the segment.
///
/// The use stands for every use by the segment that is not stronger: all operations of a segment are done at once.
/// Another stream that finds the use in the history, or a graph that holds no borrow, has the segment released before
/// it goes on, which ends the seal. So an operation that finds the seal valid under its stream's lock comes before
/// them, and has nothing else to look at.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// The number on histories of memory that the segment reads. No other segment has it, nor the number behind it.
    read: u64,
}

impl Seal {
    /// Returns the seal of a new segment.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(2);
        Self { read: NEXT.fetch_add(2, Ordering::Relaxed) }
    }

    /// Returns the number for the history of memory that the segment uses in that mode.
    pub(crate) fn of(self, mode: Mode) -> u64 {
        self.read + u64::from(mode == Mode::Write)
    }

    /// Returns whether a history with this number needs no further use of the segment's in that mode.
    #[inline]
    pub(crate) fn covers(self, number: u64, mode: Mode) -> bool {
        number == self.read + 1 || number == self.read && mode == Mode::Read
    }
}
