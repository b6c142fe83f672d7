// `cuda::barrier` and `cuda::memcpy_async` for other compilers than nvcc: what `<cuda/barrier>` includes there.
//
// A barrier counts arrivals of threads of one block, in shared memory. When as many have arrived as it expects, a phase ends, and all
// that wait for it go on. Copies are done at once, so they need no arrival of their own.
//
// On AMD the lanes of a wave run together. So one of them must not wait for an arrival that another one reaches later, in another
// branch; on NVIDIA that works.
#ifndef GPUSTREAM_CUDA_BARRIER_CUH
#define GPUSTREAM_CUDA_BARRIER_CUH

#include <gpustream/groups.cuh>

#define GS_SITE_ const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <thread_scope Scope, class Completion = void>
class barrier {
    static_assert(sizeof(Completion*) == 0, "only cuda::barrier<cuda::thread_scope_block>, without a completion function, works here");
};

template <>
class barrier<thread_scope_block, void> {
public:
    // The number of a phase.
    struct arrival_token {
        gs::u32 phase;
    };

    barrier() = default;
    GS_INLINE explicit barrier(ptrdiff_t expected) { begin(expected); }
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    friend GS_INLINE void init(barrier* of, ptrdiff_t expected) { of->begin(expected); }
    static GS_INLINE constexpr ptrdiff_t max() { return (1 << 20) - 1; }

    GS_INLINE arrival_token arrive(ptrdiff_t count = 1, GS_SITE_) {
        arrival_token token;
        // The phase cannot end before this thread arrives.
        token.phase = read(&phase_);
        if (subtract(&missing_, (gs::u32)count) == (gs::u32)count) {
            missing_ = read(&expected_);
            end_phase(file, line);
        }
        return token;
    }
    GS_INLINE void wait(const arrival_token& token, GS_SITE_) const {
        while (read(&phase_) == token.phase) pause(file, line);
    }
    GS_INLINE void arrive_and_wait(GS_SITE_) { wait(arrive(1, file, line), file, line); }
    GS_INLINE void arrive_and_drop(GS_SITE_) {
        subtract(&expected_, 1);
        arrive(1, file, line);
    }
    // Phases count from 0. Before the first one ends, an odd one counts as over.
    GS_INLINE void wait_parity(bool odd, GS_SITE_) const {
        while ((read(&phase_) & 1) == (gs::u32)odd) pause(file, line);
    }

private:
    gs::u32 missing_, expected_, phase_;

    GS_INLINE void begin(ptrdiff_t expected) {
        missing_ = expected_ = (gs::u32)expected;
        phase_ = 0;
    }
#if defined(GS_CPU)
    // One OS thread runs the whole block.
    static GS_INLINE gs::u32 read(const gs::u32* from) { return *from; }
    static GS_INLINE gs::u32 subtract(gs::u32* from, gs::u32 count) {
        const gs::u32 before = *from;
        *from = before - count;
        return before;
    }
    GS_INLINE void end_phase(const char* file, unsigned line) {
        ++phase_;
        gs_cpu_warp(GS_CPU_WARP_WAKE, 0, 1, (uint64_t)this, file, line);
    }
    GS_INLINE void pause(const char* file, unsigned line) const {
        gs_cpu_warp(GS_CPU_WARP_AWAIT, 0, 1, (uint64_t)this, file, line);
    }
#else
    static GS_INLINE gs::u32 read(const gs::u32* from) {
        return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    static GS_INLINE gs::u32 subtract(gs::u32* from, gs::u32 count) {
        return __hip_atomic_fetch_add(from, 0u - count, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    GS_INLINE void end_phase(const char*, unsigned) {
        __hip_atomic_fetch_add(&phase_, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    static GS_INLINE void pause(const char*, unsigned) { __builtin_amdgcn_s_sleep(1); }
#endif
};

// A number of bytes. Both addresses of a copy are aligned to `Alignment`.
template <size_t Alignment>
struct aligned_size_t {
    static constexpr size_t align = Alignment;
    size_t value;
    GS_INLINE constexpr explicit aligned_size_t(size_t size) : value(size) {}
    GS_INLINE constexpr operator size_t() const { return value; }
};

namespace gs_detail {

// Copies `bytes` bytes. There are `threads` threads, and this one has number `rank`. The pieces are as large as addresses and size allow.
template <size_t size>
GS_INLINE void copy_pieces(void* to, const void* from, size_t bytes, size_t rank, size_t threads) {
    struct alignas(size) Piece {
        unsigned char at[size];
    };
    for (size_t i = rank; i < bytes / size; i += threads) reinterpret_cast<Piece*>(to)[i] = reinterpret_cast<const Piece*>(from)[i];
}
GS_INLINE void copy(void* to, const void* from, size_t bytes, size_t rank, size_t threads) {
    const size_t together = (size_t)to | (size_t)from | bytes;
    if (together % 16 == 0) {
        copy_pieces<16>(to, from, bytes, rank, threads);
    } else if (together % 4 == 0) {
        copy_pieces<4>(to, from, bytes, rank, threads);
    } else {
        copy_pieces<1>(to, from, bytes, rank, threads);
    }
}

}  // namespace gs_detail

template <class To, class From, class Completion>
GS_INLINE void memcpy_async(To* to, const From* from, size_t bytes, barrier<thread_scope_block, Completion>&) {
    gs_detail::copy(to, from, bytes, 0, 1);
}
template <class Group, class To, class From, class Completion>
GS_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes, barrier<thread_scope_block, Completion>&) {
    gs_detail::copy(to, from, bytes, group.thread_rank(), group.size());
}

}  // namespace cuda

#endif
