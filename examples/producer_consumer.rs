//! How the host prepares the next batch while the device works on the current one.
//!
//! A few pinned buffers take turns. `write()` waits only until the device has read that buffer, so the whole run takes about
//! as long as the slower side alone, and not as long as both together. If every batch took equally long, two buffers would
//! be enough. With more, either side can be slow for a while without stopping the other.
//!
//! ```console
//! $ cargo run --release --example producer_consumer
//! $ cargo run --release --example producer_consumer -- --balance   # as much work for the device as for the host
//! ```
//!
//! It prints the time of the host alone, of the device alone, and of both together.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};
use gpustream::{Buffer, Device, Pinned, Stream};

/// Overlaps the host's work with the device's
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Numbers of a batch
    #[arg(long, default_value_t = 1 << 18, value_parser = examples::size())]
    size: usize,
    /// Number of batches
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Rounds of the device on each number
    #[arg(long, default_value_t = 500)]
    rounds: u32,
    /// Choose the rounds so that the device has as much work as the host
    #[arg(long)]
    balance: bool,
}

/// How many buffers take turns.
const BUFFERS: usize = 4;

struct Work {
    kernels: Kernels,
    stream: Stream,
    hosts: Vec<Pinned<u32>>,
    /// One for each host buffer, because otherwise a copy would have to wait for the previous kernel.
    inputs: Vec<Buffer<u32>>,
    sum: Buffer<u32>,
    args: Args,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    println!("{}", device.info());
    let mut work = Work::new(&device, args)?;
    work.both()?; // the first use takes longer
    if work.args.balance {
        work.balance()?;
    }

    let host = work.host_alone()?;
    let on_device = work.device_alone()?;
    let synchronisation = work.synchronisation()?;
    let total = work.both()?;
    let longer = host.max(on_device);
    let ratio = |bound: Duration| total.as_secs_f64() / bound.as_secs_f64();
    println!("the host alone:    {host:.2?}\nthe device alone:  {on_device:.2?}");
    println!("both at once:      {total:.2?}, {:.3} times the slower side", ratio(longer));
    println!(
        "                   {:.3} times the slower side and {synchronisation:.2?} of synchronisation",
        ratio(longer + synchronisation)
    );
    Ok(())
}

impl Work {
    fn new(device: &Device, args: Args) -> Result<Self> {
        let stream = device.stream()?;
        Ok(Self {
            kernels: Kernels::load(device)?,
            hosts: (0..BUFFERS).map(|_| device.pinned(args.size)).collect::<gpustream::Result<_>>()?,
            inputs: (0..BUFFERS).map(|_| stream.zeros(args.size)).collect::<gpustream::Result<_>>()?,
            sum: stream.zeros(args.size)?,
            stream,
            args,
        })
    }

    fn submit(&mut self, batch: u32) -> gpustream::Result<()> {
        let Self { kernels, stream, hosts, inputs, sum, args } = self;
        let turn = batch as usize % BUFFERS;
        stream.copy(&hosts[turn], &mut inputs[turn])?;
        kernels.churn(stream, &mut inputs[turn], 1, args.rounds, args.size)?;
        kernels.add(stream, &inputs[turn], sum, args.size)
    }

    fn both(&mut self) -> Result<Duration> {
        self.stream.fill(&mut self.sum, 0)?;
        self.stream.synchronize()?;
        let start = Instant::now();
        for batch in 0..self.args.batches {
            prepare(&mut self.hosts[batch as usize % BUFFERS].write()?, batch);
            self.submit(batch)?;
        }
        self.stream.synchronize()?;
        let time = start.elapsed();
        let got = self.stream.download(&self.sum)?;
        let mut first = [0];
        let want = (0..self.args.batches).fold(0u32, |sum, batch| {
            prepare(&mut first, batch);
            sum.wrapping_add(churned(first[0], 1, self.args.rounds))
        });
        ensure!(got.first().is_none_or(|&v| v == want), "wrong result");
        Ok(time)
    }

    /// Finds how many rounds keep the device busy as long as the host.
    fn balance(&mut self) -> Result<()> {
        for _ in 0..8 {
            let (host, device) = (self.host_alone()?, self.device_alone()?);
            let ratio = host.as_secs_f64() / device.as_secs_f64();
            if (0.99..1.01).contains(&ratio) {
                break;
            }
            self.args.rounds = (f64::from(self.args.rounds) * ratio).clamp(1.0, 1e8) as u32;
        }
        println!("{} rounds on the device", self.args.rounds);
        Ok(())
    }

    fn host_alone(&mut self) -> Result<Duration> {
        let mut host = self.hosts[0].write()?;
        let start = Instant::now();
        for batch in 0..self.args.batches {
            prepare(black_box(&mut host), batch);
        }
        Ok(start.elapsed())
    }

    fn device_alone(&mut self) -> Result<Duration> {
        let start = Instant::now();
        for batch in 0..self.args.batches {
            self.submit(batch)?;
        }
        self.stream.synchronize()?;
        Ok(start.elapsed())
    }

    /// Measures what submitting and waiting cost if there is no work.
    fn synchronisation(&mut self) -> Result<Duration> {
        let start = Instant::now();
        for batch in 0..self.args.batches {
            let turn = batch as usize % BUFFERS;
            self.stream.copy(&self.hosts[turn].slice(..1)?, &mut self.inputs[turn].slice_mut(..1)?)?;
            drop(self.hosts[(turn + 1) % BUFFERS].write()?);
        }
        self.stream.synchronize()?;
        Ok(start.elapsed())
    }
}

/// Does the host's part: some arithmetic for each number of a batch.
fn prepare(numbers: &mut [u32], batch: u32) {
    for (i, number) in numbers.iter_mut().enumerate() {
        let seed = (i as u32).wrapping_add(batch.wrapping_mul(40_503));
        *number =
            (0..20u32).fold(seed, |v, round| (v ^ (v >> 7)).wrapping_mul(0x9e37_79b1).wrapping_add(round));
    }
}
