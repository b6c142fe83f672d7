//! Memory that is allocated inside a recording.
//!
//! The recording is the home of such a block, and holds it until the recording ends. If you drop the block's owner, the
//! pools tell the recording, and the recording can give the same block to the next request that fits. Its histories order
//! the new uses after the earlier ones. When the recording ends, its graph holds the blocks that its nodes touch. If a
//! block has neither an owner nor such a node, it goes back to the pools.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::memory::{Block, Home, Returned};
use crate::sync::{Mutex, lock};

/// The memory that a recording got from one device's pools.
pub(crate) struct Allocated {
    pools: Arc<dyn Home>,
    /// `None` once the recording has ended.
    blocks: Mutex<Option<Blocks>>,
}

#[derive(Default)]
struct Blocks {
    /// The blocks that have an owner, by address.
    owned: HashMap<usize, Room>,
    /// The blocks whose owners are gone, the smallest first. A block that came later is after the blocks of equal size.
    free: Vec<Room>,
}

/// A block, and how many bytes any owner may use of it.
struct Room {
    bytes: usize,
    block: Arc<Block>,
}

impl Allocated {
    pub(crate) fn new(pools: Arc<dyn Home>) -> Arc<Self> {
        Arc::new(Self { pools, blocks: Mutex::new(Some(Blocks::default())) })
    }

    /// Returns true if the memory is from these pools.
    pub(crate) fn is_of(&self, pools: &Arc<dyn Home>) -> bool {
        Arc::as_ptr(&self.pools).addr() == Arc::as_ptr(pools).addr()
    }

    /// Adds a new block with room for `bytes` bytes. Only its owner may hold it.
    pub(crate) fn add(self: &Arc<Self>, block: &mut Arc<Block>, bytes: usize) {
        let Some(blocks) = &mut *lock(&self.blocks) else { return };
        if let Some(alone) = Arc::get_mut(block) {
            alone.rehome(self.clone());
            blocks.owned.insert(Arc::as_ptr(block).addr(), Room { bytes, block: block.clone() });
        }
    }

    /// Hands out the smallest block that has no owner, has as many bytes as `bytes` allows, and is `usable`.
    pub(crate) fn take(
        &self,
        bytes: &RangeInclusive<usize>,
        mut usable: impl FnMut(&Arc<Block>) -> bool,
    ) -> Option<Arc<Block>> {
        let Some(Blocks { owned, free }) = &mut *lock(&self.blocks) else { return None };
        let first = free.partition_point(|room| room.bytes < *bytes.start());
        let fits = free[first..].iter().take_while(|room| bytes.contains(&room.bytes));
        let at = first + fits.map(|room| &room.block).position(&mut usable)?;
        let room = free.remove(at);
        let block = room.block.clone();
        owned.insert(Arc::as_ptr(&block).addr(), room);
        Some(block)
    }

    /// Ends the recording.
    pub(crate) fn close(&self) {
        let blocks = lock(&self.blocks).take();
        // Dropped after we have released the lock, because this gives blocks back to the pools.
        drop(blocks);
    }
}

impl Home for Allocated {
    fn give_back(&self, returned: Returned) {
        self.pools.give_back(returned);
    }

    fn note_disowned(&self, block: &Arc<Block>) {
        let Some(Blocks { owned, free }) = &mut *lock(&self.blocks) else { return };
        if let Some(room) = owned.remove(&Arc::as_ptr(block).addr()) {
            let at = free.partition_point(|other| other.bytes <= room.bytes);
            free.insert(at, room);
        }
    }
}
