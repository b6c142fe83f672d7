//! A small network that learns to tell two spirals apart: matrix products between kernels of our own, and a picture of the loss.
//!
//! Each step of the training is five products, their gradients and a few kernels. It is the same work each time, so a replay
//! submits it as one launch. Nothing comes back to the host but the loss, and only now and then.
//!
//! ```console
//! $ cargo run --release -p math --bin mlp
//! ```
//!
//! It prints the loss and how many points are on the right side, and writes `out/mlp.png`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use gpustream::{Buffer, Stream};
use gpustream_math::prelude::*;
use math::network::Kernels;
use math::{DeviceArg, write_png};

/// Trains a small network and draws how its loss falls
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Points of both spirals
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    points: u32,
    /// Width of the hidden layers
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(8..=4096))]
    width: u32,
    /// Steps of the training
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..))]
    steps: u32,
    /// Where the picture goes
    #[arg(long, value_name = "FILE", default_value = "out/mlp.png")]
    out: PathBuf,
}

/// Steps from one look at the loss to the next.
const LOOK: u32 = 20;

fn main() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let (stream, points) = (device.stream()?, args.points as usize);
    let (places, sides) = spirals(points);
    let (x, wanted) = (stream.upload(&places)?, stream.upload(&sides)?);
    let mut network = Network::new(&stream, Kernels::load(&device)?, points, args.width as usize)?;

    let (mut replay, mut losses) = (device.replay(), Vec::new());
    for step in 0..args.steps {
        let loss = replay.run(&stream, |stream| network.train(stream, &x, &wanted))?;
        if step % LOOK == 0 {
            losses.push(stream.download(&loss)?[0] / points as f32);
        }
    }
    let found = stream.download(network.answers())?;
    let right = found.iter().zip(&sides).filter(|(found, side)| (**found > 0.0) == (**side > 0.0)).count();
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    println!(
        "loss {first:.3} at first, {last:.3} after {} steps; {right} of {points} points are right",
        args.steps
    );
    ensure!(last < first, "nothing was learned");
    draw(&args.out, &losses)?;
    println!("wrote {}", args.out.display());
    Ok(())
}

/// One layer: weights of inputs × outputs, a bias for each output, and what training needs for them.
struct Layer {
    inputs: usize,
    outputs: usize,
    /// The weights, then the biases.
    weights: Buffer<f32>,
    gradient: Buffer<f32>,
    moves: Buffer<f32>,
    /// What the layer gives for each point, and how the loss changes with that.
    values: Buffer<f32>,
    errors: Buffer<f32>,
}

impl Layer {
    fn new(stream: &Stream, points: usize, inputs: usize, outputs: usize) -> gpustream::Result<Self> {
        let (n, scale) = ((inputs + 1) * outputs, 1.5 / (inputs as f32).sqrt());
        let weights: Vec<_> =
            (0..n).map(|i| if i < inputs * outputs { scale * noise(i + n) } else { 0.0 }).collect();
        Ok(Self {
            inputs,
            outputs,
            weights: stream.upload(&weights)?,
            gradient: stream.zeros(n)?,
            moves: stream.zeros(n)?,
            values: stream.zeros(points * outputs)?,
            errors: stream.zeros(points * outputs)?,
        })
    }
}

struct Network {
    kernels: Kernels,
    points: usize,
    layers: Vec<Layer>,
    ones: Buffer<f32>,
}

impl Network {
    fn new(stream: &Stream, kernels: Kernels, points: usize, width: usize) -> gpustream::Result<Self> {
        let sizes = [(2, width), (width, width), (width, 1)];
        let layers = sizes.into_iter().map(|(inputs, outputs)| Layer::new(stream, points, inputs, outputs));
        Ok(Self {
            kernels,
            points,
            layers: layers.collect::<gpustream::Result<_>>()?,
            ones: stream.full(points, 1.0)?,
        })
    }

    /// Returns what the network says of each point: the side by its sign.
    fn answers(&self) -> &Buffer<f32> {
        &self.layers[self.layers.len() - 1].values
    }

    /// Enqueues one step of the training. Returns the sum of the squared errors before it, on the device.
    fn train(
        &mut self,
        stream: &Stream,
        x: &Buffer<f32>,
        wanted: &Buffer<f32>,
    ) -> gpustream::Result<Buffer<f32>> {
        let points = self.points;
        for index in 0..self.layers.len() {
            let (before, rest) = self.layers.split_at_mut(index);
            let Layer { inputs, outputs, weights, values, .. } = &mut rest[0];
            let input = before.last().map_or(x, |layer| &layer.values);
            let (input, split) = (MatrixView::new(input, points, *inputs)?, *inputs * *outputs);
            let (weight, bias) = (weights.slice(..split)?, weights.slice(split..)?);
            let weight = MatrixView::new(&weight, *inputs, *outputs)?;
            stream.gemm(input, weight, MatrixViewMut::new(values, points, *outputs)?)?;
            self.kernels.activate(stream, values, &bias, points, *outputs)?;
        }

        let last = self.layers.len() - 1;
        let Layer { values, errors, .. } = &mut self.layers[last];
        self.kernels.difference(stream, &*values, wanted, errors, points)?;
        let loss = stream.blas_dot(&*errors, &*errors)?;

        for index in (0..self.layers.len()).rev() {
            let (before, rest) = self.layers.split_at_mut(index);
            let Layer { inputs, outputs, weights, gradient, moves, values, errors } = &mut rest[0];
            let (n, split) = (points * *outputs, *inputs * *outputs);
            self.kernels.slope(stream, &*values, errors, n)?;
            let errors = MatrixView::new(&*errors, points, *outputs)?;
            let input = before.last().map_or(x, |layer| &layer.values);
            let (mut by_weight, mut by_bias) = gradient.split_at_mut(split)?;
            let mean = 1.0 / points as f32;
            stream.gemm_with(
                Gemm::new().alpha(mean),
                MatrixView::new(input, points, *inputs)?.t(),
                errors,
                MatrixViewMut::new(&mut by_weight, *inputs, *outputs)?,
            )?;
            stream.gemv(mean, errors.t(), &self.ones, 0.0, &mut by_bias)?;
            if let Some(layer) = before.last_mut() {
                let weight = weights.slice(..split)?;
                let weight = MatrixView::new(&weight, *inputs, *outputs)?;
                stream.gemm(errors, weight.t(), MatrixViewMut::new(&mut layer.errors, points, *inputs)?)?;
            }
            let len = weights.len();
            self.kernels.update(stream, &*gradient, moves, weights, len, 0.05, 0.95)?;
        }
        Ok(loss)
    }
}

/// Returns points on two spirals, and the side of each: -1 or 1.
fn spirals(points: usize) -> (Vec<f32>, Vec<f32>) {
    let place = |i: usize| {
        let (along, side) = ((i / 2) as f32 / (points / 2) as f32, (i % 2) as f32);
        let (angle, radius) = (std::f32::consts::PI * (2.5 * along + side), 0.15 + 0.85 * along);
        [radius * angle.cos() + 0.02 * noise(2 * i), radius * angle.sin() + 0.02 * noise(2 * i + 1)]
    };
    ((0..points).flat_map(place).collect(), (0..points).map(|i| (i % 2) as f32 * 2.0 - 1.0).collect())
}

/// Returns number `i` of numbers between -1 and 1 that look random.
fn noise(i: usize) -> f32 {
    let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Draws the losses from left to right, the largest at the top.
fn draw(path: &std::path::Path, losses: &[f32]) -> Result<()> {
    const WIDTH: usize = 600;
    const HEIGHT: usize = 300;
    let most = losses.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let mut pixels = vec![0u8; WIDTH * HEIGHT];
    for x in 0..WIDTH {
        let loss = losses[x * losses.len() / WIDTH] / most;
        let top = ((1.0 - loss) * (HEIGHT - 1) as f32) as usize;
        (top..HEIGHT).for_each(|y| pixels[y * WIDTH + x] = if y < top + 3 { 2 } else { 1 });
    }
    write_png(path, WIDTH, vec![255, 255, 255, 214, 228, 242, 31, 90, 160], &pixels)
}
