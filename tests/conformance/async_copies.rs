//! Copies to shared memory bring the right bytes, in groups and in pipelines of any depth.

use conformance::async_copies::{HasCopyParts, HasSumSteps, Kernels};
use conformance::{tests, with_stream};
use gpustream::{Device, Launch, Result, Stream};

tests! {
    Warps: each_size_arrives_and_the_rest_is_zero, groups_arrive_in_their_order, pipelines_use_each_step_once;
}

const THREADS: usize = 96;

fn launch() -> Launch {
    Launch::exact([1, 1, 1], [THREADS as u32, 1, 1])
}

fn each_size_arrives_and_the_rest_is_zero(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    parts::<4>(&kernels, &s)?;
    parts::<8>(&kernels, &s)?;
    parts::<16>(&kernels, &s)
}

fn parts<const BYTES: i32>(kernels: &Kernels, s: &Stream) -> Result<()>
where
    Kernels: HasCopyParts<BYTES>,
{
    let bytes = BYTES as usize;
    let x: Vec<u32> = (0..4 * THREADS as u32).map(|i| i.wrapping_mul(0x9e37_79b9) | 0x0101_0101).collect();
    let counts: Vec<u32> = (0..THREADS).map(|t| (t % (bytes + 1)) as u32).collect();
    let mut y = s.alloc(x.len())?;
    kernels.copy_parts::<BYTES>(s, &launch(), &s.upload(&x)?, &s.upload(&counts)?, &mut y)?;
    let parts = bytemuck::cast_slice::<u32, u8>(&x).chunks(bytes).zip(counts);
    let parts: Vec<Vec<u8>> = parts
        .map(|(part, count)| {
            let mut part = part.to_vec();
            part[count as usize..].fill(0);
            part
        })
        .collect();
    let want: Vec<u8> = parts.into_iter().rev().flatten().collect();
    let found = s.download(&y)?;
    assert_eq!(bytemuck::cast_slice::<u32, u8>(&found)[..want.len()], want, "parts of {bytes} bytes");
    Ok(())
}

fn groups_arrive_in_their_order(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let x: Vec<f64> = (1..=2 * THREADS).map(|i| i as f64).collect();
    let mut y = s.alloc(x.len())?;
    kernels.copy_groups(&s, &launch(), &s.upload(&x)?, &mut y)?;
    let (first, second) = x.split_at(THREADS);
    let second = second.iter().enumerate().map(|(t, &x)| if t % 2 == 0 { x } else { 0.0 });
    let want: Vec<f64> = first.iter().rev().copied().chain(second.rev()).collect();
    assert_eq!(s.download(&y)?, want);
    Ok(())
}

fn pipelines_use_each_step_once(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for steps in [0, 1, 2, 3, 4, 5, 11] {
        sums::<2>(&kernels, &s, steps)?;
        sums::<3>(&kernels, &s, steps)?;
        sums::<5>(&kernels, &s, steps)?;
    }
    Ok(())
}

fn sums<const STAGES: i32>(kernels: &Kernels, s: &Stream, steps: usize) -> Result<()>
where
    Kernels: HasSumSteps<STAGES>,
{
    let x: Vec<f32> = (0..steps * THREADS).map(|i| (i % 251) as f32).collect();
    let mut found = s.alloc(THREADS)?;
    kernels.sum_steps::<STAGES>(s, &launch(), &s.upload(&x)?, &mut found, steps as i32)?;
    let want: Vec<f32> = (0..THREADS)
        .map(|t| (0..steps).map(|step| (step + 1) as f32 * x[step * THREADS + THREADS - 1 - t]).sum())
        .collect();
    assert_eq!(s.download(&found)?, want, "{steps} steps in {STAGES} stages");
    Ok(())
}
