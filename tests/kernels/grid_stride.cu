// Loops in which each thread begins one later: on the CPU backend the threads of a row go through them side by side.
#include <gpustream/kernel.cuh>

#define GRID_STRIDE ((size_t)blockDim.x * gridDim.x)

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

/// out[i - first] = i for each i from first to last
/// requires: first <= last, last - first < len(out), grid.y * grid.z * block.y * block.z == 1
__global__ void numbered(int* out, int first, int last) {
    const int me = blockIdx.x * blockDim.x + threadIdx.x, stride = blockDim.x * gridDim.x;
    for (int i = first + me; i <= last; i += stride) out[i - first] = i;
}

/// out[t] = sum of every share-th element from t on, for the first `most` threads t
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

/// counts[i % 7] += 1 for each i from `first` on below `end`, in numbers that need more than 31 bits
/// requires: 7 <= len(counts), grid.y * grid.z * block.y * block.z == 1
__global__ void high(int* counts, unsigned first, unsigned end) {
    for (unsigned i = first + threadIdx.x; i < end; i += blockDim.x) atomicAdd(&counts[i % 7], 1);
}

/// out[i] = number of threads from which i is not far away
/// requires: n <= len(out), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void overlapping(int* out, int n) {
    for (int i = threadIdx.x; i < n; ++i) atomicAdd(&out[i], 1);
}

/// order[k] = the k-th element that a thread comes to
/// requires: 1 <= len(count), n <= len(order), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void in_order(int* order, int* count, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) order[atomicAdd(count, 1)] = i;
}
