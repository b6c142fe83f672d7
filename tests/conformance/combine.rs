//! The kernel that combines the rows of an array computes the same as plain Rust, for every operator.

use std::any::type_name;

use conformance::{noise, refused, with_stream};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result};
use gpustream_kernels::combine::{HasCombine, Kernels};

conformance::tests! {
    Plain: rows_of_floats_combine_as_in_plain_rust, rows_of_integers_combine_as_in_plain_rust,
        rows_beyond_their_memory_are_refused;
}

/// Lengths of a row: zero, one, and the neighbours of a warp, a block and a power of two.
const LENGTHS: [usize; 10] = [0, 1, 3, 31, 33, 255, 257, 1024, 4097, 100_003];

/// For each case: how many rows there are, how far one row begins after the end of the previous one, and where the
/// result begins.
const ROWS: [(usize, usize, usize); 4] = [(1, 0, 0), (2, 3, 1), (5, 0, 2), (9, 1, 0)];

/// Compares all operators. `want` gets the values of one column in the order of the rows.
fn check<T: HasCombine + PartialEq + std::fmt::Debug>(
    device: &Device,
    value: impl Fn(usize) -> T,
    want: impl Fn(u32, &[T]) -> T,
) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (rows, gap, at) in ROWS {
        for n in LENGTHS {
            let stride = n + gap;
            let values: Vec<T> = (0..rows * stride).map(&value).collect();
            let x = s.upload(&values)?;
            for op in 0..5 {
                let zero: T = gpustream::Zeroable::zeroed();
                let mut y = s.full(at + n + 1, zero)?;
                kernels.combine(&s, &x, stride, rows as u64, op, &mut y.slice_mut(at..at + n)?, n)?;
                let got = s.download(&y)?;
                let column = |i| (0..rows).map(|row| values[row * stride + i]).collect::<Vec<T>>();
                let what = format!("operator {op} of {rows} rows of {n} {}", type_name::<T>());
                for (i, got) in got[at..at + n].iter().enumerate() {
                    assert_eq!(*got, want(op, &column(i)), "{what} at {i}");
                }
                assert_eq!(got[..at], vec![zero; at], "written before, {what}");
                assert_eq!(got[at + n], zero, "written beyond the end, {what}");
            }
        }
    }
    Ok(())
}

fn rows_of_floats_combine_as_in_plain_rust(device: &Device) -> Result<()> {
    macro_rules! check {
        ($type:ty, $computed:ty, $widen:expr, $round:expr) => {
            check::<$type>(
                device,
                |i| $round(((noise(i) >> 56) as $computed - 127.0) / 24.0),
                |op, column| {
                    let widen: fn($type) -> $computed = $widen;
                    let (values, rows) = (column.iter().map(|v| widen(*v)), column.len() as $computed);
                    let result = match op {
                        0 => values.reduce(|a, b| a + b),
                        1 => values.reduce(|a, b| a * b),
                        2 => values.reduce(<$computed>::min),
                        3 => values.reduce(<$computed>::max),
                        _ => values.reduce(|a, b| a + b).map(|sum| sum / rows),
                    };
                    $round(result.unwrap())
                },
            )?
        };
    }
    check!(f16, f32, f16::to_f32, f16::from_f32);
    check!(bf16, f32, bf16::to_f32, bf16::from_f32);
    check!(f32, f32, |v| v, |v| v);
    check!(f64, f64, |v| v, |v| v);
    Ok(())
}

fn rows_of_integers_combine_as_in_plain_rust(device: &Device) -> Result<()> {
    macro_rules! check {
        ($($type:ty)*) => {$(
            check::<$type>(
                device,
                |i| match i % 17 {
                    0 => <$type>::MIN,
                    1 => <$type>::MAX,
                    _ => (noise(i) >> 7) as $type,
                },
                |op, column| {
                    let (values, rows) = (column.iter().copied(), column.len() as $type);
                    let result = match op {
                        0 => values.reduce(<$type>::wrapping_add),
                        1 => values.reduce(<$type>::wrapping_mul),
                        2 => values.min(),
                        3 => values.max(),
                        _ => values.reduce(<$type>::wrapping_add).map(|sum| sum / rows),
                    };
                    result.unwrap()
                },
            )?;
        )*};
    }
    check!(i8 i16 i32 i64 u8 u16 u32 u64);
    Ok(())
}

fn rows_beyond_their_memory_are_refused(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (x, mut y) = (s.zeros::<f32>(12)?, s.zeros::<f32>(4)?);
    let mut combine = |stride, rows, op, n| kernels.combine(&s, &x, stride, rows, op, &mut y, n);
    combine(4, 3, 0, 4)?;
    let kind = ErrorKind::ContractViolated;
    refused(combine(4, 4, 0, 4), kind, &["rows * stride <= len(x)"]);
    refused(combine(usize::MAX, u64::MAX, 0, 4), kind, &["len(x)"]);
    refused(combine(3, 3, 0, 4), kind, &["n <= stride"]);
    refused(combine(4, 0, 0, 4), kind, &["1 <= rows"]);
    refused(combine(6, 2, 0, 5), kind, &["n <= len(y)"]);
    refused(combine(4, 3, 5, 4), kind, &["op <= 4"]);
    Ok(())
}
