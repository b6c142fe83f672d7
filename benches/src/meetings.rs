//! Kernels whose threads meet, or share a loop, against the loop that you would write in Rust for one thread.

use std::fmt;

use anyhow::Result;
use gpustream::{Buffer, Device, Launch, Stream};

use crate::measure::{Sampler, microseconds};

mod kernels {
    gpustream::include_kernels!("meetings");
}
use kernels::Kernels;

/// A way for threads to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// A Jacobi step with tiles and eight shuffles a thread, for a square of this many rows.
    Jacobi(usize),
    /// The histogram of this many bytes, counted in shared memory.
    Histogram(usize),
    /// Adds this many scaled floats, by fewer threads; none waits.
    Strided(usize),
    /// One round of Floyd and Warshall's shortest paths between this many nodes; no thread waits.
    Paths(usize),
    /// The prefix sums of this many integers within blocks, by shuffles.
    Scan(usize),
    /// The product of two matrices of this many rows, by tiles.
    Product(usize),
}

impl Meeting {
    /// Returns the measured cases.
    pub(crate) fn all(quick: bool) -> [Self; 6] {
        if quick {
            return [
                Self::Jacobi(130),
                Self::Histogram(1 << 16),
                Self::Strided(1 << 16),
                Self::Paths(64),
                Self::Scan(1 << 16),
                Self::Product(64),
            ];
        }
        [
            Self::Jacobi(2050),
            Self::Histogram(1 << 24),
            Self::Strided(1 << 22),
            Self::Paths(1024),
            Self::Scan(1 << 22),
            Self::Product(512),
        ]
    }
}

impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jacobi(side) => write!(f, "Jacobi step with shuffles, {side} x {side} (loop: one thread)"),
            Self::Histogram(bytes) => write!(f, "histogram of {bytes} bytes (loop: one thread)"),
            Self::Strided(count) => {
                write!(f, "grid-stride loop over {count} floats (loop: one thread)")
            }
            Self::Paths(nodes) => write!(f, "Floyd-Warshall round, {nodes} nodes (loop: one thread)"),
            Self::Scan(count) => write!(f, "block scan with shuffles, {count} ints (loop: one thread)"),
            Self::Product(side) => write!(f, "tiled matrix product, {side} x {side} (loop: one thread)"),
        }
    }
}

/// Values that no compiler can foresee, because otherwise it could compute the result beforehand.
fn values(count: usize) -> impl Iterator<Item = u32> {
    (0..count as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 8)
}

fn floats(count: usize) -> Vec<f32> {
    values(count).map(|value| value as f32 / 16_777_216.0).collect()
}

fn ints(count: usize) -> Vec<i32> {
    values(count).map(|value| (value % 1000) as i32).collect()
}

/// The work of one case on a device.
struct Work {
    kernels: Kernels,
    stream: Stream,
}

/// One run of a case on a device.
type Run = Box<dyn FnMut(&Work) -> Result<()>>;

/// Returns the sampler of a case on a device: microseconds from the launch to the end.
pub(crate) fn on_device(device: &Device, meeting: Meeting) -> Result<Sampler> {
    let work = Work { kernels: Kernels::load(device)?, stream: device.stream()? };
    let Work { stream, .. } = &work;
    let mut run: Run = match meeting {
        Meeting::Jacobi(side) => {
            let (grid, mut next) = (stream.upload(&floats(side * side))?, stream.zeros::<f32>(side * side)?);
            let blocks = (side as u32 - 2).div_ceil(32);
            let launch = Launch::new([blocks, blocks, 1], [32, 8, 1]);
            Box::new(move |work| {
                Ok(work.kernels.jacobi(&work.stream, &launch, &grid, &mut next, side as i32, side as i32)?)
            })
        }
        Meeting::Histogram(bytes) => {
            let values: Vec<u8> = values(bytes).map(|value| value as u8).collect();
            let (bytes_of, mut bins) = (stream.upload(&values)?, stream.zeros::<u32>(256)?);
            let launch = Launch::new([64, 1, 1], [256, 1, 1]);
            Box::new(move |work| {
                Ok(work.kernels.count_bytes(&work.stream, &launch, &bytes_of, &mut bins, bytes)?)
            })
        }
        Meeting::Strided(count) => {
            let (x, mut y) = (stream.upload(&floats(count))?, stream.zeros::<f32>(count)?);
            let launch = Launch::new([64, 1, 1], [256, 1, 1]);
            Box::new(move |work| {
                Ok(work.kernels.add_scaled(&work.stream, &launch, 0.5, &x, &mut y, count)?)
            })
        }
        Meeting::Paths(nodes) => {
            let mut length = stream.upload(&ints(nodes * nodes))?;
            let mut via: Buffer<i32> = stream.zeros(nodes * nodes)?;
            let blocks = (nodes as u32).div_ceil(16);
            let (launch, mut k) = (Launch::new([blocks, blocks, 1], [16, 16, 1]), 0);
            Box::new(move |work| {
                k = (k + 1) % nodes as i32;
                Ok(work.kernels.shorten(&work.stream, &launch, &mut length, &mut via, nodes as i32, k)?)
            })
        }
        Meeting::Scan(count) => {
            let (x, mut y) = (stream.upload(&ints(count))?, stream.zeros::<i32>(count)?);
            let mut sums = stream.zeros::<i32>(count.div_ceil(256))?;
            let launch = Launch::new([count.div_ceil(256) as u32, 1, 1], [256, 1, 1]);
            Box::new(move |work| {
                Ok(work.kernels.scan_blocks(&work.stream, &launch, &x, &mut y, &mut sums, count as i32)?)
            })
        }
        Meeting::Product(side) => {
            let (a, b) = (stream.upload(&floats(side * side))?, stream.upload(&floats(side * side))?);
            let mut c = stream.zeros::<f32>(side * side)?;
            let blocks = side as u32 / 32;
            let launch = Launch::new([blocks, blocks, 1], [32, 32, 1]);
            Box::new(move |work| {
                Ok(work.kernels.multiply(&work.stream, &launch, &a, &b, &mut c, side as i32)?)
            })
        }
    };
    Ok(Box::new(move || {
        microseconds(|| {
            run(&work)?;
            Ok(work.stream.synchronize()?)
        })
    }))
}

/// Returns the sampler of a case as a loop on one thread.
pub(crate) fn on_host(meeting: Meeting) -> Sampler {
    let mut run: Box<dyn FnMut()> = match meeting {
        Meeting::Jacobi(side) => {
            let (grid, mut next) = (floats(side * side), vec![0.0f32; side * side]);
            Box::new(move || jacobi(&grid, &mut next, side))
        }
        Meeting::Histogram(bytes) => {
            let (bytes, mut bins) = (values(bytes).map(|value| value as u8).collect::<Vec<_>>(), [0u32; 256]);
            Box::new(move || {
                for &byte in &bytes {
                    bins[byte as usize] += 1;
                }
                std::hint::black_box(&bins);
            })
        }
        Meeting::Strided(count) => {
            let (x, mut y) = (floats(count), vec![0.0f32; count]);
            Box::new(move || {
                for (x, y) in x.iter().zip(&mut y) {
                    *y += 0.5 * x;
                }
                std::hint::black_box(&y);
            })
        }
        Meeting::Paths(nodes) => {
            let (mut length, mut via, mut k) = (ints(nodes * nodes), vec![0; nodes * nodes], 0);
            Box::new(move || {
                k = (k + 1) % nodes;
                shorten(&mut length, &mut via, nodes, k);
            })
        }
        Meeting::Scan(count) => {
            let (x, mut y, mut sums) = (ints(count), vec![0; count], vec![0; count.div_ceil(256)]);
            Box::new(move || {
                for ((x, y), total) in x.chunks(256).zip(y.chunks_mut(256)).zip(&mut sums) {
                    let mut sum = 0;
                    for (x, y) in x.iter().zip(y) {
                        sum += x;
                        *y = sum;
                    }
                    *total = sum;
                }
                std::hint::black_box((&y, &sums));
            })
        }
        Meeting::Product(side) => {
            let (a, b, mut c) = (floats(side * side), floats(side * side), vec![0.0f32; side * side]);
            Box::new(move || multiply(&a, &b, &mut c, side))
        }
    };
    Box::new(move || {
        microseconds(|| {
            run();
            Ok(())
        })
    })
}

fn jacobi(grid: &[f32], next: &mut [f32], side: usize) {
    let rows = grid.chunks(side);
    let triples = rows.clone().zip(rows.clone().skip(1)).zip(rows.skip(2));
    for (((above, row), below), next) in triples.zip(next.chunks_mut(side).skip(1)) {
        let points = above[1..].iter().zip(&below[1..]).zip(row.iter().zip(&row[2..]));
        for (((above, below), (left, right)), next) in points.zip(&mut next[1..side - 1]) {
            *next = 0.25 * (left + right + above + below);
        }
    }
    std::hint::black_box(next);
}

fn shorten(length: &mut [i32], via: &mut [i32], nodes: usize, k: usize) {
    let from_k = length[k * nodes..][..nodes].to_vec();
    for (row, via) in length.chunks_mut(nodes).zip(via.chunks_mut(nodes)) {
        let to_k = row[k];
        for ((direct, via), from_k) in row.iter_mut().zip(via).zip(&from_k) {
            if to_k + from_k < *direct {
                *direct = to_k + from_k;
                *via = k as i32;
            }
        }
    }
    std::hint::black_box((length, via));
}

/// Goes over the rows of `b`, so that the innermost loop is one over neighbours.
fn multiply(a: &[f32], b: &[f32], c: &mut [f32], side: usize) {
    for (a, c) in a.chunks(side).zip(c.chunks_mut(side)) {
        c.fill(0.0);
        for (a, b) in a.iter().zip(b.chunks(side)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c += a * b;
            }
        }
    }
    std::hint::black_box(c);
}
