// Conversions between number types, with wide loads and stores on both sides, although their elements differ in size.
#include <gpustream/kernel.cuh>

namespace {

// y[i] = to(x[i]). A pack has as many elements as the smaller type has in sixteen bytes.
template <class Out, class In, class F>
GS_INLINE void convert(size_t n, Out* __restrict__ y, const In* __restrict__ x, F to) {
#if defined(GS_SERIAL)
    GS_FOR_EACH(i, n) y[i] = to(x[i]);
#else
    constexpr bool narrows = sizeof(Out) < sizeof(In);
    constexpr int lanes = 16 / (narrows ? sizeof(Out) : sizeof(In)), batch = 2;
    typedef gs::Pack<In, lanes> Source;
    typedef gs::Pack<Out, lanes> Target;
    const size_t head = narrows ? gs::to_boundary(y) : gs::to_boundary(x);
    gs::walk_wide<batch, lanes>(
        n, head, gs::on_boundary((const void*)(x + head), (const void*)(y + head)),
        [=](int c, size_t i, size_t stride) {
            Target result[batch];
            // All loads come before the first store, since the compiler may not move a load over a store.
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b)
                result[b] = gs::map_pack<Out, lanes>(to, *reinterpret_cast<const Source*>(x + i + b * stride));
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) *reinterpret_cast<Target*>(y + i + b * stride) = result[b];
        },
        [=](int c, size_t i, size_t stride) {
            Out result[batch];
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) result[b] = to(x[i + b * stride]);
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) y[i + b * stride] = result[b];
        });
#endif
}

}  // namespace

/// y[i] = x[i], rounded to nearest, ties to even; a value that is too large becomes infinite
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void f32_to_f16(const float* __restrict__ x, gs::half* __restrict__ y, size_t n) {
    convert(n, y, x, [](float x) { return gs::from_float<gs::half>(x); });
}

/// y[i] = x[i], rounded to nearest, ties to even; a value that is too large becomes infinite
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void f32_to_bf16(const float* __restrict__ x, gs::bfloat16* __restrict__ y, size_t n) {
    convert(n, y, x, [](float x) { return gs::from_float<gs::bfloat16>(x); });
}

/// y[i] = x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void f16_to_f32(const gs::half* __restrict__ x, float* __restrict__ y, size_t n) {
    convert(n, y, x, [](gs::half x) { return gs::to_float(x); });
}

/// y[i] = x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void bf16_to_f32(const gs::bfloat16* __restrict__ x, float* __restrict__ y, size_t n) {
    convert(n, y, x, [](gs::bfloat16 x) { return gs::to_float(x); });
}

/// y[i] = x[i], rounded to nearest, ties to even; a value that is too large becomes infinite
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void f64_to_f32(const double* __restrict__ x, float* __restrict__ y, size_t n) {
    convert(n, y, x, [](double x) { return (float)x; });
}

/// y[i] = x[i]
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void f32_to_f64(const float* __restrict__ x, double* __restrict__ y, size_t n) {
    convert(n, y, x, [](float x) { return (double)x; });
}
