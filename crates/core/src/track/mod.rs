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
mod model;

pub use clock::Clock;
pub use history::Mode;
pub(crate) use history::{History, Use, Uses, merge_uses};
pub(crate) use touched::Touched;

/// A stream's number in the process. Numbers are never reused, because histories remember those of streams that are
/// gone. 64 bits do not run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

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
    /// The user, for whom a missing wait is an [`ErrorKind::Hazard`](gpustream_hal::ErrorKind::Hazard) that names both
    /// operations with file and line.
    Strict,
}
