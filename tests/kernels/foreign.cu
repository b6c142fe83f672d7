// Kernels as other programs write them: without `extern "C"`, in namespaces, overloaded, and as templates.
#include <gpustream/kernel.cuh>

/// x[i] += 1
/// requires: n <= len(x)
/// covers: n
__global__ void add_one(float* x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] += 1.0f; }
}

namespace solver {
struct unseen {};
__device__ int factor() { return 3; }

namespace {
/// requires: n <= len(x)
/// covers: n
__global__ void hidden(int* x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] *= factor(); }
}

/// Its array of shared memory belongs to the namespaces.
/// requires: len(x) == block.x, grid.x == 1, shared == 4 * block.x
__global__ void reverse(int* x) {
    extern __shared__ int waiting[];
    waiting[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = waiting[blockDim.x - 1 - threadIdx.x];
}
}  // namespace

namespace detail {
/// requires: n <= len(x)
/// covers: n
static __global__ void deep(int* __restrict__ x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] += factor(); }
}
}  // namespace detail

/// This one has the same name as a global kernel, so you need the namespace to tell them apart.
/// requires: n <= len(x)
/// covers: n
__global__ void add_one(float* x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] -= 1.0f; }
}
}  // namespace solver

/// requires: n <= len(x)
/// covers: n
__global__ void twice(float* x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] *= 2.0f; }
}

/// requires: n <= len(x)
/// covers: n
__global__ void twice(int* x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] *= 2; }
}

/// requires: n <= len(x), n <= len(y)
/// covers: n
__global__ void twice(const int* __restrict__ x, int64_t* y, unsigned n) {
    GS_FOR_EACH(i, n) { y[i] = 2 * (int64_t)x[i]; }
}

/// y[i] += a * x[i]
/// types: T = float, double, int, gs::half, gs::bfloat16
/// requires: n <= len(x), n <= len(y)
/// covers: n
template <class T>
__global__ void axpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    GS_FOR_EACH(i, n) { y[i] = y[i] + a * x[i]; }
}

namespace solver {
struct Sum {
    template <class T>
    __device__ static T of(T a, T b) {
        return a + b;
    }
};
struct Product {
    template <class T>
    __device__ static T of(T a, T b) {
        return a * b;
    }
};

/// Folds each pack of N values, or only its first two.
/// types: Op = solver::Sum, solver::Product, N = 2, 4, whole = true, false
/// types: T = float, int64_t
template <typename T, class Op, int N, bool whole>
__global__ void fold(const T* x, T* y) {
    T all = x[N * threadIdx.x];
    for (int i = 1; i < (whole ? N : 2); i++) all = Op::of(all, x[N * threadIdx.x + i]);
    y[threadIdx.x] = all;
}
}  // namespace solver

template <class T, unsigned N = 3>
__global__ void __launch_bounds__(64) shifted(T* x) {
    x[threadIdx.x] += (T)N;
}
template __global__ void shifted<float>(float*);
template __global__ void shifted<unsigned, 7>(unsigned*);

// The build script instantiates this one.
template <int Less>
__global__ void less(int* x) {
    x[threadIdx.x] -= Less;
}
