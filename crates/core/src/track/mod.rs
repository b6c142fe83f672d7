//! The tracker: the last uses of all bytes, and the order that streams already have among each other.
//!
//! Every stream numbers its submissions; a [`Point`] is one such number. An allocation's [`History`] remembers, for
//! each byte range, the last writer and the readers since. A stream's [`Clock`] has, for each other stream, the number
//! up to which this stream comes after the other. An access conflicts with the uses in the history; each conflict that
//! the clock does not cover needs a wait.
//!
//! This layer is pure logic on numbers and byte ranges: no driver, no locks, no memory.

mod clock;
mod history;
mod touched;

#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

pub use clock::Clock;
pub use history::Mode;
pub(crate) use history::{History, Use, Uses, merge_uses};
pub(crate) use touched::Touched;

/// A stream's number in the process, or a chain's in a recording. A process's numbers are never reused, because histories
/// remember those of streams that are gone. 64 bits do not run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(NonZeroU64);

impl StreamId {
    /// Returns the number of the process's next stream.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::nth(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number with that index: numbers start at 1.
    pub const fn nth(index: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(index))
    }

    /// Returns the number of smaller ones.
    pub const fn index(self) -> u64 {
        self.0.get() - 1
    }

    #[inline]
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The `number`-th submission to a stream. Numbers start at 1; everything is ordered after number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub stream: StreamId,
    pub number: u64,
}

/// The party that orders operations on the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracking {
    /// The library, which adds the waits that are missing, and no others.
    #[default]
    Auto,
    /// The user, for whom a missing wait is an [`Hazard`](gpustream_hal::ErrorKind::Hazard) that names both
    /// operations with file and line.
    Strict,
}
