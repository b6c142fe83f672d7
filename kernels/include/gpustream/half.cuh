// The 16-bit floating-point types, with the same names everywhere.
//
// You should compute in float: `gs::to_float(h)`, and `gs::from_float<gs::half>(f)`, which rounds to nearest even. The
// vendors' own operators differ between versions and architectures.
#ifndef GPUSTREAM_HALF_CUH
#define GPUSTREAM_HALF_CUH

#include <gpustream/backend.cuh>

#if defined(GS_CPU)
#define GS_VENDOR_HALF_ __half
#define GS_VENDOR_BFLOAT16_ __nv_bfloat16

#elif defined(GS_CUDA)
// At run time NVRTC may not find the headers.
#if __has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define GS_VENDOR_HALF_ __half
#define GS_VENDOR_BFLOAT16_ __nv_bfloat16
#endif

#else
#if __has_include(<hip/hip_fp16.h>) && !defined(__HIPCC_RTC__)
#include <hip/hip_fp16.h>
#endif
#define GS_VENDOR_HALF_ __half  // HIPRTC has it built in
#if __has_include(<hip/hip_bf16.h>) && !defined(__HIPCC_RTC__)  // since ROCm 5.7
#include <hip/hip_bf16.h>
#define GS_VENDOR_BFLOAT16_ __hip_bfloat16
#elif __has_include(<hip/hip_bfloat16.h>) && !defined(__HIPCC_RTC__)
#include <hip/hip_bfloat16.h>
#define GS_VENDOR_BFLOAT16_ hip_bfloat16
#endif
#endif

namespace gs {

/// `gs::half` is IEEE binary16, and `half::f16` in Rust. On CUDA and HIP it is the vendor's `__half`. `gs::bfloat16` is the
/// upper half of a float, and `half::bf16` in Rust. On CUDA it is `__nv_bfloat16`, on HIP `__hip_bfloat16` or
/// `hip_bfloat16`. If a run-time compiler does not find the vendor's headers, both are structs around their bits.
/// Signature: gs::half, gs::bfloat16

#if defined(GS_VENDOR_HALF_)
typedef GS_VENDOR_HALF_ half;
#else
struct half {
    u16 bits;
};
#endif

#if defined(GS_VENDOR_BFLOAT16_)
typedef GS_VENDOR_BFLOAT16_ bfloat16;
#else
struct bfloat16 {
    u16 bits;
};
#endif

static_assert(sizeof(half) == 2 && alignof(half) == 2, "as Rust's half::f16");
static_assert(sizeof(bfloat16) == 2 && alignof(bfloat16) == 2, "as Rust's half::bf16");

/// Returns the same bits as another type with the same size.
/// Threads: any.
template <class To, class From>
GS_INLINE To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "gs::bit_cast needs types of one size");
    To to;
    GS_MEMCPY_(&to, &from, sizeof(To));
    return to;
}

/// Returns a number as a float, or as a double if it is one. The conversion is exact.
/// Threads: any.
/// Signature: float gs::to_float(float x)
/// Signature: double gs::to_float(double x)
/// Signature: float gs::to_float(gs::half x)
/// Signature: float gs::to_float(gs::bfloat16 x)
GS_INLINE float to_float(float x) { return x; }
GS_INLINE double to_float(double x) { return x; }
GS_INLINE float to_float(half x) {
#if defined(GS_CUDA)
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bit_cast<u16>(x)));
    return result;
#elif defined(GS_HIP)
    return (float)bit_cast<_Float16>(x);
#else
    return (float)x;
#endif
}
GS_INLINE float to_float(bfloat16 x) { return bit_cast<float>((u32)bit_cast<u16>(x) << 16); }

template <class T>
struct FromFloat;
template <>
struct FromFloat<float> {
    static GS_INLINE float of(float x) { return x; }
};
template <>
struct FromFloat<double> {
    static GS_INLINE double of(double x) { return x; }
};
template <>
struct FromFloat<half> {
    static GS_INLINE half of(float x) {
#if defined(GS_CUDA)
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return bit_cast<half>(bits);
#elif defined(GS_HIP)
        return bit_cast<half>((_Float16)x);
#else
        return half(x);
#endif
    }
};
template <>
struct FromFloat<bfloat16> {
    static GS_INLINE bfloat16 of(float x) {
        const u32 bits = bit_cast<u32>(x);
        const u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        // Rounding could turn a NaN into infinity.
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        return bit_cast<bfloat16>((u16)(nan ? bits >> 16 | 0x40u : rounded));
    }
};

/// Returns a float as `T`: `float`, `double`, `gs::half` or `gs::bfloat16`. Rounds to nearest, ties to even; a NaN stays a
/// NaN.
/// Threads: any.
template <class T, class F>
GS_INLINE T from_float(F x) {
    return FromFloat<T>::of(x);
}

/// Returns positive infinity of `float` or `double`.
/// Threads: any.
template <class T>
GS_INLINE T infinity();

template <>
__device__ __forceinline__ float infinity<float>() {
    return bit_cast<float>(0x7f800000u);
}
template <>
__device__ __forceinline__ double infinity<double>() {
    return bit_cast<double>((u64)0x7ff << 52);
}

}  // namespace gs

#undef GS_VENDOR_HALF_
#undef GS_VENDOR_BFLOAT16_

#endif
