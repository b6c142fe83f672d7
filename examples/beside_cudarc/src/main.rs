//! Examples of this library and the same in cudarc. It prints the lines and the time of each, and checks that both compute the
//! same.
//!
//! ```console
//! $ cargo run --release -p beside_cudarc            # on an NVIDIA GPU, with NVRTC and cuBLAS
//! $ cargo run --release -p beside_cudarc -- --lines # anywhere
//! ```
//!
//! The folder `src/with_cudarc` has the device work alone, and the rest is shared: kernels, images, the numbers of the tunnel and of
//! the network.

mod compare;
mod lines;
mod with_cudarc;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use examples::Table;
use gpustream::Device;

/// Compares examples of this library with the same in cudarc
#[derive(Parser)]
struct Args {
    /// Only count lines
    #[arg(long)]
    lines: bool,
    /// Cells across the wind tunnel
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=8192))]
    size: u32,
    /// Steps of the tunnel and of the training
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..))]
    steps: u32,
    /// Images that the service blurs
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    images: u32,
    /// How often each is run; the times are medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let mut table = Table::new(["lines", "gpustream", "cudarc", "unsafe", "unsafe in cudarc"]);
    for lines in lines::count() {
        let numbers = [lines.ours, lines.cudarc, lines.ours_unsafe, lines.cudarc_unsafe];
        table.row([lines.name.to_owned()].into_iter().chain(numbers.map(|number| number.to_string())));
    }
    println!("{table}");
    if args.lines {
        return Ok(());
    }

    let devices = Device::all_of("cuda")
        .context("cudarc needs an NVIDIA GPU, so nothing was run; `--lines` only counts the lines")?;
    ensure!(!devices.is_empty(), "the driver finds no GPU");
    println!("{}, {} in all", devices[0].info(), devices.len());
    let mut table = Table::new(["application", "gpustream, s", "cudarc, s", "results"]);
    let (size, rounds) = (args.size as usize, args.rounds);
    let failed = [
        compare::tunnel(&mut table, &devices, size, args.steps as usize, rounds),
        compare::service(&mut table, &devices[0], args.images as usize, rounds),
        compare::training(&mut table, &devices[0], args.steps, rounds),
    ]
    .into_iter()
    .filter_map(Result::err)
    .inspect(|error| eprintln!("{error:#}"))
    .count();
    println!("{table}");
    ensure!(failed == 0, "{failed} of 3 applications failed");
    Ok(())
}
