// A barrier for all blocks of a grid, and kernels that start before their predecessor has ended.
//
//   gs::grid_barrier(arrivals)    every thread of the grid meets here
//   gs::wait_for_predecessor()    in an early dependent launch: the kernels before are done, and their writes are seen
//   gs::let_successor_start()     an early dependent launch behind this one may start; it still waits as above
//
// The last two do nothing where the device has no early launches (before sm_90, on AMD, on the CPU).
//
// All blocks must be on the device at once, which only a cooperative launch promises: elsewhere the first blocks wait
// for ever, on the CPU with an error. A kernel that comes here says so in its contract, `requires: cooperative`; its
// safe launcher launches it so in any case. `arrivals` is one unsigned in device memory, zero before its first use; it needs no clearing between
// barriers or launches, and belongs to one grid at a time. What was written before the barrier is seen after it.
#ifndef GPUSTREAM_GRID_CUH
#define GPUSTREAM_GRID_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>

namespace gs {

// The first block adds what makes the top bit flip when all others have added one.
#if defined(GS_CPU)
GS_INLINE void grid_barrier(u32* arrivals, const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    if (blocks_in_grid() > 1) {
        gs_cpu_fail("comes to a grid barrier in a launch that is not cooperative, so that its blocks need not run at once",
                    file, line);
    }
#else
GS_INLINE void grid_barrier(u32* arrivals) {
#endif
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
