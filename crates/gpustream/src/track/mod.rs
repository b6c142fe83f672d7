//! Who used which bytes last, and who is already ordered after whom. Pure logic: no driver, no locks.
//!
//! Every stream numbers what is submitted to it; a [`Point`] is one such number. An allocation's [`History`]
//! remembers, per byte range, the last writer and the readers since. A stream's [`Clock`] says up to which
//! number of every other stream it is ordered after. An access conflicts with what the history holds; each
//! conflict that the clock does not cover needs a wait.

mod clock;
mod history;
mod touched;

#[cfg(test)]
mod model;

pub(crate) use clock::Clock;
pub(crate) use history::{History, Mode, Use, Uses, merge_uses};
pub(crate) use touched::Touched;

/// A stream's number in the process. Never reused: histories remember numbers of streams that are gone. 64 bits do not
/// run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub(crate) u64);

/// The `number`-th submission to a stream. Numbers start at 1; everything is ordered after number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: StreamId,
    pub(crate) number: u64,
}

/// Who orders operations that touch the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracking {
    /// The library: it adds the waits that are missing, and only those.
    #[default]
    Auto,
    /// The user: a missing wait is an [`ErrorKind::Hazard`](crate::ErrorKind::Hazard) that names both operations with file and line.
    Strict,
}
