#include <gpustream/kernel.cuh>

/// out[i] = a * x[i] + y[i]
/// requires: n <= len(x), n <= len(y), n <= len(out)
/// covers: n
extern "C" __global__ void scale_add(float a, const float* x, const float* y, float* out, size_t n) {
    GS_FOR_EACH(i, n) out[i] = a * x[i] + y[i];
}
