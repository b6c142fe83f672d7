//! Algorithms on more than 2³² elements, on GPUs with much memory.

use conformance::long::Kernels;
use gpustream::{BackendName, Device, Result};
use gpustream_kernels::prelude::*;

conformance::tests! {
    Plain if has_room: long_arrays_of_keys, long_arrays_of_bytes;
}

/// Three more than 32 bits can count.
const N: usize = (1 << 32) + 3;

/// An odd number: its first 2³² multiples have all numbers of 32 bits.
const FACTOR: u32 = 0x9E37_79B1;

fn has_room(device: &Device) -> bool {
    let info = device.info();
    info.backend != BackendName::CPU && info.total_memory >= 64 << 30
}

/// Returns the keys that appear twice, the smallest first.
fn twice() -> [u32; 3] {
    let mut keys = [0, FACTOR, FACTOR.wrapping_mul(2)];
    keys.sort_unstable();
    keys
}

fn long_arrays_of_keys(device: &Device) -> Result<()> {
    let (stream, kernels) = (device.stream()?, Kernels::load(device)?);
    let mut keys = stream.alloc::<u32>(N)?;
    kernels.multiples(&stream, &mut keys, N, FACTOR)?;
    let small = stream.select_range(&keys, ..100)?;
    let mut small = small.download(&stream)?;
    small.sort_unstable();
    let mut expected: Vec<u32> = (0..100).chain(twice().into_iter().filter(|key| *key < 100)).collect();
    expected.sort_unstable();
    assert_eq!(small, expected);

    stream.sort(&mut keys)?;
    let [first, second, third] = twice();
    let mut wrong = stream.zeros::<u64>(1)?;
    kernels.count_wrong(&stream, &keys, N, first, second, third, &mut wrong)?;
    assert_eq!(stream.download(&wrong)?, [0]);
    let mut at = stream.zeros::<u64>(1)?;
    stream.lower_bound_into(&keys, &stream.upload(&[u32::MAX])?, &mut at)?;
    assert_eq!(stream.download(&at)?, [N as u64 - 1]);

    let mut places = stream.alloc::<u32>(N)?;
    stream.inclusive_scan(&keys, &mut places)?;
    let sum = twice().into_iter().fold((1u32 << 31).wrapping_neg(), u32::wrapping_add);
    assert_eq!(stream.download(&places.slice(N - 1..)?)?, [sum], "the last of the sums, modulo 2³²");
    Ok(())
}

fn long_arrays_of_bytes(device: &Device) -> Result<()> {
    let (stream, kernels) = (device.stream()?, Kernels::load(device)?);
    let mut bytes = stream.alloc::<u8>(N)?;
    kernels.multiples_as_bytes(&stream, &mut bytes, N, FACTOR)?;
    let mut expected = vec![1u64 << 24; 256];
    for key in twice() {
        expected[(key >> 24) as usize] += 1;
    }
    assert_eq!(stream.download(&stream.bincount(&bytes, 256)?)?, expected);

    stream.sort(&mut bytes)?;
    let runs = stream.unique(&bytes)?.download(&stream)?;
    assert_eq!(runs, (0..=255).collect::<Vec<u8>>(), "equal bytes are beside each other");
    assert_eq!(stream.download(&stream.bincount(&bytes, 256)?)?, expected, "after the sort");
    Ok(())
}
