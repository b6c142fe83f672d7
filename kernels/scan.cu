// Inclusive scan (running sum) in three launches, so that no block must ever wait for another. The first and the last
// must have the same shape:
//
//   scan_totals   totals[b] = sum of chunk b      one chunk per block
//   scan_offsets  totals[b] = sum of the chunks before b      one block
//   scan_chunks   y = running sum of each chunk, starting from totals[b]
//
// The scan reads the input twice. Integers wrap around.
#include <gpustream/kernel.cuh>

namespace {

// How many elements one thread scans at a time.
template <class T>
struct Items {
    static constexpr int count = 64 / sizeof(T);
};

// Returns the beginning of chunk b of n elements. A chunk is a whole number of tiles, and a tile has block size times
// items per thread elements.
template <class T>
GS_INLINE size_t chunk_begin(size_t n, size_t b) {
    return gs::share_begin(n, b, gs::blocks_in_grid(), (size_t)gs::threads_in_block() * Items<T>::count);
}

// Returns x[i] + x[i + step] + ... below `end`. We keep several partial sums, because then several elements are
// under way at once.
template <class T>
GS_INLINE T strided_sum(const T* x, size_t i, size_t end, size_t step) {
    constexpr int items = Items<T>::count;
    T acc[items] = {};
    for (; i < end && end - i > (items - 1) * step; i += items * step) {
        GS_UNROLL
        for (int k = 0; k < items; ++k) acc[k] += x[i + k * step];
    }
    for (; i < end; i += step) acc[0] += x[i];
    GS_UNROLL
    for (int k = 1; k < items; ++k) acc[0] += acc[k];
    return acc[0];
}

// Load and store elements first .. first + Items of x; from `end` on, a load gives 0 and a store does nothing.
template <class T>
GS_INLINE void load_items(const T* x, size_t first, size_t end, bool wide, T* item) {
    constexpr int items = Items<T>::count, lanes = gs::pack_size<T>();
    if (wide && first + items <= end) {
        GS_UNROLL
        for (int k = 0; k < items; k += lanes) {
            const gs::Pack<T> pack = gs::load_wide(x + first + k);
            GS_UNROLL
            for (int l = 0; l < lanes; ++l) item[k + l] = pack.at[l];
        }
    } else {
        GS_UNROLL
        for (int k = 0; k < items; ++k) item[k] = first + k < end ? x[first + k] : T(0);
    }
}
template <class T>
GS_INLINE void store_items(T* y, size_t first, size_t end, bool wide, const T* item) {
    constexpr int items = Items<T>::count, lanes = gs::pack_size<T>();
    if (wide && first + items <= end) {
        GS_UNROLL
        for (int k = 0; k < items; k += lanes) {
            gs::Pack<T> pack;
            GS_UNROLL
            for (int l = 0; l < lanes; ++l) pack.at[l] = item[k + l];
            gs::store_wide(y + first + k, pack);
        }
    } else {
        GS_UNROLL
        for (int k = 0; k < items; ++k) {
            if (first + k < end) y[first + k] = item[k];
        }
    }
}

}  // namespace

/// totals[b] = sum of chunk b of x; block b has chunk b
/// types: T = float, double, unsigned int, unsigned long long
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(totals)
template <class T>
__global__ void scan_totals(const T* __restrict__ x, T* __restrict__ totals, size_t n) {
    const size_t b = gs::block_in_grid(), begin = chunk_begin<T>(n, b), end = chunk_begin<T>(n, b + 1);
    const unsigned int thread = gs::thread_in_block(), threads = gs::threads_in_block();
    if (threads == 1) {
        // The CPU backend launches this case: with a constant step, the compiler can vectorise the
        // sum.
        totals[b] = strided_sum(x, begin, end, 1);
        return;
    }
    const T total = gs::block_reduce(strided_sum(x, begin + thread, end, threads), gs::Sum());
    if (thread == 0) totals[b] = total;
}

/// totals[b] = sum of totals[0..b]
/// types: T = float, double, unsigned int, unsigned long long
/// requires: count <= len(totals)
template <class T>
__global__ void scan_offsets(T* __restrict__ totals, size_t count) {
    if (gs::block_in_grid() != 0) return;
    T carry = 0;
    for (size_t first = 0; first < count; first += gs::threads_in_block()) {
        const size_t i = first + gs::thread_in_block();
        const gs::BlockScan<T> scan = gs::block_scan(i < count ? totals[i] : T(0), T(0), gs::Sum());
        if (i < count) totals[i] = carry + scan.before;
        carry += scan.total;
    }
}

/// y[i] = offsets[b] + sum of chunk b of x up to and with i
/// types: T = float, double, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(y), grid.x * grid.y * grid.z <= len(offsets)
template <class T>
__global__ void scan_chunks(const T* __restrict__ x, const T* __restrict__ offsets, T* __restrict__ y, size_t n) {
    const size_t b = gs::block_in_grid(), begin = chunk_begin<T>(n, b), end = chunk_begin<T>(n, b + 1);
    constexpr int items = Items<T>::count;
    const bool wide = gs::on_boundary(x, y);
    T carry = offsets[b];
    if (gs::threads_in_block() == 1) {
        for (size_t i = begin; i < end; ++i) y[i] = carry += x[i];
        return;
    }
    for (size_t tile = begin; tile < end; tile += (size_t)gs::threads_in_block() * items) {
        const size_t first = tile + (size_t)gs::thread_in_block() * items;
        T item[items];
        load_items(x, first, end, wide, item);
        GS_UNROLL
        for (int k = 1; k < items; ++k) item[k] += item[k - 1];
        const gs::BlockScan<T> scan = gs::block_scan(item[items - 1], T(0), gs::Sum());
        const T before = carry + scan.before;
        GS_UNROLL
        for (int k = 0; k < items; ++k) item[k] += before;
        store_items(y, first, end, wide, item);
        carry += scan.total;
    }
}
