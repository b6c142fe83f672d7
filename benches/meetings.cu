// Kernels whose threads meet or share a loop, as you may find them in many CUDA programs. We compare them with a plain
// loop on the CPU.
#include <gpustream/kernel.cuh>

#define TILE 32
#define ROWS 4

/// next = mean of the four neighbours in `points`; the border stays. Each thread has four points in a column, and asks its
/// neighbours in the warp for those beside them.
/// requires: block.x == 32, block.y == 8, width * height <= len(points), width * height <= len(next), width > 0, height > 0
/// requires: grid.x * 32 >= width - 2, grid.y * 32 >= height - 2
__global__ void jacobi(const float* __restrict__ points, float* __restrict__ next, int width, int height) {
    __shared__ float tile[TILE + 2][TILE + 2];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int x = blockIdx.x * TILE + tx + 1, y = blockIdx.y * TILE + 1;
    for (int row = ty; row < TILE + 2; row += 8) {
        if (y - 1 + row < height && x < width) tile[row][tx + 1] = points[(y - 1 + row) * width + x];
    }
    if (tx == 0) {
        for (int row = ty; row < TILE + 2; row += 8) {
            if (y - 1 + row < height) tile[row][0] = points[(y - 1 + row) * width + x - 1];
        }
    }
    if (tx == TILE - 1 && x + 1 < width) {
        for (int row = ty; row < TILE + 2; row += 8) {
            if (y - 1 + row < height) tile[row][TILE + 1] = points[(y - 1 + row) * width + x + 1];
        }
    }
    __syncthreads();
    const int first = ty * ROWS + 1;
    const float a = tile[first][tx + 1], b = tile[first + 1][tx + 1];
    const float c = tile[first + 2][tx + 1], d = tile[first + 3][tx + 1];
    const unsigned all = 0xffffffffu;
    float a_left = __shfl_up_sync(all, a, 1), b_left = __shfl_up_sync(all, b, 1);
    float c_left = __shfl_up_sync(all, c, 1), d_left = __shfl_up_sync(all, d, 1);
    float a_right = __shfl_down_sync(all, a, 1), b_right = __shfl_down_sync(all, b, 1);
    float c_right = __shfl_down_sync(all, c, 1), d_right = __shfl_down_sync(all, d, 1);
    if (tx == 0) {
        a_left = tile[first][tx], b_left = tile[first + 1][tx];
        c_left = tile[first + 2][tx], d_left = tile[first + 3][tx];
    }
    if (tx == TILE - 1) {
        a_right = tile[first][tx + 2], b_right = tile[first + 1][tx + 2];
        c_right = tile[first + 2][tx + 2], d_right = tile[first + 3][tx + 2];
    }
    const float above = tile[first - 1][tx + 1], below = tile[first + ROWS][tx + 1];
    const int to = y + ty * ROWS;
    if (x < width - 1) {
        if (to < height - 1) next[to * width + x] = 0.25f * (a_left + a_right + above + b);
        if (to + 1 < height - 1) next[(to + 1) * width + x] = 0.25f * (b_left + b_right + a + c);
        if (to + 2 < height - 1) next[(to + 2) * width + x] = 0.25f * (c_left + c_right + b + d);
        if (to + 3 < height - 1) next[(to + 3) * width + x] = 0.25f * (d_left + d_right + c + below);
    }
}

/// bins[v] += number of bytes with value v
/// requires: n <= len(bytes), 256 <= len(bins)
__global__ void count_bytes(const unsigned char* __restrict__ bytes, unsigned* __restrict__ bins, size_t n) {
    __shared__ unsigned mine[256];
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) mine[bin] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x) {
        atomicAdd(&mine[bytes[i]], 1u);
    }
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) atomicAdd(&bins[bin], mine[bin]);
}

/// y[i] += a * x[i], by as many threads as there are
/// requires: n <= len(x), n <= len(y)
__global__ void add_scaled(float a, const float* __restrict__ x, float* __restrict__ y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x) {
        y[i] += a * x[i];
    }
}

/// Shortens each path of a graph with n nodes by way of node k. If that is shorter, notes k in `via`.
/// requires: n * n <= len(length), n * n <= len(via), k < n, grid.x * block.x >= n, grid.y * block.y >= n
__global__ void shorten(int* __restrict__ length, int* __restrict__ via, int n, int k) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const int direct = length[y * n + x], around = length[y * n + k] + length[k * n + x];
    if (around < direct) {
        length[y * n + x] = around;
        via[y * n + x] = k;
    }
}

/// y[i] = sum of the x[j] up to i in the block of i; sums[b] = sum of block b
/// requires: block.x == 256, grid.x * 256 >= n, n <= len(x), n <= len(y), grid.x <= len(sums)
__global__ void scan_blocks(const int* __restrict__ x, int* __restrict__ y, int* __restrict__ sums, int n) {
    __shared__ int of_warp[32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    int value = i < n ? x[i] : 0;
    for (int step = 1; step < warpSize; step *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step) value += before;
    }
    if (lane == warpSize - 1) of_warp[warp] = value;
    __syncthreads();
    if (warp == 0) {
        int sum = lane < blockDim.x / warpSize ? of_warp[lane] : 0;
        for (int step = 1; step < warpSize; step *= 2) {
            const int before = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += before;
        }
        of_warp[lane] = sum;
    }
    __syncthreads();
    if (warp > 0) value += of_warp[warp - 1];
    if (i < n) y[i] = value;
    if (threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = value;
}

/// c = a b, for square matrices of n rows; n is a multiple of 32
/// requires: block.x == 32, block.y == 32, n * n <= len(a), n * n <= len(b), n * n <= len(c), n % 32 == 0
/// requires: grid.x * 32 == n, grid.y * 32 == n
__global__ void multiply(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float of_a[TILE][TILE];
    __shared__ float of_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int tile = 0; tile < n / TILE; ++tile) {
        of_a[threadIdx.y][threadIdx.x] = a[row * n + tile * TILE + threadIdx.x];
        of_b[threadIdx.y][threadIdx.x] = b[(tile * TILE + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += of_a[threadIdx.y][k] * of_b[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
