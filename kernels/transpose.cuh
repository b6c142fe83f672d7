// Transposes matrices through shared memory.
#ifndef GPUSTREAM_KERNELS_TRANSPOSE_CUH
#define GPUSTREAM_KERNELS_TRANSPOSE_CUH

#include <gpustream/kernel.cuh>

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

// Transposes `matrices` matrices of `rows` rows with `cols` elements, which lie one after another. All threads of the grid must
// come here.
template <class T>
GS_INLINE void transpose_all(const T* __restrict__ in, T* __restrict__ out, size_t matrices, size_t rows, size_t cols,
                             T (*tile)[transpose_tile + 1]) {
    constexpr unsigned int side = transpose_tile;
    const unsigned int threads = gs::threads_in_block(), thread = gs::thread_in_block();
    const Groups by = groups_for_rows_of(side);
    const size_t across = (cols + side - 1) / side, down = (rows + side - 1) / side, tiles = across * down;
    GS_FOR_EACH_TILE(t, matrices * tiles) {
        const size_t matrix = matrices == 1 ? 0 : t / tiles, of_matrix = t - matrix * tiles;
        const size_t row = of_matrix / across * side, col = of_matrix % across * side;
        const unsigned int height = (unsigned int)gs::smaller(rows - row, side);
        const unsigned int width = (unsigned int)gs::smaller(cols - col, side);
        const T* from = in + matrix * rows * cols + row * cols + col;
        T* to = out + matrix * rows * cols + col * rows + row;
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

#endif
