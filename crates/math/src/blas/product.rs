//! Which types of elements can be multiplied, and what that gives.

use gpustream::half::{bf16, f16};
use gpustream::{Result, Stream};
use num_complex::Complex;

use super::library::compute;
use super::{Gemm, each, gemm};
use crate::matrix::{MatrixView, MatrixViewMut};
use crate::number::{Element, Number};

/// Elements whose products are elements of type `C`.
///
/// | inputs | results | scalars, and the sums |
/// |---|---|---|
/// | `f32`, `f64`, `Complex<f32>`, `Complex<f64>` | the same | the same |
/// | `f16`, `bf16` | the same, or `f32` | `f32` |
/// | `i8` | `i32` | `i32` |
pub trait Product<C>: Element {
    /// The type of `alpha` and `beta`.
    type Scalar: Number;

    /// Checks a product and enqueues it.
    #[doc(hidden)]
    fn multiply(
        stream: &Stream,
        options: Gemm<'_, Self::Scalar, C>,
        a: MatrixView<'_, Self>,
        b: MatrixView<'_, Self>,
        c: MatrixViewMut<'_, C>,
    ) -> Result<()>;

    /// Checks products and enqueues them.
    #[doc(hidden)]
    fn multiply_each(
        stream: &Stream,
        options: Gemm<'_, Self::Scalar, C>,
        a: &[MatrixView<'_, Self>],
        b: &[MatrixView<'_, Self>],
        c: &mut [MatrixViewMut<'_, C>],
    ) -> Result<()>;
}

macro_rules! products {
    ($($input:ty => $output:ty, $scalar:ty, $compute:ident;)*) => {$(
        impl Product<$output> for $input {
            type Scalar = $scalar;

            #[track_caller]
            fn multiply(
                stream: &Stream,
                options: Gemm<'_, $scalar, $output>,
                a: MatrixView<'_, Self>,
                b: MatrixView<'_, Self>,
                c: MatrixViewMut<'_, $output>,
            ) -> Result<()> {
                gemm::multiply::<$input, $output, $scalar>(stream, compute::$compute, options, a, b, c)
            }

            #[track_caller]
            fn multiply_each(
                stream: &Stream,
                options: Gemm<'_, $scalar, $output>,
                a: &[MatrixView<'_, Self>],
                b: &[MatrixView<'_, Self>],
                c: &mut [MatrixViewMut<'_, $output>],
            ) -> Result<()> {
                each::multiply_each::<$input, $output, $scalar>(stream, compute::$compute, options, a, b, c)
            }
        }
    )*};
}
products! {
    f32 => f32, f32, F32;
    f64 => f64, f64, F64;
    Complex<f32> => Complex<f32>, Complex<f32>, F32;
    Complex<f64> => Complex<f64>, Complex<f64>, F64;
    f16 => f16, f32, F32;
    f16 => f32, f32, F32;
    bf16 => bf16, f32, F32;
    bf16 => f32, f32, F32;
    i8 => i32, i32, I32;
}
