//! The threads of a block may run together, as loops, or each on its own stack. Kernels with barriers and shuffles must
//! mean the same in all three cases.

use conformance::meetings::{Kernels, Nonconst};
use conformance::with_stream;
use gpustream::{Device, Launch, Result, Stream};

conformance::tests! {
    Plain: sums_by_halves_are_right, own_arrays_live_across_barriers, bytes_are_counted_in_shared_memory,
        threads_leave_a_loop_without_an_end, rows_of_every_length_have_few_threads_apart,
        blocks_loop_as_often_as_memory_says, conditions_pick_the_same_few_threads,
        parameters_are_each_threads_own, functions_are_handed_the_block,
        threads_touch_memory_in_their_own_order, parameters_may_be_written_as_arrays,
        threads_leave_together_after_they_wrote, the_first_threads_are_picked_as_the_bound_changes;
    Plain if has_warps_of_32: votes_count_the_threads_that_are_left, values_are_held_across_meetings,
        threads_meet_in_functions, warps_take_either_side_in_blocks_of_any_shape,
        warps_run_a_loop_differently_often, functions_return_before_the_kernel_ends;
    Warps: sums_by_shuffles_are_right, groups_are_parts_of_the_block, values_are_kept_beside_a_branch,
        shuffles_that_depend_on_each_other_are_right;
}

fn has_warps_of_32(device: &Device) -> bool {
    device.info().warp_size == 32
}

fn values(n: i32) -> Vec<i32> {
    (0..n).map(|i| i.wrapping_mul(7919) % 1000 - 300).collect()
}

fn sums_by_halves_are_right(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (n, blocks) in [(0, 1), (1, 1), (128, 1), (1000, 3), (100_000, 7)] {
        let x = values(n);
        let mut out = s.zeros::<i32>(blocks as usize)?;
        kernels.halves(&s, &Launch::new([blocks, 1, 1], [128, 1, 1]), &s.upload(&x)?, &mut out, n)?;
        let share = |block: usize| x.chunks(128).skip(block).step_by(blocks as usize).flatten().sum::<i32>();
        let expected: Vec<i32> = (0..blocks as usize).map(share).collect();
        assert_eq!(s.download(&out)?, expected, "{n} values in {blocks} blocks");
    }
    Ok(())
}

fn sums_by_shuffles_are_right(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (n, block) in [(1, 1), (31, 31), (1000, 48), (1000, 64), (5000, 1000), (5000, 1024)] {
        let x = values(n);
        let blocks = (n as u32).div_ceil(block);
        let launch = Launch::new([blocks, 1, 1], [block, 1, 1]);
        let mut out = s.zeros::<i32>(blocks as usize)?;
        kernels.warps_of(&s, &launch, &s.upload(&x)?, &mut out, n)?;
        let expected: Vec<i32> = x.chunks(block as usize).map(|share| share.iter().sum()).collect();
        assert_eq!(s.download(&out)?, expected, "{n} integers in blocks of {block}");
        let x: Vec<f64> = x.into_iter().map(f64::from).collect();
        let mut out = s.zeros::<f64>(blocks as usize)?;
        kernels.warps_of(&s, &launch, &s.upload(&x)?, &mut out, n)?;
        let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
        assert_eq!(s.download(&out)?, expected, "{n} numbers in blocks of {block}");
    }
    Ok(())
}

fn votes_count_the_threads_that_are_left(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (block, stays) in
        [([64, 1, 1], 64), ([64, 1, 1], 40), ([5, 7, 3], 105), ([8, 8, 2], 33), ([96, 1, 1], 1)]
    {
        let threads = block.iter().product::<u32>() as i32;
        let mut out = s.full(8 * threads as usize, -7)?;
        kernels.votes(&s, &Launch::new([1; 3], block), &mut out, stays)?;
        let got = s.download(&out)?;
        let value = |of: i32| of * of;
        for (me, got) in (0..threads).zip(got.chunks(8)) {
            if me >= stays {
                assert_eq!(got, [-7; 8], "thread {me} of {block:?}, of which {stays} stay");
                continue;
            }
            let warp = (me / 32 * 32..me / 32 * 32 + 32).filter(|&lane| lane < stays);
            let up = |by: i32| if me % 16 >= by { value(me - by) } else { value(me) };
            let third = me / 8 * 8 + 3;
            let want = [
                (stays + 2) / 3,
                1,
                0,
                i32::from(warp.clone().any(|lane| lane % 32 == 7)),
                i32::from(warp.clone().all(|lane| lane < 40)),
                warp.clone().filter(|lane| lane % 5 == 0).fold(0, |votes, lane| votes | 1 << (lane % 32)),
                // The other lane has left, so you may get any value.
                if third < stays { value(third) + 1 } else { got[6] },
                up(1) + up(2),
            ];
            assert_eq!(got, want, "thread {me} of {block:?}, of which {stays} stay");
        }
    }
    Ok(())
}

fn own_arrays_live_across_barriers(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for n in [1, 128, 300] {
        let x = values(n);
        let mut y = s.zeros::<i32>(n as usize)?;
        let launch = Launch::new([(n as u32).div_ceil(128), 1, 1], [128, 1, 1]).shared(512);
        kernels.windows(&s, &launch, &s.upload(&x)?, &mut y, n)?;
        let expected: Vec<i32> = (0..n)
            .map(|i| {
                let near = |d: i32| {
                    let at = i % 128 + d - 1;
                    let inside = (0..128).contains(&at);
                    if inside { x.get((i + d - 1) as usize).copied().unwrap_or(0) + d } else { 0 }
                };
                1 + near(0) + near(1) + near(2)
            })
            .collect();
        assert_eq!(s.download(&y)?, expected, "{n} values");
    }
    Ok(())
}

fn bytes_are_counted_in_shared_memory(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (n, rounds, block) in [(1, 1, 32), (1000, 3, 256), (777, 2, 100)] {
        let bytes: Vec<u8> = (0..n * rounds).map(|i| (i * i % 251) as u8).collect();
        let mut bins = s.zeros::<u32>(256)?;
        let launch = Launch::new([1; 3], [block, 1, 1]);
        kernels.counted(&s, &launch, &s.upload(&bytes)?, &mut bins, n, rounds)?;
        let mut expected = vec![0u32; 256];
        for &byte in &bytes {
            expected[byte as usize] += 1;
        }
        expected[255] = *expected.iter().max().unwrap_or(&0);
        assert_eq!(s.download(&bins)?, expected, "{rounds} rounds of {n} bytes by {block} threads");
    }
    Ok(())
}

fn values_are_held_across_meetings(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (block, n) in [(32, 3), (128, 0), (64, 20)] {
        let mut out = s.zeros::<i32>(4 * block as usize)?;
        kernels.held(&s, &Launch::new([1; 3], [block, 1, 1]), &mut out, n)?;
        let rounds = if n < 10 { 0..=n } else { 0..=9 };
        for (me, got) in (0..block as i32).zip(s.download(&out)?.chunks(4)) {
            let value = me + n;
            // The last lane keeps its own value.
            let three = if me < 32 { 6 + if me % 32 < 31 { me + 1 } else { me } } else { 0 };
            let second = 1 + (me / 32 * 32 + 1 + n) + value;
            let want = [value, value + three, second, rounds.clone().sum()];
            assert_eq!(got, want, "thread {me} of {block}, n = {n}");
        }
    }
    Ok(())
}

fn threads_leave_a_loop_without_an_end(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for block in [1, 32, 50] {
        let mut out = s.full(block as usize, -1)?;
        kernels.leave(&s, &Launch::new([1; 3], [block, 1, 1]), &mut out)?;
        let expected: Vec<i32> = (0..block as i32).rev().collect();
        assert_eq!(s.download(&out)?, expected, "a block of {block}");
    }
    Ok(())
}

fn rows_of_every_length_have_few_threads_apart(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (x, y) in
        [(256, 1), (64, 2), (32, 8), (16, 16), (48, 3), (40, 5), (10, 6), (8, 8), (1, 64), (1024, 1)]
    {
        for width in [x, x - x / 3, 1] {
            let (first, second) = (width as i32 - 1, width / 2);
            let mut out = s.full(x * y, -1)?;
            let launch = Launch::new([1, 1, 1], [x as u32, y as u32, 1]);
            kernels.columns(&s, &launch, &mut out, width as u32, first, second as u32)?;
            let own = |row: usize, column: usize| {
                (row * x + column) as i32 + if column as i32 == first { 100 } else { 0 }
            };
            let value = |row: usize, column: usize| {
                own(row, column) + if column == second && row > 0 { own(row - 1, column) } else { 0 }
            };
            let expected: Vec<i32> = (0..x * y)
                .map(|thread| thread % x)
                .map(|column| if column < width { (0..y).map(|row| value(row, column)).sum() } else { -1 })
                .collect();
            assert_eq!(s.download(&out)?, expected, "{width} of {x} columns, {y} rows");
        }
    }
    Ok(())
}

fn groups_are_parts_of_the_block(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (block, n) in [([32, 1, 1], 100usize), ([64, 1, 1], 1000), ([32, 4, 2], 1000), ([96, 1, 1], 500)] {
        let threads = block.iter().product::<u32>() as usize;
        let blocks = n.div_ceil(threads);
        let x = values(n as i32);
        let mut out = s.zeros::<i32>(2 * n)?;
        let launch = Launch::new([blocks as u32, 1, 1], block);
        kernels.grouped(&s, &launch, &s.upload(&x)?, &mut out, n as i32)?;
        let at = |i: usize| x.get(i).copied().unwrap_or(0);
        let next = |i: usize| at(i / 32 * 32 + (i + 1) % 32);
        let expected: Vec<i32> = (0..n)
            .flat_map(|i| {
                let some = (0..32).any(|lane| next(i / 32 * 32 + lane) > 600);
                let sum = (0..8).map(|lane| at(i / 8 * 8 + lane)).sum::<i32>() + if some { 1000 } else { 0 };
                [sum, next(i) * (i % threads / 32) as i32 + ((threads - 1) / 32) as i32]
            })
            .collect();
        assert_eq!(s.download(&out)?, expected, "{n} values in blocks of {block:?}");
    }
    Ok(())
}

fn functions_are_handed_the_block(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (threads, by) in [(1, 1), (48, 1), (64, 5), (128, 0), (128, 127)] {
        let x = values(3 * threads);
        let mut out = s.zeros::<i32>(x.len())?;
        let launch = Launch::new([3, 1, 1], [threads as u32, 1, 1]);
        kernels.turned_around(&s, &launch, &s.upload(&x)?, &mut out, by)?;
        let turned = |share: &[i32]| {
            let mut share = share.to_vec();
            share.rotate_left((2 * by % threads) as usize);
            share
        };
        let expected: Vec<i32> = x.chunks(threads as usize).flat_map(turned).collect();
        assert_eq!(s.download(&out)?, expected, "blocks of {threads} by {by}");
    }
    Ok(())
}

fn threads_touch_memory_in_their_own_order(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for threads in [1, 48, 64, 128] {
        let x = values(2 * threads);
        for k in 0..6 {
            let mut out = s.zeros::<i32>(4 * x.len())?;
            let launch = Launch::new([2, 1, 1], [threads as u32, 1, 1]);
            kernels.in_own_order(&s, &launch, &s.upload(&x)?, &mut out, k)?;
            let expected = |(i, x): (usize, &i32)| {
                let t = i as i32 % threads;
                let (mut own, mut pair, mut last) = ([1, t + 7, 5], [t, 3 * t], [1, 0]);
                own[k as usize % 3] ^= x;
                pair[k as usize % 2] = *x;
                last[k as usize % 2] = *x;
                let weighed = |[a, b, c]: [i32; 3]| a + 11 * b + 13 * c;
                [weighed(own), weighed([t, pair[0], pair[1]]), last[0], last[0] + last[1]]
            };
            let expected: Vec<i32> = x.iter().enumerate().flat_map(expected).collect();
            assert_eq!(s.download(&out)?, expected, "{k} in blocks of {threads}");
        }
    }
    Ok(())
}

fn blocks_loop_as_often_as_memory_says(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let rounds = [3, 0, 7, 1];
    let mut out = s.full(4, -1)?;
    kernels.as_often(&s, &Launch::new([4, 1, 1], [64, 1, 1]), &s.upload(&rounds)?, &mut out)?;
    assert_eq!(s.download(&out)?, rounds.map(|rounds| 64 * rounds * rounds));
    Ok(())
}

fn threads_meet_in_functions(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for threads in [32, 64, 256, 1024] {
        let x = values(threads);
        let mut out = s.zeros::<i32>(x.len())?;
        let launch = Launch::new([1, 1, 1], [threads as u32, 1, 1]);
        kernels.in_functions(&s, &launch, &s.upload(&x)?, &mut out)?;
        let all = x.iter().sum::<i32>() + threads * (threads - 1);
        let expected: Vec<i32> = (0..x.len())
            .map(|i| x[i] + x[(i + 3) % x.len()] + (x[i] as f32 * 0.75) as i32 / 2 + all)
            .collect();
        assert_eq!(s.download(&out)?, expected, "{threads} threads");
    }
    Ok(())
}

fn the_first_threads_are_picked_as_the_bound_changes(device: &Device) -> Result<()> {
    const BELOW: usize = 7;
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for [x, y] in [[1, 1], [5, 7], [31, 2], [32, 8], [40, 3], [48, 4], [96, 2], [512, 2], [1024, 1]] {
        for (rows, first, last) in [(y, 1, 9), (y.max(2) - 1, -2, 70), (1, 500, 510)] {
            let mut out = s.zeros::<i32>(BELOW * (x * y) as usize)?;
            kernels.below(&s, &Launch::new([1; 3], [x as u32, y as u32, 1]), &mut out, first, last, rows)?;
            for (me, got) in (0..x * y).zip(s.download(&out)?.chunks(BELOW)) {
                let (tx, ty) = (me % x, me / x);
                let times =
                    |holds: &dyn Fn(i32) -> bool| (first..=last).filter(|end| holds(*end)).count() as i32;
                let steps = [0.0, 0.75, 1.5, 2.25].into_iter().filter(|end| (tx as f32) < *end);
                let want = [
                    times(&|end| tx < end),
                    times(&|end| (tx as u32) < end as u32),
                    times(&|end| (tx as u64) < i64::from(end) as u64),
                    times(&|end| i64::from(tx) < i64::from(end) << 32),
                    steps.count() as i32,
                    [1, 2, 4].into_iter().filter(|by| ty % by == 0).sum(),
                    i32::from(ty < rows && 12 % (rows - ty) == 0),
                ];
                let want = if ty < rows { want } else { [0; BELOW] };
                assert_eq!(got, want, "thread {tx}, {ty} of {x} x {y}, {rows} rows, {first} to {last}");
            }
        }
    }
    Ok(())
}

fn conditions_pick_the_same_few_threads(device: &Device) -> Result<()> {
    const PICKS: usize = 20;
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let blocks = [[1, 1], [5, 7], [31, 2], [32, 8], [40, 3], [64, 4], [96, 2], [512, 1]];
    for ([x, y], at) in blocks.into_iter().flat_map(|block| [-1, 0, 2, 31, 33].map(|at| (block, at))) {
        let threads = x * y;
        for (stays, part) in [(threads, 2.0), (threads - threads / 3, 2.5)] {
            let mut out = s.zeros::<i32>(PICKS * threads as usize)?;
            let launch = Launch::new([1; 3], [x as u32, y as u32, 1]);
            kernels.picked(&s, &launch, &mut out, at, part, stays)?;
            for (me, got) in (0..threads).zip(s.download(&out)?.chunks(PICKS)) {
                let (tx, ty) = (me % x, me / x);
                let (lane, warp) = (tx % 32, tx / 32);
                let of = |holds: bool, value: i32| if holds { value } else { 0 };
                let mut want = [
                    of(tx == at, 1),
                    of(tx - 3 == at, 1 + warp),
                    of(lane == at, 1 + warp),
                    of(tx % 8 == 7 && tx > at, lane),
                    of(tx == 4, tx),
                    of(tx == 3, tx),
                    of(me % 3 == 2, me),
                    of(tx as f32 == part, 1),
                    of(me == at, 1),
                    of(tx & 6 == 2, 1),
                    of(tx == ty, 1),
                    of(tx == x - 1, 6),
                    100 * warp + lane,
                    10 * (tx / 8) + tx % 8,
                    of(tx % 256 == 3, 1),
                    of(ty == 1, tx),
                    of(ty == 2 && tx > 3, tx),
                    of(ty == 0 && lane == 3, tx),
                    (tx as f32 / 2.5) as i32,
                    of(at > 0 && tx == stays / at.max(1), 1),
                ];
                if me >= stays {
                    want = [0; PICKS];
                }
                assert_eq!(got, want, "thread {me} of {x} x {y}, of which {stays} stay, at {at}");
            }
        }
    }
    Ok(())
}

fn values_are_kept_beside_a_branch(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (block, rounds) in [(32, 1), (64, 0), (64, 1), (64, 2), (72, 3), (200, 2), (1024, 3)] {
        let x = values(block);
        let mut out = s.zeros::<i32>(block as usize)?;
        kernels.kept(&s, &Launch::new([1; 3], [block as u32, 1, 1]), &s.upload(&x)?, &mut out, rounds)?;
        let mut expected = x.clone();
        for (i, want) in expected.iter_mut().enumerate().filter(|(i, _)| i / 32 % 2 == 1) {
            // From the second round on, both neighbours have the sum.
            let pair = x[i] + x.get(i ^ 1).copied().unwrap_or(0);
            let alone = x.get(i ^ 1).is_none();
            let sum = if alone || rounds == 0 { x[i] } else { pair << (rounds - 1) };
            *want = sum + (x[i] << rounds);
        }
        assert_eq!(s.download(&out)?, expected, "{block} threads, {rounds} rounds");
    }
    Ok(())
}

fn warps_take_either_side_in_blocks_of_any_shape(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for block in
        [[32, 1, 1], [256, 1, 1], [64, 3, 1], [96, 2, 2], [32, 4, 8], [16, 4, 2], [48, 2, 1], [8, 8, 1]]
    {
        for pick in [0, 1, 2, 0b1010_1101, u32::MAX] {
            let [x, y, z] = block;
            let threads = (x * y * z) as i32;
            let mut out = s.zeros::<i32>(4 * threads as usize)?;
            kernels.sides(&s, &Launch::new([1; 3], block), &mut out, pick)?;
            let is_picked = |me: i32| pick >> (me / 32) & 1 != 0;
            let summed = |me: i32| me * me + (me ^ 4) * (me ^ 4);
            let value = |me: i32| match me % 32 {
                16.. if is_picked(me) => summed(me) + summed(me / 32 * 32 + 20),
                _ if is_picked(me) => summed(me),
                0 => 0,
                _ => me * me - (me - 1) * (me - 1),
            };
            let place =
                |me: i32| me % x as i32 + 100 * (me / x as i32 % y as i32) + 10_000 * (me / (x * y) as i32);
            let expected: Vec<i32> = (0..threads)
                .flat_map(|me| {
                    let next = if me % 32 == 31 { me } else { me + 1 };
                    let (first, mark) = if is_picked(me) { (7 * (me % 32), 11 + place(me)) } else { (-1, 0) };
                    [first, value(me), mark, value(next)]
                })
                .collect();
            assert_eq!(s.download(&out)?, expected, "block {block:?}, warps {pick:#b}");
        }
    }
    Ok(())
}

fn parameters_may_be_written_as_arrays(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (block, n) in [(32, 32), (64, 33), (100, 100), (256, 1)] {
        let x = values(n);
        let mut out = s.zeros::<i32>(n as usize)?;
        kernels.mirrored(&s, &Launch::new([1; 3], [block, 1, 1]), &s.upload(&x)?, &mut out, n)?;
        let expected: Vec<i32> = x.iter().zip(x.iter().rev()).map(|(x, other)| x + other).collect();
        assert_eq!(s.download(&out)?, expected, "{n} values in a block of {block}");
    }
    Ok(())
}

fn parameters_are_each_threads_own(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut out = s.zeros::<i32>(70)?;
    kernels.advanced(&s, &Launch::new([1; 3], [70, 1, 1]), Nonconst { count: 5 }, &mut out)?;
    let expected: Vec<i32> = (0..70).map(|i| 2 * (5 + i) + 1).collect();
    assert_eq!(s.download(&out)?, expected);
    Ok(())
}

/// A number that `in_registers` can compute with. All results are whole numbers that each type can hold, modulo 2^32.
trait Number: Copy + PartialEq + std::fmt::Debug {
    fn of(number: i32) -> Self;
    fn launch(s: &Stream, kernels: &Kernels, block: [u32; 3], x: &[Self], stays: u32) -> Result<Vec<Self>>;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Number for $number {
            fn of(number: i32) -> Self {
                number as Self
            }

            fn launch(s: &Stream, kernels: &Kernels, block: [u32; 3], x: &[Self], stays: u32) -> Result<Vec<Self>> {
                let mut out = s.zeros::<Self>(6 * x.len())?;
                let launch = Launch::new([1, 1, 1], block);
                kernels.in_registers(s, &launch, &s.upload(x)?, &mut out, stays as i32)?;
                s.download(&out)
            }
        })*
    };
}
numbers!(i32, u32, f32, f64, i64);

/// Returns what the threads of one warp find if the block has `stays` threads.
fn found_by_shuffles(x: &[i32], stays: usize) -> Vec<[i32; 6]> {
    let lanes = 0..32usize;
    let (most, at) = lanes.clone().map(|lane| (x[lane], lane)).max().unwrap_or_default();
    let far: Vec<i32> = lanes.clone().map(|lane| lane.abs_diff(at) as i32).collect();
    let far: Vec<i32> = lanes.clone().map(|lane| far[lane ^ 5]).collect();
    let far: Vec<i32> = lanes.clone().map(|lane| far[lane].min(far[lane ^ 3])).collect();
    let two_on = |lane: usize| if lane % 8 + 2 < 8 { lane + 2 } else { lane };
    let least: Vec<i32> = lanes.clone().map(|lane| far[lane] - far[two_on(lane)].max(3) * 2).collect();
    let (mut parts, mut step) = (x.to_vec(), 1);
    while step < 16 && step < stays {
        let up = |lane: usize| if lane % 16 >= step { lane - step } else { lane };
        let from = |lane: usize| lane / 8 * 8 + step % 8;
        parts = lanes.clone().map(|lane| -(parts[lane] + parts[up(lane)] - parts[from(lane)])).collect();
        step = 3 * step + 1;
    }
    let sum = |lane: usize| x[..=lane].iter().sum();
    lanes.map(|lane| [sum(lane), most, at as i32, least[lane], parts[lane], parts[lane ^ 0x11]]).collect()
}

fn check_shuffles<T: Number>(s: &Stream, kernels: &Kernels) -> Result<()> {
    let blocks = [[32, 1, 1], [64, 1, 1], [16, 4, 1], [96, 1, 2], [32, 3, 2], [8, 4, 3], [1024, 1, 1]];
    for block in blocks {
        let threads = block.iter().product::<u32>();
        let x = values(threads as i32).into_iter().map(|x| x + 300).collect::<Vec<_>>();
        for stays in [threads, threads / 64 * 32] {
            let numbers: Vec<T> = x.iter().map(|&x| T::of(x)).collect();
            let out = T::launch(s, kernels, block, &numbers, stays)?;
            let found = x[..stays as usize].chunks(32).flat_map(|x| found_by_shuffles(x, stays as usize));
            let mut expected: Vec<T> = found.flatten().map(T::of).collect();
            expected.resize(out.len(), T::of(0));
            assert_eq!(out, expected, "{block:?}, of which {stays} stay");
        }
    }
    Ok(())
}

fn shuffles_that_depend_on_each_other_are_right(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    check_shuffles::<i32>(&s, &kernels)?;
    check_shuffles::<u32>(&s, &kernels)?;
    check_shuffles::<f32>(&s, &kernels)?;
    check_shuffles::<f64>(&s, &kernels)?;
    check_shuffles::<i64>(&s, &kernels)
}

fn threads_leave_together_after_they_wrote(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let ends = [-1, 0, 2, 5, 7];
    for threads in [1, 20, 64, 96] {
        let mut x = s.zeros::<i32>(ends.len() * threads)?;
        let launch = Launch::new([ends.len() as u32, 1, 1], [threads as u32, 1, 1]);
        kernels.leave_together(&s, &launch, &s.upload(&ends)?, &mut x, 5)?;
        let of = |i: usize| match (ends[i / threads], i % threads) {
            (end, _) if end < 0 => -(i as i32),
            (end, thread) if end < 5 => end + 1000 * thread as i32,
            _ => 5,
        };
        assert_eq!(s.download(&x)?, (0..x.len()).map(of).collect::<Vec<_>>(), "{threads} threads");
    }
    Ok(())
}

fn warps_run_a_loop_differently_often(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (rows, columns, threads) in [(1, 5, 32), (7, 40, 96), (13, 100, 128), (64, 33, 64), (0, 1, 64)] {
        let (x, warps) = (values(rows * columns), 2 * threads / 32);
        let (mut sums, mut had) = (s.zeros::<i32>(rows as usize)?, s.zeros::<i32>(warps)?);
        let launch = Launch::new([2, 1, 1], [threads as u32, 1, 1]);
        kernels.rows_by_warps(&s, &launch, &s.upload(&x)?, &mut sums, &mut had, rows, columns)?;
        let expected: Vec<i32> = x.chunks(columns as usize).map(|row| row.iter().sum()).collect();
        assert_eq!(s.download(&sums)?, expected, "{rows} rows of {columns}, {threads} threads");
        let share = |warp: usize| (0..rows).skip(warp).step_by(warps).sum::<i32>();
        assert_eq!(
            s.download(&had)?,
            (0..warps).map(share).collect::<Vec<_>>(),
            "{rows} rows, {threads} threads"
        );
    }
    Ok(())
}

fn functions_return_before_the_kernel_ends(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (rows, columns) in [(1, 5), (6, 40), (8, 100)] {
        let x = values(rows * columns);
        let mut sums = s.zeros::<i32>(rows as usize)?;
        let launch = Launch::new([2, 1, 1], [32, 4, 1]);
        kernels.rows_by_function(&s, &launch, &s.upload(&x)?, &mut sums, rows, columns)?;
        let expected: Vec<i32> = x.chunks(columns as usize).map(|row| row.iter().sum()).collect();
        assert_eq!(s.download(&sums)?, expected, "{rows} rows of {columns}");
    }
    Ok(())
}
