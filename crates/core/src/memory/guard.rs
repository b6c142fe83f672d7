//! Guards: host access to memory that the device can also reach, kept apart from graphs.
//!
//! An ordinary operation borrows its memory, so your guard's borrow keeps it out. A graph's launch borrows nothing. Instead
//! it looks for guards, and a guard waits for the uses that it finds in the block's history. If they did nothing more than
//! look, they could miss each other: a launch sees no guard, a guard comes and sees no use, then the launch enters its use,
//! and the graph writes under the guard.
//!
//! So a launch looks for guards and enters its uses while it holds the lock of [`enter_graph_memory`] once. A guard first
//! enters its block's list, and then takes and releases that lock once. If a launch looked before the guard came, it has
//! entered its uses by then, and the guard waits for them. Any later launch sees the guard. We never hold the lock across a
//! driver call, one of your closures, or a wait for room in a stream. So guards and launches only hold each other up while a
//! launch enters its uses.

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
    /// Enters a guard, which keeps out later launches. Then you must wait for the uses of the earlier ones.
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

/// Lets one thread at a time into memory that graphs refer to, from its look at the uses until it has entered its own. Other
/// memory needs no such lock, because borrows keep conflicting operations of other threads out. But a graph's launch holds
/// no borrow, so two conflicting launches could miss each other. Never hold this across a driver's call.
#[inline]
pub(crate) fn enter_graph_memory() -> RawMutexGuard<'static> {
    static ENTERING: RawMutex = RawMutex::new();
    ENTERING.hold()
}

/// Checks that the host holds no guard that conflicts with a launch. Enter the launch's uses before you release
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
        "the graph touches pinned memory, and you hold a guard on that memory; drop the guard before you launch the graph",
    )
}
