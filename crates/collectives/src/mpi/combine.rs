//! The functions that MPI calls to combine elements. We need our own, because MPI's know neither the 16-bit
//! floating-point types nor what [`Op`] promises you about NaN and overflow.

use std::ffi::{c_int, c_void};

use ::mpi::ffi::{MPI_Datatype, MPI_User_function};
use gpustream::half::{bf16, f16};

use crate::element::{ElementType, with_element};
use crate::op::Op;

/// Returns the function that combines elements of this type. For an average, it sums.
#[allow(clippy::unnecessary_wraps, reason = "the type is MPI's")]
pub(super) fn function(element: ElementType, op: Op) -> MPI_User_function {
    with_element!(element, T => match op {
        Op::Sum | Op::Average => Some(apply::<T, Sum>),
        Op::Product => Some(apply::<T, Product>),
        Op::Min => Some(apply::<T, Min>),
        Op::Max => Some(apply::<T, Max>),
    })
}

/// Divides the sums of `ranks` ranks.
///
/// # Safety
/// `elements` must point to `count` elements of that type, and they must not be shared meanwhile.
pub(super) unsafe fn divide(element: ElementType, elements: *mut c_void, count: usize, ranks: usize) {
    with_element!(element, T => {
        let elements = elements.cast::<T>();
        for at in 0..count {
            // SAFETY: by this function's contract.
            unsafe {
                let at = elements.add(at);
                at.write_unaligned(at.read_unaligned().divided(ranks));
            }
        }
    });
}

/// # Safety
/// MPI's contract for such functions: both arrays have `len` elements of `T`, and they are not shared
/// meanwhile.
unsafe extern "C" fn apply<T: Number, C: Combine>(
    brought: *mut c_void,
    combined: *mut c_void,
    len: *mut c_int,
    _: *mut MPI_Datatype,
) {
    let (brought, combined) = (brought.cast::<T>(), combined.cast::<T>());
    // SAFETY: by this function's contract.
    let len = usize::try_from(unsafe { *len }).unwrap_or(0);
    for at in 0..len {
        // SAFETY: by this function's contract.
        unsafe {
            let (brought, combined) = (brought.add(at).read_unaligned(), combined.add(at));
            combined.write_unaligned(C::combine(brought, combined.read_unaligned()));
        }
    }
}

trait Combine {
    fn combine<T: Number>(x: T, y: T) -> T;
}

macro_rules! combine {
    ($($name:ident: $method:ident,)*) => {$(
        struct $name;
        impl Combine for $name {
            fn combine<T: Number>(x: T, y: T) -> T {
                x.$method(y)
            }
        }
    )*};
}
combine! { Sum: sum, Product: product, Min: smaller, Max: larger, }

trait Number: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn divided(self, by: usize) -> Self;
}

macro_rules! integers {
    ($($type:ty as $wide:ty),*) => {$(
        impl Number for $type {
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
            fn divided(self, by: usize) -> Self {
                // The quotient is never larger than the element.
                (<$wide>::from(self) / by as $wide) as Self
            }
        }
    )*};
}
integers!(
    i8 as i128,
    i16 as i128,
    i32 as i128,
    i64 as i128,
    u8 as u128,
    u16 as u128,
    u32 as u128,
    u64 as u128
);

macro_rules! floats {
    ($($type:ty as $wide:ty: $from:expr, $to:expr;)*) => {$(
        impl Number for $type {
            fn sum(self, other: Self) -> Self {
                $to($from(self) + $from(other))
            }
            fn product(self, other: Self) -> Self {
                $to($from(self) * $from(other))
            }
            fn smaller(self, other: Self) -> Self {
                $to($from(self).min($from(other)))
            }
            fn larger(self, other: Self) -> Self {
                $to($from(self).max($from(other)))
            }
            fn divided(self, by: usize) -> Self {
                $to($from(self) / by as $wide)
            }
        }
    )*};
}
floats! {
    f32 as f32: f32::from, f32::from;
    f64 as f64: f64::from, f64::from;
    f16 as f32: f32::from, f16::from_f32;
    bf16 as f32: f32::from, bf16::from_f32;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Number, C: Combine>(x: T, y: T) -> T {
        let (mut x, mut y, mut len) = (x, y, 1);
        let (brought, combined) = ((&raw mut x).cast(), (&raw mut y).cast());
        // SAFETY: one element each.
        unsafe { apply::<T, C>(brought, combined, &raw mut len, std::ptr::null_mut()) };
        y
    }

    #[test]
    fn integers_wrap_around_and_are_divided_toward_zero() {
        assert_eq!(combined::<i8, Sum>(100, 100), -56);
        assert_eq!(combined::<u16, Product>(300, 300), 24464);
        assert_eq!(combined::<i64, Min>(-3, 2), -3);
        assert_eq!((-56i8).divided(3), -18);
        assert_eq!((-128i8).divided(200), 0);
        assert_eq!(u64::MAX.divided(2), u64::MAX / 2);
    }

    #[test]
    fn nan_gives_way_to_any_number() {
        assert_eq!(combined::<f32, Min>(f32::NAN, 2.0), 2.0);
        assert_eq!(combined::<bf16, Max>(bf16::ONE, bf16::NAN), bf16::ONE);
        assert!(combined::<f64, Sum>(f64::NAN, 2.0).is_nan());
    }

    #[test]
    fn elements_of_16_bits_are_combined_in_32_and_rounded() {
        assert_eq!(combined::<f16, Sum>(f16::from_f32(2048.0), f16::from_f32(3.0)), f16::from_f32(2052.0));
        assert_eq!(f16::from_f32(7.0).divided(2), f16::from_f32(3.5));
    }
}
