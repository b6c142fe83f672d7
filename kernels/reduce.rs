//! Sum, minimum, maximum and dot product: each block reduces its share, then one block reduces the blocks' results.

use bytemuck::Pod;
use gpustream::half::{bf16, f16};
use gpustream::{AsView, AsViewMut, Buffer, Device, Error, ErrorKind, Result, Stream, View, ViewMut};

use crate::call::{self, shares};

mod bindings {
    gpustream::include_kernels!("reduce");
}
pub use bindings::Kernels;

/// Reductions of whole arrays, loaded on one device.
///
/// Each method returns a buffer of one element, written in stream order: no method blocks.
#[derive(Debug)]
pub struct Reduce {
    kernels: Kernels,
}

impl Reduce {
    /// Loads the kernels.
    ///
    /// # Errors
    /// The errors of [`Device::load_module`].
    pub fn load(device: &Device) -> Result<Self> {
        Ok(Self { kernels: Kernels::load(device)? })
    }

    /// Computes the sum of all elements, or 0 if there are none. `f16` and `bf16` are summed in `f32`.
    ///
    /// # Errors
    /// `DeviceMismatch` for memory that the stream cannot reach, `OutOfMemory` if the partial results find no room.
    #[track_caller]
    pub fn sum<T: Reducible>(
        &self,
        stream: &Stream,
        x: &(impl AsView<T> + ?Sized),
    ) -> Result<Buffer<T::Sum>> {
        self.in_two_steps(stream, x.view(), T::sum, T::Sum::sum)
    }

    /// Finds the smallest element, or +∞ if there are none. NaN is skipped, as in `f32::min`; of −0 and 0, either may
    /// result.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    #[track_caller]
    pub fn min<T: Reducible>(&self, stream: &Stream, x: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        self.in_two_steps(stream, x.view(), T::min, T::min)
    }

    /// Finds the largest element, or −∞ if there are none. NaN is skipped, as in `f32::max`; of −0 and 0, either may
    /// result.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    #[track_caller]
    pub fn max<T: Reducible>(&self, stream: &Stream, x: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        self.in_two_steps(stream, x.view(), T::max, T::max)
    }

    /// Computes the sum of all products `x[i] * y[i]`, or 0 if there are none. `f16` and `bf16` are multiplied and
    /// summed in `f32`.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ.
    #[track_caller]
    pub fn dot<T: Reducible>(
        &self,
        stream: &Stream,
        x: &(impl AsView<T> + ?Sized),
        y: &(impl AsView<T> + ?Sized),
    ) -> Result<Buffer<T::Sum>> {
        let (x, y) = (x.view(), y.view());
        if x.len() != y.len() {
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!("a dot product of {} and {} elements: give views of one length", x.len(), y.len()),
            ));
        }
        self.in_two_steps(stream, x, |call, x, partial| T::dot(call, x, y, partial), T::Sum::sum)
    }

    /// Runs `first` over all elements, and `second` over its blocks' results if there are several.
    #[track_caller]
    fn in_two_steps<T: Pod, U: Pod>(
        &self,
        stream: &Stream,
        x: View<'_, T>,
        first: impl FnOnce(&Call<'_>, View<'_, T>, ViewMut<'_, U>) -> Result<()>,
        second: impl FnOnce(&Call<'_>, View<'_, U>, ViewMut<'_, U>) -> Result<()>,
    ) -> Result<Buffer<U>> {
        let (blocks, call) = shares(&self.kernels, stream, x.len())?;
        let mut partial = stream.alloc::<U>(blocks)?;
        first(&call(blocks), x, partial.view_mut())?;
        if blocks == 1 {
            return Ok(partial);
        }
        let mut result = stream.alloc::<U>(1)?;
        second(&call(1), partial.view(), result.view_mut())?;
        Ok(result)
    }
}

#[doc(hidden)]
pub type Call<'a> = call::Call<'a, Kernels>;

/// Element types that [`Reduce`] takes: `f32`, `f64`, `f16`, `bf16`. The methods launch one kernel each; call those
/// of [`Reduce`].
pub trait Reducible: Pod + sealed::Sealed {
    /// The type in which sums are computed: `f64` for `f64`, otherwise `f32`.
    type Sum: Reducible<Sum = Self::Sum>;

    #[doc(hidden)]
    #[track_caller]
    fn sum(call: &Call<'_>, x: View<'_, Self>, partial: ViewMut<'_, Self::Sum>) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn min(call: &Call<'_>, x: View<'_, Self>, partial: ViewMut<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn max(call: &Call<'_>, x: View<'_, Self>, partial: ViewMut<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn dot(
        call: &Call<'_>,
        x: View<'_, Self>,
        y: View<'_, Self>,
        partial: ViewMut<'_, Self::Sum>,
    ) -> Result<()>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! reducible {
    ($type:ty, $sum_type:ty: $sum:ident, $min:ident, $max:ident, $dot:ident) => {
        impl sealed::Sealed for $type {}
        impl Reducible for $type {
            type Sum = $sum_type;

            fn sum(call: &Call<'_>, x: View<'_, Self>, mut partial: ViewMut<'_, $sum_type>) -> Result<()> {
                call.kernels.$sum(call.stream, &call.launch, &x, &mut partial, x.len())
            }
            fn min(call: &Call<'_>, x: View<'_, Self>, mut partial: ViewMut<'_, Self>) -> Result<()> {
                call.kernels.$min(call.stream, &call.launch, &x, &mut partial, x.len())
            }
            fn max(call: &Call<'_>, x: View<'_, Self>, mut partial: ViewMut<'_, Self>) -> Result<()> {
                call.kernels.$max(call.stream, &call.launch, &x, &mut partial, x.len())
            }
            fn dot(
                call: &Call<'_>,
                x: View<'_, Self>,
                y: View<'_, Self>,
                mut partial: ViewMut<'_, $sum_type>,
            ) -> Result<()> {
                call.kernels.$dot(call.stream, &call.launch, &x, &y, &mut partial, x.len())
            }
        }
    };
}
reducible!(f32, f32: sum_f32, min_f32, max_f32, dot_f32);
reducible!(f64, f64: sum_f64, min_f64, max_f64, dot_f64);
reducible!(f16, f32: sum_f16, min_f16, max_f16, dot_f16);
reducible!(bf16, f32: sum_bf16, min_bf16, max_bf16, dot_bf16);
