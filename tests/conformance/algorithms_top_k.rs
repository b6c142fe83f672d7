//! The first elements of an order are those of a stable sort, with their indices.

use std::any::type_name;

use conformance::{Random, refused, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Device, ErrorKind, Result, Stream};
use gpustream_kernels::prelude::*;
use gpustream_kernels::top_k::Rankable;

tests! {
    Warps: first_elements_are_those_of_a_sort, all_types_have_their_order, nan_comes_last,
        rows_are_searched_each_alone, more_than_a_block_sorts_is_merged, counts_on_the_device_are_followed,
        captures_and_steps_find_the_first_again, the_kth_is_the_last_of_the_first, bad_lengths_are_refused;
}

/// An element type, and each value's place in the order.
trait Value: Rankable + PartialEq + std::fmt::Debug {
    /// Makes a value from random bits.
    fn random(bits: u64) -> Self;
    /// Returns a number that is larger for larger values, or `None` for NaN.
    fn rank(self) -> Option<i128>;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn random(bits: u64) -> Self {
                bits as Self
            }
            fn rank(self) -> Option<i128> {
                Some(i128::from(self))
            }
        }
    )*};
}
integers! { u8 u16 u32 u64 i8 i16 i32 i64 }

macro_rules! floats {
    ($($type:ty: $bits:ty;)*) => {$(
        impl Value for $type {
            fn random(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn rank(self) -> Option<i128> {
                let bits = i128::from(self.to_bits());
                let negative = bits >> (<$bits>::BITS - 1) == 1;
                (!self.is_nan()).then_some(if negative { i128::from(<$bits>::MAX >> 1) - bits } else { bits })
            }
        }
    )*};
}
floats! { f16: u16; bf16: u16; f32: u32; f64: u64; }

/// Returns the indices of the first `k` elements.
fn first<T: Value>(x: &[T], k: usize, order: Order) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..x.len() as u32).collect();
    indices.sort_by_key(|&i| {
        let rank = x[i as usize].rank();
        (rank.is_none(), rank.map(|rank| if order == Order::Ascending { rank } else { -rank }))
    });
    indices.truncate(k);
    indices
}

fn bits<T: Value>(x: &[T]) -> Vec<u8> {
    x.iter().flat_map(|x| bytemuck::bytes_of(x).to_vec()).collect()
}

/// Checks both results against the input. Compares values by their bits, because NaN is not equal to itself.
#[track_caller]
fn assert_first<T: Value>(
    s: &Stream,
    found: &(Buffer<T>, Buffer<u32>),
    x: &[T],
    k: usize,
    order: Order,
    what: &str,
) -> Result<()> {
    let want = first(x, k, order);
    let values: Vec<T> = want.iter().map(|&i| x[i as usize]).collect();
    assert_eq!(s.download(&found.1)?, want, "indices, {what}, {order:?}");
    assert!(bits(&s.download(&found.0)?) == bits(&values), "values, {what}, {order:?}");
    Ok(())
}

/// The neighbours of a warp, of what a block sorts, and of a part.
const LENGTHS: [usize; 12] = [1, 2, 31, 32, 33, 255, 257, 2047, 2048, 2049, 4097, 33_001];

/// Inputs that are unlucky for searches that guess a bound.
fn inputs(n: usize) -> [(&'static str, Vec<f32>); 6] {
    let mut random = Random(n as u64 + 1);
    let mut values = |count: usize| (0..n).map(|_| random.below(count) as f32 - 5.0).collect();
    let line = |slope: f32| (0..n).map(|i| slope * i as f32).collect();
    let zeros = (0..n).map(|i| if i % 3 == 0 { -0.0 } else { 0.0 }).collect();
    [
        ("all equal", vec![1.5; n]),
        ("ascending", line(1.0)),
        ("descending", line(-1.0)),
        ("three values", values(3)),
        ("random", values(1 << 24)),
        ("zeros", zeros),
    ]
}

fn first_elements_are_those_of_a_sort(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for (at, n) in LENGTHS.into_iter().enumerate() {
        // A view may begin at any element of a 16-byte pack.
        let offset = at % 8;
        for (name, x) in inputs(offset + n) {
            let dx = s.upload(&x)?;
            let (x, dx) = (&x[offset..], dx.slice(offset..)?);
            for k in [0, 1, 7, 300, 1024].into_iter().filter(|&k| k <= n) {
                let what = format!("{k} of {n} at {offset}, {name}");
                assert_first(&s, &s.top_k(&dx, k)?, x, k, Order::Descending, &what)?;
                if at % 3 == 0 {
                    let found = s.top_k_with(&dx, k, Order::Ascending)?;
                    assert_first(&s, &found, x, k, Order::Ascending, &what)?;
                }
            }
        }
    }
    Ok(())
}

fn all_types_have_their_order(device: &Device) -> Result<()> {
    fn of<T: Value>(s: &Stream) -> Result<()> {
        let mut random = Random(9);
        for (n, k) in [(100, 20), (3001, 70), (5000, 1500), (5000, 4000)] {
            let x: Vec<T> = (0..n)
                .map(|_| T::random((random.below(1 << 32) as u64) << 32 | random.below(1 << 32) as u64))
                .collect();
            let dx = s.upload(&x)?;
            for order in [Order::Ascending, Order::Descending] {
                let what = format!("{k} of {n} {}", type_name::<T>());
                assert_first(s, &s.top_k_with(&dx, k, order)?, &x, k, order, &what)?;
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    of::<u8>(s)?;
    of::<u16>(s)?;
    of::<u32>(s)?;
    of::<u64>(s)?;
    of::<i8>(s)?;
    of::<i16>(s)?;
    of::<i32>(s)?;
    of::<i64>(s)?;
    of::<f16>(s)?;
    of::<bf16>(s)?;
    of::<f32>(s)?;
    of::<f64>(s)
}

fn nan_comes_last(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = vec![f32::NAN; 3000];
    (x[7], x[9], x[2999]) = (-f32::NAN, f32::NEG_INFINITY, f32::INFINITY);
    let dx = s.upload(&x)?;
    for order in [Order::Ascending, Order::Descending] {
        for k in [2, 3, 40, 3000] {
            assert_first(&s, &s.top_k_with(&dx, k, order)?, &x, k, order, &format!("{k} with NaN"))?;
        }
    }
    Ok(())
}

fn rows_are_searched_each_alone(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for (rows, columns, k) in [
        (1, 1, 1),
        (50, 3, 2),
        (7, 100, 100),
        (20, 256, 8),
        (20, 257, 8),
        (3, 2500, 60),
        (2, 20_000, 5),
        (3, 2100, 2050),
    ] {
        let mut random = Random(columns as u64);
        let x: Vec<u16> = (0..rows * columns).map(|_| random.below(200) as u16).collect();
        let dx = s.upload(&x)?;
        for order in [Order::Ascending, Order::Descending] {
            let (values, indices) = s.top_k_rows(&dx, rows, k, order)?;
            assert_eq!((values.len(), indices.len()), (rows * k, rows * k));
            let (values, indices) = (s.download(&values)?, s.download(&indices)?);
            for (row, x) in x.chunks(columns).enumerate() {
                let want = first(x, k, order);
                let here = row * k..(row + 1) * k;
                assert_eq!(indices[here.clone()], want, "row {row} of {rows}×{columns}, {k}");
                let want: Vec<u16> = want.iter().map(|&i| x[i as usize]).collect();
                assert_eq!(values[here], want, "row {row} of {rows}×{columns}, {k}");
            }
        }
    }
    let (values, _) = s.top_k_rows(&s.zeros::<f32>(0)?, 0, 0, Order::Ascending)?;
    assert_eq!(values.len(), 0);
    Ok(())
}

fn more_than_a_block_sorts_is_merged(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for (n, k) in
        [(1500, 1500), (2048, 1025), (2049, 2049), (9000, 1100), (9000, 5000), (9000, 9000), (40_001, 2500)]
    {
        for (name, x) in inputs(n) {
            let what = format!("{k} of {n}, {name}");
            assert_first(&s, &s.top_k(&s.upload(&x)?, k)?, &x, k, Order::Descending, &what)?;
        }
    }
    Ok(())
}

fn counts_on_the_device_are_followed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut random = Random(3);
    let x: Vec<i32> = (0..20_000).map(|_| random.below(1000) as i32).collect();
    for count in [0usize, 1, 90, 100, 8191, 20_000] {
        let counted = Counted::from_parts(s.upload(&x)?, s.upload(&[count as u64])?)?;
        for k in [0, 100, 3000] {
            let (values, indices) = s.top_k_counted(&counted, k, Order::Ascending)?;
            let want = first(&x[..count], k, Order::Ascending);
            assert_eq!(indices.capacity(), k);
            assert_eq!(indices.download(&s)?, want, "{k} of {count}");
            let want: Vec<i32> = want.iter().map(|&i| x[i as usize]).collect();
            assert_eq!(values.download(&s)?, want, "{k} of {count}");
        }
    }
    // An array whose length the host knows is as good, and it may be shorter than k.
    let (values, _) = s.top_k_counted(&s.upload(&[2u8, 9, 4])?, 5, Order::Descending)?;
    assert_eq!(values.download(&s)?, [9, 4, 2]);
    Ok(())
}

fn captures_and_steps_find_the_first_again(device: &Device) -> Result<()> {
    const N: usize = 20_000;
    let s = device.stream()?;
    let mut x = s.zeros::<u32>(N)?;
    let mut found = None;
    s.top_k(&x, 1)?;
    let graph = s.capture(|s| {
        found = Some((s.top_k(&x, 50)?, s.top_k(&x, 1500)?));
        Ok(())
    })?;
    let (few, many) = found.unwrap();
    let mut step = device.replay();
    let mut kept = s.zeros::<u32>(50)?;
    for seed in 1..5 {
        let mut random = Random(seed);
        let values: Vec<u32> = (0..N).map(|_| random.below(N) as u32).collect();
        s.upload_into(&values, &mut x)?;
        graph.launch(&s)?;
        assert_first(&s, &few, &values, 50, Order::Descending, "a graph")?;
        assert_first(&s, &many, &values, 1500, Order::Descending, "a graph")?;
        step.run(&s, |s| s.copy(&s.top_k(&x, 50)?.1, &mut kept))?;
        assert_eq!(s.download(&kept)?, first(&values, 50, Order::Descending), "step {seed}");
    }
    Ok(())
}

fn the_kth_is_the_last_of_the_first(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x: Vec<f64> = (0..5001).map(|i| f64::from(i * 7 % 5001)).collect();
    let dx = s.upload(&x)?;
    for k in [1, 2, 1000, 2501, 5001] {
        assert_eq!(s.download(&s.kth(&dx, k, Order::Ascending)?)?, [k as f64 - 1.0]);
        assert_eq!(s.download(&s.kth(&dx, k, Order::Descending)?)?, [5001.0 - k as f64]);
    }
    let mut x = vec![f16::NAN; 3000];
    x[5..2000].fill(f16::ONE);
    let dx = s.upload(&x)?;
    assert_eq!(s.download(&s.kth(&dx, 1995, Order::Ascending)?)?, [f16::ONE]);
    assert!(s.download(&s.kth(&dx, 1996, Order::Descending)?)?[0].is_nan());
    Ok(())
}

fn bad_lengths_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.zeros::<f32>(10)?;
    refused(s.top_k(&x, 11), ErrorKind::ArgumentMismatch, &["first 11 of 10"]);
    refused(s.top_k_rows(&x, 5, 3, Order::Ascending), ErrorKind::ArgumentMismatch, &["first 3 of 2"]);
    refused(s.top_k_rows(&x, 3, 1, Order::Ascending), ErrorKind::ArgumentMismatch, &["3 rows of 10"]);
    refused(s.kth(&x, 0, Order::Ascending), ErrorKind::ArgumentMismatch, &["count from 1"]);
    assert_eq!(s.download(&s.top_k(&x, 10)?.1)?, (0..10).collect::<Vec<_>>());
    Ok(())
}
