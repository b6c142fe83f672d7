//! The library's own kernels compute the same as plain Rust. We test lengths and offsets that such kernels tend to get
//! wrong.

mod reference;

use std::any::type_name;

use conformance::{library, refused, with_stream};
use gpustream::half::{bf16, f16};
use gpustream::{AsView, Device, ErrorKind, Launch, Result};
use gpustream_kernels::convert::Convert;
use gpustream_kernels::elementwise::{self, HasAdd, HasAxpy, HasFill, HasScale};
use gpustream_kernels::reduce::Reduce as _;
use gpustream_kernels::scan::{Scan as _, Summable};
use gpustream_kernels::{histogram, matrix, stencil};
use reference::Element;

conformance::tests! {
    Plain: elementwise_kernels_match_plain_rust, different_lengths_are_refused,
        elementwise_kernels_are_right_in_any_shape, transposes_match_plain_rust,
        matrix_products_match_plain_rust, heat_steps_match_plain_rust,
        device_headers_integers_have_their_widths;
    Warps: device_headers_warp_functions_match_plain_rust, device_headers_block_functions_match_plain_rust,
        device_headers_atomics_lose_no_update, scans_match_plain_rust,
        launches_of_algorithms_have_the_place_of_the_call,
        histograms_match_plain_rust;
    Alone: kernels_are_right_beyond_32_bits;
}

/// Zero, one, odd lengths, and the neighbours of a pack, a block, a tile and a power of two.
const LENGTHS: [usize; 18] =
    [0, 1, 2, 3, 7, 31, 33, 255, 256, 257, 1023, 1024, 1025, 4095, 4097, 65_535, 65_536, 100_003];

/// How many elements two views are away from a 16-byte boundary, both by the same distance or by different ones.
const OFFSETS: [[usize; 2]; 5] = [[0, 0], [1, 1], [3, 3], [0, 1], [5, 2]];

fn elementwise_of<T: Element + HasFill + HasScale + HasAxpy + HasAdd>(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, elementwise::Kernels::load)?;
    for (n, [at_x, at_y]) in lengths_and_offsets() {
        let what = format!("{} of {n} elements at {at_x} and {at_y}", type_name::<T>());
        let (x, y) = (reference::values::<T>(n, 1), reference::values::<T>(n, 2));
        let a = T::narrow(2.5);
        // There is one more element after each view, so that we see if a kernel writes beyond its view.
        let (mut dx, mut dy) = (s.zeros::<T>(at_x + n + 1)?, s.zeros::<T>(at_y + n + 1)?);
        let mut dz = s.zeros::<T>(at_y + n + 1)?;
        let (rx, ry) = (at_x..at_x + n, at_y..at_y + n);
        s.upload_into(&x, &mut dx.slice_mut(rx.clone())?)?;
        s.upload_into(&y, &mut dy.slice_mut(ry.clone())?)?;

        let z = &mut dz.slice_mut(ry.clone())?;
        kernels.add(&s, &dx.slice(rx.clone())?, &dy.slice(ry.clone())?, z, n)?;
        let z = s.download(&dz)?;
        assert_eq!(z[ry.clone()], reference::add(&x, &y), "add, {what}");

        kernels.axpy(&s, a, &dx.slice(rx.clone())?, &mut dy.slice_mut(ry.clone())?, n)?;
        let got = s.download(&dy)?;
        assert_near(&got[ry.clone()], &reference::axpy(a, &x, &y), &format!("axpy, {what}"));

        kernels.scale(&s, a, &mut dx.slice_mut(rx.clone())?, n)?;
        let got = s.download(&dx)?;
        assert_eq!(got[rx.clone()], reference::scale(a, &x), "scale, {what}");

        kernels.fill(&s, a, &mut dz.slice_mut(ry.clone())?, n)?;
        let filled = s.download(&dz)?;
        assert!(filled[ry.clone()].iter().all(|z| *z == a), "fill, {what}");

        for after in [s.download(&dx)?, s.download(&dy)?, filled] {
            assert_eq!(after[after.len() - 1], T::narrow(0.0), "written beyond the end, {what}");
            let offset = after.len() - 1 - n;
            assert!(after[..offset].iter().all(|v| *v == T::narrow(0.0)), "written before, {what}");
        }
    }
    Ok(())
}

fn lengths_and_offsets() -> impl Iterator<Item = (usize, [usize; 2])> {
    LENGTHS.into_iter().flat_map(|n| OFFSETS.map(|offsets| (n, offsets)))
}

/// Checks that values are equal, except for one rounding, because a device may fuse a multiplication and an addition.
#[track_caller]
fn assert_near<T: Element>(got: &[T], want: &[T], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let (g, w) = (got.wide(), want.wide());
        let near = (g - w).abs() <= 64.0 * T::EPSILON * w.abs().max(1.0);
        assert!(near, "{what}: element {i} is {got:?}, not {want:?}");
    }
}

fn elementwise_kernels_match_plain_rust(device: &Device) -> Result<()> {
    elementwise_of::<f32>(device)?;
    elementwise_of::<f64>(device)?;
    elementwise_of::<f16>(device)?;
    elementwise_of::<bf16>(device)
}

fn scans_match_plain_rust(device: &Device) -> Result<()> {
    scan_of(device, |value| value as u32 as i32 as u32 % 1000, |x| f64::from(*x), 0.0)?;
    scan_of(device, |value| value % 1_000_000, |x| *x as f64, 0.0)?;
    scan_of(device, |value| (value % 17) as f64 - 8.0, |x| *x, 0.0)?;
    scan_of(device, |value| (value % 1000) as f32 / 1000.0, |x| f64::from(*x), 1e-5)
}

fn scan_of<T: Summable>(
    device: &Device,
    make: impl Fn(u64) -> T,
    wide: impl Fn(&T) -> f64,
    error: f64,
) -> Result<()> {
    let s = device.stream()?;
    for (n, [at_x, at_y]) in lengths_and_offsets() {
        let x: Vec<T> = reference::random(n, 7).map(&make).collect();
        let want = reference::inclusive_scan(&x.iter().map(&wide).collect::<Vec<_>>());
        let mut dx = s.zeros::<T>(at_x + n)?;
        let mut dy = s.zeros::<T>(at_y + n + 1)?;
        s.upload_into(&x, &mut dx.slice_mut(at_x..)?)?;
        s.inclusive_scan(&dx.slice(at_x..)?, &mut dy.slice_mut(at_y..at_y + n)?)?;
        let got: Vec<f64> = s.download(&dy)?.iter().map(&wide).collect();
        for (i, (got, want)) in got[at_y..at_y + n].iter().zip(&want).enumerate() {
            let off = (got - want).abs();
            assert!(off <= error * want.abs(), "{} at {i} of {n}: {got}, not {want}", type_name::<T>());
        }
        assert!(
            got[..at_y].iter().all(|v| *v == 0.0) && got[at_y + n] == 0.0,
            "written outside, {n} at {at_y}"
        );
    }
    Ok(())
}

fn different_lengths_are_refused(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, elementwise::Kernels::load)?;
    let (x, mut y) = (s.zeros::<f32>(10)?, s.zeros::<f32>(9)?);
    refused(s.dot(&x, &y), ErrorKind::ArgumentMismatch, &[]);
    refused(s.inclusive_scan(&x, &mut y), ErrorKind::ArgumentMismatch, &["10", "9"]);
    refused(kernels.axpy(&s, 1.0, &x, &mut y, 10), ErrorKind::ContractViolated, &[]);
    // You can still use the kernels after the refusals.
    kernels.axpy(&s, 1.0, &x, &mut y, 9)
}

fn launches_of_algorithms_have_the_place_of_the_call(device: &Device) -> Result<()> {
    let (convert, s) = with_stream(device, Convert::load)?;
    let (x, mut y) = (s.full(100_003, 1.0_f64)?, s.alloc(100_003)?);
    let mut narrow = s.alloc::<f32>(100_003)?;
    let first = line!() + 2;
    let graph = s.capture(|s| {
        s.sum(&x)?;
        s.min(&x)?;
        s.max(&x)?;
        s.dot(&x, &x)?;
        s.inclusive_scan(&x, &mut y)?;
        convert.copy(s, &x, &mut narrow)
    })?;
    let dot = graph.dot();
    let kernels = ["sum<double", "best<unsigned long", "best<unsigned long", "dot<double"]
        .map(|name| format!("block_{name}"));
    let kernels = kernels.into_iter().chain(["scan_".to_owned(), "convert<double, float>".to_owned()]);
    for (line, kernel) in (first..).zip(kernels) {
        let place = format!("{}:{line}\"", file!().escape_default());
        let found = dot.lines().filter(|node| node.contains(&kernel) && node.contains(&place));
        assert!(found.count() >= 1, "{kernel} at {place} in {dot}");
    }
    assert!(dot.lines().all(|node| !node.contains("label") || node.contains(file!())), "{dot}");
    Ok(())
}

/// Returns launch shapes with their numbers of blocks: single threads, parts of warps, three dimensions, full blocks.
fn shapes() -> [(Launch, usize); 6] {
    [
        (Launch::new([1, 1, 1], [1, 1, 1]), 1),
        (Launch::new([3, 1, 1], [37, 1, 1]), 3),
        (Launch::new([2, 3, 2], [8, 4, 3]), 12),
        (Launch::new([1, 1, 1], [1024, 1, 1]), 1),
        (Launch::new([5, 1, 1], [256, 1, 1]), 5),
        (Launch::new([70, 1, 1], [64, 1, 1]), 70),
    ]
}

/// Any shape must give the same result, even if it has more blocks or threads than there is work for.
fn elementwise_kernels_are_right_in_any_shape(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, elementwise::Kernels::load)?;
    for n in [0, 1, 1000, 5000] {
        let covering = [(Launch::covering(5000), 0), (Launch::strided(5000), 0)];
        for (launch, _) in shapes().into_iter().chain(covering) {
            let x = reference::whole::<f32>(n, 8);
            let (dx, mut dy) = (s.upload(&x)?, s.full(n, 1.0f32)?);
            kernels.axpy_with(&s, &launch, 3.0, &dx, &mut dy, n)?;
            assert_eq!(s.download(&dy)?, reference::axpy(3.0, &x, &vec![1.0; n]), "{launch:?}, {n}");
        }
    }
    Ok(())
}

fn transposes_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, matrix::Kernels::load)?;
    for (rows, cols) in
        [(0, 5), (5, 0), (1, 1), (1, 1000), (1000, 1), (63, 64), (64, 64), (65, 129), (300, 511)]
    {
        let x: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
        let (dx, mut dy) = (s.upload(&x)?, s.zeros::<f32>(rows * cols)?);
        kernels.transpose(&s, &dx, &mut dy, rows, cols)?;
        assert!(s.download(&dy)? == reference::transpose(&x, rows, cols), "f32, {rows}×{cols}");

        let x: Vec<f64> = (0..rows * cols).map(|i| i as f64).collect();
        let dx = s.upload(&x)?;
        // We use the default block of GPUs, and sizes that divide no tile.
        for block in [256, 96, 7] {
            let mut dy = s.zeros::<f64>(rows * cols)?;
            let launch = Launch::new([3, 1, 1], [block, 1, 1]);
            kernels.transpose_with(&s, &launch, &dx, &mut dy, rows, cols)?;
            let right = s.download(&dy)? == reference::transpose(&x, rows, cols);
            assert!(right, "f64, {rows}×{cols}, blocks of {block}");
        }
    }
    Ok(())
}

fn matrix_products_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, matrix::Kernels::load)?;
    for shape in [
        [1, 1, 1],
        [1, 300, 1],
        [2, 3, 4],
        [64, 64, 64],
        [63, 17, 65],
        [65, 33, 1],
        [130, 100, 70],
        [3, 0, 3],
    ] {
        let [m, k, n] = shape;
        let (a, b) = (reference::whole::<f32>(m * k, 9), reference::whole::<f32>(k * n, 10));
        let want = reference::matmul(&a, &b, shape);
        let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.full(m * n, f32::NAN)?);
        kernels.matmul(&s, &da, &db, &mut dc, m, k, n)?;
        assert_eq!(s.download(&dc)?.iter().map(|c| c.wide()).collect::<Vec<_>>(), want, "f32, {shape:?}");

        let (a, b) = (reference::whole::<f64>(m * k, 9), reference::whole::<f64>(k * n, 10));
        let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.full(m * n, f64::NAN)?);
        // We use the default block of GPUs, and one with fewer threads than a tile needs.
        for block in [256, 100] {
            let launch = Launch::new([2, 1, 1], [block, 1, 1]);
            kernels.matmul_with(&s, &launch, &da, &db, &mut dc, m, k, n)?;
            assert_eq!(s.download(&dc)?, want, "f64, {shape:?}, blocks of {block}");
            s.fill(&mut dc, f64::NAN)?;
        }
    }
    Ok(())
}

fn histograms_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, histogram::Kernels::load)?;
    for (n, [at, _]) in lengths_and_offsets() {
        let bytes: Vec<u8> = reference::random(at + n, 11).map(|bits| (bits >> 20) as u8 & 0x7f).collect();
        let (x, mut bins) = (s.upload(&bytes)?, s.zeros::<u64>(256)?);
        kernels.histogram_u8(&s, &x.slice(at..)?, &mut bins, n)?;
        assert_eq!(s.download(&bins)?, reference::histogram_u8(&bytes[at..]), "{n} bytes at {at}");

        let mut values = reference::values::<f32>(at + n, 12);
        if let Some(last) = values.last_mut() {
            *last = f32::NAN;
        }
        let (x, mut bins) = (s.upload(&values)?, s.zeros::<u64>(100)?);
        let launch = Launch::new([3, 1, 1], [128, 1, 1]).shared(404);
        kernels.histogram_f32(&s, &launch, &x.slice(at..)?, &mut bins, n, -4.0, 5.0, 100)?;
        assert_eq!(
            s.download(&bins)?,
            reference::histogram_f32(&values[at..], 100, -4.0, 5.0),
            "{n} floats at {at}"
        );
    }
    let (x, mut bins) = (s.zeros::<f32>(10)?, s.zeros::<u64>(100)?);
    let unshared = kernels.histogram_f32(&s, &Launch::strided(10), &x, &mut bins, 10, 0.0, 1.0, 100);
    refused(unshared, ErrorKind::ContractViolated, &[]);
    Ok(())
}

fn heat_steps_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, stencil::Kernels::load)?;
    for (width, height) in
        [(0, 3), (1, 1), (1, 9), (9, 1), (2, 2), (3, 3), (255, 4), (256, 5), (258, 7), (1001, 33)]
    {
        let cells = reference::values::<f64>(width * height, 13);
        let want = reference::heat(&cells, width, height, 0.2);
        let (x, mut y) = (s.upload(&cells)?, s.full(width * height, f64::NAN)?);
        kernels.heat(&s, &x, &mut y, width, height, 0.2)?;
        assert_near(&s.download(&y)?, &want, &format!("f64, {width}×{height}"));

        let cells: Vec<f32> = cells.iter().map(|c| *c as f32).collect();
        let want: Vec<f32> = want.iter().map(|c| *c as f32).collect();
        let (x, mut y) = (s.upload(&cells)?, s.full(width * height, f32::NAN)?);
        let launch = Launch::new([3, 2, 1], [16, 8, 1]);
        kernels.heat_with(&s, &launch, &x, &mut y, width, height, 0.2)?;
        assert_near(&s.download(&y)?, &want, &format!("f32, {width}×{height}"));
    }
    Ok(())
}

/// Blocks that end in a full warp, in a part of a warp, and in a single lane.
const BLOCKS: [u32; 8] = [1, 2, 31, 32, 33, 65, 255, 1024];

fn device_headers_warp_functions_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, library::Kernels::load)?;
    for block in BLOCKS {
        let n = block as usize;
        let x = reference::whole::<f64>(n, 16);
        let (mut below, mut running, mut whole) = (s.zeros(n)?, s.zeros(n)?, s.zeros(n)?);
        let launch = Launch::new([1; 3], [block, 1, 1]);
        kernels.in_warps(&s, &launch, &s.upload(&x)?, &mut below, &mut running, &mut whole)?;
        let (below, running, whole) = (s.download(&below)?, s.download(&running)?, s.download(&whole)?);
        let warp = device.info().warp_size as usize;
        for (w, x) in x.chunks(warp).enumerate() {
            let here = w * warp..w * warp + x.len();
            assert_eq!(below[here.clone()][0], x[0], "the first lane has none below, {block}");
            assert_eq!(below[here.clone()][1..], x[..x.len() - 1], "shfl_up, warp {w} of {block}");
            assert_eq!(running[here.clone()], reference::inclusive_scan(x), "scan, warp {w} of {block}");
            assert_eq!(whole[here], vec![reference::sum(x); x.len()], "sum, warp {w} of {block}");
        }
    }
    Ok(())
}

fn device_headers_block_functions_match_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, library::Kernels::load)?;
    for block in BLOCKS {
        let n = block as usize;
        let x: Vec<u32> = reference::random(n, 17).map(|bits| bits as u32 % 1000).collect();
        let (mut before, mut whole, mut largest) = (s.zeros(n)?, s.zeros(n)?, s.zeros(n)?);
        let launch = Launch::new([1; 3], [block, 1, 1]);
        kernels.in_blocks(&s, &launch, &s.upload(&x)?, &mut before, &mut whole, &mut largest)?;
        let before_each: Vec<u32> = (0..n).map(|i| x[..i].iter().sum()).collect();
        assert_eq!(s.download(&before)?, before_each, "before, {block}");
        assert_eq!(s.download(&whole)?, vec![x.iter().sum::<u32>(); n], "sum, {block}");
        assert_eq!(s.download(&largest)?, vec![*x.iter().max().unwrap(); n], "max, {block}");
    }
    Ok(())
}

fn device_headers_integers_have_their_widths(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, library::Kernels::load)?;
    let (a, b, c) = ([i8::MIN, i8::MAX], [i16::MIN, i16::MAX], [i32::MIN, i32::MAX]);
    let (e, f, g) = ([0, u8::MAX], [u16::MAX, 0], [u32::MAX, 1]);
    let (d, h) = ([1_i64 << 60, -(1 << 60)], [7_u64, 1 << 40]);
    let mut sums = s.zeros::<i64>(2)?;
    kernels.fixed_width(
        &s,
        &s.upload(&a)?,
        &s.upload(&b)?,
        &s.upload(&c)?,
        &s.upload(&d)?,
        &s.upload(&e)?,
        &s.upload(&f)?,
        &s.upload(&g)?,
        &s.upload(&h)?,
        &mut sums,
        2,
    )?;
    let sum = |i: usize| {
        let signed = i64::from(a[i]) + i64::from(b[i]) + i64::from(c[i]) + d[i];
        signed + i64::from(e[i]) + i64::from(f[i]) + i64::from(g[i]) + h[i] as i64
    };
    assert_eq!(s.download(&sums)?, [sum(0), sum(1)]);
    Ok(())
}

fn device_headers_atomics_lose_no_update(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, library::Kernels::load)?;
    // There are so few threads that `bf16` can hold every count exactly.
    let launch = Launch::new([4, 1, 1], [61, 1, 1]);
    let n = 4 * 61;
    let mut x = reference::values::<f32>(n, 18);
    x[100] = f32::NAN;
    // The other half of the same 32-bit word must keep its value.
    let mut halves = s.upload(&[f16::ZERO, f16::from_f32(0.5)])?;
    let mut brains = s.upload(&[bf16::from_f32(0.5), bf16::ZERO])?;
    let (mut floats, mut doubles, mut words) = (s.zeros::<f32>(1)?, s.zeros::<f64>(1)?, s.zeros::<u64>(1)?);
    let mut bounds = s.upload(&[f32::INFINITY, f32::NEG_INFINITY])?;
    let mut wide_bounds = s.upload(&[f64::INFINITY, f64::NEG_INFINITY])?;
    kernels.atomically(
        &s,
        &launch,
        &s.upload(&x)?,
        &mut halves,
        &mut brains,
        &mut floats,
        &mut doubles,
        &mut words,
        &mut bounds,
        &mut wide_bounds,
    )?;
    let count = n as f64;
    assert_eq!(s.download(&halves)?, [f16::from_f64(count), f16::from_f64(count + 0.5)]);
    assert_eq!(s.download(&brains)?, [bf16::from_f32(0.5), bf16::from_f64(count)]);
    assert_eq!(s.download(&floats)?, [count as f32]);
    assert_eq!(s.download(&doubles)?, [count]);
    assert_eq!(s.download(&words)?, [n as u64]);
    let (least, most) = (reference::min(&x), reference::max(&x));
    assert_eq!(s.download(&bounds)?, [least as f32, most as f32]);
    assert_eq!(s.download(&wide_bounds)?, [least, most]);
    Ok(())
}

/// The arrays have more than 2^31 elements or bytes, so a 32-bit index would wrap around.
fn kernels_are_right_beyond_32_bits(device: &Device) -> Result<()> {
    let n = (1usize << 31) + 4099;
    let free = device.memory()?.free;
    if free < 2 * n as u64 {
        eprintln!("skipped: {free} bytes of device memory are free");
        return Ok(());
    }
    let s = device.stream()?;
    {
        let mut bytes = s.full(n, 7u8)?;
        s.fill(&mut bytes.slice_mut(n - 3..)?, 9u8)?;
        let mut bins = s.zeros::<u64>(256)?;
        histogram::Kernels::load(device)?.histogram_u8(&s, &bytes, &mut bins, n)?;
        let bins = s.download(&bins)?;
        assert_eq!((bins[7], bins[9], bins.iter().sum()), (n as u64 - 3, 3, n as u64));
    }
    let n = (1usize << 29) + 1027;
    let mut x = s.alloc::<f32>(n)?;
    let kernels = elementwise::Kernels::load(device)?;
    kernels.fill(&s, 0.5, &mut x, n)?;
    kernels.scale(&s, 2.0, &mut x.slice_mut(n - 10..)?, 10)?;
    assert_eq!(s.download(&s.max(&x)?)?, [1.0]);
    assert_eq!(s.download(&s.max(&x.slice(..n - 10)?)?)?, [0.5]);
    assert_eq!(s.download(&s.arg_max(&x)?.1)?, [n as u64 - 10]);
    assert_eq!(s.download(&s.min(&x.view())?)?, [0.5]);
    Ok(())
}
