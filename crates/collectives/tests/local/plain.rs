//! Elements, how to combine them in plain Rust, and how far an engine may be off.

use std::fmt::Debug;

use gpustream::half::{bf16, f16};
use gpustream_collectives::{Element, Op};

use crate::combines_in_order;

pub(crate) const OPS: [Op; 5] = [Op::Sum, Op::Product, Op::Min, Op::Max, Op::Average];

pub(crate) trait Number: Element + PartialEq + Debug {
    /// Returns a rank's initial value at an index. Values differ between ranks, have both signs, and are not
    /// whole numbers if the type allows that. The product of eight of them stays within the type.
    fn value(rank: usize, place: usize) -> Self;
    /// Returns the ranks' values combined, in order.
    fn combined(op: Op, values: &[Self]) -> Self;
    /// Returns how far the result may be from [`combined`](Self::combined) if it is combined in another order
    /// and rounded after each step.
    fn slack(op: Op, values: &[Self]) -> f64;
    fn distance(self, other: Self) -> f64;
}

/// An element of a result, and how far an engine may be from it.
#[derive(Clone, Debug)]
pub(crate) struct Expected<T> {
    value: T,
    slack: f64,
}

/// Returns a number from 0 to 255 that looks random.
fn noise(rank: usize, place: usize) -> u64 {
    let mut z = ((rank as u64 + 1) << 32 | place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)) >> 56
}

macro_rules! floats {
    ($($type:ty: $computed:ty, $widen:expr, $round:expr, $digits:expr;)*) => {$(
        impl Number for $type {
            fn value(rank: usize, place: usize) -> Self {
                let noise = noise(rank, place);
                // Between 1/2 and 2.
                let size = 0.5 + (noise % 128) as $computed * 1.5 / 127.0;
                $round(if noise < 128 { size } else { -size })
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

            fn slack(op: Op, values: &[Self]) -> f64 {
                let sizes = values.iter().map(|value| f64::from(*value).abs());
                let count = values.len() as f64;
                let size: f64 = match op {
                    Op::Sum => sizes.sum(),
                    Op::Product => sizes.product(),
                    Op::Average => sizes.sum::<f64>() / count,
                    _ => 0.0,
                };
                // One rounding step for each value, and two more if NCCL multiplies each by a rounded 1 /
                // count. The reference is rounded too.
                let roundings = 2.0 * (count + 1.0) * 0.5f64.powi($digits);
                size * roundings / (1.0 - roundings)
            }

            fn distance(self, other: Self) -> f64 {
                (f64::from(self) - f64::from(other)).abs()
            }
        }
    )*};
}

floats! {
    f16: f32, f16::to_f32, f16::from_f32, f16::MANTISSA_DIGITS as i32;
    bf16: f32, bf16::to_f32, bf16::from_f32, bf16::MANTISSA_DIGITS as i32;
    f32: f32, |value| value, |value| value, f32::MANTISSA_DIGITS as i32;
    f64: f64, |value| value, |value| value, f64::MANTISSA_DIGITS as i32;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            fn value(rank: usize, place: usize) -> Self {
                // All bits matter here, because sums and products may overflow.
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

            fn slack(_: Op, _: &[Self]) -> f64 {
                0.0
            }

            fn distance(self, other: Self) -> f64 {
                if self == other { 0.0 } else { f64::INFINITY }
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Calls a generic function for every element type.
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

/// Returns the elements that a rank gives.
pub(crate) fn brought<T: Number>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|place| T::value(rank, place)).collect()
}

/// Expects exactly these elements.
pub(crate) fn exactly<T: Number>(values: &[T]) -> Vec<Expected<T>> {
    values.iter().map(|&value| Expected { value, slack: 0.0 }).collect()
}

/// Expects the combination of all ranks' elements.
pub(crate) fn combined<T: Number>(op: Op, ranks: usize, len: usize) -> Vec<Expected<T>> {
    let values = |place| (0..ranks).map(|rank| T::value(rank, place)).collect::<Vec<_>>();
    let combine = |values: &[T]| Expected {
        value: T::combined(op, values),
        slack: if combines_in_order() { 0.0 } else { T::slack(op, values) },
    };
    (0..len).map(|place| combine(&values(place))).collect()
}

/// Checks that a result is what we expect.
#[track_caller]
pub(crate) fn assert_expected<T: Number>(got: &[T], want: &[Expected<T>], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (place, (&got, want)) in got.iter().zip(want).enumerate() {
        let distance = got.distance(want.value);
        // If a value is NaN, no distance is small enough.
        assert!(distance <= want.slack, "{what}: {got:?} at {place}, and not {want:?}");
    }
}
