#include <gpustream/kernel.cuh>

/// A line: its start and its slope.
struct Line {
    /// The value at zero.
    float start;
    float slope;
};

/// y[i] += a * x[i]
///
/// In place, in any order.
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, size_t n) {
    GS_FOR_EACH(i, n) { y[i] += a * x[i]; }
}

/// requires: rows * columns <= len(image), block.x <= 16
/// covers: columns, rows by 16, 16
extern "C" __global__ void draw(Line line, unsigned char* image, int rows, int columns) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < columns && y < rows) image[y * columns + x] = (float)y >= line.start + line.slope * (float)x;
}

extern "C" __global__ void free_for_all(int* x, bool up) { x[0] += up ? 1 : -1; }

/// types: (From, To) = (float, double), (int, int64_t)
/// requires: n <= len(x), n <= len(y)
/// covers: n
template <class From, class To>
__global__ void widen(const From* x, To* y, unsigned n) {
    GS_FOR_EACH(i, n) y[i] = x[i];
}
