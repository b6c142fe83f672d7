//! What is not a kernel's own fault ends the process, as it would without this library.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::ffi::c_void;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use support::{Bench, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void null(int* out) { *(volatile int*)16 = 1; }
extern "C" __global__ void waits(int* out) { __syncthreads(); out[0] = 1; }
"#;
/// Set in the process that is to crash.
const PLAY: &str = "GPUSTREAM_TEST_CRASH";

unsafe extern "C" fn crash(_: *mut c_void) {
    // SAFETY: none: nothing is mapped there, which is the point.
    unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
}

/// A kernel crashes, which is an error; then, on a thread that has run kernels, a host function does.
fn play() {
    let image = compile(KERNELS);
    let bench = Bench::with(options(), &image);
    let out = bench.memory::<i32>(1);
    let stream = bench.stream();
    bench.launch(stream, "null", 1, 1, args![&out]);
    bench.sync(stream).unwrap_err();
    println!("the kernel's crash is an error");

    let bench = Bench::with(options().with_workers(1), &image);
    let out = bench.memory::<i32>(1);
    let stream = bench.stream();
    bench.launch(stream, "waits", 1, 2, args![&out]);
    // SAFETY: the function takes any data; that it crashes is the point.
    unsafe { bench.device.stream_host_fn(stream, crash, std::ptr::null_mut()) }.unwrap();
    let _ = bench.sync(stream);
    println!("the host function's crash went unnoticed");
}

#[test]
fn a_crash_in_a_host_function_ends_the_process() {
    if std::env::var_os(PLAY).is_some() {
        return play();
    }
    if std::env::var_os("GPUSTREAM_TEST_EMULATED").is_some() {
        eprintln!("SKIPPED: an emulated process cannot run its own executable");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_crash_in_a_host_function_ends_the_process", "--nocapture"]).env(PLAY, "1");
    let ended = child.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("the kernel's crash is an error"), "{said}");
    assert!(!said.contains("unnoticed"), "{said}");
    assert_eq!(ended.status.signal(), Some(libc::SIGSEGV), "{:?}\n{said}", ended.status);
}
