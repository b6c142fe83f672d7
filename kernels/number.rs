//! Elements that one can add and multiply.

use gpustream::Plain;
use gpustream::half::{bf16, f16};

use crate::order::sealed::Sealed;

/// Element types with arithmetic: all integers of 8 to 64 bits, `f16`, `bf16`, `f32` and `f64`.
pub trait Number: Plain + Sealed {
    /// The type that kernels see, with the same bits. Signed integers wrap around as unsigned ones do.
    #[doc(hidden)]
    type Seen: Plain;
}

macro_rules! numbers {
    ($($number:ty as $seen:ty;)*) => {$(
        impl Number for $number {
            type Seen = $seen;
        }
    )*};
}
numbers! {
    f16 as f16;
    bf16 as bf16;
    f32 as f32;
    f64 as f64;
    u8 as u8;
    u16 as u16;
    u32 as u32;
    u64 as u64;
    i8 as u8;
    i16 as u16;
    i32 as u32;
    i64 as u64;
}
