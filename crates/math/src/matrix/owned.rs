//! Matrices that own their memory.

use gpustream::{AsView as _, AsViewMut as _, Buffer, Plain, Result};

use super::{Layout, MatrixView, MatrixViewMut, Order, Place};
use crate::call::named;

/// A matrix that owns its memory on the device, without gaps. The routines take it wherever they take a view.
///
/// ```
/// use gpustream_math::{Matrix, Order, prelude::*};
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// let x = Matrix::new(stream.full(6, 1.0f32)?, 2, 3, Order::RowMajor)?;
/// let mut y = Matrix::new(stream.alloc(4)?, 2, 2, Order::RowMajor)?;
/// stream.gemm(&x, x.view().t(), &mut y)?;
/// assert_eq!(stream.download(&y.into_memory())?, [3.0; 4]);
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Debug)]
pub struct Matrix<T: Plain> {
    memory: Buffer<T>,
    place: Place,
}

impl<T: Plain> Matrix<T> {
    /// Makes a matrix of the elements of `memory`.
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if the memory does not have exactly `rows * columns` elements.
    #[track_caller]
    pub fn new(memory: Buffer<T>, rows: usize, columns: usize, order: Order) -> Result<Self> {
        named("matrix", || {
            let place = Layout::new(rows, columns).order(order).place()?;
            place.check_whole(memory.len())?;
            Ok(Self { memory, place })
        })
    }

    /// Returns a view of the matrix.
    pub fn view(&self) -> MatrixView<'_, T> {
        MatrixView { memory: self.memory.view(), place: self.place, is_conjugated: false }
    }

    /// Returns an exclusive view of the matrix.
    pub fn view_mut(&mut self) -> MatrixViewMut<'_, T> {
        MatrixViewMut { memory: self.memory.view_mut(), place: self.place }
    }

    /// Returns the memory.
    pub fn into_memory(self) -> Buffer<T> {
        self.memory
    }
}

impl<'a, T: Plain> From<&'a Matrix<T>> for MatrixView<'a, T> {
    fn from(matrix: &'a Matrix<T>) -> Self {
        matrix.view()
    }
}

impl<'a, T: Plain> From<&'a mut Matrix<T>> for MatrixViewMut<'a, T> {
    fn from(matrix: &'a mut Matrix<T>) -> Self {
        matrix.view_mut()
    }
}
