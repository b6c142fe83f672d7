//! The library orders operations on the same memory. Strict mode reports those that you left unordered.

use conformance::{
    Gate, ONE, assert_all, kernels_and_streams, next, on_threads, open_again, refused, sync, tests,
};
use gpustream::{Device, DeviceOptions, ErrorKind, Result, Tracking};

tests! {
    Plain: a_reader_waits_for_a_writer_elsewhere, a_writer_waits_for_readers_elsewhere,
        a_writer_waits_for_a_writer_elsewhere, readers_do_not_wait_for_readers, ranges_are_tracked_apart,
        pinned_reads_wait_for_their_copy_alone, pinned_writes_wait_for_readers,
        host_access_waits_for_its_range_alone, a_pipeline_over_two_streams_is_ordered,
        hand_overs_among_many_streams_are_ordered, strict_names_both_operations,
        strict_accepts_what_is_ordered, strict_accepts_what_the_host_saw, strict_leaves_everything_usable,
        a_download_is_tracked_too, flags_are_not_tracked, two_threads_submit_to_one_stream,
        a_finished_operation_says_nothing_of_later_waits;
}

const N: usize = 3000;

/// A stream finishes an operation and then waits for another stream. If the host waits for the operation, it must not
/// count as having waited for the other stream.
fn a_finished_operation_says_nothing_of_later_waits(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, y) = (a.full(N, 1u32)?, b.full(N, 2u32)?);
    let (mut late, mut early) = (device.pinned::<u32>(N)?, device.pinned::<u32>(N)?);
    conformance::synchronize(device)?;
    let gate = Gate::adding(&kernels, &a, &mut x, 5)?;
    a.copy(&x, &mut late)?;
    b.copy(&y, &mut early)?;
    b.wait(&a.record()?)?;
    let finished = b.synchronize_async();
    assert_eq!(*early.read()?, [2; N]);
    assert!(!late.is_done()?, "its copy waits for the gate");
    gate.open();
    assert_eq!(*late.read()?, [6; N]);
    conformance::executor::block_on(finished)
}

fn a_reader_waits_for_a_writer_elsewhere(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let mut y = b.zeros::<u32>(N)?;
    conformance::synchronize(device)?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    b.copy(&x, &mut y)?;
    kernels.mix(&b, &x, &mut y, N)?;
    assert!(!b.is_done()?);
    gate.open();
    assert_all(&b, &y, 12)
}

fn a_writer_waits_for_readers_elsewhere(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    let mut y = a.zeros::<u32>(N)?;
    conformance::synchronize(device)?;
    let gate = Gate::copying(&kernels, &a, &x, &mut y)?;
    b.fill(&mut x, 2)?;
    assert!(!b.is_done()?);
    gate.open();
    b.synchronize()?;
    assert_eq!(a.download(&y)?, [1; N]);
    assert_all(&b, &x, 2)
}

fn a_writer_waits_for_a_writer_elsewhere(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    conformance::synchronize(device)?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    b.fill(&mut x, 9)?;
    gate.open();
    assert_all(&a, &x, 9)
}

/// A reader must not wait for a reader on another stream.
fn readers_do_not_wait_for_readers(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let x = a.full(N, 5u32)?;
    let (mut y, mut z) = (a.zeros::<u32>(N)?, b.zeros::<u32>(N)?);
    conformance::synchronize(device)?;
    let gate = Gate::copying(&kernels, &a, &x, &mut y)?;
    b.copy(&x, &mut z)?;
    assert_eq!(b.download(&z)?, [5; N]);
    assert!(!a.is_done()?);
    gate.open();
    assert_all(&a, &y, 5)
}

/// Two streams use one half of a buffer each. If an operation uses both halves, it must wait for both.
fn ranges_are_tracked_apart(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    conformance::synchronize(device)?;
    let gate = Gate::new(device)?;
    let (mut left, mut right) = x.split_at_mut(1111)?;
    kernels.add_when(&a, gate.flag(), &mut left, 1, 1111)?;
    kernels.step(&b, &mut right, 3, N - 1111)?;
    b.synchronize()?;
    assert!(!a.is_done()?, "the right half did not wait for the left one");
    let c = device.stream()?;
    let mut y = c.alloc::<u32>(20)?;
    c.copy(&x.slice(1101..1121)?, &mut y)?;
    assert!(!c.is_done()?, "the operation on both halves waits");
    gate.open();
    let got = c.download(&y)?;
    assert_eq!((&got[..10], &got[10..]), (&[2; 10][..], &[8; 10][..]));
    Ok(())
}

/// `read` must return when the copy has arrived, although later work on the same stream still runs.
fn pinned_reads_wait_for_their_copy_alone(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let x = a.full(N, 4u32)?;
    let mut host = device.pinned::<u32>(N)?;
    a.synchronize()?;
    let (first, second) = (Gate::new(device)?, Gate::new(device)?);
    first.hold(&kernels, &a)?;
    a.copy(&x, &mut host)?;
    second.hold(&kernels, &a)?;
    assert!(!host.is_done()?);
    first.open_during(|| host.read().map(|guard| assert_eq!(*guard, [4; N])))?;
    assert!(host.is_done()?);
    assert!(!a.is_done()?, "the work behind the copy still runs");
    second.open();
    a.synchronize()
}

fn pinned_writes_wait_for_readers(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut host = device.pinned_from(&[1u32; N])?;
    let mut x = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let gate = Gate::on(&kernels, &a)?;
    a.copy(&host, &mut x)?;
    // The host may read while the device reads.
    assert_eq!(*host.read()?, [1; N]);
    assert!(host.is_done()?);
    assert!(!host.slice_mut(..)?.is_done()?);
    gate.open_during(|| host.write().map(|mut guard| guard.fill(2)))?;
    assert_eq!(a.download(&x)?, [1; N], "the host wrote before the copy had read");
    Ok(())
}

fn host_access_waits_for_its_range_alone(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut host = device.pinned_from(&[1u32; N])?;
    let x = a.full(100, 7u32)?;
    a.synchronize()?;
    let gate = Gate::on(&kernels, &a)?;
    a.copy(&x, &mut host.slice_mut(200..300)?)?;
    // You can use the ranges around the copy.
    host.slice_mut(..200)?.write()?.fill(3);
    assert_eq!(*host.slice(300..)?.read()?, [1; N - 300]);
    assert!(!host.slice(299..301)?.is_done()?);
    gate.open();
    let all = host.read()?;
    assert_eq!((&all[..200], &all[200..300], &all[300..]), (&[3; 200][..], &[7; 100][..], &[1; N - 300][..]));
    Ok(())
}

/// Two buffers take turns between a stream that copies and a stream that computes.
fn a_pipeline_over_two_streams_is_ordered(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut hosts = [device.pinned::<u32>(N)?, device.pinned::<u32>(N)?];
    let mut buffers = [a.alloc::<u32>(N)?, a.alloc::<u32>(N)?];
    let mut sum = b.zeros::<u32>(N)?;
    let mut want = 0u32;
    for round in 0..50u32 {
        let (host, buffer) = (&mut hosts[round as usize % 2], &mut buffers[round as usize % 2]);
        host.write()?.fill(round * 3);
        a.copy(host, buffer)?;
        kernels.mix(&b, buffer, &mut sum, N)?;
        want = next(want, round * 3);
    }
    assert_all(&b, &sum, want)
}

fn hand_overs_among_many_streams_are_ordered(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let streams = (0..5).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let (mut x, mut y) = (streams[0].full(N, 1u32)?, streams[1].full(N, 2u32)?);
    let (mut want_x, mut want_y) = (1u32, 2u32);
    for round in 0..100usize {
        let (s, t) = (&streams[round * 7 % 5], &streams[(round * 3 + 1) % 5]);
        kernels.mix(s, &x, &mut y, N)?;
        want_y = next(want_y, want_x);
        kernels.mix(t, &y, &mut x, N)?;
        want_x = next(want_x, want_y);
    }
    let s = device.stream()?;
    assert_eq!(s.download(&x)?, vec![want_x; N]);
    assert_all(&s, &y, want_y)
}

fn strict(device: &Device) -> Result<Device> {
    open_again(device, DeviceOptions::default().tracking(Tracking::Strict))
}

fn strict_names_both_operations(device: &Device) -> Result<()> {
    let device = &strict(device)?;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let mut y = b.zeros::<u32>(N)?;
    let first = line!() + 1;
    kernels.step(&a, &mut x, 1, N)?;
    let second = line!() + 1;
    let Err(error) = b.copy(&x, &mut y) else { panic!("nothing orders the two") };
    assert_eq!(error.kind(), ErrorKind::Hazard);
    let text = error.to_string();
    for part in
        [format!("`step` at {}:{first}", file!()), format!("`copy` at {}:{second}", file!()), "b.wait".into()]
    {
        assert!(text.contains(&part), "`{text}` does not say `{part}`");
    }
    assert_eq!(error.call_site().map(|operation| operation.location.line()), Some(second));
    Ok(())
}

fn strict_accepts_what_is_ordered(device: &Device) -> Result<()> {
    let device = &strict(device)?;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    for value in 0..10 {
        kernels.step(&a, &mut x, value, N)?;
        b.wait(&a.record()?)?;
        kernels.step(&b, &mut x, value, N)?;
        a.wait(&b.record()?)?;
    }
    // Ranges that do not overlap need no order. Neither do two readers.
    let (mut left, mut right) = x.split_at_mut(N / 2)?;
    a.fill(&mut left, 1)?;
    a.wait(&b.record()?)?;
    b.wait(&a.record()?)?;
    a.fill(&mut left, 2)?;
    b.fill(&mut right, 3)?;
    b.wait(&a.record()?)?;
    let got = b.download(&x)?;
    assert!(got[..N / 2].iter().all(|v| *v == 2) && got[N / 2..].iter().all(|v| *v == 3));
    Ok(())
}

fn strict_accepts_what_the_host_saw(device: &Device) -> Result<()> {
    let device = &strict(device)?;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    a.synchronize()?;
    kernels.step(&b, &mut x, 1, N)?;
    b.record()?.synchronize()?;
    kernels.step(&a, &mut x, 1, N)?;
    conformance::synchronize(device)?;
    assert_eq!(b.download(&x)?, [31; N]);
    let mut host = device.pinned::<u32>(N)?;
    a.copy(&x, &mut host)?;
    drop(host.read()?);
    b.copy(&host, &mut x)?;
    b.synchronize()
}

fn strict_leaves_everything_usable(device: &Device) -> Result<()> {
    let device = &strict(device)?;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 1u32)?, b.full(N, 2u32)?);
    for _ in 0..5 {
        refused(kernels.mix(&b, &x, &mut y, N), ErrorKind::Hazard, &[]);
        refused(kernels.mix(&a, &y, &mut x, N), ErrorKind::Hazard, &[]);
    }
    assert_eq!(a.download(&x)?, [1; N]);
    assert_eq!(b.download(&y)?, [2; N]);
    b.wait(&a.record()?)?;
    kernels.mix(&b, &x, &mut y, N)?;
    assert_all(&b, &y, 11)
}

fn a_download_is_tracked_too(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    let got = gate.open_during(|| b.download(&x))?;
    assert_eq!(got, [2; N]);
    let device = &strict(device)?;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 1u32)?;
    kernels.step(&a, &mut x, 1, N)?;
    refused(b.download(&x), ErrorKind::Hazard, &["download", "step"]);
    Ok(())
}

/// Host and device may use a flag at the same time, so it is not tracked.
fn flags_are_not_tracked(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut ping, gate) = (device.flag()?, Gate::new(device)?);
    gate.hold(&kernels, &a)?;
    gate.hold(&kernels, &b)?;
    kernels.raise_flag(&device.stream()?, &ONE, &mut gate.flag().clone(), 1)?;
    a.synchronize()?;
    b.synchronize()?;
    kernels.raise_flag(&a, &ONE, &mut ping, 3)?;
    a.synchronize()?;
    assert_eq!(ping.get(), 3);
    Ok(())
}

/// An operation gets its number and makes its driver call under one lock, so no thread's work can be lost or reordered.
fn two_threads_submit_to_one_stream(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let source = a.full(N, 1u32)?;
    on_threads(3, |seed| {
        let mut mine = a.full(N, seed)?;
        let mut want = seed;
        for round in 0..100 {
            kernels.mix(if round % 3 == 0 { &b } else { &a }, &source, &mut mine, N)?;
            want = next(want, 1);
        }
        assert_all(&a, &mine, want)
    })
}
