// One kernel for each portable header. It calls the functions that you get from that header.
#include <gpustream/kernel.cuh>

/// sums[i] = sum of the i-th elements. Each array's elements must have the width and the sign that their type's name
/// says.
/// requires: n <= len(a), n <= len(b), n <= len(c), n <= len(d), n <= len(e), n <= len(f), n <= len(g), n <= len(h)
/// requires: n <= len(sums)
/// covers: n
extern "C" __global__ void fixed_width(const int8_t* a, const int16_t* b, const int32_t* c, const int64_t* d,
                                       const uint8_t* e, const uint16_t* f, const uint32_t* g, const uint64_t* h,
                                       int64_t* sums, size_t n) {
    GS_FOR_EACH(i, n) {
        const uint64_t unsigneds = (uint64_t)e[i] + f[i] + g[i] + h[i];
        sums[i] = (int64_t)a[i] + b[i] + c[i] + d[i] + (int64_t)unsigneds;
    }
}

/// Stores what each thread gets from its warp: the value of the lane below, the running sum and the whole sum.
/// requires: block.x <= len(x), block.x <= len(below), block.x <= len(running), block.x <= len(whole)
/// requires: block.y == 1, block.z == 1, grid.x == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void in_warps(const double* x, double* below, double* running, double* whole) {
    const unsigned int t = threadIdx.x;
    below[t] = gs::shfl_up(x[t], 1);
    running[t] = gs::warp_inclusive_scan(x[t], gs::Sum());
    whole[t] = gs::warp_reduce(x[t], gs::Sum());
}

/// Stores what each thread gets from its block: the sum before it, the whole sum and the largest value.
/// requires: block.x <= len(x), block.x <= len(before), block.x <= len(whole), block.x <= len(largest)
/// requires: block.y == 1, block.z == 1, grid.x == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void in_blocks(const unsigned int* x, unsigned int* before, unsigned int* whole,
                                     unsigned int* largest) {
    const unsigned int t = threadIdx.x;
    const gs::BlockScan<unsigned int> scan = gs::block_scan(x[t], 0u, gs::Sum());
    before[t] = scan.before;
    whole[t] = scan.total;
    largest[t] = gs::block_reduce(x[t], gs::Max());
}

/// Every thread adds 1 to halves[0], halves[1], brains[1], floats[0], doubles[0] and words[0]. It also offers its
/// element of x as the smallest and the largest value.
/// requires: grid.x * block.x <= len(x), block.y * block.z == 1, grid.y * grid.z == 1
/// requires: 2 <= len(halves), 2 <= len(brains), 1 <= len(floats), 1 <= len(doubles), 1 <= len(words)
/// requires: 2 <= len(bounds), 2 <= len(wide_bounds)
extern "C" __global__ void atomically(const float* x, gs::half* halves, gs::bfloat16* brains, float* floats,
                                      double* doubles, unsigned long long* words, float* bounds, double* wide_bounds) {
    __shared__ unsigned int counted;
    if (threadIdx.x == 0) counted = 0;
    __syncthreads();
    const float value = x[gs::thread_in_grid()];
    gs::atomic_add(&halves[0], gs::from_float<gs::half>(1.0f));
    gs::atomic_add(&halves[1], gs::from_float<gs::half>(1.0f));
    gs::atomic_add(&brains[1], gs::from_float<gs::bfloat16>(1.0f));
    gs::atomic_add(floats, 1.0f);
    gs::atomic_add(doubles, 1.0);
    gs::shared_add(&counted, 1u);
    gs::atomic_min(&bounds[0], value);
    gs::atomic_max(&bounds[1], value);
    gs::atomic_min(&wide_bounds[0], (double)value);
    gs::atomic_max(&wide_bounds[1], (double)value);
    __syncthreads();
    if (threadIdx.x == 0) gs::atomic_add(words, (unsigned long long)counted);
}
