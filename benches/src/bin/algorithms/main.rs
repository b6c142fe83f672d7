//! Measures the algorithms of `gpustream-kernels` and NVIDIA's CUB in turns, in one process.
//!
//! If you build with the feature `cub`, nvcc compiles CUB's algorithms into a library that this program contains. Without it
//! the table has our times alone. A sample is the time between two events of the stream around one call, or around twenty
//! calls in a row if the array is small; `step` is the time of our calls in a replayed step.

mod cub;

use anyhow::Result;
use clap::Parser;
use cub::{Cub, call};
use gpustream::{Buffer, Device, Plain, Stream};
use gpustream_kernels::prelude::*;
use gpustream_timeline_view::text::Table;

/// Measures the algorithms of gpustream-kernels and NVIDIA's CUB
#[derive(Parser)]
struct Args {
    /// Device to measure: cpu, cuda:0, hip:0, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Measure only rows with this text in their name
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// The large arrays have two to this power elements
    #[arg(long, default_value_t = 28)]
    power: u32,
    /// Samples of each row
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// How many calls follow each other in a sample of a small array.
const IN_A_ROW: usize = 20;

fn main() -> Result<()> {
    let args = Args::parse();
    let device = match &args.device {
        Some(name) => Device::open(name)?,
        None => Device::best()?,
    };
    let (stream, cub) = (device.stream()?, Cub::load(&device)?);
    println!("{}{}", device.info(), if cub.is_some() { "" } else { "; without CUB" });
    let table = Table::new([
        "algorithm",
        "elements",
        "bytes moved",
        "us",
        "GB/s",
        "CUB, us",
        "ratio",
        "step, us",
        "ratio",
    ]);
    let mut bench = Bench { stream: &stream, cub: cub.as_ref(), args: &args, table };
    bench.all()?;
    println!("{}", bench.table);
    Ok(())
}

struct Bench<'a> {
    stream: &'a Stream,
    cub: Option<&'a Cub>,
    args: &'a Args,
    table: Table,
}

/// Numbers that look random and are always the same.
fn numbers(n: usize) -> impl Iterator<Item = u64> {
    (0..n as u64).map(|i| {
        let mut x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^ (x >> 32)
    })
}

fn address<T: Plain>(buffer: &Buffer<T>) -> usize {
    buffer.as_raw().0
}

impl Bench<'_> {
    fn all(&mut self) -> Result<()> {
        let (s, how) = (self.stream, &SortOptions::default());
        let n = 1usize << self.args.power;
        let (random, wide): (Vec<u32>, Vec<u64>) = numbers(n).map(|x| (x as u32, x)).unzip();
        let keys = s.upload(&random)?;
        let wide_keys = s.upload(&wide[..n / 2])?;
        let floats =
            s.upload(&random.iter().map(|x| (x % 2000) as f32 / 1000.0 - 1.0).collect::<Vec<_>>())?;
        let sorted = s.upload(&(0..n).map(|i| (i * 1000 / n) as u32).collect::<Vec<_>>())?;
        let flags = s.upload(&random.iter().map(|x| (x & 1) as u8).collect::<Vec<_>>())?;
        drop((random, wide));
        let (mut y, mut z, mut w) = (s.zeros::<u32>(n)?, s.zeros::<u32>(n)?, s.zeros::<u32>(n)?);
        let (to, to_2, to_3) = (address(&y), address(&z), address(&w));
        let count = s.zeros::<u64>(2)?;
        let at = address(&count);
        let powers = [10, 12, 14, 16, 18, 20, 22, 24, self.args.power];
        for power in powers.into_iter().filter(|power| *power <= self.args.power) {
            let n = 1usize << power;
            let (k, f) = (keys.slice(..n)?, floats.slice(..n)?);
            let (k_at, f_at) = (address(&keys), address(&floats));
            self.row("sum f32", n, 4 * n, |s| Ok(s.sum(&f).map(drop)?), call!("cub_sum_f32", f_at, to, n))?;
            self.row(
                "inclusive scan f32",
                n,
                8 * n,
                |s| Ok(s.inclusive_scan(&f, &mut y.cast_mut::<f32>()?.slice_mut(..n)?)?),
                call!("cub_scan_f32", f_at, to, n),
            )?;
            self.row(
                "select u32, half",
                n,
                6 * n,
                |s| Ok(s.select_range(&k, 1 << 31..).map(drop)?),
                call!("cub_select_u32", k_at, to, at, n),
            )?;
            self.row(
                "sum by key u32 f32",
                n,
                8 * n,
                |s| Ok(s.sum_by_key(&sorted.slice(..n)?, &f).map(drop)?),
                call!("cub_sum_by_key_f32", address(&sorted), to, f_at, to_2, at, n),
            )?;
            self.row(
                "sort u32",
                n,
                8 * n,
                |s| Ok(s.sort_into(&k, &mut y.slice_mut(..n)?, how)?),
                call!("cub_sort_u32", k_at, to, n),
            )?;
            self.row(
                "sort pairs u32 u32",
                n,
                16 * n,
                |s| Ok(s.sort_by_key_into(&k, &k, &mut y.slice_mut(..n)?, &mut z.slice_mut(..n)?, how)?),
                call!("cub_sort_pairs_u32", k_at, to, k_at, to_2, n),
            )?;
        }
        let half = n / 2;
        let (k_at, w_at, f_at) = (address(&keys), address(&wide_keys), address(&floats));
        self.row(
            "arg min f32",
            n,
            4 * n,
            |s| Ok(s.arg_min(&floats).map(drop)?),
            call!("cub_arg_min_f32", f_at, to, at, n),
        )?;
        self.row(
            "exclusive scan u32",
            n,
            8 * n,
            |s| Ok(s.exclusive_scan(&keys, &mut y)?),
            call!("cub_scan_u32", k_at, to, n),
        )?;
        let doubles = wide_keys.cast::<f64>()?;
        self.row(
            "inclusive scan f64",
            half,
            16 * half,
            |s| Ok(s.inclusive_scan(&doubles, &mut y.cast_mut::<f64>()?)?),
            call!("cub_scan_f64", w_at, to, half),
        )?;
        self.row(
            "select u32 by flags",
            n,
            7 * n,
            |s| Ok(s.select(&keys, &flags).map(drop)?),
            call!("cub_flagged_u32", k_at, address(&flags), to, at, n),
        )?;
        self.row(
            "unique u32, 1000 values",
            n,
            4 * n,
            |s| Ok(s.unique(&sorted).map(drop)?),
            call!("cub_unique_u32", address(&sorted), to, at, n),
        )?;
        self.row(
            "run lengths u32, 1000 values",
            n,
            4 * n,
            |s| Ok(s.run_lengths(&sorted).map(drop)?),
            call!("cub_run_lengths_u32", address(&sorted), to, to_2, at, n),
        )?;
        self.row(
            "sum by key u32 u32",
            n,
            8 * n,
            |s| Ok(s.sum_by_key(&sorted, &keys).map(drop)?),
            call!("cub_sum_by_key_u32", address(&sorted), to, k_at, to_2, at, n),
        )?;
        self.row(
            "scan by key u32 f32",
            n,
            12 * n,
            |s| Ok(s.inclusive_scan_by_key(&sorted, &floats, &mut y.cast_mut::<f32>()?)?),
            call!("cub_scan_by_key_f32", address(&sorted), f_at, to, n),
        )?;
        self.row(
            "sort f32",
            n,
            8 * n,
            |s| Ok(s.sort_into(&floats, &mut y.cast_mut::<f32>()?, how)?),
            call!("cub_sort_f32", f_at, to, n),
        )?;
        self.row(
            "sort u64",
            half,
            16 * half,
            |s| Ok(s.sort_into(&wide_keys, &mut y.cast_mut::<u64>()?, how)?),
            call!("cub_sort_u64", w_at, to, half),
        )?;
        self.row(
            "sort pairs u64 u64",
            half,
            32 * half,
            |s| {
                let (keys, values) = (&mut y.cast_mut::<u64>()?, &mut z.cast_mut::<u64>()?);
                Ok(s.sort_by_key_into(&wide_keys, &wide_keys, keys, values, how)?)
            },
            call!("cub_sort_pairs_u64", w_at, to, w_at, to_2, half),
        )?;
        let segments = n / 4 / 1024;
        let offsets = s.upload(&(0..=segments as u32).map(|i| i * 1024).collect::<Vec<_>>())?;
        let wide_offsets = s.upload(&(0..=segments as u64).map(|i| i * 1024).collect::<Vec<_>>())?;
        let (few, of) = (floats.slice(..segments * 1024)?, address(&offsets));
        let keys_of_segments = keys.slice(..segments * 1024)?;
        self.row(
            "sum of segments of 1024 f32",
            few.len(),
            4 * few.len(),
            |s| Ok(s.sum_segments(&few, &wide_offsets).map(drop)?),
            call!("cub_sum_segments_f32", f_at, to, of, segments),
        )?;
        self.row(
            "sort segments of 1024 u32 (ours with a copy)",
            few.len(),
            8 * few.len(),
            |s| {
                let mut keys = w.slice_mut(..segments * 1024)?;
                s.copy(&keys_of_segments, &mut keys)?;
                Ok(s.sort_segments(&mut keys, &offsets, how)?)
            },
            call!("cub_sort_segments_u32", k_at, to_3, few.len(), of, segments),
        )?;
        let numbers = s.upload(&(0..few.len()).map(|i| (i / 1024) as u32).collect::<Vec<_>>())?;
        self.row(
            "scan of segments of 1024 f32 (CUB: by key)",
            few.len(),
            8 * few.len(),
            |s| {
                let mut y = y.cast_mut::<f32>()?.slice_mut(..few.len())?;
                Ok(s.inclusive_scan_segments(&few, &wide_offsets, &mut y)?)
            },
            call!("cub_scan_by_key_f32", address(&numbers), f_at, to, few.len()),
        )?;
        drop(numbers);
        self.rows_of_tables(&keys, &floats, &sorted, &mut y, &mut z)?;
        self.chain(&keys, &flags)
    }

    /// Histograms, searches and transposes.
    fn rows_of_tables(
        &mut self,
        keys: &Buffer<u32>,
        floats: &Buffer<f32>,
        sorted: &Buffer<u32>,
        y: &mut Buffer<u32>,
        z: &mut Buffer<u32>,
    ) -> Result<()> {
        let (n, s, to) = (keys.len(), self.stream, address(z));
        let bytes = keys.cast::<u8>()?;
        self.row(
            "histogram f32, 256 bins",
            n,
            4 * n,
            |s| Ok(s.histogram(floats, &Bins::even(256, -1.0..=1.0)).map(drop)?),
            call!("cub_histogram_f32", address(floats), to, n),
        )?;
        self.row(
            "histogram u8, 256 bins",
            n,
            n,
            |s| Ok(s.bincount(&bytes.slice(..n)?, 256).map(drop)?),
            call!("cub_histogram_u8", address(keys), to, n),
        )?;
        self.row(
            "histogram u8, 256 bins, all equal",
            n / 256,
            n / 256,
            |s| Ok(s.bincount(&sorted.cast::<u8>()?.slice(..n / 256)?, 256).map(drop)?),
            call!("cub_histogram_u8", address(sorted), to, n / 256),
        )?;
        self.row(
            "sums of weights f32 in 256 bins (CUB: counts)",
            n,
            5 * n,
            |s| Ok(s.bincount_weighted(&bytes.slice(..n)?, floats, 256).map(drop)?),
            call!("cub_histogram_u8", address(keys), to, n),
        )?;
        self.row(
            "sums of weights f32, unordered (CUB: counts)",
            n,
            5 * n,
            |s| Ok(s.bincount_weighted_unordered(&bytes.slice(..n)?, floats, 256).map(drop)?),
            call!("cub_histogram_u8", address(keys), to, n),
        )?;
        let few = n / 16;
        s.sort_into(keys, y, &SortOptions::default())?;
        self.row(
            "lower bound u32, random values (CUB: Thrust)",
            few,
            8 * few,
            |s| Ok(s.lower_bound_into(&*y, &keys.slice(..few)?, &mut z.slice_mut(..few)?)?),
            call!("cub_lower_bound_u32", address(y), n, address(keys), few, to),
        )?;
        let side = 1 << (n.ilog2() / 2);
        self.row(
            "transpose u32 (CUB: a copy)",
            side * side,
            8 * side * side,
            |s| Ok(s.transpose(&keys.slice(..side * side)?, side, side, z)?),
            call!("cub_copy", address(keys), to, 4 * side * side),
        )?;
        self.row(
            "transpose of matrices of 64×64 u16 (CUB: a copy)",
            n,
            4 * n,
            |s| {
                let (x, mut y) = (keys.cast::<u16>()?.slice(..n)?, z.cast_mut::<u16>()?.slice_mut(..n)?);
                Ok(s.transpose(&x, 64, 64, &mut y)?)
            },
            call!("cub_copy", address(keys), to, 2 * n),
        )?;
        Ok(())
    }

    /// Filter, sort, group, and the largest groups. Our calls never wait for the host, so the column of the step is one graph.
    fn chain(&mut self, keys: &Buffer<u32>, flags: &Buffer<u8>) -> Result<()> {
        let (n, s) = (keys.len() / 4, self.stream);
        let cities = s.upload(&numbers(n).map(|x| (x >> 20) as u32 % 1_000_000).collect::<Vec<_>>())?;
        let prices = keys.slice(n..2 * n)?;
        let (at_flags, flags) = (address(flags), flags.slice(..n)?);
        let (work, count) = (s.zeros::<u32>(6 * n)?, s.zeros::<u32>(1)?);
        self.row(
            "filter, sort, group, top 64 (CUB: with the host)",
            n,
            9 * n,
            |s| {
                let (mut k, mut v) = (s.select(&cities, &flags)?, s.select(&prices, &flags)?);
                s.sort_by_key(&mut k, &mut v)?;
                let (groups, sums) = s.sum_by_key(&k, &v)?;
                let (_, at) = s.top_k_counted(&sums, 64, Order::Descending)?;
                Ok(s.gather(&groups, &at, &mut s.alloc::<u32>(64)?)?)
            },
            call!(
                "cub_chain",
                address(&cities),
                address(keys) + 4 * n,
                at_flags,
                address(&work),
                address(&count),
                n
            ),
        )
    }

    /// Measures one row: our call and CUB's in turns, and ours in a replayed step.
    fn row(
        &mut self,
        name: &str,
        n: usize,
        bytes: usize,
        mut ours: impl FnMut(&Stream) -> Result<()>,
        theirs: cub::Call,
    ) -> Result<()> {
        if self.args.filter.as_ref().is_some_and(|text| !name.contains(text.as_str())) {
            return Ok(());
        }
        eprintln!("measuring {name}, {n}");
        let calls = if n < 1 << 25 { IN_A_ROW } else { 1 };
        let mut theirs = self.cub.map(|cub| cub.prepare(self.stream, theirs)).transpose()?;
        let (mut our_times, mut their_times, mut step_times) = (Vec::new(), Vec::new(), Vec::new());
        let mut replay = self.stream.device().replay();
        for round in 0..self.args.rounds + 2 {
            let our = self.time(calls, |s| (0..calls).try_for_each(|_| ours(s)))?;
            let their = match &mut theirs {
                Some(theirs) => Some(self.time(calls, |s| (0..calls).try_for_each(|_| theirs.run(s)))?),
                None => None,
            };
            let step = self.time(calls, |s| {
                let mut failed = None;
                replay.run(s, |s| {
                    failed = (0..calls).try_for_each(|_| ours(s)).err();
                    Ok(())
                })?;
                failed.map_or(Ok(()), Err)
            })?;
            // The first two rounds load kernels, fill pools and record the step.
            if round >= 2 {
                our_times.push(our);
                their_times.extend(their);
                step_times.push(step);
            }
        }
        let (our, step) = (median(our_times), median(step_times));
        let their = (!their_times.is_empty()).then(|| median(their_times));
        let ratio = |time: f64| their.map_or_else(String::new, |their| format!("{:.2}", their / time));
        self.table.row([
            name.to_owned(),
            n.to_string(),
            bytes.to_string(),
            format!("{our:.1}"),
            format!("{:.0}", bytes as f64 / our / 1e3),
            their.map_or_else(String::new, |their| format!("{their:.1}")),
            ratio(our),
            format!("{step:.1}"),
            ratio(step),
        ]);
        Ok(())
    }

    /// Returns how many microseconds one of `calls` calls takes on the device.
    fn time(&self, calls: usize, f: impl FnOnce(&Stream) -> Result<()>) -> Result<f64> {
        let begin = self.stream.record_timed()?;
        f(self.stream)?;
        let end = self.stream.record_timed()?;
        end.as_event().synchronize()?;
        Ok(end.elapsed_since(&begin)?.as_secs_f64() * 1e6 / calls as f64)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
