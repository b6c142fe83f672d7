// Idioms of existing CUDA and HIP kernels, which mean the same on every backend. There is no header of this library here.
#include <cuda_runtime.h>

/// sums[b] = sum of the b-th share of x, where the threads beyond the end return before the first barrier, and half of
/// those that are left return after each step.
/// requires: grid.x <= len(sums), n <= len(x), block.x <= 1024, block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void sum_of_those_left(const unsigned* x, unsigned* sums, unsigned n) {
    __shared__ unsigned partial[1024];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned left = min(blockDim.x, n - blockIdx.x * blockDim.x);
    partial[threadIdx.x] = x[i];
    __syncthreads();
    while (left > 1) {
        const unsigned half = (left + 1) / 2;
        if (threadIdx.x >= half) return;
        if (threadIdx.x + half < left) partial[threadIdx.x] += partial[threadIdx.x + half];
        left = half;
        __syncthreads();
    }
    sums[blockIdx.x] = partial[0];
}
