//! Registered and managed memory, on the CPU backend.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::mpsc;

use gpustream::{Device, ErrorKind, ManagedAdvice, PinnedOptions, Place};

#[test]
fn registered_memory_is_used_in_place() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let values: Vec<u32> = (0..100_000).collect();
    let address = values.as_ptr() as usize;
    let mut host = device.register(values).unwrap();
    assert_eq!(host.as_raw().0, address, "nothing is copied");
    let mut on_device = stream.alloc::<u32>(100_000).unwrap();
    stream.copy(&host, &mut on_device).unwrap();
    stream.fill(&mut on_device.slice_mut(..5).unwrap(), 9).unwrap();
    stream.copy(&on_device, &mut host).unwrap();
    let read = host.read().unwrap();
    assert_eq!((&read[..6], read[99_999]), (&[9, 9, 9, 9, 9, 5][..], 99_999));
    drop(read);
    assert!(device.register(Vec::<u32>::new()).unwrap().is_empty());
}

#[test]
fn registered_memory_outlives_its_owner_until_the_device_is_done() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let (release, wait) = mpsc::channel::<()>();
    let host = device.register(vec![7u32; 1 << 20]).unwrap();
    let mut on_device = stream.alloc::<u32>(1 << 20).unwrap();
    stream.host_fn(move || wait.recv().unwrap()).unwrap();
    stream.copy(&host, &mut on_device).unwrap();
    drop(host);
    device.trim();
    // Were it freed, this would likely take its place.
    let other = vec![1u32; 1 << 20];
    release.send(()).unwrap();
    assert!(stream.download(&on_device).unwrap().iter().all(|&value| value == 7));
    assert_eq!(other[0], 1);
    std::mem::forget(device.register(vec![1u8; 100]).unwrap());
}

#[test]
fn managed_memory_is_reached_from_both_sides() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let mut table = device.managed::<u64>(5000).unwrap();
    assert!(table.read().unwrap().iter().all(|&value| value == 0));
    table.write().unwrap()[17] = 1;
    for advice in [ManagedAdvice::ReadMostly, ManagedAdvice::PreferDevice, ManagedAdvice::PreferHost] {
        table.advise(advice).unwrap();
    }
    stream.prefetch(&table, Place::Device).unwrap();
    stream.fill(&mut table.slice_mut(100..200).unwrap(), 5).unwrap();
    let copy = stream.download(&table).unwrap();
    assert_eq!((copy[17], copy[99], copy[100], copy[200]), (1, 0, 5, 0));
    stream.prefetch(&table.slice(10..20).unwrap(), Place::Host).unwrap();
    assert_eq!(table.read().unwrap()[150], 5);
    let buffer = stream.zeros::<u64>(10).unwrap();
    let error = stream.prefetch(&buffer, Place::Host).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(device.managed::<u8>(0).unwrap().is_empty());
}

#[test]
fn managed_memory_waits_for_the_device_before_the_host_may_touch_it() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let mut table = device.managed::<u32>(100).unwrap();
    let (release, wait) = mpsc::channel::<()>();
    stream.host_fn(move || wait.recv().unwrap()).unwrap();
    stream.fill(&mut table, 3).unwrap();
    assert!(!table.is_ready().unwrap());
    release.send(()).unwrap();
    assert_eq!(*table.write().unwrap(), [3; 100]);
}

#[test]
fn write_combined_memory_is_uploaded_from() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let mut host = device.pinned_with::<f32>(1000, PinnedOptions::default().write_combined(true)).unwrap();
    host.write().unwrap().fill(2.5);
    let mut on_device = stream.alloc::<f32>(1000).unwrap();
    stream.copy(&host, &mut on_device).unwrap();
    assert_eq!(stream.download(&on_device).unwrap(), [2.5; 1000]);
}
