// Stable radix sorts for the CPU. Each worker has one thread and a contiguous share of the keys:
//
//   share_digits   counts the digits of all passes in each share
//   share_plan     decides which passes there are: if all keys have the same digit, a pass would change nothing. One block.
//   share_counts   counts one pass's digits in each share, as the keys lie now
//   share_scatter  moves the keys of each share. The place of its first key with digit d is after all keys with a lower digit,
//                  and after those with digit d in the shares before.
//   share_finish   copies the result, if it is in the wrong array
//   share_alone    all of that with one share, for short arrays
#include "counted.cuh"
#include "order.cuh"
#include "radix.cuh"

namespace {

using gs::u32;
using gs::u64;

// Where the keys are: in the source (if they are sorted in place, that is the result's array), in the result's array, or in the
// temporary one.
constexpr u32 in_source = 0, in_result = 1, in_other = 2, skipped = 3;

// The three arrays that a sort moves keys or values between.
template <class T>
struct Places {
    const T* source;
    T *result, *other;
    GS_INLINE const T* from(u32 place) const { return place == in_source && source ? source : to(place); }
    GS_INLINE T* to(u32 place) const { return place == in_other ? other : result; }
};

// The keys' digits, and which keys a share has.
template <class Key>
struct Share {
    size_t begin, end;
    Order<Key> order;
    u32 first_bit, end_bit;

    GS_INLINE Digit<Key> digit(u32 pass) const {
        const u32 shift = first_bit + pass * 8;
        return Digit<Key>(shift, digit_bits(shift, end_bit));
    }
};

// Returns the share of this block.
template <class Key>
GS_INLINE Share<Key> share_of(size_t n, Order<Key> order, u32 first_bit, u32 end_bit) {
    const size_t me = gs::block_in_grid(), all = gs::blocks_in_grid();
    return {gs::share_begin(n, me, all, 64), gs::share_begin(n, me + 1, all, 64), order, first_bit, end_bit};
}

// How many keys we look at together. A processor guesses whether a load depends on a store before it. If each key's digit is only
// computed after the key before was counted, it often guesses wrong, and a count takes five times as long.
constexpr int batch = 8;

// Adds up the digits of several passes. Keys take turns with several tables, because many may have the same digit.
template <u32 Passes, class Key>
GS_INLINE void count_passes(const Share<Key>& share, const Key* keys, u32 first_pass, u64* counts) {
    constexpr u32 tables = Passes == 1 ? 4 : 2;
    u64 table[tables][Passes * bins] = {};
    const Order<Key> order = share.order;
    size_t i = share.begin;
    for (const size_t end = share.end; i + batch <= end; i += batch) {
        for (u32 p = 0; p < Passes; ++p) {
            const Digit<Key> digit = share.digit(first_pass + p);
            u32 digits[batch];
            for (int k = 0; k < batch; ++k) digits[k] = digit(order.rank(keys[i + k]));
            for (int k = 0; k < batch; ++k) table[k % tables][p * bins + digits[k]] += 1;
        }
    }
    for (const size_t end = share.end; i < end; ++i) {
        for (u32 p = 0; p < Passes; ++p) table[0][p * bins + share.digit(first_pass + p)(order.rank(keys[i]))] += 1;
    }
    for (u32 d = 0; d < Passes * bins; ++d) {
        counts[d] = 0;
        for (u32 t = 0; t < tables; ++t) counts[d] += table[t][d];
    }
}

template <class Key>
GS_INLINE void count_all_passes(const Share<Key>& share, const Key* keys, u32 passes, u64* counts) {
    u32 p = 0;
    for (; p + 4 <= passes; p += 4) count_passes<4>(share, keys, p, counts + p * bins);
    for (; p < passes; ++p) count_passes<1>(share, keys, p, counts + p * bins);
}

// Writes for each pass where its keys come from and where they go, or that there is none; and at last where the keys are then.
GS_INLINE void make_plan(const u64* totals, u32* plan, size_t shares, u32 passes, size_t n, bool in_place) {
    u32 used = 0;
    for (u32 p = 0; p < passes; ++p) {
        bool same = false;
        for (u32 d = 0; d < bins && !same; ++d) {
            u64 sum = 0;
            for (size_t s = 0; s < shares; ++s) sum += totals[(s * passes + p) * bins + d];
            same = sum == n;
        }
        plan[p] = same ? skipped : in_source;
        used += !same;
    }
    u32 left = used, place = in_source;
    for (u32 p = 0; p < passes; ++p) {
        if (plan[p] == skipped) continue;
        --left;
        // Into another array: the last pass ends there. In place: the first pass has to leave it.
        const u32 to = (in_place ? used - left : left + 1) % 2 != 0 ? (in_place ? in_other : in_result)
                                                                   : (in_place ? in_result : in_other);
        plan[p] = place | to << 2;
        place = to;
    }
    plan[passes] = place == in_result || (place == in_source && in_place) ? skipped : place;
}

// Elements on their way to 256 places of an array. If each were stored at once, nearly every store would miss the caches. So we
// collect a cache line for each place, and store it whole. Nothing reads it soon, so it need not go through the caches.
template <class T>
struct Lines {
    static constexpr size_t per_line = 64 / sizeof(T);
    T* to;
    size_t skew;  // how many elements lie between a line's beginning and the array's
    alignas(64) T line[bins][per_line];

    // Puts an element where `at` is; those with this digit begin at `start`.
    GS_INLINE void put(u32 digit, u64 at, u64 start, T value) {
        const size_t slot = (at + skew) % per_line;
        line[digit][slot] = value;
        if (slot == per_line - 1) flush(digit, at + 1, start);
    }
    // Stores the elements before `end` that have not been stored.
    GS_INLINE void flush(u32 digit, u64 end, u64 start) {
        const u64 used = (end + skew - 1) % per_line + 1;  // of the line
        if (used == per_line && end - start >= per_line) {
            store_line(to + (end - per_line), line[digit]);
            return;
        }
        const u64 fresh = used < end - start ? used : end - start;
        for (u64 i = 0; i < fresh; ++i) to[end - fresh + i] = line[digit][used - fresh + i];
    }
    static GS_INLINE void store_line(T* address, const T* values) {
#if defined(GS_CPU) && defined(__AVX__)
        typedef long long Half __attribute__((vector_size(32)));
        const Half* const halves = (const Half*)values;
        __asm__ volatile("vmovntdq %1, %0" : "=m"(((Half*)address)[0]) : "x"(halves[0]));
        __asm__ volatile("vmovntdq %1, %0" : "=m"(((Half*)address)[1]) : "x"(halves[1]));
#else
        GS_MEMCPY_(address, values, 64);
#endif
    }
};

// Moves the keys of a share, and values with them. `start` has the place of the share's first key with each digit.
template <class Key, class Value>
GS_INLINE void scatter(const Share<Key>& share, Digit<Key> digit, const Key* from, Key* to, const Value* values_from, Value* values_to,
                       bool numbers, const u64* start) {
    Lines<Key> keys;
    Lines<Value> values;
    keys.to = to, keys.skew = (size_t)to / sizeof(Key) % keys.per_line;
    values.to = values_to, values.skew = (size_t)values_to / sizeof(Value) % values.per_line;
    u64 next[bins];
    for (u32 d = 0; d < bins; ++d) next[d] = start[d];
    const Order<Key> order = share.order;
    const size_t end = share.end;
    for (size_t i = share.begin; i < end; i += batch) {
        const int used = end - i < batch ? (int)(end - i) : batch;
        Key some[batch];
        u32 digits[batch];
        for (int k = 0; k < used; ++k) some[k] = from[i + k], digits[k] = digit(order.rank(some[k]));
        for (int k = 0; k < used; ++k) {
            const u32 d = digits[k];
            const u64 at = next[d]++;
            keys.put(d, at, start[d], some[k]);
            if (sizeof(Value) != 1) values.put(d, at, start[d], numbers ? (Value)(i + k) : values_from[i + k]);
        }
    }
    for (u32 d = 0; d < bins; ++d) {
        if (next[d] == start[d]) continue;
        if ((next[d] + keys.skew) % keys.per_line != 0) keys.flush(d, next[d], start[d]);
        if (sizeof(Value) != 1 && (next[d] + values.skew) % values.per_line != 0) values.flush(d, next[d], start[d]);
    }
#if defined(GS_CPU) && defined(__AVX__)
    __asm__ volatile("sfence" ::: "memory");
#endif
}

template <class Key, class Value>
GS_INLINE void scatter_pass(const Share<Key>& share, u32 pass, u32 step, const Places<Key>& keys, const Places<Value>& values,
                            bool numbers, const u64* counts, size_t me, size_t shares) {
    if (step == skipped) return;
    const u32 from = step & 3, to = step >> 2;
    u64 starts[bins], start = 0;
    for (u32 d = 0; d < bins; ++d) {
        starts[d] = start;
        for (size_t s = 0; s < shares; ++s) {
            const u64 count = counts[s * bins + d];
            if (s < me) starts[d] += count;
            start += count;
        }
    }
    const bool first = from == in_source;
    scatter(share, share.digit(pass), keys.from(from), keys.to(to), values.from(from), values.to(to), numbers && first, starts);
}

// Copies a share of the result, if it is not where it belongs.
template <class Key, class Value>
GS_INLINE void finish(const Share<Key>& share, u32 place, const Places<Key>& keys, const Places<Value>& values, bool numbers) {
    if (place == skipped) return;
    const size_t end = share.end;
    for (size_t i = share.begin; i < end; ++i) keys.result[i] = keys.from(place)[i];
    if (sizeof(Value) == 1) return;
    const bool unmoved = numbers && place == in_source;
    for (size_t i = share.begin; i < end; ++i) values.result[i] = unmoved ? (Value)i : values.from(place)[i];
}

// Sorts with one thread.
template <class Key, class Value>
GS_INLINE void sort_alone(const Share<Key>& share, u32 passes, const Places<Key>& keys, const Places<Value>& values, bool numbers) {
    u64 totals[8 * bins];
    u32 plan[9];
    const bool in_place = keys.source == nullptr;
    count_all_passes(share, keys.from(in_source), passes, totals);
    make_plan(totals, plan, 1, passes, share.end - share.begin, in_place);
    for (u32 p = 0; p < passes; ++p) scatter_pass(share, p, plan[p], keys, values, numbers, totals + p * bins, 0, 1);
    finish(share, plan[passes], keys, values, numbers);
    // In place we have written no numbers if there was nothing to move.
    bool moved = false;
    for (u32 p = 0; p < passes; ++p) moved = moved || plan[p] != skipped;
    for (size_t i = share.begin; in_place && numbers && !moved && i < share.end; ++i) values.result[i] = (Value)i;
}

// Moves values as their keys have moved.
GS_INLINE void move_values(unsigned char* values, unsigned char* before, size_t bytes, const u32* numbers, size_t size) {
    memcpy(before, values, size * bytes);
    for (size_t i = 0; i < size; ++i) {
        for (size_t b = 0; b < bytes; ++b) values[i * bytes + b] = before[numbers[i] * bytes + b];
    }
}

}  // namespace

/// Counts the digits of all passes in each share.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(keys), 1 <= len(count), passes <= 8, grid.x * passes * 256 <= len(totals), block.x == 1, block.y == 1, block.z == 1,
///           grid.y == 1, grid.z == 1
/// optional: count
template <class Key>
__global__ void share_digits(const Key* __restrict__ keys, size_t n, const gs::u64* __restrict__ count,
                             gs::u64* __restrict__ totals, unsigned int first_bit, unsigned int end_bit, unsigned int passes,
                             Key if_set, Key if_clear) {
    const Order<Key> order{if_set, if_clear};
    const Share<Key> share = share_of(live(n, count), order, first_bit, end_bit);
    count_all_passes(share, keys, passes, totals + (size_t)blockIdx.x * passes * bins);
}

/// Decides what each pass does.
/// requires: 1 <= len(count), shares * passes * 256 <= len(totals), passes + 1 <= len(plan), grid.x == 1, grid.y == 1, grid.z == 1,
///           block.x == 1, block.y == 1, block.z == 1
/// optional: count
__global__ void share_plan(const gs::u64* __restrict__ totals, unsigned int* __restrict__ plan, size_t n,
                           const gs::u64* __restrict__ count, size_t shares, unsigned int passes, unsigned int in_place) {
    make_plan(totals, plan, shares, passes, live(n, count), in_place != 0);
}

/// Counts the digits of one pass in each share.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(source), n <= len(result), n <= len(other), 1 <= len(count), pass + 1 <= len(plan), pass < passes,
///           grid.x * passes * 256 <= len(totals), grid.x * 256 <= len(counts), block.x == 1, block.y == 1, block.z == 1, grid.y == 1,
///           grid.z == 1
/// optional: source, count
/// reads: result, other
template <class Key>
__global__ void share_counts(const Key* source, Key* result, Key* other, size_t n, const gs::u64* __restrict__ count,
                             const unsigned int* __restrict__ plan, const gs::u64* __restrict__ totals,
                             gs::u64* __restrict__ counts, unsigned int first_bit, unsigned int end_bit, unsigned int pass,
                             unsigned int passes, Key if_set, Key if_clear) {
    const unsigned int step = plan[pass];
    if (step == skipped) return;
    const size_t me = blockIdx.x;
    if ((step & 3) == in_source) {
        // Nothing has moved since the first count.
        for (u32 d = 0; d < bins; ++d) counts[me * bins + d] = totals[(me * passes + pass) * bins + d];
        return;
    }
    const Order<Key> order{if_set, if_clear};
    const Share<Key> share = share_of(live(n, count), order, first_bit, end_bit);
    const Places<Key> keys{source, result, other};
    count_passes<1>(share, keys.from(step & 3), pass, counts + me * bins);
}

/// Moves keys by one digit, and values with them, if they have 4 or 8 bytes. With `numbers` they are the keys' numbers at first. We
/// trust the plan and the counts: `sort.rs` launches this right after the kernels that write them, for the same keys.
/// types: (Key, Value) = (unsigned char, unsigned char), (unsigned char, unsigned int), (unsigned char, unsigned long long),
///        (unsigned short, unsigned char), (unsigned short, unsigned int), (unsigned short, unsigned long long),
///        (unsigned int, unsigned char), (unsigned int, unsigned int), (unsigned int, unsigned long long),
///        (unsigned long long, unsigned char), (unsigned long long, unsigned int), (unsigned long long, unsigned long long)
/// requires: n <= len(source), n <= len(result), n <= len(other), n <= len(values_source), n <= len(values), n <= len(values_other),
///           1 <= len(count), pass + 1 <= len(plan), grid.x * 256 <= len(counts), block.x == 1, block.y == 1, block.z == 1,
///           grid.y == 1, grid.z == 1
/// optional: source, values_source, values, values_other, count
template <class Key, class Value>
__global__ void share_scatter(const Key* source, Key* result, Key* other, const Value* values_source, Value* values,
                              Value* values_other, unsigned int numbers, size_t n, const gs::u64* __restrict__ count,
                              const unsigned int* __restrict__ plan, const gs::u64* __restrict__ counts,
                              unsigned int first_bit, unsigned int end_bit, unsigned int pass, Key if_set, Key if_clear) {
    const Order<Key> order{if_set, if_clear};
    const Share<Key> share = share_of(live(n, count), order, first_bit, end_bit);
    const Places<Key> keys{source, result, other};
    const Places<Value> its_values{values_source, values, values_other};
    scatter_pass(share, pass, plan[pass], keys, its_values, numbers != 0, counts, blockIdx.x, gridDim.x);
}

/// Copies the result to where it belongs.
/// types: (Key, Value) = (unsigned char, unsigned char), (unsigned char, unsigned int), (unsigned char, unsigned long long),
///        (unsigned short, unsigned char), (unsigned short, unsigned int), (unsigned short, unsigned long long),
///        (unsigned int, unsigned char), (unsigned int, unsigned int), (unsigned int, unsigned long long),
///        (unsigned long long, unsigned char), (unsigned long long, unsigned int), (unsigned long long, unsigned long long)
/// requires: n <= len(source), n <= len(result), n <= len(other), n <= len(values_source), n <= len(values), n <= len(values_other),
///           1 <= len(count), passes + 1 <= len(plan), block.x == 1, block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
/// optional: source, values_source, values, values_other, count
/// reads: other, values_other
template <class Key, class Value>
__global__ void share_finish(const Key* source, Key* result, Key* other, const Value* values_source, Value* values,
                             Value* values_other, unsigned int numbers, size_t n, const gs::u64* __restrict__ count,
                             const unsigned int* __restrict__ plan, unsigned int passes) {
    const Order<Key> order{0, 0};
    const Share<Key> share = share_of(live(n, count), order, 0, 8);
    const Places<Key> keys{source, result, other};
    const Places<Value> its_values{values_source, values, values_other};
    finish(share, plan[passes], keys, its_values, numbers != 0);
}

/// Sorts with one thread.
/// types: (Key, Value) = (unsigned char, unsigned char), (unsigned char, unsigned int), (unsigned char, unsigned long long),
///        (unsigned short, unsigned char), (unsigned short, unsigned int), (unsigned short, unsigned long long),
///        (unsigned int, unsigned char), (unsigned int, unsigned int), (unsigned int, unsigned long long),
///        (unsigned long long, unsigned char), (unsigned long long, unsigned int), (unsigned long long, unsigned long long)
/// requires: n <= len(source), n <= len(result), n <= len(other), n <= len(values_source), n <= len(values), n <= len(values_other),
///           1 <= len(count), passes <= 8, block.x == 1, block.y == 1, block.z == 1, grid.x == 1, grid.y == 1, grid.z == 1
/// optional: source, values_source, values, values_other, count
template <class Key, class Value>
__global__ void share_alone(const Key* source, Key* result, Key* other, const Value* values_source, Value* values,
                            Value* values_other, unsigned int numbers, size_t n, const gs::u64* __restrict__ count,
                            unsigned int first_bit, unsigned int end_bit, unsigned int passes, Key if_set, Key if_clear) {
    const Order<Key> order{if_set, if_clear};
    const Share<Key> share = share_of(live(n, count), order, first_bit, end_bit);
    const Places<Key> keys{source, result, other};
    const Places<Value> its_values{values_source, values, values_other};
    sort_alone(share, passes, keys, its_values, numbers != 0);
}

/// Sorts the keys of each segment, and moves values with them. Segment s has the keys from offsets[s] up to offsets[s + 1], by whichever
/// of the two arrays of offsets there is.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(keys), n <= len(other), n * value_bytes <= len(values), n * value_bytes <= len(values_other),
///           n <= len(numbers), n <= len(numbers_too), segments + 1 <= len(offsets), segments + 1 <= len(long_offsets),
///           passes <= 8, block.x == 1, block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
/// optional: offsets, long_offsets, values, values_other, numbers, numbers_too
template <class Key>
__global__ void share_segments(Key* keys, Key* other, unsigned char* values, unsigned char* values_other, unsigned int* numbers,
                               unsigned int* numbers_too, unsigned int value_bytes, size_t n, const unsigned int* offsets,
                               const gs::u64* long_offsets, size_t segments, unsigned int first_bit, unsigned int end_bit,
                               unsigned int passes, Key if_set, Key if_clear) {
    if (!offsets && !long_offsets) return;
    const Order<Key> order{if_set, if_clear};
    const unsigned char* const no_source = nullptr;
    unsigned char* const nothing = nullptr;
    const size_t me = gs::block_in_grid(), all = gs::blocks_in_grid();
    const size_t last = gs::share_begin(segments, me + 1, all, 1);
    for (size_t s = gs::share_begin(segments, me, all, 1); s < last; ++s) {
        const size_t begin = gs::smaller(offsets ? offsets[s] : long_offsets[s], n);
        const size_t end = gs::smaller(offsets ? offsets[s + 1] : long_offsets[s + 1], n);
        if (end <= begin) continue;
        const Share<Key> share{0, end - begin, order, first_bit, end_bit};
        const Places<Key> its_keys{nullptr, keys + begin, other + begin};
        if (values && values_other && numbers && numbers_too) {
            const Places<u32> its_numbers{nullptr, numbers + begin, numbers_too + begin};
            sort_alone(share, passes, its_keys, its_numbers, true);
            move_values(values + begin * value_bytes, values_other + begin * value_bytes, value_bytes, numbers + begin, end - begin);
        } else if (!values) {
            const Places<unsigned char> no_values{no_source, nothing, nothing};
            sort_alone(share, passes, its_keys, no_values, false);
        }
    }
}
