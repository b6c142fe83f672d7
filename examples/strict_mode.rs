//! In strict mode, the library reports missing waits instead of adding them.
//!
//! A program that orders its streams itself can run under `Tracking::Strict`. Here one wait is missing on purpose: the
//! call that would race is refused, with an error that names both operations, their lines, and the wait to write.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::{DeviceOptions, ErrorKind, Tracking};

/// Leaves out a wait, and shows the error
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Number of elements
    #[arg(long, default_value_t = 100_000, value_parser = examples::size())]
    size: usize,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open_with(DeviceOptions::default().tracking(Tracking::Strict))?;
    println!("{}\n", device.info());
    let kernels = Kernels::load(&device)?;
    let (a, b) = (device.stream()?, device.stream()?);
    let n = args.size;
    let mut x = a.full(n, 1u32)?;
    let mut sum = b.zeros::<u32>(n)?;

    kernels.churn(&a, &mut x, 1, 100, n)?;
    let Err(error) = kernels.add(&b, &x, &mut sum, n) else { anyhow::bail!("nothing ordered the two") };
    ensure!(error.kind() == ErrorKind::Hazard, "another error: {error}");
    println!("Without a wait:\n  {error}\n");

    let written = a.record()?;
    b.wait(&written)?;
    kernels.add(&b, &x, &mut sum, n)?; // the refused call has changed nothing
    ensure!(b.download(&sum)?.iter().all(|&v| v == churned(1, 1, 100)), "wrong result");
    println!("With it, the result is right.");
    Ok(())
}
