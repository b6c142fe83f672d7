// Counting in bins: each block counts in shared memory and adds its counts to the result once. If all threads counted in the
// result, many would have to wait for the same word.
#ifndef GPUSTREAM_KERNELS_COUNT_BINS_CUH
#define GPUSTREAM_KERNELS_COUNT_BINS_CUH

#include <gpustream/kernel.cuh>

// A block's counters have 32 bits, so we add them to the result before they can overflow.
constexpr size_t most_at_once = (size_t)1 << 31;

// Counts the elements of x in `bins`, through `local`, which holds the block's counters. If bin_of(x[i]) is not below
// `count`, the element is not counted.
template <class T, class BinOf>
GS_INLINE void count_bins(const T* x, size_t n, unsigned int* local, unsigned long long* bins, unsigned int count, BinOf bin_of) {
    for (size_t first = 0; first < n; first += most_at_once) {
        GS_FOR_EACH_IN_BLOCK(b, count) local[b] = 0;
        __syncthreads();
        GS_FOR_EACH_WIDE_IN(gs::smaller(n - first, most_at_once), x + first, [=](T value) {
            const unsigned int bin = bin_of(value);
            if (bin < count) gs::shared_add(&local[bin], 1u);
        });
        __syncthreads();
        GS_FOR_EACH_IN_BLOCK(b, count) {
            if (local[b] != 0) gs::atomic_add(&bins[b], (unsigned long long)local[b]);
        }
        __syncthreads();
    }
}

#endif
