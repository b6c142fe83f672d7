//! What the kernels compute, in plain Rust. Each function is one loop, in `f64` if rounding matters.
#![allow(dead_code, reason = "each test file uses some of it")]

use gpustream::half::{bf16, f16};

/// The element types of most kernels. `f64` can hold every value of each.
pub(crate) trait Element: bytemuck::Pod + PartialEq + std::fmt::Debug {
    /// Returns the same value as an `f64`.
    fn wide(self) -> f64;
    /// Returns the nearest value of this type. 16-bit types are rounded from `f32`, because kernels compute them in
    /// `f32`.
    fn narrow(value: f64) -> Self;
    /// The relative distance between neighbouring values.
    const EPSILON: f64;
}

macro_rules! element {
    ($type:ty, $epsilon:expr, $wide:expr, $narrow:expr) => {
        impl Element for $type {
            fn wide(self) -> f64 {
                $wide(self)
            }
            fn narrow(value: f64) -> Self {
                $narrow(value)
            }
            const EPSILON: f64 = $epsilon;
        }
    };
}
element!(f32, f32::EPSILON as f64, f64::from, |value| value as f32);
element!(f64, f64::EPSILON, |value| value, |value| value);
element!(f16, 1.0 / 1024.0, f16::to_f64, |value| f16::from_f32(value as f32));
element!(bf16, 1.0 / 128.0, bf16::to_f64, |value| bf16::from_f32(value as f32));

/// Returns `n` values between -8 and 8 that look random. The same seed gives the same values.
pub(crate) fn values<T: Element>(n: usize, seed: u64) -> Vec<T> {
    random(n, seed).map(|bits| T::narrow((bits >> 40) as f64 / f64::from(1 << 20) - 8.0)).collect()
}

/// Returns `n` whole numbers between -8 and 8, so that sums and products of a few are exact in every type.
pub(crate) fn whole<T: Element>(n: usize, seed: u64) -> Vec<T> {
    random(n, seed).map(|bits| T::narrow((bits >> 32) as f64 % 17.0 - 8.0)).collect()
}

/// Returns `n` pseudo-random 64-bit numbers (`SplitMix64`).
pub(crate) fn random(n: usize, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..n).map(move |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// Returns `x[i] * a`.
pub(crate) fn scale<T: Element>(a: T, x: &[T]) -> Vec<T> {
    x.iter().map(|x| T::narrow(a.wide() * x.wide())).collect()
}

/// Returns `y[i] + a * x[i]`.
pub(crate) fn axpy<T: Element>(a: T, x: &[T], y: &[T]) -> Vec<T> {
    x.iter().zip(y).map(|(x, y)| T::narrow(a.wide() * x.wide() + y.wide())).collect()
}

/// Returns `x[i] + y[i]`.
pub(crate) fn add<T: Element>(x: &[T], y: &[T]) -> Vec<T> {
    x.iter().zip(y).map(|(x, y)| T::narrow(x.wide() + y.wide())).collect()
}

/// Returns the sum of all elements.
pub(crate) fn sum<T: Element>(x: &[T]) -> f64 {
    x.iter().map(|x| x.wide()).sum()
}

/// Returns the sum of all magnitudes. It bounds a sum's rounding error.
pub(crate) fn magnitude<T: Element>(x: &[T]) -> f64 {
    x.iter().map(|x| x.wide().abs()).sum()
}

/// Returns the sum of all products.
pub(crate) fn dot<T: Element>(x: &[T], y: &[T]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x.wide() * y.wide()).sum()
}

/// Returns the smallest number, or infinity if there is none.
pub(crate) fn min<T: Element>(x: &[T]) -> f64 {
    x.iter().map(|x| x.wide()).fold(f64::INFINITY, f64::min)
}

/// Returns the largest number, or negative infinity if there is none.
pub(crate) fn max<T: Element>(x: &[T]) -> f64 {
    x.iter().map(|x| x.wide()).fold(f64::NEG_INFINITY, f64::max)
}

/// Returns the running sums.
pub(crate) fn inclusive_scan(x: &[f64]) -> Vec<f64> {
    let sums = x.iter().scan(0.0, |sum, x| {
        *sum += x;
        Some(*sum)
    });
    sums.collect()
}

/// Returns the transpose: `out[c][r] = x[r][c]`.
pub(crate) fn transpose<T: Copy>(x: &[T], rows: usize, cols: usize) -> Vec<T> {
    (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect()
}

/// Returns the product of an m×k and a k×n matrix.
pub(crate) fn matmul<T: Element>(a: &[T], b: &[T], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + l].wide() * b[l * n + j].wide();
            }
        }
    }
    c
}

/// Counts how often each byte value occurs.
pub(crate) fn histogram_u8(x: &[u8]) -> Vec<u64> {
    let mut bins = vec![0; 256];
    for &value in x {
        bins[usize::from(value)] += 1;
    }
    bins
}

/// Counts the values in each of `bins` equal bins between `low` and `high`.
pub(crate) fn histogram_f32(x: &[f32], bins: usize, low: f32, high: f32) -> Vec<u64> {
    let mut counts = vec![0; bins];
    let scale = bins as f32 / (high - low);
    for &value in x.iter().filter(|&&value| value >= low && value < high) {
        counts[(((value - low) * scale) as usize).min(bins - 1)] += 1;
    }
    counts
}

/// Does one step of the heat equation. The border keeps its values.
pub(crate) fn heat(cells: &[f64], width: usize, height: usize, k: f64) -> Vec<f64> {
    let mut out = cells.to_vec();
    for y in 1..height.saturating_sub(1) {
        for x in 1..width.saturating_sub(1) {
            let i = y * width + x;
            let around = cells[i - 1] + cells[i + 1] + cells[i - width] + cells[i + width];
            out[i] = cells[i] + k * (around - 4.0 * cells[i]);
        }
    }
    out
}
