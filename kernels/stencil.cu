// Five-point stencil: one explicit step for the heat equation in two dimensions. You must swap the arrays between
// steps.
#include <gpustream/kernel.cuh>

/// out = in + k * (left + right + above + below - 4 * in), for a grid of `height` rows of `width` cells; the border
/// is copied. Stable for k up to 0.25.
/// types: T = float, double
/// requires: width * height <= len(in), width * height <= len(out)
/// covers: width * height
template <class T>
__global__ void heat(const T* __restrict__ in, T* __restrict__ out, size_t width, size_t height, T k) {
    if (width > 2 && height > 2) {
        GS_FOR_EACH_2D(x, y, width - 2, height - 2) {
            const size_t i = (y + 1) * width + x + 1;
            out[i] = in[i] + k * (in[i - 1] + in[i + 1] + in[i - width] + in[i + width] - 4 * in[i]);
        }
    }
    if (width == 0 || height == 0) return;
    const size_t last_row = (height - 1) * width;
    GS_FOR_EACH(x, width) {
        out[x] = in[x];
        out[last_row + x] = in[last_row + x];
    }
    GS_FOR_EACH(y, height) {
        out[y * width] = in[y * width];
        out[y * width + width - 1] = in[y * width + width - 1];
    }
}
