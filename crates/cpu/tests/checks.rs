//! Checked mode: writes that miss their memory are reported by kernel, block and thing missed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;

use gpustream_hal::{ErrorKind, LaunchConfig};
use support::{Arg, Bench, compile_checked, options};

const KERNELS: &str = r#"
extern "C" __global__ void write_at(unsigned char* p, int at) {
    if (blockIdx.x == 2 && threadIdx.x == 1) p[at] = 1;
}
extern "C" __global__ void shared_at(int* out, int at) {
    extern __shared__ char tile[];
    tile[threadIdx.x] = 1;
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 3) ((volatile char*)tile)[at] = 5;
    __syncthreads();
    out[0] = tile[0];
}
extern "C" __global__ void array_at(int* out, int at) {
    __shared__ int sums[8][16];
    sums[0][threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 2) sums[1][at] = 7;
    __syncthreads();
    out[threadIdx.x] = sums[0][threadIdx.x];
}
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile_checked(KERNELS));

/// Runs a kernel in checked mode. Returns the message with which it fails, if it fails.
fn outcome(check: bool, name: &str, at: i32, bytes: usize) -> Option<String> {
    let bench = Bench::with(options().check(check), &IMAGE);
    let stream = bench.stream();
    let memory = bench.memory::<u8>(bytes);
    let mut config = LaunchConfig::new([4, 1, 1], [8, 1, 1]);
    config.dynamic_shared = 100;
    bench.launch_with(stream, name, config, &mut [Arg::from(&memory), Arg::from(at)]).unwrap();
    let error = bench.sync(stream).err()?;
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    Some(error.message().to_owned())
}

fn assert_says(message: Option<String>, parts: &[&str]) {
    let message = message.unwrap_or_default();
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
}

#[test]
fn device_memory_has_red_zones() {
    for at in [0, 500, 999] {
        assert_eq!(outcome(true, "write_at", at, 1000), None);
    }
    let place = ["`write_at`", "block (2, 0, 0)", "of 1000 bytes"];
    assert_says(outcome(true, "write_at", 1000, 1000), &["0 bytes past the end"]);
    assert_says(outcome(true, "write_at", 1000, 1000), &place);
    assert_says(outcome(true, "write_at", 1010, 1000), &["10 bytes past the end of the device memory"]);
    assert_says(outcome(true, "write_at", -1, 1000), &["1 bytes before the device memory"]);
    // Beyond the red zone lies a page that faults, and then the thread is known too.
    for at in [3000, -9000] {
        assert_says(outcome(true, "write_at", at, 1000), &place);
        assert_says(outcome(true, "write_at", at, 1000), &["SIGSEGV"]);
        // clang may keep threadIdx elsewhere than where its name says.
        if !std::env::var("CXX").is_ok_and(|cxx| cxx.contains("clang")) {
            assert_says(outcome(true, "write_at", at, 1000), &["thread (1, 0, 0)"]);
        }
    }
}

#[test]
fn dynamic_shared_memory_has_red_zones() {
    for at in [0, 99] {
        assert_eq!(outcome(true, "shared_at", at, 64), None);
    }
    let place = ["`shared_at`", "block (1, 0, 0)", "its 100 bytes of dynamic shared memory"];
    assert_says(outcome(true, "shared_at", 100, 64), &place);
    assert_says(outcome(true, "shared_at", 107, 64), &["7 bytes past the end"]);
    assert_says(outcome(true, "shared_at", -3, 64), &["3 bytes before"]);
}

#[test]
fn static_shared_arrays_are_bounded() {
    assert_eq!(outcome(true, "array_at", 15, 64), None);
    for at in [16, -1, 100_000] {
        let parts = ["`array_at`", "block (0, 0, 0)", "thread (2, 0, 0)", "'int", "[16]'", "user.cu:17"];
        assert_says(outcome(true, "array_at", at, 64), &parts);
        assert_says(outcome(true, "array_at", at, 64), &[&format!("index {at} ")]);
    }
}

#[test]
fn without_checks_a_near_miss_goes_unnoticed_as_on_a_gpu() {
    assert_eq!(outcome(false, "array_at", 16, 64), None);
    assert_eq!(outcome(false, "shared_at", 100, 64), None);
}
