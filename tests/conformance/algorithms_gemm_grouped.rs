//! Products in groups are what each is alone, whatever their shapes are.

use conformance::{Random, refused, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Device, ErrorKind, Result, Stream};
use gpustream_kernels::gemm::{Activation, Grouped, Multiply, Product, Stored};
use gpustream_kernels::prelude::*;

tests! {
    Warps: groups_are_what_each_product_is_alone, groups_of_none_and_of_one, groups_are_ordered_with_other_work;
    Plain: a_captured_group_runs_again, a_group_with_a_bad_product_computes_nothing;
}

/// Elements that hold small whole numbers, so that sums are exact in any order.
trait Element: Multiply<Output: PartialEq + std::fmt::Debug> {
    fn of(x: i32) -> Self;
    fn output(x: i32) -> Self::Output;
    fn sum(x: i32) -> Self::Sum;
}
macro_rules! elements {
    ($($type:ty: $output:ty, $sum:ty, $of:expr, $output_of:expr, $sum_of:expr;)*) => {$(
        impl Element for $type {
            fn of(x: i32) -> Self {
                $of(x)
            }
            fn output(x: i32) -> $output {
                $output_of(x)
            }
            fn sum(x: i32) -> $sum {
                $sum_of(x)
            }
        }
    )*};
}
elements! {
    f16: f16, f32, |x| f16::from_f32(x as f32), |x| f16::from_f32(x as f32), |x| x as f32;
    bf16: bf16, f32, |x| bf16::from_f32(x as f32), |x| bf16::from_f32(x as f32), |x| x as f32;
    f32: f32, f32, |x| x as f32, |x| x as f32, |x| x as f32;
    f64: f64, f64, f64::from, f64::from, f64::from;
    i8: i32, i32, |x| x as i8, |x| x, |x| x;
}

fn numbers<T>(s: &Stream, random: &mut Random, n: usize, of: fn(i32) -> T) -> Result<Buffer<T>>
where
    T: gpustream::Plain,
{
    s.upload(&(0..n).map(|_| of(random.below(7) as i32 - 3)).collect::<Vec<_>>())
}

/// The matrices of one product. Each line has `gap` more elements than it needs, and c does too.
struct Case<T: Element> {
    size: [usize; 3],
    gap: usize,
    by_columns: [bool; 2],
    a: Buffer<T>,
    b: Buffer<T>,
    bias: Option<Buffer<T::Output>>,
    /// What the group and the single product write.
    c: [Buffer<T::Output>; 2],
}

impl<T: Element> Case<T> {
    fn new(s: &Stream, random: &mut Random, size: [usize; 3], number: usize) -> Result<Self> {
        let [m, n, k] = size;
        let gap = number % 3;
        let by_columns = [number / 3 % 2 == 1, number / 6 % 2 == 1];
        let lines = |rows, columns, by_columns: bool| {
            let (lines, width) = if by_columns { (columns, rows) } else { (rows, columns) };
            lines * (width + gap) + 1
        };
        let c = numbers(s, random, lines(m, n, false), T::output)?;
        Ok(Self {
            size,
            gap,
            by_columns,
            a: numbers(s, random, lines(m, k, by_columns[0]), T::of)?,
            b: numbers(s, random, lines(k, n, by_columns[1]), T::of)?,
            bias: if number.is_multiple_of(5) { Some(numbers(s, random, n, T::output)?) } else { None },
            c: [s.duplicate(&c)?, c],
        })
    }

    /// Returns the product, with scalars and a function that differ from number to number.
    fn product(&self, number: usize) -> Product<'_, T> {
        let Self { size: [m, n, k], gap, by_columns: [a, b], .. } = *self;
        let stored = |by_columns: bool, width: [usize; 2]| {
            let stored = if by_columns { Stored::columns() } else { Stored::rows() };
            stored.leading(width[usize::from(!by_columns)] + gap)
        };
        let product = Product::new(m, n, k)
            .a(stored(a, [m, k]))
            .b(stored(b, [k, n]))
            .c(stored(false, [m, n]))
            .alpha(T::sum(1 + number as i32 % 2))
            .beta(T::sum(number as i32 % 3))
            .activation(if number % 4 == 1 { Activation::Relu } else { Activation::None });
        match &self.bias {
            Some(bias) => product.bias(bias),
            None => product,
        }
    }

    fn compute(cases: &mut [Self], s: &Stream) -> Result<()> {
        for (number, case) in cases.iter_mut().enumerate() {
            let mut alone = std::mem::replace(&mut case.c[1], s.alloc(0)?);
            s.multiply_matrices(&case.product(number), &case.a, &case.b, &mut alone)?;
            case.c[1] = alone;
        }
        let mut results = Vec::new();
        for case in &mut *cases {
            results.push(std::mem::replace(&mut case.c[0], s.alloc(0)?));
        }
        let group = cases.iter().zip(&mut results).enumerate();
        s.multiply_matrices_grouped(
            group.map(|(number, (case, c))| Grouped::new(case.product(number), &case.a, &case.b, c)),
        )?;
        for (case, c) in cases.iter_mut().zip(results) {
            case.c[0] = c;
        }
        Ok(())
    }

    fn check(cases: &[Self], s: &Stream) -> Result<()> {
        for (number, case) in cases.iter().enumerate() {
            let [grouped, alone] = [s.download(&case.c[0])?, s.download(&case.c[1])?];
            let what = || format!("product {number}, {:?} of {}", case.size, std::any::type_name::<T>());
            assert_eq!(grouped, alone, "{}", what());
        }
        Ok(())
    }
}

fn check_all<T: Element>(s: &Stream, sizes: &[usize]) -> Result<()> {
    let mut random = Random(11);
    let mut cases = Vec::new();
    for (&m, &n, &k) in
        sizes.iter().flat_map(|m| sizes.iter().flat_map(move |n| sizes.iter().map(move |k| (m, n, k))))
    {
        let number = cases.len();
        cases.push(Case::<T>::new(s, &mut random, [m, n, k], number)?);
    }
    Case::compute(&mut cases, s)?;
    Case::check(&cases, s)
}

fn groups_are_what_each_product_is_alone(device: &Device) -> Result<()> {
    let s = device.stream()?;
    // 64 products, more than one launch takes.
    let sizes = [0, 1, 17, 129];
    check_all::<f16>(&s, &sizes)?;
    check_all::<bf16>(&s, &[1, 17, 64])?;
    check_all::<f32>(&s, &sizes)?;
    check_all::<f64>(&s, &[0, 5, 33])?;
    check_all::<i8>(&s, &[0, 5, 33])
}

fn groups_of_none_and_of_one(device: &Device) -> Result<()> {
    let s = device.stream()?;
    s.multiply_matrices_grouped::<f16>([])?;
    check_all::<f16>(&s, &[0])?;
    check_all::<f32>(&s, &[17])
}

/// Returns a matrix of 17 by 17 that is `x` on the diagonal.
fn diagonal(s: &Stream, x: f32) -> Result<Buffer<f16>> {
    s.upload(&(0..17 * 17).map(|i| f16::from_f32(if i % 18 == 0 { x } else { 0.0 })).collect::<Vec<_>>())
}

fn groups_are_ordered_with_other_work(device: &Device) -> Result<()> {
    let (s, other) = (device.stream()?, device.stream()?);
    let two = diagonal(&s, 2.0)?;
    let (mut x, mut y) = (diagonal(&s, 1.0)?, diagonal(&s, 3.0)?);
    let product = Product::new(17, 17, 17);
    for _ in 0..4 {
        let (mut next_x, mut next_y) = (other.alloc(17 * 17)?, other.alloc(17 * 17)?);
        other.multiply_matrices_grouped([
            Grouped::new(product.clone(), &x, &two, &mut next_x),
            Grouped::new(product.clone(), &two, &y, &mut next_y),
        ])?;
        (x, y) = (s.duplicate(&next_x)?, s.duplicate(&next_y)?);
    }
    assert_eq!(s.download(&x)?, s.download(&diagonal(&s, 16.0)?)?);
    assert_eq!(s.download(&y)?, s.download(&diagonal(&s, 48.0)?)?);
    Ok(())
}

fn a_captured_group_runs_again(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let two = diagonal(&s, 2.0)?;
    let (mut x, mut y, mut twice, mut of_y) =
        (diagonal(&s, 1.0)?, diagonal(&s, 5.0)?, s.alloc(17 * 17)?, s.alloc(17 * 17)?);
    let product = Product::new(17, 17, 17);
    // The first call loads the kernels.
    s.multiply_matrices_grouped([Grouped::new(product.clone(), &x, &two, &mut twice)])?;
    let graph = s.capture(|s| {
        s.multiply_matrices_grouped([
            Grouped::new(product.clone(), &x, &two, &mut twice),
            Grouped::new(product.clone(), &y, &two, &mut of_y),
        ])?;
        s.copy(&twice, &mut x)?;
        s.copy(&of_y, &mut y)
    })?;
    for _ in 0..3 {
        graph.launch(&s)?;
    }
    assert_eq!(s.download(&x)?, s.download(&diagonal(&s, 8.0)?)?);
    assert_eq!(s.download(&y)?, s.download(&diagonal(&s, 40.0)?)?);
    Ok(())
}

fn a_group_with_a_bad_product_computes_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, mut y, mut short) = (diagonal(&s, 2.0)?, diagonal(&s, 1.0)?, s.zeros(3)?);
    let product = Product::new(17, 17, 17);
    let group =
        [Grouped::new(product.clone(), &x, &x, &mut y), Grouped::new(product.clone(), &x, &x, &mut short)];
    let result = s.multiply_matrices_grouped(group);
    refused(
        result,
        ErrorKind::ArgumentMismatch,
        &["product 1", "c has 3 elements, but the product needs 289"],
    );
    let group = [Grouped::new(product.c(Stored::columns()), &x, &x, &mut y)];
    refused(
        s.multiply_matrices_grouped(group),
        ErrorKind::InvalidArgument,
        &["product 0", "compute its transpose"],
    );
    assert_eq!(s.download(&y)?, s.download(&diagonal(&s, 1.0)?)?);
    Ok(())
}
