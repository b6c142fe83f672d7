#include <gpustream/kernel.cuh>

// A flow in a square whose sides wrap around, as waves: element (y, x) of a transform is the wave with `x` periods across and
// `wave(y)` periods down. A transform of real numbers has `n / 2 + 1` columns. Complex numbers are two floats.

/// Returns the periods of the waves in row `y`: those of the second half run backwards.
__device__ inline float wave(size_t y, size_t n) {
    return y <= n / 2 ? static_cast<float>(y) : static_cast<float>(y) - static_cast<float>(n);
}

/// Returns whether a product of two waves stays apart from all others (the rule of two thirds). We leave out those that do not.
__device__ inline bool is_kept(float kx, float ky, size_t n) {
    const float limit = static_cast<float>(n) / 3.0f;
    return kx < limit && ky < limit && ky > -limit;
}

/// Writes the transforms of four fields, one after another: the velocity to the right and down, and the slopes of the vorticity
/// in both directions. `w` is the transform of the vorticity.
/// requires: 2 * n * columns <= len(w), 8 * n * columns <= len(fields)
/// covers: n * columns
__global__ void fields_of(const float* __restrict__ w, float* __restrict__ fields, size_t n, size_t columns) {
    const size_t plane = 2 * n * columns;
    GS_FOR_EACH_2D(x, y, columns, n) {
        const size_t at = 2 * (y * columns + x);
        const float kx = static_cast<float>(x), ky = wave(y, n), k2 = kx * kx + ky * ky;
        const bool kept = is_kept(kx, ky, n);
        const float re = kept ? w[at] : 0.0f, im = kept ? w[at + 1] : 0.0f;
        const float over = k2 > 0.0f ? 1.0f / k2 : 0.0f;
        // A derivative multiplies by i k. The stream function is w / k², and the velocity is (d/dy, -d/dx) of it.
        fields[at] = -ky * im * over;
        fields[at + 1] = ky * re * over;
        fields[plane + at] = kx * im * over;
        fields[plane + at + 1] = -kx * re * over;
        fields[2 * plane + at] = -kx * im;
        fields[2 * plane + at + 1] = kx * re;
        fields[3 * plane + at] = -ky * im;
        fields[3 * plane + at + 1] = ky * re;
    }
}

/// advected[i] = what the flow carries to cell i in a unit of time: the velocity times the slope of the vorticity, negative
/// requires: 4 * cells <= len(fields), cells <= len(advected)
/// covers: cells
__global__ void advect(const float* __restrict__ fields, float* __restrict__ advected, size_t cells) {
    GS_FOR_EACH(i, cells) {
        advected[i] = -(fields[i] * fields[2 * cells + i] + fields[cells + i] * fields[3 * cells + i]);
    }
}

/// Takes one step in time. Viscosity makes each wave shrink exactly, and what the flow carries is extrapolated from this step and
/// the last one (Adams and Bashforth). `advected` is a transform that is not scaled yet.
/// requires: 2 * n * columns <= len(advected), 2 * n * columns <= len(before), 2 * n * columns <= len(w)
/// covers: n * columns
__global__ void step(const float* __restrict__ advected, float* __restrict__ before, float* __restrict__ w, size_t n,
                     size_t columns, float dt, float viscosity, float first) {
    const float scale = 1.0f / (static_cast<float>(n) * static_cast<float>(n));
    GS_FOR_EACH_2D(x, y, columns, n) {
        const float kx = static_cast<float>(x), ky = wave(y, n);
        const float shrink = expf(-viscosity * (kx * kx + ky * ky) * dt);
        const float kept = is_kept(kx, ky, n) ? scale : 0.0f;
        for (size_t part = 0; part < 2; ++part) {
            const size_t at = 2 * (y * columns + x) + part;
            const float now = kept * advected[at];
            const float last = first != 0.0f ? now : before[at];
            w[at] = shrink * (w[at] + dt * (1.5f * now - 0.5f * last));
            before[at] = shrink * now;
        }
    }
}
