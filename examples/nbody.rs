//! How a replay makes steps of many small kernels cheap: bodies that attract each other.
//!
//! One step of the integrator is ten small kernels, and submitting them can take longer than their work. Replayed, a step
//! costs one launch, and one short call for each kernel whose arguments changed.
//!
//! ```console
//! $ cargo run --release --example nbody
//! ```
//!
//! It prints the time per step for both ways, what the replay did, and the energy before and after, which should hardly
//! change.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use examples::nbody::Kernels;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::{Buffer, Launch, Stream};

/// Moves bodies by their gravity, and submits each step kernel by kernel and then as a replay
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Bodies [default: 1024; on the CPU 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    bodies: Option<u32>,
    /// Time steps
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

/// The square of a distance. Bodies that come closer than this pull no harder.
const SOFTENING: f32 = 0.01;

/// Yoshida's integrator of fourth order (Phys. Lett. A 150, 262, 1990). A drift moves the bodies for this part of a time
/// step, and a kick changes their velocities.
const KICKS: [f32; 3] = [1.351_207_2, -1.702_414_4, 1.351_207_2];
const DRIFTS: [f32; 4] = [0.675_603_6, -0.175_603_6, -0.175_603_6, 0.675_603_6];

struct Bodies {
    places: Buffer<[f32; 4]>,
    velocities: Buffer<[f32; 4]>,
    accelerations: Buffer<[f32; 4]>,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let n = args.bodies.unwrap_or(if is_cpu(&device) { 64 } else { 1024 }) as usize;
    let kernels = Kernels::load(&device)?;
    let stream = device.stream()?;
    println!("{}", device.info());
    println!("{n} bodies, {} steps of {} kernels", args.steps, 2 * KICKS.len() + DRIFTS.len());

    // The time steps grow, so every kernel gets another scalar in every step, which the replay must notice.
    let length = |step: u32| 0.001 * (1.0 + step as f32 / args.steps as f32);
    let mut plain = Bodies::new(&stream, n)?;
    let one_by_one =
        time(&stream, args.steps, |number| Ok(plain.step(&kernels, &stream, n, length(number))?))?;

    let mut replayed = Bodies::new(&stream, n)?;
    let mut replay = device.replay();
    let at_once = time(&stream, args.steps, |number| {
        Ok(replay.run(&stream, |s| replayed.step(&kernels, s, n, length(number)))?)
    })?;

    let mut table = Table::new(["way", "submitted, us/step", "done, us/step"]);
    for (way, (submitted, done)) in [("kernel by kernel", one_by_one), ("replay", at_once)] {
        let per_step = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e6 / f64::from(args.steps));
        table.row([way.to_owned(), per_step(submitted), per_step(done)]);
    }
    println!("{table}");
    println!("{}", examples::summary(&replay));

    let (places, velocities) = (stream.download(&replayed.places)?, stream.download(&replayed.velocities)?);
    ensure!(places == stream.download(&plain.places)?, "the two ways moved the bodies to different places");
    let start = Bodies::start(n);
    let (before, after) = (energy(&start, &vec![[0.0; 4]; n]), energy(&places, &velocities));
    println!("energy {before:.6} before, {after:.6} after");
    ensure!((after - before).abs() < 0.01 * before.abs(), "energy was not conserved");
    Ok(())
}

/// Runs the steps. Returns the time until all were submitted, and the time until all were done.
fn time(
    stream: &Stream,
    steps: u32,
    mut step: impl FnMut(u32) -> Result<()>,
) -> Result<(Duration, Duration)> {
    stream.synchronize()?;
    let start = Instant::now();
    (0..steps).try_for_each(&mut step)?;
    let submitted = start.elapsed();
    stream.synchronize()?;
    Ok((submitted, start.elapsed()))
}

impl Bodies {
    /// Returns bodies at rest on a loose spiral. All have the same mass, 1 in total.
    fn start(n: usize) -> Vec<[f32; 4]> {
        let body = |index: usize| {
            let part = (index as f32 + 0.5) / n as f32;
            let (angle, height) = (2.399_963 * index as f32, 0.5 * (7.0 * part).sin());
            [part.sqrt() * angle.cos(), part.sqrt() * angle.sin(), height, 1.0 / n as f32]
        };
        (0..n).map(body).collect()
    }

    fn new(stream: &Stream, n: usize) -> Result<Self> {
        Ok(Self {
            places: stream.upload(&Self::start(n))?,
            velocities: stream.zeros(n)?,
            accelerations: stream.zeros(n)?,
        })
    }

    /// Submits one time step.
    fn step(&mut self, kernels: &Kernels, s: &Stream, n: usize, time: f32) -> gpustream::Result<()> {
        let Self { places, velocities, accelerations } = self;
        // A block for each body. If the device runs the threads of a block one after the other, as the CPU does, one thread
        // is enough.
        let threads = if s.device().info().quirks.serial_threads { 1 } else { 64 };
        let each_body = Launch::new(n as u32, threads);
        for (drift, kick) in DRIFTS.into_iter().zip(KICKS) {
            kernels.advance(s, velocities, places, drift * time, n)?;
            kernels.accelerate(s, &each_body, places, accelerations, SOFTENING, n)?;
            kernels.advance(s, accelerations, velocities, kick * time, n)?;
        }
        kernels.advance(s, velocities, places, DRIFTS[3] * time, n)
    }
}

/// Returns the sum of the kinetic energy and the energy of gravity.
fn energy(places: &[[f32; 4]], velocities: &[[f32; 4]]) -> f64 {
    let square = |v: [f64; 3]| v.iter().map(|part| part * part).sum::<f64>();
    let mut energy = 0.0;
    for (index, (here, velocity)) in places.iter().zip(velocities).enumerate() {
        let mass = f64::from(here[3]);
        energy += 0.5 * mass * square([0, 1, 2].map(|axis| f64::from(velocity[axis])));
        for other in &places[..index] {
            let apart = square([0, 1, 2].map(|axis| f64::from(here[axis]) - f64::from(other[axis])));
            energy -= mass * f64::from(other[3]) / (apart + f64::from(SOFTENING)).sqrt();
        }
    }
    energy
}
