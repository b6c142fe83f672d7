//! The operations of a stream, divided into units that several workers can share.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Instant;

use gpustream_hal::{
    Copy1d, Copy3d, CopyDirection, FillPattern, HostFn, HostPartFn, LaunchConfig, Result, WorkKind,
};

use crate::cooperative;
use crate::grid::{self, Launch};
use crate::image;
use crate::memory_waits;
use crate::shared::Worker;

/// Bytes of a copy or fill that one worker does at a time.
const PIECE: usize = 256 << 10;

/// One operation of a stream or graph.
///
/// Addresses are plain numbers. They are valid until the operation is done, because the traits' safety
/// sections demand it.
#[derive(Clone)]
pub(crate) enum Task {
    /// No work, just a point to wait for.
    Empty,
    Launch(Launch),
    Copy {
        /// This only matters for traces.
        direction: CopyDirection,
        dst: usize,
        src: usize,
        bytes: usize,
    },
    /// Several copies, in pieces.
    Batch(Arc<[CopyPiece]>),
    Copy3d(Box<Strided>),
    Fill {
        dst: usize,
        pattern: FillPattern,
        count: usize,
    },
    Host {
        function: HostFn,
        data: usize,
    },
    /// A host function that is called once for each part.
    HostParts {
        function: HostPartFn,
        data: usize,
        parts: u32,
    },
    WriteWord {
        address: usize,
        value: u32,
    },
    /// Takes an event's timestamp, unless it has been recorded again since.
    Timestamp {
        event: Arc<dyn TimedEvent>,
        record: u64,
    },
    /// Frees device memory.
    Free(usize),
}

/// One piece of a batch of copies.
#[derive(Clone, Copy)]
pub(crate) struct CopyPiece {
    dst: usize,
    src: usize,
    bytes: usize,
}

/// Returns a batch's copies, divided into pieces that one worker does at a time.
pub(crate) fn pieces(copies: &[Copy1d]) -> Arc<[CopyPiece]> {
    let cut = |copy: &Copy1d| {
        let (dst, src, bytes) = (copy.dst.address().0, copy.src.address().0, copy.bytes);
        let piece =
            move |from| CopyPiece { dst: dst + from, src: src + from, bytes: PIECE.min(bytes - from) };
        (0..bytes).step_by(PIECE).map(piece)
    };
    copies.iter().flat_map(cut).collect()
}

/// An event with timing.
pub(crate) trait TimedEvent: Send + Sync {
    /// Takes the timestamp of record number `record`, unless the event has been recorded again since.
    fn stamp(&self, record: u64, now: Instant);
}

/// A strided copy by address.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    dst: usize,
    src: usize,
    copy: Copy3d,
}

impl Strided {
    /// # Safety
    /// If one end of the copy is an array, it must be alive.
    pub(crate) unsafe fn new(copy: &Copy3d) -> Self {
        let mut copy = *copy;
        // SAFETY: by this function's contract.
        let ends = unsafe {
            [
                image::resolve(copy.dst, copy.dst_pitch, copy.dst_rows),
                image::resolve(copy.src, copy.src_pitch, copy.src_rows),
            ]
        };
        let [(dst, dst_pitch, dst_rows), (src, src_pitch, src_rows)] = ends;
        (copy.dst_pitch, copy.dst_rows, copy.src_pitch, copy.src_rows) =
            (dst_pitch, dst_rows, src_pitch, src_rows);
        Self { dst, src, copy }
    }

    /// Returns true if the rows do not overlap.
    pub(crate) fn is_apart(&self) -> bool {
        let Copy3d { width, height, depth, dst_pitch, src_pitch, .. } = self.copy;
        width <= dst_pitch.min(src_pitch) || height * depth <= 1
    }
}

// SAFETY: the pointers inside are addresses of memory that the caller keeps valid and untouched until the
// copy is done, as the traits demand.
unsafe impl Send for Strided {}
// SAFETY: the pointers inside are addresses of memory that the caller keeps valid and untouched until the
// copy is done, as the traits demand.
unsafe impl Sync for Strided {}

impl Task {
    /// Returns true if both are operations of the same kind.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns true if idle workers should come at once, because a part may take long and we cannot know
    /// before.
    pub(crate) fn is_offered_first(&self) -> bool {
        matches!(self, Self::HostParts { .. })
    }

    /// Returns into how many pieces the work can be divided.
    pub(crate) fn units(&self) -> u64 {
        match self {
            Self::Launch(launch) => launch.units(),
            Self::Copy { bytes, .. } => bytes.div_ceil(PIECE) as u64,
            Self::Batch(pieces) => pieces.len() as u64,
            Self::HostParts { parts, .. } => u64::from(*parts),
            Self::Fill { count, pattern, .. } => (count * pattern.width()).div_ceil(PIECE) as u64,
            Self::Copy3d(strided) => {
                let rows = strided.copy.height * strided.copy.depth;
                rows.div_ceil(rows_per_unit(strided.copy.width)) as u64
            }
            _ => 1,
        }
    }

    /// Returns the kernel's name, and what to call the work in traces.
    ///
    /// # Safety
    /// The module of a launch must be loaded.
    pub(crate) unsafe fn described(&self) -> (Option<Arc<str>>, WorkKind) {
        let copy = |direction, bytes: usize| WorkKind::Copy { direction, bytes: bytes as u64 };
        match self {
            Self::Launch(launch) => {
                // SAFETY: by this function's contract.
                let kernel = unsafe { &*launch.function.0 };
                let LaunchConfig { grid, block, .. } = launch.config;
                (Some(kernel.name.clone()), WorkKind::Kernel { grid, block })
            }
            Self::Copy { direction, bytes, .. } => (None, copy(*direction, *bytes)),
            Self::Batch(pieces) => {
                let bytes = pieces.iter().map(|piece| piece.bytes).sum();
                (None, copy(CopyDirection::OnDevice, bytes))
            }
            Self::Copy3d(strided) => {
                let Copy3d { width, height, depth, .. } = strided.copy;
                (None, copy(CopyDirection::OnDevice, width * height * depth))
            }
            Self::Fill { pattern, count, .. } => {
                (None, WorkKind::Fill { bytes: (count * pattern.width()) as u64 })
            }
            _ => (None, WorkKind::Other),
        }
    }

    /// Does units `first..end`.
    ///
    /// # Safety
    /// What the submission promised must still hold, and each unit may be done only once.
    #[inline]
    pub(crate) unsafe fn run(&self, worker: &mut Worker, first: u64, end: u64) -> Result<()> {
        match self {
            Self::Launch(launch) if !launch.config.cooperative => {
                let (shared, runner) = (worker.device(), worker.runner());
                // SAFETY: passed on to the caller; the runner is this worker's own, and there is no meeting.
                unsafe { grid::run_blocks(launch, shared, runner, first, end, std::ptr::null()) }
            }
            // SAFETY: passed on to the caller.
            other => unsafe { other.run_other(worker, first, end) },
        }
    }

    /// Does units of anything except a launch, on one worker.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(never)]
    unsafe fn run_other(&self, worker: &mut Worker, first: u64, end: u64) -> Result<()> {
        match self {
            Self::Empty => {}
            Self::Launch(launch) => {
                // SAFETY: passed on to the caller.
                return unsafe { cooperative::run(launch, worker.device()) };
            }
            Self::Copy { dst, src, bytes, .. } => {
                let (from, to) = (first as usize * PIECE, (end as usize * PIECE).min(*bytes));
                // SAFETY: both ranges are valid and disjoint, by the copy's submission.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        (src + from) as *const u8,
                        (dst + from) as *mut u8,
                        to - from,
                    );
                }
            }
            Self::Batch(pieces) => {
                for piece in &pieces[first as usize..end as usize] {
                    // SAFETY: both ranges are valid, and the piece's alone to write, by the batch's submission.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            piece.src as *const u8,
                            piece.dst as *mut u8,
                            piece.bytes,
                        );
                    }
                }
            }
            Self::Copy3d(strided) => {
                // SAFETY: every row lies in valid memory, by the copy's submission.
                unsafe { copy_rows(strided, first, end) }
            }
            Self::Fill { dst, pattern, count } => {
                let per_unit = PIECE / pattern.width();
                let (from, to) = (first as usize * per_unit, (end as usize * per_unit).min(*count));
                // SAFETY: the range is allocated and aligned, by the fill's submission.
                unsafe { fill(*dst, *pattern, from, to - from) }
            }
            Self::Host { function, data } => {
                // SAFETY: `data` may be used from this thread until the call, by its submission.
                unsafe { function(*data as *mut c_void) }
            }
            Self::HostParts { function, data, .. } => {
                for part in first..end {
                    // SAFETY: `data` may be used from this thread until all parts were called, by its submission; each
                    // part is called once.
                    unsafe { function(*data as *mut c_void, part as u32) }
                }
            }
            Self::WriteWord { address, value } => {
                // SAFETY: the word is alive until the write is done, by its submission.
                unsafe { memory_waits::write(*address, *value) };
                worker.device().words.look();
            }
            Self::Timestamp { event, record } => event.stamp(*record, Instant::now()),
            Self::Free(address) => {
                // SAFETY: all work that uses it is ordered before, by its submission.
                return unsafe { worker.device().memory.free(*address) };
            }
        }
        Ok(())
    }
}

fn rows_per_unit(width: usize) -> usize {
    (PIECE / width.max(1)).max(1)
}

unsafe fn copy_rows(strided: &Strided, first: u64, end: u64) {
    let Strided { dst, src, copy } = strided;
    let per_unit = rows_per_unit(copy.width);
    let rows = first as usize * per_unit..(end as usize * per_unit).min(copy.height * copy.depth);
    for row in rows {
        let (y, z) = (row % copy.height, row / copy.height);
        let to = dst + (z * copy.dst_rows + y) * copy.dst_pitch;
        let from = src + (z * copy.src_rows + y) * copy.src_pitch;
        // SAFETY: the row lies in valid memory on both sides, by the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, copy.width) };
    }
}

unsafe fn fill(dst: usize, pattern: FillPattern, from: usize, count: usize) {
    // SAFETY: the range is the caller's, and its elements have the width and alignment of the pattern.
    unsafe {
        match pattern {
            FillPattern::U8(value) => std::ptr::write_bytes((dst as *mut u8).add(from), value, count),
            FillPattern::U16(value) => fill_with((dst as *mut u16).add(from), value, count),
            FillPattern::U32(value) => fill_with((dst as *mut u32).add(from), value, count),
        }
    }
}

unsafe fn fill_with<T: Copy>(start: *mut T, value: T, count: usize) {
    // SAFETY: the caller's range, which need not have been written before.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), count) }.fill(MaybeUninit::new(value));
}
