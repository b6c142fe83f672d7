//! A small library on top of gpustream: matrix products on cuBLAS, hipBLAS or a CPU crate, behind one call,
//! `stream.multiply(n, &a, &b, &mut c)`. The program calls it between its own kernels, inside a replayed step.
//!
//! You learn how such a library keeps its handles (`Device::extension`), how it enqueues work that is ordered with everything
//! else (`Stream::external_keyed`, `Stream::external_parallel`), and what that costs compared with the bare call. The guide
//! "A library on top of gpustream" explains it step by step.
//!
//! ```console
//! $ cargo run --release -p small_blas
//! $ cargo run --release -p small_blas -- --device cpu   # the crate `gemm` in place of the vendor's library
//! ```
//!
//! It checks the result and prints what the replay did. On a GPU it also prints what a product costs, with and without this
//! library.

mod blas;
mod vendor;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use gpustream::{Device, Stream};
use gpustream_kernels::elementwise;

use crate::blas::Blas;

/// Multiplies matrices by cuBLAS, hipBLAS or the crate `gemm`, between kernels of its own
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Rows and columns of the matrices
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    size: u32,
    /// Number of steps, and of products in each round of the measurement
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    println!("{}", device.info());
    let n = args.size as usize;
    let stream = device.stream()?;
    let kernels = elementwise::Kernels::load(&device)?;
    blas::prepare(&device)?;

    // This matrix moves each row of `x` down by one, and the last row to the top. Its elements are 0 and 1, so the products
    // are exact.
    let shift = examples::values(n * n, |at| if (at / n + n - 1) % n == at % n { 1.0f32 } else { 0.0 })?;
    let rows = examples::values(n * n, |at| (at / n) as f32)?;
    let (shift, mut x) = (stream.upload(&shift)?, stream.upload(&rows)?);
    let mut step = device.replay();
    for _ in 0..args.steps {
        step.run(&stream, |s| {
            let mut y = s.alloc::<f32>(n * n)?;
            s.multiply(n, &shift, &x, &mut y)?;
            kernels.scale(s, 1.0f32, &mut y, n * n)?;
            s.copy(&y, &mut x)
        })?;
    }
    let moved = stream.download(&x)?;
    let want = |at: usize| ((at / n + n - args.steps as usize % n) % n) as f32;
    ensure!((0..n * n).all(|at| moved[at] == want(at)), "wrong result");
    println!("{} steps of a product and two operations: every row is where it belongs", args.steps);
    println!("{}", examples::summary(&step));
    if device.info().backend != gpustream::BackendName::CPU {
        compare(&device, &stream, n, args.steps)?;
    }
    Ok(())
}

/// Compares the library's product with the vendor's bare call. We measure the host's time for the call, and the time from a
/// round's first call to the end of its work.
fn compare(device: &Device, stream: &Stream, n: usize, products: u32) -> Result<()> {
    const ROUNDS: usize = 11;
    let vendor = blas::vendor(device)?;
    let (a, b) = (stream.full(n * n, 1.0f32)?, stream.full(n * n, 1.0f32)?);
    let (mut c, mut workspace) = (stream.alloc::<f32>(n * n)?, stream.alloc::<u8>(blas::WORKSPACE)?);
    let [pa, pb, pc] = [a.as_raw(), b.as_raw(), c.as_raw()].map(|address| address.0 as *mut f32);
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        for (is_bare, at) in [(true, 0), (false, 2)] {
            device.synchronize()?;
            // SAFETY: a stream and memory of this device, which nothing else uses.
            unsafe {
                stream.external("set_stream", &mut workspace, |raw, workspace| {
                    blas::lock(&vendor).set_stream(raw, (workspace, blas::WORKSPACE))
                })?;
            }
            let start = Instant::now();
            for _ in 0..products {
                if is_bare {
                    // SAFETY: matrices of this device, which nothing else touches.
                    unsafe { blas::lock(&vendor).multiply(n, pa, pb, pc) }?;
                } else {
                    stream.multiply(n, &a, &b, &mut c)?;
                }
            }
            let host = start.elapsed();
            stream.synchronize()?;
            // The first round warms up.
            if round > 0 {
                times[at].push(host / products);
                times[at + 1].push(start.elapsed() / products);
            }
        }
    }
    let [bare_host, bare_whole, host, whole] = times.map(|mut times| {
        times.sort();
        times[ROUNDS / 2]
    });
    let rate = 2.0 * (n as f64).powi(3) / whole.as_secs_f64() / 1e12;
    println!("{n} x {n}, medians of {ROUNDS} rounds of {products} products:");
    println!("  the call on the host  bare {bare_host:10.2?}   here {host:10.2?}");
    println!("  the whole product     bare {bare_whole:10.2?}   here {whole:10.2?}   {rate:.1} TFLOP/s");
    Ok(())
}
