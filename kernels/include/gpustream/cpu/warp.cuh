// Warp-wide operations, for warps of 32 and of 64 lanes. Masks are 64 bits wide, so we extend CUDA's 32-bit masks.
#ifndef GPUSTREAM_CPU_WARP_CUH
#define GPUSTREAM_CPU_WARP_CUH

#define GS_CPU_WHERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

// The result of a warp-wide operation for one of its lanes.
struct gs_cpu_warp_result {
    uint64_t value;
    uint64_t active;  // mask of the lanes that took part
};

static inline __attribute__((always_inline)) gs_cpu_warp_result gs_cpu_warp(uint32_t kind, uint32_t source,
                                                                            uint64_t mask, uint64_t value,
                                                                            const char* file, uint32_t line) {
    gs_cpu_waits(file, line);
    const uint32_t x = threadIdx.x, y = threadIdx.y, z = threadIdx.z, thread = gs_cpu_thread();
    gs_cpu_context* context = gs_cpu_current;
    gs_cpu_lane* lane = context->lanes + thread;
    lane->value = value, lane->mask = mask, lane->file = file, lane->line = line;
    lane->kind = kind, lane->source = source;
    context->host->warp(context, thread);
    threadIdx.x = x, threadIdx.y = y, threadIdx.z = z;
    gs_cpu_moved = true;
    return {lane->value, lane->active};
}

static inline __attribute__((always_inline)) uint32_t gs_cpu_lane_id() {
    return gs_cpu_thread() & (uint32_t)(warpSize - 1);
}

// CUDA code writes 0xffffffff for "the whole warp". A 32-bit mask means that on a warp of 64 too. If you write it as a
// 64-bit number, it means the lower half.
template <class Mask>
static inline __attribute__((always_inline)) uint64_t gs_cpu_mask(Mask mask) {
    if (sizeof(Mask) > 4) return (uint64_t)mask;
    return (uint32_t)mask == 0xffffffffu && warpSize == 64 ? ~uint64_t(0) : (uint64_t)(uint32_t)mask;
}

template <class T>
static inline __attribute__((always_inline)) T gs_cpu_shuffle(uint64_t mask, T value, uint32_t source,
                                                              const char* file, uint32_t line) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value,
                  "a shuffle moves values of at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = gs_cpu_warp(GS_CPU_WARP_SHUFFLE, source, mask, bits, file, line).value;
    T result = value;
    std::memcpy(&result, &bits, sizeof(T));
    return result;
}

// Returns the lane that a shuffle reads from. If that is outside its segment of `width` lanes, a lane
// reads itself.
static inline uint32_t gs_cpu_from(int lane, int width) {
    const uint32_t self = gs_cpu_lane_id(), segment = (uint32_t)width;
    return (self & ~(segment - 1)) | ((uint32_t)lane & (segment - 1));
}
static inline uint32_t gs_cpu_from_up(unsigned delta, int width) {
    const uint32_t self = gs_cpu_lane_id(), at = self & ((uint32_t)width - 1);
    return delta > at ? self : self - delta;
}
static inline uint32_t gs_cpu_from_down(unsigned delta, int width) {
    const uint32_t self = gs_cpu_lane_id(), at = self & ((uint32_t)width - 1);
    return delta >= (uint32_t)width - at ? self : self + delta;
}
// Unlike in the other shuffles, a lane can read from an earlier segment.
static inline uint32_t gs_cpu_from_xor(int lane_mask, int width) {
    const uint32_t self = gs_cpu_lane_id(), segment = (uint32_t)width, from = self ^ (uint32_t)lane_mask;
    return from >= ((self & ~(segment - 1)) + segment) ? self : from;
}

// `width` defaults to the warp's size, which only the launch knows. A mask of 0 means the lanes that can get here.
#define GS_CPU_SHUFFLE(name, By, from)                                                                        \
    template <class Mask, class T>                                                                            \
    static inline T name##_sync(Mask mask, T value, By by, int width = 0, GS_CPU_WHERE) {                     \
        return gs_cpu_shuffle(gs_cpu_mask(mask), value, from(by, width ? width : warpSize), file, line);      \
    }                                                                                                         \
    template <class T>                                                                                        \
    static inline T name(T value, By by, int width = 0, GS_CPU_WHERE) {                                       \
        return name##_sync(0, value, by, width, file, line);                                                  \
    }
GS_CPU_SHUFFLE(__shfl, int, gs_cpu_from)
GS_CPU_SHUFFLE(__shfl_up, unsigned, gs_cpu_from_up)
GS_CPU_SHUFFLE(__shfl_down, unsigned, gs_cpu_from_down)
GS_CPU_SHUFFLE(__shfl_xor, int, gs_cpu_from_xor)
#undef GS_CPU_SHUFFLE

template <class Mask = uint64_t>
static inline void __syncwarp(Mask mask = (Mask)~uint64_t(0), GS_CPU_WHERE) {
    gs_cpu_warp(GS_CPU_WARP_SYNC, 0, gs_cpu_mask(mask), 0, file, line);
}

// On a warp of 64 the result has bits above 32. If CUDA code keeps it in an unsigned, it loses them, as under hipcc.
template <class Mask>
static inline uint64_t __ballot_sync(Mask mask, int predicate, GS_CPU_WHERE) {
    return gs_cpu_warp(GS_CPU_WARP_BALLOT, 0, gs_cpu_mask(mask), predicate != 0, file, line).value;
}
template <class Mask>
static inline int __any_sync(Mask mask, int predicate, GS_CPU_WHERE) {
    return __ballot_sync(mask, predicate, file, line) != 0;
}
template <class Mask>
static inline int __all_sync(Mask mask, int predicate, GS_CPU_WHERE) {
    const gs_cpu_warp_result result =
        gs_cpu_warp(GS_CPU_WARP_BALLOT, 0, gs_cpu_mask(mask), predicate != 0, file, line);
    return result.value == result.active;
}
template <class Mask, class T>
static inline uint64_t __match_any_sync(Mask mask, T value, GS_CPU_WHERE) {
    static_assert(sizeof(T) <= 8, "a match compares values of at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return gs_cpu_warp(GS_CPU_WARP_MATCH, 0, gs_cpu_mask(mask), bits, file, line).value;
}

static inline uint64_t __ballot(int predicate, GS_CPU_WHERE) { return __ballot_sync(0, predicate, file, line); }
static inline int __any(int predicate, GS_CPU_WHERE) { return __any_sync(0, predicate, file, line); }
static inline int __all(int predicate, GS_CPU_WHERE) { return __all_sync(0, predicate, file, line); }
static inline uint64_t __activemask(GS_CPU_WHERE) {
    return gs_cpu_warp(GS_CPU_WARP_SYNC, 0, 0, 0, file, line).active;
}
static inline unsigned __lane_id() { return gs_cpu_lane_id(); }

// Returns the mask's lanes if all of them have one value, and none otherwise.
template <class Mask, class T>
static inline uint64_t __match_all_sync(Mask mask, T value, int* predicate, GS_CPU_WHERE) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const gs_cpu_warp_result result = gs_cpu_warp(GS_CPU_WARP_MATCH, 0, gs_cpu_mask(mask), bits, file, line);
    *predicate = result.value == result.active;
    return *predicate ? result.active : 0;
}
static inline uint64_t __lanemask_lt() { return (uint64_t(1) << gs_cpu_lane_id()) - 1; }

template <class Mask, class T, class Combine>
static inline T gs_cpu_reduce_sync(Mask mask, T value, Combine combine, const char* file, uint32_t line) {
    const uint64_t all = gs_cpu_mask(mask);
    T result = value;
    bool first = true;
    for (int lane = 0; lane < warpSize; ++lane) {
        const T other = gs_cpu_shuffle(all, value, (uint32_t)lane, file, line);
        if (!(all >> lane & 1)) continue;
        result = first ? other : combine(result, other);
        first = false;
    }
    return result;
}
#define GS_CPU_REDUCE(name, expression)                                                                     \
    template <class Mask, class T>                                                                          \
    static inline T __reduce_##name##_sync(Mask mask, T value, GS_CPU_WHERE) {                              \
        return gs_cpu_reduce_sync(mask, value, [](T a, T b) -> T { return expression; }, file, line);       \
    }
GS_CPU_REDUCE(add, a + b)
GS_CPU_REDUCE(min, a < b ? a : b)
GS_CPU_REDUCE(max, a > b ? a : b)
GS_CPU_REDUCE(and, a & b)
GS_CPU_REDUCE(or, a | b)
GS_CPU_REDUCE(xor, a ^ b)
#undef GS_CPU_REDUCE

#endif
