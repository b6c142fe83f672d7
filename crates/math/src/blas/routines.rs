//! Checks the routines that are not products, and enqueues them.

use std::ffi::{c_int, c_void};

use gpustream::{Arg, AsView as _, Buffer, ErrorKind, Plain, Result, Stream, View};
use smallvec::{SmallVec, smallvec};

use super::call::{Scalars, check_scalars, enqueue, small};
use super::cpu_routines::{self, Reduction};
use super::field::Field;
use super::library::Library;
use super::typed::Typed;
use super::{Diagonal, Gemm, Rotation, Triangle, conjugate, gemm};
use crate::call::{mismatch, refusal};
use crate::matrix::{MatrixView, MatrixViewMut, Order, Place};
use crate::number::Scalar;
use crate::vector::{VectorView, VectorViewMut};

/// Returns a routine's numbers as C's `int`.
#[track_caller]
fn ints<const N: usize>(label: &'static str, numbers: [usize; N]) -> Result<[c_int; N]> {
    small(numbers).ok_or_else(|| {
        let text = format!("the vendors' libraries take up to 2147483647 rows, columns and elements, and {numbers:?} are more");
        refusal(ErrorKind::Unsupported, label, text)
    })
}

/// Refuses batches, which only products take.
#[track_caller]
fn check_single(label: &'static str, batches: &[usize]) -> Result<()> {
    if batches.iter().all(|batch| *batch == 1) {
        return Ok(());
    }
    Err(mismatch(
        label,
        format!("batches of {batches:?} matrices: this routine takes one; call it for each `matrix(i)`"),
    ))
}

#[track_caller]
pub(super) fn gemv<T: Field>(
    stream: &Stream,
    [alpha, beta]: [Scalar<'_, T>; 2],
    a: MatrixView<'_, T>,
    x: VectorView<'_, T>,
    mut y: VectorViewMut<'_, T>,
) -> Result<()> {
    const LABEL: &str = "gemv";
    check_single(LABEL, &[a.batch()])?;
    check_scalars(LABEL, &[alpha, beta])?;
    if (a.rows(), a.columns()) != (y.len(), x.len()) {
        let text = format!(
            "a product of {}×{} and {} elements in a vector of {}: give m×k and k for m",
            a.rows(),
            a.columns(),
            x.len(),
            y.len()
        );
        return Err(mismatch(LABEL, text));
    }
    if y.is_empty() {
        return Ok(());
    }
    let library = Library::of(stream)?;
    // With contiguous columns, the libraries would have to conjugate `a` alone. Products need not, because `y` can be a row for
    // them.
    let is_product = a.is_conjugated() && a.order() == Order::ColumnMajor;
    let Some(library) = library.filter(|_| !x.is_empty() && !is_product) else {
        // The libraries do nothing if there is nothing to add up, and leave `y` as it is.
        let options = Gemm { alpha, beta, ..Gemm::new() };
        return gemm::multiply_labelled(stream, LABEL, options, a, x.as_column()?, y.as_column()?);
    };
    let place = a.place();
    let (lines, width) = place.lines();
    let numbers = ints(LABEL, [width, lines, place.leading, x.step(), y.step()])?;
    let [m, n, leading, x_step, y_step] = numbers;
    let op = library.api.settings().op(place.order == Order::RowMajor, a.is_conjugated());
    let scalars = Scalars::new(stream, [alpha, beta])?;
    let (a, x, y) = (a.memory(), x.memory(), y.memory_mut());
    let (from, by, to) = (at(&a), at(&x), at_mut(y));
    let memory = smallvec![Arg::read(&a), Arg::read(&x), Arg::write(y)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads `a`, `x` and the scalars, writes `y`, and depends on nothing but `numbers`, `op` and that.
    unsafe {
        enqueue(
            stream,
            LABEL,
            &library,
            &scalars,
            (T::PLACE, op, numbers),
            memory,
            |handle, [alpha, beta]| {
                typed.gemv(handle, op, m, n, alpha, from, leading, by, x_step, beta, to, y_step)
            },
        )
    }
}

fn typed<T: Field>(library: &Library) -> &'static Typed {
    &library.typed[T::PLACE]
}

fn at<T: Plain>(view: &gpustream::View<'_, T>) -> *const c_void {
    view.as_raw().0 as *const c_void
}

fn at_mut<T: Plain>(view: &gpustream::ViewMut<'_, T>) -> *mut c_void {
    view.view().as_raw().0 as *mut c_void
}

/// Adds the product of a column and a row, whose elements may count conjugated.
#[track_caller]
pub(super) fn ger<T: Field>(
    stream: &Stream,
    is_conjugated: bool,
    alpha: Scalar<'_, T>,
    x: VectorView<'_, T>,
    y: VectorView<'_, T>,
    a: MatrixViewMut<'_, T>,
) -> Result<()> {
    let label = if is_conjugated { "gerc" } else { "ger" };
    check_single(label, &[a.batch()])?;
    check_scalars(label, &[alpha])?;
    if (a.rows(), a.columns()) != (x.len(), y.len()) {
        let text = format!(
            "a product of vectors of {} and {} elements, added to a matrix of {}×{}: give m and n for m×n",
            x.len(),
            y.len(),
            a.rows(),
            a.columns()
        );
        return Err(mismatch(label, text));
    }
    if a.place().is_empty() {
        return Ok(());
    }
    // With contiguous rows, `x` and `y` change places below, and the libraries only conjugate the second one. Products can conjugate
    // this one too, because a row is also a transposed column.
    let is_product = is_conjugated && T::TYPE.is_complex() && a.place().order == Order::RowMajor;
    let Some(library) = Library::of(stream)?.filter(|_| !is_product) else {
        let options = Gemm { alpha, beta: Scalar::Host(T::ONE), ..Gemm::new() };
        let (x, y) = (x.as_column()?, y.as_column()?);
        return gemm::multiply_labelled(
            stream,
            label,
            options,
            x,
            if is_conjugated { y.h() } else { y.t() },
            a,
        );
    };
    // If the rows are contiguous, the transposed matrix has contiguous columns, and x and y change places.
    let (x, y, a) = if a.place().order == Order::RowMajor { (y, x, a.t()) } else { (x, y, a) };
    let place = a.place();
    let numbers = ints(label, [place.rows, place.columns, place.leading, x.step(), y.step()])?;
    let [m, n, leading, x_step, y_step] = numbers;
    let scalars = Scalars::new(stream, [alpha])?;
    let (x, y, mut a) = (x.memory(), y.memory(), a.into_memory());
    let (left, right, to) = (at(&x), at(&y), at_mut(&a));
    let memory = smallvec![Arg::read(&x), Arg::read(&y), Arg::write(&mut a)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads `x`, `y` and the scalar, writes `a`, and depends on nothing but `numbers` and that.
    unsafe {
        enqueue(stream, label, &library, &scalars, (T::PLACE, numbers), memory, |handle, [alpha, _]| {
            if is_conjugated {
                typed.gerc(handle, m, n, alpha, left, x_step, right, y_step, to, leading)
            } else {
                typed.ger(handle, m, n, alpha, left, x_step, right, y_step, to, leading)
            }
        })
    }
}

#[track_caller]
pub(super) fn syrk<T: Field>(
    stream: &Stream,
    [alpha, beta]: [Scalar<'_, T>; 2],
    a: MatrixView<'_, T>,
    triangle: Triangle,
    c: MatrixViewMut<'_, T>,
) -> Result<()> {
    const LABEL: &str = "syrk";
    if a.is_conjugated() {
        let text = "a conjugated matrix, and this routine multiplies by the transpose without conjugating; call `herk`, which \
                    conjugates one of them";
        return Err(refusal(ErrorKind::Unsupported, LABEL, text.to_owned()));
    }
    check_square(LABEL, a.place(), c.place())?;
    check_scalars(LABEL, &[alpha, beta])?;
    if c.place().is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::syrk(stream, LABEL, false, [alpha, beta], |scalar| scalar, a, triangle, c);
    };
    let (from, place) = (a.place(), c.place());
    let numbers = ints(LABEL, [from.rows, from.columns, from.leading.max(1), place.leading])?;
    let [n, k, a_leading, c_leading] = numbers;
    let settings = library.api.settings();
    let op = if from.order == Order::ColumnMajor { settings.plain } else { settings.transposed };
    let part = triangle.in_columns(place).setting(&library);
    let scalars = Scalars::new(stream, [alpha, beta])?;
    let (a, mut c) = (a.memory(), c.into_memory());
    let (from, to) = (at(&a), at_mut(&c));
    let memory = smallvec![Arg::read(&a), Arg::write(&mut c)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads `a` and the scalars, writes `c`, and depends on nothing but the description and that.
    unsafe {
        enqueue(
            stream,
            LABEL,
            &library,
            &scalars,
            (T::PLACE, op, part, numbers),
            memory,
            |handle, [alpha, beta]| {
                typed.syrk(handle, part, op, n, k, alpha, from, a_leading, beta, to, c_leading)
            },
        )
    }
}

/// Checks the shapes of a product with its own transpose.
#[track_caller]
fn check_square(label: &'static str, a: Place, c: Place) -> Result<()> {
    check_single(label, &[a.batch, c.batch])?;
    if (c.rows, c.columns) == (a.rows, a.rows) {
        return Ok(());
    }
    let text = format!(
        "a product of {}×{} and its transpose in a matrix of {}×{}: give n×k for n×n",
        a.rows, a.columns, c.rows, c.columns
    );
    Err(mismatch(label, text))
}

#[track_caller]
pub(super) fn herk<T: Field>(
    stream: &Stream,
    [alpha, beta]: [Scalar<'_, T::Real>; 2],
    a: MatrixView<'_, T>,
    triangle: Triangle,
    c: MatrixViewMut<'_, T>,
) -> Result<()> {
    const LABEL: &str = "herk";
    check_square(LABEL, a.place(), c.place())?;
    check_scalars(LABEL, &[alpha, beta])?;
    if c.place().is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::syrk(
            stream,
            LABEL,
            T::TYPE.is_complex(),
            [alpha, beta],
            |scalar| T::ONE.times(scalar),
            a,
            triangle,
            c,
        );
    };
    let (settings, place) = (library.api.settings(), c.place());
    // The library conjugates the second factor. If the rows of `c` are contiguous, it sees the transpose of `c`, which is its
    // conjugate. It has the right factors if `a` has the order of `c`, or the other one and is conjugated. Otherwise we give it a
    // transposed copy.
    let is_right = !T::TYPE.is_complex() || (a.order() == place.order) != a.is_conjugated();
    let copy = if is_right {
        None
    } else {
        Some(conjugate::transposed_copy(stream, LABEL, &library, &a, settings.transposed)?)
    };
    let a = conjugate::choose(a, copy.as_ref())?;
    let from = a.place();
    let numbers = ints(LABEL, [from.rows, from.columns, from.leading.max(1), place.leading])?;
    let [n, k, a_leading, c_leading] = numbers;
    let op = settings.op(from.order == Order::RowMajor, T::TYPE.is_complex());
    let part = triangle.in_columns(place).setting(&library);
    let scalars = Scalars::new(stream, [alpha, beta])?;
    let (a, mut c) = (a.memory(), c.into_memory());
    let (from, to) = (at(&a), at_mut(&c));
    let memory = smallvec![Arg::read(&a), Arg::write(&mut c)];
    let typed = typed::<T>(&library);
    let description = (T::PLACE, op, part, numbers);
    // SAFETY: the call reads `a` and the scalars, writes `c`, and depends on nothing but the description and that.
    unsafe {
        enqueue(stream, LABEL, &library, &scalars, description, memory, |handle, [alpha, beta]| {
            typed.herk(handle, part, op, n, k, alpha, from, a_leading, beta, to, c_leading)
        })
    }
}

impl Triangle {
    /// Returns which triangle this is of the matrix that a library sees, whose columns are contiguous.
    fn in_columns(self, place: Place) -> Self {
        match (place.order, self) {
            (Order::ColumnMajor, triangle) => triangle,
            (Order::RowMajor, Self::Lower) => Self::Upper,
            (Order::RowMajor, Self::Upper) => Self::Lower,
        }
    }

    fn setting(self, library: &Library) -> u32 {
        match self {
            Self::Lower => library.api.settings().lower,
            Self::Upper => library.api.settings().upper,
        }
    }
}

/// The two routines of triangular matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Triangular {
    /// Solves `a x = alpha b` for `x`.
    Solve,
    /// Computes `alpha a b`.
    Multiply,
}

#[track_caller]
pub(super) fn triangular<T: Field>(
    stream: &Stream,
    routine: Triangular,
    alpha: Scalar<'_, T>,
    (triangle, diagonal, a): (Triangle, Diagonal, MatrixView<'_, T>),
    b: MatrixViewMut<'_, T>,
) -> Result<()> {
    let label = if routine == Triangular::Solve { "trsm" } else { "trmm" };
    check_single(label, &[a.batch(), b.batch()])?;
    check_scalars(label, &[alpha])?;
    if a.rows() != a.columns() || a.rows() != b.rows() {
        let text = format!(
            "a triangular matrix of {}×{} and a matrix of {}×{}: give m×m and m×n; if the triangular one is on the right, transpose \
             both",
            a.rows(),
            a.columns(),
            b.rows(),
            b.columns()
        );
        return Err(mismatch(label, text));
    }
    if b.place().is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::triangular(stream, label, routine, alpha, (triangle, diagonal, a), b);
    };
    let settings = library.api.settings();
    let copy = conjugate::copy_unless(stream, label, &library, &a, b.place().order.flipped())?;
    let a = conjugate::choose(a, copy.as_ref())?;
    let (from, place) = (a.place(), b.place());
    // A library sees each matrix with contiguous columns. If the rows of `b` are, it sees the transposed problem, in which `a` is
    // on the right.
    let (side, size) = match place.order {
        Order::ColumnMajor => (settings.left, [place.rows, place.columns]),
        Order::RowMajor => (settings.right, [place.columns, place.rows]),
    };
    let op = settings.op(from.order != place.order, a.is_conjugated());
    let part = triangle.in_columns(from).setting(&library);
    let ones = if diagonal == Diagonal::Ones { settings.unit } else { settings.stored };
    let numbers = ints(label, [size[0], size[1], from.leading, place.leading])?;
    let [m, n, a_leading, b_leading] = numbers;
    let scalars = Scalars::new(stream, [alpha])?;
    let (a, mut b) = (a.memory(), b.into_memory());
    let (from, to) = (at(&a), at_mut(&b));
    let memory = smallvec![Arg::read(&a), Arg::write(&mut b)];
    let typed = typed::<T>(&library);
    let description = (T::PLACE, [side, part, op, ones], numbers);
    // SAFETY: the call reads `a` and the scalar, writes `b`, and depends on nothing but the description and that.
    unsafe {
        enqueue(stream, label, &library, &scalars, description, memory, |handle, [alpha, _]| match routine {
            Triangular::Solve => {
                typed.trsm(handle, side, part, op, ones, m, n, alpha, from, a_leading, to, b_leading)
            }
            // In place, which the libraries allow.
            Triangular::Multiply => typed.trmm(
                handle, side, part, op, ones, m, n, alpha, from, a_leading, to, b_leading, to, b_leading,
            ),
        })
    }
}

/// Computes one number from one or two vectors.
#[track_caller]
pub(super) fn reduce<T: Field, R: Plain>(
    stream: &Stream,
    reduction: Reduction,
    x: VectorView<'_, T>,
    y: Option<VectorView<'_, T>>,
) -> Result<Buffer<R>> {
    let label = reduction.label();
    if let Some(y) = y
        && y.len() != x.len()
    {
        let text = format!(
            "a product of vectors of {} and {} elements: give vectors of one length",
            x.len(),
            y.len()
        );
        return Err(mismatch(label, text));
    }
    if x.is_empty() {
        return stream.zeros(1);
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::reduce::<T, R>(stream, reduction, x, y);
    };
    let y_step = y.map_or(1, |y| y.step());
    let numbers = ints(label, [x.len(), x.step(), y_step])?;
    let [n, x_step, y_step] = numbers;
    let mut result = stream.alloc::<R>(1)?;
    let to = result.as_raw().0 as *mut c_void;
    let (x, y) = (x.memory(), y.map(|y| y.memory()));
    let (first, second) = (at(&x), y.as_ref().map_or(std::ptr::null(), at));
    let scalars = Scalars::of_result();
    let mut memory: SmallVec<[Arg<'_>; 6]> = smallvec![Arg::read(&x), Arg::write(&mut result)];
    memory.extend(y.iter().map(|y| Arg::read(y)));
    let typed = typed::<T>(&library);
    // SAFETY: the call reads `x` and `y`, writes the result, and depends on nothing but `numbers` and that.
    unsafe {
        enqueue(
            stream,
            label,
            &library,
            &scalars,
            (T::PLACE, numbers),
            memory,
            |handle, _| match reduction {
                Reduction::Dot => typed.dot(handle, n, first, x_step, second, y_step, to),
                Reduction::ConjugatedDot => typed.dotc(handle, n, first, x_step, second, y_step, to),
                Reduction::Norm => typed.nrm2(handle, n, first, x_step, to),
                Reduction::Sum => typed.asum(handle, n, first, x_step, to),
                Reduction::Largest => typed.iamax(handle, n, first, x_step, to),
            },
        )?;
    }
    Ok(result)
}

/// Checks that two vectors belong together.
#[track_caller]
fn check_lens(label: &'static str, x: usize, y: usize) -> Result<()> {
    if x == y {
        return Ok(());
    }
    Err(mismatch(label, format!("vectors of {x} and {y} elements: give vectors of one length")))
}

#[track_caller]
pub(super) fn axpy<T: Field>(
    stream: &Stream,
    alpha: Scalar<'_, T>,
    x: VectorView<'_, T>,
    mut y: VectorViewMut<'_, T>,
) -> Result<()> {
    const LABEL: &str = "axpy";
    check_scalars(LABEL, &[alpha])?;
    check_lens(LABEL, x.len(), y.len())?;
    if x.is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::axpy(stream, LABEL, alpha, x, y);
    };
    let numbers = ints(LABEL, [x.len(), x.step(), y.step()])?;
    let [n, x_step, y_step] = numbers;
    let scalars = Scalars::new(stream, [alpha])?;
    let (x, y) = (x.memory(), y.memory_mut());
    let (from, to) = (at(&x), at_mut(y));
    let memory = smallvec![Arg::read(&x), Arg::write(y)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads `x` and the scalar, writes `y`, and depends on nothing but `numbers` and that.
    unsafe {
        enqueue(stream, LABEL, &library, &scalars, (T::PLACE, numbers), memory, |handle, [alpha, _]| {
            typed.axpy(handle, n, alpha, from, x_step, to, y_step)
        })
    }
}

#[track_caller]
pub(super) fn rot<T: Field>(
    stream: &Stream,
    cosine: Scalar<'_, T::Real>,
    sine: Scalar<'_, T>,
    mut x: VectorViewMut<'_, T>,
    mut y: VectorViewMut<'_, T>,
) -> Result<()> {
    const LABEL: &str = "rot";
    check_scalars(LABEL, &[cosine])?;
    check_scalars(LABEL, &[sine])?;
    check_lens(LABEL, x.len(), y.len())?;
    if x.is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::rot(stream, LABEL, cosine, sine, x, y);
    };
    let numbers = ints(LABEL, [x.len(), x.step(), y.step()])?;
    let [n, x_step, y_step] = numbers;
    let scalars = Scalars::of_types(stream, cosine, sine)?;
    let (x, y) = (x.memory_mut(), y.memory_mut());
    let (first, second) = (at_mut(x), at_mut(y));
    let memory = smallvec![Arg::write(x), Arg::write(y)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads the factors, writes `x` and `y`, and depends on nothing but `numbers` and that.
    unsafe {
        enqueue(stream, LABEL, &library, &scalars, (T::PLACE, numbers), memory, |handle, [cosine, sine]| {
            typed.rot(handle, n, first, x_step, second, y_step, cosine, sine)
        })
    }
}

#[track_caller]
pub(super) fn rotg<T: Field>(stream: &Stream, [a, b]: [View<'_, T>; 2]) -> Result<Rotation<T>> {
    const LABEL: &str = "rotg";
    for view in [a, b] {
        if view.len() != 1 {
            let text = format!("a coordinate in a view of {} elements: give a view of one", view.len());
            return Err(mismatch(LABEL, text));
        }
    }
    let mut rotation = Rotation { cosine: stream.alloc(1)?, others: stream.alloc(3)? };
    let Some(library) = Library::of(stream)? else {
        cpu_routines::rotg(stream, LABEL, [a, b], &mut rotation)?;
        return Ok(rotation);
    };
    let Rotation { cosine, others } = &mut rotation;
    stream.copy(&a, &mut others.slice_mut(..1)?)?;
    stream.copy(&b, &mut others.slice_mut(1..2)?)?;
    let (first, cosine_at) = (at_mut(&others.slice_mut(..)?), at_mut(&cosine.slice_mut(..)?));
    let scalars = Scalars::of_result();
    let memory = smallvec![Arg::write(others), Arg::write(cosine)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads and writes the four numbers, and depends on nothing but that.
    unsafe {
        enqueue(stream, LABEL, &library, &scalars, T::PLACE, memory, |handle, _| {
            let [r, z, sine] = [0, 1, 2].map(|at| first.cast::<T>().add(at).cast());
            typed.rotg(handle, r, z, cosine_at, sine)
        })?;
    }
    Ok(rotation)
}

#[track_caller]
pub(super) fn scal<T: Field>(
    stream: &Stream,
    alpha: Scalar<'_, T>,
    mut x: VectorViewMut<'_, T>,
) -> Result<()> {
    const LABEL: &str = "scal";
    check_scalars(LABEL, &[alpha])?;
    if x.is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return cpu_routines::scal(stream, LABEL, alpha, x);
    };
    let numbers = ints(LABEL, [x.len(), x.step()])?;
    let [n, step] = numbers;
    let scalars = Scalars::new(stream, [alpha])?;
    let x = x.memory_mut();
    let to = at_mut(x);
    let memory = smallvec![Arg::write(x)];
    let typed = typed::<T>(&library);
    // SAFETY: the call reads the scalar, writes `x`, and depends on nothing but `numbers` and that.
    unsafe {
        enqueue(stream, LABEL, &library, &scalars, (T::PLACE, numbers), memory, |handle, [alpha, _]| {
            typed.scal(handle, n, alpha, to, step)
        })
    }
}
