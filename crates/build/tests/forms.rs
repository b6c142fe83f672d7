//! How the threads of a block run on the CPU: alone, as loops, or on stacks of their own. In the last case
//! the report must say why.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

use std::fs;

use fixture::{build, cpu};
use gpustream_build::{KernelReport, Threads};

/// Returns how the threads of each kernel run, in order: `alone`, `loops`, or the line and the reason.
fn threads(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, cpu).unwrap();
    let say = |kernel: &KernelReport| match kernel.threads.as_ref().unwrap() {
        Threads::Alone => "alone".to_owned(),
        Threads::Loops => "loops".to_owned(),
        Threads::Fibers { line, reason } => format!("{line}: {reason}"),
        other => panic!("{other:?}"),
    };
    built.files[0].kernels.iter().filter(|kernel| !kernel.target.contains("checked")).map(say).collect()
}

#[test]
fn a_call_that_could_mean_another_function_is_not_looked_into() {
    let text = "\
template <class T> __device__ T total(T v) { v += __shfl_xor_sync(~0u, v, 1); return v; }
template <> __device__ float total<float>(float v) { v -= __shfl_xor_sync(~0u, v, 1); return v; }
struct Sums { int n; __device__ int plus(int v) { return v + __shfl_xor_sync(~0u, v, 1); } };
__device__ int plus(int v) { return v + __shfl_xor_sync(~0u, v, 2); }
__device__ float either(float v) { return v + __shfl_xor_sync(~0u, v, 2); }
__device__ float either(double v) { return (float)v + __shfl_xor_sync(~0u, (float)v, 2); }
__global__ void special(float* x) { float v = x[threadIdx.x]; v = total(v); x[threadIdx.x] = v; }
__global__ void method(int* x, Sums sums) { int v = x[threadIdx.x]; v = sums.plus(v); x[threadIdx.x] = v; }
__global__ void unknown(float* x) { float v = either(x[threadIdx.x] * 2); x[threadIdx.x] = v; }
";
    let reasons = [
        "its threads meet in `total(v)`",
        "its threads meet in `sums.plus(v)`",
        "its threads meet in `either(x[threadIdx.x] * 2)`",
    ];
    let found = threads(text);
    assert!(found.iter().zip(reasons).all(|(found, reason)| found.ends_with(reason)), "{found:?}");
}

/// Returns the kernels' loop forms, each from its name on.
fn forms(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, cpu).unwrap();
    let code = fs::read_to_string(built.out_dir.join("k.cpu.cpp")).unwrap();
    code.split(" void gs_loops_").skip(1).map(str::to_owned).collect()
}

#[test]
fn threads_that_meet_together_run_as_loops() {
    let text = "
#define SYNC __syncthreads()
#define TID threadIdx.x
__device__ int twice(int x) { return 2 * x; }
__global__ void never(int* x) { x[TID] = twice(x[TID]); }
__global__ void once(int* x) { x[TID] = 1; __syncthreads(); x[0] = twice(x[1]); }
__global__ void shuffled(int* x) { int v = x[TID]; v += __shfl_xor_sync(~0u, v, 1); x[TID] = v; }
__global__ void evenly(int* x, int n) { for (int i = 0; i < n / 2; ++i) { x[TID] += i; __syncthreads(); } }
__global__ void warps(int* x) { int v = 3; if (TID < 32) v = __shfl_sync(~0u, x[TID], 0); else v = 4; x[TID] = v; }
__global__ void counted(int* x) { for (int i = 0; i < x[blockIdx.x]; ++i) __syncthreads(); x[TID] = 1; }
__global__ void pairs(int* x, int n) { for (int i = 0, j = 0; i < n; i += 1, j += n) { __syncthreads(); x[j] = i; } }
__global__ void some_lines(int* x) {
    __syncthreads();
#if UNKNOWN > 3
    x[TID] = 1;
#endif
}
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void grouped(int* x) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    int v = x[block.thread_rank()];
    v += tile.shfl_down(v, 8);
    cg::sync(block);
    x[tile.meta_group_rank()] = v;
}
struct Pair { int low, high; };
__device__ int sum_of(const Pair& pair) { return pair.low + pair.high; }
__global__ void by_value(const Pair pair, int* x) { x[TID] = sum_of(pair); __syncthreads(); x[0] += sum_of(pair); }
__global__ void named_late(int* y) {
    y[threadIdx.x] = 1;
    __syncthreads();
    int x = y[0];
    __syncthreads();
    y[threadIdx.x] = x;
}
";
    let mut expected = ["loops"; 11];
    expected[0] = "alone";
    assert_eq!(threads(text), expected);
}

/// A loop over rows of threads must not confuse a thread's variable with a member that has the same name.
#[test]
fn variables_may_be_named_as_members_are() {
    let text = "
__global__ void sums(const float* x, float* out, int n, int each) {
    for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        x += i * each;
        float sum = 0;
        for (int at = 0; at < each; ++at) sum += x[at];
        out[i] = sum;
    }
}
#define WIDTH blockDim.x
__global__ void rows(int x, int* y, int n) {
    const int i = WIDTH * blockIdx.x + threadIdx.x;
    x += threadIdx.y;
    __syncthreads();
    if (i < n) y[i] = x;
    if (threadIdx.x == WIDTH - 1) y[i] += x;
}
";
    assert_eq!(threads(text), ["alone", "loops"]);
}

#[test]
fn parameters_may_be_arrays() {
    let text = "
#define N 4
__global__ void flat(float to[], const float from[N], int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
    __syncthreads();
    if (i < n) to[i] += from[n - 1 - i];
}
__global__ void deep(double to[][N][N], const double from[][N], int n) {
    const int i = threadIdx.x;
    for (int j = threadIdx.y; j < n; j += blockDim.y) to[i][j][0] = from[j][i];
    __syncthreads();
    to[0][0][i] += to[i][0][0];
}
__global__ void own(double to[][N], float* y) {
    to += threadIdx.x;
    __syncthreads();
    to[0][0] = y[threadIdx.x];
}
__global__ void around(double (*to)[N], float* y) {
    to += threadIdx.x;
    __syncthreads();
    to[0][0] = y[threadIdx.x];
}
";
    let refused = |line: u32| format!("{line}: no loop can keep the variable `to`");
    assert_eq!(threads(text), ["loops".to_owned(), "loops".to_owned(), refused(15), refused(20)]);
}

#[test]
fn arrays_as_long_as_their_value_do_not_outlive_a_meeting() {
    let text = "
__global__ void within(float* y) {
    __syncthreads();
    const float table[] = {1, 2, 3};
    y[threadIdx.x] = table[threadIdx.x % 3];
}
__global__ void beyond(float* y) {
    float table[] = {1, 2, 3};
    __syncthreads();
    y[threadIdx.x] = table[threadIdx.x % 3]++;
    __syncthreads();
    y[threadIdx.x] += table[0];
}
";
    assert_eq!(threads(text), ["loops", "8: no loop can keep the variable `table`"]);
}

/// Editors on other systems may put this mark at the start of a file.
#[test]
fn byte_order_mark_is_no_part_of_the_text() {
    let text = "\u{feff}#define N 4\n__global__ void k(int* x) { x[threadIdx.x] = N; __syncthreads(); ++x[threadIdx.x]; }\n";
    assert_eq!(threads(text), ["loops"]);
}

#[test]
fn comparisons_of_every_type_may_stand_in_loops() {
    let text = "
#include <gpustream/half.cuh>
enum Side { LEFT, RIGHT };
#define BELOW(x, n) ((x) < (n))
__global__ void pointers(float* p, float* end, int n) {
    __syncthreads();
    float* const q = p + blockIdx.x;
    if (q + threadIdx.x < end && threadIdx.x < n) q[threadIdx.x] = 1;
}
__global__ void halves(gs::half* p, gs::half bound, int n) {
    const gs::half mine = bound;
    __syncthreads();
    if (mine < p[0] && threadIdx.x + 0.5 < (double)n) p[threadIdx.x] = bound;
}
__global__ void others(int* p, Side side, bool on, char c, short s, long long l) {
    const int x = threadIdx.x;
    __syncthreads();
    if (x < side && x < on && x < c && x < s && x < l && BELOW(x, 64)) p[x] = 1;
    __syncthreads();
    if (int y = p[x]; y < x) p[x] = y;
    if (const int y = x - 3) { if (y < 64) p[x] = y; }
    auto unseen = [](int y, int n) { if (y < n) return 1; return 2; };
    struct Inner { int v; __device__ int least(int n) { return v < n ? v : n; } } inner{x};
    if constexpr (sizeof(int) < 8) p[x] += unseen(x, 64) + inner.least(64);
    switch (p[x]) { case 1: if (x < 64) p[x] = 3; break; default: break; }
}
template <class T> __global__ void templated(T* p, T n) {
    const T i = threadIdx.x;
    __syncthreads();
    if (i < n && threadIdx.y < n) p[threadIdx.x] = 1;
}
template __global__ void templated<float>(float* p, float n);
template __global__ void templated<unsigned long long>(unsigned long long* p, unsigned long long n);
";
    assert_eq!(threads(text), ["loops"; 5]);
}

#[test]
fn threads_of_which_it_is_not_plain_that_they_meet_run_on_stacks() {
    let text = "
#define SYNC __syncthreads()
#define TID threadIdx.x
__device__ void meet() { if (threadIdx.y > 0) return; __syncthreads(); }
__device__ int count;
__global__ void hidden(int* x) { meet(); x[0] = 1; }
__global__ void in_macro(int* x) { SYNC; x[0] = 1; }
__global__ void some(int* x) { if (threadIdx.x < 32) __syncthreads(); x[0] = 1; }
__global__ void by_memory(int* x) { for (int i = 0; i < x[threadIdx.x]; ++i) __syncthreads(); }
__global__ void by_global(int* x) { while (count > 0) __syncthreads(); x[0] = 1; }
__global__ void by_own(int* x) { int i = threadIdx.x; while (i-- > 0) __syncthreads(); x[0] = 1; }
__global__ void changed(int* x, int n) { n += x[threadIdx.x]; if (n > 3) __syncthreads(); x[0] = n; }
__global__ void through(int* x, int n) { int* p = &n; *p = x[0]; if (n > 3) __syncthreads(); x[0] = n; }
__global__ void some_leave(int* x) { for (int i = 0; i < 9; ++i) { __syncthreads(); if (x[i + threadIdx.x]) break; } }
__global__ void lazily(int* x) { int v = x[0]; v = v > 3 && __shfl_sync(~0u, v, 1); x[0] = v; }
struct Two { int a, b; };
__global__ void declared(int* x) { auto [a, b] = Two{1, 2}; __syncthreads(); x[a] = b; }
__global__ void by_macro(int* x) { if (TID < 32) __syncthreads(); x[0] = 1; }
__global__ void chosen(int* x) { switch (x[0]) { case 1: __syncthreads(); } }
__global__ void spinning(volatile int* x) { while (x[0]) __syncthreads(); }
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void some_of_block(int* x) { auto g = cg::this_thread_block(); if (x[threadIdx.x]) g.sync(); }
__global__ void handed_on(int* x) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    x[0] = cg::inclusive_scan(tile, x[0], cg::plus<int>());
}
__device__ void uneven(int n) { for (int i = 0; i < n; ++i) __syncthreads(); }
__global__ void within(int* x) { uneven(x[threadIdx.x]); x[0] = 1; }
__device__ int again(int n) { __syncthreads(); return n > 0 ? again(n - 1) : 0; }
__global__ void without_end(int* x) { x[0] = again(3); }
__device__ int file_n() { __syncthreads(); return count; }
__global__ void hiding(int* x, int count) { x[count] = file_n(); }
#define LEAVE return
#define LEAVE_IF(condition) if (condition) LEAVE
__global__ void leaving(int* x, int n) { LEAVE_IF(threadIdx.x >= n); __syncthreads(); x[threadIdx.x] = 1; }
#define EACH(i, n) for (int i = 0; i < n; ++i)
__global__ void after_a_macro(int* x, int n) { EACH(i, n) { __syncthreads(); x[threadIdx.x] = i; } }
__global__ void macro_without_braces(int* x, int n) {
    __syncthreads();
    EACH(i, n) x[threadIdx.x] = i;
}
";
    let proof = "no proof that all threads";
    assert_eq!(
        threads(text),
        [
            "6: its threads meet in `meet()`".to_owned(),
            "7: its threads meet in `SYNC`".to_owned(),
            format!("8: {proof} of the block come to this barrier"),
            format!("9: {proof} run a loop equally often"),
            format!("10: {proof} run a loop equally often"),
            format!("11: {proof} run a loop equally often"),
            format!("12: {proof} of the block come to this barrier"),
            format!("13: {proof} of the block come to this barrier"),
            "14: only some threads leave a loop in which threads meet".to_owned(),
            "15: threads meet in a part of an expression that not all of them evaluate".to_owned(),
            "17: the declaration of `[a, b]` cannot be read".to_owned(),
            format!("18: {proof} of the block come to this barrier"),
            "19: its threads meet inside of a `switch statement`".to_owned(),
            format!("20: {proof} run a loop equally often"),
            format!("23: {proof} of the block come to this barrier"),
            "26: its threads meet in `cg::inclusive_scan(tile, x[0], cg::plus<int>())`".to_owned(),
            format!("29: {proof} run a loop equally often"),
            "31: its threads meet in `again(n - 1)`".to_owned(),
            "33: its threads meet in `file_n()`".to_owned(),
            "36: the macro `LEAVE_IF` could return from it".to_owned(),
            "38: its threads meet after the macro `EACH(i, n)`, which could be any loop".to_owned(),
            "41: the statement here cannot be read, perhaps because it begins with a macro".to_owned(),
        ]
    );
}

#[test]
fn declarations_in_every_form_leave_a_kernel_its_loops() {
    let text = "
#include <hip/hip_runtime.h>
#define warpSize 32
#define AT(i) tile[i]
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
struct Line { int slope, offset; __device__ Line(int a, int b) : slope(a), offset(b) {} };
__device__ int value(const Line* line) { return line->offset; }
__device__ int summed(int n) {
    __shared__ int tile[64];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) { AT(threadIdx.x) = n; __syncthreads(); sum += AT(i); __syncthreads(); }
    for (int i = 0; i < n; ++i) ++sum;
    return sum;
}
__global__ void shadows(int* x, int n) {
    int i = threadIdx.x;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = 1;
    for (int i = 0; i < n; ++i) { __syncthreads(); { int i = x[0]; if (i < n) x[i] = 2; } }
    x[i] = 3;
}
__global__ void sides(int* x) {
#ifdef UNKNOWN
    const int at = threadIdx.x;
#else
    const int at = threadIdx.x + 1;
#endif
    __syncthreads();
    x[at] = 1;
}
__global__ void direct(int* x, int n) { int a = x[0]; Line v(a, n); dim3 w(x[a]); __syncthreads(); x[0] = v.slope + w.x; }
__global__ void older(int* x) { HIP_DYNAMIC_SHARED(int, cache) cache[0] = 1; __syncthreads(); x[0] = cache[warpSize]; }
__global__ void lent(int* x, const Line line) { __syncthreads(); x[threadIdx.x] = value(&line); }
__global__ void in_function(int* x) { x[0] = summed(3); for (int i = 0; i < 3; ++i) ++x[i]; }
__global__ void at_most(int* x, int n) { for (int i = 0; i < SMALLER(n, 3); ++i) { __syncthreads(); x[i] = 1; } }
";
    let mut expected = ["loops"; 7].map(str::to_owned);
    expected[1] = "25: a variable is declared beside an `#if`".to_owned();
    assert_eq!(threads(text), expected);
}

/// Warps may run a loop differently often, functions may return before the kernel ends, and constants of the compiler are
/// the same for all threads. A type may be deduced from an element of an array.
#[test]
fn warps_have_turns_of_their_own() {
    let text = "
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
template <class T> __device__ T total(T v) { v += __shfl_xor_sync(~0u, v, 1); return v; }
__device__ void ends(int* x, int n) {
    constexpr int each = 2;
    int sums[each] = {};
    if (threadIdx.y >= n) return;
    for (int i = 0; i < each; ++i) { __syncwarp(); sums[i] = total(sums[i]); }
    for (int i = 0; i < each; ++i) { if (i > n) return; x[i] = sums[i]; }
}
__global__ void rows(int* x, int n) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    for (int row = warp.meta_group_rank(); row < n; row += warp.meta_group_size()) {
        int sum[2] = {x[row], 1};
        for (int t = row; t < n; ++t) sum[1] = cg::reduce(warp, sum[1], cg::plus<int>());
        x[row] = sum[1];
    }
}
__global__ void tail(int* x, int n) { ends(x, n); }
__global__ void not_last(int* x, int n) { ends(x, n); x[0] = 1; }
__global__ void leaves(int* x, int n) {
    for (int i = 0; i < n; ++i) {
        if (i == 3) { const int at = threadIdx.x; x[at] = i; break; }
        __syncthreads();
    }
}
";
    let own = "22: its threads meet in `ends(x, n)`";
    assert_eq!(threads(text), ["loops", "loops", own, "loops"]);
}

/// If a macro could mean one of two variables, we do not look into it, because each thread may change what it
/// stands for.
#[test]
fn names_in_macros_keep_kernels_from_loops_only_where_they_mean_two_variables() {
    let text = "
#define MINE mine
#define SHIFT(x) ((x).mine << 1)
struct Field { int mine; };
__global__ void two(int* x) { int mine = x[0]; __syncthreads(); { int mine = x[1]; x[2] = MINE; } x[3] = mine; }
__global__ void one(int* x) { int mine = x[0]; __syncthreads(); x[2] = MINE; }
__global__ void none(int* x, Field f) { int mine = x[0]; __syncthreads(); { int mine = SHIFT(f); x[2] = mine; } x[3] = mine; }
__global__ void even(int* x) { int mine = 0; MINE += x[threadIdx.x]; if (mine) __syncthreads(); x[0] = mine; }
";
    let expected = [
        "5: the macro `MINE` could mean one of two variables `mine`",
        "loops",
        "loops",
        "8: no proof that all threads of the block come to this barrier",
    ];
    assert_eq!(threads(text), expected);
}

#[test]
fn a_form_that_does_not_compile_leaves_the_others_theirs() {
    let text = "
struct Pinned { int at; __device__ Pinned(int at) : at(at) {} Pinned(const Pinned&) = delete; };
__global__ void first(int* x) { __syncthreads(); x[threadIdx.x] = 1; }
__global__ void pinned(int* x) { Pinned v(x[threadIdx.x]); __syncthreads(); x[threadIdx.x] = v.at; }
__global__ void last(int* x) { __syncthreads(); x[threadIdx.x] = 2; }
";
    assert_eq!(threads(text), ["loops", "4: its form as loops does not compile", "loops"]);
    // We compile all levels from this one file, several at a time.
    let forms = forms(text);
    assert!(forms[1].starts_with("1_pinned("), "{forms:?}");
}

/// In the first nine kernels we can tell places in memory apart. In each of the others, two of them could be the same.
#[test]
fn loops_let_a_thread_touch_memory_in_any_order_where_places_are_told_apart() {
    let text = "
#define PART(at) own[at]
#define TID threadIdx.x
struct Pair { int x, y; };
__device__ int total;
__device__ int twice(int x) { return 2 * x; }
__global__ void copied(int* x, const int* y) { __syncthreads(); x[TID] = y[TID] + y[2 * TID]; }
__global__ void beside(int* x) { __syncthreads(); x[2 * TID] += 1; x[2 * TID + 1] += 2; }
__global__ void tiles(int* x) {
    __shared__ int t[8][8];
    t[threadIdx.y][TID] = x[TID];
    __syncthreads();
    x[TID] = t[threadIdx.y][7 - TID] + t[threadIdx.y][TID];
}
__global__ void apart(int* x, int n) { __syncthreads(); x[TID] = x[TID + n]; }
__global__ void fields(Pair* x) { __syncthreads(); x[TID].x += x[TID].y; }
__global__ void variables(int* x) { Pair v = {x[TID], 2}; int a = v.x; __syncthreads(); v.y += a; x[TID] = v.x + v.y; }
__global__ void elements(int* x) { int own[2] = {1, 2}; __syncthreads(); own[0] += own[1]; x[TID] = own[0]; }
__global__ void in_loop(int* x, int n) { __syncthreads(); for (int i = 0; i < n; ++i) x[8 * TID + i] += i; }
__global__ void computed(int* x, const float* y) { __syncthreads(); x[TID] = (int)sqrtf(y[TID]) + min(3, x[TID]); }
__global__ void alone(int* x, int n) { int own[2] = {1, 2}; own[n % 2] = 3; __syncthreads(); x[TID] = own[0]; }
__global__ void pairs(int* x, int n) { __syncthreads(); x[2 * TID + n % 2] = 3; x[2 * TID] += x[2 * TID + 1]; }
__global__ void counted(int* x, int n) { __syncthreads(); if (n > 0) for (int i = 0; i < 2; ++i) x[2 * TID + i] += x[n]; }
__global__ void moved(int* x) { int i = TID; __syncthreads(); x[i] = 1; i += 2; x[i] = 2; }
__global__ void pointed(int* x) { int* p = x + TID; __syncthreads(); p[0] = x[TID]; }
__global__ void led(int* x) { int a = 1; int* p = &a; __syncthreads(); a = 2; x[TID] = *p; }
__global__ void called(int* x) { __syncthreads(); x[TID] = twice(x[TID]); }
__global__ void global(int* x) { __syncthreads(); x[TID] = total; }
__global__ void by_macro(int* x) { int own[2] = {1, 2}; __syncthreads(); PART(x[1]) += own[1]; x[TID] = own[0]; }
__global__ void field(int* x) { Pair v[2] = {}; __syncthreads(); v[x[TID] % 2].x = 3; x[TID] = v[0].x + v[0].y; }
__global__ void by_element(int* x) { __syncthreads(); x[x[TID]] = 1; x[TID] = x[TID + 1]; }
";
    let is_loop = |line: &&str| line.contains("gs_cpu_each<") || line.contains("gs_row.each");
    let in_any_order =
        |form: &String| form.lines().filter(is_loop).all(|line| line.contains("gs_cpu_any_order"));
    let found: Vec<bool> = forms(text).iter().map(in_any_order).collect();
    let expected: Vec<bool> = (0..found.len()).map(|kernel| kernel < 9).collect();
    assert_eq!((found.len(), found), (20, expected));
}

#[test]
fn loops_visit_only_the_threads_and_rows_that_a_condition_can_pick() {
    let text = "
#define TID threadIdx.x
__global__ void halves(float* x) {
    const size_t tid = threadIdx.x;
    for (int s = blockDim.x / 2; s > 0; s >>= 1) { __syncthreads(); if (tid < s) x[tid] += x[tid + s]; }
}
__global__ void turned(float* x) {
    for (unsigned s = 1; s < 64; s *= 2) { __syncthreads(); if (s > threadIdx.x) x[threadIdx.x] += x[threadIdx.x + s]; }
}
__global__ void rows(float* x) {
    for (int i = 1; i <= 16; i *= 2) { const int by = i; __syncthreads(); if (threadIdx.y % by == 0) x[TID] += by; }
}
__global__ void fixed(float* x, int n) { __syncthreads(); if (threadIdx.x < n) x[threadIdx.x] += 1; }
__global__ void shifted(float* x) {
    for (int s = 64; s > 0; s /= 2) { __syncthreads(); const unsigned i = TID - 5u; if (i < s) x[i] += x[i + s]; }
}
__global__ void guarded(float* x, int by) { __syncthreads(); if (by != 0 && threadIdx.y % by == 0) x[TID] += by; }
";
    let found: Vec<_> = forms(text)
        .iter()
        .map(|form| {
            let has = |word| form.contains(word);
            if has("gs_cpu_each_below<") {
                "below"
            } else if has("gs_row.runs()") {
                "row"
            } else {
                "all"
            }
        })
        .collect();
    assert_eq!(found, ["below", "below", "row", "all", "all", "all"]);
}

#[test]
fn extents_of_an_array_may_be_constants_of_the_kernel() {
    let text = "
template <int N> __device__ void set(float* x) { *x = N; }
__global__ void k(float* x) {
    const int n = 8, m = 2;
    float sums[n / m][m] = {{0.0f}};
    set<n>(x + threadIdx.x);
    __syncthreads();
    for (int i = 0; i < 4; ++i) { x[threadIdx.x] += sums[i][0]; __syncthreads(); }
}
";
    assert_eq!(threads(text), ["loops"]);
}

/// Returns for each kernel's form in how many places whole warps compute in vectors.
fn in_lanes(text: &str) -> Vec<usize> {
    forms(text).iter().map(|form| form.matches("gs_cpu_in_lanes<").count()).collect()
}

#[test]
fn shuffles_that_depend_on_each_other_stay_in_registers() {
    let text = "
#include <gpustream/half.cuh>
#define ALL 0xffffffffu
#define HALF 16
#define TID threadIdx.x
__global__ void summed(float* x) {
    float v = x[TID];
    for (int step = HALF; step > 0; step >>= 1) v += __shfl_down_sync(ALL, v, step);
    x[TID] = v;
}
__global__ void in_turn(int* x) {
    int v = x[TID];
    const int a = __shfl_xor_sync(ALL, v, 1);
    v = threadIdx.x % 4 == 0 ? v : a + 2;
    v = max(v, __shfl_xor_sync(ALL, v, HALF));
    x[TID] = v;
}
__global__ void with_variables_inside(int* x) {
    int v = x[TID];
    for (int step = 1; step < 32; step *= 2) {
        const int half = step / 2;
        int a = __shfl_xor_sync(ALL, v, step), b = a;
        if (a > b - half) a = 7;
        b = __shfl_xor_sync(ALL, a, 1);
        v = a + b;
    }
    x[TID] = v;
}
template <class T> __device__ T sum_of(T v) {
    for (int step = HALF; step > 0; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}
__device__ float most_of(float v) {
    for (int step = HALF; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, step));
    return v;
}
__global__ void in_functions(double* x) { double v = x[threadIdx.x]; v = sum_of(v); x[threadIdx.x] = v + most_of(v); }
template <class T> __global__ void of_types(T* x) {
    T v = x[TID];
    for (int step = 1; step < 32; step *= 2) { const T w = __shfl_up_sync(ALL, v, step); if (threadIdx.x >= step) v = v + w; }
    x[TID] = v;
}
template __global__ void of_types<char>(char* x);
template __global__ void of_types<gs::half>(gs::half* x);
template __global__ void of_types<unsigned>(unsigned* x);
";
    assert_eq!(in_lanes(text), [1, 1, 1, 2, 1]);
    assert_eq!(threads(text), ["loops"; 7]);
}

/// Here lanes could trap, or touch memory that only some of them would, or a warp changes something that
/// belongs to all.
#[test]
fn shuffles_beside_anything_but_arithmetic_go_through_memory() {
    let text = "
#define ALL 0xffffffffu
#define TID threadIdx.x
__device__ float twice(float x) { return 2 * x; }
__global__ void alone(int* x) { int v = x[TID]; v += __shfl_xor_sync(ALL, v, 1); x[TID] = v; }
__global__ void apart(int* x) {
    int v = x[TID], w = 0;
    w = __shfl_xor_sync(ALL, v, 1);
    v = __shfl_xor_sync(ALL, v, 2);
    x[TID] = v + w;
}
__global__ void with_memory(int* x) {
    int v = x[TID];
    for (int step = 1; step < 32; step *= 2) v += x[TID] * __shfl_xor_sync(ALL, v, step);
    x[TID] = v;
}
__global__ void divided(int* x) {
    int v = x[TID];
    for (int step = 1; step < 32; step *= 2) { const int w = __shfl_up_sync(ALL, v, step); if (w != 0) v /= w; }
    x[TID] = v;
}
__global__ void called(float* x) {
    float v = x[TID];
    for (int step = 1; step < 32; step *= 2) v += twice(__shfl_xor_sync(ALL, v, step));
    x[TID] = v;
}
__global__ void counted_outside(float* x) {
    float v = x[TID];
    int step = 16;
    for (; step > 0; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    x[TID] = v;
}
__global__ void with_barriers(float* x) {
    float v = x[TID];
    for (int step = 1; step < 32; step *= 2) { v += __shfl_xor_sync(ALL, v, step); __syncthreads(); }
    x[TID] = v;
}
__global__ void from_lanes(int* x) {
    int v = x[TID];
    for (int step = 1; step < 32; step *= 2) v += __shfl_sync(ALL, v, TID * 3);
    x[TID] = v;
}
";
    assert_eq!(in_lanes(text), [0; 8]);
    assert_eq!(threads(text), ["loops"; 8]);
}

/// CUDA's barriers, pipelines and matrices need no stacks if all threads of the block meet there.
#[test]
fn cuda_objects_of_the_whole_block_are_plain_barriers() {
    let text = "
#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <mma.h>
#define TID threadIdx.x
typedef cuda::barrier<cuda::thread_scope_block> Barrier;
typedef cuda::pipeline_shared_state<cuda::thread_scope_block, 2> State;
__global__ void at_once(int* x) {
    __shared__ Barrier barrier;
    auto block = cooperative_groups::this_thread_block();
    if (TID == 0) init(&barrier, block.size());
    block.sync();
    x[TID] += 1;
    barrier.arrive_and_wait();
    x[TID] += x[TID ^ 1];
}
__global__ void in_two_steps(int* x) {
    __shared__ Barrier barrier;
    if (TID == 0) init(&barrier, blockDim.x);
    __syncthreads();
    x[TID] += 1;
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
    x[TID] += x[TID ^ 1];
}
__global__ void of_a_block(int* x, int* y) {
    __shared__ State state;
    __shared__ int room[64];
    auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state);
    pipe.producer_acquire();
    cuda::memcpy_async(room + TID, x + TID, 4, pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    y[TID] = room[TID ^ 1];
    pipe.consumer_release();
}
__global__ void of_a_warp(const half* x, float* y) {
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> b;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
    nvcuda::wmma::fill_fragment(c, 0.0f);
    nvcuda::wmma::load_matrix_sync(a, x, 16);
    nvcuda::wmma::load_matrix_sync(b, x, 16);
    nvcuda::wmma::mma_sync(c, a, b, c);
    nvcuda::wmma::store_matrix_sync(y, c, 16, nvcuda::wmma::mem_row_major);
}
__global__ void of_a_part(int* x, int n) {
    __shared__ Barrier barrier;
    if (TID == 0) init(&barrier, n);
    __syncthreads();
    barrier.arrive_and_wait();
    x[TID] = 1;
}
__global__ void with_roles(int* x) {
    __shared__ Barrier barrier;
    if (TID == 0) init(&barrier, blockDim.x);
    __syncthreads();
    if (TID < 32) barrier.arrive(); else barrier.arrive_and_wait();
    x[TID] = 1;
}
__global__ void with_an_old_token(int* x) {
    __shared__ Barrier barrier;
    if (TID == 0) init(&barrier, blockDim.x);
    __syncthreads();
    auto token = barrier.arrive();
    barrier.wait_parity(TID % 2);
    barrier.wait(std::move(token));
    x[TID] = 1;
}
";
    let found = threads(text);
    assert_eq!(found[..4], ["loops"; 4]);
    let reasons = ["`barrier.arrive_and_wait()`", "`barrier.arrive()`", "`barrier.arrive()`"];
    let stacks = found.iter().skip(4).zip(reasons);
    assert!(
        stacks.clone().count() == 3 && stacks.clone().all(|(found, reason)| found.contains(reason)),
        "{found:?}"
    );
}
