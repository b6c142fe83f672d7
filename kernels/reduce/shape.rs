//! The launches of reductions.

use gpustream::{Launch, Plain, Result, Stream, View};

use crate::call::{Form, filling};

/// How many elements of a segment one warp combines at most, as in `reduce.cu`.
pub(super) const PIECE: usize = 4096;

/// An array of so many bytes takes one block, because a second launch would take longer than the rest.
const SMALL: usize = 256 << 10;

/// The launches of a reduction: of the array, and of the blocks' results.
pub(super) struct Shape {
    pub(super) blocks: usize,
    pub(super) launch: Launch,
    pub(super) last: Launch,
}

impl Shape {
    #[track_caller]
    pub(super) fn of<T: Plain>(stream: &Stream, x: &View<'_, T>) -> Result<Self> {
        if Form::of(stream.device()) == Form::Shares {
            let (blocks, launch) = filling(stream, x.len())?;
            return Ok(Self { blocks, launch: launch(blocks), last: launch(1) });
        }
        let last = Launch::new(1, 512);
        let bytes = x.len() * size_of::<T>();
        if bytes <= SMALL {
            let threads = (bytes / 64).next_power_of_two().clamp(128, 512) as u32;
            return Ok(Self { blocks: 1, launch: Launch::new(1, threads), last });
        }
        // If there are several times as many blocks, it takes longer to find an index: each of them looks for its own.
        let blocks = (x.len().div_ceil(256 * 16)).min(resident(stream));
        Ok(Self { blocks, launch: Launch::new(blocks as u32, 256), last })
    }
}

/// Returns how many blocks of 256 threads the device runs at once.
fn resident(stream: &Stream) -> usize {
    let info = stream.device().info();
    (info.multiprocessors * (info.limits.max_threads_per_multiprocessor / 256).max(1)) as usize
}

/// The launches of a reduction of columns: of groups of rows, and of the groups' results.
pub(super) struct ColumnShape {
    pub(super) parts: usize,
    pub(super) width: u32,
    pub(super) launch: Launch,
    pub(super) last: Launch,
}

impl ColumnShape {
    #[track_caller]
    pub(super) fn of(stream: &Stream, rows: usize, columns: usize) -> Result<Self> {
        if Form::of(stream.device()) == Form::Shares {
            let parts = filling(stream, rows * columns)?.0.min(rows.max(1));
            let (launch, last) = (Launch::new(parts as u32, 1), Launch::new(1, 1));
            return Ok(Self { parts, width: 1, launch, last });
        }
        let width = columns.next_power_of_two().min(256);
        let groups = columns.div_ceil(width).max(1);
        // Each thread should have 16 rows at least.
        let parts = (resident(stream) / groups).min(rows / (16 * 256 / width)).max(1);
        let blocks = |parts: usize| (groups * parts).min(i32::MAX as usize) as u32;
        let (launch, last) = (Launch::new(blocks(parts), 256), Launch::new(blocks(1), 256));
        Ok(Self { parts, width: width as u32, launch, last })
    }
}

/// Returns a launch with one warp for each tile of `n` elements.
#[track_caller]
pub(super) fn warp_per_tile(stream: &Stream, n: usize) -> Result<Launch> {
    if Form::of(stream.device()) == Form::Shares {
        let (blocks, launch) = filling(stream, n)?;
        return Ok(launch(blocks));
    }
    let warps = 256 / stream.device().info().warp_size.max(1) as usize;
    let blocks = n.div_ceil(PIECE).div_ceil(warps).clamp(1, i32::MAX as usize);
    Ok(Launch::new(blocks as u32, 256))
}

/// Returns a launch that shares `count` segments among its warps.
#[track_caller]
pub(super) fn few_segments_per_warp(stream: &Stream, count: usize) -> Result<Launch> {
    if Form::of(stream.device()) == Form::Shares {
        let (blocks, launch) = filling(stream, count)?;
        return Ok(launch(blocks));
    }
    let warps = 256 / stream.device().info().warp_size.max(1) as usize;
    Ok(Launch::new(count.div_ceil(warps).clamp(1, 4 * resident(stream)) as u32, 256))
}
