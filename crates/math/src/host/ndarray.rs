//! Arrays of the crate `ndarray`, which may have their rows or their columns contiguous, or neither.

use std::borrow::Cow;

use gpustream::Plain;
use ndarray::{Array2, ArrayBase, Data, Ix2, ShapeBuilder as _};

use super::{FromElements, HostMatrix};
use crate::matrix::Order;

impl<T: Plain, S: Data<Elem = T>> HostMatrix for ArrayBase<S, Ix2> {
    type Element = T;

    fn shape(&self) -> (usize, usize) {
        self.dim()
    }

    fn elements(&self) -> (Cow<'_, [T]>, Order) {
        match (self.as_slice(), self.t().to_slice()) {
            (Some(rows), _) => (Cow::Borrowed(rows), Order::RowMajor),
            (None, Some(columns)) => (Cow::Borrowed(columns), Order::ColumnMajor),
            (None, None) => (Cow::Owned(self.iter().copied().collect()), Order::RowMajor),
        }
    }
}

impl<T: Plain> FromElements for Array2<T> {
    type Element = T;

    fn from_elements(rows: usize, columns: usize, order: Order, elements: Vec<T>) -> Self {
        let shape = (rows, columns).set_f(order == Order::ColumnMajor);
        Self::from_shape_vec(shape, elements)
            .unwrap_or_else(|_| Self::from_elem((rows, columns), T::zeroed()))
    }
}
