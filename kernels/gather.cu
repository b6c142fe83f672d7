// Elements in another order.
#include "counted.cuh"

/// Element i of `to` becomes element index[i] of `from`. An element is `words` words. If there is no such element, it becomes zero.
/// Indices have 32 bits or 64.
/// types: Word = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: 1 <= len(count), n <= len(index), n <= len(long_index), elements * words <= len(from), n * words <= len(to)
/// optional: index, long_index, count
/// covers: n
template <class Word>
__global__ void gather(const Word* __restrict__ from, const gs::u32* __restrict__ index, const gs::u64* __restrict__ long_index,
                       Word* __restrict__ to, size_t n, const gs::u64* __restrict__ count, size_t elements, unsigned int words) {
    GS_FOR_EACH(i, live(n, count)) {
        const size_t at = index ? index[i] : long_index ? (size_t)long_index[i] : elements;
        if (words == 1) {
            to[i] = at < elements ? from[at] : Word(0);
        } else {
            for (unsigned int w = 0; w < words; ++w) to[i * words + w] = at < elements ? from[at * words + w] : Word(0);
        }
    }
}
