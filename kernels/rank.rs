//! What keys are worth if you look for the largest one, and NaN must never be it (`rank.cuh`).

use gpustream::half::{bf16, f16};

use crate::order::{Key, LowBits as _, Order, masks};

/// Keys that have a rank: those of [`Key`].
pub trait Ranked: Key {
    /// The largest key below the top bit that is no NaN.
    #[doc(hidden)]
    const NUMBERS: u64;
}

macro_rules! ranked {
    ($($key:ty: $numbers:expr;)*) => {$(
        impl Ranked for $key {
            const NUMBERS: u64 = $numbers;
        }
    )*};
}
ranked! {
    u8: u64::MAX;
    u16: u64::MAX;
    u32: u64::MAX;
    u64: u64::MAX;
    i8: u64::MAX;
    i16: u64::MAX;
    i32: u64::MAX;
    i64: u64::MAX;
    f16: 0x7c00;
    bf16: 0x7f80;
    f32: 0x7f80_0000;
    f64: 0x7ff << 52;
}

/// The numbers that kernels need to compute ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks<B> {
    pub if_set: B,
    pub if_clear: B,
    pub numbers: B,
    /// The key that stands for no key at all: the one that comes last and is no NaN.
    pub nothing: B,
}

/// Returns the ranks that are largest for the first keys of an order.
pub(crate) fn first_is_largest<T: Ranked>(order: Order) -> Ranks<T::Bits> {
    let [if_set, if_clear] = masks::<T>(match order {
        Order::Ascending => Order::Descending,
        Order::Descending => Order::Ascending,
    });
    let top = 1 << (8 * size_of::<T>() - 1);
    let is_float = T::NUMBERS != u64::MAX;
    let nothing = match order {
        Order::Ascending if is_float => T::NUMBERS,
        Order::Descending if is_float => T::NUMBERS | top,
        // The key with rank 0, as in `order.cuh`.
        _ if if_set & top != 0 => if_set,
        _ => if_clear,
    };
    let low = T::Bits::low;
    Ranks { if_set: low(if_set), if_clear: low(if_clear), numbers: low(T::NUMBERS), nothing: low(nothing) }
}

/// Returns the bits that a key has unless it is zero. −0 has none of them.
pub(crate) fn bits_of_nonzero<T: Ranked>() -> u64 {
    if T::NUMBERS == u64::MAX { u64::MAX } else { (1 << (8 * size_of::<T>() - 1)) - 1 }
}

/// Returns what a key's bits are, for kernels that need its value (`numbers.cuh`).
pub(crate) fn kind<T: Ranked>() -> u32 {
    match (T::NUMBERS, T::MASKS[0]) {
        (u64::MAX, 0) => 0,
        (u64::MAX, _) => 1,
        (bf16::NUMBERS, _) => 3,
        _ => 2,
    }
}

/// Returns the bits of a NaN, or 0 for integers.
pub(crate) fn nan<T: Ranked>() -> u64 {
    // One more bit than infinity has.
    if T::NUMBERS == u64::MAX { 0 } else { T::NUMBERS | T::NUMBERS >> 1 }
}

/// Returns the number that a key is, as `number_of` in `numbers.cuh` does.
pub(crate) fn number<T: Ranked>(key: &T) -> f64 {
    let bits = bytemuck::bytes_of(key).iter().rev().fold(0, |bits: u64, byte| bits << 8 | u64::from(*byte));
    match (kind::<T>(), size_of::<T>()) {
        // The shifts extend the sign.
        (1, size) => ((bits << (64 - 8 * size)) as i64 >> (64 - 8 * size)) as f64,
        (2, 2) => f16::from_bits(bits as u16).to_f64(),
        (2, 4) => f32::from_bits(bits as u32).into(),
        (2, _) => f64::from_bits(bits),
        (3, _) => bf16::from_bits(bits as u16).to_f64(),
        _ => bits as f64,
    }
}
