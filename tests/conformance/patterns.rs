//! Patterns that existing CUDA and HIP kernels use must mean the same on every backend. We compare each with plain
//! Rust.

use conformance::patterns::{Kernels, Operation, Particles, Vec_float_3};
use conformance::{Random, assert_all};
use gpustream::{Device, Launch, Result, Stream};

conformance::tests! {
    Plain: shared_memory_holds_several_arrays, a_lock_keeps_steps_together, atomics_of_a_warp_are_one,
        strides_cover_any_grid, buffers_take_turns, tables_are_looked_up, structs_of_arrays_lead_to_memory,
        bits_are_mixed, four_elements_move_at_once, volatile_memory_sums_a_warp,
        device_functions_call_themselves, functions_are_called_by_pointer, unions_show_bytes,
        counts_of_blocks_are_merged, tiles_are_transposed, neighbours_are_shared, shuffles_scan_a_block,
        the_last_block_adds_up, places_are_searched_for, pixels_are_blurred, tiles_are_multiplied,
        generators_run_in_each_thread, votes_end_loops, links_are_followed, templates_choose_by_enumerators,
        kernels_by_path_take_null;
}

/// Lengths around blocks and powers of two.
const LENGTHS: [usize; 6] = [1, 2, 63, 64, 257, 1000];

fn start(device: &Device) -> Result<(Kernels, Stream, Random)> {
    Ok((Kernels::load(device)?, device.stream()?, Random(7)))
}

fn blocks(blocks: u32, threads: u32) -> Launch {
    Launch::new([blocks, 1, 1], [threads, 1, 1])
}

fn below(random: &mut Random, limit: u32) -> u32 {
    random.below(limit as usize) as u32
}

fn small(random: &mut Random, n: usize) -> Vec<i32> {
    (0..n).map(|_| below(random, 2000) as i32 - 1000).collect()
}

fn shared_memory_holds_several_arrays(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for n in [1, 2, 33, 256usize] {
        let x = small(&mut random, n);
        let mut out = s.zeros::<f64>(n)?;
        let launch = blocks(1, n as u32).shared(13 * n as u32);
        kernels.several_arrays(&s, &launch, &s.upload(&x)?, &mut out, n as u32)?;
        let want =
            |i: usize| f64::from(x[(i + 1) % n]) / 2.0 + f64::from(x[n - 1 - i] + 1000 * (x[n - 1 - i] & 1));
        assert_eq!(s.download(&out)?, (0..n).map(want).collect::<Vec<_>>(), "{n}");
    }
    Ok(())
}

fn a_lock_keeps_steps_together(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    let (mut lock, mut numbers) = (s.zeros::<i32>(1)?, s.zeros::<u32>(3)?);
    kernels.under_a_lock(&s, &blocks(13, 32), &mut lock, &mut numbers, 50)?;
    assert_eq!((s.download(&numbers)?, s.download(&lock)?), (vec![650; 3], vec![0]));
    Ok(())
}

fn atomics_of_a_warp_are_one(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for n in LENGTHS {
        let x = small(&mut random, n);
        let (mut found, mut count) = (s.zeros::<i32>(n)?, s.zeros::<u32>(1)?);
        kernels.collect_above(&s, &s.upload(&x)?, &mut found, &mut count, 100, n as u32)?;
        let mut want: Vec<i32> = x.into_iter().filter(|&x| x > 100).collect();
        want.sort_unstable();
        let mut got = s.download(&found)?;
        got.truncate(s.download(&count)?[0] as usize);
        got.sort_unstable();
        assert_eq!(got, want, "{n}");
    }
    Ok(())
}

fn strides_cover_any_grid(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for (n, launch) in [(1, blocks(1, 1)), (1000, blocks(3, 64)), (1000, blocks(40, 32)), (257, blocks(1, 7))]
    {
        let floats = |values: Vec<i32>| values.into_iter().map(|x| x as f32).collect::<Vec<_>>();
        let (x, y) = (floats(small(&mut random, n)), floats(small(&mut random, n)));
        let mut out = s.upload(&y)?;
        kernels.strided_axpy(&s, &launch, 0.5, &s.upload(&x)?, &mut out, n as i32)?;
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 0.5 * x + y).collect();
        assert_eq!(s.download(&out)?, want, "{n}");
    }
    Ok(())
}

fn inclusive_sums<T: Copy + Default + std::ops::Add<Output = T>>(x: &[T], block: usize) -> Vec<T> {
    let sums = x.chunks(block).map(|share| {
        share.iter().scan(T::default(), |sum, &x| {
            *sum = *sum + x;
            Some(*sum)
        })
    });
    sums.flatten().collect()
}

fn buffers_take_turns(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for n in LENGTHS {
        let x: Vec<u32> = (0..n).map(|_| below(&mut random, 1000)).collect();
        let mut sums = s.zeros::<u32>(n)?;
        kernels.ping_pong_scan(&s, &s.upload(&x)?, &mut sums, n as u32)?;
        assert_eq!(s.download(&sums)?, inclusive_sums(&x, 128), "{n}");
    }
    Ok(())
}

fn tables_are_looked_up(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let crc = |row: &[u8]| {
        let bit = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        !row.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| bit(crc)))
    };
    assert_eq!(crc(b"123456789"), 0xcbf4_3926, "the reference");
    let (rows, length) = (100usize, 37);
    let text: Vec<u8> = (0..rows * length).map(|_| below(&mut random, 256) as u8).collect();
    let mut sums = s.zeros::<u32>(rows)?;
    kernels.crc_by_table(&s, &s.upload(&text)?, &mut sums, length as u32, rows as u32)?;
    assert_eq!(s.download(&sums)?, text.chunks(length).map(crc).collect::<Vec<_>>());
    Ok(())
}

fn structs_of_arrays_lead_to_memory(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    let n = 300usize;
    let x = s.upload(&(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    let (velocity, fixed) =
        (s.full(n, 2.0f32)?, s.upload(&(0..n).map(|i| (i % 3 == 0) as u8).collect::<Vec<_>>())?);
    let all = Particles {
        x: x.as_raw().0,
        velocity: velocity.as_raw().0,
        fixed: fixed.as_raw().0,
        n: n as i32,
        ..Particles::default()
    };
    // SAFETY: the arrays have n elements, were written on this stream, and live on until the download.
    unsafe { kernels.move_particles(&s, &blocks(5, 64), all, 0.25)? };
    let want: Vec<f32> = (0..n).map(|i| i as f32 + if i % 3 == 0 { 0.0 } else { 0.5 }).collect();
    assert_eq!(s.download(&x)?, want);
    Ok(())
}

fn bits_are_mixed(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let mut x = vec![0, 1, 2, 3, 4, 5, 0x8000_0000, 0x7fff_ffff, 0x4000_0000];
    x.extend((0..300).map(|_| below(&mut random, 0x4000_0000)));
    let mut out = s.zeros::<u32>(4 * x.len())?;
    kernels.bit_tricks(&s, &s.upload(&x)?, &mut out, x.len() as u32)?;
    for (&v, got) in x.iter().zip(s.download(&out)?.chunks(4)) {
        let bit = |of: u32, at: u32, to: u32| ((of >> at) & 1) << to;
        let morton = (0..16).fold(0, |all, i| all | bit(v, i, 2 * i) | bit(v, 16 + i, 2 * i + 1));
        let lowest = if v == 0 { u32::MAX } else { v.trailing_zeros() };
        assert_eq!(got, [morton, v ^ (v >> 1), v.next_power_of_two(), lowest], "{v:#x}");
    }
    Ok(())
}

fn four_elements_move_at_once(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    for n in [1usize, 3, 4, 7, 256, 1001] {
        let x: Vec<f32> = (0..n).map(|i| i as f32 - 3.0).collect();
        let mut y = s.zeros::<f32>(n)?;
        kernels.by_fours(&s, &s.upload(&x)?, &mut y, n as i32)?;
        assert_eq!(s.download(&y)?, x.iter().map(|x| 2.0 * x).collect::<Vec<_>>(), "{n}");
    }
    Ok(())
}

fn volatile_memory_sums_a_warp(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for (n, grid) in [(1usize, 1u32), (255, 1), (1000, 3), (5000, 4)] {
        let x = small(&mut random, n);
        let mut sums = s.zeros::<i32>(grid as usize)?;
        kernels.volatile_sum(&s, &blocks(grid, 256), &s.upload(&x)?, &mut sums, n as u32)?;
        assert_eq!(s.download(&sums)?.iter().sum::<i32>(), x.iter().sum(), "{n} in {grid} blocks");
    }
    Ok(())
}

fn device_functions_call_themselves(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    let mut out = s.zeros::<u32>(100)?;
    kernels.recursive(&s, &mut out, 100)?;
    let numbers = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34];
    assert_eq!(s.download(&out)?, numbers.repeat(10));
    Ok(())
}

fn functions_are_called_by_pointer(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let n = 500;
    let (x, y) = (small(&mut random, n), small(&mut random, n));
    let which: Vec<u32> = (0..n as u32).map(|i| i * i).collect();
    let mut out = s.upload(&y)?;
    kernels.by_pointer(&s, &s.upload(&x)?, &mut out, &s.upload(&which)?, n as u32)?;
    let want = (0..n).map(|i| match which[i] % 3 {
        0 => x[i] + y[i],
        1 => x[i] * y[i],
        _ => x[i].max(y[i]),
    });
    assert_eq!(s.download(&out)?, want.collect::<Vec<_>>());
    Ok(())
}

fn unions_show_bytes(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let x: Vec<f32> = small(&mut random, 300).into_iter().map(|x| x as f32 / 7.0).collect();
    let mut out = s.zeros::<u32>(x.len())?;
    kernels.through_a_union(&s, &s.upload(&x)?, &mut out, x.len() as u32)?;
    assert_eq!(s.download(&out)?, x.iter().map(|x| x.abs().to_bits().swap_bytes()).collect::<Vec<_>>());
    Ok(())
}

fn counts_of_blocks_are_merged(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for (n, launch) in [(1usize, blocks(1, 32)), (5000, blocks(7, 96)), (5000, blocks(2, 256))] {
        let x: Vec<u8> = (0..n).map(|_| below(&mut random, 256) as u8).collect();
        let mut counts = s.zeros::<u32>(64)?;
        kernels.histogram(&s, &launch, &s.upload(&x)?, &mut counts, n as u32)?;
        let want = (0..64u8).map(|v| x.iter().filter(|&&x| x % 64 == v).count() as u32);
        assert_eq!(s.download(&counts)?, want.collect::<Vec<_>>(), "{n}");
    }
    Ok(())
}

fn tiles_are_transposed(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    for (width, height) in [(1usize, 1usize), (16, 16), (17, 3), (50, 33)] {
        let from: Vec<f32> = (0..width * height).map(|i| i as f32).collect();
        let mut to = s.zeros::<f32>(width * height)?;
        kernels.transposed(&s, &s.upload(&from)?, &mut to, width as u32, height as u32)?;
        let want = (0..width).flat_map(|x| (0..height).map(move |y| (y * width + x) as f32));
        assert_eq!(s.download(&to)?, want.collect::<Vec<_>>(), "{width} by {height}");
    }
    Ok(())
}

fn neighbours_are_shared(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for n in LENGTHS {
        let x = small(&mut random, n);
        let mut y = s.zeros::<i32>(n)?;
        kernels.with_halo(&s, &s.upload(&x)?, &mut y, n as u32)?;
        let at = |i: usize| x.get(i).copied().unwrap_or(0);
        let want = (0..n).map(|i| at(i.wrapping_sub(1)) + at(i) + at(i + 1));
        assert_eq!(s.download(&y)?, want.collect::<Vec<_>>(), "{n}");
    }
    Ok(())
}

fn shuffles_scan_a_block(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for n in LENGTHS {
        let x = small(&mut random, n);
        let mut sums = s.zeros::<i32>(n)?;
        kernels.scan_by_shuffles(&s, &s.upload(&x)?, &mut sums, n as u32)?;
        assert_eq!(s.download(&sums)?, inclusive_sums(&x, 256), "{n}");
    }
    Ok(())
}

/// The kernel must reset its ticket, because the next launch uses it again.
fn the_last_block_adds_up(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let x: Vec<u32> = (0..3000).map(|_| below(&mut random, 1000)).collect();
    let from = s.upload(&x)?;
    for grid in [1u32, 2, 29] {
        let (mut parts, mut total) = (s.zeros::<u32>(grid as usize)?, s.zeros::<u32>(1)?);
        kernels.last_block_sum(&s, &blocks(grid, 64), &from, &mut parts, &mut total, 3000)?;
        assert_eq!(s.download(&total)?, [x.iter().sum::<u32>()], "{grid} blocks");
    }
    Ok(())
}

fn places_are_searched_for(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for n in LENGTHS {
        let (mut sorted, key) = (small(&mut random, n), small(&mut random, 200));
        sorted.sort_unstable();
        let mut at = s.zeros::<u32>(200)?;
        kernels.lower_bound(&s, &s.upload(&sorted)?, n as u32, &s.upload(&key)?, &mut at, 200)?;
        let want = key.iter().map(|key| sorted.partition_point(|x| x < key) as u32);
        assert_eq!(s.download(&at)?, want.collect::<Vec<_>>(), "{n}");
    }
    Ok(())
}

fn pixels_are_blurred(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for (width, height) in [(1i32, 1i32), (8, 8), (13, 29)] {
        let from: Vec<u8> = (0..width * height).map(|_| below(&mut random, 256) as u8).collect();
        let mut to = s.zeros::<u8>(from.len())?;
        kernels.blurred(&s, &s.upload(&from)?, &mut to, width, height)?;
        let pixel = |x: i32, y: i32| {
            u32::from(from[(y.clamp(0, height - 1) * width + x.clamp(0, width - 1)) as usize])
        };
        let mean = |x: i32, y: i32| (0..9).map(|k| pixel(x + k % 3 - 1, y + k / 3 - 1)).sum::<u32>() / 9;
        let want = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| mean(x, y) as u8);
        assert_eq!(s.download(&to)?, want.collect::<Vec<_>>(), "{width} by {height}");
    }
    Ok(())
}

fn tiles_are_multiplied(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    for size in [1usize, 16, 21, 40] {
        let mut matrix = || (0..size * size).map(|_| below(&mut random, 16) as f32 - 8.0).collect::<Vec<_>>();
        let (a, b) = (matrix(), matrix());
        let mut c = s.zeros::<f32>(size * size)?;
        kernels.product(&s, &s.upload(&a)?, &s.upload(&b)?, &mut c, size as u32)?;
        let element = |x: usize, y: usize| (0..size).map(|i| a[y * size + i] * b[i * size + x]).sum::<f32>();
        let want = (0..size * size).map(|at| element(at % size, at / size));
        // These are small integers, so every sum is exact.
        assert_eq!(s.download(&c)?, want.collect::<Vec<_>>(), "{size}");
    }
    Ok(())
}

fn generators_run_in_each_thread(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    let (n, throws) = (100u64, 64);
    let mut inside = s.zeros::<u32>(n as usize)?;
    kernels.monte_carlo(&s, &mut inside, throws, n as u32)?;
    let count = |i: u64| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(i + 1);
        let thrown = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (x, y) = (state >> 48, state & 0xffff);
            u32::from(x * x + y * y < 1 << 32)
        };
        (0..throws).map(thrown).sum::<u32>()
    };
    assert_eq!(s.download(&inside)?, (0..n).map(count).collect::<Vec<_>>());
    Ok(())
}

fn votes_end_loops(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let (grid, threads) = (5usize, 48);
    let x: Vec<u32> = (0..grid * threads).map(|_| 1 + below(&mut random, 1000)).collect();
    let (mut rounds, mut even) = (s.zeros::<u32>(grid)?, s.zeros::<i32>(grid)?);
    let launch = blocks(grid as u32, threads as u32);
    kernels.until_all_are_done(&s, &launch, &s.upload(&x)?, &mut rounds, &mut even, 10_000)?;
    let steps = |&x: &u32| {
        let next = |&x: &u64| (x > 1).then_some(if x % 2 == 0 { x / 2 } else { 3 * x + 1 });
        std::iter::successors(Some(u64::from(x)), next).count() as u32 - 1
    };
    let want = x.chunks(threads).map(|share| share.iter().map(steps).max().unwrap_or(0));
    assert_eq!(s.download(&rounds)?, want.collect::<Vec<_>>());
    let want = x.chunks(threads).map(|share| share.iter().filter(|&x| x % 2 == 0).count() as i32);
    assert_eq!(s.download(&even)?, want.collect::<Vec<_>>());
    Ok(())
}

fn links_are_followed(device: &Device) -> Result<()> {
    let (kernels, s, mut random) = start(device)?;
    let n = 400u32;
    let next: Vec<u32> = (0..n).map(|i| if i == 0 { 0 } else { below(&mut random, i + 1) }).collect();
    let mut ends = s.zeros::<u32>(n as usize)?;
    kernels.ends_of_lists(&s, &s.upload(&next)?, &mut ends, n)?;
    let end = |mut i: usize| {
        while next[i] as usize != i {
            i = next[i] as usize;
        }
        i as u32
    };
    assert_eq!(s.download(&ends)?, (0..n as usize).map(end).collect::<Vec<_>>());
    Ok(())
}

fn templates_choose_by_enumerators(device: &Device) -> Result<()> {
    const SUM: i32 = Operation::Sum.0;
    const LARGEST: i32 = Operation::Largest.0;
    let (kernels, s, mut random) = start(device)?;
    let values: Vec<f32> = small(&mut random, 300).into_iter().map(|x| x as f32).collect();
    let v = Vec_float_3 { x: [1.0, -2.5, 70.0] };
    let mut x = s.upload(&values)?;
    kernels.with_vector::<f32, SUM>(&s, &mut x, v, 300)?;
    assert_eq!(s.download(&x)?, values.iter().map(|x| x + 68.5).collect::<Vec<_>>());
    kernels.with_vector::<f32, LARGEST>(&s, &mut x, v, 300)?;
    assert_eq!(s.download(&x)?, values.iter().map(|x| (x + 68.5).max(70.0)).collect::<Vec<_>>());
    Ok(())
}

fn kernels_by_path_take_null(device: &Device) -> Result<()> {
    let (kernels, s, _) = start(device)?;
    let (mut x, by) = (s.full(100, 5i32)?, s.full(1, 30i32)?);
    kernels.shifted(&s, &mut x, Some(&by), 100)?;
    kernels.shifted(&s, &mut x, None, 100)?;
    assert_all(&s, &x, 36)
}
