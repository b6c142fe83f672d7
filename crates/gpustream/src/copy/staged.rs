//! Copies of ordinary host memory, through pinned memory in pieces: see [`staging`](gpustream_core::staging).

use std::iter;
use std::ops::Range;
use std::sync::{Arc, Weak};

use gpustream_core::device_core::DeviceCore;
use gpustream_core::memory::{self, Access, Block, MemoryKind, PAGE_LOCKED, layout_of};
use gpustream_core::operation::{Caller, DriverCalls, HostWait};
use gpustream_core::staging::Plan;
use gpustream_core::staging::parallel_copy::{self, Claims};
use gpustream_core::stream::{StreamEntry, prune};
use gpustream_core::trace::{self, Direction};
use gpustream_core::track::Mode;
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{self as hal, Result, Work};

use super::short;
use crate::buffer::Owned;
use crate::device::Device;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, View, ViewMut};

/// Length of the longest copy for which no helper is woken, in bytes: the caller would be done by then.
const SHORT: usize = 2 << 20;

/// The end of the error text inside a capture.
pub(super) const CAPTURED: &str = "copy an ordinary slice, which the graph would not own; copy pinned memory";

/// Copies `src` to `dst`, whose lengths agree. Returns when `src` has been read.
#[inline]
pub(super) fn upload<T: Plain>(
    stream: &Stream,
    entry: &StreamEntry<'_>,
    src: &[T],
    dst: &mut ViewMut<'_, T>,
) -> Result<()> {
    let target = dst.view();
    let (block, start) = (target.block, target.start);
    let src: &[u8] = bytemuck::cast_slice(src);
    if src.is_empty() {
        return Ok(());
    }
    let target = |range: Range<usize>| Access {
        block,
        range: start + range.start..start + range.end,
        mode: Mode::Write,
    };
    let inline = src.len() <= stream.device.0.info.inline_copies && !PAGE_LOCKED.may_hold(src);
    if inline && !block.is_host() && stream.core.is_ours() && !stream.core.is_in_step() {
        return upload_inline(entry, src, &target(0..src.len()));
    }
    entry.check_running(CAPTURED)?;
    let staging = &stream.device.0.staging;
    let part = staging.longest_in_chunk();
    if src.len() > part {
        let plan = staging.plan(src.len(), staging.threads_for(&stream.core), false);
        if plan.helpers > 0 {
            return run_on(stream, entry, &plan, &|entry, claims| {
                claims
                    .iter()
                    .map(|index| plan.range(index))
                    .try_for_each(|range| upload_piece(stream, entry, &src[range.clone()], &target(range)))
            });
        }
    }
    src.chunks(part).enumerate().try_for_each(|(index, src)| {
        let target = |range: Range<usize>| target(index * part + range.start..index * part + range.end);
        short::upload(stream, entry, src, target)
    })
}

/// Copies a few bytes, which go along with the command.
#[inline(always)]
#[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
fn upload_inline(entry: &StreamEntry<'_>, src: &[u8], target: &Access<'_>) -> Result<()> {
    let to = target.block.address.offset(target.range.start);
    // SAFETY: the block is alive and not freed before this use is done; the slice is read during the call; the stream was
    // made by the device and is not being captured.
    let copy =
        |device: &dyn hal::Device, raw| unsafe { device.copy_inline(to, src.as_ptr(), src.len(), raw) };
    if let Some(begun) = entry.begin(&[target])? {
        let result = copy(&*entry.stream.device, entry.stream.raw());
        return entry.finish(begun, iter::once(target), HostWait::Alone, result);
    }
    cold_path();
    let work = trace::WorkKind::Copy { direction: Direction::Up, bytes: src.len() as u64, pageable: false };
    entry.submit_outside_captures(CAPTURED, work, iter::once(target), copy)
}

/// Copies `src` to `target`, through a piece of its own.
fn upload_piece(stream: &Stream, entry: &StreamEntry<'_>, src: &[u8], target: &Access<'_>) -> Result<()> {
    let len = src.len();
    let staging = &stream.device.0.staging;
    let grant = staging.in_flight.take(&stream.core, len)?;
    let piece = alloc_piece(stream, entry, len)?;
    let block = piece.block();
    trace::stage();
    // SAFETY: the piece is at least as long as the slice, fresh, and its earlier uses are done.
    unsafe { block.host.copy_from_nonoverlapping(src.as_ptr(), len) };
    copy_pinned(entry, &Access { block, range: 0..len, mode: Mode::Read }, 0, target)?;
    grant.submitted(stream.core.counted());
    Ok(())
}

/// Allocates pinned memory for a piece of a copy.
fn alloc_piece(stream: &Stream, entry: &StreamEntry<'_>, len: usize) -> Result<Owned> {
    let Caller { call_site: operation, outside, .. } = entry.caller;
    Owned::alloc_outside(&stream.device, MemoryKind::Pinned, layout_of::<u8>(len)?, operation, outside)
}

/// Has the device copy from byte `at` of a pinned block to `target`. The bytes there do not change before they are
/// read.
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
        Work::CopyOnDevice { dst: to, src: source.address.offset(at), bytes: len }
    } else {
        Work::CopyToDevice { dst: to, src: source.host.wrapping_add(at), bytes: len }
    };
    // SAFETY: both blocks are alive and not freed before this use is done, and both callers have just written `len`
    // bytes at `at`.
    unsafe { entry.submit_call(&[from, target], DriverCalls::Work(copy)) }
}

/// The address of memory that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Target(pub(super) *mut u8);

// SAFETY: each part of the memory behind the pointer is handed out to one thread.
unsafe impl Send for Target {}
// SAFETY: each part of the memory behind the pointer is handed out to one thread.
unsafe impl Sync for Target {}

impl Target {
    pub(super) fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Copies `src` to `dst`. Returns when all bytes have arrived.
///
/// # Safety
/// `dst` has room for `src.len()` elements that nobody else touches.
pub(super) unsafe fn download<T: Plain>(
    stream: &Stream,
    entry: &StreamEntry<'_>,
    src: &View<'_, T>,
    dst: *mut T,
) -> Result<()> {
    let bytes = src.bytes();
    if bytes.is_empty() {
        return Ok(());
    }
    let (block, start) = (src.block, bytes.start);
    let target = Target(dst.cast());
    if bytes.len() <= short::LONGEST_DOWN {
        // SAFETY: by this function's contract.
        return unsafe { short::download(stream, entry, block, bytes, target.at(0)) };
    }
    let staging = &stream.device.0.staging;
    let plan = staging.plan(bytes.len(), staging.threads_for(&stream.core), false);
    run_on(stream, entry, &plan, &|entry, claims| {
        // While one piece is emptied the device fills the next.
        let mut filling: Option<(Owned, Range<usize>)> = None;
        loop {
            let next = match claims.next() {
                Some(index) => {
                    let range = plan.range(index);
                    let source = start + range.start..start + range.end;
                    let piece = alloc_piece(stream, entry, range.len())?;
                    fill_piece(entry, block, source, (piece.block(), range.len()))?;
                    Some((piece, range))
                }
                None => None,
            };
            if let Some((piece, range)) = filling.take() {
                // SAFETY: `dst` has room by this function's contract, and each range is claimed once.
                unsafe { empty_piece(stream, piece.block(), range.len(), target.at(range.start)) }?;
                // The piece is known to be idle now, so the pool finds it again without a question to the driver.
                let block = piece.block();
                prune(&mut block.history.lock());
            }
            if next.is_none() {
                return Ok(());
            }
            filling = next;
        }
    })
}

/// Has the device copy `source` of `block` to the beginning of a piece of `size` bytes.
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
        // All of the piece, which is entered at less cost than a part of it.
        &Access { block: piece, range: 0..size, mode: Mode::Write },
    ];
    let copy = if block.is_host() {
        Work::CopyOnDevice { dst: piece.address, src: address, bytes: len }
    } else {
        Work::CopyToHost { dst: piece.host, src: address, bytes: len }
    };
    // SAFETY: both blocks are alive and not freed before this use is done, and the piece is long enough.
    unsafe { entry.submit_call(&accesses, DriverCalls::Work(copy)) }
}

/// Waits until the first `len` bytes of a piece are there, and copies them to `dst`.
///
/// # Safety
/// `dst` has room for `len` bytes, and nobody else touches that memory.
pub(super) unsafe fn empty_piece(stream: &Stream, piece: &Block, len: usize, dst: *mut u8) -> Result<()> {
    // The only use is the copy into the piece, on this stream.
    for point in memory::pending(piece, &(0..len), Mode::Read) {
        stream.core.wait_number(point.number)?;
    }
    // SAFETY: the copy into the piece is done; the rest is this function's contract.
    unsafe { dst.copy_from_nonoverlapping(piece.host, len) };
    Ok(())
}

/// Copies between slices of equal length of ordinary or pinned memory, with the threads that stage.
pub(crate) fn copy_on_host<T: Plain>(device: &Device, src: &[T], dst: &mut [T]) -> Result<()> {
    let src: &[u8] = bytemuck::cast_slice(src);
    let dst: &mut [u8] = bytemuck::cast_slice_mut(dst);
    if src.is_empty() || src.len() != dst.len() {
        return Ok(());
    }
    let target = Target(dst.as_mut_ptr());
    let staging = &device.0.staging;
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

/// As [`run`], for pieces that each thread submits to the stream, which it enters for itself.
pub(super) fn run_on(
    stream: &Stream,
    entry: &StreamEntry<'_>,
    plan: &Plan,
    work: &(dyn Fn(&StreamEntry<'_>, &Claims) -> Result<()> + Sync),
) -> Result<()> {
    let operation = entry.caller.call_site;
    run(&stream.device, plan, &|claims| work(&stream.enter(operation)?, claims))
}

/// Runs `work` on this thread and the plan's helpers until all pieces are claimed and worked on.
fn run(device: &Device, plan: &Plan, work: &(dyn Fn(&Claims) -> Result<()> + Sync)) -> Result<()> {
    let claims = Claims::new(plan.pieces());
    if plan.helpers == 0 {
        return work(&claims);
    }
    let device = Arc::downgrade(&device.0);
    parallel_copy::run(
        claims,
        plan.helpers,
        plan.bytes <= SHORT,
        work,
        (device.as_ptr() as usize, Box::new(move || tidy(&device))),
    )
}

/// Gives back the memory that staging keeps, after some time without copies.
fn tidy(device: &Weak<DeviceCore>) {
    if let Some(device) = device.upgrade() {
        device.take_back_kept();
        device.pools.trim(MemoryKind::Pinned);
    }
}
