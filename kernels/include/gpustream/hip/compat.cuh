// Device functions that CUDA has and HIP lacks, or lacked in earlier versions. We include this before a kernel's source
// if AMD's compiler reads it. All are templates. So if HIP or you have a function with the same parameters, the
// compiler takes that one.
#ifndef GPUSTREAM_HIP_COMPAT_CUH
#define GPUSTREAM_HIP_COMPAT_CUH

#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>
#endif

#include <gpustream/intrinsics.cuh>

// CUDA's names of textures and surfaces, as HIP declares its own.
struct __hip_texture;
struct __hip_surface;
typedef struct __hip_texture* cudaTextureObject_t;
typedef struct __hip_surface* cudaSurfaceObject_t;
// The devices have one mode: if an access misses a surface, it does nothing, and reads zero.
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
#if !defined(__HIPCC_RTC__) && !__HIP_NO_IMAGE_SUPPORT
#define GS_HIP_SURFACE_READ(name, parameters, ...)                                          \
    template <class T>                                                                      \
    static __device__ __forceinline__ T name(cudaSurfaceObject_t surface, parameters int mode = 0) { \
        T value;                                                                            \
        name(&value, surface, __VA_ARGS__, mode);                                           \
        return value;                                                                       \
    }
#define GS_HIP_COORDINATES_1(x) int x,
#define GS_HIP_COORDINATES_2(x, y) int x, int y,
#define GS_HIP_COORDINATES_3(x, y, z) int x, int y, int z,
GS_HIP_SURFACE_READ(surf1Dread, GS_HIP_COORDINATES_1(x), x)
GS_HIP_SURFACE_READ(surf2Dread, GS_HIP_COORDINATES_2(x, y), x, y)
GS_HIP_SURFACE_READ(surf3Dread, GS_HIP_COORDINATES_3(x, y, z), x, y, z)
GS_HIP_SURFACE_READ(surf1DLayeredread, GS_HIP_COORDINATES_2(x, layer), x, layer)
GS_HIP_SURFACE_READ(surf2DLayeredread, GS_HIP_COORDINATES_3(x, y, layer), x, y, layer)
#undef GS_HIP_SURFACE_READ
#undef GS_HIP_COORDINATES_1
#undef GS_HIP_COORDINATES_2
#undef GS_HIP_COORDINATES_3
#endif

#define GS_HIP_FN template <int = 0> static __host__ __device__ __forceinline__
#define GS_HIP_MIN_MAX(T)                               \
    GS_HIP_FN T min(T a, T b) { return b < a ? b : a; } \
    GS_HIP_FN T max(T a, T b) { return a < b ? b : a; }
GS_HIP_MIN_MAX(unsigned int)
GS_HIP_MIN_MAX(long)
GS_HIP_MIN_MAX(unsigned long)
GS_HIP_MIN_MAX(long long)
GS_HIP_MIN_MAX(unsigned long long)
#undef GS_HIP_MIN_MAX
#undef GS_HIP_FN

#define GS_HIP_FN template <int = 0> static __device__ __forceinline__
GS_HIP_FN unsigned long long __activemask() { return __ballot(1); }
GS_HIP_FN void __nanosleep(unsigned) { __builtin_amdgcn_s_sleep(1); }
GS_HIP_FN void __trap() { __builtin_trap(); }
GS_HIP_FN long long atomicMin(long long* address, long long value) {
    return __hip_atomic_fetch_min(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GS_HIP_FN long long atomicMax(long long* address, long long value) {
    return __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Within the word of 4 bytes around it.
GS_HIP_FN unsigned short atomicCAS(unsigned short* address, unsigned short compare, unsigned short value) {
    const size_t at = (size_t)address;
    unsigned* place = reinterpret_cast<unsigned*>(at & ~(size_t)3);
    const unsigned shift = (at & 2) * 8;
    unsigned seen = *reinterpret_cast<volatile unsigned*>(place);
    for (;;) {
        const unsigned short old = (unsigned short)(seen >> shift);
        if (old != compare) return old;
        const unsigned found = atomicCAS(place, seen, (seen & ~(0xffffu << shift)) | (unsigned)value << shift);
        if (found == seen) return old;
        seen = found;
    }
}
#undef GS_HIP_FN

// Newer compilers no longer have the intrinsics that HIP 5 uses for these.
#if HIP_VERSION_MAJOR < 6 && __clang_major__ >= 17
static __device__ __forceinline__ unsigned gs_hip_atomic_inc(unsigned* address, unsigned limit) {
    return __builtin_amdgcn_atomic_inc32(address, limit, __ATOMIC_RELAXED, "agent");
}
static __device__ __forceinline__ unsigned gs_hip_atomic_dec(unsigned* address, unsigned limit) {
    return __builtin_amdgcn_atomic_dec32(address, limit, __ATOMIC_RELAXED, "agent");
}
#define atomicInc gs_hip_atomic_inc
#define atomicDec gs_hip_atomic_dec
#endif

// The block-scoped forms are the same as the device-scoped ones.
#define GS_HIP_BLOCK(name)                                                          \
    template <class T, class V>                                                     \
    static __device__ __forceinline__ T name##_block(T* address, V value) {         \
        return name(address, (T)value);                                             \
    }
GS_HIP_BLOCK(atomicAdd)
GS_HIP_BLOCK(atomicSub)
GS_HIP_BLOCK(atomicMin)
GS_HIP_BLOCK(atomicMax)
GS_HIP_BLOCK(atomicAnd)
GS_HIP_BLOCK(atomicOr)
GS_HIP_BLOCK(atomicXor)
GS_HIP_BLOCK(atomicExch)
GS_HIP_BLOCK(atomicInc)
GS_HIP_BLOCK(atomicDec)
#undef GS_HIP_BLOCK
template <class T, class C, class V>
static __device__ __forceinline__ T atomicCAS_block(T* address, C compare, V value) {
    return atomicCAS(address, (T)compare, (T)value);
}

// Code for GPUs that could not add doubles brings its own function. HIP's is not a template, so we give ours its name.
template <class T, class V>
static __device__ __forceinline__ T gs_hip_atomic_add(T* address, V value) {
    return atomicAdd(address, (T)value);
}
#define atomicAdd gs_hip_atomic_add

// HIP has the _sync forms from 6.2 on if this macro asks for them, and always from 7.0 on. They only take 64-bit masks.
#if HIP_VERSION_MAJOR < 7 && !defined(HIP_ENABLE_WARP_SYNC_BUILTINS)

// CUDA code writes 0xffffffff for "the whole warp". A 32-bit mask means that on a warp of 64 too.
template <class Mask>
static __device__ __forceinline__ unsigned long long gs_hip_mask(Mask mask) {
    if (sizeof(Mask) > 4) return (unsigned long long)mask;
    return (unsigned)mask == 0xffffffffu ? ~0ull : (unsigned long long)(unsigned)mask;
}
// Shuffles a value of any size as 32-bit words, because every version can shuffle those.
template <class T, class Shuffle>
static __device__ __forceinline__ T gs_hip_words(T value, Shuffle shuffle) {
    int words[(sizeof(T) + 3) / 4] = {};
    __builtin_memcpy(words, &value, sizeof(T));
    for (unsigned w = 0; w < (sizeof(T) + 3) / 4; ++w) words[w] = shuffle(words[w]);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}
#define GS_HIP_SHUFFLE(name, By)                                                                            \
    template <class Mask, class T>                                                                          \
    static __device__ __forceinline__ T name##_sync(Mask, T value, By by, int width = warpSize) {           \
        return gs_hip_words(value, [=](int word) { return name(word, by, width); });                        \
    }
GS_HIP_SHUFFLE(__shfl, int)
GS_HIP_SHUFFLE(__shfl_up, unsigned)
GS_HIP_SHUFFLE(__shfl_down, unsigned)
GS_HIP_SHUFFLE(__shfl_xor, int)
#undef GS_HIP_SHUFFLE

// Lanes run in lockstep, so we only keep the compiler from moving memory accesses across this point.
template <class Mask = unsigned long long>
static __device__ __forceinline__ void __syncwarp(Mask = ~(Mask)0) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
template <class Mask>
static __device__ __forceinline__ unsigned long long __ballot_sync(Mask mask, int predicate) {
    return __ballot(predicate) & gs_hip_mask(mask);
}
template <class Mask>
static __device__ __forceinline__ int __any_sync(Mask mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
template <class Mask>
static __device__ __forceinline__ int __all_sync(Mask mask, int predicate) {
    return __ballot_sync(mask, !predicate) == 0;
}
template <class Mask, class T>
static __device__ __forceinline__ unsigned long long __match_any_sync(Mask mask, T value) {
    unsigned long long left = __ballot_sync(mask, 1), mine = 0;
    const unsigned long long active = left;
    while (left != 0) {
        const int lane = __ffsll(left) - 1;
        const T other = __shfl_sync(active, value, lane);
        const unsigned long long equal = __ballot(value == other) & active;
        if (value == other) mine = equal;
        left &= ~equal;
    }
    return mine;
}
template <class Mask, class T>
static __device__ __forceinline__ unsigned long long __match_all_sync(Mask mask, T value, int* predicate) {
    const unsigned long long active = __ballot_sync(mask, 1);
    const T first = __shfl_sync(active, value, __ffsll(active) - 1);
    *predicate = (__ballot(value != first) & active) == 0;
    return *predicate ? active : 0;
}
#define GS_HIP_REDUCE(name, expression)                                                                     \
    template <class Mask, class T>                                                                          \
    static __device__ __forceinline__ T __reduce_##name##_sync(Mask mask, T value) {                        \
        unsigned long long left = __ballot_sync(mask, 1);                                                   \
        T a = __shfl_sync(left, value, __ffsll(left) - 1);                                                  \
        for (left &= left - 1; left != 0; left &= left - 1) {                                               \
            const T b = __shfl_sync(left, value, __ffsll(left) - 1);                                        \
            a = expression;                                                                                 \
        }                                                                                                   \
        return a;                                                                                           \
    }
GS_HIP_REDUCE(add, a + b)
GS_HIP_REDUCE(min, b < a ? b : a)
GS_HIP_REDUCE(max, a < b ? b : a)
GS_HIP_REDUCE(and, a & b)
GS_HIP_REDUCE(or, a | b)
GS_HIP_REDUCE(xor, a ^ b)
#undef GS_HIP_REDUCE

#endif

#endif
