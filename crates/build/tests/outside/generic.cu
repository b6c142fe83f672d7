#include <gpustream/kernel.cuh>

/// y[i] += a * x[i]
/// types: T = float, int
/// requires: n <= len(x), n <= len(y)
/// covers: n
template <class T>
__global__ void axpy(T a, const T* x, T* y, size_t n) {
    GS_FOR_EACH(i, n) y[i] += a * x[i];
}

/// y[i] = x[i]
/// types: (From, To) = (float, double), (int, int64_t)
/// requires: n <= len(x), n <= len(y)
/// covers: n
template <class From, class To>
__global__ void widen(const From* x, To* y, size_t n) {
    GS_FOR_EACH(i, n) y[i] = x[i];
}

/// x[i] += N
/// types: N = 2, -3
/// requires: n <= len(x)
/// covers: n
template <int N>
__global__ void add(int* x, size_t n) {
    GS_FOR_EACH(i, n) x[i] += N;
}

/// Without a contract.
/// types: (T, N) = (float, 2), (int, 3)
template <class T, int N>
__global__ void scale(T* x) {
    x[blockIdx.x] *= N;
}
