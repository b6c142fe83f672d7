//! Sum, minimum, maximum and dot product. Each block reduces its share, then one block must reduce the blocks' results.

use std::panic::Location;

use gpustream::half::{bf16, f16};
use gpustream::{AsView, Buffer, CallSite, Device, Error, ErrorKind, Launch, Result, Stream};

use crate::call::filling;

mod bindings {
    gpustream::include_kernels!("reduce");
}
pub use bindings::{HasBlockDot, HasBlockMax, HasBlockMin, HasBlockSum, Kernels};

/// Reductions over whole arrays, loaded on one device.
///
/// Each method returns a buffer with one element, which the device writes in stream order. No method blocks, so you can
/// go on before the result is there.
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

    /// Computes the sum of all elements, or 0 if there are none. We sum `f16` and `bf16` in `f32`.
    ///
    /// # Errors
    /// `DeviceMismatch` if the stream cannot reach the memory, `OutOfMemory` if there is no room for the partial results.
    #[track_caller]
    pub fn sum<T: Reducible>(
        &self,
        stream: &Stream,
        x: &(impl AsView<T> + ?Sized),
    ) -> Result<Buffer<T::Sum>> {
        let x = x.view();
        let (blocks, launch) = filling(stream, x.len())?;
        let mut partial = stream.alloc(blocks)?;
        self.kernels.block_sum(stream, &launch(blocks), &x, &mut partial, x.len())?;
        self.total(stream, partial, &launch(1))
    }

    /// Finds the smallest element, or +∞ if there are none. Skips NaN, like `f32::min`; from −0 and 0 you may get
    /// either.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    #[track_caller]
    pub fn min<T: Reducible>(&self, stream: &Stream, x: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        let x = x.view();
        let (blocks, launch) = filling(stream, x.len())?;
        let mut partial = stream.alloc(blocks)?;
        self.kernels.block_min(stream, &launch(blocks), &x, &mut partial, x.len())?;
        if blocks == 1 {
            return Ok(partial);
        }
        let mut result = stream.alloc(1)?;
        self.kernels.block_min(stream, &launch(1), &partial, &mut result, blocks)?;
        Ok(result)
    }

    /// Finds the largest element, or −∞ if there are none. Skips NaN, like `f32::max`; from −0 and 0 you may get
    /// either.
    ///
    /// # Errors
    /// The errors of [`sum`](Self::sum).
    #[track_caller]
    pub fn max<T: Reducible>(&self, stream: &Stream, x: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        let x = x.view();
        let (blocks, launch) = filling(stream, x.len())?;
        let mut partial = stream.alloc(blocks)?;
        self.kernels.block_max(stream, &launch(blocks), &x, &mut partial, x.len())?;
        if blocks == 1 {
            return Ok(partial);
        }
        let mut result = stream.alloc(1)?;
        self.kernels.block_max(stream, &launch(1), &partial, &mut result, blocks)?;
        Ok(result)
    }

    /// Computes the sum of all products `x[i] * y[i]`, or 0 if there are none. We multiply and sum `f16` and `bf16` in `f32`.
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
            let operation = CallSite { label: "dot", location: Location::caller() };
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!("a dot product of {} and {} elements: give views of one length", x.len(), y.len()),
            )
            .with_call_site(operation));
        }
        let (blocks, launch) = filling(stream, x.len())?;
        let mut partial = stream.alloc(blocks)?;
        self.kernels.block_dot(stream, &launch(blocks), &x, &y, &mut partial, x.len())?;
        self.total(stream, partial, &launch(1))
    }

    /// Sums the blocks' results, if there are several.
    #[track_caller]
    fn total<T: Reducible<Sum = T>>(
        &self,
        stream: &Stream,
        partial: Buffer<T>,
        one_block: &Launch,
    ) -> Result<Buffer<T>> {
        if partial.len() == 1 {
            return Ok(partial);
        }
        let mut result = stream.alloc(1)?;
        self.kernels.block_sum(stream, one_block, &partial, &mut result, partial.len())?;
        Ok(result)
    }
}

/// Element types that [`Reduce`] takes: `f32`, `f64`, `f16`, `bf16`.
pub trait Reducible:
    HasBlockMin + HasBlockMax + HasBlockSum<<Self as Reducible>::Sum> + HasBlockDot<<Self as Reducible>::Sum>
{
    /// The type that we sum in: `f64` for `f64`, otherwise `f32`.
    type Sum: Reducible<Sum = Self::Sum>;
}

impl Reducible for f32 {
    type Sum = f32;
}
impl Reducible for f64 {
    type Sum = f64;
}
impl Reducible for f16 {
    type Sum = f32;
}
impl Reducible for bf16 {
    type Sum = f32;
}
