// The compiler that reads this file, and the few keywords that depend on it.
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

// int8_t to uint64_t have the same names everywhere. The run-time compilers have no <stdint.h>; the 64-bit types are
// the ones that HIPRTC before 7 declares itself, and libcu++ for NVRTC, so a second declaration is no conflict.
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

// Threads run one after another, so each should have a contiguous share, and barriers are expensive. A CPU kernel
// compiled with GPUSTREAM_LIKE_A_GPU uses the GPUs' code instead, to test that code without a GPU.
#if defined(GS_CPU) && !defined(GPUSTREAM_LIKE_A_GPU)
#define GS_SERIAL 1
#endif

// The qualifiers of every function in these headers. Inlining is forced, because on the CPU a call in a kernel keeps
// the kernel's loops from being vectorised. There is no `static` here, because it would mean something else before a member
// function: an `operator()` could not be one. `inline`, which every compiler's __forceinline__ implies, lets several
// files define the function just as well, and no compiler warns if it is not used.
#define GS_INLINE __device__ __forceinline__

// Stands before a loop with a constant count whose arrays must end up in registers. The CPU has fewer registers, and
// its vectoriser does better with the loop unchanged.
#if defined(GS_CPU)
#define GS_UNROLL
#else
#define GS_UNROLL _Pragma("unroll")
#endif

// NVRTC declares only the plain name.
#if defined(__CUDACC_RTC__)
#define GS_MEMCPY_ memcpy
#else
#define GS_MEMCPY_ __builtin_memcpy
#endif

namespace gs {

// The vendors' intrinsics take these types.
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The address of shared memory, which a kernel takes once before loops over that memory. On the CPU shared memory is
// thread-local, and g++ would otherwise ask for the address, by a function call, at every access.
template <class T>
GS_INLINE T* shared_address(T* shared) {
#if defined(GS_CPU)
    __asm__("" : "+r"(shared));
#endif
    return shared;
}

}  // namespace gs

#endif
