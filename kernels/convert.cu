// Converts between number types, with wide loads and stores on both sides although their elements differ in size.
#include <gpustream/kernel.cuh>

/// y[i] = x[i], rounded to nearest, ties to even; a value that is too large becomes infinite
/// types: (From, To) = (float, gs::half), (float, gs::bfloat16), (gs::half, float), (gs::bfloat16, float),
///        (double, float), (float, double)
/// requires: n <= len(x), n <= len(y)
/// covers: n
template <class From, class To>
__global__ void convert(const From* __restrict__ x, To* __restrict__ y, size_t n) {
    const auto to = [](From x) { return gs::from_float<To>(gs::to_float(x)); };
#if defined(GS_SERIAL)
    GS_FOR_EACH(i, n) y[i] = to(x[i]);
#else
    // A pack has as many elements as sixteen bytes can hold of the smaller type.
    constexpr bool narrows = sizeof(To) < sizeof(From);
    constexpr int lanes = 16 / (narrows ? sizeof(To) : sizeof(From)), batch = 2;
    typedef gs::Pack<From, lanes> Source;
    typedef gs::Pack<To, lanes> Target;
    const size_t head = narrows ? gs::to_boundary(y) : gs::to_boundary(x);
    gs::walk_wide<batch, lanes>(
        n, head, gs::on_boundary((const void*)(x + head), (const void*)(y + head)),
        [=](int c, size_t i, size_t stride) {
            Target result[batch];
            // All loads must come before the first store, because the compiler must not move a load over a store.
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b)
                result[b] = gs::map_pack<To, lanes>(to, *reinterpret_cast<const Source*>(x + i + b * stride));
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) *reinterpret_cast<Target*>(y + i + b * stride) = result[b];
        },
        [=](int c, size_t i, size_t stride) {
            To result[batch];
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) result[b] = to(x[i + b * stride]);
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) y[i + b * stride] = result[b];
        });
#endif
}
