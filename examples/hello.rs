//! The shortest useful program: double some numbers on the best device of the machine.
//!
//! You see the four things that every program does: open a device, load kernels, enqueue work on a stream, and wait for the
//! result.
//!
//! ```console
//! $ cargo run --release --example hello
//! ```
//!
//! It runs on a GPU if there is one, and you can name a device with `--device`, for example `-- --device cpu`. It prints the
//! device and how many numbers it doubled.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use gpustream_kernels::elementwise;

/// Doubles numbers on a GPU, or on the CPU if there is no GPU
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Number of elements
    #[arg(long, default_value_t = 1_000_000, value_parser = examples::size())]
    size: usize,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = elementwise::Kernels::load(&device)?;
    let stream = device.stream()?;

    let numbers = examples::values(args.size, |i| i as f32)?;
    let mut x = stream.upload(&numbers)?;
    kernels.scale(&stream, 2.0, &mut x, args.size)?;
    let doubled = stream.download(&x)?; // the only call here that waits

    ensure!(doubled.iter().zip(&numbers).all(|(y, x)| *y == 2.0 * x), "wrong result");
    println!("{}: doubled {} numbers", device.info(), args.size);
    Ok(())
}
