//! How to use cudarc and this library in one program, on one stream.
//!
//! Our kernel runs on a slice that cudarc allocated, and then cuBLAS, called through cudarc, reads our buffer. You need no
//! copy for that, because both libraries can use the same addresses.
//!
//! ```console
//! $ cargo run --release --example interop_cudarc -- --device cuda:0
//! ```
//!
//! It prints the sum that every row of the product should have. On other devices than NVIDIA's it only says that it needs
//! one.

use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Parser;
use cudarc::cublas::{CudaBlas, Gemv, GemvConfig, sys::cublasOperation_t};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use examples::DeviceArg;
use gpustream::hal::RawStream;
use gpustream::{Buffer, Stream};
use gpustream_kernels::elementwise;

/// Runs kernels of this library on cudarc's memory, and cuBLAS through cudarc on this library's memory
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Rows and columns of the matrix
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    size: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    println!("{}", device.info());
    if device.info().backend != gpustream::BackendName::CUDA {
        println!("cudarc supports only NVIDIA devices: try --device cuda:0");
        return Ok(());
    }
    let n = args.size as usize;
    // Both libraries use the device's primary context.
    let context = CudaContext::new(device.info().ordinal)?;
    let theirs = context.new_stream()?;
    // SAFETY: cudarc's stream belongs to the same context, and outlives the value.
    let ours = unsafe { device.stream_from_raw(RawStream(theirs.cu_stream() as usize)) };

    // A slice from cudarc becomes a buffer, which keeps the slice alive.
    let mut x = adopt(&ours, &theirs, theirs.clone_htod(&vec![2.0f32; n])?)?;
    elementwise::Kernels::load(&device)?.scale(&ours, 3.0f32, &mut x, n)?;

    // cuBLAS, with cudarc's handle and on its stream, multiplies a matrix of ones by our buffer.
    let blas = CudaBlas::new(theirs.clone())?;
    let ones = theirs.clone_htod(&vec![1.0f32; n * n])?;
    let mut y = theirs.alloc_zeros::<f32>(n)?;
    let lent = theirs_again(&theirs, &x, n);
    let size = i32::try_from(n)?;
    let config = GemvConfig {
        trans: cublasOperation_t::CUBLAS_OP_N,
        m: size,
        n: size,
        alpha: 1.0f32,
        lda: size,
        incx: 1,
        beta: 0.0,
        incy: 1,
    };
    // SAFETY: the product goes to cudarc's stream, which is `ours` too. It reads `x`, because `lent` is the memory of `x`.
    // Only cudarc knows `ones` and `y`.
    unsafe {
        ours.external("gemv", &x, |_, _| -> Result<()> { Ok(blas.gemv(config, &ones, &*lent, &mut y)?) })
    }?;
    let sums = theirs.clone_dtoh(&y)?;
    ensure!(sums.iter().all(|sum| *sum == 6.0 * n as f32), "wrong result");
    println!("every sum of {n} sixes is {}", sums[0]);
    Ok(())
}

/// Turns a slice from cudarc into a buffer. The memory is ready in the order of the stream, because both libraries use the
/// same one.
fn adopt(ours: &Stream, theirs: &Arc<CudaStream>, slice: CudaSlice<f32>) -> Result<Buffer<f32>> {
    let (len, memory) = (slice.len(), slice.device_ptr(theirs).0 as *mut f32);
    // SAFETY: the buffer owns the slice, which keeps the memory, and nothing else uses it.
    Ok(unsafe { Buffer::from_raw(ours, memory, len, slice) }?)
}

/// Makes a cudarc slice of our memory. cudarc must not free it, so the slice is never dropped.
fn theirs_again(theirs: &Arc<CudaStream>, x: &Buffer<f32>, len: usize) -> ManuallyDrop<CudaSlice<f32>> {
    // SAFETY: the memory has `len` elements, and the slice is never dropped.
    ManuallyDrop::new(unsafe { theirs.upgrade_device_ptr(x.as_raw().0 as u64, len) })
}
