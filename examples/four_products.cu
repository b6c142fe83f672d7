// The kernels of `matrix_cores.rs`: one product in four forms. Matrices are square, with n rows that lie one after another.
#include <gpustream/kernel.cuh>
#include <gpustream/async_copy.cuh>
#include <gpustream/matrix_block.cuh>

/// The triple loop: each thread sums up one element.
/// requires: n * n <= len(a), n * n <= len(b), n * n <= len(c)
/// covers: n * n
extern "C" __global__ void by_elements(const gs::half* __restrict__ a, const gs::half* __restrict__ b, float* __restrict__ c, size_t n) {
    GS_FOR_EACH(i, n * n) {
        const size_t row = i / n, column = i % n;
        float sum = 0;
        for (size_t k = 0; k < n; ++k) sum += gs::to_float(a[row * n + k]) * gs::to_float(b[k * n + column]);
        c[i] = sum;
    }
}

/// Tiles: a block of 16 by 16 threads brings tiles to shared memory, where each element is used 16 times.
/// requires: n * n <= len(a), n * n <= len(b), n * n <= len(c), n % 16 == 0
/// requires: block.x == 256, block.y == 1, block.z == 1, grid.y == 1, grid.z == 1, grid.x == n / 16 * (n / 16)
extern "C" __global__ void __launch_bounds__(256) by_tiles(const gs::half* __restrict__ a, const gs::half* __restrict__ b,
                                                          float* __restrict__ c, size_t n) {
    __shared__ float x[16][17], y[16][17];
    const size_t across = n / 16, first_row = blockIdx.x / across * 16, first_column = blockIdx.x % across * 16;
    const size_t row = threadIdx.x / 16, column = threadIdx.x % 16;
    float sum = 0;
    for (size_t k = 0; k < n; k += 16) {
        x[row][column] = gs::to_float(a[(first_row + row) * n + k + column]);
        y[row][column] = gs::to_float(b[(k + row) * n + first_column + column]);
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += x[row][j] * y[j][column];
        __syncthreads();
    }
    c[(first_row + row) * n + first_column + column] = sum;
}

/// Fragments: a warp sums up 16 by 16 elements on matrix cores, with operands from global memory. A block is one warp.
/// requires: n * n <= len(a), n * n <= len(b), n * n <= len(c), n % 16 == 0
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1, grid.x == n / 16 * (n / 16)
extern "C" __global__ void by_fragments(const gs::half* __restrict__ a, const gs::half* __restrict__ b, float* __restrict__ c, size_t n) {
    const size_t across = n / 16, row = blockIdx.x / across * 16, column = blockIdx.x % across * 16;
    gs::MatrixA<gs::half> x;
    gs::MatrixB<gs::half> y;
    gs::MatrixC<gs::half> sums;
    sums.fill(0);
    for (size_t k = 0; k < n; k += x.columns) {
        gs::load_rows(x, a + row * n + k, n);
        gs::load_rows(y, b + k * n + column, n);
        gs::multiply_add(sums, x, y);
    }
    gs::store_rows(sums, c + row * n + column, n);
}

namespace {
typedef gs::BlockProduct<gs::half, 64, 64, 32, 2, 2> Product;
struct Stage {
    Product::TileA a;
    Product::TileB b;
};
constexpr int stages = 3;

// Begins to copy a tile, sixteen bytes per thread and turn.
template <class Tile>
GS_INLINE void copy_tile(Tile& tile, const gs::half* from, size_t n, bool valid) {
    GS_FOR_EACH_IN_BLOCK(p, Tile::lines * Tile::pieces) {
        const int line = p / Tile::pieces, column = p % Tile::pieces * Tile::piece;
        gs::copy_async_if<16>(valid, tile.at + Tile::index(line, column), from + line * n + column);
    }
}
}  // namespace

/// A pipeline: four warps sum up 64 by 64 elements from tiles in shared memory, while the next tiles are copied.
/// requires: n * n <= len(a), n * n <= len(b), n * n <= len(c), n % 64 == 0
/// requires: block.y == 1, block.z == 1, grid.y == 1, grid.z == 1, grid.x == n / 64 * (n / 64)
extern "C" __global__ void by_pipeline(const gs::half* __restrict__ a, const gs::half* __restrict__ b, float* __restrict__ c, size_t n) {
    __shared__ Stage stage[stages];
    __shared__ __align__(16) float scratch[Product::scratch];
    if (gs::threads_in_block() != Product::threads()) return;
    const size_t across = n / 64, row = blockIdx.x / across * 64, column = blockIdx.x % across * 64;
    Product product;
    size_t k = 0;
    product.multiply_add<stages>((int)(n / Product::depth), stage, 1, [&](Stage& to, int) {
        copy_tile(to.a, a + row * n + k, n, k < n);
        copy_tile(to.b, b + k * n + column, n, k < n);
        k += Product::depth;
    });
    product.for_each_piece(scratch, [&](int r, int first, const Product::Piece& sums) {
        float4* const to = reinterpret_cast<float4*>(c + (row + r) * n + column + first);
        to[0] = float4{sums.at[0], sums.at[1], sums.at[2], sums.at[3]};
        to[1] = float4{sums.at[4], sums.at[5], sums.at[6], sums.at[7]};
    });
}
