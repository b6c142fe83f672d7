//! Scans, selections and reductions by key compute the same as plain Rust, for input that such algorithms tend to get wrong.

use std::fmt::Debug;

use conformance::{noise, refused};
use gpustream::half::f16;
use gpustream::{Buffer, Device, ErrorKind, Plain, Result, Stream};
use gpustream_kernels::by_key::{RunExtreme, RunSum};
use gpustream_kernels::prelude::*;

conformance::tests! {
    Warps: scans_of_all_types, cumulative_extremes_keep_the_total_order, selections_of_all_types, ranges_select_by_total_order,
        runs_have_heads_and_lengths, runs_are_summed, extremes_of_runs, counts_stay_on_the_device,
        views_at_any_offset, float_scans_repeat_their_bits, chains_are_recorded;
    Plain: wrong_lengths_are_refused;
}

/// Nothing, one, parts of a pack and a warp, and the neighbours of tiles of all element sizes, up to several groups of tiles.
const LENGTHS: [usize; 16] =
    [0, 1, 2, 31, 33, 255, 257, 1000, 2047, 2049, 4096, 4097, 6143, 6145, 20_000, 50_021];

/// Returns numbers that look random and are always the same.
fn numbers(n: usize, seed: u64) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| noise(i + seed as usize * 1_000_003))
}

/// Keys in patterns: all equal, all different, short and long runs, a single run between short ones.
fn patterns(n: usize) -> [Vec<u64>; 5] {
    let short = numbers(n, 3).map(|x| x % 2).collect();
    let long = (0..n as u64).map(|i| i / 700).collect();
    let mixed = (0..n as u64).map(|i| if i > 40 && (i as usize) + 40 < n { 7 } else { i % 3 }).collect();
    [vec![5; n], (0..n as u64).collect(), short, long, mixed]
}

fn scans_of_all_types(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let x: Vec<u64> = numbers(n, 1).collect();
        let narrow: Vec<i32> = x.iter().map(|x| *x as i32).collect();
        let small: Vec<f64> = x.iter().map(|x| (x % 17) as f64 - 8.0).collect();
        let half: Vec<f16> = x.iter().map(|x| f16::from_f32((x % 3) as f32 - 1.0)).collect();
        let signs: Vec<f64> = x.iter().map(|x| if x % 3 == 0 { -1.0 } else { 1.0 }).collect();
        scan_both(&s, &x, 0, u64::wrapping_add)?;
        scan_both(&s, &narrow, 0, i32::wrapping_add)?;
        scan_both(&s, &small, 0.0, |a, b| a + b)?;
        // These sums are exact as long as they are small.
        scan_both(&s, &half[..n.min(2000)], f16::ZERO, |a, b| a + b)?;
        let mut y = s.alloc(n)?;
        s.cumulative_product(&s.upload(&signs)?, &mut y)?;
        assert_eq!(s.download(&y)?, running(&signs, 1.0, |a, b| a * b).1, "product of {n}");
        s.cumulative_product(&s.upload(&x)?, &mut y.cast_mut::<u64>()?)?;
        assert_eq!(s.download(&y.cast::<u64>()?)?, running(&x, 1, u64::wrapping_mul).1, "product of {n}");
    }
    Ok(())
}

/// Returns the exclusive and the inclusive scan.
fn running<T: Copy>(x: &[T], first: T, op: impl Fn(T, T) -> T) -> (Vec<T>, Vec<T>) {
    let inclusive: Vec<T> = x
        .iter()
        .scan(first, |sum, x| {
            *sum = op(*sum, *x);
            Some(*sum)
        })
        .collect();
    let exclusive = std::iter::once(first).chain(inclusive.iter().copied()).take(x.len()).collect();
    (exclusive, inclusive)
}

fn scan_both<T: gpustream_kernels::scan::Summable + PartialEq + Debug>(
    s: &Stream,
    x: &[T],
    zero: T,
    add: impl Fn(T, T) -> T,
) -> Result<()> {
    let (exclusive, inclusive) = running(x, zero, add);
    let what = format!("{} of {}", std::any::type_name::<T>(), x.len());
    let dx = s.upload(x)?;
    let mut y = s.alloc(x.len())?;
    s.inclusive_scan(&dx, &mut y)?;
    assert_eq!(s.download(&y)?, inclusive, "inclusive, {what}");
    s.exclusive_scan(&dx, &mut y)?;
    assert_eq!(s.download(&y)?, exclusive, "exclusive, {what}");
    let mut in_place = s.duplicate(&dx)?;
    s.inclusive_scan_in_place(&mut in_place)?;
    assert_eq!(s.download(&in_place)?, inclusive, "inclusive in place, {what}");
    let mut in_place = s.duplicate(&dx)?;
    s.exclusive_scan_in_place(&mut in_place)?;
    assert_eq!(s.download(&in_place)?, exclusive, "exclusive in place, {what}");
    Ok(())
}

fn cumulative_extremes_keep_the_total_order(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        let special =
            [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, -1.0];
        let floats: Vec<f32> = numbers(n, 5).map(|x| special[x as usize % special.len()]).collect();
        let bytes: Vec<i8> = numbers(n, 6).map(|x| x as i8).collect();
        let wide: Vec<u64> = numbers(n, 7).collect();
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let mut y = s.alloc::<f32>(n)?;
        s.cumulative_max(&s.upload(&floats)?, &mut y)?;
        let larger = |a: f32, b: f32| if a.total_cmp(&b).is_lt() { b } else { a };
        assert_eq!(
            bits(s.download(&y)?),
            bits(running(&floats, -f32::from_bits(0x7FFF_FFFF), larger).1),
            "{n}"
        );
        s.cumulative_min(&s.upload(&floats)?, &mut y)?;
        let smaller = |a: f32, b: f32| if b.total_cmp(&a).is_lt() { b } else { a };
        assert_eq!(
            bits(s.download(&y)?),
            bits(running(&floats, f32::from_bits(0x7FFF_FFFF), smaller).1),
            "{n}"
        );
        let mut y = s.alloc::<i8>(n)?;
        s.cumulative_min(&s.upload(&bytes)?, &mut y)?;
        assert_eq!(s.download(&y)?, running(&bytes, i8::MAX, i8::min).1, "{n}");
        let mut y = s.alloc::<u64>(n)?;
        s.cumulative_max(&s.upload(&wide)?, &mut y)?;
        assert_eq!(s.download(&y)?, running(&wide, 0, u64::max).1, "{n}");
    }
    Ok(())
}

fn selections_of_all_types(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for of_hundred in [0, 1, 50, 100] {
            let flags: Vec<u8> = numbers(n, of_hundred)
                .map(|x| if x % 100 < of_hundred { 1 + (x >> 60) as u8 } else { 0 })
                .collect();
            let flags = (s.upload(&flags)?, flags);
            select_of(&s, &flags, &numbers(n, 1).collect::<Vec<u64>>())?;
            select_of(&s, &flags, &numbers(n, 2).map(|x| [x as f32, 1.0]).collect::<Vec<_>>())?;
            select_of(&s, &flags, &numbers(n, 3).map(|x| x as u8).collect::<Vec<_>>())?;
            select_of(&s, &flags, &numbers(n, 4).map(|x| x as i16).collect::<Vec<_>>())?;
            let indices = s.select_indices(&flags.0)?.download(&s)?;
            let want = (0..n as u32).filter(|i| flags.1[*i as usize] != 0);
            assert_eq!(indices, want.collect::<Vec<_>>(), "{of_hundred} of 100, {n}");
        }
    }
    Ok(())
}

fn select_of<T: Plain + PartialEq + Debug>(s: &Stream, flags: &(Buffer<u8>, Vec<u8>), x: &[T]) -> Result<()> {
    let dx = s.upload(x)?;
    let of = |wanted: bool| -> Vec<T> {
        x.iter().zip(&flags.1).filter(|(_, flag)| (**flag != 0) == wanted).map(|(x, _)| *x).collect()
    };
    assert_eq!(s.select(&dx, &flags.0)?.download(s)?, of(true), "{}", x.len());
    let (kept, rest) = s.partition(&dx, &flags.0)?;
    assert_eq!((kept.download(s)?, rest.download(s)?), (of(true), of(false)), "{}", x.len());
    Ok(())
}

fn ranges_select_by_total_order(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = [-f32::NAN, f32::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f32::INFINITY, f32::NAN];
    let dx = s.upload(&x)?;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let range = |kept: Counted<f32>| -> Result<Vec<u32>> { Ok(bits(&kept.download(&s)?)) };
    assert_eq!(range(s.select_range(&dx, ..)?)?, bits(&x));
    assert_eq!(range(s.select_range(&dx, 0.0..)?)?, bits(&x[4..]));
    assert_eq!(range(s.select_range(&dx, 0.0..=f32::MAX)?)?, bits(&x[4..6]));
    assert_eq!(range(s.select_range(&dx, ..0.0)?)?, bits(&x[..4]));
    assert_eq!(range(s.select_range(&dx, -1.0..1.0)?)?, bits(&x[2..5]));
    assert_eq!(range(s.select_range(&dx, 1.0..-1.0)?)?, []);
    let ends = [u8::MIN, 1, 128, u8::MAX];
    let dx = s.upload(&ends)?;
    assert_eq!(s.select_range(&dx, ..u8::MIN)?.download(&s)?, []);
    assert_eq!(
        s.select_range(&dx, (std::ops::Bound::Excluded(u8::MAX), std::ops::Bound::Unbounded))?
            .download(&s)?,
        []
    );
    assert_eq!(s.select_range(&dx, 1..=u8::MAX)?.download(&s)?, ends[1..]);
    let signed = [i64::MIN, -5, 0, i64::MAX];
    assert_eq!(s.select_range(&s.upload(&signed)?, -5..1)?.download(&s)?, [-5, 0]);
    for n in LENGTHS {
        let x: Vec<i16> = numbers(n, 1).map(|x| x as i16).collect();
        let want: Vec<i16> = x.iter().copied().filter(|x| (-100..20_000).contains(x)).collect();
        assert_eq!(s.select_range(&s.upload(&x)?, -100..20_000)?.download(&s)?, want, "{n}");
    }
    Ok(())
}

/// Returns the first index of each run, and the end.
fn heads(keys: &[u64]) -> Vec<usize> {
    let heads = (0..keys.len()).filter(|&i| i == 0 || keys[i] != keys[i - 1]);
    heads.chain([keys.len()]).collect()
}

fn runs_have_heads_and_lengths(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for keys in patterns(n) {
            let heads = heads(&keys);
            let values: Vec<u32> = heads[..heads.len() - 1].iter().map(|&i| keys[i] as u32).collect();
            let lengths: Vec<u32> = heads.windows(2).map(|run| (run[1] - run[0]) as u32).collect();
            let dx = s.upload(&keys.iter().map(|x| *x as u32).collect::<Vec<_>>())?;
            assert_eq!(s.unique(&dx)?.download(&s)?, values, "{n}");
            let (found, counts) = s.run_lengths(&dx)?;
            assert_eq!((found.download(&s)?, counts.download(&s)?), (values, lengths), "{n}");
            let small: Vec<u8> = keys.iter().map(|x| *x as u8).collect();
            let mut want = small.clone();
            want.dedup();
            assert_eq!(s.unique(&s.upload(&small)?)?.download(&s)?, want, "{n}");
        }
    }
    Ok(())
}

fn runs_are_summed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for keys in patterns(n) {
            let narrow: Vec<u32> = keys.iter().map(|key| *key as u32).collect();
            let floats: Vec<f32> = numbers(n, 1).map(|x| (x % 9) as f32 - 4.0).collect();
            let whole: Vec<i64> = numbers(n, 2).map(|x| x as i64).collect();
            sum_of(&s, &keys, &narrow, &floats, 0.0, |a, b| a + b)?;
            sum_of(&s, &keys, &keys, &whole, 0, i64::wrapping_add)?;
            let floats: Vec<f64> = floats.into_iter().map(f64::from).collect();
            sum_of(&s, &keys, &narrow, &floats, 0.0, |a, b| a + b)?;
        }
    }
    Ok(())
}

fn sum_of<K: RunSum<T> + PartialEq + Debug, T: Number + PartialEq + Debug>(
    s: &Stream,
    runs: &[u64],
    keys: &[K],
    values: &[T],
    zero: T,
    add: impl Fn(T, T) -> T,
) -> Result<()> {
    let n = keys.len();
    let (dk, dv) = (s.upload(keys)?, s.upload(values)?);
    let (found, sums) = s.sum_by_key(&dk, &dv)?;
    let (mut inclusive, mut exclusive) = (s.alloc(n)?, s.alloc(n)?);
    s.inclusive_scan_by_key(&dk, &dv, &mut inclusive)?;
    s.exclusive_scan_by_key(&dk, &dv, &mut exclusive)?;
    let heads = heads(runs);
    let parts: Vec<_> = heads.windows(2).map(|run| running(&values[run[0]..run[1]], zero, &add)).collect();
    let want: Vec<K> = heads[..heads.len() - 1].iter().map(|&i| keys[i]).collect();
    assert_eq!(found.download(s)?, want, "{n}");
    let want: Vec<T> = parts.iter().filter_map(|(_, inclusive)| inclusive.last().copied()).collect();
    assert_eq!(sums.download(s)?, want, "{n}");
    let want: Vec<T> = parts.iter().flat_map(|(_, inclusive)| inclusive.iter().copied()).collect();
    assert_eq!(s.download(&inclusive)?, want, "{n}");
    let want: Vec<T> = parts.iter().flat_map(|(exclusive, _)| exclusive.iter().copied()).collect();
    assert_eq!(s.download(&exclusive)?, want, "{n}");
    Ok(())
}

fn extremes_of_runs(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for keys in patterns(n) {
            let floats: Vec<f32> = numbers(n, 1).map(|x| (x % 9) as f32 - 4.0).collect();
            extreme_of(&s, &keys, &floats, f32::total_cmp)?;
            extreme_of(&s, &keys, &numbers(n, 4).map(|x| x as i64).collect::<Vec<_>>(), i64::cmp)?;
        }
    }
    Ok(())
}

fn extreme_of<T: Key + PartialEq + Debug>(
    s: &Stream,
    keys: &[u64],
    values: &[T],
    compare: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Result<()>
where
    u64: RunExtreme<T>,
{
    let (dk, dv) = (s.upload(keys)?, s.upload(values)?);
    let heads = heads(keys);
    let runs = || heads.windows(2).map(|run| &values[run[0]..run[1]]);
    let smallest: Vec<T> = runs().filter_map(|run| run.iter().copied().min_by(&compare)).collect();
    let largest: Vec<T> = runs().filter_map(|run| run.iter().copied().max_by(&compare)).collect();
    assert_eq!(s.min_by_key(&dk, &dv)?.1.download(s)?, smallest, "{}", keys.len());
    assert_eq!(s.max_by_key(&dk, &dv)?.1.download(s)?, largest, "{}", keys.len());
    Ok(())
}

/// What one algorithm leaves is what the next one sees, and the host never learns how much that is.
fn counts_stay_on_the_device(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in LENGTHS {
        for most in [0, 100, 1000] {
            let x: Vec<u32> = (0..n as u32).map(|i| i % 1000 / 7).collect();
            let kept: Vec<u32> = x.iter().copied().filter(|x| *x * 7 < most).collect();
            let dx = s.select_range(&s.upload(&x)?, ..most.div_ceil(7))?;
            assert_eq!(dx.download(&s)?, kept, "{n}");
            let mut want = kept.clone();
            want.dedup();
            assert_eq!(s.unique(&dx)?.download(&s)?, want, "{n}");
            let ones = s.full(n, 1u64)?;
            let (runs, counts) = s.sum_by_key(&dx, &ones)?;
            let (same, lengths) = s.run_lengths(&dx)?;
            assert_eq!((runs.download(&s)?, same.download(&s)?), (want.clone(), want), "{n}");
            let lengths: Vec<u64> = lengths.download(&s)?.into_iter().map(u64::from).collect();
            assert_eq!(counts.download(&s)?, lengths, "{n}");
            let mut sums = s.full(n, 77u32)?;
            s.inclusive_scan(&dx, &mut sums)?;
            let sums = s.download(&sums)?;
            assert_eq!(sums[..kept.len()], running(&kept, 0, u32::wrapping_add).1, "{n}");
            assert!(sums[kept.len()..].iter().all(|sum| *sum == 77), "written beyond the count, {n}");
            let first = s.select_range(&dx.first(n / 2)?, ..)?;
            assert_eq!(first.download(&s)?, kept[..kept.len().min(n / 2)], "{n}");
        }
    }
    // A kernel of the user's that counts more than it has room for.
    let wrong = Counted::from_parts(s.full(10, 1u32)?, s.full(1, 11u64)?)?;
    refused(wrong.download(&s), ErrorKind::OutOfBounds, &["11", "10"]);
    assert_eq!(s.unique(&wrong)?.download(&s)?, [1], "functions stay inside the capacity");
    refused(
        Counted::from_parts(s.full(10, 1u32)?, s.full(2, 0u64)?).map(drop),
        ErrorKind::InvalidArgument,
        &["one element"],
    );
    Ok(())
}

fn views_at_any_offset(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 9000;
    let x: Vec<u32> = numbers(n + 40, 1).map(|x| x as u32 % 50).collect();
    let flags: Vec<u8> = x.iter().map(|x| u8::from(x % 3 == 0)).collect();
    let (dx, df) = (s.upload(&x)?, s.upload(&flags)?);
    for at in (0..33).step_by(if device.info().warp_size == 64 { 8 } else { 1 }) {
        let (here, flagged) = (dx.slice(at..at + n)?, df.slice(at / 2..at / 2 + n)?);
        let mut y = s.full(n + 40, 0u32)?;
        s.inclusive_scan(&here, &mut y.slice_mut(32 - at..32 - at + n)?)?;
        let y = s.download(&y)?;
        assert_eq!(y[32 - at..32 - at + n], running(&x[at..at + n], 0, u32::wrapping_add).1, "{at}");
        assert!(y[..32 - at].iter().chain(&y[32 - at + n..]).all(|y| *y == 0), "written outside, {at}");
        let want: Vec<u32> = (0..n).filter(|i| flags[at / 2 + i] != 0).map(|i| x[at + i]).collect();
        assert_eq!(s.select(&here, &flagged)?.download(&s)?, want, "{at}");
        let mut want = x[at..at + n].to_vec();
        want.dedup();
        assert_eq!(s.sum_by_key(&here, &here)?.0.download(&s)?, want, "{at}");
    }
    Ok(())
}

/// The order in which floats are added does not depend on when blocks run.
fn float_scans_repeat_their_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n =
        if device.info().warp_size == 64 || device.info().multiprocessors < 50 { 60_000 } else { 30_000_000 };
    let x: Vec<f32> = numbers(n, 1).map(|x| (x as f32 / u64::MAX as f32 - 0.3).powi(9)).collect();
    let keys = s.upload(&(0..n as u32).map(|i| i / 5000).collect::<Vec<_>>())?;
    let dx = s.upload(&x)?;
    let mut first = None;
    for _ in 0..4 {
        let mut y = s.alloc(n)?;
        s.inclusive_scan(&dx, &mut y)?;
        let sums = s.sum_by_key(&keys, &dx)?.1.download(&s)?;
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let found = (bits(s.download(&y)?), bits(sums));
        assert!(*first.get_or_insert_with(|| found.clone()) == found, "another sum in another run");
    }
    Ok(())
}

/// Algorithms follow each other in a graph and in a step, and no call waits.
fn chains_are_recorded(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 20_000;
    let (mut x, ones) = (s.zeros::<u32>(n)?, s.full(n, 1u32)?);
    let mut results = None;
    let graph = s.capture(|s| {
        let kept = s.select_range(&x, 3..90)?;
        results = Some(s.sum_by_key(&kept, &ones)?);
        Ok(())
    })?;
    let mut replay = device.replay();
    for seed in 0..4 {
        let values: Vec<u32> = numbers(n, seed).map(|x| x as u32 % 100).collect();
        let kept: Vec<u64> = values.iter().filter(|x| (3..90).contains(*x)).map(|x| u64::from(*x)).collect();
        let lengths: Vec<u32> = heads(&kept).windows(2).map(|run| (run[1] - run[0]) as u32).collect();
        s.upload_into(&values, &mut x)?;
        graph.launch(&s)?;
        let (_, sums) = results.as_ref().expect("the capture ran");
        assert_eq!(sums.download(&s)?, lengths);
        let mut in_step = None;
        replay.run(&s, |s| {
            let kept = s.select_range(&x, 3..90)?;
            in_step = Some(s.sum_by_key(&kept, &ones)?);
            Ok(())
        })?;
        assert_eq!(in_step.expect("the step ran").1.download(&s)?, lengths);
    }
    Ok(())
}

fn wrong_lengths_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, mut short) = (s.zeros::<f32>(10)?, s.zeros::<f32>(9)?);
    refused(s.inclusive_scan(&x, &mut short), ErrorKind::ArgumentMismatch, &["10", "9"]);
    refused(s.select(&x, &s.zeros::<u8>(9)?).map(drop), ErrorKind::ArgumentMismatch, &["10", "9"]);
    refused(s.sum_by_key(&x, &short).map(drop), ErrorKind::ArgumentMismatch, &["10", "9"]);
    refused(s.inclusive_scan_by_key(&x, &x, &mut short), ErrorKind::ArgumentMismatch, &["10", "9"]);
    Ok(())
}
