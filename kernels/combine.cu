// Combines several arrays with the same length into one: the parts of a sum over devices. All arrays lie in one,
// row after row.
//
// We compute the 16-bit floating-point types in float and round once, so you lose less than if each addition rounded.
// Integers may wrap around.
#include <gpustream/kernel.cuh>

namespace {

// The type that we add, multiply and compare elements in.
template <class T>
struct Floating {
    typedef decltype(gs::to_float(T())) Type;
    static GS_INLINE Type from(T x) { return gs::to_float(x); }
    static GS_INLINE T to(Type x) { return gs::from_float<T>(x); }
    static GS_INLINE T divided(Type x, gs::u64 by) { return gs::from_float<T>(x / (Type)by); }
};
// In unsigned arithmetic the lower bits are right for every width and sign, and a sum may overflow.
template <class T, class Unsigned>
struct Integer {
    typedef Unsigned Type;
    static GS_INLINE Unsigned from(T x) { return (Unsigned)x; }
    static GS_INLINE T to(Unsigned x) { return (T)x; }
    // Rounds toward zero.
    static GS_INLINE T divided(Unsigned x, gs::u64 by) {
        const T wrapped = (T)x;
        const bool negative = (T)-1 < (T)1 && wrapped < (T)1 && wrapped != (T)0;
        const gs::u64 size = negative ? 0 - (gs::u64)wrapped : (gs::u64)wrapped;
        return (T)(negative ? 0 - size / by : size / by);
    }
};
template <class T>
struct Number : Floating<T> {};
template <>
struct Number<int8_t> : Integer<int8_t, uint32_t> {};
template <>
struct Number<int16_t> : Integer<int16_t, uint32_t> {};
template <>
struct Number<int32_t> : Integer<int32_t, uint32_t> {};
template <>
struct Number<int64_t> : Integer<int64_t, uint64_t> {};
template <>
struct Number<uint8_t> : Integer<uint8_t, uint32_t> {};
template <>
struct Number<uint16_t> : Integer<uint16_t, uint32_t> {};
template <>
struct Number<uint32_t> : Integer<uint32_t, uint32_t> {};
template <>
struct Number<uint64_t> : Integer<uint64_t, uint64_t> {};

// The type that we compare elements in: exact, and with the elements' sign.
template <class T>
struct Ordered {
    typedef T Type;
    static GS_INLINE T from(T x) { return x; }
    static GS_INLINE T to(T x) { return x; }
};
template <>
struct Ordered<gs::half> : Floating<gs::half> {};
template <>
struct Ordered<gs::bfloat16> : Floating<gs::bfloat16> {};

struct Add {
    template <class V>
    static GS_INLINE V of(V a, V b) { return a + b; }
};
struct Multiply {
    template <class V>
    static GS_INLINE V of(V a, V b) { return a * b; }
};
// If one is a NaN, take the other.
struct Smaller {
    template <class V>
    static GS_INLINE V of(V a, V b) { return b < a || a != a ? b : a; }
};
struct Larger {
    template <class V>
    static GS_INLINE V of(V a, V b) { return a < b || a != a ? b : a; }
};

// y[i] = finish(x[i] of all rows, combined in the order of the rows).
template <class As, class Op, class T, class Finish>
GS_INLINE void combine_rows(const T* x, size_t stride, uint64_t rows, T* y, size_t n, Finish finish) {
    typedef typename As::Type Value;
#if defined(GS_SERIAL)
    // We go row by row over a few elements, so that each loop becomes vectors.
    constexpr size_t lanes = 64;
    const size_t end = gs::grid_end(n);
    size_t at = gs::grid_begin(n);
    for (; end - at >= lanes; at += lanes) {
        Value value[lanes];
        for (size_t lane = 0; lane < lanes; ++lane) value[lane] = As::from(x[at + lane]);
        for (uint64_t row = 1; row < rows; ++row) {
            const T* from = x + row * stride + at;
            for (size_t lane = 0; lane < lanes; ++lane) value[lane] = Op::of(value[lane], As::from(from[lane]));
        }
        for (size_t lane = 0; lane < lanes; ++lane) y[at + lane] = finish(value[lane]);
    }
    for (; at < end; ++at) {
        Value value = As::from(x[at]);
        for (uint64_t row = 1; row < rows; ++row) value = Op::of(value, As::from(x[row * stride + at]));
        y[at] = finish(value);
    }
#else
    GS_FOR_EACH(i, n) {
        Value value = As::from(x[i]);
        for (uint64_t row = 1; row < rows; ++row) value = Op::of(value, As::from(x[row * stride + i]));
        y[i] = finish(value);
    }
#endif
}

}  // namespace

/// y[i] = combination of x[row * stride + i] over all rows, in their order. `op` is 0 for the sum, 1 for the product, 2 for
/// the smallest, 3 for the largest, 4 for the average, which integers round toward zero. The smallest and the largest pass
/// over NaN.
/// types: T = gs::half, gs::bfloat16, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
///        uint64_t
/// requires: 1 <= rows, n <= stride, rows * stride <= len(x), n <= len(y), op <= 4
/// covers: n
template <class T>
__global__ void combine(const T* __restrict__ x, size_t stride, uint64_t rows, uint32_t op, T* __restrict__ y, size_t n) {
    typedef Number<T> As;
    typedef Ordered<T> Order;
    const auto sum = [=](typename As::Type x) { return op == 0 ? As::to(x) : As::divided(x, rows); };
    const auto product = [](typename As::Type x) { return As::to(x); };
    const auto chosen = [](typename Order::Type x) { return Order::to(x); };
    switch (op) {
        case 1: return combine_rows<As, Multiply>(x, stride, rows, y, n, product);
        case 2: return combine_rows<Order, Smaller>(x, stride, rows, y, n, chosen);
        case 3: return combine_rows<Order, Larger>(x, stride, rows, y, n, chosen);
        default: return combine_rows<As, Add>(x, stride, rows, y, n, sum);
    }
}
