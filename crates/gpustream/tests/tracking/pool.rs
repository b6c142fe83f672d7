//! The pool: how it reuses memory, grows, keeps its limit, and gets memory under pressure.

use std::mem;

use gpustream::{Buffer, DeviceOptions, PoolPolicy};

use crate::order::Call;
use crate::paper::{self, Live};
use crate::write;

const MIB: usize = 1 << 20;

fn limited(limit: usize) -> DeviceOptions {
    DeviceOptions::default().memory_limit(limit as u64)
}

fn is_driver_memory(call: &Call) -> bool {
    matches!(call, Call::Alloc { .. } | Call::Free { .. })
}

#[test]
fn a_warm_pool_makes_no_driver_call() {
    let (paper, device, _, [a]) = paper::open(DeviceOptions::default());
    drop((a.alloc::<u8>(10).unwrap(), a.alloc::<u8>(MIB).unwrap()));
    let ((), calls) = paper.calls_of(|| {
        for bytes in [1, 1000, 100_000, MIB, MIB / 2] {
            drop(a.alloc::<u8>(bytes).unwrap());
        }
    });
    assert_eq!(calls, []);
    let stats = device.memory_stats();
    assert_eq!((stats.hits, stats.misses, stats.live, stats.used), (5, 2, 0, 0));
    assert!(stats.fragmentation() < 1.0 && stats.peak >= MIB as u64 + 512);
}

#[test]
fn freed_neighbours_serve_a_larger_request() {
    let (_paper, device, _, [a]) = paper::open(limited(4 * MIB));
    let whole = a.alloc::<u8>(4 * MIB).unwrap();
    let start = whole.as_raw();
    drop(whole);
    let quarters: Vec<Buffer<u8>> = (0..4).map(|_| a.alloc(MIB).unwrap()).collect();
    assert!(quarters.iter().all(|it| it.as_raw().0 - start.0 < 4 * MIB));
    drop(quarters);
    assert_eq!(a.alloc::<u8>(4 * MIB).unwrap().as_raw(), start);
    assert_eq!(device.memory_stats().misses, 1);
}

#[test]
fn under_pressure_memory_passes_to_another_stream_which_waits() {
    let (paper, _, kernel, [a, b]) = paper::open(limited(4 * MIB + 512));
    drop(a.alloc::<u8>(4 * MIB).unwrap());
    let mut halves: Vec<Buffer<u8>> = (0..2).map(|_| a.alloc(2 * MIB).unwrap()).collect();
    for half in &mut halves {
        write(&kernel, &a, half);
    }
    let start = halves[0].as_raw().0.min(halves[1].as_raw().0);
    drop(halves);
    // b has used some memory of this pool before. From that the pool must not conclude that the rest is b's too.
    let mut small = b.alloc::<u8>(100).unwrap();
    for _ in 0..3 {
        write(&kernel, &b, &mut small);
    }
    drop(small);
    // b gets all the memory while a still works on it. Calls must not block, but b's first write must wait on the device.
    let (mut whole, calls) = paper.calls_of(|| b.alloc::<u8>(4 * MIB).unwrap());
    assert!(!calls.iter().any(|call| matches!(call, Call::DeviceSeen)), "{calls:?}");
    assert_eq!(whole.as_raw().0, start);
    let ((), calls) = paper.calls_of(|| {
        write(&kernel, &b, &mut whole);
    });
    assert!(calls.iter().any(|call| matches!(call, Call::Wait { .. })), "{calls:?}");
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn pinned_memory_is_handed_out_only_when_the_device_is_done() {
    let (paper, device, _, [a]) = paper::open(DeviceOptions::default());
    let mut x = a.alloc::<u8>(MIB).unwrap();
    for _ in 0..100 {
        let host = device.pinned::<u8>(MIB).unwrap();
        a.copy(&host, &mut x).unwrap();
        drop(host);
        // The stream always gets new work, so it never reports that it is idle, and only its marks tell how far it is.
        paper.finish_stream(a.as_raw());
        a.fill(&mut x, 1).unwrap();
    }
    assert!(device.pinned_stats().reserved <= 8 * MIB as u64, "{:?}", device.pinned_stats());
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

/// We ask for exact lengths here, so if a shorter allocation is free, it may be too small even for the same granule.
#[test]
fn without_a_pool_no_allocation_gets_anothers_place() {
    let (paper, device, kernel, [a]) = paper::open(DeviceOptions::default().pool(PoolPolicy::Unpooled));
    for bytes in [1, 8, 24, 500, 512, 510, 513, 1000, 1024] {
        let (x, calls) = paper.calls_of(|| a.alloc::<u8>(bytes).unwrap());
        let is_its_own = |call: &Call| matches!(call, Call::Alloc { block } if *block == (x.as_raw().0..x.as_raw().0 + bytes));
        assert_eq!(calls.iter().filter(|call| is_its_own(call)).count(), 1, "{bytes} bytes");
    }
    drop((a, kernel, device));
    assert_eq!(paper.live(), Live::default());
}

#[test]
fn without_a_pool_every_allocation_is_the_drivers() {
    let (paper, _, kernel, [a]) = paper::open(DeviceOptions::default().pool(PoolPolicy::Unpooled));
    let (mut x, calls) = paper.calls_of(|| a.alloc::<u8>(1000).unwrap());
    assert_eq!(calls.iter().filter(|call| is_driver_memory(call)).count(), 1);
    write(&kernel, &a, &mut x);
    drop(x);
    let (y, calls) = paper.calls_of(|| a.alloc::<u8>(1000).unwrap());
    assert_eq!(calls.iter().filter(|call| is_driver_memory(call)).count(), 1, "the kernel may be running");
    paper.finish_all();
    drop(y);
    let (_z, calls) = paper.calls_of(|| a.alloc::<u8>(1000).unwrap());
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Free { .. })).count(), 2);
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn dropping_and_forgetting_from_many_threads_keeps_the_books() {
    let (_paper, device, _, [stream]) = paper::open(DeviceOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (device, stream) = (&device, &stream);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..500 {
                    held.push(stream.alloc::<u8>(1 + (round * 7919 + thread) % 300_000).unwrap());
                    if round % 3 != 0 {
                        held.swap_remove(round % held.len());
                    }
                    assert!(device.memory_stats().used <= device.memory_stats().peak);
                }
                mem::forget(held.pop());
            });
        }
    });
    let stats = device.memory_stats();
    assert_eq!(stats.live, 4, "{stats:?}");
    assert_eq!(stats.hits + stats.misses, 2000);
}
