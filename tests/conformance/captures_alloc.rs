//! You can allocate while you record. The memory then belongs to the graph and is used again in the graph's order. A
//! buffer that leaves the recording is like any other.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Barrier, mpsc};
use std::{mem, thread};

use conformance::sync::Kernels;
use conformance::{
    Gate, ONE, assert_all, kernels_and_streams, next, on_threads, open_again, overlaps, refused, tests,
};
use gpustream::hal::RawBuffer;
use gpustream::{Buffer, DefaultStream, Device, DeviceOptions, ErrorKind, Pinned, Result, Stream, Tracking};

use crate::graphs::{N, usable};
use crate::pool::{has_pool, under_each};

tests! {
    Plain: temporaries_one_after_another_share_memory, a_buffer_that_leaves_is_like_any_other,
        memory_of_a_graph_goes_to_no_other_owner, a_run_waits_for_another_streams_work_on_its_memory,
        branches_have_memory_of_their_own, memory_is_shared_between_branches_only_under_pressure,
        requests_get_memory_of_their_size, a_recording_that_fails_gives_all_back,
        a_buffer_can_be_dropped_by_another_thread, threads_record_at_once,
        buffers_of_one_recording_serve_in_another, memory_of_another_handle_stays_apart,
        buffers_from_outside_stay_with_the_graph, contents_from_outside_stay, forgotten_values_break_nothing,
        a_graph_dropped_in_use_keeps_its_memory;
    Plain if has_pool: a_run_waits_for_work_of_the_memorys_former_owner,
        a_short_request_does_not_take_the_memory_of_a_long_one;
}

/// How many bytes of the pool `N` elements take.
pub(crate) const SIZE: u64 = (N as u64 * 4).next_multiple_of(512);

/// Changes `x` this many times, each time through another temporary.
pub(crate) fn by_temporaries(kernels: &Kernels, s: &Stream, x: &mut Buffer<u32>, rounds: u32) -> Result<()> {
    (0..rounds).try_for_each(|value| {
        let mut temporary = s.full(N, value)?;
        kernels.step(s, &mut temporary, 7, N)?;
        kernels.mix(s, &temporary, x, N)
    })
}

/// Returns what [`by_temporaries`] makes of an element.
pub(crate) fn after_temporaries(x: u32, rounds: u32) -> u32 {
    (0..rounds).fold(x, |x, value| next(x, next(value, 7)))
}

fn temporaries_one_after_another_share_memory(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s, other]) = kernels_and_streams(device)?;
        let mut x = s.full(N, 1u32)?;
        s.synchronize()?;
        let before = device.memory_stats();
        let graph = s.capture(|s| by_temporaries(&kernels, s, &mut x, 100))?;
        assert_eq!(graph.node_count(), 300);
        let after = device.memory_stats();
        assert_eq!((after.used - before.used, after.live - before.live), (SIZE, 1));
        let mut want = 1;
        for s in [&s, &other, &other, &s] {
            graph.launch(s)?;
            want = after_temporaries(want, 100);
            assert_all(s, &x, want)?;
        }
        drop(graph);
        s.synchronize()?;
        device.trim();
        assert_eq!(device.memory_stats().used, before.used);
        usable(device, &[&s, &other])
    })
}

fn a_buffer_that_leaves_is_like_any_other(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [a, b]) = kernels_and_streams(device)?;
        let (mut left, mut host) = (None, device.pinned::<u32>(N)?);
        let graph = a.capture(|s| {
            let mut y = s.full(N, 3u32)?;
            kernels.step(s, &mut y, 1, N)?;
            left = Some((y, s.alloc::<u32>(N)?));
            Ok(())
        })?;
        let (mut y, mut untouched) = left.unwrap();
        refused(b.download(&y), ErrorKind::Uninitialized, &[]);
        graph.launch(&a)?;
        // Another stream must wait for the run, and the next run for that stream.
        kernels.step(&b, &mut y, 2, N)?;
        assert_all(&b, &y, next(next(3, 1), 2))?;
        // You can use it in another graph too.
        let mut builder = device.graph_builder()?;
        builder.node(&[], |s| kernels.step(s, &mut y, 5, N))?;
        builder.node(&[], |s| s.copy(&y, &mut host))?;
        let other = builder.build()?;
        graph.launch(&a)?;
        other.launch(&b)?;
        drop(graph);
        assert_eq!(*host.read()?, [next(next(3, 1), 5); N]);
        b.fill(&mut untouched, 9)?;
        assert_all(&a, &untouched, 9)?;
        drop((other, y, untouched));
        a.synchronize()?;
        b.synchronize()?;
        device.trim();
        assert_eq!(device.memory_stats().used, 0);
        Ok(())
    })
}

/// Whatever you drop during the recording or later, an allocation must never get the graph's memory while the graph
/// lives.
fn memory_of_a_graph_goes_to_no_other_owner(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let (mut x, mut left, mut inside) = (s.full(N, 1u32)?, None, Vec::new());
        let graph = s.capture(|s| {
            let mut first = s.full(N, 2u32)?;
            kernels.step(s, &mut first, 3, N)?;
            kernels.mix(s, &first, &mut x, N)?;
            inside.push(first.as_raw());
            let second = s.duplicate(&x)?;
            inside.push(second.as_raw());
            left = Some(second);
            Ok(())
        })?;
        drop(left);
        let others = (0..20).map(|value| s.full(N, value)).collect::<Result<Vec<_>>>()?;
        assert!(others.iter().all(|other| !inside.contains(&other.as_raw())));
        graph.launch(&s)?;
        assert_all(&s, &x, next(1, next(2, 3)))?;
        (0u32..).zip(&others).try_for_each(|(value, other)| assert_all(&s, other, value))
    })
}

/// Records a temporary of `len` elements, and returns its memory.
fn one_temporary(kernels: &Kernels, s: &Stream, len: usize, host: &mut Pinned<u32>) -> Result<RawBuffer> {
    // No node has touched this buffer when we drop it, but its memory must still be used again.
    let first = s.alloc::<u32>(len)?.as_raw();
    let mut temporary = s.full(len, 7u32)?;
    assert_eq!(temporary.as_raw(), first);
    kernels.step(s, &mut temporary, 1, N)?;
    s.copy(&temporary.slice(..N)?, host)?;
    Ok(first)
}

/// A kernel on `a` writes memory that you have dropped. A recording on `b` gets that memory, so a launch on `launching`
/// must wait for the kernel.
fn run_waits_for_former_owner(
    device: &Device,
    len: usize,
    [a, b]: [&Stream; 2],
    launching: &Stream,
) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (mut x, mut host) = (a.full(len, 5u32)?, device.pinned::<u32>(N)?);
    kernels.step(a, &mut x, 1, N)?;
    // We record and launch once before the gate closes, because a driver may wait for running kernels when it first
    // uses other kernels or makes an executable.
    let mut graph = b.capture(|s| one_temporary(&kernels, s, len, &mut host).map(drop))?;
    graph.launch(launching)?;
    a.synchronize()?;
    launching.synchronize()?;
    let gate = Gate::adding(&kernels, a, &mut x, 1)?;
    let address = x.as_raw();
    drop(x);
    graph.update(b, |s| {
        assert_eq!(one_temporary(&kernels, s, len, &mut host)?, address);
        Ok(())
    })?;
    graph.launch(launching)?;
    let launched = launching.record()?;
    assert!(!launched.is_done()?, "the run did not wait for the kernel that still writes there");
    gate.open();
    launched.synchronize()?;
    assert_eq!(*host.read()?, [next(7, 1); N]);
    Ok(())
}

/// The pool gives a stream memory that the stream itself still uses. But you may launch the graph on another stream.
fn a_run_waits_for_work_of_the_memorys_former_owner(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    run_waits_for_former_owner(device, N, [&a, &a], &b)
}

/// Under a memory limit, the pool may give out memory that another stream still uses.
fn a_run_waits_for_another_streams_work_on_its_memory(device: &Device) -> Result<()> {
    for tracking in [Tracking::Auto, Tracking::Strict] {
        let options = DeviceOptions::default().memory_limit(8 << 20).tracking(tracking);
        let device = open_again(device, options)?;
        let (a, b) = (device.stream()?, device.stream()?);
        run_waits_for_former_owner(&device, 3 << 18, [&a, &b], &b)?;
    }
    Ok(())
}

/// If both branches used the same memory, one would have to wait for the other.
fn branches_have_memory_of_their_own(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 1u32)?, a.full(N, 2u32)?);
    let gate = Gate::new(device)?;
    let mut here = device.flag()?;
    let (see_here, mut addresses) = (here.clone(), Vec::new());
    let graph = a.capture(|a| {
        b.wait(&a.record()?)?;
        let mut first = a.full(N, 3u32)?;
        kernels.add_when(a, gate.flag(), &mut first, 1, N)?;
        kernels.mix(a, &first, &mut x, N)?;
        addresses.push(first.as_raw());
        drop(first);
        let mut second = b.full(N, 4u32)?;
        addresses.push(second.as_raw());
        kernels.step(&b, &mut second, 1, N)?;
        kernels.mix(&b, &second, &mut y, N)?;
        kernels.raise_flag(&b, &ONE, &mut here, 1)?;
        drop(second);
        // The branches have met, so now we may use the memory of either.
        a.wait(&b.record()?)?;
        let both = [a.full(N, 5u32)?, a.full(N, 6u32)?];
        assert!(both.iter().all(|buffer| addresses.contains(&buffer.as_raw())));
        both.iter().try_for_each(|buffer| kernels.mix(a, buffer, &mut x, N))
    })?;
    assert_ne!(addresses[0], addresses[1]);
    graph.launch(&a)?;
    if overlaps(device) {
        conformance::until(|| Ok(see_here.get() == 1))?;
    }
    gate.open();
    assert_all(&a, &x, next(next(next(1, 4), 5), 6))?;
    assert_all(&a, &y, next(2, next(4, 1)))
}

/// Then the tracker must order the branches, because you cannot know that they share memory. This holds even if you
/// promised to order everything yourself.
fn memory_is_shared_between_branches_only_under_pressure(device: &Device) -> Result<()> {
    const LONG: usize = 3 << 18;
    let limited = DeviceOptions::default().memory_limit(8 << 20);
    // SAFETY: no two streams touch a buffer, and the host waits for all work.
    let untracked = unsafe { limited.without_tracking() };
    for options in [limited, limited.tracking(Tracking::Strict), untracked] {
        let device = open_again(device, options)?;
        let (kernels, [a, b]) = kernels_and_streams(&device)?;
        let (mut host, mut other) = (device.pinned::<u32>(N)?, device.pinned::<u32>(N)?);
        let graph = a.capture(|a| {
            b.wait(&a.record()?)?;
            let mut addresses = Vec::new();
            for round in 0..4 {
                let (s, host) = if round % 2 == 0 { (&**a, &mut host) } else { (&b, &mut other) };
                let held = s.full(LONG, round)?;
                let mut temporary = s.alloc::<u32>(LONG)?;
                kernels.step(s, &mut temporary, 9, LONG)?;
                s.copy(&held, &mut temporary)?;
                kernels.step(s, &mut temporary, round, LONG)?;
                s.copy(&temporary.slice(..N)?, host)?;
                addresses.push(temporary.as_raw());
            }
            assert!(addresses[1..].contains(&addresses[0]), "{addresses:?}");
            Ok(())
        })?;
        for _ in 0..3 {
            graph.launch(&a)?;
            a.synchronize()?;
            assert_eq!((*host.read()?)[..], [next(2, 2); N]);
            assert_eq!((*other.read()?)[..], [next(3, 3); N]);
        }
    }
    Ok(())
}

/// If a block is used again for a longer request, we must track it to its new end.
fn requests_get_memory_of_their_size(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s, other]) = kernels_and_streams(device)?;
        let mut x = s.full(N, 1u32)?;
        let lengths = [N, 100, N - 50, N, 90, N / 2 + 1, 120, N];
        let graph = s.capture(|s| {
            for (value, &len) in lengths.iter().enumerate() {
                let temporary = s.full(len, value as u32)?;
                kernels.mix(s, &temporary, &mut x, len)?;
            }
            let empty = s.zeros::<u32>(0)?;
            s.copy(&empty, &mut x.slice_mut(..0)?)
        })?;
        assert_eq!(graph.node_count(), 2 * lengths.len());
        let mut want = vec![1; N];
        for s in [&s, &other, &s] {
            graph.launch(s)?;
            for (value, &len) in lengths.iter().enumerate() {
                want[..len].iter_mut().for_each(|x| *x = next(*x, value as u32));
            }
            assert_eq!(s.download(&x)?, want);
        }
        Ok(())
    })
}

fn a_short_request_does_not_take_the_memory_of_a_long_one(device: &Device) -> Result<()> {
    let s = device.stream()?;
    s.capture(|s| {
        let long = s.zeros::<u8>(1 << 20)?;
        let address = long.as_raw();
        drop(long);
        assert_ne!(s.zeros::<u8>(1 << 10)?.as_raw(), address);
        assert_eq!(s.zeros::<u8>((1 << 20) - 9)?.as_raw(), address);
        Ok(())
    })
    .map(drop)
}

fn a_recording_that_fails_gives_all_back(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let mut x = s.full(N, 1u32)?;
        s.synchronize()?;
        let before = device.memory_stats().used;
        let mut left = None;
        for _ in 0..3 {
            let failed = s.capture(|s| {
                by_temporaries(&kernels, s, &mut x, 3)?;
                left = Some(s.full(N, 8u32)?);
                let _kept = s.full(N, 9u32)?;
                kernels.step(s, &mut x, 1, N + 1)
            });
            refused(failed, ErrorKind::ContractViolated, &["n <= len(x)"]);
            assert_eq!(device.memory_stats().used, before + SIZE);
            // You can still use the buffer that left, although the nodes that were to fill it never run.
            s.fill(left.as_mut().unwrap(), 4)?;
            assert_all(&s, left.as_ref().unwrap(), 4)?;
            let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
                s.capture(|s| {
                    let _kept = s.full(N, 9u32)?;
                    by_temporaries(&kernels, s, &mut x, 3)?;
                    panic::resume_unwind(Box::new("on purpose"))
                })
            }));
            assert!(panicked.is_err());
            left = None;
            assert_eq!(device.memory_stats().used, before);
        }
        assert_all(&s, &x, 1)?;
        usable(device, &[&s])
    })
}

fn a_buffer_can_be_dropped_by_another_thread(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let (sender, receiver) = mpsc::channel::<Buffer<u32>>();
    let graph = thread::scope(|scope| {
        let dropping = scope.spawn(move || receiver.iter().count());
        let graph = s.capture(|s| {
            let sender = sender;
            (0..200).try_for_each(|value| {
                let temporary = s.full(N, value)?;
                kernels.mix(s, &temporary, &mut x, N)?;
                sender.send(temporary).expect("the other thread receives");
                Ok(())
            })
        });
        assert_eq!(dropping.join().expect("no panic"), 200);
        graph
    })?;
    let mut want = 1;
    for _ in 0..3 {
        graph.launch(&s)?;
        want = (0..200).fold(want, next);
        assert_all(&s, &x, want)?;
    }
    Ok(())
}

/// Three threads record, launch and allocate at the same time.
fn threads_record_at_once(device: &Device) -> Result<()> {
    let (kernels, start) = (Kernels::load(device)?, Barrier::new(3));
    on_threads(3, |_| {
        let s = device.stream()?;
        let mut x = s.full(N, 1u32)?;
        start.wait();
        let mut want = 1;
        for rounds in 1..20 {
            let graph = s.capture(|s| by_temporaries(&kernels, s, &mut x, rounds))?;
            graph.launch(&s)?;
            want = after_temporaries(want, rounds);
            let between = s.full(N, rounds)?;
            assert_all(&s, &between, rounds)?;
            assert_all(&s, &x, want)?;
        }
        Ok(())
    })
}

/// Another graph still refers to the dropped buffer and counts on its contents, so the recording must not use that
/// memory again.
fn buffers_of_one_recording_serve_in_another(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [a, b]) = kernels_and_streams(device)?;
        let mut host = device.pinned::<u32>(N)?;
        let mut inner = None;
        let outer = a.capture(|a| {
            let mut shared = a.full(N, 3u32)?;
            let address = shared.as_raw();
            inner = Some(b.capture(|b| {
                kernels.step(b, &mut shared, 4, N)?;
                b.copy(&shared, &mut host)
            })?);
            drop(shared);
            let mut temporary = a.full(N, 5u32)?;
            assert_ne!(temporary.as_raw(), address);
            kernels.step(a, &mut temporary, 6, N)
        })?;
        let inner = inner.unwrap();
        outer.launch(&a)?;
        inner.launch(&b)?;
        inner.launch(&a)?;
        assert_eq!(*host.read()?, [next(next(3, 4), 4); N]);
        drop(outer);
        inner.launch(&b)?;
        assert_eq!(*host.read()?, [next(next(next(3, 4), 4), 4); N]);
        Ok(())
    })
}

/// Two handles of a device have separate pools, and the thread's default stream can be taken from either handle.
fn memory_of_another_handle_stays_apart(device: &Device) -> Result<()> {
    let [first, second] = [device.clone(), open_again(device, DeviceOptions::default())?];
    let kernels = Kernels::load(&first)?;
    let (s, mut host) = (first.stream()?, first.pinned::<u32>(N)?);
    let mut foreign = second.stream()?.full(N, 7u32)?;
    conformance::synchronize(&second)?;
    let graph = s.capture(|s| {
        kernels.step(s, &mut foreign, 1, N)?;
        s.copy(&foreign, &mut host)?;
        drop(foreign);
        let mut own = s.full(N, 1u32)?;
        kernels.step(s, &mut own, 1, N)
    })?;
    drop(second);
    for want in [next(7, 1), next(next(7, 1), 1)] {
        graph.launch(&s)?;
        assert_eq!(*host.read()?, [want; N]);
    }
    let second = open_again(device, DeviceOptions::default())?;
    let a = first.default_stream(DefaultStream::PerThread)?;
    let b = second.default_stream(DefaultStream::PerThread)?;
    let graph = a.capture(|a| {
        for value in 0..4 {
            let (mut mine, mut others) = (a.full(N, value)?, b.full(N, value)?);
            kernels.step(a, &mut mine, 1, N)?;
            kernels.step(a, &mut others, 2, N)?;
            kernels.mix(a, &mine, &mut others, N)?;
            a.copy(&others, &mut host)?;
        }
        Ok(())
    })?;
    drop((b, second));
    graph.launch(&a)?;
    assert_eq!(*host.read()?, [next(next(3, 2), next(3, 1)); N]);
    Ok(())
}

/// If a recording drops memory from outside, it must not hand it out again, because an outer graph may still use it and
/// count on its contents.
fn buffers_from_outside_stay_with_the_graph(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s]) = kernels_and_streams(device)?;
        let (outside, mut host) = (s.full(N, 4u32)?, device.pinned::<u32>(N)?);
        s.synchronize()?;
        let (address, before) = (outside.as_raw(), device.memory_stats().used);
        let graph = s.capture(|s| {
            s.copy(&outside, &mut host)?;
            drop(outside);
            let mut temporary = s.full(N, 5u32)?;
            assert_ne!(temporary.as_raw(), address);
            kernels.step(s, &mut temporary, 6, N)
        })?;
        assert_eq!(device.memory_stats().used, before + SIZE);
        for _ in 0..3 {
            graph.launch(&s)?;
            assert_eq!(*host.read()?, [4; N]);
        }
        Ok(())
    })
}

/// The memory was allocated inside, but other work fills it during the recording. Each launch needs these contents, so
/// the memory must not be handed out again.
fn contents_from_outside_stay(device: &Device) -> Result<()> {
    under_each(device, |device| {
        let (kernels, [s, other]) = kernels_and_streams(device)?;
        let mut hosts = [device.pinned::<u32>(N)?, device.pinned::<u32>(N)?];
        let graph = s.capture(|s| {
            let mut filled = s.alloc::<u32>(N)?;
            other.fill(&mut filled, 5)?;
            s.copy(&filled, &mut hosts[0])?;
            drop(filled);
            let (mut temporary, untouched) = (s.full(N, 6u32)?, s.alloc::<u32>(N)?);
            other.copy(&untouched.slice(..0)?, &mut temporary.slice_mut(..0)?)?;
            kernels.step(s, &mut temporary, 7, N)?;
            s.copy(&temporary, &mut hosts[1])
        })?;
        for _ in 0..3 {
            graph.launch(&s)?;
            assert_eq!((*hosts[0].read()?)[..], [5; N]);
            assert_eq!((*hosts[1].read()?)[..], [next(6, 7); N]);
        }
        Ok(())
    })
}

/// A forgotten buffer leaks its memory, and nothing else may break.
fn forgotten_values_break_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut outer) = (s.full(N, 1u32)?, None);
    let graph = s.capture(|s| {
        let mut forgotten = s.full(N, 2u32)?;
        kernels.step(s, &mut forgotten, 3, N)?;
        let address = forgotten.as_raw();
        mem::forget(forgotten);
        let temporary = s.full(N, 4u32)?;
        assert_ne!(temporary.as_raw(), address);
        kernels.mix(s, &temporary, &mut x, N)?;
        outer = Some(temporary);
        Ok(())
    })?;
    graph.launch(&s)?;
    mem::forget(graph);
    assert_all(&s, &x, next(1, 4))?;
    let mut builder = device.graph_builder()?;
    let mut of_builder = None;
    builder.node(&[], |s| {
        of_builder = Some(s.full(N, 2u32)?);
        Ok(())
    })?;
    mem::forget(builder);
    let mut of_builder = of_builder.unwrap();
    s.fill(&mut of_builder, 6)?;
    assert_all(&s, &of_builder, 6)?;
    drop((of_builder, outer));
    usable(device, &[&s])
}

fn a_graph_dropped_in_use_keeps_its_memory(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    // This puts memory into the pool, because an allocation by the driver may wait for the running kernel.
    drop((0..4).map(|_| b.full(N, 0u32)).collect::<Result<Vec<_>>>()?);
    b.synchronize()?;
    let mut host = device.pinned::<u32>(N)?;
    let gate = Gate::new(device)?;
    let mut inside = None;
    let graph = a.capture(|s| {
        let mut temporary = s.full(N, 2u32)?;
        kernels.add_when(s, gate.flag(), &mut temporary, 1, N)?;
        s.copy(&temporary, &mut host)?;
        inside = Some(temporary.as_raw());
        Ok(())
    })?;
    graph.launch(&a)?;
    drop(graph);
    let others = (0..3).map(|_| b.alloc::<u32>(N)).collect::<Result<Vec<_>>>()?;
    assert!(others.iter().all(|other| Some(other.as_raw()) != inside));
    gate.open();
    assert_eq!(*host.read()?, [3; N]);
    Ok(())
}
