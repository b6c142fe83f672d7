// `cuda::pipeline` for other compilers than nvcc: what `<cuda/pipeline>` includes there.
//
// A pipeline of one thread orders its own copies. Those are done at once here, so it has nothing to wait for. A pipeline of a block has
// two barriers for each stage: the threads that fill it arrive at one, and the threads that use it at the other.
#ifndef GPUSTREAM_CUDA_PIPELINE_CUH
#define GPUSTREAM_CUDA_PIPELINE_CUH

#include <gpustream/cuda_barrier.cuh>

namespace cuda {

enum class pipeline_role { producer, consumer };

template <thread_scope Scope, unsigned char Stages>
class pipeline_shared_state {
    static_assert(Scope == thread_scope_block, "only pipelines of a thread or a block work here");

public:
    pipeline_shared_state() = default;
    pipeline_shared_state(const pipeline_shared_state&) = delete;
    pipeline_shared_state& operator=(const pipeline_shared_state&) = delete;

    barrier<Scope> filled[Stages], used[Stages];
    gs::u32 producers;
};

template <thread_scope Scope>
class pipeline {
    static_assert(Scope == thread_scope_block, "only pipelines of a thread or a block work here");
};

template <>
class pipeline<thread_scope_thread> {
public:
    GS_INLINE void producer_acquire() {}
    GS_INLINE void producer_commit() {}
    GS_INLINE void consumer_wait() {}
    GS_INLINE void consumer_release() {}
    GS_INLINE bool quit() { return true; }
};

template <>
class pipeline<thread_scope_block> {
    typedef barrier<thread_scope_block> Barrier;

public:
    // Prepares the barriers. All threads of the group call this.
    template <class Group, unsigned char Stages>
    GS_INLINE pipeline(const Group& group, pipeline_shared_state<thread_scope_block, Stages>* state, gs::u32 producers,
                       gs::u32 consumers)
        : filled(state->filled), used(state->used), stages(Stages), fills{0, 0}, uses{0, 0} {
        if (group.thread_rank() == 0) {
            for (gs::u32 s = 0; s < Stages; ++s) {
                init(filled + s, producers);
                init(used + s, consumers);
            }
        }
        group.sync();
    }
    pipeline(pipeline&&) = default;

    GS_INLINE void producer_acquire(GS_SITE_) { used[fills.stage].wait_parity(!fills.is_odd, file, line); }
    GS_INLINE void producer_commit(GS_SITE_) {
        filled[fills.stage].arrive(1, file, line);
        fills.advance(stages);
    }
    GS_INLINE void consumer_wait(GS_SITE_) { filled[uses.stage].wait_parity(uses.is_odd, file, line); }
    GS_INLINE void consumer_release(GS_SITE_) {
        used[uses.stage].arrive(1, file, line);
        uses.advance(stages);
    }

private:
    struct Place {
        gs::u32 stage;
        bool is_odd;
        GS_INLINE void advance(gs::u32 stages) {
            if (++stage == stages) {
                stage = 0;
                is_odd = !is_odd;
            }
        }
    };
    Barrier *filled, *used;
    gs::u32 stages;
    Place fills, uses;
};

GS_INLINE pipeline<thread_scope_thread> make_pipeline() { return {}; }
// Each thread fills and uses.
template <class Group, unsigned char Stages>
GS_INLINE pipeline<thread_scope_block> make_pipeline(const Group& group, pipeline_shared_state<thread_scope_block, Stages>* state) {
    return {group, state, (gs::u32)group.size(), (gs::u32)group.size()};
}
// The first `producers` threads fill, and the others use.
template <class Group, unsigned char Stages>
GS_INLINE pipeline<thread_scope_block> make_pipeline(const Group& group, pipeline_shared_state<thread_scope_block, Stages>* state,
                                                     size_t producers) {
    return {group, state, (gs::u32)producers, (gs::u32)(group.size() - producers)};
}
template <class Group, unsigned char Stages>
GS_INLINE pipeline<thread_scope_block> make_pipeline(const Group& group, pipeline_shared_state<thread_scope_block, Stages>* state,
                                                     pipeline_role role) {
    if (group.thread_rank() == 0) state->producers = 0;
    group.sync();
    if (role == pipeline_role::producer) atomicAdd(&state->producers, 1u);
    group.sync();
    return {group, state, state->producers, (gs::u32)group.size() - state->producers};
}

template <unsigned char Prior>
GS_INLINE void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>&) {}

template <class To, class From, thread_scope Scope>
GS_INLINE void memcpy_async(To* to, const From* from, size_t bytes, pipeline<Scope>&) {
    gs_detail::copy(to, from, bytes, 0, 1);
}
template <class Group, class To, class From, thread_scope Scope>
GS_INLINE void memcpy_async(const Group& group, To* to, const From* from, size_t bytes, pipeline<Scope>&) {
    gs_detail::copy(to, from, bytes, group.thread_rank(), group.size());
}

}  // namespace cuda

#endif
