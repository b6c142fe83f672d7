// Dense matrices, stored row after row without gaps.
#include <gpustream/kernel.cuh>

namespace {

// Tiles are square. A block moves one tile at a time through shared memory, because then it can read and write
// whole rows.
constexpr unsigned int transpose_tile = 64;
// The default block size, and how many elements each thread has under way at once.
#if defined(GS_SERIAL)
constexpr unsigned int transpose_block = 1, transpose_batch = 1;
#else
constexpr unsigned int transpose_block = 256, transpose_batch = 8;
#endif

// A block's threads as groups of neighbours, each on its own row. Left-over threads get a group number of `count` or
// more, and must idle.
struct Groups {
    unsigned int lanes, count, group, lane;
};
GS_INLINE Groups groups_for_rows_of(unsigned int length) {
    const unsigned int threads = gs::threads_in_block(), thread = gs::thread_in_block();
    const unsigned int lanes = threads < length ? threads : length;
    return Groups{lanes, threads / lanes, thread / lanes, thread % lanes};
}

// Transposes one tile with height × width elements. For the default block and a whole tile the arguments are
// constants, so we need no check per element.
template <class T>
GS_INLINE void transpose_one(const T* __restrict__ in, T* __restrict__ out, size_t rows, size_t cols,
                                              Groups by, unsigned int height, unsigned int width,
                                              T (*tile)[transpose_tile + 1]) {
    constexpr unsigned int batch = transpose_batch;
    for (unsigned int r = by.group; r < height; r += batch * by.count) {
        for (unsigned int c = by.lane; c < width; c += by.lanes) {
            const T* from = in + r * cols + c;
            T value[batch];
            GS_UNROLL
            for (unsigned int b = 0; b < batch; ++b) {
                if (r + b * by.count < height) value[b] = from[b * by.count * cols];
            }
            GS_UNROLL
            for (unsigned int b = 0; b < batch; ++b) {
                if (r + b * by.count < height) tile[r + b * by.count][c] = value[b];
            }
        }
    }
    __syncthreads();
    for (unsigned int c = by.group; c < width; c += batch * by.count) {
        for (unsigned int r = by.lane; r < height; r += by.lanes) {
            T* to = out + c * rows + r;
            GS_UNROLL
            for (unsigned int b = 0; b < batch; ++b) {
                if (c + b * by.count < width) to[b * by.count * rows] = tile[r][c + b * by.count];
            }
        }
    }
    __syncthreads();
}

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
    __shared__ T shared[transpose_tile][transpose_tile + 1];
    T(*tile)[transpose_tile + 1] = gs::shared_address(shared);
    constexpr unsigned int side = transpose_tile;
    const unsigned int threads = gs::threads_in_block(), thread = gs::thread_in_block();
    const Groups by = groups_for_rows_of(side);
    const size_t across = (cols + side - 1) / side, down = (rows + side - 1) / side;
    GS_FOR_EACH_TILE(t, across * down) {
        const size_t row = t / across * side, col = t % across * side;
        const unsigned int height = (unsigned int)gs::smaller(rows - row, side);
        const unsigned int width = (unsigned int)gs::smaller(cols - col, side);
        const T* from = in + row * cols + col;
        T* to = out + col * rows + row;
        if (threads == transpose_block && height == side && width == side) {
            constexpr unsigned int lanes = transpose_block < side ? transpose_block : side;
            constexpr unsigned int count = transpose_block / lanes;
            // The remainder is redundant, but the compiler can see the range from it.
            transpose_one(from, to, rows, cols, Groups{lanes, count, thread / lanes % count, thread % lanes}, side,
                          side, tile);
        } else {
            // An idle thread has nothing to move, but it must reach the barriers.
            const bool idle = by.group >= by.count;
            transpose_one(from, to, rows, cols, by, idle ? 0 : height, idle ? 0 : width, tile);
        }
    }
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
