// Every kind of parameter and contract that has generated code of its own.
#include <gpustream/kernel.cuh>

/// A line.
struct Line {
    /// Its slope.
    float slope;
    float offset;
    unsigned char tag[4];
};

/// y[i] = line(x[i]), negated on demand
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void affine(Line line, const float* __restrict__ x, float* __restrict__ y, bool negate, size_t n) {
    GS_FOR_EACH(i, n) {
        float value = line.slope * x[i] + line.offset + line.tag[3];
        y[i] = negate ? -value : value;
    }
}

/// Numbers the pixels, row by row.
/// requires: width * height <= len(image)
/// covers: width, height by 16, 8
extern "C" __global__ void paint(unsigned* image, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) image[y * width + x] = y * width + x;
}

/// Halves in place: x[i] *= a
/// requires: n == len(x)
/// covers: len(x)
extern "C" __global__ void shrink(gs::half a, gs::half* x, unsigned long long n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] = gs::half((float)x[i] * (float)a);
}

/// Reverses each block's part.
/// requires: block.x <= 64, shared >= 4 * block.x, grid.x * block.x <= len(x)
extern "C" __global__ void reverse(float* x) {
    extern __shared__ float tile[];
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = tile[blockDim.x - 1 - threadIdx.x];
}

/// A Rust keyword as a name, and as a parameter's.
/// requires: len(in) == 1,
///     1 <= len(stream)
extern "C" __global__ void match(float4 self, const volatile unsigned* in, float* stream) {
    if (threadIdx.x == 0) stream[0] = self.x + self.y + self.z + self.w + (float)*in;
}

extern "C" __global__ void unchecked(int* x) { x[threadIdx.x] = (int)threadIdx.x; }
