//! If a loop has fewer threads than elements, it must still come to each element exactly once.

use conformance::grid_stride::{HasScaled, Kernels};
use conformance::with_stream;
use gpustream::{Device, Launch, Result, Stream};

conformance::tests! {
    Plain: elements_are_changed_once, bounds_belong_to_the_loop_or_not, threads_keep_their_own_sums,
        numbers_of_32_bits_end_where_they_should, loops_may_overlap, threads_of_a_row_go_side_by_side,
        counters_may_be_older_than_their_loop, functions_may_change_a_counter, macros_may_return,
        threads_below_zero_are_far_above;
}

/// How many blocks and threads there are.
const SHAPES: [(u32, u32); 8] = [(1, 1), (1, 32), (2, 48), (3, 100), (1, 256), (7, 64), (40, 256), (2, 1024)];
const COUNTS: [usize; 7] = [0, 1, 31, 96, 1000, 4096, 10_007];

fn launch((blocks, threads): (u32, u32)) -> Launch {
    Launch::new([blocks, 1, 1], [threads, 1, 1])
}

fn elements_are_changed_once(device: &Device) -> Result<()> {
    fn check<I: HasScaled>(kernels: &Kernels, s: &Stream, by: I) -> Result<()> {
        let x = s.upload(&(0..10_100u16).map(f32::from).collect::<Vec<_>>())?;
        for (n, shape) in COUNTS.into_iter().flat_map(|n| SHAPES.map(|shape| (n, shape))) {
            let mut y = s.full(x.len(), 0.5f32)?;
            kernels.scaled(s, &launch(shape), by, &x, &mut y, n as i32)?;
            let expected = |i: usize| if i < n { 0.5 + 2.0 * i as f32 } else { 0.5 };
            let wrong = s.download(&y)?.iter().enumerate().position(|(i, y)| *y != expected(i));
            assert_eq!(wrong, None, "{n} elements by {shape:?}");
        }
        Ok(())
    }
    let (kernels, s) = with_stream(device, Kernels::load)?;
    check(&kernels, &s, 2i32)?;
    check(&kernels, &s, 2u32)?;
    check(&kernels, &s, 2usize)?;
    check(&kernels, &s, 2i64)?;
    let (x, n) = (s.full(10_007, 1.5)?, 10_000);
    for shape in SHAPES {
        let mut y = s.full(x.len(), 1.0)?;
        kernels.added(&s, &launch(shape), &x, &mut y, n)?;
        let y = s.download(&y)?;
        assert!(y[..n].iter().all(|y| *y == 2.5) && y[n..].iter().all(|y| *y == 1.0), "by {shape:?}");
    }
    Ok(())
}

fn bounds_belong_to_the_loop_or_not(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (first, last) in [(0, 0), (5, 100), (-70, 3000), (-3, -1), (i32::MAX - 30_000, i32::MAX - 29_000)] {
        for shape in SHAPES {
            let len = (last - first + 1) as usize;
            let mut out = s.full(len, -7)?;
            kernels.numbered(&s, &launch(shape), &mut out, first, last)?;
            assert_eq!(s.download(&out)?, (first..=last).collect::<Vec<_>>(), "by {shape:?}");
        }
    }
    Ok(())
}

fn threads_keep_their_own_sums(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let x: Vec<i32> = (0..10_007).map(|i| i % 1000 - 300).collect();
    let of_device = s.upload(&x)?;
    for n in COUNTS {
        for (shape, most) in SHAPES.into_iter().flat_map(|shape| [(shape, 37), (shape, u32::MAX)]) {
            let threads = (shape.0 * shape.1) as usize;
            let mut out = s.full(threads, 9)?;
            kernels.shares(&s, &launch(shape), &of_device, &mut out, n as u32, most)?;
            let share = |me: usize| x[..n].iter().skip(me).step_by(threads).copied().reduce(|a, b| a + b);
            let expected = |me: usize| if me < most as usize { share(me).unwrap_or(-1) } else { 9 };
            assert_eq!(s.download(&out)?, (0..threads).map(expected).collect::<Vec<_>>(), "{n} by {shape:?}");
        }
    }
    Ok(())
}

fn numbers_of_32_bits_end_where_they_should(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for first in [0, 0x7ffe_ff00, 0x7fff_ff00, 0x8000_0000, u32::MAX - 5000] {
        for (len, threads) in [(1, 64), (500, 64), (4001, 33), (4001, 256)] {
            let mut counts = s.zeros::<i32>(7)?;
            kernels.high(&s, &launch((1, threads)), &mut counts, first, first + len)?;
            let mut expected = [0; 7];
            (first..first + len).for_each(|i| expected[i as usize % 7] += 1);
            assert_eq!(s.download(&counts)?, expected, "{len} from {first} on, by {threads} threads");
        }
    }
    Ok(())
}

fn loops_may_overlap(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for threads in [1, 40, 64] {
        let mut out = s.zeros::<i32>(300)?;
        kernels.overlapping(&s, &launch((1, threads as u32)), &mut out, 300)?;
        assert_eq!(s.download(&out)?, (1..=300).map(|i: i32| i.min(threads)).collect::<Vec<_>>());
    }
    Ok(())
}

/// On a GPU threads have no order. A CPU must not run them one after the other, because then each thread would go
/// through all of the memory again.
fn threads_of_a_row_go_side_by_side(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut order, mut count) = (s.zeros::<i32>(1000)?, s.zeros::<i32>(1)?);
    kernels.in_order(&s, &launch((1, 64)), &mut order, &mut count, 1000)?;
    let mut order = s.download(&order)?;
    if device.info().backend != gpustream::BackendName::CPU {
        order.sort_unstable();
    }
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
    Ok(())
}

fn counters_may_be_older_than_their_loop(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let x: Vec<i32> = (0..5000).map(|i| i % 1000 - 300).collect();
    let of_device = s.upload(&x)?;
    for (n, shape) in [0, 1, 96, 1000, 5000].into_iter().flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        let expected: Vec<i32> = (0..5000).map(|i| if i < n { 7 + x[i] } else { 7 }).collect();
        let (mut y, mut order) = (s.full(5000, 7)?, s.full(5000, -1)?);
        let mut count = s.zeros::<i32>(1)?;
        kernels.while_below(&s, &launch(shape), &of_device, &mut y, &mut order, &mut count, n as i32)?;
        assert_eq!(s.download(&y)?, expected, "{n} by {shape:?}");
        let mut order = s.download(&order)?[..n].to_vec();
        // On the CPU, the threads of a single block go side by side, as above.
        if device.info().backend != gpustream::BackendName::CPU || shape.0 != 1 {
            order.sort_unstable();
        }
        assert_eq!(order, (0..n as i32).collect::<Vec<_>>(), "{n} by {shape:?}");
        let (mut y, mut turns) = (s.full(5000, 7)?, s.zeros::<i32>(shape.0 as usize)?);
        kernels.for_below(&s, &launch(shape), &of_device, &mut y, &mut turns, n as u32)?;
        assert_eq!(s.download(&y)?, expected, "{n} by {shape:?}");
        assert_eq!(s.download(&turns)?.iter().sum::<i32>(), n as i32, "{n} by {shape:?}");
    }
    Ok(())
}

fn functions_may_change_a_counter(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (n, threads) in [(0, 1), (5, 1), (100, 8), (1000, 64), (1000, 100)] {
        let mut visits = s.zeros::<i32>(n + threads)?;
        kernels.skipping(&s, &launch((1, threads as u32)), &mut visits, n as i32)?;
        let of = |i: usize| {
            let every = |rounds| i32::from((i / threads).is_multiple_of(rounds));
            1001 * every(3) + 10_010 * every(2)
        };
        let expected: Vec<i32> = (0..n + threads).map(|i| if i < n { of(i) } else { 100 }).collect();
        assert_eq!(s.download(&visits)?, expected, "{n} by {threads} threads");
    }
    Ok(())
}

fn macros_may_return(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut out = s.full(64, -1)?;
    kernels.leaving(&s, &launch((1, 64)), &mut out, 100, 40)?;
    let expected: Vec<i32> = (0..64).map(|t| if t >= 40 { -1 } else { 1 + i32::from(t < 36) }).collect();
    assert_eq!(s.download(&out)?, expected);
    Ok(())
}

fn threads_below_zero_are_far_above(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (n, threads) in [(1, 4), (50, 32), (1000, 64), (1000, 100)] {
        let mut out = s.zeros::<i32>(5 * n)?;
        kernels.around(&s, &launch((1, threads as u32)), &mut out, n as i32)?;
        // The three threads below zero do nothing.
        let in_loop: Vec<i32> = (0..n).map(|i| i32::from(i % threads < threads - 3)).collect();
        let once: Vec<i32> = (0..n).map(|i| i32::from(i < threads - 3)).collect();
        let got = s.download(&out)?;
        for (at, expected) in [&in_loop, &in_loop, &in_loop, &once, &in_loop].into_iter().enumerate() {
            assert_eq!(got[at * n..][..n], expected[..], "loop {at} to {n} by {threads}");
        }
    }
    Ok(())
}
