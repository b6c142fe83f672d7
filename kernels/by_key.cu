// Neighbours with equal keys are a run. We scan the values of each run, or combine them to one. The first key of a run is its
// head. On GPUs one kernel reads each element once (`lookback.cuh`); on the CPU each worker has a share, in the steps of `scan.cu`.
//
// We combine pairs: how many heads there are, and what the values since the last head combine to. That is associative, so
// floats give the same bits in every run too.
#include "counted.cuh"
#include "lookback.cuh"
#include "order.cuh"
#include "tiles.cuh"

namespace {

template <class T>
struct RunSum {
    static GS_INLINE T identity() { return T(0); }
    GS_INLINE T get(T x) const { return x; }
    GS_INLINE T put(T x) const { return x; }
    GS_INLINE T operator()(T a, T b) const { return a + b; }
};
// The last key in an order, by its rank.
template <class Bits>
struct RunExtreme {
    Order<Bits> order;
    static GS_INLINE Bits identity() { return 0; }
    GS_INLINE Bits get(Bits x) const { return order.rank(x); }
    GS_INLINE Bits put(Bits x) const { return order.key(x); }
    GS_INLINE Bits operator()(Bits a, Bits b) const { return a < b ? b : a; }
};

// The elements of a tile, or of all tiles before one.
template <class Count, class T>
struct Runs {
    Count heads;
    T value;
};
// The number of heads before a tile needs 64 bits. In two words it has the alignment of a float, so that the size stays small.
struct Heads64 {
    gs::u32 word[2];
};
GS_INLINE Heads64 heads64(gs::u64 number) { return gs::bit_cast<Heads64>(number); }
GS_INLINE gs::u64 number(Heads64 heads) { return gs::bit_cast<gs::u64>(heads); }
GS_INLINE gs::u32 add_heads(gs::u32 a, gs::u32 b) { return a + b; }
GS_INLINE Heads64 add_heads(Heads64 a, Heads64 b) { return heads64(number(a) + number(b)); }
GS_INLINE bool has_heads(gs::u32 heads) { return heads != 0; }
GS_INLINE bool has_heads(Heads64 heads) { return number(heads) != 0; }

template <class Op>
struct InRuns {
    Op op;
    template <class Count, class T>
    GS_INLINE Runs<Count, T> operator()(const Runs<Count, T>& a, const Runs<Count, T>& b) const {
        return Runs<Count, T>{add_heads(a.heads, b.heads), has_heads(b.heads) ? b.value : op(a.value, b.value)};
    }
};

// Where results go. Each may be missing.
template <class K, class T>
struct RunsTo {
    T* running;     // for each element
    K* keys;        // for each run
    T* totals;      // for each run
    gs::u64* runs;  // how many there are
};

// Which elements are heads. `in_strip` returns it for a thread's neighbours, as bits, and `at` for one element. The first of all
// always is one.

// Those whose key differs from the one before.
struct Differing {
    template <class K, int N>
    static GS_INLINE gs::u32 in_strip(const K (&key)[N], K previous) {
        gs::u32 heads = 0;
        GS_UNROLL
        for (int k = 0; k < N; ++k) heads |= (gs::u32)(key[k] != (k == 0 ? previous : key[(k + N - 1) % N])) << k;
        return heads;
    }
    template <class K>
    static GS_INLINE bool at(const K* keys, size_t i) {
        return i == 0 || keys[i] != keys[i - 1];
    }
};

// Those whose key is not 0.
struct Marked {
    template <class K, int N>
    static GS_INLINE gs::u32 in_strip(const K (&key)[N], K) {
        gs::u32 heads = 0;
        GS_UNROLL
        for (int k = 0; k < N; ++k) heads |= (gs::u32)(key[k] != 0) << k;
        return heads;
    }
    template <class K>
    static GS_INLINE bool at(const K* keys, size_t i) {
        return i == 0 || keys[i] != 0;
    }
};

GS_INLINE constexpr int larger(int a, int b) { return a < b ? b : a; }
// As many packs as leave room for several tiles in the shared memory of a multiprocessor, which is 64 KiB for AMD. `by_key.rs`
// has the same numbers.
#if defined(GS_HIP)
constexpr int run_packs = 2;
#else
constexpr int run_packs = 4;
#endif
template <class K, class T>
using RunTile = Tile<run_packs, 16 / larger(sizeof(K), sizeof(T))>;

// How many blocks a multiprocessor should have at once: as many as there is room for in its registers, or its shared memory.
GS_INLINE constexpr int blocks_of_runs(int bytes_of_a_pair) {
#if defined(GS_HIP)
    return 2;
#else
    return bytes_of_a_pair <= 8 ? 4 : 3;
#endif
}

template <class Heads, class K, class T, class Op>
GS_INLINE void runs_in_tile(const K* keys, const T* x, size_t n, const gs::u64* count, bool exclusive, const RunsTo<K, T>& to,
                            gs::u64* state, size_t tiles, const Op& op) {
    typedef RunTile<K, T> Part;
    typedef Runs<gs::u32, T> Short;
    typedef Runs<Heads64, T> Long;
    constexpr int packs = Part::packs, per_pack = Part::per_pack, per_thread = Part::per_thread;
    n = live(n, count);
    const Tiles all{state, tiles};
    const size_t at = all.take();
    if (at * Part::size() >= n) {
        if (at == 0 && gs::thread_in_block() == 0 && to.runs) *to.runs = 0;
        return;
    }
    __shared__ Strips<K, packs, per_pack> keys_of;
    __shared__ Strips<T, packs, per_pack> values_of;
    __shared__ bool starts_with_head, ends_with_tail;
    const Part tile(at, n);
    const K before_warp = tile.before_warp(keys), after_warp = tile.after_warp(keys, n);
    {
        K key[packs][per_pack];
        T value[packs][per_pack];
        tile.load(keys, K(), key);
        tile.load(x, T(), value);
        keys_of.put_packs(key);
        values_of.put_packs(value);
    }
    K key[per_thread];
    T value[per_thread];
    keys_of.get_strip(key);
    values_of.get_strip(value);
    // This thread's elements as bits: those that begin a run, and those that end one.
    const gs::u32 first = gs::thread_in_block() * (gs::u32)per_thread;
    const gs::u32 here = tile.len <= first ? 0 : gs::smaller(tile.len - first, (gs::u32)per_thread);
    K previous = gs::shfl_up(key[per_thread - 1], 1), next = gs::shfl(key[0], (gs::lane() + 1) % gs::warp_size());
    if (gs::lane() == 0) previous = before_warp;
    if (gs::lane() + 1 == gs::warp_size()) next = after_warp;
    gs::u32 heads = Heads::in_strip(key, previous), tails = 0;
    GS_UNROLL
    for (int k = 0; k < per_thread; ++k) {
        tails |= (gs::u32)(key[k] != (k + 1 == per_thread ? next : key[(k + 1) % per_thread])) << k;
    }
    const bool has_last = here != 0 && first + here == tile.len;
    if (tile.begin + first == 0) heads |= 1;
    if (has_last && tile.begin + tile.len == n) tails |= 1u << (here - 1);
    const gs::u32 existing = here == 32 ? ~0u : (1u << here) - 1;
    heads &= existing;
    tails &= existing;
    if (gs::thread_in_block() == 0) starts_with_head = heads & 1;
    if (has_last) ends_with_tail = tails >> (here - 1) & 1;
    // What this thread's elements combine to, and everything in the tile before them.
    Short own[1][1] = {{{(gs::u32)__popc(heads), Op::identity()}}}, before[1];
    GS_UNROLL
    for (int k = 0; k < per_thread; ++k) {
        if ((gs::u32)k >= here) continue;
        own[0][0].value = op(heads >> k & 1 ? Op::identity() : own[0][0].value, op.get(value[k]));
    }
    const InRuns<Op> combine{op};
    const Short total = scan_tile(own, before, Short{0, Op::identity()}, combine);
    const Long prefix =
        all.before(at, Long{heads64(total.heads), total.value}, Long{heads64(0), Op::identity()}, combine);
    const size_t first_run = (size_t)number(prefix.heads);
    if (to.runs && tile.begin + tile.len == n && gs::thread_in_block() == 0) *to.runs = first_run + total.heads;
    // We load the strips again, so that no registers have to keep them during the wait.
    keys_of.get_strip(key);
    values_of.get_strip(value);
    // Where the totals of the runs go that end here. If there are many, they go through shared memory, so that neighbouring threads
    // store neighbouring ones.
    const gs::u32 open = starts_with_head ? 0 : 1, ended = open + total.heads - (ends_with_tail ? 0 : 1);
    const size_t at_run = first_run - open;
    const bool is_dense = to.totals && !to.running && ended > gs::threads_in_block();
    if (is_dense) __syncthreads();
    K* const run_keys = is_dense ? keys_of.flat() : to.keys + at_run;
    T* const totals = is_dense ? values_of.flat() : to.totals + at_run;
    T upto = has_heads(before[0].heads) ? before[0].value : op(prefix.value, before[0].value);
    gs::u32 run = before[0].heads + open - 1;
    GS_UNROLL
    for (int k = 0; k < per_thread; ++k) {
        const bool head = heads >> k & 1;
        const T earlier = head ? Op::identity() : upto;
        upto = op(earlier, op.get(value[k]));
        run += head;
        value[k] = op.put(exclusive ? earlier : upto);
        if (to.totals && tails >> k & 1) {
            run_keys[run] = key[k];
            totals[run] = op.put(upto);
        }
    }
    if (is_dense) {
        __syncthreads();
        for (gs::u32 r = gs::thread_in_block(); r < ended; r += gs::threads_in_block()) {
            to.keys[at_run + r] = run_keys[r];
            to.totals[at_run + r] = totals[r];
        }
    }
    if (to.running) {
        values_of.put_strip(value);
        T item[packs][per_pack];
        values_of.get_packs(item);
        tile.store(to.running, item);
    }
}

template <class Heads, class K, class T, class Op>
GS_INLINE void runs_in_shares(int step, const K* keys, const T* x, size_t n, bool exclusive, const RunsTo<K, T>& to,
                              gs::u64* heads, T* values, size_t shares, const Op& op) {
    if (step == 1) {
        gs::u64 before = 0;
        T carry = Op::identity();
        for (size_t b = 0; b < shares; ++b) {
            const gs::u64 here = heads[b];
            const T value = values[b];
            heads[b] = before;
            values[b] = carry;
            before += here;
            carry = here != 0 ? value : op(carry, value);
        }
        if (to.runs) *to.runs = before;
        return;
    }
    const size_t b = gs::block_in_grid(), begin = gs::share_begin(n, b, gs::blocks_in_grid(), 64);
    const size_t end = gs::share_begin(n, b + 1, gs::blocks_in_grid(), 64);
    if (step == 0) {
        gs::u64 count = 0;
        T value = Op::identity();
        for (size_t i = begin; i < end; ++i) {
            const bool head = Heads::at(keys, i);
            count += head;
            value = op(head ? Op::identity() : value, op.get(x[i]));
        }
        heads[b] = count;
        values[b] = value;
        return;
    }
    size_t run = (size_t)heads[b];
    T value = values[b];
    for (size_t i = begin; i < end; ++i) {
        const bool head = Heads::at(keys, i);
        run += head;
        const T previous = head ? Op::identity() : value;
        value = op(previous, op.get(x[i]));
        if (to.running) to.running[i] = op.put(exclusive ? previous : value);
        if (to.totals && (i + 1 == n || keys[i + 1] != keys[i])) {
            to.keys[run - 1] = keys[i];
            to.totals[run - 1] = op.put(value);
        }
    }
}

}  // namespace

/// Sums the values of each run. `running` gets the sum up to each element, `run_keys` and `totals` the key and the sum of each run,
/// and `runs` how many there are.
/// Each block has one tile. Without a state there is one block.
/// types: K = unsigned char, unsigned short, unsigned int, unsigned long long, T = float, double, unsigned int, unsigned long long
/// requires: n <= len(keys), n <= len(x), 1 <= len(count), n <= len(running), n <= len(run_keys), n <= len(totals),
///           1 <= len(runs), 2 + 4 * (tiles + tiles / 32 + tiles / 1024 + 3) <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: count, running, run_keys, totals, runs, state
template <class K, class T>
__global__ void __launch_bounds__(256, blocks_of_runs(sizeof(K) + sizeof(T))) sum_runs(const K* keys, const T* x, size_t n, const gs::u64* count, bool exclusive,
                                                T* running, K* run_keys, T* totals, gs::u64* runs, gs::u64* state,
                                                size_t tiles) {
    const RunsTo<K, T> to{running, run_keys, totals, runs};
    runs_in_tile<Differing>(keys, x, n, count, exclusive, to, state, tiles, RunSum<T>());
}

/// As `sum_runs`, but the last of the values in the order of `if_set` and `if_clear`.
/// types: K = unsigned char, unsigned short, unsigned int, unsigned long long, T = unsigned int, unsigned long long
/// requires: n <= len(keys), n <= len(x), 1 <= len(count), n <= len(run_keys), n <= len(totals),
///           1 <= len(runs), 2 + 4 * (tiles + tiles / 32 + tiles / 1024 + 3) <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: count, run_keys, totals, runs, state
template <class K, class T>
__global__ void __launch_bounds__(256, blocks_of_runs(sizeof(K) + sizeof(T))) extreme_of_runs(const K* keys, const T* x, size_t n, const gs::u64* count,
                                                       gs::u64 if_set, gs::u64 if_clear, K* run_keys, T* totals,
                                                       gs::u64* runs, gs::u64* state, size_t tiles) {
    const RunsTo<K, T> to{nullptr, run_keys, totals, runs};
    runs_in_tile<Differing>(keys, x, n, count, false, to, state, tiles, RunExtreme<T>{{(T)if_set, (T)if_clear}});
}

/// `sum_runs` on the CPU, in three steps.
/// types: K = unsigned char, unsigned short, unsigned int, unsigned long long, T = float, double, unsigned int, unsigned long long
/// requires: n <= len(keys), n <= len(x), 1 <= len(count), n <= len(running), n <= len(run_keys), n <= len(totals),
///           1 <= len(runs), grid.x <= shares, shares <= len(heads), shares <= len(values), 0 <= step, step <= 2,
///           grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: count, running, run_keys, totals, runs
template <class K, class T>
__global__ void sum_runs_shares(int step, const K* keys, const T* x, size_t n, const gs::u64* count, bool exclusive, T* running,
                                K* run_keys, T* totals, gs::u64* runs, gs::u64* heads, T* values, size_t shares) {
    const RunsTo<K, T> to{running, run_keys, totals, runs};
    runs_in_shares<Differing>(step, keys, x, live(n, count), exclusive, to, heads, values, shares, RunSum<T>());
}

/// `extreme_of_runs` on the CPU, in three steps.
/// types: K = unsigned char, unsigned short, unsigned int, unsigned long long, T = unsigned int, unsigned long long
/// requires: n <= len(keys), n <= len(x), 1 <= len(count), n <= len(run_keys), n <= len(totals), 1 <= len(runs),
///           grid.x <= shares, shares <= len(heads), shares <= len(values), 0 <= step, step <= 2,
///           grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: count, run_keys, totals, runs
template <class K, class T>
__global__ void extreme_of_runs_shares(int step, const K* keys, const T* x, size_t n, const gs::u64* count, gs::u64 if_set,
                                       gs::u64 if_clear, K* run_keys, T* totals, gs::u64* runs, gs::u64* heads, T* values,
                                       size_t shares) {
    const RunsTo<K, T> to{nullptr, run_keys, totals, runs};
    runs_in_shares<Differing>(step, keys, x, live(n, count), false, to, heads, values, shares, RunExtreme<T>{{(T)if_set, (T)if_clear}});
}

/// marks[offset] = 1 for each offset below n. Offsets have 32 bits or 64.
/// requires: count <= len(offsets), count <= len(long_offsets), n <= len(marks)
/// optional: offsets, long_offsets
/// covers: count
extern "C" __global__ void mark_segments(const gs::u32* offsets, const gs::u64* long_offsets, size_t count, unsigned char* marks,
                                         size_t n) {
    const auto offset = [=](size_t s) { return offsets ? (gs::u64)offsets[s] : long_offsets ? long_offsets[s] : (gs::u64)n; };
    GS_FOR_EACH(s, count) {
        // Of the offsets of empty segments, the last one marks.
        const gs::u64 at = offset(s);
        if (at < n && (s + 1 == count || offset(s + 1) != at)) marks[at] = 1;
    }
}

/// As `sum_runs`, but heads are the elements with a mark, and there are sums for each element alone.
/// types: T = float, double, unsigned int, unsigned long long
/// requires: n <= len(marks), n <= len(x), n <= len(running), 2 + 4 * (tiles + tiles / 32 + tiles / 1024 + 3) <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: state
template <class T>
__global__ void __launch_bounds__(256, blocks_of_runs(1 + sizeof(T))) sum_marked(const unsigned char* marks, const T* x, size_t n, bool exclusive, T* running,
                                                  gs::u64* state, size_t tiles) {
    const RunsTo<unsigned char, T> to{running, nullptr, nullptr, nullptr};
    runs_in_tile<Marked>(marks, x, n, nullptr, exclusive, to, state, tiles, RunSum<T>());
}

/// `sum_marked` on the CPU, in three steps.
/// types: T = float, double, unsigned int, unsigned long long
/// requires: n <= len(marks), n <= len(x), n <= len(running), grid.x <= shares, shares <= len(heads), shares <= len(values),
///           0 <= step, step <= 2, grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
template <class T>
__global__ void sum_marked_shares(int step, const unsigned char* marks, const T* x, size_t n, bool exclusive, T* running,
                                  gs::u64* heads, T* values, size_t shares) {
    const RunsTo<unsigned char, T> to{running, nullptr, nullptr, nullptr};
    runs_in_shares<Marked>(step, marks, x, n, exclusive, to, heads, values, shares, RunSum<T>());
}
