// Element-wise operations. They can only be as fast as memory, so all of them use wide loads and stores. We compute the
// 16-bit types in float and round once.
#include <gpustream/kernel.cuh>

/// y[i] = value
/// types: T = float, double, gs::half, gs::bfloat16
/// requires: n <= len(y)
/// covers: n
template <class T>
__global__ void fill(T value, T* __restrict__ y, size_t n) {
    GS_FOR_EACH_WIDE(n, y, [=]() { return value; });
}

/// x[i] *= a
/// types: T = float, double, gs::half, gs::bfloat16
/// requires: n <= len(x)
/// covers: n
template <class T>
__global__ void scale(T a, T* __restrict__ x, size_t n) {
    const auto factor = gs::to_float(a);
    GS_FOR_EACH_WIDE(n, x, [=](T x) { return gs::from_float<T>(factor * gs::to_float(x)); }, x);
}

/// y[i] += a * x[i]
/// types: T = float, double, gs::half, gs::bfloat16
/// requires: n <= len(x), n <= len(y)
/// covers: n
template <class T>
__global__ void axpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    const auto factor = gs::to_float(a);
    GS_FOR_EACH_WIDE(
        n, y, [=](T x, T y) { return gs::from_float<T>(factor * gs::to_float(x) + gs::to_float(y)); }, x, y);
}

/// z[i] = x[i] + y[i]
/// types: T = float, double, gs::half, gs::bfloat16
/// requires: n <= len(x), n <= len(y), n <= len(z)
/// covers: n
template <class T>
__global__ void add(const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ z, size_t n) {
    GS_FOR_EACH_WIDE(n, z, [=](T x, T y) { return gs::from_float<T>(gs::to_float(x) + gs::to_float(y)); }, x, y);
}
