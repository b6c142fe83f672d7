//! Reductions of parts of an array: the rows and columns of a matrix, and segments.

use std::sync::Arc;

use gpustream::{AsView, Buffer, Launch, Plain, Result, Stream, View, Zeroable as _};

use crate::call::{Form, filling, mismatch, optional};
use crate::number::Number;
use crate::order::{LowBits as _, Order};
use crate::rank::{Ranks, first_is_largest};
use crate::reduce::Reducible;
use crate::reduce::shape::resident;

mod bindings {
    gpustream::include_kernels!("reduce_parts");
}
use bindings::{
    HasColumnBests, HasColumnSums, HasRowBests, HasRowTotals, HasSegmentSums, HasSegmentTotals, Kernels,
};

/// How many elements of a segment one warp combines at most, as in `reduce_parts.cu`.
const PIECE: usize = 4096;

/// Reductions of the rows and columns of a matrix, and of segments, on a stream.
///
/// Each method returns a new buffer, which the device writes in stream order. You get the same bits in every run with the same
/// device, lengths and offsets. The types of sums, and what happens to NaN, are those of [`Reduce`](crate::reduce::Reduce). For
/// rows and segments we need two values for each 4096 elements, for columns a few rows.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[1u32, 2, 3, 4, 5, 6])?;
/// let (rows, columns) = (stream.sum_rows(&x, 2, 3)?, stream.max_columns(&x, 2, 3)?);
/// assert_eq!((stream.download(&rows)?, stream.download(&columns)?), (vec![6, 15], vec![4, 5, 6]));
/// # Ok::<(), gpustream::Error>(())
/// ```
pub trait ReduceParts {
    /// Sums each row of a matrix, which you store row after row without gaps.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are not `rows * columns` elements. The
    /// errors of [`sum`](crate::reduce::Reduce::sum).
    fn sum_rows<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T::Sum>>;

    /// Sums each column of a matrix, which you store row after row without gaps.
    ///
    /// # Errors
    /// The errors of [`sum_rows`](Self::sum_rows).
    fn sum_columns<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T::Sum>>;

    /// Finds the largest element of each row of a matrix, as [`max`](crate::reduce::Reduce::max) does.
    ///
    /// # Errors
    /// The errors of [`sum_rows`](Self::sum_rows).
    fn max_rows<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T>>;

    /// Finds the largest element of each column of a matrix, as [`max`](crate::reduce::Reduce::max) does.
    ///
    /// # Errors
    /// The errors of [`sum_rows`](Self::sum_rows).
    fn max_columns<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T>>;

    /// Sums segments: element `s` of the result is the sum of `x[offsets[s]..offsets[s + 1]]`, or 0 if that is empty. Segments may
    /// have any lengths, also very different ones: we cut long ones into pieces of up to 4096 elements, always at the same
    /// places. Offsets beyond the end count as the end. If they do not ascend, the sums are unspecified.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are no offsets. The errors of
    /// [`sum`](crate::reduce::Reduce::sum).
    fn sum_segments<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        offsets: &(impl AsView<u64> + ?Sized),
    ) -> Result<Buffer<T::Sum>>;
}

/// Element types that [`ReduceParts`] takes: those of [`Reduce`](crate::reduce::Reduce).
pub trait ReducibleParts:
    Reducible<Bits: BestKernels, SeenSum: SumKernels<<Self as Reducible>::SeenSum> + HasSegmentTotals>
    + Number<Seen: SumKernels<<Self as Reducible>::SeenSum>>
{
}
impl<T> ReducibleParts for T where
    T: Reducible<Bits: BestKernels, SeenSum: SumKernels<<T as Reducible>::SeenSum> + HasSegmentTotals>
        + Number<Seen: SumKernels<<T as Reducible>::SeenSum>>
{
}

/// What is summed as `Sum`.
#[doc(hidden)]
pub trait SumKernels<Sum: Plain>: HasSegmentSums<Sum> + HasColumnSums<Sum> {}
impl<Sum: Plain, T: HasSegmentSums<Sum> + HasColumnSums<Sum>> SumKernels<Sum> for T {}

/// Integers that stand for keys.
#[doc(hidden)]
pub trait BestKernels: HasRowBests + HasRowTotals + HasColumnBests {}
impl<B: HasRowBests + HasRowTotals + HasColumnBests> BestKernels for B {}

impl ReduceParts for Stream {
    #[track_caller]
    fn sum_rows<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T::Sum>> {
        let x = matrix("sum_rows", x.view(), rows, columns)?;
        if x.is_empty() {
            return self.zeros(rows);
        }
        segments(self, x, None, rows, columns)
    }

    #[track_caller]
    fn sum_columns<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T::Sum>> {
        let x = matrix("sum_columns", x.view(), rows, columns)?.cast::<T::Seen>()?;
        let shape = ColumnShape::of(self, rows, columns)?;
        let kernels = kernels(self)?;
        let mut sums = self.alloc::<T::Sum>(columns)?;
        if columns == 0 {
            return Ok(sums);
        }
        let ColumnShape { parts, width, launch, last } = shape;
        let seen = &mut sums.cast_mut::<T::SeenSum>()?;
        if parts == 1 {
            kernels.column_sums(self, &launch, &x, rows, columns, 1, width, T::TOP, seen)?;
            return Ok(sums);
        }
        let mut partial = self.alloc::<T::SeenSum>(parts * columns)?;
        kernels.column_sums(self, &launch, &x, rows, columns, parts, width, T::TOP, &mut partial)?;
        kernels.column_sums(self, &last, &partial, parts, columns, 1, width, T::SeenSum::zeroed(), seen)?;
        Ok(sums)
    }

    #[track_caller]
    fn max_rows<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T>> {
        let x = matrix("max_rows", x.view(), rows, columns)?.cast::<T::Bits>()?;
        let Ranks { if_set, if_clear, numbers, nothing } = first_is_largest::<T>(Order::Descending);
        let mut bests = self.alloc::<T>(rows)?;
        let seen = &mut bests.cast_mut::<T::Bits>()?;
        if x.is_empty() {
            self.fill(seen, nothing)?;
            return Ok(bests);
        }
        let kernels = kernels(self)?;
        let tiles = x.len().div_ceil(PIECE);
        let (mut heads, mut tails) = (self.alloc(tiles)?, self.alloc(tiles)?);
        kernels.row_bests(
            self,
            &warp_per_tile(self, x.len())?,
            &x,
            x.len(),
            rows,
            columns,
            if_set,
            if_clear,
            numbers,
            nothing,
            seen,
            &mut heads,
            &mut tails,
        )?;
        kernels.row_totals(
            self,
            &few_segments_per_warp(self, rows)?,
            &heads,
            &tails,
            x.len(),
            rows,
            columns,
            if_set,
            if_clear,
            nothing,
            seen,
        )?;
        Ok(bests)
    }

    #[track_caller]
    fn max_columns<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
    ) -> Result<Buffer<T>> {
        let x = matrix("max_columns", x.view(), rows, columns)?.cast::<T::Bits>()?;
        let shape = ColumnShape::of(self, rows, columns)?;
        let kernels = kernels(self)?;
        let mut bests = self.alloc::<T>(columns)?;
        if columns == 0 {
            return Ok(bests);
        }
        let ColumnShape { parts, width, launch, last } = shape;
        let seen = &mut bests.cast_mut::<T::Bits>()?;
        let Ranks { if_set, if_clear, numbers, nothing } = first_is_largest::<T>(Order::Descending);
        // Ranks stay what they are.
        let (same, all) = (T::Bits::low(0), T::Bits::low(u64::MAX));
        if parts == 1 {
            #[rustfmt::skip]
            kernels.column_bests(
                self, &launch, &x, rows, columns, 1, width, if_set, if_clear, numbers, if_set, if_clear, nothing, seen,
            )?;
            return Ok(bests);
        }
        let mut partial = self.alloc(parts * columns)?;
        #[rustfmt::skip]
        kernels.column_bests(
            self, &launch, &x, rows, columns, parts, width, if_set, if_clear, numbers, same, same, same, &mut partial,
        )?;
        #[rustfmt::skip]
        kernels.column_bests(
            self, &last, &partial, parts, columns, 1, width, same, same, all, if_set, if_clear, nothing, seen,
        )?;
        Ok(bests)
    }

    #[track_caller]
    fn sum_segments<T: ReducibleParts>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        offsets: &(impl AsView<u64> + ?Sized),
    ) -> Result<Buffer<T::Sum>> {
        let offsets = offsets.view();
        let Some(count) = offsets.len().checked_sub(1) else {
            let text = "segments without offsets: give one offset more than there are segments";
            return Err(mismatch("sum_segments", text.to_owned()));
        };
        segments(self, x.view(), Some(offsets), count, 0)
    }
}
#[track_caller]
fn kernels(stream: &Stream) -> Result<Arc<Kernels>> {
    stream.device().extension(Kernels::load)
}

#[track_caller]
fn matrix<'a, T: Plain>(
    call: &'static str,
    x: View<'a, T>,
    rows: usize,
    columns: usize,
) -> Result<View<'a, T>> {
    if rows.checked_mul(columns) == Some(x.len()) {
        return Ok(x);
    }
    let text =
        format!("a matrix of {rows}×{columns} in {} elements: give a view of exactly the matrix", x.len());
    Err(mismatch(call, text))
}

/// Sums `count` segments, which begin at `offsets`, or every `width` elements.
#[track_caller]
fn segments<T: ReducibleParts>(
    stream: &Stream,
    x: View<'_, T>,
    offsets: Option<View<'_, u64>>,
    count: usize,
    width: usize,
) -> Result<Buffer<T::Sum>> {
    let mut sums = stream.alloc::<T::Sum>(count)?;
    if count == 0 {
        return Ok(sums);
    }
    let (x, kernels) = (x.cast::<T::Seen>()?, kernels(stream)?);
    let seen = &mut sums.cast_mut::<T::SeenSum>()?;
    let offsets = optional(offsets.as_ref());
    let tiles = x.len().div_ceil(PIECE);
    let (mut heads, mut tails) = (stream.alloc(tiles)?, stream.alloc(tiles)?);
    kernels.segment_sums(
        stream,
        &warp_per_tile(stream, x.len())?,
        &x,
        x.len(),
        offsets,
        count,
        width.max(1),
        T::TOP,
        seen,
        &mut heads,
        &mut tails,
    )?;
    let launch = few_segments_per_warp(stream, count)?;
    kernels.segment_totals(stream, &launch, &heads, &tails, x.len(), offsets, count, width, seen)?;
    Ok(sums)
}
/// The launches of a reduction of columns: of groups of rows, and of the groups' results.
struct ColumnShape {
    parts: usize,
    width: u32,
    launch: Launch,
    last: Launch,
}

impl ColumnShape {
    #[track_caller]
    fn of(stream: &Stream, rows: usize, columns: usize) -> Result<Self> {
        if Form::of(stream.device()) == Form::Shares {
            let parts = filling(stream, rows * columns)?.0.min(rows.max(1));
            let (launch, last) = (Launch::new(parts as u32, 1), Launch::new(1, 1));
            return Ok(Self { parts, width: 1, launch, last });
        }
        let width = columns.next_power_of_two().min(256);
        let groups = columns.div_ceil(width).max(1);
        // Each thread should have 16 rows at least.
        let parts = (resident(stream) / groups).min(rows / (16 * 256 / width)).max(1);
        let blocks = |parts: usize| (groups * parts).min(i32::MAX as usize) as u32;
        let (launch, last) = (Launch::new(blocks(parts), 256), Launch::new(blocks(1), 256));
        Ok(Self { parts, width: width as u32, launch, last })
    }
}

/// Returns a launch with one warp for each tile of `n` elements.
#[track_caller]
fn warp_per_tile(stream: &Stream, n: usize) -> Result<Launch> {
    if Form::of(stream.device()) == Form::Shares {
        let (blocks, launch) = filling(stream, n)?;
        return Ok(launch(blocks));
    }
    let warps = 256 / stream.device().info().warp_size.max(1) as usize;
    let blocks = n.div_ceil(PIECE).div_ceil(warps).clamp(1, i32::MAX as usize);
    Ok(Launch::new(blocks as u32, 256))
}

/// Returns a launch that shares `count` segments among its warps.
#[track_caller]
fn few_segments_per_warp(stream: &Stream, count: usize) -> Result<Launch> {
    if Form::of(stream.device()) == Form::Shares {
        let (blocks, launch) = filling(stream, count)?;
        return Ok(launch(blocks));
    }
    let warps = 256 / stream.device().info().warp_size.max(1) as usize;
    Ok(Launch::new(count.div_ceil(warps).clamp(1, 4 * resident(stream)) as u32, 256))
}
