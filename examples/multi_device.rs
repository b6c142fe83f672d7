//! How devices exchange memory: all devices of a backend add up their vectors until one device has the sum.
//!
//! In each step, the second half of the devices give their vectors to the first half. You can copy from another device with
//! an ordinary `copy`. The library enables direct access if the devices can do it, and makes the receiving stream wait for
//! the other.
//!
//! ```console
//! $ cargo run --release --example multi_device
//! $ GPUSTREAM_CPU_DEVICES=4 cargo run --release --example multi_device -- --device cpu   # the CPU as four devices
//! ```
//!
//! It prints the devices and the sum.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::{Buffer, Device, Stream};

/// Sums a vector over all devices of one backend (the backend of `--device`)
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Elements per device
    #[arg(long, default_value_t = 1 << 20, value_parser = examples::size())]
    size: usize,
}

fn main() -> ExitCode {
    examples::main(run)
}

struct Part {
    stream: Stream,
    kernels: Kernels,
    x: Buffer<u32>,
    /// Receives another device's part, so that this device can add it.
    near: Buffer<u32>,
}

fn run() -> Result<()> {
    let args = Args::parse();
    let backend = args.device.open()?.info().backend;
    let mut devices = Vec::new();
    for device in Device::all() {
        match device {
            Ok(device) if device.info().backend == backend => devices.push(device),
            Err(error) if error.backend() == Some(backend.as_str()) => println!("left out: {error}"),
            _ => {}
        }
    }
    ensure!(!devices.is_empty(), "no device of {backend} can be opened any more");

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
    let sum = parts[0].stream.download(&parts[0].x)?; // the only call here that waits
    ensure!(sum.iter().all(|&v| v == want), "wrong result");
    println!("devices: {}; every sum is {want}", devices.len());
    Ok(())
}
