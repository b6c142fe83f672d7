// Products of 16 by 16 matrices by one warp.
#include <gpustream/kernel.cuh>
#include <gpustream/matrix.cuh>

namespace {

// c = x y + c, over `steps` pieces of the depth. `transposed` matrices are stored column after column.
template <class T, class Memory, class Sum>
GS_INLINE void multiply(const Memory* x, const Memory* y, Sum* c, int steps, bool transposed) {
    const size_t depth = (size_t)steps * gs::MatrixA<T>::columns;
    gs::MatrixC<T> sums;
    if (transposed) {
        gs::load_columns(sums, c, 16);
    } else {
        gs::load_rows(sums, c, 16);
    }
    for (int s = 0; s < steps; ++s) {
        const size_t k = (size_t)s * gs::MatrixA<T>::columns;
        gs::MatrixA<T> a;
        gs::MatrixB<T> b;
        if (transposed) {
            gs::load_columns(a, x + k * 16, 16);
            gs::load_columns(b, y + k, depth);
        } else {
            gs::load_rows(a, x + k, depth);
            gs::load_rows(b, y + k * 16, 16);
        }
        gs::multiply_add(sums, a, b);
    }
    if (transposed) {
        gs::store_columns(sums, c, 16);
    } else {
        gs::store_rows(sums, c, 16);
    }
}

}  // namespace

/// requires: 16 * 16 * steps <= len(x), 16 * 16 * steps <= len(y), 256 <= len(c), grid.x == 1
/// types: T = gs::half, gs::bfloat16
template <class T>
__global__ void multiply_halves(const T* x, const T* y, float* c, int steps, bool transposed) {
    multiply<T>(x, y, c, steps, transposed);
}

/// requires: 16 * 32 * steps <= len(x), 16 * 32 * steps <= len(y), 256 <= len(c), grid.x == 1
__global__ void multiply_bytes(const int8_t* x, const int8_t* y, int32_t* c, int steps, bool transposed) {
    multiply<int8_t>(x, y, c, steps, transposed);
}

/// requires: 16 * 8 * steps <= len(x), 16 * 8 * steps <= len(y), 256 <= len(c), grid.x == 1
__global__ void multiply_floats(const float* x, const float* y, float* c, int steps, bool transposed) {
    multiply<gs::tf32>(x, y, c, steps, transposed);
}

/// requires: 16 * 4 * steps <= len(x), 16 * 4 * steps <= len(y), 256 <= len(c), grid.x == 1
__global__ void multiply_doubles(const double* x, const double* y, double* c, int steps, bool transposed) {
    multiply<double>(x, y, c, steps, transposed);
}

/// c = (x y) z, rounding the first product
/// requires: 256 <= len(x), 256 <= len(y), 256 <= len(z), 256 <= len(c), grid.x == 1
/// types: T = gs::half, gs::bfloat16
template <class T>
__global__ void multiply_twice(const T* x, const T* y, const T* z, float* c) {
    gs::MatrixA<T> a;
    gs::MatrixB<T> b;
    gs::MatrixC<T> sums;
    gs::load_rows(a, x, 16);
    gs::load_rows(b, y, 16);
    sums.fill(0);
    gs::multiply_add(sums, a, b);
    a = gs::to_factor(sums, [](float sum) { return gs::from_float<T>(sum); });
    gs::load_rows(b, z, 16);
    sums.fill(0);
    gs::multiply_add(sums, a, b);
    gs::store_rows(sums, c, 16);
}

/// c[r, c] = 100 r + c, as each element says where it is; and how many elements of A and of B lanes have at each place.
/// requires: 256 <= len(c), 256 <= len(of_a), 256 <= len(of_b), grid.x == 1
__global__ void places(float* c, unsigned int* of_a, unsigned int* of_b) {
    gs::MatrixA<gs::half> a;
    gs::MatrixB<gs::half> b;
    gs::MatrixC<gs::half> sums;
    for (int e = 0; e < a.size(); ++e) gs::atomic_add(of_a + a.row(e) * 16 + a.column(e), 1u);
    for (int e = 0; e < b.size(); ++e) gs::atomic_add(of_b + b.row(e) * 16 + b.column(e), 1u);
    for (int e = 0; e < sums.size(); ++e) sums.at[e] = 100.0f * sums.row(e) + sums.column(e);
    gs::store_rows(sums, c, 16);
}
