//! The launches of reductions.

use gpustream::{Launch, Plain, Result, Stream, View};

use crate::call::{Form, filling};

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
pub(crate) fn resident(stream: &Stream) -> usize {
    let info = stream.device().info();
    (info.multiprocessors * (info.limits.max_threads_per_multiprocessor / 256).max(1)) as usize
}
