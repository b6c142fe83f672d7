// Which compiler reads this file, and the few words that depend on it.
#ifndef GPUSTREAM_BACKEND_CUH
#define GPUSTREAM_BACKEND_CUH

// One of GS_CPU, GS_HIP, GS_CUDA is defined.
#if defined(GPUSTREAM_CPU)
#define GS_CPU 1
#elif defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define GS_HIP 1
#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>
#endif
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GS_CUDA 1
#else
#error "gpustream kernels are compiled by nvcc, hipcc, NVRTC, HIPRTC, or a host compiler after <gpustream/cpu/prelude.cuh>"
#endif

// int8_t to uint64_t by the same names everywhere. The run-time compilers have no <stdint.h>; the 64-bit types are
// those that HIPRTC before 7 declares itself, and libcu++ for NVRTC, so that declaring them again is no conflict.
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

// Threads run one after another, so each wants a contiguous share and barriers are dear. A CPU kernel compiled with
// GPUSTREAM_LIKE_A_GPU takes the GPUs' way instead: that tests their code where there is none.
#if defined(GS_CPU) && !defined(GPUSTREAM_LIKE_A_GPU)
#define GS_SERIAL 1
#endif

// Every function of these headers. Inlining is not left to the compiler: on the CPU a call in a kernel keeps
// its loops from being vectorised.
#define GS_INLINE static __device__ __forceinline__

// Before a loop with a constant count whose arrays must end up in registers. On the CPU there are not that many
// registers, and the loop is worth more to the vectoriser as it stands.
#if defined(GS_CPU)
#define GS_UNROLL
#else
#define GS_UNROLL _Pragma("unroll")
#endif

// NVRTC declares the plain name alone.
#if defined(__CUDACC_RTC__)
#define GS_MEMCPY_ memcpy
#else
#define GS_MEMCPY_ __builtin_memcpy
#endif

namespace gs {

// As the vendors' intrinsics take them.
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The address of shared memory, to be taken once before loops over it. On the CPU shared memory is thread-local, and
// g++ would otherwise ask for its address, by a function call, at every access.
template <class T>
GS_INLINE T* shared_address(T* shared) {
#if defined(GS_CPU)
    __asm__("" : "+r"(shared));
#endif
    return shared;
}

}  // namespace gs

#endif
