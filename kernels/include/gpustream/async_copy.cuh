// Copies from global to shared memory that go on while the block computes.
//
// A kernel that loads a tile, waits, computes with it, and then loads the next one, leaves the memory idle half of the time. With
// these copies the next tiles are under way while you compute, and they do not pass through registers. `gs::pipeline` does this for
// a whole loop:
//
//     __shared__ float tile[3][256];
//     float sum = 0;
//     gs::pipeline<3>(
//         steps,
//         [&](int stage, int step) {
//             gs::copy_async(&tile[stage][threadIdx.x], x + step * 256 + threadIdx.x);
//         },
//         [&](int stage, int) { sum += tile[stage][255 - threadIdx.x]; });
//
// NVIDIA's `sm_80` and newer have such copies. Elsewhere they are ordinary loads and stores, which are done when the call returns.
//
// Include this file too, because `<gpustream/kernel.cuh>` does not.
#ifndef GPUSTREAM_ASYNC_COPY_CUH
#define GPUSTREAM_ASYNC_COPY_CUH

#include <gpustream/backend.cuh>

namespace gs {

#if defined(GS_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GS_ASYNC_COPIES_ 1
#endif

/// Begins to copy `Bytes` bytes to shared memory: 4, 8 or 16. If you pass `bytes`, only so many come from `from`, and the others
/// become 0. With `bytes == 0` nothing is read, so `from` may be any address. Both addresses must be multiples of `Bytes`.
/// The copy is done after `gs::wait_for_copies`.
/// Threads: any.
/// Signature: void gs::copy_async<Bytes>(void* to, const void* from, u32 bytes = Bytes)
template <int Bytes>
GS_INLINE void copy_async(void* to, const void* from, u32 bytes = Bytes) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "an asynchronous copy has 4, 8 or 16 bytes");
#if defined(GS_ASYNC_COPIES_)
    const u32 address = (u32)__cvta_generic_to_shared(to);
    // Sixteen bytes can leave out the L1 cache, because no other thread of the block wants them.
    if constexpr (Bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(Bytes), "r"(bytes) : "memory");
    }
#else
    struct alignas(Bytes) Whole {
        unsigned char at[Bytes];
    };
    Whole copied = {};
    if (bytes == Bytes) {
        copied = *reinterpret_cast<const Whole*>(from);
    } else {
        GS_UNROLL
        for (u32 i = 0; i < Bytes; ++i) {
            if (i < bytes) copied.at[i] = reinterpret_cast<const unsigned char*>(from)[i];
        }
    }
    *reinterpret_cast<Whole*>(to) = copied;
#endif
}

/// Begins to copy all `Bytes` bytes, or to set them to 0 if they are not `valid`: then `from` may be any address. This takes fewer
/// instructions than a number of bytes.
/// Threads: any.
/// Signature: void gs::copy_async_if<Bytes>(bool valid, void* to, const void* from)
template <int Bytes>
GS_INLINE void copy_async_if(bool valid, void* to, const void* from) {
#if defined(GS_ASYNC_COPIES_)
    const u32 address = (u32)__cvta_generic_to_shared(to);
    const u32 ignored = !valid;
    if constexpr (Bytes == 16) {
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p; }"
                     ::"r"(address), "l"(from), "r"(ignored) : "memory");
    } else {
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; cp.async.ca.shared.global [%0], [%1], %2, p; }"
                     ::"r"(address), "l"(from), "n"(Bytes), "r"(ignored) : "memory");
    }
#else
    // A number of bytes at run time would take scratch memory on GPUs.
    struct alignas(Bytes) Whole {
        unsigned char at[Bytes];
    };
    if (valid) {
        *reinterpret_cast<Whole*>(to) = *reinterpret_cast<const Whole*>(from);
    } else {
        *reinterpret_cast<Whole*>(to) = Whole{};
    }
#endif
}

/// Begins to copy one element of 4, 8 or 16 bytes.
/// Threads: any.
template <class T>
GS_INLINE void copy_async(T* to, const T* from) {
    copy_async_if<(int)sizeof(T)>(true, to, from);
}

/// Makes a group of the copies that this thread has begun since its last group. The group may be empty.
/// Threads: any.
GS_INLINE void commit_copies() {
#if defined(GS_ASYNC_COPIES_)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most the `Groups` newest groups of this thread are under way. If other threads read what was copied, write
/// `__syncthreads()` afterwards.
/// Threads: any.
template <int Groups = 0>
GS_INLINE void wait_for_copies() {
#if defined(GS_ASYNC_COPIES_)
    asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
}

#undef GS_ASYNC_COPIES_

/// Calls `use(stage, step)` for each step from 0 to `steps - 1`, after what `fill(stage, step)` began to copy has arrived. Up to
/// `Stages - 1` steps are filled ahead. There are `Stages` stages, 2 or more. Stage `s` first holds step `s`, then step
/// `s + Stages`, and so on. If one thread uses a stage, all threads have filled it. If `use` writes to other shared memory, order
/// that with the other threads yourself. When the function returns, all copies are done, but other threads may still use the last
/// stage.
/// Threads: all of the block, with the same number of steps.
/// Shared memory: the stages are yours.
template <int Stages, class Fill, class Use>
GS_INLINE void pipeline(int steps, Fill fill, Use use) {
    static_assert(Stages >= 2, "one stage is filled while another one is used");
    GS_UNROLL
    for (int step = 0; step < Stages - 1; ++step) {
        if (step < steps) fill(step, step);
        commit_copies();
    }
    int stage = 0, empty = Stages - 1;
    for (int step = 0; step < steps; ++step) {
        // There is a group for each step, even if it is empty, so the newest groups are those of the steps ahead.
        wait_for_copies<Stages - 2>();
        // This step has arrived for all threads, and none of them uses the step before any more.
        __syncthreads();
        if (step + Stages - 1 < steps) fill(empty, step + Stages - 1);
        commit_copies();
        use(stage, step);
        empty = stage;
        stage = stage + 1 < Stages ? stage + 1 : 0;
    }
    wait_for_copies();
}

}  // namespace gs

#endif
