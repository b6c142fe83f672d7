//! Copies from and to ordinary host memory, in bytes. [`staging`](crate::staging) explains the idea and its settings.
//!
//! An upload takes the first of these ways that fits:
//!
//! | bytes | way | driver calls |
//! |---|---|---|
//! | as many as the driver takes along with a command | `inline` | one |
//! | up to 4 MiB, or any number if one thread copies | `chunk`: after the stream's earlier uploads in a chunk of pinned memory | one up to 256 KiB, otherwise one for each piece |
//! | more | `pieces`: several threads, each with pieces of its own | one per piece, and the events that free the pieces |
//!
//! A download of up to 64 KiB goes through one piece that the stream keeps. A longer one goes through several pieces: while
//! we empty one of them, the device fills the next.
//!
//! This layer knows devices, streams and staging. It does not know element types.

mod chunk;
mod pieces;

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{self as hal, Result};

use crate::device_core::DeviceCore;
use crate::memory::{Access, Block, MemoryKind, PAGE_LOCKED};
use crate::operation::HostWait;
use crate::stream::{StreamEntry, prune};
use crate::trace::{self, Direction};
use crate::track::Mode;
use pieces::{Claims, Piece, Target, empty_piece, fill_piece, run, run_on, upload_piece};

/// Completes the error "you cannot …".
pub const CAPTURED: &str = "copy an ordinary slice, because the graph would not own it; copy pinned memory";

/// Copies `src` into `block`, starting at byte `start`. Returns once `src` has been read. Blocks while the stream already
/// has as many bytes in flight as the staging ring allows.
///
/// # Errors
/// [`ErrorKind::Captured`](gpustream_hal::ErrorKind::Captured) in a recording; those of pinned memory and of the driver.
#[inline]
pub fn upload(
    device: &Arc<DeviceCore>,
    entry: &StreamEntry<'_>,
    src: &[u8],
    block: &Arc<Block>,
    start: usize,
) -> Result<()> {
    if src.is_empty() {
        return Ok(());
    }
    let stream = entry.stream;
    let target = |range: Range<usize>| Access {
        block,
        range: start + range.start..start + range.end,
        mode: Mode::Write,
    };
    if is_inline(device, entry, src, block) {
        return upload_inline(entry, src, &target(0..src.len()));
    }
    entry.check_running(CAPTURED)?;
    let staging = &device.staging;
    let part = staging.longest_in_chunk();
    if src.len() > part {
        let plan = staging.plan(src.len(), staging.threads_for(stream), false);
        if plan.helpers > 0 {
            return run_on(device, entry, &plan, &|entry, claims| {
                claims.iter().map(|index| plan.range(index)).try_for_each(|range| {
                    let grant = device.staging.in_flight.take(entry, range.len())?;
                    upload_piece(device, entry, grant, &src[range.clone()], &target(range))
                })
            });
        }
    }
    src.chunks(part).enumerate().try_for_each(|(index, src)| {
        let target = |range: Range<usize>| target(index * part + range.start..index * part + range.end);
        chunk::upload(device, entry, src, target)
    })
}

/// Like [`upload`], but copies only as much of `src` as the stream may have in flight right now, at most one piece. Does not
/// block for that reason. `src` is not empty. Returns how many bytes it has copied, or the number of the submission that makes
/// room.
///
/// # Errors
/// Those of [`upload`].
pub fn upload_some(
    device: &Arc<DeviceCore>,
    entry: &StreamEntry<'_>,
    src: &[u8],
    block: &Arc<Block>,
    start: usize,
) -> Result<Result<usize, u64>> {
    let target = |len: usize| Access { block, range: start..start + len, mode: Mode::Write };
    if is_inline(device, entry, src, block) {
        return upload_inline(entry, src, &target(src.len())).map(|()| Ok(src.len()));
    }
    entry.check_running(CAPTURED)?;
    let len = src.len().min(device.staging.longest_piece());
    match device.staging.in_flight.try_take(entry.stream, len) {
        Ok(grant) => upload_piece(device, entry, grant, &src[..len], &target(len)).map(|()| Ok(len)),
        Err(oldest) => Ok(Err(oldest)),
    }
}

/// Returns true if an upload travels along with its command.
#[inline]
fn is_inline(device: &DeviceCore, entry: &StreamEntry<'_>, src: &[u8], block: &Block) -> bool {
    let stream = entry.stream;
    let short = src.len() <= device.info.limits.inline_copies && !PAGE_LOCKED.may_hold(src);
    short && !block.is_host() && stream.is_ours() && !stream.is_in_step()
}

/// Copies a few bytes. They travel along with the command.
#[inline(always)]
#[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
fn upload_inline(entry: &StreamEntry<'_>, src: &[u8], target: &Access<'_>) -> Result<()> {
    let to = target.block.address.offset(target.range.start);
    // SAFETY: the block is alive and not freed before this use is done; the slice is read during the call; the stream was
    // made by the device and is not being captured.
    let copy =
        |device: &dyn hal::Device, raw| unsafe { device.copy_inline(to, src.as_ptr(), src.len(), raw) };
    if let Some(begun) = entry.begin(&[target], HostWait::Alone)? {
        let result = copy(&*entry.stream.device, entry.stream.raw());
        return entry.finish(begun, iter::once(target), HostWait::Alone, result);
    }
    cold_path();
    let work = trace::WorkKind::Copy { direction: Direction::Up, bytes: src.len() as u64, pageable: false };
    entry.submit_outside_captures(CAPTURED, work, iter::once(target), copy)
}

/// Copies bytes `source` of `block` to `dst`. Returns when all bytes have arrived.
///
/// # Errors
/// The errors of pinned memory, of the driver, and of the operations that the copy waits for.
///
/// # Safety
/// `dst` has room for the bytes, and nothing else touches that memory.
pub unsafe fn download(
    device: &Arc<DeviceCore>,
    entry: &StreamEntry<'_>,
    block: &Arc<Block>,
    source: Range<usize>,
    dst: *mut u8,
) -> Result<()> {
    if source.is_empty() {
        return Ok(());
    }
    if source.len() <= chunk::LONGEST_DOWN {
        // SAFETY: by this function's contract.
        return unsafe { chunk::download(device, entry, block, source, dst) };
    }
    let target = Target(dst);
    let staging = &device.staging;
    let plan = staging.plan(source.len(), staging.threads_for(entry.stream), false);
    run_on(device, entry, &plan, &|entry, claims| {
        // While we empty one piece, the device fills the next.
        let mut filling: Option<(Piece<'_>, Range<usize>)> = None;
        loop {
            let next = match claims.next() {
                Some(index) => {
                    let range = plan.range(index);
                    let source = source.start + range.start..source.start + range.end;
                    let piece = Piece::alloc(device, entry, range.len())?;
                    fill_piece(entry, block, source, (piece.block(), range.len()))?;
                    Some((piece, range))
                }
                None => None,
            };
            if let Some((piece, range)) = filling.take() {
                // SAFETY: `dst` has room by this function's contract, and each range is claimed once.
                unsafe { empty_piece(entry, piece.block(), range.len(), target.at(range.start)) }?;
                // We know now that the piece is idle, so the pool can reuse it without asking the driver.
                prune(&mut piece.block().history.lock());
            }
            if next.is_none() {
                return Ok(());
            }
            filling = next;
        }
    })
}

/// Copies between two slices of ordinary or pinned memory, on the threads that stage. Does nothing if their lengths differ.
///
/// # Errors
/// [`ErrorKind::HostPanic`](gpustream_hal::ErrorKind::HostPanic) if one of the threads died.
pub fn copy_on_host(device: &Arc<DeviceCore>, src: &[u8], dst: &mut [u8]) -> Result<()> {
    if src.is_empty() || src.len() != dst.len() {
        return Ok(());
    }
    let target = Target(dst.as_mut_ptr());
    let staging = &device.staging;
    let plan = staging.plan(src.len(), staging.threads(), false);
    run(device, &plan, &|claims: &Claims| {
        for range in claims.iter().map(|index| plan.range(index)) {
            let from = &src[range.clone()];
            // SAFETY: `dst` is as long as `src` and borrowed exclusively; each range is claimed once.
            unsafe { target.at(range.start).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }
        Ok(())
    })
}

/// Returns the memory that staging keeps to the driver, if nothing uses it.
fn tidy(device: &DeviceCore) {
    device.take_back_kept();
    device.pools.trim(MemoryKind::Pinned);
}
