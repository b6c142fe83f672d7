// CUDA's <cuComplex.h>, for compilers without that header: complex numbers from two floats or two
// doubles.
#ifndef GPUSTREAM_COMPLEX_CUH
#define GPUSTREAM_COMPLEX_CUH

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

#define GS_COMPLEX static __host__ __device__ __forceinline__
#define GS_COMPLEX_OF(C, T, name, root)                                                                     \
    GS_COMPLEX T cuCreal##name(C x) { return x.x; }                                                         \
    GS_COMPLEX T cuCimag##name(C x) { return x.y; }                                                         \
    GS_COMPLEX C cuConj##name(C x) { return make_##C(x.x, -x.y); }                                          \
    GS_COMPLEX C cuCadd##name(C a, C b) { return make_##C(a.x + b.x, a.y + b.y); }                          \
    GS_COMPLEX C cuCsub##name(C a, C b) { return make_##C(a.x - b.x, a.y - b.y); }                          \
    GS_COMPLEX C cuCmul##name(C a, C b) { return make_##C(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }  \
    GS_COMPLEX T cuCabs##name(C x) {                                                                        \
        const T a = x.x < 0 ? -x.x : x.x, b = x.y < 0 ? -x.y : x.y, large = a > b ? a : b, small = a > b ? b : a; \
        const T part = large == 0 ? large : small / large;                                                  \
        return large * root((T)1 + part * part);                                                            \
    }                                                                                                       \
    GS_COMPLEX C cuCdiv##name(C a, C b) {                                                                   \
        const T scale = (T)1 / ((b.x < 0 ? -b.x : b.x) + (b.y < 0 ? -b.y : b.y));                           \
        const T ax = a.x * scale, ay = a.y * scale, bx = b.x * scale, by = b.y * scale;                     \
        const T part = (T)1 / (bx * bx + by * by);                                                          \
        return make_##C((ax * bx + ay * by) * part, (ay * bx - ax * by) * part);                            \
    }                                                                                                       \
    GS_COMPLEX C cuCfma##name(C a, C b, C c) { return cuCadd##name(cuCmul##name(a, b), c); }

GS_COMPLEX cuFloatComplex make_cuFloatComplex(float x, float y) { return make_float2(x, y); }
GS_COMPLEX cuDoubleComplex make_cuDoubleComplex(double x, double y) { return make_double2(x, y); }
GS_COMPLEX cuComplex make_cuComplex(float x, float y) { return make_float2(x, y); }
GS_COMPLEX_OF(cuFloatComplex, float, f, sqrtf)
GS_COMPLEX_OF(cuDoubleComplex, double, , sqrt)
GS_COMPLEX cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) { return make_float2((float)x.x, (float)x.y); }
GS_COMPLEX cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return make_double2(x.x, x.y); }
#undef GS_COMPLEX_OF
#undef GS_COMPLEX

#endif
