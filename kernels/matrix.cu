// Dense matrices, stored row after row without gaps.
#include "transpose.cuh"

namespace {

// A block computes one tile of the product at a time. Each thread computes a square of `own` by `own` elements and
// keeps it in registers. On the CPU one thread computes the whole tile, in loops that the compiler vectorises.
#if defined(GS_SERIAL)
constexpr unsigned int matmul_own = 64;
#else
constexpr unsigned int matmul_own = 4;
#endif
constexpr unsigned int matmul_tile = 64, matmul_depth = 16;

}  // namespace

/// out[c][r] = in[r][c], for `rows` rows of `cols` elements
/// types: T = float, double
/// requires: rows * cols <= len(in), rows * cols <= len(out)
/// covers: rows * cols
template <class T>
__global__ void transpose(const T* __restrict__ in, T* __restrict__ out, size_t rows, size_t cols) {
    __shared__ T tile[transpose_tile][transpose_tile + 1];
    transpose_all(in, out, 1, rows, cols, gs::shared_address(tile));
}

/// c = a * b: c has m rows of n, a has m rows of k, b has k rows of n elements
/// types: T = float, double
/// requires: m * k <= len(a), k * n <= len(b), m * n <= len(c)
/// covers: m * n
template <class T>
__global__ void matmul(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, size_t m, size_t k,
                       size_t n) {
    __shared__ T of_a[matmul_depth][matmul_tile + 4];
    __shared__ T of_b[matmul_depth][matmul_tile];
    T(*left)[matmul_tile + 4] = gs::shared_address(of_a);
    T(*right)[matmul_tile] = gs::shared_address(of_b);
    constexpr unsigned int side = matmul_tile, depth = matmul_depth, own = matmul_own, squares = side / own;
    const unsigned int threads = gs::threads_in_block(), thread = gs::thread_in_block();
    const Groups by_a = groups_for_rows_of(depth), by_b = groups_for_rows_of(side);
    const size_t across = (n + side - 1) / side, down = (m + side - 1) / side;
    GS_FOR_EACH_TILE(t, across * down) {
        const size_t row = t / across * side, col = t % across * side;
        // If a block has a thread for each square, it takes one round; a smaller block takes more.
        for (unsigned int base = 0; base < squares * squares; base += threads) {
            const unsigned int square = base + thread, y = square / squares * own, x = square % squares * own;
            const bool busy = square < squares * squares;
            T sum[own][own] = {};
            for (size_t at = 0; at < k; at += depth) {
                // A tile may reach beyond a matrix. Elements out there count as 0.
                for (unsigned int r = by_a.group; by_a.group < by_a.count && r < side; r += by_a.count) {
                    for (unsigned int d = by_a.lane; d < depth; d += by_a.lanes)
                        left[d][r] = row + r < m && at + d < k ? a[(row + r) * k + at + d] : T(0);
                }
                for (unsigned int d = by_b.group; by_b.group < by_b.count && d < depth; d += by_b.count) {
                    for (unsigned int q = by_b.lane; q < side; q += by_b.lanes)
                        right[d][q] = at + d < k && col + q < n ? b[(at + d) * n + col + q] : T(0);
                }
                __syncthreads();
                if (busy) {
                    GS_UNROLL
                    for (unsigned int d = 0; d < depth; ++d) {
                        GS_UNROLL
                        for (unsigned int i = 0; i < own; ++i) {
                            const T factor = left[d][y + i];
                            GS_UNROLL
                            for (unsigned int j = 0; j < own; ++j) sum[i][j] += factor * right[d][x + j];
                        }
                    }
                }
                __syncthreads();
            }
            if (busy) {
                GS_UNROLL
                for (unsigned int i = 0; i < own; ++i) {
                    GS_UNROLL
                    for (unsigned int j = 0; j < own; ++j) {
                        if (row + y + i < m && col + x + j < n) c[(row + y + i) * n + col + x + j] = sum[i][j];
                    }
                }
            }
        }
    }
}
