//! Copies of ordinary host memory, through pinned memory in pieces.
//!
//! The driver copies pageable memory at a fraction of the bus's rate and makes the host wait. Here the host
//! fills one pinned piece while the device copies the one before.

use bytemuck::Pod;
use gpustream_hal::{Operation, Result};

use crate::buffer::Owned;
use crate::memory::{self, Kind};
use crate::stream::Stream;
use crate::stream_core::Access;
use crate::track::Mode;
use crate::view::{AsView, View, ViewMut};

/// Bytes of a piece: long enough to hide the cost of a copy, short enough to start early.
const PIECE: usize = 4 << 20;

/// Pieces under way at once.
const DEPTH: usize = 4;

/// Copies `src` to `dst`, whose lengths agree. Returns when `src` has been read.
pub(crate) fn upload<T: Pod>(
    stream: &Stream,
    src: &[T],
    dst: &mut ViewMut<'_, T>,
    operation: Operation,
) -> Result<()> {
    let target = dst.view();
    let (dst_block, dst_start) = (target.block, target.start);
    if size_of_val(src) == 0 {
        return Ok(());
    }
    let src: &[u8] = bytemuck::cast_slice(src);
    let mut pieces: [Option<Owned>; DEPTH] = Default::default();
    for (index, chunk) in src.chunks(PIECE).enumerate() {
        let piece = free_piece(stream, &mut pieces[index % DEPTH], chunk.len(), operation)?;
        let block = piece.block();
        // SAFETY: the piece is at least as long as the chunk, and its earlier copy is done.
        unsafe { block.host.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
        let start = dst_start + index * PIECE;
        let accesses = [
            Access { block, range: 0..chunk.len(), mode: Mode::Read },
            Access { block: dst_block, range: start..start + chunk.len(), mode: Mode::Write },
        ];
        stream.submit(operation, accesses.iter(), |device, raw| {
            // SAFETY: both blocks are alive and not freed before this use is done.
            unsafe {
                let address = dst_block.address.offset(start);
                if dst_block.is_host() {
                    device.copy_on_device(address, block.address, chunk.len(), raw)
                } else {
                    device.copy_to_device(address, block.host, chunk.len(), raw)
                }
            }
        })?;
    }
    Ok(())
}

/// Copies `src` to `dst`. Returns when all of it has arrived.
///
/// # Safety
/// `dst` has room for `src.len()` elements that nobody else touches.
pub(crate) unsafe fn download<T: Pod>(
    stream: &Stream,
    src: &View<'_, T>,
    dst: *mut T,
    operation: Operation,
) -> Result<()> {
    let bytes = src.bytes();
    let dst = dst.cast::<u8>();
    let count = bytes.len().div_ceil(PIECE);
    let mut pieces: [Option<Owned>; DEPTH] = Default::default();
    // Step `i` submits piece `i` and takes piece `i - (DEPTH - 1)` out.
    for step in 0..count + DEPTH - 1 {
        if step < count {
            let range = piece_range(&bytes, step);
            let piece = free_piece(stream, &mut pieces[step % DEPTH], range.len(), operation)?;
            let block = piece.block();
            let len = range.len();
            let accesses = [
                Access { block: src.block, range: range.clone(), mode: Mode::Read },
                Access { block, range: 0..len, mode: Mode::Write },
            ];
            stream.submit(operation, accesses.iter(), |device, raw| {
                // SAFETY: both blocks are alive and not freed before this use is done.
                unsafe {
                    let source = src.block.address.offset(range.start);
                    if src.block.is_host() {
                        device.copy_on_device(block.address, source, len, raw)
                    } else {
                        device.copy_to_host(block.host, source, len, raw)
                    }
                }
            })?;
        }
        if let Some(index) = (step + 1).checked_sub(DEPTH)
            && let Some(piece) = &pieces[index % DEPTH]
        {
            let range = piece_range(&bytes, index);
            let block = piece.block();
            memory::wait_for(&stream.device.0, block, &(0..range.len()), Mode::Read)?;
            // SAFETY: the copy into the piece is done; `dst` has room by this function's contract.
            unsafe { dst.add(range.start - bytes.start).copy_from_nonoverlapping(block.host, range.len()) };
        }
    }
    Ok(())
}

fn piece_range(whole: &std::ops::Range<usize>, index: usize) -> std::ops::Range<usize> {
    let start = whole.start + index * PIECE;
    start..whole.end.min(start + PIECE)
}

/// The slot's piece once its last copy is done, or a new one.
fn free_piece<'a>(
    stream: &Stream,
    slot: &'a mut Option<Owned>,
    bytes: usize,
    operation: Operation,
) -> Result<&'a Owned> {
    match slot {
        Some(piece) => {
            memory::wait_for(&stream.device.0, piece.block(), &(0..bytes), Mode::Write)?;
            Ok(piece)
        }
        None => Ok(slot.insert(Owned::alloc(&stream.device, Kind::Pinned, bytes, None, operation)?)),
    }
}
