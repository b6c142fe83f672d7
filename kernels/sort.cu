// Stable radix sorts for GPUs. Keys are unsigned integers here; `order.cuh` gives them the order of your type.
//
// We sort by one digit of eight bits after another, from the lowest to the highest. Each pass is stable, so the keys are in order
// after the last one. A pass reads and writes each key once ("Onesweep", Adinets and Merrill, 2022):
//
//   sort_digits            counts the digits of all passes in one sweep, and makes from them where each digit's keys begin
//   sort_keys, sort_pairs  one pass. A block ranks a tile in shared memory and learns by look-back how many keys with each
//                          digit the tiles before it have. Then it knows each key's place.
//   sort_block             everything at once, for arrays that fit into one block
//   sort_segments          many short arrays, each with a block; sort_short_segments those that fit into a warp, and
//                          sort_long_segments those that do not fit into a block
//
// Look-back: each tile has a word per digit. It is empty, or has the tile's own count, or the count of all tiles up to this one.
// A tile adds up the words before its own until it finds one of the last kind. Flag and count are in one word, so no fence
// is needed. A block takes its tile from a ticket, so it waits only for blocks that have started.
//
// Words have 32 bits. So if there are very many keys, a pass has several portions, with a launch each. There are two sets of
// words: each launch uses one and clears the other for the next launch.
//
// The keys have their ranks' bits between the passes: only the first pass translates from keys, and only the last one back.
#include "counted.cuh"
#include "order.cuh"
#include "radix.cuh"
#include "words.cuh"

namespace {

using gs::u32;
using gs::u64;

// What a word says about its count.
constexpr u32 of_tile = 1u << 30, of_all = 2u << 30, count_mask = of_tile - 1;

// Returns how many keys with digit `thread` all tiles before this one have, and publishes the count with this one's. Looks at
// several words at a time, because each takes hundreds of cycles.
GS_INLINE u32 look_back(u32* words, u32 tile, u32 count) {
    constexpr int window = 4;
    const u32* const begin = words + gs::thread_in_block();
    u32* const own = words + (size_t)tile * bins + gs::thread_in_block();
    if (tile == 0) return 0;
    u32 sum = 0;
    bool done = false;
    for (const u32* at = own; !done;) {  // `at` is one row after the word that we need next
        u32 seen[window];
        GS_UNROLL
        for (int w = 0; w < window; ++w) {
            const u32* const from = at - (w + 1) * (int)bins;
            seen[w] = from >= begin ? load_word(from) : 0;
        }
        int used = 0;
        GS_UNROLL
        for (int w = 0; w < window; ++w) {
            if (!done && used == w && seen[w] != 0) {
                sum += seen[w] & count_mask;
                done = (seen[w] & of_all) != 0;
                ++used;
            }
        }
        at -= used * (int)bins;
    }
    store_word(own, of_all | (sum + count));
    return sum;
}

// Which digit a launch sorts by, and what else it needs to know beside its arrays.
template <class Key>
struct Pass {
    Order<Key> load, store;  // to ranks, and back; nothing in most passes
    u32 shift, bits;         // of the digit
    u32 number, passes;
    u32 portion, portions;

    // Which of the rows of `control` has the beginnings of the digits. Behind the rows there are a ticket of sort_digits, and
    // those of the launches.
    GS_INLINE size_t row() const { return (size_t)portion * passes + number; }
    GS_INLINE size_t tickets() const { return (size_t)portions * passes * bins + 1; }
    // Which of the two sets of words it uses.
    GS_INLINE u32 set() const { return (number * portions + portion) & 1; }
};

// A block's shared memory. If it has `Apart`, keys can go to their places while other warps still rank.
template <class Key, class Value, u32 Threads, u32 Items, bool Apart>
struct TileMemory {
    union {
        Key keys[Threads * Items];
        Value values[Threads * Items];
        u32 next[Threads / 32 * bins];
    };
    u32 next_apart[Apart ? Threads / 32 * bins : 1];
    u32 totals[8];
    u32 ticket;
    size_t shift[bins];  // from a key's rank in the tile to its place in the array
};

// Sorts a tile by one digit. There are no values if `Value` has one byte.
template <u32 Threads, u32 Items, bool Apart, class Key, class Value>
GS_INLINE void sort_tile(const Key* __restrict__ in, Key* __restrict__ out, const Value* __restrict__ values_in,
                         Value* __restrict__ values_out, u64* control, u32* words, size_t n, Pass<Key> pass,
                         TileMemory<Key, Value, Threads, Items, Apart>& memory) {
    constexpr u32 tile_size = Threads * Items;
    constexpr bool has_values = sizeof(Value) != 1;
    const u32 thread = gs::thread_in_block(), width = warp_width(), tiles = gridDim.x;
    u32* const next = Apart ? memory.next_apart : memory.next;
    u64* const starts = control + pass.row() * bins;
    if (thread == 0) memory.ticket = (u32)gs::atomic_add(control + pass.tickets() + pass.row(), (u64)1);
    if (thread < bins) words[((size_t)(pass.set() ^ 1) * tiles + blockIdx.x) * bins + thread] = 0;
    words += (size_t)pass.set() * tiles * bins;
    for (u32 i = thread; i < Threads / 32 * bins; i += Threads) next[i] = 0;
    __syncthreads();
    const u32 tile = memory.ticket;
    const size_t begin = ((size_t)pass.portion * tiles + tile) * tile_size;
    if (tile >= tiles || begin >= n) return;
    const bool whole = n - begin >= tile_size;
    const u32 size = whole ? tile_size : (u32)(n - begin);

    Key keys[Items];
    const u32 first = thread / width * width * Items + thread % width;
    if (whole) {
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) keys[i] = in[begin + first + i * width];
        if (pass.load.if_set != 0 || pass.load.if_clear != 0) {
            GS_UNROLL
            for (u32 i = 0; i < Items; ++i) keys[i] = pass.load.rank(keys[i]);
        }
    } else {
        // The rest of the tile gets the highest rank, so no key comes after it.
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i)
            keys[i] = first + i * width < size ? pass.load.rank(in[begin + first + i * width]) : (Key) ~(Key)0;
    }

    const Digit<Key> digit(pass.shift, pass.bits);
    u32 ranks[Items], count, before;
    rank_keys<Threads, (int)Items>(
        next, memory.totals, keys, Items, digit, count, before,
        [&] { store_word(words + (size_t)tile * bins + thread, (tile == 0 ? of_all : of_tile) | count); },
        [&](int i, u32 rank) {
            if (has_values || !Apart) ranks[i] = rank;
            if (Apart) memory.keys[rank] = keys[i];
        });
    if (!Apart) {
        __syncthreads();
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) memory.keys[ranks[i]] = keys[i];
    }

    if (thread < bins) {
        const size_t start = starts[thread] + look_back(words, tile, count);
        const u32 real = before >= size ? 0 : (u32)gs::smaller(count, size - before);
        // The keys with this digit end within the array, unless somebody changed them since we counted. Then the result is
        // wrong, but we still write nothing outside.
        const bool inside = start <= n && real <= n - start;
        memory.shift[thread] = (inside ? start : 0) - before;
        if (tile + 1 == tiles && pass.portion + 1 < pass.portions) starts[(size_t)pass.passes * bins + thread] = start + count;
    }
    __syncthreads();
    const bool translate = pass.store.if_set != 0 || pass.store.if_clear != 0;
    u32 digits[has_values ? Items : 1];
    if (whole && !translate) {
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) {
            const Key key = memory.keys[thread + i * Threads];
            const u32 d = digit(key);
            if (has_values) digits[i] = d;
            out[memory.shift[d] + thread + i * Threads] = key;
        }
    } else {
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) {
            const u32 at = thread + i * Threads;
            const Key key = memory.keys[at];
            const u32 d = digit(key);
            if (has_values) digits[i] = d;
            if (at < size) out[memory.shift[d] + at] = translate ? pass.store.key(key) : key;
        }
    }
    if constexpr (has_values) {
        Value values[Items];
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) {
            const u32 at = first + i * width;
            if (values_in == nullptr) values[i] = (Value)(begin + at);
            else if (whole || at < size) values[i] = values_in[begin + at];
        }
        __syncthreads();
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) memory.values[ranks[i]] = values[i];
        __syncthreads();
        GS_UNROLL
        for (u32 i = 0; i < Items; ++i) {
            const u32 at = thread + i * Threads;
            if (whole || at < size) values_out[memory.shift[digits[i]] + at] = memory.values[at];
        }
    }
}

// How many keys a thread of the launches below has: as many as leave room in registers and shared memory for several blocks. With
// short tiles there are enough blocks for all multiprocessors, if there are few keys. `sort.rs` has the same numbers.
constexpr u32 short_items = 8;
template <class Key>
constexpr u32 key_items = sizeof(Key) == 8 ? 18 : 32;
template <class Key, class Value>
constexpr u32 pair_items = sizeof(Value) == 8 ? 15 : sizeof(Key) == 8 ? 14 : 22;

// Counts the digits of the keys in shared memory. With `Whole` the digits are the key's bytes, so all shifts are constants.
template <bool Whole, class Key>
GS_INLINE void count_digits(const Key* keys, size_t n, u32* counts, u32 first_bit, u32 end_bit, u32 passes, Order<Key> order) {
    const bool translate = order.if_set != 0 || order.if_clear != 0;
    GS_FOR_EACH_WIDE_IN(n, keys, [=](Key key) {
        const Key rank = translate ? order.rank(key) : key;
        GS_UNROLL
        for (u32 p = 0; p < sizeof(Key); ++p) {
            const u32 shift = Whole ? p * 8 : first_bit + p * 8;
            const Digit<Key> digit(shift, Whole ? 8 : digit_bits(shift, end_bit));
            if (Whole || p < passes) gs::shared_add(counts + p * bins + digit(rank), 1u);
        }
    });
}

}  // namespace

/// Counts the digits of all passes, and writes to `control` where the keys with each digit begin. `control` is zero before. Clears
/// the first set of words.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: 1 <= len(count), n <= len(keys), portions * passes * 257 + 1 <= len(control), cleared <= len(words), 1 <= passes, passes <= 8,
///           1 <= portions
/// optional: count
template <class Key>
__global__ void __launch_bounds__(512)
    sort_digits(const Key* __restrict__ keys, size_t n, const gs::u64* __restrict__ count, gs::u64* control,
                unsigned int* __restrict__ words, size_t cleared, unsigned int first_bit, unsigned int end_bit,
                unsigned int passes, unsigned int portions, Key if_set, Key if_clear) {
    __shared__ u32 shared[sizeof(Key) * bins];
    __shared__ u32 is_last;
    u32* const counts = gs::shared_address(shared);
    const u32 thread = gs::thread_in_block(), threads = gs::threads_in_block();
    if (passes > sizeof(Key)) return;
    GS_FOR_EACH(i, cleared) words[i] = 0;
    for (u32 i = thread; i < passes * bins; i += threads) counts[i] = 0;
    __syncthreads();
    const Order<Key> order{if_set, if_clear};
    if (first_bit == 0 && end_bit == sizeof(Key) * 8)
        count_digits<true>(keys, live(n, count), counts, 0, end_bit, passes, order);
    else
        count_digits<false>(keys, live(n, count), counts, first_bit, end_bit, passes, order);
    __syncthreads();
    for (u32 i = thread; i < passes * bins; i += threads) {
        if (counts[i] != 0) gs::atomic_add(control + i, (u64)counts[i]);
    }
    // The last block to come here sees what all others have added. It makes beginnings from the counts.
    __threadfence();
    __syncthreads();
    u64* const ticket = control + (size_t)portions * passes * bins;
    if (thread == 0) is_last = gs::atomic_add(ticket, (u64)1) == gs::blocks_in_grid() - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (u32 p = 0; p < passes; ++p) {
        u64 carry = 0;
        for (u32 first = 0; first < bins; first += threads) {
            const u32 i = first + thread;
            volatile u64* const row = control + p * bins;
            const gs::BlockScan<u64> scan = gs::block_scan(i < bins ? row[i] : (u64)0, (u64)0, gs::Sum());
            if (i < bins) row[i] = carry + scan.before;
            carry += scan.total;
        }
    }
}

/// Moves the keys to their places by one digit.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long, short_tiles = 0, 1
/// requires: 1 <= len(count), n <= len(in), n <= len(out), portion < portions, pass < passes, portions * passes * 257 + 1 <= len(control),
///           512 * grid.x <= len(words), shift + bits <= 64, 1 <= bits, bits <= 8, grid.y == 1, grid.z == 1, block.x == 256,
///           block.y == 1, block.z == 1
/// optional: count
template <class Key, int short_tiles>
__global__ void __launch_bounds__(256, 4)
    sort_keys(const Key* __restrict__ in, Key* __restrict__ out, gs::u64* control, unsigned int* words, size_t n,
              const gs::u64* __restrict__ count, Key load_if_set, Key load_if_clear, Key store_if_set, Key store_if_clear,
              unsigned int shift, unsigned int bits, unsigned int pass, unsigned int passes, unsigned int portion,
              unsigned int portions) {
    __shared__ TileMemory<Key, unsigned char, 256, short_tiles ? short_items : key_items<Key>, true> memory;
    const Pass<Key> what{{load_if_set, load_if_clear}, {store_if_set, store_if_clear}, shift, bits, pass, passes, portion, portions};
    const unsigned char* const no_values = nullptr;
    sort_tile(in, out, no_values, (unsigned char*)nullptr, control, words, live(n, count), what, memory);
}

/// Moves keys and values to their places by one digit. Without `values_in` the values are the keys' numbers.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long, Value = unsigned int, unsigned long long,
///        short_tiles = 0, 1
/// requires: 1 <= len(count), n <= len(in), n <= len(out), n <= len(values_in), n <= len(values_out), portion < portions, pass < passes,
///           portions * passes * 257 + 1 <= len(control), 512 * grid.x <= len(words), shift + bits <= 64, 1 <= bits, bits <= 8,
///           grid.y == 1, grid.z == 1, block.x == 384, block.y == 1, block.z == 1
/// optional: values_in, count
template <class Key, class Value, int short_tiles>
__global__ void __launch_bounds__(384, 2)
    sort_pairs(const Key* __restrict__ in, Key* __restrict__ out, const Value* __restrict__ values_in,
               Value* __restrict__ values_out, gs::u64* control, unsigned int* words, size_t n,
               const gs::u64* __restrict__ count, Key load_if_set, Key load_if_clear, Key store_if_set, Key store_if_clear,
               unsigned int shift, unsigned int bits, unsigned int pass, unsigned int passes, unsigned int portion,
               unsigned int portions) {
    __shared__ TileMemory<Key, Value, 384, short_tiles ? short_items : pair_items<Key, Value>, false> memory;
    const Pass<Key> what{{load_if_set, load_if_clear}, {store_if_set, store_if_clear}, shift, bits, pass, passes, portion, portions};
    sort_tile(in, out, values_in, values_out, control, words, live(n, count), what, memory);
}

namespace {

// A block of `sort_block`. `sort.rs` has the same numbers.
constexpr u32 block_threads = 512;
template <class Key>
constexpr u32 block_items = sizeof(Key) == 8 ? 8 : 16;

// The shared memory of a block that sorts on its own.
template <class Key, u32 Threads, u32 Items>
struct BlockMemory {
    union {
        Key keys[Threads * Items];
        unsigned short numbers[Threads * Items];
        u32 next[Threads / 32 * bins];
    };
    u32 totals[8];
};

// What one block sorts. If there is a `source`, the keys come from there; the same for the values.
template <class Key>
struct BlockArrays {
    const Key* source;
    Key* keys;
    const unsigned char* values_source;
    unsigned char* values;
    u32 value_bytes;
    u32* numbers;  // where the keys were
};

// The keys of one thread: up to Items, of which it uses `used`. A warp's keys are consecutive, so that their order stays.
template <u32 Threads, int Items>
struct ThreadKeys {
    u32 number[Items];  // where each key was
    u32 first, width, size;
    int used;

    GS_INLINE ThreadKeys(u32 size) : width(warp_width()), size(size), used((int)((size + Threads - 1) / Threads)) {
        const u32 thread = gs::thread_in_block();
        first = thread / width * width * (u32)used + thread % width;
    }
    GS_INLINE u32 at(int i) const { return first + (u32)i * width; }
    GS_INLINE bool has(int i) const { return i < used && at(i) < size; }

    // Moves values as the keys moved, or parts of values with `parts`. `from` and `to` may be the same, so we read all before we
    // write one.
    template <class T>
    GS_INLINE void move(const unsigned char* from, unsigned char* to, u32 parts, u32 part) const {
        T values[Items];
        GS_UNROLL
        for (int i = 0; i < Items; ++i) {
            if (has(i)) values[i] = ((const T*)from)[number[i] * parts + part];
        }
        __syncthreads();
        GS_UNROLL
        for (int i = 0; i < Items; ++i) {
            if (has(i)) ((T*)to)[at(i) * parts + part] = values[i];
        }
    }
};

template <u32 Threads, int Items, class Key, class Memory>
GS_INLINE void sort_in_block(BlockArrays<Key> arrays, u32 size, u32 first_bit, u32 end_bit, Order<Key> order,
                             Memory& memory) {
    const u32 thread = gs::thread_in_block();
    ThreadKeys<Threads, Items> own(size);
    const bool with_numbers = arrays.values || arrays.numbers;
    const Key* const from = arrays.source ? arrays.source : arrays.keys;
    Key keys[Items];
    u32 ranks[Items];
    GS_UNROLL
    for (int i = 0; i < Items; ++i) {
        own.number[i] = own.at(i);
        keys[i] = own.has(i) ? order.rank(from[own.at(i)]) : (Key) ~(Key)0;
    }
    for (u32 shift = first_bit; shift < end_bit; shift += 8) {
        for (u32 i = thread; i < Threads / 32 * bins; i += Threads) memory.next[i] = 0;
        __syncthreads();
        u32 count, before;
        rank_keys<Threads, Items>(memory.next, memory.totals, keys, own.used,
                                        Digit<Key>(shift, digit_bits(shift, end_bit)), count, before, [] {},
                                        [&](int i, u32 rank) { ranks[i] = rank; });
        __syncthreads();
        GS_UNROLL
        for (int i = 0; i < Items; ++i) {
            if (i < own.used) memory.keys[ranks[i]] = keys[i];
        }
        __syncthreads();
        GS_UNROLL
        for (int i = 0; i < Items; ++i) {
            if (i < own.used) keys[i] = memory.keys[own.at(i)];
        }
        __syncthreads();
        if (with_numbers) {
            GS_UNROLL
            for (int i = 0; i < Items; ++i) {
                if (i < own.used) memory.numbers[ranks[i]] = (unsigned short)own.number[i];
            }
            __syncthreads();
            GS_UNROLL
            for (int i = 0; i < Items; ++i) {
                if (i < own.used) own.number[i] = memory.numbers[own.at(i)];
            }
            __syncthreads();
        }
    }
    GS_UNROLL
    for (int i = 0; i < Items; ++i) {
        if (own.has(i)) arrays.keys[own.at(i)] = order.key(keys[i]);
    }
    if (arrays.numbers) {
        GS_UNROLL
        for (int i = 0; i < Items; ++i) {
            if (own.has(i)) arrays.numbers[own.at(i)] = own.number[i];
        }
    }
    if (arrays.values) {
        const unsigned char* const source = arrays.values_source ? arrays.values_source : arrays.values;
        const u32 bytes = arrays.value_bytes;
        if (bytes == 1) own.template move<unsigned char>(source, arrays.values, 1, 0);
        if (bytes == 2) own.template move<unsigned short>(source, arrays.values, 1, 0);
        if (bytes == 4) own.template move<u32>(source, arrays.values, 1, 0);
        // Wider ones in parts, because registers are scarce.
        for (u32 part = 0; part < bytes / 8; ++part) own.template move<u64>(source, arrays.values, bytes / 8, part);
    }
}

}  // namespace

/// Sorts all keys in one block. Values have 1, 2, 4, 8 or 16 bytes. If there is a `source`, the keys come from there, otherwise they
/// are in `keys`; the same for the values. Writes to `numbers` where the keys were before.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: 1 <= len(count), n <= len(source), n <= len(keys), n * value_bytes <= len(values_source), n * value_bytes <= len(values),
///           n <= len(numbers), end_bit <= 64, block.x == 512, block.y == 1, block.z == 1, grid.x == 1, grid.y == 1, grid.z == 1
/// optional: source, values_source, values, numbers, count
template <class Key>
__global__ void __launch_bounds__(512)
    sort_block(const Key* source, Key* keys, const unsigned char* values_source, unsigned char* values,
               unsigned int value_bytes, unsigned int* numbers, size_t n, const gs::u64* __restrict__ count,
               unsigned int first_bit, unsigned int end_bit, Key if_set, Key if_clear) {
    __shared__ BlockMemory<Key, block_threads, block_items<Key>> memory;
    constexpr u32 most = block_threads * block_items<Key>;
    const u32 size = (u32)live(gs::smaller(n, most), count);
    const BlockArrays<Key> arrays{source, keys, values_source, values, value_bytes, numbers};
    const Order<Key> order{if_set, if_clear};
    // The fewer keys a thread has, the less code it goes through.
    if (size <= block_threads * 2) sort_in_block<block_threads, 2>(arrays, size, first_bit, end_bit, order, memory);
    else if (size <= block_threads * 8) sort_in_block<block_threads, 8>(arrays, size, first_bit, end_bit, order, memory);
    else sort_in_block<block_threads, (int)block_items<Key>>(arrays, size, first_bit, end_bit, order, memory);
}

namespace {

// A block of `sort_segments`: smaller ones, because many of them run at once.
constexpr u32 segment_threads = 256, segment_items = 8;

// Where the segments are.
struct Segments {
    const u32* offsets;
    const u64* long_offsets;
    size_t n;

    GS_INLINE size_t at(size_t s) const {
        return offsets ? gs::smaller(offsets[s], n) : long_offsets ? (size_t)gs::smaller(long_offsets[s], n) : 0;
    }
    GS_INLINE size_t begin(size_t s) const { return at(s); }
    GS_INLINE size_t size(size_t s) const { return at(s) < at(s + 1) ? at(s + 1) - at(s) : 0; }
};

// How many keys a segment has at most that a warp sorts.
constexpr u32 most_in_warp = 128;

// Moves values as keys have moved that the lanes have in turn. All lanes call it together.
template <class T>
GS_INLINE void move_in_warp(unsigned char* values, u32 parts, u32 part, u32 size, const u32* to) {
    constexpr int items = most_in_warp / 32;
    const u32 lane = gs::lane(), width = warp_width();
    T value[items];
    GS_UNROLL
    for (int i = 0; i < items; ++i) {
        const u32 at = lane + i * width;
        if (at < size) value[i] = ((const T*)values)[at * parts + part];
    }
    gs::sync_warp();
    GS_UNROLL
    for (int i = 0; i < items; ++i) {
        const u32 at = lane + i * width;
        if (at < size) ((T*)values)[to[i] * parts + part] = value[i];
    }
    gs::sync_warp();
}

// Sorts a few keys by one warp: it compares each with all others. `shared` has room for them.
template <class Key>
GS_INLINE void sort_in_warp(Key* keys, unsigned char* values, u32 bytes, u32 size, u32 first_bit, u32 end_bit, Order<Key> order,
                            Key* shared) {
    constexpr int items = most_in_warp / 32;
    const u32 lane = gs::lane(), width = warp_width();
    Key own[items], rank[items];
    u32 to[items];
    // Only the bits that we sort by, at the top.
    const u32 up = (u32)sizeof(Key) * 8 - end_bit, down = up + first_bit;
    gs::sync_warp();
    GS_UNROLL
    for (int i = 0; i < items; ++i) {
        const u32 at = lane + i * width;
        to[i] = 0, rank[i] = 0;
        if (at >= size) continue;
        own[i] = keys[at];
        rank[i] = (Key)((Key)(order.rank(own[i]) << up) >> down);
        shared[at] = rank[i];
    }
    gs::sync_warp();
    for (u32 j = 0; j < size; ++j) {
        const Key other = shared[j];
        GS_UNROLL
        for (int i = 0; i < items; ++i) to[i] += j < lane + i * width ? other <= rank[i] : other < rank[i];
    }
    gs::sync_warp();
    GS_UNROLL
    for (int i = 0; i < items; ++i) {
        if (lane + i * width < size) keys[to[i]] = own[i];
    }
    if (!values) return;
    if (bytes == 1) move_in_warp<unsigned char>(values, 1, 0, size, to);
    if (bytes == 2) move_in_warp<unsigned short>(values, 1, 0, size, to);
    if (bytes == 4) move_in_warp<u32>(values, 1, 0, size, to);
    for (u32 part = 0; part < bytes / 8; ++part) move_in_warp<u64>(values, bytes / 8, part, size, to);
}

// What a segment that does not fit into a block moves between, beside its own keys and values.
template <class Key>
struct SegmentMemory {
    Key* keys;
    u32 *numbers, *numbers_too;  // if there are values
    unsigned char* values;
};

// Sorts a segment of any length with one block, tile by tile.
template <class Key>
GS_INLINE void sort_long_segment(BlockArrays<Key> arrays, SegmentMemory<Key> other, size_t size, u32 first_bit, u32 end_bit,
                                 Order<Key> order, BlockMemory<Key, block_threads, block_items<Key>>& memory, u32* counts,
                                 size_t* starts) {
    constexpr u32 threads = block_threads, tile_size = threads * block_items<Key>;
    constexpr int items = (int)block_items<Key>;
    const u32 thread = gs::thread_in_block();
    Key *from = arrays.keys, *to = other.keys;
    u32 *from_numbers = other.numbers, *to_numbers = other.numbers_too;
    for (u32 shift = first_bit; shift < end_bit; shift += 8) {
        const Digit<Key> digit(shift, digit_bits(shift, end_bit));
        if (thread < bins) counts[thread] = 0;
        __syncthreads();
        for (size_t i = thread; i < size; i += threads) gs::shared_add(counts + digit(order.rank(from[i])), 1u);
        __syncthreads();
        const gs::BlockScan<u64> scan = gs::block_scan(thread < bins ? (u64)counts[thread] : (u64)0, (u64)0, gs::Sum());
        size_t start = (size_t)scan.before;  // of the keys with digit number `thread` that are not moved yet
        for (size_t begin = 0; begin < size; begin += tile_size) {
            const u32 left = (u32)gs::smaller(size - begin, tile_size);
            ThreadKeys<threads, items> own(left);
            Key keys[items];
            u32 ranks[items];
            GS_UNROLL
            for (int i = 0; i < items; ++i)
                keys[i] = own.has(i) ? order.rank(from[begin + own.at(i)]) : (Key) ~(Key)0;
            for (u32 i = thread; i < threads / 32 * bins; i += threads) memory.next[i] = 0;
            __syncthreads();
            u32 count, before;
            rank_keys<threads, items>(memory.next, memory.totals, keys, own.used, digit, count, before, [] {},
                                      [&](int i, u32 rank) { ranks[i] = rank; });
            if (thread < bins) starts[thread] = start - before;
            start += count;
            __syncthreads();
            GS_UNROLL
            for (int i = 0; i < items; ++i) {
                if (!own.has(i)) continue;
                const size_t at = starts[digit(keys[i])] + ranks[i];
                to[at] = order.key(keys[i]);
                if (arrays.values) to_numbers[at] = shift == first_bit ? (u32)begin + own.at(i) : from_numbers[begin + own.at(i)];
            }
            __syncthreads();
        }
        Key* const keys_to = to;
        to = from, from = keys_to;
        u32* const numbers_to = to_numbers;
        to_numbers = from_numbers, from_numbers = numbers_to;
    }
    if (from != arrays.keys) {
        for (size_t i = thread; i < size; i += threads) arrays.keys[i] = from[i];
    }
    if (arrays.values) {
        const size_t bytes = arrays.value_bytes;
        for (size_t i = thread; i < size * bytes; i += threads) other.values[i] = arrays.values[i];
        __syncthreads();
        for (size_t i = thread; i < size; i += threads) {
            for (size_t b = 0; b < bytes; ++b) arrays.values[i * bytes + b] = other.values[from_numbers[i] * bytes + b];
        }
    }
    __syncthreads();
}

}  // namespace

/// Sorts the keys of each segment that fits into a warp, and moves values with them. Segment s has the keys from offsets[s] up to
/// offsets[s + 1], by whichever of the two arrays of offsets there is. Values have 1, 2, 4, 8 or 16 bytes.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(keys), n * value_bytes <= len(values), segments + 1 <= len(offsets), segments + 1 <= len(long_offsets),
///           end_bit <= 64, first_bit < end_bit, block.x == 256, block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
/// optional: offsets, long_offsets, values
template <class Key>
__global__ void __launch_bounds__(256)
    sort_short_segments(Key* keys, unsigned char* values, unsigned int value_bytes, size_t n,
                        const unsigned int* __restrict__ offsets, const gs::u64* __restrict__ long_offsets, size_t segments,
                        unsigned int first_bit, unsigned int end_bit, Key if_set, Key if_clear) {
    __shared__ Key shared[segment_threads / 32 * most_in_warp];
    const Order<Key> order{if_set, if_clear};
    const Segments all{offsets, long_offsets, n};
    const u32 warp = gs::thread_in_block() / warp_width();
    const size_t s = (size_t)blockIdx.x * (segment_threads / warp_width()) + warp;
    const size_t begin = s < segments ? all.begin(s) : 0, size = s < segments ? all.size(s) : 0;
    if (size < 2 || size > most_in_warp) return;
    sort_in_warp(keys + begin, values ? values + begin * value_bytes : nullptr, value_bytes, (u32)size, first_bit, end_bit,
                 order, shared + warp * most_in_warp);
}

/// Sorts the segments that fit into a block, but not into a warp. 
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(keys), n * value_bytes <= len(values), segments + 1 <= len(offsets), segments + 1 <= len(long_offsets),
///           end_bit <= 64, block.x == 256, block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
/// optional: offsets, long_offsets, values
template <class Key>
__global__ void __launch_bounds__(256, 4)
    sort_segments(Key* keys, unsigned char* values, unsigned int value_bytes, size_t n, const unsigned int* __restrict__ offsets,
                  const gs::u64* __restrict__ long_offsets, size_t segments, unsigned int first_bit, unsigned int end_bit,
                  Key if_set, Key if_clear) {
    __shared__ BlockMemory<Key, segment_threads, segment_items> memory;
    const Order<Key> order{if_set, if_clear};
    const Segments all{offsets, long_offsets, n};
    // No loop over segments, because then it would not fit into the registers.
    const size_t s = blockIdx.x;
    if (s >= segments) return;
    const size_t begin = all.begin(s), size = all.size(s);
    if (size <= most_in_warp || size > segment_threads * segment_items) return;
    unsigned char* const its_values = values ? values + begin * value_bytes : nullptr;
    const BlockArrays<Key> arrays{nullptr, keys + begin, nullptr, its_values, value_bytes, nullptr};
    if (size <= segment_threads * 4)
        sort_in_block<segment_threads, 4>(arrays, (u32)size, first_bit, end_bit, order, memory);
    else
        sort_in_block<segment_threads, (int)segment_items>(arrays, (u32)size, first_bit, end_bit, order, memory);
}

/// Sorts the other segments: each block takes one after the other. If there are values, it needs three more arrays.
/// types: Key = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(keys), n <= len(other), n * value_bytes <= len(values), n * value_bytes <= len(values_other),
///           n <= len(numbers), n <= len(numbers_too), segments + 1 <= len(offsets), segments + 1 <= len(long_offsets),
///           end_bit <= 64, block.x == 512, block.y == 1, block.z == 1, grid.y == 1, grid.z == 1
/// optional: offsets, long_offsets, values, values_other, numbers, numbers_too
template <class Key>
__global__ void __launch_bounds__(512, 1)
    sort_long_segments(Key* keys, Key* other, unsigned char* values, unsigned char* values_other, unsigned int* numbers,
                       unsigned int* numbers_too, unsigned int value_bytes, size_t n,
                       const unsigned int* __restrict__ offsets, const gs::u64* __restrict__ long_offsets, size_t segments,
                       unsigned int first_bit, unsigned int end_bit, Key if_set, Key if_clear) {
    __shared__ BlockMemory<Key, block_threads, block_items<Key>> memory;
    __shared__ u32 counts[bins];
    __shared__ size_t starts[bins];
    const Order<Key> order{if_set, if_clear};
    const Segments all{offsets, long_offsets, n};
    if (values && !(values_other && numbers && numbers_too)) return;
    GS_FOR_EACH_TILE(s, segments) {
        const size_t begin = all.begin(s), size = all.size(s);
        if (size <= segment_threads * segment_items) continue;
        unsigned char* const its_values = values ? values + begin * value_bytes : nullptr;
        const BlockArrays<Key> arrays{nullptr, keys + begin, nullptr, its_values, value_bytes, nullptr};
        SegmentMemory<Key> more{other + begin, nullptr, nullptr, nullptr};
        if (values) more = {other + begin, numbers + begin, numbers_too + begin, values_other + begin * value_bytes};
        sort_long_segment(arrays, more, size, first_bit, end_bit, order, memory, counts, starts);
    }
}
