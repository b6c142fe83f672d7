// Arrays made from others, element by element or with each element at another place.
//
// Elements of any size come as `words` words each, so that one instance of a kernel serves all types.
#include "counted.cuh"
#include "order.cuh"
#include "transpose.cuh"

namespace {

template <class Word>
GS_INLINE void move_element(const Word* from, size_t at, Word* to, size_t i, unsigned int words) {
    if (words == 1) {
        to[i] = from[at];
    } else {
        for (unsigned int w = 0; w < words; ++w) to[i * words + w] = from[at * words + w];
    }
}

template <class T>
GS_INLINE T difference(T a, T b) {
    return (T)(a - b);
}
GS_INLINE gs::half difference(gs::half a, gs::half b) { return gs::from_float<gs::half>(gs::to_float(a) - gs::to_float(b)); }
GS_INLINE gs::bfloat16 difference(gs::bfloat16 a, gs::bfloat16 b) {
    return gs::from_float<gs::bfloat16>(gs::to_float(a) - gs::to_float(b));
}

}  // namespace

/// y[i] = x[n - 1 - i]. Without x, y is reversed in place.
/// types: Word = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n * words <= len(x), 1 <= len(count), n * words <= len(y)
/// optional: x, count
/// covers: n
template <class Word>
__global__ void reverse(const Word* __restrict__ x, Word* __restrict__ y, size_t n, const gs::u64* __restrict__ count,
                        unsigned int words) {
    n = live(n, count);
    if (x) {
        GS_FOR_EACH(i, n) move_element(x, n - 1 - i, y, i, words);
        return;
    }
    GS_FOR_EACH(i, n / 2) {
        for (unsigned int w = 0; w < words; ++w) {
            const size_t a = i * words + w, b = (n - 1 - i) * words + w;
            const Word first = y[a];
            y[a] = y[b];
            y[b] = first;
        }
    }
}

/// Element index[i] of `to` becomes element i of `from`, if there is such an element. Indices have 32 bits or 64. If two are equal, one
/// of both elements is there afterwards.
/// types: Word = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: 1 <= len(count), n <= len(index), n <= len(long_index), n * words <= len(from), elements * words <= len(to)
/// optional: index, long_index, count
/// covers: n
template <class Word>
__global__ void scatter(const Word* __restrict__ from, const gs::u32* __restrict__ index, const gs::u64* __restrict__ long_index,
                        Word* __restrict__ to, size_t n, const gs::u64* __restrict__ count, size_t elements, unsigned int words) {
    GS_FOR_EACH(i, live(n, count)) {
        const size_t at = index ? index[i] : long_index ? (size_t)long_index[i] : elements;
        if (at < elements) move_element(from, i, to, at, words);
    }
}

/// y[i] = flags[i] != 0 ? a[i] : b[i]
/// types: Word = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(flags), n * words <= len(a), n * words <= len(b), n * words <= len(y), 1 <= len(count)
/// optional: count
/// covers: n
template <class Word>
__global__ void choose(const unsigned char* __restrict__ flags, const Word* __restrict__ a, const Word* __restrict__ b,
                       Word* __restrict__ y, size_t n, const gs::u64* __restrict__ count, unsigned int words) {
    GS_FOR_EACH(i, live(n, count)) move_element(flags[i] != 0 ? a : b, i, y, i, words);
}

/// y[i] is x[i], or the end of the range that x[i] lies beyond. The range has the ranks from `first` to `last` in the order of `if_set` and
/// `if_clear` (`order.cuh`). NaN stays NaN: `numbers` is the largest key below the top bit that is a number. Without x, y is
/// changed in place.
/// types: Bits = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), n <= len(y)
/// optional: x, count
/// covers: n
template <class Bits>
__global__ void clip(const Bits* x, Bits* y, size_t n, const gs::u64* __restrict__ count, gs::u64 first, gs::u64 last,
                     gs::u64 if_set, gs::u64 if_clear, gs::u64 numbers) {
    constexpr Bits below_top = (Bits)~(Bits)0 >> 1;
    const Order<Bits> order{(Bits)if_set, (Bits)if_clear};
    const Bits low = (Bits)first, high = (Bits)last;
    const auto clipped = [=](Bits key) {
        const Bits rank = order.rank(key);
        if ((gs::u64)(key & below_top) > numbers || (low <= rank && rank <= high)) return key;
        return order.key(rank < low ? low : high);
    };
    if (!x) x = y;
    GS_FOR_EACH_WIDE(live(n, count), y, clipped, x);
}

/// y[0] = x[0], y[i] = x[i] - x[i - 1]. Integers wrap around.
/// types: T = gs::half, gs::bfloat16, float, double, unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), 1 <= len(count), n <= len(y)
/// optional: count
/// covers: n
template <class T>
__global__ void adjacent_difference(const T* __restrict__ x, T* __restrict__ y, size_t n, const gs::u64* __restrict__ count) {
    GS_FOR_EACH(i, live(n, count)) y[i] = i == 0 ? x[0] : difference(x[i], x[i - 1]);
}

/// Transposes `matrices` matrices of `rows` rows with `cols` elements, which lie one after another.
/// types: Word = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: matrices * rows * cols <= len(in), matrices * rows * cols <= len(out)
/// covers: matrices * rows * cols
template <class Word>
__global__ void transpose_matrices(const Word* __restrict__ in, Word* __restrict__ out, size_t matrices, size_t rows,
                                   size_t cols) {
    __shared__ Word tile[transpose_tile][transpose_tile + 1];
    transpose_all(in, out, matrices, rows, cols, gs::shared_address(tile));
}
