// Reductions of parts of an array: the rows and columns of a matrix, and segments.
//
// Every result is combined in an order that depends only on the launch's shape, the array's alignment and the lengths.
#include <gpustream/kernel.cuh>

#include "fold.cuh"

namespace {

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
