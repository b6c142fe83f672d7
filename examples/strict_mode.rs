//! How strict mode finds missing waits.
//!
//! By default, the library adds a wait if two streams conflict. Under `Tracking::Strict` it refuses the call instead, so you
//! can check that your program orders its streams itself. Here we leave out one wait on purpose.
//!
//! ```console
//! $ cargo run --release --example strict_mode
//! ```
//!
//! It prints the error, which names both operations, their lines and the wait that you must add. Then it adds that wait and
//! checks the result.

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
    let Err(error) = kernels.add(&b, &x, &mut sum, n) else { anyhow::bail!("the call was not refused") };
    ensure!(error.kind() == ErrorKind::Hazard, "this is another error than we expected: {error}");
    println!("Without a wait:\n  {error}\n");

    let written = a.record()?;
    b.wait(&written)?;
    kernels.add(&b, &x, &mut sum, n)?; // the refused call has changed nothing
    ensure!(b.download(&sum)?.iter().all(|&v| v == churned(1, 1, 100)), "wrong result");
    println!("With it, the result is right.");
    Ok(())
}
