// Mathematical and bit functions that CUDA and HIP offer without an include.
#ifndef GPUSTREAM_CPU_MATH_CUH
#define GPUSTREAM_CPU_MATH_CUH

#define GS_CPU_MIN_MAX(T)                                                                                     \
    static inline __attribute__((always_inline)) T min(T a, T b) { return b < a ? b : a; }                    \
    static inline __attribute__((always_inline)) T max(T a, T b) { return a < b ? b : a; }
GS_CPU_MIN_MAX(int)
GS_CPU_MIN_MAX(unsigned int)
GS_CPU_MIN_MAX(long)
GS_CPU_MIN_MAX(unsigned long)
GS_CPU_MIN_MAX(long long)
GS_CPU_MIN_MAX(unsigned long long)
#undef GS_CPU_MIN_MAX
static inline unsigned int min(unsigned int a, int b) { return min(a, (unsigned int)b); }
static inline unsigned int min(int a, unsigned int b) { return min((unsigned int)a, b); }
static inline unsigned int max(unsigned int a, int b) { return max(a, (unsigned int)b); }
static inline unsigned int max(int a, unsigned int b) { return max((unsigned int)a, b); }
// As in CUDA, these return the other operand if one is NaN.
static inline __attribute__((always_inline)) float min(float a, float b) { return ::fminf(a, b); }
static inline __attribute__((always_inline)) float max(float a, float b) { return ::fmaxf(a, b); }
static inline __attribute__((always_inline)) double min(double a, double b) { return ::fmin(a, b); }
static inline __attribute__((always_inline)) double max(double a, double b) { return ::fmax(a, b); }
static inline double min(float a, double b) { return ::fmin((double)a, b); }
static inline double min(double a, float b) { return ::fmin(a, (double)b); }
static inline double max(float a, double b) { return ::fmax((double)a, b); }
static inline double max(double a, float b) { return ::fmax(a, (double)b); }

using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

static inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
static inline float normcdff(float x) { return 0.5f * ::erfcf(-x * 0.70710678118654752f); }
static inline float sinpif(float x) { return (float)std::sin(3.14159265358979323846 * (double)std::remainder(x, 2.0f)); }
static inline float cospif(float x) { return (float)std::cos(3.14159265358979323846 * (double)std::remainder(x, 2.0f)); }

// The fast intrinsics are exact here.
static inline float gs_cpu_exp10f(float x) { return ::powf(10.0f, x); }
static inline void gs_cpu_sincosf(float x, float* s, float* c) {
    *s = ::sinf(x);
    *c = ::cosf(x);
}
// These are macros, since glibc declares functions of these names that it does not define.
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
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return ::sqrtf(x); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
static inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
// The compiler must not fuse these operations, so their result passes through a barrier to the compiler.
template <class T>
static inline __attribute__((always_inline)) T gs_cpu_unfused(T x) {
#if defined(__x86_64__)
    __asm__("" : "+x"(x));
#else
    __asm__("" : "+w"(x));
#endif
    return x;
}
static inline float __fadd_rn(float a, float b) { return gs_cpu_unfused(a + b); }
static inline float __fsub_rn(float a, float b) { return gs_cpu_unfused(a - b); }
static inline float __fmul_rn(float a, float b) { return gs_cpu_unfused(a * b); }
static inline double __dadd_rn(double a, double b) { return gs_cpu_unfused(a + b); }
static inline double __dsub_rn(double a, double b) { return gs_cpu_unfused(a - b); }
static inline double __dmul_rn(double a, double b) { return gs_cpu_unfused(a * b); }
static inline double __ddiv_rn(double a, double b) { return a / b; }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (unsigned)(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __sad(int a, int b, unsigned c) { return c + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a); }

// Reinterpretations and conversions. Conversions to integers saturate and give 0 for NaN, as on a GPU.
template <class To, class From>
static inline __attribute__((always_inline)) To gs_cpu_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}
static inline int __float_as_int(float x) { return gs_cpu_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return gs_cpu_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return gs_cpu_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return gs_cpu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return gs_cpu_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return gs_cpu_bits<double>(x); }
static inline int gs_cpu_to_int(double x) {
    return x != x ? 0 : x >= 2147483647.0 ? INT_MAX : x <= -2147483648.0 ? INT_MIN : (int)x;
}
static inline unsigned gs_cpu_to_uint(double x) { return !(x > 0.0) ? 0u : x >= 4294967295.0 ? UINT_MAX : (unsigned)x; }
static inline int __float2int_rn(float x) { return gs_cpu_to_int(::nearbyintf(x)); }
static inline int __float2int_rz(float x) { return gs_cpu_to_int(x); }
static inline int __float2int_rd(float x) { return gs_cpu_to_int(::floorf(x)); }
static inline int __float2int_ru(float x) { return gs_cpu_to_int(::ceilf(x)); }
static inline unsigned __float2uint_rn(float x) { return gs_cpu_to_uint(::nearbyintf(x)); }
static inline unsigned __float2uint_rz(float x) { return gs_cpu_to_uint(x); }
static inline int __double2int_rn(double x) { return gs_cpu_to_int(::nearbyint(x)); }
static inline int __double2int_rz(double x) { return gs_cpu_to_int(x); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline double __int2double_rn(int x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }

#endif
