// Barriers of a block: threads that have returned take no part.
#ifndef GPUSTREAM_CPU_BARRIER_CUH
#define GPUSTREAM_CPU_BARRIER_CUH

// Returns the number of threads whose predicates hold. Other threads run on this OS thread meanwhile, so the caller's
// index is restored.
static inline __attribute__((always_inline)) uint32_t gs_cpu_barrier(uint32_t predicate, const char* file,
                                                                     uint32_t line) {
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

#endif
