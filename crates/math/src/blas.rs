//! Matrix products: cuBLAS, hipBLAS, or the crate `gemm` on the CPU device.

mod cpu;
mod gemm;
mod library;

use gpustream::{Device, Result, Stream};

use crate::matrix::{MatrixView, MatrixViewMut};
use crate::number::{Number, Scalar};

pub use gemm::Product;

pub(crate) fn prepare(device: &Device) -> Result<()> {
    library::Library::prepare(device)
}

/// Matrix routines on a stream.
///
/// A call enqueues its work and returns. You can make it in a capture or a replayed step, if the library is open by then (see
/// [`prepare`](crate::prepare)). On the CPU device, a call in a replayed step ends one of its segments.
pub trait Blas {
    /// Computes `c = a b`. Does not block.
    ///
    /// For `f16` and `bf16` the sums are in `f32`, and `c` can have elements of either type. `i8` gives `i32`, whose sums wrap
    /// around. If the matrices are batches, the product is that of each pair; an input with one matrix is the same for all.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (a, b) = (stream.upload(&[1.0, 2.0, 3.0, 4.0])?, stream.upload(&[0.0, 1.0, 1.0, 0.0])?);
    /// let mut c = stream.alloc::<f64>(4)?;
    /// stream.gemm(&MatrixView::new(&a, 2, 2)?, &MatrixView::new(&b, 2, 2)?, MatrixViewMut::new(&mut c, 2, 2)?)?;
    /// assert_eq!(stream.download(&c)?, [2.0, 1.0, 4.0, 3.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if the shapes do not fit together: `a` has to be m×k, `b` k×n
    /// and `c` m×n. [`DeviceMismatch`](gpustream::ErrorKind::DeviceMismatch) if the stream cannot reach the memory.
    /// [`DriverMissing`](gpustream::ErrorKind::DriverMissing) if the vendor's library is not installed,
    /// [`Captured`](gpustream::ErrorKind::Captured) if it is not open yet and the stream is recorded. The library's own errors.
    fn gemm<'a, A: Product<C>, C: 'a>(
        &self,
        a: impl Into<MatrixView<'a, A>>,
        b: impl Into<MatrixView<'a, A>>,
        c: impl Into<MatrixViewMut<'a, C>>,
    ) -> Result<()>;

    /// Computes `c = alpha a b + beta c` with the settings of [`Gemm`]. Does not block.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (a, b) = (stream.upload(&[1.0f32, 2.0])?, stream.upload(&[3.0f32, 4.0])?);
    /// let mut c = stream.full(1, 100.0f32)?;
    /// let (a, b) = (MatrixView::new(&a, 1, 2)?, MatrixView::new(&b, 2, 1)?);
    /// stream.gemm_with(Gemm::new().alpha(2.0).beta(0.5), a, b, MatrixViewMut::new(&mut c, 1, 1)?)?;
    /// assert_eq!(stream.download(&c)?, [2.0 * 11.0 + 50.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`gemm`](Self::gemm). [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if a scalar's view does not have
    /// exactly one element. [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the way to compute does not suit the
    /// elements (see [`Compute`]).
    fn gemm_with<'a, A: Product<C>, C: 'a>(
        &self,
        options: Gemm<'_, A::Scalar>,
        a: impl Into<MatrixView<'a, A>>,
        b: impl Into<MatrixView<'a, A>>,
        c: impl Into<MatrixViewMut<'a, C>>,
    ) -> Result<()>;
}

/// How [`Blas::gemm_with`] scales and computes a product.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a, S> {
    pub(crate) alpha: Scalar<'a, S>,
    pub(crate) beta: Scalar<'a, S>,
    pub(crate) compute: Compute,
}

impl<'a, S: Number> Gemm<'a, S> {
    /// Returns the settings of a plain product: `alpha` is 1, and `beta` is 0.
    pub fn new() -> Self {
        Self { alpha: Scalar::Host(S::ONE), beta: Scalar::Host(S::ZERO), compute: Compute::Full }
    }

    /// Multiplies the product by a number, or by one that is on the device ([`Scalar::Device`]).
    #[must_use]
    pub fn alpha(self, alpha: impl Into<Scalar<'a, S>>) -> Self {
        Self { alpha: alpha.into(), ..self }
    }

    /// Adds the result's old elements, multiplied by a number. If that is 0 and known on the host, the old elements are not
    /// read, so they may be unwritten or NaN.
    #[must_use]
    pub fn beta(self, beta: impl Into<Scalar<'a, S>>) -> Self {
        Self { beta: beta.into(), ..self }
    }

    /// Chooses how to compute the product.
    #[must_use]
    pub fn compute(self, compute: Compute) -> Self {
        Self { compute, ..self }
    }
}

impl<S: Number> Default for Gemm<'_, S> {
    fn default() -> Self {
        Self::new()
    }
}

/// How exactly a product is computed. What is less than [`Full`](Self::Full) is a permission: a device without such units computes
/// more exactly, and so does the CPU device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compute {
    /// With all digits of the elements. The sums of `f16` and `bf16` are in `f32`.
    #[default]
    Full,
    /// May round `f32` and `Complex<f32>` to TF32 before multiplying: 10 bits of mantissa, as many as `f16`.
    Tf32,
    /// May sum products of `f16` in `f16`. For this, both inputs and the result must be `f16`, and scalars known on the host.
    F16,
}

impl Blas for Stream {
    #[track_caller]
    fn gemm<'a, A: Product<C>, C: 'a>(
        &self,
        a: impl Into<MatrixView<'a, A>>,
        b: impl Into<MatrixView<'a, A>>,
        c: impl Into<MatrixViewMut<'a, C>>,
    ) -> Result<()> {
        A::multiply(self, Gemm::new(), a.into(), b.into(), c.into())
    }

    #[track_caller]
    fn gemm_with<'a, A: Product<C>, C: 'a>(
        &self,
        options: Gemm<'_, A::Scalar>,
        a: impl Into<MatrixView<'a, A>>,
        b: impl Into<MatrixView<'a, A>>,
        c: impl Into<MatrixViewMut<'a, C>>,
    ) -> Result<()> {
        A::multiply(self, options, a.into(), b.into(), c.into())
    }
}
