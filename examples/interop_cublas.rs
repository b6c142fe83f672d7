//! How to call a vendor's library between your own kernels: cuBLAS multiplies matrices, in our streams and on our memory.
//!
//! `Stream::external` is all that you need for that. You name the memory that the call may touch, and the library orders the
//! call like a launch. So you can also use cuBLAS inside graphs and replayed steps. Here `Gemm` holds the handle and a
//! workspace from the device's pool, because cuBLAS must not allocate while its work is recorded.
//!
//! ```console
//! $ cargo run --release --example interop_cublas
//! $ cargo run --release --example interop_cublas -- --device cpu   # the crate `gemm` in place of cuBLAS
//! ```
//!
//! It checks the result and prints what the replay did. With cuBLAS it also prints what a product costs, with and without
//! this library.

use std::ffi::c_void;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use cudarc::cublas::sys::{self as cublas, cublasHandle_t, cublasOperation_t};
use examples::DeviceArg;
use gpustream::hal::RawStream;
use gpustream::{Arg, Buffer, Device, Stream};
use gpustream_kernels::elementwise;

/// Multiplies matrices between kernels of its own, with cuBLAS or, on the CPU, with the crate `gemm`
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

/// The size of the workspace in bytes: as much as cuBLAS takes on the largest devices.
const WORKSPACE: usize = 32 << 20;

/// Submits matrix products to one stream.
struct Gemm {
    engine: Engine,
    /// We give cuBLAS this memory, so that it allocates nothing inside a capture.
    workspace: Buffer<u8>,
}

enum Engine {
    Cublas(Cublas),
    Host,
}

/// A cuBLAS handle. It enqueues to the stream that it was given, and to no other.
struct Cublas {
    handle: cublasHandle_t,
    stream: RawStream,
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again.
        let _ = unsafe { cublas::cublasDestroy_v2(self.handle) };
    }
}

impl Gemm {
    fn new(stream: &Stream) -> Result<Self> {
        match stream.device().info().backend.as_str() {
            "cpu" => Ok(Self { engine: Engine::Host, workspace: stream.alloc(0)? }),
            "cuda" => {
                // SAFETY: this only looks for the library.
                let present = unsafe { cublas::is_culib_present() };
                ensure!(present, "cuBLAS is not installed: install the CUDA toolkit");
                let mut workspace = stream.alloc(WORKSPACE)?;
                let (address, mut handle) = (workspace.as_raw().0, std::ptr::null_mut());
                // The handle belongs to the context that is current when it is made. Inside the closure, that is the
                // device's.
                // SAFETY: the pointers are to a local variable and to the workspace, which lives as long as the handle.
                unsafe {
                    stream.external("cublasCreate", &[Arg::write(&mut workspace)], |raw| -> Result<()> {
                        cublas::cublasCreate_v2(&raw mut handle).result()?;
                        cublas::cublasSetStream_v2(handle, raw.0 as *mut _).result()?;
                        cublas::cublasSetWorkspace_v2(handle, address as *mut c_void, WORKSPACE).result()?;
                        Ok(())
                    })
                }?;
                let engine = Engine::Cublas(Cublas { handle, stream: stream.as_raw() });
                Ok(Self { engine, workspace })
            }
            other => bail!("this example can use cuBLAS or the CPU; it knows no library for {other}"),
        }
    }

    /// Enqueues `c = a b` for matrices of `n` rows and columns, stored row by row. Inline, because each function around a
    /// vendor's call takes time.
    #[inline]
    fn multiply(
        &mut self,
        stream: &Stream,
        n: usize,
        a: &Buffer<f32>,
        b: &Buffer<f32>,
        c: &mut Buffer<f32>,
    ) -> Result<()> {
        ensure!(
            [a.len(), b.len(), c.len()].iter().all(|len| *len == n * n),
            "a matrix does not have {n} rows and columns"
        );
        match &self.engine {
            // SAFETY: the product reads `a` and `b`, writes `c` and the workspace, and is enqueued to the stream that the
            // closure gets.
            Engine::Cublas(Cublas { handle, stream: own }) => unsafe {
                let [pa, pb, pc] = [a.as_raw(), b.as_raw(), c.as_raw()].map(|address| address.0 as *mut f32);
                let memory = [Arg::read(a), Arg::read(b), Arg::write(c), Arg::write(&mut self.workspace)];
                stream.external("gemm", &memory, |raw| {
                    ensure!(
                        raw == *own,
                        "this handle belongs to another stream: make a `Gemm` for each stream"
                    );
                    multiply_raw(*handle, n, pa, pb, pc)
                })
            },
            Engine::Host => multiply_on_host(stream, n, a, b, c),
        }
    }
}

/// Enqueues the product as a host function. That works because the CPU device shares its memory with the host.
fn multiply_on_host(
    stream: &Stream,
    n: usize,
    a: &Buffer<f32>,
    b: &Buffer<f32>,
    c: &mut Buffer<f32>,
) -> Result<()> {
    let [pa, pb, pc] = [a.as_raw(), b.as_raw(), c.as_raw()].map(|address| address.0);
    let product = move || {
        let [pa, pb, pc] = [pa, pb, pc].map(|address| address as *mut f32);
        let (rows, one) = (n.cast_signed(), 1);
        // SAFETY: the matrices are as large as the sizes say, and only `c` is written.
        unsafe {
            gemm::gemm(
                n,
                n,
                n,
                pc,
                one,
                rows,
                false,
                pa,
                one,
                rows,
                pb,
                one,
                rows,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    };
    // SAFETY: the closure reads `a` and `b` and writes `c`, which the CPU device shares with the host.
    unsafe { stream.external_host("gemm", &[Arg::read(a), Arg::read(b), Arg::write(c)], product)? };
    Ok(())
}

/// Calls cuBLAS, which stores matrices column by column. To cuBLAS our matrices look transposed, so we give it the factors
/// in the other order: it computes `bᵀ aᵀ`, the transpose of `a b`.
///
/// # Safety
/// The addresses are those of matrices with `n` rows and columns, on the handle's device.
unsafe fn multiply_raw(
    handle: cublasHandle_t,
    n: usize,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
) -> Result<()> {
    let (size, plain) = (i32::try_from(n)?, cublasOperation_t::CUBLAS_OP_N);
    let (one, zero) = (1.0f32, 0.0f32);
    // SAFETY: the caller promises that the addresses are right, and cuBLAS reads the factors before the call returns.
    let status = unsafe {
        cublas::cublasSgemm_v2(
            handle,
            plain,
            plain,
            size,
            size,
            size,
            &raw const one,
            b,
            size,
            a,
            size,
            &raw const zero,
            c,
            size,
        )
    };
    status.result().context("cublasSgemm")
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
    let mut gemm = Gemm::new(&stream)?;

    // This matrix moves each row of `x` down by one, and the last row to the top. The sums are exact.
    let shift = examples::values(n * n, |at| if (at / n + n - 1) % n == at % n { 1.0f32 } else { 0.0 })?;
    let rows = examples::values(n * n, |at| (at / n) as f32)?;
    let (shift, mut x) = (stream.upload(&shift)?, stream.upload(&rows)?);
    let mut step = device.replay();
    for _ in 0..args.steps {
        step.run(&stream, |s| {
            let mut y = s.alloc::<f32>(n * n)?;
            gemm.multiply(s, n, &shift, &x, &mut y).map_err(gpustream::Error::external)?;
            kernels.scale(s, 1.0f32, &mut y, n * n)?;
            s.copy(&y, &mut x)
        })?;
    }
    let moved = stream.download(&x)?;
    let want = |at: usize| ((at / n + n - args.steps as usize % n) % n) as f32;
    ensure!((0..n * n).all(|at| moved[at] == want(at)), "wrong result");
    println!("after {} steps of a product and two operations, every row is where it belongs", args.steps);
    println!("{}", examples::summary(&step));
    if matches!(gemm.engine, Engine::Cublas(_)) {
        compare(&device, &stream, &mut gemm, n, args.steps)?;
    }
    Ok(())
}

/// Measures a product through this library, and the same call without it: the host's time for the call, and the time from
/// the first call of a round to the end of its work.
fn compare(device: &Device, stream: &Stream, gemm: &mut Gemm, n: usize, products: u32) -> Result<()> {
    const ROUNDS: usize = 11;
    let Engine::Cublas(Cublas { handle, .. }) = gemm.engine else { return Ok(()) };
    let (a, b) = (stream.full(n * n, 1.0f32)?, stream.full(n * n, 1.0f32)?);
    let mut c = stream.alloc::<f32>(n * n)?;
    let [pa, pb, pc] = [a.as_raw(), b.as_raw(), c.as_raw()].map(|address| address.0 as *mut f32);
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        for (raw, at) in [(true, 0), (false, 2)] {
            device.synchronize()?;
            let start = Instant::now();
            for _ in 0..products {
                if raw {
                    // SAFETY: these are matrices of this device, and nothing else touches them.
                    unsafe { multiply_raw(handle, n, pa, pb, pc) }?;
                } else {
                    gemm.multiply(stream, n, &a, &b, &mut c)?;
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
    let [raw_host, raw_whole, host, whole] = times.map(|mut times| {
        times.sort();
        times[ROUNDS / 2]
    });
    let rate = 2.0 * (n as f64).powi(3) / whole.as_secs_f64() / 1e12;
    println!("{n} x {n}, medians of {ROUNDS} rounds of {products} products:");
    println!("  the call on the host  cuBLAS alone {raw_host:10.2?}   here {host:10.2?}");
    println!(
        "  the whole product     cuBLAS alone {raw_whole:10.2?}   here {whole:10.2?}   {rate:.1} TFLOP/s"
    );
    Ok(())
}
