//! A flow that stirs itself: the Navier–Stokes equations in two dimensions, solved by Fourier transforms, with pictures of the
//! vortices.
//!
//! A derivative of a field is a product in its transform, so each step goes there and back: kernels of our own, one inverse
//! transform of four fields, a product in space, and a forward transform. All steps between two pictures are one launch, because a
//! replay records the transforms together with the kernels. A pipeline copies each picture out while the next steps run.
//!
//! ```console
//! $ cargo run --release -p math --bin spectral
//! ```
//!
//! It writes `out/spectral/frame_0000.png` and so on. Before, it checks a flow whose solution is known.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use gpustream::{Buffer, Device, Replay, Stream};
use gpustream_math::Complex;
use gpustream_math::prelude::*;
use math::{DeviceArg, flow::Kernels, write_png};

/// Computes a flow by Fourier transforms and writes pictures of its vortices
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Cells along each side
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=8192))]
    size: u32,
    /// Pictures to write
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    frames: u32,
    /// Steps from one picture to the next
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Folder for the pictures
    #[arg(long, default_value = "out/spectral")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    check(&device)?;

    let n = args.size as usize;
    let stream = device.stream()?;
    // The strongest vortices move about one unit of length in one unit of time; a cell is 2π / n.
    let mut flow = Flow::new(&stream, n, &vortices(n), 1.5 / n as f32, 2e-4)?;
    let mut picture = stream.alloc::<f32>(n * n)?;
    device.pipeline().chunks(n * n).generate(
        args.frames as usize,
        |stream, frame| {
            flow.vorticity(stream, &mut picture)?;
            stream.copy(&picture, frame)?;
            flow.run(stream, args.steps)
        },
        |number, cells: &[f32]| {
            ensure!(cells.iter().all(|cell| cell.is_finite()), "picture {number} is not of this world");
            let pixels: Vec<_> =
                cells.iter().map(|cell| (127.5 + 12.0 * cell).clamp(0.0, 255.0) as u8).collect();
            write_png(&args.out.join(format!("frame_{number:04}.png")), n, palette(), &pixels)
        },
    )?;
    println!(
        "wrote {} frames of {n}×{n} cells, {} steps apart, to {}",
        args.frames,
        args.steps,
        args.out.display()
    );
    Ok(())
}

/// A flow, as the transform of its vorticity.
struct Flow {
    kernels: Kernels,
    replay: Replay,
    n: usize,
    shape: FftShape,
    vorticity: Buffer<Complex<f32>>,
    before: Buffer<f32>,
    half: Buffer<Complex<f32>>,
    fields: Buffer<Complex<f32>>,
    in_space: Buffer<f32>,
    advected: Buffer<f32>,
    dt: f32,
    viscosity: f32,
}

impl Flow {
    fn new(stream: &Stream, n: usize, vorticity: &[f32], dt: f32, viscosity: f32) -> Result<Self> {
        let device = stream.device();
        let shape = FftShape::new_2d(n, n);
        let start = stream.upload(vorticity)?;
        let mut transform = stream.alloc(shape.half_len())?;
        stream.fft_real(&shape, &start, &mut transform)?;
        // From here on, an inverse transform gives the vorticity itself.
        stream.scal(Complex::new(1.0 / (n * n) as f32, 0.0), &mut transform)?;
        let mut flow = Self {
            kernels: Kernels::load(device)?,
            replay: device.replay(),
            n,
            shape,
            before: stream.zeros(2 * transform.len())?,
            half: stream.alloc(transform.len())?,
            fields: stream.alloc(4 * transform.len())?,
            in_space: stream.alloc(4 * n * n)?,
            advected: stream.alloc(n * n)?,
            vorticity: transform,
            dt,
            viscosity,
        };
        flow.step(stream, true)?;
        Ok(flow)
    }

    /// Enqueues some steps, as one launch if they were recorded before.
    fn run(&mut self, stream: &Stream, steps: u32) -> gpustream::Result<()> {
        let mut replay = std::mem::replace(&mut self.replay, stream.device().replay());
        let outcome = replay.run(stream, |stream| (0..steps).try_for_each(|_| self.step(stream, false)));
        self.replay = replay;
        outcome
    }

    fn step(&mut self, stream: &Stream, is_first: bool) -> gpustream::Result<()> {
        let (n, columns) = (self.n, self.n / 2 + 1);
        let Self { kernels, shape, vorticity, before, half, fields, in_space, advected, .. } = self;
        let mut w = vorticity.cast_mut::<f32>()?;
        kernels.fields_of(stream, &w, &mut fields.cast_mut::<f32>()?, n, columns)?;
        stream.ifft_real_overwriting(&shape.batch(4), fields, in_space)?;
        kernels.advect(stream, &*in_space, advected, n * n)?;
        stream.fft_real(shape, &*advected, half)?;
        let (dt, viscosity, first) = (self.dt, self.viscosity, if is_first { 1.0 } else { 0.0 });
        kernels.step(stream, &half.cast::<f32>()?, before, &mut w, n, columns, dt, viscosity, first)
    }

    /// Enqueues the transform back to the vorticity of each cell.
    fn vorticity(&self, stream: &Stream, cells: &mut Buffer<f32>) -> gpustream::Result<()> {
        stream.ifft_real(&self.shape, &self.vorticity, cells)
    }
}

/// Checks the flow of Taylor and Green, which keeps its form and decays: its waves have a length whose square is 2.
fn check(device: &Device) -> Result<()> {
    const N: usize = 64;
    let stream = device.stream()?;
    let angle = |at: usize| std::f32::consts::TAU * at as f32 / N as f32;
    let start: Vec<_> = (0..N * N).map(|i| angle(i / N).cos() * angle(i % N).cos()).collect();
    let (dt, viscosity, steps) = (0.01, 0.1, 20);
    let mut flow = Flow::new(&stream, N, &start, dt, viscosity)?;
    flow.run(&stream, steps - 1)?;
    let mut cells = stream.alloc(N * N)?;
    flow.vorticity(&stream, &mut cells)?;
    let decay = (-2.0 * viscosity * dt * steps as f32).exp();
    let cells = stream.download(&cells)?;
    let worst =
        cells.iter().zip(&start).map(|(cell, start)| (cell - decay * start).abs()).fold(0.0, f32::max);
    ensure!(worst < 1e-5, "the vortices of Taylor and Green are off by {worst}");
    println!("the vortices of Taylor and Green decay as they should, to {worst:.1e}");
    Ok(())
}

/// Two layers of shear, which roll up into vortices.
fn vortices(n: usize) -> Vec<f32> {
    let angle = |at: usize| std::f32::consts::TAU * at as f32 / n as f32;
    let layer = |y: f32, sign: f32| sign * 15.0 / (15.0 * y).cosh().powi(2);
    (0..n * n)
        .map(|i| {
            let (x, y) = (angle(i % n), angle(i / n));
            let wave = 0.05 * ((2.0 * x).sin() + (3.0 * x + 1.0).sin());
            layer(y - 1.571 - wave, 0.6) + layer(y - 4.712 + wave, -0.6)
        })
        .collect()
}

/// From blue, where the flow turns one way, through white to red.
fn palette() -> Vec<u8> {
    let level = |at: i32| (255 - 2 * at.abs()).clamp(0, 255) as u8;
    (-128..128)
        .flat_map(|at| if at < 0 { [level(at), level(at), 255] } else { [255, level(at), level(at)] })
        .collect()
}
