//! All algorithms compute the same as plain Rust for random input of the kinds that they tend to get wrong.
//!
//! proptest chooses length, offset, pattern and segments, and shrinks what fails to the smallest case.

use std::cmp::Ordering;

use conformance::{noise, tests};
use gpustream::half::f16;
use gpustream::{Buffer, Device, Plain, Result, Stream, View};
use gpustream_kernels::by_key::{RunExtreme, RunSum};
use gpustream_kernels::histogram::Binned;
use gpustream_kernels::prelude::*;
use gpustream_kernels::quantiles::Quantile;
use gpustream_kernels::scan::Cumulative;
use gpustream_kernels::search::Searchable;
use gpustream_kernels::select::Selectable;
use gpustream_kernels::top_k::Rankable;
use gpustream_kernels::transform::Clip;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};

tests! {
    Warps: random_sorts, random_segments, random_scans, random_selections, random_runs_and_groups, random_top_k,
        random_searches_and_quantiles, random_histograms, random_transforms;
}

/// How the keys lie.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Equal,
    Random,
    Sorted,
    Reversed,
    /// NaN of every payload and both signs, and infinities.
    Nan,
    /// Zeros with both signs.
    Zeros,
    /// Keys that differ in one bit alone.
    OneBit(u32),
    /// Runs of equal keys.
    Runs(usize),
}

#[derive(Clone, Debug)]
struct Case {
    pattern: Pattern,
    n: usize,
    /// Where the view begins in its buffer.
    at: usize,
    seed: usize,
    order: Order,
    /// Parts of the length at which segments begin: some are empty.
    cuts: Vec<usize>,
}

fn cases(longest: usize) -> impl Strategy<Value = Case> {
    let pattern = prop_oneof![
        Just(Pattern::Equal),
        Just(Pattern::Random),
        Just(Pattern::Sorted),
        Just(Pattern::Reversed),
        Just(Pattern::Nan),
        Just(Pattern::Zeros),
        (0..64u32).prop_map(Pattern::OneBit),
        (1..600usize).prop_map(Pattern::Runs),
    ];
    let n = prop_oneof![0..70usize, 0..longest];
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending)];
    // None, one giant segment, or many.
    let cuts = prop_oneof![Just(vec![]), Just(vec![0, 1000]), vec(0..=1000usize, 0..40)];
    (pattern, n, 0..=32usize, 0..1000usize, order, cuts).prop_map(
        |(pattern, n, at, seed, order, mut cuts)| {
            cuts.sort_unstable();
            Case { pattern, n, at, seed, order, cuts }
        },
    )
}

/// A type of keys in plain Rust.
trait Plainly:
    Selectable
    + Searchable
    + Rankable
    + Quantile
    + Binned
    + Cumulative
    + Clip
    + Copy
    + std::fmt::Debug
    + RunSum<u32>
    + RunExtreme<u32>
{
    fn compare(&self, other: &Self) -> Ordering;
    fn is_nan(&self) -> bool {
        false
    }
    /// Returns the number, as an `f64`.
    fn number(&self) -> f64;
}

macro_rules! plainly {
    ($($type:ty: $compare:expr, $nan:expr, $number:expr;)*) => {$(
        impl Plainly for $type {
            fn compare(&self, other: &Self) -> Ordering {
                $compare(self, other)
            }
            fn is_nan(&self) -> bool {
                $nan(*self)
            }
            fn number(&self) -> f64 {
                $number(*self)
            }
        }
    )*};
}
plainly! {
    u8: u8::cmp, |_| false, f64::from;
    i16: i16::cmp, |_| false, f64::from;
    u64: u64::cmp, |_| false, |x| x as f64;
    f16: f16::total_cmp, f16::is_nan, f16::to_f64;
    f32: f32::total_cmp, f32::is_nan, f64::from;
}

impl Case {
    fn bits(&self, seed: usize) -> impl Iterator<Item = u64> {
        let (pattern, seed) = (self.pattern, self.seed + seed);
        (0..self.at + self.n).map(move |i| {
            let random = noise(i + seed * 1_000_003);
            match pattern {
                Pattern::Equal => noise(seed),
                Pattern::Random | Pattern::Sorted | Pattern::Reversed => random,
                Pattern::Nan => random | 0x7ff0 << 48,
                Pattern::Zeros => random & 1 << 63,
                Pattern::OneBit(bit) => random & 1 << bit,
                Pattern::Runs(length) => noise(seed + i / length),
            }
        })
    }

    /// Returns the keys of the buffer. The view begins at `self.at`.
    fn keys<K: Plainly>(&self) -> Vec<K> {
        let mut keys: Vec<K> = self
            .bits(0)
            .map(|bits| bytemuck::pod_read_unaligned(&bits.to_le_bytes()[8 - size_of::<K>()..]))
            .collect();
        match self.pattern {
            Pattern::Sorted => keys[self.at..].sort_by(K::compare),
            Pattern::Reversed => keys[self.at..].sort_by(|a, b| b.compare(a)),
            _ => {}
        }
        keys
    }

    /// Returns the segments' offsets.
    fn offsets(&self) -> Vec<u32> {
        self.cuts.iter().map(|cut| (cut * self.n / 1000) as u32).collect()
    }

    fn in_order(&self, ordering: Ordering) -> Ordering {
        if self.order == Order::Descending { ordering.reverse() } else { ordering }
    }
}

/// Returns the bytes, because a NaN does not equal itself.
fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn same<T: Plain>(got: &[T], want: &[T], what: &str) -> TestCaseResult {
    prop_assert!(bytes(got) == bytes(want), "{} is wrong: {} elements for {}", what, got.len(), want.len());
    Ok(())
}

/// Runs a property. Kernels of GPUs are slow on the CPU, so they get fewer cases.
fn run(device: &Device, property: impl Fn(&Stream, &Case) -> TestCaseResult) -> Result<()> {
    let s = device.stream()?;
    let slow = device.info().backend == gpustream::BackendName::CPU
        && (device.info().warp_size == 64 || std::env::var_os("GPUSTREAM_KERNELS_FORM").is_some());
    let (number, longest) = if slow { (32, 2500) } else { (150, 20_000) };
    let config = ProptestConfig { cases: number, failure_persistence: None, ..ProptestConfig::default() };
    let checked = TestRunner::new(config).run(&cases(longest), |case| property(&s, &case));
    checked.unwrap_or_else(|failure| panic!("{failure}"));
    Ok(())
}

/// Checks the property for one of the types, by the seed.
macro_rules! by_type {
    ($case:ident, $property:ident ($($argument:expr),*)) => {
        match $case.seed % 5 {
            0 => $property::<u8>($($argument),*),
            1 => $property::<i16>($($argument),*),
            2 => $property::<u64>($($argument),*),
            3 => $property::<f16>($($argument),*),
            _ => $property::<f32>($($argument),*),
        }
    };
}

fn random_sorts(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let mut want: Vec<u32> = (0..case.n as u32).collect();
        let key = |i: u32| keys[case.at + i as usize];
        want.sort_by(|a, b| case.in_order(key(*a).compare(&key(*b))));
        let sorted: Vec<K> = keys[..case.at].iter().copied().chain(want.iter().map(|i| key(*i))).collect();
        let how = SortOptions::default().order(case.order);
        let (mut x, mut numbers) = (s.upload(&keys)?, s.upload(&(0..case.n as u32).collect::<Vec<_>>())?);
        same(&s.download(&s.argsort_with(&x.slice(case.at..)?, &how)?)?, &want, "argsort")?;
        s.sort_by_key_with(&mut x.slice_mut(case.at..)?, &mut numbers, &how)?;
        same(&s.download(&x)?, &sorted, "sort_by_key")?;
        same(&s.download(&numbers)?, &want, "the values of sort_by_key")?;
        let mut x = s.upload(&keys)?;
        s.sort_with(&mut x.slice_mut(case.at..)?, &how)?;
        same(&s.download(&x)?, &sorted, "sort")
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_segments(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let (keys, offsets) = (case.keys::<K>(), case.offsets());
        let mut want = keys.clone();
        for segment in offsets.windows(2) {
            want[case.at + segment[0] as usize..case.at + segment[1] as usize]
                .sort_by(|a, b| case.in_order(a.compare(b)));
        }
        let doffsets = s.upload(&offsets)?;
        let mut x = s.upload(&keys)?;
        let how = SortOptions::default().order(case.order);
        s.sort_segments(&mut x.slice_mut(case.at..)?, &doffsets, &how)?;
        same(&s.download(&x)?, &want, "sort_segments")?;

        let values: Vec<i64> = case.bits(1).skip(case.at).map(|x| x as i64).collect();
        let (mut scan, mut sum, mut next) = (Vec::new(), 0i64, offsets.iter().peekable());
        for (i, value) in values.iter().enumerate() {
            while next.next_if(|offset| **offset as usize <= i).is_some() {
                sum = 0;
            }
            sum = sum.wrapping_add(*value);
            scan.push(sum);
        }
        let mut y = s.alloc(case.n)?;
        s.inclusive_scan_segments(&s.upload(&values)?, &doffsets, &mut y)?;
        same(&s.download(&y)?, &scan, "inclusive_scan_segments")?;
        if !offsets.is_empty() {
            let long = s.upload(&offsets.iter().map(|x| u64::from(*x)).collect::<Vec<_>>())?;
            let sums: Vec<i64> = offsets
                .windows(2)
                .map(|at| values[at[0] as usize..at[1] as usize].iter().fold(0i64, |a, b| a.wrapping_add(*b)))
                .collect();
            same(&s.download(&s.sum_segments(&s.upload(&values)?, &long)?)?, &sums, "sum_segments")?;
        }
        Ok(())
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_scans(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let dx = s.upload(&keys)?;
        let x = dx.slice(case.at..)?;
        let mut y = s.alloc(case.n)?;
        s.cumulative_max(&x, &mut y)?;
        let mut want = keys[case.at..].to_vec();
        for i in 1..case.n {
            if want[i].compare(&want[i - 1]).is_lt() {
                want[i] = want[i - 1];
            }
        }
        same(&s.download(&y)?, &want, "cumulative_max")?;
        let values: Vec<u64> = case.bits(0).collect();
        let mut y = s.alloc(case.n)?;
        s.exclusive_scan(&s.upload(&values)?.slice(case.at..)?, &mut y)?;
        let want: Vec<u64> = values[case.at..]
            .iter()
            .scan(0u64, |sum, x| {
                let before = *sum;
                *sum = sum.wrapping_add(*x);
                Some(before)
            })
            .collect();
        same(&s.download(&y)?, &want, "exclusive_scan")
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_selections(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let (dx, flags): (_, Vec<u8>) =
            (s.upload(&keys)?, case.bits(1).map(|x| (x >> 40) as u8 & 1).collect());
        let (x, here) = (dx.slice(case.at..)?, &keys[case.at..]);
        let flagged = |wanted: u8| -> Vec<K> {
            here.iter().zip(&flags[case.at..]).filter(|(_, flag)| **flag == wanted).map(|(x, _)| *x).collect()
        };
        let (kept, rest) = s.partition(&x, &s.upload(&flags)?.slice(case.at..)?)?;
        same(&kept.download(s)?, &flagged(1), "partition")?;
        same(&rest.download(s)?, &flagged(0), "the rest of partition")?;
        let mut want = here.to_vec();
        want.dedup_by(|a, b| bytes(std::slice::from_ref(a)) == bytes(std::slice::from_ref(b)));
        same(&s.unique(&x)?.download(s)?, &want, "unique")?;
        let Some(first) = here.first() else { return Ok(()) };
        let want: Vec<K> = here.iter().copied().filter(|x| x.compare(first).is_ge()).collect();
        same(&s.select_range(&x, *first..)?.download(s)?, &want, "select_range")
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_runs_and_groups(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let values: Vec<u32> = case.bits(1).map(|x| (x >> 20) as u32).collect();
        let (dk, dv) = (s.upload(&keys)?, s.upload(&values)?);
        let (k, v) = (dk.slice(case.at..)?, dv.slice(case.at..)?);
        let mut pairs: Vec<(K, u32)> =
            keys[case.at..].iter().copied().zip(values[case.at..].iter().copied()).collect();
        let equal = |a: &(K, u32), b: &(K, u32)| a.0.compare(&b.0).is_eq();
        let sums = |pairs: &[(K, u32)]| -> (Vec<K>, Vec<u32>) {
            pairs
                .chunk_by(equal)
                .map(|run| (run[0].0, run.iter().fold(0u32, |sum, pair| sum.wrapping_add(pair.1))))
                .unzip()
        };
        let want = sums(&pairs);
        let (runs, totals) = s.sum_by_key(&k, &v)?;
        same(&runs.download(s)?, &want.0, "the keys of sum_by_key")?;
        same(&totals.download(s)?, &want.1, "sum_by_key")?;
        let lengths: Vec<u32> = pairs.chunk_by(equal).map(|run| run.len() as u32).collect();
        same(&s.run_lengths(&k)?.1.download(s)?, &lengths, "run_lengths")?;
        let mut largest = Vec::new();
        for run in pairs.chunk_by(equal) {
            largest.extend(run.iter().map(|pair| pair.1).max());
        }
        same(&s.max_by_key(&k, &v)?.1.download(s)?, &largest, "max_by_key")?;
        pairs.sort_by(|a, b| a.0.compare(&b.0));
        let want = sums(&pairs);
        let (runs, totals) = s.group_by(&k)?.sum(s, &v)?;
        same(&runs.download(s)?, &want.0, "the keys of group_by")?;
        same(&totals.download(s)?, &want.1, "group_by")
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_top_k(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let here = &keys[case.at..];
        let mut order: Vec<u32> = (0..case.n as u32).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (here[a as usize], here[b as usize]);
            let both_nan = a.is_nan() && b.is_nan();
            let by_value = if both_nan { Ordering::Equal } else { case.in_order(a.compare(&b)) };
            a.is_nan().cmp(&b.is_nan()).then(by_value)
        });
        let dx = s.upload(&keys)?;
        for k in [case.n.min(1), case.n.min(case.seed), case.n - case.n / 5] {
            let (values, indices) = s.top_k_with(&dx.slice(case.at..)?, k, case.order)?;
            let want: Vec<K> = order[..k].iter().map(|i| here[*i as usize]).collect();
            same(&s.download(&indices)?, &order[..k], "the indices of top_k")?;
            same(&s.download(&values)?, &want, "top_k")?;
        }
        Ok(())
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_searches_and_quantiles(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let mut sorted = keys[case.at..].to_vec();
        sorted.sort_by(K::compare);
        let wanted: Vec<K> = keys.iter().copied().step_by(3).collect();
        let (dx, dw) = (s.upload(&sorted)?, s.upload(&wanted)?);
        let want: Vec<u32> =
            wanted.iter().map(|v| sorted.partition_point(|k| k.compare(v).is_lt()) as u32).collect();
        same(&s.download(&s.lower_bound(&dx, &dw)?)?, &want, "lower_bound")?;
        let want: Vec<u32> =
            wanted.iter().map(|v| sorted.partition_point(|k| k.compare(v).is_le()) as u32).collect();
        same(&s.download(&s.upper_bound(&dx, &dw)?)?, &want, "upper_bound")?;

        // At these positions there is an element, or the middle of two.
        let last = case.n.saturating_sub(1);
        let places = [0, 2 * last, last, case.seed.min(2 * last)];
        let at: Vec<f64> = places.iter().map(|place| *place as f64 / 2.0 / last.max(1) as f64).collect();
        let got = s.download(&s.nearest_quantiles(&s.upload(&keys)?.slice(case.at..)?, &s.upload(&at)?)?)?;
        for (got, q) in got.into_iter().zip(at) {
            if sorted.is_empty() || sorted[0].is_nan() || sorted[last].is_nan() {
                prop_assert!(got.is_nan() || got.number() == 0.0);
                continue;
            }
            let place = q * last as f64;
            let want = sorted[place.round_ties_even() as usize];
            same(&[got], &[want], "nearest_quantiles")?;
        }
        Ok(())
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_histograms(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let (dx, here) = (s.upload(&keys)?, &keys[case.at..]);
        let x = dx.slice(case.at..)?;
        let bin_of = |x: &K, edges: &[f64]| {
            let (x, last) = (x.number(), edges.len() - 1);
            (x >= edges[0] && x <= edges[last])
                .then(|| edges.partition_point(|edge| *edge <= x).min(last).saturating_sub(1))
        };
        // The edges are some of the elements, so that many lie on them.
        let mut edges: Vec<K> =
            here.iter().step_by(1 + case.n / 20).copied().filter(|x| x.number().is_finite()).collect();
        // −0 and 0 are one edge.
        edges.sort_by(|a, b| (a.number() + 0.0).total_cmp(&(b.number() + 0.0)));
        if edges.len() < 2 {
            return Ok(());
        }
        let numbers: Vec<f64> = edges.iter().map(K::number).collect();
        let weights: Vec<f32> = case.bits(2).skip(case.at).map(|x| (x >> 32) as f32 % 8.0).collect();
        let bins = edges.len() - 1;
        let (mut counts, mut sums) = (vec![0u64; bins], vec![0.0f32; bins]);
        for (x, weight) in here.iter().zip(&weights) {
            if let Some(bin) = bin_of(x, &numbers) {
                counts[bin] += 1;
                sums[bin] += weight.floor();
            }
        }
        let weights: Vec<f32> = weights.iter().map(|x| x.floor()).collect();
        let (dedges, dweights) = (s.upload(&edges)?, s.upload(&weights)?);
        same(&s.download(&s.histogram(&x, &Bins::edges(&dedges))?)?, &counts, "histogram with edges")?;
        let got = s.histogram_weighted(&x, &dweights, &Bins::edges(&dedges))?;
        same(&s.download(&got)?, &sums, "histogram_weighted")?;

        let (low, high, bins) = (edges[0], edges[bins], 1 + case.seed);
        let step = (high.number() - low.number()) / bins as f64;
        // The difference of two 64-bit integers may be lost in `f64`.
        if step <= 0.0 {
            return Ok(());
        }
        let numbers: Vec<f64> =
            (0..bins).map(|i| i as f64 * step + low.number()).chain([high.number()]).collect();
        let mut counts = vec![0u64; bins];
        here.iter().filter_map(|x| bin_of(x, &numbers)).for_each(|bin| counts[bin] += 1);
        let exact = size_of::<K>() < 8;
        let got = s.download(&s.histogram(&x, &Bins::even(bins, low..=high))?)?;
        if exact {
            same(&got, &counts, "histogram with even bins")?;
        }
        prop_assert_eq!(got.len(), bins);
        Ok(())
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}

fn random_transforms(device: &Device) -> Result<()> {
    fn check<K: Plainly>(s: &Stream, case: &Case) -> TestCaseResult {
        let keys = case.keys::<K>();
        let (dx, here) = (s.upload(&keys)?, &keys[case.at..]);
        let x: View<'_, K> = dx.slice(case.at..)?;
        // The result lies at another offset.
        let mut room: Buffer<K> = s.zeros(case.n + 32)?;
        let at = 32 - case.at;
        let mut want = here.to_vec();
        want.reverse();
        s.reverse(&x, &mut room.slice_mut(at..at + case.n)?)?;
        same(&s.download(&room.slice(at..at + case.n)?)?, &want, "reverse")?;
        let by = case.seed % (case.n + 1);
        want.copy_from_slice(here);
        want.rotate_left(by.checked_rem(case.n).unwrap_or(0));
        s.rotate_left(&x, by, &mut room.slice_mut(at..at + case.n)?)?;
        same(&s.download(&room.slice(at..at + case.n)?)?, &want, "rotate_left")?;
        // A scatter to where the keys go, and a gather back.
        let order = s.argsort(&x)?;
        let mut sorted = s.zeros(case.n)?;
        s.gather(&x, &order, &mut sorted)?;
        s.scatter(&sorted, &order, &mut room.slice_mut(at..at + case.n)?)?;
        same(&s.download(&room.slice(at..at + case.n)?)?, here, "scatter")?;
        let columns = 1 + case.seed % 90;
        let (rows, mut turned) = (case.n / columns, s.zeros(case.n)?);
        let whole = rows * columns;
        s.transpose(&x.slice(..whole)?, rows, columns, &mut turned)?;
        let want: Vec<K> = (0..whole).map(|i| here[i % rows * columns + i / rows]).collect();
        same(&s.download(&turned.slice(..whole)?)?, &want, "transpose")?;
        let Some((a, b)) = here.first().zip(here.last()) else { return Ok(()) };
        let (low, high) = if a.compare(b).is_le() { (*a, *b) } else { (*b, *a) };
        let want: Vec<K> = here
            .iter()
            .map(|&x| match (x.is_nan(), x.compare(&low), x.compare(&high)) {
                (false, Ordering::Less, _) => low,
                (false, _, Ordering::Greater) => high,
                _ => x,
            })
            .collect();
        s.clip(&x, low..=high, &mut turned)?;
        same(&s.download(&turned)?, &want, "clip")
    }
    run(device, |s, case| by_type!(case, check(s, case)))
}
