// Barriers of a block.
#ifndef GPUSTREAM_CPU_BARRIER_CUH
#define GPUSTREAM_CPU_BARRIER_CUH

// Other threads run on this OS thread meanwhile, so the caller's index is put back.
static inline __attribute__((always_inline)) uint32_t gs_cpu_barrier(uint32_t kind, uint32_t predicate,
                                                                     const char* file, uint32_t line) {
    const uint32_t x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    gs_cpu_context* context = gs_cpu_current;
    const uint32_t result = context->host->barrier(context, gs_cpu_thread(), kind, predicate, file, line);
    threadIdx.x = x, threadIdx.y = y, threadIdx.z = z;
    gs_cpu_moved = true;
    return result;
}

static inline __attribute__((always_inline)) void __syncthreads(const char* file = __builtin_FILE(),
                                                                unsigned line = __builtin_LINE()) {
    gs_cpu_barrier(GS_CPU_BARRIER_PLAIN, 0, file, line);
}
static inline __attribute__((always_inline)) int __syncthreads_count(int predicate,
                                                                     const char* file = __builtin_FILE(),
                                                                     unsigned line = __builtin_LINE()) {
    return (int)gs_cpu_barrier(GS_CPU_BARRIER_COUNT, predicate != 0, file, line);
}
static inline __attribute__((always_inline)) int __syncthreads_and(int predicate,
                                                                   const char* file = __builtin_FILE(),
                                                                   unsigned line = __builtin_LINE()) {
    return (int)gs_cpu_barrier(GS_CPU_BARRIER_AND, predicate != 0, file, line);
}
static inline __attribute__((always_inline)) int __syncthreads_or(int predicate,
                                                                  const char* file = __builtin_FILE(),
                                                                  unsigned line = __builtin_LINE()) {
    return (int)gs_cpu_barrier(GS_CPU_BARRIER_OR, predicate != 0, file, line);
}

#endif
