// A barrier for all blocks of a grid, and kernels that start before their predecessor has ended.
//
//   gs::grid_barrier(arrivals)    every thread of the grid meets here
//   gs::wait_for_predecessor()    in an early dependent launch: waits until the kernels before are done and their
//                                 writes are visible
//   gs::let_successor_start()     lets an early dependent launch behind this one start; that kernel still calls
//                                 gs::wait_for_predecessor() before it needs this one's writes
//
// The last two do nothing where the device has no early launches (before sm_90, on AMD, on the CPU).
//
// At a grid barrier all blocks must be on the device at once, which only a cooperative launch promises: in any other
// launch the first blocks wait for ever on a GPU, and the CPU reports an error. A kernel with a grid barrier says
// `requires: cooperative` in its contract, and its safe launcher then makes every launch cooperative. `arrivals` is one
// unsigned in device memory, zero before its first use; it needs no clearing between barriers or launches, and belongs
// to one grid at a time. Writes from before the barrier are visible after it.
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
// The first block adds a number that makes the top bit flip when all other blocks have added one.
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

GS_INLINE void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

GS_INLINE void let_successor_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace gs

#endif
