// Kernels that go wrong on purpose.
#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <assert.h>
#endif
#include <gpustream/kernel.cuh>

/// x[index] = value, wherever that is.
extern "C" __global__ void write_at(unsigned* x, size_t index, unsigned value) { x[index] = value; }

/// Reads an element, which need not be there.
extern "C" __global__ void read_at(const unsigned* x, size_t index, unsigned* seen) { seen[0] = x[index]; }

/// Writes to any address.
extern "C" __global__ void wild(size_t address) { *(volatile unsigned*)address = 1; }

/// Fails unless a < b.
/// requires: nothing
extern "C" __global__ void assert_less(unsigned a, unsigned b) { assert(a < b); }

/// Stops the device.
/// requires: nothing
extern "C" __global__ void give_up() {
#if defined(GS_HIP)
    __builtin_trap();
#else
    __trap();
#endif
}

/// A barrier that thread `absent` never reaches.
extern "C" __global__ void divergent(unsigned absent) {
    if (threadIdx.x != absent) __syncthreads();
}

/// Writes to a row of a shared array, beyond the row unless `index` is below 16.
extern "C" __global__ void shared_array_overrun(unsigned* out, unsigned index) {
    __shared__ unsigned rows[4][16];
    rows[0][index] = threadIdx.x;
    __syncthreads();
    out[0] = rows[0][index];
}

/// Writes to shared memory beyond what the launch asked for.
extern "C" __global__ void shared_overrun(unsigned index) {
    extern __shared__ unsigned overrun_tile[];
    // A store that nothing reads would not be made.
    *(volatile unsigned*)&overrun_tile[index] = 1;
    __syncthreads();
}
