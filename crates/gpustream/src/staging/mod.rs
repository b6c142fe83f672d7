//! Copies of ordinary host memory, through pinned memory in pieces.
//!
//! The driver copies pageable memory at a fraction of the bus's rate and makes the host wait. Here several threads
//! fill pinned pieces while the device copies the ones before; one thread alone does not fill them as fast as the
//! bus takes them. Up to a few megabytes take the short path ([`chunk`]), and the fewest bytes go along with the
//! command, where the driver offers that.
//!
//! ```text
//! upload     slice --threads--> pinned pieces --stream--> device
//! download   slice <--threads-- pinned pieces <--stream-- device
//! ```
//!
//! The pieces come from the device's pool of pinned memory. How much of it a stream may have under way is limited
//! ([`Credit`]); it goes back to the driver after some time without copies by several threads.

mod chunk;
mod credit;
mod team;

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytemuck::Pod;
use gpustream_hal::{Operation, Result, Work};

use crate::buffer::Owned;
use crate::device::{Device, DeviceCore};
use crate::memory::{self, Block, Kind, PAGE_LOCKED};
use crate::stream::Stream;
use crate::stream_core::{Access, Call};
use crate::track::Mode;
use crate::view::{AsView, View, ViewMut};

pub(crate) use chunk::ShortPath;
use credit::Credit;
use team::Claims;

/// Longest piece: long enough to hide the cost of a copy, short enough to start early.
const LONGEST_PIECE: usize = 2 << 20;

/// Length of pieces that one thread copies: long beside a driver call, short enough to start early.
const PIECE: usize = 256 << 10;

/// Shortest piece, where the ring allows no more.
const SHORTEST_PIECE: usize = 64 << 10;

/// For each so many bytes one more thread helps. One thread alone fills pieces at 17 to 25 GB/s and empties them at 17:
/// less than half of what the bus takes, and about what the driver's own way reaches (H200).
const SHARE: usize = 768 << 10;

/// Longest upload, or part of one, that lies in a chunk as a whole.
const LONGEST_IN_CHUNK: usize = 4 << 20;

/// Up to so many bytes nobody is woken to help, because the caller would be done by then.
const SHORT: usize = 2 << 20;

/// Threads that saturate the buses seen so far.
const MOST_THREADS: usize = 8;

/// As many as may be asked for: beyond that threads cost more than they copy.
const THREADS_LIMIT: usize = 256;

/// After so long without a copy by several threads the pinned memory goes back to the driver.
const IDLE: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// What a capture refuses.
const CAPTURED: &str = "copy an ordinary slice, which the graph would not own; copy pinned memory";

/// How copies of ordinary memory are staged; zero leaves it to the library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StagingOptions {
    /// Bytes of pinned memory that one stream may have under way.
    pub(crate) ring: usize,
    /// Threads that copy, the calling one included.
    pub(crate) threads: usize,
}

impl StagingOptions {
    /// What `other` says where this says nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        let either = |own: usize, other| if own > 0 { own } else { other };
        Self { ring: either(self.ring, other.ring), threads: either(self.threads, other.threads) }
    }
}

/// A device's staging: its settings and what is under way.
pub(crate) struct Staging {
    threads: usize,
    credit: Credit,
}

impl Staging {
    pub(crate) fn new(options: StagingOptions) -> Self {
        let given = |value: usize| (value > 0).then_some(value);
        let threads = given(options.threads)
            .unwrap_or_else(|| {
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                (cores / 2).clamp(1, MOST_THREADS)
            })
            .min(THREADS_LIMIT);
        // Each thread fills one piece while another of its is being copied.
        let ring = given(options.ring).unwrap_or(2 * threads * LONGEST_PIECE);
        Self { threads, credit: Credit::new(ring) }
    }

    /// Cuts a copy of so many bytes. One that follows another closely gains nothing by starting early, since the device
    /// is still busy, and each driver call costs as much as copying 50 KB: it is cut into as few pieces as can be.
    fn plan(&self, bytes: usize, threads: usize, follows: bool) -> Plan {
        let threads = (1 + bytes / SHARE).min(threads);
        let piece = match (threads, follows) {
            (1, false) => PIECE,
            (_, true) => bytes.div_ceil(threads),
            // Two for each thread, so that one is filled while the other is copied.
            (_, false) => bytes.div_ceil(2 * threads),
        };
        let piece = piece.next_multiple_of(4 << 10).clamp(PIECE, LONGEST_PIECE);
        let piece = piece.min(self.credit.limit()).max(SHORTEST_PIECE);
        Plan { bytes, piece, helpers: (threads - 1).min(bytes.div_ceil(piece) - 1) }
    }

    /// How many threads may submit to a stream.
    fn threads_for(&self, stream: &Stream) -> usize {
        if stream.core.is_one_threads() { 1 } else { self.threads }
    }

    /// Longest upload, or part of one, that goes through a chunk. Several chunks fit the ring, so that one is filled
    /// while others are copied.
    fn longest_in_chunk(&self) -> usize {
        LONGEST_IN_CHUNK.min(self.credit.limit() / 4).max(SHORTEST_PIECE)
    }
}

/// How a copy is cut into pieces.
struct Plan {
    bytes: usize,
    piece: usize,
    /// Threads beside the calling one.
    helpers: usize,
}

impl Plan {
    fn pieces(&self) -> usize {
        self.bytes.div_ceil(self.piece)
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index * self.piece;
        start..self.bytes.min(start + self.piece)
    }
}

/// Copies `src` to `dst`, whose lengths agree. Returns when `src` has been read.
pub(crate) fn upload<T: Pod>(
    stream: &Stream,
    src: &[T],
    dst: &mut ViewMut<'_, T>,
    operation: Operation,
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
    if inline && !block.is_host() && stream.core.is_ours() {
        return upload_inline(stream, src, target(0..src.len()), operation);
    }
    stream.core.check_not_capturing(CAPTURED)?;
    let staging = &stream.device.0.staging;
    let part = staging.longest_in_chunk();
    if src.len() > part {
        let plan = staging.plan(src.len(), staging.threads_for(stream), false);
        if plan.helpers > 0 {
            return run(&stream.device, &plan, &|claims: &Claims| {
                claims
                    .iter()
                    .map(|index| plan.range(index))
                    .try_for_each(|range| upload_piece(stream, &src[range.clone()], target(range), operation))
            });
        }
    }
    src.chunks(part).enumerate().try_for_each(|(index, src)| {
        let target = |range: Range<usize>| target(index * part + range.start..index * part + range.end);
        stream.core.short_path.upload(stream, src, target, operation)
    })
}

/// Copies a few bytes, which go along with the command.
#[inline]
fn upload_inline(stream: &Stream, src: &[u8], target: Access<'_>, operation: Operation) -> Result<()> {
    let to = target.block.address.offset(target.range.start);
    let access = [target];
    let device = &stream.device.0;
    stream.core.submit_outside_captures(device.rules, operation, CAPTURED, access.iter(), |device, raw| {
        // SAFETY: the block is alive and not freed before this use is done; the slice is read during the call; the
        // stream was made by the device and is not being captured.
        unsafe { device.copy_inline(to, src.as_ptr(), src.len(), raw) }
    })
}

/// Copies `src` to `target`, through a piece of its own.
fn upload_piece(stream: &Stream, src: &[u8], target: Access<'_>, operation: Operation) -> Result<()> {
    let len = src.len();
    let staging = &stream.device.0.staging;
    let grant = staging.credit.take(stream, len)?;
    let piece = Owned::alloc(&stream.device, Kind::Pinned, len, None, operation)?;
    let block = piece.block();
    // SAFETY: the piece is at least as long as the slice, fresh, and its earlier uses are done.
    unsafe { block.host.copy_from_nonoverlapping(src.as_ptr(), len) };
    copy_pinned(stream, Access { block, range: 0..len, mode: Mode::Read }, 0, target, operation)?;
    grant.submitted(stream.core.submitted());
    Ok(())
}

/// Has the device copy from byte `at` of a pinned block to `target`; what is read there stays as it is until then.
#[inline]
fn copy_pinned(
    stream: &Stream,
    from: Access<'_>,
    at: usize,
    target: Access<'_>,
    operation: Operation,
) -> Result<()> {
    let (source, block, len) = (from.block, target.block, target.range.len());
    let to = block.address.offset(target.range.start);
    let copy = if block.is_host() {
        Work::CopyOnDevice { dst: to, src: source.address.offset(at), bytes: len }
    } else {
        Work::CopyToDevice { dst: to, src: source.host.wrapping_add(at), bytes: len }
    };
    // SAFETY: both blocks are alive and not freed before this use is done, and both callers have just written `len` bytes
    // at `at`.
    unsafe { stream.submit(operation, [from, target].iter(), Call::Work(copy)) }
}

/// Somewhere that several threads write, each its own part.
#[derive(Clone, Copy)]
struct Target(*mut u8);

// SAFETY: the pointer's parts are handed out to one thread each.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
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
    if bytes.is_empty() {
        return Ok(());
    }
    let (block, start) = (src.block, bytes.start);
    let target = Target(dst.cast());
    if bytes.len() <= chunk::LONGEST_DOWN {
        // SAFETY: as the caller vouches.
        return unsafe { stream.core.short_path.download(stream, block, bytes, target.at(0), operation) };
    }
    let staging = &stream.device.0.staging;
    let plan = staging.plan(bytes.len(), staging.threads_for(stream), false);
    run(&stream.device, &plan, &|claims: &Claims| {
        // While one piece is emptied the device fills the next.
        let mut filling: Option<(Owned, Range<usize>)> = None;
        loop {
            let next = match claims.next() {
                Some(index) => {
                    let range = plan.range(index);
                    let source = start + range.start..start + range.end;
                    let piece = Owned::alloc(&stream.device, Kind::Pinned, range.len(), None, operation)?;
                    fill_piece(stream, block, source, (piece.block(), range.len()), operation)?;
                    Some((piece, range))
                }
                None => None,
            };
            if let Some((piece, range)) = filling.take() {
                // SAFETY: `dst` has room by this function's contract, and each range is claimed once.
                unsafe { empty_piece(stream, piece.block(), range.len(), target.at(range.start)) }?;
                // Known to be idle, it is found again without a question to the driver.
                let block = piece.block();
                block.prune(&mut block.history.lock());
            }
            if next.is_none() {
                return Ok(());
            }
            filling = next;
        }
    })
}

/// Has the device copy `source` of `block` to the beginning of a piece of `size` bytes.
fn fill_piece(
    stream: &Stream,
    block: &Arc<Block>,
    source: Range<usize>,
    (piece, size): (&Arc<Block>, usize),
    operation: Operation,
) -> Result<()> {
    let len = source.len();
    let address = block.address.offset(source.start);
    let accesses = [
        Access { block, range: source, mode: Mode::Read },
        // All of it, which is entered at less cost than a part.
        Access { block: piece, range: 0..size, mode: Mode::Write },
    ];
    let copy = if block.is_host() {
        Work::CopyOnDevice { dst: piece.address, src: address, bytes: len }
    } else {
        Work::CopyToHost { dst: piece.host, src: address, bytes: len }
    };
    // SAFETY: both blocks are alive and not freed before this use is done, and the piece is long enough.
    unsafe { stream.submit(operation, accesses.iter(), Call::Work(copy)) }
}

/// Copies the first `len` bytes of a piece to `dst`, when they are there.
///
/// # Safety
/// `dst` has room for them, and nobody else touches it.
unsafe fn empty_piece(stream: &Stream, piece: &Block, len: usize, dst: *mut u8) -> Result<()> {
    // The copy into it, on this stream, is all there is.
    for point in memory::pending(piece, &(0..len), Mode::Read) {
        stream.core.synchronize_number(point.number)?;
    }
    // SAFETY: the copy into the piece is done; the rest is the caller's word.
    unsafe { dst.copy_from_nonoverlapping(piece.host, len) };
    Ok(())
}

/// Copies between slices of equal length of ordinary or pinned memory, with the threads that stage.
pub(crate) fn copy_on_host<T: Pod>(device: &Device, src: &[T], dst: &mut [T]) -> Result<()> {
    let src: &[u8] = bytemuck::cast_slice(src);
    let dst: &mut [u8] = bytemuck::cast_slice_mut(dst);
    if src.is_empty() || src.len() != dst.len() {
        return Ok(());
    }
    let target = Target(dst.as_mut_ptr());
    let staging = &device.0.staging;
    let plan = staging.plan(src.len(), staging.threads, false);
    run(device, &plan, &|claims: &Claims| {
        for range in claims.iter().map(|index| plan.range(index)) {
            let from = &src[range.clone()];
            // SAFETY: `dst` is as long as `src` and borrowed exclusively; each range is claimed once.
            unsafe { target.at(range.start).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }
        Ok(())
    })
}

/// Runs `work` on this thread and the plan's helpers until all pieces are claimed and worked on.
fn run(device: &Device, plan: &Plan, work: &(dyn Fn(&Claims) -> Result<()> + Sync)) -> Result<()> {
    let claims = Claims::new(plan.pieces());
    if plan.helpers == 0 {
        return work(&claims);
    }
    let device = Arc::downgrade(&device.0);
    team::run(
        claims,
        plan.helpers,
        plan.bytes <= SHORT,
        work,
        (device.as_ptr() as usize, Box::new(move || tidy(&device))),
    )
}

/// Returns what staging keeps, when there was nothing to copy for some time.
fn tidy(device: &Weak<DeviceCore>) {
    if let Some(device) = device.upgrade() {
        let_go(&device);
        device.memory.trim(Kind::Pinned);
    }
}

/// Finds out what is done, and gives the pool what the device's streams keep for their next short copies.
pub(crate) fn let_go(device: &DeviceCore) {
    device.refresh();
    device.own_streams().iter().for_each(|stream| stream.short_path.clear(device));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_cover_every_byte_once() {
        let sizes =
            (0..30).flat_map(|log| [(1usize << log) - 1, 1 << log, (1 << log) + 1]).filter(|&n| n > 0);
        for bytes in sizes {
            for (threads, ring) in [(1, 0), (2, 0), (8, 0), (3, 1 << 16), (8, 1 << 20)] {
                let staging = Staging::new(StagingOptions { ring, threads });
                for plan in [false, true].map(|follows| staging.plan(bytes, threads, follows)) {
                    let mut end = 0;
                    for index in 0..plan.pieces() {
                        let range = plan.range(index);
                        assert_eq!(range.start, end);
                        assert!(!range.is_empty() && range.len() <= LONGEST_PIECE);
                        end = range.end;
                    }
                    assert_eq!(end, bytes);
                    assert!(plan.helpers < threads && plan.helpers < plan.pieces());
                    assert!(plan.helpers == 0 || bytes >= SHARE);
                }
                let (alone, following) =
                    (staging.plan(bytes, threads, false), staging.plan(bytes, threads, true));
                assert!(following.pieces() <= alone.pieces());
            }
        }
    }
}
