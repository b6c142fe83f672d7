//! cudarc and this library in one program: its slices in our kernels, our buffers in its calls, one stream for both.

use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Parser;
use cudarc::cublas::{CudaBlas, Gemv, GemvConfig, sys::cublasOperation_t};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use examples::DeviceArg;
use gpustream::hal::RawStream;
use gpustream::{Arg, Buffer, Stream};
use gpustream_kernels::elementwise;

/// Runs kernels of this library on memory of cudarc's, and cuBLAS through cudarc on memory of this library's
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
        println!("cudarc is for NVIDIA devices: try --device cuda:0");
        return Ok(());
    }
    let n = args.size as usize;
    // Both libraries use the device's primary context.
    let context = CudaContext::new(device.info().ordinal)?;
    let theirs = context.new_stream()?;
    // SAFETY: cudarc's stream of the same context, which outlives the value.
    let ours = unsafe { device.stream_from_raw(RawStream(theirs.cu_stream() as usize)) };

    // A slice of cudarc's becomes a buffer, which keeps the slice.
    let mut x = adopt(&ours, &theirs, theirs.clone_htod(&vec![2.0f32; n])?)?;
    elementwise::Kernels::load(&device)?.scale(&ours, 3.0f32, &mut x, n)?;

    // cuBLAS with cudarc's handle, on its stream, multiplies a matrix of ones and a buffer of ours.
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
    // SAFETY: the product goes to cudarc's stream, which is ours too, and reads `x`, which is the memory of `lent`.
    unsafe {
        ours.external("gemv", &x, |_, _| -> Result<()> { Ok(blas.gemv(config, &ones, &*lent, &mut y)?) })
    }?;
    let sums = theirs.clone_dtoh(&y)?;
    ensure!(sums.iter().all(|sum| *sum == 6.0 * n as f32), "wrong result");
    println!("every sum of {n} sixes is {}", sums[0]);
    Ok(())
}

/// Makes a buffer of a slice of cudarc's, ready in the order of the stream, which is one for both libraries.
fn adopt(ours: &Stream, theirs: &Arc<CudaStream>, slice: CudaSlice<f32>) -> Result<Buffer<f32>> {
    let (len, memory) = (slice.len(), slice.device_ptr(theirs).0 as *mut f32);
    // SAFETY: the slice keeps the memory, and nobody else uses it.
    Ok(unsafe { Buffer::from_raw(ours, memory, len, slice) }?)
}

/// Makes a slice of cudarc's for memory of ours, which cudarc must not free.
fn theirs_again(theirs: &Arc<CudaStream>, x: &Buffer<f32>, len: usize) -> ManuallyDrop<CudaSlice<f32>> {
    // SAFETY: the memory is as long as that, and the slice is never dropped.
    ManuallyDrop::new(unsafe { theirs.upgrade_device_ptr(x.as_raw().0 as u64, len) })
}
