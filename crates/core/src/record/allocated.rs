//! Memory that is allocated inside a recording.
//!
//! The recording is the home of such a block, and holds it until the recording ends. So the pools tell the recording when
//! the block's owner is dropped, and the next request that the block fits gets it: the same block, whose next uses the
//! recording's histories put after the earlier ones. When the recording ends, its graph holds the blocks that its nodes
//! touch, as it holds all memory; the pools get back the blocks that have neither an owner nor such a node.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::memory::{Block, Home, Returned};
use crate::sync::{Mutex, lock};

/// The memory that a recording has from one device's pools.
pub(crate) struct Allocated {
    pools: Arc<dyn Home>,
    /// `None` once the recording has ended.
    blocks: Mutex<Option<Blocks>>,
}

#[derive(Default)]
struct Blocks {
    /// The blocks that have owners, by address.
    owned: HashMap<usize, Room>,
    /// The blocks whose owners are gone, in ascending order of their bytes; of equal ones the last that came is last.
    free: Vec<Room>,
}

/// A block, and the bytes that are there for any owner.
struct Room {
    bytes: usize,
    block: Arc<Block>,
}

impl Allocated {
    pub(crate) fn new(pools: Arc<dyn Home>) -> Arc<Self> {
        Arc::new(Self { pools, blocks: Mutex::new(Some(Blocks::default())) })
    }

    /// Returns whether the memory is that of these pools.
    pub(crate) fn is_of(&self, pools: &Arc<dyn Home>) -> bool {
        Arc::as_ptr(&self.pools).addr() == Arc::as_ptr(pools).addr()
    }

    /// Takes in a new block with room for `bytes` bytes, which nobody but its owner holds.
    pub(crate) fn add(self: &Arc<Self>, block: &mut Arc<Block>, bytes: usize) {
        let Some(blocks) = &mut *lock(&self.blocks) else { return };
        if let Some(alone) = Arc::get_mut(block) {
            alone.rehome(self.clone());
            blocks.owned.insert(Arc::as_ptr(block).addr(), Room { bytes, block: block.clone() });
        }
    }

    /// Hands out a block without owner, with room for as many bytes as `bytes` allows, that is `usable`: the smallest.
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
        // Dropped with the lock released, because blocks go back to the pools.
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
