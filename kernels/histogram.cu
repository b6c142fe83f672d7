// Histograms of bytes and of floats. All bins of floats have the same width.
#include "count_bins.cuh"

/// bins[v] += number of x[i] that equal v, for each of the 256 byte values
/// requires: n <= len(x), 256 <= len(bins)
/// covers: n
extern "C" __global__ void histogram_u8(const unsigned char* __restrict__ x, unsigned long long* __restrict__ bins, size_t n) {
    __shared__ unsigned int local[257 * byte_copies];
    count_bins(
        x, n, gs::shared_address(local), byte_copies, 256, always_quick([](unsigned char value) { return (gs::u32)value; }),
        [=](gs::u32 byte, gs::u32 more) { gs::atomic_add(&bins[byte], (gs::u64)more); });
}

/// bins[b] += number of x[i] in bin b of `bin_count` equal bins over low..high; `high` itself and NaN are outside. The
/// counters are in dynamic shared memory, 4 bytes each, with one more for elements outside.
/// requires: n <= len(x), bin_count <= len(bins), 4 * (bin_count + 1) <= shared
extern "C" __global__ void histogram_f32(const float* __restrict__ x, unsigned long long* __restrict__ bins, size_t n,
                                         float low, float high, unsigned int bin_count) {
    extern __shared__ unsigned int histogram_counters[];
    const float scale = (float)bin_count / (high - low);
    const auto bin_of = [=](float value) {
        if (!(value >= low && value < high)) return bin_count;
        // Because of rounding, a value just below `high` may land after the last bin, so we must check.
        const unsigned int bin = (unsigned int)((value - low) * scale);
        return bin < bin_count ? bin : bin_count - 1;
    };
    count_bins(x, n, gs::shared_address(histogram_counters), 1, bin_count, always_quick(bin_of),
               [=](gs::u32 bin, gs::u32 more) { gs::atomic_add(&bins[bin], (gs::u64)more); });
}
