//! Streams run side by side, each keeps its own order, and calls that enqueue do not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conformance::{Gate, ONE, assert_all, kernels_and_streams, next, overlaps, sync, tests, until};
use gpustream::{Device, Result, StreamOptions};

tests! {
    Plain if overlaps: kernels_overlap;
    Plain: enqueueing_returns_at_once, a_stream_is_in_order, copies_overlap_kernels,
        done_is_asked_without_waiting, priorities_are_clamped, a_chain_through_many_streams_keeps_its_order,
        device_synchronize_waits_for_all, the_host_prepares_while_the_device_works,
        submitting_to_a_full_stream_waits;
}

/// Each kernel waits for the other one, so they can end only if both run at once.
fn kernels_overlap(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (first, second) = (device.flag()?, device.flag()?);
    kernels.arrive(&a, &ONE, &mut first.clone(), &second)?;
    kernels.arrive(&b, &ONE, &mut second.clone(), &first)?;
    a.synchronize()?;
    b.synchronize()
}

/// Every call that enqueues must return while an earlier kernel runs.
fn enqueueing_returns_at_once(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(1000)?;
    let mut y = s.zeros::<u32>(1000)?;
    let mut host = device.pinned::<u32>(1000)?;
    s.upload_into(&[1u32; 1000], &mut x)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    kernels.step(&s, &mut x, 1, 1000)?;
    s.copy(&x, &mut y)?;
    s.fill(&mut x, 9)?;
    s.copy(&y, &mut host)?;
    s.upload_into(&[2u32; 1000], &mut x)?;
    let ran = Arc::new(AtomicU32::new(0));
    let counter = ran.clone();
    s.host_fn(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    })?;
    let event = s.record()?;
    assert!(!s.is_done()? && !event.is_done()? && !host.is_done()?);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    gate.open();
    s.synchronize()?;
    assert_eq!(*host.read()?, [6; 1000]);
    assert_eq!(s.download(&x)?, [2; 1000]);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    Ok(())
}

/// If the steps ran in another order, the result would differ.
fn a_stream_is_in_order(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(5000, 1u32)?;
    let mut y = s.zeros::<u32>(5000)?;
    let (mut want_x, mut want_y) = (1u32, 0u32);
    for value in 0..200 {
        kernels.step(&s, &mut x, value, 5000)?;
        kernels.mix(&s, &x, &mut y, 5000)?;
        want_x = next(want_x, value);
        want_y = next(want_y, want_x);
    }
    assert_all(&s, &y, want_y)
}

/// One stream copies in each direction while another stream's kernel waits at a gate.
fn copies_overlap_kernels(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let source = device.pinned_from(&(0..10_000u32).collect::<Vec<_>>())?;
    let mut target = device.pinned::<u32>(10_000)?;
    let (mut x, mut y) = (b.zeros::<u32>(10_000)?, b.zeros::<u32>(10_000)?);
    b.synchronize()?;
    let gate = Gate::on(&kernels, &a)?;
    b.copy(&source, &mut x)?;
    b.copy(&x, &mut y)?;
    b.copy(&y, &mut target)?;
    b.synchronize()?;
    assert_eq!(*target.read()?, *source.read()?);
    assert_eq!(b.download(&y)?, *source.read()?);
    assert!(!a.is_done()?, "the kernel still runs");
    gate.open();
    a.synchronize()
}

fn done_is_asked_without_waiting(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    assert!(s.is_done()?, "an unused stream is done");
    let gate = Gate::on(&kernels, &s)?;
    assert!(!s.is_done()?);
    gate.open();
    until(|| s.is_done())
}

fn priorities_are_clamped(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    for priority in [i32::MIN, -1, 0, 1, i32::MAX] {
        let s = device.stream_with(StreamOptions::default().priority(priority))?;
        let mut x = s.zeros::<u32>(10)?;
        kernels.step(&s, &mut x, 1, 10)?;
        assert_eq!(s.download(&x)?, [1; 10], "priority {priority}");
    }
    Ok(())
}

/// All streams of the chain are made before it and dropped after it.
fn a_chain_through_many_streams_keeps_its_order(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let streams = (0..64).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let mut x = streams[0].zeros::<u32>(100)?;
    let mut want = 0u32;
    for (value, s) in streams.iter().enumerate() {
        kernels.step(s, &mut x, value as u32, 100)?;
        want = next(want, value as u32);
    }
    drop(streams);
    let s = device.stream()?;
    assert_all(&s, &x, want)
}

fn device_synchronize_waits_for_all(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &a)?;
    gate.hold(&kernels, &b)?;
    gate.open_during(|| conformance::synchronize(device))?;
    assert!(a.is_done()? && b.is_done()?);
    Ok(())
}

/// Two buffers take turns. The host must get a buffer back as soon as it has been copied, even if the previous batch's
/// kernel is still running. If that kernel had to end first, its gate would never open.
fn the_host_prepares_while_the_device_works(device: &Device) -> Result<()> {
    const BATCHES: u32 = 8;
    const N: usize = 1000;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut hosts = [device.pinned::<u32>(N)?, device.pinned::<u32>(N)?];
    let mut inputs = [s.zeros::<u32>(N)?, s.zeros::<u32>(N)?];
    let mut sum = s.zeros::<u32>(N)?;
    let gates = (0..BATCHES).map(|_| Gate::new(device)).collect::<Result<Vec<_>>>()?;
    let mut want = 0u32;
    for batch in 0..BATCHES {
        let turn = batch as usize % 2;
        hosts[turn].write()?.fill(batch);
        s.copy(&hosts[turn], &mut inputs[turn])?;
        kernels.add_when(&s, gates[batch as usize].flag(), &mut inputs[turn], 7, N)?;
        kernels.mix(&s, &inputs[turn], &mut sum, N)?;
        want = next(want, batch + 7);
        assert!(!s.is_done()?);
        if let Some(before) = batch.checked_sub(1) {
            gates[before as usize].open();
        }
    }
    gates[BATCHES as usize - 1].open();
    assert_all(&s, &sum, want)
}

/// A stream takes about a thousand operations. If a thread submits more, it must wait until there is room, and nothing
/// may be lost.
fn submitting_to_a_full_stream_waits(device: &Device) -> Result<()> {
    const LAUNCHES: u32 = 5000;
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(1)?;
    let (mut counted, mut y) = (other.zeros::<u32>(1)?, other.zeros::<u32>(1)?);
    let graph = other.capture(|s| kernels.step(s, &mut counted, 1, 1))?;
    let unused = other.capture(|s| kernels.step(s, &mut y, 1, 1))?;
    let gate = Gate::new(device)?;
    let submitted = AtomicU32::new(0);
    gate.hold(&kernels, &s)?;
    std::thread::scope(|scope| {
        let launches = scope.spawn(|| {
            for _ in 0..LAUNCHES {
                kernels.step(&s, &mut x, 1, 1)?;
                graph.launch(&s)?;
                submitted.fetch_add(2, Ordering::SeqCst);
            }
            s.synchronize()
        });
        // On a GPU the number depends on the driver.
        let room = if device.info().backend == gpustream::BackendName::CPU { 1000 } else { 1 };
        until(|| Ok(submitted.load(Ordering::SeqCst) >= room))?;
        (0..1000).for_each(|_| std::thread::yield_now());
        if device.info().backend == gpustream::BackendName::CPU {
            assert!(submitted.load(Ordering::SeqCst) <= 1024, "a stream takes any number of operations");
        }
        // The waiting thread must not hold up other streams.
        other.fill(&mut y, 7)?;
        other.synchronize()?;
        if device.info().backend == gpustream::BackendName::CPU {
            // We leave these calls out on a GPU, because the waiting thread may hold a lock inside the driver.
            drop(unused);
            device.trim();
            drop(other.upload(&vec![1u32; 3 << 20])?);
        }
        gate.open();
        launches.join().expect("no panic")
    })?;
    let expected = (0..LAUNCHES).fold(0u32, |x, _| next(x, 1));
    assert_eq!(s.download(&x)?, [expected]);
    drop(graph);
    assert_eq!(s.download(&counted)?, [expected]);
    Ok(())
}
