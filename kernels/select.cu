// Keeps some elements of an array, in their order. On GPUs one kernel reads each element once: a block counts what its tile
// keeps, learns from the tiles before how many they keep (`lookback.cuh`), and writes its own behind them. On the CPU each
// worker has a share, and a kernel is launched three times:
//
//   step 0   counts[b] = how many elements share b keeps     one block with one thread for each share
//   step 1   counts[b] = how many the shares before b keep   one block
//   step 2   each share writes what it keeps, from counts[b] on     as in step 0
//
// `kept_count` gets the number of elements. `rest` and `rest_count` get those that are not kept, if you pass them, also in their
// order.
#include "counted.cuh"
#include "lookback.cuh"
#include "order.cuh"
#include "tiles.cuh"

namespace {

// How many packs of sixteen bytes a thread has. `select.rs` knows this too.
template <class T>
GS_INLINE constexpr int select_packs(int most) {
    return sizeof(T) < 4 ? 2 : most;
}

// What decides which elements are kept. `in_tile` returns it for a thread's elements, as bits, and `at` for one
// element.

// Those whose flag is not zero.
template <class T>
struct Flagged {
    static constexpr bool looks_back = false;
    const unsigned char* flags;
    template <class Part>
    GS_INLINE gs::u32 in_tile(const Part& tile, T, const T (&)[Part::packs][Part::per_pack]) const {
        unsigned char flag[Part::packs][Part::per_pack];
        tile.load(flags, (unsigned char)0, flag);
        gs::u32 keep = 0;
        GS_UNROLL
        for (int p = 0; p < Part::packs; ++p) {
            GS_UNROLL
            for (int k = 0; k < Part::per_pack; ++k) {
                if (flag[p][k] != 0) keep |= Part::bit(p, k);
            }
        }
        return keep;
    }
    GS_INLINE bool at(const T*, size_t i) const { return flags[i] != 0; }
};

// Those whose rank is from `first` to `last`.
template <class T>
struct Within {
    static constexpr bool looks_back = false;
    Order<T> order;
    T first, last;
    GS_INLINE bool has(T x) const {
        const T rank = order.rank(x);
        return first <= rank && rank <= last;
    }
    template <class Part>
    GS_INLINE gs::u32 in_tile(const Part&, T, const T (&item)[Part::packs][Part::per_pack]) const {
        gs::u32 keep = 0;
        GS_UNROLL
        for (int p = 0; p < Part::packs; ++p) {
            GS_UNROLL
            for (int k = 0; k < Part::per_pack; ++k) {
                if (has(item[p][k])) keep |= Part::bit(p, k);
            }
        }
        return keep;
    }
    GS_INLINE bool at(const T* x, size_t i) const { return has(x[i]); }
};

// Those that differ from the element before them.
template <class T>
struct Heads {
    static constexpr bool looks_back = true;
    template <class Part>
    GS_INLINE gs::u32 in_tile(const Part& tile, T before_warp, const T (&item)[Part::packs][Part::per_pack]) const {
        return tile.heads(item, before_warp);
    }
    GS_INLINE bool at(const T* x, size_t i) const { return i == 0 || x[i] != x[i - 1]; }
};

// Where the elements go. `positions` get the indices of those that are kept.
template <class T>
struct Kept {
    T* kept;
    gs::u64* kept_count;
    T* rest;
    gs::u64* rest_count;
    gs::u32* positions;

    GS_INLINE void store_counts(gs::u64 count, size_t n) const {
        *kept_count = count;
        if (rest_count) *rest_count = n - count;
    }
};

// Returns element i of x, or i if there is no x.
template <class T>
GS_INLINE T element(const T* x, size_t i) {
    return x ? x[i] : (T)i;
}

template <int Packs, class T, class Keep>
GS_INLINE void select_tile(const T* x, size_t n, const gs::u64* count, const Keep& keeps, const Kept<T>& to, gs::u64* state,
                           size_t tiles) {
    typedef Tile<Packs, 16 / (int)sizeof(T)> Part;
    constexpr int packs = Part::packs, per_pack = Part::per_pack;
    __shared__ T staged[256 * Part::per_thread];
    __shared__ gs::u16 staged_at[256 * Part::per_thread];
    n = live(n, count);
    const Tiles all{state, tiles};
    const size_t number = all.take();
    if (number * Part::size() >= n) {
        if (number == 0 && gs::thread_in_block() == 0) to.store_counts(0, 0);
        return;
    }
    const Part tile(number, n);
    T item[packs][per_pack];
    const T before_warp = Keep::looks_back ? tile.before_warp(x) : T();
    if (x) {
        tile.load(x, T(), item);
    } else {
        GS_UNROLL
        for (int p = 0; p < packs; ++p) {
            GS_UNROLL
            for (int k = 0; k < per_pack; ++k) item[p][k] = (T)(tile.begin + tile.at(p, k));
        }
    }
    const gs::u32 keep = keeps.in_tile(tile, before_warp, item) & tile.existing();
    gs::u32 in_pack[packs][1], before[packs];
    GS_UNROLL
    for (int p = 0; p < packs; ++p) {
        constexpr gs::u32 pack = (gs::u32)(((gs::u64)1 << per_pack) - 1);
        in_pack[p][0] = (gs::u32)__popc((int)(keep >> (p * per_pack) & pack));
    }
    const gs::u32 total = scan_tile(in_pack, before, 0u, gs::Sum());
    // What is kept goes to the beginning of `staged` and the rest backwards to its end, so that the stores to memory are together.
    GS_UNROLL
    for (int p = 0; p < packs; ++p) {
        gs::u32 rank = before[p];
        GS_UNROLL
        for (int k = 0; k < per_pack; ++k) {
            const gs::u32 at = tile.at(p, k);
            if (keep & Part::bit(p, k)) {
                if (to.positions) staged_at[rank] = (gs::u16)at;
                staged[rank++] = item[p][k];
            } else if (to.rest && tile.has(p, k)) {
                staged[tile.len - 1 - (at - rank)] = item[p][k];
            }
        }
    }
    const size_t prefix = (size_t)all.before(number, Offset{total}, Offset{0}, AddOffsets()).at;
    if (!state) __syncthreads();
    for (gs::u32 i = gs::thread_in_block(); i < total; i += gs::threads_in_block()) {
        to.kept[prefix + i] = staged[i];
        if (to.positions) to.positions[prefix + i] = (gs::u32)(tile.begin + staged_at[i]);
    }
    if (to.rest) {
        T* const rest = to.rest + (tile.begin - prefix);
        for (gs::u32 i = gs::thread_in_block(); i < tile.len - total; i += gs::threads_in_block()) rest[i] = staged[tile.len - 1 - i];
    }
    if (tile.begin + tile.len == n && gs::thread_in_block() == 0) to.store_counts(prefix + total, n);
}

template <class T, class Keep>
GS_INLINE void select_shares(int step, const T* x, size_t n, const Keep& keeps, const Kept<T>& to, gs::u64* counts,
                             size_t shares) {
    if (step == 1) {
        gs::u64 carry = 0;
        for (size_t b = 0; b < shares; ++b) {
            const gs::u64 count = counts[b];
            counts[b] = carry;
            carry += count;
        }
        to.store_counts(carry, n);
        return;
    }
    const size_t b = gs::block_in_grid(), begin = gs::share_begin(n, b, gs::blocks_in_grid(), 64);
    const size_t end = gs::share_begin(n, b + 1, gs::blocks_in_grid(), 64);
    if (step == 0) {
        gs::u64 count = 0;
        for (size_t i = begin; i < end; ++i) count += keeps.at(x, i);
        counts[b] = count;
        return;
    }
    const bool is_last = b + 1 == gs::blocks_in_grid();
    const size_t kept_end = (size_t)(is_last ? *to.kept_count : counts[b + 1]), rest_end = to.rest ? end - kept_end : 0;
    size_t i = begin, at = (size_t)counts[b], at_rest = begin - at;
    // We store each element in both places and move on in one, because a processor would often guess a branch wrong.
    for (; i < end && at < kept_end && (!to.rest || at_rest < rest_end); ++i) {
        const bool keep = keeps.at(x, i);
        to.kept[at] = element(x, i);
        if (to.positions) to.positions[at] = (gs::u32)i;
        if (to.rest) to.rest[at_rest] = element(x, i);
        at += keep;
        at_rest += !keep;
    }
    // All others are of one kind.
    for (; i < end && at < kept_end; ++i, ++at) {
        to.kept[at] = element(x, i);
        if (to.positions) to.positions[at] = (gs::u32)i;
    }
    for (; i < end && at_rest < rest_end; ++i, ++at_rest) to.rest[at_rest] = element(x, i);
}

}  // namespace

/// Keeps the elements whose flag is not zero; without x, their indices. Each block has one tile. Without a state there is one block.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(flags), 1 <= len(count), n <= len(kept), 1 <= len(kept_count), n <= len(rest),
///           1 <= len(rest_count), 3 + tiles + tiles / 32 + tiles / 1024 + 2 <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: x, count, rest, rest_count, state
template <class T>
__global__ void __launch_bounds__(256, 4) select_flagged(const T* x, const unsigned char* flags, size_t n, const gs::u64* count,
                                                      T* kept, gs::u64* kept_count, T* rest, gs::u64* rest_count,
                                                      gs::u64* state, size_t tiles) {
    select_tile<select_packs<T>(5)>(x, n, count, Flagged<T>{flags}, Kept<T>{kept, kept_count, rest, rest_count, nullptr}, state, tiles);
}

/// Keeps the elements whose rank in the order of `if_set` and `if_clear` is from `first` to `last`. As `select_flagged`.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), n <= len(kept), 1 <= len(kept_count),
///           3 + tiles + tiles / 32 + tiles / 1024 + 2 <= len(state), block.x == 256, block.y == 1, block.z == 1
/// optional: count, state
template <class T>
__global__ void __launch_bounds__(256, 4) select_within(const T* x, gs::u64 first, gs::u64 last, gs::u64 if_set, gs::u64 if_clear,
                                                     size_t n, const gs::u64* count, T* kept, gs::u64* kept_count,
                                                     gs::u64* state, size_t tiles) {
    const Within<T> within{{(T)if_set, (T)if_clear}, (T)first, (T)last};
    select_tile<select_packs<T>(6)>(x, n, count, within, Kept<T>{kept, kept_count, nullptr, nullptr, nullptr}, state, tiles);
}

/// Keeps the first element of each run of equal elements, and its index if `positions` is there. As `select_flagged`.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), n <= len(kept), 1 <= len(kept_count), n <= len(positions),
///           3 + tiles + tiles / 32 + tiles / 1024 + 2 <= len(state), block.x == 256, block.y == 1, block.z == 1
/// optional: count, positions, state
template <class T>
__global__ void __launch_bounds__(256, 4) select_heads(const T* x, size_t n, const gs::u64* count, T* kept, gs::u64* kept_count,
                                                    gs::u32* positions, gs::u64* state, size_t tiles) {
    select_tile<select_packs<T>(6)>(x, n, count, Heads<T>(), Kept<T>{kept, kept_count, nullptr, nullptr, positions}, state, tiles);
}

/// lengths[i] = from positions[i] to the next position, or to the end of the n elements, for the `*runs` runs
/// requires: n <= len(positions), n <= len(lengths), 1 <= len(runs), 1 <= len(count)
/// covers: n
/// optional: count
extern "C" __global__ void run_lengths(const gs::u32* positions, const gs::u64* runs, gs::u32* lengths, size_t n,
                                       const gs::u64* count) {
    const size_t all = live(n, runs), end = live(n, count);
    GS_FOR_EACH(i, all) lengths[i] = (gs::u32)((i + 1 < all ? (size_t)positions[i + 1] : end) - positions[i]);
}

/// `select_flagged` on the CPU, in three steps.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(flags), 1 <= len(count), n <= len(kept), 1 <= len(kept_count), n <= len(rest),
///           1 <= len(rest_count), grid.x <= shares, shares <= len(counts), 0 <= step, step <= 2,
///           grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: x, count, rest, rest_count
template <class T>
__global__ void select_flagged_shares(int step, const T* x, const unsigned char* flags, size_t n, const gs::u64* count, T* kept,
                                      gs::u64* kept_count, T* rest, gs::u64* rest_count, gs::u64* counts, size_t shares) {
    const Kept<T> to{kept, kept_count, rest, rest_count, nullptr};
    select_shares(step, x, live(n, count), Flagged<T>{flags}, to, counts, shares);
}

/// `select_within` on the CPU, in three steps.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), n <= len(kept), 1 <= len(kept_count), grid.x <= shares, shares <= len(counts),
///           0 <= step, step <= 2, grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: count
template <class T>
__global__ void select_within_shares(int step, const T* x, gs::u64 first, gs::u64 last, gs::u64 if_set, gs::u64 if_clear,
                                     size_t n, const gs::u64* count, T* kept, gs::u64* kept_count, gs::u64* counts,
                                     size_t shares) {
    const Within<T> within{{(T)if_set, (T)if_clear}, (T)first, (T)last};
    const Kept<T> to{kept, kept_count, nullptr, nullptr, nullptr};
    select_shares(step, x, live(n, count), within, to, counts, shares);
}

/// `select_heads` on the CPU, in three steps.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), n <= len(kept), 1 <= len(kept_count), n <= len(positions), grid.x <= shares,
///           shares <= len(counts), 0 <= step, step <= 2, grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: count, positions
template <class T>
__global__ void select_heads_shares(int step, const T* x, size_t n, const gs::u64* count, T* kept, gs::u64* kept_count,
                                    gs::u32* positions, gs::u64* counts, size_t shares) {
    const Kept<T> to{kept, kept_count, nullptr, nullptr, positions};
    select_shares(step, x, live(n, count), Heads<T>(), to, counts, shares);
}
