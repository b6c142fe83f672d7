// bfloat16, the upper half of a float, for compilers without it: on the CPU, and in HIP before ROCm 5.7.
#ifndef GPUSTREAM_BFLOAT16_CUH
#define GPUSTREAM_BFLOAT16_CUH

#include <gpustream/short_floats.cuh>

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    GS_SHORT_MEMBER __nv_bfloat16(float x) {
        const uint32_t all = gs_float_bits(x);
        const uint32_t rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
        bits = (uint16_t)((all & 0x7fffffffu) > 0x7f800000u ? (all >> 16 | 0x40u) : rounded);
    }
    GS_SHORT_MEMBER __nv_bfloat16(double x) : __nv_bfloat16(gs_to_odd(x)) {}
    GS_SHORT_MEMBER __nv_bfloat16(int x) : __nv_bfloat16((double)x) {}
    GS_SHORT_MEMBER __nv_bfloat16(unsigned int x) : __nv_bfloat16((double)x) {}
    GS_SHORT_MEMBER operator float() const { return gs_bits_float((uint32_t)bits << 16); }
    static GS_SHORT_MEMBER __nv_bfloat16 from_bits(uint16_t b) {
        __nv_bfloat16 h;
        h.bits = b;
        return h;
    }
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat16 __hip_bfloat16;

GS_SHORT_ARITHMETIC(__nv_bfloat16)
GS_SHORT_FUNCTIONS(__nv_bfloat16)
namespace std {
GS_SHORT_LIMITS(__nv_bfloat16, 0x0080u, 0x7f7fu, 0x3c00u, 0x7f80u, 0x7fc0u, 8)
}

GS_SHORT_FN __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
GS_SHORT_FN __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
GS_SHORT_FN __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
GS_SHORT_FN float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
GS_SHORT_FN unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
GS_SHORT_FN __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16::from_bits(x); }

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    GS_SHORT_MEMBER __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat162 __hip_bfloat162;
GS_SHORT_PAIR(__nv_bfloat16, __nv_bfloat162)
GS_SHORT_FN __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
GS_SHORT_FN __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }
GS_SHORT_FN float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }
GS_SHORT_FN __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
GS_SHORT_OWN __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
GS_SHORT_OWN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
GS_SHORT_OWN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
GS_SHORT_OWN __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
GS_SHORT_OWN __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
GS_SHORT_OWN __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
GS_SHORT_OWN __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
GS_SHORT_OWN __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
GS_SHORT_OWN __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
GS_SHORT_OWN float __low2float(__nv_bfloat162 v) { return (float)v.x; }
GS_SHORT_OWN float __high2float(__nv_bfloat162 v) { return (float)v.y; }
GS_SHORT_OWN __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return a - b; }
GS_SHORT_OWN __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
GS_SHORT_OWN __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }

#endif
