//! Kernels with barriers run as loops on the CPU. Every form of declaration must still mean the same there.

use conformance::declarations::{Kernels, Weights};
use conformance::with_stream;
use gpustream::{Buffer, Device, Launch, Result, Stream};

conformance::tests! {
    Plain: a_name_means_the_innermost_variable, values_may_stand_in_parentheses,
        older_words_declare_shared_memory, functions_with_pragmas_are_inlined,
        a_macro_means_the_variable_of_its_place, macros_change_each_threads_own_variables,
        functions_change_what_they_refer_to_and_nothing_else;
}

const N: usize = 64;

fn values() -> Vec<i32> {
    (0..N as i32).map(|i| i * 37 % 101 - 20).collect()
}

/// Runs a kernel with one block.
fn run(
    device: &Device,
    kernel: impl FnOnce(&Kernels, &Stream, &Launch, &Buffer<i32>, &mut Buffer<i32>) -> Result<()>,
) -> Result<Vec<i32>> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (x, mut y) = (s.upload(&values())?, s.zeros::<i32>(N)?);
    kernel(&kernels, &s, &Launch::new([1; 3], [N as u32, 1, 1]).shared(4 * N as u32), &x, &mut y)?;
    s.download(&y)
}

fn a_name_means_the_innermost_variable(device: &Device) -> Result<()> {
    let x = values();
    for n in [0, 1, 5, 6, 30, 64] {
        let y = run(device, |kernels, s, launch, x, y| kernels.shadows(s, launch, x, y, n))?;
        let expected = |i: usize| {
            let mut sum = 0;
            for turn in 0..3 {
                sum += x[(i + turn) % N];
                let part = sum % 7;
                sum += if part < n { part } else { 0 };
            }
            let (inner, half) = (x[i], i as i32 / 2);
            sum -= if n > 5 && (i as i32) < inner { inner } else { 0 };
            sum += if n > 5 && half < inner { half } else { 0 };
            sum + 4 + if (i as i32) < n { x[i] } else { 0 }
        };
        assert_eq!(y, (0..N).map(expected).collect::<Vec<_>>(), "n = {n}");
    }
    Ok(())
}

fn values_may_stand_in_parentheses(device: &Device) -> Result<()> {
    let (x, weights) = (values(), Weights { of: [5, -7, 11, 0] });
    let y = run(device, |kernels, s, launch, x, y| kernels.parentheses(s, launch, x, y, 9, weights))?;
    let line = |[slope, offset]: [i32; 2], x: i32| slope * x + offset;
    let expected = |i: i32| {
        let other = if i % 2 == 0 { [i, 9] } else { [9, i] };
        line([i, 2 * i], x[i as usize]) + line(other, 3) + 9 + weights.of[i as usize % 4]
    };
    assert_eq!(y, (0..N as i32).map(expected).collect::<Vec<_>>());
    Ok(())
}

fn older_words_declare_shared_memory(device: &Device) -> Result<()> {
    let y = run(device, |kernels, s, launch, x, y| kernels.turned(s, launch, x, y))?;
    let expected: Vec<i32> = values().chunks(32).flat_map(|warp| warp.iter().rev().copied()).collect();
    assert_eq!(y, expected);
    Ok(())
}

fn functions_with_pragmas_are_inlined(device: &Device) -> Result<()> {
    let x = values();
    let y = run(device, |kernels, s, launch, x, y| kernels.neighbours(s, launch, x, y))?;
    let expected = |i: usize| (0..4).map(|turn| x[(i + turn) % N] + turn as i32).sum::<i32>() + 2;
    assert_eq!(y, (0..N).map(expected).collect::<Vec<_>>());
    Ok(())
}

fn a_macro_means_the_variable_of_its_place(device: &Device) -> Result<()> {
    let y = run(device, |kernels, s, launch, x, y| kernels.by_macro(s, launch, x, y))?;
    assert_eq!(y, values().iter().map(|x| x + 3).collect::<Vec<_>>());
    Ok(())
}

fn macros_change_each_threads_own_variables(device: &Device) -> Result<()> {
    let x = values();
    let y = run(device, |kernels, s, launch, x, y| kernels.through_macros(s, launch, x, y, 40))?;
    let expected = |i: usize| {
        let own = [3, 5][i % 2];
        x[i] + own * x[i] + i as i32 + if i < 40 { 2 } else { 0 }
    };
    assert_eq!(y, (0..N).map(expected).collect::<Vec<_>>());
    Ok(())
}

fn functions_change_what_they_refer_to_and_nothing_else(device: &Device) -> Result<()> {
    let x = values();
    let y = run(device, |kernels, s, launch, x, y| kernels.through_functions(s, launch, x, y))?;
    let expected = |i: usize| (1 + i as i32) + 2 + 2 * (i as i32 + 2) + 3 * x[i] + 5 * (x[i] + 1) + 7 * 6;
    assert_eq!(y, (0..N).map(expected).collect::<Vec<_>>());
    Ok(())
}
