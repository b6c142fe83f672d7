//! How a loop can end when the device says so: conjugate gradients, whose residual only the device knows.
//!
//! The host can ask after every round, but then it must wait each time. Or you put the loop into a graph with a conditional
//! node, and the device can decide by itself whether there is another round. (Devices without conditional nodes leave out
//! this way.)
//!
//! ```console
//! $ cargo run --release --example conjugate_gradient
//! ```
//!
//! For each way, it prints the rounds, the time per round, and how often the host launched or waited.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use examples::conjugate_gradient::Kernels;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::{Buffer, Device, Flag, Launch, Stream};

/// Solves Poisson's equation on a square, where the host and then the device decides when to stop
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Points on a side of the square [default: 256; on the CPU 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=8192))]
    side: Option<u32>,
    /// The solution may stop once the residual's norm, divided by that of the right side, is at most this
    #[arg(long, default_value_t = 1e-10)]
    tolerance: f64,
}

/// We stop after this many rounds, because rounding errors may keep the tolerance out of reach.
const MOST: u32 = 100_000;

/// The solver's memory.
struct Solver {
    side: usize,
    shape: Launch,
    /// The iteration ends once the residual's squared norm is at most this.
    small: f64,
    right: Buffer<f64>,
    x: Buffer<f64>,
    residual: Buffer<f64>,
    direction: Buffer<f64>,
    product: Buffer<f64>,
    /// Parts of sums, one from each block.
    squares: Buffer<f64>,
    curvatures: Buffer<f64>,
    square: Buffer<f64>,
    rounds: Buffer<u32>,
    /// Not zero if there is another round. The kernels set it, and the host or the graph looks at it.
    go_on: Flag,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let side = args.side.unwrap_or(if is_cpu(&device) { 64 } else { 256 }) as usize;
    let kernels = Kernels::load(&device)?;
    let stream = device.stream()?;
    println!("{}", device.info());
    let mut solver = Solver::new(&device, &stream, side, args.tolerance)?;

    let mut table = Table::new(["way", "rounds", "us/round", "launches and waits of the host"]);
    let mut report = |way: &str, (rounds, time): (u32, Duration), calls: String| {
        let per_round = time.as_secs_f64() * 1e6 / f64::from(rounds.max(1));
        table.row([way.to_owned(), rounds.to_string(), format!("{per_round:.2}"), calls]);
    };

    let asked = time(&stream, &mut solver, |it| it.ask(&kernels, &stream, |it| it.round(&kernels, &stream)))?;
    let want = solver.check(&stream)?;
    report("host asks, kernel by kernel", asked, format!("{}", 4 * asked.0));

    let mut replay = device.replay();
    let asked = time(&stream, &mut solver, |it| {
        it.ask(&kernels, &stream, |it| replay.run(&stream, |s| it.round(&kernels, s)))
    })?;
    ensure!(solver.check(&stream)? == want, "the replayed rounds gave another solution");
    report("host asks, replayed rounds", asked, format!("{}", 2 * asked.0));

    if device.info().features.conditional_nodes {
        let graph = stream.capture(|s| {
            solver.begin(&kernels, s)?;
            let go_on = solver.go_on.clone();
            s.while_(&go_on, |s| solver.round(&kernels, s))
        })?;
        let decided = time(&stream, &mut solver, |_| Ok(graph.launch(&stream)?))?;
        ensure!(solver.check(&stream)? == want, "the graph gave another solution");
        report("the graph decides", decided, "2".to_owned());
    } else {
        println!("this device has no conditional nodes, so only the host can decide");
    }
    println!("{table}");
    Ok(())
}

/// Solves twice, because first uses take longer. Returns the rounds and the time of the second solution.
fn time(
    stream: &Stream,
    solver: &mut Solver,
    mut solve: impl FnMut(&mut Solver) -> Result<()>,
) -> Result<(u32, Duration)> {
    solve(solver)?;
    stream.synchronize()?;
    let start = Instant::now();
    solve(solver)?;
    stream.synchronize()?;
    let time = start.elapsed();
    Ok((stream.download(&solver.rounds)?[0], time))
}

/// Returns x (1 - x) at point `i` of a grid of this width.
fn bump(i: usize, width: f64) -> f64 {
    let x = (i as f64 + 1.0) * width;
    x * (1.0 - x)
}

impl Solver {
    /// Prepares the equation -Δu = 2 (x (1 - x) + y (1 - y)) with u = 0 on the border. Both sides are multiplied by
    /// `width`².
    fn new(device: &Device, s: &Stream, side: usize, tolerance: f64) -> Result<Self> {
        let width = 1.0 / (side as f64 + 1.0);
        let right: Vec<f64> = (0..side * side)
            .map(|i| 2.0 * width * width * (bump(i % side, width) + bump(i / side, width)))
            .collect();
        let square: f64 = right.iter().map(|value| value * value).sum();
        let (info, n) = (device.info(), side * side);
        // If the device runs the threads of a block one after the other, one thread is enough.
        let threads = if info.quirks.serial_threads { 1 } else { 256 };
        let blocks = (n.div_ceil(threads as usize) as u32).min(2 * info.multiprocessors);
        Ok(Self {
            side,
            shape: Launch::new(blocks, threads),
            small: square * tolerance * tolerance,
            right: s.upload(&right)?,
            x: s.zeros(n)?,
            residual: s.zeros(n)?,
            direction: s.zeros(n)?,
            product: s.zeros(n)?,
            squares: s.zeros(blocks as usize)?,
            curvatures: s.zeros(blocks as usize)?,
            square: s.zeros(1)?,
            rounds: s.zeros(1)?,
            go_on: device.flag()?,
        })
    }

    /// Submits the beginning of a solution.
    fn begin(&mut self, kernels: &Kernels, s: &Stream) -> gpustream::Result<()> {
        let Self { side, shape, right, x, residual, direction, squares, rounds, go_on, .. } = self;
        kernels.begin(s, shape, right, x, residual, direction, squares, rounds, go_on, *side * *side)
    }

    /// Submits one round of the iteration.
    fn round(&mut self, kernels: &Kernels, s: &Stream) -> gpustream::Result<()> {
        let Self { side, shape, x, residual, direction, product, squares, curvatures, square, .. } = self;
        let n = *side * *side;
        kernels.apply(s, shape, direction, product, squares, square, curvatures, *side)?;
        kernels.move_along(s, shape, direction, product, curvatures, square, x, residual, squares, n)?;
        let (rounds, go_on) = (&mut self.rounds, &mut self.go_on);
        kernels.turn(s, shape, residual, squares, square, direction, rounds, go_on, self.small, MOST, n)
    }

    /// Solves. Waits after each round to see whether there is another one.
    fn ask(
        &mut self,
        kernels: &Kernels,
        s: &Stream,
        mut round: impl FnMut(&mut Self) -> gpustream::Result<()>,
    ) -> Result<()> {
        self.begin(kernels, s)?;
        loop {
            round(self)?;
            s.synchronize()?;
            if self.go_on.get() == 0 {
                return Ok(());
            }
        }
    }

    /// Downloads the solution and compares it with u = x (1 - x) y (1 - y), which the grid represents exactly.
    fn check(&self, s: &Stream) -> Result<Vec<f64>> {
        let (side, width) = (self.side, 1.0 / (self.side as f64 + 1.0));
        let x = s.download(&self.x)?;
        let largest =
            x.iter().enumerate().map(|(i, x)| (x - bump(i % side, width) * bump(i / side, width)).abs());
        let largest = largest.fold(0.0, f64::max);
        ensure!(largest < 1e-6, "the solution is off by {largest:e}");
        Ok(x)
    }
}
