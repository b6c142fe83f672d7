// Cooperative groups on the CPU and on AMD, with CUDA's names. If you include `<cooperative_groups.h>`, you get this
// file; nvcc has its own.
//
// A tile has at most as many threads as a warp. Masks and ballots have 64 bits, because some warps have 64
// lanes.
#ifndef GPUSTREAM_GROUPS_CUH
#define GPUSTREAM_GROUPS_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>
#include <gpustream/grid.cuh>

#define GS_GROUP __device__ __forceinline__

namespace cooperative_groups {

// The warp operations that we build groups from. A mask names the lanes that take part.
namespace gs_detail {

typedef unsigned int u32;
typedef unsigned long long mask_t;

#if defined(GS_CPU)
GS_INLINE u32 lane() { return gs_cpu_lane_id(); }
GS_INLINE mask_t active() { return __activemask(); }
GS_INLINE mask_t ballot(mask_t mask, bool predicate) { return __ballot_sync((uint64_t)mask, predicate); }
GS_INLINE void sync(mask_t mask) { __syncwarp((uint64_t)mask); }
GS_INLINE mask_t shuffle_word(mask_t mask, mask_t word, u32 from) {
    return gs_cpu_shuffle(mask, word, from, __builtin_FILE(), __builtin_LINE());
}
#else
GS_INLINE u32 lane() { return __lane_id(); }
GS_INLINE mask_t active() { return __ballot(1); }
GS_INLINE mask_t ballot(mask_t mask, bool predicate) { return __ballot(predicate) & mask; }
// Lanes run in lockstep, so we only keep the compiler from moving memory accesses across this point.
GS_INLINE void sync(mask_t) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
GS_INLINE mask_t shuffle_word(mask_t, mask_t word, u32 from) {
    const u32 low = (u32)__shfl((int)(u32)word, (int)from), high = (u32)__shfl((int)(u32)(word >> 32), (int)from);
    return (mask_t)high << 32 | low;
}
#endif

// Returns the value of lane `from` of the warp.
template <class T>
GS_INLINE T shuffle(mask_t mask, T value, u32 from) {
    mask_t words[(sizeof(T) + 7) / 8] = {};
    __builtin_memcpy(words, &value, sizeof(T));
    for (u32 w = 0; w < (sizeof(T) + 7) / 8; ++w) words[w] = shuffle_word(mask, words[w], from);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

GS_INLINE mask_t first_lanes(u32 count) { return count >= 64 ? ~mask_t(0) : (mask_t(1) << count) - 1; }
GS_INLINE u32 count(mask_t mask) { return (u32)__popcll(mask); }

// Returns the mask's bit number that has `rank` others below it.
GS_INLINE u32 lane_of(mask_t mask, u32 rank) {
    for (; rank > 0; --rank) mask &= mask - 1;
    return (u32)__ffsll((long long)mask) - 1;
}

// Returns the mask's lanes that have the same value as this one.
template <class T>
GS_INLINE mask_t same(mask_t mask, T value) {
    mask_t left = mask, mine = 0;
    while (left != 0) {
        const T other = shuffle(mask, value, lane_of(left, 0));
        const mask_t equal = ballot(mask, value == other);
        if (value == other) mine = equal;
        left &= ~equal;
    }
    return mine;
}

}  // namespace gs_detail

// The threads of a block.
class thread_block {
public:
    GS_GROUP static void sync() { __syncthreads(); }
    GS_GROUP static unsigned int thread_rank() { return gs::thread_in_block(); }
    GS_GROUP static unsigned int num_threads() { return gs::threads_in_block(); }
    GS_GROUP static unsigned int size() { return num_threads(); }
    GS_GROUP static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    GS_GROUP static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
    GS_GROUP static dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
    GS_GROUP static dim3 dim_threads() { return group_dim(); }
    // A barrier in two halves. Only the second waits.
    struct arrival_token {};
    GS_GROUP static arrival_token barrier_arrive() { return arrival_token(); }
    GS_GROUP static void barrier_wait(arrival_token) { sync(); }
    GS_GROUP static void barrier_wait() { sync(); }
};
GS_GROUP thread_block this_thread_block() { return thread_block(); }

// CUDA needs this memory for tiles that span several warps; we do not use it.
template <unsigned int Threads = 1024>
struct block_tile_memory {};
template <unsigned int Threads>
GS_GROUP thread_block this_thread_block(block_tile_memory<Threads>&) {
    return thread_block();
}

// Some threads in a warp, ranked by lane. Tiles and coalesced groups derive from it.
class gs_lanes {
public:
    GS_GROUP void sync() const { gs_detail::sync(mask_); }
    GS_GROUP unsigned int thread_rank() const {
        return gs_detail::count(mask_ & gs_detail::first_lanes(gs_detail::lane()));
    }
    GS_GROUP unsigned int num_threads() const { return gs_detail::count(mask_); }
    GS_GROUP unsigned int size() const { return num_threads(); }
    GS_GROUP unsigned int meta_group_rank() const { return meta_rank_; }
    GS_GROUP unsigned int meta_group_size() const { return meta_size_; }
    // Ranks after the last wrap around.
    template <class T>
    GS_GROUP T shfl(T value, unsigned int rank) const {
        return gs_detail::shuffle(mask_, value, gs_detail::lane_of(mask_, rank % num_threads()));
    }
    // If the group has no such rank, you get the thread's own value.
    template <class T>
    GS_GROUP T shfl_up(T value, unsigned int delta) const {
        const unsigned int rank = thread_rank();
        return gs_detail::shuffle(mask_, value, gs_detail::lane_of(mask_, delta > rank ? rank : rank - delta));
    }
    template <class T>
    GS_GROUP T shfl_down(T value, unsigned int delta) const {
        const unsigned int rank = thread_rank(), size = num_threads();
        return gs_detail::shuffle(mask_, value, gs_detail::lane_of(mask_, delta >= size - rank ? rank : rank + delta));
    }
    template <class T>
    GS_GROUP T shfl_xor(T value, unsigned int bits) const {
        const unsigned int rank = thread_rank(), from = rank ^ bits;
        return gs_detail::shuffle(mask_, value, gs_detail::lane_of(mask_, from < num_threads() ? from : rank));
    }
    GS_GROUP int any(int predicate) const { return gs_detail::ballot(mask_, predicate != 0) != 0; }
    GS_GROUP int all(int predicate) const { return gs_detail::ballot(mask_, predicate == 0) == 0; }
    GS_GROUP unsigned long long ballot(int predicate) const { return ranks(gs_detail::ballot(mask_, predicate != 0)); }
    template <class T>
    GS_GROUP unsigned long long match_any(T value) const {
        return ranks(gs_detail::same(mask_, value));
    }
    template <class T>
    GS_GROUP unsigned long long match_all(T value, int& predicate) const {
        predicate = all(value == shfl(value, 0));
        return predicate ? gs_detail::first_lanes(num_threads()) : 0;
    }

protected:
    GS_GROUP gs_lanes(unsigned long long mask, unsigned int meta_rank, unsigned int meta_size)
        : mask_(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}
    // Converts a mask of lanes to a mask of ranks.
    GS_GROUP unsigned long long ranks(unsigned long long lanes) const {
        const unsigned int first = gs_detail::lane_of(mask_, 0);
        if (mask_ >> first == gs_detail::first_lanes(num_threads())) return lanes >> first;
        unsigned long long result = 0;
        unsigned int rank = 0;
        for (unsigned long long left = mask_; left != 0; left &= left - 1, ++rank) {
            result |= (lanes >> gs_detail::lane_of(left, 0) & 1) << rank;
        }
        return result;
    }

    unsigned long long mask_;
    unsigned int meta_rank_, meta_size_;

    friend class thread_group;
};

// Threads in a warp that run together.
class coalesced_group : public gs_lanes {
public:
    GS_GROUP explicit coalesced_group(unsigned long long mask, unsigned int meta_rank = 0, unsigned int meta_size = 1)
        : gs_lanes(mask, meta_rank, meta_size) {}
    GS_GROUP unsigned long long gs_mask() const { return mask_; }
};
GS_GROUP coalesced_group coalesced_threads() { return coalesced_group(gs_detail::active()); }

// `Size` threads in a block with neighbouring numbers. The first number is a multiple of `Size`.
template <unsigned int Size, class Parent = void>
class thread_block_tile : public gs_lanes {
    static_assert(Size > 0 && (Size & (Size - 1)) == 0 && Size <= 64, "a tile has 1, 2, 4, ... threads of one warp");

public:
    template <class Other>
    GS_GROUP thread_block_tile(const thread_block_tile<Size, Other>& other)
        : gs_lanes(other.gs_mask(), other.meta_group_rank(), other.meta_group_size()) {}
    GS_GROUP thread_block_tile(unsigned long long mask, unsigned int meta_rank, unsigned int meta_size)
        : gs_lanes(mask, meta_rank, meta_size) {}
    GS_GROUP unsigned int thread_rank() const { return gs::thread_in_block() & (Size - 1); }
    GS_GROUP static constexpr unsigned int num_threads() { return Size; }
    GS_GROUP static constexpr unsigned int size() { return Size; }
    GS_GROUP unsigned long long gs_mask() const { return mask_; }
    // We can compute a rank's lane from the tile's first lane, without a look at the mask.
    template <class T>
    GS_GROUP T shfl(T value, unsigned int rank) const {
        return gs_detail::shuffle(mask_, value, first() | (rank & (Size - 1)));
    }
    template <class T>
    GS_GROUP T shfl_up(T value, unsigned int delta) const {
        const unsigned int rank = thread_rank();
        return gs_detail::shuffle(mask_, value, first() | (delta > rank ? rank : rank - delta));
    }
    template <class T>
    GS_GROUP T shfl_down(T value, unsigned int delta) const {
        const unsigned int rank = thread_rank();
        return gs_detail::shuffle(mask_, value, first() | (delta >= Size - rank ? rank : rank + delta));
    }
    template <class T>
    GS_GROUP T shfl_xor(T value, unsigned int bits) const {
        const unsigned int rank = thread_rank(), from = rank ^ bits;
        return gs_detail::shuffle(mask_, value, first() | (from < Size ? from : rank));
    }
    GS_GROUP unsigned long long ballot(int predicate) const {
        return gs_detail::ballot(mask_, predicate != 0) >> first();
    }

private:
    GS_GROUP static unsigned int first() { return gs_detail::lane() & ~(Size - 1); }
};

// Any group in a block, if only the run knows its kind.
class thread_group {
public:
    GS_GROUP thread_group(const thread_block&) : mask_(0), size_(thread_block::size()), rank_(thread_block::thread_rank()) {}
    GS_GROUP thread_group(const gs_lanes& lanes)
        : mask_(lanes.mask_), size_(lanes.num_threads()), rank_(lanes.thread_rank()) {}
    GS_GROUP void sync() const {
        if (mask_ == 0) {
            __syncthreads();
        } else {
            gs_detail::sync(mask_);
        }
    }
    GS_GROUP unsigned int thread_rank() const { return rank_; }
    GS_GROUP unsigned int num_threads() const { return size_; }
    GS_GROUP unsigned int size() const { return size_; }

private:
    unsigned long long mask_;  // 0: the whole block
    unsigned int size_, rank_;
};

namespace gs_detail {
// Returns the lanes in a tile of `size` threads, as far as the block has them.
GS_INLINE mask_t tile_mask(u32 size) {
    const u32 first = lane() & ~(size - 1), begin = gs::thread_in_block() - (lane() & (size - 1));
    const u32 left = gs::threads_in_block() - begin;
#if defined(GS_CPU)
    if (size > (u32)warpSize) gs_cpu_fail("makes a tile of more threads than a warp has", __builtin_FILE(), __builtin_LINE());
#endif
    return first_lanes(left < size ? left : size) << first;
}
}  // namespace gs_detail

template <unsigned int Size>
GS_GROUP thread_block_tile<Size, thread_block> tiled_partition(const thread_block&) {
    const unsigned int threads = thread_block::size();
    return thread_block_tile<Size, thread_block>(gs_detail::tile_mask(Size), gs::thread_in_block() / Size,
                                                 (threads + Size - 1) / Size);
}
template <unsigned int Size, unsigned int Outer, class Parent>
GS_GROUP thread_block_tile<Size, thread_block_tile<Outer, Parent>> tiled_partition(
    const thread_block_tile<Outer, Parent>& outer) {
    static_assert(Size <= Outer, "a tile of a tile is no larger");
    return thread_block_tile<Size, thread_block_tile<Outer, Parent>>(gs_detail::tile_mask(Size),
                                                                    outer.thread_rank() / Size, Outer / Size);
}
GS_GROUP thread_group tiled_partition(const thread_group&, unsigned int size) {
    return coalesced_group(gs_detail::tile_mask(size));
}
// These tiles are made from the group's ranks, not from lanes.
GS_GROUP coalesced_group tiled_partition(const coalesced_group& group, unsigned int size) {
    const unsigned int mine = group.thread_rank() / size;
    unsigned long long mask = 0;
    unsigned int rank = 0;
    for (unsigned long long left = group.gs_mask(); left != 0; left &= left - 1, ++rank) {
        if (rank / size == mine) mask |= left & (~left + 1);
    }
    return coalesced_group(mask, mine, (group.size() + size - 1) / size);
}
GS_GROUP thread_block_tile<1> this_thread() { return tiled_partition<1>(this_thread_block()); }

// Groups the threads whose labels, or predicates, are the same.
template <class Group, class Label>
GS_GROUP coalesced_group labeled_partition(const Group& group, Label label) {
    unsigned long long left = group.gs_mask(), mine = 0;
    unsigned int number = 0, groups = 0;
    while (left != 0) {
        const Label other = gs_detail::shuffle(group.gs_mask(), label, gs_detail::lane_of(left, 0));
        const unsigned long long equal = gs_detail::ballot(group.gs_mask(), label == other);
        if (label == other) mine = equal, number = groups;
        left &= ~equal;
        ++groups;
    }
    return coalesced_group(mine, number, groups);
}
template <class Group>
GS_GROUP coalesced_group binary_partition(const Group& group, bool predicate) {
    return labeled_partition(group, predicate);
}

#if defined(GS_HIP) && HIP_VERSION_MAJOR < 6
// In those versions, the device libraries have no grid barrier for newer targets. A device runs one cooperative
// grid at a time, so one word is enough for a module.
namespace gs_detail {
static __device__ unsigned int grid_arrivals;
}
#endif

// All threads in a grid. You can only `sync` in a cooperative launch.
class grid_group {
public:
    GS_GROUP bool is_valid() const {
#if defined(GS_CPU)
        return gs_cpu_current->meeting != nullptr || gs::blocks_in_grid() == 1;
#elif HIP_VERSION_MAJOR < 6
        return true;
#else
        return __ockl_grid_is_valid() != 0;
#endif
    }
#if defined(GS_CPU)
    GS_GROUP void sync(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) const {
        gs_cpu_grid_barrier(file, line);
    }
#elif HIP_VERSION_MAJOR < 6
    GS_GROUP void sync() const { gs::grid_barrier(&gs_detail::grid_arrivals); }
#else
    GS_GROUP void sync() const { __ockl_grid_sync(); }
#endif
    GS_GROUP static unsigned long long thread_rank() { return gs::thread_in_grid(); }
    GS_GROUP static unsigned long long num_threads() { return gs::threads_in_grid(); }
    GS_GROUP static unsigned long long size() { return num_threads(); }
    GS_GROUP static dim3 group_dim() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
    GS_GROUP static dim3 dim_blocks() { return group_dim(); }
    GS_GROUP static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    GS_GROUP static unsigned long long block_rank() { return gs::block_in_grid(); }
    GS_GROUP static unsigned long long num_blocks() { return gs::blocks_in_grid(); }
    struct arrival_token {};
    GS_GROUP arrival_token barrier_arrive() const { return arrival_token(); }
    GS_GROUP void barrier_wait(arrival_token) const { sync(); }
};
GS_GROUP grid_group this_grid() { return grid_group(); }

// A cluster. Here each block is its own cluster.
class cluster_group {
public:
    GS_GROUP static void sync() { __syncthreads(); }
    GS_GROUP static unsigned int thread_rank() { return thread_block::thread_rank(); }
    GS_GROUP static unsigned int num_threads() { return thread_block::size(); }
    GS_GROUP static unsigned int size() { return num_threads(); }
    GS_GROUP static unsigned int block_rank() { return 0; }
    GS_GROUP static unsigned int num_blocks() { return 1; }
    GS_GROUP static dim3 dim_blocks() { return dim3(1, 1, 1); }
    GS_GROUP static dim3 block_index() { return dim3(0, 0, 0); }
    template <class T>
    GS_GROUP static T* map_shared_rank(T* address, int) {
        return address;
    }
    template <class T>
    GS_GROUP static unsigned int query_shared_rank(const T*) {
        return 0;
    }
};
GS_GROUP cluster_group this_cluster() { return cluster_group(); }

template <class Group>
GS_GROUP void sync(const Group& group) {
    group.sync();
}
template <class Group>
GS_GROUP auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
    return group.thread_rank();
}
template <class Group>
GS_GROUP auto group_size(const Group& group) -> decltype(group.num_threads()) {
    return group.num_threads();
}

// Operators for reductions and scans.
template <class T = void>
struct plus {
    template <class V>
    GS_GROUP V operator()(V a, V b) const {
        return a + b;
    }
};
template <class T = void>
struct less {
    template <class V>
    GS_GROUP V operator()(V a, V b) const {
        return b < a ? b : a;
    }
};
template <class T = void>
struct greater {
    template <class V>
    GS_GROUP V operator()(V a, V b) const {
        return a < b ? b : a;
    }
};
template <class T = void>
struct bit_and {
    template <class V>
    GS_GROUP V operator()(V a, V b) const {
        return a & b;
    }
};
template <class T = void>
struct bit_or {
    template <class V>
    GS_GROUP V operator()(V a, V b) const {
        return a | b;
    }
};
template <class T = void>
struct bit_xor {
    template <class V>
    GS_GROUP V operator()(V a, V b) const {
        return a ^ b;
    }
};

// Combines all values in a tile or a coalesced group. Every thread gets the result.
template <class Group, class T, class Op>
GS_GROUP T reduce(const Group& group, T value, Op op) {
    const unsigned int rank = group.thread_rank(), size = group.num_threads();
    for (unsigned int distance = 1; distance < size; distance *= 2) {
        const T other = group.shfl_down(value, distance);
        if (rank + distance < size) value = op(value, other);
    }
    return group.shfl(value, 0);
}
// Combines this thread's value and those of all lower ranks.
template <class Group, class T, class Op>
GS_GROUP T inclusive_scan(const Group& group, T value, Op op) {
    const unsigned int rank = group.thread_rank(), size = group.num_threads();
    for (unsigned int distance = 1; distance < size; distance *= 2) {
        const T other = group.shfl_up(value, distance);
        if (rank >= distance) value = op(other, value);
    }
    return value;
}
template <class Group, class T>
GS_GROUP T inclusive_scan(const Group& group, T value) {
    return inclusive_scan(group, value, plus<T>());
}
// Combines the values of all lower ranks; zero in the first.
template <class Group, class T, class Op>
GS_GROUP T exclusive_scan(const Group& group, T value, Op op) {
    const T before = group.shfl_up(inclusive_scan(group, value, op), 1);
    return group.thread_rank() == 0 ? T() : before;
}
template <class Group, class T>
GS_GROUP T exclusive_scan(const Group& group, T value) {
    return exclusive_scan(group, value, plus<T>());
}

// Calls a function in one thread of the group.
template <class Group, class F, class... A>
GS_GROUP void invoke_one(const Group& group, F&& function, A&&... arguments) {
    if (group.thread_rank() == 0) function(static_cast<A&&>(arguments)...);
}
template <class Group, class F, class... A>
GS_GROUP auto invoke_one_broadcast(const Group& group, F&& function, A&&... arguments)
    -> decltype(function(static_cast<A&&>(arguments)...)) {
    decltype(function(static_cast<A&&>(arguments)...)) result{};
    if (group.thread_rank() == 0) result = function(static_cast<A&&>(arguments)...);
    return group.shfl(result, 0);
}

// Copies are done at once, so a wait for them is the group's barrier.
template <class Group, class To, class From>
GS_GROUP void memcpy_async(const Group& group, To* to, const From* from, size_t bytes) {
    const size_t step = group.num_threads();
    for (size_t i = group.thread_rank(); i < bytes; i += step) {
        reinterpret_cast<unsigned char*>(to)[i] = reinterpret_cast<const unsigned char*>(from)[i];
    }
}
template <class Group, class T>
GS_GROUP void memcpy_async(const Group& group, T* to, size_t room, const T* from, size_t count) {
    const size_t step = group.num_threads(), elements = room < count ? room : count;
    for (size_t i = group.thread_rank(); i < elements; i += step) to[i] = from[i];
}
template <class Group>
GS_GROUP void wait(const Group& group) {
    group.sync();
}
template <unsigned int Stages, class Group>
GS_GROUP void wait_prior(const Group& group) {
    group.sync();
}

namespace experimental {
using namespace cooperative_groups;
}

}  // namespace cooperative_groups

#undef GS_GROUP

#endif
