// Operators and functions for pairs of 16-bit numbers, element by element, and the rest of those for
// one number.
#ifndef GPUSTREAM_CPU_HALF2_CUH
#define GPUSTREAM_CPU_HALF2_CUH

GS_SHORT_FUNCTIONS(__half)

GS_SHORT_PAIR(__half, __half2)

GS_CPU_FN __half2 atomicAdd(__half2* p, __half2 v) {
    return gs_cpu_atomic_update(p, [v](__half2 old) { return old + v; });
}
GS_CPU_FN __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 v) {
    return gs_cpu_atomic_update(p, [v](__nv_bfloat162 old) { return old + v; });
}

// Conversions.
GS_SHORT_OWN __half2 make_half2(__half x, __half y) { return {x, y}; }
GS_SHORT_OWN __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
GS_SHORT_OWN __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
GS_SHORT_OWN __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
GS_SHORT_OWN __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
GS_SHORT_OWN __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
GS_SHORT_OWN short __half2short_rn(__half x) { return (short)::rintf((float)x); }
GS_SHORT_OWN short __half2short_rz(__half x) { return (short)(float)x; }
GS_SHORT_OWN unsigned __half2uint_rn(__half x) { return gs_cpu_to_uint(::rintf((float)x)); }
GS_SHORT_OWN unsigned __half2uint_rz(__half x) { return gs_cpu_to_uint((float)x); }
GS_SHORT_OWN __half __short2half_rn(short x) { return __half((float)x); }
GS_SHORT_OWN __half __ushort2half_rn(unsigned short x) { return __half((float)x); }
GS_SHORT_OWN __half __ll2half_rn(long long x) { return __half(x); }
GS_SHORT_OWN short __half_as_short(__half x) { return (short)x.bits; }
GS_SHORT_OWN __half __short_as_half(short x) { return __half::from_bits((unsigned short)x); }
GS_SHORT_OWN int __bfloat162int_rn(__nv_bfloat16 x) { return gs_cpu_to_int(::rintf((float)x)); }

#endif
