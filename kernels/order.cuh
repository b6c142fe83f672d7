// Keys as unsigned integers that have the keys' order, so that one instance of a kernel serves all types with one width.
//
// We invert bits of a key by one of two masks: one for keys whose top bit is set, and one for the others. The host chooses
// them (`order.rs`). For ascending order they are
//
//   unsigned   nothing          nothing
//   signed     the top bit      the top bit
//   float      all bits         the top bit      total order, as Rust's total_cmp
//
// and for descending order the complements.
#ifndef GPUSTREAM_KERNELS_ORDER_CUH
#define GPUSTREAM_KERNELS_ORDER_CUH

#include <gpustream/kernel.cuh>

template <class Bits>
struct Order {
    Bits if_set, if_clear;

    static constexpr Bits top = (Bits)((Bits)1 << (sizeof(Bits) * 8 - 1));

    // Returns the integer that has the key's place in the order.
    GS_INLINE Bits rank(Bits key) const {
#if defined(GS_CPU)
        // A choice may become a branch, which a processor guesses wrong for half of all random keys.
        const Bits all_if_set = (Bits)(0 - (Bits)(key >> (sizeof(Bits) * 8 - 1)));
        return (Bits)(key ^ if_clear ^ (all_if_set & (if_set ^ if_clear)));
#else
        return (Bits)(key ^ (key & top ? if_set : if_clear));
#endif
    }
    // Returns the key that has this rank. If the first guess has its top bit set, it was right: for all the masks above, a key
    // without it cannot give such a guess.
    GS_INLINE Bits key(Bits rank) const {
        const Bits guess = (Bits)(rank ^ if_set);
        return guess & top ? guess : (Bits)(rank ^ if_clear);
    }
};

#endif
