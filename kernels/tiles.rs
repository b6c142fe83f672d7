//! The memory in which the tiles of an algorithm tell each other what they combine to (`lookback.cuh`).

use gpustream::{Buffer, Launch, Result, Stream};

/// How many threads work on a tile.
pub(crate) const THREADS: u32 = 256;

/// The tiles of a launch: a block for each.
pub(crate) struct Tiles {
    pub(crate) launch: Launch,
    pub(crate) count: usize,
    /// The state: nothing if there is one tile, which has no one to tell.
    pub(crate) state: Option<Buffer<u64>>,
}

impl Tiles {
    /// Cuts `n` elements into tiles whose threads have `per_thread` elements each. `words` is how many words the largest value of a
    /// tile takes: one for every four bytes.
    #[track_caller]
    pub(crate) fn new(stream: &Stream, n: usize, per_thread: usize, words: usize) -> Result<Self> {
        let count = n.div_ceil(THREADS as usize * per_thread).max(1);
        let state = match count {
            1 => None,
            _ => Some(stream.zeros(2 + words * (count + count / 32 + 1 + count / 1024 + 2))?),
        };
        // A grid of more blocks would be an error at the launch, which names the limit.
        let blocks = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Self { launch: Launch::new(blocks, THREADS), count, state })
    }
}
