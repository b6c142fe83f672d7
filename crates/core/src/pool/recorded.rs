//! Allocation inside recordings: captures, and graphs of explicit nodes.

use std::alloc::Layout;
use std::sync::Arc;

use gpustream_hal::{ErrorKind, Result};

use super::pools::{Pools, rounded, too_large};
use super::{ALIGNED, Users};
use crate::memory::{Block, Home, MemoryKind};
use crate::stream::StreamEntry;

impl Pools {
    /// Allocates device memory of this layout for the recording that the entry's stream takes part in. Makes no call that
    /// the driver would record.
    ///
    /// First we look for memory that was allocated in this recording, has lost its owner, and whose uses come before the
    /// next operation in the recorded order. Then we ask the pools. If they have no more, we take such memory without that
    /// order, and the next operation waits for its uses. Uses outside the recording stay in the block's history, so every
    /// launch of the graph comes after them.
    #[cold]
    pub fn alloc_recorded(
        self: &Arc<Self>,
        users: &dyn Users,
        layout: Layout,
        entry: &StreamEntry<'_>,
    ) -> Result<Arc<Block>> {
        let (operation, bytes) = (entry.caller.call_site, layout.size());
        let Some(size) = rounded(bytes) else { return Err(too_large(bytes, operation)) };
        // A small request should leave long blocks to others. Tools that look for accesses outside an allocation know it by
        // the length that was asked for, and so do blocks that begin inside it.
        let is_pooled = self.is_pooled(MemoryKind::Device) && layout.align() <= ALIGNED;
        let (least, most) = if is_pooled { (size, size.saturating_mul(2)) } else { (bytes, bytes) };
        let home: Arc<dyn Home> = self.clone();
        let reuse = |most: usize, in_any_order: bool| {
            let reused = entry.in_scope(|scope, is_before| {
                scope.reuse(&home, &(least..=most), layout, &|point| in_any_order || is_before(point))
            });
            entry.named(reused.map(Option::flatten))
        };
        if let Some(block) = reuse(most, false)? {
            return Ok(block);
        }
        let mut block = match self.alloc(users, MemoryKind::Device, layout, Some(entry), operation) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                let most = if is_pooled { usize::MAX } else { most };
                return reuse(most, true)?.ok_or(error);
            }
            other => other?,
        };
        let room = if is_pooled { block.capacity } else { bytes };
        entry.named(entry.in_scope(|scope, _| scope.adopt(&home, &mut block, room)))?;
        Ok(block)
    }
}
