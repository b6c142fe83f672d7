//! Kernels with CUDA's own headers for matrix cores, asynchronous copies, barriers and pipelines mean the same everywhere.

use conformance::foreign_matrices::Kernels;
use conformance::{Random, tests, with_stream};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Launch, Plain, Result, Stream};

tests! {
    Warps: fragments_multiply_like_plain_rust, fragments_and_copied_tiles_make_a_product,
        threads_meet_at_barriers_and_copy, roles_meet_at_barriers, pipelines_of_threads_and_blocks_order_copies,
        roles_meet_in_pipelines;
    CpuOnly: a_barrier_that_nobody_completes_is_an_error;
}

/// Returns a launch of one block with a few warps.
fn warps(device: &Device, count: u32) -> Launch {
    Launch::exact([1, 1, 1], [count * device.info().warp_size, 1, 1])
}

fn numbers<T>(random: &mut Random, count: usize, of: impl Fn(i32) -> T) -> Vec<T> {
    (0..count).map(|_| of(random.below(15) as i32)).collect()
}

/// Returns 2 a b + c, with a and c by rows, and b by columns.
fn doubled<T: Copy + Into<f64>>([m, n, k]: [usize; 3], a: &[T], b: &[T], c: &[f64]) -> Vec<f64> {
    let mut sums = c.to_vec();
    for (at, sum) in sums.iter_mut().enumerate().take(m * n) {
        let (row, column) = (at / n, at % n);
        let product = |i: usize| -> f64 { a[row * k + i].into() * b[column * k + i].into() };
        *sum += 2.0 * (0..k).map(product).sum::<f64>();
    }
    sums
}

fn fragments_multiply_like_plain_rust(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let launch = warps(device, 1);
    let mut random = Random(17);
    macro_rules! check {
        ($size:expr, $of:expr, $sum:ty, $call:expr) => {{
            let [m, n, k]: [usize; 3] = $size;
            let (mut a, mut b) = (numbers(&mut random, m * k, $of), numbers(&mut random, n * k, $of));
            let c: Vec<$sum> = numbers(&mut random, m * n, |x| x as $sum);
            let expected = doubled($size, &a, &b, &c.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            // The contracts ask for the largest shape.
            a.resize(a.len().max(512), $of(0));
            b.resize(b.len().max(512), $of(0));
            let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.upload(&c)?);
            $call(&da, &db, &mut dc)?;
            let got: Vec<f64> = s.download(&dc)?.into_iter().map(f64::from).collect();
            assert_eq!(got, expected, "{:?} of {}", $size, std::any::type_name::<$sum>());
        }};
    }
    let half = |x: i32| f16::from_f32((x - 7) as f32);
    check!([8, 32, 16], half, f32, |a, b, c| kernels.multiply_halves::<8>(&s, &launch, a, b, c));
    check!([16, 16, 16], half, f32, |a, b, c| kernels.multiply_halves::<16>(&s, &launch, a, b, c));
    let bfloat = |x: i32| bf16::from_f32((x - 7) as f32);
    check!([32, 8, 16], bfloat, f32, |a, b, c| kernels.multiply_bfloats(&s, &launch, a, b, c));
    let signed = |x: i32| (x * 17 - 119) as i8;
    check!([16, 16, 16], signed, i32, |a, b, c| kernels.multiply_bytes(&s, &launch, a, b, c));
    let unsigned = |x: i32| (x * 18) as u8;
    check!([16, 16, 16], unsigned, i32, |a, b, c| kernels.multiply_bytes(&s, &launch, a, b, c));
    check!([16, 16, 8], |x: i32| (x - 7) as f32, f32, |a, b, c| kernels.multiply_tf32(&s, &launch, a, b, c));
    check!([8, 8, 4], |x: i32| f64::from(x - 7), f64, |a, b, c| kernels
        .multiply_doubles(&s, &launch, a, b, c));
    Ok(())
}

fn fragments_and_copied_tiles_make_a_product(device: &Device) -> Result<()> {
    const SIDE: usize = 32;
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut random = Random(3);
    for steps in [1, 2, 5] {
        let depth = 16 * steps;
        let of = |x: i32| f16::from_f32((x - 7) as f32);
        let (a, b) = (numbers(&mut random, SIDE * depth, of), numbers(&mut random, depth * SIDE, of));
        let mut c = s.zeros::<f16>(SIDE * SIDE)?;
        let launch = warps(device, 2);
        kernels.multiply_tiles(&s, &launch, &s.upload(&a)?, &s.upload(&b)?, &mut c, steps as i32)?;
        for (at, got) in s.download(&c)?.into_iter().enumerate() {
            let product = |k: usize| a[at / SIDE * depth + k].to_f32() * b[k * SIDE + at % SIDE].to_f32();
            assert_eq!(got, f16::from_f32((0..depth).map(product).sum()), "{steps} steps, element {at}");
        }
    }
    Ok(())
}

/// Returns the block sizes of these tests: with all warps full, and not.
const THREADS: [u32; 3] = [128, 96, 40];

fn floats<T: Plain>(s: &Stream, count: u32, of: impl Fn(u32) -> T) -> Result<(Vec<T>, gpustream::Buffer<T>)> {
    let x: Vec<T> = (0..count).map(of).collect();
    let on_device = s.upload(&x)?;
    Ok((x, on_device))
}

fn threads_meet_at_barriers_and_copy(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for threads in THREADS {
        let (x, on_device) = floats(&s, 6 * threads, |i| i as f32)?;
        let mut y = s.zeros::<f32>(x.len())?;
        kernels.reverse_by_barrier(&s, &Launch::new([3, 1, 1], [threads, 1, 1]), &on_device, &mut y)?;
        let reversed: Vec<f32> = x.chunks(threads as usize).flat_map(|x| x.iter().rev().copied()).collect();
        assert_eq!(s.download(&y)?, reversed, "{threads} threads");
        kernels.copy_by_barrier(&s, &Launch::new([1; 3], [threads, 1, 1]), &on_device, &mut y, 6)?;
        let more: Vec<f32> = reversed.iter().map(|x| x + 1.0).collect();
        assert_eq!(s.download(&y)?, more, "{threads} threads");
    }
    Ok(())
}

fn roles_meet_at_barriers(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for steps in [1, 2, 7] {
        let (x, on_device) = floats(&s, 128 * steps, |i| i as i32 % 101)?;
        let mut sums = s.upload(&[1; 128])?;
        let launch = warps(device, if device.info().warp_size == 64 { 3 } else { 5 });
        kernels.sum_by_roles(&s, &launch, &on_device, &mut sums, steps as i32)?;
        let of_step = |step: usize, i: usize| (step as i32 + 1) * x[step * 128 + 127 - i];
        let expected: Vec<i32> =
            (0..128).map(|i| 1 + (0..steps as usize).map(|step| of_step(step, i)).sum::<i32>()).collect();
        assert_eq!(s.download(&sums)?, expected, "{steps} steps");
    }
    Ok(())
}

/// Returns the sums of neighbours in each block.
fn of_neighbours(x: &[f32], threads: usize) -> Vec<f32> {
    let of_block = |x: &[f32]| (0..threads).map(|t| x[t] + x[(t + 1) % threads]).collect::<Vec<_>>();
    x.chunks(threads).flat_map(of_block).collect()
}

fn pipelines_of_threads_and_blocks_order_copies(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (threads, steps) in THREADS.into_iter().flat_map(|threads| [1, 2, 7].map(|steps| (threads, steps))) {
        let (x, on_device) = floats(&s, steps * threads, |i| (i * i % 1009) as f32)?;
        let expected = of_neighbours(&x, threads as usize);
        let launch = Launch::new([1; 3], [threads, 1, 1]);
        let mut y = s.zeros::<f32>(x.len())?;
        kernels.sum_by_threads(&s, &launch, &on_device, &mut y, steps as i32)?;
        assert_eq!(s.download(&y)?, expected, "{threads} threads, {steps} steps");
        let mut y = s.zeros::<f32>(x.len())?;
        kernels.sum_by_block(&s, &launch, &on_device, &mut y, steps as i32)?;
        assert_eq!(s.download(&y)?, expected, "{threads} threads, {steps} steps");
    }
    Ok(())
}

fn roles_meet_in_pipelines(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for steps in [1, 2, 7] {
        let (x, on_device) = floats(&s, 128 * steps, |i| (i * i % 1009) as f32)?;
        let (mut by_role, mut by_number) = (s.zeros::<f32>(x.len())?, s.zeros::<f32>(x.len())?);
        let launch = warps(device, 4);
        kernels.sum_by_pipeline_roles::<true>(&s, &launch, &on_device, &mut by_role, steps as i32)?;
        kernels.sum_by_pipeline_roles::<false>(&s, &launch, &on_device, &mut by_number, steps as i32)?;
        let expected = of_neighbours(&x, 128);
        assert_eq!(s.download(&by_role)?, expected, "{steps} steps");
        assert_eq!(s.download(&by_number)?, expected, "{steps} steps");
    }
    Ok(())
}

fn a_barrier_that_nobody_completes_is_an_error(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    // SAFETY: the kernel touches no memory.
    unsafe { kernels.wait_in_vain(&s, &Launch::new([1; 3], [32, 1, 1])) }?;
    let error = s.synchronize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    let text = error.to_string();
    assert!(text.contains("waits for a cuda::barrier at") && text.contains("foreign_matrices.cu"), "{text}");
    Ok(())
}
