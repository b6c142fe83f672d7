// Binary search in sorted keys.
#ifndef GPUSTREAM_KERNELS_SEARCH_CUH
#define GPUSTREAM_KERNELS_SEARCH_CUH

#include <gpustream/kernel.cuh>

// Returns how many of 0..n come before a place: is_before(i) is true for these, and false from there on.
template <class IsBefore>
GS_INLINE size_t first_not(size_t n, IsBefore is_before) {
    size_t begin = 0;
    while (n > 0) {
        const size_t half = n / 2;
        const bool before = is_before(begin + half);
        begin = before ? begin + half + 1 : begin;
        n = before ? n - half - 1 : half;
    }
    return begin;
}

#endif
