//! Searches, quantiles, histograms and transforms compute the same as plain Rust.

use std::fmt::Debug;

use conformance::{noise, refused};
use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Device, ErrorKind, Plain, Result, Stream};
use gpustream_kernels::histogram::Binned;
use gpustream_kernels::prelude::*;
use gpustream_kernels::search::Searchable;

conformance::tests! {
    Warps: searches_find_both_ends, searches_accept_counts, quantiles_are_those_of_numpy, quantiles_of_nothing_and_of_nan,
        integers_are_counted, even_bins_are_those_of_numpy, edges_bound_bins, weights_are_summed, ordered_weights_repeat_their_bits,
        histograms_accept_counts, elements_move, matrices_are_transposed, elements_are_clipped_and_subtracted,
        scatters_leave_out_what_is_not_there, segments_are_scanned, short_keys_have_runs, the_most_of_a_row_is_sorted,
        families_are_recorded;
    Plain: what_does_not_fit_is_refused;
}

const LENGTHS: [usize; 9] = [0, 1, 2, 31, 33, 1000, 4097, 9000, 20_021];

fn numbers(n: usize, seed: usize) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| noise(i + seed * 1_000_003) >> 3)
}

/// Returns the bytes, because a NaN does not equal itself.
fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Floats among which the order of types matters.
fn special(n: usize, seed: usize) -> Vec<f32> {
    let few =
        [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.5, -1.5, f32::MIN_POSITIVE];
    numbers(n, seed)
        .map(|x| if x % 4 == 0 { few[x as usize / 4 % few.len()] } else { (x % 97) as f32 - 40.0 })
        .collect()
}

fn searched<K: Searchable + Debug>(
    s: &Stream,
    sorted: &[K],
    values: &[K],
    compare: impl Fn(&K, &K) -> std::cmp::Ordering,
) -> Result<()> {
    let (keys, wanted) = (s.upload(sorted)?, s.upload(values)?);
    let what = format!("{} in {} {}", values.len(), sorted.len(), std::any::type_name::<K>());
    let lower: Vec<u32> =
        values.iter().map(|v| sorted.partition_point(|k| compare(k, v).is_lt()) as u32).collect();
    let upper: Vec<u32> =
        values.iter().map(|v| sorted.partition_point(|k| compare(k, v).is_le()) as u32).collect();
    assert_eq!(s.download(&s.lower_bound(&keys, &wanted)?)?, lower, "lower, {what}");
    assert_eq!(s.download(&s.upper_bound(&keys, &wanted)?)?, upper, "upper, {what}");
    let mut long = s.zeros::<u64>(values.len())?;
    s.upper_bound_into(&keys, &wanted, &mut long)?;
    let upper: Vec<u64> = upper.into_iter().map(u64::from).collect();
    assert_eq!(s.download(&long)?, upper, "long, {what}");
    Ok(())
}

fn searches_find_both_ends(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let mut floats = special(n, 1);
        floats.sort_by(f32::total_cmp);
        searched(&s, &floats, &special(500, 2), f32::total_cmp)?;
        let mut whole: Vec<i64> = numbers(n, 3).map(|x| (x % 50) as i64 - 25).collect();
        whole.sort_unstable();
        searched(&s, &whole, &numbers(300, 4).map(|x| (x % 60) as i64 - 30).collect::<Vec<_>>(), i64::cmp)?;
        let mut small: Vec<u8> = numbers(n, 5).map(|x| x as u8).collect();
        small.sort_unstable();
        searched(&s, &small, &(0..=255).collect::<Vec<u8>>(), u8::cmp)?;
        let mut half: Vec<f16> = numbers(n, 6).map(|x| f16::from_bits(x as u16)).collect();
        half.sort_by(f16::total_cmp);
        searched(
            &s,
            &half,
            &numbers(300, 7).map(|x| f16::from_bits(x as u16)).collect::<Vec<_>>(),
            f16::total_cmp,
        )?;
    }
    Ok(())
}

fn searches_accept_counts(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x: Vec<u32> = (0..5000).map(|i| i / 3).collect();
    let kept = s.select_range(&s.upload(&x)?, 100..600)?;
    let wanted = s.select_range(&s.upload(&[90u32, 99, 100, 350, 599, 600, 2000])?, 99..700)?;
    let places = s.download(&s.lower_bound(&kept, &wanted)?)?;
    assert_eq!(places[..5], [0, 0, 750, 1497, 1500]);
    let mut long = s.full(7, 77u64)?;
    s.lower_bound_into(&kept, &wanted, &mut long)?;
    assert_eq!(s.download(&long)?[5..], [77; 2], "written beyond the count");
    Ok(())
}

/// NumPy's rule in `f64`: the number between two elements, and the element nearest to a position.
fn quantile(sorted: &[f64], q: f64) -> (f64, usize) {
    let at = q * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let (part, above) = (at - at.floor(), (below + 1).min(sorted.len() - 1));
    let (a, b) = (sorted[below], sorted[above]);
    let value = if part < 0.5 { a + (b - a) * part } else { b - (b - a) * (1.0 - part) };
    (value, if part > 0.5 || (part == 0.5 && below % 2 == 1) { above } else { below })
}

fn quantiles_are_those_of_numpy(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let at = [0.0, 0.01, 0.25, 1.0 / 3.0, 0.5, 0.77, 0.999, 1.0];
    let dat = s.upload(&at)?;
    for n in LENGTHS.into_iter().filter(|n| *n > 0) {
        let x: Vec<f32> = numbers(n, 1).map(|x| (x % 1001) as f32 * 0.5 - 250.0).collect();
        let mut sorted = x.clone();
        sorted.sort_by(f32::total_cmp);
        let wide: Vec<f64> = sorted.iter().map(|x| f64::from(*x)).collect();
        let dx = s.upload(&x)?;
        let got = s.download(&s.quantiles(&dx, &dat)?)?;
        let nearest = s.download(&s.nearest_quantiles(&dx, &dat)?)?;
        for (i, q) in at.into_iter().enumerate() {
            let (value, place) = quantile(&wide, q);
            assert!((got[i] - value as f32).abs() <= 1e-4, "{q} of {n}: {} is not {value}", got[i]);
            assert_eq!(nearest[i], sorted[place], "nearest {q} of {n}");
        }
        let x: Vec<i16> = numbers(n, 2).map(|x| x as i16).collect();
        let mut sorted: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        sorted.sort_by(f64::total_cmp);
        let got: Vec<f64> = s.download(&s.quantiles(&s.upload(&x)?, &dat)?)?;
        for (got, q) in got.into_iter().zip(at) {
            let want = quantile(&sorted, q).0;
            assert!((got - want).abs() <= 1e-9, "{q} of {n}: {got} is not {want}");
        }
        let x: Vec<bf16> = numbers(n, 3).map(|x| bf16::from_f32((x % 100) as f32)).collect();
        let mut sorted: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
        sorted.sort_by(f64::total_cmp);
        let got: Vec<f32> = s.download(&s.quantiles(&s.upload(&x)?, &dat)?)?;
        for (got, q) in got.into_iter().zip(at) {
            assert!((f64::from(got) - quantile(&sorted, q).0).abs() <= 1e-4, "{q} of {n} bf16");
        }
    }
    // A position in the middle of two elements goes to the even one.
    let dx = s.upload(&[10u64, 20, 30, 40])?;
    let middle = s.upload(&[0.5 / 3.0, 0.5, 2.5 / 3.0])?;
    assert_eq!(s.download(&s.nearest_quantiles(&dx, &middle)?)?, [10, 30, 30]);
    // The difference of infinities is NaN, but equal ones are just that.
    let dx = s.upload(&[f64::INFINITY, f64::INFINITY, 1.0])?;
    assert_eq!(s.download(&s.quantiles(&dx, &s.upload(&[0.0, 0.75])?)?)?, [1.0, f64::INFINITY]);
    let few = s.select_range(&s.upload(&(0..1000u32).rev().collect::<Vec<_>>())?, 100..=200)?;
    assert_eq!(s.download(&s.quantiles(&few, &s.upload(&[0.0, 0.5, 1.0])?)?)?, [100.0, 150.0, 200.0]);
    Ok(())
}

fn quantiles_of_nothing_and_of_nan(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let at = s.upload(&[0.0, 0.5])?;
    assert!(s.download(&s.quantiles(&s.zeros::<f32>(0)?, &at)?)?.iter().all(|x| x.is_nan()));
    assert_eq!(s.download(&s.nearest_quantiles(&s.zeros::<i8>(0)?, &at)?)?, [0, 0]);
    for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)] {
        let x = s.upload(&[1.0, nan, 2.0])?;
        assert!(s.download(&s.quantiles(&x, &at)?)?.iter().all(|x| x.is_nan()));
        assert!(s.download(&s.nearest_quantiles(&x, &at)?)?.iter().all(|x| x.is_nan()));
    }
    let outside = s.upload(&[-0.1, 1.1, f64::NAN])?;
    assert!(s.download(&s.quantiles(&s.upload(&[1.0f64])?, &outside)?)?.iter().all(|x| x.is_nan()));
    Ok(())
}

fn integers_are_counted(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for bins in [1usize, 7, 256, 9000] {
            let x: Vec<i32> =
                numbers(n, 1).map(|x| (x % (2 * bins as u64)) as i32 - bins as i32 / 4).collect();
            let weights: Vec<i16> = numbers(n, 2).map(|x| x as i16).collect();
            let (mut counts, mut sums) = (vec![0u64; bins], vec![0i64; bins]);
            for (x, w) in x.iter().zip(&weights) {
                if let Some(bin) = usize::try_from(*x).ok().filter(|bin| *bin < bins) {
                    counts[bin] += 1;
                    sums[bin] += i64::from(*w);
                }
            }
            let (dx, dw) = (s.upload(&x)?, s.upload(&weights)?);
            assert_eq!(s.download(&s.bincount(&dx, bins)?)?, counts, "{n} in {bins}");
            assert_eq!(s.download(&s.bincount_weighted(&dx, &dw, bins)?)?, sums, "{n} in {bins}");
            assert_eq!(s.download(&s.bincount_weighted_unordered(&dx, &dw, bins)?)?, sums, "{n} in {bins}");
        }
        let x: Vec<u8> = numbers(n + 5, 3).map(|x| (x % 200) as u8).collect();
        let mut counts = vec![0u64; 256];
        x[5..].iter().for_each(|x| counts[usize::from(*x)] += 1);
        assert_eq!(s.download(&s.bincount(&s.upload(&x)?.slice(5..)?, 256)?)?, counts, "{n} bytes");
        let x: Vec<i8> = x[..n].iter().map(|x| *x as i8).collect();
        let counts: Vec<u64> = (0..50i8).map(|bin| x.iter().filter(|x| **x == bin).count() as u64).collect();
        assert_eq!(s.download(&s.bincount(&s.upload(&x)?, 50)?)?, counts, "{n} signed bytes");
    }
    Ok(())
}

/// Returns the edges of even bins as NumPy's `linspace` does.
fn linspace(bins: usize, low: f64, high: f64) -> Vec<f64> {
    let step = (high - low) / bins as f64;
    (0..bins).map(|i| i as f64 * step + low).chain([high]).collect()
}

/// Counts by NumPy's rule: the last bin contains its upper edge.
fn in_bins(x: &[f64], edges: &[f64]) -> Vec<u64> {
    let mut counts = vec![0; edges.len() - 1];
    for &x in x {
        if x >= edges[0] && x <= edges[edges.len() - 1] {
            counts[edges.partition_point(|edge| *edge <= x).min(edges.len() - 1) - 1] += 1;
        }
    }
    counts
}

fn even<T: Binned + Copy>(
    s: &Stream,
    x: &[T],
    [low, high]: [T; 2],
    bins: usize,
    number: impl Fn(T) -> f64,
) -> Result<()> {
    let wide: Vec<f64> = x.iter().map(|x| number(*x)).collect();
    let want = in_bins(&wide, &linspace(bins, number(low), number(high)));
    let got = s.download(&s.histogram(&s.upload(x)?, &Bins::even(bins, low..=high))?)?;
    assert_eq!(got, want, "{} {} in {bins} bins", x.len(), std::any::type_name::<T>());
    Ok(())
}

fn even_bins_are_those_of_numpy(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for bins in [1, 3, 10, 100, 1000] {
            // Many elements lie exactly on edges, or next to them.
            let floats: Vec<f32> = special(n, 1)
                .into_iter()
                .enumerate()
                .map(|(i, x)| {
                    if i % 3 == 0 {
                        f32::from_bits(((i % 100) as f32 * 0.1).to_bits() + i as u32 % 3)
                    } else {
                        x
                    }
                })
                .collect();
            even(&s, &floats, [0.0, 10.0], bins, f64::from)?;
            even(&s, &floats, [-0.0, 1.5], bins, f64::from)?;
            even(&s, &floats, [f32::MIN, f32::MAX], bins, f64::from)?;
            even(&s, &floats, [16_777_216.0, 16_777_218.0], bins, f64::from)?;
            // So many bins per unit are more than an f32 holds.
            let tiny: Vec<f32> = (0..n).map(|i| f32::from_bits(i as u32 % 12)).collect();
            even(&s, &tiny, [f32::from_bits(1), f32::from_bits(9)], bins, f64::from)?;
            let doubles: Vec<f64> = floats.iter().map(|x| f64::from(*x) * 0.1).collect();
            even(&s, &doubles, [-3.7, 0.3], bins, |x| x)?;
            even(&s, &doubles, [1e15, 1e15 + 1.0], bins, |x| x)?;
            let half: Vec<f16> = numbers(n, 2).map(|x| f16::from_bits(x as u16)).collect();
            even(&s, &half, [f16::from_f32(-2.0), f16::from_f32(3.3)], bins, f16::to_f64)?;
            let half: Vec<bf16> = numbers(n, 2).map(|x| bf16::from_bits(x as u16)).collect();
            even(&s, &half, [bf16::from_f32(0.0), bf16::from_f32(1e6)], bins, bf16::to_f64)?;
            let whole: Vec<i32> = numbers(n, 3).map(|x| (x % 300) as i32 - 150).collect();
            even(&s, &whole, [-100, 77], bins, f64::from)?;
            even(&s, &whole, [i32::MIN, i32::MAX], bins, f64::from)?;
            let whole: Vec<u64> = numbers(n, 4).collect();
            even(&s, &whole, [5, u64::MAX], bins, |x| x as f64)?;
            let small: Vec<i8> = numbers(n, 5).map(|x| x as i8).collect();
            even(&s, &small, [-128, 127], bins, f64::from)?;
        }
    }
    Ok(())
}

fn edges_bound_bins(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let x = special(n, 1);
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let many: Vec<f32> = (0..10_000).map(|i| i as f32 * 0.013 - 60.0).collect();
        let all: [&[f32]; 5] = [
            &[-10.0, -0.0, 3.5],
            &[0.0, 0.0, 0.5, 56.0],
            &[f32::NEG_INFINITY, 1.5, f32::INFINITY],
            &[1.5, 1.5],
            &many,
        ];
        for edges in all {
            let want = in_bins(&wide, &edges.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
            let got = s.histogram(&s.upload(&x)?, &Bins::edges(&s.upload(edges)?))?;
            assert_eq!(s.download(&got)?, want, "{n} in {} bins", edges.len() - 1);
        }
    }
    Ok(())
}

fn weights_are_summed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for bins in [1, 10, 300, 9000] {
            let x: Vec<u32> = numbers(n, 1).map(|x| (x % 1000) as u32).collect();
            let weights: Vec<f32> = numbers(n, 2).map(|x| (x % 9) as f32 - 4.0).collect();
            let edges = linspace(bins, 0.0, 900.0);
            let mut want = vec![0.0f32; bins];
            for (x, w) in x.iter().zip(&weights).filter(|(x, _)| **x <= 900) {
                want[edges.partition_point(|edge| *edge <= f64::from(*x)).min(bins) - 1] += w;
            }
            let how = Bins::even(bins, 0..=900);
            let (dx, dw) = (s.upload(&x)?, s.upload(&weights)?);
            assert_eq!(s.download(&s.histogram_weighted(&dx, &dw, &how)?)?, want, "{n} in {bins}");
            assert_eq!(s.download(&s.histogram_weighted_unordered(&dx, &dw, &how)?)?, want, "{n} in {bins}");
            let half: Vec<f16> = weights.iter().map(|x| f16::from_f32(*x)).collect();
            assert_eq!(
                s.download(&s.histogram_weighted(&dx, &s.upload(&half)?, &how)?)?,
                want,
                "{n} in {bins}"
            );
            let wide: Vec<f64> = weights.iter().map(|x| f64::from(*x)).collect();
            let want: Vec<f64> = want.into_iter().map(f64::from).collect();
            assert_eq!(
                s.download(&s.histogram_weighted(&dx, &s.upload(&wide)?, &how)?)?,
                want,
                "{n} in {bins}"
            );
        }
    }
    Ok(())
}

fn ordered_weights_repeat_their_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 40_000;
    let x = s.upload(&numbers(n, 1).map(|x| x as u8).collect::<Vec<_>>())?;
    let weights: Vec<f32> = numbers(n, 2).map(|x| (x as f32 / u64::MAX as f32 - 0.03).powi(5)).collect();
    let weights = s.upload(&weights)?;
    let mut first = None;
    for _ in 0..4 {
        let sums = s.download(&s.bincount_weighted(&x, &weights, 3)?)?;
        let bits: Vec<u32> = sums.into_iter().map(f32::to_bits).collect();
        assert_eq!(first.get_or_insert_with(|| bits.clone()), &bits);
    }
    Ok(())
}

fn histograms_accept_counts(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x: Vec<u32> = numbers(5000, 1).map(|x| (x % 100) as u32).collect();
    let kept = s.select_range(&s.upload(&x)?, 20..40)?;
    let want: Vec<u64> = (0..50)
        .map(|bin| if (20..40).contains(&bin) { x.iter().filter(|x| **x == bin).count() as u64 } else { 0 })
        .collect();
    assert_eq!(s.download(&s.bincount(&kept, 50)?)?, want);
    let ones = s.full(5000, 1.0f64)?;
    let sums = s.download(&s.bincount_weighted(&kept, &ones, 50)?)?;
    assert_eq!(sums, want.iter().map(|x| *x as f64).collect::<Vec<_>>());
    Ok(())
}

fn moved<T: Plain>(s: &Stream, make: impl Fn(u64) -> T) -> Result<()> {
    for n in LENGTHS {
        let x: Vec<T> = numbers(n + 3, 1).map(&make).collect();
        let x = &x[3..];
        let other: Vec<T> = numbers(n, 2).map(&make).collect();
        let flags: Vec<u8> = numbers(n, 3).map(|x| (x % 3) as u8).collect();
        let (dx, mut y) = (s.upload(x)?, s.upload(&other)?);
        let what = format!("{n} {}", std::any::type_name::<T>());
        let reversed: Vec<T> = x.iter().rev().copied().collect();
        s.choose(&s.upload(&flags)?, &dx, &s.upload(&other)?, &mut y)?;
        let want: Vec<T> = (0..n).map(|i| if flags[i] != 0 { x[i] } else { other[i] }).collect();
        assert_eq!(bytes(&s.download(&y)?), bytes(&want), "chosen, {what}");
        s.reverse(&dx, &mut y)?;
        assert_eq!(bytes(&s.download(&y)?), bytes(&reversed), "reversed, {what}");
        let mut in_place = s.duplicate(&dx)?;
        s.reverse_in_place(&mut in_place)?;
        assert_eq!(bytes(&s.download(&in_place)?), bytes(&reversed), "reversed in place, {what}");
        for by in [0, 1, n / 3, n, n + 5] {
            let mut want = x.to_vec();
            want.rotate_left(by.checked_rem(n).unwrap_or(0));
            s.rotate_left(&dx, by, &mut y)?;
            assert_eq!(bytes(&s.download(&y)?), bytes(&want), "rotated by {by}, {what}");
        }
    }
    Ok(())
}

fn elements_move(device: &Device) -> Result<()> {
    let s = device.stream()?;
    moved(&s, |x| x as u8)?;
    moved(&s, |x| f16::from_bits(x as u16))?;
    moved(&s, |x| [x as u8, 1, 2])?;
    moved(&s, |x| x as f32)?;
    moved(&s, |x| [x as u32, 5, 6])?;
    moved(&s, |x| [x, !x])?;
    // As many as there are.
    let kept = s.select_range(&s.upload(&[1u32, 50, 2, 60, 3])?, ..10)?;
    let mut y = s.full(5, 9u32)?;
    s.reverse(&kept, &mut y)?;
    assert_eq!(s.download(&y)?, [3, 2, 1, 9, 9]);
    Ok(())
}

fn transposed<T: Plain>(s: &Stream, make: impl Fn(u64) -> T) -> Result<()> {
    for [matrices, rows, columns] in
        [[1, 1, 1], [3, 5, 7], [2, 64, 64], [1, 130, 65], [40, 3, 17], [2, 1, 300], [0, 4, 4]]
    {
        let size = rows * columns;
        let x: Vec<T> = numbers(matrices * size, 1).map(&make).collect();
        let want: Vec<T> =
            (0..x.len()).map(|i| x[i / size * size + i % size % rows * columns + i % size / rows]).collect();
        let mut y = s.alloc(x.len())?;
        s.transpose(&s.upload(&x)?, rows, columns, &mut y)?;
        assert_eq!(bytes(&s.download(&y)?), bytes(&want), "{matrices} of {rows}×{columns}");
    }
    Ok(())
}

fn matrices_are_transposed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    transposed(&s, |x| x as u8)?;
    transposed(&s, |x| bf16::from_bits(x as u16))?;
    transposed(&s, |x| x as f32)?;
    transposed(&s, |x| x)
}

fn elements_are_clipped_and_subtracted(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let x = special(n, 1);
        let want: Vec<f32> = x
            .iter()
            .map(|&x| {
                if x.is_nan() {
                    x
                } else if x.total_cmp(&0.0).is_lt() {
                    0.0
                } else {
                    x.min(20.5)
                }
            })
            .collect();
        let (mut in_place, mut y) = (s.upload(&x)?, s.zeros(n)?);
        s.clip(&in_place, 0.0..=20.5, &mut y)?;
        assert_eq!(bytes(&s.download(&y)?), bytes(&want), "{n}");
        s.clip_in_place(&mut in_place, 0.0..=20.5)?;
        assert_eq!(bytes(&s.download(&in_place)?), bytes(&want), "{n} in place");
        let small: Vec<i8> = numbers(n, 2).map(|x| x as i8).collect();
        let mut y = s.zeros(n)?;
        s.clip(&s.upload(&small)?, -7..50, &mut y)?;
        assert_eq!(s.download(&y)?, small.iter().map(|x| *x.clamp(&-7, &49)).collect::<Vec<_>>(), "{n}");
        s.clip(&s.upload(&small)?, 3.., &mut y)?;
        assert_eq!(s.download(&y)?, small.iter().map(|x| *x.max(&3)).collect::<Vec<_>>(), "{n}");

        s.adjacent_difference(&s.upload(&small)?, &mut y)?;
        let before = |i: usize| if i == 0 { 0 } else { small[i - 1] };
        let want: Vec<i8> = (0..n).map(|i| small[i].wrapping_sub(before(i))).collect();
        assert_eq!(s.download(&y)?, want, "{n}");
        let half: Vec<f16> = small.iter().map(|x| f16::from_f32(f32::from(*x))).collect();
        let mut y = s.zeros(n)?;
        s.adjacent_difference(&s.upload(&half)?, &mut y)?;
        let want: Vec<f16> =
            (0..n).map(|i| f16::from_f32(f32::from(small[i]) - f32::from(before(i)))).collect();
        assert_eq!(s.download(&y)?, want, "{n}");
        let whole: Vec<u64> = numbers(n, 3).collect();
        let mut y = s.zeros(n)?;
        s.adjacent_difference(&s.upload(&whole)?, &mut y)?;
        s.inclusive_scan_in_place(&mut y)?;
        assert_eq!(s.download(&y)?, whole, "{n}");
    }
    Ok(())
}

fn scatters_leave_out_what_is_not_there(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        // A permutation, with gaps.
        let at: Vec<u64> =
            (0..n as u64).map(|i| if i % 5 == 0 { u64::MAX - i } else { n as u64 - 1 - i }).collect();
        let x: Vec<[u16; 3]> = numbers(n, 1).map(|x| [x as u16, 1, 2]).collect();
        let mut want = vec![[7; 3]; n];
        for (x, at) in x.iter().zip(&at) {
            if let Some(to) = want.get_mut(*at as usize) {
                *to = *x;
            }
        }
        let mut y = s.full(n, [7u16; 3])?;
        s.scatter(&s.upload(&x)?, &s.upload(&at)?, &mut y)?;
        assert_eq!(s.download(&y)?, want, "{n}");
        let short: Vec<u32> = at.iter().map(|at| *at as u32).collect();
        let mut y = s.full(n, [7u16; 3])?;
        s.scatter(&s.upload(&x)?, &s.upload(&short)?, &mut y)?;
        assert_eq!(s.download(&y)?, want, "{n}");
    }
    Ok(())
}

fn scanned<T: gpustream_kernels::by_key::SegmentSum + PartialEq + Debug>(
    s: &Stream,
    x: &[T],
    offsets: &[u32],
    zero: T,
    add: impl Fn(T, T) -> T,
) -> Result<()> {
    let n = x.len();
    let (mut inclusive, mut exclusive, mut sum) = (Vec::new(), Vec::new(), zero);
    for (i, x) in x.iter().enumerate() {
        if offsets.contains(&(i as u32)) {
            sum = zero;
        }
        exclusive.push(sum);
        sum = add(sum, *x);
        inclusive.push(sum);
    }
    let (dx, mut y) = (s.upload(x)?, s.alloc(n)?);
    s.inclusive_scan_segments(&dx, &s.upload(offsets)?, &mut y)?;
    assert_eq!(s.download(&y)?, inclusive, "{n} in {}", offsets.len());
    let long: Vec<u64> = offsets.iter().map(|x| u64::from(*x)).collect();
    s.exclusive_scan_segments(&dx, &s.upload(&long)?, &mut y)?;
    assert_eq!(s.download(&y)?, exclusive, "{n} in {}", offsets.len());
    Ok(())
}

fn segments_are_scanned(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let end = n as u32;
        let cases = [
            vec![],
            vec![0, end],
            vec![end / 2; 5],
            (0..end.min(40)).collect(),
            vec![0, 0, 0, end / 3, end / 3 + 1, end / 2, end, end, end + 9],
            (0..=end / 100).map(|i| i * 100).collect(),
        ];
        for offsets in &cases {
            scanned(&s, &numbers(n, 1).map(|x| x as i64).collect::<Vec<_>>(), offsets, 0, i64::wrapping_add)?;
            scanned(&s, &numbers(n, 2).map(|x| (x % 9) as f32).collect::<Vec<_>>(), offsets, 0.0, |a, b| {
                a + b
            })?;
        }
    }
    Ok(())
}

fn short_keys_have_runs(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let mut keys: Vec<u8> = numbers(n, 1).map(|x| (x % 5) as u8 * 60).collect();
        keys[n / 3..].sort_unstable();
        let values: Vec<u32> = numbers(n, 2).map(|x| x as u32).collect();
        let runs: Vec<&[u8]> = keys.chunk_by(|a, b| a == b).collect();
        let (mut sums, mut largest, mut at) = (Vec::new(), Vec::new(), 0);
        for run in &runs {
            let values = &values[at..at + run.len()];
            sums.push(values.iter().fold(0, |a: u32, b| a.wrapping_add(*b)));
            largest.extend(values.iter().max());
            at += run.len();
        }
        let want: Vec<u8> = runs.iter().map(|run| run[0]).collect();
        let dv = s.upload(&values)?;
        let (found, totals) = s.sum_by_key(&s.upload(&keys)?, &dv)?;
        assert_eq!((found.download(&s)?, totals.download(&s)?), (want.clone(), sums.clone()), "{n} u8");
        let signed: Vec<i8> = keys.iter().map(|x| *x as i8).collect();
        assert_eq!(s.max_by_key(&s.upload(&signed)?, &dv)?.1.download(&s)?, largest, "{n} i8");
        let half: Vec<f16> = keys.iter().map(|x| f16::from_f32(f32::from(*x))).collect();
        let (found, totals) = s.sum_by_key(&s.upload(&half)?, &dv)?;
        let want: Vec<f16> = want.into_iter().map(|x| f16::from_f32(f32::from(x))).collect();
        assert_eq!((found.download(&s)?, totals.download(&s)?), (want, sums), "{n} f16");
        let groups = s.upload(&keys)?;
        let (cities, count) = s.group_by(&groups)?.count(&s)?;
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        let want: Vec<(u8, u32)> =
            sorted.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect();
        assert_eq!(
            cities.download(&s)?.into_iter().zip(count.download(&s)?).collect::<Vec<_>>(),
            want,
            "{n}"
        );
    }
    Ok(())
}

/// If k is more than half of a row, we sort it.
fn the_most_of_a_row_is_sorted(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for (rows, n, k) in [(1, 5000, 4000), (1, 9000, 9000), (3, 2500, 2000), (20, 1300, 1100), (1, 9000, 1500)]
    {
        let x = special(rows * n, 7);
        for order in [Order::Ascending, Order::Descending] {
            let (values, indices) = s.top_k_rows(&s.upload(&x)?, rows, k, order)?;
            let (values, indices) = (s.download(&values)?, s.download(&indices)?);
            for (row, x) in x.chunks(n).enumerate() {
                let mut want: Vec<u32> = (0..n as u32).collect();
                want.sort_by(|&a, &b| {
                    let (a, b) = (x[a as usize], x[b as usize]);
                    let by_value = if order == Order::Ascending { a.total_cmp(&b) } else { b.total_cmp(&a) };
                    match a.is_nan().cmp(&b.is_nan()) {
                        std::cmp::Ordering::Equal if a.is_nan() => std::cmp::Ordering::Equal,
                        by_nan => by_nan.then(by_value),
                    }
                });
                want.truncate(k);
                assert_eq!(
                    indices[row * k..(row + 1) * k],
                    want,
                    "row {row} of {rows}, {k} of {n}, {order:?}"
                );
                let want: Vec<f32> = want.iter().map(|i| x[*i as usize]).collect();
                assert_eq!(bytes(&values[row * k..(row + 1) * k]), bytes(&want), "{k} of {n}, {order:?}");
            }
        }
    }
    let some = s.select_range(&s.upload(&(0..6000u32).collect::<Vec<_>>())?, 100..2600)?;
    let (values, indices) = s.top_k_counted(&some, 5000, Order::Descending)?;
    assert_eq!(values.download(&s)?, (100..2600).rev().collect::<Vec<_>>());
    assert_eq!(indices.download(&s)?, (0..2500).rev().collect::<Vec<_>>());
    Ok(())
}

/// Each family works in a graph.
fn families_are_recorded(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 6000;
    let (mut x, at) = (s.zeros::<u32>(n)?, s.upload(&[0.0, 0.5, 1.0])?);
    let weights = s.full(n, 0.5f32)?;
    let mut results: Option<(Buffer<f64>, Buffer<f32>, Buffer<u32>)> = None;
    let graph = s.capture(|s| {
        let mut sorted = s.alloc(n)?;
        s.sort_into(&x, &mut sorted, &SortOptions::default())?;
        results = Some((
            s.quantiles(&x, &at)?,
            s.histogram_weighted(&x, &weights, &Bins::even(4, 0..=1000))?,
            s.upper_bound(&sorted, &x)?,
        ));
        Ok(())
    })?;
    for seed in 1..4 {
        let values: Vec<u32> = numbers(n, seed).map(|x| (x % 1001) as u32).collect();
        s.upload_into(&values, &mut x)?;
        graph.launch(&s)?;
        let (quantiles, sums, places) = results.as_ref().expect("the capture ran");
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let got = s.download(quantiles)?;
        assert_eq!([got[0], got[2]], [f64::from(sorted[0]), f64::from(sorted[n - 1])]);
        let wide: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
        let want: Vec<f32> =
            in_bins(&wide, &linspace(4, 0.0, 1000.0)).iter().map(|x| *x as f32 / 2.0).collect();
        assert_eq!(s.download(sums)?, want);
        let want: Vec<u32> = values.iter().map(|v| sorted.partition_point(|k| k <= v) as u32).collect();
        assert_eq!(s.download(places)?, want);
    }
    Ok(())
}

fn what_does_not_fit_is_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, mut short) = (s.zeros::<f32>(10)?, s.zeros::<f32>(9)?);
    let (wrong, unusable) = (ErrorKind::ArgumentMismatch, ErrorKind::InvalidArgument);
    refused(s.lower_bound_into(&x, &x, &mut s.zeros::<u32>(9)?), wrong, &["9 places", "10 values"]);
    refused(s.histogram(&x, &Bins::even(0, 0.0..=1.0)).map(drop), unusable, &["0 bins"]);
    refused(s.histogram(&x, &Bins::even(3, 1.0..=1.0)).map(drop), unusable, &["from 1 to 1"]);
    refused(s.histogram(&x, &Bins::even(3, f32::NAN..=1.0)).map(drop), unusable, &["NaN"]);
    refused(s.histogram(&x, &Bins::even(3, 0.0..=f32::INFINITY)).map(drop), unusable, &["inf"]);
    refused(s.histogram(&x, &Bins::edges(&s.zeros::<f32>(1)?)).map(drop), unusable, &["0 bins"]);
    let weights = s.zeros::<f32>(9)?;
    refused(s.histogram_weighted(&x, &weights, &Bins::even(2, 0.0..=1.0)).map(drop), wrong, &["10", "9"]);
    refused(s.reverse(&x, &mut short), wrong, &["10", "9"]);
    refused(s.rotate_left(&x, 1, &mut short), wrong, &["10", "9"]);
    refused(s.transpose(&x, 2, 3, &mut s.zeros::<f32>(10)?), wrong, &["2×3", "10"]);
    refused(s.transpose(&x, 2, 5, &mut short), wrong, &["10", "9"]);
    refused(s.scatter(&x, &s.zeros::<u32>(9)?, &mut short), wrong, &["10", "9"]);
    refused(s.choose(&s.zeros::<u8>(10)?, &x, &weights, &mut s.zeros(10)?), wrong, &["10", "9"]);
    refused(s.clip(&x, 1.0..=0.0, &mut s.zeros(10)?), unusable, &["empty range"]);
    refused(s.adjacent_difference(&x, &mut short), wrong, &["10", "9"]);
    refused(s.inclusive_scan_segments(&x, &s.zeros::<u32>(2)?, &mut short), wrong, &["10", "9"]);
    Ok(())
}
