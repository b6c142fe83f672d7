//! The short path: what one thread copies goes behind what the stream copied before, in a chunk of pinned memory.
//!
//! A chunk is written from front to back and then given to the pool, which hands it out again when the device has
//! read all of it. So a copy of few bytes is a copy into the chunk and one driver call: no event, no allocation, no
//! question to the driver.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpustream_hal::{Operation, Result};

use super::copy_pinned;
use super::credit::Credit;
use crate::copy::operation;
use crate::device::DeviceCore;
use crate::memory::{self, Block, Kind};
use crate::stream::Stream;
use crate::stream_core::Access;
use crate::sync::lock;
use crate::track::Mode;

/// Longest piece that goes through a chunk: long beside a driver call, short enough to start early.
pub(super) const PIECE: usize = 256 << 10;

/// Bytes of a chunk. Each stream that has uploaded something keeps one.
const CHUNK: usize = 2 * PIECE;

/// Longest piece of copies that follow each other. The device is busy with the one before, so nothing is gained by
/// starting early, and each driver call costs as much as copying 50 KB.
const LONG_PIECE: usize = 1 << 20;

/// Copies follow each other where this much time, at most, lies between them.
const PAUSE: Duration = Duration::from_micros(20);

/// Copies start at multiples of this in a chunk: the width of a cache line, so that the device does not read a line
/// that is being written.
const STEP: usize = 64;

/// Where a stream's next short copies go.
#[derive(Default)]
pub(crate) struct ShortPath(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    chunk: Option<Chunk>,
    /// When the last copy of several pieces was over.
    last: Option<Instant>,
}

pub(crate) struct Chunk {
    /// Not with its device, which holds the stream, which holds this.
    block: Arc<Block>,
    size: usize,
    used: usize,
}

impl Chunk {
    fn has_room(&self, len: usize) -> bool {
        self.size - self.used >= len
    }
}

impl ShortPath {
    /// Copies `src` to `target`, in pieces of `piece` bytes or, where copies follow each other, longer ones.
    pub(super) fn upload<'a>(
        &self,
        stream: &Stream,
        src: &[u8],
        piece: usize,
        target: impl Fn(Range<usize>) -> Access<'a>,
        operation: Operation,
    ) -> Result<()> {
        if src.len() <= piece {
            return self.upload_piece(stream, src, target(0..src.len()), operation);
        }
        let pause = lock(&self.0).last.map(|last| last.elapsed());
        let piece = piece_after(pause, piece, stream.device.0.staging.credit.limit());
        for (index, part) in src.chunks(piece).enumerate() {
            let start = index * piece;
            self.upload_piece(stream, part, target(start..start + part.len()), operation)?;
        }
        lock(&self.0).last = Some(Instant::now());
        Ok(())
    }

    /// Copies `src` to `target`, as one piece.
    #[inline]
    fn upload_piece(
        &self,
        stream: &Stream,
        src: &[u8],
        target: Access<'_>,
        operation: Operation,
    ) -> Result<()> {
        let len = src.len();
        let Kept { chunk, .. } = &mut *lock(&self.0);
        let chunk = match chunk {
            Some(chunk) if chunk.has_room(len) => chunk,
            slot => renew(slot, stream, len)?,
        };
        let at = chunk.used;
        // SAFETY: the chunk has room, was idle when it was taken, and nothing reads behind `used`.
        unsafe { chunk.block.host.add(at).copy_from_nonoverlapping(src.as_ptr(), len) };
        chunk.used = (at + len).next_multiple_of(STEP).min(chunk.size);
        // Nobody waits for this piece, so its use needs no event.
        let from = Access { block: &chunk.block, range: 0..chunk.size, mode: Mode::Shared };
        copy_pinned(stream, from, at, target, operation)
    }

    /// Gives back what is kept for `stream`.
    pub(super) fn clear(&self, device: &DeviceCore) {
        if let Some(Chunk { block, .. }) = lock(&self.0).chunk.take() {
            device.memory.release(device, block);
        }
    }
}

/// How long pieces are where `pause` lies between a copy and the one before, given what they are otherwise.
fn piece_after(pause: Option<Duration>, piece: usize, limit: usize) -> usize {
    match pause {
        Some(pause) if pause < PAUSE => piece.max(LONG_PIECE.min(limit)),
        _ => piece,
    }
}

/// Puts a chunk with room for `len` bytes in place of the one that is full. Blocks while the stream has as much under
/// way as it may.
#[cold]
fn renew<'a>(slot: &'a mut Option<Chunk>, stream: &Stream, len: usize) -> Result<&'a mut Chunk> {
    let device = &stream.device.0;
    let credit: &Credit = &device.staging.credit;
    if let Some(Chunk { block, size, .. }) = slot.take() {
        let last = memory::pending(&block, &(0..size), Mode::Write).first().map(|point| point.number);
        device.memory.release(device, block);
        if let Some(last) = last {
            credit.take(stream, size)?.submitted(last);
        }
    }
    let size = CHUNK.min(credit.limit()).max(len);
    let block = device.memory.alloc(device, Kind::Pinned, size, None, operation("staging"))?;
    Ok(slot.insert(Chunk { block, size, used: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_long_where_copies_follow_each_other() {
        let (soon, late) = (Some(PAUSE / 2), Some(PAUSE));
        assert_eq!(
            [None, late, soon].map(|pause| piece_after(pause, PIECE, 4 << 20)),
            [PIECE, PIECE, LONG_PIECE]
        );
        // And never longer than the ring.
        assert_eq!(piece_after(soon, 64 << 10, 64 << 10), 64 << 10);
        assert_eq!(piece_after(soon, PIECE, 512 << 10), 512 << 10);
    }
}
