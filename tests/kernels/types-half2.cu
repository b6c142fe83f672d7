// Pairs of 16-bit numbers. You cannot use the file's name as an identifier, so the build must make one.
#include <gpustream/kernel.cuh>

/// out[i] = x[i] with its halves swapped. The last one is `last` instead.
/// requires: n <= len(x), n <= len(out)
/// covers: n
extern "C" __global__ void turn_pairs(const __half2* x, half2 last, half2* out, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    half2 pair = i + 1 == n ? last : x[i];
    const auto low = pair.x;
    pair.x = pair.y;
    pair.y = low;
    out[i] = pair;
}
