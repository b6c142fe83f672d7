// Quantiles of sorted elements.
#include "counted.cuh"
#include "numbers.cuh"

namespace {

// Returns the number between a and b, at `part` of the way from a. We begin at the nearer one, so that a result never lies outside.
GS_INLINE double between(double a, double b, double part) {
    if (a == b || part == 0) return a;
    return part < 0.5 ? a + (b - a) * part : b - (b - a) * (1 - part);
}

}  // namespace

/// For each of the m `positions` from 0 to 1: the element at this part of the way through the n `sorted` elements. `nearest` gets the
/// element itself, `floats` and `doubles` get the number between the two next to it. NaN comes first or last; if there is one, or if
/// there is no element, or if a position is outside, the result is NaN; for integers `nearest` gets `nothing`. `numbers` is
/// the largest key below the top bit that is a number (`rank.cuh`).
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(sorted), 1 <= len(count), m <= len(positions), m <= len(nearest), m <= len(floats), m <= len(doubles)
/// optional: count, nearest, floats, doubles
/// covers: m
template <class T>
__global__ void quantiles(const T* __restrict__ sorted, size_t n, const gs::u64* __restrict__ count,
                          const double* __restrict__ positions, size_t m, unsigned int kind, gs::u64 numbers, gs::u64 nothing,
                          T* __restrict__ nearest, float* __restrict__ floats, double* __restrict__ doubles) {
    constexpr T below_top = (T)~(T)0 >> 1;
    n = live(n, count);
    const auto is_nan = [=](T key) { return (gs::u64)(key & below_top) > numbers; };
    const bool any_nan = n > 0 && (is_nan(sorted[0]) || is_nan(sorted[n - 1]));
    GS_FOR_EACH(i, m) {
        const double q = positions[i];
        if (n == 0 || any_nan || !(q >= 0 && q <= 1)) {
            const gs::u64 nan = (gs::u64)0x7ff8 << 48;
            if (nearest) nearest[i] = (T)nothing;
            if (floats) floats[i] = (float)gs::bit_cast<double>(nan);
            if (doubles) doubles[i] = gs::bit_cast<double>(nan);
            continue;
        }
        const double at = q * (double)(n - 1);
        const size_t below = gs::smaller((size_t)at, n - 1), above = gs::smaller(below + 1, n - 1);
        const double part = at - (double)below;
        // A half goes to the even one.
        if (nearest) nearest[i] = sorted[part > 0.5 || (part == 0.5 && below % 2 == 1) ? above : below];
        const double value = between(number_of(sorted[below], kind), number_of(sorted[above], kind), part);
        if (floats) floats[i] = (float)value;
        if (doubles) doubles[i] = value;
    }
}
