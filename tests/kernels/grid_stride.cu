// In these loops each thread begins one element after the thread before it. So the CPU backend can run a row of threads
// side by side, which must not change the results.
#include <gpustream/kernel.cuh>

#define GRID_STRIDE ((size_t)blockDim.x * gridDim.x)
#define LEAVE_IF(condition) if (condition) return

/// y[i] += by * x[i]
/// types: I = int, unsigned, size_t, long long
/// requires: n <= len(x), n <= len(y), grid.y * grid.z * block.y * block.z == 1
template <class I>
__global__ void scaled(I by, const float* __restrict__ x, float* __restrict__ y, int n) {
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] += by * x[i];
}

/// y[i] += x[i]
/// requires: n <= len(x), n <= len(y), grid.y * grid.z * block.y * block.z == 1
__global__ void added(const double* x, double* y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += GRID_STRIDE) {
        const double before = y[i];
        y[i] = before + x[i];
    }
}

/// out[i - first] = i for each i from `first` to `last`, including `last`
/// requires: first <= last, last - first < len(out), grid.y * grid.z * block.y * block.z == 1
__global__ void numbered(int* out, int first, int last) {
    const int me = blockIdx.x * blockDim.x + threadIdx.x, stride = blockDim.x * gridDim.x;
    for (int i = first + me; i <= last; i += stride) out[i - first] = i;
}

/// out[t] = sum of the elements that thread t comes to, for the first `most` threads. If there are none, it is -1.
/// requires: n <= len(x), grid.x * block.x <= len(out), grid.y * grid.z * block.y * block.z == 1
__global__ void shares(const int* x, int* out, unsigned n, unsigned most) {
    const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    if (me >= most) return;
    int sum = 0, turns = 0;
    for (unsigned i = me; i < n; i += GRID_STRIDE) {
        sum += x[i];
        ++turns;
    }
    out[me] = turns > 0 ? sum : -1;
}

/// counts[i % 7] += 1 for each i from `first` up to `end`. These numbers need more than 31 bits.
/// requires: 7 <= len(counts), grid.y * grid.z * block.y * block.z == 1
__global__ void high(int* counts, unsigned first, unsigned end) {
    for (unsigned i = first + threadIdx.x; i < end; i += blockDim.x) atomicAdd(&counts[i % 7], 1);
}

/// out[i] = number of threads whose loop comes to i. Their loops overlap, because each step is 1.
/// requires: n <= len(out), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void overlapping(int* out, int n) {
    for (int i = threadIdx.x; i < n; ++i) atomicAdd(&out[i], 1);
}

/// order[k] = the k-th element that a thread comes to
/// requires: 1 <= len(count), n <= len(order), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void in_order(int* order, int* count, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) order[atomicAdd(count, 1)] = i;
}

/// y[i] += x[i]. The loop's counter is a variable from before the loop.
/// order[k] = the k-th element that a thread comes to
/// requires: n <= len(x), n <= len(y), n <= len(order), 1 <= len(count), grid.y * grid.z * block.y * block.z == 1
__global__ void while_below(const int* x, int* y, int* order, int* count, int n) {
    int tid = threadIdx.x + blockIdx.x * blockDim.x;
    while (tid < n) {
        y[tid] += x[tid];
        order[atomicAdd(count, 1)] = tid;
        tid += blockDim.x * gridDim.x;
    }
}

/// Does the same with an unsigned counter, in a `for` that declares nothing. There is a barrier before it and after it.
/// out[b] = number of elements that block b came to
/// requires: n <= len(x), n <= len(y), grid.x <= len(out), grid.y * grid.z * block.y * block.z == 1
__global__ void for_below(const int* x, int* y, int* out, unsigned n) {
    __shared__ int turns;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) turns = i == blockIdx.x * blockDim.x ? 0 : -1;
    __syncthreads();
    for (; i < n; i += blockDim.x * gridDim.x) {
        y[i] += x[i];
        atomicAdd(&turns, 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = turns;
}

#define SKIP(v) (v += 2 * round)
#define SKIP_J j += round

__device__ void skip(int& i, int by) { i += by; }

/// Adds 1001 to visits[i] if i is in every third round, and 10010 if it is in every second. Adds 100 to the element at
/// which a thread's counter ends.
/// requires: n + block.x <= len(visits), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void skipping(int* visits, int n) {
    const int round = blockDim.x;
    for (int i = threadIdx.x; i < n; i += round) {
        atomicAdd(&visits[i], 1);
        skip(i, 2 * round);
    }
    int i = threadIdx.x;
    while (i < n) {
        atomicAdd(&visits[i], 10);
        skip(i, round);
        i += round;
    }
    for (int i = threadIdx.x; i < n; i += round) {
        atomicAdd(&visits[i], 1000);
        SKIP(i);
    }
    for (int j = threadIdx.x; j < n; j += round) {
        atomicAdd(&visits[j], 10000);
        SKIP_J;
    }
    int end = threadIdx.x;
    while (end < n) {
        end += round;
    }
    atomicAdd(&visits[end], 100);
}

/// out[t] = number of elements that thread t came to, for the first `most` threads. A macro makes the others return.
/// requires: block.x <= len(out), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void leaving(int* out, int n, int most) {
    int turns = 0;
    LEAVE_IF(threadIdx.x >= most);
    for (int i = threadIdx.x; i < n; i += blockDim.x) ++turns;
    out[threadIdx.x] = turns;
}

/// Each element of `out` counts the threads that come to it. Some threads begin below 0. If the counter is unsigned,
/// that is far above the end.
/// requires: 5 * n <= len(out), 0 < n, block.x >= 4, grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void around(int* out, int n) {
    const size_t end = n;
    __syncthreads();
    for (unsigned i = threadIdx.x - 3; i < n; i += blockDim.x) atomicAdd(&out[i], 1);
    for (size_t i = threadIdx.x - 3; i < end; i += blockDim.x) atomicAdd(&out[n + i], 1);
    for (int i = threadIdx.x - 3; i < end; i += blockDim.x) atomicAdd(&out[2 * n + i], 1);
    const size_t here = threadIdx.x - 3;
    if (here < end) out[3 * n + here] = 1;
    const int before = threadIdx.x - 3;
    const size_t there = before + blockIdx.x;
    for (size_t i = there; i < end; i += blockDim.x) atomicAdd(&out[4 * n + i], 1);
}
