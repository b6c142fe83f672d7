//! A replayed step means what its operations mean, and costs one graph.

use std::mem;
use std::panic::{self, AssertUnwindSafe};

use conformance::{
    Child, Gate, ONE, assert_all, kernels_and_streams, next, open_again, refused, sync, tests,
};
use gpustream::{
    Arg, Buffer, Device, DeviceOptions, ErrorKind, Launch, ReplayStats, Result, Stream, StreamOptions,
};

use crate::graphs::{N, usable};
use crate::streams_part::has_parts;

tests! {
    Plain: unchanged_step_is_one_launch, changed_values_are_set, unexpected_launches_are_checked,
        swapped_buffers_have_a_graph_each, other_course_is_found_again, shorter_and_longer_runs_mean_the_same,
        changed_dependencies_are_kept, uploads_inside_carry_the_new_values, memory_made_inside_is_reused,
        buffer_may_leave_the_step, independent_operations_have_no_edges, step_in_order_is_a_chain,
        error_ends_the_run_and_no_more, panic_ends_the_run_and_no_more, step_dropped_in_use_finishes,
        forgotten_step_breaks_nothing, recording_names_the_operation_that_gave_the_reason,
        step_of_many_cuts_means_the_same, step_within_a_step_and_a_capture_is_only_called,
        capture_inside_a_step_records, step_of_another_opening_is_refused,
        kernel_of_an_unloaded_module_is_not_launched,
        lint_names_the_lines_that_cut_a_step;
    Plain if has_parts: step_on_a_part_of_the_device_is_only_called;
    Part: cut_steps;
}

/// Returns what [`next`] makes of `x` with one value after the other.
pub(crate) fn after(x: u32, values: impl IntoIterator<Item = u32>) -> u32 {
    values.into_iter().fold(x, next)
}

/// Runs a step four times, checks the result, and returns the step's statistics.
pub(crate) fn four_runs(device: &Device, kernels: &sync::Kernels, s: &Stream) -> Result<ReplayStats> {
    let mut x = s.full(N, 1u32)?;
    let mut step = device.replay();
    for t in 0..4 {
        step.run(s, |s| kernels.step(s, &mut x, t, N))?;
    }
    assert_all(s, &x, after(1, 0..4))?;
    Ok(step.stats())
}

fn unchanged_step_is_one_launch(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut step = device.replay();
    let (mut want_x, mut want_y) = (1, 2);
    for _ in 0..6 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, 3, N)?;
            kernels.mix(s, &x, &mut y, N)?;
            kernels.step(s, &mut y, 4, N)
        })?;
        want_x = next(want_x, 3);
        want_y = next(next(want_y, want_x), 4);
    }
    assert_all(&s, &x, want_x)?;
    assert_all(&s, &y, want_y)?;
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.runs, stats.launches, stats.recordings), (6, 5, 1), "{stats:?}");
        assert_eq!((stats.plain, stats.nodes_set, stats.segments, stats.nodes), (3, 0, 1, 3), "{stats:?}");
        let recording = stats.last_recording.unwrap();
        assert_eq!(recording.operation, "step");
        assert!(recording.location.file().ends_with("replay.rs"));
    }
    Ok(())
}

fn changed_values_are_set(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut step = device.replay();
    for t in 0..8 {
        // The shape changes too.
        let launch = Launch::covering(N + t as usize * 1000);
        step.run(&s, |s| {
            kernels.step_with(s, &launch, &mut x, t, N)?;
            kernels.step(s, &mut x, 7, N)
        })?;
    }
    assert_all(&s, &x, after(1, (0..8).flat_map(|t| [t, 7])))?;
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.recordings, stats.nodes_set, stats.launches), (1, 6, 7), "{stats:?}");
    }
    Ok(())
}

/// If a launch is the one that the step expects, we need not check it. We must check any other, and if we refuse it, it
/// must not cut the step.
fn unexpected_launches_are_checked(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let kernel = kernels.module().kernel("step")?;
    let others =
        sync::Kernels::load(&open_again(device, DeviceOptions::default())?)?.module().kernel("step")?;
    let huge = ONE.shared(device.info().limits.shared_memory_per_block_optin + 1);
    let (mut x, value) = (s.full(N, 1u32)?, 3u32);
    let mut step = device.replay();
    for run in 0..6 {
        step.run(&s, |s| {
            // SAFETY: the buffer has N elements; all other launches are refused.
            unsafe {
                if run > 2 {
                    let few = [Arg::write(&mut x), Arg::value(&value)];
                    refused(kernel.launch(s, &ONE, &few), ErrorKind::ArgumentMismatch, &["given 2"]);
                    let wide = [Arg::write(&mut x), Arg::value(&3u64), Arg::value(&N)];
                    refused(kernel.launch(s, &ONE, &wide), ErrorKind::ArgumentMismatch, &["[8, 8, 8]"]);
                    let memory = [Arg::value(&value), Arg::write(&mut x), Arg::value(&N)];
                    refused(kernel.launch(s, &ONE, &memory), ErrorKind::ArgumentMismatch, &["[4, 8, 8]"]);
                }
                let args = [Arg::write(&mut x), Arg::value(&value), Arg::value(&N)];
                if run > 2 {
                    refused(kernel.launch(s, &huge, &args), ErrorKind::InvalidLaunch, &["shared memory"]);
                    refused(others.launch(s, &ONE, &args), ErrorKind::DeviceMismatch, &["step"]);
                }
                kernel.launch(s, &ONE, &args)
            }
        })?;
    }
    assert_all(&s, &x, after(1, [3; 6]))?;
    let stats = step.stats();
    assert!(step.fallback().is_some() || (stats.launches, stats.plain) == (5, 1), "{stats:?}");
    Ok(())
}

fn swapped_buffers_have_a_graph_each(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let (mut want_x, mut want_y) = (1, 2);
    let mut step = device.replay();
    for t in 0..10 {
        step.run(&s, |s| {
            kernels.mix(s, &x, &mut y, N)?;
            kernels.step(s, &mut y, t, N)
        })?;
        want_y = next(next(want_y, want_x), t);
        mem::swap(&mut x, &mut y);
        mem::swap(&mut want_x, &mut want_y);
    }
    assert_all(&s, &x, want_x)?;
    assert_all(&s, &y, want_y)?;
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.recordings, stats.launches, stats.plain), (2, 9, 2), "{stats:?}");
    }
    Ok(())
}

fn other_course_is_found_again(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, y) = (s.full(N, 1u32)?, s.full(N, 9u32)?);
    let mut want = 1;
    let mut step = device.replay();
    for t in 0..12u32 {
        let turn = t % 3 == 2;
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            if turn {
                kernels.mix(s, &y, &mut x, N)?;
            }
            kernels.step(s, &mut x, 5, N)
        })?;
        want = next(want, t);
        want = if turn { next(want, 9) } else { want };
        want = next(want, 5);
    }
    assert_all(&s, &x, want)?;
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.recordings, stats.launches, stats.plain), (2, 10, 5), "{stats:?}");
    }
    Ok(())
}

fn shorter_and_longer_runs_mean_the_same(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut want = 1;
    let mut step = device.replay();
    for (run, len) in [4u32, 4, 2, 2, 0, 6, 4, 6, 6, 1, 4, 9, 3].into_iter().enumerate() {
        step.run(&s, |s| (0..len).try_for_each(|value| kernels.step(s, &mut x, value, N)))?;
        want = after(want, 0..len);
        if run % 4 == 3 {
            assert_all(&s, &x, want)?;
        }
    }
    assert_all(&s, &x, want)
}

fn changed_dependencies_are_kept(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut buffers: Vec<Buffer<u32>> = (0..8).map(|value| s.full(N, value)).collect::<Result<_>>()?;
    let mut want: Vec<u32> = (0..8).collect();
    let mut step = device.replay();
    // At first each operation has its own memory. Later each one needs the result of the one before.
    for run in 0..12usize {
        let at = |index: usize| match run {
            0..3 => (2 * index, 2 * index + 1),
            3..6 => (index, index + 1),
            _ => (index * (run + 1) % 8, (index * (run + 1) + 1 + run % 5) % 8),
        };
        step.run(&s, |s| {
            for index in 0..4 {
                let (from, to) = at(index);
                if from == to {
                    kernels.step(s, &mut buffers[to], 1, N)?;
                } else {
                    let [from, to] = buffers.get_disjoint_mut([from, to]).unwrap();
                    kernels.mix(s, from, to, N)?;
                }
            }
            Ok(())
        })?;
        for index in 0..4 {
            let (from, to) = at(index);
            want[to] = if from == to { next(want[to], 1) } else { next(want[to], want[from]) };
        }
    }
    buffers.iter().zip(want).try_for_each(|(buffer, want)| assert_all(&s, buffer, want))
}

fn uploads_inside_carry_the_new_values(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut few = s.full(8, 0u32)?;
    let mut step = device.replay();
    for t in 0..300u32 {
        let gate = (t % 100 == 50).then(|| Gate::new(device)).transpose()?;
        if let Some(gate) = &gate {
            kernels.add_when(&s, gate.flag(), &mut few, 0, 8)?;
        }
        step.run(&s, |s| {
            s.upload_into(&vec![t; N], &mut x)?;
            s.upload_into(&[t; 8], &mut few)?;
            kernels.step(s, &mut x, 1, N)
        })?;
        drop(gate);
        if t % 37 == 0 {
            assert_all(&s, &x, next(t, 1))?;
            assert_all(&s, &few, t)?;
        }
    }
    assert_all(&s, &x, next(299, 1))
}

fn memory_made_inside_is_reused(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    let mut reserved = 0;
    for t in 0..20 {
        step.run(&s, |s| {
            for value in 0..5 {
                let mut a = s.duplicate(&x)?;
                kernels.step(s, &mut a, value, N)?;
                let mut b = s.duplicate(&a)?;
                drop(a);
                let c = s.full(N, 3u32)?;
                kernels.mix(s, &c, &mut b, N)?;
                s.copy(&b, &mut x)?;
            }
            Ok(())
        })?;
        want = after(want, (0..5).flat_map(|value| [value, 3]));
        let now = device.memory_stats().reserved;
        assert!(t < 2 || now == reserved, "run {t} asked the driver for memory");
        reserved = now;
    }
    assert_all(&s, &x, want)?;
    if step.fallback().is_none() && !device.info().quirks.checked {
        let stats = step.stats();
        assert!(stats.plain <= 60 && stats.segments == 1, "{stats:?}");
    }
    Ok(())
}

fn buffer_may_leave_the_step(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.full(N, 5u32)?;
    let mut step = device.replay();
    let mut kept = Vec::new();
    for t in 0..12 {
        let made = step.run(&s, |s| {
            let mut y = s.duplicate(&x)?;
            kernels.step(s, &mut y, t, N)?;
            kernels.step(s, &mut y, 1, N)?;
            Ok(y)
        })?;
        kept.push(made);
    }
    for (t, made) in kept.iter().enumerate() {
        assert_all(&s, made, after(5, [t as u32, 1]))?;
    }
    Ok(())
}

fn recording_names_the_operation_that_gave_the_reason(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.full(N, 1u32)?, s.full(N, 2u32)?);
    let mut step = device.replay();
    let mut reasons = Vec::new();
    for course in [0, 0, 1, 1, 2, 2, 3, 3] {
        step.run(&s, |s| {
            kernels.step(s, &mut x, 3, N)?;
            match course {
                0 => kernels.step(s, &mut x, 3, N),
                1 => kernels.step(s, &mut y, 3, N),
                2 => s.fill(&mut x, 5),
                _ => Ok(()),
            }
        })?;
        let recording = step.stats().last_recording;
        reasons.push(recording.map(|recording| (recording.reason, recording.operation)));
    }
    if step.fallback().is_none() {
        let want = [
            None,
            Some(("a new operation", "step")),
            Some(("other memory", "step")),
            Some(("other memory", "step")),
            Some(("other memory", "step")),
            Some(("a new operation", "fill")),
            Some(("a new operation", "fill")),
            Some(("the last operation of a shorter run", "step")),
        ];
        assert_eq!(reasons, want);
    }
    Ok(())
}

/// A step keeps at most 64 graphs. Operations after those are submitted one by one.
fn step_of_many_cuts_means_the_same(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut step = device.replay();
    for t in 0..3 {
        step.run(&s, |s| {
            (0..70).try_for_each(|cut| {
                kernels.step(s, &mut x, t + cut, N)?;
                s.host_fn(|| {})
            })
        })?;
    }
    assert_all(&s, &x, after(1, (0..3).flat_map(|t| (0..70).map(move |cut| t + cut))))?;
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.segments, stats.beyond_limit), (64, 70 - 64));
    }
    // A run that does less stays below the limit, although the step was above it.
    step.run(&s, |s| kernels.step(s, &mut x, 0, N))?;
    assert_eq!(step.stats().beyond_limit, 0);
    Ok(())
}

/// Returns how many edges the picture of a graph has.
fn edges(dot: &str) -> usize {
    dot.matches("->").count()
}

fn independent_operations_have_no_edges(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut buffers: Vec<Buffer<u32>> = (0..6).map(|value| s.full(N, value)).collect::<Result<_>>()?;
    let mut sum = s.full(N, 0u32)?;
    let mut want = 0;
    let mut step = device.replay();
    for t in 0..4 {
        step.run(&s, |s| {
            buffers.iter_mut().try_for_each(|x| kernels.step(s, x, t, N))?;
            buffers.iter().try_for_each(|x| kernels.mix(s, x, &mut sum, N))
        })?;
    }
    for t in 0..4 {
        want = (0..6).map(|value| after(value, 0..=t)).fold(want, next);
    }
    assert_all(&s, &sum, want)?;
    // Each sum comes after its part and after the previous sum.
    assert_eq!(edges(&step.dot()), 6 + 5, "{}", step.dot());
    Ok(())
}

fn step_in_order_is_a_chain(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut buffers: Vec<Buffer<u32>> = (0..6).map(|value| s.full(N, value)).collect::<Result<_>>()?;
    let mut step = device.replay().in_order(true);
    for t in 0..4 {
        step.run(&s, |s| buffers.iter_mut().try_for_each(|x| kernels.step(s, x, t, N)))?;
    }
    assert_eq!(edges(&step.dot()), 5, "{}", step.dot());
    buffers.iter().zip(0..).try_for_each(|(x, value)| assert_all(&s, x, after(value, 0..4)))
}

fn error_ends_the_run_and_no_more(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let short = s.full(N - 1, 1u32)?;
    let mut step = device.replay();
    for t in 0..8 {
        let outcome = step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            if t % 3 == 2 {
                kernels.mix(s, &short, &mut x, N)?;
            }
            kernels.step(s, &mut x, 4, N)
        });
        want = next(want, t);
        if t % 3 == 2 {
            refused(outcome, ErrorKind::ContractViolated, &["len(x)"]);
        } else {
            outcome?;
            want = next(want, 4);
        }
    }
    assert_all(&s, &x, want)?;
    usable(device, &[&s])
}

fn panic_ends_the_run_and_no_more(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    for t in 0..6 {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            step.run(&s, |s| {
                kernels.step(s, &mut x, t, N)?;
                if t == 3 {
                    panic::resume_unwind(Box::new("on purpose"));
                }
                kernels.step(s, &mut x, 4, N)
            })
        }));
        assert_eq!(outcome.is_err(), t == 3);
        want = next(want, t);
        want = if t == 3 { want } else { next(want, 4) };
    }
    assert_all(&s, &x, want)?;
    usable(device, &[&s])
}

fn step_dropped_in_use_finishes(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut step = device.replay();
    let gate = Gate::new(device)?;
    for t in 0..3 {
        step.run(&s, |s| kernels.step(s, &mut x, t, N))?;
    }
    kernels.add_when(&s, gate.flag(), &mut x, 1, N)?;
    step.run(&s, |s| kernels.step(s, &mut x, 3, N))?;
    drop(step);
    drop(kernels);
    assert!(!s.is_done()?);
    gate.open();
    assert_all(&s, &x, next(after(1, 0..3) + 1, 3))
}

fn forgotten_step_breaks_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut step = device.replay();
    for t in 0..3 {
        step.run(&s, |s| kernels.step(s, &mut x, t, N))?;
    }
    mem::forget(step);
    assert_all(&s, &x, after(1, 0..3))
}

fn step_within_a_step_and_a_capture_is_only_called(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let (mut outer, mut inner) = (device.replay(), device.replay());
    for t in 0..4 {
        outer.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            inner.run(s, |s| kernels.step(s, &mut x, 2, N))?;
            kernels.step(s, &mut x, 3, N)
        })?;
        want = after(want, [t, 2, 3]);
    }
    assert_eq!((outer.stats().segments, inner.stats().runs), (usize::from(outer.fallback().is_none()), 0));
    let graph = s.capture(|s| inner.run(s, |s| kernels.step(s, &mut x, 6, N)))?;
    assert_eq!(graph.node_count(), 1);
    graph.launch(&s)?;
    assert_all(&s, &x, next(want, 6))
}

fn capture_inside_a_step_records(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    for t in 0..4 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            let graph = s.capture(|s| kernels.step(s, &mut x, 2, N))?;
            kernels.step(s, &mut x, 3, N)?;
            graph.launch(s)
        })?;
        want = after(want, [t, 3, 2]);
    }
    assert_all(&s, &x, want)
}

fn step_of_another_opening_is_refused(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (_, [s]) = kernels_and_streams(device)?;
    refused(
        other.replay().run(&s, |_| Ok(())),
        ErrorKind::DeviceMismatch,
        &["the handle that made the step"],
    );
    Ok(())
}

fn step_on_a_part_of_the_device_is_only_called(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream_with(StreamOptions::default().multiprocessors(1))?;
    let stats = four_runs(device, &kernels, &s)?;
    assert!(stats.runs == 0 || s.multiprocessors() == device.info().multiprocessors);
    Ok(())
}

fn kernel_of_an_unloaded_module_is_not_launched(device: &Device) -> Result<()> {
    let (_, [s]) = kernels_and_streams(device)?;
    let (mut x, mut want) = (s.full(N, 1u32)?, 1);
    let mut step = device.replay();
    for t in 0..6 {
        let kernels = sync::Kernels::load(device)?;
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            kernels.step(s, &mut x, 2, N)
        })?;
        want = after(want, [t, 2]);
    }
    assert_all(&s, &x, want)
}

/// Runs steps that are cut, in a child with `GPUSTREAM_LINT=1`.
fn cut_steps(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let mut flag = device.flag()?;
    let mut step = device.replay();
    for t in 0..4 {
        step.run(&s, |s| {
            kernels.step(s, &mut x, t, N)?;
            s.synchronize()?;
            kernels.step(s, &mut x, t, N)?;
            kernels.raise_flag(s, &ONE, &mut flag, t)?;
            kernels.step(s, &mut x, t, N)?;
            s.host_fn(|| {})
        })?;
    }
    Ok(())
}

fn lint_names_the_lines_that_cut_a_step(device: &Device) -> Result<()> {
    let output = Child::of(device, "replay::cut_steps").env("GPUSTREAM_LINT", "1").succeeds()?;
    let of_steps: Vec<&str> = output.lines().filter(|line| line.contains("replayed step")).collect();
    if device.replay().fallback().is_some() {
        assert_eq!(of_steps, [""; 0]);
        return Ok(());
    }
    let parts = [
        "after this operation, because a thread or a stream waits for it",
        "this operation cuts a replayed step into two graphs, because it uses a flag",
        "this operation cuts a replayed step into two graphs, because it cannot be a node of a graph",
    ];
    for part in parts {
        let lines = of_steps.iter().filter(|line| line.contains(part) && line.contains("replay.rs:"));
        assert_eq!(lines.count(), 1, "{part}, once: {output}");
    }
    assert_eq!(of_steps.len(), parts.len(), "{output}");
    Ok(())
}
