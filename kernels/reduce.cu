// Reductions: each block combines its share of the input and writes one value, and a second launch with a single block
// over those values gives the result. Any launch shape is right; the result is the same in every run with the same
// shape and alignment.
//
// 16-bit inputs are summed in float. min and max skip NaN, as C's fmin and Rust's f32::min do: without any number, the
// minimum is +infinity and the maximum -infinity. Of -0 and 0, either may result.
#include <gpustream/kernel.cuh>

namespace {

// Writes the block's combination of all its threads' values.
template <class T, class Acc, class Op>
GS_INLINE void write_block(T* partial, Acc value, Op op) {
    const Acc combined = gs::block_reduce(value, op);
    if (gs::thread_in_block() == 0) partial[gs::block_in_grid()] = gs::from_float<T>(combined);
}

// Writes the combination of each block's x[i], computed in float or double.
template <class Acc, class T, class Partial, class Op>
GS_INLINE void reduce(const T* x, Partial* partial, size_t n, Acc identity, Op op) {
    const Acc value = gs::fold_wide(n, identity, op, [](T x) { return gs::to_float(x); }, x);
    write_block(partial, value, op);
}

template <class Acc, class T>
GS_INLINE void dot(const T* x, const T* y, Acc* partial, size_t n) {
    const Acc value = gs::fold_wide(
        n, Acc(0), gs::Sum(), [](T x, T y) { return gs::to_float(x) * gs::to_float(y); }, x, y);
    write_block(partial, value, gs::Sum());
}

}  // namespace

/// partial[b] = sum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void sum_f32(const float* __restrict__ x, float* __restrict__ partial, size_t n) {
    reduce(x, partial, n, float(0), gs::Sum());
}

/// partial[b] = minimum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void min_f32(const float* __restrict__ x, float* __restrict__ partial, size_t n) {
    reduce(x, partial, n, gs::infinity<float>(), gs::Min());
}

/// partial[b] = maximum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void max_f32(const float* __restrict__ x, float* __restrict__ partial, size_t n) {
    reduce(x, partial, n, -gs::infinity<float>(), gs::Max());
}

/// partial[b] = sum of x[i] * y[i] over the i of block b
/// requires: n <= len(x), n <= len(y), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void dot_f32(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ partial, size_t n) {
    dot(x, y, partial, n);
}

/// partial[b] = sum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void sum_f64(const double* __restrict__ x, double* __restrict__ partial, size_t n) {
    reduce(x, partial, n, double(0), gs::Sum());
}

/// partial[b] = minimum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void min_f64(const double* __restrict__ x, double* __restrict__ partial, size_t n) {
    reduce(x, partial, n, gs::infinity<double>(), gs::Min());
}

/// partial[b] = maximum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void max_f64(const double* __restrict__ x, double* __restrict__ partial, size_t n) {
    reduce(x, partial, n, -gs::infinity<double>(), gs::Max());
}

/// partial[b] = sum of x[i] * y[i] over the i of block b
/// requires: n <= len(x), n <= len(y), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void dot_f64(const double* __restrict__ x, const double* __restrict__ y, double* __restrict__ partial, size_t n) {
    dot(x, y, partial, n);
}

/// partial[b] = sum of the x[i] of block b in float
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void sum_f16(const gs::half* __restrict__ x, float* __restrict__ partial, size_t n) {
    reduce(x, partial, n, float(0), gs::Sum());
}

/// partial[b] = minimum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void min_f16(const gs::half* __restrict__ x, gs::half* __restrict__ partial, size_t n) {
    reduce(x, partial, n, gs::infinity<float>(), gs::Min());
}

/// partial[b] = maximum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void max_f16(const gs::half* __restrict__ x, gs::half* __restrict__ partial, size_t n) {
    reduce(x, partial, n, -gs::infinity<float>(), gs::Max());
}

/// partial[b] = sum of x[i] * y[i] over the i of block b in float
/// requires: n <= len(x), n <= len(y), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void dot_f16(const gs::half* __restrict__ x, const gs::half* __restrict__ y, float* __restrict__ partial, size_t n) {
    dot(x, y, partial, n);
}

/// partial[b] = sum of the x[i] of block b in float
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void sum_bf16(const gs::bfloat16* __restrict__ x, float* __restrict__ partial, size_t n) {
    reduce(x, partial, n, float(0), gs::Sum());
}

/// partial[b] = minimum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void min_bf16(const gs::bfloat16* __restrict__ x, gs::bfloat16* __restrict__ partial, size_t n) {
    reduce(x, partial, n, gs::infinity<float>(), gs::Min());
}

/// partial[b] = maximum of the x[i] of block b
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void max_bf16(const gs::bfloat16* __restrict__ x, gs::bfloat16* __restrict__ partial, size_t n) {
    reduce(x, partial, n, -gs::infinity<float>(), gs::Max());
}

/// partial[b] = sum of x[i] * y[i] over the i of block b in float
/// requires: n <= len(x), n <= len(y), grid.x * grid.y * grid.z <= len(partial)
extern "C" __global__ void dot_bf16(const gs::bfloat16* __restrict__ x, const gs::bfloat16* __restrict__ y, float* __restrict__ partial, size_t n) {
    dot(x, y, partial, n);
}
