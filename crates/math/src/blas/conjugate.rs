//! Conjugated matrices on the vendors' libraries, which can conjugate a matrix only if they transpose it too.
//!
//! Which of both they have to do depends on how the result is stored. If it is conjugating alone, we give them a conjugated copy.

use std::ffi::c_void;

use gpustream::{Arg, AsView as _, Buffer, ErrorKind, Result, Stream};
use num_complex::Complex;
use smallvec::smallvec;

use super::call::{Scalars, enqueue, small};
use super::library::Library;
use crate::call::refusal;
use crate::matrix::{Layout, MatrixView, MatrixViewMut, Order};
use crate::number::{DataType, Element, Number, Scalar};

/// Returns a conjugated copy of a matrix, in the other order, if the library would have to conjugate it alone. It would not if the
/// matrix has the order `transposed`, because then it transposes too.
#[track_caller]
pub(super) fn copy_unless<T: Element>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    a: &MatrixView<'_, T>,
    transposed: Order,
) -> Result<Option<(Buffer<T>, Layout)>> {
    if !a.is_conjugated() || a.order() == transposed {
        return Ok(None);
    }
    transposed_copy(stream, label, library, a, library.api.settings().conjugate_transposed).map(Some)
}

/// Copies the elements of a complex matrix in memory to one of the other order, and conjugates them if the library's operation does.
#[track_caller]
pub(super) fn transposed_copy<T: Element>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    a: &MatrixView<'_, T>,
    op: u32,
) -> Result<(Buffer<T>, Layout)> {
    match T::TYPE {
        DataType::C64 => copy::<T, Complex<f64>>(stream, label, library, a, op),
        _ => copy::<T, Complex<f32>>(stream, label, library, a, op),
    }
}

/// Returns the copy if there is one, and otherwise the matrix.
pub(super) fn choose<'a, T: Element>(
    a: MatrixView<'a, T>,
    copy: Option<&'a (Buffer<T>, Layout)>,
) -> Result<MatrixView<'a, T>> {
    match copy {
        None => Ok(a),
        Some((copy, layout)) => MatrixView::with_layout(copy, *layout),
    }
}

/// The libraries' sum of two matrices is such a copy if the second one counts 0 times.
#[track_caller]
fn copy<T: Element, S: Number>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    a: &MatrixView<'_, T>,
    op: u32,
) -> Result<(Buffer<T>, Layout)> {
    // A batch that is one matrix again and again needs one copy.
    let a = &if a.place().stride == 0 { a.first()? } else { *a };
    let (rows, columns, batch) = (a.rows(), a.columns(), a.batch());
    let layout = Layout::new(rows, columns).order(a.order().flipped()).batch(batch);
    // Matrices of a batch may overlap, so there may be more elements than memory has.
    let mut copy = stream.alloc::<T>(rows.saturating_mul(columns).saturating_mul(batch))?;
    if a.place().is_empty() {
        return Ok((copy, layout));
    }
    let (lines, width) = a.place().lines();
    let Some(numbers) = small([lines, width, a.leading()]) else {
        let text = format!(
            "the vendors' libraries copy a matrix of up to 2147483647 rows and columns, and this has {rows}×{columns}"
        );
        return Err(refusal(ErrorKind::Unsupported, label, text));
    };
    let [m, n, leading] = numbers;
    let typed = &library.typed[if T::TYPE == DataType::C64 { 3 } else { 2 }];
    let plain = library.api.settings().plain;
    for index in 0..batch {
        let from = a.matrix(index)?.memory();
        let mut to = MatrixViewMut::with_layout(&mut copy, layout)?.matrix(index)?.into_memory();
        let (x, y) = (from.as_raw().0 as *const c_void, to.view().as_raw().0 as *mut c_void);
        let scalars = Scalars::new(stream, [Scalar::Host(S::ONE), Scalar::Host(S::ZERO)])?;
        let memory = smallvec![Arg::read(&from), Arg::write(&mut to)];
        // SAFETY: the call reads `from` and writes `to`. With a factor of 0 the other input, which is the result, is not read.
        unsafe {
            enqueue(
                stream,
                label,
                library,
                &scalars,
                ("copy", op, T::TYPE, numbers),
                memory,
                |handle, [alpha, beta]| {
                    typed.geam(handle, op, plain, m, n, alpha, x, leading, beta, y.cast_const(), m, y, m)
                },
            )?;
        }
    }
    Ok((copy, layout))
}
