//! Ranges of memory that operations touch.

use std::ops::Range;
use std::sync::Arc;

use super::Block;
use crate::track::Mode;

/// One range that an operation touches.
pub(crate) struct Access<'a> {
    pub(crate) block: &'a Arc<Block>,
    pub(crate) range: Range<usize>,
    pub(crate) mode: Mode,
}

impl Access<'_> {
    /// Returns whether the host may want to wait for the access.
    pub(crate) fn is_the_hosts(&self) -> bool {
        self.block.is_host() && self.mode != Mode::Shared
    }
}
