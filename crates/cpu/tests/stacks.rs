//! How much stack a thread of a kernel has, and what you get if it needs more.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;

use gpustream_hal::ErrorKind;
use support::{Bench, assert_says, compile, options};

const KERNELS: &str = r#"
#include <alloca.h>
#include <stdio.h>
template <int N> __device__ __forceinline__ void use(int* out, int at) {
    volatile char local[N];
    local[at] = 7;
    local[(at + 1) % N] = 8;
    out[threadIdx.x] = local[at];
}
extern "C" __global__ void half_mebibyte(int* out, int at) { use<(512 << 10) - 64>(out, at); }
extern "C" __global__ void waits_with_half_a_mebibyte(int* out, int at) {
    volatile char local[(512 << 10) - 256];
    local[at] = 7;
    __syncthreads();
    out[threadIdx.x] = local[at];
}
extern "C" __global__ void prints(int* out, int at) {
    volatile char local[(512 << 10) - 256];
    local[at] = 7;
    char text[64];
    snprintf(text, sizeof text, "%.3f %lld %p", 1.5, 7ll, (void*)out);
    out[threadIdx.x] = local[at] + (text[0] != '1');
}
extern "C" __global__ void one_mebibyte(int* out, int at) { use<1 << 20>(out, at); }
extern "C" __global__ void eight_mebibytes(int* out, int at) { use<8 << 20>(out, at); }
extern "C" __global__ void one_gibibyte(int* out, int at) { use<1 << 30>(out, at); }
extern "C" __global__ void allocates(int* out, int bytes) {
    volatile char* local = (volatile char*)alloca(bytes);
    local[0] = 7;
    out[threadIdx.x] = local[0];
}
__device__ __noinline__ int descend(int depth, int frame) {
    volatile char* local = (volatile char*)alloca(frame);
    local[0] = (char)depth;
    return depth == 0 ? 7 : descend(depth - 1, frame) + local[0] * 0;
}
extern "C" __global__ void recurses(int* out, int frame) { out[threadIdx.x] = descend(1000, frame); }
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(KERNELS));

fn run(name: &str, threads: u32, argument: i32) -> Result<Vec<i32>, gpustream_hal::Error> {
    let (bench, [stream]) = Bench::with_streams(options(), &IMAGE);
    let out = bench.memory::<i32>(threads as usize);
    bench.launch(stream, name, 1, threads, args![&out, argument]);
    bench.sync(stream)?;
    Ok(out.as_ref().to_vec())
}

#[test]
fn a_thread_has_as_much_stack_as_on_a_gpu() {
    for at in [0, 4096, 65_536, 400_000, (512 << 10) - 300] {
        for (name, threads) in [("half_mebibyte", 3), ("waits_with_half_a_mebibyte", 1024), ("prints", 2)] {
            assert!(run(name, threads, at).unwrap().iter().all(|&v| v == 7), "{name} at {at}");
        }
    }
    assert_eq!(run("allocates", 2, 500 << 10).unwrap(), [7; 2]);
    assert_eq!(run("recurses", 2, 400).unwrap(), [7; 2]);
}

/// Nothing outside the stack must be touched, wherever the thread would write.
#[test]
fn a_thread_that_needs_more_stack_is_a_fault_of_its_kernel() {
    for (name, arguments) in [
        ("one_mebibyte", &[0, 1 << 19, (1 << 20) - 1][..]),
        ("eight_mebibytes", &[0, 1 << 20, (8 << 20) - 1]),
        ("one_gibibyte", &[0, 1 << 29, (1 << 30) - 1]),
        ("allocates", &[1 << 20, 100 << 20, i32::MAX]),
        ("recurses", &[1000, 70_000, 10 << 20]),
    ] {
        for &argument in arguments {
            let error = run(name, 1, argument).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
            assert_says(error.message(), &[name, "block (0, 0, 0)", "512 KiB", "recursion"]);
        }
    }
}
