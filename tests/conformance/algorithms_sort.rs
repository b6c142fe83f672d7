//! Sorts give the same order as Rust's stable sort, for every type of key, in every form.

use std::any::type_name;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

use conformance::{noise, refused};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Plain, Result, Stream};
use gpustream_kernels::prelude::*;

conformance::tests! {
    Warps: sorts_of_integers_are_those_of_rust, sorts_of_floats_are_those_of_rust, sorts_by_some_bits_keep_the_rest,
        values_of_any_size_follow_their_keys, counted_keys_are_sorted_up_to_their_count,
        sorts_can_be_captured_and_replayed, gathers_give_zero_for_what_is_not_there,
        columns_sort_from_the_last_to_the_first, segments_are_sorted_one_by_one, long_arrays_are_shared_among_workers,
        sorts_that_do_not_fit_are_refused;
}

/// None, one, the neighbours of a warp, what fits into a block and what does not, and several tiles.
const LENGTHS: [usize; 11] = [0, 1, 2, 31, 33, 1025, 4096, 4097, 8191, 8193, 17_000];

/// How keys lie before.
const PATTERNS: [fn(usize, usize) -> u64; 5] = [
    |i, _| noise(i),
    |_, _| 7 << 55,
    |i, _| (i as u64) << 40 | i as u64,
    |i, n| ((n - i) as u64) << 50 | (n - i) as u64,
    |i, _| ((noise(i) % 3) << 60) | (noise(i) % 2),
];

/// Returns the bytes, because a NaN does not equal itself.
fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Returns where the keys go by Rust's stable sort.
fn order_of<K>(keys: &[K], order: Order, compare: impl Fn(&K, &K) -> Ordering) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..keys.len() as u32).collect();
    indices.sort_by(|&a, &b| {
        let by_key = compare(&keys[a as usize], &keys[b as usize]);
        if order == Order::Descending { by_key.reverse() } else { by_key }
    });
    indices
}

fn pick<T: Copy>(from: &[T], indices: &[u32]) -> Vec<T> {
    indices.iter().map(|&i| from[i as usize]).collect()
}

fn check<K: Key + Debug>(
    device: &Device,
    make: impl Fn(u64) -> K,
    compare: impl Fn(&K, &K) -> Ordering + Copy,
) -> Result<()> {
    let s = device.stream()?;
    for (case, n) in LENGTHS.into_iter().enumerate() {
        // Each length meets another pattern, offset and direction, because kernels of GPUs are slow on the CPU.
        let one = (case + size_of::<K>()) % PATTERNS.len();
        let patterns = if n == 1025 { 0..PATTERNS.len() } else { one..one + 1 };
        for pattern in patterns {
            let (at, order) =
                ((case * 3 + pattern) % 9, [Order::Ascending, Order::Descending][(case + pattern) % 2]);
            let what = format!("{n} {} at {at}, pattern {pattern}, {order:?}", type_name::<K>());
            let options = SortOptions::default().order(order);
            let keys: Vec<K> = (0..=at + n).map(|i| make(PATTERNS[pattern](i, at + n + 1))).collect();
            let (range, all) = (at..at + n, s.upload(&keys)?);
            let want = order_of(&keys[range.clone()], order, compare);
            let sorted = pick(&keys[range.clone()], &want);

            let mut inside = s.upload(&keys)?;
            s.sort_with(&mut inside.slice_mut(range.clone())?, &options)?;
            let got = s.download(&inside)?;
            assert_eq!(bytes(&got[range.clone()]), bytes(&sorted), "in place, {what}");
            assert_eq!(bytes(&got[..at]), bytes(&keys[..at]), "written before, {what}");
            assert_eq!(bytes(&got[at + n..]), bytes(&keys[at + n..]), "written beyond the end, {what}");

            if pattern == one && n != 8191 {
                let mut into = s.zeros(n)?;
                s.sort_into(&all.slice(range.clone())?, &mut into, &options)?;
                assert_eq!(bytes(&s.download(&into)?), bytes(&sorted), "into, {what}");
                let got = s.argsort_with(&all.slice(range.clone())?, &options)?;
                assert_eq!(s.download(&got)?, want, "argsort, {what}");
            }
            let (mut with, mut values) = (s.upload(&keys)?, s.upload(&(0..n as u32).collect::<Vec<_>>())?);
            s.sort_by_key_with(&mut with.slice_mut(range.clone())?, &mut values, &options)?;
            assert_eq!(bytes(&s.download(&with.slice(range)?)?), bytes(&sorted), "keys, {what}");
            assert_eq!(s.download(&values)?, want, "values, {what}");
        }
    }
    Ok(())
}

fn sorts_of_integers_are_those_of_rust(device: &Device) -> Result<()> {
    check(device, |x| (x >> 56) as u8, u8::cmp)?;
    check(device, |x| (x >> 56) as i8, i8::cmp)?;
    check(device, |x| (x >> 48) as u16, u16::cmp)?;
    check(device, |x| (x >> 48) as i16, i16::cmp)?;
    check(device, |x| (x >> 32) as u32, u32::cmp)?;
    check(device, |x| (x >> 32) as i32, i32::cmp)?;
    check(device, |x| x, u64::cmp)?;
    check(device, |x| x as i64, i64::cmp)
}

/// All bits occur, so there are NaNs with both signs, infinities and zeros.
fn sorts_of_floats_are_those_of_rust(device: &Device) -> Result<()> {
    check(device, |x| f16::from_bits((x >> 48) as u16), f16::total_cmp)?;
    check(device, |x| bf16::from_bits((x >> 48) as u16), bf16::total_cmp)?;
    check(device, f64::from_bits, f64::total_cmp)?;
    let special = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0];
    check(
        device,
        |x| if x % 3 == 0 { special[(x >> 61) as usize] } else { f32::from_bits((x >> 32) as u32) },
        f32::total_cmp,
    )
}

fn sorts_by_some_bits_keep_the_rest(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in [100, 12_000] {
        let keys: Vec<u32> = (0..n).map(|i| noise(i) as u32).collect();
        for bits in [0..1, 3..11, 5..22, 24..32, 0..32] {
            let digit = |key: &u32| (key >> bits.start) as u64 & ((1 << bits.len()) - 1);
            for order in [Order::Ascending, Order::Descending] {
                let options = SortOptions::default().order(order).bits(bits.clone());
                let want = order_of(&keys, order, |a, b| digit(a).cmp(&digit(b)));
                let (mut x, mut y) = (s.upload(&keys)?, s.zeros(n)?);
                s.sort_into(&x, &mut y, &options)?;
                assert_eq!(s.download(&y)?, pick(&keys, &want), "into, {n} by {bits:?}, {order:?}");
                let mut values = s.upload(&(0..n as u64).collect::<Vec<_>>())?;
                s.sort_by_key_with(&mut x, &mut values, &options)?;
                assert_eq!(s.download(&x)?, pick(&keys, &want), "{n} by {bits:?}, {order:?}");
                let want: Vec<u64> = want.into_iter().map(u64::from).collect();
                assert_eq!(s.download(&values)?, want, "values, {n} by {bits:?}, {order:?}");
            }
        }
    }
    Ok(())
}

fn values_of<K: Key, V: Plain + Debug + PartialEq>(
    s: &Stream,
    keys: &[K],
    want: &[u32],
    make: impl Fn(u64) -> V,
) -> Result<()> {
    let what = format!("{} {} by {}", keys.len(), type_name::<V>(), type_name::<K>());
    let values: Vec<V> = (0..keys.len()).map(|i| make(noise(i))).collect();
    let (mut x, mut v) = (s.upload(keys)?, s.upload(&values)?);
    let (mut sorted, mut moved) = (s.zeros(keys.len())?, s.zeros(keys.len())?);
    s.sort_by_key_into(&x, &v, &mut sorted, &mut moved, &SortOptions::default())?;
    assert_eq!(bytes(&s.download(&sorted)?), bytes(&pick(keys, want)), "keys into, {what}");
    assert_eq!(s.download(&moved)?, pick(&values, want), "values into, {what}");
    s.sort_by_key(&mut x, &mut v)?;
    assert_eq!(bytes(&s.download(&x)?), bytes(&pick(keys, want)), "keys, {what}");
    assert_eq!(s.download(&v)?, pick(&values, want), "values, {what}");
    Ok(())
}

fn values_of_any_size_follow_their_keys(device: &Device) -> Result<()> {
    fn by<K: Key + Ord>(s: &Stream, make: impl Fn(u64) -> K) -> Result<()> {
        for n in [700, 9000] {
            let keys: Vec<K> = (0..n).map(|i| make(noise(i + 9))).collect();
            let want = order_of(&keys, Order::Ascending, K::cmp);
            values_of(s, &keys, &want, |x| x as u8)?;
            values_of(s, &keys, &want, |x| x as u16)?;
            values_of(s, &keys, &want, |x| x as u32)?;
            values_of(s, &keys, &want, |x| x)?;
            values_of(s, &keys, &want, |x| [x, !x])?;
            values_of(s, &keys, &want, |x| [x as u8, 1, 2])?;
            values_of(s, &keys, &want, |x| [x as u32, 7, !x as u32])?;
        }
        Ok(())
    }
    let s = device.stream()?;
    by(&s, |x| (x >> 60) as u8)?;
    by(&s, |x| x as u16)?;
    by(&s, |x| (x >> 40) as u32)?;
    by(&s, |x| x)
}

fn counted_keys_are_sorted_up_to_their_count(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for capacity in [500, 20_000] {
        let keys: Vec<i32> = (0..capacity).map(|i| noise(i) as i32).collect();
        for count in [0, 1, capacity / 3, capacity] {
            let what = format!("{count} of {capacity}");
            let at = Arc::new(s.upload(&[count as u64])?);
            let mut counted = Counted::sharing(s.upload(&keys)?, at.clone())?;
            let want = order_of(&keys[..count], Order::Ascending, i32::cmp);
            let order = s.argsort(&counted)?;
            assert_eq!(s.download(&order.slice(..count)?)?, want, "argsort, {what}");
            let mut values = s.upload(&(0..capacity as u16).collect::<Vec<_>>())?;
            s.sort_by_key(&mut counted, &mut values)?;
            assert_eq!(counted.download(&s)?, pick(&keys, &want), "keys, {what}");
            let rest = s.download(&counted.values().slice(count..)?)?;
            assert_eq!(rest, keys[count..], "written beyond the count, {what}");
            let values = s.download(&values)?;
            assert!(values[..count].iter().zip(&want).all(|(v, w)| u32::from(*v) == *w), "values, {what}");
            let mut again = Counted::sharing(s.upload(&keys)?, at)?;
            s.sort_with(&mut again, &SortOptions::default().order(Order::Descending))?;
            let want = order_of(&keys[..count], Order::Descending, i32::cmp);
            assert_eq!(again.download(&s)?, pick(&keys, &want), "descending, {what}");
        }
    }
    Ok(())
}

fn sorts_can_be_captured_and_replayed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in [300, 10_000] {
        let make = |seed: usize| (0..n).map(|i| noise(i + seed * 1000) as u32).collect::<Vec<u32>>();
        let (mut x, mut y, mut v) = (s.zeros::<u32>(n)?, s.zeros::<u32>(n)?, s.zeros::<u64>(n)?);
        let mut w = s.zeros::<u64>(n)?;
        let graph = s.capture(|s| {
            s.sort_into(&x, &mut y, &SortOptions::default())?;
            s.sort_by_key_into(&x, &v, &mut y, &mut w, &SortOptions::default())
        })?;
        let numbers = (0..n as u64).collect::<Vec<_>>();
        s.upload_into(&numbers, &mut v)?;
        for seed in 0..3 {
            let keys = make(seed);
            let want = order_of(&keys, Order::Ascending, u32::cmp);
            s.upload_into(&keys, &mut x)?;
            graph.launch(&s)?;
            assert_eq!(s.download(&y)?, pick(&keys, &want), "graph with {n}, {seed}");
            assert_eq!(s.download(&w)?, pick(&numbers, &want), "graph with {n}, {seed}");
        }
        let mut step = device.replay();
        for seed in 0..5 {
            let keys = make(seed);
            s.upload_into(&keys, &mut x)?;
            step.run(&s, |s| s.sort(&mut x))?;
            let want = order_of(&keys, Order::Ascending, u32::cmp);
            assert_eq!(s.download(&x)?, pick(&keys, &want), "step with {n}, {seed}");
        }
    }
    Ok(())
}

fn gathers_give_zero_for_what_is_not_there(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let from = s.upload(&[10u16, 11, 12])?;
    let mut to = s.full(4, 9u16)?;
    s.gather(&from, &s.upload(&[2u32, 3, 0, u32::MAX])?, &mut to)?;
    assert_eq!(s.download(&to)?, [12, 0, 10, 0]);
    let wide = s.upload(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    let mut to = s.full(3, [9.0f32; 3])?;
    s.gather(&wide, &s.upload(&[1u64, u64::MAX, 0])?, &mut to)?;
    assert_eq!(s.download(&to)?, [[4.0, 5.0, 6.0], [0.0; 3], [1.0, 2.0, 3.0]]);
    refused(
        s.gather(&from, &s.upload(&[0u32])?, &mut s.zeros(2)?),
        ErrorKind::ArgumentMismatch,
        &["1 indices", "2 elements"],
    );
    Ok(())
}

fn columns_sort_from_the_last_to_the_first(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 3000;
    let first: Vec<u8> = (0..n).map(|i| (noise(i) >> 60) as u8).collect();
    let second: Vec<f32> = (0..n).map(|i| (noise(i) >> 40 & 7) as f32 - 3.0).collect();
    let (a, b) = (s.upload(&first)?, s.upload(&second)?);
    let mut order = s.argsort(&b)?;
    let mut column = s.zeros(n)?;
    s.gather(&a, &order, &mut column)?;
    s.sort_by_key(&mut column, &mut order)?;
    let mut want: Vec<u32> = (0..n as u32).collect();
    want.sort_by(|&x, &y| {
        let (x, y) = (x as usize, y as usize);
        first[x].cmp(&first[y]).then(second[x].total_cmp(&second[y]))
    });
    assert_eq!(s.download(&order)?, want);
    Ok(())
}

/// Empty segments, short ones, one that does not fit into a block, and keys outside of all segments.
fn segments_are_sorted_one_by_one(device: &Device) -> Result<()> {
    fn by<K: Key + Ord + Debug, V: Plain + Debug + PartialEq>(
        s: &Stream,
        make: impl Fn(u64) -> K,
        value: impl Fn(u64) -> V,
        order: Order,
    ) -> Result<()> {
        let offsets = [3usize, 3, 4, 35, 36, 164, 293, 1070, 1070, 3200, 3207, 5310];
        let n = 5315;
        let (keys, values) = (
            (0..n).map(|i| make(noise(i))).collect::<Vec<_>>(),
            (0..n).map(|i| value(noise(i))).collect::<Vec<_>>(),
        );
        let mut want = (0..n as u32).collect::<Vec<_>>();
        for pair in offsets.windows(2) {
            let order = order_of(&keys[pair[0]..pair[1]], order, K::cmp);
            for (want, i) in want[pair[0]..pair[1]].iter_mut().zip(order) {
                *want = i + pair[0] as u32;
            }
        }
        let options = SortOptions::default().order(order);
        let (mut x, mut v) = (s.upload(&keys)?, s.upload(&values)?);
        s.sort_segments(&mut x, &s.upload(&offsets.map(|at| at as u32))?, &options)?;
        assert_eq!(s.download(&x)?, pick(&keys, &want), "{}", type_name::<K>());
        s.upload_into(&keys, &mut x)?;
        s.sort_segments_by_key(&mut x, &mut v, &s.upload(&offsets.map(|at| at as u64))?, &options)?;
        assert_eq!(s.download(&x)?, pick(&keys, &want), "{} with values", type_name::<K>());
        assert_eq!(s.download(&v)?, pick(&values, &want), "values by {}", type_name::<K>());
        Ok(())
    }
    let s = device.stream()?;
    by(&s, |x| x as u8, |x| x as u16, Order::Ascending)?;
    by(&s, |x| x as i16, |x| x as u8, Order::Descending)?;
    by(&s, |x| (x >> 50) as u32, |x| [x, !x], Order::Ascending)?;
    by(&s, |x| x as i64, |x| x as u32, Order::Descending)?;
    by(&s, |_| 5i32, |x| x, Order::Ascending)?;
    let (mut keys, mut values) = (s.zeros::<u16>(5)?, s.zeros::<[u8; 3]>(5)?);
    let offsets = s.upload(&[0u32, 2])?;
    let result = s.sort_segments_by_key(&mut keys, &mut values, &offsets, &SortOptions::default());
    refused(result, ErrorKind::InvalidArgument, &["values with 3 bytes"]);
    s.sort_segments(&mut keys, &s.zeros::<u64>(0)?, &SortOptions::default())
}

/// So many keys that each worker of a CPU has a share. The second byte is the same in all of them, so there are three passes.
fn long_arrays_are_shared_among_workers(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let n = 150_000;
    let keys: Vec<u32> = (0..n).map(|i| noise(i) as u32 & 0x7fff_00ff | 0x500).collect();
    for order in [Order::Ascending, Order::Descending] {
        let options = SortOptions::default().order(order);
        let want = order_of(&keys, order, u32::cmp);
        let (mut x, mut into) = (s.upload(&keys)?, s.zeros(n)?);
        s.sort_into(&x, &mut into, &options)?;
        assert_eq!(s.download(&into)?, pick(&keys, &want), "into, {order:?}");
        let mut values = s.upload(&(0..n as u32).collect::<Vec<_>>())?;
        s.sort_by_key_with(&mut x, &mut values, &options)?;
        assert_eq!(s.download(&x)?, pick(&keys, &want), "keys, {order:?}");
        assert_eq!(s.download(&values)?, want, "values, {order:?}");
    }
    Ok(())
}

fn sorts_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (mut keys, mut values) = (s.zeros::<u16>(5)?, s.zeros::<u32>(4)?);
    refused(s.sort_by_key(&mut keys, &mut values), ErrorKind::ArgumentMismatch, &["5 keys", "4 values"]);
    let mut short = s.zeros::<u16>(4)?;
    refused(
        s.sort_into(&keys, &mut short, &SortOptions::default()),
        ErrorKind::ArgumentMismatch,
        &["5 keys", "4 elements"],
    );
    refused(
        s.argsort_into(&keys, &mut values, &SortOptions::default()),
        ErrorKind::ArgumentMismatch,
        &["5 keys"],
    );
    for bits in [0..17, 4..4, 16..20] {
        let options = SortOptions::default().bits(bits.clone());
        refused(
            s.sort_with(&mut keys, &options),
            ErrorKind::InvalidArgument,
            &[&format!("{bits:?}"), "16 bits"],
        );
    }
    Ok(())
}
