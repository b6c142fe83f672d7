// Operators and functions for pairs of 16-bit numbers, element by element, and the rest of those for
// one number.
#ifndef GPUSTREAM_CPU_HALF2_CUH
#define GPUSTREAM_CPU_HALF2_CUH

// `T` is one number, `V` the pair.
#define GS_CPU_PAIR(T, V)                                                                                   \
    GS_CPU_FN V operator+(V a, V b) { return {a.x + b.x, a.y + b.y}; }                                      \
    GS_CPU_FN V operator-(V a, V b) { return {a.x - b.x, a.y - b.y}; }                                      \
    GS_CPU_FN V operator*(V a, V b) { return {a.x * b.x, a.y * b.y}; }                                      \
    GS_CPU_FN V operator/(V a, V b) { return {a.x / b.x, a.y / b.y}; }                                      \
    GS_CPU_FN V operator-(V a) { return {-a.x, -a.y}; }                                                     \
    GS_CPU_FN V operator+(V a) { return a; }                                                                \
    GS_CPU_FN V& operator+=(V& a, V b) { return a = a + b; }                                                \
    GS_CPU_FN V& operator-=(V& a, V b) { return a = a - b; }                                                \
    GS_CPU_FN V& operator*=(V& a, V b) { return a = a * b; }                                                \
    GS_CPU_FN V& operator/=(V& a, V b) { return a = a / b; }                                                \
    GS_CPU_FN bool operator==(V a, V b) { return a.x == b.x && a.y == b.y; }                                \
    GS_CPU_FN bool operator!=(V a, V b) { return a.x != b.x && a.y != b.y; }                                \
    GS_CPU_FN bool operator<(V a, V b) { return a.x < b.x && a.y < b.y; }                                   \
    GS_CPU_FN bool operator<=(V a, V b) { return a.x <= b.x && a.y <= b.y; }                                \
    GS_CPU_FN bool operator>(V a, V b) { return a.x > b.x && a.y > b.y; }                                   \
    GS_CPU_FN bool operator>=(V a, V b) { return a.x >= b.x && a.y >= b.y; }                                \
    GS_CPU_FN V __hadd2_rn(V a, V b) { return a + b; }                                                      \
    GS_CPU_FN V __hsub2_rn(V a, V b) { return a - b; }                                                      \
    GS_CPU_FN V __hmul2_rn(V a, V b) { return a * b; }                                                      \
    GS_CPU_FN V __h2div(V a, V b) { return a / b; }                                                         \
    GS_CPU_FN V __hneg2(V a) { return -a; }                                                                 \
    GS_CPU_FN V __habs2(V a) { return {__habs(a.x), __habs(a.y)}; }                                         \
    GS_CPU_FN V __hmin2(V a, V b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                          \
    GS_CPU_FN V __hmax2(V a, V b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                          \
    GS_CPU_FN V __hadd2_sat(V a, V b) { return {__hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y)}; }              \
    GS_CPU_FN V __hsub2_sat(V a, V b) { return {__hsub_sat(a.x, b.x), __hsub_sat(a.y, b.y)}; }              \
    GS_CPU_FN V __hmul2_sat(V a, V b) { return {__hmul_sat(a.x, b.x), __hmul_sat(a.y, b.y)}; }              \
    GS_CPU_FN V __hfma2_sat(V a, V b, V c) { return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)}; } \
    GS_CPU_FN V __hfma2_relu(V a, V b, V c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; } \
    GS_CPU_PAIR_COMPARE(T, V, eq, ==)                                                                       \
    GS_CPU_PAIR_COMPARE(T, V, ne, !=)                                                                       \
    GS_CPU_PAIR_COMPARE(T, V, lt, <)                                                                        \
    GS_CPU_PAIR_COMPARE(T, V, le, <=)                                                                       \
    GS_CPU_PAIR_COMPARE(T, V, gt, >)                                                                        \
    GS_CPU_PAIR_COMPARE(T, V, ge, >=)                                                                       \
    GS_CPU_FN V __hisnan2(V a) { return {T(a.x != a.x ? 1.0f : 0.0f), T(a.y != a.y ? 1.0f : 0.0f)}; }       \
    GS_CPU_PAIR_MATH(V, sqrt)                                                                               \
    GS_CPU_PAIR_MATH(V, rsqrt)                                                                              \
    GS_CPU_PAIR_MATH(V, exp)                                                                                \
    GS_CPU_PAIR_MATH(V, exp2)                                                                               \
    GS_CPU_PAIR_MATH(V, exp10)                                                                              \
    GS_CPU_PAIR_MATH(V, log)                                                                                \
    GS_CPU_PAIR_MATH(V, log2)                                                                               \
    GS_CPU_PAIR_MATH(V, log10)                                                                              \
    GS_CPU_PAIR_MATH(V, sin)                                                                                \
    GS_CPU_PAIR_MATH(V, cos)                                                                                \
    GS_CPU_PAIR_MATH(V, rcp)                                                                                \
    GS_CPU_PAIR_MATH(V, floor)                                                                              \
    GS_CPU_PAIR_MATH(V, ceil)                                                                               \
    GS_CPU_PAIR_MATH(V, trunc)                                                                              \
    GS_CPU_PAIR_MATH(V, rint)                                                                               \
    GS_CPU_FN V __ldg(const V* address) { return *address; }                                                \
    GS_CPU_FN V atomicAdd(V* p, V v) {                                                                      \
        return gs_cpu_atomic_update(p, [v](V old) { return old + v; });                                     \
    }

#define GS_CPU_PAIR_COMPARE(T, V, name, operation)                                                          \
    GS_CPU_FN V __h##name##2(V a, V b) {                                                                    \
        return {T(a.x operation b.x ? 1.0f : 0.0f), T(a.y operation b.y ? 1.0f : 0.0f)};                    \
    }                                                                                                       \
    GS_CPU_FN bool __hb##name##2(V a, V b) { return a.x operation b.x && a.y operation b.y; }               \
    GS_CPU_FN unsigned __h##name##2_mask(V a, V b) {                                                        \
        return (a.x operation b.x ? 0xffffu : 0u) | (a.y operation b.y ? 0xffff0000u : 0u);                 \
    }

#define GS_CPU_PAIR_MATH(V, name) \
    GS_CPU_FN V h2##name(V a) { return {h##name(a.x), h##name(a.y)}; }

#define GS_CPU_ONE(T)                                                                                       \
    GS_CPU_FN T hexp2(T a) { return T(::exp2f((float)a)); }                                                 \
    GS_CPU_FN T hexp10(T a) { return T(::powf(10.0f, (float)a)); }                                          \
    GS_CPU_FN T hlog2(T a) { return T(::log2f((float)a)); }                                                 \
    GS_CPU_FN T hlog10(T a) { return T(::log10f((float)a)); }                                               \
    GS_CPU_FN T hrcp(T a) { return T(1.0f / (float)a); }                                                    \
    GS_CPU_FN T htanh(T a) { return T(::tanhf((float)a)); }                                                 \
    GS_CPU_FN T gs_cpu_saturate(T a) { return T(__saturatef((float)a)); }                                   \
    GS_CPU_FN T __hadd_rn(T a, T b) { return a + b; }                                                       \
    GS_CPU_FN T __hsub_rn(T a, T b) { return a - b; }                                                       \
    GS_CPU_FN T __hmul_rn(T a, T b) { return a * b; }                                                       \
    GS_CPU_FN T __hadd_sat(T a, T b) { return gs_cpu_saturate(a + b); }                                     \
    GS_CPU_FN T __hsub_sat(T a, T b) { return gs_cpu_saturate(a - b); }                                     \
    GS_CPU_FN T __hmul_sat(T a, T b) { return gs_cpu_saturate(a * b); }                                     \
    GS_CPU_FN T __hfma_sat(T a, T b, T c) { return gs_cpu_saturate(__hfma(a, b, c)); }                      \
    GS_CPU_FN T __hfma_relu(T a, T b, T c) {                                                                \
        const T x = __hfma(a, b, c);                                                                        \
        return (float)x < 0.0f ? T(0.0f) : x;                                                               \
    }
GS_CPU_ONE(__half)
GS_CPU_ONE(__nv_bfloat16)
#undef GS_CPU_ONE

GS_CPU_PAIR(__half, __half2)
GS_CPU_PAIR(__nv_bfloat16, __nv_bfloat162)
#undef GS_CPU_PAIR
#undef GS_CPU_PAIR_COMPARE
#undef GS_CPU_PAIR_MATH

// Conversions.
GS_CPU_FN __half2 make_half2(__half x, __half y) { return {x, y}; }
GS_CPU_FN __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
GS_CPU_FN __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
GS_CPU_FN __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
GS_CPU_FN __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
GS_CPU_FN __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
GS_CPU_FN short __half2short_rn(__half x) { return (short)::rintf((float)x); }
GS_CPU_FN short __half2short_rz(__half x) { return (short)(float)x; }
GS_CPU_FN unsigned __half2uint_rn(__half x) { return gs_cpu_to_uint(::rintf((float)x)); }
GS_CPU_FN unsigned __half2uint_rz(__half x) { return gs_cpu_to_uint((float)x); }
GS_CPU_FN __half __short2half_rn(short x) { return __half((float)x); }
GS_CPU_FN __half __ushort2half_rn(unsigned short x) { return __half((float)x); }
GS_CPU_FN __half __ll2half_rn(long long x) { return __half(x); }
GS_CPU_FN short __half_as_short(__half x) { return (short)x.bits; }
GS_CPU_FN __half __short_as_half(short x) { return __half::from_bits((unsigned short)x); }
GS_CPU_FN __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
GS_CPU_FN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
GS_CPU_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
GS_CPU_FN __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
GS_CPU_FN __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
GS_CPU_FN __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
GS_CPU_FN __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
GS_CPU_FN __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
GS_CPU_FN __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
GS_CPU_FN float __low2float(__nv_bfloat162 v) { return (float)v.x; }
GS_CPU_FN float __high2float(__nv_bfloat162 v) { return (float)v.y; }
GS_CPU_FN __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return a - b; }
GS_CPU_FN __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
GS_CPU_FN int __bfloat162int_rn(__nv_bfloat16 x) { return gs_cpu_to_int(::rintf((float)x)); }
GS_CPU_FN __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }

#endif
