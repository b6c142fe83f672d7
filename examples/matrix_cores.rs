//! What matrix cores need to be fast: one product of matrices in four forms, from the triple loop to copies that run ahead.
//!
//! ```console
//! $ cargo run --release --example matrix_cores
//! ```
//!
//! It prints the speed of each form, and compares each result with sums in `f64`.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::matrix_cores::Kernels;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::half::f16;
use gpustream::{Buffer, Launch, Stream};

/// Multiplies two matrices in four forms, and prints how fast each is
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Rows and columns, a multiple of 64 [default: 4096; on the CPU 256]
    #[arg(long, value_parser = clap::value_parser!(u32).range(64..=32768))]
    size: Option<u32>,
    /// How often each form runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let n = args.size.unwrap_or(if is_cpu(&device) { 256 } else { 4096 });
    ensure!(n.is_multiple_of(64), "--size must be a multiple of 64");
    let kernels = Kernels::load(&device)?;
    let stream = device.stream()?;
    println!("{}", device.info());
    println!("{n} by {n}, 16-bit factors, 32-bit sums");

    let count = n as usize * n as usize;
    let number = |i: usize| f16::from_f32((i.wrapping_mul(0x9e37_79b9) >> 8 & 0xff) as f32 / 128.0 - 1.0);
    let a = examples::values(count, number)?;
    let b = examples::values(count, |i| number(i + count))?;
    let (da, db) = (stream.upload(&a)?, stream.upload(&b)?);
    let mut c = stream.zeros(count)?;

    let warp = device.info().warp_size;
    let blocks = |tile: u32, threads| Launch::exact([(n / tile).pow(2), 1, 1], [threads, 1, 1]);
    let mut table = Table::new(["form", "ms", "TFLOP/s"]);
    let mut form = |name: &str, submit: &dyn Fn(&mut Buffer<f32>) -> gpustream::Result<()>| -> Result<()> {
        let ms = time(&stream, args.runs, || submit(&mut c))?;
        check(&a, &b, &stream.download(&c)?, n as usize, name)?;
        let speed = 2e-9 * f64::from(n).powi(3) / ms;
        table.row([name.to_owned(), format!("{ms:.3}"), format!("{speed:.3}")]);
        stream.fill(&mut c, f32::NAN)?;
        Ok(())
    };
    let size = n as usize;
    form("triple loop", &|c| kernels.by_elements(&stream, &da, &db, c, size))?;
    form("tiles", &|c| kernels.by_tiles(&stream, &blocks(16, 256), &da, &db, c, size))?;
    form("fragments", &|c| kernels.by_fragments(&stream, &blocks(16, warp), &da, &db, c, size))?;
    form("pipeline", &|c| kernels.by_pipeline(&stream, &blocks(64, 4 * warp), &da, &db, c, size))?;
    println!("{table}");
    Ok(())
}

/// Returns the mean time of a run in milliseconds, after one that is not counted.
fn time(stream: &Stream, runs: u32, mut submit: impl FnMut() -> gpustream::Result<()>) -> Result<f64> {
    submit()?;
    let start = stream.record_timed()?;
    (0..runs).try_for_each(|_| submit())?;
    let end = stream.record_timed()?;
    end.synchronize()?;
    Ok(end.elapsed_since(&start)?.as_secs_f64() * 1e3 / f64::from(runs))
}

/// Compares some rows with sums in `f64`. A sum of k products in `f32` is wrong by at most k·2⁻²⁴ of the sum of their absolute
/// values (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1).
fn check(a: &[f16], b: &[f16], c: &[f32], n: usize, name: &str) -> Result<()> {
    for row in [0, n / 2 + 3, n - 1] {
        for column in (0..n).step_by(7) {
            let products = (0..n).map(|k| a[row * n + k].to_f64() * b[k * n + column].to_f64());
            let (sum, sizes) = products.fold((0.0, 0.0), |(sum, sizes), x| (sum + x, sizes + x.abs()));
            let found = f64::from(c[row * n + column]);
            ensure!(
                (found - sum).abs() <= sizes * n as f64 / f64::from(1 << 24),
                "{name}: {found} instead of {sum} at ({row}, {column})"
            );
        }
    }
    Ok(())
}
