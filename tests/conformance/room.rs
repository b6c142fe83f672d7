//! Calls for threads that must not block: they wait for room in a stream, and until a deadline.

use std::time::Duration;

use conformance::executor::{block_on, is_pending, poll};
use conformance::{Gate, assert_all, is_serial, kernels_and_streams, open_again, refused, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, Result};

tests! {
    Plain: a_full_stream_has_no_room, a_recorded_stream_has_room, an_upload_waits_without_blocking,
        a_dropped_upload_ends, an_upload_of_any_length_arrives, uploads_share_a_small_ring, uploads_refuse_what_they_cannot_do,
        a_wait_ends_at_its_timeout, metrics_count_what_is_pending;
}

const N: usize = 3000;
const MIB: usize = 1 << 20;

fn numbers(bytes: usize) -> Vec<u32> {
    (0..bytes as u32 / 4).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

fn a_full_stream_has_no_room(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(N)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    let mut submitted = 0;
    let mut room = loop {
        let mut room = s.room_async();
        if is_pending(&mut room) {
            break room;
        }
        // Without the limit, the driver's queue would be full some time, and this would block for ever.
        assert!(submitted < 1000, "no limit");
        s.fill(&mut x, submitted)?;
        submitted += 1;
    };
    assert!(submitted > 256, "room for {submitted} operations only");
    assert!(is_pending(&mut room));
    assert!(!s.is_done()?);
    assert!(is_serial() || device.metrics().longest_queue >= u64::from(submitted));
    gate.open();
    block_on(room)?;
    s.synchronize()?;
    block_on(s.room_async())?;
    assert_all(&s, &x, submitted - 1)
}

fn a_recorded_stream_has_room(device: &Device) -> Result<()> {
    let (_, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(N)?;
    let graph = s.capture(|s| {
        (0..600).try_for_each(|value| {
            block_on(s.room_async())?;
            s.fill(&mut x, value)
        })
    })?;
    graph.launch(&s)?;
    assert_all(&s, &x, 599)
}

fn an_upload_waits_without_blocking(device: &Device) -> Result<()> {
    let device = &open_again(device, DeviceOptions::default().staging_ring(4 * MIB))?;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let values = numbers(16 * MIB);
    let mut x = s.zeros::<u32>(values.len())?;
    // The driver may wait for a kernel when it allocates, so the pool gets its memory before.
    s.upload_into(&values, &mut x)?;
    s.zeros::<u32>(1)?;
    s.fill(&mut x, 0)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    let mut upload = Box::pin(s.upload_into_async(&values, &mut x));
    while !is_serial() && !is_pending(&mut upload) {}
    assert!(is_serial() || (0..10).all(|_| is_pending(&mut upload)));
    gate.open();
    block_on(upload)?;
    assert!(s.download(&x)? == values);
    Ok(())
}

fn a_dropped_upload_ends(device: &Device) -> Result<()> {
    if is_serial() {
        return Ok(());
    }
    let device = &open_again(device, DeviceOptions::default().staging_ring(4 * MIB))?;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let values: Vec<u32> = (1..=4 * MIB as u32).collect();
    let mut x = s.zeros::<u32>(values.len())?;
    s.upload_into(&values, &mut x)?;
    s.fill(&mut x, 0)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    let never = s.upload_into_async(&values, &mut x);
    drop(never);
    let mut upload = Box::pin(s.upload_into_async(&values, &mut x));
    assert!(is_pending(&mut upload));
    drop(upload);
    gate.open();
    let got = s.download(&x)?;
    let written = got.iter().take_while(|&&value| value != 0).count();
    assert!(0 < written && written <= MIB, "{written}");
    assert!(got[..written] == values[..written] && got[written..].iter().all(|&value| value == 0));
    Ok(())
}

fn an_upload_of_any_length_arrives(device: &Device) -> Result<()> {
    let (_, [s]) = kernels_and_streams(device)?;
    for bytes in [0, 4, 64, 4096, 32 << 10, (32 << 10) + 4, 300 << 10, 5 * MIB + 4] {
        let values = numbers(bytes);
        let mut x = block_on(s.upload_async(&values))?;
        assert!(s.download(&x)? == values, "{bytes} bytes");
        let part = values.len() / 2;
        block_on(s.upload_into_async(&values[part..], &mut x.slice_mut(..values.len() - part)?))?;
        assert!(s.download(&x.slice(..values.len() - part)?)? == values[part..], "{bytes} bytes");
    }
    Ok(())
}

/// The futures take turns on one thread, and another thread uploads in the ordinary way.
fn uploads_share_a_small_ring(device: &Device) -> Result<()> {
    for ring in [1, 2 * MIB] {
        let device = &open_again(device, DeviceOptions::default().staging_ring(ring))?;
        let s = &device.stream()?;
        let values = &numbers(3 * MIB);
        let mut uploads: Vec<_> = (0..4).map(|_| Box::pin(s.upload_async(values))).collect();
        std::thread::scope(|scope| {
            let plain = scope.spawn(move || (0..4).map(|_| s.upload(values)).collect::<Result<Vec<_>>>());
            let mut done = Vec::new();
            while !uploads.is_empty() {
                uploads.retain_mut(|upload| match poll(upload) {
                    std::task::Poll::Ready(x) => {
                        done.push(x);
                        false
                    }
                    std::task::Poll::Pending => true,
                });
                std::thread::yield_now();
            }
            for x in done.into_iter().chain(plain.join().unwrap()?.into_iter().map(Ok)) {
                assert!(s.download(&x?)? == *values);
            }
            Ok::<_, gpustream::Error>(())
        })?;
    }
    Ok(())
}

fn uploads_refuse_what_they_cannot_do(device: &Device) -> Result<()> {
    let (_, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(4)?;
    refused(
        block_on(s.upload_into_async(&[1, 2, 3], &mut x)),
        ErrorKind::ArgumentMismatch,
        &["upload_into_async", "3", "4"],
    );
    let values = numbers(MIB);
    let captured = s.capture(|s| block_on(s.upload_async(&values)).map(drop));
    refused(captured.map(drop), ErrorKind::Captured, &["upload_async", "copy pinned memory"]);
    assert_all(&s, &x, 0)
}

fn a_wait_ends_at_its_timeout(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &s)?;
    let (mut done, mut never) = (s.synchronize_async(), s.record()?.synchronize_async());
    if !is_serial() {
        assert!(!done.wait_timeout(Duration::ZERO)?);
        assert!(!done.wait_timeout(Duration::from_millis(2))?);
        assert!(!never.wait_timeout(Duration::from_millis(2))?);
    }
    gate.open();
    assert!(done.wait_timeout(Duration::MAX)?);
    assert!(done.wait_timeout(Duration::ZERO)?, "it stays done");
    assert!(never.wait_timeout(Duration::from_secs(1000))?);
    assert!(s.is_done()?);
    s.host_fn(|| panic!("on purpose"))?;
    refused(
        s.synchronize_async().wait_timeout(Duration::MAX).map(drop),
        ErrorKind::HostPanic,
        &["synchronize_async", "on purpose"],
    );
    Ok(())
}

fn metrics_count_what_is_pending(device: &Device) -> Result<()> {
    let device = &open_again(device, DeviceOptions::default())?;
    let (kernels, [s, t]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.zeros::<u32>(N)?, t.zeros::<u32>(N)?);
    s.synchronize()?;
    t.synchronize()?;
    let before = device.metrics();
    assert_eq!((before.streams, before.pending, before.longest_queue), (2, 0, 0));
    assert!(before.fault.is_none());
    assert!(before.device_memory.used >= 2 * 4 * N as u64);
    let gate = Gate::on(&kernels, &s)?;
    (0..5).try_for_each(|value| s.fill(&mut x, value))?;
    t.fill(&mut y, 1)?;
    t.synchronize()?;
    let now = device.metrics();
    assert_eq!(now.submitted - before.submitted, 7);
    assert!(is_serial() || (now.pending, now.longest_queue) == (6, 6), "{now:?}");
    gate.open();
    s.synchronize()?;
    assert_eq!(device.metrics().pending, 0);
    Ok(())
}
