// Products of matrices on the CPU, c = f(alpha a b + beta c + bias), in strided batches of any shape and order of storage.
#include "gemm.cuh"

#if defined(GS_CPU)
namespace {

// As in "Anatomy of High-Performance Matrix Multiplication" (Goto and van de Geijn, 2008): a worker copies parts of a and b that
// stay in its L2 cache, in the order in which they are read, and computes sums of a few rows and columns in registers.
#if defined(__AVX512F__)
constexpr int vector_bytes = 64, tall = 12;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, tall = 6;
#else
constexpr int vector_bytes = 16, tall = 6;
#endif
constexpr unsigned int part_depth = 256;

// Copies `lines` lines, `width` at a time: the elements of one depth lie together. Lines that are missing become 0.
template <int width, class T, class Sum>
void pack(Sum* __restrict__ to, const T* __restrict__ from, size_t line_step, size_t deep_step, unsigned int lines, unsigned int depth) {
    for (unsigned int first = 0; first < lines; first += width) {
        const int here = (int)gs::smaller(lines - first, width);
        if (here == width && line_step == 1) {
            for (unsigned int k = 0; k < depth; ++k) {
                for (int l = 0; l < width; ++l) to[k * width + l] = (Sum)to_sum(from[k * deep_step + l]);
            }
        } else {
            for (int l = 0; l < width; ++l) {
                const T* const line = from + l * line_step;
                for (unsigned int k = 0; k < depth; ++k) to[k * width + l] = l < here ? (Sum)to_sum(line[k * deep_step]) : Sum(0);
            }
        }
        to += width * (size_t)depth;
        from += width * line_step;
    }
}

#define GS_ALL_ROWS_(i) _Pragma("GCC unroll 16") for (int i = 0; i < tall; ++i)

template <class Sum>
struct Sums {
    typedef Sum Vector __attribute__((vector_size(vector_bytes)));
    static constexpr int in_vector = vector_bytes / (int)sizeof(Sum), wide = 2 * in_vector;

    // Adds the product of `tall` packed rows and `wide` packed columns to sums with lines of `leading`, or stores it. All loops over
    // rows must be unrolled, because registers have no index.
    static void add(const Sum* __restrict__ a, const Sum* __restrict__ b, unsigned int depth, Sum* __restrict__ sums, size_t leading,
                    bool is_first) {
        Vector left[tall], right[tall];
        GS_ALL_ROWS_(i) left[i] = right[i] = Vector{};
        for (unsigned int k = 0; k < depth; ++k) {
            const Vector first = load(b + k * wide), second = load(b + k * wide + in_vector);
            GS_ALL_ROWS_(i) {
                const Sum factor = a[k * tall + i];
                left[i] += factor * first;
                right[i] += factor * second;
            }
        }
        GS_ALL_ROWS_(i) {
            Sum* const to = sums + i * leading;
            store(to, is_first ? left[i] : left[i] + load(to));
            store(to + in_vector, is_first ? right[i] : right[i] + load(to + in_vector));
        }
    }

private:
    static Vector load(const Sum* from) {
        Vector vector;
        GS_MEMCPY_(&vector, from, sizeof(vector));
        return vector;
    }
    static void store(Sum* to, Vector vector) { GS_MEMCPY_(to, &vector, sizeof(vector)); }
};
#undef GS_ALL_ROWS_

// Scales and activates a row of sums, and stores it.
template <class Out, class Sum>
void store_row(const Results<Out, Sum>& results, Sum* __restrict__ sums, Out* __restrict__ to, unsigned int column, unsigned int count) {
    const Sum alpha = results.alpha, beta = results.beta;
    const Out* const bias = results.bias;
    if (beta != 0) {
        for (unsigned int j = 0; j < count; ++j) sums[j] = scaled(beta, to_sum(to[j]), scaled(alpha, sums[j], Sum(0)));
    } else {
        for (unsigned int j = 0; j < count; ++j) sums[j] = scaled(alpha, sums[j], Sum(0));
    }
    if (bias) {
        for (unsigned int j = 0; j < count; ++j) sums[j] = scaled(Sum(1), to_sum(bias[column + j]), sums[j]);
    }
    if (results.activation == relu) {
        for (unsigned int j = 0; j < count; ++j) sums[j] = activated(sums[j], relu);
    } else if (results.activation == gelu) {
        for (unsigned int j = 0; j < count; ++j) sums[j] = activated(sums[j], gelu);
    }
    for (unsigned int j = 0; j < count; ++j) to[j] = of_sum<Out>(sums[j]);
}

}  // namespace
#endif

/// c = f(alpha a b + beta c + bias) for `batch` products. The lines of c are rows. Those of a and b are rows too, or columns if
/// `a_by_columns` or `b_by_columns` is 1. `bias` has an element for each column. f is relu if `activation` is 1, gelu if it is 2 and
/// the elements are floats, and otherwise the identity. c is not read if beta is 0. A thread computes `tile_rows` rows and
/// `tile_columns` columns at once, multiples of 24 and 64, and each block's first thread has its part of `room`. On GPUs, the
/// kernel does nothing.
/// types: (T, Out, Sum) = (gs::half, gs::half, float), (gs::bfloat16, gs::bfloat16, float), (float, float, float),
///        (double, double, double), (int8_t, int32_t, int32_t)
/// requires: (of_a.lines - 1) * of_a.leading + of_a.width + (batch - 1) * of_a.stride <= len(a),
///           (of_b.lines - 1) * of_b.leading + of_b.width + (batch - 1) * of_b.stride <= len(b),
///           (of_c.lines - 1) * of_c.leading + of_c.width + (batch - 1) * of_c.stride <= len(c),
///           of_a.lines <= 1000000000, of_a.width <= 1000000000, of_b.lines <= 1000000000, of_b.width <= 1000000000,
///           of_c.lines <= 1000000000, of_c.width <= 1000000000, of_c.width <= len(bias), grid.y == 1, grid.z == 1,
///           grid.x * (256 * tile_rows + 256 * tile_columns + tile_rows * tile_columns) <= len(room)
/// optional: bias
template <class T, class Out, class Sum>
__global__ void gemm_shares(const T* __restrict__ a, const T* __restrict__ b, Out* __restrict__ c, const Out* __restrict__ bias,
                            Lines of_a, Lines of_b, Lines of_c, unsigned int batch, Sum alpha, Sum beta, unsigned int activation,
                            unsigned int a_by_columns, unsigned int b_by_columns, Sum* __restrict__ room, unsigned int tile_rows,
                            unsigned int tile_columns) {
#if defined(GS_CPU)
    typedef Sums<Sum> Own;
    if (gs::thread_in_block() != 0 || tile_rows % 24 != 0 || tile_columns % 64 != 0 || tile_rows == 0 || tile_columns == 0) return;
    const Results<Out, Sum> results{c, bias, of_c, alpha, beta, activation, false};
    // Steps to the next row or column, and to the next depth.
    const size_t row_step = a_by_columns ? 1 : of_a.leading, row_deep = a_by_columns ? of_a.leading : 1;
    const size_t column_step = b_by_columns ? of_b.leading : 1, column_deep = b_by_columns ? 1 : of_b.leading;
    const unsigned int depth_a = a_by_columns ? of_a.lines : of_a.width, depth_b = b_by_columns ? of_b.width : of_b.lines;
    const unsigned int rows_a = a_by_columns ? of_a.width : of_a.lines, columns_b = b_by_columns ? of_b.lines : of_b.width;
    const unsigned int depth = depth_a < depth_b ? depth_a : depth_b;
    const unsigned int rows = rows_a < of_c.lines ? rows_a : of_c.lines, columns = columns_b < of_c.width ? columns_b : of_c.width;
    Sum* const packed_a = room + gs::block_in_grid() * (part_depth * ((size_t)tile_rows + tile_columns) + (size_t)tile_rows * tile_columns);
    Sum* const packed_b = packed_a + part_depth * (size_t)tile_rows;
    Sum* const sums = packed_b + part_depth * (size_t)tile_columns;
    const size_t across = ((size_t)columns + tile_columns - 1) / tile_columns, in_matrix = ((size_t)rows + tile_rows - 1) / tile_rows * across;
    GS_FOR_EACH_TILE(tile, in_matrix * batch) {
        const size_t matrix = tile / in_matrix, of_matrix = tile - matrix * in_matrix;
        const size_t row = of_matrix / across * tile_rows, column = of_matrix % across * tile_columns;
        const unsigned int height = (unsigned int)gs::smaller(rows - row, tile_rows), width = (unsigned int)gs::smaller(columns - column, tile_columns);
        if (depth == 0) {
            for (size_t i = 0; i < (size_t)tile_rows * tile_columns; ++i) sums[i] = 0;
        }
        for (unsigned int deep = 0; deep < depth; deep += part_depth) {
            const unsigned int now = (unsigned int)gs::smaller(depth - deep, part_depth);
            pack<tall>(packed_a, a + matrix * of_a.stride + row * row_step + deep * row_deep, row_step, row_deep, height, now);
            pack<Own::wide>(packed_b, b + matrix * of_b.stride + column * column_step + deep * column_deep, column_step, column_deep, width, now);
            for (unsigned int j = 0; j < width; j += Own::wide) {
                for (unsigned int i = 0; i < height; i += tall) {
                    Own::add(packed_a + i * (size_t)now, packed_b + j * (size_t)now, now, sums + i * (size_t)tile_columns + j, tile_columns, deep == 0);
                }
            }
        }
        for (unsigned int i = 0; i < height; ++i) {
            store_row(results, sums + i * (size_t)tile_columns, c + matrix * of_c.stride + (row + i) * of_c.leading + column, (unsigned int)column, width);
        }
    }
#endif
}
