// Prefixes over the tiles of an array, in one pass: each tile tells the others what its elements combine to, and learns what
// all tiles before it combine to.
//
// Merrill and Garland call this decoupled look-back ("Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA
// NVR-2016-002). There a tile takes the nearest prefix that is already known, so sums of floats depend on timing. Here 32
// tiles form a group, and 32 groups a row. A tile combines the rows before its own, the groups before its own in the row, and the
// tiles before it in the group, always in this order. So all types get the same bits in every run. A group's last tile
// publishes what the group combines to; if it has not yet done so, the others combine the group's tiles as it does. A
// row's last tile publishes what all rows so far combine to, so one tile in 1024 waits for a prefix that another tile had to
// wait for.
//
// A tile only waits for tiles with smaller numbers. Its block took its number from a ticket when it started, so the blocks
// of those tiles have started too, and no wait can be for ever.
#ifndef GPUSTREAM_KERNELS_LOOKBACK_CUH
#define GPUSTREAM_KERNELS_LOOKBACK_CUH

#include "words.cuh"

// Load and store two words on a 16-byte boundary. Each is loaded and stored whole, but not both together.
GS_INLINE void load_two_words(const gs::u64* words, gs::u64& first, gs::u64& second) {
#if defined(GS_CUDA)
    asm volatile("ld.relaxed.gpu.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(words) : "memory");
#else
    first = load_word(words);
    second = load_word(words + 1);
#endif
}
GS_INLINE void store_two_words(gs::u64* words, gs::u64 first, gs::u64 second) {
#if defined(GS_CUDA)
    asm volatile("st.relaxed.gpu.v2.u64 [%0], {%1, %2};" ::"l"(words), "l"(first), "l"(second) : "memory");
#else
    store_word(words, first);
    store_word(words + 1, second);
#endif
}

// A value that one block publishes and others read: four bytes of it in each word, below a bit that says that they are there.
// So a reader needs no fence: each word is there with its part, or not at all. Words begin as zero.
template <class V>
struct Published {
    static constexpr int parts = (sizeof(V) + 3) / 4, words = parts < 3 ? parts : (parts + 1) / 2 * 2;
    static constexpr gs::u64 there = (gs::u64)1 << 32;
    gs::u64 word[words];

    static GS_INLINE void store(gs::u64* at, const V& value) {
        gs::u32 part[words] = {};
        GS_MEMCPY_(part, &value, sizeof(V));
        if (words == 1) store_word(at, there | part[0]);
        GS_UNROLL
        for (int w = 0; w + 1 < words; w += 2) store_two_words(at + w, there | part[w], there | part[w + 1]);
    }
    // Looks once. If you look at several values before you wait for the first, the loads overlap.
    GS_INLINE void look(const gs::u64* at) {
        if (words == 1) word[0] = load_word(at);
        GS_UNROLL
        for (int w = 0; w + 1 < words; w += 2) load_two_words(at + w, word[w], word[w + 1]);
    }
    // Returns whether the last look saw the value.
    GS_INLINE bool is_there() const {
        gs::u64 all = there;
        GS_UNROLL
        for (int w = 0; w < words; ++w) all &= word[w];
        return all != 0;
    }
    GS_INLINE V value() const {
        gs::u32 part[words];
        GS_UNROLL
        for (int w = 0; w < words; ++w) part[w] = (gs::u32)word[w];
        V value;
        GS_MEMCPY_(&value, part, sizeof(V));
        return value;
    }
};

// How many elements there are before a place. It has no more than 63 bits, so a word is enough.
struct Offset {
    gs::u64 at;
};
template <>
struct Published<Offset> {
    static constexpr int words = 1;
    static constexpr gs::u64 there = (gs::u64)1 << 63;
    gs::u64 word;

    static GS_INLINE void store(gs::u64* at, Offset value) { store_word(at, there | value.at); }
    GS_INLINE void look(const gs::u64* at) { word = load_word(at); }
    GS_INLINE bool is_there() const { return (word & there) != 0; }
    GS_INLINE Offset value() const { return Offset{word & ~there}; }
};
struct AddOffsets {
    GS_INLINE Offset operator()(Offset a, Offset b) const { return Offset{a.at + b.at}; }
};

// The tiles' states in device memory, all zero at first: the ticket, then what each tile, group and row combines to. If there
// is no memory, there is one tile. `tiles.rs` computes the size.
struct Tiles {
    gs::u64* state;
    size_t capacity;  // how many tiles the memory has room for

    // Returns the number of this block's tile. All threads of the block must come here.
    GS_INLINE size_t take() const {
        __shared__ gs::u64 number;
        if (!state) return gs::block_in_grid();
        if (gs::thread_in_block() == 0) number = gs::atomic_add(state, (gs::u64)1);
        __syncthreads();
        return (size_t)number;
    }

    // Returns what all tiles before `tile` combine to, if this one combines to `total`. `op` must be associative. All threads of
    // the block must come here.
    template <class V, class Op>
    GS_INLINE V before(size_t tile, V total, V identity, Op op) const {
        typedef Published<V> P;
        __shared__ V prefix;
        if (!state) return identity;
        gs::u64* const of_tile = state + 2;
        gs::u64* const of_group = of_tile + capacity * P::words;
        gs::u64* const of_row = of_group + (capacity / 32 + 1) * P::words;
        if (gs::thread_in_block() == 0) P::store(of_tile + tile * P::words, total);
        if (gs::warp_in_block() == 0) {
            const gs::u32 lane = gs::lane(), in_group = (gs::u32)tile % 32, in_row = (gs::u32)(tile / 32) % 32;
            const size_t group = tile / 32, row = tile / 1024, row_begin = row * 32;
            if (tile >= 256) let_others_publish();
            // We look at everything before we wait for anything, because then the loads overlap.
            const gs::u64* at = of_tile + (group * 32 + lane) * P::words;
            const gs::u64* at_group = of_group + (row_begin + lane) * P::words;
            P seen, seen_group, seen_row;
            if (lane < in_group) seen.look(at);
            if (lane < in_row) seen_group.look(at_group);
            if (lane == 0 && row > 0) seen_row.look(of_row + row * P::words);
            const V by_tiles = combine(seen, at, lane < in_group, identity, op);
            if (in_group == 31) {
                const V by_group = op(by_tiles, total);
                if (lane == 0) P::store(of_group + group * P::words, by_group);
            }
            // The groups of this row. If a group's total is missing, we combine its tiles, and look at the other totals again.
            V value = identity;
            bool is_missing = lane < in_row;
            for (;;) {
                if (is_missing && seen_group.is_there()) {
                    value = seen_group.value();
                    is_missing = false;
                }
                const gs::u64 missing = gs::ballot(is_missing);
                if (missing == 0) break;
                const gs::u32 which = (gs::u32)__ffsll((long long)missing) - 1;
                const gs::u64* const its = of_tile + ((row_begin + which) * 32 + lane) * P::words;
                if (lane < 32) seen.look(its);
                if (is_missing) seen_group.look(at_group);
                // In the order in which the group's last tile combines them.
                const V first = combine(seen, its, lane < 31, identity, op);
                const V last = gs::shfl(lane == 31 ? wait(seen, its) : identity, 31);
                if (lane == which) {
                    value = op(first, last);
                    is_missing = false;
                }
            }
            value = gs::shfl(gs::warp_inclusive_scan(value, op), 31);
            if (lane == 0) {
                value = op(value, by_tiles);
                if (row > 0) value = op(wait(seen_row, of_row + row * P::words), value);
                if (in_row == 31 && in_group == 31) P::store(of_row + (row + 1) * P::words, op(value, total));
                prefix = value;
            }
        }
        __syncthreads();
        return prefix;
    }

private:
    // Waits until a value that this thread has looked at is there.
    template <class V>
    static GS_INLINE V wait(Published<V>& seen, const gs::u64* at) {
        while (!seen.is_there()) seen.look(at);
        return seen.value();
    }

    // Combines the values of the lanes that have one. All lanes get the result.
    template <class V, class Op>
    static GS_INLINE V combine(Published<V>& seen, const gs::u64* at, bool has_one, V identity, Op op) {
        const V value = has_one ? wait(seen, at) : identity;
        return gs::shfl(gs::warp_inclusive_scan(value, op), 31);
    }

    // Gives the tiles that started just before this one the time to publish. If hundreds of blocks look in vain again and again,
    // they slow down those that load elements. The first tiles start together, and the device is not yet busy.
    static GS_INLINE void let_others_publish() {
#if defined(GS_CUDA)
        __nanosleep(1200);
#endif
    }
};

#endif
