//! Launches of kernels whose blocks each take a share of an array.

use gpustream::hal::LaunchConfig;
use gpustream::{Launch, Result, Stream};

/// The number of elements that are worth a thread of their own.
const PER_THREAD: usize = 16;

/// The kernels, the stream and the shape of a launch.
#[derive(Debug)]
pub struct Call<'a, K> {
    pub(crate) kernels: &'a K,
    pub(crate) stream: &'a Stream,
    pub(crate) launch: Launch,
}

/// Returns the number of blocks that share `n` elements, and calls of the kernels in a given number of such blocks.
pub(crate) fn shares<'a, K>(
    kernels: &'a K,
    stream: &'a Stream,
    n: usize,
) -> Result<(usize, impl Fn(usize) -> Call<'a, K>)> {
    let LaunchConfig { grid, block, .. } = Launch::filling(n.max(1)).resolve(stream.device().info())?;
    let blocks = n.div_ceil(PER_THREAD * block[0] as usize).clamp(1, grid[0] as usize);
    let call =
        move |blocks: usize| Call { kernels, stream, launch: Launch::new([blocks as u32, 1, 1], block) };
    Ok((blocks, call))
}
