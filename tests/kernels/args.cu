// These kernels store their arguments, so that a test can see what arrived.
#include <gpustream/kernel.cuh>

/// A struct with members of several sizes.
struct Mixed {
    double wide;
    float pair[2];
    int number;
    unsigned short halves[2];
};

/// A struct of structs.
struct Nested {
    Mixed inner;
    long long last;
};

/// Writes every scalar type to `out` as a double.
/// requires: 14 <= len(out)
extern "C" __global__ void scalars(bool b, signed char i8, unsigned char u8, short i16, unsigned short u16, int i32, unsigned u32,
                                   long long i64, unsigned long long u64, float f32, double f64, gs::half f16,
                                   gs::bfloat16 bf16, size_t size, double* __restrict__ out) {
    out[0] = b ? 1.0 : 0.0;
    out[1] = (double)i8;
    out[2] = (double)u8;
    out[3] = (double)i16;
    out[4] = (double)u16;
    out[5] = (double)i32;
    out[6] = (double)u32;
    out[7] = (double)i64;
    out[8] = (double)u64;
    out[9] = (double)f32;
    out[10] = f64;
    out[11] = (double)(float)f16;
    out[12] = (double)(float)bf16;
    out[13] = (double)size;
}

/// Takes a struct by value after a parameter that misaligns it, so there must be padding.
/// requires: 7 <= len(out)
extern "C" __global__ void by_value(unsigned char before, Nested nested, unsigned char after, double* __restrict__ out) {
    out[0] = (double)before;
    out[1] = nested.inner.wide;
    out[2] = (double)nested.inner.pair[1];
    out[3] = (double)nested.inner.number;
    out[4] = (double)nested.inner.halves[1];
    out[5] = (double)nested.last;
    out[6] = (double)after;
}

/// A struct that needs a larger alignment than any vector.
struct alignas(64) Line {
    float values[16];
};

/// Takes such a struct by value between parameters that misalign it, and reads another one from memory.
/// requires: 16 <= len(out), 1 <= len(more)
extern "C" __global__ void aligned(unsigned char before, Line line, unsigned char after, const Line* __restrict__ more,
                                   float* __restrict__ out) {
    const Line first = line, second = more[0];
    for (int i = 0; i < 16; ++i) out[i] = first.values[i] + second.values[i] + (float)before + (float)after;
}

/// Swaps the members of each pair, in structs that lie in memory.
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void swap_pairs(Mixed* __restrict__ x, size_t n) {
    GS_FOR_EACH(i, n) {
        const float first = x[i].pair[0];
        x[i].pair[0] = x[i].pair[1];
        x[i].pair[1] = first;
    }
}

/// Each thread writes its place: block and thread in each dimension, as six numbers of ten bits.
/// requires: grid.x * grid.y * grid.z * block.x * block.y * block.z <= len(out)
extern "C" __global__ void where(unsigned long long* __restrict__ out) {
    const unsigned long long place = ((unsigned long long)blockIdx.x << 50) | ((unsigned long long)blockIdx.y << 40) |
                                     ((unsigned long long)blockIdx.z << 30) | ((unsigned long long)threadIdx.x << 20) |
                                     ((unsigned long long)threadIdx.y << 10) | threadIdx.z;
    out[gs::thread_in_grid()] = place;
}

/// x[i] += i + 1 over a plane of any size. A test can see if an element is missed or comes twice.
/// requires: width * height <= len(x)
/// covers: width, height by 16, 8
extern "C" __global__ void plane(unsigned* __restrict__ x, size_t width, size_t height) {
    const size_t column = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const size_t row = blockIdx.y * (size_t)blockDim.y + threadIdx.y;
    if (column < width && row < height) x[row * width + column] += (unsigned)(row * width + column) + 1;
}

/// Reverses each block's elements, through dynamic shared memory.
/// requires: 4 * block.x <= shared, grid.x * block.x <= len(x), block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void reverse_dynamic(unsigned* __restrict__ x) {
    extern __shared__ unsigned dynamic_tile[];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    dynamic_tile[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = dynamic_tile[blockDim.x - 1 - threadIdx.x];
}

/// Reverses each block of 128, through static shared memory.
/// requires: block.x == 128, grid.x * block.x <= len(x), block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void __launch_bounds__(128) reverse_static(unsigned* __restrict__ x) {
    __shared__ unsigned static_tile[128];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    static_tile[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = static_tile[127 - threadIdx.x];
}

/// Every thread adds 1 to each counter. They have 32 and 64 bits, and `local` is counted in shared memory.
/// requires: 1 <= len(narrow), 1 <= len(wide), 1 <= len(real), 1 <= len(local)
extern "C" __global__ void count(unsigned* narrow, unsigned long long* wide, float* real, unsigned* local) {
    __shared__ unsigned in_block;
    if (threadIdx.x == 0) in_block = 0;
    __syncthreads();
    atomicAdd(narrow, 1u);
    atomicAdd(wide, 1ull);
    atomicAdd(real, 1.0f);
    atomicAdd(&in_block, 1u);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(local, in_block);
}

/// A kernel without a contract.
extern "C" __global__ void no_contract(unsigned* x) { x[0] = 7; }

/// A part of a table of numbers: columns and rows, and the index of its first number.
struct Window {
    unsigned short size[2];
    int type;
    ulonglong2 from;
};
struct Framed {
    Window inner;
    char border;
};

/// Numbers the window, row by row, from `type` on.
/// requires: framed.inner.from.x + framed.inner.size[0] * framed.inner.size[1] <= len(out),
///           framed.inner.type >= 0
/// covers: framed.inner.size[0], framed.inner.size[1] by 16, 8
extern "C" __global__ void number(unsigned* out, Framed framed) {
    const Window w = framed.inner;
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w.size[0] && y < w.size[1]) out[w.from.x + y * w.size[0] + x] = w.type + y * w.size[0] + x;
}
