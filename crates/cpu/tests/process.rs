//! Unless a kernel's own fault causes them, signals must have the effect that they would have without this
//! library. So must forks and the end of the process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use gpustream_hal::{DefaultStream, ErrorKind};
use support::{Bench, assert_says, await_flag, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void null(int* out) { *(volatile int*)16 = 1; }
extern "C" __global__ void waits(int* out) { __syncthreads(); out[0] = 1; }
extern "C" __global__ void spins(volatile unsigned* here) { *here = 1; while (true) {} }
extern "C" __global__ void overflows(int* out) { volatile char local[8 << 20]; local[0] = 1; out[0] = local[0]; }
"#;
/// Set in a process that plays a part.
const PLAY: &str = "GPUSTREAM_TEST_PLAY";

/// In the child, calls `play`. Otherwise runs the calling test in a child with these variables set, because what the test
/// does may end the process.
fn child<P: Fn()>(variables: &[(&str, &str)], play: P) -> Option<(ExitStatus, String)> {
    if std::env::var_os(PLAY).is_some() {
        play();
        return None;
    }
    if std::env::var_os("GPUSTREAM_TEST_EMULATED").is_some() {
        eprintln!("SKIPPED: an emulated process cannot run its own executable");
        return None;
    }
    let test = std::any::type_name::<P>().rsplit("::").nth(1).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(PLAY, "1").envs(variables.iter().copied());
    let ended = child.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    Some((ended.status, said.into_owned()))
}

unsafe extern "C" fn crash(_: *mut c_void) {
    // SAFETY: none: nothing is mapped there, and the fault is the point.
    unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
}

fn crashing_kernel(name: &str) -> String {
    let bench = Bench::with(options(), &compile(KERNELS));
    let out = bench.memory::<i32>(1);
    let stream = bench.stream();
    bench.launch(stream, name, 1, 1, args![&out]);
    bench.sync(stream).unwrap_err().message().to_owned()
}

/// First a kernel crashes, which must be an error. Then a host function crashes on a thread that has run kernels, and that
/// must end the process, because it is not a kernel's fault.
#[test]
fn a_crash_in_a_host_function_ends_the_process() {
    fn play() {
        let _ = crashing_kernel("null");
        println!("the kernel's crash is an error");
        let bench = Bench::with(options().workers(1), &compile(KERNELS));
        let out = bench.memory::<i32>(1);
        let stream = bench.stream();
        bench.launch(stream, "waits", 1, 2, args![&out]);
        // SAFETY: the function takes any data; we want it to crash.
        unsafe { bench.device.stream_host_fn(stream, crash, null_mut()) }.unwrap();
        let _ = bench.sync(stream);
        println!("the host function's crash went unnoticed");
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(said.contains("the kernel's crash is an error"), "{said}");
    assert!(!said.contains("unnoticed"), "{said}");
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status:?}\n{said}");
}

fn set_action(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: zero is a valid action; the handlers below have the types that the flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, null_mut()), 0);
    }
}

fn send(signal: c_int) {
    // SAFETY: a call without memory.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
    // `kill` may return before the signal is delivered, because another thread may take it. `raise` sends it to this thread.
    // SAFETY: a call without memory.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// The default action must end the process, whatever the thread that gets the signal is doing.
#[test]
fn a_signal_that_was_sent_ends_the_process() {
    fn play() {
        let signal: c_int = std::env::var("SIGNAL").unwrap().parse().unwrap();
        // Rust has handlers for two of these, and they restore the default when they are called. So set the default here, to
        // make all signals alike.
        set_action(signal, libc::SIG_DFL, 0);
        let bench = Bench::with(options(), &compile(KERNELS));
        let (here, stream) = (bench.flag(), bench.stream());
        bench.launch(stream, "spins", 1, 1, args![here]);
        await_flag(here, 1);
        println!("ready");
        send(signal);
        println!("alive");
    }
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        let number = signal.to_string();
        let Some((status, said)) = child(&[("SIGNAL", &number)], play) else { return };
        assert!(said.contains("ready") && !said.contains("alive"), "{said}");
        assert_eq!(status.signal(), Some(signal), "{status:?}\n{said}");
    }
}

static CALLS: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);

extern "C" fn plain(_: c_int) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn detailed(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: passed on from the system.
    assert!(unsafe { (*info).si_signo } == signal && !context.is_null());
    // SAFETY: passed on from the system.
    CODE.store(unsafe { (*info).si_code }, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// If a handler existed before the device, it must be called as it asked, each time, for signals that were sent, but not for
/// a kernel's faults.
#[test]
fn handlers_that_were_there_before_stay_in_force() {
    fn play() {
        set_action(libc::SIGFPE, plain as *const () as usize, 0);
        set_action(libc::SIGBUS, detailed as *const () as usize, libc::SA_SIGINFO);
        set_action(libc::SIGILL, libc::SIG_IGN, 0);
        set_action(libc::SIGSEGV, plain as *const () as usize, libc::SA_RESETHAND);
        assert!(crashing_kernel("null").contains("SIGSEGV"));
        let mut calls = 0;
        for _ in 0..3 {
            // One kind at a time, because the stack that Rust gives the thread has little more room than one signal's frame.
            for (signal, more) in [(libc::SIGFPE, 2), (libc::SIGBUS, 2), (libc::SIGILL, 0)] {
                send(signal);
                calls += more;
                while CALLS.load(Ordering::SeqCst) < calls {
                    std::thread::yield_now();
                }
                assert_eq!(CALLS.load(Ordering::SeqCst), calls);
            }
            assert!(CODE.load(Ordering::SeqCst) <= 0);
            assert!(crashing_kernel("null").contains("SIGSEGV"));
            assert!(crashing_kernel("overflows").contains("512 KiB"));
        }
        println!("once only");
        // SAFETY: a call without memory.
        unsafe { libc::raise(libc::SIGSEGV) };
        assert_eq!(CALLS.load(Ordering::SeqCst), 13);
        assert!(crashing_kernel("null").contains("SIGSEGV"));
        println!("and then");
        // SAFETY: a call without memory.
        unsafe { libc::raise(libc::SIGSEGV) };
        println!("alive");
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(said.contains("and then") && !said.contains("alive"), "{status:?}\n{said}");
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status:?}\n{said}");
}

/// A forked child does not have its parent's threads. So every call must say that and must never wait, and a new device must
/// work.
#[test]
fn a_child_by_fork_is_told_and_opens_anew() {
    fn play() {
        let image = compile(KERNELS);
        let bench = Bench::with(options(), &image);
        let (here, stream, out) = (bench.flag(), bench.stream(), bench.memory::<i32>(1));
        bench.device.trace_begin().unwrap();
        bench.device.trace_enter(1);
        bench.launch(stream, "spins", 1, 1, args![here]);
        await_flag(here, 1);
        // SAFETY: no other thread of this process is inside the library or the allocator, because the workers
        // run a kernel or sleep.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let errors = [
                bench.sync(stream).unwrap_err(),
                bench.device.synchronize().unwrap_err(),
                bench.device.alloc(100).unwrap_err(),
                // SAFETY: the stream is this device's.
                unsafe { bench.device.stream_query(stream) }.unwrap_err(),
                // SAFETY: not used again.
                unsafe { bench.device.free(out.buffer) }.unwrap_err(),
                // SAFETY: not used again.
                unsafe { bench.device.module_unload(bench.module) }.unwrap_err(),
                bench.device.trace_begin().unwrap_err(),
                bench.device.trace_take(true, &mut |_| ()).unwrap_err(),
            ];
            bench.device.trace_leave();
            bench.device.trace_end();
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::DeviceLost);
                assert!(error.message().contains("after the fork"), "{error}");
            }
            assert!(!bench.device.has_stopped());
            let own = Bench::with(options(), &image);
            let (stream, out) = (own.stream(), own.memory::<i32>(1));
            own.launch(stream, "waits", 1, 64, args![&out]);
            own.sync(stream).unwrap();
            assert_eq!(out.as_ref(), [1]);
            println!("the child is done");
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        }
        let mut status = 0;
        // SAFETY: our child, and our own variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 7, "{status:#x}");
        assert!(!bench.device.has_stopped());
        bench.device.alloc(100).unwrap();
        bench.device.trace_leave();
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(status.success() && said.contains("the child is done"), "{status:?}\n{said}");
}

/// The process may end by returning from `main`, or by `exit` on any thread, and a module may have its own destructors.
#[test]
fn a_process_may_end_while_kernels_run() {
    unsafe extern "C" fn leave(_: *mut c_void) {
        std::process::exit(0);
    }
    fn play() {
        let source = format!("{KERNELS}\nstruct Global {{ ~Global(); }} global;\nGlobal::~Global() {{}}\n");
        let bench = Bench::with(options(), &compile(&source));
        let streams: Vec<_> = (0..4).map(|_| (bench.flag(), bench.stream())).collect();
        for &(here, stream) in &streams {
            bench.launch(stream, "spins", 1, 1, args![here]);
            await_flag(here, 1);
        }
        let own = bench.device.stream_default(DefaultStream::PerThread).unwrap();
        bench.launch(own, "waits", 1, 8, args![&bench.memory::<i32>(1)]);
        match &*std::env::var("HOW").unwrap() {
            "exit" => std::process::exit(0),
            "closure" => {
                // SAFETY: the function takes any data.
                unsafe { bench.device.stream_host_fn(bench.stream(), leave, null_mut()) }.unwrap();
                loop {
                    std::thread::park();
                }
            }
            // The other tests do nothing in this process, so `main` returns.
            _ => {}
        }
    }
    for how in ["return", "exit", "closure"] {
        for _ in 0..5 {
            let Some((status, said)) = child(&[("HOW", how)], play) else { return };
            assert!(status.success(), "{how}: {status:?}\n{said}");
        }
    }
}

/// For every variable, a value must be either allowed, or refused with the variable's name.
#[test]
fn settings_that_are_not_allowed_are_refused_by_name() {
    fn play() {
        match gpustream_cpu::backend().open(0) {
            Ok(device) => println!("{} workers", device.info().multiprocessors),
            Err(error) => println!("{:?}: {error}", error.kind()),
        }
    }
    let said = |variables: &[(&str, &str)]| child(variables, play).map(|(_, said)| said);
    for (variable, values, allowed) in [
        ("GPUSTREAM_CPU_THREADS", &["lots", "0", "-1", "1025", "2.5"][..], "a number from 1 to 1024"),
        ("GPUSTREAM_CPU_DEVICES", &["x", "0", "65", "99999999999999999999"], "a number from 1 to 64"),
        ("GPUSTREAM_CPU_WARP", &["16", "wide"], "32 or 64"),
        ("GPUSTREAM_CHECK", &["yes", "2"], "0 or 1"),
    ] {
        for value in values {
            let Some(said) = said(&[(variable, value)]) else { return };
            assert_says(&said, &["InvalidArgument", variable, value, allowed]);
        }
    }
    let fine = [("GPUSTREAM_CPU_THREADS", " 3 "), ("GPUSTREAM_CPU_DEVICES", ""), ("GPUSTREAM_CHECK", "0")];
    assert!(said(&fine).is_none_or(|said| said.contains("3 workers")));
}

/// The message must contain the text from the system's loader, and tell you what you can do.
#[test]
fn a_module_that_the_loader_refuses_says_why() {
    fn play() {
        let image = compile(KERNELS);
        let bench = Bench::with(options(), &image);
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            assert!(file.as_raw_fd() < 4096, "there is no limit on open files");
            files.push(file);
        }
        // Leave one descriptor for the image, so that there is none for the loader.
        files.pop();
        // SAFETY: the compiler has just made the image.
        let error = unsafe { bench.device.module_load(&image) }.unwrap_err();
        drop(files);
        assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
        assert_says(error.message(), &["open files", "ulimit -n"]);
        // SAFETY: the compiler has just made the image.
        unsafe { bench.device.module_load(&image) }.unwrap();
    }
    // SAFETY: our own variable. We only lower the limit for the children, which inherit it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        if std::env::var_os(PLAY).is_some() {
            limit.rlim_cur = limit.rlim_cur.min(256);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(status.success(), "{status:?}\n{said}");
}

/// The advice must not depend on the loader's text, because that belongs to another library and can change.
#[test]
fn a_module_for_a_programs_first_libraries_is_told_from_a_damaged_one() {
    fn play() {
        let bench = Bench::with(options(), &compile(KERNELS));
        // This wants more thread-local memory than a program reserves for libraries that come later.
        let wants = "static thread_local char big[1 << 20] __attribute__((tls_model(\"initial-exec\")));\n\
                     extern \"C\" __global__ void uses(int* out) { out[0] = big[threadIdx.x]++; }";
        let image = compile(wants);
        // SAFETY: the compiler has just made the image.
        let error = unsafe { bench.device.module_load(&image) }.unwrap_err();
        assert_says(error.message(), &["thread-local memory", "initial-exec"]);
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(status.success(), "{status:?}\n{said}");
}

/// Here only the loader can run out of address space, because the image is already in memory.
#[test]
fn a_module_that_finds_no_address_space_says_so() {
    fn play() {
        let image = compile(KERNELS);
        let large = "static char big[1 << 30];\n\
                     extern \"C\" __global__ void uses(int* out) { out[0] = big[threadIdx.x]++; }";
        let large = compile(large);
        let bench = Bench::with(options(), &image);
        let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call reads a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        // SAFETY: the compiler has just made the image.
        let error = unsafe { bench.device.module_load(&large) }.unwrap_err();
        assert_says(error.message(), &["ulimit -v"]);
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(status.success(), "{status:?}\n{said}");
}

/// A thread's default stream must exist while the destructors of its other variables run, in whatever order, because these
/// may use it.
#[test]
fn a_default_stream_is_there_until_its_thread_ends() {
    struct Late(Option<Bench>);
    impl Drop for Late {
        fn drop(&mut self) {
            let Some(bench) = self.0.take() else { return };
            let stream = bench.device.stream_default(DefaultStream::PerThread).unwrap();
            let out = bench.memory::<i32>(1);
            bench.launch(stream, "waits", 1, 8, args![&out]);
            bench.sync(stream).unwrap();
            assert_eq!(out.as_ref(), [1]);
            println!("the destructor is done");
        }
    }
    thread_local! {
        static EARLY: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(None)) };
        static LATE: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(None)) };
    }
    fn play() {
        let image = compile(KERNELS);
        let thread = std::thread::spawn(move || {
            // These are registered before and after the backend's own.
            EARLY.with_borrow_mut(|_| ());
            let bench = Bench::with(options(), &image);
            let stream = bench.device.stream_default(DefaultStream::PerThread).unwrap();
            bench.sync(stream).unwrap();
            EARLY.set(Late(Some(bench)));
            LATE.set(Late(Some(Bench::with(options(), &image))));
        });
        thread.join().unwrap();
    }
    let Some((status, said)) = child(&[], play) else { return };
    assert!(status.success() && said.matches("the destructor is done").count() == 2, "{status:?}\n{said}");
}
