//! What asynchronous execution looks like: four scenes, each traced and drawn.
//!
//! 1. The host submits work and goes on. It waits only for the result.
//! 2. Pieces of the data take turns on two streams, so copies in both directions can run at the same time as kernels.
//! 3. An event orders two streams on the device. The host does not wait.
//! 4. The legacy default stream makes other streams wait, although they could go on: they share no memory with it.
//!
//! ```console
//! $ cargo run --release --example timelines -- --out pictures
//! ```
//!
//! It writes `dispatch.svg`, `pipeline.svg`, `events.svg` and `legacy.svg`, which you can open in a browser. [The page about
//! them](../docs/asynchronous.md) shows the pictures from a GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::asynchronous::{Kernels, churned};
use examples::{DeviceArg, is_cpu};
use gpustream::{DefaultStream, Device, Stream, StreamOptions, Timeline};
use gpustream_timeline_view::Picture;

/// Draws the timelines of four scenes, each as NAME.svg
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Folder for the pictures
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Numbers that each kernel works on
    #[arg(long, default_value_t = 1 << 20, value_parser = examples::size())]
    size: usize,
    /// Rounds of a kernel on each number [default: 2000; on the CPU 4]
    #[arg(long)]
    rounds: Option<u32>,
}

/// How often we run a scene before we draw it, because first uses take longer.
const WARM_UP: usize = 2;

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    println!("{}", device.info());
    fs::create_dir_all(&args.out)?;
    let rounds = args.rounds.unwrap_or(if is_cpu(&device) { 4 } else { 2000 });
    let scenes = Scenes { kernels: Kernels::load(&device)?, n: args.size, rounds, device };
    let draw = |name, title, threads, scene: Scene| draw(&args.out, name, title, threads, || scene(&scenes));
    draw("dispatch", "The host dispatches and goes on", true, Scenes::dispatch)?;
    draw("pipeline", "Copies in both directions, beside kernels", false, Scenes::overlap)?;
    draw("events", "An event orders two streams on the device", true, Scenes::events)?;
    draw("legacy", "The legacy default stream makes others wait", false, Scenes::legacy)
}

/// Runs a scene in a trace, several times, and draws the last one, because the first runs may be slow.
fn draw(
    folder: &Path,
    name: &str,
    title: &str,
    threads: bool,
    scene: impl Fn() -> Result<Timeline>,
) -> Result<()> {
    let mut timeline = scene()?;
    for _ in 0..WARM_UP {
        timeline = scene()?;
    }
    let file = folder.join(format!("{name}.svg"));
    let picture = Picture::new(&timeline).title(title).threads(threads).counters(false).width(800);
    fs::write(&file, picture.svg())?;
    println!("{title}: {} operations, {}", timeline.operations.len(), file.display());
    Ok(())
}

struct Scenes {
    kernels: Kernels,
    n: usize,
    rounds: u32,
    device: Device,
}

type Scene = fn(&Scenes) -> Result<Timeline>;

impl Scenes {
    fn stream(&self) -> gpustream::Result<Stream> {
        self.device.stream()
    }

    fn dispatch(&self) -> Result<Timeline> {
        let (s, n, rounds) = (self.stream()?, self.n, self.rounds);
        let from = self.device.pinned::<u32>(n)?;
        let mut back = self.device.pinned::<u32>(n)?;
        let mut x = s.alloc::<u32>(n)?;
        let trace = self.device.trace()?;
        s.copy(&from, &mut x)?;
        for value in 1..4 {
            self.kernels.churn(&s, &mut x, value, rounds, n)?;
        }
        s.copy(&x, &mut back)?;
        let first = back.read()?[0];
        let timeline = trace.stop()?;
        ensure!(first == (1..4).fold(0, |x, value| churned(x, value, rounds)), "wrong result");
        Ok(timeline)
    }

    fn overlap(&self) -> Result<Timeline> {
        let (n, rounds) = (self.n, self.rounds);
        let mut values = self.device.pinned::<u32>(4 * n)?;
        let mut pipeline = self.device.pipeline().chunks(n / 2);
        let trace = self.device.trace()?;
        pipeline.in_place([&mut values], |stream, [x]| {
            let len = x.len();
            self.kernels.churn(stream, x, 1, rounds, len)
        })?;
        let first = values.read()?[0];
        let timeline = trace.stop()?;
        ensure!(first == churned(0, 1, rounds), "wrong result");
        Ok(timeline)
    }

    fn events(&self) -> Result<Timeline> {
        let (a, b, n, rounds) = (self.stream()?, self.stream()?, self.n, self.rounds);
        let (mut x, mut y) = (a.zeros::<u32>(n)?, b.zeros::<u32>(n)?);
        self.device.synchronize()?;
        let trace = self.device.trace()?;
        self.kernels.churn(&a, &mut x, 1, rounds, n)?;
        let ready = a.record()?;
        self.kernels.churn(&b, &mut y, 1, rounds / 2, n)?;
        b.wait(&ready)?;
        self.kernels.add(&b, &x, &mut y, n)?;
        self.kernels.churn(&b, &mut y, 2, rounds / 2, n)?;
        // This stream wrote `x` itself, and both sums only read it. So neither waits for the other.
        let mut z = a.zeros::<u32>(n)?;
        self.kernels.add(&a, &x, &mut z, n)?;
        b.synchronize()?;
        let timeline = trace.stop()?;
        let sum = churned(0, 1, rounds).wrapping_add(churned(0, 1, rounds / 2));
        ensure!(b.download(&y)?[0] == churned(sum, 2, rounds / 2), "wrong result");
        Ok(timeline)
    }

    fn legacy(&self) -> Result<Timeline> {
        let (n, rounds) = (self.n / 8, self.rounds);
        let blocking = StreamOptions::default().blocking_with_default(true);
        let (a, b) = (self.device.stream_with(blocking)?, self.device.stream_with(blocking)?);
        let legacy = self.device.default_stream(DefaultStream::Legacy)?;
        let (mut x, mut y, mut z) = (a.zeros::<u32>(n)?, b.zeros::<u32>(n)?, legacy.zeros::<u32>(n)?);
        self.device.synchronize()?;
        let trace = self.device.trace()?;
        for value in 1..4 {
            self.kernels.churn(&a, &mut x, value, rounds, n)?;
            self.kernels.churn(&b, &mut y, value, rounds, n)?;
            if value == 2 {
                self.kernels.churn(&legacy, &mut z, value, rounds, n)?;
            }
        }
        let timeline = trace.stop()?;
        ensure!(a.download(&x)?[0] == (1..4).fold(0, |x, value| churned(x, value, rounds)), "wrong result");
        Ok(timeline)
    }
}
