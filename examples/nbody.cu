// The kernels of `nbody.rs`. A body is x, y, z and its mass. Velocities and accelerations leave the fourth element 0.
#include <gpustream/kernel.cuh>

/// Computes each body's acceleration by the gravity of all bodies. `softening` limits the pull of bodies that come close,
/// because otherwise they could fly apart. A block sums up for one body at a time, and its threads share the other bodies.
/// requires: n <= len(bodies), n <= len(accelerations)
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void accelerate(const float4* __restrict__ bodies, float4* __restrict__ accelerations,
                                      float softening, size_t n) {
    for (size_t i = blockIdx.x; i < n; i += gridDim.x) {
        const float4 here = bodies[i];
        float x = 0, y = 0, z = 0;
        for (size_t j = threadIdx.x; j < n; j += blockDim.x) {
            const float4 other = bodies[j];
            const float dx = other.x - here.x, dy = other.y - here.y, dz = other.z - here.z;
            const float squared = dx * dx + dy * dy + dz * dz + softening;
            const float pull = other.w / (squared * sqrtf(squared));
            x += pull * dx;
            y += pull * dy;
            z += pull * dz;
        }
        x = gs::block_reduce(x, gs::Sum());
        y = gs::block_reduce(y, gs::Sum());
        z = gs::block_reduce(z, gs::Sum());
        if (threadIdx.x == 0) accelerations[i] = float4{x, y, z, 0};
    }
}

/// moved[i] += by * rates[i], for the first three elements. This can move bodies or change velocities.
/// requires: n <= len(rates), n <= len(moved)
/// covers: n
extern "C" __global__ void advance(const float4* __restrict__ rates, float4* __restrict__ moved, float by, size_t n) {
    GS_FOR_EACH(i, n) {
        const float4 rate = rates[i];
        moved[i].x += by * rate.x;
        moved[i].y += by * rate.y;
        moved[i].z += by * rate.z;
    }
}
