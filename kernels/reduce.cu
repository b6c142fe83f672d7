// Reductions of whole arrays: each block combines its share of the input and writes one value. If there are several blocks, a second launch
// with one block combines these values. We do not let the last block do that, because it would need a counter that another
// operation sets to zero before. Small arrays take one block.
//
// Every result is combined in an order that depends only on the launch's shape, the array's alignment and the lengths. So you
// get the same bits in every run with the same shape.
#include <gpustream/kernel.cuh>

#include "fold.cuh"

namespace {

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

// Folds the elements of x that this thread of the grid has. On the CPU each block has a contiguous share.
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
