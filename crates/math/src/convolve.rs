//! Convolution and correlation of real numbers in one and two dimensions, by Fourier transforms.
//!
//! The product of two transforms is the transform of a convolution that wraps around at its ends. So we pad both inputs with zeros
//! until nothing that wraps around matters, and cut the wanted part out of the result. For a correlation one transform is
//! conjugated, which runs the second input backwards. Then places before the first element would wrap around to the end, so we also
//! move the first input, by the second one's length minus 1.

use gpustream::{Error, ErrorKind, Result, Stream, View, ViewMut};

use crate::call::{mismatch, named};
use crate::fft::{self, Fft as _, FftShape, Real};
use crate::kernels::convolution::{HasCrop, HasMultiplySpectra, HasPad, Kernels};
use crate::matrix::{MatrixView, MatrixViewMut, Place};
use crate::vector::{VectorView, VectorViewMut};

/// Which elements of a convolution are computed, as `SciPy` calls them. `n` and `m` are the lengths of the first and second input,
/// in each dimension by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvolutionMode {
    /// All elements: `n + m - 1`. At the ends, the inputs only overlap in part.
    Full,
    /// As many as the first input has, from the middle of all: `n`, beginning at `(m - 1) / 2`.
    Same,
    /// Those for which the shorter input lies inside the longer one, so that no zeros are added: `max(n, m) - min(n, m) + 1`. In
    /// two dimensions, one input must be at least as large as the other in both.
    Valid,
}

/// Numbers that can be convolved: `f32` and `f64`.
pub trait Convolvable: Real + HasPad + HasMultiplySpectra + HasCrop {
    #[doc(hidden)]
    fn of(value: f64) -> Self;
}

impl Convolvable for f32 {
    fn of(value: f64) -> Self {
        value as Self
    }
}

impl Convolvable for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

/// Convolutions on a stream.
///
/// If the full result has `N` elements, a call takes time in proportion to `N log N`, also if one input is short.
/// The error of each element is small compared with the product of the inputs' Euclidean norms, not with the element itself. The
/// padded copies come from the device's pool.
///
/// Calls do not block, except to make a plan (see [`Fft`](crate::fft::Fft)).
pub trait Convolve {
    /// Computes a convolution: element `k` of the full result is the sum of all `x[j] y[k - j]`.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (x, y) = (stream.upload(&[1.0f64, 2.0, 3.0])?, stream.upload(&[1.0, 10.0])?);
    /// let mut z = stream.alloc(4)?;
    /// stream.convolve(ConvolutionMode::Full, &x, &y, &mut z)?;
    /// let rounded = stream.download(&z)?.iter().map(|z| z.round()).collect::<Vec<_>>();
    /// assert_eq!(rounded, [1.0, 12.0, 23.0, 30.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArgumentMismatch`](ErrorKind::ArgumentMismatch) if `z` does not have as many elements as [`ConvolutionMode`] says;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if an input has none. Otherwise as for [`Fft::fft`](crate::fft::Fft::fft):
    /// in a capture, the plan must be there ([`prepare_convolution`](Self::prepare_convolution)).
    fn convolve<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        z: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes a correlation: element `k` of the full result is the sum of all `x[j + k - (m - 1)] y[j]`, if `y` has `m` elements.
    /// The inputs are aligned at element `m - 1`.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (x, y) = (stream.upload(&[1.0f64, 2.0, 3.0])?, stream.upload(&[1.0, 10.0])?);
    /// let mut z = stream.alloc(2)?;
    /// stream.correlate(ConvolutionMode::Valid, &x, &y, &mut z)?;
    /// let rounded = stream.download(&z)?.iter().map(|z| z.round()).collect::<Vec<_>>();
    /// assert_eq!(rounded, [21.0, 32.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`convolve`](Self::convolve).
    fn correlate<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        z: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes a convolution in two dimensions, in each as [`convolve`](Self::convolve). Each matrix can have its own order.
    ///
    /// ```
    /// use gpustream_math::prelude::*;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let (image, filter) = (stream.full(480 * 640, 1.0f32)?, stream.full(5 * 5, 0.04f32)?);
    /// let mut blurred = stream.alloc(480 * 640)?;
    /// let (image, filter) = (MatrixView::new(&image, 480, 640)?, MatrixView::new(&filter, 5, 5)?);
    /// stream.convolve_2d(ConvolutionMode::Same, image, filter, MatrixViewMut::new(&mut blurred, 480, 640)?)?;
    /// assert!((stream.download(&blurred)?[240 * 640 + 320] - 1.0).abs() < 1e-3);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`convolve`](Self::convolve); [`ArgumentMismatch`](ErrorKind::ArgumentMismatch) if a matrix is a batch, or if neither
    /// input of [`ConvolutionMode::Valid`] is inside the other.
    fn convolve_2d<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<MatrixView<'a, T>>,
        y: impl Into<MatrixView<'a, T>>,
        z: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Computes a correlation in two dimensions, in each as [`correlate`](Self::correlate).
    ///
    /// # Errors
    /// As for [`convolve_2d`](Self::convolve_2d).
    fn correlate_2d<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<MatrixView<'a, T>>,
        y: impl Into<MatrixView<'a, T>>,
        z: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()>;

    /// Makes the plans for convolutions and correlations of inputs with these rows and columns, in all modes, so that calls in a
    /// capture find them. Vectors count as one row. Blocks while the library makes them.
    ///
    /// # Errors
    /// As for [`convolve`](Self::convolve).
    fn prepare_convolution<T: Convolvable>(&self, x: [usize; 2], y: [usize; 2]) -> Result<()>;
}

impl Convolve for Stream {
    #[track_caller]
    fn convolve<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        z: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()> {
        let of = Kind { label: "convolve", is_correlation: false, mode };
        enqueue_vectors(self, of, x.into(), y.into(), z.into())
    }

    #[track_caller]
    fn correlate<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<VectorView<'a, T>>,
        y: impl Into<VectorView<'a, T>>,
        z: impl Into<VectorViewMut<'a, T>>,
    ) -> Result<()> {
        let of = Kind { label: "correlate", is_correlation: true, mode };
        enqueue_vectors(self, of, x.into(), y.into(), z.into())
    }

    #[track_caller]
    fn convolve_2d<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<MatrixView<'a, T>>,
        y: impl Into<MatrixView<'a, T>>,
        z: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        let of = Kind { label: "convolve_2d", is_correlation: false, mode };
        enqueue_matrices(self, of, x.into(), y.into(), z.into())
    }

    #[track_caller]
    fn correlate_2d<'a, T: Convolvable>(
        &self,
        mode: ConvolutionMode,
        x: impl Into<MatrixView<'a, T>>,
        y: impl Into<MatrixView<'a, T>>,
        z: impl Into<MatrixViewMut<'a, T>>,
    ) -> Result<()> {
        let of = Kind { label: "correlate_2d", is_correlation: true, mode };
        enqueue_matrices(self, of, x.into(), y.into(), z.into())
    }

    #[track_caller]
    fn prepare_convolution<T: Convolvable>(&self, x: [usize; 2], y: [usize; 2]) -> Result<()> {
        let full = named("prepare_convolution", || full_lens(x, y))?;
        self.device().extension(Kernels::load)?;
        fft::prepare_in_place::<T>(self, &Padded::of(full)?.shape)
    }
}

/// What is computed.
#[derive(Clone, Copy)]
struct Kind {
    label: &'static str,
    is_correlation: bool,
    mode: ConvolutionMode,
}

/// The places of elements in rows and columns.
#[derive(Clone, Copy)]
struct Grid {
    /// Rows and columns.
    lens: [usize; 2],
    /// The distances to the next row and column.
    steps: [usize; 2],
}

impl Grid {
    fn of_vector(len: usize, step: usize) -> Self {
        Self { lens: [1, len], steps: [0, step] }
    }

    fn of_matrix(place: Place) -> Self {
        let (row, column) = place.steps();
        Self { lens: [place.rows, place.columns], steps: [row, column] }
    }
}

#[track_caller]
fn enqueue_vectors<T: Convolvable>(
    stream: &Stream,
    of: Kind,
    x: VectorView<'_, T>,
    y: VectorView<'_, T>,
    mut z: VectorViewMut<'_, T>,
) -> Result<()> {
    let to = Grid::of_vector(z.len(), z.step());
    let [x, y] = [x, y].map(|x| (x.memory(), Grid::of_vector(x.len(), x.step())));
    enqueue(stream, of, x, y, (z.memory_mut(), to))
}

#[track_caller]
fn enqueue_matrices<T: Convolvable>(
    stream: &Stream,
    of: Kind,
    x: MatrixView<'_, T>,
    y: MatrixView<'_, T>,
    z: MatrixViewMut<'_, T>,
) -> Result<()> {
    let batches = [x.batch(), y.batch(), z.batch()];
    if batches != [1; 3] {
        let text =
            format!("batches of {batches:?} matrices: this routine takes one; call it for each `matrix(i)`");
        return Err(mismatch(of.label, text));
    }
    let to = Grid::of_matrix(z.place());
    let [x, y] = [x, y].map(|x| (x.memory(), Grid::of_matrix(x.place())));
    enqueue(stream, of, x, y, (&mut z.into_memory(), to))
}

#[track_caller]
fn enqueue<T: Convolvable>(
    stream: &Stream,
    of: Kind,
    (x, from): (View<'_, T>, Grid),
    (y, by): (View<'_, T>, Grid),
    (z, to): (&mut ViewMut<'_, T>, Grid),
) -> Result<()> {
    let Kind { label, is_correlation, mode } = of;
    let full = named(label, || full_lens(from.lens, by.lens))?;
    let [(top, rows), (left, columns)] = [0, 1].map(|at| mode.part(from.lens[at], by.lens[at]));
    let is_inside = |small: [usize; 2], large: [usize; 2]| small[0] <= large[0] && small[1] <= large[1];
    if mode == ConvolutionMode::Valid && !is_inside(by.lens, from.lens) && !is_inside(from.lens, by.lens) {
        let text = format!(
            "the valid part of {}×{} and {}×{}: neither fits inside the other; give one that is at least as large in both dimensions, or \
             choose another mode",
            from.lens[0], from.lens[1], by.lens[0], by.lens[1]
        );
        return Err(mismatch(label, text));
    }
    if to.lens != [rows, columns] {
        let text = format!(
            "inputs of {}×{} and {}×{} with a result of {}×{}: `{mode:?}` gives {rows}×{columns}",
            from.lens[0], from.lens[1], by.lens[0], by.lens[1], to.lens[0], to.lens[1]
        );
        return Err(mismatch(label, text));
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let Padded { shape, lens, pitch } = named(label, || Padded::of(full))?;
    let len = lens[0] * pitch;
    let (mut a, mut b) = (stream.alloc::<T>(len)?, stream.alloc::<T>(len)?);
    let shift = if is_correlation { by.lens.map(|len| len - 1) } else { [0, 0] };
    for (memory, grid, padded, [down, right]) in [(&x, from, &mut a, shift), (&y, by, &mut b, [0, 0])] {
        let ([rows, columns], [row, column]) = (grid.lens, grid.steps);
        kernels.pad(stream, memory, rows, columns, row, column, padded, lens[0], pitch, down, right)?;
        stream.fft_real_in_place(&shape, padded).map_err(prepare_first)?;
    }
    kernels.multiply_spectra(stream, &mut a, &b, len / 2, u32::from(is_correlation))?;
    drop(b);
    stream.ifft_real_in_place(&shape, &mut a).map_err(prepare_first)?;
    let scale = T::of(1.0 / (lens[0] as f64 * lens[1] as f64));
    let [row, column] = to.steps;
    kernels.crop(stream, &a, pitch, top, left, scale, z, rows, columns, row, column)
}

/// Says what to do if the plan is missing in a capture.
fn prepare_first(error: Error) -> Error {
    if error.kind() != ErrorKind::Captured {
        return error;
    }
    let message = "the FFT library cannot make a plan while a graph is recorded; call `stream.prepare_convolution::<T>` with the element \
                   type and both shapes before the capture";
    Error::new(ErrorKind::Captured, message)
}

/// Returns the rows and columns of the full result.
#[track_caller]
fn full_lens(x: [usize; 2], y: [usize; 2]) -> Result<[usize; 2]> {
    if x.contains(&0) || y.contains(&0) {
        let text =
            format!("inputs of {}×{} and {}×{}: give each at least one element", x[0], x[1], y[0], y[1]);
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let len = |at: usize| x[at].checked_add(y[at] - 1).ok_or_else(too_large);
    Ok([len(0)?, len(1)?])
}

#[cold]
fn too_large() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "its result has more elements than a number can count; make it smaller",
    )
}

impl ConvolutionMode {
    /// Returns the first element of the full result that is wanted, and how many are, in one dimension.
    fn part(self, n: usize, m: usize) -> (usize, usize) {
        match self {
            Self::Full => (0, n + m - 1),
            Self::Same => ((m - 1) / 2, n),
            Self::Valid => (n.min(m) - 1, n.abs_diff(m) + 1),
        }
    }
}

/// The transforms of padded inputs, in place.
struct Padded {
    shape: FftShape,
    /// Rows and columns.
    lens: [usize; 2],
    /// The distance to the next row, which has room for the transform.
    pitch: usize,
}

impl Padded {
    fn of(full: [usize; 2]) -> Result<Self> {
        // Real transforms are fastest for even lengths.
        let columns = if full[1] == 1 {
            Some(1)
        } else {
            fast_len(full[1].div_ceil(2)).and_then(|half| half.checked_mul(2))
        };
        let lens = [fast_len(full[0]).ok_or_else(too_large)?, columns.ok_or_else(too_large)?];
        let pitch = 2 * (lens[1] / 2 + 1);
        lens[0].checked_mul(pitch).ok_or_else(too_large)?;
        let shape = if lens[0] == 1 { FftShape::new_1d(lens[1]) } else { FftShape::new_2d(lens[0], lens[1]) };
        Ok(Self { shape, lens, pitch })
    }
}

/// Returns the smallest length that is at least `n` and has no prime factors above 7, for which all libraries are fast.
fn fast_len(n: usize) -> Option<usize> {
    let powers = |of: usize| {
        std::iter::successors(Some(1usize), move |power| {
            power.checked_mul(of).filter(|power| *power / of < n)
        })
    };
    let mut best = n.checked_next_power_of_two()?;
    for seven in powers(7) {
        for five in powers(5) {
            for three in powers(3) {
                let Some(odd) = seven.checked_mul(five).and_then(|odd| odd.checked_mul(three)) else { break };
                if odd >= best {
                    break;
                }
                if let Some(len) =
                    n.div_ceil(odd).checked_next_power_of_two().and_then(|two| two.checked_mul(odd))
                {
                    best = best.min(len);
                }
            }
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_next_smooth_ones() {
        let is_smooth = |mut n: usize| {
            for prime in [2, 3, 5, 7] {
                while n.is_multiple_of(prime) {
                    n /= prime;
                }
            }
            n == 1
        };
        for n in 1..3000 {
            assert_eq!(fast_len(n), (n..=2 * n).find(|n| is_smooth(*n)), "{n}");
        }
        assert_eq!(fast_len(usize::MAX), None);
    }
}
