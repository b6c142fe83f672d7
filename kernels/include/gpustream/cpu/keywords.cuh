// The keywords that CUDA and HIP add to C++.
#ifndef GPUSTREAM_CPU_KEYWORDS_CUH
#define GPUSTREAM_CPU_KEYWORDS_CUH

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))

// A block runs on one OS thread, so its shared memory is thread-local. Dynamic shared memory is an `extern __shared__`
// array; GS_CPU_DYNAMIC_SHARED defines it.
#define __shared__ thread_local
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define HIP_DYNAMIC_SHARED_ATTRIBUTE

#endif
