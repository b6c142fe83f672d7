//! Vectors in device memory: contiguous ones, and rows and columns of matrices.

use std::any::type_name;
use std::fmt;

use gpustream::{AsView, AsViewMut, Error, ErrorKind, Plain, Result, View, ViewMut};

use crate::call::named;
use crate::matrix::{Layout, MatrixView, MatrixViewMut};

/// A vector that a routine reads. Routines take `impl Into<VectorView>`, so you can pass a `&Buffer` or a `&View`.
///
/// ```
/// use gpustream_math::{MatrixView, VectorView};
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// let x = stream.upload(&[1, 2, 3, 4, 5, 6])?;
/// let even = VectorView::with_step(&x, 3, 2)?;           // 1 3 5
/// let column = MatrixView::new(&x, 2, 3)?.column(1)?;    // 2 5
/// assert_eq!((even.len(), column.len()), (3, 2));
/// # Ok::<(), gpustream::Error>(())
/// ```
pub struct VectorView<'a, T> {
    memory: View<'a, T>,
    len: usize,
    step: usize,
}

impl<T> Clone for VectorView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for VectorView<'_, T> {}

/// Returns how many elements of memory a vector takes, or an error if they are not there.
fn span(len: usize, step: usize, memory: usize) -> Result<usize> {
    if step == 0 {
        let message = "elements of a vector that are 0 apart are one element; give a step of at least 1";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let span =
        len.checked_sub(1).map_or(Some(0), |last| last.checked_mul(step).and_then(|end| end.checked_add(1)));
    match span {
        Some(span) if span <= memory => Ok(span),
        _ => {
            let message = format!(
                "a vector of {len} elements that are {step} apart, in memory of {memory}; give more memory"
            );
            Err(Error::new(ErrorKind::ArgumentMismatch, message))
        }
    }
}

impl<'a, T: Plain> VectorView<'a, T> {
    /// Makes a vector of `len` elements, each `step` after the one before. It begins with the first element of `memory`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a step of 0; [`ErrorKind::ArgumentMismatch`] if the memory is too short.
    #[track_caller]
    pub fn with_step(memory: &'a (impl AsView<T> + ?Sized), len: usize, step: usize) -> Result<Self> {
        named("vector", || {
            let memory = memory.view();
            let span = span(len, step, memory.len())?;
            Ok(Self { memory: memory.slice(..span)?, len, step })
        })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn memory(&self) -> View<'a, T> {
        self.memory
    }

    pub(crate) fn step(&self) -> usize {
        self.step
    }

    /// Returns the vector as a matrix of one column.
    pub(crate) fn as_column(&self) -> Result<MatrixView<'a, T>> {
        MatrixView::of_view(self.memory, Layout::new(self.len, 1).leading(self.step))
    }

    pub(crate) fn of_parts(memory: View<'a, T>, len: usize, step: usize) -> Self {
        Self { memory, len, step }
    }
}

impl<'a, T: Plain, M: AsView<T> + ?Sized> From<&'a M> for VectorView<'a, T> {
    /// Returns a vector of all elements.
    fn from(memory: &'a M) -> Self {
        let memory = memory.view();
        Self { len: memory.len(), memory, step: 1 }
    }
}

impl<T> fmt::Debug for VectorView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, len, step } = self;
        write!(f, "VectorView<{}>({len} elements, {step} apart, in {memory:?})", type_name::<T>())
    }
}

/// A vector that a routine writes. Routines take `impl Into<VectorViewMut>`, so you can pass a `&mut Buffer` or a `&mut ViewMut`.
pub struct VectorViewMut<'a, T> {
    memory: ViewMut<'a, T>,
    len: usize,
    step: usize,
}

impl<'a, T: Plain> VectorViewMut<'a, T> {
    /// Makes a vector of `len` elements, each `step` after the one before. It begins with the first element of `memory`.
    ///
    /// # Errors
    /// As for [`VectorView::with_step`].
    #[track_caller]
    pub fn with_step(memory: &'a mut (impl AsViewMut<T> + ?Sized), len: usize, step: usize) -> Result<Self> {
        named("vector", || {
            let memory = memory.view_mut();
            let span = span(len, step, memory.len())?;
            Ok(Self { memory: memory.slice_mut(..span)?, len, step })
        })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn step(&self) -> usize {
        self.step
    }

    pub(crate) fn memory_mut(&mut self) -> &mut ViewMut<'a, T> {
        &mut self.memory
    }

    /// Returns the vector as a matrix of one column.
    pub(crate) fn as_column(&mut self) -> Result<MatrixViewMut<'_, T>> {
        MatrixViewMut::with_layout(&mut self.memory, Layout::new(self.len, 1).leading(self.step))
    }

    pub(crate) fn of_parts(memory: ViewMut<'a, T>, len: usize, step: usize) -> Self {
        Self { memory, len, step }
    }
}

impl<'a, T: Plain, M: AsViewMut<T> + ?Sized> From<&'a mut M> for VectorViewMut<'a, T> {
    /// Returns a vector of all elements.
    fn from(memory: &'a mut M) -> Self {
        let memory = memory.view_mut();
        Self { len: memory.len(), memory, step: 1 }
    }
}

impl<T> fmt::Debug for VectorViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, len, step } = self;
        write!(f, "VectorViewMut<{}>({len} elements, {step} apart, in {memory:?})", type_name::<T>())
    }
}

impl<'a, T: Plain> MatrixView<'a, T> {
    /// Returns one row of the first matrix.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if there are not so many. [`ErrorKind::Unsupported`] if the matrix is conjugated
    /// ([`h`](Self::h)), because vectors are not.
    #[track_caller]
    pub fn row(&self, index: usize) -> Result<VectorView<'a, T>> {
        let part = named("row", || {
            if self.is_conjugated() {
                let message = "a row or column of a conjugated matrix: vectors are not conjugated; take it from the matrix before `.h()`";
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            self.part(index..=index, ..)?.first()
        })?;
        Ok(VectorView::of_parts(part.memory(), part.columns(), part.place().steps().1.max(1)))
    }

    /// Returns one column of the first matrix.
    ///
    /// # Errors
    /// As for [`row`](Self::row).
    #[track_caller]
    pub fn column(&self, index: usize) -> Result<VectorView<'a, T>> {
        named("column", || self.t().row(index))
    }
}

impl<'a, T: Plain> MatrixViewMut<'a, T> {
    /// Returns one row of the first matrix, and gives up the rest.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if there are not so many.
    #[track_caller]
    pub fn row(self, index: usize) -> Result<VectorViewMut<'a, T>> {
        let part = named("row", || self.part(index..=index, ..)?.first())?;
        let (len, step) = (part.columns(), part.place().steps().1.max(1));
        Ok(VectorViewMut::of_parts(part.into_memory(), len, step))
    }

    /// Returns one column of the first matrix, and gives up the rest.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if there are not so many.
    #[track_caller]
    pub fn column(self, index: usize) -> Result<VectorViewMut<'a, T>> {
        named("column", || self.t().row(index))
    }
}
