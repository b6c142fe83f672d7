// The kernels of `conjugate_gradient.rs`: conjugate gradients for the Laplacian with five points, on a grid whose border is
// 0. All scalars stay on the device. To sum over the grid, each block writes its part of the sum, and the next kernel adds
// up the parts. Every block does that itself and gets the same sum.
#include <gpustream/kernel.cuh>

namespace {

// Returns the sum of the parts to every thread of the block.
GS_INLINE double sum_of(const double* parts, size_t blocks) {
    double sum = 0;
    GS_FOR_EACH_IN_BLOCK(i, blocks) sum += parts[i];
    return gs::block_reduce(sum, gs::Sum());
}

// Writes the block's part of a sum.
GS_INLINE void write_part(double value, double* parts) {
    const double part = gs::block_reduce(value, gs::Sum());
    if (threadIdx.x == 0) parts[blockIdx.x] = part;
}

}  // namespace

/// Begins with x = 0, so the residual and the first direction are the right side. Each block sums up the squares of its
/// residuals in `squares`.
/// requires: n <= len(right), n <= len(x), n <= len(residual), n <= len(direction), grid.x <= len(squares)
/// requires: 1 <= len(rounds), 1 <= len(go_on)
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void begin(const double* __restrict__ right, double* __restrict__ x, double* __restrict__ residual,
                                 double* __restrict__ direction, double* __restrict__ squares,
                                 unsigned* __restrict__ rounds, volatile unsigned* go_on, size_t n) {
    double square = 0;
    GS_FOR_EACH(i, n) {
        const double value = right[i];
        x[i] = 0;
        residual[i] = direction[i] = value;
        square += value * value;
    }
    write_part(square, squares);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        rounds[0] = 0;
        *go_on = 1;
    }
}

/// product = A * direction. Each block writes its part of direction * product to `curvatures`. `square` gets the residual's
/// square.
/// requires: side * side <= len(direction), side * side <= len(product)
/// requires: grid.x <= len(squares), grid.x <= len(curvatures), 1 <= len(square)
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void apply(const double* __restrict__ direction, double* __restrict__ product,
                                 const double* __restrict__ squares, double* __restrict__ square,
                                 double* __restrict__ curvatures, size_t side) {
    double curvature = 0;
    GS_FOR_EACH(i, side * side) {
        const size_t x = i % side, y = i / side;
        const double here = direction[i];
        double sum = 4 * here;
        if (x > 0) sum -= direction[i - 1];
        if (x + 1 < side) sum -= direction[i + 1];
        if (y > 0) sum -= direction[i - side];
        if (y + 1 < side) sum -= direction[i + side];
        product[i] = sum;
        curvature += here * sum;
    }
    write_part(curvature, curvatures);
    if (blockIdx.x == 0) {
        const double sum = sum_of(squares, gridDim.x);
        if (threadIdx.x == 0) square[0] = sum;
    }
}

/// Moves x along the direction to the place with the smallest error. Each block writes its part of the new residual's square
/// to `squares`.
/// requires: n <= len(direction), n <= len(product), n <= len(x), n <= len(residual)
/// requires: grid.x <= len(curvatures), grid.x <= len(squares), 1 <= len(square)
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void move_along(const double* __restrict__ direction, const double* __restrict__ product,
                                      const double* __restrict__ curvatures, const double* __restrict__ square,
                                      double* __restrict__ x, double* __restrict__ residual,
                                      double* __restrict__ squares, size_t n) {
    const double length = square[0] / sum_of(curvatures, gridDim.x);
    double sum = 0;
    GS_FOR_EACH(i, n) {
        x[i] += length * direction[i];
        const double value = residual[i] - length * product[i];
        residual[i] = value;
        sum += value * value;
    }
    write_part(sum, squares);
}

/// Computes the next direction, counts the round, and decides whether there is another one.
/// requires: n <= len(residual), n <= len(direction), grid.x <= len(squares)
/// requires: 1 <= len(square), 1 <= len(rounds), 1 <= len(go_on)
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
extern "C" __global__ void turn(const double* __restrict__ residual, const double* __restrict__ squares,
                                const double* __restrict__ square, double* __restrict__ direction,
                                unsigned* __restrict__ rounds, volatile unsigned* go_on, double small, unsigned most,
                                size_t n) {
    const double sum = sum_of(squares, gridDim.x);
    const double part = sum / square[0];
    GS_FOR_EACH(i, n) direction[i] = residual[i] + part * direction[i];
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const unsigned done = ++rounds[0];
        *go_on = sum > small && done < most;
    }
}
