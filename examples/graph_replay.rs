//! How to submit many small operations at the cost of one, with a replay or with a graph.
//!
//! If a kernel takes only microseconds, most of the time goes into submitting it. A *replay* looks like the plain loop: it
//! records itself and finds out what changes from run to run. A *graph* is built by you. It can be faster still if nothing
//! changes, because you do not even name the operations again. You can also change a node of a finished graph: in the end we
//! give one node other arguments and launch the graph once more.
//!
//! ```console
//! $ cargo run --release --example graph_replay
//! ```
//!
//! It prints, for each of the three ways, how long submitting took and when everything was done.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::DeviceArg;
use examples::asynchronous::{Kernels, churned};

/// Submits many small kernels one by one, then as a replay, then as a graph
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Kernels of one round
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    kernels: u32,
    /// Number of rounds
    #[arg(long, default_value_t = 100)]
    rounds: u32,
}

const N: usize = 1024;

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let kernels = Kernels::load(&device)?;
    let stream = device.stream()?;
    let round =
        |value: u32, first: u32| (1..args.kernels).fold(churned(value, first, 1), |v, k| churned(v, k, 1));

    let mut x = stream.zeros::<u32>(N)?;
    kernels.churn(&stream, &mut x, 0, 1, N)?;
    stream.synchronize()?;
    let start = Instant::now();
    for _ in 0..args.rounds {
        for value in 0..args.kernels {
            kernels.churn(&stream, &mut x, value, 1, N)?;
        }
    }
    let submitted = start.elapsed();
    stream.synchronize()?;
    println!("{}", device.info());
    println!("one by one: submitted in {submitted:.1?}, done in {:.1?}", start.elapsed());
    let want = (0..args.rounds).fold(0, |v, _| round(v, 0));
    ensure!(stream.download(&x)?.iter().all(|&v| v == want), "wrong result, one by one");

    stream.fill(&mut x, 0)?;
    stream.synchronize()?;
    let mut step = device.replay();
    let start = Instant::now();
    for _ in 0..args.rounds {
        step.run(&stream, |s| (0..args.kernels).try_for_each(|value| kernels.churn(s, &mut x, value, 1, N)))?;
    }
    let submitted = start.elapsed();
    stream.synchronize()?;
    println!("{step:?}: submitted in {submitted:.1?}, done in {:.1?}", start.elapsed());
    ensure!(stream.download(&x)?.iter().all(|&v| v == want), "wrong result of the replay");

    // `stream.capture(|s| …)` would record the same from ordinary calls. We use a builder here because it returns the nodes,
    // and we must name the node that we change later.
    let mut builder = device.graph_builder()?;
    let first = builder.node(&[], |s| kernels.churn(s, &mut x, 0, 1, N))?;
    let mut last = first;
    for value in 1..args.kernels {
        last = builder.node(&[last], |s| kernels.churn(s, &mut x, value, 1, N))?;
    }
    let mut graph = builder.build()?;
    graph.prepare(&stream)?;
    stream.fill(&mut x, 0)?;
    stream.synchronize()?;
    let start = Instant::now();
    for _ in 0..args.rounds {
        graph.launch(&stream)?;
    }
    let submitted = start.elapsed();
    stream.synchronize()?;
    println!("{graph:?}: submitted in {submitted:.1?}, done in {:.1?}", start.elapsed());
    ensure!(stream.download(&x)?.iter().all(|&v| v == want), "wrong result of the graph");

    graph.set_node(first, |s| kernels.churn(s, &mut x, 7, 1, N))?;
    graph.launch(&stream)?;
    ensure!(stream.download(&x)?.iter().all(|&v| v == round(want, 7)), "wrong result of the changed graph");
    Ok(())
}
