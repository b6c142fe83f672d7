//! How an array is cut: into tiles for the blocks of a GPU, or into shares for the workers of a CPU.

use gpustream::{Buffer, Launch, Result, Stream};

/// How many threads work on a tile.
const THREADS: u32 = 256;

/// The tiles of a launch: a block for each, and memory in which they tell each other what they combine to (`lookback.cuh`).
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

/// The shares that the workers of a CPU cut an array into. A few shares for each worker balance better.
pub(crate) struct Shares(u32);

impl Shares {
    pub(crate) fn new(stream: &Stream, n: usize) -> Self {
        let most = u32::try_from(n.div_ceil(1 << 14)).unwrap_or(u32::MAX);
        Self((stream.device().info().multiprocessors * 4).min(most).max(1))
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.0 as usize
    }

    /// Returns the three launches in which workers first combine their own share, one of them then combines the shares, and all
    /// write what they found. The kernel gets the number of the step.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (i32, Launch)> {
        (0..).zip([self.0, 1, self.0].map(|blocks| Launch::new(blocks, 1)))
    }
}

/// Launches the kernel that works on tiles, or the one that works on shares, with the same arguments. The first also gets the tiles'
/// state, the second some words for each share (`$scratch`). This is a macro, because each kernel has a launcher of its own, and
/// because a closure would hide your line from errors and traces.
#[cfg(feature = "select")]
macro_rules! in_form {
    (
        $stream:ident, $kernels:ident, $n:ident, $tiles:expr;
        $by_tiles:ident, $by_shares:ident ($($argument:expr),* $(,)?), $($scratch:ident),+
    ) => {
        if $crate::call::Form::of($stream.device()) == $crate::call::Form::Blocks {
            let mut tiles: $crate::tiles::Tiles = $tiles;
            let (launch, count) = (&tiles.launch, tiles.count);
            let state = $crate::call::optional_mut(tiles.state.as_mut());
            $kernels.$by_tiles($stream, launch, $($argument,)* state, count)?;
        } else {
            let shares = $crate::tiles::Shares::new($stream, $n);
            $(let mut $scratch = $stream.alloc(shares.count())?;)+
            for (step, launch) in shares.steps() {
                $kernels.$by_shares($stream, &launch, step, $($argument,)* $(&mut $scratch,)+ shares.count())?;
            }
        }
    };
}
#[cfg(feature = "select")]
pub(crate) use in_form;
