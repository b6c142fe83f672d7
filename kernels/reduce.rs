//! Sums, minima, maxima and other single values of whole arrays. [`reduce_parts`](crate::reduce_parts) has those of rows, columns
//! and segments.

pub(crate) mod shape;

use std::sync::Arc;

use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Launch, Plain, Result, Stream, Zeroable as _};

use crate::call::{mismatch, optional, optional_mut};
use crate::counted::{Elements, Input};
use crate::number::Number;
use crate::order::Order;
use crate::rank::{Ranked, Ranks, bits_of_nonzero, first_is_largest};

use shape::Shape;

mod bindings {
    gpustream::include_kernels!("reduce");
}
use bindings::{
    HasBestOf, HasBlockBest, HasBlockDot, HasBlockMoments, HasBlockNonzero, HasBlockSum, HasMomentsOfBlocks,
    Kernels,
};

/// Reductions on a stream.
///
/// Each method returns new buffers, which the device writes in stream order, so you can go on before the result is there. You
/// get the same bits in every run with the same device, lengths and offsets. No method needs more temporary memory than a
/// few values per block. An array is read once.
///
/// We sum `f16` and `bf16` in `f32`, and integers in `i64` or `u64`, where they may wrap around. Minima and maxima skip NaN,
/// like [`f32::min`]. They take −0 for smaller than 0.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[3.0f32, -1.0, f32::NAN, 7.0])?;
/// let (least, at) = stream.arg_min(&x)?;
/// assert_eq!((stream.download(&least)?, stream.download(&at)?), (vec![-1.0], vec![1]));
/// # Ok::<(), gpustream::Error>(())
/// ```
pub trait Reduce {
    /// Computes the sum of all elements, or 0 if there are none.
    ///
    /// # Errors
    /// `DeviceMismatch` if the stream cannot reach the memory, `OutOfMemory` if there is no room for the partial results.
    fn sum<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<T::Sum>>;

    /// Finds the smallest element, without NaN. If there is none, the result is +∞, or the largest integer.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn min<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<T>>;

    /// Finds the largest element, without NaN. If there is none, the result is −∞, or the smallest integer.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn max<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<T>>;

    /// Finds the smallest element and its index, without NaN: the lowest index if there are several. If all are NaN, the index is
    /// 0, and if there are no elements, it is [`u64::MAX`]. The value is then that of [`min`](Self::min).
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn arg_min<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<(Buffer<T>, Buffer<u64>)>;

    /// Finds the largest element and its index, as [`arg_min`](Self::arg_min) finds the smallest.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn arg_max<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<(Buffer<T>, Buffer<u64>)>;

    /// Computes the sum of all products `x[i] * y[i]`, or 0 if there are none. We multiply `f16` and `bf16` in `f32`.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if the lengths differ. The errors of
    /// [`sum`](Self::sum).
    fn dot<T: Fractional>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &(impl Input<T> + ?Sized),
    ) -> Result<Buffer<T::Sum>>;

    /// Computes the mean, and the variance: the mean of the squared distances from the mean. Reads the elements once, but loses
    /// no digits if the mean is large (`reduce.cu` names the source). Without elements both are NaN. For the variance of a
    /// population of which you have a sample, multiply by `n / (n - 1)`.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn mean_and_variance<T: Fractional>(&self, x: &(impl Input<T> + ?Sized)) -> Result<[Buffer<T::Sum>; 2]>;

    /// Counts the elements that are not zero. −0 is zero, NaN is not.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn count_nonzero<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<u64>>;

    /// Finds out whether any element is not zero: 1 or 0. Without elements it is 0.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn any<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<u8>>;

    /// Finds out whether all elements are not zero: 1 or 0. Without elements it is 1.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    fn all<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<u8>>;
}

/// Element types that [`Reduce`] takes: all integers of 8 to 64 bits, `f16`, `bf16`, `f32` and `f64`.
pub trait Reducible: Ranked<Bits: BestKernels> + Number<Seen: SumKernels<Self::SeenSum>> {
    /// The type that we sum in: `f64` for `f64`, `f32` for the other floats, `i64` for signed and `u64` for unsigned integers.
    type Sum: Plain;
    /// The type that kernels see, with the bits of a sum.
    #[doc(hidden)]
    type SeenSum: SumKernels<Self::SeenSum>;
    /// A signed integer's top bit, otherwise 0.
    #[doc(hidden)]
    const TOP: Self::SeenSum;
}

/// What is summed as `Sum`.
#[doc(hidden)]
pub trait SumKernels<Sum: Plain>: HasBlockSum<Sum> {}
impl<Sum: Plain, T: HasBlockSum<Sum>> SumKernels<Sum> for T {}

/// Element types of [`Reduce::dot`] and [`Reduce::mean_and_variance`]: `f16`, `bf16`, `f32` and `f64`.
pub trait Fractional:
    Reducible<Sum: HasMomentsOfBlocks + HasBlockSum<Self::Sum>>
    + HasBlockDot<<Self as Reducible>::Sum>
    + HasBlockMoments<<Self as Reducible>::Sum>
{
}
impl Fractional for f32 {}
impl Fractional for f64 {}
impl Fractional for f16 {}
impl Fractional for bf16 {}

/// Integers that stand for keys.
#[doc(hidden)]
pub trait BestKernels: HasBlockBest + HasBestOf + HasBlockNonzero {}
impl<B: HasBlockBest + HasBestOf + HasBlockNonzero> BestKernels for B {}

macro_rules! reducible {
    ($($type:ty: $sum:ty as $seen_sum:ty, $top:expr;)*) => {$(
        impl Reducible for $type {
            type Sum = $sum;
            type SeenSum = $seen_sum;
            const TOP: $seen_sum = $top;
        }
    )*};
}
reducible! {
    f32: f32 as f32, 0.0;
    f64: f64 as f64, 0.0;
    f16: f32 as f32, 0.0;
    bf16: f32 as f32, 0.0;
    u8: u64 as u64, 0;
    u16: u64 as u64, 0;
    u32: u64 as u64, 0;
    u64: u64 as u64, 0;
    i8: i64 as u64, 1 << 7;
    i16: i64 as u64, 1 << 15;
    i32: i64 as u64, 1 << 31;
    i64: i64 as u64, 1 << 63;
}

impl Reduce for Stream {
    #[track_caller]
    fn sum<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<T::Sum>> {
        let Elements { values, count } = x.elements();
        let shape = Shape::of(self, &values)?;
        let kernels = kernels(self)?;
        let values = values.cast::<T::Seen>()?;
        let mut sum = self.alloc::<T::Sum>(1)?;
        let count = optional(count.as_ref());
        let seen = &mut sum.cast_mut::<T::SeenSum>()?;
        if shape.blocks == 1 {
            kernels.block_sum(self, &shape.launch, &values, count, values.len(), T::TOP, seen)?;
            return Ok(sum);
        }
        let mut partial = self.alloc::<T::SeenSum>(shape.blocks)?;
        kernels.block_sum(self, &shape.launch, &values, count, values.len(), T::TOP, &mut partial)?;
        kernels.block_sum(self, &shape.last, &partial, None, shape.blocks, T::SeenSum::zeroed(), seen)?;
        Ok(sum)
    }

    #[track_caller]
    fn min<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<T>> {
        Ok(best(self, &x.elements(), Order::Ascending, false)?.0)
    }

    #[track_caller]
    fn max<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<T>> {
        Ok(best(self, &x.elements(), Order::Descending, false)?.0)
    }

    #[track_caller]
    fn arg_min<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<(Buffer<T>, Buffer<u64>)> {
        best(self, &x.elements(), Order::Ascending, true)
    }

    #[track_caller]
    fn arg_max<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<(Buffer<T>, Buffer<u64>)> {
        best(self, &x.elements(), Order::Descending, true)
    }

    #[track_caller]
    fn dot<T: Fractional>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &(impl Input<T> + ?Sized),
    ) -> Result<Buffer<T::Sum>> {
        let (Elements { values: x, count }, Elements { values: y, count: other_count }) =
            (x.elements(), y.elements());
        if x.len() != y.len() {
            let text =
                format!("a dot product of {} and {} elements: give views of one length", x.len(), y.len());
            return Err(mismatch("dot", text));
        }
        let shape = Shape::of(self, &x)?;
        let kernels = kernels(self)?;
        let mut partial = self.alloc(shape.blocks)?;
        kernels.block_dot(
            self,
            &shape.launch,
            &x,
            &y,
            optional(count.as_ref()),
            optional(other_count.as_ref()),
            x.len(),
            &mut partial,
        )?;
        if shape.blocks == 1 {
            return Ok(partial);
        }
        let mut dot = self.alloc(1)?;
        kernels.block_sum(self, &shape.last, &partial, None, shape.blocks, T::Sum::zeroed(), &mut dot)?;
        Ok(dot)
    }

    #[track_caller]
    fn mean_and_variance<T: Fractional>(&self, x: &(impl Input<T> + ?Sized)) -> Result<[Buffer<T::Sum>; 2]> {
        let Elements { values, count } = x.elements();
        let shape = Shape::of(self, &values)?;
        let kernels = kernels(self)?;
        let mut partial = self.alloc(3 * shape.blocks)?;
        let count = optional(count.as_ref());
        kernels.block_moments(self, &shape.launch, &values, count, values.len(), &mut partial)?;
        let (mut mean, mut variance) = (self.alloc(1)?, self.alloc(1)?);
        kernels.moments_of_blocks(self, &shape.last, &partial, shape.blocks, &mut mean, &mut variance)?;
        Ok([mean, variance])
    }

    #[track_caller]
    fn count_nonzero<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<u64>> {
        nonzero(self, &x.elements())
    }

    #[track_caller]
    fn any<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<u8>> {
        judge(self, &x.elements(), false)
    }

    #[track_caller]
    fn all<T: Reducible>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Buffer<u8>> {
        judge(self, &x.elements(), true)
    }
}

#[track_caller]
fn kernels(stream: &Stream) -> Result<Arc<Kernels>> {
    stream.device().extension(Kernels::load)
}

/// Finds the first element in an order, and its index if you want it; otherwise the second buffer is empty.
#[track_caller]
fn best<T: Reducible>(
    stream: &Stream,
    x: &Elements<'_, T>,
    order: Order,
    with_index: bool,
) -> Result<(Buffer<T>, Buffer<u64>)> {
    let keys = x.values.cast::<T::Bits>()?;
    let count = optional(x.count.as_ref());
    let shape = Shape::of(stream, &keys)?;
    let kernels = kernels(stream)?;
    let Ranks { if_set, if_clear, numbers, nothing } = first_is_largest::<T>(order);
    let mut value = stream.alloc::<T>(1)?;
    let mut index = stream.alloc(usize::from(with_index))?;
    let seen = &mut value.cast_mut::<T::Bits>()?;
    let has_blocks = shape.blocks > 1;
    let mut ranks = stream.alloc::<T::Bits>(if has_blocks { shape.blocks } else { 0 })?;
    let mut places = stream.alloc(ranks.len())?;
    kernels.block_best(
        stream,
        &shape.launch,
        &keys,
        count,
        keys.len(),
        if_set,
        if_clear,
        numbers,
        nothing,
        optional_mut(has_blocks.then_some(&mut ranks)),
        optional_mut(has_blocks.then_some(&mut places)),
        seen,
        optional_mut(with_index.then_some(&mut index)),
    )?;
    if has_blocks {
        kernels.best_of(
            stream,
            &shape.last,
            &ranks,
            &places,
            shape.blocks,
            if_set,
            if_clear,
            nothing,
            seen,
            optional_mut(with_index.then_some(&mut index)),
        )?;
    }
    Ok((value, index))
}

#[track_caller]
fn nonzero<T: Reducible>(stream: &Stream, x: &Elements<'_, T>) -> Result<Buffer<u64>> {
    let keys = x.values.cast::<T::Bits>()?;
    let count = optional(x.count.as_ref());
    let shape = Shape::of(stream, &keys)?;
    let kernels = kernels(stream)?;
    let mut partial = stream.alloc(shape.blocks)?;
    kernels.block_nonzero(
        stream,
        &shape.launch,
        &keys,
        count,
        keys.len(),
        bits_of_nonzero::<T>(),
        &mut partial,
    )?;
    if shape.blocks == 1 {
        return Ok(partial);
    }
    let mut total = stream.alloc(1)?;
    kernels.block_sum(stream, &shape.last, &partial, None, shape.blocks, 0, &mut total)?;
    Ok(total)
}

#[track_caller]
fn judge<T: Reducible>(stream: &Stream, x: &Elements<'_, T>, all: bool) -> Result<Buffer<u8>> {
    let found = nonzero(stream, x)?;
    let mut verdict = stream.alloc(1)?;
    let count = optional(x.count.as_ref());
    let kernels = kernels(stream)?;
    let one = Launch::new(1, 1);
    kernels.judge(stream, &one, &found, count, x.values.len(), u32::from(all), &mut verdict)?;
    Ok(verdict)
}
