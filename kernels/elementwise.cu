// Element-wise operations. They are bound by memory, so all of them use wide loads and stores. The 16-bit types are
// computed in float and rounded once.
#include <gpustream/kernel.cuh>

/// y[i] = value
/// requires: n <= len(y)
/// covers: n
extern "C" __global__ void fill_f32(float value, float* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(n, y, [=]() { return value; });
}

/// x[i] *= a
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void scale_f32(float a, float* __restrict__ x, size_t n) {
    GS_FOR_EACH_WIDE(n, x, [=](float x) { return a * x; }, x);
}

/// y[i] += a * x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void axpy_f32(float a, const float* __restrict__ x, float* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(
        n, y, [=](float x, float y) { return a * x + y; }, x, y);
}

/// z[i] = x[i] + y[i]
/// requires: n <= len(x), n <= len(y), n <= len(z)
/// covers: n
extern "C" __global__ void add_f32(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, size_t n) {
    GS_FOR_EACH_WIDE(
        n, z, [=](float x, float y) { return x + y; }, x, y);
}

/// y[i] = value
/// requires: n <= len(y)
/// covers: n
extern "C" __global__ void fill_f64(double value, double* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(n, y, [=]() { return value; });
}

/// x[i] *= a
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void scale_f64(double a, double* __restrict__ x, size_t n) {
    GS_FOR_EACH_WIDE(n, x, [=](double x) { return a * x; }, x);
}

/// y[i] += a * x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void axpy_f64(double a, const double* __restrict__ x, double* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(
        n, y, [=](double x, double y) { return a * x + y; }, x, y);
}

/// z[i] = x[i] + y[i]
/// requires: n <= len(x), n <= len(y), n <= len(z)
/// covers: n
extern "C" __global__ void add_f64(const double* __restrict__ x, const double* __restrict__ y, double* __restrict__ z, size_t n) {
    GS_FOR_EACH_WIDE(
        n, z, [=](double x, double y) { return x + y; }, x, y);
}

/// y[i] = value
/// requires: n <= len(y)
/// covers: n
extern "C" __global__ void fill_f16(gs::half value, gs::half* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(n, y, [=]() { return value; });
}

/// x[i] *= a
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void scale_f16(gs::half a, gs::half* __restrict__ x, size_t n) {
    const float factor = gs::to_float(a);
    GS_FOR_EACH_WIDE(n, x, [=](gs::half x) { return gs::from_float<gs::half>(factor * gs::to_float(x)); }, x);
}

/// y[i] += a * x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void axpy_f16(gs::half a, const gs::half* __restrict__ x, gs::half* __restrict__ y, size_t n) {
    const float factor = gs::to_float(a);
    GS_FOR_EACH_WIDE(
        n, y, [=](gs::half x, gs::half y) { return gs::from_float<gs::half>(factor * gs::to_float(x) + gs::to_float(y)); }, x, y);
}

/// z[i] = x[i] + y[i]
/// requires: n <= len(x), n <= len(y), n <= len(z)
/// covers: n
extern "C" __global__ void add_f16(const gs::half* __restrict__ x, const gs::half* __restrict__ y, gs::half* __restrict__ z, size_t n) {
    GS_FOR_EACH_WIDE(
        n, z, [=](gs::half x, gs::half y) { return gs::from_float<gs::half>(gs::to_float(x) + gs::to_float(y)); }, x, y);
}

/// y[i] = value
/// requires: n <= len(y)
/// covers: n
extern "C" __global__ void fill_bf16(gs::bfloat16 value, gs::bfloat16* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(n, y, [=]() { return value; });
}

/// x[i] *= a
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void scale_bf16(gs::bfloat16 a, gs::bfloat16* __restrict__ x, size_t n) {
    const float factor = gs::to_float(a);
    GS_FOR_EACH_WIDE(n, x, [=](gs::bfloat16 x) { return gs::from_float<gs::bfloat16>(factor * gs::to_float(x)); }, x);
}

/// y[i] += a * x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void axpy_bf16(gs::bfloat16 a, const gs::bfloat16* __restrict__ x, gs::bfloat16* __restrict__ y, size_t n) {
    const float factor = gs::to_float(a);
    GS_FOR_EACH_WIDE(
        n, y, [=](gs::bfloat16 x, gs::bfloat16 y) { return gs::from_float<gs::bfloat16>(factor * gs::to_float(x) + gs::to_float(y)); }, x, y);
}

/// z[i] = x[i] + y[i]
/// requires: n <= len(x), n <= len(y), n <= len(z)
/// covers: n
extern "C" __global__ void add_bf16(const gs::bfloat16* __restrict__ x, const gs::bfloat16* __restrict__ y, gs::bfloat16* __restrict__ z, size_t n) {
    GS_FOR_EACH_WIDE(
        n, z, [=](gs::bfloat16 x, gs::bfloat16 y) { return gs::from_float<gs::bfloat16>(gs::to_float(x) + gs::to_float(y)); }, x, y);
}
