//! How ranks train one network together: data-parallel training with gradients that travel during the backward pass.
//!
//! Every rank has the same network and its own part of the samples, and the ranks add up their gradients.
//!
//! The backward pass goes from the last layer to the first. As soon as the finished layers have enough gradients to fill a
//! bucket, a second stream can sum these over the ranks and update the weights. Meanwhile the first stream goes on with the
//! layers before. You need no code that says what must wait for what, because the library sees which bytes each call
//! touches.
//!
//! ```console
//! $ cargo run --release --example data_parallel
//! $ GPUSTREAM_CPU_DEVICES=3 cargo run --release --example data_parallel -- --device cpu
//! ```
//!
//! It prints how the loss fell, compares the result with one rank that has all samples, and says how much of the summing was
//! hidden. `docs/ranks.md` explains these figures, and how you start the ranks on several hosts.

mod network;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::Table;
use examples::ranks::RanksArg;
use gpustream::Timeline;
use gpustream_collectives::{Communicator, World};
use gpustream_timeline_view::{Picture, Report};

use crate::network::{Network, Order};

/// Trains a small network on several ranks, which add up their gradients during the backward pass
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    ranks: RanksArg,
    /// Number of samples, which the ranks share [default: 16384; on the CPU 1001]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    samples: Option<u32>,
    /// Units of each hidden layer [default: 1024; on the CPU 48]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 14))]
    width: Option<u32>,
    /// Hidden layers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    layers: u32,
    /// Steps of the training
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    steps: u32,
    /// How far a step goes along the gradient [default: 8 / width, at most 0.2]
    #[arg(long)]
    rate: Option<f32>,
    /// Size of a bucket in KiB: gradients are summed once there are this many
    #[arg(long, default_value_t = 1024)]
    bucket: u32,
    /// Draw what rank 0's device does in two steps of each order, into this file (.svg or .html)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// How many steps of each order we trace and compare, and how many we draw.
const TRACED: usize = 10;
const DRAWN: usize = 2;

fn main() -> ExitCode {
    examples::main(|| {
        let args = Args::parse();
        args.ranks.run(|communicator| run(communicator, &args))
    })
}

/// Does the work of one rank.
fn run(communicator: &Communicator, args: &Args) -> Result<()> {
    let device = communicator.device();
    let (rank, ranks, steps) = (communicator.rank(), communicator.size(), args.steps as usize);
    let mut network = Network::new(communicator, args)?;
    if rank == 0 {
        let weights = network.weights.len();
        println!(
            "ranks: {ranks}, the first on {}\n{weights} weights, {} samples",
            device.info(),
            network.samples
        );
    }

    let start = Instant::now();
    for step in 0..steps {
        network.step(step, Order::Overlapped)?;
    }
    let losses = network.losses()?;
    let time = start.elapsed();
    let different = network.different_weights()?;
    ensure!(different == 0, "the ranks differ in {different} weights");
    let (first, last) = (losses[0], losses[steps - 1]);
    ensure!(
        last < first / 2.0,
        "the loss went from {first:.3e} to {last:.3e}: try another --rate or more --steps"
    );

    if rank == 0 {
        println!(
            "{steps} steps, {:.1} us each: the loss went from {first:.3e} to {last:.3e}, and all ranks have the same weights",
            1e6 * time.as_secs_f64() / steps as f64
        );
        if ranks > 1 {
            compare(&network, &losses, &World::alone().communicator(device)?, args)?;
        }
    }
    if let Some([in_turn, overlapped]) = both_orders(&mut network, TRACED)? {
        report(&in_turn, &overlapped, ranks);
    }
    if let Some(file) = &args.trace
        && let Some([in_turn, overlapped]) = both_orders(&mut network, DRAWN)?
    {
        draw(&in_turn, &overlapped, file)?;
    }
    Ok(())
}

/// Traces some steps in each order, on rank 0.
fn both_orders(network: &mut Network<'_>, steps: usize) -> Result<Option<[Timeline; 2]>> {
    let in_turn = network.traced(steps, Order::InTurn)?;
    let overlapped = network.traced(steps, Order::Overlapped)?;
    Ok(in_turn.zip(overlapped).map(Into::into))
}

/// Compares with a network that one rank trained on all samples. Both compute the same sums in another order, so they may
/// differ only by rounding.
fn compare(network: &Network<'_>, losses: &[f32], alone: &Communicator, args: &Args) -> Result<()> {
    let mut other = Network::new(alone, args)?;
    for step in 0..losses.len() {
        other.step(step, Order::Overlapped)?;
    }
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, f32::max);
    let off = largest(&mut losses.iter().zip(other.losses()?).map(|(a, b)| (a - b).abs() / losses[0]));
    let weights = other.stream.download(&other.weights)?;
    let apart = network.stream.download(&network.weights)?;
    let apart = largest(&mut apart.iter().zip(&weights).map(|(a, b)| (a - b).abs()));
    let apart = apart / largest(&mut weights.iter().map(|weight| weight.abs()));
    println!(
        "compared with one rank with all samples: losses differ by {off:.1e}, weights by {apart:.1e} (relative)"
    );
    ensure!(off < 1e-3 && apart < 1e-3, "the ranks together learn something else than one rank alone");
    Ok(())
}

/// Prints how much of the reduction ran during the backward pass.
fn report(in_turn: &Timeline, overlapped: &Timeline, ranks: usize) {
    let (in_turn, overlapped) = (Report::of(in_turn), Report::of(overlapped));
    let ([backward, reduction], [device, ..], [other, ..]) =
        (&in_turn.streams[..], &in_turn.devices[..], &overlapped.devices[..])
    else {
        println!("ranks share this device and its trace, so the trace cannot show what each of them hid");
        return;
    };
    let hidden = other.hidden_of(device).time;
    let per_step = |time: u64| format!("{:.1}", time as f64 / 1e3 / TRACED as f64);
    let mut table =
        Table::new(["us/step on rank 0's device", "forward, backward", "reduction, update", "busy"]);
    let busy = [per_step(backward.busy), per_step(reduction.busy)];
    table.row(["one after the other".to_owned(), busy[0].clone(), busy[1].clone(), per_step(device.busy)]);
    table.row(["overlapped".to_owned(), String::new(), String::new(), per_step(other.busy)]);
    println!("\n{table}\n");
    if ranks > 1 {
        println!(
            "hidden: {:.0} % of the reduction",
            100.0 * (hidden as f64 / reduction.busy.max(1) as f64).min(1.0)
        );
    }
}

/// Draws both orders above each other.
fn draw(in_turn: &Timeline, overlapped: &Timeline, file: &Path) -> Result<()> {
    let parts = [("one after the other", in_turn), ("overlapped", overlapped)];
    let picture = Picture::of(&parts).threads(false).counters(false).width(800);
    let is_page = file.extension().is_some_and(|extension| extension == "html");
    let text = if is_page { picture.html() } else { picture.svg() };
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("drew both orders in {}", file.display());
    Ok(())
}
