//! How priorities let a small urgent job overtake a long queue.
//!
//! Both streams are full of work. Whenever the device can take another block of threads, it takes one from the more urgent
//! stream. It cannot interrupt blocks that already run, so kernels should be short.
//!
//! ```console
//! $ cargo run --release --example priorities
//! ```
//!
//! It prints twice when a small kernel was done, and when the queue submitted before it was done: first with the least
//! priority for the small kernel, then with the greatest.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::{Device, StreamOptions, StreamPriorities};

/// Measures how long an urgent kernel waits behind a queue
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Numbers that each kernel of the queue works on
    #[arg(long, default_value_t = 1 << 20, value_parser = examples::size())]
    size: usize,
    /// Kernels in the queue
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    queue: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = Kernels::load(&device)?;
    let StreamPriorities { least, greatest } = device.info().limits.stream_priorities;
    println!("{}\npriorities from {least} (least urgent) to {greatest}", device.info());
    behind_a_queue(&device, &kernels, &args, least)?; // the first use takes longer
    for (name, priority) in [("least", least), ("greatest", greatest)] {
        let (urgent, queue) = behind_a_queue(&device, &kernels, &args, priority)?;
        println!(
            "{name} priority: the small kernel was done after {urgent:.1?}, the queue after {queue:.1?}"
        );
    }
    Ok(())
}

/// Submits the queue, then a small kernel with that priority, so that the kernel can overtake. Returns how long each took
/// until it was done.
fn behind_a_queue(
    device: &Device,
    kernels: &Kernels,
    args: &Args,
    priority: i32,
) -> Result<(Duration, Duration)> {
    let least = device.info().limits.stream_priorities.least;
    let background = device.stream_with(StreamOptions::default().priority(least))?;
    let stream = device.stream_with(StreamOptions::default().priority(priority))?;
    let mut long = background.full(args.size, 1u32)?;
    let mut short = stream.full(1000, 1u32)?;
    stream.synchronize()?;
    background.synchronize()?;
    let start = Instant::now();
    for _ in 0..args.queue {
        kernels.churn(&background, &mut long, 1, 100, args.size)?;
    }
    kernels.churn(&stream, &mut short, 1, 10, 1000)?;
    stream.synchronize()?;
    let urgent = start.elapsed();
    background.synchronize()?;
    let queue = start.elapsed();
    ensure!(stream.download(&short)? == [churned(1, 1, 10); 1000], "wrong result");
    let want = churned(1, 1, 100 * args.queue);
    ensure!(background.download(&long)?.iter().all(|&v| v == want), "wrong result of the queue");
    Ok((urgent, queue))
}
