//! Launches kernels whose blocks each take a share of an array.

use gpustream::hal::LaunchConfig;
use gpustream::{Launch, Result, Stream};

/// How many elements a thread must have to be worth starting.
const PER_THREAD: usize = 16;

/// Returns how many blocks share `n` elements, and makes launches with a given number of such blocks.
pub(crate) fn shares(stream: &Stream, n: usize) -> Result<(usize, impl Fn(usize) -> Launch)> {
    let LaunchConfig { grid, block, .. } = Launch::filling(n.max(1)).resolve(stream.device().info())?;
    let blocks = n.div_ceil(PER_THREAD * block[0] as usize).clamp(1, grid[0] as usize);
    Ok((blocks, move |blocks: usize| Launch::new([blocks as u32, 1, 1], block)))
}
