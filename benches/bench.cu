// Kernels for benchmarks in which the library's own kernels would hide the measured cost.
#include <gpustream/kernel.cuh>

/// y[i] = a * x[i], one element per thread: four arguments and almost no work.
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void four(float a, const float* __restrict__ x, float* __restrict__ y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}

/// y[i] += a * x[i], one element per thread: the simplest version.
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void saxpy_plain(float a, const float* __restrict__ x, float* __restrict__ y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

/// Runs for about `ticks` clock ticks of the device; on the CPU it returns at once.
/// requires: nothing
extern "C" __global__ void spin(long long ticks) {
#if !defined(GS_CPU)
    const long long start = clock64();
    while (clock64() - start < ticks) {
    }
#endif
}

/// Meets at a barrier `count` times; in between, each thread passes a value to its neighbour.
/// requires: block.x <= 256, grid.x * block.x <= len(y)
extern "C" __global__ void barriers(unsigned* __restrict__ y, unsigned count) {
    __shared__ unsigned values[256];
    unsigned value = threadIdx.x;
    for (unsigned i = 0; i < count; i += 2) {
        values[threadIdx.x] = value;
        __syncthreads();
        value += values[(threadIdx.x + 1) % blockDim.x];
        __syncthreads();
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

/// a[i] += 1
/// requires: n <= len(a)
/// covers: n
extern "C" __global__ void add_one(double* __restrict__ a, size_t n) {
    GS_FOR_EACH_WIDE(n, a, [](double a) { return a + 1; }, a);
}

/// b[i] += a[i] + 3
/// requires: n <= len(a), n <= len(b)
/// covers: n
extern "C" __global__ void add_sum(const double* __restrict__ a, double* __restrict__ b, size_t n) {
    GS_FOR_EACH_WIDE(n, b, [](double a, double b) { return b + (a + 3); }, a, b);
}
