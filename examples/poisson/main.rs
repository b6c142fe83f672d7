//! How ranks exchange data while they compute: Poisson's equation on a cube, -Δu = f with u = 0 on the border, by conjugate
//! gradients.
//!
//! Each rank has a slab of the cube, a number of planes. In each round it needs one plane from each neighbour, the *halo*.
//! The halo can travel on a stream of its own while the main stream computes the planes inside the slab, which do not need
//! it. You need no code that says what must wait for what, because the library sees which planes each call touches.
//! `all_reduce` makes the sums over the cube, and they can stay on the devices.
//!
//! ```console
//! $ cargo run --release --example poisson
//! $ GPUSTREAM_CPU_DEVICES=3 cargo run --release --example poisson -- --device cpu
//! ```
//!
//! It prints the error, the time per round in both orders and for one rank alone, how much of the exchange was hidden, and
//! the efficiency. `docs/ranks.md` explains these figures, and how you start the ranks on several hosts.

mod problem;
mod solver;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use examples::ranks::RanksArg;
use examples::{Table, is_cpu};
use gpustream_collectives::{Communicator, World};
use indicatif::{ProgressBar, ProgressStyle};

use crate::problem::{largest_error, width};
use crate::solver::{Order, Run, Solver};

/// Solves Poisson's equation on a cube whose planes are divided among ranks
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    ranks: RanksArg,
    /// Points on a side of the cube [default: 256; on the CPU 63]
    #[arg(long, value_parser = clap::value_parser!(u32).range(15..=4096))]
    side: Option<u32>,
    /// Largest number of rounds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// The solution may stop once the residual's norm, divided by that of the right side, is at most this
    #[arg(long, default_value_t = 1e-9)]
    tolerance: f64,
    /// Look at the residual after this many rounds; the host waits only then
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    check_every: u32,
}

fn main() -> ExitCode {
    examples::main(|| {
        let args = Args::parse();
        args.ranks.run(|communicator| run(communicator, &args))
    })
}

/// Does the work of one rank.
fn run(communicator: &Communicator, args: &Args) -> Result<()> {
    let device = communicator.device();
    let side = args.side.unwrap_or(if is_cpu(device) { 63 } else { 256 }) as usize;
    let (rank, ranks) = (communicator.rank(), communicator.size());
    ensure!(ranks <= side / 2, "{ranks} ranks share {} planes: give a larger --side", side / 2);
    if rank == 0 {
        let shared = if is_cpu(device) && ranks > 1 { ", a processor that all of them share" } else { "" };
        println!("ranks: {ranks}, the first on {}{shared}\n{side}³ points", device.info());
    }

    let progress = progress(rank, if ranks > 1 { 11 } else { 8 })?;
    let solve = |communicator, side, order| solve(communicator, args, side, order, &progress);
    // Returns the fastest of three solutions.
    let fastest = |communicator, order| -> Result<Run> {
        let runs = (0..3).map(|_| Ok(solve(communicator, side, order)?.0)).collect::<Result<Vec<_>>>()?;
        runs.into_iter().min_by_key(|run| run.time).context("no run")
    };

    // Solve on a grid with half the points first, so that we can see how the error falls with the width. This also gets all
    // first uses done.
    let (_, coarse) = solve(communicator, side / 2, Order::Overlapped)?;
    let (_, error) = solve(communicator, side, Order::Overlapped)?;
    let order = (coarse / error).ln() / (width(side / 2) / width(side)).ln();
    let bound = largest_error(side);
    ensure!(error <= bound, "the solution is off by {error:.2e}, but the grid explains only {bound:.2e}");
    ensure!(
        (order - 2.0).abs() < 0.1,
        "the error falls with the grid's width to the power of {order:.2}; it should be 2"
    );

    let overlapped = fastest(communicator, Order::Overlapped)?;
    let in_turn = fastest(communicator, Order::InTurn)?;
    let exchange = Solver::new(communicator, side)?.time_exchange(overlapped.rounds)?;
    let mut alone = None;
    if rank == 0 && ranks > 1 {
        let communicator = World::alone().communicator(device)?;
        alone = Some(fastest(&communicator, Order::Overlapped)?);
    }
    // While rank 0 solves alone, the other ranks must wait here.
    let stream = device.stream()?;
    communicator.barrier(&stream)?;
    stream.synchronize()?;
    progress.finish_and_clear();
    if rank > 0 {
        return Ok(());
    }

    println!(
        "largest error {error:.2e}; this grid allows {bound:.2e}. It falls with the grid's width to the power of {order:.2}\n"
    );
    let mut table = Table::new(["way", "ranks", "iterations", "us/iteration"]);
    let mut row = |way: &str, ranks: usize, run: &Run| {
        let time = format!("{:.1}", 1e6 * run.round());
        table.row([way.to_owned(), ranks.to_string(), run.rounds.to_string(), time]);
    };
    row("halo beside the inner planes", ranks, &overlapped);
    let Some(alone) = alone else {
        println!("{table}\n\none rank has no neighbours, so there is no halo");
        return Ok(());
    };
    row("halo first", ranks, &in_turn);
    row("one rank", 1, &alone);
    println!("{table}\n");
    let saved = in_turn.round() - overlapped.round();
    println!(
        "halo: {:.1} us alone; a round that sends it first takes {:+.1} us more, so {:.0} % of it is hidden",
        1e6 * exchange,
        1e6 * saved,
        100.0 * (saved / exchange).clamp(0.0, 1.0)
    );
    let efficiency = alone.round() / (ranks as f64 * overlapped.round());
    println!(
        "efficiency: {efficiency:.2} (one rank's time, divided by {ranks} times the time of {ranks} ranks)"
    );
    Ok(())
}

/// Returns the progress line, which only rank 0 shows, and only on a terminal.
fn progress(rank: usize, solutions: u64) -> Result<ProgressBar> {
    if rank > 0 {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("solution {pos} of {len}, {msg}, {elapsed}")?;
    let progress = ProgressBar::new(solutions).with_style(style);
    progress.enable_steady_tick(Duration::from_millis(200));
    Ok(progress)
}

/// Solves. Returns the run, and the solution's largest error.
fn solve(
    communicator: &Communicator,
    args: &Args,
    side: usize,
    order: Order,
    progress: &ProgressBar,
) -> Result<(Run, f64)> {
    progress.inc(1);
    let mut solver = Solver::new(communicator, side)?;
    let report = |round, residual| {
        if !progress.is_hidden() {
            let size = communicator.size();
            progress
                .set_message(format!("{side}³ points, {size} ranks, round {round}: residual {residual:.1e}"));
        }
    };
    let run = solver.solve(order, args.tolerance, args.iterations, args.check_every, report)?;
    Ok((run, solver.error()?))
}
