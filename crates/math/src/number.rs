//! The numbers in matrices, and the scalars that multiply them.

use gpustream::half::{bf16, f16};
use gpustream::{Plain, View};
use num_complex::Complex;

mod sealed {
    pub trait Sealed {}
}

/// The numbers that a routine may multiply by: `f32`, `f64`, `Complex<f32>`, `Complex<f64>` and `i32`.
pub trait Number: Plain + PartialEq + Send + Sync + sealed::Sealed {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
}

macro_rules! numbers {
    ($($number:ty: $zero:expr, $one:expr;)*) => {$(
        impl sealed::Sealed for $number {}

        impl Number for $number {
            const ZERO: Self = $zero;
            const ONE: Self = $one;
        }
    )*};
}
numbers! {
    f32: 0.0, 1.0;
    f64: 0.0, 1.0;
    Complex<f32>: Self::new(0.0, 0.0), Self::new(1.0, 0.0);
    Complex<f64>: Self::new(0.0, 0.0), Self::new(1.0, 0.0);
    i32: 0, 1;
}

/// A factor: a number that you know now, or one that the device will have computed by then.
///
/// ```
/// use gpustream_math::Scalar;
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// let known = Scalar::from(2.0f32);
/// let sum = stream.zeros::<f32>(1)?;                  // computed on the device
/// let later = Scalar::Device(sum.slice(..)?);
/// # let _ = (known, later);
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Scalar<'a, S> {
    /// This number.
    Host(S),
    /// The only element of this view. The routine reads it on the device, in the stream's order.
    Device(View<'a, S>),
}

impl<S> Scalar<'_, S> {
    #[allow(dead_code, reason = "transforms have no scalars")]
    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }
}

impl<S: Number> From<S> for Scalar<'_, S> {
    fn from(value: S) -> Self {
        Self::Host(value)
    }
}

/// A type of elements, by the number that the vendors' libraries have for it (`cudaDataType`, `hipDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DataType {
    F32 = 0,
    F64 = 1,
    F16 = 2,
    I8 = 3,
    C32 = 4,
    C64 = 5,
    /// Only for Fourier transforms.
    C16 = 6,
    I32 = 10,
    Bf16 = 14,
}

impl DataType {
    pub(crate) fn is_complex(self) -> bool {
        matches!(self, Self::C16 | Self::C32 | Self::C64)
    }
}

/// Types of elements that the vendors' libraries know.
#[doc(hidden)]
pub trait Element: Plain {
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "nobody else implements or reads it")]
    const TYPE: DataType;
}

macro_rules! elements {
    ($($element:ty: $name:ident;)*) => {$(
        #[allow(private_interfaces, reason = "as in the trait")]
        impl Element for $element {
            const TYPE: DataType = DataType::$name;
        }
    )*};
}
elements! {
    f32: F32;
    f64: F64;
    f16: F16;
    bf16: Bf16;
    i8: I8;
    i32: I32;
    Complex<f32>: C32;
    Complex<f64>: C64;
}
