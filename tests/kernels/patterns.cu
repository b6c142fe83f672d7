// Patterns of existing CUDA and HIP kernels: how they split shared memory, count, lock, look up and select. We do not
// include our own header here.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#define TILE 16
#define WARPS 8

/// out[i] = a mixture of three arrays that follow each other in dynamic shared memory.
/// requires: n <= len(x), n <= len(out), block.x == n, block.y * block.z * grid.x * grid.y * grid.z == 1, 13 * n <= shared
extern "C" __global__ void several_arrays(const int* x, double* out, unsigned n) {
    extern __shared__ __align__(8) unsigned char memory[];
    double* halves = (double*)memory;
    int* reversed = (int*)(halves + n);
    unsigned char* odd = (unsigned char*)(reversed + n);
    const unsigned i = threadIdx.x;
    halves[i] = x[i] / 2.0;
    reversed[n - 1 - i] = x[i];
    odd[i] = x[i] & 1;
    __syncthreads();
    out[i] = halves[(i + 1) % n] + reversed[i] + 1000 * odd[n - 1 - i];
}

/// Each block adds 1 to three numbers under one lock, `rounds` times. It needs several steps, and other blocks must not
/// see them half done.
/// requires: 1 <= len(lock), 3 <= len(numbers)
extern "C" __global__ void under_a_lock(int* lock, volatile unsigned* numbers, unsigned rounds) {
    if (threadIdx.x != 0) return;
    for (unsigned round = 0; round < rounds; ++round) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        __threadfence();
        const unsigned before = numbers[0];
        numbers[1] = before + 1;
        numbers[2] = numbers[2] + (numbers[1] - before);
        numbers[0] = numbers[1];
        __threadfence();
        atomicExch(lock, 0);
    }
}

/// Collects the elements above `least` in any order. If threads of a warp are together, they need only one atomic
/// addition.
/// requires: n <= len(x), n <= len(found), 1 <= len(count)
/// covers: n
extern "C" __global__ void collect_above(const int* x, int* found, unsigned* count, int least, unsigned n) {
    namespace cg = cooperative_groups;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > least) {
        cg::coalesced_group together = cg::coalesced_threads();
        unsigned first = 0;
        if (together.thread_rank() == 0) first = atomicAdd(count, (unsigned)together.size());
        first = together.shfl(first, 0);
        found[first + together.thread_rank()] = x[i];
    }
}

/// y[i] = a * x[i] + y[i], with any number of threads.
/// requires: n <= len(x), n <= len(y)
extern "C" __global__ void strided_axpy(float a, const float* __restrict__ x, float* __restrict__ y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = a * x[i] + y[i];
}

/// Inclusive sums within each block. Two buffers take turns, so that a step needs only one barrier.
/// requires: n <= len(x), n <= len(sums)
/// covers: n by 128
extern "C" __global__ void ping_pong_scan(const unsigned* x, unsigned* sums, unsigned n) {
    __shared__ unsigned buffers[2][128];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, me = threadIdx.x;
    int from = 0;
    buffers[from][me] = i < n ? x[i] : 0;
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        const int to = 1 - from;
        buffers[to][me] = buffers[from][me] + (me >= step ? buffers[from][me - step] : 0);
        from = to;
    }
    if (i < n) sums[i] = buffers[from][me];
}

__constant__ const unsigned nibbles[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                           0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                           0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

/// sums[i] = the CRC-32 of row i, which has `length` bytes. A table of nibbles speeds this up.
/// requires: rows * length <= len(text), rows <= len(sums)
/// covers: rows
extern "C" __global__ void crc_by_table(const unsigned char* text, unsigned* sums, unsigned length, unsigned rows) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    unsigned crc = ~0u;
    for (unsigned at = 0; at < length; ++at) {
        crc ^= text[row * length + at];
        crc = (crc >> 4) ^ nibbles[crc & 15];
        crc = (crc >> 4) ^ nibbles[crc & 15];
    }
    sums[row] = ~crc;
}

struct Particles {
    float *x, *velocity;
    const unsigned char* fixed;
    int n;
};

// Moves all particles that are not fixed.
__global__ void move_particles(Particles all, float time) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= all.n) return;
    if (!all.fixed[i]) all.x[i] += time * all.velocity[i];
}

__device__ __forceinline__ unsigned spread(unsigned x) {
    x &= 0xffff;
    x = (x | (x << 8)) & 0x00ff00ff;
    x = (x | (x << 4)) & 0x0f0f0f0f;
    x = (x | (x << 2)) & 0x33333333;
    return (x | (x << 1)) & 0x55555555;
}

/// Four numbers for each x: the bits of its halves interleaved, its Gray code, the next power of two, and the place of
/// its lowest bit.
/// requires: n <= len(x), 4 * n <= len(out)
/// covers: n
extern "C" __global__ void bit_tricks(const unsigned* x, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned v = x[i];
    out[4 * i] = spread(v) | (spread(v >> 16) << 1);
    out[4 * i + 1] = v ^ (v >> 1);
    out[4 * i + 2] = v <= 1 ? 1 : 1u << ((32 - __clz((int)(v - 1))) & 31);
    out[4 * i + 3] = __ffs((int)(v & (0u - v))) - 1;
}

/// y = 2 * x, four elements at a time if possible, and the rest one by one.
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void by_fours(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 four = __ldg(reinterpret_cast<const float4*>(x) + i);
        four.x *= 2;
        four.y *= 2;
        four.z *= 2;
        four.w *= 2;
        reinterpret_cast<float4*>(y)[i] = four;
    }
    if (i < n % 4) y[n / 4 * 4 + i] = 2 * __ldg(&x[n / 4 * 4 + i]);
}

/// sums[b] = sum over block b. Shared memory takes it down to one warp, and volatile memory does the rest.
/// requires: n <= len(x), grid.x <= len(sums), block.x == 256, block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void __launch_bounds__(256, 2) volatile_sum(const int* x, int* sums, unsigned n) {
    __shared__ int shared[256];
    const unsigned me = threadIdx.x;
    int sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + me; i < n; i += blockDim.x * gridDim.x) sum += x[i];
    shared[me] = sum;
    __syncthreads();
    if (me < 128) shared[me] += shared[me + 128];
    __syncthreads();
    if (me < 64) shared[me] += shared[me + 64];
    __syncthreads();
    if (me < 32) {
        volatile int* mine = shared;
        for (int step = 32; step > 0; step >>= 1) {
            const int other = mine[me + step];
            __syncwarp(0xffffffff);
            mine[me] = mine[me] + other;
            __syncwarp(0xffffffff);
        }
        if (me == 0) sums[blockIdx.x] = mine[0];
    }
}

__device__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

/// out[i] = the Fibonacci number i % 10. The depth is small, because a GPU's thread has a kilobyte of stack.
/// requires: n <= len(out)
/// covers: n
extern "C" __global__ void recursive(unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fibonacci(i % 10);
}

typedef int (*Binary)(int, int);
__device__ int added(int a, int b) { return a + b; }
__device__ int multiplied(int a, int b) { return a * b; }
__device__ int larger(int a, int b) { return a > b ? a : b; }

/// y[i] = function number `which[i]` of x[i] and y[i], called through a pointer.
/// requires: n <= len(x), n <= len(y), n <= len(which)
/// covers: n
extern "C" __global__ void by_pointer(const int* x, int* y, const unsigned* which, unsigned n) {
    const Binary functions[3] = {added, multiplied, larger};
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = functions[which[i] % 3](x[i], y[i]);
}

union Word {
    float real;
    unsigned bits;
    unsigned char bytes[4];
};

/// out[i] = the bytes of |x[i]| in reverse order.
/// requires: n <= len(x), n <= len(out)
/// covers: n
extern "C" __global__ void through_a_union(const float* x, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Word word;
    word.real = x[i];
    word.bits &= 0x7fffffff;
    Word turned;
    for (int byte = 0; byte < 4; ++byte) turned.bytes[byte] = word.bytes[3 - byte];
    out[i] = turned.bits;
}

/// counts[v] += how often v is in x. Each block counts in its shared memory first, because atomics are faster there.
/// requires: n <= len(x), 64 <= len(counts)
extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, unsigned n) {
    __shared__ unsigned own[64];
    for (unsigned i = threadIdx.x; i < 64; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&own[x[i] % 64], 1u);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 64; i += blockDim.x)
        if (own[i] != 0) atomicAdd(&counts[i], own[i]);
}

/// to[x][y] = from[y][x], in tiles with one more column, which avoids bank conflicts.
/// requires: width * height <= len(from), width * height <= len(to)
/// covers: width, height by 16, 16
extern "C" __global__ void transposed(const float* from, float* to, unsigned width, unsigned height) {
    __shared__ float tile[TILE][TILE + 1];
    unsigned x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = from[y * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < height && y < width) to[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

/// y[i] = x[i - 1] + x[i] + x[i + 1]. The shared memory has one more element on each side of the block.
/// requires: n <= len(x), n <= len(y)
/// covers: n by 64
extern "C" __global__ void with_halo(const int* x, int* y, unsigned n) {
    __shared__ int near[64 + 2];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, me = threadIdx.x + 1;
    near[me] = i < n ? x[i] : 0;
    if (threadIdx.x == 0) near[0] = i > 0 && i <= n ? x[i - 1] : 0;
    if (threadIdx.x == blockDim.x - 1) near[me + 1] = i + 1 < n ? x[i + 1] : 0;
    __syncthreads();
    if (i < n) y[i] = near[me - 1] + near[me] + near[me + 1];
}

__device__ int scan_of_warp(int value) {
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(0xffffffff, value, step, 32);
        if (threadIdx.x % 32 >= step) value += before;
    }
    return value;
}

/// Inclusive sums within each block: first of 32 threads at a time with shuffles, then of their last values.
/// requires: n <= len(x), n <= len(sums)
/// covers: n by 256
extern "C" __global__ void scan_by_shuffles(const int* x, int* sums, unsigned n) {
    __shared__ int ends[32];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, part = threadIdx.x / 32;
    int value = scan_of_warp(i < n ? x[i] : 0);
    if (lane == 31) ends[part] = value;
    __syncthreads();
    int end = threadIdx.x < WARPS ? ends[threadIdx.x] : 0;
    end = scan_of_warp(end);
    if (threadIdx.x < WARPS) ends[threadIdx.x] = end;
    __syncthreads();
    if (part > 0) value += ends[part - 1];
    if (i < n) sums[i] = value;
}

__device__ unsigned blocks_done = 0;

/// total[0] = the sum of x. The block that finishes last adds up what the others have left.
/// requires: n <= len(x), grid.x <= len(parts), 1 <= len(total), block.x == 64, block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void last_block_sum(const unsigned* x, unsigned* parts, unsigned* total, unsigned n) {
    __shared__ unsigned sum;
    __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    unsigned own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) own += x[i];
    atomicAdd(&sum, own);
    __syncthreads();
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) {
        unsigned all = 0;
        for (unsigned block = 0; block < gridDim.x; ++block) all += ((volatile unsigned*)parts)[block];
        total[0] = all;
    }
}

/// at[i] = the place of the first element of `sorted` that is not less than key[i].
/// requires: n <= len(sorted), keys <= len(key), keys <= len(at)
/// covers: keys
extern "C" __global__ void lower_bound(const int* sorted, unsigned n, const int* key, unsigned* at, unsigned keys) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= keys) return;
    unsigned low = 0, high = n;
    while (low < high) {
        const unsigned middle = (low + high) >> 1;
        if (sorted[middle] < key[i]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    at[i] = low;
}

/// to = the mean of the 3 by 3 pixels around each. At the edge a pixel may count several times.
/// requires: width * height <= len(from), width * height <= len(to)
/// covers: width, height by 8, 8
extern "C" __global__ void blurred(const unsigned char* from, unsigned char* to, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    auto clamped = [=](int value, int end) { return min(max(value, 0), end - 1); };
    int sum = 0;
#pragma unroll
    for (int dy = -1; dy <= 1; ++dy) {
#pragma unroll
        for (int dx = -1; dx <= 1; ++dx) sum += from[clamped(y + dy, height) * width + clamped(x + dx, width)];
    }
    to[y * width + x] = (unsigned char)(sum / 9);
}

/// c = a * b for square matrices, with tiles in shared memory.
/// requires: size * size <= len(a), size * size <= len(b), size * size <= len(c)
/// covers: size, size by 16, 16
extern "C" __global__ void product(const float* a, const float* b, float* c, unsigned size) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    const unsigned x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    float sum = 0;
    for (unsigned tile = 0; tile < (size + TILE - 1) / TILE; ++tile) {
        const unsigned ax = tile * TILE + threadIdx.x, by = tile * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = y < size && ax < size ? a[y * size + ax] : 0;
        bs[threadIdx.y][threadIdx.x] = by < size && x < size ? b[by * size + x] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (x < size && y < size) c[y * size + x] = sum;
}

/// Throws `throws` random points for each element, and counts those inside the circle.
/// requires: n <= len(inside)
/// covers: n
extern "C" __global__ void monte_carlo(unsigned* inside, unsigned throws, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long state = 0x9e3779b97f4a7c15ull * (i + 1);
    unsigned count = 0;
    for (unsigned k = 0; k < throws; ++k) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const unsigned long long x = state >> 48, y = state & 0xffff;
        if (x * x + y * y < 0x100000000ull) ++count;
    }
    inside[i] = count;
}

/// rounds[b] = how many Collatz steps it takes until all numbers of block b are 1.
/// requires: grid.x * block.x <= len(x), grid.x <= len(rounds), grid.x <= len(even), block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void until_all_are_done(const unsigned* x, unsigned* rounds, int* even, unsigned most) {
    unsigned long long mine = x[blockIdx.x * blockDim.x + threadIdx.x];
    unsigned round = 0;
    while (__syncthreads_or(mine > 1) && round < most) {
        if (mine > 1) mine = mine % 2 == 0 ? mine / 2 : 3 * mine + 1;
        ++round;
    }
    const int count = __syncthreads_count(x[blockIdx.x * blockDim.x + threadIdx.x] % 2 == 0);
    if (threadIdx.x == 0) {
        rounds[blockIdx.x] = round;
        even[blockIdx.x] = count;
    }
}

/// ends[i] = the end of the list that begins at i. Each link is less than n, or is its own place at the end.
/// requires: n <= len(next), n <= len(ends)
/// covers: n
extern "C" __global__ void ends_of_lists(const unsigned* next, unsigned* ends, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned start = i;
    for (unsigned steps = 0; next[i] != i && next[i] < n && steps < n; ++steps) i = next[i];
    ends[start] = i;
}

enum Operation { Sum, Largest = 4 };

template <class T, int N>
struct Vec {
    T x[N];
    __host__ __device__ T& operator[](int i) { return x[i]; }
    __host__ __device__ const T& operator[](int i) const { return x[i]; }
};

namespace shapes {
template <class T>
__device__ T folded(T a, T b, Operation operation);
}
template <class T>
__device__ T shapes::folded(T a, T b, Operation operation) {
    switch (operation) {
        case Sum: return a + b;
        case Largest: break;
    }
    return a > b ? a : b;
}

/// Combines each x[i] with all elements of v.
/// types: T = float, operation = Sum, Largest
/// requires: n <= len(x)
/// covers: n
template <class T, Operation operation>
__global__ void with_vector(T* x, Vec<T, 3> v, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 3; ++k) x[i] = shapes::folded(x[i], v[k], operation);
}

namespace shapes {
__global__ void shifted(int* x, const int* by, unsigned n);
}
// This host function has the same name as the kernel, so the parser must not confuse the two.
void shifted(int* x, int blocks);

/// x[i] += by[0], or 1 if `by` is null.
/// optional: by
/// requires: n <= len(x), 1 <= len(by)
/// covers: n
__global__ void shapes::shifted(int* x, const int* by, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by != NULL ? by[0] : 1;
}
