//! The host can copy variables in kernel files. Each copy must be ordered with every launch that may use the variable.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use conformance::globals::{Filter, Kernels};
use conformance::{
    Gate, ONE, constants, next, on_threads, open_again, overlaps, refused, streams, streams_are_independent,
    tests, unlisted, until,
};
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, Global, Padding, Result, Stream, Tracking};

tests! {
    Plain: variables_begin_with_the_values_of_the_source, constants_are_set_between_launches,
        variables_are_copied_filled_and_sliced, internal_variables_are_found_or_said_to_be_missing,
        each_loading_has_variables_of_its_own, writes_wait_for_readers_of_other_streams,
        readers_wait_for_writes_of_other_streams, kernels_that_may_write_variables_are_ordered,
        kernels_that_may_write_unlisted_variables_are_ordered, steps_follow_unlisted_variables,
        strict_order_counts_variables, graphs_read_the_values_of_their_launch, graphs_keep_the_module_loaded,
        nodes_copy_to_variables, steps_follow_variables, unchanged_step_is_one_launch,
        module_dropped_in_use_finishes, forgotten_handles_break_nothing, what_does_not_fit_is_refused,
        threads_lose_no_update, threads_never_see_half_a_value;
    Plain if overlaps, streams_are_independent: readers_of_constants_run_at_once;
}

const N: usize = 1000;

fn loaded<const STREAMS: usize>(device: &Device) -> Result<(Kernels, [Stream; STREAMS])> {
    Ok((Kernels::load(device)?, streams(device)?))
}

fn filter(value: u32) -> Filter {
    let mut filter = Filter { gain: value as f32, shift: [value; 2], kind: value as u8, ..Filter::default() };
    filter.padding_13 = Padding::default();
    filter
}

/// Returns what `apply` computes with these constants.
fn applied(factors: [u32; 4], offset: u32) -> Vec<u32> {
    (0..N as u32).map(|i| i.wrapping_mul(factors[i as usize % 4]).wrapping_add(offset)).collect()
}

fn apply(kernels: &Kernels, stream: &Stream, y: &mut Buffer<u32>) -> Result<()> {
    kernels.apply(stream, y, N as u32)
}

fn looked(kernels: &Kernels, stream: &Stream) -> Result<Vec<u32>> {
    let mut out = stream.zeros::<u32>(8)?;
    kernels.look(stream, &ONE, &mut out)?;
    stream.download(&out)
}

/// Makes a closed gate, and launches a kernel that waits there and may use the variables.
#[track_caller]
fn hold(kernels: &Kernels, stream: &Stream) -> Result<Gate> {
    let gate = Gate::new(stream.device())?;
    kernels.hold(stream, &ONE, gate.flag())?;
    Ok(gate)
}

fn variables_begin_with_the_values_of_the_source(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let mut y = s.alloc(N)?;
    apply(&kernels, &s, &mut y)?;
    assert_eq!(s.download(&y)?, applied([1, 2, 3, 4], 0));
    assert_eq!(looked(&kernels, &s)?, [0, 0, 0, 0, 6, 11, 0, 9]);
    assert_eq!(kernels.factors()?.download(&s)?, [1, 2, 3, 4]);
    assert_eq!(kernels.table()?.download(&s)?, [[1, 2, 3], [4, 5, 6]]);
    assert_eq!(kernels.counter()?.download(&s)?, [0]);
    assert_eq!(kernels.settings()?.download(&s)?, [filter(0)]);
    Ok(())
}

fn constants_are_set_between_launches(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let mut results = Vec::new();
    for round in 0..20 {
        kernels.set_factors(&s, &[round, 1, round * 7, 2])?;
        kernels.set_offset(&s, round * 100)?;
        let mut y = s.alloc(N)?;
        apply(&kernels, &s, &mut y)?;
        results.push(y);
    }
    for (round, y) in (0..).zip(&results) {
        assert_eq!(s.download(y)?, applied([round, 1, round * 7, 2], round * 100), "round {round}");
    }
    kernels.set_settings(&s, filter(9))?;
    assert_eq!(looked(&kernels, &s)?[..4], [9; 4]);
    assert_eq!(looked(&kernels, &s)?[7], 2 + 7);
    Ok(())
}

fn variables_are_copied_filled_and_sliced(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let table = kernels.table()?;
    assert_eq!((table.len(), table.is_empty(), table.slice(..0)?.is_empty()), (2, false, true));
    assert!(table.device().info().backend == device.info().backend);
    table.slice(1..)?.upload(&s, &[[7, 8, 9]])?;
    assert_eq!(looked(&kernels, &s)?[4], 9);
    table.slice(..1)?.fill(&s, [3; 3])?;
    assert_eq!(table.download(&s)?, [[3; 3], [7, 8, 9]]);
    // No driver can fill with such a value.
    table.fill(&s, [1, 2, 4])?;
    let mut copy = s.zeros::<[u32; 3]>(2)?;
    table.copy_to(&s, &mut copy)?;
    assert_eq!(s.download(&copy)?, [[1, 2, 4]; 2]);
    let mut host = device.pinned_from(&[[5u32, 6, 7]; 2])?;
    table.copy_from(&s, &host)?;
    host.write()?.fill([0; 3]);
    table.slice(..1)?.copy_to(&s, &mut host.slice_mut(1..)?)?;
    assert_eq!(*host.read()?, [[0; 3], [5, 6, 7]]);
    table.slice(..0)?.upload(&s, &[])?;
    table.slice(2..)?.fill(&s, [1; 3])?;
    assert_eq!(table.slice(..0)?.download(&s)?, [[0u32; 3]; 0]);
    let counter = kernels.counter()?;
    counter.fill(&s, 3)?;
    kernels.count(&s, &ONE, 4)?;
    assert_eq!(counter.clone().download(&s)?, [19]);
    assert!(format!("{counter:?}").contains("1 elements"), "{counter:?}");
    // The name is yours, but you may ask for another type of the same size.
    // SAFETY: any bytes are good factors.
    let bytes = unsafe { kernels.module().global::<[u8; 2]>("factors") }?;
    assert_eq!(bytes.len(), 8);
    bytes.slice(1..3)?.upload(&s, &[[1, 0], [0, 1]])?;
    assert_eq!(kernels.factors()?.download(&s)?, [0x1_0001, 0x100, 3, 4]);
    Ok(())
}

/// The compiler gives `static` variables, and those in a namespace without a name, symbols that we may not find. Then
/// the error must say so.
fn internal_variables_are_found_or_said_to_be_missing(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let mut want = 11;
    for (variable, before) in [(kernels.hidden(), 5), (kernels.own(), 6)] {
        match variable {
            Ok(variable) => {
                assert_eq!(variable.download(&s)?, [before]);
                variable.fill(&s, before + 100)?;
                want += 100;
            }
            Err(error) => {
                assert_ne!(device.info().backend, gpustream::BackendName::CPU);
                refused::<()>(Err(error), ErrorKind::GlobalNotFound, &["globals"]);
            }
        }
    }
    assert_eq!(looked(&kernels, &s)?[5], want);
    Ok(())
}

fn each_loading_has_variables_of_its_own(device: &Device) -> Result<()> {
    let (one, [s]) = loaded(device)?;
    let other = Kernels::load(device)?;
    one.set_offset(&s, 5)?;
    other.set_offset(&s, 6)?;
    one.count(&s, &ONE, 7)?;
    let (mut x, mut y) = (s.alloc(N)?, s.alloc(N)?);
    apply(&one, &s, &mut x)?;
    apply(&other.clone(), &s, &mut y)?;
    assert_eq!((s.download(&x)?[0], s.download(&y)?[0]), (5, 6));
    assert_eq!((one.counter()?.download(&s)?, other.counter()?.download(&s)?), (vec![7], vec![0]));
    Ok(())
}

fn writes_wait_for_readers_of_other_streams(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = loaded(device)?;
    let mut y = a.alloc(N)?;
    let host = device.pinned_from(&[6u32; 4])?;
    let gate = hold(&kernels, &a)?;
    apply(&kernels, &a, &mut y)?;
    kernels.factors()?.copy_from(&b, &host)?;
    assert!(!b.is_done()?, "a kernel that may read the constants still runs");
    gate.open();
    assert_eq!(kernels.factors()?.download(&b)?, [6; 4]);
    assert_eq!(a.download(&y)?, applied([1, 2, 3, 4], 0), "the kernel came first");
    Ok(())
}

fn readers_wait_for_writes_of_other_streams(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = loaded(device)?;
    let (sync, host) = (conformance::sync::Kernels::load(device)?, device.pinned_from(&[6u32; 4])?);
    let mut y = b.alloc(N)?;
    let gate = Gate::on(&sync, &a)?;
    kernels.factors()?.copy_from(&a, &host)?;
    apply(&kernels, &b, &mut y)?;
    assert!(!b.is_done()?, "the constants are not there yet");
    gate.open();
    assert_eq!(b.download(&y)?, applied([6; 4], 0));
    Ok(())
}

fn readers_of_constants_run_at_once(device: &Device) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let kernels = constants::Kernels::load(device)?;
    let mut y = b.alloc(N)?;
    let (mut here, host) = (device.flag()?, device.pinned_from(&[4u32])?);
    assert_eq!(kernels.scale()?.download(&b)?, [3]);
    let gate = Gate::new(device)?;
    kernels.hold(&a, &ONE, &mut here, gate.flag())?;
    until(|| Ok(here.get() == 1))?;
    kernels.multiples(&b, &mut y, N as u32)?;
    assert_eq!(b.download(&y)?[7], 21, "a kernel that runs reads the same constant");
    assert_eq!(kernels.scale()?.download(&b)?, [3], "so does a copy");
    kernels.scale()?.copy_from(&b, &host)?;
    assert!(!b.is_done()?);
    gate.open();
    kernels.multiples(&b, &mut y, N as u32)?;
    assert_eq!(b.download(&y)?[7], 28);
    Ok(())
}

fn kernels_that_may_write_variables_are_ordered(device: &Device) -> Result<()> {
    let (kernels, streams) = loaded::<4>(device)?;
    let gate = hold(&kernels, &streams[0])?;
    let mut want = 0;
    for value in 0..200 {
        kernels.count(&streams[value as usize * 7 % 4], &ONE, value)?;
        want = next(want, value);
    }
    assert!(streams.iter().all(|stream| stream.is_done().is_ok_and(|done| !done)));
    gate.open();
    assert_eq!(kernels.counter()?.download(&streams[3])?, [want]);
    Ok(())
}

/// The builder's parser sees none of these variables, so the library can know them only from the images.
fn kernels_that_may_write_unlisted_variables_are_ordered(device: &Device) -> Result<()> {
    let (kernels, streams) = (unlisted::Kernels::load(device)?, streams::<4>(device)?);
    let gate = Gate::new(device)?;
    kernels.hold(&streams[0], &ONE, gate.flag())?;
    let mut want = [0; 7];
    for value in 0..200 {
        let which = value % 7;
        kernels.count(&streams[value as usize * 3 % 4], &ONE, which, value)?;
        want[which as usize] = next(want[which as usize], value);
    }
    assert!(streams.iter().all(|stream| stream.is_done().is_ok_and(|done| !done)));
    gate.open();
    let mut seen = streams[3].alloc::<u32>(7)?;
    kernels.look(&streams[3], &ONE, &mut seen)?;
    assert_eq!(streams[3].download(&seen)?, want);
    Ok(())
}

fn steps_follow_unlisted_variables(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = (unlisted::Kernels::load(device)?, streams(device)?);
    let (mut step, mut want) = (device.replay(), [0; 7]);
    for round in 0..8 {
        step.run(&s, |s| (0..7).try_for_each(|which| kernels.count(s, &ONE, which, 3)))?;
        kernels.count(&other, &ONE, 2, round)?;
        want = want.map(|before| next(before, 3));
        want[2] = next(want[2], round);
    }
    let mut seen = s.alloc::<u32>(7)?;
    kernels.look(&s, &ONE, &mut seen)?;
    assert_eq!(s.download(&seen)?, want);
    Ok(())
}

fn strict_order_counts_variables(device: &Device) -> Result<()> {
    let strict = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [a, b]) = loaded(&strict)?;
    let gate = hold(&kernels, &a)?;
    refused(kernels.count(&b, &ONE, 1), ErrorKind::Hazard, &["count", "hold", "globals.rs"]);
    refused(kernels.set_offset(&b, 1), ErrorKind::Hazard, &["hold"]);
    b.wait(&a.record()?)?;
    kernels.set_offset(&b, 1)?;
    kernels.count(&b, &ONE, 1)?;
    gate.open();
    b.synchronize()
}

fn graphs_read_the_values_of_their_launch(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = loaded(device)?;
    let (mut y, next_offset) = (s.zeros(N)?, s.upload(&[50u32])?);
    let graph = s.capture(|s| {
        refused(kernels.set_offset(s, 1), ErrorKind::Captured, &[]);
        refused(kernels.offset()?.download(s), ErrorKind::Captured, &[]);
        apply(&kernels, s, &mut y)?;
        kernels.offset()?.copy_from(s, &next_offset)?;
        kernels.count(s, &ONE, 3)
    })?;
    assert_eq!(kernels.offset()?.download(&s)?, [0], "a capture runs nothing");
    graph.launch(&s)?;
    assert_eq!(s.download(&y)?, applied([1, 2, 3, 4], 0));
    graph.launch(&other)?;
    assert_eq!(s.download(&y)?, applied([1, 2, 3, 4], 50), "the graph's own copy of the launch before");
    kernels.set_factors(&s, &[9; 4])?;
    kernels.set_offset(&other, 8)?;
    graph.launch(&s)?;
    assert_eq!(other.download(&y)?, applied([9; 4], 8));
    // A launch of the graph uses the variables, so a copy on another stream must wait for it.
    let gate = hold(&kernels, &s)?;
    graph.launch(&s)?;
    kernels.counter()?.fill(&other, 1)?;
    assert!(!other.is_done()?);
    gate.open();
    graph.launch(&s)?;
    assert_eq!(kernels.counter()?.download(&other)?, [8]);
    Ok(())
}

fn graphs_keep_the_module_loaded(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let (mut seen, source) = (s.zeros::<u32>(1)?, s.upload(&[5u32])?);
    // No kernel of the module is in this graph.
    let graph = s.capture(|s| {
        kernels.counter()?.copy_to(s, &mut seen)?;
        kernels.counter()?.copy_from(s, &source)
    })?;
    drop(kernels);
    // When you make a stream, the library looks for what it can free.
    drop(device.stream()?);
    for want in [0, 5, 5] {
        graph.launch(&s)?;
        assert_eq!(s.download(&seen)?, [want]);
    }
    graph.launch(&s)?;
    drop(graph);
    device.trim();
    s.synchronize()
}

fn nodes_copy_to_variables(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let (mut y, source) = (s.zeros(N)?, s.upload(&[4u32])?);
    let mut builder = device.graph_builder()?;
    // We give no edge between these nodes, so the library must order them by their variables.
    builder.node(&[], |s| kernels.offset()?.copy_from(s, &source))?;
    builder.node(&[], |s| apply(&kernels, s, &mut y))?;
    builder.node(&[], |s| kernels.offset()?.fill(s, 2))?;
    let graph = builder.build()?;
    for _ in 0..3 {
        graph.launch(&s)?;
        assert_eq!(s.download(&y)?, applied([1, 2, 3, 4], 4));
        assert_eq!(kernels.offset()?.download(&s)?, [2]);
    }
    Ok(())
}

fn steps_follow_variables(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = loaded(device)?;
    let (mut x, mut y) = (s.zeros(N)?, s.zeros(N)?);
    let mut step = device.replay();
    let mut want = 0;
    for round in 0..8 {
        let source = s.upload(&[round])?;
        if round % 3 == 2 {
            kernels.set_factors(&other, &[round; 4])?;
        }
        step.run(&s, |s| {
            apply(&kernels, s, &mut x)?;
            kernels.offset()?.copy_from(s, &source)?;
            apply(&kernels, s, &mut y)?;
            kernels.count(s, &ONE, round)?;
            // This launch on another stream must come after what the step holds back.
            if round % 2 == 1 { kernels.count(&other, &ONE, round + 100) } else { Ok(()) }
        })?;
        want = next(want, round);
        if round % 2 == 1 {
            want = next(want, round + 100);
        }
        let factors = if round < 2 { [1, 2, 3, 4] } else { [(round - 2) / 3 * 3 + 2; 4] };
        assert_eq!(s.download(&x)?, applied(factors, round.saturating_sub(1)), "round {round}");
        assert_eq!(s.download(&y)?, applied(factors, round), "round {round}");
        assert_eq!(kernels.counter()?.download(&s)?, [want], "round {round}");
    }
    Ok(())
}

fn unchanged_step_is_one_launch(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let (mut y, source) = (s.zeros(N)?, s.upload(&[6u32])?);
    let mut step = device.replay();
    let mut want = 0;
    for round in 0..6 {
        step.run(&s, |s| {
            kernels.offset()?.copy_from(s, &source)?;
            apply(&kernels, s, &mut y)?;
            kernels.count(s, &ONE, round)
        })?;
        want = next(want, round);
    }
    assert_eq!(s.download(&y)?, applied([1, 2, 3, 4], 6));
    assert_eq!(kernels.counter()?.download(&s)?, [want]);
    if step.fallback().is_none() {
        let stats = step.stats();
        assert_eq!((stats.runs, stats.launches, stats.recordings, stats.plain), (6, 5, 1, 3), "{stats:?}");
    }
    Ok(())
}

fn module_dropped_in_use_finishes(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = loaded(device)?;
    let (again, [c]) = loaded(device)?;
    let (mut seen, host) = (b.zeros::<u32>(1)?, device.pinned_from(&[9u32])?);
    a.synchronize()?;
    let gate = hold(&kernels, &a)?;
    let counter = kernels.counter()?;
    drop(kernels);
    counter.copy_from(&b, &host)?;
    counter.copy_to(&b, &mut seen)?;
    drop(counter);
    // When you make a stream, the library looks for what it can destroy.
    drop(device.stream()?);
    again.counter()?.fill(&c, 77)?;
    assert!(!b.is_done()?);
    gate.open();
    assert_eq!(b.download(&seen)?, [9]);
    assert_eq!(again.counter()?.download(&c)?, [77]);
    Ok(())
}

fn forgotten_handles_break_nothing(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    kernels.set_offset(&s, 3)?;
    mem::forget(kernels.offset()?);
    mem::forget((kernels.clone(), kernels.counter()?));
    kernels.set_offset(&s, 4)?;
    assert_eq!(kernels.offset()?.download(&s)?, [4]);
    drop(kernels);
    device.trim();
    s.synchronize()
}

fn what_does_not_fit_is_refused(device: &Device) -> Result<()> {
    let (kernels, [s]) = loaded(device)?;
    let module = kernels.module();
    // SAFETY: nothing is written through these.
    unsafe {
        refused(module.global::<u64>("offset"), ErrorKind::ArgumentMismatch, &["`offset`", "u64", "4 bytes"]);
        refused(module.global::<[u32; 3]>("factors"), ErrorKind::ArgumentMismatch, &["4 are left over"]);
        refused(module.global::<()>("factors"), ErrorKind::ArgumentMismatch, &["no bytes"]);
        refused(
            module.global::<u32>("primes"),
            ErrorKind::GlobalNotFound,
            &["primes", "it has: ", "factors"],
        );
        for name in ["", "settings", "count", "a\0b"] {
            refused(module.global::<u32>(name), ErrorKind::GlobalNotFound, &["in module `globals`"]);
        }
        module.global::<Filter>("filter::settings")?;
        module.global::<usize>("address")?;
        let constants = constants::Kernels::load(device)?;
        refused(constants.module().global::<u32>("offset"), ErrorKind::GlobalNotFound, &["it has: scale"]);
        let sync = conformance::sync::Kernels::load(device)?;
        refused(sync.module().global::<u32>("offset"), ErrorKind::GlobalNotFound, &["it has: none"]);
    }
    for wrong in [0, 3, 5] {
        refused(kernels.set_factors(&s, &vec![1; wrong]), ErrorKind::ArgumentMismatch, &[]);
    }
    let factors = kernels.factors()?;
    refused(factors.slice(..5), ErrorKind::OutOfBounds, &[]);
    let mut short = s.zeros::<u32>(3)?;
    refused(factors.copy_from(&s, &short), ErrorKind::ArgumentMismatch, &[]);
    refused(factors.copy_to(&s, &mut short), ErrorKind::ArgumentMismatch, &[]);
    refused(factors.copy_from(&s, &s.alloc::<u32>(4)?), ErrorKind::Uninitialized, &[]);
    let again = open_again(device, DeviceOptions::default())?;
    let elsewhere = again.stream()?;
    refused(factors.download(&elsewhere), ErrorKind::DeviceMismatch, &["variable"]);
    refused(kernels.set_factors(&elsewhere, &[1; 4]), ErrorKind::DeviceMismatch, &["variable"]);
    refused(factors.fill(&elsewhere, 1), ErrorKind::DeviceMismatch, &["variable"]);
    assert_eq!(factors.download(&s)?, [1, 2, 3, 4]);
    Ok(())
}

fn threads_lose_no_update(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    on_threads(4, |_| {
        let s = device.stream()?;
        (0..300).try_for_each(|_| kernels.tally(&s, &ONE, 200))
    })?;
    // SAFETY: nothing is written.
    let moving = unsafe { kernels.module().global::<u32>("moving") }?;
    assert_eq!(moving.download(&device.stream()?)?, [4 * 300 * 200]);
    Ok(())
}

/// Each thread has its own handle of the variable, so no borrow separates their copies and launches. The library must.
fn threads_never_see_half_a_value(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let failed = AtomicBool::new(false);
    let values = |settings: &Global<Filter>, s: &Stream| -> Result<Vec<u32>> {
        let Filter { gain, shift: [a, b], kind, .. } = settings.download(s)?[0];
        Ok(vec![gain as u32, a, b, u32::from(kind)])
    };
    on_threads(4, |thread| {
        let s = device.stream()?;
        let settings = kernels.settings()?;
        let mut out = s.zeros::<u32>(8)?;
        let (source, graph_source) =
            (device.pinned_from(&[filter(thread)])?, s.upload(&[filter(thread + 4)])?);
        let graph = s.capture(|s| {
            settings.copy_from(s, &graph_source)?;
            kernels.look(s, &ONE, &mut out)
        });
        // Other threads' captures lock this one out of the context for short times.
        for _ in 0..50 {
            kernels.set_settings(&s, filter(thread + 8))?;
            settings.copy_from(&s, &source)?;
            kernels.look(&s, &ONE, &mut out)?;
            let mut seen = vec![s.download(&out)?[..4].to_vec(), values(&settings, &s)?];
            if let Ok(graph) = &graph {
                graph.launch(&s)?;
                seen.push(s.download(&out)?[..4].to_vec());
            }
            let whole = seen.iter().all(|seen| seen.iter().all(|value| *value == seen[0]));
            failed.fetch_or(!whole, Ordering::Relaxed);
        }
        Ok(())
    })?;
    assert!(!failed.into_inner(), "a kernel or copy saw parts of two values");
    Ok(())
}
