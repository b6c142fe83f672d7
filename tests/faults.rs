//! What goes wrong on the device is reported to whoever waits, and ends nothing but that device.
//!
//! A fault may leave the process's driver context unusable, so each happens in a process of its own.

use conformance::harness::{Child, Gate, open_again, refused};
use conformance::{faulty, sync, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, Launch, Result};

tests! {
    Isolated: an_illegal_address_reaches_every_wait, a_failed_assertion, a_trap, host_access_after_a_fault,
        closures_after_a_fault, dropping_everything_after_a_fault;
    Plain: other_processes_are_unaffected, blocking_names_the_operation;
    CpuOnly: a_barrier_not_all_reach, no_false_alarms_in_checked_mode_here;
    Part: fault, fault_while_blocking, write_out_of_bounds, write_out_of_bounds_of_shared, write_out_of_bounds_of_array,
        compute_in_checked_mode;
}

const ONE: Launch = Launch::new([1; 3], [1; 3]);

/// No process has this address mapped.
const NOWHERE: usize = 0x0dea_d000_0000;

/// Launches a kernel that writes where nothing is.
fn break_device(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    // SAFETY: this process is made to fail.
    unsafe { kernels.wild(&s, &ONE, NOWHERE) }?;
    s.synchronize()
}

fn lost<T>(result: Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what} knows nothing of the fault"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceLost, "{what}: {error}"),
    }
}

/// Each kind of wait, having been asked before and after the fault.
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
    // The device may have failed before these were submitted.
    match event {
        Ok(event) => {
            lost(event.synchronize(), "the event");
            lost(event.is_done(), "a query of the event");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceLost),
    }
    match copied {
        Ok(()) => {
            lost(host.read(), "pinned memory");
            lost(host.is_ready(), "a query of pinned memory");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::DeviceLost),
    }
    lost(device.synchronize(), "the device");
    lost(s.download(&x), "a download");
    lost(other.synchronize(), "another stream");
    // A launch may still be taken, but nothing says that it succeeded.
    let later = kernels.step(&other, &mut x, 1, 10).and_then(|()| other.synchronize());
    lost(later, "later work");
    Ok(())
}

fn a_failed_assertion(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    kernels.assert_less(&s, &Launch::new([4, 1, 1], [32, 1, 1]), 1, 2)?;
    s.synchronize()?;
    kernels.assert_less(&s, &Launch::new([4, 1, 1], [32, 1, 1]), 2, 1)?;
    let Err(error) = s.synchronize() else { panic!("2 is not less than 1") };
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    if device.info().backend == "cpu" {
        for part in ["assert_less", "a < b", "faults.cu"] {
            assert!(error.to_string().contains(part), "`{error}` does not say `{part}`");
        }
    }
    Ok(())
}

fn a_trap(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    kernels.give_up(&s, &ONE)?;
    let Err(error) = s.synchronize() else { panic!("the kernel gave up") };
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    if device.info().backend == "cpu" {
        assert!(error.to_string().contains("give_up"), "{error}");
    }
    Ok(())
}

/// No guard is given to memory that a failed copy was to write.
fn host_access_after_a_fault(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    let x = s.full(10, 1u32)?;
    let mut host = device.pinned::<u32>(10)?;
    s.synchronize()?;
    let gate = Gate::new(device)?;
    sync::Kernels::load(device)?.spin(&s, &ONE, gate.flag())?;
    // SAFETY: this process is made to fail.
    unsafe { kernels.wild(&s, &ONE, NOWHERE) }?;
    s.copy(&x, &mut host)?;
    gate.open();
    lost(host.read(), "a reading guard");
    lost(host.write(), "a writing guard");
    Ok(())
}

/// They may run or not; waiting for them is an error in any case.
fn closures_after_a_fault(device: &Device) -> Result<()> {
    lost(break_device(device), "the stream");
    let submitted = device.stream().and_then(|s| {
        s.host_fn(|| ())?;
        s.synchronize()
    });
    lost(submitted, "a stream with a closure");
    Ok(())
}

fn dropping_everything_after_a_fault(device: &Device) -> Result<()> {
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

/// A fault in a child, while work of this process runs, and again.
fn other_processes_are_unaffected(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(1000, 1u32)?;
    for _ in 0..2 {
        kernels.step(&s, &mut x, 1, 1000)?;
        let ended = Child::of(device, "faults::fault").run()?;
        assert_eq!(ended.code, Some(1), "{}", ended.output);
        assert!(ended.output.contains("DeviceLost"), "{}", ended.output);
        s.synchronize()?;
    }
    assert_eq!(s.download(&x)?, [31; 1000]);
    Ok(())
}

fn fault(device: &Device) -> Result<()> {
    break_device(device)
}

/// With `GPUSTREAM_BLOCKING=1` the failing call itself reports it, by name and line.
fn blocking_names_the_operation(device: &Device) -> Result<()> {
    let ended = Child::of(device, "faults::fault_while_blocking").env("GPUSTREAM_BLOCKING", "1").run()?;
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    Ok(())
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
    let operation = error.operation().expect("an operation");
    assert_eq!(
        (operation.label, operation.location.file(), operation.location.line()),
        ("wild", file!(), line)
    );
    Ok(())
}

fn a_barrier_not_all_reach(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    // SAFETY: the backend looks for this.
    unsafe { kernels.divergent(&s, &Launch::new([3, 1, 1], [8, 1, 1]), 5) }?;
    let Err(error) = s.synchronize() else { panic!("thread 5 never came") };
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    let text = error.to_string();
    for part in ["divergent", "block", "thread", "5"] {
        assert!(text.contains(part), "`{text}` does not say `{part}`");
    }
    Ok(())
}

/// Runs the checked children, and one that does nothing wrong.
fn no_false_alarms_in_checked_mode_here(device: &Device) -> Result<()> {
    let checked = |part: &str| Child::of(device, part).env("GPUSTREAM_CHECK", "1").run();
    let ended = checked("faults::compute_in_checked_mode")?;
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    for (part, kernel) in [
        ("faults::write_out_of_bounds", "write_at"),
        ("faults::write_out_of_bounds_of_shared", "shared_overrun"),
        ("faults::write_out_of_bounds_of_array", "shared_array_overrun"),
    ] {
        let ended = checked(part)?;
        assert_eq!(ended.code, Some(1), "{part} was not noticed: {}", ended.output);
        assert!(ended.output.contains("DeviceLost") && ended.output.contains(kernel), "{}", ended.output);
    }
    Ok(())
}

fn write_out_of_bounds(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.zeros::<u32>(1000)?;
    // SAFETY: beyond what was asked for, but within what the checked allocation has around it.
    unsafe { kernels.write_at(&s, &ONE, &mut x, 1024, 7) }?;
    s.synchronize()
}

fn write_out_of_bounds_of_shared(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    // SAFETY: as above.
    unsafe { kernels.shared_overrun(&s, &Launch::new([1; 3], [4, 1, 1]).shared(64), 16) }?;
    s.synchronize()
}

fn write_out_of_bounds_of_array(device: &Device) -> Result<()> {
    let kernels = faulty::Kernels::load(device)?;
    let s = device.stream()?;
    let mut out = s.zeros::<u32>(1)?;
    // SAFETY: beyond the row, but within the array.
    unsafe { kernels.shared_array_overrun(&s, &ONE, &mut out, 16) }?;
    s.synchronize()
}

fn compute_in_checked_mode(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let s = device.stream()?;
    let mut x = s.full(1000, 1u32)?;
    kernels.step(&s, &mut x, 1, 1000)?;
    let bounds = faulty::Kernels::load(device)?;
    // SAFETY: the last element, and the last word of shared memory.
    unsafe {
        bounds.write_at(&s, &ONE, &mut x, 999, 7)?;
        bounds.shared_overrun(&s, &Launch::new([1; 3], [4, 1, 1]).shared(64), 15)?;
    }
    assert_eq!(s.download(&x)?[998..], [6, 7]);
    refused(kernels.step(&s, &mut x, 1, 1001), ErrorKind::ContractViolated, &[]);
    Ok(())
}
