//! Products on the CPU device: tiles of the result, which the device's workers compute by the crate `gemm`.
//!
//! The crate computes in `f32`, `f64` and complex numbers. For shorter elements, a worker widens pieces of the inputs to `f32`,
//! multiplies those, and rounds each element of the result once. The sums of `i8` are exact in `f32`, because a product has at
//! most 14 bits and we add up no more than 1024 of them before we go on in `i32`.

use std::cell::RefCell;
use std::ops::Range;

use gpustream::half::slice::HalfFloatSliceExt as _;
use gpustream::half::{bf16, f16};
use gpustream::{Part, Plain, View};
use num_complex::Complex;

use super::epilogue::TileEpilogue;
use crate::call::Address;
use crate::matrix::{MatrixView, Place};
use crate::number::{Element, Number, Scalar};

/// A matrix, or a batch of them, in the host's memory.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub(super) address: Address,
    /// The distance to the next row, to the next column and to the next matrix.
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) matrix: usize,
    /// Whether the conjugates of the elements count.
    pub(super) is_conjugated: bool,
}

impl Operand {
    /// Returns the matrix that is stored in this way in `memory`. Its elements count as they are.
    pub(super) fn of<T: Plain>(place: Place, memory: View<'_, T>) -> Self {
        let (row, column) = place.steps();
        let address = Address(memory.as_raw().0);
        Self { address, row, column, matrix: place.matrix_step(), is_conjugated: false }
    }

    /// Returns the matrix that a view shows.
    pub(super) fn of_view<T: Plain>(matrix: &MatrixView<'_, T>) -> Self {
        let is_conjugated = matrix.is_conjugated();
        Self { is_conjugated, ..Self::of(matrix.place(), matrix.memory()) }
    }

    /// Returns the part that begins at a row and a column of one matrix, for reading.
    ///
    /// # Safety
    /// As for [`at`](Self::at).
    pub(super) unsafe fn from<T>(&self, matrix: usize, row: usize, column: usize) -> Input<T> {
        // SAFETY: by this function's contract.
        let first = unsafe { self.at::<T>(matrix, row, column) };
        Input { first, row: self.row, column: self.column, is_conjugated: self.is_conjugated }
    }

    /// Returns the element at a row and a column of one matrix.
    ///
    /// # Safety
    /// The matrix has elements of type `T` before or at that place.
    pub(super) unsafe fn at<T>(&self, matrix: usize, row: usize, column: usize) -> *mut T {
        let index = matrix * self.matrix + row * self.row + column * self.column;
        // SAFETY: by this function's contract.
        unsafe { self.address.write::<T>().add(index) }
    }
}

/// A part of a matrix that a product reads: its first element, and the distances to the next row and column.
#[derive(Clone, Copy)]
pub(super) struct Input<T> {
    pub(super) first: *const T,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) is_conjugated: bool,
}

impl<T> Input<T> {
    pub(super) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
}

/// A scalar: a value, or the address of one that comes later.
#[derive(Clone, Copy)]
pub(super) enum Factor<S> {
    Value(S),
    At(Address),
}

impl<S: Number> From<Scalar<'_, S>> for Factor<S> {
    fn from(scalar: Scalar<'_, S>) -> Self {
        match scalar {
            Scalar::Host(value) => Self::Value(value),
            Scalar::Device(view) => Self::At(Address(view.as_raw().0)),
        }
    }
}

impl<S: Number> Factor<S> {
    /// # Safety
    /// If it is an address, the scalar has been written there.
    pub(super) unsafe fn get(self) -> S {
        match self {
            Self::Value(value) => value,
            // SAFETY: by this function's contract.
            Self::At(address) => unsafe { *address.read::<S>() },
        }
    }
}

/// A product: m×k times k×n, for each matrix of a batch.
#[derive(Clone, Copy)]
pub(super) struct Job<S> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) batch: usize,
    pub(super) a: Operand,
    pub(super) b: Operand,
    pub(super) c: Operand,
    pub(super) alpha: Factor<S>,
    pub(super) beta: Factor<S>,
}

/// How a result is cut into tiles: each matrix into so many rows and columns of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    rows: u32,
    columns: u32,
    parts: u32,
}

impl Tiles {
    /// Returns tiles that keep all workers busy, but are not so small that packing them costs more than multiplying.
    pub(super) fn of<S>(job: &Job<S>, workers: u32) -> Self {
        /// The shortest side of a tile, and the multiplications that are worth a part of their own.
        const SIDE: usize = 64;
        const WORK: usize = 64 * 64 * 64;
        let work = job.m.saturating_mul(job.n).saturating_mul(job.k.max(1)).saturating_mul(job.batch);
        let workers = workers as usize;
        // With twice as many tiles as workers, a slow one matters less.
        let wanted = if workers == 1 { 1 } else { (2 * workers).min(work.div_ceil(WORK)) };
        let per_matrix = wanted.div_ceil(job.batch.max(1));
        let most = [job.m.div_ceil(SIDE), job.n.div_ceil(SIDE)];
        // As square as possible: the rows are to the columns as m is to n.
        let ratio = (job.m as f64 / job.n as f64 * per_matrix as f64).sqrt();
        let rows = (ratio.round() as usize).clamp(1, most[0].min(per_matrix));
        let columns = per_matrix.div_ceil(rows).clamp(1, most[1]);
        let tiles = rows.saturating_mul(columns).saturating_mul(job.batch);
        let parts = tiles.min((8 * workers).max(rows * columns));
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { rows: number(rows), columns: number(columns), parts: number(parts) }
    }

    pub(super) fn parts(self) -> u32 {
        self.parts
    }

    /// Computes one part's tiles.
    ///
    /// # Safety
    /// The job's memory is there, its inputs are written, and nothing else uses the result. The epilogue is for results of type
    /// `C`, and its bias has an element for each column.
    pub(super) unsafe fn run<A: Multiply<C, S>, C: Element, S: Number>(
        self,
        job: &Job<S>,
        epilogue: Option<&TileEpilogue>,
        part: Part,
    ) {
        let per_matrix = self.rows as usize * self.columns as usize;
        for tile in part.range(per_matrix * job.batch) {
            let (matrix, tile) = (tile / per_matrix, tile % per_matrix);
            let share = |index: usize, count: u32, len| Part { index: index as u32, count }.range(len);
            let rows = share(tile / self.columns as usize, self.rows, job.m);
            let columns = share(tile % self.columns as usize, self.columns, job.n);
            if rows.is_empty() || columns.is_empty() {
                continue;
            }
            // SAFETY: by this function's contract.
            unsafe {
                let (alpha, beta) = (job.alpha.get(), job.beta.get());
                A::multiply(job, matrix, rows.clone(), columns.clone(), alpha, beta);
                if let Some(epilogue) = epilogue {
                    epilogue.run(&job.c, matrix, rows, columns);
                }
            }
        }
    }
}

/// Elements that the CPU device can multiply.
#[doc(hidden)]
pub trait Multiply<C, S>: Element {
    /// Computes one tile of one matrix.
    ///
    /// # Safety
    /// As for [`Tiles::run`]; the tile is inside the matrix and not empty.
    #[allow(private_interfaces, reason = "only this crate calls it")]
    unsafe fn multiply(
        job: &Job<S>,
        matrix: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        alpha: S,
        beta: S,
    );
}

macro_rules! by_crate {
    ($($number:ty),*) => {$(
        #[allow(private_interfaces, reason = "as in the trait")]
        impl Multiply<$number, $number> for $number {
            unsafe fn multiply(
                job: &Job<$number>,
                matrix: usize,
                rows: Range<usize>,
                columns: Range<usize>,
                alpha: $number,
                beta: $number,
            ) {
                let Job { a, b, c, .. } = job;
                // SAFETY: the tile is inside the matrices, by this function's contract.
                unsafe {
                    multiply_tile(
                        (rows.len(), columns.len(), job.k),
                        (c.at(matrix, rows.start, columns.start), c.row, c.column),
                        a.from(matrix, rows.start, 0),
                        b.from(matrix, 0, columns.start),
                        alpha,
                        beta,
                    );
                }
            }
        }
    )*};
}
by_crate!(f32, f64, Complex<f32>, Complex<f64>);

/// Computes `c = alpha a b + beta c` by the crate. The result is its first element and the distances to the next row and column.
///
/// # Safety
/// The matrices are there, and nothing else uses `c`.
pub(super) unsafe fn multiply_tile<T: Number>(
    (m, n, k): (usize, usize, usize),
    (c, c_row, c_column): (*mut T, usize, usize),
    a: Input<T>,
    b: Input<T>,
    alpha: T,
    beta: T,
) {
    let step = usize::cast_signed;
    // SAFETY: by this function's contract.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c,
            step(c_column),
            step(c_row),
            beta != T::ZERO,
            a.first,
            step(a.column),
            step(a.row),
            b.first,
            step(b.column),
            step(b.row),
            // The crate calls the factor of the old elements alpha.
            beta,
            alpha,
            false,
            a.is_conjugated,
            b.is_conjugated,
            gemm::Parallelism::None,
        );
    }
}

/// Elements that are widened to `f32`.
trait Short: Element {
    fn widen(short: &[Self], wide: &mut [f32]);
}

impl Short for f16 {
    fn widen(short: &[Self], wide: &mut [f32]) {
        short.convert_to_f32_slice(wide);
    }
}

impl Short for bf16 {
    fn widen(short: &[Self], wide: &mut [f32]) {
        short.convert_to_f32_slice(wide);
    }
}

impl Short for i8 {
    fn widen(short: &[Self], wide: &mut [f32]) {
        wide.iter_mut().zip(short).for_each(|(wide, short)| *wide = f32::from(*short));
    }
}

/// The result of a product of short elements.
trait Rounded<S>: Element {
    /// What a worker adds up, beyond one piece.
    type Sum: Copy + Default + 'static;

    fn add(sum: Self::Sum, piece: f32) -> Self::Sum;

    /// Returns the element for a sum. `old` is `None` if the old element is not read.
    fn round(sum: Self::Sum, alpha: S, beta: S, old: Option<Self>) -> Self;

    /// Lends the sums that a worker keeps between tiles.
    fn with_sums(work: impl FnOnce(&mut Vec<Self::Sum>));
}

macro_rules! rounded {
    ($($element:ty: $from:expr, $to:expr;)*) => {$(
        impl Rounded<f32> for $element {
            type Sum = f32;

            fn add(sum: f32, piece: f32) -> f32 {
                sum + piece
            }

            fn round(sum: f32, alpha: f32, beta: f32, old: Option<Self>) -> Self {
                let old = old.map_or(0.0, |old| beta * $to(old));
                $from(alpha * sum + old)
            }

            fn with_sums(work: impl FnOnce(&mut Vec<f32>)) {
                thread_local! { static SUMS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) }; }
                SUMS.with_borrow_mut(work);
            }
        }
    )*};
}
rounded! {
    f16: f16::from_f32, f16::to_f32;
    bf16: bf16::from_f32, bf16::to_f32;
    f32: f32::from, f32::from;
}

impl Rounded<i32> for i32 {
    type Sum = i32;

    fn add(sum: i32, piece: f32) -> i32 {
        sum.wrapping_add(piece as i32)
    }

    fn round(sum: i32, alpha: i32, beta: i32, old: Option<Self>) -> Self {
        alpha.wrapping_mul(sum).wrapping_add(old.map_or(0, |old| beta.wrapping_mul(old)))
    }

    fn with_sums(work: impl FnOnce(&mut Vec<i32>)) {
        thread_local! { static SUMS: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) }; }
        SUMS.with_borrow_mut(work);
    }
}

macro_rules! widened {
    ($($input:ty => $output:ty, $scalar:ty;)*) => {$(
        #[allow(private_interfaces, reason = "as in the trait")]
        impl Multiply<$output, $scalar> for $input {
            unsafe fn multiply(
                job: &Job<$scalar>,
                matrix: usize,
                rows: Range<usize>,
                columns: Range<usize>,
                alpha: $scalar,
                beta: $scalar,
            ) {
                // SAFETY: by this function's contract.
                unsafe { multiply_widened::<$input, $output, $scalar>(job, matrix, rows, columns, alpha, beta) }
            }
        }
    )*};
}
widened! {
    f16 => f16, f32;
    f16 => f32, f32;
    bf16 => bf16, f32;
    bf16 => f32, f32;
    i8 => i32, i32;
}

/// The largest piece that a worker widens at once: rows, columns, and products for each element. The pieces stay in the second
/// cache, and sums of as many products of `i8` are exact in `f32`.
const PIECE: [usize; 3] = [128, 192, 512];

thread_local! {
    /// A worker's widened pieces of both inputs, and their product.
    static PIECES: RefCell<[Vec<f32>; 3]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Computes a tile of a product of short elements.
///
/// # Safety
/// As for [`Multiply::multiply`].
unsafe fn multiply_widened<A: Short, C: Rounded<S>, S: Number>(
    job: &Job<S>,
    matrix: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    alpha: S,
    beta: S,
) {
    let pieces = |range: &Range<usize>, size: usize| {
        let end = range.end;
        range.clone().step_by(size).map(move |start| start..(start + size).min(end))
    };
    PIECES.with_borrow_mut(|[wide_a, wide_b, product]| {
        C::with_sums(|sums| {
            for rows in pieces(&rows, PIECE[0]) {
                for columns in pieces(&columns, PIECE[1]) {
                    let (m, n) = (rows.len(), columns.len());
                    sums.clear();
                    sums.resize(m * n, C::Sum::default());
                    product.resize(m * n, 0.0);
                    for ks in pieces(&(0..job.k), PIECE[2]) {
                        let k = ks.len();
                        // SAFETY: the pieces are inside the matrices, by this function's contract.
                        unsafe {
                            let a = widen_piece::<A>(&job.a, matrix, (rows.start, m), (ks.start, k), wide_a);
                            let b =
                                widen_piece::<A>(&job.b, matrix, (ks.start, k), (columns.start, n), wide_b);
                            multiply_tile((m, n, k), (product.as_mut_ptr(), n, 1), a, b, 1.0, 0.0);
                        }
                        let products = product[..m * n].iter();
                        sums.iter_mut().zip(products).for_each(|(sum, &piece)| *sum = C::add(*sum, piece));
                    }
                    for (i, sums) in sums.chunks_exact(n).enumerate() {
                        for (j, sum) in sums.iter().enumerate() {
                            // SAFETY: the element is in this tile.
                            unsafe {
                                let to = job.c.at::<C>(matrix, rows.start + i, columns.start + j);
                                let old = (beta != S::ZERO).then(|| *to);
                                *to = C::round(*sum, alpha, beta, old);
                            }
                        }
                    }
                }
            }
        });
    });
}

/// Widens a piece of a matrix. Lines that are contiguous stay so.
///
/// # Safety
/// The piece is inside the matrix.
unsafe fn widen_piece<A: Short>(
    operand: &Operand,
    matrix: usize,
    (row, rows): (usize, usize),
    (column, columns): (usize, usize),
    wide: &mut Vec<f32>,
) -> Input<f32> {
    wide.resize(rows * columns, 0.0);
    let by_rows = operand.column == 1;
    let width = if by_rows { columns } else { rows };
    for (line, wide) in wide.chunks_exact_mut(width).enumerate() {
        let (row, column) = if by_rows { (row + line, column) } else { (row, column + line) };
        // SAFETY: the line is inside the matrix, and contiguous.
        let short = unsafe { std::slice::from_raw_parts(operand.at::<A>(matrix, row, column), width) };
        A::widen(short, wide);
    }
    let (row, column) = if by_rows { (columns, 1) } else { (1, rows) };
    Input { first: wide.as_ptr(), row, column, is_conjugated: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(m: usize, n: usize, k: usize, batch: usize, workers: u32) -> Tiles {
        let operand = Operand { address: Address(0), row: 0, column: 0, matrix: 0, is_conjugated: false };
        let (alpha, beta) = (Factor::Value(1.0f32), Factor::Value(0.0));
        Tiles::of(&Job { m, n, k, batch, a: operand, b: operand, c: operand, alpha, beta }, workers)
    }

    #[test]
    fn large_products_are_cut_for_all_workers_and_small_ones_are_not() {
        assert_eq!(tiles(4096, 4096, 4096, 1, 8), Tiles { rows: 4, columns: 4, parts: 16 });
        assert_eq!(tiles(65536, 16, 512, 1, 8), Tiles { rows: 16, columns: 1, parts: 16 });
        assert_eq!(tiles(16, 65536, 512, 1, 8), Tiles { rows: 1, columns: 16, parts: 16 });
        assert_eq!(tiles(64, 64, 64, 1, 8), Tiles { rows: 1, columns: 1, parts: 1 });
        assert_eq!(tiles(4096, 4096, 4096, 1, 1), Tiles { rows: 1, columns: 1, parts: 1 });
        assert_eq!(tiles(512, 512, 512, 100, 8), Tiles { rows: 1, columns: 1, parts: 64 });
        assert_eq!(tiles(1, 1, 0, 1, 8).parts, 1);
    }
}
