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

// How bins are found. `quick` sets the bin that an element is in, or `bins` if it is in none. If it returns false, that is in doubt: then
// the bin is `bins`, and `slow` returns the right one.
template <class BinOf>
struct AlwaysQuick {
    BinOf bin_of;
    template <class T>
    GS_INLINE bool quick(T value, gs::u32& bin) const {
        bin = bin_of(value);
        return true;
    }
    template <class T>
    GS_INLINE gs::u32 slow(T value) const {
        return bin_of(value);
    }
};
template <class BinOf>
GS_INLINE AlwaysQuick<BinOf> always_quick(BinOf bin_of) {
    return {bin_of};
}

// Counts a pack. In most packs no lane is in doubt, so one branch decides for all of them.
template <class Find>
struct CountPack {
    const Find& find;
    gs::u32* own;
    gs::u32 copies;

    template <class T, int Size>
    GS_INLINE void operator()(const gs::Pack<T, Size>& pack) const {
        bool all_quick = true;
        GS_UNROLL
        for (int lane = 0; lane < Size; ++lane) {
            gs::u32 bin;
            all_quick &= find.quick(pack.at[lane], bin);
            gs::shared_add(&own[bin * copies], 1u);
        }
        if (all_quick) return;
        // With the slow ways of all lanes side by side, without branches, this would take longer.
        GS_UNROLL
        for (int lane = 0; lane < Size; ++lane) {
            gs::u32 bin;
            if (!find.quick(pack.at[lane], bin)) gs::shared_add(&own[find.slow(pack.at[lane]) * copies], 1u);
        }
    }
};

// Counts the elements of x in each bin. Calls add(b, how many) for the bins, once or more in each block.
//
// `local` holds `copies` counters for each bin, a power of two, and as many for elements that are in none: so no branch is needed for them.
// Lanes use different copies, which are in different banks of the shared memory: with one copy, lanes would often wait for each other
// because their bins are the same or in the same bank.
template <class T, class Find, class Add>
GS_INLINE void count_bins(const T* x, size_t n, gs::u32* local, gs::u32 copies, gs::u32 bins, const Find& find, Add add) {
    const gs::u32 mask = copies - 1;
    const CountPack<Find> count{find, local + (gs::thread_in_block() & mask), copies};
    for (size_t first = 0; first < n; first += most_at_once) {
        GS_FOR_EACH_IN_BLOCK(i, ((size_t)bins + 1) * copies) local[i] = 0;
        __syncthreads();
        gs::visit_packs(gs::smaller(n - first, most_at_once), x + first, count);
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
