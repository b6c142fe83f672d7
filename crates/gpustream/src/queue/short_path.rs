//! Pinned memory that a stream keeps for its next short copies.

use std::sync::{Arc, TryLockError};
use std::time::Instant;

use crate::memory::Block;
use crate::sync::{Mutex, lock};

/// Where a stream's next short copies go.
#[derive(Default)]
pub(crate) struct ShortPath {
    /// Held during an upload, which may wait for the device.
    pub(crate) up: Mutex<Up>,
    /// Where the next download goes, unless one is there. Not held while anybody waits.
    pub(crate) down: Mutex<Option<Arc<Block>>>,
}

/// The way up.
#[derive(Default)]
pub(crate) struct Up {
    pub(crate) chunk: Option<Chunk>,
    /// When the last copy that could have been of several pieces was over.
    pub(crate) last: Option<Instant>,
}

/// Pinned memory that is written from front to back.
pub(crate) struct Chunk {
    /// Not with its device, which holds the stream, which holds this.
    pub(crate) block: Arc<Block>,
    pub(crate) size: usize,
    pub(crate) used: usize,
}

impl Chunk {
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.size - self.used >= len
    }
}

impl ShortPath {
    /// Gives back what is kept: the stream is gone.
    pub(crate) fn close(&self) {
        self.take().for_each(drop);
    }

    /// Takes out what is kept, unless it is being used: whoever asks for room may be who copies.
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
