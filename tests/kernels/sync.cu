// These kernels wait for flags, so that a test can prove that operations overlap or do not.
#include <gpustream/kernel.cuh>

namespace {
__device__ __forceinline__ void wait_for(const volatile unsigned* go) {
    while (*go == 0) {
    }
    __threadfence_system();
}
__device__ __forceinline__ void set(volatile unsigned* flag, unsigned value) {
    __threadfence_system();
    *flag = value;
}
}  // namespace

/// Runs until `go` is not zero, so that you decide how long it takes.
/// requires: 1 <= len(go)
extern "C" __global__ void spin(const volatile unsigned* go) { wait_for(go); }

/// Sets `here`, then runs until `go` is not zero.
/// requires: 1 <= len(here), 1 <= len(go)
extern "C" __global__ void arrive(volatile unsigned* here, const volatile unsigned* go) {
    set(here, 1);
    wait_for(go);
}

/// Sets `flag` to `value`.
/// requires: 1 <= len(flag)
extern "C" __global__ void raise_flag(volatile unsigned* flag, unsigned value) { set(flag, value); }

/// Subtracts one from `left`, and sets `go_on` if anything is left.
/// requires: 1 <= len(left), 1 <= len(go_on)
extern "C" __global__ void count_down(unsigned* left, volatile unsigned* go_on) { set(go_on, --*left != 0); }

/// x[i] += value, once `go` is not zero.
/// requires: 1 <= len(go), n <= len(x)
/// covers: n
extern "C" __global__ void add_when(const volatile unsigned* go, unsigned* __restrict__ x, unsigned value, size_t n) {
    wait_for(go);
    GS_FOR_EACH(i, n) x[i] += value;
}

/// Sets `here` to 1 and waits until `go` is not zero. Then sets each x[i] to `value`, and `here` to 2. One thread does
/// all of this.
/// requires: 1 <= len(here), 1 <= len(go), n <= len(x)
/// covers: 1
extern "C" __global__ void arrive_and_set(volatile unsigned* here, const volatile unsigned* go, unsigned* x, unsigned value,
                                          size_t n) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    set(here, 1);
    wait_for(go);
    for (size_t i = 0; i < n; ++i) x[i] = value;
    set(here, 2);
}

/// y[i] = x[i], once `go` is not zero. So the test decides how long the copy takes.
/// requires: 1 <= len(go), n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void copy_when(const volatile unsigned* go, const unsigned* __restrict__ x, unsigned* __restrict__ y,
                                     size_t n) {
    wait_for(go);
    GS_FOR_EACH(i, n) y[i] = x[i];
}

/// x[i] = x[i] * 5 + value, so the result depends on the order of the steps.
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void step(unsigned* __restrict__ x, unsigned value, size_t n) { GS_FOR_EACH(i, n) x[i] = x[i] * 5 + value; }

/// y[i] = y[i] * 5 + x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void mix(const unsigned* __restrict__ x, unsigned* __restrict__ y, size_t n) {
    GS_FOR_EACH(i, n) y[i] = y[i] * 5 + x[i];
}

/// In each round x[i] becomes x[i] * 5 + x[(i + 1) % n], so every block reads what another one wrote in the round
/// before.
/// requires: cooperative, 1 <= n, n <= len(x), n <= len(next), 1 <= len(arrivals)
extern "C" __global__ void ring(unsigned* x, unsigned* next, unsigned* arrivals, unsigned rounds, size_t n) {
    for (unsigned round = 0; round < rounds; ++round) {
        GS_FOR_EACH(i, n) next[i] = x[i] * 5 + x[i + 1 < n ? i + 1 : 0];
        gs::grid_barrier(arrivals);
        GS_FOR_EACH(i, n) x[i] = next[i];
        gs::grid_barrier(arrivals);
    }
}

/// x[i] = x[i] * 5 + value. This kernel may start before the one before it has ended.
/// requires: n <= len(x)
extern "C" __global__ void early_step(unsigned* x, unsigned value, size_t n) {
    gs::let_successor_start();
    gs::wait_for_predecessor();
    GS_FOR_EACH(i, n) x[i] = x[i] * 5 + value;
}

/// Each block stores the number of its multiprocessor in `places`, or 0 if the backend does not tell, and then works
/// for `rounds` rounds. `running` has how many blocks work now, and the most that worked at once.
/// requires: block.x * block.y * block.z == 1, grid.x * grid.y * grid.z <= len(places), 2 <= len(running)
extern "C" __global__ void where_blocks_run(unsigned* __restrict__ places, unsigned* running, unsigned rounds) {
    const unsigned now = gs::atomic_add(&running[0], 1u) + 1;
    gs::atomic_max(&running[1], now);
    unsigned place = 0;
#if defined(GS_CUDA) && defined(__CUDA_ARCH__)
    asm volatile("mov.u32 %0, %%smid;" : "=r"(place));
#endif
    volatile unsigned work = 1;
    for (unsigned round = 0; round < rounds; ++round) work = work * 5 + round;
    places[gs::block_in_grid()] = place;
    gs::atomic_add(&running[0], ~0u);
}
