//! Convolutions and correlations are the sums that define them, in each mode.

use conformance::{refused, tests};
use gpustream::{Device, ErrorKind, Result, Stream};
use gpustream_math::Complex;
use gpustream_math::convolve::Convolvable;
use gpustream_math::prelude::*;

use crate::numbers::{Value, fractions};

tests! {
    Warps: convolutions_of_vectors_are_direct_sums, convolutions_of_matrices_are_direct_sums;
    Plain: large_convolutions_keep_the_bound, captures_and_steps_give_the_same_bits, plans_are_made_before_captures,
        inputs_that_do_not_fit_are_refused;
}

const MODES: [ConvolutionMode; 3] = [ConvolutionMode::Full, ConvolutionMode::Same, ConvolutionMode::Valid];

/// Computes the full result by its definition.
fn direct(x: &[f64], [h, w]: [usize; 2], y: &[f64], [p, q]: [usize; 2], is_correlation: bool) -> Vec<f64> {
    let columns = w + q - 1;
    let mut full = vec![0.0; (h + p - 1) * columns];
    for (i, j) in (0..h).flat_map(|i| (0..w).map(move |j| (i, j))) {
        for (k, l) in (0..p).flat_map(|k| (0..q).map(move |l| (k, l))) {
            let at = if is_correlation { (p - 1 - k) * q + q - 1 - l } else { k * q + l };
            full[(i + k) * columns + j + l] += x[i * w + j] * y[at];
        }
    }
    full
}

/// Returns where the part of a mode begins, and how long it is: `scipy.signal.convolve`.
fn part(mode: ConvolutionMode, n: usize, m: usize) -> (usize, usize) {
    match mode {
        ConvolutionMode::Full => (0, n + m - 1),
        ConvolutionMode::Same => ((m - 1) / 2, n),
        ConvolutionMode::Valid => (n.min(m) - 1, n.max(m) - n.min(m) + 1),
    }
}

fn wide<T: Value>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.wide().re).collect()
}

/// Checks each element against the bound of three transforms of n elements and one product, which is relative to the product of
/// both norms (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2).
#[track_caller]
fn close<T: Value>(got: &[T], want: &[f64], n: usize, (x, y): (&[f64], &[f64]), what: &str) {
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let bound = 3.0 * 20.0 * ((n as f64).log2() + 3.0) * T::ROUNDOFF * norm(x) * norm(y);
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let off = (got.wide().re - want).abs();
        assert!(
            off <= bound,
            "{what}: element {at} is {got:?}, not {want}: off by {off:e}, more than {bound:e}"
        );
    }
}

macro_rules! for_both {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f32>($($argument),*)?;
        $function::<f64>($($argument),*)
    }};
}

fn convolutions_of_vectors_are_direct_sums(device: &Device) -> Result<()> {
    fn of<T: Convolvable + Value>(s: &Stream) -> Result<()> {
        for (n, m) in [(1, 1), (5, 1), (1, 5), (7, 7), (8, 3), (3, 8), (100, 17), (17, 100), (33, 32)] {
            for (mode, is_correlation) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
                let (x, y) = (fractions::<T>(n * 2, 1), fractions::<T>(m * 3, 2));
                let (start, len) = part(mode, n, m);
                let z = fractions::<T>(len * 2 + 3, 3);
                let (dx, dy, mut dz) = (s.upload(&x)?, s.upload(&y)?, s.upload(&z)?);
                // Vectors with gaps.
                let vx = VectorView::with_step(&dx, n, 2)?;
                let vy = VectorView::with_step(&dy, m, 3)?;
                let vz = VectorViewMut::with_step(&mut dz, len, 2)?;
                if is_correlation {
                    s.correlate(mode, vx, vy, vz)?;
                } else {
                    s.convolve(mode, vx, vy, vz)?;
                }
                let x: Vec<_> = wide(&x).into_iter().step_by(2).collect();
                let y: Vec<_> = wide(&y).into_iter().step_by(3).collect();
                let full = direct(&x, [1, n], &y, [1, m], is_correlation);
                let got = s.download(&dz)?;
                let each: Vec<_> = got.iter().copied().step_by(2).take(len).collect();
                let what = format!("{n} and {m}, {mode:?}, correlation: {is_correlation}");
                close(&each, &full[start..start + len], n + m, (&x, &y), &what);
                let kept = |at: usize| at.is_multiple_of(2) && at / 2 < len || got[at] == z[at];
                assert!((0..z.len()).all(kept), "{what}: written between the elements");
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_both!(of(s))
}

fn convolutions_of_matrices_are_direct_sums(device: &Device) -> Result<()> {
    fn of<T: Convolvable + Value>(s: &Stream) -> Result<()> {
        let shapes = [
            ([1, 1], [1, 1]),
            ([5, 6], [3, 2]),
            ([3, 2], [5, 6]),
            ([9, 1], [4, 1]),
            ([1, 9], [1, 4]),
            ([20, 31], [7, 5]),
            ([4, 9], [6, 3]),
        ];
        for ((kind, (from, by)), mode) in
            shapes.into_iter().enumerate().flat_map(|shape| MODES.map(|mode| (shape, mode)))
        {
            let fits = |small: [usize; 2], large: [usize; 2]| small[0] <= large[0] && small[1] <= large[1];
            if mode == ConvolutionMode::Valid && !fits(from, by) && !fits(by, from) {
                continue;
            }
            let order = |bit: usize| if kind >> bit & 1 == 0 { Order::RowMajor } else { Order::ColumnMajor };
            let [(top, rows), (left, columns)] = [0, 1].map(|at| part(mode, from[at], by[at]));
            for is_correlation in [false, true] {
                let (x, y) = (fractions::<T>(from[0] * from[1], 1), fractions::<T>(by[0] * by[1], 2));
                let (dx, dy, mut dz) = (s.upload(&x)?, s.upload(&y)?, s.alloc::<T>(rows * columns)?);
                let mx = MatrixView::with_layout(&dx, Layout::new(from[0], from[1]).order(order(0)))?;
                let my = MatrixView::with_layout(&dy, Layout::new(by[0], by[1]).order(order(1)))?;
                let mz = MatrixViewMut::with_layout(&mut dz, Layout::new(rows, columns).order(order(2)))?;
                if is_correlation {
                    s.correlate_2d(mode, mx, my, mz)?;
                } else {
                    s.convolve_2d(mode, mx, my, mz)?;
                }
                let by_rows = |values: Vec<f64>, [rows, columns]: [usize; 2], order: Order| match order {
                    Order::RowMajor => values,
                    Order::ColumnMajor => (0..rows * columns)
                        .map(|at| values[at / columns + at % columns * rows])
                        .collect::<Vec<_>>(),
                };
                let (x, y) = (by_rows(wide(&x), from, order(0)), by_rows(wide(&y), by, order(1)));
                let full = direct(&x, from, &y, by, is_correlation);
                let width = from[1] + by[1] - 1;
                let want: Vec<_> = (0..rows * columns)
                    .map(|at| full[(top + at / columns) * width + left + at % columns])
                    .collect();
                let got = by_rows(wide(&s.download(&dz)?), [rows, columns], order(2));
                let got: Vec<T> =
                    got.into_iter().map(|value| <T as Value>::of(Complex::new(value, 0.0))).collect();
                let what = format!("{from:?} and {by:?}, {mode:?}, correlation: {is_correlation}");
                close(&got, &want, full.len() + 1, (&x, &y), &what);
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_both!(of(s))
}

/// A filter moves a wave by a few elements.
fn large_convolutions_keep_the_bound(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (n, m, shift) = (100_003, 1001, 700);
    let x = fractions::<f32>(n, 1);
    let mut y = vec![0.0f32; m];
    y[shift] = 1.0;
    let (dx, dy, mut dz) = (s.upload(&x)?, s.upload(&y)?, s.alloc::<f32>(n + m - 1)?);
    s.convolve(ConvolutionMode::Full, &dx, &dy, &mut dz)?;
    let want: Vec<_> = (0..n + m - 1)
        .map(|at| at.checked_sub(shift).and_then(|at| x.get(at)).copied().map_or(0.0, f64::from))
        .collect();
    close(&s.download(&dz)?, &want, n + m, (&wide(&x), &wide(&y)), "a filter that moves");
    Ok(())
}

fn captures_and_steps_give_the_same_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    gpustream_math::prepare(device)?;
    s.prepare_convolution::<f32>([20, 30], [3, 5])?;
    let (x, y) = (s.upload(&fractions::<f32>(600, 1))?, s.upload(&fractions::<f32>(15, 2))?);
    let work = |s: &Stream, z: &mut gpustream::Buffer<f32>| {
        let (x, y) = (MatrixView::new(&x, 20, 30)?, MatrixView::new(&y, 3, 5)?);
        s.correlate_2d(ConvolutionMode::Same, x, y, MatrixViewMut::new(z, 20, 30)?)
    };
    let mut z = s.alloc::<f32>(600)?;
    work(&s, &mut z)?;
    let plain = s.download(&z)?;
    let graph = s.capture(|s| work(s, &mut z))?;
    s.fill(&mut z, f32::NAN)?;
    graph.launch(&s)?;
    assert_eq!(s.download(&z)?, plain);
    let mut step = device.replay();
    for round in 0..5 {
        s.fill(&mut z, f32::NAN)?;
        step.run(&s, |s| work(s, &mut z))?;
        assert_eq!(s.download(&z)?, plain, "run {round}");
    }
    Ok(())
}

fn plans_are_made_before_captures(device: &Device) -> Result<()> {
    let s = device.stream()?;
    gpustream_math::prepare(device)?;
    // Lengths that no other test has.
    let (x, y, mut z) = (s.full(1500, 1.0f64)?, s.full(20, 0.5f64)?, s.alloc::<f64>(1481)?);
    let mut captured = || s.capture(|s| s.convolve(ConvolutionMode::Valid, &x, &y, &mut z));
    if device.info().backend != gpustream::BackendName::CPU {
        let error = captured().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
        assert!(error.to_string().contains("prepare_convolution"), "{error}");
    }
    s.prepare_convolution::<f64>([1, 1500], [1, 20])?;
    captured()?.launch(&s)?;
    assert!(s.download(&z)?.iter().all(|z| (z - 10.0).abs() < 1e-12));
    Ok(())
}

fn inputs_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    use ErrorKind::{ArgumentMismatch, InvalidArgument};
    let s = device.stream()?;
    let (x, y, none) = (s.zeros::<f32>(12)?, s.zeros::<f32>(12)?, s.zeros::<f32>(0)?);
    let mut z = s.zeros::<f32>(20)?;
    let full = ConvolutionMode::Full;
    refused(s.convolve(full, &x, &y, &mut z), ArgumentMismatch, &["1×12 and 1×12", "`Full` gives 1×23"]);
    refused(s.correlate(full, &x, &none, &mut z), InvalidArgument, &["at least one element"]);
    let (a, b) = (MatrixView::new(&x, 3, 4)?, MatrixView::new(&y, 4, 3)?);
    let to = MatrixViewMut::new(&mut z, 4, 5)?;
    refused(s.convolve_2d(ConvolutionMode::Valid, a, b, to), ArgumentMismatch, &["neither fits inside"]);
    let pair = MatrixView::with_layout(&x, Layout::new(2, 3).batch(2))?;
    let to = MatrixViewMut::new(&mut z, 4, 5)?;
    refused(s.convolve_2d(full, pair, b, to), ArgumentMismatch, &["batches of [2, 1, 1]"]);
    Ok(())
}
