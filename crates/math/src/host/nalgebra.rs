//! Matrices of the crate `nalgebra`, whose columns are contiguous.

use std::borrow::Cow;

use gpustream::Plain;
use nalgebra::{DMatrix, Dim, IsContiguous, Matrix, RawStorage, Scalar};

use super::{FromElements, HostMatrix};
use crate::matrix::Order;

impl<T: Plain + Scalar, R: Dim, C: Dim, S: RawStorage<T, R, C> + IsContiguous> HostMatrix
    for Matrix<T, R, C, S>
{
    type Element = T;

    fn shape(&self) -> (usize, usize) {
        Self::shape(self)
    }

    fn elements(&self) -> (Cow<'_, [T]>, Order) {
        (Cow::Borrowed(self.as_slice()), Order::ColumnMajor)
    }
}

impl<T: Plain + Scalar> FromElements for DMatrix<T> {
    type Element = T;

    fn from_elements(rows: usize, columns: usize, order: Order, elements: Vec<T>) -> Self {
        match order {
            Order::ColumnMajor => Self::from_vec(rows, columns, elements),
            Order::RowMajor => Self::from_row_slice(rows, columns, &elements),
        }
    }
}
