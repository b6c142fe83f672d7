//! All routines on the CPU device that are not products.
//!
//! What is mostly a product goes block by block through the crate `gemm`, and only the blocks on the diagonal are loops. Sums go
//! over shares of a fixed length, whose results are added up in order, so that they do not depend on the number of workers.

use std::ops::Range;

use gpustream::{Arg, AsView as _, Buffer, Part, Plain, Result, Stream, View};
use num_complex::Complex;
use smallvec::{SmallVec, smallvec};

use super::cpu::{Factor, Operand, multiply_tile};
use super::field::Field;
use super::routines::Triangular;
use super::{Diagonal, Rotation, Triangle};
use crate::call::Address;
use crate::matrix::{MatrixView, MatrixViewMut};
use crate::number::{Number, Scalar};
use crate::vector::{VectorView, VectorViewMut};

/// The side of a block on the diagonal.
const BLOCK: usize = 64;

/// The elements of a share of a sum, and of a part of a loop over vectors.
const SHARE: usize = 16 * 1024;

/// Returns in how many parts to share `units`.
fn parts(stream: &Stream, units: usize) -> u32 {
    let workers = stream.device().info().multiprocessors;
    (4 * workers).min(u32::try_from(units).unwrap_or(u32::MAX)).max(1)
}

fn blocks(len: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    (0..len.div_ceil(BLOCK)).map(move |block| block * BLOCK..((block + 1) * BLOCK).min(len))
}

/// Adds the views of scalars that are on the device.
fn with_scalars<'a, T: Plain>(
    memory: SmallVec<[Arg<'a>; 4]>,
    scalars: &'a [Scalar<'_, T>],
) -> SmallVec<[Arg<'a>; 4]> {
    let mut all = memory;
    all.extend(scalars.iter().filter_map(|scalar| match scalar {
        Scalar::Host(_) => None,
        Scalar::Device(view) => Some(Arg::read(view)),
    }));
    all
}

/// Computes one triangle of the product of a matrix and its transpose. If it `is_hermitian`, the transpose is conjugated. `widen` makes
/// the scalars numbers of the matrix.
#[track_caller]
pub(super) fn syrk<T: Field, S: Number>(
    stream: &Stream,
    label: &'static str,
    is_hermitian: bool,
    scalars: [Scalar<'_, S>; 2],
    widen: fn(S) -> T,
    a: MatrixView<'_, T>,
    triangle: Triangle,
    c: MatrixViewMut<'_, T>,
) -> Result<()> {
    let (n, k) = (a.rows(), a.columns());
    let (from, place) = (Operand::of_view(&a), c.place());
    let by = Operand { is_conjugated: from.is_conjugated != is_hermitian, ..from };
    let (a, mut c) = (a.memory(), c.into_memory());
    let to = Operand::of(place, c.view());
    let factors = scalars.map(Factor::from);
    let memory = with_scalars(smallvec![Arg::read(&a), Arg::write(&mut c)], &scalars);
    let count = n.div_ceil(BLOCK);
    // SAFETY: the parts read `a` and the scalars, and each writes its own rows of `c`.
    unsafe {
        stream.external_parallel(label, &memory[..], parts(stream, count), move |part: Part, ()| {
            let [alpha, beta] = factors.map(|factor| widen(factor.get()));
            // Every worker gets long and short rows of blocks.
            for block in (part.index as usize..count).step_by(part.count as usize) {
                let rows = block * BLOCK..((block + 1) * BLOCK).min(n);
                // The blocks of this row that are not on the diagonal are one product.
                let columns = match triangle {
                    Triangle::Lower => 0..rows.start,
                    Triangle::Upper => rows.end..n,
                };
                if !columns.is_empty() {
                    multiply_tile(
                        (rows.len(), columns.len(), k),
                        (to.at(0, rows.start, columns.start), to.row, to.column),
                        from.from(0, rows.start, 0),
                        by.from(0, columns.start, 0).transposed(),
                        alpha,
                        beta,
                    );
                }
                // The block on the diagonal is computed in other memory, because only one triangle of `c` may be written.
                let mut square = [T::ZERO; BLOCK * BLOCK];
                multiply_tile(
                    (rows.len(), rows.len(), k),
                    (square.as_mut_ptr(), BLOCK, 1),
                    from.from(0, rows.start, 0),
                    by.from(0, rows.start, 0).transposed(),
                    alpha,
                    T::ZERO,
                );
                for i in 0..rows.len() {
                    let inside = match triangle {
                        Triangle::Lower => 0..i + 1,
                        Triangle::Upper => i..rows.len(),
                    };
                    for j in inside {
                        let element = to.at::<T>(0, rows.start + i, rows.start + j);
                        let mut value = square[i * BLOCK + j];
                        if beta != T::ZERO {
                            value += beta * *element;
                        }
                        if is_hermitian && i == j {
                            value = T::of_parts([value.parts()[0], 0.0]);
                        }
                        *element = value;
                    }
                }
            }
        })
    }
}

#[track_caller]
pub(super) fn triangular<T: Field>(
    stream: &Stream,
    label: &'static str,
    routine: Triangular,
    alpha: Scalar<'_, T>,
    (triangle, diagonal, a): (Triangle, Diagonal, MatrixView<'_, T>),
    b: MatrixViewMut<'_, T>,
) -> Result<()> {
    let (m, n) = (b.rows(), b.columns());
    let (from, place) = (Operand::of_view(&a), b.place());
    let (a, mut b) = (a.memory(), b.into_memory());
    let to = Operand::of(place, b.view());
    let factor = Factor::from(alpha);
    let scalars = [alpha];
    let memory = with_scalars(smallvec![Arg::read(&a), Arg::write(&mut b)], &scalars);
    let units = n.div_ceil(16);
    // SAFETY: the parts read `a` and the scalar, and each writes its own columns of `b`.
    unsafe {
        stream.external_parallel(label, &memory[..], parts(stream, units), move |part: Part, ()| {
            let columns = part.range(n);
            if columns.is_empty() {
                return;
            }
            let work =
                Columns { from, to, range: columns, m, triangle, has_ones: diagonal == Diagonal::Ones };
            let alpha = factor.get();
            if alpha == T::ZERO {
                return work.scale(alpha);
            }
            match routine {
                Triangular::Solve => {
                    work.scale(alpha);
                    work.solve::<T>();
                }
                Triangular::Multiply => {
                    work.multiply::<T>();
                    work.scale(alpha);
                }
            }
        })
    }
}

/// Some columns of a triangular routine.
struct Columns {
    from: Operand,
    to: Operand,
    range: Range<usize>,
    m: usize,
    triangle: Triangle,
    has_ones: bool,
}

impl Columns {
    /// # Safety
    /// Nothing else uses these columns, as for all methods.
    unsafe fn scale<T: Field>(&self, alpha: T) {
        if alpha == T::ONE {
            return;
        }
        for (i, j) in (0..self.m).flat_map(|i| self.range.clone().map(move |j| (i, j))) {
            // SAFETY: by this function's contract.
            unsafe {
                let element = self.to.at::<T>(0, i, j);
                if alpha == T::ZERO { *element = T::ZERO } else { *element *= alpha }
            }
        }
    }

    /// Adds the product of the blocks of some rows that are not on the diagonal, times a factor.
    unsafe fn add_beside<T: Field>(&self, rows: &Range<usize>, factor: T) {
        let inner = match self.triangle {
            Triangle::Lower => 0..rows.start,
            Triangle::Upper => rows.end..self.m,
        };
        if inner.is_empty() {
            return;
        }
        let (from, to, first) = (&self.from, &self.to, self.range.start);
        // SAFETY: by the functions' contract. The rows that are read are not those that are written.
        unsafe {
            multiply_tile(
                (rows.len(), self.range.len(), inner.len()),
                (to.at(0, rows.start, first), to.row, to.column),
                from.from(0, rows.start, inner.start),
                to.from(0, inner.start, first),
                factor,
                T::ONE,
            );
        }
    }

    /// Returns an element of the triangular matrix.
    unsafe fn factor<T: Field>(&self, i: usize, k: usize) -> T {
        // SAFETY: by the functions' contract.
        let stored = unsafe { *self.from.at::<T>(0, i, k) };
        if self.from.is_conjugated { stored.conjugate() } else { stored }
    }

    /// Returns the columns of the triangle in a row, inside the block on the diagonal and without the diagonal itself.
    fn inside(&self, rows: &Range<usize>, i: usize) -> Range<usize> {
        match self.triangle {
            Triangle::Lower => rows.start..i,
            Triangle::Upper => i + 1..rows.end,
        }
    }

    unsafe fn solve<T: Field>(&self) {
        let each = |rows: Range<usize>| {
            // SAFETY: by this function's contract.
            unsafe { self.add_beside(&rows, T::of_parts([-1.0, 0.0])) };
            let row = |i: usize| {
                for j in self.range.clone() {
                    // SAFETY: by this function's contract.
                    unsafe {
                        let element = self.to.at::<T>(0, i, j);
                        for k in self.inside(&rows, i) {
                            *element -= self.factor::<T>(i, k) * *self.to.at::<T>(0, k, j);
                        }
                        if !self.has_ones {
                            *element = (*element).over(self.factor::<T>(i, i));
                        }
                    }
                }
            };
            match self.triangle {
                Triangle::Lower => rows.clone().for_each(row),
                Triangle::Upper => rows.clone().rev().for_each(row),
            }
        };
        match self.triangle {
            Triangle::Lower => blocks(self.m).for_each(each),
            Triangle::Upper => blocks(self.m).rev().for_each(each),
        }
    }

    unsafe fn multiply<T: Field>(&self) {
        let each = |rows: Range<usize>| {
            let row = |i: usize| {
                for j in self.range.clone() {
                    // SAFETY: by this function's contract.
                    unsafe {
                        let element = self.to.at::<T>(0, i, j);
                        if !self.has_ones {
                            *element *= self.factor::<T>(i, i);
                        }
                        for k in self.inside(&rows, i) {
                            *element += self.factor::<T>(i, k) * *self.to.at::<T>(0, k, j);
                        }
                    }
                }
            };
            // Rows that others need come after those.
            match self.triangle {
                Triangle::Lower => rows.clone().rev().for_each(row),
                Triangle::Upper => rows.clone().for_each(row),
            }
            // SAFETY: by this function's contract.
            unsafe { self.add_beside(&rows, T::ONE) };
        };
        match self.triangle {
            Triangle::Lower => blocks(self.m).rev().for_each(each),
            Triangle::Upper => blocks(self.m).for_each(each),
        }
    }
}

/// What becomes one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Dot,
    /// With the conjugates of the first vector's elements.
    ConjugatedDot,
    /// The Euclidean norm, without overflow: a scale, and the sum of the squares of what is divided by it, as LAPACK's `lassq` does.
    Norm,
    /// The sum of the absolute values of all parts.
    Sum,
    /// The index of the largest sum of absolute parts, counted from 1.
    Largest,
}

impl Reduction {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::ConjugatedDot => "dotc",
            Self::Norm => "nrm2",
            Self::Sum => "asum",
            Self::Largest => "iamax",
        }
    }

    /// Adds another result to one.
    fn join(self, one: [f64; 2], other: [f64; 2]) -> [f64; 2] {
        match self {
            Self::Dot | Self::ConjugatedDot => [one[0] + other[0], one[1] + other[1]],
            Self::Sum => [one[0] + other[0], 0.0],
            Self::Norm => {
                let (large, small) =
                    if other[0] > one[0] || other[0].is_nan() { (other, one) } else { (one, other) };
                if small[0] == 0.0 || large[0].is_infinite() && !small[0].is_nan() {
                    return large;
                }
                let ratio = small[0] / large[0];
                [large[0], large[1] + small[1] * ratio * ratio]
            }
            // NaN is the largest, as for the vendors' libraries it may be anything.
            Self::Largest if other[0] > one[0] || other[0].is_nan() && !one[0].is_nan() => other,
            Self::Largest => one,
        }
    }

    /// Returns what one element alone gives.
    fn of<T: Field>(self, index: usize, x: T, y: Option<T>) -> [f64; 2] {
        let [real, imaginary] = x.parts();
        let size = real.abs() + imaginary.abs();
        match self {
            Self::Dot => (x * y.unwrap_or(T::ZERO)).parts(),
            Self::ConjugatedDot => (x.conjugate() * y.unwrap_or(T::ZERO)).parts(),
            Self::Sum => [size, 0.0],
            Self::Norm => match real.hypot(imaginary) {
                0.0 => [0.0, 0.0],
                length => [length, 1.0],
            },
            Self::Largest => [size, (index + 1) as f64],
        }
    }

    /// Returns what there is before the first element.
    fn nothing(self) -> [f64; 2] {
        if self == Self::Largest { [-1.0, 0.0] } else { [0.0; 2] }
    }

    /// Writes the result as the routine's type.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn write<T: Field>(self, [first, second]: [f64; 2], to: Address) {
        // SAFETY: by this function's contract.
        unsafe {
            match self {
                Self::Dot | Self::ConjugatedDot => *to.write::<T>() = T::of_parts([first, second]),
                Self::Sum => *to.write::<T::Real>() = T::real_of(first),
                Self::Norm => {
                    *to.write::<T::Real>() =
                        T::real_of(if second == 0.0 { first } else { first * second.sqrt() });
                }
                Self::Largest => *to.write::<i32>() = second as i32,
            }
        }
    }
}

#[track_caller]
pub(super) fn reduce<T: Field, R: Plain>(
    stream: &Stream,
    reduction: Reduction,
    x: VectorView<'_, T>,
    y: Option<VectorView<'_, T>>,
) -> Result<Buffer<R>> {
    let label = reduction.label();
    let (len, shares) = (x.len(), x.len().div_ceil(SHARE));
    let (mut partial, mut result) = (stream.alloc::<[f64; 2]>(shares)?, stream.alloc::<R>(1)?);
    let (x_step, y_step) = (x.step(), y.map_or(1, |y| y.step()));
    let (x, y) = (x.memory(), y.map(|y| y.memory()));
    let (from, by) = (Address(x.as_raw().0), y.map(|y| Address(y.as_raw().0)));
    let (sums, to) = (Address(partial.as_raw().0), Address(result.as_raw().0));
    let mut memory: SmallVec<[Arg<'_>; 4]> = smallvec![Arg::read(&x), Arg::write(&mut partial)];
    memory.extend(y.iter().map(|y| Arg::read(y)));
    // SAFETY: the parts read `x` and `y`, and each writes the results of its own shares.
    unsafe {
        stream.external_parallel(label, &memory[..], parts(stream, shares), move |part: Part, ()| {
            for share in part.range(shares) {
                let range = share * SHARE..((share + 1) * SHARE).min(len);
                let one = |i: usize| {
                    let x = *from.read::<T>().add(i * x_step);
                    reduction.of(i, x, by.map(|y| *y.read::<T>().add(i * y_step)))
                };
                let sum = range.map(one).fold(reduction.nothing(), |sum, one| reduction.join(sum, one));
                *sums.write::<[f64; 2]>().add(share) = sum;
            }
        })?;
    }
    drop(memory);
    // SAFETY: the only part reads the shares' results, and writes the result.
    unsafe {
        stream.external_parallel(label, (&partial, &mut result), 1, move |_, _| {
            let each = (0..shares).map(|share| *sums.read::<[f64; 2]>().add(share));
            reduction.write::<T>(each.fold(reduction.nothing(), |sum, one| reduction.join(sum, one)), to);
        })?;
    }
    Ok(result)
}

#[track_caller]
pub(super) fn axpy<T: Field>(
    stream: &Stream,
    label: &'static str,
    alpha: Scalar<'_, T>,
    x: VectorView<'_, T>,
    mut y: VectorViewMut<'_, T>,
) -> Result<()> {
    let (len, x_step, y_step) = (x.len(), x.step(), y.step());
    let (x, y) = (x.memory(), y.memory_mut());
    let (from, to) = (Address(x.as_raw().0), Address(y.view().as_raw().0));
    let (factor, scalars) = (Factor::from(alpha), [alpha]);
    let memory = with_scalars(smallvec![Arg::read(&x), Arg::write(y)], &scalars);
    // SAFETY: the parts read `x` and the scalar, and each writes its own elements of `y`.
    unsafe {
        stream.external_parallel(
            label,
            &memory[..],
            parts(stream, len.div_ceil(SHARE)),
            move |part: Part, ()| {
                let alpha = factor.get();
                for i in part.range(len) {
                    *to.write::<T>().add(i * y_step) += alpha * *from.read::<T>().add(i * x_step);
                }
            },
        )
    }
}

#[track_caller]
pub(super) fn rot<T: Field>(
    stream: &Stream,
    label: &'static str,
    cosine: Scalar<'_, T::Real>,
    sine: Scalar<'_, T>,
    mut x: VectorViewMut<'_, T>,
    mut y: VectorViewMut<'_, T>,
) -> Result<()> {
    let (len, x_step, y_step) = (x.len(), x.step(), y.step());
    let (x, y) = (x.memory_mut(), y.memory_mut());
    let (first, second) = (Address(x.view().as_raw().0), Address(y.view().as_raw().0));
    let (by_cosine, by_sine, cosine, sine) = (Factor::from(cosine), Factor::from(sine), [cosine], [sine]);
    let memory = with_scalars(smallvec![Arg::write(x), Arg::write(y)], &cosine);
    let memory = with_scalars(memory, &sine);
    let parts = parts(stream, len.div_ceil(SHARE));
    // SAFETY: the parts read the factors, and each writes its own elements of `x` and `y`.
    unsafe {
        stream.external_parallel(label, &memory[..], parts, move |part: Part, ()| {
            let (cosine, sine) = (by_cosine.get(), by_sine.get());
            for i in part.range(len) {
                let (x, y) = (first.write::<T>().add(i * x_step), second.write::<T>().add(i * y_step));
                let (old_x, old_y) = (*x, *y);
                *x = old_x.times(cosine);
                *x += sine * old_y;
                *y = old_y.times(cosine);
                *y -= sine.conjugate() * old_x;
            }
        })
    }
}

#[track_caller]
pub(super) fn scal<T: Field>(
    stream: &Stream,
    label: &'static str,
    alpha: Scalar<'_, T>,
    mut x: VectorViewMut<'_, T>,
) -> Result<()> {
    let (len, step) = (x.len(), x.step());
    let x = x.memory_mut();
    let to = Address(x.view().as_raw().0);
    let (factor, scalars) = (Factor::from(alpha), [alpha]);
    let memory = with_scalars(smallvec![Arg::write(x)], &scalars);
    // SAFETY: the parts read the scalar, and each writes its own elements of `x`.
    unsafe {
        stream.external_parallel(
            label,
            &memory[..],
            parts(stream, len.div_ceil(SHARE)),
            move |part: Part, ()| {
                let alpha = factor.get();
                part.range(len).for_each(|i| *to.write::<T>().add(i * step) *= alpha);
            },
        )
    }
}

/// Makes the rotation as the reference BLAS does since 3.10 (Anderson, Algorithm 978: Safe scaling in the level 1 BLAS).
#[track_caller]
pub(super) fn rotg<T: Field>(
    stream: &Stream,
    label: &'static str,
    [a, b]: [View<'_, T>; 2],
    Rotation { cosine, others }: &mut Rotation<T>,
) -> Result<()> {
    let from = [a, b].map(|view| Address(view.as_raw().0));
    let (to, cosine_to) = (Address(others.as_raw().0), Address(cosine.as_raw().0));
    // SAFETY: the only part reads both coordinates, and writes the rotation.
    unsafe {
        stream.external_parallel(label, (a, b, others, cosine), 1, move |_, _| {
            let [a, b] = from.map(|from| (*from.read::<T>()).parts());
            let [r, z, sine, cosine] =
                if T::IS_COMPLEX { complex_rotation(a, b) } else { real_rotation(a[0], b[0]) };
            for (at, value) in [r, z, sine].into_iter().enumerate() {
                *to.write::<T>().add(at) = T::of_parts(value);
            }
            *cosine_to.write::<T::Real>() = T::real_of(cosine[0]);
        })
    }
}

/// Returns r, z, the sine and the cosine, by their parts.
fn real_rotation(a: f64, b: f64) -> [[f64; 2]; 4] {
    let (long, short) = (a.abs().max(b.abs()), a.abs().min(b.abs()));
    let numbers = if b == 0.0 {
        [a, 0.0, 0.0, 1.0]
    } else if a == 0.0 {
        [b, 1.0, 1.0, 0.0]
    } else {
        let length = long * (1.0 + (short / long).powi(2)).sqrt();
        let r = length.copysign(if a.abs() > b.abs() { a } else { b });
        let (cosine, sine) = (a / r, b / r);
        [r, if a.abs() > b.abs() { sine } else { cosine.recip() }, sine, cosine]
    };
    numbers.map(|number| [number, 0.0])
}

/// As [`real_rotation`]. The cosine is real, and r has the direction of `a`. There is no z.
fn complex_rotation(a: [f64; 2], b: [f64; 2]) -> [[f64; 2]; 4] {
    let [a, b] = [a, b].map(|[real, imaginary]| Complex::new(real, imaginary));
    let (long, other) = (a.norm(), b.norm());
    let (zero, one) = (Complex::ZERO, Complex::ONE);
    let numbers = if other == 0.0 {
        [a, zero, zero, one]
    } else if long == 0.0 {
        [b, zero, one, zero]
    } else {
        let (direction, length) = (a / long, long.hypot(other));
        [direction * length, zero, direction * (b.conj() / length), Complex::from(long / length)]
    };
    numbers.map(|number| [number.re, number.im])
}
