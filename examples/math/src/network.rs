//! A small network: matrix products between kernels of our own.
//!
//! Each step of the training is five products, their gradients and a few kernels. It is the same work each time, so a replay
//! submits it as one launch. Nothing comes back to the host but the loss, and only now and then.

use gpustream::{Buffer, Result, Stream};
use gpustream_math::prelude::*;

use crate::spirals::first_weights;

mod kernels {
    gpustream::include_kernels!("network");
}

/// Steps from one look at the loss to the next.
pub const LOOK: u32 = 20;

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
    fn new(stream: &Stream, points: usize, inputs: usize, outputs: usize) -> Result<Self> {
        let n = (inputs + 1) * outputs;
        Ok(Self {
            inputs,
            outputs,
            weights: stream.upload(&first_weights(inputs, outputs))?,
            gradient: stream.zeros(n)?,
            moves: stream.zeros(n)?,
            values: stream.zeros(points * outputs)?,
            errors: stream.zeros(points * outputs)?,
        })
    }
}

/// A network of three layers, and the points that it learns from.
pub struct Network {
    kernels: kernels::Kernels,
    points: usize,
    x: Buffer<f32>,
    wanted: Buffer<f32>,
    layers: Vec<Layer>,
    ones: Buffer<f32>,
}

impl Network {
    /// Makes a network whose hidden layers have `width` values. `places` are two coordinates for each point, and `sides` what
    /// the network should say of them.
    pub fn new(stream: &Stream, places: &[f32], sides: &[f32], width: usize) -> Result<Self> {
        let points = sides.len();
        let layers = [(2, width), (width, width), (width, 1)];
        Ok(Self {
            kernels: kernels::Kernels::load(stream.device())?,
            points,
            x: stream.upload(places)?,
            wanted: stream.upload(sides)?,
            layers: layers
                .map(|(inputs, outputs)| Layer::new(stream, points, inputs, outputs))
                .into_iter()
                .collect::<Result<_>>()?,
            ones: stream.full(points, 1.0)?,
        })
    }

    /// Trains the network. Returns the mean of the squared errors, before every [`LOOK`]th step.
    pub fn train(&mut self, stream: &Stream, steps: u32) -> Result<Vec<f32>> {
        let (mut replay, mut losses) = (stream.device().replay(), Vec::new());
        for step in 0..steps {
            let loss = replay.run(stream, |stream| self.step(stream))?;
            if step % LOOK == 0 {
                losses.push(stream.download(&loss)?[0] / self.points as f32);
            }
        }
        Ok(losses)
    }

    /// Returns what the network says of each point: the side by its sign.
    pub fn answers(&self, stream: &Stream) -> Result<Vec<f32>> {
        stream.download(&self.layers[self.layers.len() - 1].values)
    }

    /// Enqueues one step of the training. Returns the sum of the squared errors before it, on the device.
    fn step(&mut self, stream: &Stream) -> Result<Buffer<f32>> {
        let Self { kernels, points, x, wanted, layers, ones, .. } = self;
        let (points, last) = (*points, layers.len() - 1);
        for index in 0..layers.len() {
            let (before, rest) = layers.split_at_mut(index);
            let Layer { inputs, outputs, weights, values, .. } = &mut rest[0];
            let input = before.last().map_or(&*x, |layer| &layer.values);
            let (input, split) = (MatrixView::new(input, points, *inputs)?, *inputs * *outputs);
            let (weight, bias) = (weights.slice(..split)?, weights.slice(split..)?);
            let weight = MatrixView::new(&weight, *inputs, *outputs)?;
            stream.gemm(input, weight, MatrixViewMut::new(values, points, *outputs)?)?;
            kernels.activate(stream, values, &bias, points, *outputs)?;
        }

        let Layer { values, errors, .. } = &mut layers[last];
        kernels.difference(stream, &*values, &*wanted, errors, points)?;
        let loss = stream.blas_dot(&*errors, &*errors)?;

        for index in (0..layers.len()).rev() {
            let (before, rest) = layers.split_at_mut(index);
            let Layer { inputs, outputs, weights, gradient, moves, values, errors } = &mut rest[0];
            let (n, split) = (points * *outputs, *inputs * *outputs);
            kernels.slope(stream, &*values, errors, n)?;
            let errors = MatrixView::new(&*errors, points, *outputs)?;
            let input = before.last().map_or(&*x, |layer| &layer.values);
            let (mut by_weight, mut by_bias) = gradient.split_at_mut(split)?;
            let mean = 1.0 / points as f32;
            stream.gemm_with(
                Gemm::new().alpha(mean),
                MatrixView::new(input, points, *inputs)?.t(),
                errors,
                MatrixViewMut::new(&mut by_weight, *inputs, *outputs)?,
            )?;
            stream.gemv(mean, errors.t(), &*ones, 0.0, &mut by_bias)?;
            if let Some(layer) = before.last_mut() {
                let weight = weights.slice(..split)?;
                let weight = MatrixView::new(&weight, *inputs, *outputs)?;
                stream.gemm(errors, weight.t(), MatrixViewMut::new(&mut layer.errors, points, *inputs)?)?;
            }
            let len = weights.len();
            kernels.update(stream, &*gradient, moves, weights, len, 0.05, 0.95)?;
        }
        Ok(loss)
    }
}
