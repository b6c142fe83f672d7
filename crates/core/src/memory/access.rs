//! Ranges of memory that operations touch.

use std::ops::Range;
use std::sync::Arc;

use super::Block;
use crate::track::Mode;

/// One range that an operation touches.
pub struct Access<'a> {
    pub block: &'a Arc<Block>,
    pub range: Range<usize>,
    pub mode: Mode,
}

impl Access<'_> {
    /// Returns true if the host may want to wait for the access.
    pub(crate) fn is_the_hosts(&self) -> bool {
        self.block.is_host() && self.mode != Mode::Shared
    }
}

/// An access that we remember by the address of its block. Either the block is kept alive, or we never ask about it once it
/// is gone.
pub(crate) struct Remembered {
    block: usize,
    range: Range<usize>,
    mode: Mode,
}

impl Remembered {
    #[inline]
    pub(crate) fn of(Access { block, range, mode }: &Access<'_>) -> Self {
        Self { block: Arc::as_ptr(block).addr(), range: range.clone(), mode: *mode }
    }

    #[inline]
    pub(crate) fn is(&self, Access { block, range, mode }: &Access<'_>) -> bool {
        self.block == Arc::as_ptr(block).addr() && self.range == *range && self.mode == *mode
    }

    /// Returns true if both touch the same byte and one of them writes it.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let (modes, range) = ([self.mode, other.mode], &self.range);
        self.block == other.block
            && range.start.max(other.range.start) < range.end.min(other.range.end)
            && modes.contains(&Mode::Write)
            && !modes.contains(&Mode::Shared)
    }

    /// Returns the block's name, the range in it, and the mode.
    pub(crate) fn parts(&self) -> (usize, &Range<usize>, Mode) {
        (self.block, &self.range, self.mode)
    }

    /// Returns true if `access` has at least as many bytes, and touches them in the same way.
    pub(crate) fn is_covered_by(&self, Access { block, range, mode }: &Access<'_>) -> bool {
        self.block == Arc::as_ptr(block).addr()
            && self.mode == *mode
            && range.start <= self.range.start
            && self.range.end <= range.end
    }
}
