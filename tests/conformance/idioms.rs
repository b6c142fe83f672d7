//! What existing CUDA and HIP kernels often do must mean the same on every backend.

use conformance::{has_cooperative_launches, idioms, own_words, with_stream};
use gpustream::half::f16;
use gpustream::{Device, Launch, Result};

conformance::tests! {
    Plain: threads_that_have_returned_take_no_part_in_barriers, integer_intrinsics_match_plain_rust,
        steps_of_dynamic_programming_match_plain_rust, counters_lose_no_update, a_files_own_definitions_win,
        pairs_of_halves_match_plain_rust, directed_rounding_matches_plain_rust,
        special_functions_match_series, extremes_leave_out_nan;
    Plain if has_cooperative_launches: cooperative_groups_of_a_grid_meet;
    Warps: cooperative_groups_of_a_block_match_plain_rust, masks_of_32_bits_name_the_whole_warp;
}

fn threads_that_have_returned_take_no_part_in_barriers(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    for (n, block) in [(1, 32), (31, 32), (1000, 64), (1000, 96), (1025, 1024), (2048, 1024), (700, 1)] {
        let x: Vec<u32> = (0..n).map(|i| i * 7 + 1).collect();
        let blocks = n.div_ceil(block);
        let mut sums = s.zeros::<u32>(blocks as usize)?;
        let launch = Launch::new([blocks, 1, 1], [block, 1, 1]);
        kernels.sum_of_those_left(&s, &launch, &s.upload(&x)?, &mut sums, n)?;
        let expected: Vec<u32> = x.chunks(block as usize).map(|share| share.iter().sum()).collect();
        assert_eq!(s.download(&sums)?, expected, "{n} elements in blocks of {block}");
    }
    Ok(())
}

/// If one of two numbers is NaN, the other one is the least and the greatest, as in Rust.
fn extremes_leave_out_nan(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let numbers = [1.5, -2.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -3.4e38];
    let pairs: Vec<_> = numbers.iter().flat_map(|x| numbers.map(|y| (*x, y))).collect();
    let (x, y): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let mut out = s.zeros::<f64>(6 * pairs.len())?;
    kernels.extremes(&s, &s.upload(&x)?, &s.upload(&y)?, &mut out, pairs.len() as u32)?;
    for ((x, y), got) in pairs.into_iter().zip(s.download(&out)?.chunks(6)) {
        let want = [x.min(y), x.max(y)].map(f64::from);
        for got in got.chunks(2) {
            let same = |(got, want): (&f64, &f64)| got == want || got.is_nan() && want.is_nan();
            assert!(got.iter().zip(&want).all(same), "{x} and {y}: {got:?}, not {want:?}");
        }
    }
    Ok(())
}

fn cooperative_groups_of_a_block_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    for threads in [16, 64, 256u32] {
        let mut out = s.zeros::<u32>(20 * threads as usize)?;
        kernels.groups_of_a_block(&s, &Launch::new([1; 3], [threads, 1, 1]), &mut out)?;
        for (me, got) in (0..threads).zip(s.download(&out)?.chunks(20)) {
            let (tile, rank) = (me / 16 * 16, me % 16);
            let members = tile..tile + 16;
            let want = [
                threads,
                rank,
                16,
                me / 16,
                tile + 3,
                if rank + 5 < 16 { me + 5 } else { me },
                if rank < 5 { me } else { me - 5 },
                tile + (rank ^ 6),
                u32::from(members.contains(&5)),
                u32::from(tile + 15 < 40),
                members.clone().filter(|t| t % 5 == 0).fold(0, |votes, t| votes | 1 << (t - tile)),
                members.clone().sum(),
                tile,
                (tile..=me).sum(),
                (tile..me).sum(),
                me / 4 * 4 + 3,
                rank / 4,
            ];
            assert_eq!(got[..17], want, "thread {me} of {threads}");
            let in_coalesced = u32::from(me % 3 == 0);
            assert_eq!(got[17..], [in_coalesced; 3], "thread {me} of {threads}");
        }
    }
    Ok(())
}

fn cooperative_groups_of_a_grid_meet(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    for threads in [1, 96, 256] {
        let kernel = kernels.module().kernel("add_the_sum")?;
        let blocks = kernel.occupancy(threads, 0)? * device.info().multiprocessors;
        let mut want: Vec<u32> = (0..1000).map(|i| i * i + 3).collect();
        let (mut x, mut sums) = (s.upload(&want)?, s.zeros::<u32>(2)?);
        let launch = Launch::new([blocks, 1, 1], [threads, 1, 1]);
        kernels.add_the_sum(&s, &launch, &mut x, &mut sums, 5, 1000)?;
        for _ in 0..5 {
            let sum = want.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
            for x in &mut want {
                *x = x.wrapping_add(sum);
            }
        }
        assert_eq!(s.download(&x)?, want, "{blocks} blocks of {threads}");
    }
    Ok(())
}

fn masks_of_32_bits_name_the_whole_warp(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let threads = 128u32;
    let mut out = s.zeros::<u32>(12 * threads as usize)?;
    kernels.masked_warps(&s, &Launch::new([1; 3], [threads, 1, 1]), &mut out)?;
    for (me, got) in (0..threads).zip(s.download(&out)?.chunks(12)) {
        let (at, base) = (me % 32, me / 32 * 32);
        let want = [
            base + 3,
            if at < 2 { me } else { me - 2 },
            if at % 8 < 6 { me + 2 } else { me },
            me ^ 5,
            0x4924_9249,
            1,
            0,
            0x1111_1111 << (at % 4),
            1,
            1,
            base + 5,
            1,
        ];
        assert_eq!(got, want, "thread {me}");
    }
    Ok(())
}

fn integer_intrinsics_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.rotate_left(13)
    };
    let mut a = vec![0, u32::MAX, 0x8000_0000, 0x80_7f_80_7f, 0x7fff_8000, 0x0101_0101, 5];
    let mut b = vec![u32::MAX, 1, 0x8000_0000, 0x7f_80_80_80, 0x8000_7fff, 0xff00_ff00, 0];
    a.extend((0..500).map(|_| random()));
    b.extend((0..500).map(|_| random()));
    let mut out = s.zeros::<u32>(28 * a.len())?;
    kernels.integer_intrinsics(&s, &s.upload(&a)?, &s.upload(&b)?, &mut out, a.len() as u32)?;
    let bytes = |x: u32, y: u32, f: &dyn Fn(u8, u8) -> u8| {
        let (x, y) = (x.to_le_bytes(), y.to_le_bytes());
        u32::from_le_bytes(std::array::from_fn(|i| f(x[i], y[i])))
    };
    let halves = |x: u32, y: u32, f: &dyn Fn(u16, u16) -> u16| {
        u32::from(f(x as u16, y as u16)) | (u32::from(f((x >> 16) as u16, (y >> 16) as u16)) << 16)
    };
    for ((&x, &y), got) in a.iter().zip(&b).zip(s.download(&out)?.chunks(28)) {
        let (xb, yb) = (x.to_le_bytes(), y.to_le_bytes());
        let pair = (u64::from(y) << 32) | u64::from(x);
        let signed_24 = |x: u32| ((x as i32) << 8) >> 8;
        let want = [
            bytes(x, y, &u8::wrapping_add),
            halves(x, y, &u16::wrapping_sub),
            bytes(x, y, &|x, y| (x as i8).saturating_add(y as i8) as u8),
            bytes(x, y, &u8::saturating_sub),
            bytes(x, y, &u8::abs_diff),
            halves(x, y, &|x, y| (x as i16).max(y as i16) as u16),
            bytes(x, y, &u8::min),
            bytes(x, y, &|x, y| if x as i8 > y as i8 { 255 } else { 0 }),
            halves(x, y, &|x, y| u16::from(x < y)),
            bytes(x, y, &|x, y| (u16::from(x) + u16::from(y)).div_ceil(2) as u8),
            bytes(x, 0, &|x, _| (x as i8).wrapping_abs() as u8),
            halves(x, 0, &|x, _| x.wrapping_neg()),
            xb.iter().zip(yb).map(|(&x, y)| u32::from(x.abs_diff(y))).sum(),
            (3 + xb.iter().zip(yb).map(|(&x, y)| i32::from(x as i8) * i32::from(y as i8)).sum::<i32>())
                as u32,
            3 + xb.iter().zip(yb).map(|(&x, y)| u32::from(x) * u32::from(y)).sum::<u32>(),
            ((pair << 5) >> 32) as u32,
            y,
            u32::from_le_bytes([xb[0], yb[0], xb[2], yb[2]]),
            x.reverse_bits(),
            (if x == 0 { 0 } else { x.trailing_zeros() + 1 })
                + 64 * y.leading_zeros()
                + 4096 * x.count_ones(),
            signed_24(x).wrapping_mul(signed_24(y)) as u32,
            ((u64::from(x) * u64::from(y)) >> 32) as u32,
            x,
            y,
            u64::midpoint(x.into(), y.into()) as u32,
            x.abs_diff(y).wrapping_add(9),
            x ^ y,
            x.min(y).wrapping_sub(x.max(3)),
        ];
        assert_eq!(got, want, "{x:#x} and {y:#x}");
    }
    Ok(())
}

fn steps_of_dynamic_programming_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let edges = [0, 1, 5, u32::MAX, 0x7fff_ffff, 0x8000_0000, 0x7fff_8000, 0x8000_7fff, 0xffff_0001];
    let mut triples = Vec::new();
    for x in edges {
        for y in edges {
            triples.extend(edges.map(|z| [x, y, z]));
        }
    }
    let column = |at: usize| triples.iter().map(|triple| triple[at]).collect::<Vec<u32>>();
    let mut out = s.zeros::<u32>(37 * triples.len())?;
    let (a, b, c) = (s.upload(&column(0))?, s.upload(&column(1))?, s.upload(&column(2))?);
    kernels.dynamic_programming(&s, &a, &b, &c, &mut out, triples.len() as u32)?;
    let halves = |[x, y, z]: [u32; 3], f: &dyn Fn(u16, u16, u16) -> u16| {
        let high = f((x >> 16) as u16, (y >> 16) as u16, (z >> 16) as u16);
        u32::from(high) << 16 | u32::from(f(x as u16, y as u16, z as u16))
    };
    for (&triple, got) in triples.iter().zip(s.download(&out)?.chunks(37)) {
        let [x, y, z] = triple;
        let signed = |f: &dyn Fn(i32, i32, i32) -> i32| f(x as i32, y as i32, z as i32) as u32;
        let signed_halves = |f: &dyn Fn(i16, i16, i16) -> i16| {
            halves(triple, &|x, y, z| f(x as i16, y as i16, z as i16) as u16)
        };
        let unsigned_halves = |f: &dyn Fn(u16, u16, u16) -> u16| halves(triple, f);
        let bits = |x: u32, at: usize| (x >> (16 * at)) as u16;
        let said = |first: bool, of_half: &dyn Fn(u16, u16) -> bool| {
            u32::from(first)
                + 2 * u32::from(of_half(bits(x, 1), bits(y, 1)))
                + 4 * u32::from(of_half(bits(x, 0), bits(y, 0)))
        };
        let want = [
            signed(&|x, y, z| x.max(y).max(z)),
            signed(&|x, y, z| x.min(y).min(z)),
            signed(&|x, y, z| x.wrapping_add(y).max(z)),
            signed(&|x, y, z| x.wrapping_add(y).min(z)),
            signed(&|x, y, z| x.max(y).max(z).max(0)),
            signed(&|x, y, z| x.min(y).min(z).max(0)),
            signed(&|x, y, z| x.wrapping_add(y).max(z).max(0)),
            signed(&|x, y, z| x.wrapping_add(y).min(z).max(0)),
            signed(&|x, y, _| x.max(y).max(0)),
            signed(&|x, y, _| x.min(y).max(0)),
            x.max(y).max(z),
            x.min(y).min(z),
            x.wrapping_add(y).max(z),
            x.wrapping_add(y).min(z),
            signed_halves(&|x, y, z| x.max(y).max(z)),
            signed_halves(&|x, y, z| x.min(y).min(z)),
            signed_halves(&|x, y, z| x.wrapping_add(y).max(z)),
            signed_halves(&|x, y, z| x.wrapping_add(y).min(z)),
            signed_halves(&|x, y, z| x.max(y).max(z).max(0)),
            signed_halves(&|x, y, z| x.min(y).min(z).max(0)),
            signed_halves(&|x, y, z| x.wrapping_add(y).max(z).max(0)),
            signed_halves(&|x, y, z| x.wrapping_add(y).min(z).max(0)),
            signed_halves(&|x, y, _| x.max(y).max(0)),
            signed_halves(&|x, y, _| x.min(y).max(0)),
            unsigned_halves(&|x, y, z| x.max(y).max(z)),
            unsigned_halves(&|x, y, z| x.min(y).min(z)),
            unsigned_halves(&|x, y, z| x.wrapping_add(y).max(z)),
            unsigned_halves(&|x, y, z| x.wrapping_add(y).min(z)),
            signed(&|x, y, _| x.max(y)),
            signed(&|x, y, _| x.min(y)),
            x.max(y),
            x.min(y),
            signed_halves(&|x, y, _| x.max(y)),
            signed_halves(&|x, y, _| x.min(y)),
            unsigned_halves(&|x, y, _| x.max(y)),
            unsigned_halves(&|x, y, _| x.min(y)),
            said(x as i32 >= y as i32, &|x, y| x as i16 >= y as i16)
                | said(x as i32 <= y as i32, &|x, y| x as i16 <= y as i16) << 3
                | said(x >= y, &|x, y| x >= y) << 6
                | said(x <= y, &|x, y| x <= y) << 9,
        ];
        assert_eq!(got, want, "{x:#x}, {y:#x} and {z:#x}");
    }
    Ok(())
}

fn counters_lose_no_update(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let (blocks, threads) = (7u32, 61u32);
    let n = blocks * threads;
    let (mut words, mut wide) = (s.zeros::<u32>(8)?, s.zeros::<u64>(2)?);
    let (mut shorts, mut doubles) = (s.upload(&[77u16, 0])?, s.zeros::<f64>(1)?);
    let launch = Launch::new([blocks, 1, 1], [threads, 1, 1]);
    kernels.counters(&s, &launch, &mut words, &mut wide, &mut shorts, &mut doubles)?;
    let down = (10 - n % 10) % 10;
    assert_eq!(s.download(&words)?[..5], [n % 10, down, n, u32::MAX, 3 * n]);
    assert_eq!(s.download(&wide)?, [u64::from(n) << 33, u64::from(threads - 1) << 40]);
    assert_eq!(s.download(&shorts)?, [77, n as u16]);
    assert_eq!(s.download(&doubles)?, [f64::from(n) / 2.0]);
    Ok(())
}

/// The file has macros with common names, functions that our headers have too, standard headers and a `main`. The
/// file's own must win.
fn a_files_own_definitions_win(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, own_words::Kernels::load)?;
    let x: Vec<f32> = (0..64).map(|i| (i * 37 % 64) as f32).collect();
    let (mut largest, mut sums) = (s.zeros::<f64>(1)?, s.zeros::<f32>(3)?);
    kernels.own_functions(&s, &Launch::new([1; 3], [64, 1, 1]), &s.upload(&x)?, &mut largest, &mut sums)?;
    assert_eq!(s.download(&largest)?, [63.0]);
    assert_eq!(s.download(&sums)?, [x[0] + 1.0, x[2] + 103.0, 1.0]);
    Ok(())
}

fn pairs_of_halves_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, own_words::Kernels::load)?;
    // We use small multiples of 1/8, so that every result is exact.
    let pair = |i: u32| [f16::from_f32((i % 23) as f32 / 8.0 - 1.0), f16::from_f32((i % 7) as f32 / 4.0)];
    let bits = |[low, high]: [f16; 2]| u32::from(low.to_bits()) | (u32::from(high.to_bits()) << 16);
    let (a, b): (Vec<_>, Vec<_>) = (0..500).map(|i| (pair(i), pair(i * i + 5))).unzip();
    let (x, y): (Vec<u32>, Vec<u32>) = a.iter().zip(&b).map(|(&a, &b)| (bits(a), bits(b))).unzip();
    let mut z = s.zeros::<u32>(6 * x.len())?;
    kernels.pairs(&s, &s.upload(&x)?, &s.upload(&y)?, &mut z, x.len() as u32)?;
    for ((a, b), got) in a.iter().zip(&b).zip(s.download(&z)?.chunks(6)) {
        let each = |f: &dyn Fn(f32, f32) -> f32| {
            bits(std::array::from_fn(|i| f16::from_f32(f(a[i].to_f32(), b[i].to_f32()))))
        };
        let want = [
            each(&|a, b| a + b),
            each(&|a, b| a - b),
            each(&|a, b| a * b),
            each(&|a, b| a * b + a),
            each(&|a, _| -a),
            bits([a[1], b[0]]),
        ];
        assert_eq!(got, want, "{a:?} and {b:?}");
    }
    Ok(())
}

/// The exact result lies between two neighbours. We find out which by integers of 128 bits, or by splitting doubles in
/// halves.
fn directed_rounding_matches_plain_rust(device: &Device) -> Result<()> {
    if device.info().backend == gpustream::BackendName::HIP {
        return Ok(());
    }
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let a: Vec<f64> = (0..400i32).map(|i| f64::from(i * 7919 % 1000 + 1) / 3.0 + f64::from(i)).collect();
    let b: Vec<f64> = (0..400).map(|i| (f64::from(i * 31 % 97) - 40.5) * 1.0e-3 / 7.0).collect();
    let mut out = s.zeros::<f64>(24 * a.len())?;
    kernels.directed_rounding(&s, &s.upload(&a)?, &s.upload(&b)?, &mut out, a.len() as u32)?;
    // We know the nearest number and whether the exact result is above or below it. That gives both neighbours.
    let between = |near: f64, rest: f64| {
        (if rest < 0.0 { near.next_down() } else { near }, if rest > 0.0 { near.next_up() } else { near })
    };
    let sum = |x: f64, y: f64| {
        let near = x + y;
        let of_y = near - x;
        between(near, (x - (near - of_y)) + (y - of_y))
    };
    let product = |x: f64, y: f64| between(x * y, x.mul_add(y, -(x * y)));
    let quotient = |x: f64, y: f64| between(x / y, (-(x / y)).mul_add(y, x) * y.signum());
    let to_zero = |(low, high): (f64, f64)| if low < 0.0 { high } else { low };
    for ((&x, &y), got) in a.iter().zip(&b).zip(s.download(&out)?.chunks(24)) {
        let root = (x * x + 2.0).sqrt();
        // CUDA may fuse the kernel's product and sum.
        let fused = x.mul_add(x, 2.0);
        let roots = [x * x + 2.0, fused].map(|x| between(x.sqrt(), (-x.sqrt()).mul_add(x.sqrt(), x)));
        let whole = (x as i64) * 0x1_0000_0001;
        let float = |value: i128| {
            let near = value as f32;
            let rest = value - near as i128;
            (if rest < 0 { near.next_down() } else { near }, if rest > 0 { near.next_up() } else { near })
        };
        let (low, high) = float(whole.into());
        let wide = |value: i128| between(value as f64, (value - (value as f64) as i128) as f64);
        let (sums, differences) = (sum(x, y), sum(x, -y));
        let (products, quotients, reciprocals) = (product(x, y), quotient(x, y), quotient(1.0, y));
        let want = [sums.0, sums.1, to_zero(sums), differences.0, differences.1, products.0, products.1];
        assert_eq!(got[..7], want, "{x:?} and {y:?}");
        let want =
            [to_zero(products), quotients.0, quotients.1, to_zero(quotients), reciprocals.0, reciprocals.1];
        assert_eq!(got[7..13], want, "{x:?} and {y:?}");
        assert!(roots.contains(&(got[13], got[14])), "{root:?}: {:?}", &got[13..15]);
        let (down, up) = (got[15] as f32, got[16] as f32);
        let exact = f64::from(x as f32) * f64::from(y as f32);
        assert!(
            f64::from(down) <= exact + 1.1e-9
                && f64::from(up) >= exact + 0.9e-9
                && down <= up
                && up <= down.next_up()
        );
        let lanes = (whole as u32 >> 1).count_ones();
        let second =
            (1..32).filter(|bit| whole as u32 >> bit & 1 == 1).nth(1).map_or(f64::from(u32::MAX), f64::from);
        let (wide_low, wide_high) = wide(i128::from(whole) * 0x1001);
        let want = [low.into(), high.into(), low.into(), high.into(), wide_low, wide_high, second];
        assert_eq!(got[17..], want, "{whole} with {lanes} bits");
    }
    Ok(())
}

fn special_functions_match_series(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, idioms::Kernels::load)?;
    let y: Vec<f64> = (1..200).map(|i| f64::from(i) / 100.0).chain([1e-3, 1e-9, 1e-100]).collect();
    let mut out = s.zeros::<f64>(8 * y.len())?;
    kernels.special_functions(&s, &s.upload(&y)?, &mut out, y.len() as u32)?;
    let near = |got: f64, want: f64, what: &str, x: f64| {
        assert!((got - want).abs() <= 1e-12 * want.abs().max(0.1), "{what} of {x}: {got:?}, not {want:?}");
    };
    // The integral of exp(-t²) from 0 to x, by its series, which converges for all x.
    let erf = |x: f64| {
        let terms = (0..200).scan(x, |term, n| {
            let now = *term / f64::from(2 * n + 1);
            *term *= -x * x / f64::from(n + 1);
            Some(now)
        });
        terms.sum::<f64>() * std::f64::consts::FRAC_2_SQRT_PI
    };
    let bessel = |x: f64, order: i32| {
        let first = (x / 2.0).powi(order);
        let terms = (1..60).scan(first, |term, k| {
            *term *= x * x / 4.0 / f64::from(k * (k + order));
            Some(*term)
        });
        first + terms.sum::<f64>()
    };
    for (&x, got) in y.iter().zip(s.download(&out)?.chunks(8)) {
        if x > 0.005 {
            near(1.0 - erf(got[0]), x, "erfc(erfcinv)", x);
            near(erf(got[1]), x - 1.0, "erf(erfinv)", x);
            near(got[2], -got[0] * std::f64::consts::SQRT_2, "normcdfinv", x);
            near(got[3], (x * x).exp() * (1.0 - erf(x)), "erfcx", x);
        } else {
            // This is as precise as the leading terms of the tail allow.
            let z = got[0];
            let tail = (-z * z).exp() / (z * std::f64::consts::PI.sqrt());
            let relative = tail * (1.0 - 0.5 / (z * z) + 0.75 / z.powi(4)) / x;
            assert!((relative - 1.0).abs() < 0.02, "erfcinv of {x}: {z}");
        }
        near(got[4], bessel(x, 0), "cyl_bessel_i0", x);
        near(got[5], bessel(x, 1), "cyl_bessel_i1", x);
        near(got[6], (x * x + 29.0).sqrt(), "norm4d", x);
        near(got[7], 1.0 / (x * x + 13.0).sqrt(), "rnorm3d", x);
    }
    Ok(())
}
