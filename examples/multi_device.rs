//! Several devices: a vector that is spread over all of them and halved until one value is left.
//!
//! In each step the upper half of the devices hand their parts to the lower half. A copy from another device is an
//! ordinary `copy`: the library turns on direct access where there is some, and has the one device wait for the
//! other. `GPUSTREAM_CPU_DEVICES=4` presents the CPU as four.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::asynchronous::{Kernels, churned};
use gpustream::{Buffer, Device, Stream};

/// Sums a vector over all devices of a backend
#[derive(Parser)]
struct Args {
    /// Whose devices: cpu, cuda or hip [default: that of the best device, or of `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "BACKEND")]
    device: Option<String>,
    /// How many numbers each device has
    #[arg(long, default_value_t = 1 << 20)]
    size: usize,
}

fn main() -> ExitCode {
    examples::main(run)
}

struct Part {
    stream: Stream,
    kernels: Kernels,
    x: Buffer<u32>,
    /// Room for another device's part.
    near: Buffer<u32>,
}

fn run() -> Result<()> {
    let args = Args::parse();
    let backend = match &args.device {
        Some(name) => name.split(':').next().unwrap_or_default().to_owned(),
        None => Device::best()?.info().backend.to_owned(),
    };
    let devices: Vec<_> = Device::all().into_iter().filter(|d| d.info().backend == backend).collect();
    ensure!(!devices.is_empty(), "{backend} has no device");

    let mut parts = Vec::new();
    let mut want = 0u32;
    for (number, device) in (1..).zip(&devices) {
        println!("{}", device.info());
        let (stream, kernels) = (device.stream()?, Kernels::load(device)?);
        let mut x = stream.full(args.size, number)?;
        kernels.churn(&stream, &mut x, 1, 100, args.size)?;
        want = want.wrapping_add(churned(number, 1, 100));
        let near = stream.alloc(args.size)?;
        parts.push(Part { stream, kernels, x, near });
    }
    while parts.len() > 1 {
        let upper = parts.split_off(parts.len().div_ceil(2));
        for (part, other) in parts.iter_mut().zip(&upper) {
            part.stream.copy(&other.x, &mut part.near)?;
            part.kernels.add(&part.stream, &part.near, &mut part.x, args.size)?;
        }
    }
    let sum = parts[0].stream.download(&parts[0].x)?; // the one call that waits
    ensure!(sum.iter().all(|&v| v == want), "wrong result");
    println!("{} devices: every sum is {want}", devices.len());
    Ok(())
}
