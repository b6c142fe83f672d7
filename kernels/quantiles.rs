//! Quantiles: the median, the quartiles and all other elements at a part of the way through the sorted elements.

use gpustream::half::{bf16, f16};
use gpustream::{AsView, Buffer, Plain, Result, Stream};

use crate::call::{optional, optional_mut};
use crate::counted::{Elements, Input};
use crate::rank::{Ranked, kind, nan};
use crate::sort::{Sort as _, SortOptions};

mod bindings {
    gpustream::include_kernels!("quantiles");
}
use bindings::Kernels;

/// Quantiles of elements in any order, as methods of [`Stream`].
///
/// `at` has parts of the way, from 0 for the smallest element to 1 for the largest: 0.5 is the median. Position q of n elements is
/// q·(n − 1), counted from 0. If an element is NaN, all quantiles are NaN; they are also NaN if there are no elements, and for a
/// q outside of 0 to 1.
///
/// We sort a copy of the elements, so the time is that of [`sort_into`](crate::sort::Sort::sort_into), and the temporary memory two arrays
/// like `x`. If you want one or two quantiles of a long array, [`kth`](crate::top_k::TopK::kth) takes less. All methods work in stream order, none
/// blocks, and results are the same in every run.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[7.0f32, 1.0, 3.0, 4.0])?;
/// let at = stream.upload(&[0.0, 0.5, 1.0])?;
/// let quantiles = stream.quantiles(&x, &at)?;
/// assert_eq!(stream.download(&quantiles)?, [1.0, 3.5, 7.0]);
/// let nearest = stream.nearest_quantiles(&x, &at)?;
/// assert_eq!(stream.download(&nearest)?, [1.0, 4.0, 7.0]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// The errors of [`sort_into`](crate::sort::Sort::sort_into) and of a launch.
pub trait Quantiles {
    /// Returns for each position the number between the two elements next to it, as NumPy's `quantile` with the method `linear` does. We
    /// compute in `f64` and round once, so integers above 2⁵³ lose digits.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn quantiles<T: Quantile>(
        &self,
        x: &(impl Input<T> + ?Sized),
        at: &(impl AsView<f64> + ?Sized),
    ) -> Result<Buffer<T::Between>>;

    /// Returns for each position the element next to it; if it is in the middle of two, the one with the even number. This is
    /// NumPy's method `nearest`. Instead of NaN you get 0 if the elements are integers.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn nearest_quantiles<T: Quantile>(
        &self,
        x: &(impl Input<T> + ?Sized),
        at: &(impl AsView<f64> + ?Sized),
    ) -> Result<Buffer<T>>;
}

/// Element types that have quantiles: those of [`Key`](crate::Key).
pub trait Quantile: Ranked<Bits: bindings::HasQuantiles> {
    /// The type of a number between two elements: `f32` for floats of up to 32 bits, otherwise `f64`.
    type Between: Plain;
}

macro_rules! quantile {
    ($($element:ty => $between:ty;)*) => {$(
        impl Quantile for $element {
            type Between = $between;
        }
    )*};
}
quantile! {
    f16 => f32;
    bf16 => f32;
    f32 => f32;
    f64 => f64;
    u8 => f64;
    u16 => f64;
    u32 => f64;
    u64 => f64;
    i8 => f64;
    i16 => f64;
    i32 => f64;
    i64 => f64;
}

/// Where quantiles go: elements, or numbers between them.
enum To<'a, T: Quantile> {
    Nearest(&'a mut Buffer<T>),
    Between(&'a mut Buffer<T::Between>),
}

#[track_caller]
fn quantiles<T: Quantile>(
    stream: &Stream,
    x: Elements<'_, T>,
    at: &(impl AsView<f64> + ?Sized),
    to: To<'_, T>,
) -> Result<()> {
    let n = x.values.len();
    let mut sorted = stream.alloc::<T>(n)?;
    stream.sort_into(&x, &mut sorted, &SortOptions::default())?;
    let kernels = stream.device().extension(Kernels::load)?;
    let (mut nearest, mut floats, mut doubles) = (None, None, None);
    match to {
        To::Nearest(to) => nearest = Some(to.cast_mut::<T::Bits>()?),
        To::Between(to) if size_of::<T::Between>() == 4 => floats = Some(to.cast_mut::<f32>()?),
        To::Between(to) => doubles = Some(to.cast_mut::<f64>()?),
    }
    let (sorted, at) = (sorted.cast::<T::Bits>()?, at.view());
    kernels.quantiles(
        stream,
        &sorted,
        n,
        optional(x.count.as_ref()),
        &at,
        at.len(),
        kind::<T>(),
        T::NUMBERS,
        nan::<T>(),
        optional_mut(nearest.as_mut()),
        optional_mut(floats.as_mut()),
        optional_mut(doubles.as_mut()),
    )
}

impl Quantiles for Stream {
    fn quantiles<T: Quantile>(
        &self,
        x: &(impl Input<T> + ?Sized),
        at: &(impl AsView<f64> + ?Sized),
    ) -> Result<Buffer<T::Between>> {
        let mut result = self.alloc(at.view().len())?;
        quantiles(self, x.elements(), at, To::<T>::Between(&mut result))?;
        Ok(result)
    }

    fn nearest_quantiles<T: Quantile>(
        &self,
        x: &(impl Input<T> + ?Sized),
        at: &(impl AsView<f64> + ?Sized),
    ) -> Result<Buffer<T>> {
        let mut result = self.alloc(at.view().len())?;
        quantiles(self, x.elements(), at, To::Nearest(&mut result))?;
        Ok(result)
    }
}
