//! Keys that can be sorted and compared.

use gpustream::Plain;
use gpustream::half::{bf16, f16};
use std::ops::{Bound, RangeBounds};

/// The direction of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The smallest first.
    #[default]
    Ascending,
    /// The largest first. Equal keys keep their order here too.
    Descending,
}

/// Element types with an order: all integers of 8 to 64 bits, `f16`, `bf16`, `f32` and `f64`.
///
/// Floats have their total order, like [`f32::total_cmp`]: −NaN, −∞, …, −0, 0, …, ∞, NaN.
pub trait Key: Plain + sealed::Sealed {
    /// The unsigned integer with the key's width. Kernels see keys as such.
    #[doc(hidden)]
    type Bits: LowBits;
    /// The masks that make an ascending order of unsigned integers from the keys, for keys whose top bit is set and for others.
    #[doc(hidden)]
    const MASKS: [u64; 2];
    /// The key's place in the ascending order.
    #[doc(hidden)]
    fn rank(&self) -> u64;
}

/// Unsigned integers, made from the low bits of a 64-bit one.
#[doc(hidden)]
pub trait LowBits: Plain {
    fn low(bits: u64) -> Self;
}

macro_rules! low_bits {
    ($($bits:ty)*) => {$(
        impl LowBits for $bits {
            fn low(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}
low_bits! { u8 u16 u32 u64 }

pub(crate) mod sealed {
    pub trait Sealed {}
}

macro_rules! keys {
    ($($key:ty as $bits:ty: $if_set:expr, $if_clear:expr;)*) => {$(
        impl sealed::Sealed for $key {}
        impl Key for $key {
            type Bits = $bits;
            const MASKS: [u64; 2] = [($if_set) as u64, ($if_clear) as u64];
            fn rank(&self) -> u64 {
                let bits: $bits = bytemuck::cast(*self);
                let mask = if bits >> (<$bits>::BITS - 1) == 1 { Self::MASKS[0] } else { Self::MASKS[1] };
                (bits ^ mask as $bits).into()
            }
        }
    )*};
}
keys! {
    u8 as u8: 0, 0;
    u16 as u16: 0, 0;
    u32 as u32: 0, 0;
    u64 as u64: 0, 0;
    i8 as u8: 1u8 << 7, 1u8 << 7;
    i16 as u16: 1u16 << 15, 1u16 << 15;
    i32 as u32: 1u32 << 31, 1u32 << 31;
    i64 as u64: 1u64 << 63, 1u64 << 63;
    f16 as u16: u16::MAX, 1u16 << 15;
    bf16 as u16: u16::MAX, 1u16 << 15;
    f32 as u32: u32::MAX, 1u32 << 31;
    f64 as u64: u64::MAX, 1u64 << 63;
}

/// Returns the masks of an order, for a kernel's `if_set` and `if_clear`. Take as many low bits as the key has.
pub(crate) fn masks<K: Key>(order: Order) -> [u64; 2] {
    match order {
        Order::Ascending => K::MASKS,
        Order::Descending => K::MASKS.map(|mask| !mask),
    }
}

/// Returns the smallest and the largest rank in a range; if the range is empty, the smallest is larger.
pub(crate) fn ranks_in<T: Key>(range: impl RangeBounds<T>) -> [u64; 2] {
    const EMPTY: [u64; 2] = [1, 0];
    let most = u64::MAX >> (64 - 8 * size_of::<T>());
    let first = match range.start_bound() {
        Bound::Unbounded => Some(0),
        Bound::Included(first) => Some(first.rank()),
        Bound::Excluded(before) => before.rank().checked_add(1).filter(|&first| first <= most),
    };
    let last = match range.end_bound() {
        Bound::Unbounded => Some(most),
        Bound::Included(last) => Some(last.rank()),
        Bound::Excluded(after) => after.rank().checked_sub(1),
    };
    first.zip(last).map_or(EMPTY, |(first, last)| [first, last])
}
