//! Copies of ordinary slices, on the CPU backend: every byte arrives, whatever the size, the threads and the ring.
#![allow(clippy::unwrap_used, reason = "tests")]

use gpustream::{Device, DeviceOptions, ErrorKind, Tracking};

const MIB: usize = 1 << 20;

fn device(threads: usize, ring: usize) -> Device {
    let options = DeviceOptions::default().staging_threads(threads).staging_ring(ring);
    Device::open_with("cpu", options).unwrap()
}

/// No two pieces alike.
fn values(len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(0x9e37_79b9)).collect()
}

#[test]
fn all_sizes_arrive_with_any_number_of_threads() {
    for (threads, ring) in [(1, 0), (4, 0), (4, MIB), (3, 1)] {
        let device = device(threads, ring);
        let stream = device.stream().unwrap();
        for len in [0, 1, 1000, 16 << 10, (16 << 10) + 1, 100_003, 500_000, 3_000_017] {
            let sent = values(len);
            let buffer = stream.upload(&sent).unwrap();
            assert_eq!(stream.download(&buffer).unwrap(), sent, "{len} elements, {threads} threads");
            let mut part = vec![0; len / 2];
            stream.download_into(&buffer.slice(len - len / 2..).unwrap(), &mut part).unwrap();
            assert_eq!(part, sent[len - len / 2..]);
        }
    }
}

#[test]
fn pinned_memory_can_be_uploaded_to_and_downloaded_from() {
    let device = device(2, 0);
    let stream = device.stream().unwrap();
    let sent = values(MIB);
    let mut host = device.pinned::<u32>(MIB).unwrap();
    stream.upload_into(&sent, &mut host).unwrap();
    assert_eq!(*host.read().unwrap(), *sent);
    assert_eq!(stream.download(&host).unwrap(), sent);
}

#[test]
fn a_stream_that_is_stuck_holds_up_nobody_else() {
    let device = device(2, 8 * MIB);
    let (stuck, free) = (device.stream().unwrap(), device.stream().unwrap());
    let (release, wait) = std::sync::mpsc::channel::<()>();
    stuck.host_fn(move || wait.recv().unwrap()).unwrap();
    // As much as it may have under way.
    let small = values(MIB);
    let held = [stuck.upload(&small).unwrap(), stuck.upload(&small).unwrap()];
    // What the closure waits for comes after this.
    let large = values(8 * MIB);
    let buffer = free.upload(&large).unwrap();
    assert_eq!(free.download(&buffer).unwrap(), large);
    assert!(!stuck.is_done().unwrap());
    release.send(()).unwrap();
    for buffer in &held {
        assert_eq!(stuck.download(buffer).unwrap(), small);
    }
}

#[test]
fn the_ring_bounds_what_is_under_way() {
    let device = device(1, 4 * MIB);
    let stream = device.stream().unwrap();
    let sent = values(16 * MIB);
    let mut buffer = stream.alloc::<u32>(16 * MIB).unwrap();
    for _ in 0..4 {
        stream.upload_into(&sent, &mut buffer).unwrap();
    }
    let reserved = device.pinned_stats().peak_reserved;
    assert!(reserved <= 16 * MIB as u64, "{reserved} bytes for a ring of 4 MiB");
    assert_eq!(stream.download(&buffer).unwrap(), sent);
    drop(buffer);
    stream.synchronize().unwrap();
    device.trim();
    assert_eq!(device.pinned_stats().reserved, 0, "nothing is kept when idle");
}

#[test]
fn many_threads_upload_on_many_streams_at_once() {
    let device = device(4, 0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                for round in 0..5 {
                    let sent = values(400_000 + thread * 7919 + round);
                    let buffer = stream.upload(&sent).unwrap();
                    assert_eq!(stream.download(&buffer).unwrap(), sent);
                }
            });
        }
    });
}

#[test]
fn an_error_in_a_piece_is_the_copys() {
    let options = DeviceOptions::default().staging_threads(4).tracking(Tracking::Strict);
    let device = Device::open_with("cpu", options).unwrap();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut buffer = a.alloc::<u32>(4 * MIB).unwrap();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    a.host_fn(move || wait.recv().unwrap()).unwrap();
    a.fill(&mut buffer, 1).unwrap();
    // Nothing orders b after a.
    let error = b.upload_into(&values(4 * MIB), &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hazard);
    release.send(()).unwrap();
    a.synchronize().unwrap();
    b.upload_into(&values(4 * MIB), &mut buffer).unwrap();
    assert_eq!(b.download(&buffer).unwrap(), values(4 * MIB));
}
