//! How streams let small kernels run at the same time.
//!
//! A stream is a queue: its operations run one after another, but operations of different streams may run at the same time.
//! We give the device the same work twice. In one stream, each kernel must wait for the one before it. In several streams,
//! kernels that are too small to fill the device can run together.
//!
//! At the end, one sum needs all the parts. You need no event for that, because the library sees that the sum reads what
//! other streams wrote, and adds the waits. The host waits only for the sum.
//!
//! ```console
//! $ cargo run --release --example streams
//! ```
//!
//! It prints the time in one stream and the time in several.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::{Device, Stream};

/// Runs small kernels one after the other, then at the same time
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Number of streams
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// Numbers that each kernel works on
    #[arg(long, default_value_t = 4096, value_parser = examples::size())]
    size: usize,
    /// Rounds of the kernel on each number
    #[arg(long, default_value_t = 20_000)]
    rounds: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = Kernels::load(&device)?;
    let streams = (0..args.streams).map(|_| device.stream()).collect::<gpustream::Result<Vec<_>>>()?;
    // The first use of a kernel takes longer, so we do not measure it.
    work(&device, &kernels, &streams[..1], &args)?;
    let one = work(&device, &kernels, &streams[..1], &args)?;
    let all = work(&device, &kernels, &streams, &args)?;
    println!("{}", device.info());
    println!("{} kernels in one stream: {one:.1?}; in {} streams: {all:.1?}", args.streams, streams.len());
    Ok(())
}

fn work(device: &Device, kernels: &Kernels, streams: &[Stream], args: &Args) -> Result<Duration> {
    let n = args.size;
    let mut parts =
        (0..args.streams).map(|part| streams[0].full(n, part)).collect::<gpustream::Result<Vec<_>>>()?;
    let mut sum = streams[0].zeros::<u32>(n)?;
    streams[0].synchronize()?;

    let start = Instant::now();
    for (part, x) in parts.iter_mut().enumerate() {
        kernels.churn(&streams[part % streams.len()], x, 1, args.rounds, n)?;
    }
    for x in &parts {
        kernels.add(&streams[0], x, &mut sum, n)?;
    }
    streams[0].synchronize()?;
    let time = start.elapsed();

    let want = (0..args.streams).fold(0u32, |sum, part| sum.wrapping_add(churned(part, 1, args.rounds)));
    ensure!(device.stream()?.download(&sum)?.iter().all(|&v| v == want), "wrong result");
    Ok(time)
}
