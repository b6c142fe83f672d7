// Counting in bins: each block counts in shared memory and adds its counts to the result once. If all threads counted in the
// result, many would have to wait for the same word.
#ifndef GPUSTREAM_KERNELS_COUNT_BINS_CUH
#define GPUSTREAM_KERNELS_COUNT_BINS_CUH

#include <gpustream/kernel.cuh>

// A block's counters have 32 bits, so we add them to the result before they can overflow.
constexpr size_t most_at_once = (size_t)1 << 31;

// How many counters a block has for each byte.
#if defined(GS_SERIAL)
constexpr gs::u32 byte_copies = 1;
#else
constexpr gs::u32 byte_copies = 16;
#endif

// Counts the elements of x. If bin_of(x[i]) is not below `bins`, the element is not counted. Calls add(b, how many) for the bins, once or
// more in each block.
//
// `local` holds `copies` counters for each bin, a power of two. Lanes use different copies, which are in different banks of the shared
// memory: with one copy, lanes would often wait for each other because their bins are the same or in the same bank.
template <class T, class BinOf, class Add>
GS_INLINE void count_bins(const T* x, size_t n, gs::u32* local, gs::u32 copies, gs::u32 bins, BinOf bin_of, Add add) {
    const gs::u32 mask = copies - 1;
    gs::u32* const own = local + (gs::thread_in_block() & mask);
    for (size_t first = 0; first < n; first += most_at_once) {
        GS_FOR_EACH_IN_BLOCK(i, (size_t)bins * copies) local[i] = 0;
        __syncthreads();
        GS_FOR_EACH_WIDE_IN(gs::smaller(n - first, most_at_once), x + first, [=](T value) {
            const gs::u32 bin = bin_of(value);
            if (bin < bins) gs::shared_add(&own[bin * copies], 1u);
        });
        __syncthreads();
        GS_FOR_EACH_IN_BLOCK(b, bins) {
            gs::u32 total = 0;
            // Each thread begins with another copy, again because of the banks.
            for (gs::u32 c = 0; c < copies; ++c) total += local[b * copies + ((c + (gs::u32)b) & mask)];
            if (total != 0) add((gs::u32)b, total);
        }
        __syncthreads();
    }
}

#endif
