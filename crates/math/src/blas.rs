//! Matrices and vectors: cuBLAS, hipBLAS, or the crate `gemm` and plain loops on the CPU device.

mod addresses;
mod call;
mod conjugate;
mod cpu;
mod cpu_routines;
mod each;
mod epilogue;
mod field;
mod gemm;
mod library;
mod lt;
mod product;
mod rotation;
mod routines;
mod typed;

use gpustream::{Buffer, Device, Result, Stream, View};

use crate::matrix::{MatrixView, MatrixViewMut};
use crate::number::{Number, Scalar};
use crate::vector::{VectorView, VectorViewMut};

pub use epilogue::{Activation, Finished};
pub use field::Field;
pub use product::Product;
pub use rotation::Rotation;

use cpu_routines::Reduction;
use epilogue::Epilogue;
use routines::Triangular;

pub(crate) fn prepare(device: &Device) -> Result<()> {
    library::Library::prepare(device)
}

/// Matrix routines on a stream.
///
/// A call enqueues its work and returns. You can make it in a capture or a replayed step, if the library is open by then (see
/// [`prepare`](crate::prepare())). On the CPU device, a call in a replayed step ends one of its segments.
pub trait Blas {
    /// Computes `c = a b`. Does not block.
    ///
    /// For `f16` and `bf16` the sums are in `f32`, and `c` can have elements of either type. `i8` gives `i32`, whose sums wrap
    /// around. If the matrices are batches, the product is that of each pair; an input with one matrix is the same for all. Inputs
    /// can be transposed ([`MatrixView::t`]) or conjugated too ([`MatrixView::h`]).
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

    /// Computes `c = alpha a b + beta c` with the settings of [`Gemm`], which can add a bias and an activation. Does not block.
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
    /// exactly one element, or the bias not one for each column. [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the
    /// way to compute does not suit the elements (see [`Compute`]). [`Unsupported`](gpustream::ErrorKind::Unsupported) for a bias
    /// or an activation on a GPU, if this crate was built without its feature `kernels` and the library cannot do it alone.
    fn gemm_with<'a, A: Product<C>, C: 'a>(
        &self,
        options: Gemm<'_, A::Scalar, C>,
        a: impl Into<MatrixView<'a, A>>,
        b: impl Into<MatrixView<'a, A>>,
        c: impl Into<MatrixViewMut<'a, C>>,
    ) -> Result<()>;

    /// Computes `c[i] = alpha a[i] b[i] + beta c[i]` for matrices anywhere in memory, with the settings of [`Gemm`]. If `a` or `b` is
    /// one matrix, it is the same for all.
    ///
    /// If all matrices of `a`, all of `b` and all of `c` have one shape, order and leading dimension, and there is no bias or
    /// activation, this is one call of the vendor's library. Otherwise the products are enqueued one after another, as on the CPU
    /// device. If the matrices are evenly spaced in one buffer, [`Layout::batch`](crate::Layout::batch) needs no addresses.
    ///
    /// Does not block, with one exception: the library reads the addresses in device memory, and a device keeps the last 64 lists of
    /// them. If a list is new and the stream is recorded, the call blocks until the addresses are copied.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (x, y) = (stream.upload(&[1.0, 2.0, 3.0, 4.0])?, stream.upload(&[0.0, 1.0, 1.0, 0.0])?);
    /// let (mut u, mut v) = (stream.alloc::<f64>(4)?, stream.alloc::<f64>(4)?);
    /// let (x, y) = (MatrixView::new(&x, 2, 2)?, MatrixView::new(&y, 2, 2)?);
    /// let mut results = [MatrixViewMut::new(&mut u, 2, 2)?, MatrixViewMut::new(&mut v, 2, 2)?];
    /// stream.gemm_each(Gemm::new(), &[x, y], &[y], &mut results)?;
    /// assert_eq!(stream.download(&u)?, [2.0, 1.0, 4.0, 3.0]);
    /// assert_eq!(stream.download(&v)?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`gemm_with`](Self::gemm_with); then nothing is enqueued if the shapes do not fit.
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are not as many inputs as results, or one.
    fn gemm_each<A: Product<C>, C>(
        &self,
        options: Gemm<'_, A::Scalar, C>,
        a: &[MatrixView<'_, A>],
        b: &[MatrixView<'_, A>],
        c: &mut [MatrixViewMut<'_, C>],
    ) -> Result<()>;

    /// Computes `y = alpha a x + beta y`. Does not block.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (a, x) = (stream.upload(&[1.0f32, 2.0, 3.0, 4.0])?, stream.upload(&[1.0f32, 10.0])?);
    /// let mut y = stream.alloc::<f32>(2)?;
    /// stream.gemv(1.0, MatrixView::new(&a, 2, 2)?, &x, 0.0, &mut y)?;
    /// assert_eq!(stream.download(&y)?, [21.0, 43.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if the shapes do not fit together, a scalar's view does not
    /// have exactly one element, or a matrix is a batch. [`Unsupported`](gpustream::ErrorKind::Unsupported) if a number is more
    /// than the vendor's library can take. Otherwise as for [`gemm`](Self::gemm).
    fn gemv<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        a: impl Into<MatrixView<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        beta: impl Into<Scalar<'a, T>>,
        y: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()>;

    /// Adds the product of a column and a row: `a += alpha x yᵀ`. Does not block. Complex numbers are not conjugated.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn ger<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        a: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Adds the product of a column and a conjugated row: `a += alpha x yᴴ`. For real numbers this is [`ger`](Self::ger). Does not
    /// block.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn gerc<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        a: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes one triangle of `c = alpha a aᵀ + beta c`. The other triangle stays as it is. Does not block. Complex numbers are
    /// not conjugated.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn syrk<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        a: impl Into<MatrixView<'a, T>>,
        beta: impl Into<Scalar<'a, T>>,
        triangle: Triangle,
        c: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes one triangle of `c = alpha a aᴴ + beta c`, which is Hermitian: the diagonal is real, and imaginary parts that were
    /// there are taken as 0. The other triangle stays as it is. Both factors are real. For real numbers this is
    /// [`syrk`](Self::syrk). Does not block.
    ///
    /// ```
    /// use gpustream_math::{Complex, prelude::*};
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let a = stream.upload(&[Complex::new(3.0f32, 4.0)])?;
    /// let mut c = stream.alloc(1)?;
    /// let a = MatrixView::new(&a, 1, 1)?;
    /// stream.herk(2.0, a, 0.0, Triangle::Lower, MatrixViewMut::new(&mut c, 1, 1)?)?;
    /// assert_eq!(stream.download(&c)?, [Complex::from(50.0)]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn herk<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T::Real>>,
        a: impl Into<MatrixView<'a, T>>,
        beta: impl Into<Scalar<'a, T::Real>>,
        triangle: Triangle,
        c: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Solves `a x = alpha b` for a triangular matrix `a`, and overwrites `b` with `x`. The other triangle of `a` is not read. Does
    /// not block. A zero on the diagonal gives infinities and NaN.
    ///
    /// For `x a = alpha b`, transpose both matrices, and name the other triangle.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (a, mut b) = (stream.upload(&[2.0, f64::NAN, 1.0, 4.0])?, stream.upload(&[6.0, 11.0])?);
    /// let a = MatrixView::new(&a, 2, 2)?;                 // 2 0, then 1 4
    /// stream.trsm(1.0, Triangle::Lower, Diagonal::Stored, a, MatrixViewMut::new(&mut b, 2, 1)?)?;
    /// assert_eq!(stream.download(&b)?, [3.0, 2.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn trsm<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        triangle: Triangle,
        diagonal: Diagonal,
        a: impl Into<MatrixView<'a, T>>,
        b: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes `b = alpha a b` for a triangular matrix `a`. The other triangle of `a` is not read. Does not block.
    ///
    /// For `b = alpha b a`, transpose both matrices, and name the other triangle.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn trmm<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        triangle: Triangle,
        diagonal: Diagonal,
        a: impl Into<MatrixView<'a, T>>,
        b: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes the sum of all products `x[i] y[i]`, as a buffer of one element. Does not block. Complex numbers are not
    /// conjugated.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let x = stream.upload(&[1.0f32, 2.0, 3.0])?;
    /// assert_eq!(stream.download(&stream.blas_dot(&x, &x)?)?, [14.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn blas_dot<'a, T: Field>(
        &self,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
    ) -> Result<Buffer<T>>;

    /// Computes the sum of all products of `x[i]`, conjugated, and `y[i]`, as a buffer of one element. For real numbers this is
    /// [`blas_dot`](Self::blas_dot). Does not block.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn blas_dotc<'a, T: Field>(
        &self,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
    ) -> Result<Buffer<T>>;

    /// Computes the Euclidean norm, as a buffer of one element. It does not overflow if the norm itself does not. Does not block.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn nrm2<'a, T: Field>(&self, x: impl Into<VectorView<'a, T>>) -> Result<Buffer<T::Real>>;

    /// Computes the sum of the absolute values of all real and imaginary parts, as a buffer of one element. Does not block.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn asum<'a, T: Field>(&self, x: impl Into<VectorView<'a, T>>) -> Result<Buffer<T::Real>>;

    /// Finds the element with the largest sum of absolute parts, the first if there are several. The buffer's one element is its
    /// index, **counted from 1** as in all BLAS libraries, or 0 if there are no elements. Does not block. With NaN among the
    /// elements the index may be any.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn iamax<'a, T: Field>(&self, x: impl Into<VectorView<'a, T>>) -> Result<Buffer<i32>>;

    /// Computes `y += alpha x`. Does not block.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn axpy<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()>;

    /// Rotates the vectors (a Givens rotation): `x` becomes `cosine x + sine y`, and `y` becomes `cosine y - s x`, where `s` is the
    /// sine, conjugated if it is complex. The cosine is real. Does not block.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// // The rotation that turns (3, 4) into (5, 0).
    /// let (mut x, mut y) = (stream.upload(&[3.0f64, 1.0])?, stream.upload(&[4.0f64, 0.0])?);
    /// stream.rot(0.6, 0.8, &mut x, &mut y)?;
    /// let (x, y) = (stream.download(&x)?, stream.download(&y)?);
    /// assert!((x[0] - 5.0).abs() < 1e-12 && y[0].abs() < 1e-12 && (y[1] + 0.8).abs() < 1e-12);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn rot<'a, T: Field>(
        &self,
        cosine: impl Into<Scalar<'a, T::Real>>,
        sine: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorViewMut<'a, T>>,
        y: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()>;

    /// Makes the Givens rotation that turns the vector (`a`, `b`) into (r, 0). Both coordinates are views of one element, and the
    /// rotation stays on the device. Does not block.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (mut x, mut y) = (stream.upload(&[3.0f64, 1.0])?, stream.upload(&[4.0f64, 0.0])?);
    /// let rotation = stream.rotg(x.slice(..1)?, y.slice(..1)?)?;
    /// stream.rot(rotation.cosine(), rotation.sine(), &mut x, &mut y)?;
    /// let (x, y) = (stream.download(&x)?, stream.download(&y)?);
    /// assert!((x[0] - 5.0).abs() < 1e-12 && y[0].abs() < 1e-12 && (y[1] + 0.8).abs() < 1e-12);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if a view does not have exactly one element. Otherwise as for
    /// [`gemv`](Self::gemv).
    fn rotg<T: Field>(&self, a: View<'_, T>, b: View<'_, T>) -> Result<Rotation<T>>;

    /// Computes `x *= alpha`. Does not block.
    ///
    /// # Errors
    /// As for [`gemv`](Self::gemv).
    fn scal<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()>;
}

/// One half of a square matrix, with the diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// The elements whose column is not greater than their row.
    Lower,
    /// The elements whose row is not greater than their column.
    Upper,
}

/// What is on the diagonal of a triangular matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Diagonal {
    /// The elements that are stored there.
    Stored,
    /// Ones. What is stored there is not read.
    Ones,
}

/// How [`Blas::gemm_with`] scales and computes a product with results of type `C`, and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a, S, C> {
    pub(crate) alpha: Scalar<'a, S>,
    pub(crate) beta: Scalar<'a, S>,
    pub(crate) compute: Compute,
    pub(crate) epilogue: Option<Epilogue<'a, C>>,
}

impl<'a, S: Number, C> Gemm<'a, S, C> {
    /// Returns the settings of a plain product: `alpha` is 1, and `beta` is 0.
    pub fn new() -> Self {
        let (alpha, beta) = (Scalar::Host(S::ONE), Scalar::Host(S::ZERO));
        Self { alpha, beta, compute: Compute::Full, epilogue: None }
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

impl<'a, S: Number, C: Finished> Gemm<'a, S, C> {
    /// Adds an element of `bias` to all elements of each column, after the old elements. It has as many elements as the result has
    /// columns.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (x, bias) = (stream.upload(&[1.0f32, 2.0, 3.0, 4.0])?, stream.upload(&[-8.0f32, 1.0])?);
    /// let mut y = stream.alloc::<f32>(4)?;
    /// let x = MatrixView::new(&x, 2, 2)?;
    /// let layer = Gemm::new().bias(&bias).activation(Activation::Relu);
    /// stream.gemm_with(layer, x, x, MatrixViewMut::new(&mut y, 2, 2)?)?;
    /// assert_eq!(stream.download(&y)?, [0.0, 11.0, 7.0, 23.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    #[must_use]
    pub fn bias(self, bias: impl Into<VectorView<'a, C>>) -> Self {
        let epilogue = self.epilogue.unwrap_or_else(Epilogue::new).with_bias(bias.into());
        Self { epilogue: Some(epilogue), ..self }
    }

    /// Applies a function to each element, after the bias. It is computed in `f32`. On GPUs, cuBLASLt and hipBLASLt may compute
    /// [`Activation::Gelu`] with fewer digits.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        let epilogue = self.epilogue.unwrap_or_else(Epilogue::new).with_activation(activation);
        Self { epilogue: Some(epilogue), ..self }
    }
}

impl<S: Number, C> Default for Gemm<'_, S, C> {
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
        options: Gemm<'_, A::Scalar, C>,
        a: impl Into<MatrixView<'a, A>>,
        b: impl Into<MatrixView<'a, A>>,
        c: impl Into<MatrixViewMut<'a, C>>,
    ) -> Result<()> {
        A::multiply(self, options, a.into(), b.into(), c.into())
    }

    #[track_caller]
    fn gemm_each<A: Product<C>, C>(
        &self,
        options: Gemm<'_, A::Scalar, C>,
        a: &[MatrixView<'_, A>],
        b: &[MatrixView<'_, A>],
        c: &mut [MatrixViewMut<'_, C>],
    ) -> Result<()> {
        A::multiply_each(self, options, a, b, c)
    }

    #[track_caller]
    fn gemv<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        a: impl Into<MatrixView<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        beta: impl Into<Scalar<'a, T>>,
        y: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()> {
        routines::gemv(self, [alpha.into(), beta.into()], a.into(), x.into(), y.into())
    }

    #[track_caller]
    fn ger<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        a: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        routines::ger(self, false, alpha.into(), x.into(), y.into(), a.into())
    }

    #[track_caller]
    fn gerc<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        a: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        routines::ger(self, true, alpha.into(), x.into(), y.into(), a.into())
    }

    #[track_caller]
    fn syrk<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        a: impl Into<MatrixView<'a, T>>,
        beta: impl Into<Scalar<'a, T>>,
        triangle: Triangle,
        c: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        routines::syrk(self, [alpha.into(), beta.into()], a.into(), triangle, c.into())
    }

    #[track_caller]
    fn herk<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T::Real>>,
        a: impl Into<MatrixView<'a, T>>,
        beta: impl Into<Scalar<'a, T::Real>>,
        triangle: Triangle,
        c: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        routines::herk(self, [alpha.into(), beta.into()], a.into(), triangle, c.into())
    }

    #[track_caller]
    fn trsm<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        triangle: Triangle,
        diagonal: Diagonal,
        a: impl Into<MatrixView<'a, T>>,
        b: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        routines::triangular(self, Triangular::Solve, alpha.into(), (triangle, diagonal, a.into()), b.into())
    }

    #[track_caller]
    fn trmm<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        triangle: Triangle,
        diagonal: Diagonal,
        a: impl Into<MatrixView<'a, T>>,
        b: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        routines::triangular(
            self,
            Triangular::Multiply,
            alpha.into(),
            (triangle, diagonal, a.into()),
            b.into(),
        )
    }

    #[track_caller]
    fn blas_dot<'a, T: Field>(
        &self,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
    ) -> Result<Buffer<T>> {
        routines::reduce(self, Reduction::Dot, x.into(), Some(y.into()))
    }

    #[track_caller]
    fn blas_dotc<'a, T: Field>(
        &self,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
    ) -> Result<Buffer<T>> {
        routines::reduce(self, Reduction::ConjugatedDot, x.into(), Some(y.into()))
    }

    #[track_caller]
    fn nrm2<'a, T: Field>(&self, x: impl Into<VectorView<'a, T>>) -> Result<Buffer<T::Real>> {
        routines::reduce(self, Reduction::Norm, x.into(), None)
    }

    #[track_caller]
    fn asum<'a, T: Field>(&self, x: impl Into<VectorView<'a, T>>) -> Result<Buffer<T::Real>> {
        routines::reduce(self, Reduction::Sum, x.into(), None)
    }

    #[track_caller]
    fn iamax<'a, T: Field>(&self, x: impl Into<VectorView<'a, T>>) -> Result<Buffer<i32>> {
        routines::reduce(self, Reduction::Largest, x.into(), None)
    }

    #[track_caller]
    fn axpy<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()> {
        routines::axpy(self, alpha.into(), x.into(), y.into())
    }

    #[track_caller]
    fn rot<'a, T: Field>(
        &self,
        cosine: impl Into<Scalar<'a, T::Real>>,
        sine: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorViewMut<'a, T>>,
        y: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()> {
        routines::rot(self, cosine.into(), sine.into(), x.into(), y.into())
    }

    #[track_caller]
    fn rotg<T: Field>(&self, a: View<'_, T>, b: View<'_, T>) -> Result<Rotation<T>> {
        routines::rotg(self, [a, b])
    }

    #[track_caller]
    fn scal<'a, T: Field>(
        &self,
        alpha: impl Into<Scalar<'a, T>>,
        x: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()> {
        routines::scal(self, alpha.into(), x.into())
    }
}
