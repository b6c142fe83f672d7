// The kernels of `solver.rs`: conjugate gradients for the Laplacian with seven points, on one rank's planes of a cube with
// `side` points on a side. A plane has side * side points. All scalars stay on the device.
#include <gpustream/kernel.cuh>

/// Computes the right side. Each of its terms is a product of values along the three axes. The rank's first plane has number
/// `first` in the cube.
/// requires: side * side * planes <= len(right), side <= len(value), side <= len(curvature), first + planes <= side
/// covers: side * side * planes
extern "C" __global__ void right_side(const double* __restrict__ value, const double* __restrict__ curvature,
                                      double* __restrict__ right, size_t side, size_t first, size_t planes) {
    GS_FOR_EACH_2D(x, row, side, side * planes) {
        const size_t y = row % side, z = first + row / side;
        right[row * side + x] = curvature[x] * value[y] * value[z] + value[x] * curvature[y] * value[z] +
                                value[x] * value[y] * curvature[z];
    }
}

/// out = A * in for `planes` planes. `in` has one more plane below them and one above.
/// requires: side * side * (planes + 2) <= len(in), side * side * planes <= len(out)
/// covers: side * side * planes
extern "C" __global__ void apply(const double* __restrict__ in, double* __restrict__ out, size_t side, size_t planes) {
    const size_t plane = side * side;
    GS_FOR_EACH_2D(x, row, side, side * planes) {
        const size_t y = row % side, i = row * side + x;
        const double* here = in + plane + i;
        double sum = 6 * *here - *(here - plane) - *(here + plane);
        if (x > 0) sum -= *(here - 1);
        if (x + 1 < side) sum -= *(here + 1);
        if (y > 0) sum -= *(here - side);
        if (y + 1 < side) sum -= *(here + side);
        out[i] = sum;
    }
}

/// Moves x along the direction by square / curvature, to the place with the smallest error. If the residual is already 0, x
/// stays.
/// requires: n <= len(direction), n <= len(product), n <= len(x), n <= len(residual), 1 <= len(square), 1 <= len(curvature)
/// covers: n
extern "C" __global__ void advance(const double* __restrict__ square, const double* __restrict__ curvature,
                                   const double* __restrict__ direction, const double* __restrict__ product,
                                   double* __restrict__ x, double* __restrict__ residual, size_t n) {
    const double length = square[0] > 0 ? square[0] / curvature[0] : 0;
    GS_FOR_EACH_WIDE(n, x, [=](double direction, double x) { return x + length * direction; }, direction, x);
    GS_FOR_EACH_WIDE(n, residual, [=](double product, double r) { return r - length * product; }, product, residual);
}

/// Computes the next direction: the residual plus as much of the last direction as makes the two conjugate.
/// requires: n <= len(residual), n <= len(direction), 1 <= len(square), 1 <= len(before)
/// covers: n
extern "C" __global__ void turn(const double* __restrict__ square, const double* __restrict__ before,
                                const double* __restrict__ residual, double* __restrict__ direction, size_t n) {
    const double part = before[0] > 0 ? square[0] / before[0] : 0;
    GS_FOR_EACH_WIDE(n, direction, [=](double r, double d) { return r + part * d; }, residual, direction);
}

/// error = |x - exact|. The exact solution is a product of values along the three axes.
/// requires: side * side * planes <= len(x), side * side * planes <= len(error), side <= len(value), first + planes <= side
/// covers: side * side * planes
extern "C" __global__ void difference(const double* __restrict__ value, const double* __restrict__ x,
                                      double* __restrict__ error, size_t side, size_t first, size_t planes) {
    GS_FOR_EACH_2D(column, row, side, side * planes) {
        const size_t y = row % side, z = first + row / side, i = row * side + column;
        error[i] = fabs(x[i] - value[column] * value[y] * value[z]);
    }
}
