//! Matrices of the crates `ndarray`, `nalgebra` and `faer`: up to a device, and back.

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra")]
mod nalgebra;
#[cfg(feature = "ndarray")]
mod ndarray;

use std::borrow::Cow;

use gpustream::{ErrorKind, Plain, Result, Stream};

use crate::call::refusal;
use crate::matrix::{Matrix, MatrixView, Order, Place};

/// Matrices in host memory that can be [uploaded](HostMatrices::upload_matrix): `ndarray`'s arrays and views of two dimensions,
/// `nalgebra`'s contiguous matrices, and `faer`'s matrices and views.
pub trait HostMatrix {
    /// The type of the elements.
    type Element: Plain;

    /// Returns the numbers of rows and columns.
    fn shape(&self) -> (usize, usize);

    /// Returns the elements without gaps, and their order. They are copied only if they have gaps or another order.
    fn elements(&self) -> (Cow<'_, [Self::Element]>, Order);
}

/// Matrices that [`download_matrix`](HostMatrices::download_matrix) can make.
pub trait FromElements: Sized {
    /// The type of the elements.
    type Element: Plain;

    /// Makes a matrix of `rows * columns` elements without gaps.
    fn from_elements(rows: usize, columns: usize, order: Order, elements: Vec<Self::Element>) -> Self;
}

/// Brings matrices of other crates to a stream's device, and back. The crate's features `ndarray`, `nalgebra` and `faer` say
/// which.
pub trait HostMatrices {
    /// Copies a matrix to the device, in the order that it has: rows stay contiguous, or columns. Does not block, like
    /// [`Stream::upload`].
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the device has not enough memory.
    fn upload_matrix<M: HostMatrix + ?Sized>(&self, matrix: &M) -> Result<Matrix<M::Element>>;

    /// Copies a matrix from the device, as it is seen through the view. Blocks until that is done.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the view is of a batch, or conjugated. Otherwise as for [`Stream::download`].
    fn download_matrix<'a, M: FromElements>(
        &self,
        matrix: impl Into<MatrixView<'a, M::Element>>,
    ) -> Result<M>;
}

impl HostMatrices for Stream {
    #[track_caller]
    fn upload_matrix<M: HostMatrix + ?Sized>(&self, matrix: &M) -> Result<Matrix<M::Element>> {
        let ((rows, columns), (elements, order)) = (matrix.shape(), matrix.elements());
        Matrix::new(self.upload(&elements)?, rows, columns, order)
    }

    #[track_caller]
    fn download_matrix<'a, M: FromElements>(
        &self,
        matrix: impl Into<MatrixView<'a, M::Element>>,
    ) -> Result<M> {
        let matrix = matrix.into();
        if matrix.batch() != 1 || matrix.is_conjugated() {
            let text = format!(
                "{matrix:?}: give one matrix that is not conjugated, such as `matrix(i)` of a batch, or the view without `.h()`"
            );
            return Err(refusal(ErrorKind::InvalidArgument, "download_matrix", text));
        }
        let Place { rows, columns, order, leading, .. } = matrix.place();
        let (lines, width) = matrix.place().lines();
        let mut elements = self.download(&matrix.memory())?;
        if leading != width {
            for line in 1..lines {
                elements.copy_within(line * leading..line * leading + width, line * width);
            }
            elements.truncate(lines * width);
        }
        Ok(M::from_elements(rows, columns, order, elements))
    }
}
