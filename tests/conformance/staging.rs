//! Copies of ordinary slices work with any length, alignment and number of threads, while the device does other work.

use bytemuck::Pod;
use conformance::{Gate, kernels_and_streams, on_threads, open_again, tests};
use gpustream::{Device, DeviceOptions, Result};

tests! {
    Plain: slices_of_odd_sizes_arrive, unaligned_slices_arrive, slices_of_pinned_memory_are_read_at_once,
        many_threads_may_copy_on_one_stream, many_threads_may_copy_on_streams_of_their_own,
        copies_do_not_wait_for_another_streams_kernel, short_uploads_follow_each_other,
        the_ring_bounds_what_is_pinned, any_number_of_threads_and_any_ring_do;
}

const MIB: usize = 1 << 20;
/// Returns numbers that differ in each piece, so that we see if pieces are swapped.
fn numbers(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9)).collect()
}

fn there_and_back<T: Pod + PartialEq>(device: &Device, values: &[T], what: &str) -> Result<()> {
    let s = device.stream()?;
    let x = s.upload(values)?;
    let mut y = s.alloc::<T>(values.len())?;
    s.copy(&x, &mut y)?;
    assert!(s.download(&y)? == values, "{what}");
    Ok(())
}

/// The lengths lie around the ends of chunks, pieces and threads' shares.
fn slices_of_odd_sizes_arrive(device: &Device) -> Result<()> {
    for base in [8 << 10, 64 << 10, 256 << 10, 512 << 10, MIB, 2 * MIB, 5 * MIB] {
        for by in [-13isize, -1, 0, 1, 7] {
            let bytes = usize::saturating_add_signed(base, by);
            let values: Vec<u8> =
                (0..bytes).map(|i| (i as u32).wrapping_mul(0x9e37_79b9).to_ne_bytes()[3]).collect();
            there_and_back(device, &values, &format!("{bytes} bytes"))?;
        }
    }
    Ok(())
}

fn unaligned_slices_arrive(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let values: Vec<u8> = (0..4 * MIB + 99).map(|i| (i % 251) as u8).collect();
    for from in [1, 3, 7, 33, 63] {
        for len in [1, 100, 70_000, 3 * MIB + 1] {
            let mut x = s.zeros::<u8>(len + from)?;
            s.upload_into(&values[from..from + len], &mut x.slice_mut(from..)?)?;
            let mut back = vec![0; len + 5];
            s.download_into(&x.slice(from..)?, &mut back[5..])?;
            assert!(back[5..] == values[from..from + len], "{len} bytes from {from}");
            assert_eq!(back[..5], [0; 5]);
        }
    }
    Ok(())
}

/// A driver would read such a slice later, and you may have changed it by then.
fn slices_of_pinned_memory_are_read_at_once(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    for n in [10, 10_000, 300_000] {
        let mut host = device.pinned_from(&numbers(n, 1))?;
        let mut x = s.upload(&numbers(n, 2))?;
        s.synchronize()?;
        let gate = Gate::on(&kernels, &s)?;
        s.upload_into(&host.read()?, &mut x)?;
        host.write()?.fill(0);
        gate.open();
        s.download_into(&x, &mut host.write()?)?;
        assert!(*host.read()? == numbers(n, 1), "{n} elements");
    }
    Ok(())
}

fn many_threads_may_copy_on_one_stream(device: &Device) -> Result<()> {
    let s = device.stream()?;
    on_threads(6, |thread| {
        for round in 0..8 {
            let values = numbers([100, 10_000, 700_000][round % 3] + round, thread);
            let x = s.upload(&values)?;
            assert!(s.download(&x)? == values, "thread {thread}, round {round}");
        }
        Ok(())
    })
}

fn many_threads_may_copy_on_streams_of_their_own(device: &Device) -> Result<()> {
    on_threads(6, |thread| {
        for round in 0..4 {
            let values = numbers([5, 1_500_000][round % 2] + round, thread);
            there_and_back(device, &values, &format!("thread {thread}, round {round}"))?;
        }
        Ok(())
    })
}

/// Another stream's kernel must not hold up copies in either direction.
fn copies_do_not_wait_for_another_streams_kernel(device: &Device) -> Result<()> {
    let (kernels, [busy, free]) = kernels_and_streams(device)?;
    let values = numbers(2 * MIB, 5);
    // We make memory and threads before the kernel starts, because the driver may wait for the kernel when it
    // allocates.
    let mut x = free.upload(&values)?;
    let mut back = free.download(&x)?;
    conformance::synchronize(device)?;
    let gate = Gate::on(&kernels, &busy)?;
    for round in 0..3 {
        let part = &values[round..];
        free.upload_into(part, &mut x.slice_mut(round..)?)?;
        free.download_into(&x, &mut back)?;
        assert!(back[round..] == *part);
    }
    assert!(!busy.is_done()?);
    gate.open();
    busy.synchronize()
}

/// We submit all uploads before the device copies any of them.
fn short_uploads_follow_each_other(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(100 * 1000)?;
    // Now the pool has as much pinned memory as the uploads need.
    drop(device.pinned::<u8>(4 * MIB)?);
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    for (index, mut piece) in x.chunks_mut(1000)?.enumerate() {
        s.upload_into(&numbers(1000, index as u32), &mut piece)?;
    }
    assert!(!s.is_done()?);
    gate.open();
    let got = s.download(&x)?;
    for (index, piece) in got.chunks(1000).enumerate() {
        assert!(piece == numbers(1000, index as u32), "upload {index}");
    }
    Ok(())
}

fn the_ring_bounds_what_is_pinned(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default().staging_ring(4 * MIB).staging_threads(2))?;
    let s = device.stream()?;
    let values = numbers(8 * MIB, 1);
    let mut x = s.alloc::<u32>(values.len())?;
    for _ in 0..3 {
        s.upload_into(&values, &mut x)?;
        for _ in 0..300 {
            s.upload_into(&values[..10_000], &mut x.slice_mut(..10_000)?)?;
        }
    }
    let most = device.pinned_stats().peak_reserved;
    assert!(most <= 16 * MIB as u64, "{most} bytes for a ring of {}", 4 * MIB);
    assert!(s.download(&x)? == values);
    s.synchronize()?;
    device.trim();
    assert_eq!(device.pinned_stats().reserved, 0, "nothing is kept when idle");
    Ok(())
}

fn any_number_of_threads_and_any_ring_do(device: &Device) -> Result<()> {
    for (threads, ring) in [(1, 0), (4, 0), (4, MIB), (3, 1)] {
        let options = DeviceOptions::default().staging_threads(threads).staging_ring(ring);
        let device = open_again(device, options)?;
        let what = format!("{threads} threads and a ring of {ring} bytes");
        there_and_back(&device, &numbers(5 * MIB + 3, 9), &what)?;
    }
    Ok(())
}
