//! Element types under test, and their values in double precision.

use conformance::Random;
use gpustream::half::{bf16, f16};
use gpustream_math::Complex;

/// An element type. Its values are exact as complex numbers of `f64`.
pub(crate) trait Value: gpustream::Plain + PartialEq + std::fmt::Debug {
    fn of(value: Complex<f64>) -> Self;
    fn wide(self) -> Complex<f64>;
    /// The unit roundoff, or 0 for integers.
    const ROUNDOFF: f64;
    const COMPLEX: bool = false;
}

macro_rules! values {
    ($($type:ty: $roundoff:expr, $of:expr, $wide:expr;)*) => {$(
        impl Value for $type {
            fn of(value: Complex<f64>) -> Self {
                ($of)(value.re)
            }
            fn wide(self) -> Complex<f64> {
                Complex::new(($wide)(self), 0.0)
            }
            const ROUNDOFF: f64 = $roundoff;
        }
    )*};
}
values! {
    f32: f32::EPSILON as f64 / 2.0, |value| value as f32, f64::from;
    f64: f64::EPSILON / 2.0, |value| value, |value| value;
    f16: 1.0 / 2048.0, f16::from_f64, f16::to_f64;
    bf16: 1.0 / 256.0, bf16::from_f64, bf16::to_f64;
    i8: 0.0, |value| value as i8, f64::from;
    i32: 0.0, |value| value as i32, f64::from;
}

macro_rules! complex {
    ($($part:ty)*) => {$(
        impl Value for Complex<$part> {
            fn of(value: Complex<f64>) -> Self {
                Self::new(<$part>::of(value.re.into()), <$part>::of(value.im.into()))
            }
            fn wide(self) -> Complex<f64> {
                Complex::new(f64::from(self.re), f64::from(self.im))
            }
            // A complex product has an error of up to √8 u (Higham, Accuracy and Stability, lemma 3.5).
            const ROUNDOFF: f64 = 3.0 * <$part as Value>::ROUNDOFF;
            const COMPLEX: bool = true;
        }
    )*};
}
complex! { f16 f32 f64 }

/// Returns small whole numbers, whose products and sums are exact in every type.
pub(crate) fn whole<T: Value>(n: usize, seed: u64) -> Vec<T> {
    let mut random = Random(seed + 1);
    let mut number = || random.below(3) as f64 - 1.0;
    (0..n).map(|_| T::of(Complex::new(number(), if T::COMPLEX { number() } else { 0.0 }))).collect()
}

/// Returns numbers between -1 and 1 that need all digits.
pub(crate) fn fractions<T: Value>(n: usize, seed: u64) -> Vec<T> {
    let mut random = Random(seed + 1);
    let mut number = || random.below(1 << 30) as f64 / f64::from(1 << 29) - 1.0;
    (0..n).map(|_| T::of(Complex::new(number(), if T::COMPLEX { number() } else { 0.0 }))).collect()
}
