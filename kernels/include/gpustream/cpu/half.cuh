// Half-precision types, stored in 16 bits. We compute in float and round after each operation, which gives the same
// results as correctly rounded 16-bit arithmetic.
#ifndef GPUSTREAM_CPU_HALF_CUH
#define GPUSTREAM_CPU_HALF_CUH

static inline __attribute__((always_inline)) uint32_t gs_cpu_float_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
static inline __attribute__((always_inline)) float gs_cpu_bits_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

// Returns the double as a float that you can still round correctly to fewer bits: if the result is inexact, its
// last bit is odd.
static inline float gs_cpu_to_odd(double x) {
    const float near = (float)x;
    const double back = (double)near;
    if (back == x || x != x) return near;
    uint32_t bits = gs_cpu_float_bits(near);
    if (std::isinf(near)) return gs_cpu_bits_float(bits - 1);
    if (bits & 1) return near;
    const bool grew = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    return gs_cpu_bits_float(grew ? bits - 1 : bits + 1);
}

// Returns a * b + c for values with at most 11 bits, as a float that you can still round correctly to
// 16 bits.
static inline float gs_cpu_fma_to_odd(float a, float b, float c) {
    const double product = (double)a * (double)b;  // exact
    const double sum = product + (double)c;
    const double part = sum - product;
    const double error = (product - (sum - part)) + ((double)c - part);
    if (error == 0 || !std::isfinite(sum)) return gs_cpu_to_odd(sum);
    // The sum itself was rounded, so we make its last bit odd too.
    uint64_t bits;
    std::memcpy(&bits, &sum, 8);
    if (!(bits & 1)) bits += ((error > 0) == (sum > 0)) ? 1 : (uint64_t)-1;
    double odd;
    std::memcpy(&odd, &bits, 8);
    return gs_cpu_to_odd(odd);
}

// IEEE binary16. If one instruction can convert it, it is the compiler's own type.
#if defined(__aarch64__)
#define GS_CPU_NATIVE_HALF __fp16
#elif defined(__F16C__) && defined(__FLT16_MANT_DIG__)
#define GS_CPU_NATIVE_HALF _Float16
#endif
static inline __attribute__((always_inline)) uint16_t gs_cpu_to_half(float x) {
#ifdef GS_CPU_NATIVE_HALF
    const GS_CPU_NATIVE_HALF h = (GS_CPU_NATIVE_HALF)x;
    uint16_t bits;
    std::memcpy(&bits, &h, 2);
    return bits;
#else
    const uint32_t all = gs_cpu_float_bits(x), sign = all >> 16 & 0x8000u, size = all & 0x7fffffffu;
    // The code has no branches, so the compiler can vectorise loops over it.
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    // Below 2^-14 the result is a multiple of 2^-24, so the addition does the rounding.
    const uint32_t small = gs_cpu_float_bits(gs_cpu_bits_float(size) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const uint32_t finite = size < 0x38800000u ? small : size >= 0x477ff000u ? 0x7c00u : normal;
    return (uint16_t)(sign | (size > 0x7f800000u ? nan : finite));
#endif
}
static inline __attribute__((always_inline)) float gs_cpu_from_half(uint16_t bits) {
#ifdef GS_CPU_NATIVE_HALF
    GS_CPU_NATIVE_HALF h;
    std::memcpy(&h, &bits, 2);
    return (float)h;
#else
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, size = bits & 0x7fffu;
    const uint32_t normal = (size << 13) + 0x38000000u;
    const uint32_t special = ((size << 13) + 0x70000000u) | (size > 0x7c00u ? 0x400000u : 0u);
    const uint32_t small = gs_cpu_float_bits((float)size * 5.9604644775390625e-8f);
    return gs_cpu_bits_float(sign | (size >= 0x7c00u ? special : size < 0x400u ? small : normal));
#endif
}

// The bits of a half, by NVIDIA's name.
struct __half_raw { unsigned short x; };

struct __half {
    uint16_t bits;
    __half() = default;
    __half(__half_raw raw) : bits(raw.x) {}
    __attribute__((always_inline)) __half(float x) : bits(gs_cpu_to_half(x)) {}
    __half(double x) : bits(gs_cpu_to_half(gs_cpu_to_odd(x))) {}
    __half(int x) : __half((double)x) {}
    __half(unsigned int x) : __half((double)x) {}
    __half(long long x) : bits(gs_cpu_to_half((float)(x > 131072 ? 131072 : x < -131072 ? -131072 : x))) {}
    __half(unsigned long long x) : bits(gs_cpu_to_half((float)(x > 131072 ? 131072 : x))) {}
    __attribute__((always_inline)) operator float() const { return gs_cpu_from_half(bits); }
    static __attribute__((always_inline)) __half from_bits(uint16_t b) {
        __half h;
        h.bits = b;
        return h;
    }
};
typedef __half half;

// bfloat16: the upper half of a float.
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __attribute__((always_inline)) __nv_bfloat16(float x) {
        const uint32_t all = gs_cpu_float_bits(x);
        const uint32_t rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
        bits = (uint16_t)((all & 0x7fffffffu) > 0x7f800000u ? (all >> 16 | 0x40u) : rounded);
    }
    __nv_bfloat16(double x) : __nv_bfloat16(gs_cpu_to_odd(x)) {}
    __nv_bfloat16(int x) : __nv_bfloat16((double)x) {}
    __nv_bfloat16(unsigned int x) : __nv_bfloat16((double)x) {}
    __attribute__((always_inline)) operator float() const { return gs_cpu_bits_float((uint32_t)bits << 16); }
    static __attribute__((always_inline)) __nv_bfloat16 from_bits(uint16_t b) {
        __nv_bfloat16 h;
        h.bits = b;
        return h;
    }
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat16 __hip_bfloat16;
typedef __nv_bfloat16 hip_bfloat16;

#define GS_CPU_HALF_ARITHMETIC(T) \
    static inline __attribute__((always_inline)) T operator+(T a, T b) { return T((float)a + (float)b); } \
    static inline __attribute__((always_inline)) T operator-(T a, T b) { return T((float)a - (float)b); } \
    static inline __attribute__((always_inline)) T operator*(T a, T b) { return T((float)a * (float)b); } \
    static inline __attribute__((always_inline)) T operator/(T a, T b) { return T((float)a / (float)b); } \
    static inline __attribute__((always_inline)) T& operator+=(T& a, T b) { return a = a + b; } \
    static inline __attribute__((always_inline)) T& operator-=(T& a, T b) { return a = a - b; } \
    static inline __attribute__((always_inline)) T& operator*=(T& a, T b) { return a = a * b; } \
    static inline __attribute__((always_inline)) T& operator/=(T& a, T b) { return a = a / b; } \
    static inline __attribute__((always_inline)) T operator+(T a) { return a; } \
    static inline __attribute__((always_inline)) T operator-(T a) { return T::from_bits((uint16_t)(a.bits ^ 0x8000u)); } \
    static inline __attribute__((always_inline)) T& operator++(T& a) { return a = a + T(1.0f); } \
    static inline __attribute__((always_inline)) T& operator--(T& a) { return a = a - T(1.0f); } \
    static inline __attribute__((always_inline)) bool operator==(T a, T b) { return (float)a == (float)b; } \
    static inline __attribute__((always_inline)) bool operator!=(T a, T b) { return (float)a != (float)b; } \
    static inline __attribute__((always_inline)) bool operator<(T a, T b) { return (float)a < (float)b; } \
    static inline __attribute__((always_inline)) bool operator<=(T a, T b) { return (float)a <= (float)b; } \
    static inline __attribute__((always_inline)) bool operator>(T a, T b) { return (float)a > (float)b; } \
    static inline __attribute__((always_inline)) bool operator>=(T a, T b) { return (float)a >= (float)b; } \
    static inline T __hadd(T a, T b) { return a + b; } \
    static inline T __hsub(T a, T b) { return a - b; } \
    static inline T __hmul(T a, T b) { return a * b; } \
    static inline T __hdiv(T a, T b) { return a / b; } \
    static inline T __hneg(T a) { return -a; } \
    static inline T __habs(T a) { return T::from_bits((uint16_t)(a.bits & 0x7fffu)); } \
    static inline T __hfma(T a, T b, T c) { return T(gs_cpu_fma_to_odd((float)a, (float)b, (float)c)); } \
    static inline bool __heq(T a, T b) { return a == b; } \
    static inline bool __hne(T a, T b) { return a != b; } \
    static inline bool __hlt(T a, T b) { return a < b; } \
    static inline bool __hle(T a, T b) { return a <= b; } \
    static inline bool __hgt(T a, T b) { return a > b; } \
    static inline bool __hge(T a, T b) { return a >= b; } \
    static inline bool __hisnan(T a) { return a != a; } \
    static inline int __hisinf(T a) { return std::isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; } \
    static inline T __hmin(T a, T b) { return T(::fminf((float)a, (float)b)); } \
    static inline T __hmax(T a, T b) { return T(::fmaxf((float)a, (float)b)); } \
    static inline T hsqrt(T a) { return T(::sqrtf((float)a)); } \
    static inline T hrsqrt(T a) { return T(1.0f / ::sqrtf((float)a)); } \
    static inline T hexp(T a) { return T(::expf((float)a)); } \
    static inline T hlog(T a) { return T(::logf((float)a)); } \
    static inline T hsin(T a) { return T(::sinf((float)a)); } \
    static inline T hcos(T a) { return T(::cosf((float)a)); } \
    static inline T hfloor(T a) { return T(::floorf((float)a)); } \
    static inline T hceil(T a) { return T(::ceilf((float)a)); } \
    static inline T hrint(T a) { return T(::rintf((float)a)); } \
    static inline T htrunc(T a) { return T(::truncf((float)a)); }
GS_CPU_HALF_ARITHMETIC(__half)
GS_CPU_HALF_ARITHMETIC(__nv_bfloat16)
#undef GS_CPU_HALF_ARITHMETIC

// Templates, so that a file may define these functions itself, as code for old toolkits does.
template <class T> static inline auto __hmax_nan(T a, T b) -> decltype(__hmax(a, b)) {
    return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b);
}
template <class T> static inline auto __hmin_nan(T a, T b) -> decltype(__hmin(a, b)) {
    return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b);
}

#define GS_CPU_HALF_LIMITS(T, SMALLEST, LARGEST, EPSILON, INFINITY_, NAN_, DIGITS)                          \
    template <> struct numeric_limits<T> : numeric_limits<float> {                                          \
        static constexpr int digits = DIGITS;                                                               \
        static T min() { return T::from_bits(SMALLEST); }                                                   \
        static T max() { return T::from_bits(LARGEST); }                                                    \
        static T lowest() { return T::from_bits(LARGEST | 0x8000u); }                                       \
        static T epsilon() { return T::from_bits(EPSILON); }                                                \
        static T denorm_min() { return T::from_bits(1); }                                                   \
        static T infinity() { return T::from_bits(INFINITY_); }                                             \
        static T quiet_NaN() { return T::from_bits(NAN_); }                                                 \
    };
namespace std {
GS_CPU_HALF_LIMITS(__half, 0x0400u, 0x7bffu, 0x1400u, 0x7c00u, 0x7e00u, 11)
GS_CPU_HALF_LIMITS(__nv_bfloat16, 0x0080u, 0x7f7fu, 0x3c00u, 0x7f80u, 0x7fc0u, 8)
}
#undef GS_CPU_HALF_LIMITS

static inline float __half2float(__half_raw x) { return (float)__half(x); }
static inline __half __float2half(float x) { return __half(x); }
static inline __half __float2half_rn(float x) { return __half(x); }
static inline __half __double2half(double x) { return __half(x); }
static inline __half __int2half_rn(int x) { return __half(x); }
static inline __half __uint2half_rn(unsigned x) { return __half(x); }
static inline float __half2float(__half x) { return (float)x; }
static inline int __half2int_rn(__half x) { return (int)::rintf((float)x); }
static inline int __half2int_rz(__half x) { return (int)(float)x; }
static inline unsigned short __half_as_ushort(__half x) { return x.bits; }
static inline __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }
static inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
static inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
static inline float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16::from_bits(x); }

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    __attribute__((always_inline)) __half2(__half a, __half b) : x(a), y(b) {}
};
struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __attribute__((always_inline)) __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat162 __hip_bfloat162;
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline __half2 __half2half2(__half x) { return {x, x}; }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline float __low2float(__half2 v) { return (float)v.x; }
static inline float __high2float(__half2 v) { return (float)v.y; }
static inline float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
static inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
static inline __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }

#endif
