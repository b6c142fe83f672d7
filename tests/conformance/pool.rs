//! Device memory may come from the library's pool, from the driver's pool, or from the driver's plain allocator. You
//! must not notice a difference.

use std::sync::{Barrier, mpsc};
use std::thread;

use conformance::{Gate, Random, assert_all, kernels_and_streams, on_threads, open_again, refused, tests};
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, PoolPolicy, Result, Stream};

tests! {
    Plain: contents_stay_apart, a_freed_range_waits_for_its_last_use,
        reads_of_reused_memory_wait_for_its_last_use, the_limit_can_be_reached_a_hundred_times,
        threads_do_not_pass_the_limit_together, the_limit_names_who_holds_the_memory, a_snapshot_names_lines,
        everything_goes_back, sizes_around_every_class_stay_apart, threads_allocating_at_once_share_nothing,
        a_panic_is_left_to_a_wait, a_host_closure_is_refused_at_once,
        a_capture_refuses_other_threads_allocations;
    Plain if has_pool: ordered_streams_share_freed_memory;
    Alone: the_device_can_be_filled_a_hundred_times;
}

const MIB: usize = 1 << 20;
const POLICIES: [PoolPolicy; 3] = [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled];

/// Returns true if freed memory is used again. In checked mode it is not: each allocation comes from the system, so
/// that we can watch the bytes around it.
pub(crate) fn has_pool(device: &Device) -> bool {
    !device.info().quirks.checked
}

/// Returns the policies that the device supports.
fn policies(device: &Device) -> impl Iterator<Item = PoolPolicy> {
    let pools = device.info().features.memory_pools;
    POLICIES.into_iter().filter(move |&policy| policy != PoolPolicy::Driver || pools)
}

/// Runs a test under each policy, with a new handle of the device.
pub(crate) fn under_each(device: &Device, test: impl Fn(&Device) -> Result<()>) -> Result<()> {
    under_each_with(device, DeviceOptions::default(), test)
}

fn under_each_with(
    device: &Device,
    options: DeviceOptions,
    test: impl Fn(&Device) -> Result<()>,
) -> Result<()> {
    policies(device).try_for_each(|policy| test(&open_again(device, options.pool(policy))?))
}

fn limit(bytes: usize) -> DeviceOptions {
    DeviceOptions::default().memory_limit(bytes as u64)
}

/// Buffers come and go on three streams. Each must keep its contents until it is dropped.
fn contents_stay_apart(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let streams = [device.stream()?, device.stream()?, device.stream()?];
        let mut random = Random(7);
        let mut live: Vec<(Buffer<u32>, u32)> = Vec::new();
        for value in 0..400u32 {
            if live.len() > 20 {
                let (buffer, value) = live.swap_remove(random.below(live.len()));
                assert_all(&streams[random.below(3)], &buffer, value)?;
            }
            let log = 4 + random.below(14);
            let len = 1 + random.below(1 << log);
            live.push((streams[random.below(3)].full(len, value)?, value));
        }
        for (buffer, value) in live {
            assert_all(&streams[0], &buffer, value)?;
        }
        assert_eq!(device.memory_stats().used, 0);
        Ok(())
    })
}

fn a_freed_range_waits_for_its_last_use(device: &Device) -> Result<()> {
    under_each(device, |device| {
        const N: usize = 1 << 16;
        let (kernels, [a, b]) = kernels_and_streams(device)?;
        // This puts memory into the pool, because an allocation by the driver may wait for the running kernel.
        drop([a.full(N, 0u32)?, a.full(N, 0u32)?, b.full(N, 0u32)?]);
        let (x, mut y) = (a.full(N, 5u32)?, a.zeros::<u32>(N)?);
        conformance::synchronize(device)?;
        // Without a pool the driver frees these buffers now. It waits for all work, so it must not happen while the
        // gate is closed.
        device.trim();
        let gate = Gate::copying(&kernels, &a, &x, &mut y)?;
        drop(x);
        // The fill may get the same memory, and must wait in that case.
        let filled = b.full(N, 9u32);
        gate.open();
        assert_eq!(a.download(&y)?, vec![5; N]);
        assert_eq!(b.download(&filled?)?, vec![9; N]);
        Ok(())
    })
}

/// Unwritten memory may contain anything, but it must not change while a kernel reads it. Otherwise a kernel could
/// check an index and then use another one.
fn reads_of_reused_memory_wait_for_its_last_use(device: &Device) -> Result<()> {
    const N: usize = 6 * MIB / 4;
    let device = open_again(device, DeviceOptions::default().memory_limit(8 * MIB as u64))?;
    let (kernels, [a, b]) = kernels_and_streams(&device)?;
    let mut out = b.zeros::<u32>(N / 8)?;
    let mut x = a.full(N, 5u32)?;
    conformance::synchronize(&device)?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    let address = x.as_raw();
    drop(x);
    // The limit leaves nothing but the dropped memory, so we must get that.
    let fresh = b.alloc::<u32>(N)?;
    assert_eq!(fresh.as_raw(), address);
    kernels.mix(&b, &fresh, &mut out, N / 8)?;
    let read = b.record()?;
    assert!(!read.is_done()?, "it did not wait for the kernel that still writes");
    gate.open();
    assert!(b.download(&out)?.iter().all(|&it| it == 6));
    Ok(())
}

/// One stream freed this memory. Another stream can use it as soon as it waits for the first one, and the driver must
/// not allocate for that.
fn ordered_streams_share_freed_memory(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let x = a.full(3 * MIB, 1u8)?;
    let address = x.as_raw();
    drop(x);
    b.wait(&a.record()?)?;
    let before = device.memory_stats();
    let y = b.full(16 * MIB - 1, 2u8)?;
    let after = device.memory_stats();
    assert_eq!((y.as_raw(), after.misses, after.hits), (address, before.misses, before.hits + 1));
    Ok(())
}

fn threads_do_not_pass_the_limit_together(device: &Device) -> Result<()> {
    const LIMIT: usize = 8 * MIB;
    under_each_with(device, limit(LIMIT), |device| {
        let streams = (0..4).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
        for _ in 0..50 {
            let (start, end) = (Barrier::new(streams.len()), Barrier::new(streams.len()));
            let work = |stream: &Stream| {
                start.wait();
                let held = stream.alloc::<u8>(LIMIT / 4 * 3);
                end.wait();
                held.map(drop).is_ok()
            };
            let got = thread::scope(|scope| {
                let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(|| work(stream))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).filter(|&got| got).count()
            });
            assert_eq!(got, 1, "{:?}", device.memory_stats());
        }
        assert!(device.memory_stats().peak_reserved <= LIMIT as u64, "{:?}", device.memory_stats());
        Ok(())
    })
}

/// Here there is no limit, so the driver reports when memory has run out. We leave out the CPU, because a test should
/// not use up the host's memory.
fn the_device_can_be_filled_a_hundred_times(device: &Device) -> Result<()> {
    if device.info().backend == gpustream::BackendName::CPU {
        return Ok(());
    }
    for policy in policies(device) {
        let device = open_again(device, DeviceOptions::default().pool(policy))?;
        let stream = device.stream()?;
        let piece = device.memory()?.total as usize / 16;
        // Without the library's pool the driver maps all the memory in every round, which takes half a second, so we do
        // fewer rounds.
        let rounds = if policy == PoolPolicy::Library { 100 } else { 4 };
        for round in 0..rounds {
            let mut held = Vec::new();
            let refusal = loop {
                match stream.alloc::<u8>(piece) {
                    Ok(mut buffer) => {
                        stream.fill(&mut buffer.slice_mut(..1000)?, round)?;
                        held.push(buffer);
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(refusal.kind(), ErrorKind::OutOfMemory, "{refusal}");
            assert!((12..=16).contains(&held.len()), "round {round}: {} sixteenths", held.len());
            assert_eq!(stream.download(&held[round as usize % held.len()].slice(..1000)?)?, [round; 1000]);
        }
        assert_eq!((device.memory_stats().used, device.memory_stats().live), (0, 0));
        device.trim();
    }
    Ok(())
}

/// Allocates up to a sixteenth of the limit at a time until nothing is left, then frees everything in another order.
fn the_limit_can_be_reached_a_hundred_times(device: &Device) -> Result<()> {
    const LIMIT: usize = 64 * MIB;
    under_each_with(device, limit(LIMIT), |device| {
        let streams = [device.stream()?, device.stream()?];
        let mut random = Random(3);
        for round in 0..100 {
            let mut held = Vec::new();
            let mut bytes = 0;
            loop {
                let size = MIB / 2 + random.below(LIMIT / 16);
                match streams[held.len() % 2].alloc::<u8>(size) {
                    Ok(buffer) => held.push(buffer),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                        break;
                    }
                }
                bytes += size;
            }
            assert!(bytes <= LIMIT && bytes > LIMIT / 2, "round {round}: {bytes} bytes before it was full");
            assert!(device.memory_stats().reserved <= LIMIT as u64, "{:?}", device.memory_stats());
            while !held.is_empty() {
                drop(held.swap_remove(random.below(held.len())));
            }
            // After all of this, you must still be able to allocate nearly everything as one piece.
            if round % 10 == 9 {
                let mut all = streams[round % 2].alloc::<u8>(LIMIT - 4 * MIB)?;
                streams[round % 2].fill(&mut all, 1)?;
            }
        }
        assert_eq!((device.memory_stats().used, device.memory_stats().live), (0, 0));
        Ok(())
    })
}

fn the_limit_names_who_holds_the_memory(device: &Device) -> Result<()> {
    under_each_with(device, limit(32 * MIB), |device| {
        let s = device.stream()?;
        let mut x = s.full(16 * MIB, 3u8)?;
        let line = file!();
        refused(
            s.alloc::<u8>(24 * MIB).map(drop),
            ErrorKind::OutOfMemory,
            &["limit of 32 MiB", "no room for 24 MiB", "1 live allocations hold 16 MiB", line],
        );
        // You can still use the buffer, and you can allocate memory that was freed.
        s.fill(&mut x.slice_mut(..10)?, 4)?;
        assert_eq!(s.download(&x.slice(5..15)?)?, [4, 4, 4, 4, 4, 3, 3, 3, 3, 3]);
        drop(x);
        assert_eq!(s.download(&s.full(24 * MIB, 1u8)?)?.len(), 24 * MIB);
        Ok(())
    })
}

fn a_snapshot_names_lines(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let s = device.stream()?;
        let held: Vec<Buffer<u8>> = (0..3).map(|_| s.zeros::<u8>(1000)).collect::<Result<_>>()?;
        let (here, other) = (line!() - 1, s.upload(&[1u64; 500])?);
        let snapshot = device.memory_snapshot();
        assert_eq!(snapshot.stats.live, 4);
        let found: Vec<(u32, usize, u64)> = snapshot
            .holders
            .iter()
            .map(|it| {
                assert_eq!(it.call_site.location.file(), file!());
                (it.call_site.location.line(), it.count, it.bytes)
            })
            .collect();
        assert_eq!(found, [(here + 1, 1, 4000), (here, 3, 3000)]);
        drop((held, other));
        assert_eq!(device.memory_snapshot().holders.len(), 0);
        Ok(())
    })
}

fn everything_goes_back(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (a, b) = (device.stream()?, device.stream()?);
        for size in [1, 1000, MIB, 40 * MIB] {
            let x = a.full(size, 1u8)?;
            let mut y = b.alloc::<u8>(size)?;
            b.copy(&x, &mut y)?;
        }
        conformance::synchronize(device)?;
        device.trim();
        let stats = device.memory_stats();
        assert_eq!((stats.used, stats.reserved), (0, 0), "{stats:?}");
        Ok(())
    })
}

/// Each buffer must keep its contents up to the last byte, and so must the buffers around it.
fn sizes_around_every_class_stay_apart(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let s = device.stream()?;
        let sizes = (0..22).flat_map(|log| [(1usize << log) - 1, 1 << log, (1 << log) + 1]);
        let held: Vec<Buffer<u8>> = sizes.map(|size| s.full(size, size as u8 | 1)).collect::<Result<_>>()?;
        for buffer in &held {
            assert_all(&s, buffer, buffer.len() as u8 | 1)?;
        }
        Ok(())
    })
}

fn threads_allocating_at_once_share_nothing(device: &Device) -> Result<()> {
    under_each(device, |device| {
        on_threads(4, |thread| {
            let s = device.stream()?;
            let mut random = Random(u64::from(thread) + 1);
            for round in 0..50 {
                let value = thread << 16 | round;
                let x = s.full(1 + random.below(100_000), value)?;
                let mut y = s.alloc::<u32>(x.len())?;
                s.copy(&x, &mut y)?;
                drop(x);
                assert_all(&s, &y, value)?;
            }
            Ok(())
        })?;
        assert_eq!(device.memory_stats().used, 0);
        Ok(())
    })
}

/// An allocation waits for the device before it fails. If it finds a panic, it must leave that to the next wait.
fn a_panic_is_left_to_a_wait(device: &Device) -> Result<()> {
    under_each_with(device, limit(8 * MIB), |device| {
        let s = device.stream()?;
        let held = s.alloc::<u8>(6 * MIB)?;
        s.host_fn(|| panic!("on purpose"))?;
        refused(s.alloc::<u8>(6 * MIB).map(drop), ErrorKind::OutOfMemory, &["no room"]);
        refused(s.synchronize(), ErrorKind::HostPanic, &["on purpose"]);
        drop(held);
        Ok(())
    })
}

/// If the closure waited for the device, it would wait for itself.
fn a_host_closure_is_refused_at_once(device: &Device) -> Result<()> {
    under_each_with(device, limit(8 * MIB), |device| {
        let (s, other) = (device.stream()?, device.stream()?);
        let held = s.alloc::<u8>(6 * MIB)?;
        let (sender, receiver) = mpsc::channel();
        s.host_fn(move || sender.send(other.alloc::<u8>(6 * MIB).map(drop)).unwrap_or(()))?;
        let answer = receiver.recv().expect("the closure's answer");
        refused(answer, ErrorKind::InHostClosure, &["a host closure"]);
        drop(held);
        s.synchronize()
    })
}

/// You can still free memory that was allocated before the capture.
fn a_capture_refuses_other_threads_allocations(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let s = device.stream()?;
        let (mut x, before) = (s.full(1000, 1u32)?, s.full(1000, 2u32)?);
        s.synchronize()?;
        let graph = s.capture(|s| {
            s.fill(&mut x, 3)?;
            s.alloc::<u32>(MIB)?;
            thread::scope(|scope| {
                scope.spawn(|| refused(s.alloc::<u32>(MIB), ErrorKind::Captured, &["another thread"]));
            });
            drop(before);
            Ok(())
        })?;
        assert_eq!(graph.node_count(), 1);
        graph.launch(&s)?;
        assert_eq!(s.download(&x)?, [3; 1000]);
        assert_eq!(s.download(&s.full(1000, 4u32)?)?, [4; 1000]);
        Ok(())
    })
}
