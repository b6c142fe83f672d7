//! Events, waits, tracking and copies between several devices of one backend.
//!
//! The CPU backend pretends to have several devices. If a GPU backend has only one, it is skipped.

use conformance::{Child, Gate, assert_all, next, refused, sync, tests, with_stream};
use gpustream::{CopyBatch, Device, ErrorKind, Pitched, Result, WaitValue};

use crate::flags::waits_for_flags;

tests! {
    Several if has_others: halving_over_all_devices_gives_one_value, waits_order_devices,
        tracking_orders_devices, copies_between_devices_arrive,
        memory_dropped_in_use_elsewhere_stays_until_then, graphs_stay_on_their_device,
        boxes_between_devices_arrive, batches_stay_on_their_device;
    Several if has_others, waits_for_flags: flags_order_devices;
    CpuOnly: checked_devices_reach_no_others_memory;
    Part: use_memory_of_another_device;
}

const N: usize = 3000;

/// Returns all devices that belong to the same backend.
fn devices(device: &Device) -> Vec<Device> {
    let backend = device.info().backend;
    Device::all().into_iter().flatten().filter(|other| other.info().backend == backend).collect()
}

/// Returns true if this backend has several devices.
pub(crate) fn has_others(device: &Device) -> bool {
    devices(device).len() > 1
}

/// Returns the first two devices.
pub(crate) fn two_devices(device: &Device) -> [Device; 2] {
    let mut devices = devices(device);
    devices.truncate(2);
    devices.try_into().expect("the backend has others")
}

/// Each device has a vector. We combine them in pairs until one device has the result.
fn halving_over_all_devices_gives_one_value(device: &Device) -> Result<()> {
    let devices = devices(device);
    let streams = devices.iter().map(Device::stream).collect::<Result<Vec<_>>>()?;
    let kernels = devices.iter().map(sync::Kernels::load).collect::<Result<Vec<_>>>()?;
    let mut parts =
        (0..devices.len()).map(|i| streams[i].upload(&vec![i as u32 + 1; N])).collect::<Result<Vec<_>>>()?;
    let mut wants: Vec<u32> = (1..=devices.len() as u32).collect();
    while parts.len() > 1 {
        let half = parts.len().div_ceil(2);
        let upper = parts.split_off(half);
        for (i, part) in upper.iter().enumerate() {
            let mut near = streams[i].alloc::<u32>(N)?;
            streams[i].copy(part, &mut near)?;
            kernels[i].mix(&streams[i], &near, &mut parts[i], N)?;
            wants[i] = next(wants[i], wants[half + i]);
        }
        wants.truncate(half);
    }
    assert_eq!(streams[0].download(&parts[0])?, vec![wants[0]; N]);
    Ok(())
}

/// All devices of the CPU share the address space, so a kernel could use any memory. On GPUs without peer access it cannot.
fn checked_devices_reach_no_others_memory(device: &Device) -> Result<()> {
    let part = Child::of(device, "multi_device::use_memory_of_another_device");
    part.env("GPUSTREAM_CHECK", "1").env("GPUSTREAM_CPU_DEVICES", "2").succeeds()?;
    Ok(())
}

fn use_memory_of_another_device(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (kernels, s) = with_stream(second, sync::Kernels::load)?;
    let mut x = first.stream()?.full(N, 1u32)?;
    let say = ["cpu:0", "cpu:1", "checked mode", "GPUSTREAM_CHECK=1", "`stream.copy`, or through the host"];
    let of_kernel = [&say[..], &["argument 1 of `step`"]].concat();
    refused(kernels.step(&s, &mut x, 3, N), ErrorKind::DeviceMismatch, &of_kernel);
    refused(s.fill(&mut x, 2), ErrorKind::DeviceMismatch, &say);
    assert!(!second.info().features.peer_access);
    // Page-locked memory belongs to no device.
    let mut pinned = first.pinned_from(&[1u32; N])?;
    kernels.step(&s, &mut pinned, 3, N)?;
    assert_eq!(*pinned.read()?, [next(1, 3); N]);
    // What the message says to do.
    let mut near = s.alloc::<u32>(N)?;
    s.copy(&x, &mut near)?;
    kernels.step(&s, &mut near, 3, N)?;
    assert_all(&s, &near, next(1, 3))
}

fn waits_order_devices(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let kernels = sync::Kernels::load(first)?;
    let (a, b) = (first.stream()?, second.stream()?);
    let gate = Gate::on(&kernels, &a)?;
    let event = a.record()?;
    b.wait(&event)?;
    let x = b.full(N, 1u32)?;
    assert!(!b.is_done()?, "the other device's stream waits");
    gate.open();
    assert_eq!(b.download(&x)?, [1; N]);
    assert!(event.is_done()?);
    refused(
        b.record_timed()?.elapsed_since(&a.record_timed()?),
        ErrorKind::DeviceMismatch,
        &["different devices"],
    );
    Ok(())
}

fn flags_order_devices(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (a, b) = (first.stream()?, second.stream()?);
    let (flag, gate) = (first.flag()?, Gate::new(first)?);
    a.wait_flag(gate.flag(), WaitValue::Equal(1))?;
    match b.wait_flag(&flag, WaitValue::AtLeast(2)) {
        Err(error) if error.kind() == ErrorKind::DeviceMismatch => return Ok(()), // no peer access
        outcome => outcome?,
    }
    a.set_flag(&flag, 2)?;
    b.set_flag(&flag, 3)?;
    assert!(!b.is_done()?, "the other device's stream waits");
    gate.open();
    b.synchronize()?;
    assert_eq!(flag.get(), 3);
    Ok(())
}

fn tracking_orders_devices(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (here, there) = (sync::Kernels::load(first)?, sync::Kernels::load(second)?);
    let (a, b) = (first.stream()?, second.stream()?);
    let mut x = a.full(N, 1u32)?;
    a.synchronize()?;
    let gate = Gate::adding(&here, &a, &mut x, 1)?;
    match there.step(&b, &mut x, 3, N) {
        Err(error) if error.kind() == ErrorKind::DeviceMismatch => return Ok(()), // no peer access
        outcome => outcome?,
    }
    assert!(!b.is_done()?);
    gate.open();
    let mut want = 13u32;
    for value in 0..20 {
        here.step(&a, &mut x, value, N)?;
        there.step(&b, &mut x, value + 1, N)?;
        want = next(next(want, value), value + 1);
    }
    assert_all(&a, &x, want)
}

fn copies_between_devices_arrive(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (a, b) = (first.stream()?, second.stream()?);
    let values: Vec<u32> = (0..N as u32).collect();
    let x = a.upload(&values)?;
    let (mut y, mut z) = (b.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    b.copy(&x, &mut y)?;
    assert_eq!(b.download(&y)?, values);
    b.copy(&x.slice(1..101)?, &mut y.slice_mut(200..300)?)?;
    a.copy(&y, &mut z)?;
    let got = a.download(&z)?;
    assert_eq!((got[199], &got[200..300], got[300]), (199, &values[1..101], 300));
    Ok(())
}

fn boxes_between_devices_arrive(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (a, b) = (first.stream()?, second.stream()?);
    let values: Vec<u32> = (1..=600).collect();
    let x = a.upload(&values)?;
    let (mut y, mut z) = (b.zeros::<u32>(100)?, a.zeros::<u32>(800)?);
    let (from, near) = (Pitched::new_2d(20).at(3, 4), Pitched::new_2d(10).at(1, 2));
    match b.copy_box(&x, from, &mut y, near, [5, 6, 1]) {
        Err(error) if error.kind() == ErrorKind::DeviceMismatch => return Ok(()), // no peer access
        outcome => outcome?,
    }
    let mut want = vec![0; 100];
    for row in 0..6 {
        want[10 * (2 + row) + 1..][..5].copy_from_slice(&values[20 * (4 + row) + 3..][..5]);
    }
    assert_eq!(b.download(&y)?, want);
    // Two planes of three rows each. A plane has five rows in one array and ten in the other.
    a.copy_box(&y, Pitched::new_3d(10, 5), &mut z, Pitched::new_3d(20, 10).at_plane(7, 1, 2), [10, 3, 2])?;
    let mut there = vec![0; 800];
    for (plane, row) in (0..2).flat_map(|plane| (0..3).map(move |row| (plane, row))) {
        there[20 * (10 * (2 + plane) + 1 + row) + 7..][..10]
            .copy_from_slice(&want[10 * (5 * plane + row)..][..10]);
    }
    assert_eq!(a.download(&z)?, there);
    Ok(())
}

fn memory_dropped_in_use_elsewhere_stays_until_then(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let there = sync::Kernels::load(second)?;
    let (a, b) = (first.stream()?, second.stream()?);
    let x = a.full(N, 7u32)?;
    let mut y = b.zeros::<u32>(N)?;
    let gate = Gate::on(&there, &b)?;
    b.copy(&x, &mut y)?;
    drop(x);
    let _others = (0..10).map(|_| a.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    gate.open();
    assert_all(&b, &y, 7)
}

fn graphs_stay_on_their_device(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (a, b) = (first.stream()?, second.stream()?);
    let mut x = a.full(N, 1u32)?;
    let graph = a.capture(|a| {
        refused(b.wait(&a.record()?), ErrorKind::Captured, &["another device"]);
        a.fill(&mut x, 2)
    })?;
    refused(graph.launch(&b), ErrorKind::DeviceMismatch, &[]);
    graph.launch(&a)?;
    assert_eq!(a.download(&x)?, [2; N]);
    let y = b.full(N, 3u32)?;
    assert_all(&b, &y, 3)
}

fn batches_stay_on_their_device(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (a, b) = (first.stream()?, second.stream()?);
    let (x, mut y, mut z) = (b.full(N, 1u32)?, a.full(N, 2u32)?, b.full(N, 3u32)?);
    let host = second.pinned_from(&[4u32; N])?;
    let near = a.full(N, 5u32)?;
    for to_other in [false, true] {
        let mut batch = CopyBatch::new();
        if to_other {
            batch.add(&near, &mut z)?;
        } else {
            batch.add(&x, &mut y)?;
        }
        refused(a.copy_batch(batch), ErrorKind::DeviceMismatch, &["copy 0", "between devices with `copy`"]);
    }
    // Pinned memory does not belong to one device.
    let mut batch = CopyBatch::new();
    batch.add(&host, &mut y)?;
    a.copy_batch(batch)?;
    assert_all(&a, &y, 4)?;
    assert_all(&b, &z, 3)
}
