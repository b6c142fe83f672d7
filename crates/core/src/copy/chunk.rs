//! Short copies: an upload goes into a chunk of pinned memory, after the stream's earlier uploads.
//!
//! We write a chunk from front to back and then give it to the pool, which hands it out again when the device has read all
//! of it. So a short upload is a copy into the chunk and one driver call: no event, no allocation, no question to the
//! driver. Several threads may fill one upload's part of the chunk. All downloads of a stream go through one piece, because
//! each download waits until its bytes have arrived.

use std::alloc::Layout;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpustream_hal::{CallSite, Result};

use super::pieces::{Target, copy_pinned, empty_piece, fill_piece, run_on};
use crate::device_core::DeviceCore;
use crate::memory::{self, Access, Block, MemoryKind, layout_of};
use crate::staging::PIECE;
use crate::stream::{Chunk, StreamEntry, Up};
use crate::sync::lock;
use crate::trace;
use crate::track::Mode;

/// Length of a chunk in bytes, or of the copy if that is longer. A stream keeps one chunk from its first upload on.
const CHUNK: usize = 2 * PIECE;

/// A copy that begins within this time after the last one follows it closely. The device is then still busy, so we cut the
/// copy into fewer pieces.
const PAUSE: Duration = Duration::from_micros(20);

/// Alignment of copies in a chunk, in bytes. This is the width of a cache line, because the device must not read a line
/// that we are still writing.
const STEP: usize = 64;

/// Length of the longest download that goes through the stream's piece, in bytes.
pub(super) const LONGEST_DOWN: usize = 64 << 10;

/// Copies `src` to `target`.
pub(super) fn upload<'a>(
    device: &Arc<DeviceCore>,
    entry: &StreamEntry<'_>,
    src: &[u8],
    target: impl Fn(Range<usize>) -> Access<'a> + Sync,
) -> Result<()> {
    let Up { chunk, last } = &mut *lock(&entry.stream.short_copies.up);
    let chunk = match chunk {
        Some(chunk) if chunk.has_room(src.len()) => chunk,
        slot => renew(slot, device, entry, src.len())?,
    };
    let start = chunk.used;
    chunk.used = (start + src.len()).next_multiple_of(STEP).min(chunk.size);
    let (block, size) = (&chunk.block, chunk.size);
    let host = Target(block.host);
    let copy = |entry: &StreamEntry<'_>, range: Range<usize>| {
        let (at, src) = (start + range.start, &src[range.clone()]);
        trace::stage();
        // SAFETY: the chunk has room for the whole slice after `start`. It was idle when we took it, nothing else touches
        // that part, and pieces do not overlap.
        unsafe { host.at(at).copy_from_nonoverlapping(src.as_ptr(), src.len()) };
        // The host never waits for this piece, so its use needs no event.
        let from = Access { block, range: 0..size, mode: Mode::Shared };
        copy_pinned(entry, &from, at, &target(range))
    };
    if src.len() <= PIECE {
        return copy(entry, 0..src.len());
    }
    let follows = last.is_some_and(|last| last.elapsed() < PAUSE);
    let staging = &device.staging;
    let plan = staging.plan(src.len(), staging.threads_for(entry.stream), follows);
    let outcome = run_on(device, entry, &plan, &|entry, claims| {
        claims.iter().map(|index| plan.range(index)).try_for_each(|range| copy(entry, range))
    });
    *last = Some(Instant::now());
    outcome
}

/// Copies `source` of `block`, of at most [`LONGEST_DOWN`] bytes, to `dst`. Returns when the bytes have arrived.
///
/// # Safety
/// `dst` has room for the bytes, and nothing else touches that memory.
pub(super) unsafe fn download(
    device: &Arc<DeviceCore>,
    entry: &StreamEntry<'_>,
    block: &Arc<Block>,
    source: Range<usize>,
    dst: *mut u8,
) -> Result<()> {
    let kept = lock(&entry.stream.short_copies.down).take();
    let piece = if let Some(piece) = kept {
        piece
    } else {
        let layout = Layout::new::<[u8; LONGEST_DOWN]>();
        device.pools.alloc(&**device, MemoryKind::Pinned, layout, None, entry.caller.call_site)?
    };
    let len = source.len();
    let outcome = fill_piece(entry, block, source, (&piece, LONGEST_DOWN))
        // SAFETY: by this function's contract.
        .and_then(|()| unsafe { empty_piece(entry, &piece, len, dst) });
    let left = match &mut *lock(&entry.stream.short_copies.down) {
        slot @ None if outcome.is_ok() => {
            *slot = Some(piece);
            None
        }
        _ => Some(piece),
    };
    if let Some(piece) = left {
        device.pools.release(piece);
    }
    outcome
}

/// Replaces the full chunk with a chunk that has room for `len` bytes. Blocks while the stream has as many bytes in flight
/// as it may have.
#[cold]
fn renew<'a>(
    slot: &'a mut Option<Chunk>,
    device: &DeviceCore,
    entry: &StreamEntry<'_>,
    len: usize,
) -> Result<&'a mut Chunk> {
    let in_flight = &device.staging.in_flight;
    if let Some(Chunk { block, size, .. }) = slot.take() {
        let last = memory::pending(&block, &(0..size), Mode::Write).first().map(|point| point.number);
        device.pools.release(block);
        if let Some(last) = last {
            in_flight.take(entry, size)?.submitted(last);
        }
    }
    let size = CHUNK.min(in_flight.limit()).max(len);
    let holder = CallSite { label: "staging", ..entry.caller.call_site };
    let block = device.pools.alloc(device, MemoryKind::Pinned, layout_of::<u8>(size)?, None, holder)?;
    Ok(slot.insert(Chunk { block, size, used: 0 }))
}
