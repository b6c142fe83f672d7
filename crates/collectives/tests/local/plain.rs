//! Elements, and their combinations in plain Rust.

use std::fmt::Debug;

use gpustream::half::{bf16, f16};
use gpustream_collectives::{Element, Op};

use crate::COMBINES_IN_ORDER;

pub(crate) const OPS: [Op; 5] = [Op::Sum, Op::Product, Op::Min, Op::Max, Op::Average];

pub(crate) trait Number: Element + PartialEq + Debug {
    /// Returns the value with which a rank begins at a place: small, different on all ranks, of both signs, not whole where
    /// the type allows it.
    fn value(rank: usize, place: usize) -> Self;
    /// Returns the combination of the ranks' values, in their order.
    fn combined(op: Op, values: &[Self]) -> Self;
}

/// Returns a number from 0 to 255 that looks random.
fn noise(rank: usize, place: usize) -> u64 {
    let mut z = ((rank as u64 + 1) << 32 | place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)) >> 56
}

macro_rules! floats {
    ($($type:ty: $computed:ty, $widen:expr, $round:expr;)*) => {$(
        impl Number for $type {
            fn value(rank: usize, place: usize) -> Self {
                let noise = noise(rank, place);
                $round(if COMBINES_IN_ORDER {
                    (noise as $computed - 127.0) / 12.0
                } else {
                    // No combination of a few of these is rounded.
                    ((noise % 9) as $computed - 4.0) / 2.0
                })
            }

            fn combined(op: Op, values: &[Self]) -> Self {
                let widen: fn($type) -> $computed = $widen;
                let values = values.iter().map(|value| widen(*value));
                let count = values.len() as $computed;
                let result = match op {
                    Op::Sum => values.reduce(|a, b| a + b),
                    Op::Product => values.reduce(|a, b| a * b),
                    Op::Min => values.reduce(<$computed>::min),
                    Op::Max => values.reduce(<$computed>::max),
                    Op::Average => values.reduce(|a, b| a + b).map(|sum| sum / count),
                    other => panic!("{other} is new"),
                };
                $round(result.unwrap())
            }
        }
    )*};
}

floats! {
    f16: f32, f16::to_f32, f16::from_f32;
    bf16: f32, bf16::to_f32, bf16::from_f32;
    f32: f32, |value| value, |value| value;
    f64: f64, |value| value, |value| value;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn value(rank: usize, place: usize) -> Self {
                // All bits matter: sums and products overflow.
                let byte = noise(rank, place);
                (byte << 56 | noise(rank + 7, place) << 28 | byte) as $type
            }

            fn combined(op: Op, values: &[Self]) -> Self {
                let count = values.len() as $type;
                let values = values.iter().copied();
                let result = match op {
                    Op::Sum => values.reduce(<$type>::wrapping_add),
                    Op::Product => values.reduce(<$type>::wrapping_mul),
                    Op::Min => values.min(),
                    Op::Max => values.max(),
                    Op::Average => values.reduce(<$type>::wrapping_add).map(|sum| sum / count),
                    other => panic!("{other} is new"),
                };
                result.unwrap()
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Calls a generic function for every type of elements.
macro_rules! every_type {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f16>($($argument),*);
        $function::<bf16>($($argument),*);
        $function::<f32>($($argument),*);
        $function::<f64>($($argument),*);
        $function::<i8>($($argument),*);
        $function::<i16>($($argument),*);
        $function::<i32>($($argument),*);
        $function::<i64>($($argument),*);
        $function::<u8>($($argument),*);
        $function::<u16>($($argument),*);
        $function::<u32>($($argument),*);
        $function::<u64>($($argument),*);
    }};
}
pub(crate) use every_type;

/// Returns the elements that a rank brings.
pub(crate) fn brought<T: Number>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|place| T::value(rank, place)).collect()
}

/// Returns the combination of all ranks' elements.
pub(crate) fn combined<T: Number>(op: Op, ranks: usize, len: usize) -> Vec<T> {
    let values = |place| (0..ranks).map(|rank| T::value(rank, place)).collect::<Vec<_>>();
    (0..len).map(|place| T::combined(op, &values(place))).collect()
}
