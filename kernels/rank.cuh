// What keys are worth if you look for the largest one, and NaN must never be it.
#ifndef GPUSTREAM_KERNELS_RANK_CUH
#define GPUSTREAM_KERNELS_RANK_CUH

#include <gpustream/kernel.cuh>

#include "order.cuh"

// Ranks of keys: larger ones for keys that come first, and 0 for NaN. The host chooses an order that has the first key last.
// `numbers` is the largest key below the top bit that is a number: that of infinity for floats, all bits for integers.
template <class Bits>
struct Ranks {
    Order<Bits> order;
    Bits numbers;

    GS_INLINE Bits of(Bits key) const {
        // There are no 8-bit floats, and the two masks of an integer are equal.
        if (sizeof(Bits) == 1) return (Bits)(key ^ order.if_clear);
        return (Bits)(key & (Bits)(Order<Bits>::top - 1)) > numbers ? (Bits)0 : order.rank(key);
    }
};

#endif
