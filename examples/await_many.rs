//! How futures run hundreds of small jobs on a few threads.
//!
//! Each job has its own stream and awaits the device between its steps. A job that waits holds no thread, so two threads can
//! serve hundreds of jobs. One thread of the library asks the device for all of them, and wakes a job when its work is done.
//!
//! ```console
//! $ cargo run --release --example await_many -- --jobs 1000
//! ```
//!
//! It prints the number of jobs and threads, and the time that all jobs took.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::Device;
use rustix::process::{Resource, getrlimit};
use tokio::task::JoinSet;

/// Runs many small jobs as tasks of tokio
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Number of jobs
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Numbers that each job works on
    #[arg(long, default_value_t = 10_000, value_parser = examples::size())]
    size: usize,
    /// Threads that run the jobs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
}

/// How many jobs a thread has under way at one time. Further jobs wait until one ends, so that memory does not limit how
/// many you can run in total.
const AT_ONCE: usize = 500;

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = Arc::new(Kernels::load(&device)?);
    check_addresses(args.threads)?;
    let start = Instant::now();
    thread::scope(|scope| {
        let share = |first: u32| {
            let jobs = (first..args.jobs).step_by(args.threads as usize);
            let jobs = jobs.map(|number| job(device.clone(), kernels.clone(), number, args.size));
            thread::Builder::new().spawn_scoped(scope, move || run_jobs(jobs))
        };
        let threads: Vec<_> = (0..args.threads)
            .map(share)
            .collect::<Result<_, _>>()
            .context("cannot start a thread: give fewer --threads, or let the program have more")?;
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => anyhow::bail!("a thread panicked"),
        })
    })?;
    println!("{}", device.info());
    println!("{} jobs on {} threads in {:.1?}", args.jobs, args.threads, start.elapsed());
    Ok(())
}

/// Runs jobs on this thread.
fn run_jobs(mut jobs: impl Iterator<Item = impl Future<Output = Result<()>> + Send + 'static>) -> Result<()> {
    // Each of our threads has its own small runtime, because tokio's runtime with several threads panics if it cannot start
    // one.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut running = JoinSet::new();
        loop {
            while running.len() < AT_ONCE
                && let Some(job) = jobs.next()
            {
                running.spawn(job);
            }
            match running.join_next().await {
                Some(done) => done??,
                None => return Ok(()),
            }
        }
    })
}

/// Runs one job. The device and the host must take turns, because the second kernel's input depends on the first one's
/// result.
async fn job(device: Device, kernels: Arc<Kernels>, number: u32, n: usize) -> Result<()> {
    let stream = device.stream()?;
    let mut x = stream.full(n, number)?;
    kernels.churn(&stream, &mut x, 1, 50, n)?;
    let first = stream.download_async(&x).await?;
    let value = first.first().copied().unwrap_or(0) % 100;
    kernels.churn(&stream, &mut x, value, 50, n)?;
    let last = stream.download_async(&x).await?;
    let want = expected(number);
    ensure!(last.iter().all(|&v| v == want), "wrong result of job {number}");
    Ok(())
}

/// Returns an error if the threads would reserve more addresses than the program may have (`ulimit -v`). Otherwise some
/// small allocation would fail later and abort the program.
fn check_addresses(threads: u32) -> Result<()> {
    // The allocator reserves this much for each thread. The library has some threads as well.
    let needed = (u64::from(threads) + 6) * (64 << 20);
    let limit = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    ensure!(
        limit >= needed,
        "the limit of {limit} bytes of addresses (`ulimit -v`) is too low for {threads} threads: allow {needed}"
    );
    Ok(())
}

fn expected(number: u32) -> u32 {
    let first = churned(number, 1, 50);
    churned(first, first % 100, 50)
}
