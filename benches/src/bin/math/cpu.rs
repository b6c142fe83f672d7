//! The rows of the CPU device: the crates that `gpustream-math` uses, called directly.

use std::thread;

use anyhow::Result;
use gpustream_kernels::gemm::{self as kernels, MultiplyMatrices as _};
use gpustream_math::Complex;
use gpustream_math::prelude::*;
use rustfft::FftPlanner;

use crate::{Bench, Time, multiply, numbers, upload};

/// An address for another thread.
#[derive(Clone, Copy)]
struct Sent<T>(*mut T);

// SAFETY: each thread uses its own part.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn at(self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

pub(crate) fn all(bench: &mut Bench<'_>) -> Result<()> {
    let threads = bench.device.info().multiprocessors as usize;
    let stream = bench.device.stream()?;
    let n = 1024;
    let operations = 2.0 * (n as f64).powi(3);
    let (x, y): (Vec<f32>, Vec<f32>) = (numbers(n * n).collect(), numbers(n * n).collect());
    let mut z = vec![0.0f32; n * n];
    let (a, b, mut c) =
        (upload(&stream, n * n, |x| x)?, upload(&stream, n * n, |x| x)?, stream.zeros(n * n)?);
    let mut bare = || {
        let step = n as isize;
        // SAFETY: three matrices of n × n.
        unsafe {
            gemm::gemm(
                n,
                n,
                n,
                z.as_mut_ptr(),
                1,
                step,
                false,
                x.as_ptr(),
                1,
                step,
                y.as_ptr(),
                1,
                step,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::Rayon(threads),
            );
        }
        Ok(())
    };
    let time = Time::Whole { calls: 1, operations };
    bench.row("gemm f32 1024", time, &mut bare, |s| multiply(s, n, 1, &a, &b, &mut c, Compute::Full))?;
    let product = kernels::Product::new(n, n, n);
    bench.row("multiply_matrices f32 1024", time, bare, |s| {
        Ok(s.multiply_matrices(&product, &a, &b, &mut c)?)
    })?;

    let (len, batch) = (4096, 512);
    let plan = FftPlanner::<f32>::new().plan_fft_forward(len);
    let from: Vec<Complex<f32>> = numbers(len * batch).map(Complex::from).collect();
    let mut to = from.clone();
    let bare = || {
        let (share, to) = (batch.div_ceil(threads), Sent(to.as_mut_ptr()));
        thread::scope(|scope| {
            for first in (0..batch).step_by(share) {
                let (plan, from) = (&plan, &from);
                scope.spawn(move || {
                    let mut scratch = vec![Complex::default(); plan.get_inplace_scratch_len()];
                    for line in first..(first + share).min(batch) {
                        // SAFETY: this line is this thread's.
                        let line_to = unsafe { std::slice::from_raw_parts_mut(to.at(line * len), len) };
                        line_to.copy_from_slice(&from[line * len..][..len]);
                        plan.process_with_scratch(line_to, &mut scratch);
                    }
                });
            }
        });
        Ok(())
    };
    let (shape, x) = (FftShape::new_1d(len).batch(batch), stream.upload(&from)?);
    let mut y = stream.zeros(len * batch)?;
    let time = Time::Whole { calls: 1, operations: 5.0 * (len * batch) as f64 * (len as f64).log2() };
    bench.row("fft 512 x 4096", time, bare, |s| Ok(s.fft(&shape, Direction::Forward, &x, &mut y)?))
}
