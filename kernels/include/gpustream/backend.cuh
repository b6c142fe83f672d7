// Finds out which compiler reads this file, and defines the few keywords that depend on it.
#ifndef GPUSTREAM_BACKEND_CUH
#define GPUSTREAM_BACKEND_CUH

/// Exactly one of these macros is defined: the backend that the file is being compiled for. Use them in an `#if` if a
/// kernel needs another text for one backend.
/// Signature: GS_CPU, GS_HIP, GS_CUDA
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

/// The integers of `<stdint.h>`. You can use them under every compiler.
/// Signature: int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t

// The run-time compilers have no <stdint.h>, so we declare these types ourselves. HIPRTC before 7 declares the same 64-bit types, and so does libcu++ for NVRTC, so the second
// declaration does no harm.
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

/// Defined if the threads of a block run one after another, as on the CPU. Each thread should then have a contiguous
/// share of the work, and barriers are expensive. If you compile a CPU kernel with `GPUSTREAM_LIKE_A_GPU`, it uses the
/// GPUs' code and the macro is not defined, so you can test that code without a GPU.
/// Signature: GS_SERIAL
#if defined(GS_CPU) && !defined(GPUSTREAM_LIKE_A_GPU)
#define GS_SERIAL 1
#endif

/// Put this before a function or a member function to make it a device function that is always inlined (before a static
/// member, `static GS_INLINE`). On the CPU a call in a kernel keeps the compiler from vectorising the kernel's loops.
/// Signature: GS_INLINE

// We do not write `static`, because before a member function it means
// something else: an `operator()` could not be static. `inline` lets several files define the function just as well, every
// compiler's __forceinline__ implies it, and no compiler warns if the function is not used.
#define GS_INLINE __device__ __forceinline__

/// Put this before a loop with a constant count if its arrays must end up in registers. It does nothing on the CPU,
/// which has fewer registers and vectorises the loop better unchanged.
/// Signature: GS_UNROLL
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

/// The types that the vendors' intrinsics take. `u64` is not `uint64_t` on every backend, although both have 64 bits.
/// Signature: gs::u16, gs::u32, gs::u64
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/// Returns the address of shared memory. Take it once before you loop over that memory. On the CPU shared memory is
/// thread-local, and g++ would otherwise call a function for the address at every access. On GPUs this does nothing.
/// Threads: any.
/// Shared memory: only the array that you pass.
template <class T>
GS_INLINE T* shared_address(T* shared) {
#if defined(GS_CPU)
    __asm__("" : "+r"(shared));
#endif
    return shared;
}

}  // namespace gs

#endif
