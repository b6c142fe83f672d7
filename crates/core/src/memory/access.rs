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
    /// Returns whether the host may want to wait for the access.
    pub(crate) fn is_the_hosts(&self) -> bool {
        self.block.is_host() && self.mode != Mode::Shared
    }
}
