//! Kernels with `<curand_kernel.h>` draw cuRAND's numbers everywhere.

use conformance::foreign_random::Kernels;
use conformance::{tests, with_stream};
use gpustream::{Device, Launch, Result};

tests! {
    Plain: xorwow_gives_the_numbers_of_curands_manual, philox_gives_the_known_answers_of_its_authors,
        every_kind_draws_as_many_numbers_as_in_curand, normal_numbers_have_mean_zero_and_variance_one;
}

/// cuRAND's manual has an example that prints ten numbers. With the default order its first numbers come from one
/// subsequence each, so we can expect the first numbers of ten subsequences with seed 1234.
fn xorwow_gives_the_numbers_of_curands_manual(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut uniform, mut skipped) = (s.zeros::<f32>(10)?, s.zeros::<u32>(20)?);
    kernels.xorwow(&s, &Launch::exact([1, 1, 1], [10, 1, 1]), &mut uniform, &mut skipped, 1234)?;
    let printed = [0.1455, 0.8202, 0.5504, 0.2948, 0.9147, 0.8690, 0.3219, 0.7829, 0.0113, 0.2855];
    for (got, want) in s.download(&uniform)?.into_iter().zip(printed) {
        assert!((got - want).abs() < 5.1e-5, "{got} and {want}");
    }
    let skipped = s.download(&skipped)?;
    assert!(skipped.chunks(2).all(|pair| pair[0] == pair[1]), "{skipped:?}");
    Ok(())
}

/// The generator's authors publish these known answers with Random123.
fn philox_gives_the_known_answers_of_its_authors(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut known, mut skipped) = (s.zeros::<u32>(8)?, s.zeros::<u32>(40)?);
    kernels.philox(&s, &Launch::exact([1, 1, 1], [20, 1, 1]), &mut known, &mut skipped)?;
    let zeros = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let pi = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
    assert_eq!(s.download(&known)?, [zeros, pi].concat());
    let skipped = s.download(&skipped)?;
    assert!(skipped.chunks(2).all(|pair| pair[0] == pair[1]), "{skipped:?}");
    Ok(())
}

/// cuRAND 13.0 returned these numbers on an H200 after the same calls.
fn every_kind_draws_as_many_numbers_as_in_curand(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut xorwow, mut philox) = (s.zeros::<u32>(3)?, s.zeros::<u32>(3)?);
    kernels.every_kind(&s, &Launch::exact([1, 1, 1], [1, 1, 1]), &mut xorwow, &mut philox)?;
    assert_eq!(s.download(&xorwow)?, [0xbcea_13ff, 0x140d_184c, 0x3066_6c6d]);
    assert_eq!(s.download(&philox)?, [0x74a3_4bb7, 0xf1e1_0237, 0xc3c1_fe55]);
    Ok(())
}

fn normal_numbers_have_mean_zero_and_variance_one(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let threads = 100;
    let mut sums = s.zeros::<f64>(8 * threads)?;
    kernels.normal(&s, &Launch::exact([4, 1, 1], [25, 1, 1]), &mut sums)?;
    let (sums, count) = (s.download(&sums)?, 1000.0 * threads as f64);
    for kind in 0..4 {
        let mean = |at: usize| sums.iter().skip(at).step_by(8).sum::<f64>() / count;
        let (mean, square) = (mean(2 * kind), mean(2 * kind + 1));
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{kind}: {mean} and {square}");
    }
    Ok(())
}
