// Kernels in the dress of existing programs: without `extern "C"`, in namespaces, overloaded, and made from templates.
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
}  // namespace

namespace detail {
/// requires: n <= len(x)
/// covers: n
static __global__ void deep(int* __restrict__ x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] += factor(); }
}
}  // namespace detail

/// Has the name of a global kernel.
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
