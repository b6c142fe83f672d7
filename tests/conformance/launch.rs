//! A launch has the shape that you ask for, and the kernel gets the arguments that you give.

use std::collections::HashSet;

use conformance::args::{Framed, Kernels, Line, Mixed, Nested, Window};
use conformance::large::{Most, Table};
use conformance::{
    ONE, assert_all, kernels_and_streams, large, next, on_threads, refused, sync, tests, warps, with_stream,
};
use gpustream::half::{bf16, f16};
use gpustream::{Arg, Buffer, Device, ErrorKind, Launch, Result, SuggestedLaunch};

tests! {
    Plain: every_scalar_type_arrives, structs_arrive_by_value, structs_in_memory_have_the_same_layout,
        every_thread_runs_once, a_launch_covers_two_dimensions, dynamic_shared_memory_has_the_size_asked_for,
        static_shared_memory_belongs_to_one_block, atomics_lose_no_update, an_empty_launch_does_nothing,
        limits_are_checked_before_the_driver, refused_launches_name_the_kernel_and_the_line,
        contracts_are_checked, contracts_compute_with_members_of_structs, arguments_are_checked, kernels_tell_their_limits,
        attributes_the_device_lacks_are_refused, all_blocks_of_a_grid_meet, early_launches_keep_the_order,
        occupancy_is_reported, threads_launch_with_much_and_little_shared_memory_at_once,
        kernels_are_found_by_names_made_at_run_time, cloned_kernels_outlive_the_original,
        large_structs_arrive_by_value, aligned_structs_arrive_by_value;
    Warps: warps_report_their_lanes, block_sums_count_every_thread, voting_barriers_count_every_thread;
}

fn every_scalar_type_arrives(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut out = s.zeros::<f64>(14)?;
    let (a, b, c, d) = (-100i8, 200u8, -30_000i16, 60_000u16);
    let (e, f, g, h) = (i32::MIN, u32::MAX, -(1i64 << 52), 1u64 << 53);
    let (i, j, k, l) = (1.25f32, -2.5e300f64, f16::from_f32(0.5), bf16::from_f32(-3.0));
    kernels.scalars(&s, &ONE, true, a, b, c, d, e, f, g, h, i, j, k, l, 1 << 40, &mut out)?;
    let narrow = [1.0, a.into(), b.into(), c.into(), d.into(), e.into(), f.into(), g as f64, h as f64];
    let want = [&narrow[..], &[i.into(), j, k.into(), l.into(), (1u64 << 40) as f64]].concat();
    assert_eq!(s.download(&out)?, want);
    Ok(())
}

fn structs_arrive_by_value(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut out = s.zeros::<f64>(7)?;
    let inner = Mixed { wide: 1.5, pair: [0.0, 2.5], number: -3, halves: [0, 4] };
    kernels.by_value(&s, &ONE, 7, Nested { inner, last: -5 }, 8, &mut out)?;
    assert_eq!(s.download(&out)?, [7.0, 1.5, 2.5, -3.0, 4.0, -5.0, 8.0]);
    Ok(())
}

/// A vector needs an alignment of 16 bytes at most, but a struct may need more.
fn aligned_structs_arrive_by_value(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let line = |from: u16| Line { values: std::array::from_fn(|i| f32::from(from + i as u16)) };
    let more = s.upload(&[line(100)])?;
    let want: [f32; 16] = std::array::from_fn(|i| 111.0 + 2.0 * i as f32);
    let mut out = s.zeros::<f32>(16)?;
    let check = |what: &str, out: &mut Buffer<f32>| -> Result<()> {
        assert_eq!(s.download(out)?, want, "{what}");
        s.fill(out, 0.0)
    };
    for _ in 0..10 {
        kernels.aligned(&s, &ONE, 4, line(0), 7, &more, &mut out)?;
        check("a launch", &mut out)?;
    }
    let graph = s.capture(|s| kernels.aligned(s, &ONE, 4, line(0), 7, &more, &mut out))?;
    for _ in 0..10 {
        graph.launch(&s)?;
        check("a graph", &mut out)?;
    }
    drop(graph);
    let mut replay = device.replay();
    for _ in 0..10 {
        replay.run(&s, |s| kernels.aligned(s, &ONE, 4, line(0), 7, &more, &mut out))?;
        check("a replay", &mut out)?;
    }
    Ok(())
}

/// The struct is larger than the 4096 bytes of parameters that every device takes.
fn large_structs_arrive_by_value(device: &Device) -> Result<()> {
    let most = device.info().limits.parameter_bytes;
    if most < 32_764 {
        refused(
            large::Kernels::load(device),
            ErrorKind::Unsupported,
            &["bytes of parameters", &most.to_string()],
        );
        return Ok(());
    }
    let (kernels, s) = with_stream(device, large::Kernels::load)?;
    let mut step = device.replay();
    let (mut first, mut second) = (s.zeros::<u32>(2048)?, s.zeros::<u32>(8188)?);
    let table = |from: u32| Table { cells: std::array::from_fn(|i| from + i as u32) };
    let all = |from: u32| Most { cells: std::array::from_fn(|i| from + 3 * i as u32) };
    let check = |first: &Buffer<u32>, second: &Buffer<u32>, from: u32| {
        assert_eq!(s.download(first)?, (0..2048).map(|i| from + i + 12).collect::<Vec<_>>());
        assert_eq!(s.download(second)?, (0..8188).map(|i| from + 3 * i + 9).collect::<Vec<_>>());
        Ok(())
    };
    for from in 0..5 {
        step.run(&s, |s| {
            kernels.spread(s, 5, table(from * 100), 7, &mut first)?;
            kernels.spread_most(s, all(from * 100), &mut second, 9)
        })?;
        check(&first, &second, from * 100)?;
    }
    let graph = s.capture(|s| {
        kernels.spread(s, 5, table(70), 7, &mut first)?;
        kernels.spread_most(s, all(70), &mut second, 9)
    })?;
    s.fill(&mut first, 0)?;
    s.fill(&mut second, 0)?;
    graph.launch(&s)?;
    check(&first, &second, 70)
}

fn structs_in_memory_have_the_same_layout(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let values: Vec<Mixed> = (0..999)
        .map(|i| Mixed { wide: f64::from(i), pair: [i as f32, -1.0], number: i, halves: [1, 2] })
        .collect();
    let mut x = s.upload(&values)?;
    kernels.swap_pairs(&s, &mut x, 999)?;
    let want: Vec<Mixed> = values.iter().map(|v| Mixed { pair: [v.pair[1], v.pair[0]], ..*v }).collect();
    assert_eq!(s.download(&x)?, want);
    Ok(())
}

/// The grids and blocks have up to three dimensions, and some have odd sizes.
fn every_thread_runs_once(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (grid, block) in [
        ([1, 1, 1], [1, 1, 1]),
        ([5, 1, 1], [33, 1, 1]),
        ([1, 7, 1], [1, 13, 1]),
        ([1, 1, 3], [1, 1, 9]),
        ([3, 5, 7], [4, 3, 2]),
        ([2, 3, 1], [31, 1, 5]),
        ([300, 1, 1], [256, 1, 1]),
    ] {
        let threads = grid.iter().chain(&block).product::<u32>() as usize;
        let mut out = s.full(threads, u64::MAX)?;
        kernels.r#where(&s, &Launch::new(grid, block), &mut out)?;
        let mut seen = HashSet::new();
        for (index, place) in s.download(&out)?.into_iter().enumerate() {
            let field = |shift: u32| (place >> shift & 1023) as u32;
            let (b, t) = ([field(50), field(40), field(30)], [field(20), field(10), field(0)]);
            assert!((0..3).all(|axis| b[axis] < grid[axis] && t[axis] < block[axis]), "{b:?} {t:?}");
            let in_grid = b[0] + grid[0] * (b[1] + grid[1] * b[2]);
            let in_block = t[0] + block[0] * (t[1] + block[1] * t[2]);
            let threads_in_block: u32 = block.iter().product();
            assert_eq!((in_grid * threads_in_block + in_block) as usize, index, "{grid:?} {block:?}");
            assert!(seen.insert(place));
        }
    }
    Ok(())
}

fn a_launch_covers_two_dimensions(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (width, height) in [(0, 5), (5, 0), (1, 1), (15, 7), (16, 8), (17, 9), (1000, 3), (3, 1000)] {
        let mut x = s.zeros::<u32>(width * height)?;
        kernels.plane(&s, &mut x, width, height)?;
        let want: Vec<u32> = (1..=(width * height) as u32).collect();
        assert_eq!(s.download(&x)?, want, "{width}×{height}");
    }
    Ok(())
}

fn reversed(blocks: u32, threads: u32) -> Vec<u32> {
    (0..blocks).flat_map(|block| (0..threads).rev().map(move |thread| block * threads + thread)).collect()
}

fn dynamic_shared_memory_has_the_size_asked_for(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (blocks, threads) in [(1, 1), (3, 7), (5, 64), (9, 257), (2, 1024)] {
        let mut x = s.upload(&(0..blocks * threads).collect::<Vec<u32>>())?;
        let launch = Launch::new([blocks, 1, 1], [threads, 1, 1]).shared(4 * threads);
        kernels.reverse_dynamic(&s, &launch, &mut x)?;
        assert_eq!(s.download(&x)?, reversed(blocks, threads), "{blocks} blocks of {threads}");
    }
    // This is the most shared memory that a block may ask for.
    let most = device.info().limits.shared_memory_per_block_optin;
    let mut x = s.upload(&(0..64).collect::<Vec<u32>>())?;
    kernels.reverse_dynamic(&s, &Launch::new([1; 3], [64, 1, 1]).shared(most), &mut x)?;
    assert_eq!(s.download(&x)?, reversed(1, 64));
    let too_much = Launch::new([1; 3], [64, 1, 1]).shared(most + 1);
    refused(
        kernels.reverse_dynamic(&s, &too_much, &mut x),
        ErrorKind::InvalidLaunch,
        &["shared memory", "reverse_dynamic"],
    );
    Ok(())
}

/// Several threads launch the same kernel at once. Some need more shared memory than the default limit allows, so the
/// limit must be raised in time.
fn threads_launch_with_much_and_little_shared_memory_at_once(device: &Device) -> Result<()> {
    let kernels = &Kernels::load(device)?;
    let info = device.info();
    let most = info.limits.shared_memory_per_block_optin;
    // This second value stands for the same kernel of the driver, so it has the same limits.
    let again = kernels.module().kernel("reverse_dynamic")?;
    assert!(again.occupancy(64, most)? >= 1);
    let between = u32::midpoint(info.limits.shared_memory_per_block, most);
    let sizes = [256, between, most, (between + 1).min(most), most];
    on_threads(5, |thread| {
        let s = device.stream()?;
        let mut x = s.upload(&(0..64).collect::<Vec<u32>>())?;
        let launch = Launch::new([1; 3], [64, 1, 1]).shared(sizes[thread as usize]);
        for _ in 0..100 {
            kernels.reverse_dynamic(&s, &launch, &mut x)?;
        }
        assert_eq!(s.download(&x)?, (0..64).collect::<Vec<u32>>());
        Ok(())
    })
}

fn kernels_are_found_by_names_made_at_run_time(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(100, 1u32)?;
    for part in ["st", "ste"] {
        let name = format!("{part}{}", &"step"[part.len()..]);
        let step = kernels.module().kernel(&name)?;
        drop(name);
        assert_eq!(step.name(), "step");
        // SAFETY: the buffer has 100 elements; the kernel takes it, a number to add and the number of elements.
        unsafe { step.launch(&s, &ONE, &[Arg::write(&mut x), Arg::value(&1u32), Arg::value(&100usize)]) }?;
        let too_few = [Arg::value(&1u32)];
        // SAFETY: the launch is refused.
        let refusal = unsafe { step.launch(&s, &ONE, &too_few) };
        refused(refusal, ErrorKind::ArgumentMismatch, &["`step` at", "launch.rs"]);
    }
    Ok(())
}

fn cloned_kernels_outlive_the_original(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let other = kernels.clone();
    drop(kernels);
    let s = device.stream()?;
    let mut x = s.full(10, 1u32)?;
    other.step(&s, &mut x, 1, 10)?;
    assert_all(&s, &x, 6)
}

fn occupancy_is_reported(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let kernel = kernels.module().kernel("step")?;
    let limit = kernel.info().max_threads_per_block;
    let blocks = kernel.occupancy(128, 0)?;
    assert!(blocks >= 1);
    assert!(kernel.occupancy(limit, 0)? <= blocks);
    let SuggestedLaunch { blocks: grid, threads_per_block: block } = kernel.suggested_launch(0)?;
    assert!(grid >= 1 && (1..=limit).contains(&block), "{grid} blocks of {block}");
    // We ask for all the shared memory that a block may have, and then for more.
    let most = device.info().limits.shared_memory_per_block_optin - kernel.info().static_shared;
    let few = kernel.occupancy(128, most)?;
    assert!((1..=blocks).contains(&few), "{few} of {blocks}");
    assert!(kernel.suggested_launch(most)?.threads_per_block >= 1);
    for (threads, shared) in [(128, most + 1), (128, u32::MAX), (0, 0), (limit + 1, 0)] {
        assert_eq!(kernel.occupancy(threads, shared)?, 0, "{threads} threads, {shared} bytes");
    }
    refused(kernel.suggested_launch(most + 1), ErrorKind::InvalidLaunch, &["step", "shared memory"]);
    // You can launch what is suggested.
    let s = device.stream()?;
    let mut x = s.full(10_007, 2u32)?;
    kernels.step_with(&s, &Launch::new([grid, 1, 1], [block, 1, 1]), &mut x, 1, 10_007)?;
    assert_all(&s, &x, 11)
}

fn static_shared_memory_belongs_to_one_block(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut x = s.upload(&(0..128 * 50).collect::<Vec<u32>>())?;
    kernels.reverse_static(&s, &Launch::new([50, 1, 1], [128, 1, 1]), &mut x)?;
    assert_eq!(s.download(&x)?, reversed(50, 128));
    Ok(())
}

fn atomics_lose_no_update(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut narrow, mut wide, mut real, mut local) =
        (s.zeros::<u32>(1)?, s.full(1, 1u64 << 40)?, s.zeros::<f32>(1)?, s.zeros::<u32>(1)?);
    kernels.count(
        &s,
        &Launch::new([37, 1, 1], [129, 1, 1]),
        &mut narrow,
        &mut wide,
        &mut real,
        &mut local,
    )?;
    let all = 37 * 129;
    assert_eq!(s.download(&narrow)?, [all]);
    assert_eq!(s.download(&wide)?, [(1 << 40) + u64::from(all)]);
    assert_eq!(s.download(&real)?, [all as f32]);
    assert_eq!(s.download(&local)?, [all]);
    Ok(())
}

fn an_empty_launch_does_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(10, 2u32)?;
    kernels.step(&s, &mut x, 1, 0)?;
    kernels.step_with(&s, &Launch::covering(0), &mut x, 1, 10)?;
    kernels.step_with(&s, &Launch::strided(0), &mut x, 1, 10)?;
    assert_all(&s, &x, 2)
}

fn limits_are_checked_before_the_driver(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(10, 2u32)?;
    let info = device.info();
    let axis = |limits: [u32; 3], axis: usize, add: u32| {
        let mut shape = [1; 3];
        shape[axis] = limits[axis].saturating_add(add);
        shape
    };
    for dimension in 0..3 {
        let name = ["along x", "along y", "along z"][dimension];
        let mut none = [1; 3];
        none[dimension] = 0;
        let mut launches = vec![Launch::new(none, [1; 3]), Launch::new([1; 3], none)];
        launches.push(Launch::new([1; 3], axis(info.limits.max_block, dimension, 1)));
        if info.limits.max_grid[dimension] < u32::MAX {
            launches.push(Launch::new(axis(info.limits.max_grid, dimension, 1), [1; 3]));
        }
        for launch in launches {
            refused(
                kernels.step_with(&s, &launch, &mut x, 1, 10),
                ErrorKind::InvalidLaunch,
                &[name, "allows"],
            );
        }
    }
    // Each dimension is within its limit, but their product is not.
    let many = [info.limits.max_block[0].min(64), info.limits.max_block[1].min(64), 1];
    if many[0] * many[1] > info.limits.max_threads_per_block {
        let launch = Launch::new([1; 3], many);
        refused(
            kernels.step_with(&s, &launch, &mut x, 1, 10),
            ErrorKind::InvalidLaunch,
            &["step", "threads"],
        );
    }
    refused(
        kernels.step_with(&s, &Launch::covering(usize::MAX), &mut x, 1, 10),
        ErrorKind::InvalidLaunch,
        &["blocks in the grid"],
    );
    assert_eq!(s.download(&x)?, [2; 10], "a refused launch did something");
    Ok(())
}

/// The launcher, the library or the shape itself may find the mistake. The error must name the kernel and your line in
/// each case.
fn refused_launches_name_the_kernel_and_the_line(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let kernels = Kernels::load(device)?;
    let (mut x, nothing) = (s.zeros::<u32>(128)?, Launch::new([0, 1, 1], [128, 1, 1]));
    let (dynamic, too_many) = (Launch::new([1; 3], [64, 1, 1]), Launch::new([1; 3], [1 << 20, 1, 1]));
    // Here the launcher already needs the shape, because the contract mentions it.
    let shape = (line!(), kernels.reverse_dynamic(&s, &too_many, &mut x));
    let contract = (line!(), kernels.reverse_dynamic(&s, &dynamic, &mut x));
    let grid = (line!(), kernels.reverse_dynamic(&s, &nothing, &mut x));
    for (line, refusal) in [shape, contract, grid] {
        let error = refusal.unwrap_err();
        let operation = error.call_site().expect("an operation");
        assert_eq!((operation.label, operation.location.line()), ("reverse_dynamic", line), "{error}");
        assert!(
            error.to_string().ends_with(&format!("in `reverse_dynamic` at {}:{line}", file!())),
            "{error}"
        );
    }
    let (line, error) = (line!(), nothing.resolve(device.info()).unwrap_err());
    let operation = error.call_site().expect("an operation");
    assert_eq!((operation.label, operation.location.line()), ("resolve", line), "{error}");
    Ok(())
}

fn contracts_are_checked(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.full(10, 2u32)?;
    let mut y = s.full(9, 2u32)?;
    let say = ["mix", "n <= len(y)", "n = 10", "len(y) = 9", &format!("{}:{}", file!(), line!() + 1)];
    refused(kernels.mix(&s, &x, &mut y, 10), ErrorKind::ContractViolated, &say);
    kernels.mix(&s, &x.slice(..9)?, &mut y, 9)?;
    assert_all(&s, &y, 12)
}

/// The untyped `Kernel::launch` compares your arguments with the kernel's parameters.
fn contracts_compute_with_members_of_structs(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut out = s.zeros::<u32>(1000)?;
    let framed = |size, r#type, from| {
        let inner = Window { size, r#type, from: [from, u64::MAX], ..Default::default() };
        Framed { inner, ..Default::default() }
    };
    // More columns and rows than one block has: the launch covers both members.
    kernels.number(&s, &mut out, framed([37, 19], 5, 297))?;
    let mut want = vec![0; 297];
    want.extend(5..5 + 37 * 19);
    assert_eq!(s.download(&out)?, want);
    for (size, r#type, from, clause, values) in [
        ([37, 19], 5, 298, "framed.inner.from.x + ", "framed.inner.from.x = 298, framed.inner.size[0] = 37"),
        ([u16::MAX, u16::MAX], 5, u64::MAX, "framed.inner.from.x + ", "framed.inner.size[1] = 65535"),
        ([1, 1], -1, 0, "framed.inner.type >= 0", "framed.inner.type = -1"),
    ] {
        let error = kernels.number(&s, &mut out, framed(size, r#type, from)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContractViolated, "{error}");
        for part in
            [clause, values, "len(out) = 1000"].iter().filter(|part| r#type >= 0 || !part.contains("len"))
        {
            assert!(error.to_string().contains(part), "no {part} in {error}");
        }
    }
    Ok(())
}

fn arguments_are_checked(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let kernel = kernels.module().kernel("no_contract")?;
    let s = device.stream()?;
    let mut x = s.zeros::<u32>(1)?;
    let (wide, narrow) = (1u64, 1u32);
    // SAFETY: the kernel writes one element; launches with other arguments are refused.
    unsafe {
        let too_few = kernel.launch(&s, &ONE, &[]);
        let too_many = kernel.launch(&s, &ONE, &[Arg::write(&mut x), Arg::value(&wide)]);
        if device.info().backend == gpustream::BackendName::CPU {
            refused(too_few, ErrorKind::ArgumentMismatch, &["no_contract", "takes 1 parameter"]);
            refused(too_many, ErrorKind::ArgumentMismatch, &["no_contract", "given 2"]);
            refused(
                kernel.launch(&s, &ONE, &[Arg::value(&narrow)]),
                ErrorKind::ArgumentMismatch,
                &["8", "4"],
            );
        } else if let Err(error) = too_few {
            assert_eq!(error.kind(), ErrorKind::ArgumentMismatch, "{error}");
        }
        let many: Vec<Arg<'_>> = (0..65).map(|_| Arg::value(&wide)).collect();
        refused(kernel.launch(&s, &ONE, &many), ErrorKind::ArgumentMismatch, &["65"]);
        kernel.launch(&s, &ONE, &[Arg::write(&mut x)])?;
    }
    assert_eq!(s.download(&x)?, [7]);
    Ok(())
}

fn kernels_tell_their_limits(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let kernel = kernels.module().kernel("reverse_static")?;
    assert_eq!(kernel.name(), "reverse_static");
    assert!(kernel.device().is_same(device));
    assert!(kernel.info().static_shared >= 512, "{:?}", kernel.info());
    Ok(())
}

fn attributes_the_device_lacks_are_refused(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let info = device.info();
    let mut x = s.full(10, 2u32)?;
    let cooperative =
        kernels.step_with(&s, &Launch::new([1; 3], [10, 1, 1]).cooperative(true), &mut x, 1, 10);
    let clusters =
        kernels.step_with(&s, &Launch::new([2, 1, 1], [8, 1, 1]).cluster([2, 1, 1]), &mut x, 1, 10);
    let mut want = 2;
    for (result, present) in
        [(cooperative, info.features.cooperative_launch), (clusters, info.features.cluster_launch)]
    {
        if present {
            result?;
            want = want * 5 + 1;
        } else {
            refused(result, ErrorKind::Unsupported, &["is not supported"]);
        }
    }
    assert_all(&s, &x, want)
}

/// The grid has as many blocks as the device can run at once. In each round a block reads values that another one wrote
/// in the round before.
fn all_blocks_of_a_grid_meet(device: &Device) -> Result<()> {
    const THREADS: u32 = 128;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let info = device.info();
    let at_once = kernels.module().kernel("ring")?.occupancy(THREADS, 0)? * info.multiprocessors;
    let n = 10_007;
    let start: Vec<u32> = (0..n as u32).collect();
    let (mut next, mut arrivals) = (s.zeros::<u32>(n)?, s.zeros::<u32>(1)?);
    let mut x = s.upload(&start)?;
    // You do not have to ask for a cooperative launch, because the kernel's contract does.
    let launch = Launch::new([at_once, 1, 1], [THREADS, 1, 1]);
    let mut want = start;
    for rounds in [1u32, 20, 3] {
        let ran = kernels.ring(&s, &launch, &mut x, &mut next, &mut arrivals, rounds, n);
        if !info.features.cooperative_launch {
            refused(
                ran,
                ErrorKind::Unsupported,
                &["a cooperative launch is not supported", info.backend.as_str()],
            );
            return Ok(());
        }
        ran?;
        for _ in 0..rounds {
            want = (0..n).map(|i| conformance::next(want[i], want[(i + 1) % n])).collect();
        }
    }
    assert_eq!(s.download(&x)?, want);
    // If there is one block more, the device cannot run all at once. The launch must be refused, because it would hang.
    let too_many = Launch::new([at_once + 1, 1, 1], [THREADS, 1, 1]);
    let refusal = kernels.ring(&s, &too_many, &mut x, &mut next, &mut arrivals, 1, n);
    assert!(refusal.is_err(), "{} blocks are not on the device at once", at_once + 1);
    assert_eq!(s.download(&x)?, want);
    Ok(())
}

/// If the device has no early launches, the launches run in order.
fn early_launches_keep_the_order(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let n = 4096;
    let mut x = s.full(n, 1u32)?;
    // SAFETY: the kernel waits for its predecessor before it reads or writes.
    let launch = unsafe { Launch::new([32, 1, 1], [128, 1, 1]).early_dependent() };
    let mut want = 1u32;
    for round in 0..200 {
        kernels.early_step(&s, &launch, &mut x, round, n)?;
        want = next(want, round);
    }
    kernels.step(&s, &mut x, 7, n)?;
    assert_all(&s, &x, next(want, 7))
}

fn warps_report_their_lanes(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, warps::Kernels::load)?;
    let size = device.info().warp_size;
    for threads in [1, 2, size - 1, size, size + 1, 2 * size, 200, 256] {
        for limit in [0, 1, threads / 2, threads] {
            let mut out = s.full(8 * threads as usize, u64::MAX)?;
            kernels.warp_facts(&s, &Launch::new([1; 3], [threads, 1, 1]), &mut out, limit)?;
            let got = s.download(&out)?;
            for (me, facts) in got.chunks_exact(8).enumerate() {
                let me = me as u32;
                let first = me / size * size;
                let last = (first + size).min(threads);
                let votes =
                    (first..last).filter(|&other| other < limit).map(|other| 1u64 << (other - first)).sum();
                let down = if me + 1 < last { me + 1 } else { me };
                // If a lane has no neighbour, it may get any value.
                let other = if me ^ 1 < last { u64::from(me ^ 1) } else { facts[4] };
                let want = [
                    u64::from(size),
                    u64::from(me - first),
                    u64::from(down),
                    u64::from(first),
                    other,
                    u64::from(first < limit),
                    u64::from(last <= limit),
                    votes,
                ];
                assert_eq!(facts, want, "thread {me} of {threads}, limit {limit}");
            }
        }
    }
    Ok(())
}

fn block_sums_count_every_thread(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, warps::Kernels::load)?;
    for threads in [1u32, 2, 31, 32, 33, 63, 64, 65, 127, 500, 1024] {
        let mut out = s.zeros::<u64>(2)?;
        kernels.block_sum(&s, &Launch::new([1; 3], [threads, 1, 1]), &mut out)?;
        assert_eq!(s.download(&out)?[0], u64::from(threads * (threads + 1) / 2), "{threads} threads");
    }
    Ok(())
}

fn voting_barriers_count_every_thread(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, warps::Kernels::load)?;
    for (threads, limit) in [(1, 0), (1, 1), (33, 0), (33, 1), (100, 99), (100, 100), (256, 17)] {
        let mut out = s.full(3, -1i32)?;
        kernels.barrier_votes(&s, &Launch::new([1; 3], [threads, 1, 1]), &mut out, limit)?;
        let want = [limit.min(threads) as i32, i32::from(limit >= threads), i32::from(limit > 0)];
        assert_eq!(s.download(&out)?, want, "{threads} threads, limit {limit}");
    }
    Ok(())
}
