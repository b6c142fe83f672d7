// NVIDIA's 8-bit floating-point types, stored as bytes. A conversion rounds to nearest, to even if two are as near.
#ifndef GPUSTREAM_FP8_CUH
#define GPUSTREAM_FP8_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gpustream/short_floats.cuh>

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

// Returns the byte for a float, if the format has this many bits of mantissa and this bias, and these bytes for the
// largest finite number and for what is larger.
template <int Mantissa, int Bias>
GS_SHORT_FN unsigned char gs_to_fp8(float x, unsigned char largest, unsigned char overflow, bool saturates) {
    const uint32_t all = gs_float_bits(x), size = all & 0x7fffffffu;
    const unsigned char sign = (unsigned char)(all >> 24 & 0x80u);
    if (size > 0x7f800000u) return 0x7f;
    uint32_t code;
    if (size < (uint32_t)(128 - Bias) << 23) {
        code = (uint32_t)__builtin_rintf(gs_bits_float(size) * (float)(1u << (Bias - 1 + Mantissa)));
    } else {
        const uint32_t rounded = size + ((1u << (22 - Mantissa)) - 1) + (size >> (23 - Mantissa) & 1u);
        code = (rounded >> (23 - Mantissa)) - ((uint32_t)(127 - Bias) << Mantissa);
    }
    return (unsigned char)(sign | (code <= largest ? code : saturates ? largest : overflow));
}

// Returns the float for a byte without its sign that is neither infinite nor NaN.
template <int Mantissa, int Bias> GS_SHORT_FN float gs_from_fp8(unsigned char size) {
    const uint32_t exponent = size >> Mantissa, mantissa = size & ((1u << Mantissa) - 1);
    if (exponent == 0) return (float)mantissa / (float)(1u << (Bias - 1 + Mantissa));
    return gs_bits_float((exponent + 127 - Bias) << 23 | mantissa << (23 - Mantissa));
}

GS_SHORT_FN __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation, __nv_fp8_interpretation_t as) {
    const bool saturates = saturation == __NV_SATFINITE;
    return as == __NV_E4M3 ? gs_to_fp8<3, 7>(x, 0x7e, 0x7f, saturates) : gs_to_fp8<2, 15>(x, 0x7b, 0x7c, saturates);
}
GS_SHORT_FN __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturation, __nv_fp8_interpretation_t as) {
    return __nv_cvt_float_to_fp8(gs_to_odd(x), saturation, as);
}
GS_SHORT_FN __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturation, __nv_fp8_interpretation_t as) {
    return __nv_cvt_float_to_fp8((float)__half(x), saturation, as);
}
GS_SHORT_FN float gs_fp8_to_float(__nv_fp8_storage_t x, __nv_fp8_interpretation_t as) {
    const unsigned char size = x & 0x7f;
    const bool small = as == __NV_E4M3;
    float value = small ? gs_from_fp8<3, 7>(size) : gs_from_fp8<2, 15>(size);
    if (!small && size == 0x7c) value = __builtin_inff();
    if (small ? size == 0x7f : size > 0x7c) value = __builtin_nanf("");
    return x & 0x80 ? -value : value;
}
GS_SHORT_FN __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t as) {
    return __half(gs_fp8_to_float(x, as));
}

#define GS_FP8(T, AS)                                                                                       \
    struct T {                                                                                              \
        __nv_fp8_storage_t __x;                                                                             \
        T() = default;                                                                                      \
        GS_SHORT_MEMBER explicit T(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, AS)) {}          \
        GS_SHORT_MEMBER explicit T(double x) : __x(__nv_cvt_double_to_fp8(x, __NV_SATFINITE, AS)) {}        \
        GS_SHORT_MEMBER explicit T(int x) : T((double)x) {}                                                 \
        GS_SHORT_MEMBER explicit T(unsigned int x) : T((double)x) {}                                        \
        GS_SHORT_MEMBER explicit T(long x) : T((double)x) {}                                                \
        GS_SHORT_MEMBER explicit T(unsigned long x) : T((double)x) {}                                       \
        GS_SHORT_MEMBER explicit T(short x) : T((double)x) {}                                               \
        GS_SHORT_MEMBER explicit T(unsigned short x) : T((double)x) {}                                      \
        GS_SHORT_MEMBER explicit T(__half x) : T((float)x) {}                                               \
        GS_SHORT_MEMBER explicit T(__nv_bfloat16 x) : T((float)x) {}                                        \
        GS_SHORT_MEMBER explicit operator float() const { return gs_fp8_to_float(__x, AS); }                \
        GS_SHORT_MEMBER explicit operator double() const { return (double)(float)*this; }                   \
        GS_SHORT_MEMBER explicit operator __half() const { return __half((float)*this); }                   \
        GS_SHORT_MEMBER explicit operator __nv_bfloat16() const { return __nv_bfloat16((float)*this); }     \
        GS_SHORT_MEMBER explicit operator bool() const { return (__x & 0x7f) != 0; }                        \
        GS_SHORT_MEMBER explicit operator int() const { return (int)(float)*this; }                         \
        GS_SHORT_MEMBER explicit operator unsigned char() const { return (unsigned char)(float)*this; }     \
    };
GS_FP8(__nv_fp8_e4m3, __NV_E4M3)
GS_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef GS_FP8

#endif
