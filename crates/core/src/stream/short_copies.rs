//! Pinned memory that a stream keeps for its next short copies.

use std::sync::{Arc, TryLockError};
use std::time::Instant;

use crate::memory::Block;
use crate::sync::{Mutex, lock};

/// Pinned memory, kept for the next short copies on a stream.
#[derive(Default)]
pub(crate) struct ShortCopies {
    /// Locked during an upload, which may have to wait for the device.
    pub up: Mutex<Up>,
    /// The block for the next download, or none while a download is using it. We do not hold this lock while we wait.
    pub down: Mutex<Option<Arc<Block>>>,
}

/// The memory for uploads.
#[derive(Default)]
pub(crate) struct Up {
    pub chunk: Option<Chunk>,
    /// Where the last copy ended that was long enough for several pieces.
    pub last: Option<Instant>,
}

/// Pinned memory that we write from front to back.
pub(crate) struct Chunk {
    /// It does not hold its device, because the device holds the stream, and the stream holds this.
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
    /// Drops the memory, because the stream is gone.
    pub(crate) fn close(&self) {
        self.take().for_each(drop);
    }

    /// Takes out the memory that no copy is using. Does not wait, because the thread that asks may be the one that copies.
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
