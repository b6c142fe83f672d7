// cuRAND in kernels: with the toolkit's header where there is one, and with ours elsewhere.
#include <curand_kernel.h>

/// requires: len(uniform) == 10, len(skipped) == 20, block.x == 10, grid.x == 1
extern "C" __global__ void xorwow(float* uniform, unsigned int* skipped, int seed) {
    curandState state;
    curand_init(seed, threadIdx.x, 0, &state);
    uniform[threadIdx.x] = curand_uniform(&state);
    for (int i = 0; i < 999; ++i) curand(&state);
    skipped[2 * threadIdx.x] = curand(&state);
    curand_init(seed, threadIdx.x, 1000, &state);
    skipped[2 * threadIdx.x + 1] = curand(&state);
}

/// requires: len(known) == 8, len(skipped) == 40, block.x == 20, grid.x == 1
extern "C" __global__ void philox(unsigned int* known, unsigned int* skipped) {
    curandStatePhilox4_32_10_t state, other;
    curand_init(0, 0, 0, &state);
    uint4 out = curand4(&state);
    known[0] = out.x, known[1] = out.y, known[2] = out.z, known[3] = out.w;
    out = curand_Philox4x32_10(make_uint4(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u),
                               make_uint2(0xa4093822u, 0x299f31d0u));
    known[4] = out.x, known[5] = out.y, known[6] = out.z, known[7] = out.w;
    curand_init(99, 7, 0, &state);
    curand_init(99, 7, threadIdx.x, &other);
    for (unsigned i = 0; i < threadIdx.x; ++i) curand(&state);
    skipped[2 * threadIdx.x] = curand(&state);
    skipped[2 * threadIdx.x + 1] = curand(&other);
}

template <class State>
__device__ void mixed(unsigned int* out) {
    State state;
    curand_init(1234, 7, 5, &state);
    for (int i = 0; i < 4; ++i) curand_normal(&state);
    curand_normal2(&state);
    for (int i = 0; i < 3; ++i) curand_normal_double(&state);
    curand_normal2_double(&state);
    curand_log_normal(&state, 0.5f, 2.0f);
    curand_log_normal_double(&state, 0.5, 2.0);
    out[0] = curand(&state);
    skipahead(12345ull, &state);
    out[1] = curand(&state);
    skipahead_sequence(3ull, &state);
    out[2] = curand(&state);
}

/// requires: len(xorwow) == 3, len(philox) == 3
extern "C" __global__ void every_kind(unsigned int* xorwow, unsigned int* philox) {
    mixed<curandStateXORWOW_t>(xorwow);
    mixed<curandStatePhilox4_32_10_t>(philox);
}

/// Adds up normal numbers and their squares, for each thread alone.
/// requires: block.x * grid.x * 8 <= len(sums)
extern "C" __global__ void normal(double* sums) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    curandState state;
    curandStatePhilox4_32_10_t other;
    curand_init(5, thread, 0, &state);
    curand_init(5, thread, 0, &other);
    double* mine = sums + 8 * thread;
    for (int i = 0; i < 1000; ++i) {
        const double x[4] = {curand_normal(&state), curand_normal_double(&state), curand_normal(&other),
                             curand_normal_double(&other)};
        for (int k = 0; k < 4; ++k) mine[2 * k] += x[k], mine[2 * k + 1] += x[k] * x[k];
    }
}
