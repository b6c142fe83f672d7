//! An event marks a point in a stream. Streams and host threads can wait for it.

use std::time::{Duration, Instant};

use conformance::{Gate, assert_all, kernels_and_streams, open_again, refused, sync, tests, until};
use gpustream::{Device, DeviceOptions, ErrorKind, Result, Tracking, WaitPolicy};

tests! {
    Plain: an_event_is_a_point_in_a_stream, a_wait_orders_streams, an_event_outlives_its_stream,
        events_of_an_idle_stream_are_done, timed_events_measure_the_time_between_them,
        a_timed_event_orders_too, events_of_another_opening_are_waited_for, every_wait_policy_waits,
        an_event_has_a_wait_policy_of_its_own, many_events_can_be_waited_for_in_any_order,
        a_stream_waits_for_a_stream, waiting_for_a_stream_is_an_order_in_strict_mode,
        a_stream_that_waits_for_a_captured_one_joins_the_capture;
}

/// An event is done as soon as the work before it is done, even if later work is pending.
fn an_event_is_a_point_in_a_stream(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (first, second) = (Gate::new(device)?, Gate::new(device)?);
    first.hold(&kernels, &s)?;
    let event = s.record()?;
    second.hold(&kernels, &s)?;
    assert!(!event.is_done()?);
    first.open();
    event.synchronize()?;
    assert!(event.is_done()?);
    assert!(!s.is_done()?, "the work behind the event still runs");
    second.open();
    s.synchronize()
}

/// The gate keeps `a` from writing `x` until the work of `b` is submitted. So without the wait, `b` would read the old
/// values.
fn a_wait_orders_streams(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    // SAFETY: the event orders the two streams; this test checks that.
    let untracked = open_again(device, unsafe { DeviceOptions::default().without_tracking() })?;
    let kernels_untracked = sync::Kernels::load(&untracked)?;
    for (device, kernels) in [(device, &kernels), (&untracked, &kernels_untracked)] {
        let (a, b) = (device.stream()?, device.stream()?);
        let mut x = a.full(1000, 1u32)?;
        let mut y = b.zeros::<u32>(1000)?;
        a.synchronize()?;
        b.synchronize()?;
        let gate = Gate::adding(kernels, &a, &mut x, 41)?;
        let event = a.record()?;
        b.wait(&event)?;
        kernels.mix(&b, &x, &mut y, 1000)?;
        assert!(!b.is_done()?);
        gate.open();
        assert_eq!(b.download(&y)?, [42; 1000]);
    }
    Ok(())
}

fn an_event_outlives_its_stream(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &a)?;
    let (event, timed) = (a.record()?, a.record_timed()?);
    drop(a);
    // When you make a stream, the library looks for streams that it can destroy.
    drop((device.stream()?, device.stream()?));
    assert!(!event.is_done()?);
    b.wait(&event)?;
    gate.open();
    event.synchronize()?;
    timed.synchronize()?;
    b.synchronize()?;
    drop((device.stream()?, device.stream()?));
    assert!(event.is_done()? && timed.is_done()?);
    event.synchronize()?;
    b.wait(&event)
}

fn events_of_an_idle_stream_are_done(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let event = s.record()?;
    event.synchronize()?;
    assert!(event.is_done()?);
    device.stream()?.wait(&event)
}

fn timed_events_measure_the_time_between_them(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let gate = Gate::new(device)?;
    // We measure twice on the host: once around both events, and once between them. The events' time must lie between
    // the two, even if this thread is delayed.
    let around = Instant::now();
    let start = s.record_timed()?;
    gate.hold(&kernels, &s)?;
    let end = s.record_timed()?;
    start.synchronize()?;
    let within = Instant::now();
    let least = Duration::from_millis(5);
    // This makes the interval long enough to compare. The test does not depend on anything happening meanwhile.
    until(|| Ok(within.elapsed() > least))?;
    gate.open();
    let elapsed = end.elapsed_since(&start)?;
    // The clocks of host and device may differ, so we leave some room.
    let most = around.elapsed() + around.elapsed() / 2;
    assert!(elapsed > least / 2 && elapsed < most, "{elapsed:?} of {most:?}");
    assert_eq!(start.elapsed_since(&start)?, Duration::ZERO);
    Ok(())
}

fn a_timed_event_orders_too(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(100, 1u32)?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    let timed = a.record_timed()?;
    b.wait(timed.as_event())?;
    assert!(!b.is_done()?);
    gate.open();
    assert_all(&b, &x, 2)
}

/// Two handles of one device can wait for each other's events. They cannot measure the time between them.
fn events_of_another_opening_are_waited_for(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let other = open_again(device, DeviceOptions::default())?;
    let (mine, theirs) = (device.stream()?, other.stream()?);
    let gate = Gate::on(&kernels, &mine)?;
    theirs.wait(&mine.record()?)?;
    assert!(!theirs.is_done()?);
    gate.open();
    theirs.synchronize()?;
    let (early, late) = (mine.record_timed()?, theirs.record_timed()?);
    refused(late.elapsed_since(&early), ErrorKind::DeviceMismatch, &["one device"]);
    Ok(())
}

fn every_wait_policy_waits(device: &Device) -> Result<()> {
    for policy in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Block] {
        let device = open_again(device, DeviceOptions::default().wait(policy))?;
        let (kernels, [s]) = kernels_and_streams(&device)?;
        let gate = Gate::on(&kernels, &s)?;
        let event = s.record()?;
        gate.open_during(|| event.synchronize())?;
        assert!(event.is_done()?, "{policy:?}");
        // If you wait for a stream or for memory, the policy applies too.
        let mut host = device.pinned_from(&[1u32; 10])?;
        let gate = Gate::adding(&kernels, &s, &mut host, 1)?;
        gate.open_during(|| s.synchronize())?;
        assert_eq!(*host.read()?, [2; 10]);
        let gate = Gate::adding(&kernels, &s, &mut host, 1)?;
        gate.open_during(|| host.read().map(|values| assert_eq!(*values, [3; 10])))?;
    }
    Ok(())
}

/// You can choose a policy for one event, and it replaces the device's.
fn an_event_has_a_wait_policy_of_its_own(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    for policy in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Block] {
        let gate = Gate::on(&kernels, &s)?;
        let event = s.record_with(policy)?;
        assert!(!event.is_done()?);
        gate.open_during(|| event.synchronize())?;
        assert!(event.is_done()? && s.is_done()?, "{policy:?}");
    }
    Ok(())
}

fn many_events_can_be_waited_for_in_any_order(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let mut x = a.zeros::<u32>(10)?;
    let mut events = Vec::new();
    for value in 0..300 {
        a.fill(&mut x, value)?;
        events.push(a.record()?);
    }
    for event in events.iter().rev() {
        b.wait(event)?;
        event.synchronize()?;
    }
    assert_all(&b, &x, 299)
}

fn a_stream_waits_for_a_stream(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let other = open_again(device, DeviceOptions::default())?;
    let c = other.stream()?;
    let gate = Gate::on(&kernels, &a)?;
    let of_a = a.record()?;
    b.wait_for(&a)?;
    c.wait_for(&b)?;
    // The streams share no memory, so only the wait can order them.
    let (y, z) = (b.full(10, 1u32)?, c.full(10, 2u32)?);
    let (of_y, of_z) = (b.record()?, c.record()?);
    assert!(!of_a.is_done()? && !of_y.is_done()? && !of_z.is_done()?);
    a.wait_for(&a)?;
    gate.open();
    of_z.synchronize()?;
    // The wait of c covers what b had been given before it, and that is the wait for a. It does not cover y.
    assert!(of_a.is_done()?);
    a.synchronize()?;
    of_y.synchronize()?;
    assert_all(&b, &y, 1)?;
    assert_all(&c, &z, 2)
}

fn waiting_for_a_stream_is_an_order_in_strict_mode(device: &Device) -> Result<()> {
    let strict = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [a, b]) = kernels_and_streams(&strict)?;
    let mut x = a.full(10, 1u32)?;
    let gate = Gate::on(&kernels, &a)?;
    refused(b.fill(&mut x, 2), ErrorKind::Hazard, &[]);
    b.wait_for(&a)?;
    b.fill(&mut x, 2)?;
    // The wait covers only what came before it.
    a.wait_for(&b)?;
    a.fill(&mut x, 3)?;
    refused(b.fill(&mut x, 4), ErrorKind::Hazard, &[]);
    gate.open();
    assert_all(&a, &x, 3)
}

fn a_stream_that_waits_for_a_captured_one_joins_the_capture(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(10, 1u32)?, a.full(10, 1u32)?);
    let gate = Gate::on(&kernels, &b)?;
    let graph = a.capture(|a| {
        refused(a.wait_for(&b), ErrorKind::Captured, &["outside"]);
        a.fill(&mut x, 2)?;
        b.wait_for(a)?;
        b.copy(&x, &mut y)?;
        a.wait_for(&b)
    })?;
    gate.open();
    b.synchronize()?;
    assert_all(&a, &y, 1)?;
    graph.launch(&a)?;
    assert_all(&b, &y, 2)
}
