//! `examples/math/src/network.rs` with cudarc.
//!
//! All work is in one stream. A capture must not wait for events of before, so cudarc's tracking is turned off.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use cudarc::cublas::sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, Gemv, GemvConfig};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::compile_ptx;
use math::network::LOOK;
use math::spirals::first_weights;

use super::for_nvrtc;

/// One layer: weights of inputs × outputs, a bias for each output, and what training needs for them.
struct Layer {
    inputs: usize,
    outputs: usize,
    /// The weights, then the biases.
    weights: CudaSlice<f32>,
    gradient: CudaSlice<f32>,
    moves: CudaSlice<f32>,
    /// What the layer gives for each point, and how the loss changes with that.
    values: CudaSlice<f32>,
    errors: CudaSlice<f32>,
}

impl Layer {
    fn new(stream: &Arc<CudaStream>, points: usize, inputs: usize, outputs: usize) -> Result<Self> {
        let n = (inputs + 1) * outputs;
        Ok(Self {
            inputs,
            outputs,
            weights: stream.clone_htod(&first_weights(inputs, outputs))?,
            gradient: stream.alloc_zeros(n)?,
            moves: stream.alloc_zeros(n)?,
            values: stream.alloc_zeros(points * outputs)?,
            errors: stream.alloc_zeros(points * outputs)?,
        })
    }
}

/// A network of three layers, and the points that it learns from.
pub(crate) struct Network {
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    activate: CudaFunction,
    slope: CudaFunction,
    difference: CudaFunction,
    update: CudaFunction,
    points: usize,
    x: CudaSlice<f32>,
    wanted: CudaSlice<f32>,
    layers: Vec<Layer>,
    ones: CudaSlice<f32>,
    loss: CudaSlice<f32>,
}

impl Network {
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        places: &[f32],
        sides: &[f32],
        width: usize,
    ) -> Result<Self> {
        // SAFETY: everything is used and freed on one stream.
        unsafe { context.disable_event_tracking() };
        let (stream, points) = (context.new_stream()?, sides.len());
        let module =
            context.load_module(compile_ptx(for_nvrtc(include_str!("../../../math/kernels/network.cu")))?)?;
        let layers = [(2, width), (width, width), (width, 1)];
        Ok(Self {
            blas: CudaBlas::new(stream.clone())?,
            activate: module.load_function("activate")?,
            slope: module.load_function("slope")?,
            difference: module.load_function("difference")?,
            update: module.load_function("update")?,
            points,
            x: stream.clone_htod(places)?,
            wanted: stream.clone_htod(sides)?,
            layers: layers
                .map(|(inputs, outputs)| Layer::new(&stream, points, inputs, outputs))
                .into_iter()
                .collect::<Result<_>>()?,
            ones: stream.clone_htod(&vec![1.0; points])?,
            loss: stream.alloc_zeros(1)?,
            stream,
        })
    }

    /// Trains the network. Returns the mean of the squared errors, before every [`LOOK`]th step.
    pub(crate) fn train(&mut self, steps: u32) -> Result<Vec<f32>> {
        // The first step is submitted as it is, because cuBLAS and the driver allocate in it. A capture would refuse that.
        self.step()?;
        let mut losses = vec![self.loss()?];
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let captured = self.step();
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0))?;
        captured?;
        let graph = graph.context("the capture has no graph")?;
        for step in 1..steps {
            // The graph has addresses alone: `self` keeps what it uses.
            graph.launch()?;
            if step % LOOK == 0 {
                losses.push(self.loss()?);
            }
        }
        self.stream.synchronize()?;
        Ok(losses)
    }

    fn loss(&self) -> Result<f32> {
        Ok(self.stream.clone_dtoh(&self.loss)?[0] / self.points as f32)
    }

    /// Returns what the network says of each point: the side by its sign.
    pub(crate) fn answers(&self) -> Result<Vec<f32>> {
        Ok(self.stream.clone_dtoh(&self.layers[self.layers.len() - 1].values)?)
    }

    /// Enqueues one step of the training. `loss` becomes the sum of the squared errors before it.
    fn step(&mut self) -> Result<()> {
        let Self { stream, blas, points, x, wanted, layers, ones, loss, .. } = self;
        let (points, last) = (*points, layers.len() - 1);
        for index in 0..layers.len() {
            let (before, rest) = layers.split_at_mut(index);
            let Layer { inputs, outputs, weights, values, .. } = &mut rest[0];
            let input = before.last().map_or(&*x, |layer| &layer.values);
            let (weight, bias) = weights.split_at(*inputs * *outputs);
            // SAFETY: the input is points × inputs, the weights are inputs × outputs, and the values points × outputs.
            unsafe {
                product(blas, 1.0, (input, false), (&weight, false), values, [points, *outputs, *inputs])
            }?;
            let mut launch = stream.launch_builder(&self.activate);
            launch.arg(values).arg(&bias).arg(&points).arg(&*outputs);
            // SAFETY: these are the kernel's parameters, and there are points × outputs values and a bias for each output.
            unsafe { launch.launch(covering_2d(*outputs, points)) }?;
        }

        let Layer { values, errors, .. } = &mut layers[last];
        let mut launch = stream.launch_builder(&self.difference);
        launch.arg(&*values).arg(&*wanted).arg(&mut *errors).arg(&points);
        // SAFETY: these are the kernel's parameters, and the last layer has one value for each point.
        unsafe { launch.launch(LaunchConfig::for_num_elems(points as u32)) }?;
        let size = i32::try_from(points)?;
        // The safe layer has no dot product, but a matrix of one column times a vector is one.
        let dot = GemvConfig {
            trans: CUBLAS_OP_T,
            m: size,
            n: 1,
            alpha: 1.0,
            lda: size,
            incx: 1,
            beta: 0.0,
            incy: 1,
        };
        // SAFETY: there are as many errors as points, and one loss.
        unsafe { blas.gemv(dot, &*errors, &*errors, loss) }?;

        for index in (0..layers.len()).rev() {
            let (before, rest) = layers.split_at_mut(index);
            let Layer { inputs, outputs, weights, gradient, moves, values, errors } = &mut rest[0];
            let n = points * *outputs;
            let mut launch = stream.launch_builder(&self.slope);
            launch.arg(&*values).arg(&mut *errors).arg(&n);
            // SAFETY: these are the kernel's parameters, and there are `n` values and errors.
            unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
            let input = before.last().map_or(&*x, |layer| &layer.values);
            let (mut by_weight, mut by_bias) = gradient.split_at_mut(*inputs * *outputs);
            let (mean, columns) = (1.0 / points as f32, i32::try_from(*outputs)?);
            // SAFETY: the input is points × inputs, the errors are points × outputs, and the gradient inputs × outputs.
            unsafe {
                product(
                    blas,
                    mean,
                    (input, true),
                    (&*errors, false),
                    &mut by_weight,
                    [*inputs, *outputs, points],
                )
            }?;
            let sum =
                GemvConfig { trans: CUBLAS_OP_N, m: columns, n: size, alpha: mean, lda: columns, ..dot };
            // SAFETY: the errors are points × outputs, there are as many ones as points, and as many biases as outputs.
            unsafe { blas.gemv(sum, &*errors, &*ones, &mut by_bias) }?;
            if let Some(layer) = before.last_mut() {
                let weight = weights.slice(..*inputs * *outputs);
                let shape = [points, *inputs, *outputs];
                // SAFETY: the errors are points × outputs, the weights inputs × outputs, and those before points × inputs.
                unsafe { product(blas, 1.0, (&*errors, false), (&weight, true), &mut layer.errors, shape) }?;
            }
            let (len, rate, momentum) = (weights.len(), 0.05f32, 0.95f32);
            let mut launch = stream.launch_builder(&self.update);
            launch.arg(&*gradient).arg(moves).arg(weights).arg(&len).arg(&rate).arg(&momentum);
            // SAFETY: these are the kernel's parameters, and there are `len` weights, moves and gradients.
            unsafe { launch.launch(LaunchConfig::for_num_elems(len as u32)) }?;
        }
        Ok(())
    }
}

/// c = alpha * a * b, for matrices whose rows follow each other. `true` transposes. c is m × n, and `k` is what is summed over.
/// cuBLAS expects columns that follow each other: to it each matrix is transposed, so it must multiply in the other order.
///
/// # Safety
/// The slices must have as many elements as the matrices.
unsafe fn product(
    blas: &CudaBlas,
    alpha: f32,
    (a, turn_a): (&impl DevicePtr<f32>, bool),
    (b, turn_b): (&impl DevicePtr<f32>, bool),
    c: &mut impl DevicePtrMut<f32>,
    [m, n, k]: [usize; 3],
) -> Result<()> {
    let turned = |turn| if turn { CUBLAS_OP_T } else { CUBLAS_OP_N };
    let (m, n, k) = (i32::try_from(m)?, i32::try_from(n)?, i32::try_from(k)?);
    let (lda, ldb) = (if turn_b { k } else { n }, if turn_a { m } else { k });
    let (transa, transb) = (turned(turn_b), turned(turn_a));
    let config = GemmConfig { transa, transb, m: n, n: m, k, alpha, lda, ldb, beta: 0.0, ldc: n };
    // SAFETY: the caller promises the lengths.
    Ok(unsafe { blas.gemm(config, b, a, c) }?)
}

fn covering_2d(width: usize, rows: usize) -> LaunchConfig {
    let grid_dim = (width.div_ceil(64) as u32, rows.div_ceil(4).min(65535) as u32, 1);
    LaunchConfig { grid_dim, block_dim: (64, 4, 1), shared_mem_bytes: 0 }
}
