// What follows a product in the same call: a bias and an activation.
#include <gpustream/kernel.cuh>

namespace {

constexpr uint32_t relu = 1, gelu = 2;

// NaN stays NaN.
GS_INLINE float activated(float x, uint32_t activation) {
    switch (activation) {
        case relu: return x < 0.0f ? 0.0f : x;
        case gelu: return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
        default: return x;
    }
}

}  // namespace

/// c = activation(c + bias), computed in float and rounded once. Each of `matrices` matrices has `lines` lines of `width`
/// contiguous elements. Element x of a line gets bias[x * x_step + line * line_step]. `activation` is 0 for none, 1 for relu, 2 for
/// gelu in its tanh form.
/// types: T = float, gs::half, gs::bfloat16
/// requires: 1 <= matrices, 1 <= lines, 1 <= width, (matrices - 1) * stride + (lines - 1) * leading + width <= len(c),
///           (width - 1) * x_step + (lines - 1) * line_step + 1 <= len(bias), activation <= 2
/// optional: bias
/// covers: matrices * lines * width
template <class T>
__global__ void finish(T* __restrict__ c, size_t matrices, size_t lines, size_t width, size_t stride, size_t leading,
                       const T* __restrict__ bias, size_t x_step, size_t line_step, uint32_t activation) {
    GS_FOR_EACH_2D(x, y, width, matrices * lines) {
        const size_t matrix = y / lines, line = y - matrix * lines;
        T* const at = c + matrix * stride + line * leading + x;
        float value = gs::to_float(*at);
        if (bias) value += gs::to_float(bias[x * x_step + line * line_step]);
        *at = gs::from_float<T>(activated(value, activation));
    }
}
