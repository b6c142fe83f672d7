//! Allocation: reuse, statistics, and running out.

use conformance::harness::{open_again, refused};
use conformance::{sync, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, Result};

tests! {
    Plain: freed_memory_is_reused, statistics_add_up, peaks_are_remembered, trimming_returns_what_is_free,
        too_much_is_an_error_and_less_still_works, lengths_that_overflow, alignment, memory_is_told, devices_are_apart;
}

fn freed_memory_is_reused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let first = s.zeros::<u32>(10_000)?.as_raw();
    for _ in 0..100 {
        assert_eq!(s.zeros::<u32>(10_000)?.as_raw(), first);
    }
    assert!(device.memory_stats().reserved < 100_000, "{:?}", device.memory_stats());
    Ok(())
}

fn statistics_add_up(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default())?;
    assert_eq!(device.memory_stats().used, 0);
    let s = device.stream()?;
    let x = s.alloc::<u8>(100_000)?;
    let used = device.memory_stats().used;
    assert!((100_000..=125_000).contains(&used), "{used}");
    let host = device.pinned::<u8>(1000)?;
    assert!(device.memory_stats().used >= used + 1000);
    drop((x, host));
    let stats = device.memory_stats();
    assert_eq!(stats.used, 0);
    assert!(stats.reserved >= 101_000, "kept for the next: {stats:?}");
    Ok(())
}

fn peaks_are_remembered(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default())?;
    let s = device.stream()?;
    for size in [1000, 1_000_000, 2000] {
        drop(s.alloc::<u8>(size)?);
    }
    let peak = device.memory_stats().peak;
    assert!((1_000_000..=1_250_000).contains(&peak), "{peak}");
    Ok(())
}

fn trimming_returns_what_is_free(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default())?;
    let s = device.stream()?;
    let keep = s.full(1000, 3u32)?;
    drop(s.full(1_000_000, 1u8)?);
    s.synchronize()?;
    assert!(device.trim() >= 1_000_000);
    assert_eq!(s.download(&keep)?, [3; 1000]);
    Ok(())
}

fn too_much_is_an_error_and_less_still_works(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(1000, 3u32)?;
    let (_, total) = device.memory()?;
    for bytes in [total as usize * 2, 1 << 50, isize::MAX as usize] {
        refused(s.alloc::<u8>(bytes).map(drop), ErrorKind::OutOfMemory, &["bytes"]);
        refused(s.zeros::<u8>(bytes).map(drop), ErrorKind::OutOfMemory, &["bytes"]);
    }
    refused(device.pinned::<u8>(1 << 50).map(drop), ErrorKind::OutOfMemory, &["bytes"]);
    kernels.step(&s, &mut x, 1, 1000)?;
    assert_eq!(s.download(&x)?, [16; 1000]);
    assert_eq!(s.download(&s.full(1 << 20, 9u8)?)?, vec![9; 1 << 20]);
    assert_eq!(device.pinned_from(&[7u8; 1 << 20])?.read()?.len(), 1 << 20);
    Ok(())
}

fn lengths_that_overflow(device: &Device) -> Result<()> {
    let s = device.stream()?;
    refused(s.alloc::<u64>(usize::MAX / 4).map(drop), ErrorKind::OutOfMemory, &["address space"]);
    refused(s.full(usize::MAX, 1u32).map(drop), ErrorKind::OutOfMemory, &["address space"]);
    refused(device.pinned::<[u64; 100]>(usize::MAX / 64).map(drop), ErrorKind::OutOfMemory, &["address space"]);
    Ok(())
}

fn alignment(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for len in [1, 3, 511, 513, 70_001] {
        let x = s.alloc::<u8>(len)?;
        assert!(x.as_raw().0.is_multiple_of(256), "{:?}", x.as_raw());
        let host = device.pinned::<u8>(len)?;
        assert!((host.read()?.as_ptr() as usize).is_multiple_of(64));
    }
    Ok(())
}

fn memory_is_told(device: &Device) -> Result<()> {
    let (free, total) = device.memory()?;
    assert!(0 < free && free <= total, "{free} of {total}");
    assert_eq!(total, device.info().total_memory);
    Ok(())
}

/// Two openings share no objects.
fn devices_are_apart(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    assert!(!device.is_same(&other) && device.is_same(&device.clone()));
    let (mine, theirs) = (device.stream()?, other.stream()?);
    let mut x = mine.full(10, 1u32)?;
    let y = theirs.full(10, 2u32)?;
    let say = &["belongs to another device", "through the host"];
    refused(mine.copy(&y, &mut x), ErrorKind::DeviceMismatch, say);
    refused(theirs.download(&x), ErrorKind::DeviceMismatch, say);
    refused(theirs.fill(&mut x, 1), ErrorKind::DeviceMismatch, say);
    mine.upload_into(&theirs.download(&y)?, &mut x)?;
    assert_eq!(mine.download(&x)?, [2; 10]);
    Ok(())
}
