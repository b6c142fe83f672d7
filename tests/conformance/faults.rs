//! If the device has a fault, every wait must report it, and only that device becomes unusable.
//!
//! A fault may ruin the driver's context for the whole process, so each one happens in its own process.

use std::sync::atomic::{AtomicBool, Ordering};

use conformance::{
    Child, Gate, ONE, assert_all, faulty, kernels_and_streams, open_again, overlaps, refused, sync, tests,
    until, with_stream,
};
use gpustream::{
    Arg, AsViewMut, Buffer, Device, DeviceOptions, ErrorKind, Event, Launch, Result, Stream, WaitValue,
};

use crate::conditions::has_conditions;
use crate::flags::waits_for_flags;

tests! {
    Isolated: an_illegal_address_reaches_every_wait, a_failed_assertion_is_reported,
        a_failed_assertion_is_in_the_users_words, a_trap_is_reported,
        a_fault_inside_a_replayed_step_is_reported,
        errors_after_the_first_report_say_that_the_device_failed_earlier,
        waiting_for_closures_after_a_fault_is_an_error, everything_can_be_dropped_after_a_fault,
        memory_that_a_lost_device_was_to_write_is_refused_for_good,
        a_download_that_a_fault_ends_leaves_the_slice_alone;
    Isolated if has_conditions: a_fault_ends_a_loop_of_a_graph;
    Isolated if overlaps: memory_stays_while_work_beside_a_fault_may_run;
    Isolated if waits_for_flags: a_flag_set_beside_a_fault_ends_the_wait;
    Plain: other_processes_are_unaffected, blocking_mode_names_the_failing_operation;
    CpuOnly: a_grid_barrier_in_an_ordinary_launch_is_reported, checked_mode_reports_overruns_and_nothing_else,
        waits_last_until_work_beside_a_fault_ends, a_fault_ends_waits_for_flags,
        off_by_one_is_noticed_at_every_length, writes_outside_of_views_are_noticed;
    Part: fault, fault_while_blocking, write_off_by_one, read_off_by_one, write_out_of_bounds_of_array,
        compute_in_checked_mode, write_outside_of_views, write_beside_other_work;
}

/// No process has memory at this address.
const NOWHERE: usize = 0x0dea_d000_0000;

/// Launches a kernel that writes to an address without memory.
fn break_device(device: &Device) -> Result<()> {
    Breaker::new(device)?.break_device()
}

/// A kernel and a stream that can break the device while other kernels wait. We make them early, because loading code
/// may wait for those kernels.
struct Breaker(faulty::Kernels, Stream);

impl Breaker {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self(faulty::Kernels::load(device)?, device.stream()?))
    }

    fn break_device(&self) -> Result<()> {
        // SAFETY: this process is made to fail.
        unsafe { self.0.wild(&self.1, &ONE, NOWHERE) }?;
        self.1.synchronize()
    }
}

#[track_caller]
fn lost<T>(result: Result<T>, what: &str) {
    let Err(error) = result else { panic!("{what} does not report the fault") };
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{what}: {error}");
}

/// Asserts that the stream's work has failed. On the CPU the message is ours, so there the error must also contain
/// these texts.
#[track_caller]
fn fails_saying(s: &Stream, texts: &[&str]) {
    let ours = s.device().info().backend == gpustream::BackendName::CPU;
    refused(s.synchronize(), ErrorKind::DeviceLost, if ours { texts } else { &[] });
}

/// You may have prepared a wait before the fault or after it. It must report the fault in both cases.
fn an_illegal_address_reaches_every_wait(device: &Device) -> Result<()> {
    let (kernels, broken) = (sync::Kernels::load(device)?, faulty::Kernels::load(device)?);
    let (s, other) = (device.stream()?, device.stream()?);
    let mut host = device.pinned::<u32>(10)?;
    let mut x = s.full(10, 1u32)?;
    s.synchronize()?;
    // SAFETY: this process is made to fail.
    unsafe { broken.wild(&s, &ONE, NOWHERE) }?;
    let event = s.record();
    let copied = s.copy(&x, &mut host);
    lost(s.synchronize(), "the stream");
    lost(s.synchronize(), "the stream, again");
    lost(s.is_done(), "a query of the stream");
    // The device may have failed before we submitted these.
    if let Ok(event) = &event {
        lost(event.synchronize(), "the event");
        lost(event.is_done(), "a query of the event");
    } else {
        lost(event, "the record");
    }
    if copied.is_ok() {
        lost(host.read(), "pinned memory");
        lost(host.is_done(), "a query of pinned memory");
    } else {
        lost(copied, "the copy");
    }
    lost(device.synchronize(), "the device");
    lost(s.download(&x), "a download");
    lost(other.synchronize(), "another stream");
    // The driver may still accept a launch, but no wait may say that it succeeded.
    let later = kernels.step(&other, &mut x, 1, 10).and_then(|()| other.synchronize());
    lost(later, "later work");
    Ok(())
}

/// The first report describes the fault. Each later error must say that the device failed earlier, and then repeat the
/// description.
fn errors_after_the_first_report_say_that_the_device_failed_earlier(device: &Device) -> Result<()> {
    const EARLIER: &str = "the device failed earlier: ";
    let (kernels, breaker) = (sync::Kernels::load(device)?, Breaker::new(device)?);
    let s = device.stream()?;
    let mut x = s.full(1000, 1u32)?;
    let event = s.record()?;
    let Err(first) = breaker.break_device() else { panic!("the wait does not report the fault") };
    assert!(!first.message().starts_with(EARLIER), "the first report: {first}");
    let waits = [
        ("the same stream", breaker.1.synchronize()),
        ("a query", s.is_done().map(drop)),
        ("a download", s.download(&x).map(drop)),
        ("the device", device.synchronize()),
    ];
    for (what, result) in waits {
        let Err(error) = result else { panic!("{what} does not report the fault") };
        assert!(error.message().starts_with(EARLIER), "{what}: {error}");
    }
    // After a fault the driver may still accept these, and the CPU starts its device again.
    let again = open_again(device, DeviceOptions::default());
    let others = [
        ("another handle of the device", again.and_then(|device| device.synchronize())),
        ("a launch", kernels.step(&s, &mut x, 1, 1000)),
        ("a record", s.record().map(drop)),
        ("an event", event.synchronize()),
        ("an allocation", s.alloc::<u32>(5 << 20).map(drop)),
        ("pinned memory", device.pinned::<u32>(5 << 20).map(drop)),
        ("a stream", device.stream().map(drop)),
        ("a module", faulty::Kernels::load(device).map(drop)),
    ];
    for (what, result) in others {
        if let Err(error) = result {
            assert!(error.message().starts_with(EARLIER), "{what}: {error}");
        }
    }
    Ok(())
}

fn a_failed_assertion_is_reported(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, faulty::Kernels::load)?;
    kernels.assert_less(&s, &Launch::new([4, 1, 1], [32, 1, 1]), 1, 2)?;
    s.synchronize()?;
    kernels.assert_less(&s, &Launch::new([4, 1, 1], [32, 1, 1]), 2, 1)?;
    fails_saying(&s, &["assert_less", "a < b", "faults.cu"]);
    Ok(())
}

/// The build renames the second variable called `value`, but the message must show your name.
fn a_failed_assertion_is_in_the_users_words(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, faulty::Kernels::load)?;
    let one_block = Launch::new([1; 3], [32, 1, 1]);
    kernels.assert_below(&s, &one_block, 32)?;
    s.synchronize()?;
    kernels.assert_below(&s, &one_block, 31)?;
    fails_saying(&s, &["assert_below", "`value < most`", "faults.cu"]);
    Ok(())
}

fn a_fault_inside_a_replayed_step_is_reported(device: &Device) -> Result<()> {
    let broken = faulty::Kernels::load(device)?;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(1000, 1u32)?;
    let mut step = device.replay();
    let mut run = |most: u32| {
        step.run(&s, |s| {
            kernels.step(s, &mut x, 1, 1000)?;
            broken.assert_less(s, &ONE, 1, most)?;
            kernels.step(s, &mut x, 2, 1000)
        })
    };
    for _ in 0..3 {
        run(2)?;
    }
    s.synchronize()?;
    run(1)?;
    lost(s.synchronize(), "the stream");
    // The driver may still accept a launch, but no wait may say that it succeeded.
    lost(run(2).and_then(|()| s.synchronize()), "a later run");
    drop(step);
    lost(s.download(&x), "a download");
    Ok(())
}

fn a_fault_ends_a_loop_of_a_graph(device: &Device) -> Result<()> {
    let broken = faulty::Kernels::load(device)?;
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (go_on, mut left) = (device.flag()?, s.full(1, 10u32)?);
    // This flag is never cleared, so its loop can end only by the fault.
    let for_ever = device.flag()?;
    go_on.set(1);
    for_ever.set(1);
    let graph = s.capture(|s| {
        s.while_(&for_ever, |s| {
            s.while_(&go_on, |s| kernels.count_down(s, &ONE, &mut left, &mut go_on.clone()))?;
            broken.assert_less(s, &ONE, 1, 1)
        })
    })?;
    graph.launch(&s)?;
    lost(s.synchronize(), "the stream");
    drop(graph);
    lost(s.download(&left), "a download");
    Ok(())
}

fn a_trap_is_reported(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, faulty::Kernels::load)?;
    kernels.give_up(&s, &ONE)?;
    fails_saying(&s, &["give_up"]);
    Ok(())
}

/// The closures may have run or not. A wait for them is an error in both cases.
fn waiting_for_closures_after_a_fault_is_an_error(device: &Device) -> Result<()> {
    lost(break_device(device), "the stream");
    let submitted = device.stream().and_then(|s| {
        s.host_fn(|| ())?;
        s.synchronize()
    });
    lost(submitted, "a stream with a closure");
    Ok(())
}

fn everything_can_be_dropped_after_a_fault(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, host, flag) = (s.full(1000, 1u32)?, device.pinned::<u32>(1000)?, device.flag()?);
    let (event, kernels) = (s.record()?, sync::Kernels::load(device)?);
    lost(break_device(device), "the stream");
    drop((x, host, flag, event, kernels));
    device.trim();
    let mine = open_again(device, DeviceOptions::default());
    drop((s, mine));
    Ok(())
}

/// Kernels wait at a gate while another one fails. Meanwhile we drop everything that they use: streams, code, and
/// memory of two handles. Memory that you allocate later must not lie at the same place, because the kernels may still
/// write there.
fn memory_stays_while_work_beside_a_fault_may_run(device: &Device) -> Result<()> {
    // An allocator keeps freed ranges for the next request. This is larger than any of them.
    const LEN: usize = 9 << 20;
    let breaker = Breaker::new(device)?;
    let again = || open_again(device, DeviceOptions::default());
    let (owner, user) = (again()?, again()?);
    let kernels = sync::Kernels::load(&user)?;
    let [s, t, u] = [user.stream()?, user.stream()?, user.stream()?];
    let mut registered = owner.register(vec![0u32; LEN])?;
    let (mut pinned, mut buffer) = (owner.pinned::<u32>(LEN)?, u.zeros::<u32>(LEN)?);
    let (gate, mut here) = (Gate::new(device)?, [device.flag()?, device.flag()?, device.flag()?]);
    kernels.arrive_and_set(&s, &mut here[0], gate.flag(), &mut registered, 0xdead, LEN)?;
    kernels.arrive_and_set(&t, &mut here[1], gate.flag(), &mut pinned, 0xdead, LEN)?;
    kernels.arrive_and_set(&u, &mut here[2], gate.flag(), &mut buffer, 0xdead, LEN)?;
    until(|| Ok(here.iter().all(|here| here.get() != 0)))?;
    lost(breaker.break_device(), "the stream");
    drop((registered, pinned, buffer, s, t, u, kernels));
    drop((owner, user));
    let mine: Vec<Vec<u32>> = (0..4).map(|_| vec![0xaaaa_aaaa; LEN]).collect();
    gate.open();
    // A GPU's fault ends all kernels, but on the CPU these run to their end.
    if device.info().backend == gpustream::BackendName::CPU {
        until(|| Ok(here.iter().all(|here| here.get() == 2)))?;
        until(|| Ok(device.raw().has_stopped()))?;
    }
    lost(device.synchronize(), "the device");
    assert!(mine.iter().flatten().all(|&x| x == 0xaaaa_aaaa), "a kernel wrote to memory that was freed");
    Ok(())
}

/// You must not get access to this memory even after you have dropped the failed device and its streams.
fn memory_that_a_lost_device_was_to_write_is_refused_for_good(device: &Device) -> Result<()> {
    let user = open_again(device, DeviceOptions::default())?;
    let (kernels, s) = with_stream(&user, faulty::Kernels::load)?;
    let x = s.full(1000, 1u32)?;
    let (mut pinned, mut registered) = (device.pinned::<u32>(1000)?, device.register(vec![0u32; 1000])?);
    let gate = Gate::new(device)?;
    s.synchronize()?;
    gate.hold(&sync::Kernels::load(&user)?, &s)?;
    // SAFETY: this process is made to fail.
    unsafe { kernels.wild(&s, &ONE, NOWHERE) }?;
    s.copy(&x, &mut pinned)?;
    s.copy(&x, &mut registered)?;
    gate.open();
    lost(s.synchronize(), "the stream");
    drop((x, s, kernels, user));
    for memory in [&mut pinned, &mut registered] {
        lost(memory.read(), "a reading guard");
        lost(memory.write(), "a writing guard");
        lost(memory.try_read(), "a try");
        lost(memory.is_done(), "a query");
    }
    Ok(())
}

/// If a download has failed, nothing may write to your slice later.
fn a_download_that_a_fault_ends_leaves_the_slice_alone(device: &Device) -> Result<()> {
    let (breaker, s) = (Breaker::new(device)?, device.stream()?);
    let kernels = sync::Kernels::load(device)?;
    let x = s.full(1 << 22, 0xdead_u32)?;
    let gate = Gate::new(device)?;
    s.synchronize()?;
    gate.hold(&kernels, &s)?;
    let mut values = vec![7u32; 1 << 22];
    std::thread::scope(|scope| {
        let download = scope.spawn(|| s.download_into(&x, &mut values));
        lost(breaker.break_device(), "the stream");
        gate.open();
        lost(download.join().expect("no panic"), "the download");
    });
    lost(device.synchronize(), "the device");
    assert!(values.iter().all(|&x| x == 7), "the slice was written");
    Ok(())
}

/// CUDA does not end the wait by itself. It reports the fault once the flag is set.
fn a_fault_ends_waits_for_flags(device: &Device) -> Result<()> {
    let (breaker, s) = (Breaker::new(device)?, device.stream()?);
    let (flag, mut host) = (device.flag()?, device.pinned::<u32>(10)?);
    s.wait_flag(&flag, WaitValue::Equal(1))?;
    s.fill(&mut host, 1)?;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| s.synchronize());
        lost(breaker.break_device(), "the stream with the fault");
        lost(waiting.join().expect("no panic"), "the stream that waits");
    });
    lost(host.read(), "memory behind the wait");
    Ok(())
}

fn a_flag_set_beside_a_fault_ends_the_wait(device: &Device) -> Result<()> {
    let (Breaker(kernels, broken), s) = (Breaker::new(device)?, device.stream()?);
    let flag = device.flag()?;
    s.wait_flag(&flag, WaitValue::Equal(1))?;
    // SAFETY: this process is made to fail.
    unsafe { kernels.wild(&broken, &ONE, NOWHERE) }?;
    flag.set(1);
    lost(broken.synchronize(), "the stream with the fault");
    // The wait may have ended before the fault.
    if let Err(error) = s.synchronize() {
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    }
    drop(flag);
    let later = device.flag().and_then(|flag| s.wait_flag(&flag, WaitValue::Equal(0)));
    lost(later.and_then(|()| s.synchronize()), "a later wait");
    Ok(())
}

/// A wait for other work must not return too early. It returns when that work has ended, or reports that it may still
/// run.
fn waits_last_until_work_beside_a_fault_ends(device: &Device) -> Result<()> {
    type Wait = fn(&Device, &Stream, &Event) -> Result<()>;
    let waits: [(&str, Wait); 3] = [
        ("the stream", |_, s, _| s.synchronize()),
        ("the event", |_, _, event| event.synchronize()),
        ("the device", |device, _, _| device.synchronize()),
    ];
    for (what, wait) in waits {
        let device = &open_again(device, DeviceOptions::default())?;
        let (kernels, [s]) = kernels_and_streams(device)?;
        let mut x = s.zeros::<u32>(1000)?;
        s.synchronize()?;
        let (gate, mut here) = (Gate::new(device)?, device.flag()?);
        kernels.arrive_and_set(&s, &mut here, gate.flag(), &mut x, 1, 1000)?;
        let event = s.record()?;
        until(|| Ok(here.get() != 0))?;
        lost(break_device(device), "another stream");
        let (waiting, opened) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                waiting.store(true, Ordering::SeqCst);
                lost(wait(device, &s, &event), what);
                let (stopped, in_time) = (device.raw().has_stopped(), opened.load(Ordering::SeqCst));
                assert!(!stopped || (in_time && here.get() == 2), "{what}: the kernel was not waited for");
            });
            until(|| Ok(waiting.load(Ordering::SeqCst)))?;
            (0..1000).for_each(|_| std::thread::yield_now());
            opened.store(true, Ordering::SeqCst);
            gate.open();
            Ok(())
        })?;
    }
    Ok(())
}

/// A child process has a fault, twice, while this process's work runs.
fn other_processes_are_unaffected(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(1000, 1u32)?;
    for _ in 0..2 {
        kernels.step(&s, &mut x, 1, 1000)?;
        let ended = Child::of(device, "faults::fault").run()?;
        assert_eq!(ended.code, Some(1), "{}", ended.output);
        assert!(ended.output.contains("DeviceLost"), "{}", ended.output);
        s.synchronize()?;
    }
    assert_all(&s, &x, 31)
}

fn fault(device: &Device) -> Result<()> {
    break_device(device)
}

/// With `GPUSTREAM_BLOCKING=1` the failing call itself must report the fault, with its name and line.
fn blocking_mode_names_the_failing_operation(device: &Device) -> Result<()> {
    Child::of(device, "faults::fault_while_blocking").env("GPUSTREAM_BLOCKING", "1").succeeds().map(drop)
}

fn fault_while_blocking(device: &Device) -> Result<()> {
    let (fine, kernels) = (sync::Kernels::load(device)?, faulty::Kernels::load(device)?);
    let s = device.stream()?;
    let mut x = s.full(10, 1u32)?;
    fine.step(&s, &mut x, 1, 10)?;
    let line = line!() + 2;
    // SAFETY: this process is made to fail.
    let result = unsafe { kernels.wild(&s, &ONE, NOWHERE) };
    let Err(error) = result else { panic!("the call returned before the fault") };
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    let operation = error.call_site().expect("an operation");
    assert_eq!(
        (operation.label, operation.location.file(), operation.location.line()),
        ("wild", file!(), line)
    );
    Ok(())
}

/// Here a block waits for another one that may never start, because the launch is not cooperative. A GPU would hang.
fn a_grid_barrier_in_an_ordinary_launch_is_reported(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let ring = kernels.module().kernel("ring")?;
    let s = device.stream()?;
    let (mut x, mut next, mut arrivals) = (s.zeros::<u32>(64)?, s.zeros::<u32>(64)?, s.zeros::<u32>(1)?);
    let launch = |blocks, x: &mut Buffer<u32>, next: &mut Buffer<u32>, arrivals: &mut Buffer<u32>| {
        let args =
            [Arg::write(x), Arg::write(next), Arg::write(arrivals), Arg::value(&2u32), Arg::value(&64usize)];
        // SAFETY: the arrays have the length given to the kernel; the backend detects the barrier.
        unsafe { ring.launch(&s, &Launch::new([blocks, 1, 1], [8, 1, 1]), &args) }
    };
    launch(1, &mut x, &mut next, &mut arrivals)?;
    s.synchronize()?;
    launch(64, &mut x, &mut next, &mut arrivals)?;
    fails_saying(&s, &["`ring`", "grid barrier", "not cooperative", "sync.cu:"]);
    Ok(())
}

/// One child does nothing wrong. The other writes beyond an array, and only checked mode can notice that.
fn checked_mode_reports_overruns_and_nothing_else(device: &Device) -> Result<()> {
    let checked = |part: &str| Child::of(device, part).env("GPUSTREAM_CHECK", "1");
    checked("faults::compute_in_checked_mode").succeeds()?;
    let ended = checked("faults::write_out_of_bounds_of_array").run()?;
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    let said = ["DeviceLost", "shared_array_overrun"].iter().all(|part| ended.output.contains(part));
    assert!(said, "{}", ended.output);
    Ok(())
}

fn off_by_one_is_noticed_at_every_length(device: &Device) -> Result<()> {
    for part in ["faults::write_off_by_one", "faults::read_off_by_one"] {
        Child::of(device, part).env("GPUSTREAM_CHECK", "1").env("GPUSTREAM_CPU_THREADS", "1").succeeds()?;
    }
    Ok(())
}

fn writes_outside_of_views_are_noticed(device: &Device) -> Result<()> {
    for part in ["faults::write_outside_of_views", "faults::write_beside_other_work"] {
        Child::of(device, part).env("GPUSTREAM_CHECK", "1").succeeds()?;
    }
    Ok(())
}

/// The writes stay inside the allocation, so no guard page notices them. Each gets its own device.
fn write_outside_of_views(device: &Device) -> Result<()> {
    let behind = "writes element 50 of argument 1, whose view has 50 elements";
    let before = "writes element -1 of argument 1, whose view has 50 elements";
    let [read_only, size] = ["writes element 5 of argument 1, which it may only read", "of 400 bytes"];
    let views = [(0..50, 50, behind, "200 bytes into"), (50..100, usize::MAX, before, "196 bytes into")];
    for (range, index, what, place) in views {
        let device = open_again(device, DeviceOptions::default())?;
        let (kernels, s) = with_stream(&device, faulty::Kernels::load)?;
        let mut x = s.zeros::<u32>(100)?;
        // SAFETY: the index lies in the same allocation, which nothing else uses.
        let launched = unsafe { kernels.write_at(&s, &ONE, &mut x.slice_mut(range)?, index, 7) };
        let ran = launched.and_then(|()| s.synchronize());
        refused(ran, ErrorKind::DeviceLost, &["`write_at`", what, place, size]);
    }
    let device = open_again(device, DeviceOptions::default())?;
    let (kernels, s) = with_stream(&device, faulty::Kernels::load)?;
    let (write_at, x) = (kernels.module().kernel("write_at")?, s.zeros::<u32>(100)?);
    let args = [Arg::read(&x), Arg::value(&5usize), Arg::value(&7u32)];
    // SAFETY: the index lies in the memory, which nothing else uses.
    let ran = unsafe { write_at.launch(&s, &ONE, &args) }.and_then(|()| s.synchronize());
    refused(ran, ErrorKind::DeviceLost, &["`write_at`", read_only, "20 bytes into", size]);
    Ok(())
}

/// Here other operations write what lies outside of a launch's views, and that is right.
fn write_beside_other_work(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(100)?;
    // Both views of one allocation belong to the launch.
    let (left, mut right) = x.split_at_mut(50)?;
    kernels.mix(&a, &left, &mut right, 50)?;
    a.synchronize()?;
    for kernel in [false, true] {
        let (mut here, gate) = (device.flag()?, Gate::new(device)?);
        let (mut left, mut right) = x.split_at_mut(50)?;
        kernels.arrive_and_set(&a, &mut here, gate.flag(), &mut left, 3, 50)?;
        until(|| Ok(here.get() != 0))?;
        // The launch has begun, and cannot end before this is written.
        if kernel {
            kernels.step(&b, &mut right, 4, 50)?;
        } else {
            b.fill(&mut right, 2)?;
        }
        b.synchronize()?;
        gate.open();
        a.synchronize()?;
    }
    let mut want = [3; 100];
    want[50..].fill(14);
    assert_eq!(a.download(&x)?, want);
    // Launches that are alone are compared again.
    let faulty = faulty::Kernels::load(device)?;
    // SAFETY: the index lies in the same allocation, which nothing else uses.
    let launched = unsafe { faulty.write_at(&a, &ONE, &mut x.slice_mut(..50)?, 70, 7) };
    refused(
        launched.and_then(|()| a.synchronize()),
        ErrorKind::DeviceLost,
        &["writes element 70 of argument 1"],
    );
    Ok(())
}

/// Each write gets its own device, because it makes the device unusable.
fn write_off_by_one(device: &Device) -> Result<()> {
    for len in [0usize, 1, 4, 250, 1000, 1025] {
        for index in [len, usize::MAX] {
            for kind in 0..3 {
                let device = open_again(device, DeviceOptions::default())?;
                let (kernels, s) = with_stream(&device, faulty::Kernels::load)?;
                let (mut buffer, mut pinned, mut managed);
                let mut x = match kind {
                    0 => {
                        buffer = s.zeros::<u32>(len)?;
                        buffer.view_mut()
                    }
                    1 => {
                        pinned = device.pinned::<u32>(len)?;
                        pinned.view_mut()
                    }
                    _ => {
                        managed = device.managed::<u32>(len)?;
                        managed.view_mut()
                    }
                };
                // SAFETY: the index lies within the margin that checked mode puts around an allocation.
                let launched = unsafe { kernels.write_at(&s, &ONE, &mut x, index, 7) };
                // The launch itself may already report the fault if we record an event after the kernel.
                let ran = launched.and_then(|()| s.synchronize());
                assert!(ran.is_err(), "{kind}: index {index} of {len} went unnoticed");
                refused(ran, ErrorKind::DeviceLost, &["write_at", &format!("of {} bytes", 4 * len)]);
            }
        }
    }
    Ok(())
}

/// Checked mode notices a read if it begins at the first multiple of 16 bytes after the last element, or later.
fn read_off_by_one(device: &Device) -> Result<()> {
    for len in [0usize, 1, 4, 5, 128, 250, 1000, 1024, 1025] {
        let device = open_again(device, DeviceOptions::default())?;
        let (kernels, s) = with_stream(&device, faulty::Kernels::load)?;
        let (x, mut seen) = (s.zeros::<u32>(len)?, s.zeros::<u32>(1)?);
        // SAFETY: the index lies within the margin that checked mode puts around an allocation.
        unsafe { kernels.read_at(&s, &ONE, &x, len.next_multiple_of(4), &mut seen) }?;
        let ran = s.synchronize();
        assert!(ran.is_err(), "a read behind {len} went unnoticed");
        refused(ran, ErrorKind::DeviceLost, &["read_at"]);
    }
    Ok(())
}

fn write_out_of_bounds_of_array(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, faulty::Kernels::load)?;
    let mut out = s.zeros::<u32>(1)?;
    // SAFETY: index 16 lies behind the row, but within the array.
    unsafe { kernels.shared_array_overrun(&s, &ONE, &mut out, 16) }?;
    s.synchronize()
}

fn compute_in_checked_mode(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(1000, 1u32)?;
    kernels.step(&s, &mut x, 1, 1000)?;
    let bounds = faulty::Kernels::load(device)?;
    // SAFETY: the accesses are to the last element of the buffer and the last word of shared memory.
    unsafe {
        bounds.write_at(&s, &ONE, &mut x, 999, 7)?;
        bounds.shared_overrun(&s, &Launch::new([1; 3], [4, 1, 1]).shared(64), 15)?;
    }
    assert_eq!(s.download(&x)?[998..], [6, 7]);
    refused(kernels.step(&s, &mut x, 1, 1001), ErrorKind::ContractViolated, &[]);
    Ok(())
}
