//! How to measure the time that work takes on the device.
//!
//! If you put a host clock around a launch, you measure only the call, because it returns before the kernel runs. So record
//! a timed event before the launch and one after it: their distance is the device's own time. There is a second type, the
//! plain `Event`, which can order and notify but cannot measure. It is cheaper, so use it if you need no time.
//!
//! ```console
//! $ cargo run --release --example events_timing
//! ```
//!
//! For two copies and a kernel it prints the time on the device and the time of the call.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use examples::asynchronous::{Kernels, churned};
use examples::{DeviceArg, Table};

/// Times kernels and copies on the device's clock
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Number of elements
    #[arg(long, default_value_t = 1 << 22, value_parser = examples::size())]
    size: usize,
    /// Repetitions of each measurement; the median is shown
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = Kernels::load(&device)?;
    let stream = device.stream()?;
    let n = args.size;
    let mut host = device.pinned::<u32>(n)?;
    let mut x = stream.full(n, 1u32)?;

    let mut table = Table::new(["operation", "on the device", "the call itself"]);
    let mut launches = 0;
    for name in ["copy to the device", "kernel", "copy to the host"] {
        let (mut on_device, mut on_host) = (Vec::new(), Vec::new());
        for _ in 0..args.samples {
            let start = stream.record_timed()?;
            let called = Instant::now();
            match name {
                "copy to the device" => stream.copy(&host, &mut x)?,
                "kernel" => {
                    kernels.churn(&stream, &mut x, 1, 20, n)?;
                    launches += 1;
                }
                _ => stream.copy(&x, &mut host)?,
            }
            on_host.push(called.elapsed());
            let end = stream.record_timed()?;
            on_device.push(end.elapsed_since(&start)?); // waits for both events
        }
        table.row([
            name.to_owned(),
            format!("{:.1?}", median(on_device)),
            format!("{:.1?}", median(on_host)),
        ]);
    }
    let want = churned(0, 1, 20 * launches);
    ensure!(host.read()?.iter().all(|&v| v == want), "wrong result");
    println!("{}\n{table}", device.info());
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
