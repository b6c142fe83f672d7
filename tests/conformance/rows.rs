//! The CPU backend may evaluate a comparison once for a whole row of threads. It must mean the same as if each thread
//! evaluated it.

use conformance::rows::Kernels;
use conformance::with_stream;
use gpustream::{BackendName, Device, Launch, Result};

conformance::tests! {
    Plain: comparisons_hold_for_the_same_threads, tiles_are_copied_within_their_bounds,
        loops_over_rows_visit_each_place_once;
}

/// Returns a bit for each comparison in the kernel that is true for a thread.
fn holds([column, y]: [i32; 2], threads: i32, [first, width, height, divisor]: [i32; 4]) -> u32 {
    let thread = column % threads;
    let (x, wraps, end) = (column + first, (column + first) as u32, width as u64);
    let narrow = (thread as u32).wrapping_sub(3);
    let outcomes = [
        x < width,
        x <= width,
        width > x,
        width > x,
        x > 0 && x < width - 1 && y > 0 && y < height - 1,
        wraps < width as u32,
        wraps > width as u32,
        narrow < width as u32,
        u64::from(narrow) + end < 2 * end,
        u64::from(wraps) < end,
        (i64::from(x) as u64) < end,
        wraps < width as u32,
        x as f32 + 0.5 < width as f32,
        y < height,
        divisor != 0 && x < width.checked_div(divisor).unwrap_or_default(),
        y < height && thread < 5,
        x >= width || y >= height,
        x < width,
        x >= width && y < height,
        0 < y && x < width,
        1 < y && x < width + 1,
        2 < y && x < width + 2,
        u64::from(narrow) + end > 2 * end,
    ];
    outcomes.iter().enumerate().map(|(bit, holds)| u32::from(*holds) << bit).sum()
}

fn comparisons_hold_for_the_same_threads(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (blocks, [across, down]) in
        [(1, [1, 1]), (2, [32, 1]), (3, [32, 4]), (2, [64, 3]), (3, [48, 2]), (2, [50, 3])]
    {
        for first in [-70, -32, -3, 0, 1] {
            for [width, height, divisor] in
                [[0, 0, 0], [1, 1, 1], [31, 2, 2], [32, 2, 0], [96, 3, 1], [1000, 9, 3]]
            {
                let mut out = s.zeros::<u32>((blocks * across * down) as usize)?;
                let launch = Launch::new([blocks, 1, 1], [across, down, 1]);
                kernels.compared(&s, &launch, &mut out, first, width, height, divisor)?;
                for (at, got) in s.download(&out)?.into_iter().enumerate() {
                    let place = [at as i32 / down as i32, at as i32 % down as i32];
                    let expected = holds(place, across as i32, [first, width, height, divisor]);
                    let case = format!(
                        "{place:?} of {blocks} blocks {across} x {down}, from {first}, {width} x {height}"
                    );
                    assert_eq!(got, expected, "{:b} differ for {case}", got ^ expected);
                }
            }
        }
    }
    Ok(())
}

fn tiles_are_copied_within_their_bounds(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (width, pitch, rows) in
        [(1, 1, 1), (31, 32, 16), (32, 32, 17), (64, 70, 33), (97, 97, 5), (130, 160, 48)]
    {
        let x: Vec<i32> = (0..rows * pitch).collect();
        let mut y = s.full(x.len(), -7)?;
        let launch = Launch::new([(pitch as u32).div_ceil(32), (rows as u32).div_ceil(16), 1], [32, 4, 1]);
        kernels.tiled(&s, &launch, &s.upload(&x)?, &mut y, width, pitch, rows)?;
        let expected: Vec<i32> = x.iter().map(|i| if i % pitch < width { *i } else { -1 }).collect();
        assert_eq!(s.download(&y)?, expected, "{width} of {pitch} in {rows} rows");
    }
    Ok(())
}

fn loops_over_rows_visit_each_place_once(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for [width, height] in
        [[0, 3], [3, 0], [1, 1], [1, 700], [2, 129], [5, 100], [63, 9], [64, 3], [65, 4], [300, 2]]
    {
        for (grid, block) in [
            ([1, 1, 1], [64, 1, 1]),
            ([3, 1, 1], [64, 1, 1]),
            ([2, 2, 2], [8, 3, 2]),
            ([100, 1, 1], [1, 1, 1]),
        ] {
            let n = width * height;
            let (mut visits, mut blocks) = (s.zeros::<u32>(n)?, s.zeros::<u32>(n)?);
            kernels.visited(&s, &Launch::new(grid, block), &mut visits, &mut blocks, width, height)?;
            assert_eq!(s.download(&visits)?, vec![1; n], "{width} x {height}, {grid:?} of {block:?}");
        }
        // On a GPU narrow rows share a block, so that all of its threads work: as many blocks come as the elements need.
        if height >= 100 && device.info().backend != BackendName::CPU {
            let (mut visits, mut blocks) = (s.zeros::<u32>(width * height)?, s.zeros::<u32>(width * height)?);
            let rounds = height.div_ceil(64 / width);
            let launch = Launch::new([rounds as u32, 1, 1], [64, 1, 1]);
            kernels.visited(&s, &launch, &mut visits, &mut blocks, width, height)?;
            let mut came = s.download(&blocks)?;
            came.dedup();
            assert_eq!(came, (0..rounds as u32).collect::<Vec<_>>(), "{width} x {height}");
        }
    }
    Ok(())
}
