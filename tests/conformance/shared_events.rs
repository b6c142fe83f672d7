//! Events of several processes. A stream can wait for a record of another process, even if that process may be killed.

use std::io::Read;
use std::os::unix::net::UnixStream;

use conformance::peer::{beside, connect, die, hear, tell};
use conformance::{Gate, assert_all, kernels_and_streams, on_threads, open, refused, streams, tests, until};
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, Export, Result, SharedEvent, WaitValue};

tests! {
    Plain if waits_for_events: an_imported_event_is_waited_for, a_killed_recorder_is_abandoned,
        records_of_two_streams_keep_apart, a_wait_keeps_its_record, records_and_waits_outlive_the_event,
        a_device_of_another_backend_waits, threads_record_and_wait_at_once;
    Plain if waits_for_events, shares_memory: two_processes_take_turns_without_their_hosts;
    Plain: an_event_without_a_record_needs_no_wait, an_imported_event_is_not_recorded, exports_are_told_apart,
        captures_take_no_shared_event_and_go_on;
    Alone: shared_events_leak_nothing, events_of_an_unwatched_stream_are_freed;
    Part: takes_turns, records_and_is_killed;
}

const OPEN: WaitValue = WaitValue::Equal(1);
const N: usize = 3000;
const ROUNDS: usize = 20;

/// Returns true if the device's streams can wait for another process's event. If they cannot, checks that you can still
/// wait for an event that has been reached.
fn waits_for_events(device: &Device) -> bool {
    if !device.info().features.stream_wait_value {
        let (event, stream) = (device.shared_event().unwrap(), device.stream().unwrap());
        stream.record_shared(&event).unwrap();
        stream.synchronize().unwrap();
        stream.wait_shared(&event).unwrap();
    }
    device.info().features.stream_wait_value
}

fn shares_memory(device: &Device) -> bool {
    device.info().features.shared_memory
}

/// Returns an event, and the same event as another process sees it.
fn pair(device: &Device) -> Result<(SharedEvent, SharedEvent)> {
    let event = device.shared_event()?;
    let imported = device.import_event(&event.export()?)?;
    Ok((event, imported))
}

fn an_imported_event_is_waited_for(device: &Device) -> Result<()> {
    let [a, b] = streams(device)?;
    let (event, imported) = pair(device)?;
    for _ in 0..3 {
        let gate = Gate::new(device)?;
        a.wait_flag(gate.flag(), OPEN)?;
        a.record_shared(&event)?;
        b.wait_shared(&imported)?;
        assert!(!b.is_done()? && !imported.is_done()? && !event.is_done()?);
        gate.open();
        b.synchronize()?;
        assert!(imported.is_done()? && event.is_done()?);
    }
    Ok(())
}

/// Imports memory. Events order its uses.
fn import(device: &Device, export: &Export) -> Result<Buffer<u32>> {
    // SAFETY: each process waits for the other's record, which comes after its last use, before it uses the memory.
    unsafe { device.import(export) }
}

/// Neither host waits for its device before the last round.
fn two_processes_take_turns_without_their_hosts(device: &Device) -> Result<()> {
    let (kernels, [stream, _]) = kernels_and_streams(device)?;
    let mut x = device.alloc_shared::<u32>(N)?;
    stream.fill(&mut x, 1)?;
    let (ended, ()) = beside(device, "shared_events::takes_turns", |socket| {
        let ours = device.shared_event()?;
        x.export()?.send(&socket)?;
        ours.export()?.send(&socket)?;
        let theirs = device.import_event(&Export::receive(&socket)?)?;
        for _ in 0..ROUNDS {
            kernels.step(&stream, &mut x, 1, N)?;
            stream.record_shared(&ours)?;
            tell(&socket);
            hear(&socket);
            stream.wait_shared(&theirs)?;
        }
        stream.synchronize()
    })?;
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let mut alone = stream.full(N, 1u32)?;
    for _ in 0..2 * ROUNDS {
        kernels.step(&stream, &mut alone, 1, N)?;
    }
    assert_eq!(stream.download(&x)?, stream.download(&alone)?);
    Ok(())
}

fn takes_turns(device: &Device) -> Result<()> {
    let (kernels, [stream, _]) = kernels_and_streams(device)?;
    let socket = connect();
    let mut x = import(device, &Export::receive(&socket)?)?;
    let theirs = device.import_event(&Export::receive(&socket)?)?;
    let ours = device.shared_event()?;
    ours.export()?.send(&socket)?;
    for _ in 0..ROUNDS {
        hear(&socket);
        stream.wait_shared(&theirs)?;
        kernels.step(&stream, &mut x, 1, N)?;
        stream.record_shared(&ours)?;
        tell(&socket);
    }
    stream.synchronize()
}

fn a_killed_recorder_is_abandoned(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut x = stream.full(N, 1u32)?;
    let (ended, ()) = beside(device, "shared_events::records_and_is_killed", |mut socket: UnixStream| {
        let event = device.import_event(&Export::receive(&socket)?)?;
        hear(&socket);
        stream.wait_shared(&event)?;
        stream.fill(&mut x, 2)?;
        tell(&socket);
        assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the other process has ended");
        assert!(!stream.is_done()?, "its record was never reached");
        event.abandon();
        stream.synchronize()?;
        refused(stream.wait_shared(&event), ErrorKind::External, &["abandoned"]);
        refused(event.is_done(), ErrorKind::External, &["abandoned"]);
        Ok(())
    })?;
    assert_eq!(ended.code, None, "{}", ended.output);
    assert_all(&stream, &x, 2)
}

fn records_and_is_killed(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (event, gate) = (device.shared_event()?, device.flag()?);
    let socket = connect();
    event.export()?.send(&socket)?;
    stream.wait_flag(&gate, OPEN)?;
    stream.record_shared(&event)?;
    tell(&socket);
    hear(&socket);
    die()
}

fn an_event_without_a_record_needs_no_wait(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (event, imported) = pair(device)?;
    for event in [&event, &imported] {
        assert!(event.is_done()?);
        stream.wait_shared(event)?;
    }
    stream.synchronize()
}

fn records_of_two_streams_keep_apart(device: &Device) -> Result<()> {
    let [late, early, waits, after] = streams(device)?;
    let (event, imported) = pair(device)?;
    let gate = Gate::new(device)?;
    late.wait_flag(gate.flag(), OPEN)?;
    late.record_shared(&event)?;
    waits.wait_shared(&imported)?;
    early.record_shared(&event)?;
    early.synchronize()?;
    after.wait_shared(&imported)?;
    after.synchronize()?;
    assert!(!waits.is_done()?, "the later record ended the wait for the earlier one");
    gate.open();
    waits.synchronize()?;
    // You can use the event again.
    early.record_shared(&event)?;
    late.wait_shared(&imported)?;
    late.synchronize()
}

fn a_wait_keeps_its_record(device: &Device) -> Result<()> {
    let [records, waits] = streams(device)?;
    let (event, imported) = pair(device)?;
    let (first, second) = (Gate::new(device)?, Gate::new(device)?);
    records.wait_flag(first.flag(), OPEN)?;
    records.record_shared(&event)?;
    waits.wait_shared(&imported)?;
    records.wait_flag(second.flag(), OPEN)?;
    records.record_shared(&event)?;
    first.open();
    waits.synchronize()?;
    assert!(!imported.is_done()?);
    second.open();
    records.synchronize()
}

fn records_and_waits_outlive_the_event(device: &Device) -> Result<()> {
    let [a, b] = streams(device)?;
    let (event, imported) = pair(device)?;
    let gate = Gate::new(device)?;
    a.wait_flag(gate.flag(), OPEN)?;
    a.record_shared(&event)?;
    b.wait_shared(&imported)?;
    drop((event, imported));
    assert!(!b.is_done()?);
    gate.open();
    b.synchronize()
}

/// An event is host memory, so a process with a GPU and a process without one can wait for each other.
fn a_device_of_another_backend_waits(device: &Device) -> Result<()> {
    let cpu = open("cpu", DeviceOptions::default())?;
    for (records, waits) in [(device, &cpu), (&cpu, device)] {
        let (a, b) = (records.stream()?, waits.stream()?);
        let event = records.shared_event()?;
        let imported = waits.import_event(&event.export()?)?;
        let gate = Gate::new(records)?;
        a.wait_flag(gate.flag(), OPEN)?;
        a.record_shared(&event)?;
        b.wait_shared(&imported)?;
        assert!(!b.is_done()?);
        gate.open();
        b.synchronize()?;
    }
    Ok(())
}

fn an_imported_event_is_not_recorded(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (event, imported) = pair(device)?;
    refused(stream.record_shared(&imported), ErrorKind::Unsupported, &["imported"]);
    event.abandon();
    refused(stream.record_shared(&event), ErrorKind::External, &["abandoned"]);
    stream.synchronize()
}

fn exports_are_told_apart(device: &Device) -> Result<()> {
    let event = device.shared_event()?.export()?;
    assert_eq!(event.bytes(), 0);
    if device.info().features.shared_memory {
        // SAFETY: nothing is imported.
        let memory = unsafe { device.import::<u32>(&event) };
        refused(memory, ErrorKind::InvalidArgument, &["import_event"]);
        let memory = device.alloc_shared::<u32>(N)?.export()?;
        refused(device.import_event(&memory), ErrorKind::InvalidArgument, &["`Device::import`"]);
    }
    Ok(())
}

/// Each thread must see its own last value at its waiting stream, whichever thread recorded last.
fn threads_record_and_wait_at_once(device: &Device) -> Result<()> {
    let (event, imported) = pair(device)?;
    on_threads(4, |thread| {
        for round in 0..50 {
            // We make new streams in each round, so that the event's slots go from stream to stream.
            let [records, waits] = streams(device)?;
            let mut x = records.full(N, round)?;
            records.record_shared(&event)?;
            waits.wait_shared(&imported)?;
            records.fill(&mut x, thread)?;
            records.record_shared(&event)?;
            waits.wait_shared(&event)?;
            assert_all(&waits, &x, thread)?;
        }
        Ok(())
    })?;
    assert!(event.is_done()? && imported.is_done()?);
    Ok(())
}

fn captures_take_no_shared_event_and_go_on(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (event, imported) = pair(device)?;
    let mut x = stream.full(N, 1u32)?;
    let graph = stream.capture(|stream| {
        refused(stream.record_shared(&event), ErrorKind::Captured, &["shared event"]);
        refused(stream.wait_shared(&imported), ErrorKind::Captured, &["shared event"]);
        stream.fill(&mut x, 2)
    })?;
    graph.launch(&stream)?;
    stream.record_shared(&event)?;
    stream.synchronize()?;
    assert!(imported.is_done()?);
    assert_all(&stream, &x, 2)
}

/// The library must unmap their pages although you never ask about the stream.
fn events_of_an_unwatched_stream_are_freed(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for _ in 0..500 {
        s.record_shared(&device.shared_event()?)?;
    }
    until(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Ok(maps.lines().filter(|line| line.contains("memfd:gpustream event")).count() < 100)
    })
}

fn shared_events_leak_nothing(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let count = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let pages = maps.lines().filter(|line| line.contains("gpustream event")).count();
        (std::fs::read_dir("/proc/self/fd").unwrap().count(), pages)
    };
    let round = || -> Result<()> {
        let (event, imported) = pair(device)?;
        stream.record_shared(&event)?;
        stream.synchronize()?;
        stream.wait_shared(&imported)
    };
    round()?;
    let before = count();
    for _ in 0..20 {
        round()?;
    }
    // Another thread drops the owners of the pages, and gets them only in a later call of the library.
    until(|| {
        drop(device.shared_event()?);
        let now = count();
        Ok(now.0 <= before.0 && now.1 <= before.1)
    })
}
