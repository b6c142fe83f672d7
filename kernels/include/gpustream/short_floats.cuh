// Operators and functions for numbers of 16 bits that a compiler does not have. We compute in float and round after each
// operation, which gives the same results as correctly rounded 16-bit arithmetic.
#ifndef GPUSTREAM_SHORT_FLOATS_CUH
#define GPUSTREAM_SHORT_FLOATS_CUH

#include <stdint.h>
#include <limits>

#define GS_SHORT_FN static inline __host__ __device__
#define GS_SHORT_INLINE static inline __attribute__((always_inline)) __host__ __device__
#define GS_SHORT_MEMBER __attribute__((always_inline)) __host__ __device__
// A template, so that a file may define the function itself.
#define GS_SHORT_OWN template <int = 0> GS_SHORT_INLINE

GS_SHORT_INLINE uint32_t gs_float_bits(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}
GS_SHORT_INLINE float gs_bits_float(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

// Returns the double as a float that you can still round correctly to fewer bits: if the result is inexact, its
// last bit is odd.
GS_SHORT_FN float gs_to_odd(double x) {
    const float near = (float)x;
    const double back = (double)near;
    if (back == x || x != x) return near;
    uint32_t bits = gs_float_bits(near);
    if (__builtin_isinf(near)) return gs_bits_float(bits - 1);
    if (bits & 1) return near;
    const bool grew = (back < 0 ? -back : back) > (x < 0 ? -x : x);
    return gs_bits_float(grew ? bits - 1 : bits + 1);
}

// Returns a * b + c for values with at most 11 bits, as a float that you can still round correctly to 16 bits. On AMD it is
// rounded to a float first, as in AMD's own header.
GS_SHORT_FN float gs_short_fma(float a, float b, float c) {
#if !defined(GPUSTREAM_CPU)
    return ::fmaf(a, b, c);
#else
    const double product = (double)a * (double)b;  // exact
    const double sum = product + (double)c;
    const double part = sum - product;
    const double error = (product - (sum - part)) + ((double)c - part);
    if (error == 0 || !__builtin_isfinite(sum)) return gs_to_odd(sum);
    // The sum itself was rounded, so we make its last bit odd too.
    uint64_t bits;
    __builtin_memcpy(&bits, &sum, 8);
    if (!(bits & 1)) bits += ((error > 0) == (sum > 0)) ? 1 : (uint64_t)-1;
    double odd;
    __builtin_memcpy(&odd, &bits, 8);
    return gs_to_odd(odd);
#endif
}


// Operators and functions of one number. `T` has `bits` and `from_bits`, and converts to and from float.
#define GS_SHORT_ARITHMETIC(T)                                                                              \
    GS_SHORT_INLINE T operator+(T a, T b) { return T((float)a + (float)b); }                                \
    GS_SHORT_INLINE T operator-(T a, T b) { return T((float)a - (float)b); }                                \
    GS_SHORT_INLINE T operator*(T a, T b) { return T((float)a * (float)b); }                                \
    GS_SHORT_INLINE T operator/(T a, T b) { return T((float)a / (float)b); }                                \
    GS_SHORT_INLINE T& operator+=(T& a, T b) { return a = a + b; }                                          \
    GS_SHORT_INLINE T& operator-=(T& a, T b) { return a = a - b; }                                          \
    GS_SHORT_INLINE T& operator*=(T& a, T b) { return a = a * b; }                                          \
    GS_SHORT_INLINE T& operator/=(T& a, T b) { return a = a / b; }                                          \
    GS_SHORT_INLINE T operator+(T a) { return a; }                                                          \
    GS_SHORT_INLINE T operator-(T a) { return T::from_bits((uint16_t)(a.bits ^ 0x8000u)); }                 \
    GS_SHORT_INLINE T& operator++(T& a) { return a = a + T(1.0f); }                                         \
    GS_SHORT_INLINE T& operator--(T& a) { return a = a - T(1.0f); }                                         \
    GS_SHORT_INLINE bool operator==(T a, T b) { return (float)a == (float)b; }                              \
    GS_SHORT_INLINE bool operator!=(T a, T b) { return (float)a != (float)b; }                              \
    GS_SHORT_INLINE bool operator<(T a, T b) { return (float)a < (float)b; }                                \
    GS_SHORT_INLINE bool operator<=(T a, T b) { return (float)a <= (float)b; }                              \
    GS_SHORT_INLINE bool operator>(T a, T b) { return (float)a > (float)b; }                                \
    GS_SHORT_INLINE bool operator>=(T a, T b) { return (float)a >= (float)b; }                              \
    GS_SHORT_FN T __hadd(T a, T b) { return a + b; }                                                        \
    GS_SHORT_FN T __hsub(T a, T b) { return a - b; }                                                        \
    GS_SHORT_FN T __hmul(T a, T b) { return a * b; }                                                        \
    GS_SHORT_FN T __hdiv(T a, T b) { return a / b; }                                                        \
    GS_SHORT_FN T __hneg(T a) { return -a; }                                                                \
    GS_SHORT_FN T __habs(T a) { return T::from_bits((uint16_t)(a.bits & 0x7fffu)); }                        \
    GS_SHORT_FN T __hfma(T a, T b, T c) { return T(gs_short_fma((float)a, (float)b, (float)c)); }           \
    GS_SHORT_FN bool __heq(T a, T b) { return a == b; }                                                     \
    GS_SHORT_FN bool __hne(T a, T b) { return a != b; }                                                     \
    GS_SHORT_FN bool __hlt(T a, T b) { return a < b; }                                                      \
    GS_SHORT_FN bool __hle(T a, T b) { return a <= b; }                                                     \
    GS_SHORT_FN bool __hgt(T a, T b) { return a > b; }                                                      \
    GS_SHORT_FN bool __hge(T a, T b) { return a >= b; }                                                     \
    GS_SHORT_FN bool __hisnan(T a) { return a != a; }                                                       \
    GS_SHORT_FN int __hisinf(T a) { return __builtin_isinf((float)a) ? ((float)a < 0 ? -1 : 1) : 0; }       \
    GS_SHORT_FN T __hmin(T a, T b) { return T(::fminf((float)a, (float)b)); }                               \
    GS_SHORT_FN T __hmax(T a, T b) { return T(::fmaxf((float)a, (float)b)); }                               \
    GS_SHORT_FN T hsqrt(T a) { return T(::sqrtf((float)a)); }                                               \
    GS_SHORT_FN T hrsqrt(T a) { return T(1.0f / ::sqrtf((float)a)); }                                       \
    GS_SHORT_FN T hexp(T a) { return T(::expf((float)a)); }                                                 \
    GS_SHORT_FN T hlog(T a) { return T(::logf((float)a)); }                                                 \
    GS_SHORT_FN T hsin(T a) { return T(::sinf((float)a)); }                                                 \
    GS_SHORT_FN T hcos(T a) { return T(::cosf((float)a)); }                                                 \
    GS_SHORT_FN T hfloor(T a) { return T(::floorf((float)a)); }                                             \
    GS_SHORT_FN T hceil(T a) { return T(::ceilf((float)a)); }                                               \
    GS_SHORT_FN T hrint(T a) { return T(::rintf((float)a)); }                                               \
    GS_SHORT_FN T htrunc(T a) { return T(::truncf((float)a)); }

// The functions that a file may define itself, as code for old toolkits does.
#define GS_SHORT_FUNCTIONS(T)                                                                               \
    GS_SHORT_OWN T hexp2(T a) { return T(::exp2f((float)a)); }                                              \
    GS_SHORT_OWN T hexp10(T a) { return T(::powf(10.0f, (float)a)); }                                       \
    GS_SHORT_OWN T hlog2(T a) { return T(::log2f((float)a)); }                                              \
    GS_SHORT_OWN T hlog10(T a) { return T(::log10f((float)a)); }                                            \
    GS_SHORT_OWN T hrcp(T a) { return T(1.0f / (float)a); }                                                 \
    GS_SHORT_OWN T htanh(T a) { return T(::tanhf((float)a)); }                                              \
    GS_SHORT_OWN T gs_short_saturate(T a) { return T((float)a > 0.0f ? ((float)a < 1.0f ? (float)a : 1.0f) : 0.0f); } \
    GS_SHORT_OWN T __hadd_rn(T a, T b) { return a + b; }                                                    \
    GS_SHORT_OWN T __hsub_rn(T a, T b) { return a - b; }                                                    \
    GS_SHORT_OWN T __hmul_rn(T a, T b) { return a * b; }                                                    \
    GS_SHORT_OWN T __hadd_sat(T a, T b) { return gs_short_saturate(a + b); }                                \
    GS_SHORT_OWN T __hsub_sat(T a, T b) { return gs_short_saturate(a - b); }                                \
    GS_SHORT_OWN T __hmul_sat(T a, T b) { return gs_short_saturate(a * b); }                                \
    GS_SHORT_OWN T __hfma_sat(T a, T b, T c) { return gs_short_saturate(__hfma(a, b, c)); }                 \
    GS_SHORT_OWN T __hfma_relu(T a, T b, T c) {                                                             \
        const T x = __hfma(a, b, c);                                                                        \
        return (float)x < 0.0f ? T(0.0f) : x;                                                               \
    }

// Those for pairs, element by element. `V` is the pair.
#define GS_SHORT_PAIR(T, V)                                                                                 \
    GS_SHORT_OWN V operator+(V a, V b) { return {a.x + b.x, a.y + b.y}; }                                   \
    GS_SHORT_OWN V operator-(V a, V b) { return {a.x - b.x, a.y - b.y}; }                                   \
    GS_SHORT_OWN V operator*(V a, V b) { return {a.x * b.x, a.y * b.y}; }                                   \
    GS_SHORT_OWN V operator/(V a, V b) { return {a.x / b.x, a.y / b.y}; }                                   \
    GS_SHORT_OWN V operator-(V a) { return {-a.x, -a.y}; }                                                  \
    GS_SHORT_OWN V operator+(V a) { return a; }                                                             \
    GS_SHORT_OWN V& operator+=(V& a, V b) { return a = a + b; }                                             \
    GS_SHORT_OWN V& operator-=(V& a, V b) { return a = a - b; }                                             \
    GS_SHORT_OWN V& operator*=(V& a, V b) { return a = a * b; }                                             \
    GS_SHORT_OWN V& operator/=(V& a, V b) { return a = a / b; }                                             \
    GS_SHORT_OWN bool operator==(V a, V b) { return a.x == b.x && a.y == b.y; }                             \
    GS_SHORT_OWN bool operator!=(V a, V b) { return a.x != b.x && a.y != b.y; }                             \
    GS_SHORT_OWN bool operator<(V a, V b) { return a.x < b.x && a.y < b.y; }                                \
    GS_SHORT_OWN bool operator<=(V a, V b) { return a.x <= b.x && a.y <= b.y; }                             \
    GS_SHORT_OWN bool operator>(V a, V b) { return a.x > b.x && a.y > b.y; }                                \
    GS_SHORT_OWN bool operator>=(V a, V b) { return a.x >= b.x && a.y >= b.y; }                             \
    GS_SHORT_OWN V __hadd2_rn(V a, V b) { return a + b; }                                                   \
    GS_SHORT_OWN V __hsub2_rn(V a, V b) { return a - b; }                                                   \
    GS_SHORT_OWN V __hmul2_rn(V a, V b) { return a * b; }                                                   \
    GS_SHORT_OWN V __h2div(V a, V b) { return a / b; }                                                      \
    GS_SHORT_OWN V __hneg2(V a) { return -a; }                                                              \
    GS_SHORT_OWN V __habs2(V a) { return {__habs(a.x), __habs(a.y)}; }                                      \
    GS_SHORT_OWN V __hmin2(V a, V b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                       \
    GS_SHORT_OWN V __hmax2(V a, V b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                       \
    GS_SHORT_OWN V __hadd2_sat(V a, V b) { return {__hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y)}; }           \
    GS_SHORT_OWN V __hsub2_sat(V a, V b) { return {__hsub_sat(a.x, b.x), __hsub_sat(a.y, b.y)}; }           \
    GS_SHORT_OWN V __hmul2_sat(V a, V b) { return {__hmul_sat(a.x, b.x), __hmul_sat(a.y, b.y)}; }           \
    GS_SHORT_OWN V __hfma2_sat(V a, V b, V c) { return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)}; } \
    GS_SHORT_OWN V __hfma2_relu(V a, V b, V c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; } \
    GS_SHORT_PAIR_COMPARE(T, V, eq, ==)                                                                     \
    GS_SHORT_PAIR_COMPARE(T, V, ne, !=)                                                                     \
    GS_SHORT_PAIR_COMPARE(T, V, lt, <)                                                                      \
    GS_SHORT_PAIR_COMPARE(T, V, le, <=)                                                                     \
    GS_SHORT_PAIR_COMPARE(T, V, gt, >)                                                                      \
    GS_SHORT_PAIR_COMPARE(T, V, ge, >=)                                                                     \
    GS_SHORT_OWN V __hisnan2(V a) { return {T(a.x != a.x ? 1.0f : 0.0f), T(a.y != a.y ? 1.0f : 0.0f)}; }    \
    GS_SHORT_PAIR_MATH(V, sqrt)                                                                             \
    GS_SHORT_PAIR_MATH(V, rsqrt)                                                                            \
    GS_SHORT_PAIR_MATH(V, exp)                                                                              \
    GS_SHORT_PAIR_MATH(V, exp2)                                                                             \
    GS_SHORT_PAIR_MATH(V, exp10)                                                                            \
    GS_SHORT_PAIR_MATH(V, log)                                                                              \
    GS_SHORT_PAIR_MATH(V, log2)                                                                             \
    GS_SHORT_PAIR_MATH(V, log10)                                                                            \
    GS_SHORT_PAIR_MATH(V, sin)                                                                              \
    GS_SHORT_PAIR_MATH(V, cos)                                                                              \
    GS_SHORT_PAIR_MATH(V, rcp)                                                                              \
    GS_SHORT_PAIR_MATH(V, floor)                                                                            \
    GS_SHORT_PAIR_MATH(V, ceil)                                                                             \
    GS_SHORT_PAIR_MATH(V, trunc)                                                                            \
    GS_SHORT_PAIR_MATH(V, rint)                                                                             \
    GS_SHORT_OWN V __ldg(const V* address) { return *address; }

#define GS_SHORT_PAIR_COMPARE(T, V, name, operation)                                                        \
    GS_SHORT_OWN V __h##name##2(V a, V b) {                                                                 \
        return {T(a.x operation b.x ? 1.0f : 0.0f), T(a.y operation b.y ? 1.0f : 0.0f)};                    \
    }                                                                                                       \
    GS_SHORT_OWN bool __hb##name##2(V a, V b) { return a.x operation b.x && a.y operation b.y; }            \
    GS_SHORT_OWN unsigned __h##name##2_mask(V a, V b) {                                                     \
        return (a.x operation b.x ? 0xffffu : 0u) | (a.y operation b.y ? 0xffff0000u : 0u);                 \
    }

#define GS_SHORT_PAIR_MATH(V, name)                                                                         \
    GS_SHORT_OWN V h2##name(V a) { return {h##name(a.x), h##name(a.y)}; }

// Templates, so that a file may define these functions itself, as code for old toolkits does.
template <class T> GS_SHORT_FN auto __hmax_nan(T a, T b) -> decltype(__hmax(a, b)) {
    return a != a ? a : b != b ? b : __hmax(a, b);
}
template <class T> GS_SHORT_FN auto __hmin_nan(T a, T b) -> decltype(__hmin(a, b)) {
    return a != a ? a : b != b ? b : __hmin(a, b);
}

#define GS_SHORT_LIMITS(T, SMALLEST, LARGEST, EPSILON, INFINITY_, NAN_, DIGITS)                             \
    template <> struct numeric_limits<T> : numeric_limits<float> {                                          \
        static constexpr int digits = DIGITS;                                                               \
        static __host__ __device__ T min() { return T::from_bits(SMALLEST); }                               \
        static __host__ __device__ T max() { return T::from_bits(LARGEST); }                                \
        static __host__ __device__ T lowest() { return T::from_bits(LARGEST | 0x8000u); }                   \
        static __host__ __device__ T epsilon() { return T::from_bits(EPSILON); }                            \
        static __host__ __device__ T denorm_min() { return T::from_bits(1); }                               \
        static __host__ __device__ T infinity() { return T::from_bits(INFINITY_); }                         \
        static __host__ __device__ T quiet_NaN() { return T::from_bits(NAN_); }                             \
    };

#endif
