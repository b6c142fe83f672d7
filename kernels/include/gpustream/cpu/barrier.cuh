// A block's barriers. If a thread has returned, it takes no part.
#ifndef GPUSTREAM_CPU_BARRIER_CUH
#define GPUSTREAM_CPU_BARRIER_CUH

// Returns how many threads' predicates hold. Other threads run on this OS thread meanwhile, so we restore the
// caller's index.
static inline __attribute__((always_inline)) uint32_t gs_cpu_barrier(uint32_t predicate, const char* file,
                                                                     uint32_t line) {
    gs_cpu_waits(file, line);
    const uint32_t x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    gs_cpu_context* context = gs_cpu_current;
    context->host->barrier(context, gs_cpu_thread(), predicate, file, line);
    threadIdx.x = x, threadIdx.y = y, threadIdx.z = z;
    gs_cpu_moved = true;
    return context->vote;
}

static inline __attribute__((always_inline)) void __syncthreads(const char* file = __builtin_FILE(),
                                                                unsigned line = __builtin_LINE()) {
    gs_cpu_barrier(0, file, line);
}
static inline __attribute__((always_inline)) int __syncthreads_count(int predicate,
                                                                     const char* file = __builtin_FILE(),
                                                                     unsigned line = __builtin_LINE()) {
    return (int)gs_cpu_barrier(predicate != 0, file, line);
}
static inline __attribute__((always_inline)) int __syncthreads_and(int predicate,
                                                                   const char* file = __builtin_FILE(),
                                                                   unsigned line = __builtin_LINE()) {
    return gs_cpu_barrier(predicate == 0, file, line) == 0;
}
static inline __attribute__((always_inline)) int __syncthreads_or(int predicate,
                                                                  const char* file = __builtin_FILE(),
                                                                  unsigned line = __builtin_LINE()) {
    return gs_cpu_barrier(predicate != 0, file, line) != 0;
}

// Whether a thread in this block has waited for the other blocks, at the barrier that the block is
// at.
static thread_local bool gs_cpu_met;

// Returns when all blocks in a cooperative launch are here. In each block one thread must wait for the other blocks,
// between two barriers of the block.
static inline void gs_cpu_grid_barrier(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    gs_cpu_meeting* meeting = gs_cpu_current->meeting;
    if (!meeting && (uint64_t)gridDim.x * gridDim.y * gridDim.z > 1) {
        gs_cpu_fail("comes to a grid barrier in a launch that is not cooperative, so that its blocks need not run at once",
                    file, line);
    }
    gs_cpu_barrier(0, file, line);
    if (!meeting) return;
    if (!gs_cpu_met) {
        gs_cpu_met = true;
        const uint32_t round = __atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE);
        const uint64_t state = __atomic_add_fetch(&meeting->state, 1, __ATOMIC_ACQ_REL);
        if ((uint32_t)state == state >> 32) {
            __atomic_fetch_sub(&meeting->state, (uint32_t)state, __ATOMIC_ACQ_REL);
            __atomic_store_n(&meeting->round, round + 1, __ATOMIC_RELEASE);
        }
        while (__atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE) == round) {
            if (__atomic_load_n(&meeting->failed, __ATOMIC_RELAXED)) {
                gs_cpu_fail("waits at a grid barrier for a block that failed", file, line);
            }
            sched_yield();
        }
    }
    gs_cpu_barrier(0, file, line);
    gs_cpu_met = false;
}

#endif
