//! A process may exit on any thread while the library's threads are at work. It must end, and with its own exit code.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use conformance::executor::is_pending;
use conformance::exits::{CODE, RUNS, exit_from_a_drop, exit_from_a_waker};
use conformance::{Child, Gate, kernels_and_streams, open_again, tests, until};
use gpustream::interop::ExitHold;
use gpustream::{Device, DeviceOptions, Event, Flag, Result, Stream, StreamOptions, WaitValue};

tests! {
    Alone: the_process_ends_with_its_own_code;
    Isolated: a_forked_process_opens_no_device, a_hold_keeps_the_process,
        a_hold_cannot_keep_the_process_for_ever;
    Part: with_a_hold, with_a_lasting_hold, from_a_thread, beside_a_wait, from_a_closure, from_a_waker,
        from_a_drop, from_several_threads;
}

fn the_process_ends_with_its_own_code(device: &Device) -> Result<()> {
    let mut parts = vec!["from_a_thread", "from_a_waker", "from_a_drop", "from_several_threads"];
    if device.info().features.stream_wait_value {
        parts.push("beside_a_wait");
    }
    // A vendor's driver may wait in its exit handler for the closure that called `exit`, so we test this on the CPU
    // only.
    if device.info().backend == gpustream::BackendName::CPU {
        parts.push("from_a_closure");
    }
    for part in parts {
        for run in 0..RUNS {
            let ended = Child::of(device, &format!("exit::{part}")).run()?;
            assert_eq!(ended.code, Some(CODE), "{part}, run {run}: {}", ended.output);
        }
    }
    Ok(())
}

fn a_hold_keeps_the_process(device: &Device) -> Result<()> {
    let ended = Child::of(device, "exit::with_a_hold").run()?;
    assert_eq!(ended.code, Some(CODE), "{}", ended.output);
    assert!(ended.output.contains("held until here"), "{}", ended.output);
    Ok(())
}

/// If the process is ending you cannot get another hold, so the thread drops its hold only then.
fn with_a_hold(_: &Device) -> Result<()> {
    let hold = ExitHold::of("a library");
    assert!(hold.is_some());
    thread::spawn(move || {
        while ExitHold::of("a library").is_some() {
            thread::yield_now();
        }
        println!("held until here");
        drop(hold);
    });
    exit(CODE)
}

/// This is how a driver's call looks if it never returns.
fn a_hold_cannot_keep_the_process_for_ever(device: &Device) -> Result<()> {
    let child = Child::of(device, "exit::with_a_lasting_hold").env("GPUSTREAM_EXIT_SECONDS", "1");
    let ended = child.run()?;
    assert_eq!(ended.code, Some(CODE), "{}", ended.output);
    let warning =
        "the process exits although 1 of the library's calls to a driver have not returned within 1 s";
    assert!(ended.output.contains(warning), "{}", ended.output);
    Ok(())
}

fn with_a_lasting_hold(_: &Device) -> Result<()> {
    let hold = ExitHold::of("a library");
    assert!(hold.is_some());
    std::mem::forget(hold);
    exit(CODE)
}

/// Neither drivers nor the library's threads survive a fork. A new device could hang there, so the library refuses to
/// open one.
fn a_forked_process_opens_no_device(device: &Device) -> Result<()> {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(code: i32) -> !;
    }
    let name = format!("{}:{}", device.info().backend, device.info().ordinal);
    // SAFETY: the child makes the calls under test, which only read, and ends.
    let child = unsafe { fork() };
    if child == 0 {
        let told = |refused: Option<gpustream::Error>| {
            refused.is_some_and(|error| error.message().contains("was forked from process"))
        };
        let all_told = told(Device::open(&name).err()) && told(device.stream().err());
        // SAFETY: no requirement.
        unsafe { _exit(if all_told { CODE } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: the pointer is to a live integer.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status >> 8, CODE);
    device.stream()?.synchronize()
}

/// Counts how often it was dropped. The library's thread does that.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Keeps the library's threads busy: one polls a stream that never finishes, and the other has begun to destroy a
/// thousand values.
fn keep_busy(device: &Device) -> Result<()> {
    let (kernels, [stuck, s]) = kernels_and_streams(device)?;
    let on_part =
        device.stream_with(StreamOptions::default().multiprocessors(1)).or_else(|_| device.stream())?;
    let (mut x, mut y) = (stuck.full(10, 1u32)?, on_part.full(10, 1u32)?);
    let gate = Gate::adding(&kernels, &stuck, &mut x, 1)?;
    kernels.add_when(&on_part, gate.flag(), &mut y, 1, 10)?;
    drop(on_part);
    let mut future = stuck.synchronize_async();
    assert!(is_pending(&mut future));
    let events =
        (0..1000).map(|_| s.record_with(gpustream::WaitPolicy::Block)).collect::<Result<Vec<_>>>()?;
    s.host_fn(move || drop::<Vec<Event>>(events))?;
    s.synchronize()?;
    std::mem::forget((future, gate, x, y, stuck, s));
    Ok(())
}

fn from_a_thread(device: &Device) -> Result<()> {
    keep_busy(device)?;
    exit(CODE)
}

/// The stream waits for a flag that is never set.
fn beside_a_wait(device: &Device) -> Result<()> {
    let (s, flag, mut x) = (device.stream()?, device.flag()?, device.pinned::<u32>(10)?);
    s.wait_flag(&flag, WaitValue::Equal(1))?;
    s.fill(&mut x, 1)?;
    assert!(is_pending(&mut s.synchronize_async()));
    exit(CODE)
}

fn from_a_closure(device: &Device) -> Result<()> {
    keep_busy(device)?;
    device.stream()?.host_fn(|| exit(CODE))?;
    loop {
        thread::park();
    }
}

fn from_a_waker(device: &Device) -> Result<()> {
    // We load this first, because loading code may wait for running kernels.
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(10, 1u32)?;
    let gate = Gate::new(device)?;
    s.synchronize()?;
    keep_busy(device)?;
    kernels.add_when(&s, gate.flag(), &mut x, 1, 10)?;
    exit_from_a_waker(s.synchronize_async(), || gate.open())
}

/// A library thread destroys the handles that a closure dropped, and with them your values. One of these calls `exit`.
fn from_a_drop(device: &Device) -> Result<()> {
    keep_busy(device)?;
    // On this second handle no stream is stuck.
    exit_from_a_drop(open_again(device, DeviceOptions::default())?)
}

/// The process exits while other threads submit, wait and drop.
fn from_several_threads(device: &Device) -> Result<()> {
    keep_busy(device)?;
    let going = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (device, going) = (device.clone(), going.clone());
        thread::spawn(move || {
            loop {
                let work = || -> Result<(Stream, Flag)> {
                    let s = device.stream()?;
                    let flag = device.flag()?;
                    let held = Dropped(going.clone());
                    s.host_fn(move || drop(held))?;
                    s.synchronize()?;
                    Ok((s, flag))
                };
                drop(work());
            }
        });
    }
    until(|| Ok(going.load(Ordering::SeqCst) > 10))?;
    exit(CODE)
}
