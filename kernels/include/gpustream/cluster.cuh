// Clusters of blocks. You group blocks in a launch: they are on the device at once, meet at their own barrier, and can
// reach the shared memory of all.
//
// Without clusters (before `sm_90`, on AMD, on the CPU, or if your launch asks for none) each block is its own cluster,
// and these functions behave that way. You may read another block's shared memory only between two cluster barriers:
// after the first, because then the other block has written it, and before the second, because then it still exists.
#ifndef GPUSTREAM_CLUSTER_CUH
#define GPUSTREAM_CLUSTER_CUH

#include <gpustream/backend.cuh>

#if defined(__CUDA_ARCH__)
#if __CUDA_ARCH__ >= 900
#define GS_CLUSTERS_ 1
#endif
#endif

namespace gs {

/// Returns the number of blocks in this block's cluster.
/// Threads: any.
GS_INLINE u32 blocks_in_cluster() {
#if defined(GS_CLUSTERS_)
    u32 blocks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
#else
    return 1;
#endif
}

/// Returns this block's number in its cluster.
/// Threads: any.
GS_INLINE u32 block_in_cluster() {
#if defined(GS_CLUSTERS_)
    u32 block;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    return block;
#else
    return 0;
#endif
}

/// Waits until every thread of the cluster comes here. Afterwards each thread sees what the others wrote before, to the
/// shared memory of all blocks too.
/// Threads: all of the cluster.
GS_INLINE void cluster_barrier() {
#if defined(GS_CLUSTERS_)
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
#else
    __syncthreads();
#endif
}

/// Returns the place in another block's shared memory that corresponds to this block's `address`. `block` is that block's
/// number in the cluster.
/// Threads: any, between two cluster barriers.
/// Shared memory: only the array that you pass.
template <class T>
GS_INLINE T* cluster_shared(T* address, u32 block) {
#if defined(GS_CLUSTERS_)
    u64 there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(reinterpret_cast<u64>(address)), "r"(block));
    return reinterpret_cast<T*>(there);
#else
    (void)block;
    return address;
#endif
}

}  // namespace gs

#endif
