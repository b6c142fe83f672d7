//! The network, one step of its training, and the sums of its gradients over the ranks.

use std::ops::Range;

use anyhow::{Result, ensure};
use examples::data_parallel::Kernels;
use examples::is_cpu;
use gpustream::{AsView, Buffer, Stream, Timeline, Trace};
use gpustream_collectives::{Communicator, Op};
use gpustream_kernels::reduce::Reduce as _;
use gpustream_kernels::{elementwise, matrix};

use crate::Args;

/// When gradients are summed over the ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// During the rest of the backward pass.
    Overlapped,
    /// While the backward pass waits.
    InTurn,
}

/// A layer's matrix of weights. It has a row for each input, one more for the bias, and a column for each output.
#[derive(Clone, Copy)]
struct Layer {
    /// The number of rows, including the bias.
    inputs: usize,
    outputs: usize,
    /// The index of the first weight in the weights of all layers.
    start: usize,
}

impl Layer {
    fn weights(&self) -> Range<usize> {
        self.start..self.start + self.inputs * self.outputs
    }

    /// Returns true for the last layer. It comes first in memory.
    fn is_last(&self) -> bool {
        self.start == 0
    }
}

/// A rank's copy of the network, and its samples.
pub(crate) struct Network<'a> {
    communicator: &'a Communicator,
    kernels: Kernels,
    matrices: matrix::Kernels,
    vectors: elementwise::Kernels,
    pub(crate) stream: Stream,
    /// The stream that sums gradients and updates weights.
    reduction: Stream,
    /// From the last layer to the first: in the order of the backward pass and of the memory.
    layers: Vec<Layer>,
    pub(crate) weights: Buffer<f32>,
    gradients: Buffer<f32>,
    /// How many samples all ranks have.
    pub(crate) samples: usize,
    /// How many samples this rank has.
    rows: usize,
    inputs: Buffer<f32>,
    answers: Buffer<f32>,
    /// The loss of each step, from this rank's samples.
    losses: Buffer<f32>,
    rate: f32,
    /// We sum gradients once there are at least this many.
    bucket: usize,
}

impl<'a> Network<'a> {
    pub(crate) fn new(communicator: &'a Communicator, args: &Args) -> Result<Self> {
        let (device, rank, ranks) = (communicator.device(), communicator.rank(), communicator.size());
        let pick =
            |given: Option<u32>, gpu, cpu| given.unwrap_or(if is_cpu(device) { cpu } else { gpu }) as usize;
        let (samples, width) = (pick(args.samples, 16_384, 1001), pick(args.width, 1024, 48));
        ensure!(ranks <= samples, "{ranks} ranks share {samples} samples: give more --samples");
        let (stream, reduction) = (device.stream()?, device.stream()?);

        let widths = std::iter::repeat_n(width, args.layers as usize);
        let (from, to) = ([2].into_iter().chain(widths.clone()), widths.chain([1]));
        let mut layers: Vec<_> =
            from.zip(to).map(|(inputs, outputs)| Layer { inputs: inputs + 1, outputs, start: 0 }).collect();
        layers.reverse();
        let mut end = 0;
        for layer in &mut layers {
            layer.start = end;
            end = layer.weights().end;
        }
        // All ranks begin with rank 0's weights.
        let mut weights = stream.zeros(end)?;
        if rank == 0 {
            let scattered = layers.iter().flat_map(|layer| {
                let largest = (3.0 / layer.inputs as f32).sqrt();
                layer.weights().map(move |i| largest * scattered(i * i, 0.618_033_988_749_894_9))
            });
            stream.upload_into(&scattered.collect::<Vec<_>>(), &mut weights)?;
        }
        communicator.broadcast(&stream, &mut weights, 0)?;

        let own = rank * samples / ranks..(rank + 1) * samples / ranks;
        let point = |i| [scattered(i, 0.754_877_7), scattered(i, 0.569_840_3)];
        let inputs: Vec<f32> = own.clone().map(point).flat_map(|[x, y]| [x, y, 1.0]).collect();
        let answers: Vec<f32> = own.clone().map(point).map(|[x, y]| x * y).collect();
        Ok(Self {
            kernels: Kernels::load(device)?,
            matrices: matrix::Kernels::load(device)?,
            vectors: elementwise::Kernels::load(device)?,
            layers,
            gradients: stream.zeros(end)?,
            weights,
            samples,
            rows: own.len(),
            inputs: stream.upload(&inputs)?,
            answers: stream.upload(&answers)?,
            losses: stream.zeros(args.steps as usize)?,
            rate: args.rate.unwrap_or((8.0 / width as f32).min(0.2)),
            bucket: args.bucket as usize * 1024 / size_of::<f32>(),
            communicator,
            stream,
            reduction,
        })
    }

    /// Submits one step of the training and does not wait for it, so the host can run ahead.
    pub(crate) fn step(&mut self, number: usize, order: Order) -> gpustream::Result<()> {
        let outputs = self.forward()?;
        self.backward(outputs, number, order)
    }

    /// Computes each layer's outputs, which are the next layer's inputs. The last layer's outputs are the prediction.
    fn forward(&self) -> gpustream::Result<Vec<Buffer<f32>>> {
        let (s, rows) = (&self.stream, self.rows);
        let mut outputs: Vec<Buffer<f32>> = Vec::new();
        for layer in self.layers.iter().rev() {
            let inputs = outputs.last().unwrap_or(&self.inputs);
            let weights = self.weights.slice(layer.weights())?;
            let mut sums = s.alloc(rows * layer.outputs)?;
            self.matrices.matmul(s, inputs, &weights, &mut sums, rows, layer.inputs, layer.outputs)?;
            if layer.is_last() {
                outputs.push(sums);
                continue;
            }
            let mut activated = s.alloc(rows * (layer.outputs + 1))?;
            self.kernels.activate(s, &sums, &mut activated, rows, layer.outputs)?;
            outputs.push(activated);
        }
        Ok(outputs)
    }

    /// Computes the loss, then the gradient of each layer from the last to the first. Passes gradients on to be summed
    /// whenever they fill a bucket.
    fn backward(
        &mut self,
        mut outputs: Vec<Buffer<f32>>,
        number: usize,
        order: Order,
    ) -> gpustream::Result<()> {
        let (s, rows) = (&self.stream, self.rows);
        // The gradient with respect to a layer's sums. The last layer's sums are the prediction.
        let Some(mut of_sums) = outputs.pop() else { return Ok(()) };
        self.kernels.difference(s, &self.answers, &mut of_sums, 1.0 / self.samples as f32, rows)?;
        let square = s.dot(&of_sums, &of_sums)?;
        s.copy(&square, &mut self.losses.slice_mut(number..=number)?)?;

        let mut bucket = 0..0;
        for layer in self.layers.clone() {
            let activated = outputs.pop();
            let inputs = activated.as_ref().unwrap_or(&self.inputs);
            // Copy the weights now, because this step may change them before the previous layer needs them.
            let weights =
                self.transposed(&self.weights.slice(layer.weights())?, layer.inputs, layer.outputs)?;
            let transposed = self.transposed(inputs, rows, layer.inputs)?;
            let mut gradient = self.gradients.slice_mut(layer.weights())?;
            self.matrices.matmul(
                &self.stream,
                &transposed,
                &of_sums,
                &mut gradient,
                layer.inputs,
                rows,
                layer.outputs,
            )?;
            bucket.end = layer.weights().end;
            if bucket.len() >= self.bucket || bucket.end == self.weights.len() {
                self.learn(bucket.clone(), order)?;
                bucket.start = bucket.end;
            }
            let Some(activated) = activated else { break };
            of_sums = self.gradient_before(&layer, &weights, &of_sums, &activated)?;
        }
        Ok(())
    }

    /// Computes the gradient with respect to the previous layer's sums. That layer's outputs are this layer's inputs.
    fn gradient_before(
        &self,
        layer: &Layer,
        weights: &Buffer<f32>,
        of_sums: &Buffer<f32>,
        inputs: &Buffer<f32>,
    ) -> gpustream::Result<Buffer<f32>> {
        let (s, rows) = (&self.stream, self.rows);
        let mut of_inputs = s.alloc(rows * layer.inputs)?;
        self.matrices.matmul(s, of_sums, weights, &mut of_inputs, rows, layer.outputs, layer.inputs)?;
        let width = layer.inputs - 1;
        let mut before = s.alloc(rows * width)?;
        self.kernels.deactivate(s, &of_inputs, inputs, &mut before, rows, width)?;
        Ok(before)
    }

    /// Sums the gradients of a bucket over the ranks, and updates its weights.
    fn learn(&mut self, bucket: Range<usize>, order: Order) -> gpustream::Result<()> {
        let (s, len) = (&self.reduction, bucket.len());
        if order == Order::InTurn {
            s.wait(&self.stream.record()?)?;
        }
        let mut gradients = self.gradients.slice_mut(bucket.clone())?;
        self.communicator.all_reduce_in_place(s, &mut gradients, Op::Sum)?;
        self.vectors.axpy(s, -self.rate, &gradients, &mut self.weights.slice_mut(bucket)?, len)?;
        if order == Order::InTurn {
            self.stream.wait(&s.record()?)?;
        }
        Ok(())
    }

    fn transposed(
        &self,
        matrix: &impl AsView<f32>,
        rows: usize,
        columns: usize,
    ) -> gpustream::Result<Buffer<f32>> {
        let mut transposed = self.stream.alloc(rows * columns)?;
        self.matrices.transpose(&self.stream, matrix, &mut transposed, rows, columns)?;
        Ok(transposed)
    }

    /// Returns each step's loss over all samples.
    pub(crate) fn losses(&mut self) -> Result<Vec<f32>> {
        let mut sums = self.stream.alloc(self.losses.len())?;
        self.communicator.all_reduce(&self.stream, &self.losses, &mut sums, Op::Sum)?;
        Ok(self.stream.download(&sums)?.into_iter().map(|sum| sum * self.samples as f32 / 2.0).collect())
    }

    /// Counts the weights whose bits are not the same on all ranks.
    pub(crate) fn different_weights(&self) -> Result<usize> {
        let bits = self.weights.cast::<u32>()?;
        let (mut least, mut largest) = (self.stream.alloc(bits.len())?, self.stream.alloc(bits.len())?);
        self.communicator.all_reduce(&self.stream, &bits, &mut least, Op::Min)?;
        self.communicator.all_reduce(&self.stream, &bits, &mut largest, Op::Max)?;
        let (least, largest) = (self.stream.download(&least)?, self.stream.download(&largest)?);
        Ok(least.iter().zip(&largest).filter(|(least, largest)| least != largest).count())
    }

    /// Trains for some more steps while rank 0's device is traced. Returns the timeline on rank 0, and `None` on the others.
    pub(crate) fn traced(&mut self, steps: usize, order: Order) -> Result<Option<Timeline>> {
        // Wait for the other ranks, because work that they still have could delay the first step.
        self.communicator.barrier(&self.stream)?;
        self.stream.synchronize()?;
        let first = self.communicator.rank() == 0;
        let trace = first.then(|| self.communicator.device().trace()).transpose()?;
        for _ in 0..steps {
            self.step(0, order)?;
        }
        self.stream.synchronize()?;
        self.reduction.synchronize()?;
        Ok(trace.map(Trace::stop).transpose()?)
    }
}

/// Returns number `i` of a sequence between -1 and 1. Numbers that follow each other are far apart.
fn scattered(i: usize, step: f64) -> f32 {
    (2.0 * (i as f64 * step).fract() - 1.0) as f32
}
