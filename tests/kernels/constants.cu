// Kernels in a file whose only variable is a constant, so launches need no order because of it.
#include <gpustream/kernel.cuh>

__constant__ unsigned scale = 3;

/// Sets `here`, then runs until `go` is not zero.
/// requires: 1 <= len(here), 1 <= len(go)
extern "C" __global__ void hold(volatile unsigned* here, const volatile unsigned* go) {
    *here = 1;
    __threadfence_system();
    while (*go == 0) {
    }
}

/// y[i] = i * scale
/// requires: n <= len(y)
/// covers: n
extern "C" __global__ void multiples(unsigned* __restrict__ y, unsigned n) {
    GS_FOR_EACH(i, n) y[i] = (unsigned)i * scale;
}
