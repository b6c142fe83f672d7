// Kernels for benchmarks that measure the cost of a call. With the library's own kernels you could not see it.
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

/// Sets the count of the rounds that are left.
/// requires: 1 <= len(left), 1 <= len(go_on)
extern "C" __global__ void begin_rounds(unsigned* left, volatile unsigned* go_on, unsigned rounds) {
    *left = rounds;
    *go_on = 1;
}

/// A round of almost no work: takes one from `left`, and sets `go_on` to whether anything is left.
/// requires: 1 <= len(left), 1 <= len(go_on)
extern "C" __global__ void one_round(unsigned* left, volatile unsigned* go_on) { *go_on = --*left != 0; }

/// The same with CUDA's own condition, for a graph that a C programmer writes. Does nothing elsewhere.
/// requires: 1 <= len(left)
extern "C" __global__ void one_round_of_graph(unsigned* left, unsigned long long condition) {
#if defined(GS_CUDA) && !defined(__CUDACC_RTC__) && CUDART_VERSION >= 12040
    cudaGraphSetConditional(condition, --*left != 0);
#endif
}
