//! Matrix cores multiply as plain Rust does, for each type, order of storage and depth, by a warp and by a block.

use conformance::matrix_cores::{HasMultiplyTwice, Kernels};
use conformance::{Random, group_products, tests, with_stream};
use gpustream::half::{bf16, f16};
use gpustream::{Arg, Device, Kernel, Launch, Plain, Result, Stream};

tests! {
    Warps: each_type_multiplies_like_plain_rust, special_values_follow_ieee, sums_become_factors,
        elements_say_where_they_are, blocks_multiply_tiles_in_each_order,
        tiles_may_be_those_of_hopper;
}

const SIDE: usize = 16;

/// Rows and columns of the products by a block.
const TILE: usize = 32;

/// One warp.
fn warp(device: &Device) -> Launch {
    Launch::exact([1, 1, 1], [device.info().warp_size, 1, 1])
}

/// Element types, with small integers as values, so that sums are exact in any order.
trait Element: Plain + PartialEq {
    type Sum: Plain + PartialEq + std::fmt::Debug;
    const DEPTH: usize;
    fn of(value: i8) -> Self;
    fn sum(value: i32) -> Self::Sum;
    fn launch(
        kernels: &Kernels,
        s: &Stream,
        x: &[Self],
        y: &[Self],
        c: &[Self::Sum],
        transposed: bool,
    ) -> Result<Vec<Self::Sum>>;
    fn tiles(
        kernels: &Kernels,
        s: &Stream,
        x: &[Self],
        y: &[Self],
        by_columns: [bool; 2],
    ) -> Result<Vec<Self::Sum>>;
}

macro_rules! elements {
    ($($type:ty, $depth:literal: $sum:ty, $kernel:ident, $tiles:ident, $of:expr;)*) => {$(
        impl Element for $type {
            type Sum = $sum;
            const DEPTH: usize = $depth;
            fn of(value: i8) -> Self {
                $of(value)
            }
            fn sum(value: i32) -> $sum {
                value as $sum
            }
            fn launch(
                kernels: &Kernels,
                s: &Stream,
                x: &[Self],
                y: &[Self],
                c: &[$sum],
                transposed: bool,
            ) -> Result<Vec<$sum>> {
                let (dx, dy, mut dc) = (s.upload(x)?, s.upload(y)?, s.upload(c)?);
                let steps = (x.len() / SIDE / $depth) as i32;
                kernels.$kernel(s, &warp(s.device()), &dx, &dy, &mut dc, steps, transposed)?;
                s.download(&dc)
            }
            fn tiles(
                kernels: &Kernels,
                s: &Stream,
                x: &[Self],
                y: &[Self],
                [a, b]: [bool; 2],
            ) -> Result<Vec<$sum>> {
                let mut out = s.alloc(TILE * TILE)?;
                let launch = Launch::exact([1, 1, 1], [2 * s.device().info().warp_size, 1, 1]);
                kernels.$tiles(s, &launch, &s.upload(x)?, &s.upload(y)?, &mut out, a, b)?;
                s.download(&out)
            }
        }
    )*};
}
elements! {
    f16, 16: f32, multiply_halves, half_tiles, |value| f16::from_f32(f32::from(value));
    bf16, 16: f32, multiply_halves, half_tiles, |value| bf16::from_f32(f32::from(value));
    i8, 32: i32, multiply_bytes, byte_tiles, |value| value;
    f32, 8: f32, multiply_floats, float_tiles, f32::from;
    f64, 4: f64, multiply_doubles, double_tiles, f64::from;
}

fn each_type_multiplies_like_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    multiplies::<f16>(&kernels, &s)?;
    multiplies::<bf16>(&kernels, &s)?;
    multiplies::<i8>(&kernels, &s)?;
    multiplies::<f32>(&kernels, &s)?;
    multiplies::<f64>(&kernels, &s)
}

fn multiplies<T: Element>(kernels: &Kernels, s: &Stream) -> Result<()> {
    let mut random = Random(7);
    for steps in [1, 2, 5] {
        let depth = steps * T::DEPTH;
        let mut numbers = |n: usize| -> Vec<i8> { (0..n).map(|_| random.below(31) as i8 - 15).collect() };
        let (x, y, c) = (numbers(SIDE * depth), numbers(depth * SIDE), numbers(SIDE * SIDE));
        for transposed in [false, true] {
            let at = |row: usize, column: usize, rows: usize, columns: usize| {
                if transposed { column * rows + row } else { row * columns + column }
            };
            let want: Vec<T::Sum> = (0..SIDE * SIDE)
                .map(|i| {
                    let (row, column) = if transposed { (i % SIDE, i / SIDE) } else { (i / SIDE, i % SIDE) };
                    let product =
                        |k| i32::from(x[at(row, k, SIDE, depth)]) * i32::from(y[at(k, column, depth, SIDE)]);
                    T::sum(i32::from(c[i]) + (0..depth).map(product).sum::<i32>())
                })
                .collect();
            let of = |numbers: &[i8]| numbers.iter().map(|&number| T::of(number)).collect::<Vec<T>>();
            let c: Vec<T::Sum> = c.iter().map(|&number| T::sum(number.into())).collect();
            let found = T::launch(kernels, s, &of(&x), &of(&y), &c, transposed)?;
            assert_eq!(
                found,
                want,
                "{} of depth {depth}, transposed: {transposed}",
                std::any::type_name::<T>()
            );
        }
    }
    Ok(())
}

fn special_values_follow_ieee(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut x, mut y) = (vec![f16::ONE; 256], vec![f16::ONE; 256]);
    // Row 0 has an infinity, row 1 a NaN, row 2 infinities of both signs, and row 3 numbers below the smallest normal one.
    x[0] = f16::INFINITY;
    x[SIDE] = f16::NAN;
    (x[2 * SIDE], x[2 * SIDE + 1]) = (f16::INFINITY, f16::NEG_INFINITY);
    x[3 * SIDE..4 * SIDE].fill(f16::from_bits(1));
    y[5] = f16::ZERO;
    let found = f16::launch(&kernels, &s, &x, &y, &[0.0; 256], false)?;
    assert_eq!(found[1], f32::INFINITY);
    assert!(found[5].is_nan(), "infinity times zero");
    assert!(found[SIDE..3 * SIDE].iter().all(|sum| sum.is_nan()));
    assert_eq!(found[3 * SIDE], 16.0 * f16::from_bits(1).to_f32());
    assert_eq!(found[4 * SIDE..4 * SIDE + 6], [16.0, 16.0, 16.0, 16.0, 16.0, 15.0]);
    Ok(())
}

fn sums_become_factors(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    twice(&kernels, &s, |value| f16::from_f32(f32::from(value)))?;
    twice(&kernels, &s, |value| bf16::from_f32(f32::from(value)))
}

/// Multiplies three matrices whose products are exact.
fn twice<T: Plain + HasMultiplyTwice>(kernels: &Kernels, s: &Stream, of: fn(i8) -> T) -> Result<()> {
    let mut random = Random(3);
    let [x, y, z]: [Vec<i8>; 3] =
        std::array::from_fn(|_| (0..256).map(|_| random.below(5) as i8 - 2).collect());
    let product = |x: &[i32], y: &[i32]| -> Vec<i32> {
        let sum = |i: usize| (0..SIDE).map(|k| x[i / SIDE * SIDE + k] * y[k * SIDE + i % SIDE]).sum();
        (0..256).map(sum).collect()
    };
    let wide = |numbers: &[i8]| numbers.iter().map(|&number| i32::from(number)).collect::<Vec<_>>();
    let want: Vec<f32> =
        product(&product(&wide(&x), &wide(&y)), &wide(&z)).into_iter().map(|sum| sum as f32).collect();
    let of = |numbers: &[i8]| s.upload(&numbers.iter().map(|&number| of(number)).collect::<Vec<_>>());
    let mut c = s.alloc(256)?;
    kernels.multiply_twice(s, &warp(s.device()), &of(&x)?, &of(&y)?, &of(&z)?, &mut c)?;
    assert_eq!(s.download(&c)?, want);
    Ok(())
}

fn elements_say_where_they_are(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut c, mut of_a, mut of_b) = (s.alloc(256)?, s.zeros(256)?, s.zeros(256)?);
    kernels.places(&s, &warp(device), &mut c, &mut of_a, &mut of_b)?;
    let want: Vec<f32> = (0..256).map(|i| (i / SIDE * 100 + i % SIDE) as f32).collect();
    assert_eq!(s.download(&c)?, want);
    // Each element is in as many lanes as the others.
    let (of_a, of_b) = (s.download(&of_a)?, s.download(&of_b)?);
    assert!(of_a[0] > 0 && of_a.iter().all(|&count| count == of_a[0]), "{of_a:?}");
    assert!(of_b[0] > 0 && of_b.iter().all(|&count| count == of_b[0]), "{of_b:?}");
    Ok(())
}

fn blocks_multiply_tiles_in_each_order(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    tiles::<f16>(&kernels, &s)?;
    tiles::<bf16>(&kernels, &s)?;
    tiles::<i8>(&kernels, &s)?;
    tiles::<f32>(&kernels, &s)?;
    tiles::<f64>(&kernels, &s)
}

fn tiles<T: Element>(kernels: &Kernels, s: &Stream) -> Result<()> {
    let depth = 3 * 64 / size_of::<T>();
    let mut random = Random(11);
    let mut numbers = || -> Vec<i8> { (0..TILE * depth).map(|_| random.below(31) as i8 - 15).collect() };
    let (x, y) = (numbers(), numbers());
    let of = |numbers: &[i8]| numbers.iter().map(|&number| T::of(number)).collect::<Vec<T>>();
    for by_columns in [[false, false], [false, true], [true, false], [true, true]] {
        let [a, b] = by_columns;
        let product = |row: usize, column: usize, k: usize| {
            let x = x[if a { k * TILE + row } else { row * depth + k }];
            let y = y[if b { column * depth + k } else { k * TILE + column }];
            i32::from(x) * i32::from(y)
        };
        let want: Vec<T::Sum> = (0..TILE * TILE)
            .map(|i| T::sum((0..depth).map(|k| product(i / TILE, i % TILE, k)).sum()))
            .collect();
        let found = T::tiles(kernels, s, &of(&x), &of(&y), by_columns)?;
        assert_eq!(found, want, "{} by columns: {by_columns:?}", std::any::type_name::<T>());
    }
    Ok(())
}

/// Products whose tiles `wgmma` can read are right in each width of line and each order, also elsewhere.
fn tiles_may_be_those_of_hopper(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, group_products::Kernels::load)?;
    let half = |value| f16::from_f32(f32::from(value));
    for (columns, deep, by_columns) in [
        (64, 64, "0, 0"),
        (64, 64, "0, 1"),
        (64, 64, "1, 0"),
        (64, 64, "1, 1"),
        (16, 32, "0, 0"),
        (32, 16, "0, 1"),
        (128, 32, "1, 1"),
    ] {
        let name = format!("multiply_by_groups<gs::half, {columns}, {deep}, {by_columns}>");
        in_groups(&kernels.module().kernel(&name)?, &s, columns, deep, half)?;
    }
    let kernel = kernels.module().kernel("multiply_by_groups<gs::bfloat16, 64, 32, 0, 0>")?;
    in_groups(&kernel, &s, 64, 32, |value| bf16::from_f32(f32::from(value)))
}

fn in_groups<T: Plain>(
    kernel: &Kernel,
    s: &Stream,
    columns: usize,
    deep: usize,
    of: fn(i8) -> T,
) -> Result<()> {
    let rows = 64;
    let mut random = Random(13);
    for steps in [1_i32, 3] {
        let depth = 2 * steps as usize * deep;
        let mut numbers = |n: usize| -> Vec<i8> { (0..n).map(|_| random.below(15) as i8 - 7).collect() };
        let (x, y) = (numbers(rows * depth), numbers(depth * columns));
        let up = |numbers: &[i8]| s.upload(&numbers.iter().map(|&number| of(number)).collect::<Vec<_>>());
        let mut out = s.alloc::<f32>(rows * columns)?;
        let launch = Launch::exact([1, 1, 1], [4 * s.device().info().warp_size, 1, 1]);
        let (dx, dy) = (up(&x)?, up(&y)?);
        let args = [Arg::read(&dx), Arg::read(&dy), Arg::write(&mut out), Arg::value(&steps)];
        // SAFETY: the memory is as long as the kernel's contract says.
        unsafe { kernel.launch(s, &launch, &args)? };
        let product =
            |at: usize, k| i32::from(x[at / columns * depth + k]) * i32::from(y[k * columns + at % columns]);
        let want: Vec<f32> =
            (0..rows * columns).map(|at| (0..depth).map(|k| product(at, k)).sum::<i32>() as f32).collect();
        assert!(s.download(&out)? == want, "{} in {steps} steps", kernel.name());
    }
    Ok(())
}
