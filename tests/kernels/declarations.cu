// Declarations as you find them in kernels: one name for several variables, values in parentheses, types that have no
// default, HIP's older word for shared memory. If there is a barrier, the CPU backend rewrites the kernel as loops, and
// these must still mean the same.
#include <hip/hip_runtime.h>

#include <gpustream/kernel.cuh>

#define THREADS 64
#define warpSize 32
#define MINE mine
#define SUM sum
#define STEP total += 2
#define NEXT STEP
#define PART(i) parts[i]
#define SET(variable) variable

struct Line {
    int slope, offset;
    __device__ Line(int slope) : slope(slope), offset(2 * slope) {}
    __device__ Line(int slope, int offset) : slope(slope), offset(offset) {}
    __device__ int at(int x) const { return slope * x + offset; }
};

struct Weights {
    int of[4];
};

__device__ int weight(const Weights* weights, int i) { return weights->of[i % 4]; }

/// Returns the sum over four neighbours of their values and the loop's counter.
__device__ int around(int* tile, const int* x, int at) {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        __syncthreads();
        tile[at] = x[at] + i;
        __syncthreads();
        SUM += tile[(at + i) % THREADS];
    }
    for (int i = 0; i < 2; ++i) SUM += i;
    return sum;
}

/// Each `i` is another variable, and so is each `n`.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), n <= 64, grid.x == 1
__global__ void shadows(const int* x, int* y, int n) {
    __shared__ int tile[THREADS];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < 3; ++i) {
        sum += tile[(threadIdx.x + i) % THREADS];
        __syncthreads();
        {
            const int i = sum % 7;
            if (i < n) sum += i;
        }
        __syncthreads();
    }
    y[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] += x[i];
    if (n > 5) {
        int n = tile[i], j = i / 2;
        if (i < n) sum -= n;
        if (j < n) sum += j;
    }
    __syncthreads();
    for (int j = 0, i = 1; j < 2; ++j, i *= 3) {
        __syncthreads();
        sum += i;
    }
    y[i] += sum;
}

/// These variables have values in parentheses. Some of their types cannot be declared without a value.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), grid.x == 1
__global__ void parentheses(const int* x, int* y, int n, const Weights weights) {
    int i = threadIdx.x;
    const Line line(i);
    Line other(n, i);
    unsigned long wide(n);
    __syncthreads();
    if (i % 2 == 0) other = Line(i, n);
    __syncthreads();
    y[i] = line.at(x[i]) + other.at(3) + (int)wide + weight(&weights, i);
}

/// Reverses each 32 elements in shared memory. HIP's older word declares that memory.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), grid.x == 1, shared >= 256
__global__ void turned(const int* x, int* y) {
    HIP_DYNAMIC_SHARED(int, cache)
    int i = threadIdx.x;
    cache[i] = x[i];
    __syncthreads();
    y[i] = cache[i / warpSize * warpSize + warpSize - 1 - i % warpSize];
}

/// Calls a function that has barriers in an unrolled loop.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), grid.x == 1
__global__ void neighbours(const int* x, int* y) {
    __shared__ int tile[THREADS];
    int i = threadIdx.x;
    y[i] = around(tile, x, i);
    for (int i = 0; i < 2; ++i) y[threadIdx.x] += i;
}

/// A macro may mean another variable each time you use it, because it means the one in scope.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), grid.x == 1
__global__ void by_macro(const int* x, int* y) {
    int mine = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = MINE;
    for (int mine = 0; mine < 3; ++mine) {
        __syncthreads();
        y[threadIdx.x] += MINE;
    }
}

/// Macros may change a thread's own variables.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), grid.x == 1
__global__ void through_macros(const int* x, int* y, int n) {
    int i = threadIdx.x, total = 0, sum = 0, last = 0;
    int parts[2] = {0, 0};
    __syncthreads();
    if (i < n) NEXT;
    SUM += x[i];
    PART(i % 2) = x[i];
    SET(last) = i;
    __syncthreads();
    y[i] = total + sum + 3 * parts[0] + 5 * parts[1] + last;
}

__device__ void bump(int& a) { a += threadIdx.x; }
__device__ int next_of(int2 v) {
    v.x += 1;
    __syncthreads();
    return v.x;
}

/// Functions may change a thread's own variables through references, but not through copies.
/// requires: block.x == 64, block.y * block.z == 1, 64 <= len(x), 64 <= len(y), grid.x == 1
__global__ void through_functions(const int* x, int* y) {
    int2 v = make_int2(1, 2);
    int parts[2] = {0, 0};
    __syncthreads();
    bump(v.x);
    bump(parts[1]);
    Weights own = {{1, 2, 3, 4}};
    __syncthreads();
    for (int& part : parts) part += v.y;
    for (int& weight : own.of) weight += v.y;
    __syncthreads();
    int2 w = make_int2(x[threadIdx.x], 3);
    const int next = next_of(w);
    __syncthreads();
    y[threadIdx.x] = v.x + parts[0] + 2 * parts[1] + 3 * w.x + 5 * next + 7 * own.of[3];
}
