//! Pieces: a part of a long copy goes through one piece of pinned memory, and several threads fill or empty pieces at once.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use gpustream_hal::{Copy1d, Result, Work};

use super::tidy;
use crate::device_core::DeviceCore;
use crate::memory::{self, Access, Block, MemoryKind, layout_of};
use crate::operation::DriverCalls;
use crate::staging::Plan;
use crate::staging::in_flight::Grant;
use crate::staging::parallel_copy;
use crate::stream::StreamEntry;
use crate::trace;
use crate::track::Mode;

pub(super) use crate::staging::parallel_copy::Claims;

/// A copy of up to this many bytes wakes no helper, unless it closely follows another copy: we would be done before the
/// helper began.
const SHORT: usize = 2 << 20;

/// Pinned memory for one piece. If you drop it, it goes back to the pool, which gives it away only after its last use is done.
pub(super) struct Piece<'a> {
    device: &'a DeviceCore,
    block: ManuallyDrop<Arc<Block>>,
}

impl<'a> Piece<'a> {
    /// Allocates memory whose earlier uses are done.
    pub(super) fn alloc(device: &'a DeviceCore, entry: &StreamEntry<'_>, len: usize) -> Result<Self> {
        let layout = layout_of::<u8>(len)?;
        let block = device.pools.alloc(device, MemoryKind::Pinned, layout, None, entry.caller.call_site)?;
        Ok(Self { device, block: ManuallyDrop::new(block) })
    }

    pub(super) fn block(&self) -> &Arc<Block> {
        &self.block
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        self.device.pools.release(block);
    }
}

/// Copies `src` to `target` through a piece of its own. The grant is for as many bytes.
pub(super) fn upload_piece(
    device: &DeviceCore,
    entry: &StreamEntry<'_>,
    grant: Grant<'_>,
    src: &[u8],
    target: &Access<'_>,
) -> Result<()> {
    let len = src.len();
    let piece = Piece::alloc(device, entry, len)?;
    let block = piece.block();
    trace::stage();
    // SAFETY: the piece is at least as long as the slice, fresh, and its earlier uses are done.
    unsafe { block.host.copy_from_nonoverlapping(src.as_ptr(), len) };
    copy_pinned(entry, &Access { block, range: 0..len, mode: Mode::Read }, 0, target)?;
    grant.submitted(entry.stream.counted());
    Ok(())
}

/// Enqueues a copy from byte `at` of a pinned block to `target`. The caller has written these bytes, and changes them only
/// after the device has read them.
#[inline]
pub(super) fn copy_pinned(
    entry: &StreamEntry<'_>,
    from: &Access<'_>,
    at: usize,
    target: &Access<'_>,
) -> Result<()> {
    let (source, block, len) = (from.block, target.block, target.range.len());
    let to = block.address.offset(target.range.start);
    let copy = if block.is_host() {
        Work::Copy(Copy1d::on_device(to, source.address.offset(at), len))
    } else {
        Work::Copy(Copy1d::to_device(to, source.host.wrapping_add(at), len))
    };
    // SAFETY: both blocks are alive and not freed before this use is done, and both callers have just written `len`
    // bytes at `at`.
    unsafe { entry.submit_call(&[from, target], DriverCalls::Work(copy)) }
}

/// The address of memory that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Target(pub(super) *mut u8);

// SAFETY: each part of the memory goes to only one thread.
unsafe impl Send for Target {}
// SAFETY: each part of the memory goes to only one thread.
unsafe impl Sync for Target {}

impl Target {
    pub(super) fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Enqueues a copy of the range `source` of `block` to the beginning of a piece of `size` bytes.
pub(super) fn fill_piece(
    entry: &StreamEntry<'_>,
    block: &Arc<Block>,
    source: Range<usize>,
    (piece, size): (&Arc<Block>, usize),
) -> Result<()> {
    let len = source.len();
    let address = block.address.offset(source.start);
    let accesses = [
        &Access { block, range: source, mode: Mode::Read },
        // We name the whole piece, because that costs the tracker less than a part.
        &Access { block: piece, range: 0..size, mode: Mode::Write },
    ];
    let copy = if block.is_host() {
        Work::Copy(Copy1d::on_device(piece.address, address, len))
    } else {
        Work::Copy(Copy1d::to_host(piece.host, address, len))
    };
    // SAFETY: both blocks are alive and not freed before this use is done, and the piece is long enough.
    unsafe { entry.submit_call(&accesses, DriverCalls::Work(copy)) }
}

/// Waits until the first `len` bytes of a piece are there, and copies them to `dst`.
///
/// # Safety
/// `dst` has room for `len` bytes, and nothing else touches that memory.
pub(super) unsafe fn empty_piece(
    entry: &StreamEntry<'_>,
    piece: &Block,
    len: usize,
    dst: *mut u8,
) -> Result<()> {
    // The piece has only one use: the copy into it, on this stream.
    for point in memory::pending(piece, &(0..len), Mode::Read) {
        entry.stream.wait_number_at(point.number, entry.caller.call_site.location)?;
    }
    // SAFETY: the copy into the piece is done; the rest is this function's contract.
    unsafe { dst.copy_from_nonoverlapping(piece.host, len) };
    Ok(())
}

/// Like [`run`], for `work` that submits its pieces to the stream. Each thread enters the stream by itself.
pub(super) fn run_on(
    device: &Arc<DeviceCore>,
    entry: &StreamEntry<'_>,
    plan: &Plan,
    work: &(dyn Fn(&StreamEntry<'_>, &Claims) -> Result<()> + Sync),
) -> Result<()> {
    let (stream, rules, call_site) = (entry.stream, entry.caller.rules, entry.caller.call_site);
    run(device, plan, &|claims| work(&stream.enter(rules, call_site)?, claims))
}

/// Runs `work` on this thread and the plan's helpers, until every piece has been claimed and finished.
pub(super) fn run(
    device: &Arc<DeviceCore>,
    plan: &Plan,
    work: &(dyn Fn(&Claims) -> Result<()> + Sync),
) -> Result<()> {
    let claims = Claims::new(plan.pieces());
    if plan.helpers == 0 {
        return work(&claims);
    }
    let device = Arc::downgrade(device);
    let owner = device.as_ptr() as usize;
    // Runs after some time without copies.
    let tidy = Box::new(move || {
        if let Some(device) = device.upgrade() {
            tidy(&device);
        }
    });
    parallel_copy::run(claims, plan.helpers, plan.bytes <= SHORT, work, (owner, tidy))
}
