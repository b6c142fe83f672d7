//! Sum, minimum, maximum and dot product: each block reduces its share, then one block reduces the blocks' results.

use bytemuck::Pod;
use gpustream::hal::LaunchConfig;
use gpustream::half::{bf16, f16};
use gpustream::{AsView, AsViewMut, Buffer, Device, Error, ErrorKind, Launch, Result, Stream, View, ViewMut};

mod bindings {
    gpustream::include_kernels!("reduce");
}
pub use bindings::Kernels;

/// The number of elements that are worth a thread of their own.
const PER_THREAD: usize = 16;

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
        let x = x.view();
        self.in_two_steps(
            stream,
            x.len(),
            |call, partial| T::sum(call, x, partial),
            |call, partial, result| T::Sum::sum(call, partial, result),
        )
    }

    /// Finds the smallest element, or +∞ if there are none. NaN is skipped, as in `f32::min`; of −0 and 0, either may
    /// result.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    #[track_caller]
    pub fn min<T: Reducible>(&self, stream: &Stream, x: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        let x = x.view();
        self.in_two_steps(
            stream,
            x.len(),
            |call, partial| T::min(call, x, partial),
            |call, partial, result| T::min(call, partial, result),
        )
    }

    /// Finds the largest element, or −∞ if there are none. NaN is skipped, as in `f32::max`; of −0 and 0, either may
    /// result.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    #[track_caller]
    pub fn max<T: Reducible>(&self, stream: &Stream, x: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        let x = x.view();
        self.in_two_steps(
            stream,
            x.len(),
            |call, partial| T::max(call, x, partial),
            |call, partial, result| T::max(call, partial, result),
        )
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
        self.in_two_steps(
            stream,
            x.len(),
            |call, partial| T::dot(call, x, y, partial),
            |call, partial, result| T::Sum::sum(call, partial, result),
        )
    }

    /// Runs `first` over `n` elements, and `second` over its blocks' results if there are several.
    #[track_caller]
    fn in_two_steps<T: Reducible>(
        &self,
        stream: &Stream,
        n: usize,
        first: impl FnOnce(&Call<'_>, ViewMut<'_, T>) -> Result<()>,
        second: impl FnOnce(&Call<'_>, View<'_, T>, ViewMut<'_, T>) -> Result<()>,
    ) -> Result<Buffer<T>> {
        let LaunchConfig { grid, block, .. } = Launch::filling(n.max(1)).resolve(stream.device().info())?;
        let blocks = n.div_ceil(PER_THREAD * block[0] as usize).clamp(1, grid[0] as usize) as u32;
        let call =
            |blocks| Call { kernels: &self.kernels, stream, launch: Launch::new([blocks, 1, 1], block) };
        let mut partial = stream.alloc::<T>(blocks as usize)?;
        first(&call(blocks), partial.view_mut())?;
        if blocks == 1 {
            return Ok(partial);
        }
        let mut result = stream.alloc::<T>(1)?;
        second(&call(1), partial.view(), result.view_mut())?;
        Ok(result)
    }
}

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

/// The kernels, the stream and the shape of a launch.
#[doc(hidden)]
#[derive(Debug)]
pub struct Call<'a> {
    kernels: &'a Kernels,
    stream: &'a Stream,
    launch: Launch,
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
