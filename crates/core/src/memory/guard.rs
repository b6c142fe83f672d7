//! Guards: host access to memory that the device reaches, kept apart from graphs.
//!
//! An ordinary operation borrows its memory, so the borrow of a guard keeps it out. A graph's launch borrows nothing. It looks
//! for guards instead, and a guard waits for the uses that it finds in the block's history. If the two only looked, both could
//! miss the other: a launch sees no guard, a guard comes and sees no use to wait for, then the launch enters its use, and the
//! graph writes under the guard.
//!
//! So a launch looks for guards and enters its uses under one hold of the lock of [`enter_graph_memory`]. A guard enters its
//! block's list first, and then goes once through that lock. A launch that looked before the guard came has then entered its
//! uses, for which the guard waits; any later launch sees the guard. The lock is never held across a call of the driver, a
//! closure of the program, or a wait for room in a stream. So guards and launches only ever meet for the time that it takes to
//! enter a launch's uses.

use std::ops::Range;
use std::sync::atomic::Ordering;

use gpustream_hal::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use super::{Access, Block};
use crate::sync::{RawMutex, RawMutexGuard};
use crate::track::Mode;

/// The guards that are held on a block.
pub(super) type Guards = SmallVec<[(Range<usize>, Mode); 1]>;

/// A guard's entry in its block's list.
pub struct HostGuard<'a> {
    block: &'a Block,
    range: Range<usize>,
    mode: Mode,
}

impl<'a> HostGuard<'a> {
    /// Enters a guard, which keeps out the launches to come. The caller then waits for the uses of those that came before.
    pub fn hold(block: &'a Block, range: Range<usize>, mode: Mode) -> Self {
        block.guards.lock().push((range.clone(), mode));
        let guard = Self { block, range, mode };
        // The list's latch orders the two threads: if a launch has looked before, this thread sees that there is a graph.
        if block.in_graph.load(Ordering::Acquire) {
            drop(enter_graph_memory());
        }
        guard
    }
}

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        let mut guards = self.block.guards.lock();
        if let Some(index) = guards.iter().position(|held| held.0 == self.range && held.1 == self.mode) {
            guards.swap_remove(index);
        }
    }
}

/// Admits one thread at a time to memory that graphs refer to, from the look at its uses to the entry of the new one. Other
/// memory needs no such lock: borrows keep conflicting operations of other threads out. A graph's launch holds no borrow, and
/// two launches that conflict would each miss the other. Never held across a driver's call.
#[inline]
pub(crate) fn enter_graph_memory() -> RawMutexGuard<'static> {
    static ENTERING: RawMutex = RawMutex::new();
    ENTERING.hold()
}

/// Checks that the host holds no guard that conflicts with a launch. The caller enters the launch's uses under the same hold of
/// [`enter_graph_memory`].
///
/// # Errors
/// [`ErrorKind::HostBorrowed`].
pub(crate) fn check_guards<'a>(accesses: impl Iterator<Item = Access<'a>>) -> Result<()> {
    let conflicts = |Access { block, range, mode }: Access<'_>| {
        block.guards.lock().iter().any(|(held, held_mode)| {
            let overlap = held.start < range.end && range.start < held.end;
            overlap && (*held_mode == Mode::Write || mode == Mode::Write)
        })
    };
    if accesses.filter(|access| access.block.is_host()).any(conflicts) { Err(borrowed()) } else { Ok(()) }
}

#[cold]
fn borrowed() -> Error {
    Error::new(
        ErrorKind::HostBorrowed,
        "the graph touches pinned memory that the host holds a guard on; drop the guard before launching",
    )
}
