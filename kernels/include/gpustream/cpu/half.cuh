// Half-precision types, stored in 16 bits.
#ifndef GPUSTREAM_CPU_HALF_CUH
#define GPUSTREAM_CPU_HALF_CUH

#include <gpustream/bfloat16.cuh>

typedef __nv_bfloat16 hip_bfloat16;

// IEEE binary16. If one instruction can convert it, it is the compiler's own type.
#if defined(__aarch64__)
#define GS_CPU_NATIVE_HALF __fp16
#elif defined(__F16C__) && defined(__FLT16_MANT_DIG__)
#define GS_CPU_NATIVE_HALF _Float16
#endif
GS_SHORT_INLINE uint16_t gs_cpu_to_half(float x) {
#ifdef GS_CPU_NATIVE_HALF
    const GS_CPU_NATIVE_HALF h = (GS_CPU_NATIVE_HALF)x;
    uint16_t bits;
    __builtin_memcpy(&bits, &h, 2);
    return bits;
#else
    const uint32_t all = gs_float_bits(x), sign = all >> 16 & 0x8000u, size = all & 0x7fffffffu;
    // The code has no branches, so the compiler can vectorise loops over it.
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    // Below 2^-14 the result is a multiple of 2^-24, so the addition does the rounding.
    const uint32_t small = gs_float_bits(gs_bits_float(size) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const uint32_t finite = size < 0x38800000u ? small : size >= 0x477ff000u ? 0x7c00u : normal;
    return (uint16_t)(sign | (size > 0x7f800000u ? nan : finite));
#endif
}
GS_SHORT_INLINE float gs_cpu_from_half(uint16_t bits) {
#ifdef GS_CPU_NATIVE_HALF
    GS_CPU_NATIVE_HALF h;
    __builtin_memcpy(&h, &bits, 2);
    return (float)h;
#else
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, size = bits & 0x7fffu;
    const uint32_t normal = (size << 13) + 0x38000000u;
    const uint32_t special = ((size << 13) + 0x70000000u) | (size > 0x7c00u ? 0x400000u : 0u);
    const uint32_t small = gs_float_bits((float)size * 5.9604644775390625e-8f);
    return gs_bits_float(sign | (size >= 0x7c00u ? special : size < 0x400u ? small : normal));
#endif
}

// The bits of a half, by NVIDIA's name.
struct __half_raw { unsigned short x; };

struct __half {
    uint16_t bits;
    __half() = default;
    __half(__half_raw raw) : bits(raw.x) {}
    __attribute__((always_inline)) __half(float x) : bits(gs_cpu_to_half(x)) {}
    __half(double x) : bits(gs_cpu_to_half(gs_to_odd(x))) {}
    __half(int x) : __half((double)x) {}
    __half(unsigned int x) : __half((double)x) {}
    __half(long long x) : bits(gs_cpu_to_half((float)(x > 131072 ? 131072 : x < -131072 ? -131072 : x))) {}
    __half(unsigned long long x) : bits(gs_cpu_to_half((float)(x > 131072 ? 131072 : x))) {}
    __attribute__((always_inline)) operator float() const { return gs_cpu_from_half(bits); }
    operator __half_raw() const { return {bits}; }
    static __attribute__((always_inline)) __half from_bits(uint16_t b) {
        __half h;
        h.bits = b;
        return h;
    }
};
typedef __half half;

GS_SHORT_ARITHMETIC(__half)

namespace std {
GS_SHORT_LIMITS(__half, 0x0400u, 0x7bffu, 0x1400u, 0x7c00u, 0x7e00u, 11)
}

GS_SHORT_FN float __half2float(__half_raw x) { return (float)__half(x); }
GS_SHORT_FN __half __float2half(float x) { return __half(x); }
GS_SHORT_FN __half __float2half_rn(float x) { return __half(x); }
GS_SHORT_FN __half __double2half(double x) { return __half(x); }
GS_SHORT_FN __half __int2half_rn(int x) { return __half(x); }
GS_SHORT_FN __half __uint2half_rn(unsigned x) { return __half(x); }
GS_SHORT_FN float __half2float(__half x) { return (float)x; }
GS_SHORT_FN int __half2int_rn(__half x) { return (int)::rintf((float)x); }
GS_SHORT_FN int __half2int_rz(__half x) { return (int)(float)x; }
GS_SHORT_FN unsigned short __half_as_ushort(__half x) { return x.bits; }
GS_SHORT_FN __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    __attribute__((always_inline)) __half2(__half a, __half b) : x(a), y(b) {}
};
typedef __half2 half2;
GS_SHORT_FN __half2 __halves2half2(__half a, __half b) { return {a, b}; }
GS_SHORT_FN __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
GS_SHORT_FN __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
GS_SHORT_FN __half2 __half2half2(__half x) { return {x, x}; }
GS_SHORT_FN __half __low2half(__half2 v) { return v.x; }
GS_SHORT_FN __half __high2half(__half2 v) { return v.y; }
GS_SHORT_FN float __low2float(__half2 v) { return (float)v.x; }
GS_SHORT_FN float __high2float(__half2 v) { return (float)v.y; }
GS_SHORT_FN float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
GS_SHORT_FN __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
GS_SHORT_FN __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
GS_SHORT_FN __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
GS_SHORT_FN __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
GS_SHORT_FN __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

#endif
