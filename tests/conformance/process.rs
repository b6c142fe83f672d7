//! The process belongs to the program: its signals must reach it, and its limits must give errors.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;

use conformance::executor::block_on;
use conformance::{kernels_and_streams, open_again, tests};
use gpustream::{Device, ErrorKind, Result};

tests! {
    Isolated: signals_of_the_program_reach_it, a_limit_on_files_gives_errors;
}

/// Returns two lists of names: threads of the library that let one of `signals` through, and threads that block all of
/// them.
fn threads(signals: &[i32]) -> (BTreeSet<String>, BTreeSet<String>) {
    let wanted = signals.iter().fold(0_u64, |mask, signal| mask | 1 << (signal - 1));
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for task in fs::read_dir("/proc/self/task").expect("the process's threads") {
        let task = task.expect("a thread").path();
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
        let name = field("Name:").to_owned();
        if name.starts_with("gpustream") {
            let blocked = u64::from_str_radix(field("SigBlk:"), 16).expect("a mask");
            if blocked & wanted == wanted {
                closed.insert(name)
            } else {
                open.insert(name)
            };
        }
    }
    (open, closed)
}

/// You may block a signal and wait for it. The system gives a signal to any thread that does not block it. So if one of
/// our threads did not, the signal's default action could end your process.
fn signals_of_the_program_reach_it(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    // All of this starts threads in the library: long copies, a future, a trace, a wait for a flag, a value dropped in
    // a closure.
    let trace = device.trace()?;
    let x = s.upload(&vec![1u32; 16 << 20])?;
    let mut y = s.zeros::<u32>(1000)?;
    kernels.step(&s, &mut y, 1, 1000)?;
    block_on(s.synchronize_async())?;
    let flag = device.flag()?;
    if device.info().features.stream_wait_value {
        s.wait_flag(&flag, gpustream::WaitValue::AtLeast(1))?;
    }
    flag.set(1);
    let stream = device.stream()?;
    s.host_fn(move || drop(stream))?;
    s.synchronize()?;

    let (open, closed) = threads(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD]);
    assert!(open.is_empty(), "threads that take the program's signals: {open:?}");
    assert!(!closed.is_empty(), "the library has started no thread");
    let (fault_open, _) = threads(&[libc::SIGSEGV]);
    assert!(fault_open.is_superset(&closed), "faults have to arrive: {closed:?}, {fault_open:?}");

    // A vendor's driver has threads too, and we cannot decide what they block.
    if device.info().backend == gpustream::BackendName::CPU {
        let mut set = MaybeUninit::uninit();
        let mut taken = 0;
        // SAFETY: the set is filled before it is read, and the signal goes to this process, which waits for it.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGTERM);
            libc::sigwait(set.as_ptr(), &raw mut taken);
        }
        assert_eq!(taken, libc::SIGTERM);
    }
    drop((x, trace));
    Ok(())
}

/// If we write beyond the limit (`ulimit -f`), the system sends a signal that ends the process.
fn a_limit_on_files_gives_errors(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let set_limit = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call reads a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    };
    set_limit(1000);
    let handle = open_again(device, gpustream::DeviceOptions::default())?;
    let outcomes = [
        ("loading kernels", conformance::sync::Kernels::load(&handle).map(drop)),
        ("memory for other processes", handle.alloc_shared::<u8>(1 << 20).map(drop)),
        ("an event for other processes", handle.shared_event().map(drop)),
    ];
    for (what, outcome) in outcomes {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => assert!(error.message().contains("ulimit -f"), "{what}: {error}"),
            Ok(()) => {
                assert_ne!(device.info().backend, gpustream::BackendName::CPU, "{what}: no file was written");
            }
        }
    }
    // What you had opened before must still work.
    let mut y = s.zeros::<u32>(1000)?;
    kernels.step(&s, &mut y, 1, 1000)?;
    s.synchronize()?;
    set_limit(libc::RLIM_INFINITY);
    conformance::sync::Kernels::load(&handle).map(drop)
}
