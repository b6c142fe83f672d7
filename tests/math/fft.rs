//! Fourier transforms are what the definition says, for each precision, length, dimension and spacing.

use std::f64::consts::TAU;

use conformance::{Random, refused, streams, tests};
use gpustream::half::f16;
use gpustream::{Buffer, Device, ErrorKind, Result, Stream};
use gpustream_math::Complex;
use gpustream_math::fft::Real;
use gpustream_math::prelude::*;

use crate::numbers::{Value, fractions};

tests! {
    Warps: complex_transforms_follow_the_definition, real_transforms_give_half, spacings_are_followed,
        transforms_in_place_are_the_same, inverse_transforms_keep_their_input;
    Plain: forward_and_back_multiplies_by_the_length, transforms_are_ordered_with_other_streams,
        captures_and_steps_give_the_same_bits, half_precision_has_its_limits, plans_are_made_before_captures, forgotten_plans_live_until_their_work_is_done,
        shapes_that_do_not_fit_are_refused, large_transforms_use_all_workers;
}

type C64 = Complex<f64>;

/// Computes a transform by its definition, one dimension after the other, in double precision.
fn reference(x: &[C64], lens: [usize; 3], direction: Direction) -> Vec<C64> {
    let sign = if direction == Direction::Forward { -1.0 } else { 1.0 };
    let [_, rows, columns] = lens;
    let steps = [rows * columns, columns, 1];
    let mut x = x.to_vec();
    for (len, step) in lens.into_iter().zip(steps) {
        let roots: Vec<_> = (0..len).map(|j| C64::cis(sign * TAU * j as f64 / len as f64)).collect();
        let from = x.clone();
        for (at, value) in x.iter_mut().enumerate() {
            let k = at / step % len;
            let first = at - k * step;
            *value = (0..len).map(|j| from[first + j * step] * roots[j * k % len]).sum();
        }
    }
    x
}

/// Checks a result against a reference by the root of the mean square, which for transforms of n elements in steps grows with
/// log n (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2). Lengths with large prime factors go through a
/// convolution of three longer transforms.
#[track_caller]
fn close<T: Value>(got: impl IntoIterator<Item = T>, want: &[C64], n: usize, what: &str) {
    let got: Vec<_> = got.into_iter().map(Value::wide).collect();
    assert_eq!(got.len(), want.len(), "{what}");
    let norm =
        |values: &mut dyn Iterator<Item = C64>| values.map(|value| value.norm_sqr()).sum::<f64>().sqrt();
    let off = norm(&mut got.iter().zip(want).map(|(got, want)| got - want));
    let size = norm(&mut want.iter().copied());
    let bound = 20.0 * ((n as f64).log2() + 3.0) * T::ROUNDOFF;
    assert!(off <= bound * size, "{what}: off by {off:e} of {size:e}, more than {bound:e}");
}

fn wide<T: Value>(x: &[T]) -> Vec<C64> {
    x.iter().map(|x| x.wide()).collect()
}

/// Powers of 2, other small factors, primes, and 1.
const SHAPES: [(usize, [usize; 3]); 12] = [
    (1, [1, 1, 1]),
    (1, [1, 1, 2]),
    (1, [1, 1, 7]),
    (1, [1, 1, 128]),
    (1, [1, 1, 360]),
    (1, [1, 1, 211]),
    (2, [1, 16, 32]),
    (2, [1, 5, 9]),
    (2, [1, 1, 12]),
    (3, [4, 8, 16]),
    (3, [3, 5, 7]),
    (3, [2, 1, 6]),
];

/// Returns the shapes that a device transforms in numbers of `T`. cuFFT has only powers of 2 for `f16`.
fn shapes<T: Real>() -> impl Iterator<Item = (usize, [usize; 3])> {
    let are_powers = |lens: &[usize; 3]| lens.iter().all(|len| len.is_power_of_two());
    SHAPES.into_iter().filter(move |(_, lens)| size_of::<T>() > 2 || are_powers(lens))
}

fn shape(rank: usize, [planes, rows, columns]: [usize; 3]) -> FftShape {
    match rank {
        1 => FftShape::new_1d(columns),
        2 => FftShape::new_2d(rows, columns),
        _ => FftShape::new_3d(planes, rows, columns),
    }
}

/// Returns the part of a transform that real numbers give.
fn half_of(whole: &[C64], columns: usize) -> Vec<C64> {
    whole.chunks_exact(columns).flat_map(|row| row[..=columns / 2].to_vec()).collect()
}

macro_rules! for_all {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f32>($($argument),*)?;
        $function::<f64>($($argument),*)?;
        $function::<f16>($($argument),*)
    }};
}

fn complex_transforms_follow_the_definition(device: &Device) -> Result<()> {
    fn of<T: Real + Value>(s: &Stream) -> Result<()>
    where
        Complex<T>: Value,
    {
        for (rank, lens) in shapes::<T>() {
            let n = lens.iter().product();
            for (batch, direction) in [(1, Direction::Forward), (3, Direction::Inverse)] {
                let x = fractions::<Complex<T>>(n * batch, n as u64);
                let (dx, mut dy) = (s.upload(&x)?, s.alloc::<Complex<T>>(n * batch)?);
                s.fft(&shape(rank, lens).batch(batch), direction, &dx, &mut dy)?;
                let want: Vec<_> =
                    wide(&x).chunks_exact(n).flat_map(|x| reference(x, lens, direction)).collect();
                close(s.download(&dy)?, &want, n, &format!("{lens:?} {batch} {direction:?}"));
                assert_eq!(s.download(&dx)?, x, "the input is kept");
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all!(of(s))
}

fn real_transforms_give_half(device: &Device) -> Result<()> {
    fn of<T: Real + Value>(s: &Stream) -> Result<()>
    where
        Complex<T>: Value,
    {
        for (rank, lens) in shapes::<T>() {
            let n: usize = lens.iter().product();
            for batch in [1, 3] {
                let shape = shape(rank, lens).batch(batch);
                let x = fractions::<T>(n * batch, n as u64);
                let (dx, mut dy) = (s.upload(&x)?, s.alloc::<Complex<T>>(shape.half_len())?);
                s.fft_real(&shape, &dx, &mut dy)?;
                let forward = |x: &[C64]| reference(x, lens, Direction::Forward);
                let want: Vec<_> =
                    wide(&x).chunks_exact(n).flat_map(|x| half_of(&forward(x), lens[2])).collect();
                close(s.download(&dy)?, &want, n, &format!("{lens:?} {batch}"));
                assert_eq!(s.download(&dx)?, x, "the input is kept");

                let mut back = s.alloc::<T>(n * batch)?;
                s.ifft_real(&shape, &dy, &mut back)?;
                let want: Vec<_> = wide(&x).iter().map(|x| x * n as f64).collect();
                close(s.download(&back)?, &want, n, &format!("back {lens:?} {batch}"));
                s.fill(&mut back, T::of(C64::new(f64::NAN, 0.0)))?;
                s.ifft_real_overwriting(&shape, &mut dy, &mut back)?;
                close(s.download(&back)?, &want, n, &format!("back, overwriting {lens:?} {batch}"));
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all!(of(s))
}

fn spacings_are_followed(device: &Device) -> Result<()> {
    fn of<T: Real + Value>(s: &Stream) -> Result<()>
    where
        Complex<T>: Value,
    {
        // Every column of a matrix of 24 × 10, out of place into rows.
        let x = fractions::<Complex<T>>(240, 1);
        let (dx, mut dy) = (s.upload(&x)?, s.alloc::<Complex<T>>(240)?);
        let columns = Spacing::new().step(10).distance(1);
        let shape = FftShape::new_1d(24).batch(10).input(columns);
        s.fft(&shape, Direction::Forward, &dx, &mut dy)?;
        let column = |j: usize| (0..24).map(|i| x[i * 10 + j].wide()).collect::<Vec<_>>();
        let transformed = |j| reference(&column(j), [1, 1, 24], Direction::Forward);
        let want: Vec<_> = (0..10).flat_map(transformed).collect();
        close(s.download(&dy)?, &want, 24, "columns into rows");

        // Where they are.
        let mut dx = s.upload(&x)?;
        s.fft_in_place(&shape, Direction::Forward, &mut dx)?;
        let want: Vec<_> = (0..240).map(|at| transformed(at % 10)[at / 10]).collect();
        close(s.download(&dx)?, &want, 24, "columns in place");

        // Boxes of 3 × 4 × 5 in arrays of 3 × 6 × 7, with every second element, and gaps between the two transforms. The result
        // goes into larger arrays as well, and what is between its elements stays.
        let (lens, batch) = ([3, 4, 5], 2);
        let input = Spacing::new().step(2).columns(7).rows(6).distance(300);
        let output = Spacing::new().columns(6).rows(5).distance(100);
        let shape = FftShape::new_3d(3, 4, 5).batch(batch).input(input).output(output);
        let (x, y) = (fractions::<Complex<T>>(600, 2), fractions::<Complex<T>>(200, 3));
        let (dx, mut dy) = (s.upload(&x)?, s.upload(&y)?);
        s.fft(&shape, Direction::Inverse, &dx, &mut dy)?;
        let places = || (0..60).map(|at| (at / 20, at / 5 % 4, at % 5));
        let got = s.download(&dy)?;
        let mut is_written = [false; 200];
        for b in 0..batch {
            let from: Vec<_> =
                places().map(|(z, y, x_)| x[b * 300 + ((z * 6 + y) * 7 + x_) * 2].wide()).collect();
            let to = places().map(|(z, y, x_)| b * 100 + (z * 5 + y) * 6 + x_).collect::<Vec<_>>();
            for at in &to {
                is_written[*at] = true;
            }
            let want = reference(&from, lens, Direction::Inverse);
            close(to.iter().map(|at| got[*at]), &want, 60, "boxes");
        }
        assert!((0..200).all(|at| is_written[at] || got[at] == y[at]), "written between the elements");

        // Real rows with gaps, and back.
        let shape = FftShape::new_2d(6, 9).input(Spacing::new().step(2).columns(10));
        let x = fractions::<T>(120, 4);
        let (dx, mut half) = (s.upload(&x)?, s.alloc::<Complex<T>>(6 * 5)?);
        s.fft_real(&shape, &dx, &mut half)?;
        let from: Vec<_> = (0..54).map(|at| x[(at / 9 * 10 + at % 9) * 2].wide()).collect();
        let want = half_of(&reference(&from, [1, 6, 9], Direction::Forward), 9);
        close(s.download(&half)?, &want, 54, "real rows with gaps");
        let back_shape = FftShape::new_2d(6, 9).output(Spacing::new().step(2).columns(10));
        let mut back = s.upload(&x)?;
        s.ifft_real(&back_shape, &half, &mut back)?;
        let want: Vec<_> = (0..120)
            .map(|at| if at % 2 == 0 && at / 2 % 10 < 9 { x[at].wide() * 54.0 } else { x[at].wide() })
            .collect();
        close(s.download(&back)?, &want, 54, "back to rows with gaps");
        Ok(())
    }
    let s = &device.stream()?;
    of::<f32>(s)?;
    of::<f64>(s)
}

fn transforms_in_place_are_the_same(device: &Device) -> Result<()> {
    fn of<T: Real + Value>(s: &Stream) -> Result<()>
    where
        Complex<T>: Value,
    {
        for (rank, lens) in shapes::<T>() {
            let (n, columns) = (lens.iter().product::<usize>(), lens[2]);
            let shape = shape(rank, lens).batch(2);
            let x = fractions::<Complex<T>>(2 * n, 5);
            let mut dx = s.upload(&x)?;
            s.fft_in_place(&shape, Direction::Forward, &mut dx)?;
            let forward = |x: &[C64]| reference(x, lens, Direction::Forward);
            let want: Vec<_> = wide(&x).chunks_exact(n).flat_map(forward).collect();
            close(s.download(&dx)?, &want, n, &format!("{lens:?}"));

            // Real rows, each with room for its half.
            let width = 2 * (columns / 2 + 1);
            let real = fractions::<T>(2 * n, 6);
            let mut padded = vec![T::of(C64::new(f64::NAN, 0.0)); 2 * n / columns * width];
            for (row, values) in real.chunks_exact(columns).enumerate() {
                padded[row * width..][..columns].copy_from_slice(values);
            }
            let mut memory = s.upload(&padded)?;
            s.fft_real_in_place(&shape, &mut memory)?;
            let want: Vec<_> =
                wide(&real).chunks_exact(n).flat_map(|x| half_of(&forward(x), columns)).collect();
            close(s.download(&memory.cast::<Complex<T>>()?)?, &want, n, &format!("real {lens:?}"));
            s.ifft_real_in_place(&shape, &mut memory)?;
            let back = s.download(&memory)?;
            let back = back.chunks_exact(width).flat_map(|row| row[..columns].to_vec());
            let want: Vec<_> = wide(&real).iter().map(|x| x * n as f64).collect();
            close(back, &want, n, &format!("back {lens:?}"));
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all!(of(s))
}

fn inverse_transforms_keep_their_input(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for (rank, lens) in SHAPES {
        let shape = shape(rank, lens).batch(2);
        // Only the halves of real transforms have real results, so make one.
        let x = s.upload(&fractions::<f32>(shape.len(), 1))?;
        let (mut half, mut back) = (s.alloc::<Complex<f32>>(shape.half_len())?, s.alloc::<f32>(shape.len())?);
        s.fft_real(&shape, &x, &mut half)?;
        let before = s.download(&half)?;
        s.ifft_real(&shape, &half, &mut back)?;
        assert_eq!(s.download(&half)?, before, "{lens:?}");
    }
    // Also if nothing has written the gaps between its elements.
    let shape = FftShape::new_2d(4, 8).input(Spacing::new().columns(9));
    let mut x = s.alloc::<Complex<f64>>(4 * 9)?;
    for row in 0..4 {
        s.fill(&mut x.slice_mut(row * 9..row * 9 + 5)?, Complex::new(f64::from(u8::from(row == 0)), 0.0))?;
    }
    let mut y = s.alloc::<f64>(32)?;
    s.ifft_real(&shape, &x, &mut y)?;
    assert!((s.download(&y)?[0] - 8.0).abs() < 1e-12);
    Ok(())
}

fn forward_and_back_multiplies_by_the_length(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 1 << 16;
    let x = fractions::<Complex<f32>>(n, 3);
    let (mut dx, mut dy) = (s.upload(&x)?, s.alloc(n)?);
    s.fft(&FftShape::new_1d(n), Direction::Forward, &dx, &mut dy)?;
    s.fft(&FftShape::new_1d(n), Direction::Inverse, &dy, &mut dx)?;
    let want: Vec<_> = wide(&x).iter().map(|x| x * n as f64).collect();
    close(s.download(&dx)?, &want, n, "there and back");
    Ok(())
}

fn transforms_are_ordered_with_other_streams(device: &Device) -> Result<()> {
    let [s, other] = streams(device)?;
    let shape = FftShape::new_1d(256).batch(4);
    let (mut x, mut y) = (s.zeros::<Complex<f32>>(1024)?, s.zeros::<Complex<f32>>(1024)?);
    for round in 1..20 {
        let value = Complex::new(round as f32, 0.0);
        s.fill(&mut x, value)?;
        other.fft(&shape, Direction::Forward, &x, &mut y)?;
        let got = s.download(&y)?;
        let want = |at: usize| if at.is_multiple_of(256) { value * 256.0 } else { Complex::new(0.0, 0.0) };
        assert!((0..1024).all(|at| (got[at] - want(at)).norm() < 1e-2), "round {round}");
    }
    Ok(())
}

fn captures_and_steps_give_the_same_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let kernels = gpustream_kernels::elementwise::Kernels::load(device)?;
    let shape = FftShape::new_2d(30, 40);
    s.prepare_fft::<f32>(&shape)?;
    let x = s.upload(&fractions::<f32>(1200, 1))?;
    let mut half = s.alloc::<Complex<f32>>(shape.half_len())?;
    let work = |s: &Stream, half: &mut Buffer<Complex<f32>>, y: &mut Buffer<f32>| {
        s.fft_real(&shape, &x, half)?;
        let len = 2 * half.len();
        kernels.scale(s, 1.0f32 / 1200.0, &mut half.cast_mut::<f32>()?, len)?;
        s.ifft_real(&shape, half, y)
    };
    let mut y = s.alloc::<f32>(1200)?;
    work(&s, &mut half, &mut y)?;
    let plain = s.download(&y)?;
    let graph = s.capture(|s| work(s, &mut half, &mut y))?;
    for _ in 0..3 {
        s.fill(&mut y, f32::NAN)?;
        graph.launch(&s)?;
        assert_eq!(s.download(&y)?, plain);
    }
    let mut step = device.replay();
    for round in 0..6 {
        s.fill(&mut y, f32::NAN)?;
        step.run(&s, |s| work(s, &mut half, &mut y))?;
        assert_eq!(s.download(&y)?, plain, "run {round}");
    }
    if device.info().backend != gpustream::BackendName::CPU && step.fallback().is_none() {
        assert_eq!(step.stats().segments, 1, "{:?}", step.stats());
    }
    Ok(())
}

fn half_precision_has_its_limits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let one = Complex::new(f16::ONE, f16::ZERO);
    // Other lengths than powers of 2 are right, or refused in words.
    let (x, mut y) = (s.full(2 * 12, one)?, s.full(2 * 12, one)?);
    let done = s.fft(&FftShape::new_1d(12).batch(2), Direction::Forward, &x, &mut y);
    match device.info().backend {
        gpustream::BackendName::CUDA => refused(done, ErrorKind::Unsupported, &["f16", "powers of 2"]),
        gpustream::BackendName::CPU => done?,
        _ => drop(done),
    }
    if device.info().backend == gpustream::BackendName::CPU {
        let want = |at: usize| if at.is_multiple_of(12) { f16::from_f32(12.0) } else { f16::ZERO };
        assert!(s.download(&y)?.iter().enumerate().all(|(at, y)| *y == Complex::new(want(at), f16::ZERO)));
    }
    // The sum of 2^17 ones is more than the greatest number of `f16`.
    let n = 1 << 17;
    let (x, mut y) = (s.full(n, one)?, s.full(n, one)?);
    s.fft(&FftShape::new_1d(n), Direction::Forward, &x, &mut y)?;
    assert!(!s.download(&y)?[0].re.is_finite());
    // Columns of a matrix, and a step that runs again.
    let shape = FftShape::new_1d(16).batch(8).input(Spacing::new().step(8).distance(1));
    let (x, mut y) = (s.full(128, one)?, s.full(128, one)?);
    let mut step = device.replay();
    for _ in 0..4 {
        s.fill(&mut y, one)?;
        step.run(&s, |s| s.fft(&shape, Direction::Forward, &x, &mut y))?;
        let want = |at: usize| if at.is_multiple_of(16) { f16::from_f32(16.0) } else { f16::ZERO };
        assert!(s.download(&y)?.iter().enumerate().all(|(at, y)| y.re == want(at)));
    }
    Ok(())
}

fn plans_are_made_before_captures(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, mut y) = (s.zeros::<Complex<f64>>(77)?, s.alloc::<Complex<f64>>(77)?);
    let shape = FftShape::new_1d(77);
    let captured = s.capture(|s| s.fft(&shape, Direction::Forward, &x, &mut y));
    if device.info().backend == gpustream::BackendName::CPU {
        return captured.map(drop);
    }
    let error = captured.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
    assert!(error.to_string().contains("prepare_fft"), "{error}");
    s.prepare_fft::<f64>(&shape)?;
    s.capture(|s| s.fft(&shape, Direction::Forward, &x, &mut y))?.launch(&s)?;
    assert_eq!(s.download(&y)?, [Complex::new(0.0, 0.0); 77]);
    Ok(())
}

fn forgotten_plans_live_until_their_work_is_done(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let shape = FftShape::new_1d(64).batch(2000);
    s.prepare_fft::<f32>(&shape)?;
    let x = s.full(shape.len(), Complex::new(1.0f32, 0.0))?;
    let (mut y, mut z) = (s.alloc(shape.len())?, s.zeros(shape.len())?);
    let graph = s.capture(|s| s.fft(&shape, Direction::Forward, &x, &mut z))?;
    for _ in 0..100 {
        s.fft(&shape, Direction::Forward, &x, &mut y)?;
    }
    // More shapes than a device keeps plans for, while the work is pending. We do not hold it back by a kernel that waits, because
    // a library loads kernels for a plan, and that waits for all kernels that run.
    let other = device.stream()?;
    for n in 100..180 {
        other.prepare_fft::<f32>(&FftShape::new_1d(n))?;
    }
    graph.launch(&s)?;
    let want = |at: usize| Complex::new(if at.is_multiple_of(64) { 64.0 } else { 0.0 }, 0.0);
    for got in [s.download(&y)?, s.download(&z)?] {
        assert!(got.iter().enumerate().all(|(at, got)| *got == want(at)));
    }
    Ok(())
}

fn shapes_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    use ErrorKind::{ArgumentMismatch, InvalidArgument};
    let s = device.stream()?;
    let (x, mut y) = (s.zeros::<Complex<f32>>(60)?, s.zeros::<Complex<f32>>(60)?);
    let mut real = s.zeros::<f32>(60)?;
    let forward = Direction::Forward;
    let fft = |shape: FftShape, y: &mut Buffer<_>| s.fft(&shape, forward, &x, y);
    refused(fft(FftShape::new_2d(6, 11), &mut y), ArgumentMismatch, &["6×11", "input ends 66", "has 60"]);
    refused(fft(FftShape::new_1d(61), &mut y), ArgumentMismatch, &["FFT of 61"]);
    refused(fft(FftShape::new_2d(0, 11), &mut y), InvalidArgument, &["at least 1"]);
    let twice = Spacing::new().distance(19);
    refused(fft(FftShape::new_1d(20).batch(3).output(twice), &mut y), InvalidArgument, &["same place"]);
    // An input may be read twice.
    fft(FftShape::new_1d(20).batch(3).input(twice), &mut y)?;
    fft(FftShape::new_1d(20).batch(0), &mut y)?;
    let shape = FftShape::new_1d(118);
    refused(s.ifft_real(&shape, &x, &mut real), ArgumentMismatch, &["output ends 118"]);
    refused(
        s.fft_real_in_place(&FftShape::new_1d(60), &mut real),
        ArgumentMismatch,
        &["FFT of 60", "ends 31", "has 30"],
    );
    s.fft_real_in_place(&FftShape::new_1d(58), &mut real)?;
    refused(s.ifft_real_in_place(&FftShape::new_1d(60), &mut real), ArgumentMismatch, &["ends 31", "has 30"]);
    Ok(())
}

fn large_transforms_use_all_workers(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (shape, n) = (FftShape::new_2d(257, 300), 257 * 300);
    // A few waves, whose transform is a few peaks.
    let mut random = Random(11);
    let peaks: Vec<_> = (0..5).map(|_| (random.below(257), random.below(300))).collect();
    let wave = |(p, q): (usize, usize), at: usize| {
        let turn = (p * (at / 300) % 257) as f64 / 257.0 + (q * (at % 300) % 300) as f64 / 300.0;
        C64::cis(TAU * turn)
    };
    let x: Vec<_> = (0..n).map(|at| peaks.iter().map(|peak| wave(*peak, at)).sum::<C64>()).collect();
    let (dx, mut dy) = (s.upload(&x)?, s.alloc(n)?);
    s.fft(&shape, Direction::Forward, &dx, &mut dy)?;
    let mut want = vec![C64::new(0.0, 0.0); n];
    for (p, q) in &peaks {
        want[p * 300 + q] += n as f64;
    }
    close(s.download(&dy)?, &want, n, "waves");
    Ok(())
}
