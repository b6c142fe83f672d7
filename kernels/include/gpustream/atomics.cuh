// Atomic updates that one vendor has and another lacks, under one name. All return the value from before. They
// order no other accesses, and you can use them on global and shared memory.
//
// If the hardware lacks an update, we use a compare-and-swap loop. Threads may arrive in any order, and a sum of
// floating-point numbers depends on it. So you may get another sum in each run.
#ifndef GPUSTREAM_ATOMICS_CUH
#define GPUSTREAM_ATOMICS_CUH

#include <gpustream/backend.cuh>
#include <gpustream/half.cuh>

namespace gs {

/// Replaces `*address` by `step(*address)`, for types with 4 or 8 bytes, in a compare-and-swap loop. `Word` is `u32` or
/// `u64`. Returns the value from before.
/// Threads: any.
template <class Word, class T, class Step>
GS_INLINE T atomic_update(T* address, Step step) {
    Word* place = reinterpret_cast<Word*>(address);
    Word seen = *reinterpret_cast<volatile Word*>(place);
    for (;;) {
        const T old = bit_cast<T>(seen);
        const Word found = atomicCAS(place, seen, bit_cast<Word>(step(old)));
        if (found == seen) return old;
        seen = found;
    }
}

/// Replaces `*address` by `step(*address)`, for types with 2 bytes, within the 4-byte word around them. Both halves of the
/// word must lie in your memory. Returns the value from before.
/// Threads: any.
template <class T, class Step>
GS_INLINE T atomic_update_16(T* address, Step step) {
    const size_t at = (size_t)address;
    u32* place = reinterpret_cast<u32*>(at & ~(size_t)3);
    const u32 shift = (at & 2) * 8;
    u32 seen = *reinterpret_cast<volatile u32*>(place);
    for (;;) {
        const T old = bit_cast<T>((u16)(seen >> shift));
        const u32 next = (seen & ~(0xffffu << shift)) | (u32)bit_cast<u16>(step(old)) << shift;
        const u32 found = atomicCAS(place, seen, next);
        if (found == seen) return old;
        seen = found;
    }
}

/// Adds to a number. Returns the value from before.
/// Threads: any.
/// Signature: T gs::atomic_add(T* address, T value)  // T: int, u32, u64, float, double, half, bfloat16
GS_INLINE int atomic_add(int* address, int value) { return atomicAdd(address, value); }
GS_INLINE u32 atomic_add(u32* address, u32 value) { return atomicAdd(address, value); }
GS_INLINE u64 atomic_add(u64* address, u64 value) { return atomicAdd(address, value); }
GS_INLINE float atomic_add(float* address, float value) { return atomicAdd(address, value); }
GS_INLINE double atomic_add(double* address, double value) { return atomicAdd(address, value); }
GS_INLINE half atomic_add(half* address, half value) {
    return atomic_update_16(address, [=](half old) { return from_float<half>(to_float(old) + to_float(value)); });
}
GS_INLINE bfloat16 atomic_add(bfloat16* address, bfloat16 value) {
    return atomic_update_16(
        address, [=](bfloat16 old) { return from_float<bfloat16>(to_float(old) + to_float(value)); });
}

/// Does what `gs::atomic_add` does, for shared memory alone. On the CPU it is an ordinary addition, which is cheap.
/// Returns the value from before.
/// Threads: any.
/// Shared memory: only the number that you pass, which must lie there.
template <class T>
GS_INLINE T shared_add(T* address, T value) {
#if defined(GS_CPU)
    // A block runs on one OS thread, which switches between the block's threads only at barriers.
    const T old = *address;
    *address = old + value;
    return old;
#else
    return atomic_add(address, value);
#endif
}

/// Replaces a number by the smaller one of it and `value`. A NaN in `value` changes nothing. Returns the value from before.
/// Threads: any.
/// Signature: T gs::atomic_min(T* address, T value)  // T: int, u32, u64, float, double
GS_INLINE int atomic_min(int* address, int value) { return atomicMin(address, value); }
GS_INLINE u32 atomic_min(u32* address, u32 value) { return atomicMin(address, value); }
GS_INLINE u64 atomic_min(u64* address, u64 value) { return atomicMin(address, value); }
GS_INLINE float atomic_min(float* address, float value) {
    return atomic_update<u32>(address, [=](float old) { return value < old ? value : old; });
}
GS_INLINE double atomic_min(double* address, double value) {
    return atomic_update<u64>(address, [=](double old) { return value < old ? value : old; });
}

/// Replaces a number by the larger one of it and `value`. A NaN in `value` changes nothing. Returns the value from before.
/// Threads: any.
/// Signature: T gs::atomic_max(T* address, T value)  // T: int, u32, u64, float, double
GS_INLINE int atomic_max(int* address, int value) { return atomicMax(address, value); }
GS_INLINE u32 atomic_max(u32* address, u32 value) { return atomicMax(address, value); }
GS_INLINE u64 atomic_max(u64* address, u64 value) { return atomicMax(address, value); }
GS_INLINE float atomic_max(float* address, float value) {
    return atomic_update<u32>(address, [=](float old) { return old < value ? value : old; });
}
GS_INLINE double atomic_max(double* address, double value) {
    return atomic_update<u64>(address, [=](double old) { return old < value ? value : old; });
}

}  // namespace gs

#endif
