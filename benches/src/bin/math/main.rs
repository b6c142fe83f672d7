//! Measures `gpustream-math` against the bare calls of cuBLAS and cuFFT in turns, in one process. On the CPU device it measures
//! against the crates `gemm` and `rustfft`, called directly with as many threads. Rows of `multiply_matrices` measure the kernels of
//! `gpustream-kernels` in the same way. If they add a bias, the other call is `gemm` of `gpustream-math` with an epilogue.
//!
//! A sample of a large call is the time from the first of a few calls to the end of their work. A sample of a small call is the
//! host's time alone: the calls of a row are enqueued while the stream is idle, and the wait after them does not count.

mod cpu;
mod raw;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use gpustream::half::{bf16, f16};
use gpustream::{BackendName, Buffer, Device, Plain, Stream};
use gpustream_kernels::gemm::{self as kernels, Multiply, MultiplyMatrices as _};
use gpustream_math::Complex;
use gpustream_math::prelude::*;
use gpustream_timeline_view::text::Table;

use crate::raw::{Raw, RawFft};

/// Measures gpustream-math against the bare calls of the libraries that it uses
#[derive(Parser)]
struct Args {
    /// Device to measure: cpu, cuda:0, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Measure only rows with this text in their name
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Samples of each row
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = match &args.device {
        Some(name) => Device::open(name)?,
        None => Device::best()?,
    };
    println!("{}", device.info());
    let table = Table::new(["call", "bare, us", "gpustream, us", "ratio", "per second"]);
    let mut bench = Bench { device: &device, stream: device.stream()?, args: &args, table };
    if device.info().backend == BackendName::CPU {
        cpu::all(&mut bench)?;
    } else {
        bench.all()?;
    }
    println!("{}", bench.table);
    Ok(())
}

/// What a row measures.
#[derive(Clone, Copy)]
enum Time {
    /// The whole work of so many calls. A call does so many operations, of which the table shows the rate.
    Whole { calls: u32, operations: f64 },
    /// The host's part of so many calls.
    Host { calls: u32 },
}

struct Bench<'a> {
    device: &'a Device,
    stream: Stream,
    args: &'a Args,
    table: Table,
}

/// Returns numbers between -1 and 1 that look random. Constant ones would make a GPU faster than any real data does.
fn numbers(n: usize) -> impl Iterator<Item = f32> {
    (0..n as u64).map(|i| {
        let x = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

fn upload<T: Plain>(stream: &Stream, n: usize, of: impl Fn(f32) -> T) -> Result<Buffer<T>> {
    Ok(stream.upload(&numbers(n).map(of).collect::<Vec<_>>())?)
}

impl Bench<'_> {
    /// Measures two ways in turns, and adds a row with their medians.
    fn row(
        &mut self,
        name: &str,
        time: Time,
        mut bare: impl FnMut() -> Result<()>,
        mut ours: impl FnMut(&Stream) -> Result<()>,
    ) -> Result<()> {
        if self.args.filter.as_ref().is_some_and(|text| !name.contains(text.as_str())) {
            return Ok(());
        }
        eprintln!("measuring {name}");
        let (device, stream) = (self.device, &self.stream);
        let mut samples = [Vec::new(), Vec::new()];
        // Two rounds to warm up.
        for round in 0..self.args.rounds + 2 {
            let times = [sample(device, time, &mut bare)?, sample(device, time, &mut || ours(stream))?];
            if round >= 2 {
                samples.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
            }
        }
        let [bare, ours] = samples.map(|mut samples| {
            samples.sort();
            samples[samples.len() / 2].as_secs_f64()
        });
        let rate = match time {
            Time::Whole { operations, .. } => format!("{:.2} T", operations / ours / 1e12),
            Time::Host { .. } => format!("+{:.0} ns", (ours - bare) * 1e9),
        };
        let micros = |time: f64| format!("{:.3}", time * 1e6);
        self.table.row([name.to_owned(), micros(bare), micros(ours), format!("{:.3}", bare / ours), rate]);
        Ok(())
    }

    fn all(&mut self) -> Result<()> {
        let stream = &self.device.stream()?;
        let raw = Raw::open(self.device, stream)?;
        let n = 8192;
        let operations = |n: usize| 2.0 * (n as f64).powi(3);
        {
            let (a, b) = (upload(stream, n * n, |x| x)?, upload(stream, n * n, |x| x)?);
            let (mut c, mut d) = (stream.zeros::<f32>(n * n)?, stream.zeros::<f32>(n * n)?);
            for (name, compute) in [("gemm f32 8192", Compute::Full), ("gemm tf32 8192", Compute::Tf32)] {
                let mut bare = || raw.gemm(n, 1, (&a, &b, &mut c), compute);
                let time = Time::Whole { calls: 2, operations: operations(n) };
                self.row(name, time, &mut bare, |s| multiply(s, n, 1, &a, &b, &mut d, compute))?;
                let product = kernels::Product::<f32>::new(n, n, n);
                let product = if compute == Compute::Tf32 { product.allow_tf32() } else { product };
                self.row(&format!("multiply_matrices, {name}"), time, bare, |s| {
                    Ok(s.multiply_matrices(&product, &a, &b, &mut d)?)
                })?;
            }
        }
        self.products("f16", &raw, f16::from_f32)?;
        self.products("bf16", &raw, bf16::from_f32)?;
        {
            let n = 4096;
            let (a, b) = (upload(stream, n * n, f64::from)?, upload(stream, n * n, f64::from)?);
            let (mut c, mut d) = (stream.zeros::<f64>(n * n)?, stream.zeros::<f64>(n * n)?);
            let mut bare = || raw.gemm(n, 1, (&a, &b, &mut c), Compute::Full);
            let time = Time::Whole { calls: 3, operations: operations(n) };
            self.row("gemm f64 4096", time, &mut bare, |s| multiply(s, n, 1, &a, &b, &mut d, Compute::Full))?;
            let product = kernels::Product::new(n, n, n);
            self.row("multiply_matrices f64 4096", time, bare, |s| {
                Ok(s.multiply_matrices(&product, &a, &b, &mut d)?)
            })?;
        }
        {
            let (n, batch) = (512, 64);
            let len = batch * n * n;
            let (a, b) = (upload(stream, len, |x| x)?, upload(stream, len, |x| x)?);
            let (mut c, mut d) = (stream.zeros::<f32>(len)?, stream.zeros::<f32>(len)?);
            let bare = || raw.gemm(n, batch, (&a, &b, &mut c), Compute::Full);
            let time = Time::Whole { calls: 20, operations: batch as f64 * operations(n) };
            let ours = |s: &Stream| multiply(s, n, batch, &a, &b, &mut d, Compute::Full);
            self.row("gemm f32 64 x 512", time, bare, ours)?;
        }
        {
            let n = 64;
            let (a, b) = (upload(stream, n * n, |x| x)?, upload(stream, n * n, |x| x)?);
            let (mut c, mut d) = (stream.zeros::<f32>(n * n)?, stream.zeros::<f32>(n * n)?);
            let bare = || raw.gemm(n, 1, (&a, &b, &mut c), Compute::Full);
            let time = Time::Host { calls: 200 };
            self.row("gemm f32 64, host", time, bare, |s| multiply(s, n, 1, &a, &b, &mut d, Compute::Full))?;
        }
        {
            let n = 16384;
            let (a, x) = (upload(stream, n * n, |x| x)?, upload(stream, n, |x| x)?);
            let (mut y, mut z) = (stream.zeros::<f32>(n)?, stream.zeros::<f32>(n)?);
            let time = Time::Whole { calls: 20, operations: 2.0 * (n * n) as f64 };
            let bare = || raw.gemv(n, &a, &x, &mut y);
            self.row("gemv f32 16384", time, bare, |s| {
                Ok(s.gemv(1.0, MatrixView::new(&a, n, n)?, &x, 0.0, &mut z)?)
            })?;
        }
        for (name, shape, time) in [
            ("fft 2^24", FftShape::new_1d(1 << 24), Time::Whole { calls: 10, operations: 0.0 }),
            ("fft 512^3", FftShape::new_3d(512, 512, 512), Time::Whole { calls: 3, operations: 0.0 }),
            (
                "fft 1024 x 2^16",
                FftShape::new_1d(1 << 16).batch(1024),
                Time::Whole { calls: 3, operations: 0.0 },
            ),
            ("fft 1024, host", FftShape::new_1d(1024), Time::Host { calls: 200 }),
        ] {
            let x = upload(stream, shape.len(), Complex::<f32>::from)?;
            let (mut y, mut z) = (stream.zeros(shape.len())?, stream.zeros(shape.len())?);
            let raw = RawFft::new(self.device, stream, name)?;
            // 5 n log2 n operations by convention.
            let time = match time {
                Time::Whole { calls, .. } => {
                    let n = shape.len() as f64;
                    let each = if name.contains("2^16") { 16.0 } else { n.log2() };
                    Time::Whole { calls, operations: 5.0 * n * each }
                }
                host @ Time::Host { .. } => host,
            };
            let bare = || raw.run(&x, &mut y);
            self.row(name, time, bare, |s| Ok(s.fft(&shape, Direction::Forward, &x, &mut z)?))?;
        }
        Ok(())
    }

    /// Products of 16-bit floats, by the library and by the kernels that need none.
    fn products<
        T: Multiply<Output = T> + gpustream_math::blas::Product<T> + gpustream_math::blas::Finished,
    >(
        &mut self,
        name: &str,
        raw: &Raw,
        of: impl Fn(f32) -> T,
    ) -> Result<()> {
        let stream = &self.device.stream()?;
        for n in [1024, 2048, 4096, 8192] {
            let (a, b) = (upload(stream, n * n, &of)?, upload(stream, n * n, &of)?);
            let bias = upload(stream, n, &of)?;
            let (mut c, mut d) = (stream.zeros::<T>(n * n)?, stream.zeros::<T>(n * n)?);
            let time = Time::Whole { calls: 5, operations: 2.0 * (n as f64).powi(3) };
            let mut bare = || raw.gemm(n, 1, (&a, &b, &mut c), Compute::Full);
            self.row(&format!("gemm {name} {n}"), time, &mut bare, |s| {
                multiply(s, n, 1, &a, &b, &mut d, Compute::Full)
            })?;
            let plain = kernels::Product::new(n, n, n);
            self.row(&format!("multiply_matrices {name} {n}"), time, bare, |s| {
                Ok(s.multiply_matrices(&plain, &a, &b, &mut d)?)
            })?;
            let finished = plain.bias(&bias).activation(kernels::Activation::Gelu);
            let layer = Gemm::new().bias(&bias).activation(Activation::Gelu);
            let by_library = || {
                let (a, b) = (MatrixView::new(&a, n, n)?, MatrixView::new(&b, n, n)?);
                Ok(stream.gemm_with(layer, a, b, MatrixViewMut::new(&mut c, n, n)?)?)
            };
            self.row(&format!("multiply_matrices, bias + gelu (gemm) {name} {n}"), time, by_library, |s| {
                Ok(s.multiply_matrices(&finished, &a, &b, &mut d)?)
            })?;
        }
        Ok(())
    }
}

fn sample(device: &Device, time: Time, call: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
    device.synchronize()?;
    let start = Instant::now();
    let (Time::Whole { calls, .. } | Time::Host { calls }) = time;
    for _ in 0..calls {
        call()?;
    }
    let host = start.elapsed();
    device.synchronize()?;
    Ok(match time {
        Time::Whole { .. } => start.elapsed() / calls,
        Time::Host { .. } => host / calls,
    })
}

/// Multiplies square matrices.
fn multiply<T: gpustream_math::blas::Product<T>>(
    stream: &Stream,
    n: usize,
    batch: usize,
    a: &Buffer<T>,
    b: &Buffer<T>,
    c: &mut Buffer<T>,
    compute: Compute,
) -> Result<()> {
    let layout = Layout::new(n, n).batch(batch);
    let (a, b) = (MatrixView::with_layout(a, layout)?, MatrixView::with_layout(b, layout)?);
    Ok(stream.gemm_with(Gemm::new().compute(compute), a, b, MatrixViewMut::with_layout(c, layout)?)?)
}
