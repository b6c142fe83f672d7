// Idioms of existing CUDA and HIP kernels, which mean the same on every backend. There is no header of this library here.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
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

namespace cg = cooperative_groups;

/// Stores what groups of one block of `block.x` threads tell: for tiles of 16 and of 4 in those, and for the threads whose
/// number is a multiple of 3.
/// requires: 20 * block.x <= len(out), block.y * block.z * grid.x * grid.y * grid.z == 1
extern "C" __global__ void groups_of_a_block(unsigned* out) {
    cg::thread_block block = cg::this_thread_block();
    unsigned* mine = out + 20 * block.thread_rank();
    auto tile = cg::tiled_partition<16>(block);
    const unsigned me = threadIdx.x;
    mine[0] = block.size();
    mine[1] = tile.thread_rank();
    mine[2] = tile.size();
    mine[3] = tile.meta_group_rank();
    mine[4] = tile.shfl(me, 3);
    mine[5] = tile.shfl_down(me, 5);
    mine[6] = tile.shfl_up(me, 5);
    mine[7] = tile.shfl_xor(me, 6);
    mine[8] = tile.any(me == 5) != 0;
    mine[9] = tile.all(me < 40) != 0;
    mine[10] = (unsigned)tile.ballot(me % 5 == 0);
    mine[11] = cg::reduce(tile, me, cg::plus<unsigned>());
    mine[12] = cg::reduce(tile, (int)me - 20, cg::less<int>()) + 20;
    mine[13] = cg::inclusive_scan(tile, me);
    mine[14] = cg::exclusive_scan(tile, me, cg::plus<unsigned>());
    cg::thread_block_tile<4> small = cg::tiled_partition<4>(tile);
    mine[15] = cg::reduce(small, me, cg::greater<unsigned>());
    mine[16] = small.meta_group_rank();
    cg::sync(tile);
    if (me % 3 == 0) {
        // On a GPU nothing promises that all of them are together; the sum over the warp's groups is what holds.
        cg::coalesced_group together = cg::coalesced_threads();
        mine[17] = together.thread_rank() < together.size();
        mine[18] = cg::reduce(together, 1u, cg::plus<unsigned>()) == together.size();
        mine[19] = together.shfl(me, 0) % 3 == 0 && together.shfl(me, together.thread_rank()) == me;
    }
}

/// x[i] += the sum of all of x from before, `rounds` times, by a barrier of the grid after each step.
/// requires: cooperative, n <= len(x), 2 <= len(sums), block.x <= 1024, block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void add_the_sum(unsigned* x, unsigned* sums, unsigned rounds, unsigned n) {
    cg::grid_group grid = cg::this_grid();
    for (unsigned round = 0; round < rounds; ++round) {
        unsigned* sum = sums + round % 2;
        for (unsigned i = (unsigned)grid.thread_rank(); i < n; i += (unsigned)grid.size()) atomicAdd(sum, x[i]);
        grid.sync();
        for (unsigned i = (unsigned)grid.thread_rank(); i < n; i += (unsigned)grid.size()) x[i] += *sum;
        if (grid.thread_rank() == 0) sums[1 - round % 2] = 0;
        grid.sync();
    }
}
