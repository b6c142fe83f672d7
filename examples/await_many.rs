//! Futures: hundreds of small jobs on a few threads.
//!
//! Each job has a stream of its own and awaits the device between its steps. A waiting job holds no thread: one
//! thread of the library's looks at the device for all of them, and wakes those whose turn it is.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::Device;

/// Runs many small jobs as tasks of tokio
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// How many jobs
    #[arg(long, default_value_t = 400)]
    jobs: u32,
    /// How many numbers each works on
    #[arg(long, default_value_t = 10_000)]
    size: usize,
    /// How many threads run them
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = Arc::new(Kernels::load(&device)?);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads as usize).build()?;
    let start = Instant::now();
    runtime.block_on(async {
        let jobs: Vec<_> = (0..args.jobs)
            .map(|number| tokio::spawn(job(device.clone(), kernels.clone(), number, args.size)))
            .collect();
        for (number, job) in (0..).zip(jobs) {
            ensure!(job.await?? == expected(number), "wrong result of job {number}");
        }
        Ok(())
    })?;
    println!("{}", device.info());
    println!("{} jobs on {} threads in {:.1?}", args.jobs, args.threads, start.elapsed());
    Ok(())
}

/// A device's work and the host's in turns: what the second kernel gets depends on what the first one gave.
async fn job(device: Device, kernels: Arc<Kernels>, number: u32, n: usize) -> Result<u32> {
    let stream = device.stream()?;
    let mut x = stream.full(n, number)?;
    kernels.churn(&stream, &mut x, 1, 50, n)?;
    let first = stream.download_async(&x)?.await?;
    let value = first.first().copied().unwrap_or(0) % 100;
    kernels.churn(&stream, &mut x, value, 50, n)?;
    let last = stream.download_async(&x)?.await?;
    ensure!(last.iter().all(|v| Some(v) == last.first()), "job {number} has different values");
    Ok(last.first().copied().unwrap_or(0))
}

fn expected(number: u32) -> u32 {
    let first = churned(number, 1, 50);
    churned(first, first % 100, 50)
}
