//! Givens rotations that stay on the device.

use gpustream::{AsView as _, Buffer, View};

use super::field::Field;
use crate::number::Scalar;

/// A Givens rotation on the device, made by [`Blas::rotg`](super::Blas::rotg). [`Blas::rot`](super::Blas::rot) takes its cosine and sine.
#[derive(Debug)]
pub struct Rotation<T: Field> {
    pub(super) cosine: Buffer<T::Real>,
    /// r, z and the sine.
    pub(super) others: Buffer<T>,
}

impl<T: Field> Rotation<T> {
    /// Returns the cosine.
    pub fn cosine(&self) -> Scalar<'_, T::Real> {
        Scalar::Device(self.cosine.view())
    }

    /// Returns the sine.
    pub fn sine(&self) -> Scalar<'_, T> {
        Scalar::Device(self.other(2))
    }

    /// Returns r: the length of the vector. A real one has the sign of the longer coordinate, and a complex one the direction of
    /// the first coordinate that is not 0.
    pub fn r(&self) -> View<'_, T> {
        self.other(0)
    }

    fn other(&self, at: usize) -> View<'_, T> {
        let all = self.others.view();
        all.slice(at..=at).unwrap_or(all)
    }
}

impl<T: Field<Real = T>> Rotation<T> {
    /// Returns z, one number that is enough to make a real rotation again: the sine if the first coordinate was the longer one,
    /// otherwise the reciprocal of the cosine, or 1 if that is 0.
    pub fn z(&self) -> View<'_, T> {
        self.other(1)
    }
}
