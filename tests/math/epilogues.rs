//! A bias and an activation follow a product in the same call.

use std::any::type_name;

use conformance::{refused, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result, Stream};
use gpustream_math::Complex;
use gpustream_math::blas::{Finished, Product};
use gpustream_math::prelude::*;

use crate::numbers::{Value, fractions, whole};

tests! {
    Warps: biases_are_added_to_columns, activations_follow_the_bias, batches_share_a_bias, large_products_are_finished_everywhere;
    Plain: captures_and_steps_give_the_same_bits, biases_that_do_not_fit_are_refused;
}

macro_rules! for_all_results {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f32, f32>($($argument),*)?;
        $function::<f16, f16>($($argument),*)?;
        $function::<f16, f32>($($argument),*)?;
        $function::<bf16, bf16>($($argument),*)?;
        $function::<bf16, f32>($($argument),*)
    }};
}

const ACTIVATIONS: [Activation; 3] = [Activation::None, Activation::Relu, Activation::Gelu];

fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Gelu => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
    }
}

fn number<T: Value>(value: f64) -> T {
    T::of(Complex::new(value, 0.0))
}

/// Small whole numbers stay exact in every type.
fn biases_are_added_to_columns(device: &Device) -> Result<()> {
    fn of<A: Product<C, Scalar = f32> + Value, C: Finished + Value>(s: &Stream) -> Result<()> {
        for [m, n, k] in [[1, 1, 1], [5, 3, 4], [1, 9, 7], [70, 33, 20], [3, 130, 0]] {
            for order in [Order::RowMajor, Order::ColumnMajor] {
                for (step, activation) in
                    [(1, Activation::None), (3, Activation::Relu), (2, Activation::None)]
                {
                    let (a, b, bias) = (whole::<A>(m * k, 1), whole::<A>(k * n, 2), whole::<C>(n * step, 3));
                    let (lines, width) = if order == Order::RowMajor { (m, n) } else { (n, m) };
                    let leading = width + 2;
                    let c = whole::<C>(lines * leading, 4);
                    let (da, db, dbias) = (s.upload(&a)?, s.upload(&b)?, s.upload(&bias)?);
                    let mut dc = s.upload(&c)?;
                    let layer = Gemm::new()
                        .alpha(2.0)
                        .beta(-1.0)
                        .bias(VectorView::with_step(&dbias, n, step)?)
                        .activation(activation);
                    let to = Layout::new(m, n).order(order).leading(leading);
                    s.gemm_with(
                        layer,
                        MatrixView::new(&da, m, k)?,
                        MatrixView::new(&db, k, n)?,
                        MatrixViewMut::with_layout(&mut dc, to)?,
                    )?;
                    let mut want = c.clone();
                    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                        let at = if order == Order::RowMajor { i * leading + j } else { i + j * leading };
                        let sum: f64 = (0..k).map(|l| a[i * k + l].wide().re * b[l * n + j].wide().re).sum();
                        let value = 2.0 * sum - c[at].wide().re + bias[j * step].wide().re;
                        want[at] = number(activated(activation, value));
                    }
                    let what = format!("{} {m}×{n}×{k} {order:?} {step}", type_name::<(A, C)>());
                    assert_eq!(s.download(&dc)?, want, "{what}");
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_results!(of(s))
}

/// The derivatives of all activations are below 1.13, so the error grows by no more. A library may round the product and the sum
/// with the bias to the type of the results, each once, and compute `tanh` by the GPU's instruction, which has a relative error of
/// up to 2⁻¹¹ (PTX ISA, `tanh.approx`).
fn activations_follow_the_bias(device: &Device) -> Result<()> {
    fn of<A: Product<C, Scalar = f32> + Value, C: Finished + Value>(s: &Stream) -> Result<()> {
        let [m, n, k] = [37, 29, 50];
        let (a, b, bias) = (fractions::<A>(m * k, 1), fractions::<A>(k * n, 2), fractions::<C>(n, 3));
        let (da, db, dbias) = (s.upload(&a)?, s.upload(&b)?, s.upload(&bias)?);
        for activation in ACTIVATIONS {
            for with_bias in [false, true] {
                let mut dc = s.alloc::<C>(m * n)?;
                let mut layer = Gemm::new().activation(activation);
                if with_bias {
                    layer = layer.bias(&dbias);
                }
                s.gemm_with(
                    layer,
                    MatrixView::new(&da, m, k)?,
                    MatrixView::new(&db, k, n)?,
                    MatrixViewMut::new(&mut dc, m, n)?,
                )?;
                for (at, got) in s.download(&dc)?.into_iter().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let products = || (0..k).map(|l| a[i * k + l].wide().re * b[l * n + j].wide().re);
                    let offset = if with_bias { bias[j].wide().re } else { 0.0 };
                    let want = activated(activation, products().sum::<f64>() + offset);
                    let size = products().map(f64::abs).sum::<f64>() + offset.abs();
                    let bound = (k as f64 + 6.0) * f32::ROUNDOFF + 4.0 * C::ROUNDOFF;
                    let tanh = if activation == Activation::Gelu { size / 4096.0 } else { 0.0 };
                    let off = (got.wide().re - want).abs();
                    assert!(
                        off <= 1.13 * bound * size + tanh,
                        "{} {activation:?} {with_bias} ({i}, {j}): {got:?}, not {want}: {off:e} of {size:e}",
                        type_name::<(A, C)>()
                    );
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_results!(of(s))
}

fn batches_share_a_bias(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (m, n, k, batch, stride) = (4, 6, 5, 7, 31);
    let (a, b, bias) = (whole::<f32>(batch * m * k, 1), whole::<f32>(k * n, 2), whole::<f32>(n, 3));
    let (da, db, dbias) = (s.upload(&a)?, s.upload(&b)?, s.upload(&bias)?);
    let mut dc = s.full(batch * stride, -7.0f32)?;
    s.gemm_with(
        Gemm::new().bias(&dbias).activation(Activation::Relu),
        MatrixView::with_layout(&da, Layout::new(m, k).batch(batch))?,
        MatrixView::new(&db, k, n)?,
        MatrixViewMut::with_layout(&mut dc, Layout::new(m, n).batch(batch).stride(stride))?,
    )?;
    let want = |at: usize| {
        let (index, i, j) = (at / stride, at % stride / n, at % stride % n);
        if i >= m {
            return -7.0;
        }
        let sum: f32 = (0..k).map(|l| a[(index * m + i) * k + l] * b[l * n + j]).sum();
        (sum + bias[j]).max(0.0)
    };
    assert_eq!(s.download(&dc)?, (0..batch * stride).map(want).collect::<Vec<_>>());
    Ok(())
}

fn large_products_are_finished_everywhere(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let [m, n, k] = [517, 401, 300];
    let (a, b) = (s.full(m * k, 1.0f32)?, s.full(k * n, 0.5f32)?);
    let bias: Vec<f32> = (0..n).map(|j| j as f32 - 300.0).collect();
    let dbias = s.upload(&bias)?;
    let mut c = s.alloc::<f32>(m * n)?;
    let (a, b) = (MatrixView::new(&a, m, k)?, MatrixView::new(&b, k, n)?);
    let layer = Gemm::new().bias(&dbias).activation(Activation::Relu);
    s.gemm_with(layer, a, b, MatrixViewMut::new(&mut c, m, n)?)?;
    let want: Vec<_> = (0..m * n).map(|at| (150.0 + bias[at % n]).max(0.0)).collect();
    assert!(s.download(&c)? == want);
    Ok(())
}

fn captures_and_steps_give_the_same_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    gpustream_math::prepare(device)?;
    let [m, n, k] = [20, 30, 40];
    let (a, b) = (s.upload(&fractions::<f32>(m * k, 1))?, s.upload(&fractions::<f32>(k * n, 2))?);
    let bias = s.upload(&fractions::<f32>(n, 3))?;
    let (a, b) = (MatrixView::new(&a, m, k)?, MatrixView::new(&b, k, n)?);
    let work = |s: &Stream, c: &mut gpustream::Buffer<f32>, activation| {
        let layer = Gemm::new().bias(&bias).activation(activation);
        s.gemm_with(layer, a, b, MatrixViewMut::new(c, m, n)?)
    };
    let mut c = s.alloc::<f32>(m * n)?;
    let mut plain = Vec::new();
    for activation in [Activation::Gelu, Activation::Relu] {
        work(&s, &mut c, activation)?;
        plain.push(s.download(&c)?);
    }
    let graph = s.capture(|s| work(s, &mut c, Activation::Gelu))?;
    s.fill(&mut c, f32::NAN)?;
    graph.launch(&s)?;
    assert_eq!(s.download(&c)?, plain[0]);
    // A kind of product that first comes in a capture.
    let top = a.part(..7, ..)?;
    let mut first = s.alloc::<f32>(7 * n)?;
    let mut work_on_top = |s: &Stream| {
        let layer = Gemm::new().bias(&bias).activation(Activation::Gelu);
        s.gemm_with(layer, top, b, MatrixViewMut::new(&mut first, 7, n)?)
    };
    let graph = s.capture(|s| work_on_top(s))?;
    work_on_top(&s)?;
    let plain_top = s.download(&first)?;
    s.fill(&mut first, f32::NAN)?;
    graph.launch(&s)?;
    assert_eq!(s.download(&first)?, plain_top);
    let mut step = device.replay();
    for round in 0..8 {
        let which = usize::from(round >= 4);
        step.run(&s, |s| work(s, &mut c, [Activation::Gelu, Activation::Relu][which]))?;
        assert_eq!(s.download(&c)?, plain[which], "run {round}");
    }
    Ok(())
}

fn biases_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, bias, mut y) = (s.zeros::<f32>(12)?, s.zeros::<f32>(3)?, s.zeros::<f32>(16)?);
    let x = MatrixView::new(&x, 3, 4)?;
    let to = MatrixViewMut::new(&mut y, 4, 4)?;
    refused(
        s.gemm_with(Gemm::new().bias(&bias), x.t(), x, to),
        ErrorKind::ArgumentMismatch,
        &["a bias of 3 elements", "4 columns"],
    );
    Ok(())
}
