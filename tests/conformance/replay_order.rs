//! A replayed step must be ordered with other streams, other threads and the host as if each operation ran by itself.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use conformance::{Gate, ONE, assert_all, kernels_and_streams, next, open_again, refused, tests, until};
use gpustream::{
    DefaultStream, Device, DeviceOptions, Error, ErrorKind, ReplayStats, Result, StreamOptions, Tracking,
};

use crate::graphs::N;
use crate::replay::{after, four_runs};

tests! {
    Plain: wait_inside_cuts_the_step, guard_inside_sees_what_came_before, other_stream_sees_what_is_held_back,
        other_stream_sees_a_write_behind_a_read, step_waits_for_other_streams, flags_are_not_held_back,
        closures_run_in_order, dropped_graph_does_not_cut_the_step, step_goes_from_stream_to_stream,
        step_on_a_stream_that_others_know_is_only_called, run_in_a_host_closure_is_refused,
        other_threads_submit_at_once, two_threads_hand_memory_over_inside_their_steps,
        strict_order_is_checked_inside, handle_inside_ends_holding_back, pinned_memory_is_waited_for_alone,
        pinned_memory_is_waited_for_alone_inside, pinned_memory_that_kernels_write_is_waited_for_alone;
}

fn wait_inside_cuts_the_step(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    for t in 0..6 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            want = next(want, t);
            assert_eq!(s.download(&x)?, [want; N]);
            kernels.step(s, &mut x, 8, N)?;
            want = next(want, 8);
            s.synchronize()?;
            assert!(s.is_done()?);
            kernels.step(s, &mut x, 9, N)?;
            want = next(want, 9);
            s.record()?.synchronize()
        })?;
    }
    assert_all(&s, &x, want)?;
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.segments, stats.recordings), (3, 3), "{stats:?}");
    }
    Ok(())
}

fn guard_inside_sees_what_came_before(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut host = device.pinned::<u32>(N)?;
    let mut step = device.replay();
    for t in 0..6 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            s.copy(&x, &mut host)?;
            want = next(want, t);
            assert_eq!(*host.read()?, [want; N]);
            host.write()?.fill(t);
            s.copy(&host, &mut x)?;
            want = t;
            Ok(())
        })?;
        assert_eq!(*host.read()?, [t; N]);
    }
    assert_all(&s, &x, want)
}

fn other_stream_sees_what_is_held_back(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let (mut x, mut y, mut want) = (s.full(N, 1u32)?, s.zeros::<u32>(N)?, 1);
    let mut step = device.replay();
    for t in 0..6 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            want = next(want, t);
            other.copy(&x, &mut y)?;
            kernels.step(s, &mut x, 2, N)?;
            assert_eq!(other.download(&y)?, [want; N]);
            want = next(want, 2);
            let event = s.record()?;
            other.wait(&event)?;
            kernels.step(&other, &mut x, 3, N)?;
            want = next(want, 3);
            Ok(())
        })?;
        assert_all(&other, &x, want)?;
    }
    Ok(())
}

fn other_stream_sees_a_write_behind_a_read(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let (mut x, mut y, mut want) = (s.full(N, 1u32)?, s.zeros::<u32>(N)?, 1);
    let mut z = other.zeros::<u32>(N)?;
    let mut step = device.replay();
    for t in 0..5 {
        step.run(&s, |s| {
            kernels.mix(s, &x, &mut y, N)?;
            kernels.step(s, &mut x, t, N)?;
            want = next(want, t);
            if t < 4 { Ok(()) } else { other.copy(&x, &mut z) }
        })?;
        // After this wait, there are no earlier writes left to wait for.
        s.synchronize()?;
    }
    assert_all(&other, &z, want)
}

fn step_waits_for_other_streams(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 0u32)?);
    let (mut want_x, mut want_y) = (1, 0);
    let mut step = device.replay();
    for t in 0..5 {
        let gate = Gate::adding(&kernels, &other, &mut x, 1)?;
        step.run(&s, |s| {
            kernels.step(s, &mut y, t, N)?;
            kernels.mix(s, &x, &mut y, N)?;
            kernels.step(s, &mut x, t, N)
        })?;
        assert!(!s.is_done()?, "the step waits for the other stream");
        gate.open();
        want_x += 1;
        want_y = next(next(want_y, t), want_x);
        want_x = next(want_x, t);
        assert_all(&s, &y, want_y)?;
        assert_all(&other, &x, want_x)?;
    }
    Ok(())
}

fn flags_are_not_held_back(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    for t in 1..5 {
        let mut flag = device.flag()?;
        let seen = flag.clone();
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            kernels.raise_flag(s, &ONE, &mut flag, t)?;
            // If the step held back the operation that sets the flag, this wait would never end.
            until(|| Ok(seen.get() == t))?;
            kernels.step(s, &mut x, 2, N)
        })?;
        want = after(want, [t, 2]);
    }
    assert_all(&s, &x, want)
}

fn closures_run_in_order(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 0u32)?;
    let mut host = device.pinned::<u32>(N)?;
    let count = Arc::new(AtomicU32::new(0));
    let mut step = device.replay();
    for t in 1..6 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            s.copy(&x, &mut host)?;
            let count = count.clone();
            s.host_fn(move || _ = count.fetch_add(1, Ordering::Relaxed))?;
            s.fill(&mut x, 0)
        })?;
        assert_eq!(*host.read()?, [t; N]);
    }
    s.synchronize()?;
    assert_eq!(count.load(Ordering::Relaxed), 5);
    Ok(())
}

/// When the library puts a graph aside, it asks how far streams are. That must not count as a wait.
fn dropped_graph_does_not_cut_the_step(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 1u32)?);
    let mut step = device.replay();
    for t in 0..4 {
        let graph = s.capture(|s| kernels.step(s, &mut y, t, N))?;
        graph.launch(&s)?;
        let mut graph = Some(graph);
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            drop(graph.take());
            kernels.step(s, &mut x, 7, N)
        })?;
        if step.fallback().is_none() {
            assert_eq!(step.stats().segments, 1, "run {t}");
        }
    }
    assert_all(&s, &x, after(1, (0..4).flat_map(|t| [t, 7])))?;
    assert_all(&s, &y, after(1, 0..4))
}

/// A graph may still be pending on one stream when we set its nodes for another stream.
fn step_goes_from_stream_to_stream(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut step = device.replay();
    let (mut want_x, mut want_y) = (1, 2);
    for t in 0..12 {
        step.run(if t % 2 == 0 { &s } else { &other }, |s| {
            kernels.step(s, &mut x, t, N)?;
            kernels.mix(s, &x, &mut y, N)
        })?;
        want_x = next(want_x, t);
        want_y = next(want_y, want_x);
    }
    assert_all(&s, &x, want_x)?;
    assert_all(&other, &y, want_y)
}

/// Another library may order its work with such a stream, and we cannot see that. So the step must not hold anything
/// back.
fn step_on_a_stream_that_others_know_is_only_called(device: &Device) -> Result<()> {
    let (kernels, [_]) = kernels_and_streams(device)?;
    for s in [
        device.stream_with(StreamOptions::default().blocking_with_default(true))?,
        device.default_stream(DefaultStream::Legacy)?,
        device.default_stream(DefaultStream::PerThread)?,
    ] {
        assert_eq!(four_runs(device, &kernels, &s)?, ReplayStats::default());
    }
    Ok(())
}

fn run_in_a_host_closure_is_refused(device: &Device) -> Result<()> {
    let (_, [s]) = kernels_and_streams(device)?;
    let outcome = Arc::new(Mutex::new(None));
    let (mut step, inner, result) = (device.replay(), device.stream()?, outcome.clone());
    s.host_fn(move || {
        *result.lock().unwrap() = Some(step.run(&inner, |_| Ok(())));
    })?;
    s.synchronize()?;
    let outcome = outcome.lock().unwrap().take().unwrap();
    refused(outcome, ErrorKind::InHostClosure, &["host closure"]);
    Ok(())
}

fn other_threads_submit_at_once(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 1u32)?);
    let mut step = device.replay();
    for t in 0..20 {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                for _ in 0..5 {
                    kernels.step(&s, &mut y, t, N)?;
                    s.record()?.synchronize()?;
                }
                Ok::<_, Error>(())
            });
            step.run(&s, |s| (0..5).try_for_each(|value| kernels.step(s, &mut x, value, N)))?;
            other.join().unwrap()
        })?;
    }
    assert_all(&s, &x, after(1, (0..20).flat_map(|_| 0..5)))?;
    assert_all(&s, &y, after(1, (0..20).flat_map(|t| [t; 5])))
}

fn two_threads_hand_memory_over_inside_their_steps(device: &Device) -> Result<()> {
    const ROUNDS: u32 = 30;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let shared = Mutex::new(a.full(N, 1u32)?);
    let own = [Mutex::new(a.full(N, 0u32)?), Mutex::new(b.full(N, 0u32)?)];
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let threads = [(0, &a), (1, &b)].map(|(turn, s)| {
            let (kernels, shared, own, barrier) = (&kernels, &shared, &own[turn as usize], &barrier);
            scope.spawn(move || {
                let mut step = device.replay();
                for round in 0..ROUNDS {
                    step.run(s, |s| {
                        let own = &mut *own.lock().unwrap();
                        kernels.step(s, own, round, N)?;
                        // Each thread has the shared memory in turn, while both steps run.
                        for time in 0..2 {
                            if time == turn {
                                let shared = &mut *shared.lock().unwrap();
                                kernels.step(s, shared, round + turn, N)?;
                                kernels.mix(s, shared, own, N)?;
                            }
                            barrier.wait();
                        }
                        Ok(())
                    })?;
                }
                Ok::<_, Error>(())
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    let (mut want, mut want_own) = (1, [0, 0]);
    for round in 0..ROUNDS {
        for turn in 0..2 {
            want = next(want, round + turn);
            let own = &mut want_own[turn as usize];
            *own = next(next(*own, round), want);
        }
    }
    assert_all(&a, &*shared.lock().unwrap(), want)?;
    own.iter().zip(want_own).try_for_each(|(own, want)| assert_all(&b, &*own.lock().unwrap(), want))
}

fn strict_order_is_checked_inside(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [s, other]) = kernels_and_streams(&device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut step = device.replay();
    for t in 0..5 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            kernels.mix(s, &x, &mut y, N)?;
            let gate = Gate::new(&device)?;
            kernels.spin(&other, &ONE, gate.flag())?;
            refused(kernels.step(&other, &mut x, 9, N), ErrorKind::Hazard, &["step", "wait"]);
            gate.open();
            other.wait(&s.record()?)?;
            kernels.step(&other, &mut x, 1, N)?;
            s.wait(&other.record()?)
        })?;
    }
    assert_all(&s, &x, after(1, (0..5).flat_map(|t| [t, 1])))
}

fn handle_inside_ends_holding_back(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    for t in 0..5 {
        let mut flag = device.flag()?;
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            let raw = s.as_raw();
            // Once you have the handle, another library may submit work at any time.
            kernels.step(s, &mut x, 2, N)?;
            assert_eq!(s.as_raw(), raw);
            kernels.raise_flag(s, &ONE, &mut flag, 1)
        })?;
        want = after(want, [t, 2]);
    }
    assert_all(&s, &x, want)
}

fn pinned_memory_is_waited_for_alone(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut host = device.pinned::<u32>(N)?;
    let mut step = device.replay();
    for t in 0..5 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            s.copy(&x, &mut host)
        })?;
        // The guard must wait for the step, but not for what came after it.
        let gate = Gate::adding(&kernels, &s, &mut x, 0)?;
        assert_eq!(*host.read()?, [after(1, 0..=t); N]);
        gate.open();
    }
    Ok(())
}

fn pinned_memory_that_kernels_write_is_waited_for_alone(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut host = device.pinned::<u32>(N)?;
    s.fill(&mut host, 1)?;
    let mut step = device.replay();
    for t in 0..5 {
        step.run(&s, |s| {
            kernels.step(s, &mut host, t, N)?;
            kernels.step(s, &mut host, 3, N)
        })?;
        // The guard must wait for the step, but not for what came after it.
        let gate = Gate::adding(&kernels, &s, &mut x, 0)?;
        assert_eq!(*host.read()?, [after(1, (0..=t).flat_map(|t| [t, 3])); N]);
        gate.open();
    }
    Ok(())
}

fn pinned_memory_is_waited_for_alone_inside(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y, mut want) = (s.full(N, 1u32)?, s.full(N, 1u32)?, 1);
    let mut host = device.pinned::<u32>(N)?;
    let mut step = device.replay();
    for t in 0..8 {
        let gate = Gate::new(device)?;
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            s.copy(&x, &mut host)?;
            // In some runs an operation comes that the step does not expect.
            if t % 4 == 3 {
                kernels.step(s, &mut y, t, N)?;
            }
            kernels.add_when(s, gate.flag(), &mut x, 1, N)?;
            want = next(want, t);
            // The guard must not wait for what comes after the copy, because the step may still hold that back.
            assert_eq!(*host.read()?, [want; N]);
            want += 1;
            Ok(())
        })?;
        gate.open();
    }
    assert_all(&s, &x, want)
}
