//! Products of matrices are right for any shape, order of storage, distance and batch, and leave everything else as it is.

use conformance::{Random, refused, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result, Stream};
use gpustream_kernels::gemm::{Activation, Multiply, Product, Stored};
use gpustream_kernels::prelude::*;

tests! {
    Warps: each_shape_and_order_is_right, batches_and_distances_are_respected, results_are_scaled_and_activated,
        special_values_pass_through, tiny_numbers_are_kept, empty_products_are_zero;
    Plain: bad_shapes_are_refused;
}

/// Elements, made of numbers between -1 and 1, or -100 and 100 if they are integers.
trait Element: Multiply<Output: PartialEq> {
    /// How much a result is rounded, relatively, and how much each sum.
    const ROUNDING: [f64; 2];
    fn of(x: f32) -> Self;
    fn output(x: f32) -> Self::Output;
    fn sum(x: f32) -> Self::Sum;
    fn to(self) -> f64;
    fn wide(x: Self::Output) -> f64;
}
macro_rules! elements {
    ($($type:ty: $output:ty, $sum:ty, $rounding:expr, $of:expr, $output_of:expr, $to:expr, $wide:expr;)*) => {$(
        impl Element for $type {
            const ROUNDING: [f64; 2] = $rounding;
            fn of(x: f32) -> Self {
                $of(x)
            }
            fn output(x: f32) -> $output {
                $output_of(x)
            }
            fn sum(x: f32) -> $sum {
                x as $sum
            }
            fn to(self) -> f64 {
                $to(self)
            }
            fn wide(x: $output) -> f64 {
                $wide(x)
            }
        }
    )*};
}
const OF_F32: f64 = f32::EPSILON as f64 / 2.0;
elements! {
    f16: f16, f32, [1.0 / 2048.0, OF_F32], f16::from_f32, f16::from_f32, f16::to_f64, f16::to_f64;
    bf16: bf16, f32, [1.0 / 256.0, OF_F32], bf16::from_f32, bf16::from_f32, bf16::to_f64, bf16::to_f64;
    i8: i32, i32, [0.0, 0.0], |x| (x * 100.0) as i8, |x| (x * 100.0) as i32, f64::from, f64::from;
    f32: f32, f32, [OF_F32, OF_F32], |x| x, |x| x, f64::from, f64::from;
    // What we compare with has the same error.
    f64: f64, f64, [f64::EPSILON, f64::EPSILON], f64::from, f64::from, |x| x, |x| x;
}

fn numbers<T>(random: &mut Random, n: usize, of: fn(f32) -> T) -> Vec<T> {
    (0..n).map(|_| of(random.below(2001) as f32 / 1000.0 - 1.0)).collect()
}

/// A product and where its matrices are.
struct Case {
    size: [usize; 3],
    batch: usize,
    by_columns: [bool; 2],
    /// How much longer lines of a, b and c are than they must be.
    gaps: [usize; 3],
    alpha: f32,
    beta: f32,
    has_bias: bool,
    activation: Activation,
    /// Puts an infinity into each matrix of a, and a NaN into each of b.
    is_special: bool,
    /// What each factor may be rounded by.
    input_rounding: f64,
}

impl Case {
    fn plain(size: [usize; 3], by_columns: [bool; 2]) -> Self {
        Self {
            size,
            batch: 1,
            by_columns,
            gaps: [0; 3],
            alpha: 1.0,
            beta: 0.0,
            has_bias: false,
            activation: Activation::None,
            is_special: false,
            input_rounding: 0.0,
        }
    }

    /// Computes the product on the device and in `f64`, and compares the whole memory of c.
    fn check<T: Element>(&self, s: &Stream) -> Result<()> {
        self.check_with::<T>(s, |product| product)
    }

    fn check_with<T: Element>(&self, s: &Stream, with: fn(Product<'_, T>) -> Product<'_, T>) -> Result<()> {
        let [m, n, k] = self.size;
        let [a_by_columns, b_by_columns] = self.by_columns;
        let mut random = Random(5);
        // The lines of each matrix, and from one matrix to the next there is a gap too.
        let place = |rows, columns, by_columns, gap| {
            let (lines, width) = if by_columns { (columns, rows) } else { (rows, columns) };
            (width + gap, lines * (width + gap) + gap)
        };
        let at =
            |(leading, stride): (usize, usize), z: usize, row: usize, column: usize, by_columns: bool| {
                z * stride + if by_columns { column * leading + row } else { row * leading + column }
            };
        let of_a = place(m, k, a_by_columns, self.gaps[0]);
        let of_b = place(k, n, b_by_columns, self.gaps[1]);
        let of_c = place(m, n, false, self.gaps[2]);
        // What is between the lines must not be used.
        let unused = T::of(if T::ROUNDING[0] == 0.0 { 0.77 } else { f32::NAN });
        let mut a = vec![unused; of_a.1 * self.batch];
        let mut b = vec![unused; of_b.1 * self.batch];
        for z in 0..self.batch {
            for i in 0..m * k {
                a[at(of_a, z, i / k, i % k, a_by_columns)] = numbers(&mut random, 1, T::of)[0];
            }
            for i in 0..k * n {
                b[at(of_b, z, i / n, i % n, b_by_columns)] = numbers(&mut random, 1, T::of)[0];
            }
            if self.is_special {
                a[at(of_a, z, (z + 1) * 31 % m, (z + 2) * 7 % k, a_by_columns)] = T::of(f32::INFINITY);
                b[at(of_b, z, (z + 3) * 5 % k, (z + 4) * 17 % n, b_by_columns)] = T::of(f32::NAN);
            }
        }
        let c = numbers(&mut random, of_c.1 * self.batch, T::output);
        let bias = numbers(&mut random, n, T::output);

        let stored = |by_columns, (leading, stride): (usize, usize)| {
            let stored = if by_columns { Stored::columns() } else { Stored::rows() };
            stored.leading(leading).stride(stride)
        };
        let (da, db, dbias, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.upload(&bias)?, s.upload(&c)?);
        let mut product = Product::new(m, n, k)
            .batch(self.batch)
            .a(stored(a_by_columns, of_a))
            .b(stored(b_by_columns, of_b))
            .c(stored(false, of_c))
            .alpha(T::sum(self.alpha))
            .beta(T::sum(self.beta))
            .activation(self.activation);
        if self.has_bias {
            product = product.bias(&dbias);
        }
        s.multiply_matrices(&with(product), &da, &db, &mut dc)?;
        let found = s.download(&dc)?;

        let mut is_result = vec![false; c.len()];
        for z in 0..self.batch {
            for (row, column) in (0..m * n).map(|i| (i / n, i % n)) {
                let (mut sum, mut sizes) = (0.0, 0.0);
                for q in 0..k {
                    let x = a[at(of_a, z, row, q, a_by_columns)].to()
                        * b[at(of_b, z, q, column, b_by_columns)].to();
                    sum += x;
                    sizes += x.abs();
                }
                let i = at(of_c, z, row, column, false);
                let mut want = f64::from(self.alpha) * sum + f64::from(self.beta) * T::wide(c[i]);
                if self.has_bias {
                    want += T::wide(bias[column]);
                }
                // The bound of a sum of k products, and of four more operations.
                let unit = T::ROUNDING[1];
                let of_sum = sizes * (k as f64 * unit + 2.0 * self.input_rounding);
                let error = f64::from(self.alpha.abs()) * of_sum + 8.0 * unit * (1.0 + want.abs());
                let want = activated(want, self.activation);
                // The activations are no steeper than 1.13, and the result is rounded once.
                let room = 1.13 * error + want.abs() * T::ROUNDING[0];
                let found = T::wide(found[i]);
                let difference = (found - want).abs();
                let is_same = found == want || found.is_nan() && want.is_nan();
                assert!(
                    is_same || difference <= room && want.is_finite(),
                    "{} {:?} {:?} gaps {:?}: {found} instead of {want} at ({row}, {column}) of {z}, not within {room}",
                    std::any::type_name::<T>(),
                    self.size,
                    self.by_columns,
                    self.gaps,
                );
                is_result[i] = true;
            }
        }
        for (i, _) in is_result.iter().enumerate().filter(|(_, is_result)| !**is_result) {
            assert!(found[i] == c[i], "element {i} between the lines of c has changed: {:?}", self.size);
        }
        Ok(())
    }
}

/// Returns f(x), with the error function by its series for small arguments, which the tests use.
fn activated(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Relu => x.max(0.0),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        _ => x,
    }
}

/// Abramowitz and Stegun, 7.1.6.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp()
}

const ORDERS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

fn each_shape_and_order_is_right(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let sizes = [1, 7, 17, 129];
    for (i, by_columns) in ORDERS.into_iter().enumerate() {
        for j in 0..12 {
            let size = [sizes[j % 4], sizes[(j + j / 4) % 4], sizes[(i + 3 * j) % 4]];
            Case::plain(size, by_columns).check::<f16>(&s)?;
        }
        // A few more than 4096 in one direction.
        for size in [[4099, 7, 17], [1, 4099, 129], [7, 17, 4099]] {
            Case::plain(size, by_columns).check::<f16>(&s)?;
            Case { is_special: true, ..Case::plain(size, by_columns) }.check::<bf16>(&s)?;
        }
        for size in [
            [1, 7, 17],
            [17, 129, 1],
            [40, 33, 129],
            [129, 17, 7],
            [64, 64, 160],
            [7, 1, 4099],
            [4099, 17, 7],
        ] {
            Case::plain(size, by_columns).check::<i8>(&s)?;
            Case::plain(size, by_columns).check::<f32>(&s)?;
            Case { is_special: true, ..Case::plain(size, by_columns) }.check::<f32>(&s)?;
            Case::plain(size, by_columns).check::<f64>(&s)?;
            Case { is_special: true, ..Case::plain(size, by_columns) }.check::<f64>(&s)?;
        }
        // Whole tiles, and more steps than stages.
        Case::plain([64, 128, 256], by_columns).check::<f16>(&s)?;
        Case::plain([300, 40, 72], by_columns).check::<bf16>(&s)?;
        Case::plain([33, 31, 300], by_columns).check::<bf16>(&s)?;
    }
    Ok(())
}

fn batches_and_distances_are_respected(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for by_columns in ORDERS {
        // Lines on boundaries of 16 bytes with a part of a piece at the end, of 4 bytes, and of 2.
        for (gaps, size) in [([4, 4, 4], [20, 36, 44]), ([2, 6, 2], [40, 24, 48]), ([1, 3, 5], [20, 30, 40])]
        {
            Case { batch: 3, gaps, ..Case::plain(size, by_columns) }.check::<f16>(&s)?;
        }
    }
    // So many tiles that GPUs take large ones.
    for by_columns in ORDERS {
        Case { batch: 200, gaps: [8, 0, 3], ..Case::plain([8, 16, 72], by_columns) }.check::<f16>(&s)?;
        Case { batch: 200, gaps: [0, 8, 8], ..Case::plain([16, 24, 8], by_columns) }.check::<bf16>(&s)?;
    }
    // Large tiles of the other types, on boundaries of 16 bytes and not.
    for by_columns in ORDERS {
        Case { batch: 200, gaps: [16, 0, 1], ..Case::plain([16, 32, 48], by_columns) }.check::<i8>(&s)?;
        Case { batch: 200, gaps: [4, 3, 1], ..Case::plain([6, 9, 38], by_columns) }.check::<f32>(&s)?;
        Case { batch: 200, gaps: [0, 4, 0], ..Case::plain([12, 8, 40], by_columns) }.check::<f32>(&s)?;
        Case { batch: 200, gaps: [2, 0, 1], ..Case::plain([6, 12, 38], by_columns) }.check::<f64>(&s)?;
        // More rows, columns and depth than the loops on the CPU take at once.
        Case::plain([400, 300, 530], by_columns).check::<f32>(&s)?;
        for (gaps, size) in [([0, 0, 0], [24, 16, 72]), ([1, 0, 3], [9, 35, 14])] {
            let rounded = 1.0 / 2048.0;
            let case = Case { batch: 200, gaps, input_rounding: rounded, ..Case::plain(size, by_columns) };
            #[expect(
                clippy::redundant_closure_for_method_calls,
                reason = "the method is of a product with one lifetime"
            )]
            case.check_with::<f32>(&s, |product| product.allow_tf32())?;
        }
    }
    // So many that Hopper takes its tiles too: with parts of them at every border, and with more steps than stages. The matrices'
    // distances are no multiples of those of lines.
    for by_columns in ORDERS {
        Case { batch: 12, gaps: [8, 16, 3], ..Case::plain([136, 264, 8], by_columns) }.check::<f16>(&s)?;
        let deep = Case { batch: 48, gaps: [16, 8, 0], ..Case::plain([24, 16, 328], by_columns) };
        deep.check::<bf16>(&s)?;
        Case { is_special: true, ..deep }.check::<f16>(&s)?;
    }
    // The same b for each product.
    let (a, b) =
        (numbers(&mut Random(1), 3 * 6 * 8, f16::from_f32), numbers(&mut Random(2), 8 * 5, f16::from_f32));
    let (da, db) = (s.upload(&a)?, s.upload(&b)?);
    let (mut together, mut whole) = (s.alloc(3 * 6 * 5)?, s.alloc(3 * 6 * 5)?);
    s.multiply_matrices(
        &Product::new(6, 5, 8).batch(3).b(Stored::rows().stride(0)),
        &da,
        &db,
        &mut together,
    )?;
    s.multiply_matrices(&Product::new(18, 5, 8), &da, &db, &mut whole)?;
    assert_eq!(s.download(&together)?, s.download(&whole)?);
    Ok(())
}

fn results_are_scaled_and_activated(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for (i, activation) in [Activation::None, Activation::Relu, Activation::Gelu].into_iter().enumerate() {
        for (alpha, beta) in [(1.0, 1.0), (-0.5, 0.0), (0.25, -2.0)] {
            let plain = Case::plain([37, 24 + i, 16], [false, true]);
            let case = Case { alpha, beta, has_bias: alpha != 1.0, activation, ..plain };
            case.check::<f16>(&s)?;
            case.check::<bf16>(&s)?;
            case.check::<f32>(&s)?;
            case.check::<f64>(&s)?;
        }
    }
    let plain = Case::plain([37, 24, 16], [false, true]);
    Case { alpha: -2.0, beta: 3.0, has_bias: true, activation: Activation::Relu, ..plain }.check::<i8>(&s)?;
    // The sums wrap around.
    let factors = s.upload(&[100_i8; 64])?;
    let mut c = s.upload(&[7])?;
    s.multiply_matrices(&Product::new(1, 1, 64).alpha(1 << 20).beta(-1), &factors, &factors, &mut c)?;
    assert_eq!(s.download(&c)?, [(640_000_i32).wrapping_mul(1 << 20).wrapping_sub(7)]);
    Ok(())
}

fn special_values_pass_through(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (mut a, b) = (vec![f16::ONE; 4 * 20], vec![f16::ONE; 20 * 3]);
    a[0] = f16::INFINITY;
    a[20] = f16::NAN;
    (a[40], a[41]) = (f16::INFINITY, f16::NEG_INFINITY);
    a[60..80].fill(f16::MAX);
    // With beta = 0, what c holds does not matter.
    let mut c = s.upload(&[f16::NAN; 12])?;
    s.multiply_matrices(
        &Product::new(4, 3, 20).activation(Activation::Relu),
        &s.upload(&a)?,
        &s.upload(&b)?,
        &mut c,
    )?;
    let found = s.download(&c)?;
    assert_eq!(found[..3], [f16::INFINITY; 3]);
    assert!(found[3..9].iter().all(|x| x.is_nan()), "{found:?}");
    assert_eq!(found[9..], [f16::INFINITY; 3], "beyond the largest f16");
    Ok(())
}

/// Matrix cores and ordinary arithmetic multiply numbers below the smallest normal one, and round to such numbers.
fn tiny_numbers_are_kept(device: &Device) -> Result<()> {
    fn check<T: Element<Output = T> + PartialEq>(
        s: &Stream,
        [m, n, k]: [usize; 3],
        tiny: f32,
        factor: f32,
        want: f32,
    ) -> Result<()> {
        // One product in each sum is not zero.
        let mut a = vec![T::of(0.0); m * k];
        (0..m).for_each(|row| a[row * k + row % k] = T::of(tiny));
        let mut c = s.alloc(m * n)?;
        let b = s.upload(&vec![T::of(factor); k * n])?;
        s.multiply_matrices(&Product::new(m, n, k), &s.upload(&a)?, &b, &mut c)?;
        let found = s.download(&c)?;
        assert!(found.iter().all(|&x| x == T::of(want)), "{} for {tiny} by {factor}", found[0].to());
        Ok(())
    }
    // AMD documents that the matrix cores of MI200 take such 16-bit numbers as zero.
    if device.info().arch.starts_with("gfx90a") {
        return Ok(());
    }
    let s = device.stream()?;
    for size in [[5, 9, 40], [2200, 16, 40]] {
        // f16 has 24 bits after the point, and bf16 the exponents of f32.
        let (smallest, below) = (2.0_f32.powi(-24), 2.0_f32.powi(-130));
        check::<f16>(&s, size, 3.0 * smallest, 1.0, 3.0 * smallest)?;
        check::<f16>(&s, size, 5.0 * smallest, 1024.0, 5.0 * 1024.0 * smallest)?;
        check::<f16>(&s, size, 2.0_f32.powi(-12), 2.0_f32.powi(-11), 2.0 * smallest)?;
        check::<bf16>(&s, size, 3.0 * below, 1024.0, 3.0 * 1024.0 * below)?;
        check::<f32>(&s, size, 3.0 * below, 1024.0, 3.0 * 1024.0 * below)?;
        check::<f64>(&s, size, 3.0 * below, 1024.0, 3.0 * 1024.0 * below)?;
    }
    Ok(())
}

fn empty_products_are_zero(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let none = s.alloc::<f16>(0)?;
    let mut c = s.upload(&[f16::ONE; 6])?;
    s.multiply_matrices(&Product::new(0, 3, 4), &none, &s.zeros(12)?, &mut c)?;
    s.multiply_matrices(&Product::new(2, 3, 0).batch(0), &none, &none, &mut c)?;
    assert_eq!(s.download(&c)?, [f16::ONE; 6]);
    let bias = s.upload(&[f16::ONE, f16::ZERO, f16::NEG_ONE])?;
    s.multiply_matrices(&Product::new(2, 3, 0).beta(2.0).bias(&bias), &none, &none, &mut c)?;
    let found: Vec<f64> = s.download(&c)?.into_iter().map(f16::to_f64).collect();
    assert_eq!(found, [3.0, 2.0, 1.0, 3.0, 2.0, 1.0]);
    s.multiply_matrices(&Product::new(2, 3, 0), &none, &none, &mut c)?;
    assert_eq!(s.download(&c)?, [f16::ZERO; 6]);
    Ok(())
}

fn bad_shapes_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (a, b, mut c) = (s.zeros::<f16>(12)?, s.zeros(12)?, s.zeros(9)?);
    let product = Product::new(3, 3, 4);
    s.multiply_matrices(&product, &a, &b, &mut c)?;
    let mut refuse = |product: &Product<'_, f16>, kind, text| {
        refused(s.multiply_matrices(product, &a, &b, &mut c), kind, &[text]);
    };
    refuse(
        &Product::new(3, 3, 5),
        ErrorKind::ArgumentMismatch,
        "a has 12 elements, but the product needs 15",
    );
    refuse(
        &product.clone().batch(2),
        ErrorKind::ArgumentMismatch,
        "a has 12 elements, but the product needs 24",
    );
    refuse(
        &product.clone().b(Stored::columns().leading(3)),
        ErrorKind::InvalidArgument,
        "lines of 4 elements",
    );
    refuse(&product.clone().c(Stored::columns()), ErrorKind::InvalidArgument, "compute its transpose");
    refuse(&Product::new(1, 1, 2_000_000_000), ErrorKind::InvalidArgument, "give at most 1000000000");
    refuse(
        &Product::new(1, 1, 4).batch(2).c(Stored::rows().stride(0)),
        ErrorKind::InvalidArgument,
        "0 from one to the next",
    );
    let bytes = s.zeros::<i8>(1)?;
    let integers = Product::new(1, 1, 1).activation(Activation::Gelu);
    refused(
        s.multiply_matrices(&integers, &bytes, &bytes, &mut s.zeros(1)?),
        ErrorKind::InvalidArgument,
        &["gelu has no meaning"],
    );
    let bias = s.zeros(2)?;
    refuse(&product.bias(&bias), ErrorKind::ArgumentMismatch, "the bias has 2 elements");
    Ok(())
}
