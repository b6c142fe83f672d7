#include <gpustream/kernel.cuh>

/// y[i] += 1
/// requires: a * b <= len(y), a - b >= 0, a / b >= 1, a % b == 0
/// covers: a * b
extern "C" __global__ void ints(unsigned* y, int a, int b) {
    GS_FOR_EACH(i, (size_t)a * (size_t)b) y[i] += 1;
}

/// y[i] += 1
/// requires: u + s <= len(y), 0 <= u + s
/// covers: u + s
extern "C" __global__ void mixed(unsigned* y, unsigned long long u, signed char s) {
    GS_FOR_EACH(i, (size_t)(u + s)) y[i] += 1;
}

/// y[i] += 1
/// requires: u * u * u <= len(y), -w <= len(y)
/// covers: u * u * u
extern "C" __global__ void cubes(unsigned* y, unsigned long long u, long long w) {
    GS_FOR_EACH(i, (size_t)(u * u * u)) y[i] += (unsigned)w;
}

struct Step { unsigned by; };

/// y[0] = *go
/// requires: 1 <= len(go), 1 <= len(y)
extern "C" __global__ void look(const volatile unsigned* go, unsigned* y, Step step) { y[0] = *go + step.by; }

/// Meets.
/// requires: cooperative,
///           1 <= len(arrivals)
/// covers: len(arrivals)
extern "C" __global__ void meet(unsigned* arrivals) { gs::grid_barrier(arrivals); }

extern "C" __global__ void unchecked(unsigned* y) { y[0] = 1; }
