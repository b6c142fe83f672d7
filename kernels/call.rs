//! Launches of kernels whose blocks each take a share of an array.

use gpustream::hal::LaunchConfig;
use gpustream::{Launch, Result, Stream};

/// The number of elements that are worth a thread of their own.
const PER_THREAD: usize = 16;

/// Returns the number of blocks that share `n` elements, and launches of a given number of such blocks.
pub(crate) fn shares(stream: &Stream, n: usize) -> Result<(usize, impl Fn(usize) -> Launch)> {
    let LaunchConfig { grid, block, .. } = Launch::filling(n.max(1)).resolve(stream.device().info())?;
    let blocks = n.div_ceil(PER_THREAD * block[0] as usize).clamp(1, grid[0] as usize);
    Ok((blocks, move |blocks: usize| Launch::new([blocks as u32, 1, 1], block)))
}
