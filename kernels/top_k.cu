// The first elements of an order, without a sort: the largest ones, or the smallest ones.
//
// A row is cut into parts, a block finds its part's first elements, and all of them together are a shorter row. After two or
// three rounds one part is left, and its elements are the result. Parts follow each other in the row, so equal elements never
// change their order, and "the lowest index first" holds from round to round.
//
// How does a block find the first k elements of a part?
//
//   1. It deals some of the elements out to groups, more than k of them, and notes the largest of each. At least k elements are
//      not below the k-th largest of these maxima, because so many groups have one. This is the bound.
//   2. It reads the part and collects the elements that are not below the bound. With random elements these are few: if all
//      elements were dealt out, about k; if every s-th was, about s k.
//   3. It sorts them in shared memory.
//
// If there are more than fit (because many are equal, or the order of the elements is unlucky), the block finds an exact bound
// first, digit by digit: it counts how often each value of the topmost digit occurs, knows in which of them number k lies, and
// goes on with the next digit of these elements alone. If equal elements are still too many after the last digit, their places
// are the next digits. So each input takes a fixed number of rounds at most, and is read as often.
//
// If k is larger than what a block can sort, all blocks together find the rank of number k, in the same way: digit by digit, with
// the counters in memory and a launch for each step. Then they copy the elements that come before it in the order of their places, as
// many of the equal ones as are needed, and these few elements are sorted by their ranks. If they would not be few, all are sorted.
//
// The first key has the largest rank (rank.cuh). NaN has rank 0, so it comes last in both directions.
#include <gpustream/kernel.cuh>

#include "counted.cuh"
#include "rank.cuh"

#if defined(GS_CPU)
#include <algorithm>
#endif

namespace {

// How many elements a block can sort.
constexpr gs::u32 room = 2048;
// How many bits a digit has, and how many values.
constexpr int digit_bits = 11;
constexpr gs::u32 digits = 1u << digit_bits;
// How many groups a thread has.
constexpr int groups = 4;

// A rank in a register, and with its place in the part.
template <class Bits>
struct Words {
    typedef gs::u32 Rank;
};
template <>
struct Words<gs::u64> {
    typedef gs::u64 Rank;
};
template <class Rank>
struct alignas(2 * sizeof(Rank)) Item {
    Rank rank;
    gs::u32 place;

    GS_INLINE bool before(const Item& other) const {
        return rank > other.rank || (rank == other.rank && place < other.place);
    }
};

// The last item that is collected.
template <class Rank>
struct Bound {
    Rank rank;
    gs::u32 place;

    GS_INLINE bool takes(Rank other, gs::u32 at) const { return other > rank || (other == rank && at <= place); }
};

// The value of a digit among the elements that are counted, how many of these have a larger value, and how many have it.
struct Digit {
    gs::u32 value, above, equal;
};

// The block's shared memory.
template <class Rank>
struct Shared {
    Item<Rank> item[room + 1];
    gs::u32 count[digits];
    gs::u32 found;
    Digit digit;
};

// Finds the digit of number `need`, counted from the largest, and clears the counters.
template <class Rank>
GS_INLINE Digit choose_digit(Shared<Rank>& shared, gs::u32 need) {
    const gs::u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    const gs::u32 each = (digits + threads - 1) / threads, first = thread * each;
    gs::u32 mine = 0;
    for (gs::u32 d = first; d < first + each && d < digits; ++d) mine += shared.count[digits - 1 - d];
    gs::u32 above = gs::block_scan(mine, 0u, gs::Sum()).before;
    if (above < need && need <= above + mine) {
        gs::u32 value = digits - 1 - first;
        for (; above + shared.count[value] < need; --value) above += shared.count[value];
        shared.digit = Digit{value, above, shared.count[value]};
    }
    __syncthreads();
    const Digit digit = shared.digit;
    for (gs::u32 d = thread; d < digits; d += threads) shared.count[d] = 0;
    __syncthreads();
    return digit;
}

// Counts digits. Equal ones often follow each other, and then a thread adds them up first.
struct Counter {
    gs::u32 *count, value = 0, times = 0;

    GS_INLINE explicit Counter(gs::u32* count) : count(count) {}
    GS_INLINE void add(gs::u32 digit) {
        if (digit != value) {
            flush();
            value = digit;
        }
        ++times;
    }
    GS_INLINE void flush() {
        if (times) gs::shared_add(count + value, times);
        times = 0;
    }
};

// Calls visit(key, lane) for the keys of a pack. This is a loop that finds them by shifts, because an array in registers has no
// address, and because the code of all visits together would be large.
template <class Bits, class Visit>
GS_INLINE void for_each_key(const gs::Pack<Bits>& pack, Visit visit) {
    constexpr int bits = 8 * sizeof(Bits), lanes = gs::pack_size<Bits>();
    gs::u64 word[2];
    GS_MEMCPY_(word, &pack, 16);
    for (int lane = 0; lane < lanes; ++lane) {
        visit((Bits)word[0], lane);
        word[0] = bits == 64 ? word[1] : word[0] >> (bits % 64) | word[1] << ((64 - bits) % 64);
        word[1] >>= bits % 64;
    }
}

// Calls visit(rank, place) for begin <= place < end, with `batch` packs under way at once.
template <class Rank, int batch, class Bits, class Visit>
GS_INLINE void for_each_rank(const Bits* x, size_t begin, size_t end, Ranks<Bits> ranks, Visit visit) {
    constexpr int lanes = gs::pack_size<Bits>();
    if (begin >= end) return;
    const size_t step = gs::threads_in_block(), n = end - begin;
    const size_t head = gs::smaller(gs::to_boundary(x + begin), n), packs = (n - head) / lanes, whole = packs * lanes;
    const size_t first = begin + head;
    const auto visit_pack = [&](const gs::Pack<Bits>& pack, size_t i) {
        for_each_key(pack, [&](Bits key, int lane) { visit((Rank)ranks.of(key), (gs::u32)(i + lane)); });
    };
    size_t p = gs::thread_in_block();
    for (; p < packs && packs - p > (batch - 1) * step; p += batch * step) {
        gs::Pack<Bits> pack[batch];
        GS_UNROLL
        for (int b = 0; b < batch; ++b) pack[b] = gs::load_wide(x + first + (p + b * step) * lanes);
        GS_UNROLL
        for (int b = 0; b < batch; ++b) visit_pack(pack[b], first + (p + b * step) * lanes);
    }
    for (; p < packs; p += step) visit_pack(gs::load_wide(x + first + p * lanes), first + p * lanes);
    for (size_t r = gs::thread_in_block(); r < n - whole; r += step) {
        const size_t i = begin + (r < head ? r : whole + r);
        visit((Rank)ranks.of(x[i]), (gs::u32)i);
    }
}

// Finds a bound that takes at least k items, and no more than there is room for.
template <class Rank, class Bits>
GS_INLINE Bound<Rank> exact_bound(const Bits* x, gs::u32 n, Ranks<Bits> ranks, gs::u32 k, Shared<Rank>& shared) {
    // With more of them, two blocks of 512 threads would not have enough registers.
    constexpr int few = sizeof(Bits) == 4 ? 2 : 1;
    gs::u32 need = k;
    Rank rank = 0, known = 0;
    for (int left = 8 * sizeof(Bits); left > 0;) {
        const int width = left < digit_bits ? left : digit_bits;
        left -= width;
        const gs::u32 mask = (1u << width) - 1;
        Counter counter(shared.count);
        for_each_rank<Rank, few>(x, 0, n, ranks, [&](Rank other, gs::u32) {
            if ((other & known) == rank) counter.add((gs::u32)(other >> left) & mask);
        });
        counter.flush();
        __syncthreads();
        const Digit digit = choose_digit(shared, need);
        need -= digit.above;
        rank |= (Rank)digit.value << left;
        known |= (Rank)mask << left;
        if (k - need + digit.equal <= room) return Bound<Rank>{rank, ~0u};
    }
    // Among equal elements the lowest places come first, so the digits are those of the complement.
    int left = 0;
    while (left < 32 && (n - 1) >> left) ++left;
    gs::u32 fixed = left < 32 ? ~0u << left : 0u, place = fixed;
    while (left > 0) {
        const int width = left < digit_bits ? left : digit_bits;
        left -= width;
        const gs::u32 mask = (1u << width) - 1;
        const size_t last = (size_t)(gs::u32)~place + 1;
        Counter counter(shared.count);
        for_each_rank<Rank, few>(x, ~place & fixed, gs::smaller(n, last), ranks, [&](Rank other, gs::u32 at) {
            if (other == rank) counter.add(~at >> left & mask);
        });
        counter.flush();
        __syncthreads();
        const Digit digit = choose_digit(shared, need);
        need -= digit.above;
        place |= digit.value << left;
        fixed |= mask << left;
        if (k - need + digit.equal <= room) break;
    }
    return Bound<Rank>{rank, ~place};
}

// Finds a rank that at least k elements reach, by the maxima of groups. Reads a pack of 16 bytes of each `step`.
template <class Rank, class Bits>
GS_INLINE Rank bound_of_maxima(const Bits* x, gs::u32 n, Ranks<Bits> ranks, gs::u32 k, gs::u32 step, Shared<Rank>& shared) {
    constexpr int lanes = gs::pack_size<Bits>(), batch = 4;
    const gs::u32 threads = gs::threads_in_block(), head = (gs::u32)gs::to_boundary(x);
    const gs::u32 packs = n > head ? (n - head) / lanes : 0;
    const size_t stride = (size_t)threads * step;
    Rank most[groups] = {};
    for (size_t p = gs::thread_in_block(); p < packs; p += batch * stride) {
        gs::Pack<Bits> pack[batch];
        GS_UNROLL
        for (int b = 0; b < batch; ++b) {
            // Reading the first pack again does no harm: it belongs to the same groups.
            const size_t at = p + b * stride < packs ? p + b * stride : p;
            pack[b] = gs::load_wide(x + head + at * lanes);
        }
        GS_UNROLL
        for (int b = 0; b < batch; ++b) {
            if (p + b * stride >= packs) continue;
            GS_UNROLL
            for (int lane = 0; lane < lanes; ++lane) {
                const Rank rank = ranks.of(pack[b].at[lane]);
                Rank& group = most[(lane + lanes * b) % groups];
                if (rank > group) group = rank;
            }
        }
    }
    Rank rank = 0, known = 0;
    for (int left = 8 * sizeof(Bits); left > 0;) {
        const int width = left < digit_bits ? left : digit_bits;
        left -= width;
        const gs::u32 mask = (1u << width) - 1;
        GS_UNROLL
        for (int g = 0; g < groups; ++g) {
            if ((most[g] & known) == rank) gs::shared_add(shared.count + ((gs::u32)(most[g] >> left) & mask), 1u);
        }
        __syncthreads();
        const Digit digit = choose_digit(shared, k);
        k -= digit.above;
        rank |= (Rank)digit.value << left;
        known |= (Rank)mask << left;
    }
    return rank;
}

// Collects the items that the bound takes. Returns how many there are; if there is no room for all, some number above that.
template <class Rank, class Bits>
GS_INLINE gs::u32 collect(const Bits* x, gs::u32 n, Ranks<Bits> ranks, Bound<Rank> bound, Shared<Rank>& shared) {
    constexpr int lanes = gs::pack_size<Bits>(), batch = 4;
    const gs::u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    if (thread == 0) shared.found = 0;
    __syncthreads();
    const auto offer = [&](Bits key, size_t i) {
        const Rank rank = ranks.of(key);
        if (!bound.takes(rank, (gs::u32)i)) return;
        const gs::u32 at = gs::shared_add(&shared.found, 1u);
        if (at < room) shared.item[at] = Item<Rank>{rank, (gs::u32)i};
    };
    // A pack without such an item is the rule, so we look at its largest rank first.
    const auto offer_pack = [&](const gs::Pack<Bits>& pack, size_t i) {
        Rank most = 0;
        GS_UNROLL
        for (int lane = 0; lane < lanes; ++lane) {
            const Rank rank = ranks.of(pack.at[lane]);
            if (rank > most) most = rank;
        }
        if (most < bound.rank) return;
        for_each_key(pack, [&](Bits key, int lane) { offer(key, i + lane); });
    };
    const size_t head = gs::smaller(gs::to_boundary(x), n), packs = (n - head) / lanes, whole = packs * lanes;
    const volatile gs::u32* found = &shared.found;
    size_t p = thread;
    for (; p < packs && packs - p > (batch - 1) * (size_t)threads && *found <= room; p += batch * (size_t)threads) {
        gs::Pack<Bits> pack[batch];
        GS_UNROLL
        for (int b = 0; b < batch; ++b) pack[b] = gs::load_wide(x + head + (p + b * (size_t)threads) * lanes);
        GS_UNROLL
        for (int b = 0; b < batch; ++b) offer_pack(pack[b], head + (p + b * (size_t)threads) * lanes);
    }
    for (; p < packs && *found <= room; p += threads) offer_pack(gs::load_wide(x + head + p * lanes), head + p * lanes);
    for (size_t r = thread; r < n - whole; r += threads) {
        const size_t i = r < head ? r : whole + r;
        offer(x[i], i);
    }
    __syncthreads();
    const gs::u32 result = shared.found;
    __syncthreads();
    return result;
}

// Sorts the first `count` items, and others behind them: thread number `thread` of the `threads` of a block. Pairs that are at
// most `near` apart always belong to the same warp, and then nothing else has to wait. If `threads` is a warp, they all do.
template <class Rank>
GS_INLINE void sort_items(Item<Rank>* item, gs::u32 count, gs::u32 thread, gs::u32 threads, gs::u32 near) {
    const auto wait = [=](gs::u32 distance) {
        if (distance <= near) {
            gs::sync_warp();
        } else {
            __syncthreads();
        }
    };
    item = gs::shared_address(item);
    gs::u32 size = 1;
    while (size < count) size *= 2;
    for (gs::u32 i = count + thread; i < size; i += threads) item[i] = Item<Rank>{0, ~0u};
    wait(~0u);
    for (gs::u32 length = 2; length <= size; length *= 2) {
        for (gs::u32 distance = length / 2; distance > 0; distance /= 2) {
            for (gs::u32 p = thread; p < size / 2; p += threads) {
                const gs::u32 i = 2 * p - (p & (distance - 1)), j = i + distance;
                const Item<Rank> a = item[i], b = item[j];
                if (b.before(a) == ((i & length) == 0)) {
                    item[i] = b;
                    item[j] = a;
                }
            }
            const gs::u32 next = distance > 1 ? distance / 2 : length;
            wait(distance > next ? distance : next);
        }
    }
    wait(~0u);
}

// Leaves the first k items of a part in order in shared memory.
template <class Rank, class Bits>
GS_INLINE void first_items(const Bits* x, gs::u32 n, Ranks<Bits> ranks, gs::u32 k, gs::u32 step, Shared<Rank>& shared) {
    Bound<Rank> bound{0, ~0u};
    const bool has_groups = n > 256 && n / 2 > k && k <= groups * gs::threads_in_block();
    if (has_groups || n > room) {
        for (gs::u32 d = gs::thread_in_block(); d < digits; d += gs::threads_in_block()) shared.count[d] = 0;
        __syncthreads();
    }
    if (has_groups) {
        bound.rank = bound_of_maxima(x, n, ranks, k, step, shared);
    }
    gs::u32 found = collect(x, n, ranks, bound, shared);
    if (found > room) found = collect(x, n, ranks, exact_bound(x, n, ranks, k, shared), shared);
    const gs::u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    sort_items(shared.item, found, thread, threads, threads % gs::warp_size() == 0 ? gs::warp_size() : 0);
}

#if defined(GS_CPU)
// The same with one thread: items that may be among the first gather until there is no room, and then the first k of them stay.
// If k is all the room, there must be a place for one more.
template <class Rank, class Bits>
GS_INLINE void first_items_alone(const Bits* x, gs::u32 n, Ranks<Bits> ranks, gs::u32 k, Item<Rank>* item) {
    constexpr gs::u32 strip = 64;
    const auto before = [](const Item<Rank>& a, const Item<Rank>& b) { return a.before(b); };
    gs::u32 found = 0;
    bool bounded = false;
    Bits bound = 0;
    for (gs::u32 i = 0; i < n;) {
        const gs::u32 end = n - i < strip ? n : i + strip;
        Bits most = 0;
        for (gs::u32 j = i; j < end; ++j) {
            const Bits rank = ranks.of(x[j]);
            most = rank > most ? rank : most;
        }
        // What is equal to the bound comes later than the items that we have.
        for (; bounded && most <= bound ? (i = end, false) : i < end; ++i) {
            const Bits rank = ranks.of(x[i]);
            if (bounded && rank <= bound) continue;
            item[found++] = Item<Rank>{rank, i};
            if (found < room) continue;
            std::nth_element(item, item + (k - 1), item + found, before);
            found = k;
            bound = (Bits)item[k - 1].rank;
            bounded = true;
        }
    }
    std::sort(item, item + found, before);
}
#endif

// Returns how many elements remain of n, if at most `keep` remain of each `window`.
GS_INLINE size_t kept(size_t n, size_t window, size_t keep) {
    return n / window * keep + gs::smaller(keep, n % window);
}

}  // namespace

/// The first `keep` elements of each part, or all if there are fewer, in order, with their indices in the row. `rows` rows begin
/// every `stride` elements; parts begin every `window` elements of a row. `index_of` has the elements' indices if these are not
/// their places. `if_set`, `if_clear`: the order that has the first key last. `numbers`: the largest key below the top bit that is no NaN. A part
/// reads one of `step` packs for its bound. `left` gets the number of all results of the one row.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: index_of, count, left
/// requires: n <= stride, rows * stride <= len(x), rows * stride <= len(index_of), 1 <= len(count), 1 <= len(left),
///           1 <= window, window <= 4294967295, 1 <= keep, keep <= 2048, keep <= window, 1 <= step,
///           rows * ((n + window - 1) / window) * keep <= len(values), rows * ((n + window - 1) / window) * keep <= len(index)
template <class Bits>
__global__ void __launch_bounds__(512, 2) top_parts(const Bits* __restrict__ x, const gs::u32* __restrict__ index_of, const gs::u64* __restrict__ count,
                          size_t rows, size_t stride, size_t n, size_t window, unsigned int keep, Bits if_set, Bits if_clear,
                          Bits numbers, unsigned int step, Bits* __restrict__ values, gs::u32* __restrict__ index,
                          gs::u64* __restrict__ left) {
    typedef typename Words<Bits>::Rank Rank;
    __shared__ Shared<Rank> shared;
    const Ranks<Bits> ranks{{if_set, if_clear}, numbers};
    const size_t parts = (n + window - 1) / window, total = live(n, count);
    const gs::u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    if (left && gs::thread_in_grid() == 0) *left = kept(total, window, keep);
    GS_FOR_EACH_TILE(part, rows * parts) {
        const size_t row = part / parts, begin = (part - row * parts) * window;
        if (begin >= total) continue;
        const Bits* from = x + row * stride + begin;
        const gs::u32 length = (gs::u32)gs::smaller(window, total - begin);
        const gs::u32 first = keep < length ? keep : length;
#if defined(GS_CPU)
        if (threads == 1) {
            first_items_alone(from, length, ranks, first, gs::shared_address(shared.item));
        } else
#endif
        {
            first_items(from, length, ranks, first, step, shared);
        }
        for (gs::u32 j = thread; j < first; j += threads) {
            const gs::u32 place = shared.item[j].place;
            values[part * keep + j] = from[place];
            index[part * keep + j] = index_of ? index_of[row * stride + begin + place] : (gs::u32)(begin + place);
        }
        __syncthreads();
    }
}

/// The same as `top_parts` for parts of up to 256 elements: a warp sorts each, because a block would hardly do anything.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: index_of, count, left
/// requires: n <= stride, rows * stride <= len(x), rows * stride <= len(index_of), 1 <= len(count), 1 <= len(left),
///           1 <= window, window <= 256, 1 <= keep, keep <= window,
///           rows * ((n + window - 1) / window) * keep <= len(values), rows * ((n + window - 1) / window) * keep <= len(index)
template <class Bits>
__global__ void top_small_parts(const Bits* __restrict__ x, const gs::u32* __restrict__ index_of,
                                const gs::u64* __restrict__ count, size_t rows, size_t stride, size_t n, size_t window,
                                unsigned int keep, Bits if_set, Bits if_clear, Bits numbers, Bits* __restrict__ values,
                                gs::u32* __restrict__ index, gs::u64* __restrict__ left) {
    typedef typename Words<Bits>::Rank Rank;
    constexpr gs::u32 small = 256, most = room / small;
    __shared__ Item<Rank> items[room];
    const Ranks<Bits> ranks{{if_set, if_clear}, numbers};
    const size_t parts = (n + window - 1) / window, total = live(n, count);
    const gs::u32 lane = gs::lane(), lanes = gs::warp_lanes(), warp = gs::warp_in_block();
    const gs::u32 warps = gs::warps_in_block() < most ? gs::warps_in_block() : most;
    if (left && gs::thread_in_grid() == 0) *left = kept(total, window, keep);
    if (warp >= warps) return;
    Item<Rank>* item = items + warp * small;
    for (size_t part = gs::block_in_grid() * warps + warp; part < rows * parts; part += gs::blocks_in_grid() * warps) {
        const size_t row = part / parts, begin = (part - row * parts) * window;
        if (begin >= total) continue;
        const size_t from = row * stride + begin;
        const gs::u32 length = (gs::u32)gs::smaller(window, total - begin), first = keep < length ? keep : length;
        for (gs::u32 i = lane; i < length; i += lanes) item[i] = Item<Rank>{ranks.of(x[from + i]), i};
        sort_items(item, length, lane, lanes, ~0u);
        for (gs::u32 j = lane; j < first; j += lanes) {
            const gs::u32 place = item[j].place;
            values[part * keep + j] = x[from + place];
            index[part * keep + j] = index_of ? index_of[from + place] : (gs::u32)(begin + place);
        }
        gs::sync_warp();
    }
}

/// What a sort of rows needs: ranks[row * n + i] = the rank of element i, and order[row * n + i] = i. offsets[row] = row * n.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: order, offsets
/// requires: n <= stride, rows * stride <= len(x), rows * n <= len(ranks), rows * n <= len(order), rows + 1 <= len(offsets)
/// covers: rows * n
template <class Bits>
__global__ void ranks_of_rows(const Bits* __restrict__ x, size_t rows, size_t stride, size_t n, Bits if_set, Bits if_clear,
                              Bits numbers, Bits* __restrict__ ranks, gs::u32* __restrict__ order, gs::u64* __restrict__ offsets) {
    const Ranks<Bits> by{{if_set, if_clear}, numbers};
    GS_FOR_EACH_2D(i, row, n, rows) {
        ranks[row * n + i] = by.of(x[row * stride + i]);
        if (order) order[row * n + i] = (gs::u32)i;
    }
    if (!offsets) return;
    GS_FOR_EACH(row, rows + 1) offsets[row] = row * n;
}

/// The first k elements of each row in the order that the rows were sorted into, and their indices in the row. `index_of` has the
/// indices if these are not the elements' places. `left` gets the number of all results of the one row.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: index_of, count, left
/// requires: k <= n, n <= stride, rows * stride <= len(x), rows * stride <= len(index_of), rows * n <= len(order), 1 <= len(count),
///           rows * k <= len(values), rows * k <= len(index), 1 <= len(left)
/// covers: rows * k
template <class Bits>
__global__ void take_first(const Bits* __restrict__ x, const gs::u32* __restrict__ index_of, const gs::u32* __restrict__ order,
                           const gs::u64* __restrict__ count, size_t rows, size_t stride, size_t n, size_t k,
                           Bits* __restrict__ values, gs::u32* __restrict__ index, gs::u64* __restrict__ left) {
    const size_t first = gs::smaller(k, live(n, count));
    if (left && gs::thread_in_grid() == 0) *left = first;
    GS_FOR_EACH_2D(j, row, first, rows) {
        const size_t from = row * stride + order[row * n + j];
        values[row * k + j] = x[from];
        index[row * k + j] = index_of ? index_of[from] : order[row * n + j];
    }
}

/// Counts how often each value of a digit occurs in each part of the rows, among the elements that have the known digits.
/// known[3 * row ..]: see `choose`.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: count
/// requires: n <= stride, rows * stride <= len(x), 1 <= len(count), 1 <= window, shift <= 63, 3 * rows <= len(known),
///           2048 * rows <= len(counters)
template <class Bits>
__global__ void count_digits(const Bits* __restrict__ x, const gs::u64* __restrict__ count, size_t rows, size_t stride, size_t n,
                             size_t window, Bits if_set, Bits if_clear, Bits numbers, unsigned int shift,
                             const gs::u64* __restrict__ known, gs::u32* __restrict__ counters) {
    __shared__ gs::u32 shared[digits];
    const Ranks<Bits> ranks{{if_set, if_clear}, numbers};
    const size_t parts = (n + window - 1) / window, total = live(n, count);
    const gs::u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    GS_FOR_EACH_TILE(part, rows * parts) {
        const size_t row = part / parts, begin = (part - row * parts) * window;
        if (begin >= total) continue;
        for (gs::u32 d = thread; d < digits; d += threads) shared[d] = 0;
        __syncthreads();
        const Bits rank = (Bits)known[3 * row], bits = (Bits)known[3 * row + 1];
        Counter counter(shared);
        for_each_rank<Bits, 4>(x + row * stride, begin, gs::smaller(begin + window, total), ranks, [&](Bits other, gs::u32) {
            if ((Bits)(other & bits) == rank) counter.add((gs::u32)(other >> shift) & (digits - 1));
        });
        counter.flush();
        __syncthreads();
        for (gs::u32 d = thread; d < digits; d += threads) {
            if (shared[d]) gs::atomic_add(counters + row * digits + d, shared[d]);
        }
        __syncthreads();
    }
}

/// Chooses the digit of number k in each row, adds it to what is known, and clears the counters. `kth` gets the key of the rank.
/// known[3 * row ..] = the rank's known digits, their bits, and what k is among the elements that have them; all zero at first.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: count, kth
/// requires: 1 <= len(count), shift <= 63, 3 * rows <= len(known), 2048 * rows <= len(counters), rows <= len(kth)
template <class Bits>
__global__ void choose(const gs::u64* __restrict__ count, size_t rows, size_t n, size_t k, unsigned int shift,
                       unsigned int first, Bits if_set, Bits if_clear, Bits numbers, gs::u64* __restrict__ known,
                       gs::u32* __restrict__ counters, Bits* __restrict__ kth) {
    __shared__ Shared<gs::u32> shared;
    const Order<Bits> order{if_set, if_clear};
    GS_FOR_EACH_TILE(row, rows) {
        for (gs::u32 d = gs::thread_in_block(); d < digits; d += gs::threads_in_block()) {
            shared.count[d] = counters[row * digits + d];
            counters[row * digits + d] = 0;
        }
        __syncthreads();
        const gs::u32 need = (gs::u32)(first ? gs::smaller(k, live(n, count)) : (size_t)known[3 * row + 2]);
        if (gs::thread_in_block() == 0) shared.digit = Digit{0, 0, 0};
        __syncthreads();
        const Digit digit = choose_digit(shared, need);
        if (gs::thread_in_block() == 0) {
            gs::u64* own = known + 3 * row;
            const Bits rank = (Bits)(own[0] | (gs::u64)digit.value << shift);
            own[0] = rank;
            own[1] |= (gs::u64)(digits - 1) << shift;
            own[2] = need - digit.above;
            // Floats with rank 0 are NaN, and this is one.
            const bool is_nan = rank == 0 && numbers != (Bits)~(Bits)0;
            if (kth) kth[row] = is_nan ? (Bits)(numbers | numbers >> 1) : order.key(rank);
        }
        __syncthreads();
    }
}

/// Counts the elements of each part that come before number k and that are equal to it: tallies[2 * part ..].
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: count
/// requires: n <= stride, rows * stride <= len(x), 1 <= len(count), 1 <= window, 3 * rows <= len(known),
///           2 * rows * ((n + window - 1) / window) <= len(tallies)
template <class Bits>
__global__ void count_kept(const Bits* __restrict__ x, const gs::u64* __restrict__ count, size_t rows, size_t stride, size_t n,
                           size_t window, Bits if_set, Bits if_clear, Bits numbers, const gs::u64* __restrict__ known,
                           gs::u32* __restrict__ tallies) {
    const Ranks<Bits> ranks{{if_set, if_clear}, numbers};
    const size_t parts = (n + window - 1) / window, total = live(n, count);
    GS_FOR_EACH_TILE(part, rows * parts) {
        const size_t row = part / parts, begin = gs::smaller((part - row * parts) * window, total);
        const Bits rank = (Bits)known[3 * row];
        gs::u32 above = 0, equal = 0;
        for_each_rank<Bits, 4>(x + row * stride, begin, gs::smaller(begin + window, total), ranks, [&](Bits other, gs::u32) {
            above += other > rank;
            equal += other == rank;
        });
        above = gs::block_reduce(above, gs::Sum());
        equal = gs::block_reduce(equal, gs::Sum());
        if (gs::thread_in_block() == 0) {
            tallies[2 * part] = above;
            tallies[2 * part + 1] = equal;
        }
    }
}

/// Copies the first k elements of each row, in the order of their places.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: count, left
/// requires: n <= stride, rows * stride <= len(x), 1 <= len(count), 1 <= window, 3 * rows <= len(known), 1 <= len(left),
///           2 * rows * ((n + window - 1) / window) <= len(tallies), rows * k <= len(values), rows * k <= len(index)
template <class Bits>
__global__ void copy_kept(const Bits* __restrict__ x, const gs::u64* __restrict__ count, size_t rows, size_t stride, size_t n,
                          size_t window, size_t k, Bits if_set, Bits if_clear, Bits numbers,
                          const gs::u64* __restrict__ known, const gs::u32* __restrict__ tallies,
                          Bits* __restrict__ values, gs::u32* __restrict__ index, gs::u64* __restrict__ left) {
    constexpr int items = 8;
    const Ranks<Bits> ranks{{if_set, if_clear}, numbers};
    const size_t parts = (n + window - 1) / window, total = live(n, count);
    const gs::u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    if (left && gs::thread_in_grid() == 0) *left = gs::smaller(k, total);
    GS_FOR_EACH_TILE(part, rows * parts) {
        const size_t row = part / parts, begin = gs::smaller((part - row * parts) * window, total);
        const size_t end = gs::smaller(begin + window, total);
        const Bits rank = (Bits)known[3 * row];
        const gs::u64 need = known[3 * row + 2];
        // The numbers of elements above and equal before this part, in the two halves of a word.
        gs::u64 before = 0;
        for (size_t p = row * parts + thread; p < part; p += threads) {
            before += (gs::u64)tallies[2 * p] << 32 | tallies[2 * p + 1];
        }
        before = gs::block_reduce(before, gs::Sum());
        for (size_t tile = begin; tile < end; tile += (size_t)threads * items) {
            const size_t first = tile + (size_t)thread * items;
            Bits key[items];
            gs::u64 mine = 0;
            GS_UNROLL
            for (int j = 0; j < items; ++j) {
                if (first + j >= end) continue;
                key[j] = x[row * stride + first + j];
                const Bits other = ranks.of(key[j]);
                mine += (gs::u64)(other > rank) << 32 | (gs::u64)(other == rank);
            }
            const gs::BlockScan<gs::u64> scan = gs::block_scan(mine, (gs::u64)0, gs::Sum());
            gs::u64 at = before + scan.before;
            before += scan.total;
            if (mine == 0) continue;
            GS_UNROLL
            for (int j = 0; j < items; ++j) {
                if (first + j >= end) continue;
                const Bits other = ranks.of(key[j]);
                const gs::u64 above = at >> 32, equal = at & 0xffffffffu, place = above + (equal < need ? equal : need);
                if ((other > rank || (other == rank && equal < need)) && place < k) {
                    values[row * k + place] = key[j];
                    index[row * k + place] = (gs::u32)(first + j);
                }
                at += (gs::u64)(other > rank) << 32 | (gs::u64)(other == rank);
            }
        }
    }
}
