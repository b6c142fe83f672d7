// Loops that share work among all threads of a grid or of a block. You get the right result with any launch shape.
//
//   GS_FOR_EACH(i, n) y[i] += a * x[i];
//
// On a GPU neighbouring threads take neighbouring indices, so that their accesses coalesce. On the CPU a thread takes
// one contiguous range, because that suits the caches and the vector units.
#ifndef GPUSTREAM_FOR_EACH_CUH
#define GPUSTREAM_FOR_EACH_CUH

#include <gpustream/backend.cuh>

namespace gs {

/// Return how many threads a block has and which of them this one is; the same for the grid's blocks, and for all
/// threads of the grid. They count over all three dimensions, x fastest.
/// Threads: any.
GS_INLINE u32 threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }
GS_INLINE u32 thread_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
GS_INLINE size_t blocks_in_grid() { return (size_t)gridDim.x * gridDim.y * gridDim.z; }
GS_INLINE size_t block_in_grid() {
    return blockIdx.x + (size_t)gridDim.x * (blockIdx.y + (size_t)gridDim.y * blockIdx.z);
}
GS_INLINE size_t threads_in_grid() { return blocks_in_grid() * threads_in_block(); }
GS_INLINE size_t thread_in_grid() { return block_in_grid() * threads_in_block() + thread_in_block(); }

/// Returns the smaller one.
/// Threads: any.
GS_INLINE size_t smaller(size_t a, size_t b) { return b < a ? b : a; }

/// Returns the beginning of share number `worker`, if `workers` workers split `0..n` into contiguous shares with nearly
/// equal size. The next share's beginning is its end. All shares but the last have a multiple of `grain` elements.
/// Threads: any.
GS_INLINE size_t share_begin(size_t n, size_t worker, size_t workers, size_t grain) {
    const size_t share = ((n - (n > 0)) / workers / grain + 1) * grain;
    return worker <= n / share ? worker * share : n;
}

#if defined(GS_SERIAL)
// Two workers should not write to one cache line, and 64 elements are a line or more.
GS_INLINE size_t grid_begin(size_t n) { return share_begin(n, thread_in_grid(), threads_in_grid(), 64); }
GS_INLINE size_t grid_end(size_t n) { return share_begin(n, thread_in_grid() + 1, threads_in_grid(), 64); }
GS_INLINE size_t rows_begin(size_t n) { return share_begin(n, thread_in_grid(), threads_in_grid(), 1); }
GS_INLINE size_t rows_end(size_t n) { return share_begin(n, thread_in_grid() + 1, threads_in_grid(), 1); }
GS_INLINE size_t block_begin(size_t n) { return share_begin(n, thread_in_block(), threads_in_block(), 1); }
GS_INLINE size_t block_end(size_t n) { return share_begin(n, thread_in_block() + 1, threads_in_block(), 1); }
GS_INLINE size_t tiles_begin(size_t n) { return share_begin(n, block_in_grid(), blocks_in_grid(), 1); }
GS_INLINE size_t tiles_end(size_t n) { return share_begin(n, block_in_grid() + 1, blocks_in_grid(), 1); }
// The step is a constant, so the compiler sees loops over neighbouring elements.
#define GS_STEP_(step) 1
#else
GS_INLINE size_t grid_begin(size_t) { return thread_in_grid(); }
GS_INLINE size_t grid_end(size_t n) { return n; }
GS_INLINE size_t block_begin(size_t) { return thread_in_block(); }
GS_INLINE size_t block_end(size_t n) { return n; }
GS_INLINE size_t tiles_begin(size_t) { return block_in_grid(); }
GS_INLINE size_t tiles_end(size_t n) { return n; }
#define GS_STEP_(step) (step)

// A 64-bit division costs a GPU about a hundred instructions, a 32-bit one a dozen.
GS_INLINE size_t quotient(size_t a, size_t b) { return (a | b) >> 32 ? a / b : (u32)a / (u32)b; }

// Rows are cut into strips as wide as a block, and a block goes from strip to strip. If at least two rows fit into a block, its
// threads go from row to row instead, each in its own column.
struct Strips {
    size_t per_row, strips, at, step, first_column;
    __device__ __forceinline__ Strips(size_t width, size_t height)
        : per_row(quotient(width + threads_in_block() - 1, threads_in_block())),
          strips(per_row * height),
          at(block_in_grid()),
          step(blocks_in_grid()),
          first_column(thread_in_block()) {
        if (width < threads_in_block() && width != 0) {
            const u32 rows = threads_in_block() / (u32)width, row = thread_in_block() / (u32)width;
            first_column -= row * width;
            // The threads after the last whole row have nothing to do.
            at = row < rows ? at * rows + row : strips;
            step *= rows;
        }
    }
    __device__ __forceinline__ bool more() const { return at < strips; }
    __device__ __forceinline__ void next() { at += step; }
    __device__ __forceinline__ size_t row() const { return quotient(at, per_row); }
    __device__ __forceinline__ size_t column() const {
        return (at - row() * per_row) * threads_in_block() + first_column;
    }
};
#endif

}  // namespace gs

/// Visits each `i` of `0..n` once, over all threads of the grid. `i` is a `size_t`, and `n` is evaluated once. Threads
/// make different numbers of rounds, so you cannot use barriers in the body.
/// Threads: all of the grid. Indices of threads that do not come here are not visited.
#define GS_FOR_EACH(i, n)                                                                                      \
    for (size_t i##_n = (n), i = ::gs::grid_begin(i##_n), i##_end = ::gs::grid_end(i##_n); i < i##_end;        \
         i += GS_STEP_(::gs::threads_in_grid()))

/// Visits each `i` of `0..n` once per block, over the block's threads. There is no barrier at the end: write
/// `__syncthreads()` if other threads read what the loop wrote. You cannot use barriers in the body.
/// Threads: all of the block. Indices of threads that do not come here are not visited.
#define GS_FOR_EACH_IN_BLOCK(i, n)                                                                             \
    for (size_t i##_n = (n), i = ::gs::block_begin(i##_n), i##_end = ::gs::block_end(i##_n); i < i##_end;      \
         i += GS_STEP_(::gs::threads_in_block()))

/// Visits each `tile` of `0..tiles` once, over the grid's blocks. All threads in a block go through the same tiles, so
/// you can use barriers in the body.
/// Threads: all of the block, if the body has barriers.
#define GS_FOR_EACH_TILE(tile, tiles)                                                                          \
    for (size_t tile##_n = (tiles), tile = ::gs::tiles_begin(tile##_n), tile##_end = ::gs::tiles_end(tile##_n); \
         tile < tile##_end; tile += GS_STEP_(::gs::blocks_in_grid()))

/// Visits each `(x, y)` of `0..width` and `0..height` once, over all threads of the grid; neighbouring threads have
/// neighbouring `x`. You can use `continue` in the body, but neither `break` nor barriers.
/// Threads: all of the grid. Places of threads that do not come here are not visited.
/// Signature: GS_FOR_EACH_2D(x, y, width, height)
#if defined(GS_SERIAL)
#define GS_FOR_EACH_2D(x, y, width, height)                                                                    \
    for (size_t x##_end = (width), y##_n = (height), y = ::gs::rows_begin(y##_n), y##_end = ::gs::rows_end(y##_n); \
         y < y##_end; ++y)                                                                                     \
        for (size_t x = 0; x < x##_end; ++x)
#else
#define GS_FOR_EACH_2D(x, y, width, height)                                                                    \
    for (::gs::Strips y##_strips((width), (height)); y##_strips.more(); y##_strips.next())                     \
        for (size_t y = y##_strips.row(), x = y##_strips.column(), x##_end = (width); x < x##_end; x = x##_end)
#endif

#endif
