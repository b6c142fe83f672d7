// A barrier for all blocks in a grid, and kernels that can start before the kernel before them has ended.
#ifndef GPUSTREAM_GRID_CUH
#define GPUSTREAM_GRID_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>

namespace gs {

#if defined(GS_CPU)
GS_INLINE void grid_barrier(u32*, const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    gs_cpu_grid_barrier(file, line);
}
#else
/// Waits until every thread of the grid comes here. Afterwards each thread sees what the others wrote to device memory
/// before. All blocks must be on the device at once, and only a cooperative launch promises that. In any other launch, the
/// first blocks can wait for ever on a GPU; the CPU reports an error. So write `requires: cooperative` in the kernel's
/// contract, and its safe launcher makes every launch cooperative. `arrivals` is one unsigned in device memory. It must be
/// zero before its first use, but you need not clear it between barriers or launches. Only one grid may use it at a time.
/// Threads: all of the grid.
/// Signature: void gs::grid_barrier(u32* arrivals)

// The first block adds a number that flips the top bit once all other blocks have added one.
GS_INLINE void grid_barrier(u32* arrivals) {
    __threadfence();
    __syncthreads();
    if (thread_in_block() == 0) {
        const u32 others = (u32)blocks_in_grid() - 1;
        const u32 before = atomicAdd(arrivals, block_in_grid() == 0 ? 0x80000000u - others : 1u);
        while (((before ^ *reinterpret_cast<volatile u32*>(arrivals)) & 0x80000000u) == 0) {
        }
        __threadfence();
    }
    __syncthreads();
}
#endif

/// In an early dependent launch (`Launch::early_dependent`): waits until the kernels before are done and their writes are visible.
/// Does nothing if the device has no early launches (before `sm_90`, on AMD, on the CPU).
/// Threads: any that needs those writes.
GS_INLINE void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets an early dependent launch behind this kernel start, once all its blocks have called this or ended. That kernel
/// still calls `gs::wait_for_predecessor()` before it needs this one's writes. Does nothing if the device has no early
/// launches.
/// Threads: one thread of each block is enough.
GS_INLINE void let_successor_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace gs

#endif
