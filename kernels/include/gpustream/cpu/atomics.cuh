// Atomics on global and shared memory. Like CUDA's, they order no other accesses.
#ifndef GPUSTREAM_CPU_ATOMICS_CUH
#define GPUSTREAM_CPU_ATOMICS_CUH

// The integer as wide as T, because compare-and-swap works on integers.
template <size_t Bytes>
struct gs_cpu_word;
template <>
struct gs_cpu_word<2> { typedef uint16_t type; };
template <>
struct gs_cpu_word<4> { typedef uint32_t type; };
template <>
struct gs_cpu_word<8> { typedef uint64_t type; };

// Replaces *address by step(*address) and returns the old value.
template <class T, class Step>
static inline __attribute__((always_inline)) T gs_cpu_atomic_update(T* address, Step step) {
    typedef typename gs_cpu_word<sizeof(T)>::type word;
    word* place = reinterpret_cast<word*>(address);
    word seen = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
        T old;
        std::memcpy(&old, &seen, sizeof(T));
        const T next = step(old);
        word wanted;
        std::memcpy(&wanted, &next, sizeof(T));
        if (__atomic_compare_exchange_n(place, &seen, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
    }
}

#define GS_CPU_ATOMICS_INTEGER(T)                                                                             \
    GS_CPU_FN T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }               \
    GS_CPU_FN T atomicSub(T* p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }               \
    GS_CPU_FN T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }               \
    GS_CPU_FN T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }                 \
    GS_CPU_FN T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }               \
    GS_CPU_FN T atomicExch(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }             \
    GS_CPU_FN T atomicMin(T* p, T v) {                                                                    \
        return gs_cpu_atomic_update(p, [v](T old) { return old < v ? old : v; });                             \
    }                                                                                                         \
    GS_CPU_FN T atomicMax(T* p, T v) {                                                                    \
        return gs_cpu_atomic_update(p, [v](T old) { return old < v ? v : old; });                             \
    }                                                                                                         \
    GS_CPU_FN T atomicCAS(T* p, T compare, T v) {                                                         \
        __atomic_compare_exchange_n(p, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);               \
        return compare;                                                                                       \
    }
GS_CPU_ATOMICS_INTEGER(int)
GS_CPU_ATOMICS_INTEGER(unsigned int)
GS_CPU_ATOMICS_INTEGER(long)
GS_CPU_ATOMICS_INTEGER(unsigned long)
GS_CPU_ATOMICS_INTEGER(long long)
GS_CPU_ATOMICS_INTEGER(unsigned long long)
#undef GS_CPU_ATOMICS_INTEGER

GS_CPU_FN unsigned short atomicCAS(unsigned short* p, unsigned short compare, unsigned short v) {
    __atomic_compare_exchange_n(p, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return compare;
}

#define GS_CPU_ATOMICS_FLOAT(T)                                                                               \
    GS_CPU_FN T atomicAdd(T* p, T v) {                                                                    \
        return gs_cpu_atomic_update(p, [v](T old) { return old + v; });                                       \
    }                                                                                                         \
    GS_CPU_FN T atomicSub(T* p, T v) {                                                                    \
        return gs_cpu_atomic_update(p, [v](T old) { return old - v; });                                       \
    }                                                                                                         \
    GS_CPU_FN T atomicMin(T* p, T v) {                                                                    \
        return gs_cpu_atomic_update(p, [v](T old) { return std::fmin(old, v); });                             \
    }                                                                                                         \
    GS_CPU_FN T atomicMax(T* p, T v) {                                                                    \
        return gs_cpu_atomic_update(p, [v](T old) { return std::fmax(old, v); });                             \
    }                                                                                                         \
    GS_CPU_FN T atomicExch(T* p, T v) {                                                                   \
        return gs_cpu_atomic_update(p, [v](T) { return v; });                                                 \
    }
GS_CPU_ATOMICS_FLOAT(float)
GS_CPU_ATOMICS_FLOAT(double)
#undef GS_CPU_ATOMICS_FLOAT

GS_CPU_FN __half atomicAdd(__half* p, __half v) {
    return gs_cpu_atomic_update(p, [v](__half old) { return old + v; });
}
GS_CPU_FN __nv_bfloat16 atomicAdd(__nv_bfloat16* p, __nv_bfloat16 v) {
    return gs_cpu_atomic_update(p, [v](__nv_bfloat16 old) { return old + v; });
}

// Counts up to `limit`, then starts again from 0; counts down to 0, then starts again from `limit`.
GS_CPU_FN unsigned int atomicInc(unsigned int* p, unsigned int limit) {
    return gs_cpu_atomic_update(p, [limit](unsigned int old) { return old >= limit ? 0u : old + 1u; });
}
GS_CPU_FN unsigned int atomicDec(unsigned int* p, unsigned int limit) {
    return gs_cpu_atomic_update(p, [limit](unsigned int old) { return old == 0 || old > limit ? limit : old - 1u; });
}

// The scoped forms are the same, because one memory serves every scope here.
#define GS_CPU_ATOMIC_SCOPES(name)                                                                            \
    template <class T, class V>                                                                               \
    static inline T name##_block(T* p, V v) { return name(p, (T)v); }                                         \
    template <class T, class V>                                                                               \
    static inline T name##_system(T* p, V v) { return name(p, (T)v); }
GS_CPU_ATOMIC_SCOPES(atomicAdd)
GS_CPU_ATOMIC_SCOPES(atomicSub)
GS_CPU_ATOMIC_SCOPES(atomicMin)
GS_CPU_ATOMIC_SCOPES(atomicMax)
GS_CPU_ATOMIC_SCOPES(atomicAnd)
GS_CPU_ATOMIC_SCOPES(atomicOr)
GS_CPU_ATOMIC_SCOPES(atomicXor)
GS_CPU_ATOMIC_SCOPES(atomicExch)
GS_CPU_ATOMIC_SCOPES(atomicInc)
GS_CPU_ATOMIC_SCOPES(atomicDec)
#undef GS_CPU_ATOMIC_SCOPES
template <class T, class C, class V>
static inline T atomicCAS_block(T* p, C compare, V v) { return atomicCAS(p, (T)compare, (T)v); }
template <class T, class C, class V>
static inline T atomicCAS_system(T* p, C compare, V v) { return atomicCAS(p, (T)compare, (T)v); }

// HIP's names, which choose between the hardware's update and a loop.
template <class T, class V>
static inline T unsafeAtomicAdd(T* p, V v) { return atomicAdd(p, (T)v); }
template <class T, class V>
static inline T safeAtomicAdd(T* p, V v) { return atomicAdd(p, (T)v); }

#endif
