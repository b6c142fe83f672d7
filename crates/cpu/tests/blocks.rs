//! Blocks, barriers and warps, as you see them in a kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;

use gpustream_hal::{ErrorKind, LaunchConfig};
use support::{Bench, assert_says, compile, options};

const BASIC: &str = r#"
extern "C" __global__ void rounds(int* out, int count) {
    __shared__ int s[1024];
    int t = threadIdx.x, n = blockDim.x, wrong = 0;
    for (int i = 0; i < count; ++i) {
        s[t] = t * i;
        __syncthreads();
        wrong += s[(t + i) % n] != (t + i) % n * i;
        wrong += __syncthreads_count(t < i) != (i < n ? i : n);
        if (i % 3 == 0) wrong += __syncthreads_and(t != i) != (i >= n);
        if (i % 5 == 0) wrong += __shfl_sync(0xffffffffu, t, 0) != t / warpSize * warpSize;
        wrong += __syncthreads_or(t == i) != (i < n);
    }
    out[blockIdx.x * n + t] = wrong == 0 && threadIdx.x == t ? count : -wrong;
}
extern "C" __global__ void barrier_in_some_blocks(int* out) {
    if (blockIdx.x % 2 == 1) __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
}
"#;

#[test]
fn barriers_in_a_row_keep_blocks_of_every_size_together() {
    // We use a single worker, so that blocks of all sizes use the same fibers.
    let (bench, [stream]) = Bench::with_streams(options().workers(1), &BASIC_IMAGE);
    for threads in [1, 2, 3, 256, 31, 1024, 64] {
        let out = bench.memory::<i32>(threads * 3);
        bench.launch(stream, "rounds", 3, threads as u32, args![&out, 40]);
        bench.sync(stream).unwrap();
        assert!(out.as_ref().iter().all(|&v| v == 40), "{threads}: {:?}", out.as_ref());
    }
}

/// Each thread counts the rounds that are right, and returns after its own number of rounds.
const LEAVING: &str = r#"
extern "C" __global__ void leave(const int* rounds, int* out) {
    __shared__ int sum[2];
    const int t = threadIdx.x, mine = rounds[t];
    out[t] = 0;
    if (mine == 0) return;
    for (int round = 0; round < mine; ++round) {
        int alive = 0, warp = 0;
        for (int other = 0; other < (int)blockDim.x; ++other) {
            alive += rounds[other] > round;
            warp += rounds[other] > round && other / warpSize == t / warpSize;
        }
        sum[round & 1] = 0;
        __syncthreads();
        atomicAdd(&sum[round & 1], 1);
        bool right = __syncthreads_count(1) == alive;
        right = right && sum[round & 1] == alive;
        right = right && __syncthreads_and(1) && !__syncthreads_and(rounds[t] == 0) && !__syncthreads_or(0);
        right = right && __popcll(__ballot_sync(~0ull, 1)) == warp;
        out[t] += right;
    }
}
"#;

#[test]
fn threads_that_have_returned_take_no_part_in_barriers() {
    static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(LEAVING));
    let first = |t: usize, n: usize| if t < n / 3 { 0 } else { 3 };
    let last = |t: usize, n: usize| if t >= n / 3 { 0 } else { 3 };
    let one = |t: usize, _: usize| if t == 37 { 0 } else { 4 };
    let some = |t: usize, _: usize| t * 7 % 5;
    let lone = |t: usize, n: usize| if t + 1 == n { 6 } else { 2 };
    let all = |_: usize, _: usize| 0;
    let patterns: [fn(usize, usize) -> usize; 6] = [first, last, one, some, lone, all];
    for warp_size in [32, 64] {
        let (bench, [stream]) = Bench::with_streams(options().workers(1).warp_size(warp_size), &IMAGE);
        for threads in [1, 2, 40, 64, 97, 256] {
            for pattern in patterns {
                let (mut rounds, out) = (bench.memory::<i32>(threads), bench.memory::<i32>(threads));
                for t in 0..threads {
                    rounds.as_mut()[t] = pattern(t, threads) as i32;
                }
                bench.launch(stream, "leave", 1, threads as u32, args![&rounds, &out]);
                bench.sync(stream).unwrap();
                assert_eq!(out.as_ref(), rounds.as_ref(), "{threads} threads");
            }
        }
    }
}

#[test]
fn blocks_with_and_without_barriers_run_in_one_launch() {
    let (bench, [stream]) = Bench::with_streams(options(), &BASIC_IMAGE);
    let out = bench.memory::<i32>(64 * 33);
    bench.launch(stream, "barrier_in_some_blocks", 64, 33, args![&out]);
    bench.sync(stream).unwrap();
    for (i, &v) in out.as_ref().iter().enumerate() {
        assert_eq!(v as usize, i / 33 * 1000 + i % 33);
    }
}

static BASIC_IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(BASIC));
static WARPS_IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(WARPS));

const WARPS: &str = r#"
extern "C" __global__ void shuffles(int* down, int* up, int* cross, int* idx, double* wide) {
    int t = threadIdx.x;
    down[t] = __shfl_down_sync(0xffffffffu, t, 3);
    up[t] = __shfl_up_sync(0xffffffffu, t, 3);
    cross[t] = __shfl_xor(t, 5);
    idx[t] = __shfl(t, 2, 8);
    wide[t] = __shfl_xor_sync(0xffffffffu, t * 1.5, 1);
}
extern "C" __global__ void ballots(unsigned long long* ballot, int* any, int* all, unsigned long long* some) {
    int t = threadIdx.x;
    ballot[t] = __ballot_sync(~0ull, t % 3 == 0);
    any[t] = __any(t == 40);
    all[t] = __all_sync(0xffffffffu, t < 40);
    some[t] = 0;
    if (t % 2 == 0) some[t] = __activemask();
    __syncwarp();
}
extern "C" __global__ void half_warps(int* out) {
    int t = threadIdx.x;
    unsigned mask = t % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
    int v = t;
    if (t % 32 < 16) {
        for (int d = 8; d; d /= 2) v += __shfl_xor_sync(mask, v, d);
    } else {
        for (int d = 8; d; d /= 2) v += __shfl_xor_sync(mask, v, d);
        v += __shfl_sync(mask, 0, 16);
    }
    out[t] = v;
}
extern "C" __global__ void early_exit(int n, int* out) {
    int t = threadIdx.x;
    if (t >= n) return;
    int v = 1;
    for (int d = warpSize / 2; d; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (t % warpSize == 0) out[t / warpSize] = v;
}
extern "C" __global__ void match(unsigned long long* out) { out[threadIdx.x] = __match_any_sync(~0ull, threadIdx.x % 5); }
"#;

#[test]
fn shuffles_read_the_lane_they_name_at_32_and_64() {
    for size in [32, 64] {
        let (bench, [stream]) = Bench::with_streams(options().warp_size(size as u32), &WARPS_IMAGE);
        let n = 150;
        let [down, up, cross, idx] = [(); 4].map(|()| bench.memory::<i32>(n));
        let doubles = bench.memory::<f64>(n);
        bench.launch(stream, "shuffles", 1, n as u32, args![&down, &up, &cross, &idx, &doubles]);
        bench.sync(stream).unwrap();
        for t in 0..n {
            let (first, lane) = (t / size * size, t % size);
            let lanes = (n - first).min(size);
            // If the lane is outside the warp or block, the reader must get its own value.
            let expect = |from: usize| (if from < lanes { first + from } else { t }) as i32;
            let own = t as i32;
            assert_eq!(down.as_ref()[t], if lane + 3 < size { expect(lane + 3) } else { own }, "down {t}");
            assert_eq!(up.as_ref()[t], if lane >= 3 { expect(lane - 3) } else { own }, "up {t}");
            assert_eq!(cross.as_ref()[t], expect(lane ^ 5), "xor {t}");
            assert_eq!(idx.as_ref()[t], expect(lane / 8 * 8 + 2), "idx {t}");
            assert_eq!(doubles.as_ref()[t], 1.5 * f64::from(expect(lane ^ 1)), "double {t}");
        }
    }
}

#[test]
fn votes_count_the_lanes_of_the_warp_at_32_and_64() {
    for size in [32, 64] {
        let (bench, [stream]) = Bench::with_streams(options().warp_size(size as u32), &WARPS_IMAGE);
        let n = 100;
        let (ballot, some) = (bench.memory::<u64>(n), bench.memory::<u64>(n));
        let (any, all) = (bench.memory::<i32>(n), bench.memory::<i32>(n));
        bench.launch(stream, "ballots", 1, n as u32, args![&ballot, &any, &all, &some]);
        bench.sync(stream).unwrap();
        for t in 0..n {
            let first = t / size * size;
            let threads = || first..(first + size).min(n);
            let mask = |f: &dyn Fn(usize) -> bool| {
                threads().filter(|&t| f(t)).fold(0u64, |m, t| m | 1 << (t - first))
            };
            assert_eq!(ballot.as_ref()[t], mask(&|t| t % 3 == 0), "ballot {t}");
            assert_eq!(any.as_ref()[t] != 0, threads().any(|t| t == 40), "any {t}");
            assert_eq!(all.as_ref()[t] != 0, threads().all(|t| t < 40), "all {t}");
            let active = if t % 2 == 0 { mask(&|t| t % 2 == 0) } else { 0 };
            assert_eq!(some.as_ref()[t], active, "activemask {t}");
        }
    }
}

#[test]
fn warp_operations_work_with_parts_of_a_warp_and_lanes_that_returned() {
    let (bench, [stream]) = Bench::with_streams(options(), &WARPS_IMAGE);
    let out = bench.memory::<i32>(64);
    bench.launch(stream, "half_warps", 1, 64, args![&out]);
    let counts = bench.memory::<i32>(3);
    bench.launch(stream, "early_exit", 1, 96, args![40, &counts]);
    let matches = bench.memory::<u64>(32);
    bench.launch(stream, "match", 1, 32, args![&matches]);
    bench.sync(stream).unwrap();
    for (t, &v) in out.as_ref().iter().enumerate() {
        let first = t / 16 * 16;
        assert_eq!(v as usize, (first..first + 16).sum::<usize>(), "{t}");
    }
    assert_eq!(counts.as_ref()[0], 32);
    for (t, &mask) in matches.as_ref().iter().enumerate() {
        assert_eq!(mask, (0..32).filter(|l| l % 5 == t % 5).fold(0, |m, l| m | 1 << l));
    }
}

#[test]
fn threads_that_return_leave_those_that_wait_to_go_on() {
    for (threads, waiting) in [(96, 40), (96, 33), (64, 1), (1024, 1000), (128, 127)] {
        // We use a separate device, because its worker has no fibers yet. Only the necessary ones must be made.
        let (bench, [stream]) = Bench::with_streams(options().workers(1), &WARPS_IMAGE);
        let counts = bench.memory::<i32>(32);
        for _ in 0..3 {
            bench.launch(stream, "early_exit", 2, threads, args![waiting, &counts]);
        }
        bench.sync(stream).unwrap();
        let whole = waiting as usize / 32;
        assert!(counts.as_ref()[..whole].iter().all(|&c| c == 32), "{threads} {waiting}");
    }
}

const FAULTS: &str = r#"
extern "C" __global__ void divergent(int* out) {
    if (threadIdx.x != 37) __syncthreads();
    else __shfl_sync(0xffffffffu, 1, 0);
}
extern "C" __global__ void two_barriers(int* out) {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}
extern "C" __global__ void missing_lane(int* out) {
    if (threadIdx.x == 3) __syncthreads();
    else out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}
extern "C" __global__ void late(int* out, int how) {
    int t = threadIdx.x;
    for (int i = 0; i < 5; ++i) {
        if (i == 4 && t == 9) {
            if (how == 1) __syncthreads();
            if (how == 2) __syncwarp();
            if (how == 3) __trap();
            if (how == 4) *(volatile int*)16 = 1;
        }
        __syncthreads();
    }
    out[t] = 1;
}
extern "C" __global__ void asserts(int* out) {
    assert(blockIdx.x * blockDim.x + threadIdx.x != 77);
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
extern "C" __global__ void traps(int* out) { if (threadIdx.x == 2) __trap(); out[0] = 1; }
extern "C" __global__ void null(int* out) { if (threadIdx.x == 5 && blockIdx.x == 2) *(volatile int*)16 = 1; }
extern "C" __global__ void divide(int* out, int by) { out[0] = 1000 / by; }
extern "C" __global__ void illegal(int* out) { __builtin_trap(); }
__device__ __noinline__ int deeper(int n) {
    volatile char page[4096];
    page[n % 4096] = (char)n;
    int below = n > 0 ? deeper(n - 1) : 0;
    return below + page[n % 4096];
}
extern "C" __global__ void overflow(int* out, int n) { out[0] = deeper(n); }
extern "C" __global__ void fine(int* out) { out[threadIdx.x] = 7; }
"#;

/// Runs a kernel on a separate device, because the kernel's error ends the device. Returns the error's message.
fn fault(name: &str, grid: u32, block: u32, extra: Option<i32>) -> String {
    static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(FAULTS));
    let (bench, [stream, other]) = Bench::with_streams(options(), &IMAGE);
    let out = bench.memory::<i32>(1024);
    let mut arguments = vec![support::Arg::from(&out)];
    arguments.extend(extra.map(support::Arg::from));
    bench.launch(stream, name, grid, block, &mut arguments);
    let error = bench.sync(stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert_eq!(error.backend(), Some("cpu"));
    // The error is sticky: every later call must say that the device failed earlier, and why. Nothing may run or hang.
    let earlier = format!("the device failed earlier: {}", error.message());
    for again in [
        bench.sync(other).unwrap_err(),
        bench.device.synchronize().unwrap_err(),
        bench.device.alloc(16).unwrap_err(),
        bench.launch_with(other, "fine", LaunchConfig::new([1, 1, 1], [1, 1, 1]), args![&out]).unwrap_err(),
        // SAFETY: the stream is alive.
        unsafe { bench.device.stream_query(other) }.unwrap_err(),
    ] {
        assert_eq!(again.message(), earlier);
    }
    error.message().to_owned()
}

#[test]
fn a_barrier_that_a_thread_does_not_reach_is_an_error_with_both_places() {
    let places = [
        "block (0, 0, 0)",
        "thread (0, 0, 0)",
        "user.cu:3",
        "thread (37, 0, 0) waits in a warp operation at",
    ];
    assert_says(&fault("divergent", 1, 64, None), &[&["`divergent`"], &places[..]].concat());
}

#[test]
fn threads_at_different_barriers_are_an_error_with_both_places() {
    let places = ["`two_barriers`", "thread (16, 0, 0)", "user.cu:10", "user.cu:8"];
    assert_says(&fault("two_barriers", 1, 32, None), &places);
}

#[test]
fn a_warp_operation_that_a_lane_does_not_reach_is_an_error() {
    let places = ["`missing_lane`", "user.cu:15", "thread (3, 0, 0)", "user.cu:14"];
    assert_says(&fault("missing_lane", 1, 32, None), &places);
}

#[test]
fn failures_after_some_barriers_name_the_thread() {
    let says = |how, parts: &[&str]| assert_says(&fault("late", 2, 64, Some(how)), parts);
    let waits = "waits at the barrier at";
    says(1, &["`late`", "thread (9, 0, 0)", waits, "while other threads wait at the one at"]);
    says(2, &["`late`", "thread (0, 0, 0)", waits, "thread (9, 0, 0) waits in a warp operation at"]);
    says(3, &["`late`", "thread (9, 0, 0)", "__trap()"]);
    says(4, &["`late`", "thread (9, 0, 0)", "0x10", "SIGSEGV"]);
}

#[test]
fn assertions_and_traps_name_the_thread() {
    let message = fault("asserts", 4, 32, None);
    assert_says(&message, &["`asserts`", "block (2, 0, 0)", "thread (13, 0, 0)", "!= 77", "user.cu:31"]);
    assert_says(&fault("traps", 1, 4, None), &["`traps`", "thread (2, 0, 0)", "__trap()"]);
}

#[test]
fn crashes_are_errors_and_not_the_end() {
    assert_says(&fault("null", 8, 32, None), &["`null`", "block (2, 0, 0)", "0x10", "SIGSEGV"]);
    assert_says(&fault("overflow", 1, 1, Some(1_000_000)), &["`overflow`", "stack", "512 KiB"]);
    if cfg!(target_arch = "x86_64") {
        assert_says(&fault("divide", 1, 1, Some(0)), &["`divide`", "SIGFPE"]);
    }
    assert_says(&fault("illegal", 1, 1, None), &["`illegal`"]);
}

#[test]
fn warps_of_other_than_32_or_64_lanes_are_refused() {
    for lanes in [0, 1, 33, 128] {
        let Err(error) = gpustream_cpu::open_with(options().warp_size(lanes)) else {
            panic!("a device with warps of {lanes}")
        };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(&format!("{lanes} lanes")), "{error}");
    }
}
