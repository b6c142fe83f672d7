//! Poisson's equation on a cube, -Δu = f with u = 0 on the border, by conjugate gradients over several ranks.
//!
//! Each rank has a slab of the cube's planes. A round needs one plane of each neighbour, the halo: it travels on a stream of
//! its own while the planes inside the slab, which do not need it, are computed. No line says what waits for what: the library
//! sees which planes each call touches. Sums over the cube are made by `all_reduce`, and stay on the devices.

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

/// Solves Poisson's equation on a cube whose planes are shared among ranks
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    ranks: RanksArg,
    /// Points on a side of the cube [default: 256; on the CPU 63]
    #[arg(long, value_parser = clap::value_parser!(u32).range(15..=4096))]
    side: Option<u32>,
    /// The most rounds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Largest norm of the residual, relative to that of the right side
    #[arg(long, default_value_t = 1e-9)]
    tolerance: f64,
    /// Rounds from one look at the residual to the next: only then does the host wait
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    check_every: u32,
}

fn main() -> ExitCode {
    examples::main(|| {
        let args = Args::parse();
        args.ranks.run(|communicator| run(communicator, &args))
    })
}

/// The work of one rank.
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
    // The fastest of three solutions.
    let fastest = |communicator, order| -> Result<Run> {
        let runs = (0..3).map(|_| Ok(solve(communicator, side, order)?.0)).collect::<Result<Vec<_>>>()?;
        runs.into_iter().min_by_key(|run| run.time).context("no run")
    };

    // A grid of half the points shows how the error falls, and has all first uses behind it.
    let (_, coarse) = solve(communicator, side / 2, Order::Overlapped)?;
    let (_, error) = solve(communicator, side, Order::Overlapped)?;
    let order = (coarse / error).ln() / (width(side / 2) / width(side)).ln();
    let bound = largest_error(side);
    ensure!(error <= bound, "the solution is off by {error:.2e}; the grid explains {bound:.2e}");
    ensure!(
        (order - 2.0).abs() < 0.1,
        "the error falls with the grid's width to the power of {order:.2}, not 2"
    );

    let overlapped = fastest(communicator, Order::Overlapped)?;
    let in_turn = fastest(communicator, Order::InTurn)?;
    let exchange = Solver::new(communicator, side)?.time_exchange(overlapped.rounds)?;
    let mut alone = None;
    if rank == 0 && ranks > 1 {
        let communicator = World::alone().communicator(device)?;
        alone = Some(fastest(&communicator, Order::Overlapped)?);
    }
    // The other ranks wait here meanwhile.
    let stream = device.stream()?;
    communicator.barrier(&stream)?;
    stream.synchronize()?;
    progress.finish_and_clear();
    if rank > 0 {
        return Ok(());
    }

    println!(
        "largest error {error:.2e}, below {bound:.2e} as this grid should have; it falls by the order {order:.2}\n"
    );
    let mut table = Table::new(["way", "ranks", "iterations", "us/iteration"]);
    let mut row = |way: &str, ranks: usize, run: &Run| {
        let time = format!("{:.1}", 1e6 * run.round());
        table.row([way.to_owned(), ranks.to_string(), run.rounds.to_string(), time]);
    };
    row("halo beside the inner planes", ranks, &overlapped);
    let Some(alone) = alone else {
        println!("{table}\n\none rank has no neighbour, and so no halo");
        return Ok(());
    };
    row("halo first", ranks, &in_turn);
    row("one rank", 1, &alone);
    println!("{table}\n");
    let saved = in_turn.round() - overlapped.round();
    println!(
        "halo: {:.1} us alone, and {:+.1} us for a round that sends it first: {:.0} % are hidden",
        1e6 * exchange,
        1e6 * saved,
        100.0 * (saved / exchange).clamp(0.0, 1.0)
    );
    let efficiency = alone.round() / (ranks as f64 * overlapped.round());
    println!("efficiency: {efficiency:.2}, one rank's time by {ranks} times that of {ranks} ranks");
    Ok(())
}

/// Returns the line that says how far the solutions are, on rank 0 alone, and if that has a terminal.
fn progress(rank: usize, solutions: u64) -> Result<ProgressBar> {
    if rank > 0 {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("solution {pos} of {len}, {msg}, {elapsed}")?;
    let progress = ProgressBar::new(solutions).with_style(style);
    progress.enable_steady_tick(Duration::from_millis(200));
    Ok(progress)
}

/// Solves, and returns the solution's largest error.
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
