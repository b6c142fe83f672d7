//! The tracker: which operations last used each byte, and how streams are already ordered among each other.
//!
//! Every stream numbers its submissions, and a [`Point`] is one such number. Each allocation has a [`History`]: for each
//! range of bytes it remembers the last writer and the readers since then. Each stream has a [`Clock`]: for every other
//! stream, a number. This stream comes after that stream's submissions up to the number. To order a new access, we look in
//! the history for uses that it conflicts with. If the clock already covers a use, there is nothing to do. If not, we must
//! add a wait.
//!
//! This layer is pure logic on numbers and byte ranges: it has no driver, no locks and no memory.

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

/// The number of a stream in the process, or of a chain in a recording. We never reuse a stream's number, because histories
/// still remember streams that are gone. With 64 bits we cannot run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(NonZeroU64);

impl StreamId {
    /// Takes the number for the next stream in the process.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::nth(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number at `index`, counted from 0. Numbers start at 1.
    pub const fn nth(index: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(index))
    }

    /// Returns how many numbers are smaller, so that you can use it as an index.
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

/// A stream's `number`-th submission. Numbers start at 1, so everything comes after number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub stream: StreamId,
    pub number: u64,
}

/// Who must order operations on the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracking {
    /// The library does. It adds the waits that are missing, and no others.
    #[default]
    Auto,
    /// You do. If a wait is missing, you get the error [`Hazard`](gpustream_hal::ErrorKind::Hazard), which names both
    /// operations with file and line.
    Strict,
}
