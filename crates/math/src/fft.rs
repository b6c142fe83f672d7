//! Fourier transforms: cuFFT, hipFFT, or the crates `rustfft` and `realfft` on the CPU device.
//!
//! No transform scales its result: a forward transform followed by an inverse one multiplies by the number of elements.

mod cpu;
mod library;
mod plan;
mod real;
mod shape;
mod transform;

use gpustream::{AsView, AsViewMut, Device, Result, Stream};
use num_complex::Complex;

pub use real::Real;
pub use shape::{FftShape, Spacing};

use transform::{Ends, Kind};

pub(crate) fn prepare(device: &Device) -> Result<()> {
    library::prepare(device)
}

/// Makes the plans of real transforms in place.
#[track_caller]
pub(crate) fn prepare_in_place<T: Real>(stream: &Stream, shape: &FftShape) -> Result<()> {
    transform::prepare_in_place::<T>(stream, shape)
}

/// The sign in the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Element `k` of the result is the sum of `x[j] exp(-2πi j k / n)`.
    Forward,
    /// Element `k` of the result is the sum of `x[j] exp(2πi j k / n)`.
    Inverse,
}

/// Fourier transforms on a stream.
///
/// An [`FftShape`] says how many dimensions there are, how long they are, and how many transforms follow each other. A call
/// enqueues its work and returns. For each shape the vendors' libraries need a plan, which takes up to half a second to make, and
/// cannot be made while a stream is captured. A device keeps its last 64 plans, and those in graphs as long as the graphs. Call
/// [`prepare_fft`](Self::prepare_fft) if a shape is first needed in a capture, or if you want its plan in time.
///
/// On the CPU device, a call in a replayed step ends one of its segments. The lines of a transform are shared among the device's
/// workers, so a single transform in one dimension runs on one of them.
pub trait Fft {
    /// Transforms complex numbers. Does not block, except to make a plan.
    ///
    /// ```
    /// use gpustream_math::{Complex, prelude::*};
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let wave = [1.0f32, 0.0, -1.0, 0.0].map(Complex::from);
    /// let (x, mut y) = (stream.upload(&wave)?, stream.alloc(4)?);
    /// stream.fft(&FftShape::new_1d(4), Direction::Forward, &x, &mut y)?;
    /// assert_eq!(stream.download(&y)?, [0.0, 2.0, 0.0, 2.0].map(Complex::from));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `x` or `y` is shorter than the shape;
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the shape has a length of 0, or its elements overlap.
    /// [`DeviceMismatch`](gpustream::ErrorKind::DeviceMismatch) if the stream cannot reach the memory.
    /// [`Unsupported`](gpustream::ErrorKind::Unsupported) for `f16` on CUDA in lengths that are no powers of 2.
    /// [`DriverMissing`](gpustream::ErrorKind::DriverMissing) if the vendor's library is not installed.
    /// [`Captured`](gpustream::ErrorKind::Captured) if the stream is recorded and there is no plan for the shape yet. The
    /// library's own errors.
    fn fft<T: Real>(
        &self,
        shape: &FftShape,
        direction: Direction,
        x: &(impl AsView<Complex<T>> + ?Sized),
        y: &mut (impl AsViewMut<Complex<T>> + ?Sized),
    ) -> Result<()>;

    /// Transforms complex numbers in place. Only the input's spacing of the shape counts. Does not block, except to make a
    /// plan.
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn fft_in_place<T: Real>(
        &self,
        shape: &FftShape,
        direction: Direction,
        x: &mut (impl AsViewMut<Complex<T>> + ?Sized),
    ) -> Result<()>;

    /// Transforms real numbers forward. Since the other half of the result is its mirror image, only the elements up to the
    /// middle of the last dimension are written: `n / 2 + 1` of `n`. Does not block, except to make a plan.
    ///
    /// ```
    /// use gpustream_math::{Complex, prelude::*};
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let shape = FftShape::new_1d(4);
    /// let (x, mut y) = (stream.upload(&[1.0f64, 0.0, -1.0, 0.0])?, stream.alloc(shape.half_len())?);
    /// stream.fft_real(&shape, &x, &mut y)?;
    /// assert_eq!(stream.download(&y)?, [0.0, 2.0, 0.0].map(Complex::from));
    /// let mut back = stream.alloc::<f64>(4)?;
    /// stream.ifft_real(&shape, &y, &mut back)?;
    /// assert_eq!(stream.download(&back)?, [4.0, 0.0, -4.0, 0.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn fft_real<T: Real>(
        &self,
        shape: &FftShape,
        x: &(impl AsView<T> + ?Sized),
        y: &mut (impl AsViewMut<Complex<T>> + ?Sized),
    ) -> Result<()>;

    /// Transforms half of a result of [`fft_real`](Self::fft_real) back into real numbers. `x` has `n / 2 + 1` elements of the
    /// last dimension, and `y` has `n`. Does not block, except to make a plan.
    ///
    /// The vendors' libraries would overwrite `x`, so they get a copy from the device's pool. If you do not need `x` any more, call
    /// [`ifft_real_overwriting`](Self::ifft_real_overwriting).
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn ifft_real<T: Real>(
        &self,
        shape: &FftShape,
        x: &(impl AsView<Complex<T>> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Like [`ifft_real`](Self::ifft_real), but leaves `x` with unspecified contents. Does not block, except to make a plan.
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn ifft_real_overwriting<T: Real>(
        &self,
        shape: &FftShape,
        x: &mut (impl AsViewMut<Complex<T>> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Transforms real numbers forward, in place. The rows of the last dimension are padded to `2 (n / 2 + 1)` real
    /// numbers, which become `n / 2 + 1` complex ones. The shape's spacings do not count. Does not block, except to make a plan.
    ///
    /// ```
    /// use gpustream_math::{Complex, prelude::*};
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let mut x = stream.upload(&[1.0f64, 0.0, -1.0, 0.0, 0.0, 0.0])?;     // four numbers, and room for two more
    /// stream.fft_real_in_place(&FftShape::new_1d(4), &mut x)?;
    /// assert_eq!(stream.download(&x.cast::<Complex<f64>>()?)?, [0.0, 2.0, 0.0].map(Complex::from));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn fft_real_in_place<T: Real>(
        &self,
        shape: &FftShape,
        x: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Transforms back, in place, what [`fft_real_in_place`](Self::fft_real_in_place) gave. Does not block, except to make a
    /// plan.
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn ifft_real_in_place<T: Real>(
        &self,
        shape: &FftShape,
        x: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Makes the plans of all transforms of this shape, so that calls in a capture find them. Blocks while the library makes them.
    /// The arguments of the calls' memory do not matter. Does nothing on the CPU device.
    ///
    /// # Errors
    /// As for [`fft`](Self::fft).
    fn prepare_fft<T: Real>(&self, shape: &FftShape) -> Result<()>;
}

impl Fft for Stream {
    #[track_caller]
    fn fft<T: Real>(
        &self,
        shape: &FftShape,
        direction: Direction,
        x: &(impl AsView<Complex<T>> + ?Sized),
        y: &mut (impl AsViewMut<Complex<T>> + ?Sized),
    ) -> Result<()> {
        let (mut y, kind) = (y.view_mut(), Kind::Complex(direction));
        transform::enqueue::<T, _, _>(self, "fft", shape, kind, Ends::Apart(x.view(), &mut y))
    }

    #[track_caller]
    fn fft_in_place<T: Real>(
        &self,
        shape: &FftShape,
        direction: Direction,
        x: &mut (impl AsViewMut<Complex<T>> + ?Sized),
    ) -> Result<()> {
        let (mut x, kind) = (x.view_mut(), Kind::Complex(direction));
        let ends = Ends::<Complex<T>, Complex<T>>::InPlace(&mut x);
        transform::enqueue::<T, _, _>(self, "fft_in_place", &shape.with_equal_spacings(), kind, ends)
    }

    #[track_caller]
    fn fft_real<T: Real>(
        &self,
        shape: &FftShape,
        x: &(impl AsView<T> + ?Sized),
        y: &mut (impl AsViewMut<Complex<T>> + ?Sized),
    ) -> Result<()> {
        let mut y = y.view_mut();
        transform::enqueue::<T, _, _>(self, "fft_real", shape, Kind::ToHalf, Ends::Apart(x.view(), &mut y))
    }

    #[track_caller]
    fn ifft_real<T: Real>(
        &self,
        shape: &FftShape,
        x: &(impl AsView<Complex<T>> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let mut y = y.view_mut();
        transform::enqueue::<T, _, _>(self, "ifft_real", shape, Kind::FromHalf, Ends::Apart(x.view(), &mut y))
    }

    #[track_caller]
    fn ifft_real_overwriting<T: Real>(
        &self,
        shape: &FftShape,
        x: &mut (impl AsViewMut<Complex<T>> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (mut x, mut y) = (x.view_mut(), y.view_mut());
        let ends = Ends::Overwriting(&mut x, &mut y);
        transform::enqueue::<T, _, _>(self, "ifft_real_overwriting", shape, Kind::FromHalf, ends)
    }

    #[track_caller]
    fn fft_real_in_place<T: Real>(
        &self,
        shape: &FftShape,
        x: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (mut x, shape) = (x.view_mut(), shape.padded_in_place(true));
        let ends = Ends::<T, Complex<T>>::InPlace(&mut x);
        transform::enqueue::<T, _, _>(self, "fft_real_in_place", &shape, Kind::ToHalf, ends)
    }

    #[track_caller]
    fn ifft_real_in_place<T: Real>(
        &self,
        shape: &FftShape,
        x: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (mut x, shape) = (x.view_mut(), shape.padded_in_place(false));
        let ends = Ends::<T, T>::InPlace(&mut x);
        transform::enqueue::<T, _, _>(self, "ifft_real_in_place", &shape, Kind::FromHalf, ends)
    }

    #[track_caller]
    fn prepare_fft<T: Real>(&self, shape: &FftShape) -> Result<()> {
        transform::prepare::<T>(self, shape)
    }
}
