// Where values belong in sorted keys. Each thread looks for its values one after another: all threads of a warp halve the same
// keys first, so these come from the caches.
#include "counted.cuh"
#include "order.cuh"
#include "search.cuh"

/// Sets place i to the number of keys that come before values[i] in the order of `if_set` and `if_clear` (`order.cuh`); with `upper`,
/// to the number of keys that do not come after it. Places have 32 bits or 64.
/// types: K = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(keys), 1 <= len(count), m <= len(values), 1 <= len(values_count), m <= len(places), m <= len(long_places)
/// optional: count, values_count, places, long_places
/// covers: m
template <class K>
__global__ void search(const K* __restrict__ keys, size_t n, const gs::u64* __restrict__ count, const K* __restrict__ values,
                       size_t m, const gs::u64* __restrict__ values_count, bool upper, gs::u64 if_set, gs::u64 if_clear,
                       gs::u32* __restrict__ places, gs::u64* __restrict__ long_places) {
    const Order<K> order{(K)if_set, (K)if_clear};
    const size_t keys_there = live(n, count);
    GS_FOR_EACH(i, live(m, values_count)) {
        const K rank = order.rank(values[i]);
        const size_t place = first_not(keys_there, [=](size_t at) {
            const K other = order.rank(keys[at]);
            return upper ? other <= rank : other < rank;
        });
        if (places) places[i] = (gs::u32)place;
        if (long_places) long_places[i] = place;
    }
}
