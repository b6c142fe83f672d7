//! Guards: host access to memory that the device reaches, kept apart from graphs, which touch that memory without a
//! borrow.

use std::ops::Range;

use gpustream_hal::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use super::Block;
use crate::inside;
use crate::memory::Access;
use crate::track::Mode;

/// The guards held on a block, and the number of graph launches that touch the block and are being entered.
///
/// Ordinary operations and guards exclude each other by their borrows. A graph holds no borrow.
#[derive(Default)]
pub(super) struct Guards {
    held: SmallVec<[(Range<usize>, Mode); 1]>,
    /// While a launch is being entered, no guard is let in.
    replays: usize,
}

impl Guards {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}

/// A guard's entry in its block's list.
pub struct HostGuard<'a> {
    block: &'a Block,
    range: Range<usize>,
    mode: Mode,
}

impl<'a> HostGuard<'a> {
    /// Enters a guard. A launch that is being entered at this moment goes first, and the caller then waits for its run.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure, while a launch is being entered.
    pub fn hold(block: &'a Block, range: Range<usize>, mode: Mode) -> Result<Self> {
        loop {
            if let Some(guard) = Self::try_hold(block, range.clone(), mode) {
                return Ok(guard);
            }
            // A closure must not wait here: the launch may itself wait for room in a queue behind the closure.
            inside::check_outside()?;
            std::thread::yield_now();
        }
    }

    /// Enters a guard, or returns `None` while a launch is being entered.
    pub fn try_hold(block: &'a Block, range: Range<usize>, mode: Mode) -> Option<Self> {
        let mut guards = block.guards.lock();
        if guards.replays > 0 {
            return None;
        }
        guards.held.push((range.clone(), mode));
        drop(guards);
        Some(Self { block, range, mode })
    }
}

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        let mut guards = self.block.guards.lock();
        if let Some(index) = guards.held.iter().position(|held| held.0 == self.range && held.1 == self.mode) {
            guards.held.swap_remove(index);
        }
    }
}

/// The entry of a graph's launch. While the value lives, no guard is let in on the memory that the graph touches.
pub struct HostReplay<'a>(SmallVec<[&'a Block; 4]>);

impl<'a> HostReplay<'a> {
    /// Begins to enter a launch that touches `accesses`.
    ///
    /// # Errors
    /// [`ErrorKind::HostBorrowed`] if a guard is held on memory that the launch conflicts with.
    pub fn begin(accesses: impl Iterator<Item = Access<'a>>) -> Result<Self> {
        let mut entered = Self(SmallVec::new());
        for access in accesses.filter(|access| access.block.is_host()) {
            let mut guards = access.block.guards.lock();
            let conflict = guards.held.iter().any(|(range, mode)| {
                let overlap = range.start < access.range.end && access.range.start < range.end;
                overlap && (*mode == Mode::Write || access.mode == Mode::Write)
            });
            if conflict {
                return Err(Error::new(
                    ErrorKind::HostBorrowed,
                    "the graph touches pinned memory that the host holds a guard on; drop the guard before launching",
                ));
            }
            guards.replays += 1;
            drop(guards);
            entered.0.push(access.block);
        }
        Ok(entered)
    }
}

impl Drop for HostReplay<'_> {
    fn drop(&mut self) {
        for block in &self.0 {
            block.guards.lock().replays -= 1;
        }
    }
}
