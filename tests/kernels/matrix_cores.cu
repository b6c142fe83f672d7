// Products of 16 by 16 matrices by one warp, and of tiles by a block.
#include <gpustream/kernel.cuh>
#include <gpustream/matrix_block.cuh>

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

// out = x y, for 32 rows and 32 columns by two warps, and three tiles deep. Tiles are stored by columns as the matrices are. `scratch`
// is shared memory, one for all orders: a kernel may declare 48 KiB.
template <class T, bool a_by_columns, bool b_by_columns, class Memory, class Sum>
GS_INLINE void multiply_tiles(const Memory* x, const Memory* y, Sum* out, Sum* scratch) {
    constexpr int deep = 64 / sizeof(Memory), steps = 3, depth = steps * deep;
    typedef gs::BlockProduct<T, 32, 32, deep, 2, 1, a_by_columns, b_by_columns> Product;
    __shared__ typename Product::TileA a;
    __shared__ typename Product::TileB b;
    Product product;
    for (int step = 0; step < steps; ++step) {
        GS_FOR_EACH_IN_BLOCK(i, 32 * deep) {
            const int line = i / deep, k = i % deep, from = step * deep + k;
            if (a_by_columns) {
                a.set(k, line, x[from * 32 + line]);
            } else {
                a.set(line, k, x[line * depth + from]);
            }
            if (b_by_columns) {
                b.set(line, k, y[line * depth + from]);
            } else {
                b.set(k, line, y[from * 32 + line]);
            }
        }
        __syncthreads();
        product.multiply_add(a, b);
        __syncthreads();
    }
    product.for_each_piece(scratch, [&](int row, int column, const typename Product::Piece& sums) {
        for (int i = 0; i < sums.size; ++i) out[row * 32 + column + i] = sums.at[i];
    });
}

template <class T, class Memory, class Sum>
GS_INLINE void multiply_tiles(const Memory* x, const Memory* y, Sum* out, bool a_by_columns, bool b_by_columns) {
    __shared__ gs::Pack<Sum> packs[gs::BlockProduct<T, 32, 32, 64 / sizeof(Memory), 2, 1>::scratch * sizeof(Sum) / 16];
    Sum* const scratch = gs::shared_address(packs)->at;
    if (a_by_columns) {
        if (b_by_columns) {
            multiply_tiles<T, true, true>(x, y, out, scratch);
        } else {
            multiply_tiles<T, true, false>(x, y, out, scratch);
        }
    } else if (b_by_columns) {
        multiply_tiles<T, false, true>(x, y, out, scratch);
    } else {
        multiply_tiles<T, false, false>(x, y, out, scratch);
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

/// out = x y
/// requires: 32 * 96 <= len(x), 32 * 96 <= len(y), 1024 <= len(out), grid.x == 1, block.y == 1, block.z == 1
/// types: T = gs::half, gs::bfloat16
template <class T>
__global__ void half_tiles(const T* x, const T* y, float* out, bool a_by_columns, bool b_by_columns) {
    multiply_tiles<T>(x, y, out, a_by_columns, b_by_columns);
}

/// requires: 32 * 192 <= len(x), 32 * 192 <= len(y), 1024 <= len(out), grid.x == 1, block.y == 1, block.z == 1
__global__ void byte_tiles(const int8_t* x, const int8_t* y, int32_t* out, bool a_by_columns, bool b_by_columns) {
    multiply_tiles<int8_t>(x, y, out, a_by_columns, b_by_columns);
}

/// requires: 32 * 48 <= len(x), 32 * 48 <= len(y), 1024 <= len(out), grid.x == 1, block.y == 1, block.z == 1
__global__ void float_tiles(const float* x, const float* y, float* out, bool a_by_columns, bool b_by_columns) {
    multiply_tiles<gs::tf32>(x, y, out, a_by_columns, b_by_columns);
}

/// requires: 32 * 24 <= len(x), 32 * 24 <= len(y), 1024 <= len(out), grid.x == 1, block.y == 1, block.z == 1
__global__ void double_tiles(const double* x, const double* y, double* out, bool a_by_columns, bool b_by_columns) {
    multiply_tiles<double>(x, y, out, a_by_columns, b_by_columns);
}
