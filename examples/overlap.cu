// The two kernels of the `overlap` example.
#include <gpustream/kernel.cuh>

/// a[i] += 1
/// requires: n <= len(a)
/// covers: n
extern "C" __global__ void add_one(double* __restrict__ a, size_t n) {
    GS_FOR_EACH_WIDE(n, a, [](double a) { return a + 1; }, a);
}

/// b[i] += a[i] + 3
/// requires: n <= len(a), n <= len(b)
/// covers: n
extern "C" __global__ void add_sum(const double* __restrict__ a, double* __restrict__ b, size_t n) {
    GS_FOR_EACH_WIDE(n, b, [](double a, double b) { return b + (a + 3); }, a, b);
}
