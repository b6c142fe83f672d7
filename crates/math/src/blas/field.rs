//! The numbers of the routines that are not products: `f32`, `f64`, and their complex numbers.

use std::ops::{AddAssign, Mul, MulAssign, SubAssign};

use num_complex::Complex;

use super::cpu::Multiply;
use crate::number::{Element, Number};

/// Elements of all routines of [`Blas`](super::Blas): `f32`, `f64`, `Complex<f32>` and `Complex<f64>`.
pub trait Field:
    Number + Element + Multiply<Self, Self> + Mul<Output = Self> + AddAssign + SubAssign + MulAssign
{
    /// The type of norms: `f32` or `f64`.
    type Real: Number;
    /// The place of the type among the libraries' functions.
    #[doc(hidden)]
    const PLACE: usize;
    #[doc(hidden)]
    const IS_COMPLEX: bool = Self::PLACE >= 2;
    /// Returns the number's real and imaginary part.
    #[doc(hidden)]
    fn parts(self) -> [f64; 2];
    #[doc(hidden)]
    fn of_parts(parts: [f64; 2]) -> Self;
    #[doc(hidden)]
    #[must_use]
    fn conjugate(self) -> Self;
    #[doc(hidden)]
    fn real_of(value: f64) -> Self::Real;
    /// Multiplies by a real number.
    #[doc(hidden)]
    #[must_use]
    fn times(self, factor: Self::Real) -> Self;
    /// Divides, without a square of the divisor, which could overflow.
    #[doc(hidden)]
    #[must_use]
    fn over(self, divisor: Self) -> Self;
}

macro_rules! fields {
    ($($real:ident: $place:literal, $complex_place:literal;)*) => {$(
        impl Field for $real {
            type Real = $real;
            const PLACE: usize = $place;
            fn parts(self) -> [f64; 2] {
                [f64::from(self), 0.0]
            }
            fn of_parts([real, _]: [f64; 2]) -> Self {
                real as $real
            }
            fn conjugate(self) -> Self {
                self
            }
            fn real_of(value: f64) -> $real {
                value as $real
            }
            fn times(self, factor: $real) -> Self {
                self * factor
            }
            fn over(self, divisor: Self) -> Self {
                self / divisor
            }
        }

        impl Field for Complex<$real> {
            type Real = $real;
            const PLACE: usize = $complex_place;
            fn parts(self) -> [f64; 2] {
                [f64::from(self.re), f64::from(self.im)]
            }
            fn of_parts([real, imaginary]: [f64; 2]) -> Self {
                Self::new(real as $real, imaginary as $real)
            }
            fn conjugate(self) -> Self {
                self.conj()
            }
            fn real_of(value: f64) -> $real {
                value as $real
            }
            fn times(self, factor: $real) -> Self {
                self * factor
            }
            fn over(self, divisor: Self) -> Self {
                self.fdiv(divisor)
            }
        }
    )*};
}
fields! {
    f32: 0, 2;
    f64: 1, 3;
}
