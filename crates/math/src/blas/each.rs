//! Products of matrices that are anywhere in memory. If all are alike, they are one call. The vendor's library then reads their
//! addresses on the device.

use gpustream::{Arg, AsView as _, Result, Stream, View, ViewMut};
use smallvec::SmallVec;

use super::call::{Scalars, enqueue, small};
use super::library::{Library, compute};
use super::{Gemm, addresses, cpu, gemm};
use crate::call::{Address, mismatch};
use crate::matrix::{MatrixView, MatrixViewMut, Order, Place};
use crate::number::{DataType, Element, Number};
use crate::table::Vendor;

/// Returns the matrix for one of the products: the only one is for all.
fn pick<'a, T: Element>(matrices: &[MatrixView<'a, T>], at: usize) -> MatrixView<'a, T> {
    matrices[if matrices.len() == 1 { 0 } else { at }]
}

#[track_caller]
pub(super) fn multiply_each<A: cpu::Multiply<C, S>, C: Element, S: Number>(
    stream: &Stream,
    full: u32,
    options: Gemm<'_, S, C>,
    a: &[MatrixView<'_, A>],
    b: &[MatrixView<'_, A>],
    c: &mut [MatrixViewMut<'_, C>],
) -> Result<()> {
    const LABEL: &str = "gemm_each";
    let count = c.len();
    if [a, b].iter().any(|inputs| ![1, count].contains(&inputs.len())) {
        let text = format!(
            "products of {} and {} matrices for {count} results: give each result one of both, or one for all",
            a.len(),
            b.len()
        );
        return Err(mismatch(LABEL, text));
    }
    // All are checked before the first one is enqueued.
    let mut compute = full;
    for (at, c) in c.iter().enumerate() {
        let (a, b) = (pick(a, at), pick(b, at));
        let places = [a.place(), b.place(), c.place()];
        compute = gemm::check::<A, C, S>(LABEL, full, &options, places)
            .map_err(|error| error.with_context(format!("product {at}")))?;
    }
    match Library::of(stream)? {
        Some(library) if are_alike(&library, compute, &options, a, b, c) => {
            on_library(stream, LABEL, &library, compute, options, a, b, c)
        }
        _ => c.iter_mut().enumerate().try_for_each(|(at, c)| {
            gemm::multiply(stream, full, options, pick(a, at), pick(b, at), MatrixViewMut::from(c))
        }),
    }
}

/// Returns true if one call of the library can make all products.
fn are_alike<A: Element, C: Element, S: Number>(
    library: &Library,
    compute: u32,
    options: &Gemm<'_, S, C>,
    a: &[MatrixView<'_, A>],
    b: &[MatrixView<'_, A>],
    c: &[MatrixViewMut<'_, C>],
) -> bool {
    let [first, _, ..] = c else { return false };
    let (first, columns) = (first.place(), Order::ColumnMajor);
    let form = |matrix: &MatrixView<'_, A>| {
        let place = matrix.place();
        (place.rows, place.columns, place.order, place.leading, place.batch, matrix.is_conjugated())
    };
    let are_alike = [a, b].iter().all(|inputs| inputs.iter().all(|matrix| form(matrix) == form(&inputs[0])));
    let are_alike = are_alike
        && c.iter().all(|c| {
            let place = c.place();
            (place.order, place.leading, place.batch) == (first.order, first.leading, 1)
        });
    // The library cannot conjugate a matrix that it does not transpose.
    let is_transposed = |matrix: &MatrixView<'_, A>| (matrix.order() == columns) != (first.order == columns);
    let conjugates = |matrix: &MatrixView<'_, A>| !matrix.is_conjugated() || is_transposed(matrix);
    let inner = a[0].columns();
    let numbers = [first.rows, first.columns, inner, c.len(), first.leading, a[0].leading(), b[0].leading()];
    are_alike
        && library.api.gemm_each.is_some()
        && options.epilogue.is_none()
        && !first.is_empty()
        && inner > 0
        && small(numbers).is_some()
        && [a, b].iter().all(|inputs| inputs[0].batch() == 1 && conjugates(&inputs[0]))
        && (0..c.len()).all(|at| {
            let (a, b) = (pick(a, at), pick(b, at));
            !gemm::needs_padding(library, &a, &b, &c[at])
                && is_aligned(
                    library,
                    compute,
                    inner,
                    A::TYPE,
                    &[a.memory().as_raw().0, b.memory().as_raw().0, c[at].as_view().memory().as_raw().0],
                )
        })
}

/// Returns true if cuBLAS may read and write matrices at these addresses. It does not check that, and loads so many elements at
/// once that a kernel fails otherwise (NVIDIA's manual on `cublasGemmBatchedEx`).
fn is_aligned(library: &Library, compute: u32, inner: usize, input: DataType, addresses: &[usize]) -> bool {
    let is_fast = matches!(input, DataType::F16 | DataType::Bf16) || compute == compute::TF32;
    let unit = match inner {
        _ if library.api.vendor != Vendor::Nvidia || !is_fast => 1,
        inner if inner.is_multiple_of(8) => 16,
        inner if inner.is_multiple_of(2) => 4,
        _ => 1,
    };
    addresses.iter().all(|address| address.is_multiple_of(unit))
}

#[track_caller]
fn on_library<A: Element, C: Element, S: Number>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    compute: u32,
    options: Gemm<'_, S, C>,
    a: &[MatrixView<'_, A>],
    b: &[MatrixView<'_, A>],
    c: &mut [MatrixViewMut<'_, C>],
) -> Result<()> {
    let (count, place) = (c.len(), c[0].place());
    // If the rows of the results are contiguous, we compute their transposes.
    let (first, second, place, a, b) = if place.order == Order::RowMajor {
        (b[0].t(), a[0].t(), place.transposed(), b, a)
    } else {
        (a[0], b[0], place, a, b)
    };
    // The library finds the matrices by their addresses, so their distance does not matter.
    let all = Place { batch: count, ..place };
    let call = gemm::Call::new(library, &first, &second, (all, C::TYPE), compute);
    let inputs: Vec<View<'_, A>> = a.iter().chain(b).map(MatrixView::memory).collect();
    let mut outputs: Vec<ViewMut<'_, C>> =
        c.iter_mut().map(|c| MatrixViewMut::from(c).into_memory()).collect();
    let addresses = (0..count)
        .map(|at| pick(a, at).memory().as_raw().0)
        .chain((0..count).map(|at| pick(b, at).memory().as_raw().0))
        .chain(outputs.iter().map(|output| output.view().as_raw().0))
        .map(|address| address as u64)
        .collect();
    let array = addresses::on_device(stream, addresses)?;
    let pointers = [0, 1, 2].map(|at| Address(array.as_raw().0 + at * count * size_of::<u64>()));
    let scalars = Scalars::of_product(stream, [options.alpha, options.beta], compute)?;
    let lens = [a.len(), b.len()];
    let mut memory: SmallVec<[Arg<'_>; 6]> = inputs.iter().map(|input| Arg::read(input)).collect();
    memory.extend(outputs.iter_mut().map(|output| Arg::write(output)));
    memory.push(Arg::read(&*array));
    // SAFETY: the products go to the library's stream, read `a`, `b`, the scalars and the array, and write `c`. They depend on nothing
    // but `call` and that: the array has the addresses of the same memory, and `lens` say which of it is `a` and `b`.
    unsafe {
        enqueue(stream, label, library, &scalars, (call, lens), memory, |handle, at| {
            call.make_each(library, handle, pointers, at)
        })
    }
}
