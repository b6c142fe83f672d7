// Kernels that fail on purpose.
#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <assert.h>
#endif
#include <gpustream/kernel.cuh>

/// x[index] = value, but the index is not checked.
extern "C" __global__ void write_at(unsigned* x, size_t index, unsigned value) { x[index] = value; }

/// seen[0] = x[index], but the index is not checked.
extern "C" __global__ void read_at(const unsigned* x, size_t index, unsigned* seen) { seen[0] = x[index]; }

/// Writes to any address.
extern "C" __global__ void wild(size_t address) { *(volatile unsigned*)address = 1; }

/// Fails unless a < b.
/// requires: nothing
extern "C" __global__ void assert_less(unsigned a, unsigned b) { assert(a < b); }

/// Fails unless each thread's number is below `most`, in one block of 32. There are two variables called `value`, and
/// the message must still name yours.
/// requires: nothing
extern "C" __global__ void assert_below(unsigned most) {
    __shared__ unsigned tile[32];
    unsigned value = threadIdx.x % 32;
    tile[value] = value;
    __syncthreads();
    {
        unsigned value = tile[31 - threadIdx.x % 32];
        assert(value < most);
    }
}

/// Stops the device.
/// requires: nothing
extern "C" __global__ void give_up() {
#if defined(GS_HIP)
    __builtin_trap();
#else
    __trap();
#endif
}

/// Writes to a row of a shared array. If `index` is 16 or more, that is beyond the row.
extern "C" __global__ void shared_array_overrun(unsigned* out, unsigned index) {
    __shared__ unsigned rows[4][16];
    rows[0][index] = threadIdx.x;
    __syncthreads();
    out[0] = rows[0][index];
}

/// Writes to shared memory. The index may be beyond what the launch asked for.
extern "C" __global__ void shared_overrun(unsigned index) {
    extern __shared__ unsigned overrun_tile[];
    // The store is volatile, because the compiler would drop an ordinary store that is never read.
    *(volatile unsigned*)&overrun_tile[index] = 1;
    __syncthreads();
}
