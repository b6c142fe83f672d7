//! Checked mode: if a kernel writes out of bounds, you get its name, the block and what it missed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;

use gpustream_hal::{ErrorKind, LaunchConfig};
use support::{Arg, Bench, assert_says, compile_checked, options};

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

/// Runs a kernel, in checked mode or not. Returns the message if it fails.
fn outcome(check: bool, name: &str, at: i32, bytes: usize) -> Option<String> {
    let (bench, [stream]) = Bench::with_streams(options().check(check), &IMAGE);
    let memory = bench.memory::<u8>(bytes);
    let mut config = LaunchConfig::new([4, 1, 1], [8, 1, 1]);
    config.dynamic_shared = 100;
    bench.launch_with(stream, name, config, &mut [Arg::from(&memory), Arg::from(at)]).unwrap();
    let error = bench.sync(stream).err()?;
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    Some(error.message().to_owned())
}

/// Asserts that the kernel fails in checked mode, and that the message contains these parts.
#[track_caller]
fn fails(name: &str, at: i32, bytes: usize, parts: &[&str]) {
    assert_says(&outcome(true, name, at, bytes).unwrap_or_default(), parts);
}

#[test]
fn device_memory_has_red_zones() {
    for at in [0, 500, 999] {
        assert_eq!(outcome(true, "write_at", at, 1000), None);
    }
    let [kernel, block, size] = ["`write_at`", "block (2, 0, 0)", "of 1000 bytes"];
    fails("write_at", 1000, 1000, &[kernel, block, size, "0 bytes past the end"]);
    fails("write_at", 1010, 1000, &["10 bytes past the end of the device memory"]);
    fails("write_at", -1, 1000, &["1 bytes before the device memory"]);
    // Past the red zone is a page that faults, so then the message can also name the thread.
    for at in [3000, -9000] {
        // clang may keep threadIdx somewhere else.
        let clang = std::env::var("CXX").is_ok_and(|cxx| cxx.contains("clang"));
        let thread = if clang { "" } else { "thread (1, 0, 0)" };
        fails("write_at", at, 1000, &[kernel, block, size, "SIGSEGV", thread]);
    }
}

#[test]
fn dynamic_shared_memory_has_red_zones() {
    for at in [0, 99] {
        assert_eq!(outcome(true, "shared_at", at, 64), None);
    }
    let place = ["`shared_at`", "block (1, 0, 0)", "its 100 bytes of dynamic shared memory"];
    fails("shared_at", 100, 64, &place);
    fails("shared_at", 107, 64, &["7 bytes past the end"]);
    fails("shared_at", -3, 64, &["3 bytes before"]);
}

#[test]
fn static_shared_arrays_are_bounded() {
    assert_eq!(outcome(true, "array_at", 15, 64), None);
    for at in [16, -1, 100_000] {
        let place = ["`array_at`", "block (0, 0, 0)", "thread (2, 0, 0)", "'int", "[16]'", "user.cu:17"];
        fails("array_at", at, 64, &[&place[..], &[&format!("index {at} ")]].concat());
    }
}

#[test]
fn without_checks_a_near_miss_goes_unnoticed_as_on_a_gpu() {
    assert_eq!(outcome(false, "array_at", 16, 64), None);
    assert_eq!(outcome(false, "shared_at", 100, 64), None);
}
