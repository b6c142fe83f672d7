#include <gpustream/kernel.cuh>

/// z[row * columns + column] = tanh(z + bias[column])
/// requires: rows * columns <= len(z), columns <= len(bias)
/// covers: rows * columns
__global__ void activate(float* __restrict__ z, const float* __restrict__ bias, size_t rows, size_t columns) {
    GS_FOR_EACH_2D(x, y, columns, rows) { z[y * columns + x] = tanhf(z[y * columns + x] + bias[x]); }
}

/// d[i] *= the slope of tanh, where its value is a[i]
/// requires: n <= len(a), n <= len(d)
/// covers: n
__global__ void slope(const float* __restrict__ a, float* __restrict__ d, size_t n) {
    GS_FOR_EACH(i, n) { d[i] *= 1.0f - a[i] * a[i]; }
}

/// d[i] = a[i] - wanted[i]
/// requires: n <= len(a), n <= len(wanted), n <= len(d)
/// covers: n
__global__ void difference(const float* __restrict__ a, const float* __restrict__ wanted, float* __restrict__ d, size_t n) {
    GS_FOR_EACH(i, n) { d[i] = a[i] - wanted[i]; }
}

/// Moves weights against their gradient, with the momentum of the moves before.
/// requires: n <= len(gradient), n <= len(move), n <= len(weight)
/// covers: n
__global__ void update(const float* __restrict__ gradient, float* __restrict__ move, float* __restrict__ weight, size_t n,
                       float rate, float momentum) {
    GS_FOR_EACH(i, n) {
        move[i] = momentum * move[i] - rate * gradient[i];
        weight[i] += move[i];
    }
}
