// Reductions and scans over a warp and over a block, for any block size.
//
// An operator is a function object that takes two values. It must be associative up to rounding, and for reductions
// also commutative. You can use `gs::Sum`, `gs::Min` and `gs::Max`. We combine in an order that depends only on the block's
// size, so you get the same result in every run.
#ifndef GPUSTREAM_REDUCE_CUH
#define GPUSTREAM_REDUCE_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>
#include <gpustream/half.cuh>
#include <gpustream/warp.cuh>

namespace gs {

/// The operator `a + b`.
struct Sum {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const {
        return a + b;
    }
};

/// The smaller and the larger one. They skip a NaN in `b`, so if you start a reduction from a number, it ignores NaN. From
/// -0 and 0 you can get either.
struct Min {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const {
        return b < a ? b : a;
    }
};
struct Max {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};

// How many warps a block can have: 1024 threads at 32 lanes.
static constexpr int max_warps = 32;

/// Combines all lanes' values. Every lane gets the result.
/// Threads: all of the warp.
template <class T, class Op>
GS_INLINE T warp_reduce(T value, Op op) {
    const u32 lanes = warp_lanes(), self = lane();
    for (u32 distance = warp_size() / 2; distance > 0; distance /= 2) {
        const T other = shfl_down(value, distance);
        if (self + distance < lanes) value = op(value, other);
    }
    return shfl(value, 0);
}

/// Combines this lane's value and those of all lower lanes.
/// Threads: all of the warp.
template <class T, class Op>
GS_INLINE T warp_inclusive_scan(T value, Op op) {
    const u32 self = lane();
    for (u32 distance = 1; distance < warp_size(); distance *= 2) {
        const T other = shfl_up(value, distance);
        if (self >= distance) value = op(other, value);
    }
    return value;
}

/// What a block-wide scan returns to one thread. `before` combines the values of all threads before this one, and is the
/// operator's identity in the first; `total` combines the values of all threads.
template <class T>
struct BlockScan {
    T before;  // combination of all threads before this one; the operator's identity in the first
    T total;   // combination of all threads
};

/// Combines all threads' values. Every thread gets the result. Threads count in the order of `gs::thread_in_block`.
///
///     float sum = gs::block_reduce(x[i], gs::Sum());
///     if (gs::thread_in_block() == 0) out[gs::block_in_grid()] = sum;
///
/// Threads: all of the block, because it contains barriers. A thread without a value passes the operator's identity.
/// Shared memory: 32 static elements of `T` on GPUs, once for each pair of `T` and `Op` in a kernel. You may call it again
/// at once, because it ends with a barrier. No dynamic shared memory.
/// Signature: template <class T, class Op> T gs::block_reduce(T value, Op op)

/// Combines the values before each thread, and those of all. The threads count in the order of `gs::thread_in_block`.
/// `identity` changes nothing if it is combined with a value: 0 for `gs::Sum`.
/// Threads: all of the block, because it contains barriers. A thread without a value passes the identity.
/// Shared memory: 32 static elements of `T` on GPUs, once for each pair of `T` and `Op` in a kernel. You may call it again
/// at once, because it ends with a barrier. No dynamic shared memory.
/// Signature: template <class T, class Op> BlockScan<T> gs::block_scan(T value, T identity, Op op)

#if defined(GS_SERIAL)

// Here a barrier costs each thread more than a hundred additions, so one thread does the work.
template <class T>
struct BlockValues {
    static GS_INLINE T* at() {
        static thread_local T values[1024];
        return shared_address(values);
    }
};

template <class T, class Op>
GS_INLINE T block_reduce(T value, Op op) {
    const u32 threads = threads_in_block(), self = thread_in_block();
    if (threads == 1) return value;
    T* values = BlockValues<T>::at();
    values[self] = value;
    __syncthreads();
    if (self == 0) {
        T total = values[0];
        for (u32 t = 1; t < threads; ++t) total = op(total, values[t]);
        values[0] = total;
    }
    __syncthreads();
    const T total = values[0];
    __syncthreads();  // before the next use of `values`
    return total;
}

template <class T, class Op>
GS_INLINE BlockScan<T> block_scan(T value, T identity, Op op) {
    const u32 threads = threads_in_block(), self = thread_in_block();
    if (threads == 1) return BlockScan<T>{identity, value};
    T* values = BlockValues<T>::at();
    values[self] = value;
    __syncthreads();
    if (self == 0) {
        for (u32 t = 1; t < threads; ++t) values[t] = op(values[t - 1], values[t]);
    }
    __syncthreads();
    const BlockScan<T> result{self == 0 ? identity : values[self - 1], values[threads - 1]};
    __syncthreads();  // before the next use of `values`
    return result;
}

#else

template <class T, class Op>
GS_INLINE T block_reduce(T value, Op op) {
    __shared__ T of_warp[max_warps];
    value = warp_reduce(value, op);
    const u32 warps = warps_in_block();
    if (warps == 1) return value;
    if (lane() == 0) of_warp[warp_in_block()] = value;
    __syncthreads();
    T total = of_warp[0];
    for (u32 w = 1; w < warps; ++w) total = op(total, of_warp[w]);
    __syncthreads();  // before the next use of `of_warp`
    return total;
}

template <class T, class Op>
GS_INLINE BlockScan<T> block_scan(T value, T identity, Op op) {
    __shared__ T of_warp[max_warps];
    const T inclusive = warp_inclusive_scan(value, op);
    const T previous = shfl_up(inclusive, 1);
    const u32 warps = warps_in_block(), self = warp_in_block();
    if (lane() == warp_lanes() - 1) of_warp[self] = inclusive;
    __syncthreads();
    T before = identity, total = identity;
    for (u32 w = 0; w < warps; ++w) {
        if (w == self) before = total;
        total = op(total, of_warp[w]);
    }
    if (lane() > 0) before = op(before, previous);
    __syncthreads();  // before the next use of `of_warp`
    return BlockScan<T>{before, total};
}

#endif

}  // namespace gs

#endif
