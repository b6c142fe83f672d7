// Reductions of whole arrays, of the rows and columns of matrices, and of segments.
//
// Whole arrays: each block combines its share of the input and writes one value. If there are several blocks, a second launch
// with one block combines these values. We do not let the last block do that, because it would need a counter that another
// operation sets to zero before. Small arrays take one block.
//
// Every result is combined in an order that depends only on the launch's shape, the array's alignment and the lengths. So you
// get the same bits in every run with the same shape.
//
// We sum 16-bit floats in float, and integers in 64 bits. Signed integers come as unsigned ones of the same width, whose top
// bit says that they are negative: (x ^ top) - top has all its bits. Minima and maxima are those of ranks (rank.cuh), so
// one instance serves all types of a width. They skip NaN.
#include <gpustream/kernel.cuh>

#include "counted.cuh"
#include "rank.cuh"

namespace {

// Returns an element as the type that we sum in. `top` is a signed integer's top bit, and 0 otherwise.
GS_INLINE float number(float x, float) { return x; }
GS_INLINE double number(double x, double) { return x; }
GS_INLINE float number(gs::half x, float) { return gs::to_float(x); }
GS_INLINE float number(gs::bfloat16 x, float) { return gs::to_float(x); }
template <class T>
GS_INLINE gs::u64 number(T x, gs::u64 top) {
    return (x ^ top) - top;
}

// A fold says what an element is worth (`of`), how two such values become one (`join`, with the identity `zero`), and what
// the result is (`result`).
template <class S>
struct SumFold {
    typedef S Value;
    S top;

    GS_INLINE S zero() const { return S(0); }
    template <class T>
    GS_INLINE S of(T x) const {
        return number(x, top);
    }
    GS_INLINE S join(S a, S b) const { return a + b; }
    GS_INLINE S result(S value) const { return value; }
};

template <class Bits>
struct BestFold {
    typedef Bits Value;
    Ranks<Bits> ranks;
    Order<Bits> order;  // of the result
    Bits nothing;       // the result if there is no number

    GS_INLINE Bits zero() const { return 0; }
    GS_INLINE Bits of(Bits x) const { return ranks.of(x); }
    GS_INLINE Bits join(Bits a, Bits b) const { return a < b ? b : a; }
    GS_INLINE Bits result(Bits rank) const { return rank == 0 ? nothing : order.key(rank); }
};

struct NonzeroFold {
    typedef gs::u64 Value;
    gs::u64 mask;

    GS_INLINE gs::u64 zero() const { return 0; }
    template <class T>
    GS_INLINE gs::u64 of(T x) const {
        return (x & mask) != 0;
    }
    GS_INLINE gs::u64 join(gs::u64 a, gs::u64 b) const { return a + b; }
    GS_INLINE gs::u64 result(gs::u64 value) const { return value; }
};

// Calls packs(i, stride) for four packs of 16 bytes that begin at i, i + stride, ..., pack(i) for one, and single(i) for the
// elements before the first boundary and after the last: thread number `thread` of `threads` that share the array.
template <class T, class Packs, class One, class Single>
GS_INLINE void walk(const T* x, size_t n, size_t thread, size_t threads, Packs packs, One pack, Single single) {
    constexpr int lanes = gs::pack_size<T>();
    const size_t head = gs::smaller(gs::to_boundary(x), n), whole = (n - head) / lanes;
    size_t p = thread;
    for (; p < whole && whole - p > 3 * threads; p += 4 * threads) packs(head + p * lanes, threads * lanes);
    for (; p < whole; p += threads) pack(head + p * lanes);
    const size_t rest = n - whole * lanes;
    for (size_t r = thread; r < rest; r += threads) single(r < head ? r : whole * lanes + r);
}

// Folds the elements of x that thread number `thread` has.
template <class Fold, class T, class Value = typename Fold::Value>
GS_INLINE Value fold_share(const Fold& fold, const T* x, size_t n, size_t thread, size_t threads) {
#if defined(GS_CPU)
    if (threads == 1) {
        // With as many sums as two vectors have, there is no chain of dependent additions.
        constexpr int lanes = 128 / sizeof(Value);
        Value acc[lanes];
        for (int lane = 0; lane < lanes; ++lane) acc[lane] = fold.zero();
        size_t i = 0;
        for (; n - i >= lanes; i += lanes) {
            for (int lane = 0; lane < lanes; ++lane) acc[lane] = fold.join(acc[lane], fold.of(x[i + lane]));
        }
        for (; i < n; ++i) acc[0] = fold.join(acc[0], fold.of(x[i]));
        for (int lane = 1; lane < lanes; ++lane) acc[0] = fold.join(acc[0], acc[lane]);
        return acc[0];
    }
#endif
    constexpr int lanes = gs::pack_size<T>(), chains = lanes < 4 ? lanes : 4;
    Value acc[chains];
    GS_UNROLL
    for (int c = 0; c < chains; ++c) acc[c] = fold.zero();
    const auto add = [&](const gs::Pack<T>& pack) {
        GS_UNROLL
        for (int lane = 0; lane < lanes; ++lane) {
            acc[lane % chains] = fold.join(acc[lane % chains], fold.of(pack.at[lane]));
        }
    };
    walk(
        x, n, thread, threads,
        [&](size_t i, size_t stride) {
            gs::Pack<T> pack[4];
            GS_UNROLL
            for (int b = 0; b < 4; ++b) pack[b] = gs::load_wide(x + i + b * stride);
            GS_UNROLL
            for (int b = 0; b < 4; ++b) add(pack[b]);
        },
        [&](size_t i) { add(gs::load_wide(x + i)); }, [&](size_t i) { acc[0] = fold.join(acc[0], fold.of(x[i])); });
    GS_UNROLL
    for (int c = 1; c < chains; ++c) acc[0] = fold.join(acc[0], acc[c]);
    return acc[0];
}

// The same for the grid's threads. On the CPU each block has a contiguous share.
template <class Fold, class T, class Value = typename Fold::Value>
GS_INLINE Value fold_grid(const Fold& fold, const T* x, size_t n) {
#if defined(GS_SERIAL)
    if (gs::threads_in_block() == 1) {
        const size_t begin = gs::grid_begin(n);
        return fold_share(fold, x + begin, gs::grid_end(n) - begin, 0, 1);
    }
#endif
    return fold_share(fold, x, n, gs::thread_in_grid(), gs::threads_in_grid());
}

template <class Fold>
GS_INLINE void write_block(const Fold& fold, typename Fold::Value value, typename Fold::Value* partial) {
    typedef typename Fold::Value Value;
    value = gs::block_reduce(value, [&](Value a, Value b) { return fold.join(a, b); });
    if (gs::thread_in_block() == 0) partial[gs::block_in_grid()] = fold.result(value);
}

// The largest rank, and the lowest place that has it.
constexpr gs::u64 nowhere = ~(gs::u64)0;
template <class Bits>
struct Best {
    Bits rank;
    gs::u64 place;
};
struct Better {
    template <class Bits>
    GS_INLINE Best<Bits> operator()(Best<Bits> a, Best<Bits> b) const {
        return a.rank > b.rank || (a.rank == b.rank && a.place < b.place) ? a : b;
    }
};

// Finds the best element of this thread's share. We note the pack alone, and look for the element once at the end.
template <class Bits>
GS_INLINE Best<Bits> best_of_share(const Ranks<Bits>& ranks, const Bits* x, size_t n) {
    Best<Bits> best{0, nowhere};
#if defined(GS_SERIAL)
    if (gs::threads_in_block() == 1) {
        constexpr int strip = 64;
        const size_t end = gs::grid_end(n);
        for (size_t i = gs::grid_begin(n); i < end; i += strip) {
            const size_t last = gs::smaller(end, i + strip);
            Bits most = 0;
            for (size_t j = i; j < last; ++j) {
                const Bits rank = ranks.of(x[j]);
                most = most < rank ? rank : most;
            }
            if (best.place == nowhere || most > best.rank) best = Best<Bits>{most, i};
        }
        while (best.place < end && ranks.of(x[best.place]) != best.rank) ++best.place;
        return best;
    }
#endif
    constexpr int lanes = gs::pack_size<Bits>();
    const auto offer = [&](const gs::Pack<Bits>& pack, size_t i) {
        Bits most = 0;
        GS_UNROLL
        for (int lane = 0; lane < lanes; ++lane) {
            const Bits rank = ranks.of(pack.at[lane]);
            most = most < rank ? rank : most;
        }
        if (most > best.rank || best.place == nowhere) best = Best<Bits>{most, i};
    };
    Best<Bits> single{0, nowhere};
    walk(
        x, n, gs::thread_in_grid(), gs::threads_in_grid(),
        [&](size_t i, size_t stride) {
            gs::Pack<Bits> pack[4];
            GS_UNROLL
            for (int b = 0; b < 4; ++b) pack[b] = gs::load_wide(x + i + b * stride);
            GS_UNROLL
            for (int b = 0; b < 4; ++b) offer(pack[b], i + b * stride);
        },
        [&](size_t i) { offer(gs::load_wide(x + i), i); },
        [&](size_t i) { single = Better()(single, Best<Bits>{ranks.of(x[i]), i}); });
    if (best.place != nowhere) {
        for (int lane = 1; lane < lanes && ranks.of(x[best.place]) != best.rank; ++lane) ++best.place;
    }
    return Better()(best, single);
}

// Count, mean and sum of the squared distances from it. Two of them become one as Chan, Golub and LeVeque say ("Algorithms for
// computing the sample variance", 1983), which loses no digits if the mean is large.
template <class S>
struct Moments {
    S count, mean, squares;
};
struct Merge {
    template <class S>
    GS_INLINE Moments<S> operator()(Moments<S> a, Moments<S> b) const {
        if (b.count == 0) return a;
        const S count = a.count + b.count, distance = b.mean - a.mean, weight = b.count / count;
        return {count, a.mean + distance * weight, a.squares + b.squares + distance * distance * a.count * weight};
    }
};
template <int Size, class T, class S>
GS_INLINE Moments<S> moments_of(const T* x, S) {
    S sum = 0, squares = 0;
    GS_UNROLL
    for (int i = 0; i < Size; ++i) sum += number(x[i], S(0));
    const S mean = sum * (S(1) / Size);
    GS_UNROLL
    for (int i = 0; i < Size; ++i) {
        const S distance = number(x[i], S(0)) - mean;
        squares += distance * distance;
    }
    return {S(Size), mean, squares};
}

// Joins what thread number `thread` has of n values.
template <class Fold, class Value = typename Fold::Value>
GS_INLINE Value fold_values(const Fold& fold, const Value* x, size_t n, size_t thread, size_t threads) {
    Value value = fold.zero();
    size_t i = thread;
    for (; i < n && n - i > 7 * threads; i += 8 * threads) {
        Value item[8];
        GS_UNROLL
        for (int b = 0; b < 8; ++b) item[b] = x[i + b * threads];
        GS_UNROLL
        for (int b = 0; b < 8; ++b) value = fold.join(value, item[b]);
    }
    for (; i < n; i += threads) value = fold.join(value, x[i]);
    return value;
}

// How many elements of a segment, or of a row, one warp combines at most.
constexpr size_t piece = 4096;

// Where segments begin: at offsets, or every `width` elements.
struct Segments {
    const gs::u64* offsets;
    size_t count, width, n;

    GS_INLINE size_t begin(size_t s) const { return offsets ? gs::smaller((size_t)offsets[s], n) : s * width; }
    // Returns the first segment from `low` on that ends behind element i; `count` if there is none.
    GS_INLINE size_t at(size_t low, size_t i) const {
        if (!offsets) return i / width;
        const gs::u32 lanes = gs::warp_lanes();
        size_t high = count;
        if (lanes < 8) {
            while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if (begin(middle + 1) > i) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            return low;
        }
        // The lanes look at as many places at once, the nearest ones first.
        for (size_t step = 1; low < high; step = (high - low + lanes - 1) / lanes) {
            const size_t probe = low + gs::lane() * step;
            const size_t passed = (size_t)__popcll(gs::ballot(probe < high && begin(probe + 1) <= i));
            if (passed == 0) return low;
            high = passed < lanes ? gs::smaller(high, low + passed * step) : high;
            low += (passed - 1) * step + 1;
        }
        return low;
    }
};

// Combines the pieces of segments that lie in one tile of `piece` elements, and there is a warp for each tile. A segment inside
// of a tile is done then. If it begins in an earlier tile, its part of this one goes to heads[tile], and if it begins here
// and does not end here, to tails[tile].
template <class Fold, class T>
GS_INLINE void fold_pieces(const Fold& fold, const T* x, size_t n, const Segments& segments, typename Fold::Value* out,
                           typename Fold::Value* heads, typename Fold::Value* tails) {
    typedef typename Fold::Value Value;
    const auto join = [&](Value a, Value b) { return fold.join(a, b); };
    const gs::u32 lane = gs::lane(), lanes = gs::warp_lanes();
    const size_t tiles = (n + piece - 1) / piece, warps = gs::blocks_in_grid() * gs::warps_in_block();
    for (size_t tile = gs::block_in_grid() * gs::warps_in_block() + gs::warp_in_block(); tile < tiles; tile += warps) {
        const size_t begin = tile * piece, end = gs::smaller(begin + piece, n);
        const size_t first = segments.at(0, begin);
        if (first >= segments.count) continue;
        const size_t last = gs::smaller(segments.at(first, end - 1), segments.count - 1);
        const auto write = [&](size_t s, size_t from, size_t to, Value value) {
            if (from >= begin && to <= end) {
                out[s] = fold.result(value);
            } else if (from < begin) {
                heads[tile] = value;
            } else {
                tails[tile] = value;
            }
        };
        // Each lane knows where one segment begins, and if most segments are short, it also combines it.
        const bool is_short = lanes > 1 && last - first >= piece / 32;
        for (size_t base = first; base <= last; base += lanes) {
            const size_t own = segments.begin(gs::smaller(base + lane, segments.count));
            const size_t behind = segments.begin(gs::smaller(base + lane + 1, segments.count));
            if (is_short) {
                const size_t a = own < begin ? begin : own, b = behind < end ? behind : end;
                if (base + lane > last || a >= b) continue;
                Value value = fold.of(x[a]);
                for (size_t i = a + 1; i < b; ++i) value = fold.join(value, fold.of(x[i]));
                write(base + lane, own, behind, value);
                continue;
            }
            for (gs::u32 source = 0; source < lanes && base + source <= last; ++source) {
                const size_t from = gs::shfl(own, source), to = gs::shfl(behind, source);
                const size_t a = from < begin ? begin : from, b = to < end ? to : end;
                if (a >= b) continue;
                const Value value = gs::warp_reduce(fold_share(fold, x + a, b - a, lane, lanes), join);
                if (lane == 0) write(base + source, from, to, value);
            }
        }
    }
}

// Combines what fold_pieces left of the segments that lie in several tiles. A lane takes a segment, or a warp if there are few
// segments or many tiles.
template <class Fold>
GS_INLINE void join_pieces(const Fold& fold, const Segments& segments, const typename Fold::Value* heads,
                           const typename Fold::Value* tails, typename Fold::Value* out) {
    typedef typename Fold::Value Value;
    const auto join = [&](Value a, Value b) { return fold.join(a, b); };
    constexpr size_t many = 16;
    const gs::u32 lane = gs::lane(), lanes = gs::warp_lanes();
    const size_t warps = gs::blocks_in_grid() * gs::warps_in_block();
    const size_t warp = gs::block_in_grid() * gs::warps_in_block() + gs::warp_in_block();
    const size_t even = (segments.count + warps - 1) / warps, each = even < lanes ? even : lanes;
    const size_t rounds = (segments.count + each - 1) / each;
    for (size_t round = warp; round < rounds; round += warps) {
        const size_t s = round * each + lane;
        size_t first = 0, last = 0;
        bool is_long = false;
        if (lane < each && s < segments.count) {
            const size_t from = segments.begin(s), to = segments.begin(s + 1);
            if (from >= to) {
                out[s] = fold.result(fold.zero());
            } else {
                first = from / piece;
                last = (to - 1) / piece;
                is_long = lanes > 1 && last - first > many;
                if (first < last && !is_long) {
                    Value value = tails[first];
                    for (size_t t = first + 1; t <= last; ++t) value = fold.join(value, heads[t]);
                    out[s] = fold.result(value);
                }
            }
        }
        if (lanes == 1 || !gs::any(is_long)) continue;
        for (gs::u32 source = 0; source < each; ++source) {
            if (!gs::shfl((gs::u32)is_long, source)) continue;
            const size_t begin = gs::shfl(first, source), end = gs::shfl(last, source);
            Value value = lane == 0 ? tails[begin] : fold.zero();
            value = fold.join(value, fold_values(fold, heads + begin + 1, end - begin, lane, lanes));
            value = gs::warp_reduce(value, join);
            if (lane == source) out[s] = fold.result(value);
        }
    }
}

// Combines each column's part in `parts` groups of rows: out[part * columns + column]. Neighbouring threads have neighbouring
// columns, and if there are fewer than `width` of them, several threads have different rows of one.
template <class Fold, class T>
GS_INLINE void fold_columns(const Fold& fold, const T* x, size_t rows, size_t columns, size_t parts, gs::u32 width,
                            typename Fold::Value* out) {
    typedef typename Fold::Value Value;
    __shared__ Value shared[1024];
    const size_t height = (rows + parts - 1) / parts;
    const gs::u32 threads = gs::threads_in_block(), thread = gs::thread_in_block();
    if (threads == 1) {
        GS_FOR_EACH_TILE(part, parts) {
            Value* result = out + part * columns;
            for (size_t c = 0; c < columns; ++c) result[c] = fold.zero();
            const size_t end = gs::smaller(rows, (part + 1) * height);
            for (size_t r = part * height; r < end; ++r) {
                const T* row = x + r * columns;
                for (size_t c = 0; c < columns; ++c) result[c] = fold.join(result[c], fold.of(row[c]));
            }
            for (size_t c = 0; c < columns; ++c) result[c] = fold.result(result[c]);
        }
        return;
    }
    width = width < threads ? width : threads;
    const size_t groups = (columns + width - 1) / width;
    const gs::u32 deep = threads / width, of = thread / width;
    GS_FOR_EACH_TILE(tile, groups * parts) {
        const size_t part = tile / groups, column = (tile - part * groups) * width + thread % width;
        const size_t end = gs::smaller(rows, (part + 1) * height);
        Value value = fold.zero();
        if (column < columns && of < deep) {
            size_t r = part * height + of;
            for (; r < end && end - r > 3 * (size_t)deep; r += 4 * (size_t)deep) {
                T item[4];
                GS_UNROLL
                for (int b = 0; b < 4; ++b) item[b] = x[(r + b * (size_t)deep) * columns + column];
                GS_UNROLL
                for (int b = 0; b < 4; ++b) value = fold.join(value, fold.of(item[b]));
            }
            for (; r < end; r += deep) value = fold.join(value, fold.of(x[r * columns + column]));
        }
        shared[thread] = value;
        __syncthreads();
        if (of == 0 && column < columns) {
            for (gs::u32 d = 1; d < deep; ++d) value = fold.join(value, shared[thread + d * width]);
            out[part * columns + column] = fold.result(value);
        }
        __syncthreads();
    }
}

}  // namespace

/// partial[b] = sum of the x[i] of block b. `top`: a signed integer's top bit, otherwise 0.
/// types: (T, S) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float), (unsigned char, gs::u64),
///                 (unsigned short, gs::u64), (unsigned int, gs::u64), (unsigned long long, gs::u64)
/// optional: count
/// requires: n <= len(x), 1 <= len(count), grid.x * grid.y * grid.z <= len(partial)
template <class T, class S>
__global__ void block_sum(const T* __restrict__ x, const gs::u64* __restrict__ count, size_t n, S top,
                          S* __restrict__ partial) {
    const SumFold<S> fold{top};
    write_block(fold, fold_grid(fold, x, live(n, count)), partial);
}

/// partial[b] = sum of x[i] * y[i] over the i of block b
/// types: (T, S) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float)
/// optional: count, other_count
/// requires: n <= len(x), n <= len(y), 1 <= len(count), 1 <= len(other_count), grid.x * grid.y * grid.z <= len(partial)
template <class T, class S>
__global__ void block_dot(const T* __restrict__ x, const T* __restrict__ y, const gs::u64* __restrict__ count,
                          const gs::u64* __restrict__ other_count, size_t n, S* __restrict__ partial) {
    const S value = gs::fold_wide(
        live(live(n, count), other_count), S(0), gs::Sum(),
        [](T x, T y) { return gs::to_float(x) * gs::to_float(y); }, x, y);
    write_block(SumFold<S>{S(0)}, value, partial);
}

/// partial[b] = how many x[i] of block b have a bit of `mask`
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: count
/// requires: n <= len(x), 1 <= len(count), grid.x * grid.y * grid.z <= len(partial)
template <class T>
__global__ void block_nonzero(const T* __restrict__ x, const gs::u64* __restrict__ count, size_t n, gs::u64 mask,
                              gs::u64* __restrict__ partial) {
    const NonzeroFold fold{mask};
    write_block(fold, fold_grid(fold, x, live(n, count)), partial);
}

/// verdict = whether `found` of the elements are more than none; with `all`, whether they are all.
/// optional: count
/// requires: 1 <= len(found), 1 <= len(count), 1 <= len(verdict)
__global__ void judge(const gs::u64* found, const gs::u64* count, size_t n, unsigned int all, uint8_t* verdict) {
    if (gs::thread_in_grid() == 0) *verdict = all ? *found == live(n, count) : *found > 0;
}

/// The first of the x[i] in an order, and its i: the lowest if there are several. With `ranks` and `places`, block b writes its
/// own there, for `best_of`. Otherwise there must be one block.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: count, ranks, places, index
/// requires: n <= len(x), 1 <= len(count), grid.x * grid.y * grid.z <= len(ranks), grid.x * grid.y * grid.z <= len(places),
///           1 <= len(value), 1 <= len(index)
template <class Bits>
__global__ void block_best(const Bits* __restrict__ x, const gs::u64* __restrict__ count, size_t n, Bits if_set, Bits if_clear,
                           Bits numbers, Bits nothing, Bits* __restrict__ ranks, gs::u64* __restrict__ places,
                           Bits* __restrict__ value, gs::u64* __restrict__ index) {
    const Ranks<Bits> order{{if_set, if_clear}, numbers};
    const Best<Bits> best = gs::block_reduce(best_of_share(order, x, live(n, count)), Better());
    if (gs::thread_in_block() != 0) return;
    const size_t block = gs::block_in_grid();
    if (ranks && places) {
        ranks[block] = best.rank;
        places[block] = best.place;
    } else if (block == 0) {
        *value = best.rank == 0 ? nothing : order.order.key(best.rank);
        if (index) *index = best.place;
    }
}

/// The best of the blocks' results.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// optional: index
/// requires: blocks <= len(ranks), blocks <= len(places), 1 <= len(value), 1 <= len(index)
template <class Bits>
__global__ void best_of(const Bits* __restrict__ ranks, const gs::u64* __restrict__ places, size_t blocks, Bits if_set,
                        Bits if_clear, Bits nothing, Bits* __restrict__ value, gs::u64* __restrict__ index) {
    if (gs::block_in_grid() != 0) return;
    Best<Bits> best{0, nowhere};
    for (size_t b = gs::thread_in_block(); b < blocks; b += gs::threads_in_block()) {
        best = Better()(best, Best<Bits>{ranks[b], places[b]});
    }
    best = gs::block_reduce(best, Better());
    if (gs::thread_in_block() != 0) return;
    *value = best.rank == 0 ? nothing : Order<Bits>{if_set, if_clear}.key(best.rank);
    if (index) *index = best.place;
}

/// partial[3 * b ..] = count, mean, and sum of the squared distances from the mean, of the x[i] of block b
/// types: (T, S) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float)
/// optional: count
/// requires: n <= len(x), 1 <= len(count), 3 * grid.x * grid.y * grid.z <= len(partial)
template <class T, class S>
__global__ void block_moments(const T* __restrict__ x, const gs::u64* __restrict__ count, size_t n, S* __restrict__ partial) {
    n = live(n, count);
    Moments<S> moments{0, 0, 0};
    const auto single = [&](size_t i) { moments = Merge()(moments, Moments<S>{1, number(x[i], S(0)), 0}); };
#if defined(GS_SERIAL)
    constexpr int strip = 16;
    const size_t end = gs::grid_end(n);
    size_t i = gs::grid_begin(n);
    for (; end - i >= strip; i += strip) moments = Merge()(moments, moments_of<strip>(x + i, S(0)));
    for (; i < end; ++i) single(i);
#else
    constexpr int lanes = gs::pack_size<T>();
    walk(
        x, n, gs::thread_in_grid(), gs::threads_in_grid(),
        [&](size_t i, size_t stride) {
            gs::Pack<T> pack[4];
            GS_UNROLL
            for (int b = 0; b < 4; ++b) pack[b] = gs::load_wide(x + i + b * stride);
            T item[4 * lanes];
            GS_UNROLL
            for (int l = 0; l < 4 * lanes; ++l) item[l] = pack[l / lanes].at[l % lanes];
            moments = Merge()(moments, moments_of<4 * lanes>(item, S(0)));
        },
        [&](size_t i) {
            const gs::Pack<T> pack = gs::load_wide(x + i);
            moments = Merge()(moments, moments_of<lanes>(pack.at, S(0)));
        },
        single);
#endif
    moments = gs::block_reduce(moments, Merge());
    if (gs::thread_in_block() != 0) return;
    S* own = partial + 3 * gs::block_in_grid();
    own[0] = moments.count;
    own[1] = moments.mean;
    own[2] = moments.squares;
}

/// Mean and variance from the blocks' results. NaN if there are no elements.
/// types: S = float, double
/// requires: 3 * blocks <= len(partial), 1 <= len(mean), 1 <= len(variance)
template <class S>
__global__ void moments_of_blocks(const S* __restrict__ partial, size_t blocks, S* __restrict__ mean, S* __restrict__ variance) {
    if (gs::block_in_grid() != 0) return;
    Moments<S> moments{0, 0, 0};
    for (size_t b = gs::thread_in_block(); b < blocks; b += gs::threads_in_block()) {
        const S* own = partial + 3 * b;
        moments = Merge()(moments, Moments<S>{own[0], own[1], own[2]});
    }
    moments = gs::block_reduce(moments, Merge());
    if (gs::thread_in_block() != 0) return;
    *mean = moments.count == 0 ? moments.squares / moments.count : moments.mean;
    *variance = moments.squares / moments.count;
}

/// out[s] = sum of segment s, if it lies in one tile of 4096 elements. Of the others, heads[tile] and tails[tile] = their parts.
/// Segments begin at `offsets`, or every `width` elements.
/// types: (T, S) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float), (unsigned char, gs::u64),
///                 (unsigned short, gs::u64), (unsigned int, gs::u64), (unsigned long long, gs::u64)
/// optional: offsets
/// requires: n <= len(x), segments + 1 <= len(offsets), 1 <= width, segments <= len(out), (n + 4095) / 4096 <= len(heads),
///           (n + 4095) / 4096 <= len(tails)
template <class T, class S>
__global__ void segment_sums(const T* __restrict__ x, size_t n, const gs::u64* __restrict__ offsets, size_t segments, size_t width,
                             S top, S* __restrict__ out, S* __restrict__ heads, S* __restrict__ tails) {
    fold_pieces(SumFold<S>{top}, x, n, Segments{offsets, segments, width, n}, out, heads, tails);
}

/// out[s] = sum of segment s, if it lies in several tiles or is empty
/// types: S = float, double, gs::u64
/// optional: offsets
/// requires: segments + 1 <= len(offsets), segments * width <= n, segments <= len(out), (n + 4095) / 4096 <= len(heads),
///           (n + 4095) / 4096 <= len(tails)
template <class S>
__global__ void segment_totals(const S* __restrict__ heads, const S* __restrict__ tails, size_t n,
                               const gs::u64* __restrict__ offsets, size_t segments, size_t width, S* __restrict__ out) {
    join_pieces(SumFold<S>{S(0)}, Segments{offsets, segments, width, n}, heads, tails, out);
}

/// out[s] = the best of segment s: as `segment_sums`, with ranks in heads and tails
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= width, segments <= len(out), (n + 4095) / 4096 <= len(heads), (n + 4095) / 4096 <= len(tails)
template <class Bits>
__global__ void row_bests(const Bits* __restrict__ x, size_t n, size_t segments, size_t width, Bits if_set, Bits if_clear,
                          Bits numbers, Bits nothing, Bits* __restrict__ out, Bits* __restrict__ heads,
                          Bits* __restrict__ tails) {
    const Order<Bits> order{if_set, if_clear};
    const BestFold<Bits> fold{{order, numbers}, order, nothing};
    fold_pieces(fold, x, n, Segments{nullptr, segments, width, n}, out, heads, tails);
}

/// out[s] = the best of segment s, if it lies in several tiles or is empty
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: segments * width <= n, segments <= len(out), (n + 4095) / 4096 <= len(heads), (n + 4095) / 4096 <= len(tails)
template <class Bits>
__global__ void row_totals(const Bits* __restrict__ heads, const Bits* __restrict__ tails, size_t n, size_t segments,
                           size_t width, Bits if_set, Bits if_clear, Bits nothing, Bits* __restrict__ out) {
    const Order<Bits> order{if_set, if_clear};
    join_pieces(BestFold<Bits>{{order, 0}, order, nothing}, Segments{nullptr, segments, width, n}, heads, tails, out);
}

/// out[part * columns + c] = sum of column c in group `part` of rows
/// types: (T, S) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float), (unsigned char, gs::u64),
///                 (unsigned short, gs::u64), (unsigned int, gs::u64), (unsigned long long, gs::u64)
/// requires: rows * columns <= len(x), 1 <= parts, parts * columns <= len(out), 1 <= width
template <class T, class S>
__global__ void column_sums(const T* __restrict__ x, size_t rows, size_t columns, size_t parts, unsigned int width, S top,
                            S* __restrict__ out) {
    fold_columns(SumFold<S>{top}, x, rows, columns, parts, width, out);
}

/// out[part * columns + c] = the best of column c in group `part` of rows. The masks with `from` are for the input; the others
/// make the result from a rank.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: rows * columns <= len(x), 1 <= parts, parts * columns <= len(out), 1 <= width
template <class Bits>
__global__ void column_bests(const Bits* __restrict__ x, size_t rows, size_t columns, size_t parts, unsigned int width,
                             Bits from_set, Bits from_clear, Bits numbers, Bits if_set, Bits if_clear, Bits nothing,
                             Bits* __restrict__ out) {
    const BestFold<Bits> fold{{{from_set, from_clear}, numbers}, {if_set, if_clear}, nothing};
    fold_columns(fold, x, rows, columns, parts, width, out);
}
