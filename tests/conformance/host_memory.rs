//! Host memory that the device can access: registered, write-combined and managed.

use conformance::executor::{block_on, is_pending};
use conformance::{Gate, assert_all, kernels_and_streams, refused, tests, with_stream};
use gpustream::{Device, ErrorKind, Location, ManagedAdvice, PinnedOptions, Result};
use gpustream_kernels::elementwise;

tests! {
    Plain: registered_memory_is_used_in_place, registered_memory_outlives_its_owner,
        kernels_reach_registered_memory, write_combined_memory_feeds_kernels_and_copies,
        only_managed_memory_is_prefetched;
    Plain if has_managed: managed_memory_is_reached_from_both_sides, managed_memory_is_guarded;
}

fn registered_memory_is_used_in_place(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let values: Vec<u32> = (0..100_000).collect();
    let address = values.as_ptr();
    let mut host = device.register(values)?;
    assert_eq!(host.read()?.as_ptr(), address, "nothing is copied");
    let mut x = s.alloc::<u32>(100_000)?;
    s.copy(&host, &mut x)?;
    s.fill(&mut x.slice_mut(..5)?, 9)?;
    s.copy(&x, &mut host)?;
    let read = host.read()?;
    assert_eq!((&read[..6], read[99_999]), (&[9, 9, 9, 9, 9, 5][..], 99_999));
    drop(read);
    assert!(device.register(Vec::<u32>::new())?.is_empty());
    Ok(())
}

fn registered_memory_outlives_its_owner(device: &Device) -> Result<()> {
    const N: usize = 1 << 18;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let host = device.register(vec![7u32; N])?;
    let mut x = s.zeros::<u32>(N)?;
    s.synchronize()?;
    let gate = Gate::adding(&kernels, &s, &mut x, 1)?;
    s.copy(&host, &mut x)?;
    drop(host);
    // If the registered memory had been freed, this vector would probably get its place.
    let other = vec![1u32; N];
    gate.open();
    assert!(s.download(&x)? == vec![7; N]);
    assert_eq!(other[0], 1);
    std::mem::forget(device.register(vec![1u8; 100])?);
    Ok(())
}

fn kernels_reach_registered_memory(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, elementwise::Kernels::load)?;
    let mut host = device.register(vec![2.0f32; 10_001])?;
    kernels.scale(&s, 3.0, &mut host.slice_mut(1..)?, 10_000)?;
    let read = host.read()?;
    assert_eq!((read[0], read[1], read[10_000]), (2.0, 6.0, 6.0));
    Ok(())
}

fn write_combined_memory_feeds_kernels_and_copies(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, elementwise::Kernels::load)?;
    let mut host = device.pinned_with::<f32>(5000, PinnedOptions::default().write_combined(true))?;
    let mut y = s.full(5000, 1.0f32)?;
    for round in 1..4u8 {
        // This must wait for the copy and the kernel from the round before.
        host.write()?.fill(f32::from(round));
        kernels.axpy(&s, 1.0, &host, &mut y, 5000)?;
        let mut copied = s.alloc::<f32>(5000)?;
        s.copy(&host, &mut copied)?;
        assert_eq!(s.download(&copied)?, vec![f32::from(round); 5000]);
    }
    assert_all(&s, &y, 7.0)
}

/// Returns true if the device has managed memory. If it does not, checks that the error says so.
fn has_managed(device: &Device) -> bool {
    if !device.info().features.managed_memory {
        refused(device.managed::<u32>(10).map(drop), ErrorKind::Unsupported, &["managed memory"]);
    }
    device.info().features.managed_memory
}

fn managed_memory_is_reached_from_both_sides(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, elementwise::Kernels::load)?;
    let mut table = device.managed::<f32>(500_000)?;
    assert!(table.read()?.iter().all(|&value| value == 0.0));
    for advice in [
        ManagedAdvice::ReadMostly,
        ManagedAdvice::PreferDevice,
        ManagedAdvice::PreferHost,
        ManagedAdvice::AccessedByDevice,
    ] {
        table.advise(advice)?;
    }
    for round in 0..3u8 {
        table.write()?[17] = f32::from(round);
        s.prefetch(&table, Location::Device)?;
        kernels.scale(&s, 2.0, &mut table, 500_000)?;
        s.fill(&mut table.slice_mut(100..200)?, 5.0)?;
        s.prefetch(&table.slice(10..20)?, Location::Host)?;
        let read = table.read()?;
        assert_eq!((read[17], read[99], read[100], read[200]), (f32::from(2 * round), 0.0, 5.0, 0.0));
    }
    let copy = s.download(&table)?;
    assert_eq!((copy[150], copy[499_999]), (5.0, 0.0));
    assert!(device.managed::<u8>(0)?.is_empty());
    Ok(())
}

fn managed_memory_is_guarded(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut table = device.managed::<u32>(100)?;
    let gate = Gate::adding(&kernels, &s, &mut table, 3)?;
    assert!(!table.is_done()?);
    refused(table.try_read().map(drop), ErrorKind::WouldBlock, &["writing to"]);
    refused(table.try_write().map(drop), ErrorKind::WouldBlock, &["using"]);
    let mut ready = table.synchronize_async();
    assert!(is_pending(&mut ready));
    gate.open();
    block_on(ready)?;
    assert!(table.is_done()?);
    assert_eq!(*table.try_read()?, [3; 100]);
    table.try_write()?.fill(4);
    assert_eq!(s.download(&table)?, [4; 100]);
    assert_eq!(*table.write()?, [4; 100]);
    Ok(())
}

fn only_managed_memory_is_prefetched(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, host) = (s.zeros::<u64>(10)?, device.pinned::<u64>(10)?);
    refused(s.prefetch(&x, Location::Host), ErrorKind::InvalidArgument, &["managed"]);
    refused(s.prefetch(&host, Location::Device), ErrorKind::InvalidArgument, &["managed"]);
    Ok(())
}
