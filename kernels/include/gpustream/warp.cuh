// Warp-wide operations that work with 32 and with 64 lanes.
//
// All existing threads in a warp must call an operation together: an operation inside of an `if` must be reached by the
// whole warp or by none of it. If a block's size is not a multiple of the warp size, its last warp is not full:
// `gs::warp_lanes()` returns how many lanes it has.
#ifndef GPUSTREAM_WARP_CUH
#define GPUSTREAM_WARP_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>

namespace gs {

/// Returns how many lanes a full warp has: 32 on NVIDIA and on AMD's RDNA, 64 on AMD's CDNA.
/// Threads: any.
GS_INLINE u32 warp_size() { return (u32)warpSize; }

/// Return this thread's lane, `0` to `warp_size() - 1`, its warp's number in the block, and how many warps the block has.
/// Threads: any.
GS_INLINE u32 lane() { return thread_in_block() & (warp_size() - 1); }
GS_INLINE u32 warp_in_block() { return thread_in_block() / warp_size(); }
GS_INLINE u32 warps_in_block() { return (threads_in_block() + warp_size() - 1) / warp_size(); }

/// Returns how many lanes this thread's warp has: `warp_size()`, or fewer in a block's last warp.
/// Threads: any.
GS_INLINE u32 warp_lanes() {
    const u32 first = thread_in_block() - lane(), left = threads_in_block() - first;
    return left < warp_size() ? left : warp_size();
}

#if defined(GS_CUDA)
GS_INLINE u32 shuffle_word(u32 word, u32 lane) { return __shfl_sync(0xffffffffu, word, lane); }
GS_INLINE u32 shuffle_word_up(u32 word, u32 n) { return __shfl_up_sync(0xffffffffu, word, n); }
GS_INLINE u32 shuffle_word_down(u32 word, u32 n) { return __shfl_down_sync(0xffffffffu, word, n); }
GS_INLINE u32 shuffle_word_xor(u32 word, u32 mask) { return __shfl_xor_sync(0xffffffffu, word, mask); }
#else
// HIP has the _sync forms only since 6.2, and does not need them.
GS_INLINE u32 shuffle_word(u32 word, u32 lane) { return __shfl(word, (int)lane); }
GS_INLINE u32 shuffle_word_up(u32 word, u32 n) { return __shfl_up(word, n); }
GS_INLINE u32 shuffle_word_down(u32 word, u32 n) { return __shfl_down(word, n); }
GS_INLINE u32 shuffle_word_xor(u32 word, u32 mask) { return __shfl_xor(word, (int)mask); }
#endif

// Shuffles a value of any size as 32-bit words, because every vendor can shuffle those in every
// version.
template <class T, class Shuffle>
GS_INLINE T shuffle_words(T value, Shuffle shuffle) {
    u32 words[(sizeof(T) + 3) / 4] = {};
    GS_MEMCPY_(words, &value, sizeof(T));
    GS_UNROLL
    for (int w = 0; w < (int)((sizeof(T) + 3) / 4); ++w) words[w] = shuffle(words[w]);
    T result;
    GS_MEMCPY_(&result, words, sizeof(T));
    return result;
}

/// Returns the value of lane `source`, which must exist. The type may have any size.
/// Threads: all of the warp.
template <class T>
GS_INLINE T shfl(T value, u32 source) {
    return shuffle_words(value, [=](u32 word) { return shuffle_word(word, source); });
}

/// Returns the value from `n` lanes below. If there is no such lane, returns the thread's own value.
/// Threads: all of the warp.
template <class T>
GS_INLINE T shfl_up(T value, u32 n) {
    return shuffle_words(value, [=](u32 word) { return shuffle_word_up(word, n); });
}

/// Returns the value from `n` lanes above. In the warp's last `n` lanes the result is unspecified.
/// Threads: all of the warp.
template <class T>
GS_INLINE T shfl_down(T value, u32 n) {
    return shuffle_words(value, [=](u32 word) { return shuffle_word_down(word, n); });
}

/// Returns the value of lane `gs::lane() ^ mask`, which must exist.
/// Threads: all of the warp.
template <class T>
GS_INLINE T shfl_xor(T value, u32 mask) {
    return shuffle_words(value, [=](u32 word) { return shuffle_word_xor(word, mask); });
}

/// Vote in a warp: whether any lane's predicate is true, whether all are, and all predicates as bits. Bit `l` of a ballot
/// is lane `l`'s predicate; lanes that do not exist have 0. All lanes get the same result.
/// Threads: all of the warp.
/// Signature: bool gs::any(bool predicate)
/// Signature: bool gs::all(bool predicate)
/// Signature: u64 gs::ballot(bool predicate)

/// Waits until all lanes of the warp come here. Afterwards each lane sees what the others wrote to memory before.
/// Threads: all of the warp.
/// Signature: void gs::sync_warp()
#if defined(GS_CUDA)
GS_INLINE bool any(bool predicate) { return __any_sync(0xffffffffu, predicate); }
GS_INLINE bool all(bool predicate) { return __all_sync(0xffffffffu, predicate); }
GS_INLINE u64 ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }
GS_INLINE void sync_warp() { __syncwarp(); }
#else
GS_INLINE bool any(bool predicate) { return __any(predicate) != 0; }
GS_INLINE bool all(bool predicate) { return __all(predicate) != 0; }
GS_INLINE u64 ballot(bool predicate) { return __ballot(predicate); }
#if defined(GS_HIP)
// Lanes run in lockstep, so we only keep the compiler from moving memory accesses across this point.
GS_INLINE void sync_warp() {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
#else
GS_INLINE void sync_warp() { __syncwarp(); }
#endif
#endif

}  // namespace gs

#endif
