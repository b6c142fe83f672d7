// Mathematical and bit functions that you can use without an include in CUDA and HIP.
#ifndef GPUSTREAM_CPU_MATH_CUH
#define GPUSTREAM_CPU_MATH_CUH

// All are templates. So if you write a function with the same parameters, the compiler takes yours.
#define GS_CPU_FN template <int = 0> static inline __attribute__((always_inline))

#define GS_CPU_MIN_MAX(T)                                                                                     \
    GS_CPU_FN T min(T a, T b) { return b < a ? b : a; }                    \
    GS_CPU_FN T max(T a, T b) { return a < b ? b : a; }
GS_CPU_MIN_MAX(int)
GS_CPU_MIN_MAX(unsigned int)
GS_CPU_MIN_MAX(long)
GS_CPU_MIN_MAX(unsigned long)
GS_CPU_MIN_MAX(long long)
GS_CPU_MIN_MAX(unsigned long long)
#undef GS_CPU_MIN_MAX
GS_CPU_FN unsigned int min(unsigned int a, int b) { return min(a, (unsigned int)b); }
GS_CPU_FN unsigned int min(int a, unsigned int b) { return min((unsigned int)a, b); }
GS_CPU_FN unsigned int max(unsigned int a, int b) { return max(a, (unsigned int)b); }
GS_CPU_FN unsigned int max(int a, unsigned int b) { return max((unsigned int)a, b); }
// If one operand is NaN, these return the other one, as in CUDA. g++ would call the C library, and a loop with calls does not
// become vector code.
#if defined(__x86_64__)
#define GS_CPU_MIN_MAX(T, MIN, MAX)                                                                           \
    extern inline __attribute__((__gnu_inline__, __always_inline__)) T MIN(T a, T b) noexcept {               \
        T least = a < b ? a : b;                                                                              \
        return b != b ? a : least;                                                                            \
    }                                                                                                         \
    extern inline __attribute__((__gnu_inline__, __always_inline__)) T MAX(T a, T b) noexcept {               \
        T most = a > b ? a : b;                                                                               \
        return b != b ? a : most;                                                                             \
    }
extern "C" {
GS_CPU_MIN_MAX(float, fminf, fmaxf)
GS_CPU_MIN_MAX(double, fmin, fmax)
}
#undef GS_CPU_MIN_MAX
#endif
GS_CPU_FN float min(float a, float b) { return ::fminf(a, b); }
GS_CPU_FN float max(float a, float b) { return ::fmaxf(a, b); }
GS_CPU_FN double min(double a, double b) { return ::fmin(a, b); }
GS_CPU_FN double max(double a, double b) { return ::fmax(a, b); }
GS_CPU_FN double min(float a, double b) { return ::fmin((double)a, b); }
GS_CPU_FN double min(double a, float b) { return ::fmin(a, (double)b); }
GS_CPU_FN double max(float a, double b) { return ::fmax((double)a, b); }
GS_CPU_FN double max(double a, float b) { return ::fmax(a, (double)b); }

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

GS_CPU_FN float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
GS_CPU_FN double rsqrt(double x) { return 1.0 / ::sqrt(x); }
GS_CPU_FN float rsqrt(float x) { return rsqrtf(x); }
GS_CPU_FN float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
GS_CPU_FN float normcdff(float x) { return 0.5f * ::erfcf(-x * 0.70710678118654752f); }
GS_CPU_FN float sinpif(float x) { return (float)std::sin(3.14159265358979323846 * (double)std::remainder(x, 2.0f)); }
GS_CPU_FN float cospif(float x) { return (float)std::cos(3.14159265358979323846 * (double)std::remainder(x, 2.0f)); }

// The fast intrinsics are exact here.
static inline float gs_cpu_exp10f(float x) { return ::powf(10.0f, x); }
static inline void gs_cpu_sincosf(float x, float* s, float* c) {
    *s = ::sinf(x);
    *c = ::cosf(x);
}
// These are macros, because glibc declares functions with these names but does not define them.
#define __expf expf
#define __exp10f gs_cpu_exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf gs_cpu_sincosf
GS_CPU_FN float __fdividef(float a, float b) { return a / b; }
GS_CPU_FN float fdividef(float a, float b) { return a / b; }
GS_CPU_FN float __frcp_rn(float x) { return 1.0f / x; }
GS_CPU_FN float __fsqrt_rn(float x) { return ::sqrtf(x); }
GS_CPU_FN float __frsqrt_rn(float x) { return rsqrtf(x); }
GS_CPU_FN float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
GS_CPU_FN float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
GS_CPU_FN double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
GS_CPU_FN float __fdiv_rn(float a, float b) { return a / b; }
// The compiler must not fuse these operations, so we pass their result through a compiler barrier.
template <class T>
static inline __attribute__((always_inline)) T gs_cpu_unfused(T x) {
#if defined(__x86_64__)
    __asm__("" : "+x"(x));
#else
    __asm__("" : "+w"(x));
#endif
    return x;
}
GS_CPU_FN float __fadd_rn(float a, float b) { return gs_cpu_unfused(a + b); }
GS_CPU_FN float __fsub_rn(float a, float b) { return gs_cpu_unfused(a - b); }
GS_CPU_FN float __fmul_rn(float a, float b) { return gs_cpu_unfused(a * b); }
GS_CPU_FN double __dadd_rn(double a, double b) { return gs_cpu_unfused(a + b); }
GS_CPU_FN double __dsub_rn(double a, double b) { return gs_cpu_unfused(a - b); }
GS_CPU_FN double __dmul_rn(double a, double b) { return gs_cpu_unfused(a * b); }
GS_CPU_FN double __ddiv_rn(double a, double b) { return a / b; }

GS_CPU_FN int __popc(unsigned x) { return __builtin_popcount(x); }
GS_CPU_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
GS_CPU_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
GS_CPU_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
GS_CPU_FN int __ffs(int x) { return __builtin_ffs(x); }
GS_CPU_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
GS_CPU_FN unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
GS_CPU_FN unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
GS_CPU_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (unsigned)(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
    return result;
}
GS_CPU_FN int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
GS_CPU_FN unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
GS_CPU_FN int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
GS_CPU_FN unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
GS_CPU_FN long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
GS_CPU_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
GS_CPU_FN unsigned __sad(int a, int b, unsigned c) { return c + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a); }

// Reinterpretations and conversions. Conversions to integers saturate and give 0 for NaN, as on a GPU.
template <class To, class From>
static inline __attribute__((always_inline)) To gs_cpu_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}
GS_CPU_FN int __float_as_int(float x) { return gs_cpu_bits<int>(x); }
GS_CPU_FN unsigned __float_as_uint(float x) { return gs_cpu_bits<unsigned>(x); }
GS_CPU_FN float __int_as_float(int x) { return gs_cpu_bits<float>(x); }
GS_CPU_FN float __uint_as_float(unsigned x) { return gs_cpu_bits<float>(x); }
GS_CPU_FN long long __double_as_longlong(double x) { return gs_cpu_bits<long long>(x); }
GS_CPU_FN double __longlong_as_double(long long x) { return gs_cpu_bits<double>(x); }
static inline int gs_cpu_to_int(double x) {
    return x != x ? 0 : x >= 2147483647.0 ? INT_MAX : x <= -2147483648.0 ? INT_MIN : (int)x;
}
static inline unsigned gs_cpu_to_uint(double x) { return !(x > 0.0) ? 0u : x >= 4294967295.0 ? UINT_MAX : (unsigned)x; }
GS_CPU_FN int __float2int_rn(float x) { return gs_cpu_to_int(::nearbyintf(x)); }
GS_CPU_FN int __float2int_rz(float x) { return gs_cpu_to_int(x); }
GS_CPU_FN int __float2int_rd(float x) { return gs_cpu_to_int(::floorf(x)); }
GS_CPU_FN int __float2int_ru(float x) { return gs_cpu_to_int(::ceilf(x)); }
GS_CPU_FN unsigned __float2uint_rn(float x) { return gs_cpu_to_uint(::nearbyintf(x)); }
GS_CPU_FN unsigned __float2uint_rz(float x) { return gs_cpu_to_uint(x); }
GS_CPU_FN int __double2int_rn(double x) { return gs_cpu_to_int(::nearbyint(x)); }
GS_CPU_FN int __double2int_rz(double x) { return gs_cpu_to_int(x); }
GS_CPU_FN float __int2float_rn(int x) { return (float)x; }
GS_CPU_FN float __uint2float_rn(unsigned x) { return (float)x; }
GS_CPU_FN double __int2double_rn(int x) { return (double)x; }
GS_CPU_FN float __double2float_rn(double x) { return (float)x; }

// Directed rounding through a double, because it holds sums and products of floats exactly or nearly so.
static inline float gs_cpu_down(double x) {
    const float near = (float)x;
    return (double)near > x ? ::nextafterf(near, -INFINITY) : near;
}
static inline float gs_cpu_up(double x) {
    const float near = (float)x;
    return (double)near < x ? ::nextafterf(near, INFINITY) : near;
}
static inline float gs_cpu_toward_zero(double x) { return x < 0 ? gs_cpu_up(x) : gs_cpu_down(x); }
#define GS_CPU_ROUNDED(suffix, round)                                                                       \
    GS_CPU_FN float __fadd_##suffix(float a, float b) { return round((double)a + b); }                      \
    GS_CPU_FN float __fsub_##suffix(float a, float b) { return round((double)a - b); }                      \
    GS_CPU_FN float __fmul_##suffix(float a, float b) { return round((double)a * b); }                      \
    GS_CPU_FN float __fdiv_##suffix(float a, float b) { return round((double)a / b); }                      \
    GS_CPU_FN float __frcp_##suffix(float x) { return round(1.0 / (double)x); }                             \
    GS_CPU_FN float __fsqrt_##suffix(float x) { return round(::sqrt((double)x)); }                          \
    GS_CPU_FN float __double2float_##suffix(double x) { return round(x); }                                  \
    GS_CPU_FN float __int2float_##suffix(int x) { return round((double)x); }                                \
    GS_CPU_FN float __uint2float_##suffix(unsigned x) { return round((double)x); }
GS_CPU_ROUNDED(rz, gs_cpu_toward_zero)
GS_CPU_ROUNDED(rd, gs_cpu_down)
GS_CPU_ROUNDED(ru, gs_cpu_up)
#undef GS_CPU_ROUNDED

// Directed rounding for doubles: we round to nearest, and look at the sign of what is missing. If the result
// overflowed to infinity, it is beyond every number. Results below the smallest normal number are only as near as
// they come.
static inline double gs_cpu_down(double near, double rest) { return rest < 0 ? ::nextafter(near, -INFINITY) : near; }
static inline double gs_cpu_up(double near, double rest) { return rest > 0 ? ::nextafter(near, INFINITY) : near; }
static inline double gs_cpu_toward_zero(double near, double rest) {
    return near < 0 ? gs_cpu_up(near, rest) : gs_cpu_down(near, rest);
}
static inline double gs_cpu_overflow(double near, double rest) { return std::isinf(near) ? -near : rest; }
static inline double gs_cpu_rest_of_sum(double a, double b, double sum) {
    const double of_b = gs_cpu_unfused(sum - a), of_a = gs_cpu_unfused(sum - of_b);
    return std::isinf(a) || std::isinf(b) ? 0 : gs_cpu_overflow(sum, gs_cpu_unfused(a - of_a) + gs_cpu_unfused(b - of_b));
}
static inline double gs_cpu_rest_of_product(double a, double b, double product) {
    return std::isinf(a) || std::isinf(b) ? 0 : gs_cpu_overflow(product, ::fma(a, b, -product));
}
static inline double gs_cpu_rest_of_quotient(double a, double b, double quotient) {
    if (std::isinf(a) || std::isinf(b) || b == 0) return 0;
    const double rest = ::fma(-quotient, b, a);
    return gs_cpu_overflow(quotient, b < 0 ? -rest : rest);
}
static inline float gs_cpu_down(double near, double rest, float) {
    return rest < 0 && (double)(float)near == near ? ::nextafterf((float)near, -INFINITY) : gs_cpu_down(near);
}
static inline float gs_cpu_up(double near, double rest, float) {
    return rest > 0 && (double)(float)near == near ? ::nextafterf((float)near, INFINITY) : gs_cpu_up(near);
}
static inline float gs_cpu_toward_zero(double near, double rest, float) {
    return near < 0 ? gs_cpu_up(near, rest, 0.0f) : gs_cpu_down(near, rest, 0.0f);
}
// We use 128-bit integers to tell how far a whole number is from the nearest float or double.
template <class To, class From>
static inline double gs_cpu_rest_of_whole(To near, From x) {
    return (__int128)near < (__int128)x ? 1 : (__int128)near > (__int128)x ? -1 : 0;
}
#define GS_CPU_ROUNDED(suffix, round)                                                                       \
    GS_CPU_FN double __dadd_##suffix(double a, double b) {                                                  \
        const double sum = gs_cpu_unfused(a + b);                                                           \
        return round(sum, gs_cpu_rest_of_sum(a, b, sum));                                                   \
    }                                                                                                       \
    GS_CPU_FN double __dsub_##suffix(double a, double b) { return __dadd_##suffix(a, -b); }                 \
    GS_CPU_FN double __dmul_##suffix(double a, double b) {                                                  \
        const double product = gs_cpu_unfused(a * b);                                                       \
        return round(product, gs_cpu_rest_of_product(a, b, product));                                       \
    }                                                                                                       \
    GS_CPU_FN double __ddiv_##suffix(double a, double b) {                                                  \
        const double quotient = a / b;                                                                      \
        return round(quotient, gs_cpu_rest_of_quotient(a, b, quotient));                                    \
    }                                                                                                       \
    GS_CPU_FN double __drcp_##suffix(double x) { return __ddiv_##suffix(1.0, x); }                          \
    GS_CPU_FN double __dsqrt_##suffix(double x) {                                                           \
        const double root = ::sqrt(x);                                                                      \
        return std::isinf(x) ? root : round(root, ::fma(-root, root, x));                                   \
    }                                                                                                       \
    GS_CPU_FN float __fmaf_##suffix(float a, float b, float c) {                                            \
        const double product = (double)a * (double)b, sum = gs_cpu_unfused(gs_cpu_unfused(product) + c);    \
        return round(sum, gs_cpu_rest_of_sum(product, c, sum), 0.0f);                                       \
    }                                                                                                       \
    GS_CPU_FN double __ll2double_##suffix(long long x) {                                                    \
        return round((double)x, gs_cpu_rest_of_whole((double)x, x));                                        \
    }                                                                                                       \
    GS_CPU_FN double __ull2double_##suffix(unsigned long long x) {                                          \
        return round((double)x, gs_cpu_rest_of_whole((double)x, x));                                        \
    }                                                                                                       \
    GS_CPU_FN float __ll2float_##suffix(long long x) {                                                      \
        return round((double)(float)x, gs_cpu_rest_of_whole((float)x, x), 0.0f);                            \
    }                                                                                                       \
    GS_CPU_FN float __ull2float_##suffix(unsigned long long x) {                                            \
        return round((double)(float)x, gs_cpu_rest_of_whole((float)x, x), 0.0f);                            \
    }
GS_CPU_ROUNDED(rz, gs_cpu_toward_zero)
GS_CPU_ROUNDED(rd, gs_cpu_down)
GS_CPU_ROUNDED(ru, gs_cpu_up)
#undef GS_CPU_ROUNDED

// Conversions to 32-bit and 64-bit integers, in all four rounding directions.
static inline long long gs_cpu_to_ll(double x) {
    return x != x ? LLONG_MIN : x >= 9223372036854775808.0 ? LLONG_MAX : x < -9223372036854775808.0 ? LLONG_MIN : (long long)x;
}
static inline unsigned long long gs_cpu_to_ull(double x) {
    return x != x ? 0x8000000000000000ull : x <= 0.0 ? 0ull : x >= 18446744073709551616.0 ? ULLONG_MAX : (unsigned long long)x;
}
#define GS_CPU_TO_INTEGERS(suffix, round)                                                                   \
    GS_CPU_FN unsigned __double2uint_##suffix(double x) { return gs_cpu_to_uint(round(x)); }                \
    GS_CPU_FN long long __float2ll_##suffix(float x) { return gs_cpu_to_ll(round((double)x)); }             \
    GS_CPU_FN long long __double2ll_##suffix(double x) { return gs_cpu_to_ll(round(x)); }                   \
    GS_CPU_FN unsigned long long __float2ull_##suffix(float x) { return gs_cpu_to_ull(round((double)x)); }  \
    GS_CPU_FN unsigned long long __double2ull_##suffix(double x) { return gs_cpu_to_ull(round(x)); }
GS_CPU_TO_INTEGERS(rn, ::nearbyint)
GS_CPU_TO_INTEGERS(rz, ::trunc)
GS_CPU_TO_INTEGERS(rd, ::floor)
GS_CPU_TO_INTEGERS(ru, ::ceil)
#undef GS_CPU_TO_INTEGERS
GS_CPU_FN unsigned __float2uint_rd(float x) { return gs_cpu_to_uint(::floorf(x)); }
GS_CPU_FN unsigned __float2uint_ru(float x) { return gs_cpu_to_uint(::ceilf(x)); }
GS_CPU_FN int __double2int_rd(double x) { return gs_cpu_to_int(::floor(x)); }
GS_CPU_FN int __double2int_ru(double x) { return gs_cpu_to_int(::ceil(x)); }
GS_CPU_FN double __uint2double_rn(unsigned x) { return (double)x; }
GS_CPU_FN float __ll2float_rn(long long x) { return (float)x; }
GS_CPU_FN float __ull2float_rn(unsigned long long x) { return (float)x; }
GS_CPU_FN double __ll2double_rn(long long x) { return (double)x; }
GS_CPU_FN double __ull2double_rn(unsigned long long x) { return (double)x; }

GS_CPU_FN double rcbrt(double x) { return 1.0 / ::cbrt(x); }
GS_CPU_FN float rhypotf(float x, float y) { return 1.0f / ::hypotf(x, y); }
GS_CPU_FN double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
GS_CPU_FN float norm3df(float x, float y, float z) { return (float)::sqrt((double)x * x + (double)y * y + (double)z * z); }
GS_CPU_FN float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
GS_CPU_FN float norm4df(float x, float y, float z, float w) {
    return (float)::sqrt((double)x * x + (double)y * y + (double)z * z + (double)w * w);
}
GS_CPU_FN float rnorm4df(float x, float y, float z, float w) { return 1.0f / norm4df(x, y, z, w); }
GS_CPU_FN double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
GS_CPU_FN double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752440); }
GS_CPU_FN double sinpi(double x) { return ::sin(3.14159265358979323846 * std::remainder(x, 2.0)); }
GS_CPU_FN double cospi(double x) { return ::cos(3.14159265358979323846 * std::remainder(x, 2.0)); }
GS_CPU_FN void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
GS_CPU_FN void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
GS_CPU_FN float saturate(float x) { return __saturatef(x); }
GS_CPU_FN double __dsqrt_rn(double x) { return ::sqrt(x); }
GS_CPU_FN double __drcp_rn(double x) { return 1.0 / x; }

GS_CPU_FN double norm4d(double x, double y, double z, double w) { return std::hypot(std::hypot(x, y, z), w); }
GS_CPU_FN double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
GS_CPU_FN double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
GS_CPU_FN double norm(int length, const double* x) {
    double sum = 0;
    for (int i = 0; i < length; ++i) sum = std::hypot(sum, x[i]);
    return sum;
}
GS_CPU_FN float normf(int length, const float* x) {
    double sum = 0;
    for (int i = 0; i < length; ++i) sum += (double)x[i] * x[i];
    return (float)::sqrt(sum);
}
GS_CPU_FN double rnorm(int length, const double* x) { return 1.0 / norm(length, x); }
GS_CPU_FN float rnormf(int length, const float* x) { return 1.0f / normf(length, x); }
// For the inverse of erfc we begin with M. Giles' approximation (2010), and Newton's method finds
// the rest.
static inline double gs_cpu_erfcinv(double y) {
    const double w = ::sqrt(-::log(y * (2 - y))), derivative = -1.1283791670955126;
    double x = y > 0.1 ? 0.886 * (1 - y) * (1 + 0.26 * (1 - y) * (1 - y)) : w - ::log(w * 1.7724538509055159) / (2 * w);
    for (int step = 0; step < 6; ++step) {
        const double change = (::erfc(x) - y) / (derivative * ::exp(-x * x));
        x -= change / (1 + x * change);
    }
    return x;
}
GS_CPU_FN double erfcinv(double y) {
    if (!(y > 0 && y < 2)) return y == 0 ? INFINITY : y == 2 ? -INFINITY : NAN;
    return y > 1 ? -gs_cpu_erfcinv(2 - y) : gs_cpu_erfcinv(y);
}
GS_CPU_FN double erfinv(double y) {
    const double size = ::fabs(y);
    if (size > 0.5) return ::copysign(erfcinv(1 - size), y);
    double x = y * 0.88622692545275801;
    for (int step = 0; step < 6; ++step) x -= (::erf(x) - y) / (1.1283791670955126 * ::exp(-x * x));
    return x;
}
GS_CPU_FN float erfcinvf(float y) { return (float)erfcinv((double)y); }
GS_CPU_FN float erfinvf(float y) { return (float)erfinv((double)y); }
GS_CPU_FN double normcdfinv(double y) { return -1.4142135623730951 * erfcinv(2 * y); }
GS_CPU_FN float normcdfinvf(float y) { return (float)normcdfinv((double)y); }
GS_CPU_FN double erfcx(double x) {
    if (x < 25) return ::exp(x * x) * ::erfc(x);
    const double s = 1 / (x * x);
    return 0.56418958354775629 / x * (1 - s / 2 * (1 - 3 * s / 2 * (1 - 5 * s / 2)));
}
GS_CPU_FN float erfcxf(float x) { return (float)erfcx((double)x); }
#if defined(__cpp_lib_math_special_functions)
GS_CPU_FN double cyl_bessel_i0(double x) { return std::cyl_bessel_i(0.0, ::fabs(x)); }
GS_CPU_FN double cyl_bessel_i1(double x) { return ::copysign(std::cyl_bessel_i(1.0, ::fabs(x)), x); }
GS_CPU_FN float cyl_bessel_i0f(float x) { return (float)cyl_bessel_i0((double)x); }
GS_CPU_FN float cyl_bessel_i1f(float x) { return (float)cyl_bessel_i1((double)x); }
#endif
// The position of the bit that is `offset` set bits after `base`, or before; ~0 if there is none.
GS_CPU_FN unsigned __fns(unsigned mask, unsigned base, int offset) {
    int left = offset > 0 ? offset : -offset;
    for (int at = (int)base; at >= 0 && at < 32; at += offset < 0 ? -1 : 1) {
        if ((mask >> at & 1u) != 0 && --left <= 0) return (unsigned)at;
        if (offset == 0) break;
    }
    return ~0u;
}

// Clang has it built in.
#if !defined(__clang__)
#define __builtin_assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#endif
#define __assume(condition) __builtin_assume(condition)

#endif
