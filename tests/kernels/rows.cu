// These comparisons are true for all threads of a row, or for some. If the CPU backend can, it compares once for the
// whole row, and you must not see a difference.
#include <gpustream/kernel.cuh>

/// out[me] has one bit for each comparison that is true for thread `me`. The grid has one block along y.
/// requires: grid.x * block.x * block.y <= len(out), grid.y * grid.z * block.z == 1
__global__ void compared(unsigned* out, int first, int width, int height, int divisor) {
    const unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
    const int me = number * blockDim.y + threadIdx.y;
    const int x = number + first, y = threadIdx.y;
    const unsigned wraps = number + first;
    const size_t wide = number + (unsigned)first, is_wide = (size_t)number + first;
    const size_t end = width;
    unsigned holds = 0;
    if (x < width) holds |= 1u << 0;
    __syncthreads();
    if (x <= width) holds |= 1u << 1;
    __syncthreads();
    if (width > x) holds |= 1u << 2;
    __syncthreads();
    if (width >= x + 1) holds |= 1u << 3;
    __syncthreads();
    if (x > 0 && x < width - 1 && (y > 0 && y < height - 1)) holds |= 1u << 4;
    __syncthreads();
    if (wraps < width) holds |= 1u << 5;
    __syncthreads();
    if (wraps > width) holds |= 1u << 6;
    __syncthreads();
    if (threadIdx.x - 3 < width) holds |= 1u << 7;
    __syncthreads();
    if (threadIdx.x - 3 + end < 2 * end) holds |= 1u << 8;
    __syncthreads();
    if (wide < end) holds |= 1u << 9;
    __syncthreads();
    if (is_wide < end) holds |= 1u << 10;
    __syncthreads();
    if (x < (unsigned)width) holds |= 1u << 11;
    __syncthreads();
    if (x + 0.5f < width) holds |= 1u << 12;
    __syncthreads();
    holds |= y < height ? 1u << 13 : 0u;
    __syncthreads();
    // If no thread needs the division, it must not be computed for the row either, because it would divide by zero.
    if (divisor != 0) {
        if (x < width / divisor) holds |= 1u << 14;
    }
    __syncthreads();
    {
        // These hide the variables from above.
        const int x = threadIdx.y, y = threadIdx.x;
        if (x < height && y < 5) holds |= 1u << 15;
    }
    __syncthreads();
    if (!(x < width) || y >= height) holds |= 1u << 16;
    __syncthreads();
    if (x < width) {
        holds |= 1u << 17;
    } else if (y < height) {
        holds |= 1u << 18;
    }
    __syncthreads();
    for (int k = 0; k < 3; ++k) {
        if (k < y && x < width + k) holds |= 1u << (19 + k);
    }
    __syncthreads();
    if (threadIdx.x - 3 + end > 2 * end) holds |= 1u << 22;
    __syncthreads();
    out[me] = holds;
}

/// y[row, i] = x[row, i] if i < width, and otherwise -1. A loop goes through the rows, and the tile keeps what lies
/// around.
/// requires: block.x == 32, block.y == 4, grid.z * block.z == 1, rows * pitch <= len(x), rows * pitch <= len(y)
/// requires: width <= pitch, pitch <= grid.x * 32, rows <= grid.y * 16
__global__ void tiled(const int* __restrict__ x, int* __restrict__ y, int width, int pitch, int rows) {
    __shared__ int tile[16][32];
    const int column = blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * 16;
    for (int row = threadIdx.y; row < 16; row += 4) {
        if (first + row < rows && column < width) {
            tile[row][threadIdx.x] = x[(first + row) * pitch + column];
        } else {
            tile[row][threadIdx.x] = -1;
        }
    }
    __syncthreads();
    for (int row = threadIdx.y; row < 16; row += 4) {
        if (first + row < rows && column < pitch) y[(first + row) * pitch + column] = tile[row][threadIdx.x];
    }
}

/// Adds 1 to visits[y, x] at each visit, and sets blocks[y, x] to the number of the block that came.
/// requires: width * height <= len(visits), width * height <= len(blocks)
__global__ void visited(unsigned* visits, unsigned* blocks, size_t width, size_t height) {
    GS_FOR_EACH_2D(x, y, width, height) {
        atomicAdd(&visits[y * width + x], 1u);
        blocks[y * width + x] = (unsigned)gs::block_in_grid();
    }
}
