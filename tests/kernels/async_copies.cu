// Copies to shared memory that go on while the block computes.
#include <gpustream/kernel.cuh>
#include <gpustream/async_copy.cuh>

namespace {

constexpr unsigned int most_threads = 256;

}  // namespace

/// Each thread copies `bytes` bytes, of which counts[thread] are valid. y gets what the threads have in shared memory, last thread first.
/// requires: 4 * block.x <= len(x), block.x <= len(counts), 4 * block.x <= len(y), grid.x == 1, block.x <= 256
/// types: bytes = 4, 8, 16
template <int bytes>
__global__ void copy_parts(const gs::u32* x, const gs::u32* counts, gs::u32* y) {
    constexpr unsigned int words = bytes / 4;
    __shared__ gs::Pack<gs::u32> room[most_threads];
    gs::u32* const shared = room[0].at;
    const unsigned int t = threadIdx.x, count = counts[t];
    for (unsigned int w = 0; w < words; ++w) shared[t * words + w] = 77;
    gs::copy_async<bytes>(shared + t * words, count == 0 ? nullptr : x + t * words, count);
    gs::commit_copies();
    gs::wait_for_copies();
    __syncthreads();
    const unsigned int other = blockDim.x - 1 - t;
    for (unsigned int w = 0; w < words; ++w) y[t * words + w] = shared[other * words + w];
}

/// Copies two groups, and waits for the first alone before it reads that one.
/// requires: 2 * block.x <= len(x), 2 * block.x <= len(y), grid.x == 1, block.x <= 256
__global__ void copy_groups(const double* x, double* y) {
    __shared__ double first[most_threads], second[most_threads];
    const unsigned int t = threadIdx.x, threads = blockDim.x, other = threads - 1 - t;
    gs::copy_async(first + t, x + t);
    gs::commit_copies();
    gs::copy_async_if<8>(t % 2 == 0, second + t, x + threads + t);
    gs::commit_copies();
    gs::wait_for_copies<1>();
    __syncthreads();
    y[t] = first[other];
    gs::wait_for_copies();
    __syncthreads();
    y[threads + t] = second[other];
}

/// sums[t] = the sum of (step + 1) * x[step * threads + threads - 1 - t] over all steps
/// requires: steps * block.x <= len(x), block.x <= len(sums), grid.x == 1, block.x <= 256
/// types: stages = 2, 3, 5
template <int stages>
__global__ void sum_steps(const float* x, float* sums, int steps) {
    __shared__ float tiles[stages][most_threads];
    const unsigned int t = threadIdx.x, threads = blockDim.x;
    float sum = 0;
    gs::pipeline<stages>(
        steps,
        [&](int stage, int step) { gs::copy_async(&tiles[stage][t], x + (size_t)step * threads + t); },
        [&](int stage, int step) { sum += (float)(step + 1) * tiles[stage][threads - 1 - t]; });
    sums[t] = sum;
}
