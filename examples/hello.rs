//! The shortest useful program doubles some numbers on the best device of the machine.

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
    let doubled = stream.download(&x)?; // the one call that waits

    ensure!(doubled.iter().zip(&numbers).all(|(y, x)| *y == 2.0 * x), "wrong result");
    println!("{}: doubled {} numbers", device.info(), args.size);
    Ok(())
}
