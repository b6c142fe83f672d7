// Histograms with any bins: which bin each element is in, how many elements a bin has, and the sum of their weights.
//
// Bins are given by their edges, which we compare by rank (`order.cuh`), so that one instance of a kernel serves all types of a width. -0
// counts as 0. The last bin contains its upper edge. Even bins have edges too, but we compute a bin and look at the edges only if the
// element is so close to one that rounding could decide.
#include "count_bins.cuh"
#include "counted.cuh"
#include "numbers.cuh"
#include "order.cuh"
#include "search.cuh"

namespace {

// A real number for the computation of even bins. Ranks of 64-bit keys need a double. At `large`, these numbers are the integers, so
// the bits of neighbours are neighbours.
template <class Bits>
struct RealOf {
    typedef float Type;
    typedef gs::u32 RealBits;
    static constexpr float large = 12582912;  // 1.5 * 2^23
};
template <>
struct RealOf<gs::u64> {
    typedef double Type;
    typedef gs::u64 RealBits;
    static constexpr double large = 6755399441055744;  // 1.5 * 2^52
};

GS_INLINE float real_of(unsigned char, gs::u32) { return 0; }
GS_INLINE float real_of(gs::u16 key, gs::u32 kind) {
    return kind == kind_float ? gs::to_float(gs::bit_cast<gs::half>(key)) : gs::to_float(gs::bit_cast<gs::bfloat16>(key));
}
GS_INLINE float real_of(gs::u32 key, gs::u32) { return gs::bit_cast<float>(key); }
GS_INLINE double real_of(gs::u64 key, gs::u32) { return gs::bit_cast<double>(key); }

template <class Bits>
struct Bins {
    typedef typename RealOf<Bits>::Type Real;
    typedef typename RealOf<Bits>::RealBits RealBits;
    Order<Bits> order;
    Bits minus_zero;    // these bits count as 0
    const Bits* edges;  // the ranks of the edges; without them, bin b has the integer b
    gs::u32 bins;
    gs::u32 kind;
    Real scale;  // bins per unit; 0 if they are not even
    Real sure;   // how far from the middle of a bin, in bins, we trust `scale`
    Bits low_rank, high_rank;
    Real low;

    GS_INLINE Bins(Order<Bits> order, gs::u64 minus_zero, const Bits* edges, gs::u32 bins, gs::u32 kind, double scale, double sure)
        : order(order), minus_zero((Bits)minus_zero), edges(edges), bins(bins), kind(kind), scale((Real)scale), sure((Real)sure) {
        low_rank = edges ? edges[0] : order.rank(0);
        high_rank = edges ? edges[bins] : (Bits)~(Bits)0;
        low = real_of(order.key(low_rank), kind);
    }

    GS_INLINE Bits rank(Bits key) const { return order.rank(key == minus_zero ? (Bits)0 : key); }

    // Returns the bin that a key is in, or the number of bins if it is in none, such as NaN.
    GS_INLINE gs::u32 of(Bits key) const {
        if (scale == 0) return of_uneven(key);
        gs::u32 bin;
        return quick(key, bin) ? bin : slow(key);
    }

    // The place of a key in even bins. 0 is the middle of the first bin.
    GS_INLINE Real from_first_middle(Bits key) const {
        const Real from_low = kind < kind_float ? (Real)(Bits)(order.rank(key) - low_rank) : real_of(key, kind) - low;
        return from_low * scale - (Real)0.5;
    }

    // Finds a key's bin in even bins, but not if it is near an edge.
    GS_INLINE bool quick(Bits key, gs::u32& bin) const {
        const Real at = from_first_middle(key);
        // The sum rounds it to an integer. This takes less time than a conversion.
        constexpr Real large = RealOf<Bits>::large;
        const Real sum = at + large;
        const Real from_middle = at - (sum - large);
        const RealBits near = gs::bit_cast<RealBits>(sum) - gs::bit_cast<RealBits>(large);
        const bool is_sure = from_middle < sure && from_middle > -sure;
        bin = is_sure && near < bins ? (gs::u32)near : bins;
        return is_sure || !(at > (Real)-1 && at < (Real)bins);
    }

    // Finds a key's bin in even bins by the nearest edge. For others, rounding cannot decide.
    GS_INLINE gs::u32 slow(Bits key) const {
        const Bits place = rank(key);
        if (place < low_rank || place > high_rank) return bins;
        if (place == high_rank) return bins - 1;
        const Real at = from_first_middle(key) + (Real)1;
        // This rounds it down, because it is positive.
        const gs::u32 edge = at > 0 ? (gs::u32)at : 0;
        return place < edges[edge] ? edge - 1 : edge;
    }

    GS_INLINE gs::u32 of_uneven(Bits key) const {
        const Bits place = rank(key);
        if (place < low_rank || place > high_rank) return bins;
        if (!edges) return (gs::u64)(Bits)(place - low_rank) < bins ? (gs::u32)(place - low_rank) : bins;
        if (place == high_rank) return bins - 1;
        const Bits* const all = edges;
        return (gs::u32)first_not((size_t)bins + 1, [=](size_t at) { return all[at] <= place; }) - 1;
    }
};

// Returns the product, rounded. Without this, compilers would fuse it with the sum that follows.
GS_INLINE double rounded_product(double a, double b) {
#if defined(GS_CUDA)
    return __dmul_rn(a, b);
#elif defined(GS_HIP)
#pragma clang fp contract(off)
    const double product = a * b;
    return product;
#else
    volatile double product = a * b;
    return product;
#endif
}

GS_INLINE unsigned char nearest_float(double, gs::u32, unsigned char) { return 0; }
GS_INLINE gs::u16 nearest_float(double x, gs::u32 kind, gs::u16) {
    return kind == kind_float ? gs::bit_cast<gs::u16>(gs::from_float<gs::half>((float)x))
                              : gs::bit_cast<gs::u16>(gs::from_float<gs::bfloat16>((float)x));
}
GS_INLINE gs::u32 nearest_float(double x, gs::u32, gs::u32) { return gs::bit_cast<gs::u32>((float)x); }
GS_INLINE gs::u64 nearest_float(double x, gs::u32, gs::u64) { return gs::bit_cast<gs::u64>(x); }

// Returns an integer as a key. It may be too large after rounding.
template <class Bits>
GS_INLINE Bits integer_key(double x, gs::u32 kind) {
    constexpr double end = 18446744073709551616.0, half = end / 2;
    if (kind == kind_signed) return (Bits)(gs::u64)(x >= half ? (int64_t)(~(gs::u64)0 >> 1) : (int64_t)x);
    return x >= end ? (Bits)~(Bits)0 : (Bits)(gs::u64)x;
}

// Sums weights in blocks' own counters and then in `sums`, or at once in `sums`.
template <class Sum>
struct Counters {
    Sum* local;
    Sum* global;
    gs::u32 bins;

    GS_INLINE void begin() const {
        if (!local) return;
        GS_FOR_EACH_IN_BLOCK(b, bins) local[b] = Sum(0);
        __syncthreads();
    }
    GS_INLINE void end() const {
        if (!local) return;
        __syncthreads();
        GS_FOR_EACH_IN_BLOCK(b, bins) {
            if (local[b] != Sum(0)) gs::atomic_add(&global[b], local[b]);
        }
    }
    GS_INLINE void add(gs::u32 bin, Sum value) const {
        if (bin >= bins) return;
        if (local) {
            gs::shared_add(&local[bin], value);
        } else {
            gs::atomic_add(&global[bin], value);
        }
    }
};

GS_INLINE float weight(float x, gs::u64) { return x; }
GS_INLINE double weight(double x, gs::u64) { return x; }
GS_INLINE float weight(gs::half x, gs::u64) { return gs::to_float(x); }
GS_INLINE float weight(gs::bfloat16 x, gs::u64) { return gs::to_float(x); }
template <class T>
GS_INLINE gs::u64 weight(T x, gs::u64 top) {
    return ((gs::u64)x ^ top) - top;
}

}  // namespace

/// edges[b] = rank of the smallest key that is not below low + b * step. The first and the last edge have the given ranks.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: 1 <= bins, bins + 1 <= len(edges)
template <class Bits>
__global__ void even_edges(Bits* __restrict__ edges, size_t bins, unsigned int kind, double low, double step, gs::u64 if_set,
                           gs::u64 if_clear, gs::u64 first, gs::u64 last) {
    const Order<Bits> order{(Bits)if_set, (Bits)if_clear};
    const Bits low_rank = (Bits)first, high_rank = (Bits)last;
    GS_FOR_EACH(b, bins + 1) {
        const double edge = low + rounded_product((double)b, step);
        Bits rank;
        if (kind < kind_float) {
            rank = order.rank(integer_key<Bits>(ceil(edge), kind));
        } else {
            // Conversions may have rounded, and twice if the key has 16 bits.
            rank = order.rank(nearest_float(edge, kind, Bits()));
            while (rank < high_rank && number_of(order.key(rank), kind) < edge) ++rank;
            while (rank > low_rank && number_of(order.key(rank - 1), kind) >= edge) --rank;
        }
        if (b == 0 || rank < low_rank) rank = low_rank;
        if (b == bins || rank > high_rank) rank = high_rank;
        edges[b] = rank;
    }
}

/// Ranks of edges.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(edges), n <= len(ranks)
/// covers: n
template <class Bits>
__global__ void edge_ranks(const Bits* __restrict__ edges, Bits* __restrict__ ranks, size_t n, gs::u64 if_set, gs::u64 if_clear,
                           gs::u64 minus_zero) {
    const Order<Bits> order{(Bits)if_set, (Bits)if_clear};
    GS_FOR_EACH(i, n) ranks[i] = order.rank(edges[i] == (Bits)minus_zero ? (Bits)0 : edges[i]);
}

/// counts[b] += number of elements in bin b. If `copies` is not 0, blocks have that many counters of each bin in dynamic shared memory, a
/// power of two, and as many for elements in none. Bytes always have counters of their own, because a block counts bytes and then looks
/// for their bins.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), 1 <= bins, bins + 1 <= len(edges), bins <= len(counts),
///           4 * (bins + 1) * copies <= shared
/// optional: count, edges
template <class Bits>
__global__ void count_in_bins(const Bits* __restrict__ x, size_t n, const gs::u64* __restrict__ count,
                              const Bits* __restrict__ edges, unsigned int bins, unsigned int kind, double scale, double sure,
                              gs::u64 if_set, gs::u64 if_clear, gs::u64 minus_zero, gs::u64* __restrict__ counts,
                              unsigned int copies) {
    extern __shared__ unsigned int local_counts[];
    __shared__ gs::u32 counts_of_bytes[sizeof(Bits) == 1 ? byte_copies * 257 : 1];
    const Bins<Bits> by({(Bits)if_set, (Bits)if_clear}, minus_zero, edges, bins, kind, scale, sure);
    n = live(n, count);
    const auto add = [=](gs::u32 bin, gs::u32 more) {
        if (bin < bins) gs::atomic_add(&counts[bin], (gs::u64)more);
    };
    if (sizeof(Bits) == 1) {
        count_bins(
            x, n, gs::shared_address(counts_of_bytes), byte_copies, 256, always_quick([](Bits key) { return (gs::u32)key; }),
            [=](gs::u32 byte, gs::u32 more) { add(by.of((Bits)byte), more); });
        return;
    }
    gs::u32* const local = gs::shared_address(local_counts);
    if (copies == 0) {
        GS_FOR_EACH_WIDE_IN(n, x, [=](Bits key) { add(by.of(key), 1); });
    } else if (scale != 0) {
        count_bins(x, n, local, copies, bins, by, add);
    } else {
        count_bins(x, n, local, copies, bins, always_quick([=](Bits key) { return by.of_uneven(key); }), add);
    }
}

/// numbers[i] = the bin that x[i] is in, or `bins` if it is in none or there is no such element.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), 1 <= bins, bins + 1 <= len(edges), n <= len(numbers)
/// optional: count, edges
/// covers: n
template <class Bits>
__global__ void bin_numbers(const Bits* __restrict__ x, size_t n, const gs::u64* __restrict__ count,
                            const Bits* __restrict__ edges, unsigned int bins, unsigned int kind, double scale, double sure,
                            gs::u64 if_set, gs::u64 if_clear, gs::u64 minus_zero, gs::u32* __restrict__ numbers) {
    const Bins<Bits> by({(Bits)if_set, (Bits)if_clear}, minus_zero, edges, bins, kind, scale, sure);
    const size_t there = live(n, count);
    GS_FOR_EACH(i, n) numbers[i] = i < there ? by.of(x[i]) : bins;
}

/// offsets[b] = number of the `sorted` bin numbers that are below b, for b = 0 to `bins`
/// requires: n <= len(sorted), bins + 1 <= len(offsets)
extern "C" __global__ void bin_offsets(const gs::u32* __restrict__ sorted, size_t n, size_t bins,
                                       gs::u64* __restrict__ offsets) {
    GS_FOR_EACH(b, bins + 1) offsets[b] = first_not(n, [=](size_t at) { return sorted[at] < b; });
}

/// sums[b] += the weights of all elements whose bin number is b, in any order. `top`: a signed integer's top bit, otherwise 0. If `local`
/// is 1, blocks have sums of their own in dynamic shared memory.
/// types: (T, S) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float), (unsigned char, gs::u64),
///                 (unsigned short, gs::u64), (unsigned int, gs::u64), (unsigned long long, gs::u64)
/// requires: n <= len(numbers), n <= len(weights), bins <= len(sums), local <= 1, 8 * bins * local <= shared
template <class T, class S>
__global__ void add_in_bins(const gs::u32* __restrict__ numbers, const T* __restrict__ weights, size_t n, gs::u64 top,
                            S* __restrict__ sums, unsigned int bins, unsigned int local) {
    extern __shared__ unsigned long long local_sums[];
    S* const own = reinterpret_cast<S*>(gs::shared_address(local_sums));
    const Counters<S> counters{local == 0 ? nullptr : own, sums, bins};
    counters.begin();
    GS_FOR_EACH(i, n) counters.add(numbers[i], weight(weights[i], top));
    counters.end();
}
