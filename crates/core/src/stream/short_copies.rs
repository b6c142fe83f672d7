//! Pinned memory that a stream keeps for its next short copies.

use std::sync::{Arc, TryLockError};
use std::time::Instant;

use crate::memory::Block;
use crate::sync::{Mutex, lock};

/// The pinned memory of a stream's next short copies.
#[derive(Default)]
pub(crate) struct ShortCopies {
    /// Locked during an upload, which may wait for the device.
    pub up: Mutex<Up>,
    /// The block for the next download; none while a download uses it. Not locked while a thread waits.
    pub down: Mutex<Option<Arc<Block>>>,
}

/// The memory for uploads.
#[derive(Default)]
pub(crate) struct Up {
    pub chunk: Option<Chunk>,
    /// The end of the last copy that was long enough for several pieces.
    pub last: Option<Instant>,
}

/// Pinned memory that is written from front to back.
pub(crate) struct Chunk {
    /// Without its device: that holds the stream, which holds this.
    pub block: Arc<Block>,
    pub size: usize,
    pub used: usize,
}

impl Chunk {
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.size - self.used >= len
    }
}

impl ShortCopies {
    /// Drops the memory: the stream is gone.
    pub(crate) fn close(&self) {
        self.take().for_each(drop);
    }

    /// Takes out the memory that no copy is using. Does not wait: the thread that asks may be the one that copies.
    pub(crate) fn take(&self) -> impl Iterator<Item = Arc<Block>> {
        let chunk = match self.up.try_lock() {
            Ok(mut up) => up.chunk.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().chunk.take(),
            Err(TryLockError::WouldBlock) => None,
        };
        let down = lock(&self.down).take();
        chunk.map(|chunk| chunk.block).into_iter().chain(down)
    }
}
