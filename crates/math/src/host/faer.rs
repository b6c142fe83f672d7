//! Matrices of the crate `faer`. Its own have contiguous columns, with gaps between them.

use std::borrow::Cow;

use faer::{Mat, MatRef};
use gpustream::Plain;

use super::{FromElements, HostMatrix};
use crate::matrix::Order;

impl<T: Plain> HostMatrix for MatRef<'_, T> {
    type Element = T;

    fn shape(&self) -> (usize, usize) {
        (self.nrows(), self.ncols())
    }

    fn elements(&self) -> (Cow<'_, [T]>, Order) {
        let (rows, columns) = HostMatrix::shape(self);
        let column = |j| (0..rows).map(move |i| self[(i, j)]);
        (Cow::Owned((0..columns).flat_map(column).collect()), Order::ColumnMajor)
    }
}

impl<T: Plain> HostMatrix for Mat<T> {
    type Element = T;

    fn shape(&self) -> (usize, usize) {
        (self.nrows(), self.ncols())
    }

    fn elements(&self) -> (Cow<'_, [T]>, Order) {
        let view = self.as_ref();
        let (elements, order) = view.elements();
        (Cow::Owned(elements.into_owned()), order)
    }
}

impl<T: Plain> FromElements for Mat<T> {
    type Element = T;

    fn from_elements(rows: usize, columns: usize, order: Order, elements: Vec<T>) -> Self {
        Self::from_fn(rows, columns, |i, j| match order {
            Order::RowMajor => elements[i * columns + j],
            Order::ColumnMajor => elements[j * rows + i],
        })
    }
}
