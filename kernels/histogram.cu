// Histograms: each block counts in shared memory and adds its counts to the result once. If all threads counted in the
// result, many would have to wait for the same word.
#include <gpustream/kernel.cuh>

namespace {

// A block's counters have 32 bits, so we add them to the result before they can overflow.
constexpr size_t most_at_once = (size_t)1 << 31;

// Counts the elements of x in `bins`, through `local`, which holds the block's counters. If bin_of(x[i]) is not below
// `count`, the element is not counted.
template <class T, class BinOf>
GS_INLINE void count_bins(const T* x, size_t n, unsigned int* local, unsigned long long* bins,
                                           unsigned int count, BinOf bin_of) {
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

}  // namespace

/// bins[v] += number of x[i] that equal v, for each of the 256 byte values
/// requires: n <= len(x), 256 <= len(bins)
/// covers: n
extern "C" __global__ void histogram_u8(const unsigned char* __restrict__ x, unsigned long long* __restrict__ bins, size_t n) {
    __shared__ unsigned int local[256];
    count_bins(x, n, gs::shared_address(local), bins, 256, [](unsigned char value) { return (unsigned int)value; });
}

/// bins[b] += number of x[i] in bin b of `bin_count` equal bins over low..high; `high` itself and NaN are outside. The
/// counters are in dynamic shared memory, 4 bytes each.
/// requires: n <= len(x), bin_count <= len(bins), 4 * bin_count <= shared
extern "C" __global__ void histogram_f32(const float* __restrict__ x, unsigned long long* __restrict__ bins, size_t n,
                                         float low, float high, unsigned int bin_count) {
    extern __shared__ unsigned int histogram_counters[];
    const float scale = (float)bin_count / (high - low);
    count_bins(x, n, gs::shared_address(histogram_counters), bins, bin_count, [=](float value) {
        if (!(value >= low && value < high)) return bin_count;
        // Because of rounding, a value just below `high` may land after the last bin, so we must check.
        const unsigned int bin = (unsigned int)((value - low) * scale);
        return bin < bin_count ? bin : bin_count - 1;
    });
}
