// Folds: what an element is worth, and how two such values become one. Reductions of whole arrays and of parts share them.
//
// We sum 16-bit floats in float, and integers in 64 bits. Signed integers come as unsigned ones of the same width, whose top
// bit says that they are negative: (x ^ top) - top has all its bits. Minima and maxima are those of ranks (rank.cuh), so
// one instance serves all types of a width. They skip NaN.
#ifndef GPUSTREAM_KERNELS_FOLD_CUH
#define GPUSTREAM_KERNELS_FOLD_CUH

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

}  // namespace

#endif
