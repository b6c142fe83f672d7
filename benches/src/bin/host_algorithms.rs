//! Measures the algorithms of `gpustream-kernels` on the CPU and what Rust programs use there, in turns.
//!
//! Sorts: the better of the crate `rdst` and rayon's `par_sort_unstable`. Others: a loop written by hand for as many threads.
//! A time is that of one call and the wait for it. Pairs are two arrays for us and an array of pairs for the others.

use std::hint::black_box;
use std::sync::LazyLock;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use gpustream::{Device, Stream};
use gpustream_kernels::prelude::*;
use gpustream_timeline_view::text::Table;
use rayon::slice::ParallelSliceMut as _;
use rdst::{RadixKey, RadixSort};

/// Measures the algorithms of gpustream-kernels on the CPU, and rdst, rayon and plain loops
#[derive(Parser)]
struct Args {
    /// The arrays have two to this power elements
    #[arg(long, default_value_t = 24)]
    power: u32,
    /// Samples of each row
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

/// A key, and a value that only moves with it.
#[derive(Clone, Copy)]
struct Pair(u32, #[expect(dead_code, reason = "sorts move it")] u32);

impl RadixKey for Pair {
    const LEVELS: usize = 4;

    fn get_level(&self, level: usize) -> u8 {
        self.0.to_le_bytes()[level]
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = Device::open("cpu")?;
    let (stream, n) = (device.stream()?, 1usize << args.power);
    println!("{}; {n} elements", device.info());
    let numbers: Vec<u32> = (0..n as u32).map(scramble).collect();
    let pairs: Vec<Pair> = numbers.iter().zip(0..).map(|(key, value)| Pair(*key, value)).collect();
    let sorted: Vec<u32> = (0..n).map(|i| (i * 1000 / n) as u32).collect();
    let (keys, groups) = (stream.upload(&numbers)?, stream.upload(&sorted)?);
    let (mut to, mut to_2) = (stream.zeros::<u32>(n)?, stream.zeros::<u32>(n)?);
    let how = &SortOptions::default();
    let table = Table::new(["algorithm", "ms", "other", "ms", "ratio"]);
    let mut rows = Rows { stream: &stream, rounds: args.rounds, table };
    rows.row(
        "sort u32",
        |s| Ok(s.sort_into(&keys, &mut to, how)?),
        &mut [
            ("rdst", &mut || timed_on(numbers.clone(), RadixSort::radix_sort_unstable)),
            ("rayon", &mut || timed_on(numbers.clone(), |keys| keys.par_sort_unstable())),
        ],
    )?;
    rows.row(
        "sort pairs u32 u32",
        |s| Ok(s.sort_by_key_into(&keys, &keys, &mut to, &mut to_2, how)?),
        &mut [
            ("rdst", &mut || timed_on(pairs.clone(), RadixSort::radix_sort_unstable)),
            ("rayon", &mut || timed_on(pairs.clone(), |pairs| pairs.par_sort_unstable_by_key(|pair| pair.0))),
        ],
    )?;
    let mut out = vec![0u32; n];
    rows.row(
        "inclusive scan u32",
        |s| Ok(s.inclusive_scan(&keys, &mut to)?),
        &mut [("a loop", &mut || timed(|| scan(&numbers, &mut out)))],
    )?;
    rows.row(
        "select u32, half",
        |s| Ok(s.select_range(&keys, 1 << 31..).map(drop)?),
        &mut [("a loop", &mut || timed(|| select(&numbers, 1 << 31, &mut out)))],
    )?;
    let mut sums = vec![0u32; n];
    rows.row(
        "sum by key u32 u32",
        |s| Ok(s.sum_by_key(&groups, &keys).map(drop)?),
        &mut [("a loop", &mut || timed(|| sum_by_key(&sorted, &numbers, &mut out, &mut sums)))],
    )?;
    println!("{}", rows.table);
    Ok(())
}

/// Returns a number that looks random.
fn scramble(i: u32) -> u32 {
    let x = (i ^ (i >> 16)).wrapping_mul(0x7FEB_352D);
    (x ^ (x >> 15)).wrapping_mul(0x846C_A68B)
}

/// The name of what we compare with, and a closure that returns its time in milliseconds.
type Peer<'a> = (&'a str, &'a mut dyn FnMut() -> f64);

struct Rows<'a> {
    stream: &'a Stream,
    rounds: usize,
    table: Table,
}

impl Rows<'_> {
    /// Measures one row, with a line for each of the others.
    fn row(
        &mut self,
        name: &str,
        mut ours: impl FnMut(&Stream) -> Result<()>,
        peers: &mut [Peer<'_>],
    ) -> Result<()> {
        let (mut our_times, mut times) = (Vec::new(), vec![Vec::new(); peers.len()]);
        // The first round loads kernels and touches the memory.
        for round in 0..=self.rounds {
            let begin = Instant::now();
            ours(self.stream)?;
            self.stream.synchronize()?;
            let our = begin.elapsed().as_secs_f64() * 1e3;
            let theirs: Vec<f64> = peers.iter_mut().map(|peer| peer.1()).collect();
            if round > 0 {
                our_times.push(our);
                times.iter_mut().zip(theirs).for_each(|(times, time)| times.push(time));
            }
        }
        let our = median(our_times);
        for (peer, times) in peers.iter().zip(times) {
            let their = median(times);
            self.table.row([
                name.to_owned(),
                format!("{our:.1}"),
                peer.0.to_owned(),
                format!("{their:.1}"),
                format!("{:.2}", their / our),
            ]);
        }
        Ok(())
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the milliseconds that a call takes.
fn timed<T>(f: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    black_box(f());
    begin.elapsed().as_secs_f64() * 1e3
}

/// Returns the milliseconds that a call takes on data of its own.
fn timed_on<T>(mut data: Vec<T>, f: impl FnOnce(&mut Vec<T>)) -> f64 {
    let time = timed(|| f(&mut data));
    black_box(data);
    time
}

/// Returns how many elements each thread has if there is one for each processor.
fn share(n: usize) -> usize {
    static THREADS: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    n.div_ceil(*THREADS).max(1)
}

/// Calls `f` on each share of `x` in a thread of its own, and returns the results.
fn each<T: Sync, R: Send>(x: &[T], f: impl Fn(&[T]) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = x.chunks(share(x.len())).map(|part| scope.spawn(|| f(part))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// The inclusive scan: each thread sums its share, then scans it.
fn scan(x: &[u32], y: &mut [u32]) {
    let sums = each(x, |part| part.iter().fold(0u32, |sum, x| sum.wrapping_add(*x)));
    thread::scope(|scope| {
        let mut before = 0u32;
        for ((x, y), sum) in x.chunks(share(x.len())).zip(y.chunks_mut(share(x.len()))).zip(sums) {
            let mut sum_here = before;
            before = before.wrapping_add(sum);
            scope.spawn(move || {
                for (x, y) in x.iter().zip(y) {
                    sum_here = sum_here.wrapping_add(*x);
                    *y = sum_here;
                }
            });
        }
    });
}

/// Keeps what is at least `low`: each thread counts, then writes.
fn select(x: &[u32], low: u32, y: &mut [u32]) -> usize {
    let counts = each(x, |part| part.iter().filter(|x| **x >= low).count());
    let total = counts.iter().sum();
    thread::scope(|scope| {
        let mut rest = y;
        for (x, count) in x.chunks(share(x.len())).zip(counts) {
            let (y, after) = rest.split_at_mut(count);
            rest = after;
            scope.spawn(move || {
                let mut at = 0;
                for x in x {
                    // Without a branch, since half of the elements are kept.
                    if let Some(y) = y.get_mut(at) {
                        *y = *x;
                    }
                    at += usize::from(*x >= low);
                }
            });
        }
    });
    total
}

/// Sums the values of each run of equal keys: each thread has the runs that begin in its share.
fn sum_by_key(keys: &[u32], values: &[u32], kept: &mut [u32], sums: &mut [u32]) -> usize {
    let n = keys.len();
    let begins = |at: usize| at == 0 || keys[at] != keys[at - 1];
    let shares: Vec<_> = (0..n).step_by(share(n)).map(|first| first..n.min(first + share(n))).collect();
    let counts: Vec<usize> = thread::scope(|scope| {
        let count = |share: std::ops::Range<usize>| move || share.filter(|at| begins(*at)).count();
        let threads: Vec<_> = shares.iter().map(|share| scope.spawn(count(share.clone()))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let total = counts.iter().sum();
    thread::scope(|scope| {
        let (mut kept, mut sums) = (kept, sums);
        for (share, count) in shares.into_iter().zip(counts) {
            let (own_kept, after_kept) = kept.split_at_mut(count);
            let (own_sums, after_sums) = sums.split_at_mut(count);
            (kept, sums) = (after_kept, after_sums);
            scope.spawn(move || {
                let Some(mut at) = share.clone().find(|at| begins(*at)) else { return };
                for (kept, sum) in own_kept.iter_mut().zip(own_sums) {
                    *kept = keys[at];
                    *sum = 0;
                    while at < n && keys[at] == *kept {
                        *sum = sum.wrapping_add(values[at]);
                        at += 1;
                    }
                }
            });
        }
    });
    total
}
