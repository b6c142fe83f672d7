// What a convolution by Fourier transforms does before, between and after them.
#include <gpustream/kernel.cuh>

/// Copies a matrix into a larger one, `top` rows from above and `left` columns from the left. All other elements become 0.
/// types: T = float, double
/// requires: 1 <= x_rows, 1 <= x_columns, (x_rows - 1) * row_step + (x_columns - 1) * column_step + 1 <= len(x),
///           rows * columns <= len(y)
/// covers: rows * columns
template <class T>
__global__ void pad(const T* __restrict__ x, size_t x_rows, size_t x_columns, size_t row_step, size_t column_step,
                    T* __restrict__ y, size_t rows, size_t columns, size_t top, size_t left) {
    GS_FOR_EACH_2D(j, i, columns, rows) {
        // Above and to the left, the differences wrap around and are too large.
        const size_t row = i - top, column = j - left;
        const bool is_inside = row < x_rows && column < x_columns;
        y[i * columns + j] = is_inside ? x[row * row_step + column * column_step] : T(0);
    }
}

/// x[i] = x[i] * y[i], or x[i] times the conjugate of y[i]. Complex numbers are two real ones.
/// types: T = float, double
/// requires: 2 * n <= len(x), 2 * n <= len(y), conjugate <= 1
/// covers: n
template <class T>
__global__ void multiply_spectra(T* __restrict__ x, const T* __restrict__ y, size_t n, uint32_t conjugate) {
    const T sign = conjugate ? T(-1) : T(1);
    GS_FOR_EACH(i, n) {
        const T a = x[2 * i], b = x[2 * i + 1], c = y[2 * i], d = sign * y[2 * i + 1];
        x[2 * i] = a * c - b * d;
        x[2 * i + 1] = a * d + b * c;
    }
}

/// y[i][j] = scale * x[top + i][left + j]. The rows of `x` have `columns` elements.
/// types: T = float, double
/// requires: 1 <= rows, 1 <= width, (top + rows - 1) * columns + left + width <= len(x),
///           (rows - 1) * row_step + (width - 1) * column_step + 1 <= len(y)
/// covers: rows * width
template <class T>
__global__ void crop(const T* __restrict__ x, size_t columns, size_t top, size_t left, T scale, T* __restrict__ y, size_t rows,
                     size_t width, size_t row_step, size_t column_step) {
    GS_FOR_EACH_2D(j, i, width, rows) {
        y[i * row_step + j * column_step] = scale * x[(top + i) * columns + left + j];
    }
}
