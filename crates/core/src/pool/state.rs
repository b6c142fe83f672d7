//! The pool for one kind of memory: its arenas, its emptied blocks and its figures.

use std::sync::Arc;

use super::arena::Arena;
use super::stats::MemoryStats;
use super::{Holder, SMALL};
use crate::memory::Block;

/// We keep at most this many emptied blocks to fill again.
const SHELLS: usize = 4096;

/// The pool for one kind of memory.
#[derive(Default)]
pub(super) struct PoolState {
    pub(super) small: Arena,
    pub(super) large: Arena,
    /// Blocks without memory. We keep them so that a warm pool allocates nothing on the heap.
    shells: Vec<Arc<Block>>,
    /// The figures, except for those that the arenas know.
    counted: MemoryStats,
}

impl PoolState {
    #[inline]
    pub(super) fn arena(&mut self, size: usize) -> &mut Arena {
        if size <= SMALL { &mut self.small } else { &mut self.large }
    }

    /// Returns the bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.counted.used
    }

    pub(super) fn reserved(&self) -> usize {
        self.small.reserved() + self.large.reserved()
    }

    pub(super) fn pending(&self) -> usize {
        self.small.pending() + self.large.pending()
    }

    pub(super) fn stats(&self) -> MemoryStats {
        let longest_free = self.small.longest_free().max(self.large.longest_free()) as u64;
        MemoryStats { reserved: self.reserved() as u64, longest_free, ..self.counted }
    }

    /// Returns the sizes and the holders of the live ranges.
    pub(super) fn live(&self) -> impl Iterator<Item = (usize, &Holder)> {
        self.small.live().chain(self.large.live())
    }

    /// Counts a range that we handed out. If there is an emptied block, returns it for you to fill.
    #[inline]
    pub(super) fn hand_out(&mut self, size: usize) -> Option<Arc<Block>> {
        self.counted.hand_out(size);
        self.shells.pop()
    }

    /// Counts a range that came back.
    #[inline]
    pub(super) fn take_back(&mut self, size: usize) {
        self.counted.take_back(size);
    }

    /// Keeps an emptied block, so that we can fill it again.
    #[inline]
    pub(super) fn keep(&mut self, shell: Arc<Block>) {
        if self.shells.len() < SHELLS {
            self.shells.push(shell);
        }
    }

    /// Takes out the emptied blocks.
    pub(super) fn take_shells(&mut self) -> Vec<Arc<Block>> {
        std::mem::take(&mut self.shells)
    }

    /// Counts a request that needed no new slab.
    #[inline]
    pub(super) fn hit(&mut self) {
        self.counted.hits += 1;
    }

    /// Counts a request that needed a slab from the driver.
    pub(super) fn miss(&mut self) {
        self.counted.miss(self.reserved());
    }
}
