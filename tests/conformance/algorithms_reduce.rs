//! Reductions compute what plain Rust computes, for each type, length and offset.

use std::any::type_name;

use conformance::{Random, refused, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result, Stream};
use gpustream_kernels::prelude::*;
use gpustream_kernels::reduce::Fractional;
use gpustream_kernels::reduce_parts::ReducibleParts;

tests! {
    Warps: sums_take_each_element_once, extremes_are_the_lowest_of_equal_ones, nan_is_no_extreme,
        dot_products_match_plain_rust, moments_survive_a_large_mean, elements_that_are_not_zero_are_counted,
        rows_and_columns_match_plain_rust, segments_of_any_length_are_summed, counts_on_the_device_are_followed,
        captures_and_steps_reduce_again, bad_lengths_are_refused;
}

/// Element types, and their values as `f64`, which is exact for the values that we use.
trait Value: ReducibleParts<Sum: Total> {
    fn of(value: i64) -> Self;
    fn wide(self) -> f64;
    /// Whether it can hold negative numbers.
    const SIGNED: bool;
}
trait Total: gpustream::Plain + PartialEq + std::fmt::Debug {
    fn of(value: i64) -> Self;
}
macro_rules! values {
    ($($type:ty: $signed:expr, $of:expr, $wide:expr;)*) => {$(
        impl Value for $type {
            fn of(value: i64) -> Self {
                ($of)(value)
            }
            fn wide(self) -> f64 {
                ($wide)(self)
            }
            const SIGNED: bool = $signed;
        }
    )*};
}
macro_rules! integers {
    ($($type:ty: $signed:expr;)*) => { values! { $($type: $signed, |value| value as $type, |value| value as f64;)* } };
}
integers! { u8: false; u16: false; u32: false; u64: false; i8: true; i16: true; i32: true; i64: true; f32: true; f64: true; }
values! {
    f16: true, |value| f16::from_f32(value as f32), f16::to_f64;
    bf16: true, |value| bf16::from_f32(value as f32), bf16::to_f64;
}
macro_rules! totals {
    ($($type:ty)*) => {$(
        impl Total for $type {
            fn of(value: i64) -> Self {
                value as Self
            }
        }
    )*};
}
totals! { f32 f64 u64 i64 }

macro_rules! for_all_types {
    ($function:ident($($argument:expr),*)) => {{
        $function::<u8>($($argument),*)?;
        $function::<u16>($($argument),*)?;
        $function::<u32>($($argument),*)?;
        $function::<u64>($($argument),*)?;
        $function::<i8>($($argument),*)?;
        $function::<i16>($($argument),*)?;
        $function::<i32>($($argument),*)?;
        $function::<i64>($($argument),*)?;
        $function::<f16>($($argument),*)?;
        $function::<bf16>($($argument),*)?;
        $function::<f32>($($argument),*)?;
        $function::<f64>($($argument),*)
    }};
}

/// Returns whole numbers of which each sum is exact in each type, and which are negative if they can be.
fn whole<T: Value>(n: usize, seed: u64) -> (Vec<T>, Vec<i64>) {
    let mut random = Random(seed + 1);
    let numbers: Vec<i64> = (0..n).map(|_| random.below(9) as i64 - if T::SIGNED { 4 } else { 0 }).collect();
    (numbers.iter().map(|&number| T::of(number)).collect(), numbers)
}

/// The neighbours of packs, warps and blocks, and one that several blocks share.
const LENGTHS: [usize; 13] = [0, 1, 2, 3, 7, 31, 33, 255, 257, 1023, 1025, 4097, 70_003];

fn sums_take_each_element_once(device: &Device) -> Result<()> {
    fn of<T: Value>(s: &Stream) -> Result<()> {
        for (at, n) in LENGTHS.into_iter().enumerate() {
            let offset = at * 5 % 8;
            let (x, numbers) = whole::<T>(offset + n, n as u64);
            let dx = s.upload(&x)?;
            let what = format!("{n} {} at {offset}", type_name::<T>());
            let want = T::Sum::of(numbers[offset..].iter().sum());
            assert_eq!(s.download(&s.sum(&dx.slice(offset..)?)?)?, [want], "{what}");
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))?;
    // Large integers wrap around in 64 bits, and small ones do not in their own width.
    assert_eq!(s.download(&s.sum(&s.upload(&[u64::MAX, 2])?)?)?, [1]);
    assert_eq!(s.download(&s.sum(&s.upload(&[i64::MIN, i64::MAX])?)?)?, [-1]);
    assert_eq!(s.download(&s.sum(&s.upload(&[i8::MIN; 100])?)?)?, [-12_800]);
    assert_eq!(s.download(&s.sum(&s.upload(&[u32::MAX; 100])?)?)?, [100 * u64::from(u32::MAX)]);
    // The same sum of numbers that are rounded, twice.
    let mut random = Random(5);
    let x: Vec<f32> = (0..70_003).map(|_| random.below(1 << 20) as f32 / 1000.0).collect();
    let dx = s.upload(&x)?;
    let sum = s.download(&s.sum(&dx)?)?;
    assert_eq!(sum, s.download(&s.sum(&dx)?)?);
    let want: f64 = x.iter().map(|x| f64::from(*x)).sum();
    assert!((f64::from(sum[0]) - want).abs() < 1e-6 * want, "{sum:?}, not {want}");
    Ok(())
}

fn extremes_are_the_lowest_of_equal_ones(device: &Device) -> Result<()> {
    fn of<T: Value>(s: &Stream) -> Result<()> {
        for (at, n) in LENGTHS.into_iter().enumerate() {
            let offset = at * 3 % 8;
            let (x, numbers) = whole::<T>(offset + n, n as u64);
            let (dx, numbers) = (s.upload(&x)?, &numbers[offset..]);
            let dx = dx.slice(offset..)?;
            let what = format!("{n} {} at {offset}", type_name::<T>());
            let check = |found: &(gpustream::Buffer<T>, gpustream::Buffer<u64>), want: Option<i64>| {
                let place = want.and_then(|want| numbers.iter().position(|number| *number == want));
                assert_eq!(s.download(&found.1)?, [place.map_or(u64::MAX, |place| place as u64)], "{what}");
                if let Some(want) = want {
                    assert_eq!(s.download(&found.0)?[0].wide(), want as f64, "{what}");
                }
                Ok(())
            };
            let (least, largest) = (numbers.iter().min().copied(), numbers.iter().max().copied());
            check(&s.arg_min(&dx)?, least)?;
            check(&s.arg_max(&dx)?, largest)?;
            let ends = (s.download(&s.min(&dx)?)?[0].wide(), s.download(&s.max(&dx)?)?[0].wide());
            if let (Some(least), Some(largest)) = (least, largest) {
                assert_eq!(ends, (least as f64, largest as f64), "{what}");
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))?;
    // The only one lies where a thread's share may begin or end.
    for n in [5000, 70_003] {
        for at in [0, 1, n / 2, n - 2, n - 1] {
            let mut x = vec![1u8; n];
            x[at] = 9;
            let found = s.arg_max(&s.upload(&x)?)?;
            assert_eq!((s.download(&found.0)?, s.download(&found.1)?), (vec![9], vec![at as u64]), "of {n}");
        }
    }
    let nothing = s.zeros::<i16>(0)?;
    assert_eq!(
        (s.download(&s.min(&nothing)?)?, s.download(&s.max(&nothing)?)?),
        (vec![i16::MAX], vec![i16::MIN])
    );
    let nothing = s.zeros::<u64>(0)?;
    assert_eq!((s.download(&s.min(&nothing)?)?, s.download(&s.max(&nothing)?)?), (vec![u64::MAX], vec![0]));
    Ok(())
}

fn nan_is_no_extreme(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in [0, 1, 5, 257, 70_000] {
        let nothing = s.full(n, if n == 5 { -f32::NAN } else { f32::NAN })?;
        let place = [if n == 0 { u64::MAX } else { 0 }];
        let ((least, at), (largest, also)) = (s.arg_min(&nothing)?, s.arg_max(&nothing)?);
        assert_eq!((s.download(&least)?, s.download(&at)?), (vec![f32::INFINITY], place.to_vec()));
        assert_eq!((s.download(&largest)?, s.download(&also)?), (vec![f32::NEG_INFINITY], place.to_vec()));
        for at in if n == 0 { vec![] } else { vec![0, n / 2, n - 1] } {
            let mut x = vec![f16::NAN; n];
            x[at] = f16::NEG_INFINITY;
            let dx = s.upload(&x)?;
            for (value, place) in [s.arg_min(&dx)?, s.arg_max(&dx)?] {
                assert_eq!(s.download(&value)?, [f16::NEG_INFINITY], "{at} of {n}");
                assert_eq!(s.download(&place)?, [at as u64], "of {n}");
            }
        }
    }
    let zeros = s.upload(&[0.0f64, -0.0])?;
    assert_eq!(s.download(&s.arg_min(&zeros)?.1)?, [1]);
    Ok(())
}

fn dot_products_match_plain_rust(device: &Device) -> Result<()> {
    fn of<T: Value + Fractional>(s: &Stream) -> Result<()> {
        for (at, n) in LENGTHS.into_iter().enumerate() {
            // Both views at the same distance from a boundary, and at different ones.
            let (at_x, at_y) = (at % 5, if at % 2 == 0 { at % 5 } else { 3 });
            let ((x, of_x), (y, of_y)) = (whole::<T>(at_x + n, 1), whole::<T>(at_y + n, 2));
            let (x, y) = (s.upload(&x)?, s.upload(&y)?);
            let want = of_x[at_x..].iter().zip(&of_y[at_y..]).map(|(x, y)| x * y).sum();
            let dot = s.dot(&x.slice(at_x..)?, &y.slice(at_y..)?)?;
            assert_eq!(s.download(&dot)?, [T::Sum::of(want)], "{n} {}", type_name::<T>());
        }
        Ok(())
    }
    let s = &device.stream()?;
    of::<f16>(s)?;
    of::<bf16>(s)?;
    of::<f32>(s)?;
    of::<f64>(s)
}

fn moments_survive_a_large_mean(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in [1usize, 2, 15, 17, 1025, 70_003] {
        let mut random = Random(n as u64);
        let x: Vec<f64> = (0..=n).map(|_| 1e6 + random.below(1000) as f64 / 1000.0).collect();
        let narrow: Vec<f32> = x.iter().map(|x| (x - 1e6 + 1000.0) as f32).collect();
        let wide: Vec<f64> = narrow.iter().map(|x| f64::from(*x)).collect();
        let moments = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / n as f64;
            (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64)
        };
        let near = |got: (f64, f64), want: (f64, f64), error: f64| {
            let is_near =
                |got: f64, want: f64, error: f64| (got - want).abs() <= error * want.abs().max(1e-3);
            assert!(
                is_near(got.0, want.0, error) && is_near(got.1, want.1, 1e3 * error),
                "{got:?}, not {want:?}, {n}"
            );
        };
        let [mean, variance] = s.mean_and_variance(&s.upload(&x)?.slice(1..)?)?;
        near((s.download(&mean)?[0], s.download(&variance)?[0]), moments(&x[1..]), 1e-12);
        let [mean, variance] = s.mean_and_variance(&s.upload(&narrow)?.slice(1..)?)?;
        let got = (f64::from(s.download(&mean)?[0]), f64::from(s.download(&variance)?[0]));
        near(got, moments(&wide[1..]), 1e-6);
    }
    let [mean, variance] = s.mean_and_variance(&s.full(3000, f16::from_f32(2.5))?)?;
    assert_eq!((s.download(&mean)?, s.download(&variance)?), (vec![2.5], vec![0.0]));
    let [mean, variance] = s.mean_and_variance(&s.zeros::<bf16>(0)?)?;
    assert!(s.download(&mean)?[0].is_nan() && s.download(&variance)?[0].is_nan());
    Ok(())
}

fn elements_that_are_not_zero_are_counted(device: &Device) -> Result<()> {
    fn of<T: Value>(s: &Stream) -> Result<()> {
        for n in [0, 1, 33, 5001] {
            let (x, numbers) = whole::<T>(n, 3);
            let x = s.upload(&x)?;
            let count = numbers.iter().filter(|number| **number != 0).count();
            assert_eq!(s.download(&s.count_nonzero(&x)?)?, [count as u64], "{n} {}", type_name::<T>());
            assert_eq!(s.download(&s.any(&x)?)?, [u8::from(count > 0)], "{n} {}", type_name::<T>());
            assert_eq!(s.download(&s.all(&x)?)?, [u8::from(count == n)], "{n} {}", type_name::<T>());
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))?;
    let odd = s.upload(&[-0.0, f32::NAN, 0.0, f32::MIN_POSITIVE / 2.0])?;
    assert_eq!(s.download(&s.count_nonzero(&odd)?)?, [2]);
    let mut many = s.full(300_000, 1u8)?;
    assert_eq!(s.download(&s.all(&many)?)?, [1]);
    s.fill(&mut many.slice_mut(299_999..)?, 0)?;
    assert_eq!((s.download(&s.all(&many)?)?, s.download(&s.any(&many)?)?), (vec![0], vec![1]));
    Ok(())
}

fn rows_and_columns_match_plain_rust(device: &Device) -> Result<()> {
    fn of<T: Value>(s: &Stream, shapes: &[(usize, usize)]) -> Result<()> {
        for &(rows, columns) in shapes {
            let what = format!("{rows}×{columns} {}", type_name::<T>());
            let (x, numbers) = whole::<T>(rows * columns, columns as u64);
            let dx = s.upload(&x)?;
            let row = |r: usize| numbers[r * columns..(r + 1) * columns].iter().copied();
            let column = |c: usize| numbers.iter().skip(c).step_by(columns.max(1)).copied();
            let want: Vec<T::Sum> = (0..rows).map(|r| T::Sum::of(row(r).sum())).collect();
            assert_eq!(s.download(&s.sum_rows(&dx, rows, columns)?)?, want, "rows of {what}");
            let want: Vec<T::Sum> = (0..columns).map(|c| T::Sum::of(column(c).sum())).collect();
            assert_eq!(s.download(&s.sum_columns(&dx, rows, columns)?)?, want, "columns of {what}");
            if rows * columns == 0 {
                continue;
            }
            let wide = |x: Vec<T>| x.into_iter().map(T::wide).collect::<Vec<_>>();
            let want: Vec<f64> = (0..rows).map(|r| row(r).max().unwrap() as f64).collect();
            assert_eq!(wide(s.download(&s.max_rows(&dx, rows, columns)?)?), want, "rows of {what}");
            let want: Vec<f64> = (0..columns).map(|c| column(c).max().unwrap() as f64).collect();
            assert_eq!(wide(s.download(&s.max_columns(&dx, rows, columns)?)?), want, "columns of {what}");
        }
        Ok(())
    }
    let s = &device.stream()?;
    let shapes =
        [(1, 1), (5, 0), (0, 5), (3, 1024), (1, 5000), (5000, 1), (100, 33), (33, 300), (9000, 3), (2, 3000)];
    of::<f32>(s, &shapes)?;
    for_all_types!(of(s, &[(17, 130)]))?;
    let nothing = s.full(6, f32::NAN)?;
    assert_eq!(s.download(&s.max_rows(&nothing, 2, 3)?)?, [f32::NEG_INFINITY; 2]);
    assert_eq!(s.download(&s.max_columns(&nothing, 2, 3)?)?, [f32::NEG_INFINITY; 3]);
    assert_eq!(s.download(&s.max_rows(&s.zeros::<f32>(0)?, 2, 0)?)?, [f32::NEG_INFINITY; 2]);
    assert_eq!(s.download(&s.max_columns(&s.zeros::<i8>(0)?, 0, 2)?)?, [i8::MIN; 2]);
    Ok(())
}

fn segments_of_any_length_are_summed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    // Mostly empty ones, short ones, about a tile, much longer ones, and all of these.
    for (most, count) in [(2, 3000), (40, 500), (6000, 12), (90_000, 2), (1, 1), (0, 100)] {
        for first in [0, 3, 4096] {
            let mut random = Random(most as u64 + 7);
            let mut offsets = vec![first as u64];
            for i in 0..count {
                let last = offsets[offsets.len() - 1];
                let is_tile = most == 6000 && i % 5 == 0;
                offsets.push(last + if is_tile { 4096 } else { random.below(most + 1) as u64 });
            }
            let n = offsets[count] as usize + 5;
            let (x, numbers) = whole::<i16>(n, 4);
            let want: Vec<i64> =
                offsets.windows(2).map(|at| numbers[at[0] as usize..at[1] as usize].iter().sum()).collect();
            let sums = s.sum_segments(&s.upload(&x)?, &s.upload(&offsets)?)?;
            assert_eq!(s.download(&sums)?, want, "{count} segments up to {most} from {first}");
        }
    }
    let x = s.full(5000, 1.0f32)?;
    // A piece of 4096 elements ends exactly where a segment ends; offsets beyond the end are the end.
    let offsets = s.upload(&[0, 1024, 1024, 4096, 4990, 9000, 9001])?;
    assert_eq!(s.download(&s.sum_segments(&x, &offsets)?)?, [1024.0, 0.0, 3072.0, 894.0, 10.0, 0.0]);
    // Offsets that make no sense do no harm.
    let offsets = s.upload(&[u64::MAX, 7, 3, 4999, 0, 12, u64::MAX])?;
    assert_eq!(s.sum_segments(&x, &offsets)?.len(), 6);
    s.synchronize()?;
    assert_eq!(s.sum_segments(&x, &s.zeros(1)?)?.len(), 0);
    assert_eq!(s.download(&s.sum_segments(&s.zeros::<u8>(0)?, &s.zeros(4)?)?)?, [0; 3]);
    Ok(())
}

fn counts_on_the_device_are_followed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x: Vec<f32> =
        (0..70_000).map(|i| (i % 100) as f32 - if i % 100 == 7 { 1000.0 } else { 0.0 }).collect();
    let dx = s.upload(&x)?;
    for count in [0, 1, 5, 30_000, 70_000] {
        let counted = Counted::from_parts(s.duplicate(&dx)?, s.upload(&[count as u64])?)?;
        let x = &x[..count];
        let sum: f64 = x.iter().map(|x| f64::from(*x)).sum();
        assert_eq!(s.download(&s.sum(&counted)?)?, [sum as f32], "{count}");
        assert_eq!(
            s.download(&s.min(&counted)?)?,
            [x.iter().copied().fold(f32::INFINITY, f32::min)],
            "{count}"
        );
        let place = if count == 0 { u64::MAX } else { count.min(100) as u64 - 1 };
        assert_eq!(s.download(&s.arg_max(&counted)?.1)?, [place], "{count}");
        let dot: f64 = x.iter().map(|x| f64::from(x * x)).sum();
        let got = s.download(&s.dot(&counted, &dx)?)?[0];
        assert!((f64::from(got) - dot).abs() <= 1e-5 * dot, "{got}, not {dot}, {count}");
        let [mean, _] = s.mean_and_variance(&counted)?;
        let mean = f64::from(s.download(&mean)?[0]);
        assert!(count == 0 && mean.is_nan() || (mean - sum / count as f64).abs() < 1e-3, "{mean}, {count}");
        let nonzero = x.iter().filter(|x| **x != 0.0).count();
        assert_eq!(s.download(&s.count_nonzero(&counted)?)?, [nonzero as u64]);
        assert_eq!(s.download(&s.all(&counted)?)?, [u8::from(nonzero == count)]);
    }
    Ok(())
}

fn captures_and_steps_reduce_again(device: &Device) -> Result<()> {
    const N: usize = 70_000;
    let s = device.stream()?;
    let (mut x, offsets) = (s.zeros::<u32>(N)?, s.upload(&[0, 10, 5000, N as u64])?);
    s.sum(&x)?;
    let mut results = None;
    let graph = s.capture(|s| {
        results =
            Some((s.sum(&x)?, s.arg_max(&x)?.1, s.sum_segments(&x, &offsets)?, s.sum_columns(&x, 700, 100)?));
        Ok(())
    })?;
    let (sum, place, segments, columns) = results.unwrap();
    let (mut step, mut kept) = (device.replay(), s.zeros::<u64>(1)?);
    for seed in 1..5 {
        let mut random = Random(seed);
        let values: Vec<u32> = (0..N).map(|_| random.below(1 << 30) as u32).collect();
        s.upload_into(&values, &mut x)?;
        graph.launch(&s)?;
        let total = |from: usize, to: usize| values[from..to].iter().map(|x| u64::from(*x)).sum::<u64>();
        assert_eq!(s.download(&sum)?, [total(0, N)]);
        let largest = values.iter().max().unwrap();
        assert_eq!(s.download(&place)?, [values.iter().position(|x| x == largest).unwrap() as u64]);
        assert_eq!(s.download(&segments)?, [total(0, 10), total(10, 5000), total(5000, N)]);
        assert_eq!(s.download(&columns)?.iter().sum::<u64>(), total(0, N));
        step.run(&s, |s| s.copy(&s.sum(&x)?, &mut kept))?;
        assert_eq!(s.download(&kept)?, [total(0, N)]);
    }
    Ok(())
}

fn bad_lengths_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, y) = (s.zeros::<f32>(10)?, s.zeros::<f32>(9)?);
    refused(s.dot(&x, &y), ErrorKind::ArgumentMismatch, &["10 and 9 elements"]);
    refused(s.sum_rows(&x, 3, 3), ErrorKind::ArgumentMismatch, &["3×3 in 10 elements"]);
    refused(s.sum_columns(&x, 11, 1), ErrorKind::ArgumentMismatch, &["11×1"]);
    refused(s.max_rows(&x, usize::MAX, 2), ErrorKind::ArgumentMismatch, &["exactly the matrix"]);
    refused(s.max_columns(&x, 0, 10), ErrorKind::ArgumentMismatch, &["0×10"]);
    refused(s.sum_segments(&x, &s.zeros(0)?), ErrorKind::ArgumentMismatch, &["without offsets"]);
    Ok(())
}
