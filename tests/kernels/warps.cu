// Lanes, votes and shuffles of a warp. They differ if a warp has 64 lanes instead of 32.
#include <gpustream/kernel.cuh>

/// Stores for each thread of one block: warp size, lane, the thread numbers in the next lane, in lane 0 and in the
/// neighbour's lane, and the votes on "my number is below `limit`".
/// requires: grid.x * grid.y * grid.z == 1, block.y * block.z == 1, 8 * block.x <= len(out)
extern "C" __global__ void warp_facts(unsigned long long* __restrict__ out, unsigned limit) {
    const unsigned me = threadIdx.x;
    const bool below = me < limit;
    const unsigned down = gs::shfl_down(me, 1u), first = gs::shfl(me, 0u), other = gs::shfl_xor(me, 1u);
    const bool any = gs::any(below), all = gs::all(below);
    const unsigned long long votes = gs::ballot(below);
    unsigned long long* mine = out + 8 * me;
    mine[0] = gs::warp_size();
    mine[1] = gs::lane();
    mine[2] = gs::lane() + 1 < gs::warp_lanes() ? down : me;
    mine[3] = first;
    mine[4] = other;
    mine[5] = any;
    mine[6] = all;
    mine[7] = votes;
}

/// out[0] = sum over one block of threadIdx.x + 1, with the library's reduction.
/// requires: grid.x * grid.y * grid.z == 1, block.y * block.z == 1, 2 <= len(out)
extern "C" __global__ void block_sum(unsigned long long* __restrict__ out) {
    const unsigned long long sum = gs::block_reduce((unsigned long long)threadIdx.x + 1,
                                                    [](unsigned long long a, unsigned long long b) { return a + b; });
    if (threadIdx.x == 0) out[0] = sum;
}

/// Stores what barriers return that also vote, on "my number is below `limit`".
/// requires: grid.x * grid.y * grid.z == 1, block.y * block.z == 1, 3 <= len(out)
extern "C" __global__ void barrier_votes(int* __restrict__ out, unsigned limit) {
    const int below = threadIdx.x < limit;
    const int number = __syncthreads_count(below), all = __syncthreads_and(below), any = __syncthreads_or(below);
    if (threadIdx.x == 0) {
        out[0] = number;
        out[1] = all != 0;
        out[2] = any != 0;
    }
}
