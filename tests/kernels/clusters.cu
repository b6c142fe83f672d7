// What you can do only if blocks form a cluster.
#include <gpustream/kernel.cuh>

/// Each block takes the elements of the next block in its cluster, and the last one takes those of the first, `rounds`
/// times. It reads them from the other block's shared memory. Each block also stores its place in the cluster.
/// requires: block.x <= 256, block.y * block.z == 1
/// requires: grid.x * grid.y * grid.z * block.x <= len(x), grid.x * grid.y * grid.z <= len(sizes)
/// requires: grid.x * grid.y * grid.z <= len(places)
extern "C" __global__ void cluster_turn(unsigned* __restrict__ x, unsigned* __restrict__ sizes,
                                        unsigned* __restrict__ places, unsigned rounds) {
    __shared__ unsigned tile[256];
    const unsigned size = gs::blocks_in_cluster(), place = gs::block_in_cluster();
    const unsigned* next = gs::cluster_shared(&tile[0], place + 1 < size ? place + 1 : 0);
    const size_t block = gs::block_in_grid();
    unsigned mine = x[block * blockDim.x + threadIdx.x];
    for (unsigned round = 0; round < rounds; ++round) {
        tile[threadIdx.x] = mine;
        gs::cluster_barrier();
        mine = next[threadIdx.x];
        gs::cluster_barrier();
    }
    x[block * blockDim.x + threadIdx.x] = mine;
    if (threadIdx.x == 0) {
        sizes[block] = size;
        places[block] = place;
    }
}
