//! The short path: what one thread copies goes behind what the stream copied before, in a chunk of pinned memory.
//!
//! A chunk is written from front to back and then given to the pool, which hands it out again when the device has
//! read all of it. So a copy of few bytes is a copy into the chunk and one driver call: no event, no allocation, no
//! question to the driver.

use std::sync::{Arc, Mutex};

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

/// Copies start at multiples of this in a chunk: the width of a cache line, so that the device does not read a line
/// that is being written.
const STEP: usize = 64;

/// Where a stream's next short copies go.
#[derive(Default)]
pub(crate) struct ShortPath(Mutex<Option<Chunk>>);

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
    /// Copies `src`, of at most a [`PIECE`], to `target`.
    #[inline]
    pub(super) fn upload(
        &self,
        stream: &Stream,
        src: &[u8],
        target: Access<'_>,
        operation: Operation,
    ) -> Result<()> {
        let len = src.len();
        let mut kept = lock(&self.0);
        let chunk = match &mut *kept {
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
        if let Some(Chunk { block, .. }) = lock(&self.0).take() {
            device.memory.release(device, block);
        }
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
