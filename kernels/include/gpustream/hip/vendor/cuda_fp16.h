// CUDA's names for what HIP has, and the functions that it lacks, or lacked in earlier versions. All are templates, so HIP's
// own come first.
#pragma once
#include <hip/hip_fp16.h>
#include <gpustream/short_floats.cuh>

GS_SHORT_OWN __half __double2half(double x) { return __half((_Float16)x); }
GS_SHORT_OWN __half __hmin(__half a, __half b) { return __half(::fminf((float)a, (float)b)); }
GS_SHORT_OWN __half __hmax(__half a, __half b) { return __half(::fmaxf((float)a, (float)b)); }
GS_SHORT_OWN __half __habs(__half a) { return __ushort_as_half((unsigned short)(__half_as_ushort(a) & 0x7fffu)); }
GS_SHORT_OWN __half __hfma_relu(__half a, __half b, __half c) {
    const float x = (float)__hfma(a, b, c);
    return __half(x < 0.0f ? 0.0f : x);
}
#define GS_HIP_HALF_PAIR(name) \
    GS_SHORT_OWN __half2 name##2(__half2 a, __half2 b) { \
        return __halves2half2(name(__low2half(a), __low2half(b)), name(__high2half(a), __high2half(b))); \
    }
GS_HIP_HALF_PAIR(__hmin)
GS_HIP_HALF_PAIR(__hmax)
#undef GS_HIP_HALF_PAIR
GS_SHORT_OWN __half2 __habs2(__half2 a) { return __halves2half2(__habs(__low2half(a)), __habs(__high2half(a))); }
