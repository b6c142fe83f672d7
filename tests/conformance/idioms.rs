//! Idioms of existing CUDA and HIP kernels mean the same on every backend.

use conformance::idioms;
use gpustream::{Device, Launch, Result};

conformance::tests! {
    Plain: threads_that_have_returned_take_no_part_in_barriers, cooperative_groups_of_a_grid_meet;
    Warps: cooperative_groups_of_a_block_match_plain_rust;
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

fn cooperative_groups_of_a_block_match_plain_rust(device: &Device) -> Result<()> {
    let kernels = idioms::Kernels::load(device)?;
    let s = device.stream()?;
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
    if !device.info().cooperative_launch {
        return Ok(());
    }
    let kernels = idioms::Kernels::load(device)?;
    let s = device.stream()?;
    for threads in [1, 96, 256] {
        let kernel = kernels.module().kernel("add_the_sum")?;
        let blocks = kernel.occupancy(threads, 0)? * device.info().multiprocessors;
        let mut want: Vec<u32> = (0..1000).map(|i| i * i + 3).collect();
        let (mut x, mut sums) = (s.upload(&want)?, s.zeros::<u32>(2)?);
        let launch = Launch::new([blocks, 1, 1], [threads, 1, 1]);
        kernels.add_the_sum(&s, &launch, &mut x, &mut sums, 5, 1000)?;
        for _ in 0..5 {
            let sum = want.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
            want.iter_mut().for_each(|x| *x = x.wrapping_add(sum));
        }
        assert_eq!(s.download(&x)?, want, "{blocks} blocks of {threads}");
    }
    Ok(())
}
