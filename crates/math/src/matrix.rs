//! Matrices in device memory: where each element is, and which part of the memory a routine touches.

mod owned;

use std::any::type_name;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use gpustream::{AsView, AsViewMut, Device, Error, ErrorKind, Plain, Result, View, ViewMut};

use crate::call::named;
use crate::number::Element;

pub use owned::Matrix;

/// Whether the rows or the columns of a matrix are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The elements of a row follow each other, as in C, NumPy and PyTorch.
    RowMajor,
    /// The elements of a column follow each other, as in Fortran, Julia, nalgebra and LAPACK.
    ColumnMajor,
}

impl Order {
    pub(crate) const fn flipped(self) -> Self {
        match self {
            Self::RowMajor => Self::ColumnMajor,
            Self::ColumnMajor => Self::RowMajor,
        }
    }
}

/// Where the elements of a matrix are, or those of a batch of equal matrices.
///
/// Element `(i, j)` of matrix `b` is at index `b * stride + i * leading + j` if the order is [row-major](Order::RowMajor), and at
/// `b * stride + i + j * leading` if it is [column-major](Order::ColumnMajor).
///
/// ```
/// use gpustream_math::{Layout, MatrixView};
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// // Ten matrices of 3 × 5, whose rows begin at multiples of 8 elements.
/// let x = stream.zeros::<f32>(10 * 3 * 8)?;
/// let x = MatrixView::with_layout(&x, Layout::new(3, 5).leading(8).batch(10).stride(3 * 8))?;
/// assert_eq!((x.rows(), x.columns(), x.batch()), (3, 5, 10));
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    rows: usize,
    columns: usize,
    order: Order,
    leading: Option<usize>,
    batch: usize,
    stride: Option<usize>,
}

impl Layout {
    /// Returns the layout of one matrix that is stored row after row, without gaps.
    pub const fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, order: Order::RowMajor, leading: None, batch: 1, stride: None }
    }

    /// Stores the rows or the columns contiguously.
    #[must_use]
    pub const fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Sets how many elements it is from one row to the next, or from one column to the next if the columns are contiguous.
    /// BLAS calls this the leading dimension. Without gaps unless you set it.
    #[must_use]
    pub const fn leading(self, elements: usize) -> Self {
        Self { leading: Some(elements), ..self }
    }

    /// Sets the number of matrices, 1 unless you set it.
    #[must_use]
    pub const fn batch(self, matrices: usize) -> Self {
        Self { batch: matrices, ..self }
    }

    /// Sets how many elements it is from one matrix of a batch to the next. Without gaps unless you set it. With 0 a routine
    /// reads the same matrix again and again.
    #[must_use]
    pub const fn stride(self, elements: usize) -> Self {
        Self { stride: Some(elements), ..self }
    }

    fn place(self) -> Result<Place> {
        let Self { rows, columns, order, leading, batch, stride } = self;
        let (lines, width) = match order {
            Order::RowMajor => (rows, columns),
            Order::ColumnMajor => (columns, rows),
        };
        let leading = leading.unwrap_or(width);
        if leading < width {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a matrix of {rows}×{columns} with a leading dimension of {leading}: its lines have {width} elements each and \
                     would overlap; give at least {width}"
                ),
            ));
        }
        let whole = lines.checked_mul(leading).ok_or_else(|| too_large(rows, columns, batch))?;
        let place = Place { rows, columns, order, leading, batch, stride: stride.unwrap_or(whole) };
        place.checked_span().map(|_| place).ok_or_else(|| too_large(rows, columns, batch))
    }
}

/// A layout with all its numbers. The index of its last element does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) order: Order,
    pub(crate) leading: usize,
    pub(crate) batch: usize,
    pub(crate) stride: usize,
}

impl Place {
    /// Returns the number of lines and the elements of each: rows or columns, whichever are contiguous.
    pub(crate) const fn lines(&self) -> (usize, usize) {
        match self.order {
            Order::RowMajor => (self.rows, self.columns),
            Order::ColumnMajor => (self.columns, self.rows),
        }
    }

    pub(crate) const fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, order: self.order.flipped(), ..self }
    }

    /// Returns the distance from one row to the next, and from one column to the next.
    pub(crate) const fn steps(&self) -> (usize, usize) {
        match self.order {
            Order::RowMajor => (self.leading, 1),
            Order::ColumnMajor => (1, self.leading),
        }
    }

    /// Returns the distance from one matrix to the next, or 0 if there is one for all.
    pub(crate) const fn matrix_step(&self) -> usize {
        if self.batch == 1 { 0 } else { self.stride }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0 || self.batch == 0
    }

    /// Returns how many elements it is from the first of one matrix to after its last.
    const fn checked_matrix(&self) -> Option<usize> {
        if self.rows == 0 || self.columns == 0 {
            return Some(0);
        }
        let (lines, width) = self.lines();
        match (lines - 1).checked_mul(self.leading) {
            Some(start) => start.checked_add(width),
            None => None,
        }
    }

    fn checked_span(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        (self.batch - 1).checked_mul(self.stride)?.checked_add(self.checked_matrix()?)
    }

    /// Returns how many elements it is from the first to after the last.
    fn span(&self) -> usize {
        self.checked_span().unwrap_or(0)
    }

    /// Refuses a batch that would be written twice.
    fn check_writable(&self) -> Result<()> {
        let matrix = self.checked_matrix().unwrap_or(0);
        if self.batch < 2 || self.stride >= matrix {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "a batch of matrices of {matrix} elements that begin every {} elements: they overlap, so they cannot be written; \
                 give a stride of at least {matrix}",
                self.stride
            ),
        ))
    }

    fn part(self, rows: impl RangeBounds<usize>, columns: impl RangeBounds<usize>) -> Result<(usize, Self)> {
        let (rows, columns) = (inside(rows, self.rows, "rows")?, inside(columns, self.columns, "columns")?);
        let (row, column) = self.steps();
        let part = Self { rows: rows.len(), columns: columns.len(), ..self };
        let start = if part.is_empty() { 0 } else { rows.start * row + columns.start * column };
        Ok((start, part))
    }

    fn matrix(self, index: usize) -> Result<(usize, Self)> {
        inside(index..=index, self.batch, "matrices")?;
        let start = if self.is_empty() { 0 } else { index * self.stride };
        Ok((start, Self { batch: 1, ..self }))
    }

    /// Checks that memory of `len` elements has the matrix.
    fn check_len(&self, len: usize) -> Result<()> {
        let span = self.span();
        if span <= len {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ArgumentMismatch,
            format!(
                "{self} ends {span} elements after its first, and the memory has {len}; give more memory"
            ),
        ))
    }

    /// Checks that memory of `len` elements has the matrix and nothing else.
    fn check_whole(&self, len: usize) -> Result<()> {
        let span = self.span();
        if span == len {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ArgumentMismatch,
            format!(
                "{self} has {span} elements, and the memory has {len}; give a view of exactly the matrix, or use `with_layout`"
            ),
        ))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, batch, .. } = self;
        match batch {
            1 => write!(f, "a matrix of {rows}×{columns}"),
            _ => write!(f, "a batch of {batch} matrices of {rows}×{columns}"),
        }
    }
}

/// A matrix that a routine reads, or a batch of equal matrices.
///
/// It is a view of a buffer, with the number of rows and columns. Routines take `impl Into<MatrixView>`, so you can pass it by
/// value or by reference.
///
/// For the order of operations, a matrix counts as the whole span from its first element to its last, including the gaps
/// between its lines.
pub struct MatrixView<'a, T> {
    memory: View<'a, T>,
    place: Place,
    /// True if routines take the conjugate of each element. It is never true for real numbers.
    is_conjugated: bool,
}

impl<T> Clone for MatrixView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MatrixView<'_, T> {}

impl<'a, T: Plain> MatrixView<'a, T> {
    /// Makes a matrix of all elements of `memory`, which has it row after row.
    ///
    /// ```
    /// use gpustream_math::MatrixView;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let x = stream.upload(&[1, 2, 3, 4, 5, 6])?;
    /// let x = MatrixView::new(&x, 2, 3)?;                // 1 2 3, then 4 5 6
    /// assert_eq!((x.t().rows(), x.t().columns()), (3, 2));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the memory does not have exactly `rows * columns` elements.
    #[track_caller]
    pub fn new(memory: &'a (impl AsView<T> + ?Sized), rows: usize, columns: usize) -> Result<Self> {
        named("matrix", || {
            let (memory, place) = (memory.view(), Layout::new(rows, columns).place()?);
            place.check_whole(memory.len())?;
            Ok(Self { memory, place, is_conjugated: false })
        })
    }

    /// Makes a matrix, or a batch of matrices, with any [`Layout`]. It begins with the first element of `memory`, which may be
    /// longer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the layout's lines overlap; [`ErrorKind::ArgumentMismatch`] if the memory is too short.
    #[track_caller]
    pub fn with_layout(memory: &'a (impl AsView<T> + ?Sized), layout: Layout) -> Result<Self> {
        named("matrix", || Self::of_view(memory.view(), layout))
    }

    pub(crate) fn of_view(memory: View<'a, T>, layout: Layout) -> Result<Self> {
        let place = layout.place()?;
        place.check_len(memory.len())?;
        Ok(Self { memory: memory.slice(..place.span())?, place, is_conjugated: false })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.place.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.place.columns
    }

    /// Returns the number of matrices.
    pub fn batch(&self) -> usize {
        self.place.batch
    }

    /// Returns whether rows or columns are contiguous.
    pub fn order(&self) -> Order {
        self.place.order
    }

    /// Returns how many elements it is from one contiguous line to the next.
    pub fn leading(&self) -> usize {
        self.place.leading
    }

    /// Returns the device that the memory belongs to.
    pub fn device(&self) -> &'a Device {
        self.memory.device()
    }

    /// Returns the memory from the first element to the last, with the gaps between them.
    pub fn memory(&self) -> View<'a, T> {
        self.memory
    }

    /// Returns the transposed matrix. Nothing is moved: rows and columns only change their roles.
    #[must_use]
    pub fn t(&self) -> Self {
        Self { place: self.place.transposed(), ..*self }
    }

    /// Returns the conjugate transpose: rows and columns change their roles, and routines take the conjugate of each element. Of
    /// real numbers that is [`t`](Self::t). Nothing is moved or computed here.
    ///
    /// Products, `gemv`, `herk`, `trsm` and `trmm` take it, and all other routines refuse it. `.h().t()` is the conjugate matrix.
    ///
    /// ```
    /// use gpustream_math::{Complex, prelude::*};
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let x = stream.upload(&[Complex::new(3.0f32, 4.0)])?;
    /// let mut square = stream.alloc(1)?;
    /// let x = MatrixView::new(&x, 1, 1)?;
    /// stream.gemm(x.h(), x, MatrixViewMut::new(&mut square, 1, 1)?)?;
    /// assert_eq!(stream.download(&square)?, [Complex::from(25.0)]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    #[must_use]
    pub fn h(&self) -> Self
    where
        T: Element,
    {
        Self { is_conjugated: self.is_conjugated != T::TYPE.is_complex(), ..self.t() }
    }

    /// Returns true if routines take the conjugates of the elements in memory, as after [`h`](Self::h).
    pub fn is_conjugated(&self) -> bool {
        self.is_conjugated
    }

    /// Returns the part with these rows and columns, of each matrix of a batch.
    ///
    /// ```
    /// use gpustream_math::MatrixView;
    /// # let stream = gpustream::Device::open("cpu")?.stream()?;
    /// let x = stream.upload(&[1, 2, 3, 4, 5, 6])?;
    /// let x = MatrixView::new(&x, 2, 3)?;
    /// let last_columns = x.part(.., 1..)?;               // 2 3, then 5 6
    /// assert_eq!((last_columns.rows(), last_columns.columns()), (2, 2));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if the matrix does not have all of them.
    #[track_caller]
    pub fn part(&self, rows: impl RangeBounds<usize>, columns: impl RangeBounds<usize>) -> Result<Self> {
        named("part", || {
            let (start, place) = self.place.part(rows, columns)?;
            Ok(Self { memory: self.memory.slice(start..start + place.span())?, place, ..*self })
        })
    }

    /// Returns one matrix of a batch.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if there are not so many.
    #[track_caller]
    pub fn matrix(&self, index: usize) -> Result<Self> {
        named("matrix", || {
            let (start, place) = self.place.matrix(index)?;
            Ok(Self { memory: self.memory.slice(start..start + place.span())?, place, ..*self })
        })
    }

    /// Returns the only matrix, or the first of a batch.
    pub(crate) fn first(&self) -> Result<Self> {
        if self.batch() == 1 { Ok(*self) } else { self.matrix(0) }
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

impl<T> fmt::Debug for MatrixView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conjugated = if self.is_conjugated { ", conjugated" } else { "" };
        write!(f, "MatrixView<{}>({}{conjugated} in {:?})", type_name::<T>(), self.place, self.memory)
    }
}

impl<'a, T> From<&MatrixView<'a, T>> for MatrixView<'a, T> {
    fn from(matrix: &MatrixView<'a, T>) -> Self {
        *matrix
    }
}

impl<'a, T: Plain> From<&'a MatrixViewMut<'_, T>> for MatrixView<'a, T> {
    fn from(matrix: &'a MatrixViewMut<'_, T>) -> Self {
        matrix.as_view()
    }
}

/// A matrix that a routine writes, or a batch of equal matrices that do not overlap.
///
/// Routines take `impl Into<MatrixViewMut>`. Pass a `&mut` of it if you need it again. Since it borrows its memory exclusively,
/// a routine's output never overlaps its inputs.
pub struct MatrixViewMut<'a, T> {
    memory: ViewMut<'a, T>,
    place: Place,
}

impl<'a, T: Plain> MatrixViewMut<'a, T> {
    /// Makes a matrix of all elements of `memory`, row after row.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the memory does not have exactly `rows * columns` elements.
    #[track_caller]
    pub fn new(memory: &'a mut (impl AsViewMut<T> + ?Sized), rows: usize, columns: usize) -> Result<Self> {
        named("matrix", || {
            let (memory, place) = (memory.view_mut(), Layout::new(rows, columns).place()?);
            place.check_whole(memory.len())?;
            Ok(Self { memory, place })
        })
    }

    /// Makes a matrix, or a batch of matrices, with any [`Layout`]. It begins with the first element of `memory`, which may be
    /// longer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the layout's lines or matrices overlap; [`ErrorKind::ArgumentMismatch`] if the memory
    /// is too short.
    #[track_caller]
    pub fn with_layout(memory: &'a mut (impl AsViewMut<T> + ?Sized), layout: Layout) -> Result<Self> {
        named("matrix", || {
            let (memory, place) = (memory.view_mut(), layout.place()?);
            place.check_len(memory.len())?;
            place.check_writable()?;
            Ok(Self { memory: memory.slice_mut(..place.span())?, place })
        })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.place.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.place.columns
    }

    /// Returns the number of matrices.
    pub fn batch(&self) -> usize {
        self.place.batch
    }

    /// Returns the matrix for reading.
    pub fn as_view(&self) -> MatrixView<'_, T> {
        MatrixView { memory: self.memory.view(), place: self.place, is_conjugated: false }
    }

    /// Returns the transposed matrix. Nothing is moved: rows and columns only change their roles.
    #[must_use]
    pub fn t(self) -> Self {
        Self { place: self.place.transposed(), ..self }
    }

    /// Returns the part with these rows and columns, of each matrix of a batch, and gives up the rest.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if the matrix does not have all of them.
    #[track_caller]
    pub fn part(self, rows: impl RangeBounds<usize>, columns: impl RangeBounds<usize>) -> Result<Self> {
        named("part", || {
            let (start, place) = self.place.part(rows, columns)?;
            Ok(Self { memory: self.memory.slice_mut(start..start + place.span())?, place })
        })
    }

    /// Returns one matrix of a batch, and gives up the rest.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if there are not so many.
    #[track_caller]
    pub fn matrix(self, index: usize) -> Result<Self> {
        named("matrix", || {
            let (start, place) = self.place.matrix(index)?;
            Ok(Self { memory: self.memory.slice_mut(start..start + place.span())?, place })
        })
    }

    /// Returns the only matrix, or the first of a batch.
    pub(crate) fn first(self) -> Result<Self> {
        if self.batch() == 1 { Ok(self) } else { self.matrix(0) }
    }

    /// Returns the memory from the first element to the last.
    pub(crate) fn into_memory(self) -> ViewMut<'a, T> {
        self.memory
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

impl<T> fmt::Debug for MatrixViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MatrixViewMut<{}>({} in {:?})", type_name::<T>(), self.place, self.memory)
    }
}

impl<'a, T: Plain> From<&'a mut MatrixViewMut<'_, T>> for MatrixViewMut<'a, T> {
    fn from(matrix: &'a mut MatrixViewMut<'_, T>) -> Self {
        MatrixViewMut { memory: matrix.memory.view_mut(), place: matrix.place }
    }
}

/// Returns the range as numbers, or an error if it is not inside `len`.
fn inside(range: impl RangeBounds<usize>, len: usize, what: &str) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        _ => {
            let (start, end) = (range.start_bound(), range.end_bound());
            let message = format!(
                "the {what} from {start:?} to {end:?} are not inside 0..{len}; give a range within it"
            );
            Err(Error::new(ErrorKind::OutOfBounds, message))
        }
    }
}

#[cold]
fn too_large(rows: usize, columns: usize, batch: usize) -> Error {
    let message = format!("{batch} matrices of {rows}×{columns} have more elements than a number can count");
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(layout: Layout) -> Place {
        layout.place().unwrap()
    }

    #[test]
    fn spans_end_with_the_last_element() {
        assert_eq!(place(Layout::new(3, 5)).span(), 15);
        assert_eq!(place(Layout::new(3, 5).leading(8)).span(), 21);
        assert_eq!(place(Layout::new(3, 5).leading(8).order(Order::ColumnMajor)).span(), 35);
        assert_eq!(place(Layout::new(3, 5).batch(4)).span(), 60);
        assert_eq!(place(Layout::new(3, 5).leading(8).batch(4)).span(), 3 * 24 + 21);
        assert_eq!(place(Layout::new(3, 5).batch(4).stride(0)).span(), 15);
        assert_eq!(place(Layout::new(0, 5)).span(), 0);
        assert_eq!(place(Layout::new(3, 5).batch(0)).span(), 0);
    }

    #[test]
    fn parts_begin_where_their_first_element_is() {
        let (start, part) = place(Layout::new(3, 5).leading(8)).part(1.., 2..=3).unwrap();
        assert_eq!((start, part.rows, part.columns, part.span()), (10, 2, 2, 10));
        let (start, part) = place(Layout::new(3, 5).order(Order::ColumnMajor)).part(1..2, 2..).unwrap();
        assert_eq!((start, part.rows, part.columns, part.span()), (7, 1, 3, 7));
        assert_eq!(place(Layout::new(3, 5)).part(3.., ..).unwrap().0, 0);
        assert_eq!(place(Layout::new(3, 5)).part(4.., ..).unwrap_err().kind(), ErrorKind::OutOfBounds);
        assert_eq!(place(Layout::new(3, 5).batch(4)).matrix(3).unwrap().0, 45);
        assert_eq!(place(Layout::new(3, 5)).matrix(1).unwrap_err().kind(), ErrorKind::OutOfBounds);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        for layout in [
            Layout::new(3, 5).leading(4),
            Layout::new(5, 3).order(Order::ColumnMajor).leading(4),
            Layout::new(usize::MAX, 2),
            Layout::new(3, 5).batch(usize::MAX),
        ] {
            assert_eq!(layout.place().unwrap_err().kind(), ErrorKind::InvalidArgument, "{layout:?}");
        }
        assert!(place(Layout::new(3, 5).batch(2).stride(14)).check_writable().is_err());
        assert!(place(Layout::new(3, 5).batch(2)).check_writable().is_ok());
    }
}
