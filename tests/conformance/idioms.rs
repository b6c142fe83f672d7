//! Idioms of existing CUDA and HIP kernels mean the same on every backend.

use conformance::idioms;
use gpustream::{Device, Launch, Result};

conformance::tests! {
    Plain: threads_that_have_returned_take_no_part_in_barriers;
}

fn threads_that_have_returned_take_no_part_in_barriers(device: &Device) -> Result<()> {
    let kernels = idioms::Kernels::load(device)?;
    let s = device.stream()?;
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
