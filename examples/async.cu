// The kernels of the examples about asynchronous work: `streams`, `await_many`, `graph_replay` and others.
#include <gpustream/kernel.cuh>

/// x[i] = x[i] * 5 + value, `rounds` times. The rounds let you choose how long the kernel runs.
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void churn(unsigned* __restrict__ x, unsigned value, unsigned rounds, size_t n) {
    GS_FOR_EACH(i, n) {
        unsigned v = x[i];
        for (unsigned r = 0; r < rounds; ++r) v = v * 5 + value;
        x[i] = v;
    }
}

/// sum[i] += x[i]
/// requires: n <= len(x), n <= len(sum)
/// covers: n
extern "C" __global__ void add(const unsigned* __restrict__ x, unsigned* __restrict__ sum, size_t n) {
    GS_FOR_EACH(i, n) sum[i] += x[i];
}
