// Reductions. Each block combines its share of the input and writes one value. Blocks cannot wait for each other, so a
// second launch with one block combines those values. You can use any launch shape, and you get the same result in
// every run with the same shape and alignment.
//
// We sum 16-bit inputs in float. min and max skip NaN, like C's fmin and Rust's f32::min. If there is no number, the
// minimum is +infinity and the maximum -infinity. From -0 and 0 you can get either.
#include <gpustream/kernel.cuh>

namespace {

// The type that we compute in: float, or double for double.
template <class T>
using Computed = decltype(gs::to_float(T()));

// Combines the values of all the block's threads, and writes the result.
template <class T, class Acc, class Op>
GS_INLINE void write_block(T* partial, Acc value, Op op) {
    const Acc combined = gs::block_reduce(value, op);
    if (gs::thread_in_block() == 0) partial[gs::block_in_grid()] = gs::from_float<T>(combined);
}

// Combines each block's x[i] in float or double, and writes the result.
template <class Acc, class T, class Partial, class Op>
GS_INLINE void reduce(const T* x, Partial* partial, size_t n, Acc identity, Op op) {
    const Acc value = gs::fold_wide(n, identity, op, [](T x) { return gs::to_float(x); }, x);
    write_block(partial, value, op);
}

}  // namespace

/// partial[b] = sum of the x[i] of block b, computed as `Sum`
/// types: (T, Sum) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float)
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
template <class T, class Sum>
__global__ void block_sum(const T* __restrict__ x, Sum* __restrict__ partial, size_t n) {
    reduce(x, partial, n, Sum(0), gs::Sum());
}

/// partial[b] = minimum of the x[i] of block b
/// types: T = float, double, gs::half, gs::bfloat16
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
template <class T>
__global__ void block_min(const T* __restrict__ x, T* __restrict__ partial, size_t n) {
    reduce(x, partial, n, gs::infinity<Computed<T>>(), gs::Min());
}

/// partial[b] = maximum of the x[i] of block b
/// types: T = float, double, gs::half, gs::bfloat16
/// requires: n <= len(x), grid.x * grid.y * grid.z <= len(partial)
template <class T>
__global__ void block_max(const T* __restrict__ x, T* __restrict__ partial, size_t n) {
    reduce(x, partial, n, -gs::infinity<Computed<T>>(), gs::Max());
}

/// partial[b] = sum of x[i] * y[i] over the i of block b, computed as `Sum`
/// types: (T, Sum) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float)
/// requires: n <= len(x), n <= len(y), grid.x * grid.y * grid.z <= len(partial)
template <class T, class Sum>
__global__ void block_dot(const T* __restrict__ x, const T* __restrict__ y, Sum* __restrict__ partial, size_t n) {
    const Sum value = gs::fold_wide(
        n, Sum(0), gs::Sum(), [](T x, T y) { return gs::to_float(x) * gs::to_float(y); }, x, y);
    write_block(partial, value, gs::Sum());
}
