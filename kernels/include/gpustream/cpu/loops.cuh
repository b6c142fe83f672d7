// Kernels whose threads meet, as loops over the threads of a block between the places where they meet.
//
// gpustream-build writes the second form of such a kernel with the names of this header. Each thread's variables that
// live longer than one loop are arrays of one value per thread; a shuffle reads another thread's value in them.
#ifndef GPUSTREAM_CPU_LOOPS_CUH
#define GPUSTREAM_CPU_LOOPS_CUH

// A grid with at most this many blocks in each direction can run as loops, on warps of this many lanes: the index of a
// thread then is a number that the compiler can see to grow by one from thread to thread.
#define GS_CPU_LOOPS_GRID_MAX (1u << 20)
#define GS_CPU_LOOPS_WARP 32

#define GS_CPU_LOOP __attribute__((always_inline))

#define GS_CPU_AT_MOST(value, bound) \
    if ((value) > (bound)) __builtin_unreachable()

// Begins such a form: the indices of the block as constants that hide the thread-local variables, which the compiler
// would read again after each store.
#define GS_CPU_LOOPS_BEGIN                                                                    \
    const uint3 blockIdx = ::blockIdx, blockDim = ::blockDim, gridDim = ::gridDim;            \
    constexpr int warpSize = GS_CPU_LOOPS_WARP;                                               \
    GS_CPU_AT_MOST(blockIdx.x, GS_CPU_LOOPS_GRID_MAX);                                        \
    GS_CPU_AT_MOST(blockIdx.y, GS_CPU_LOOPS_GRID_MAX);                                        \
    GS_CPU_AT_MOST(blockDim.x, 1024u);                                                        \
    GS_CPU_AT_MOST(blockDim.y, 1024u);                                                        \
    (void)blockIdx, (void)blockDim, (void)gridDim, (void)warpSize

// One value for each thread of a block. A shuffle may look at a warp before the first thread and after the last, and
// ignores what it finds there.
template <class T>
struct gs_cpu_values {
    alignas(64) T before[64];
    T at[1024];
    T after[64];
};

// The same of a variable that a loop both changes and reads of other threads: these read the values from before the loop.
template <class T>
struct gs_cpu_twofold : gs_cpu_values<T> {
    T next[1024];
};

// The threads of a block that run: all of them, or those that have not returned and take the way that the block takes.
struct gs_cpu_threads {
    static constexpr uint32_t warp = GS_CPU_LOOPS_WARP;
    uint32_t x, y, z;  // the block's extents
    uint32_t count;    // the block's threads
    uint32_t end;      // behind the last warp of which a thread runs
    bool all;          // all threads run, and rows consist of halves of warps
    // Where not all run: whether each thread does, with zeros beyond the block, and the lanes of each warp that do.
    uint8_t runs[1024 + 2 * warp];
    uint32_t lanes[32];

    gs_cpu_threads(uint32_t x, uint32_t y, uint32_t z)
        : x(x), y(y), z(z), count(x * y * z), end(count), all(x % (warp / 2) == 0 && count % warp == 0) {}
    explicit gs_cpu_threads(const gs_cpu_context* context)
        : gs_cpu_threads(context->block.x, context->block.y, context->block.z) {
        if (!all) {
            fill(1);
            settle();
        }
    }
    void fill(uint8_t value) {
        std::memset(runs, value, count);
        std::memset(runs + count, 0, 2 * warp);
    }
    // Counts the lanes that run after `runs` has changed.
    void settle() {
        end = 0;
        for (uint32_t first = 0, number = 0; first < count; first += warp, ++number) {
            uint32_t sum = 0;
            for (uint32_t lane = 0; lane < warp; ++lane) sum += runs[first + lane];
            lanes[number] = sum;
            if (sum != 0) end = first + warp;
        }
        all = false;
    }
    bool any() const { return end != 0; }
    // Ends a loop that changed such a variable.
    template <class T>
    void renew(gs_cpu_twofold<T>& values) const {
        if (all) {
            std::memcpy(values.at, values.next, count * sizeof(T));
            return;
        }
        for (uint32_t first = 0; first < count; first += warp) {
            if (lanes[first / warp] == warp) {
                std::memcpy(values.at + first, values.next + first, warp * sizeof(T));
            } else if (lanes[first / warp] != 0) {
                for (uint32_t thread = first; thread < first + warp; ++thread) {
                    if (runs[thread]) values.at[thread] = values.next[thread];
                }
            }
        }
    }
    // Whether the whole warp of a thread runs.
    bool whole_warp(size_t thread) const { return all || lanes[thread / warp] == warp; }
};

// One thread in a loop over the threads of a block.
template <bool WholeWarp>
struct gs_cpu_turn {
    const gs_cpu_threads& threads;
    size_t thread;   // number in the block
    uint32_t lane;   // and in the warp
    uint3 index;     // its threadIdx
    int x;           // the same in x, in a type whose sums do not wrap around

    bool takes_part(size_t other) const { return WholeWarp || threads.runs[other] != 0; }
    uint32_t width_of(int width) const {
        return width > 0 && (uint32_t)width < threads.warp ? (uint32_t)width : threads.warp;
    }
    // The results of shuffles: as in warp.cuh, the thread's own value where the source takes no part. Both values are
    // loaded whatever the outcome, at addresses that grow by one from thread to thread: so the loop can be vectorised.
    template <class Values>
    GS_CPU_LOOP auto up(const Values& values, unsigned delta, int width = 0) const {
        const uint32_t segment = width_of(width), at = lane & (segment - 1);
        const uint32_t step = delta < segment ? delta : 0;
        const auto far = (values.at - step)[thread], own = values.at[thread];
        return at >= step && (WholeWarp || threads.runs[at >= step ? thread - step : thread]) ? far : own;
    }
    template <class Values>
    GS_CPU_LOOP auto down(const Values& values, unsigned delta, int width = 0) const {
        const uint32_t segment = width_of(width), at = lane & (segment - 1);
        const uint32_t step = delta < segment ? delta : 0;
        const auto far = (values.at + step)[thread], own = values.at[thread];
        return at + step < segment && (WholeWarp || threads.runs[thread + step]) ? far : own;
    }
    template <class Values>
    GS_CPU_LOOP auto other(const Values& values, int lane_mask, int width = 0) const {
        const uint32_t segment = width_of(width), at = lane;
        const uint32_t mask = (uint32_t)lane_mask;
        const auto own = values.at[thread];
        if (mask < threads.warp && (mask & (mask - 1)) == 0 && segment == threads.warp) {
            const auto below = (values.at - mask)[thread], above = (values.at + mask)[thread];
            const bool is_above = (at & mask) != 0;
            return WholeWarp || threads.runs[thread ^ mask] ? (is_above ? below : above) : own;
        }
        const uint32_t from = at ^ mask;
        if (from >= (at & ~(segment - 1)) + segment) return own;
        const size_t source = thread - at + from;
        return takes_part(source) ? values.at[source] : own;
    }
    template <class Values>
    GS_CPU_LOOP auto from(const Values& values, int of, int width = 0) const {
        const uint32_t segment = width_of(width);
        const size_t source = (thread & ~(size_t)(segment - 1)) + ((uint32_t)of & (segment - 1));
        return takes_part(source) ? values.at[source] : values.at[thread];
    }
};

// One bit for each lane, in memory, because older processors cannot shift each number of a vector by its own count.
struct gs_cpu_bit_of {
    uint32_t at[GS_CPU_LOOPS_WARP];
    constexpr gs_cpu_bit_of() : at() {
        for (uint32_t lane = 0; lane < GS_CPU_LOOPS_WARP; ++lane) at[lane] = uint32_t(1) << lane;
    }
    constexpr uint32_t operator[](size_t lane) const { return at[lane]; }
};
alignas(64) static constexpr gs_cpu_bit_of gs_cpu_lane_bit;

// Neighbours in a row of the block. All of them run: `Length` threads, or whole warps of them, if `Length` is
// GS_CPU_LOOPS_WARPS; or some of at most a warp run, if `Length` is 0.
#define GS_CPU_LOOPS_WARPS 1
template <uint32_t Length>
struct gs_cpu_part {
    static constexpr bool whole = Length != 0;
    const gs_cpu_threads& threads;
    size_t first;  // number of the first of them in the block
    uint3 index;   // its threadIdx
    uint32_t length;

    // Runs the body for each thread. Threads between two meetings are not ordered, so the compiler may take several at
    // once, and a constant number of them without a rest. `threadIdx` itself is set only for functions outside of the
    // kernel that read it.
    template <bool SetsIndex, class Body>
    GS_CPU_LOOP void each(Body body) const {
        const uint32_t y = index.y, z = index.z;
        const size_t before = first - index.x;
        // The empty statement hides the loop's first value: GCC would move half of its first turn out.
        int begin = (int)index.x;
        __asm__("" : "+r"(begin));
        GS_CPU_AT_MOST((uint32_t)begin, 1023u);
        GS_CPU_AT_MOST(length, Length == GS_CPU_LOOPS_WARPS ? 1024u : (uint32_t)GS_CPU_LOOPS_WARP);
        const int end = begin + (Length == GS_CPU_LOOPS_WARPS ? (int)(length & ~(GS_CPU_LOOPS_WARP - 1u))
                                 : whole                      ? (int)Length
                                                              : (int)length);
#pragma GCC ivdep
#pragma GCC unroll 1
        for (int x = begin; x < end; ++x) {
            const uint32_t number = (uint32_t)x;
            if (SetsIndex) ::threadIdx.x = number;
            if (whole || threads.runs[before + number]) {
                const uint32_t lane = ((uint32_t)before + number) % threads.warp;
                body(gs_cpu_turn<whole>{threads, before + number, lane, {number, y, z}, x});
            }
        }
    }
    // Runs the body for the thread at this place in the part.
    template <bool SetsIndex, class Body>
    GS_CPU_LOOP void one(uint32_t place, Body body) const {
        const uint32_t number = index.x + place, lane = (uint32_t)(first + place) % threads.warp;
        if (SetsIndex) ::threadIdx.x = number;
        body(gs_cpu_turn<whole>{threads, first + place, lane, {number, index.y, index.z}, (int)number});
    }
};

// A row of a block's threads.
struct gs_cpu_row {
    const gs_cpu_threads& threads;
    size_t first;
    uint3 index;
    int x;

    // Runs the body for each part of the row, of at most a warp, in which threads run.
    template <class Body>
    GS_CPU_LOOP void parts(Body body) const {
        constexpr uint32_t warp = GS_CPU_LOOPS_WARP, half = warp / 2;
        const uint32_t length = threads.x;
        for (uint32_t begin = 0, count; begin < length && first + begin < threads.end; begin += count) {
            const size_t thread = first + begin;
            const uint3 index = {begin, this->index.y, this->index.z};
            if (length % warp == 0 && threads.whole_warp(thread)) {
                count = warp;
                body(gs_cpu_part<warp>{threads, thread, index, warp});
            } else if (threads.all) {
                count = half;
                body(gs_cpu_part<half>{threads, thread, index, half});
            } else {
                count = warp - (uint32_t)thread % warp;
                if (count > length - begin) count = length - begin;
                if (threads.lanes[thread / warp] != 0) body(gs_cpu_part<0>{threads, thread, index, count});
            }
        }
    }
    template <bool SetsIndex, class Body>
    GS_CPU_LOOP void each(Body body) const {
        const uint32_t length = threads.x;
        if (threads.all && length > GS_CPU_LOOPS_WARP && length % GS_CPU_LOOPS_WARP == 0) {
            return gs_cpu_part<GS_CPU_LOOPS_WARPS>{threads, first, index, length}.template each<SetsIndex>(body);
        }
        parts([&](const auto part) GS_CPU_LOOP { part.template each<SetsIndex>(body); });
    }
};
template <bool SetsIndex = false, class Body>
static inline GS_CPU_LOOP void gs_cpu_each_row(const gs_cpu_threads& threads, Body body) {
    const uint32_t y = threads.y, z = threads.z;
    size_t first = 0;
    for (uint32_t k = 0; k < z; ++k) {
        for (uint32_t j = 0; j < y; ++j, first += threads.x) {
            GS_CPU_AT_MOST(j, 1023u);
            GS_CPU_AT_MOST(k, 1023u);
            if (SetsIndex) ::threadIdx.y = j, ::threadIdx.z = k;
            body(gs_cpu_row{threads, first, {0, j, k}, 0});
        }
    }
}
// Runs the body for each thread that runs.
template <bool SetsIndex = false, class Body>
static inline GS_CPU_LOOP void gs_cpu_each(const gs_cpu_threads& threads, Body body) {
    gs_cpu_each_row<SetsIndex>(threads, [&](const gs_cpu_row row) GS_CPU_LOOP { row.each<SetsIndex>(body); });
}
// Runs the body for the few threads that fulfil a condition.
template <bool SetsIndex = false, class Condition, class Body>
static inline GS_CPU_LOOP void gs_cpu_each_of_few(const gs_cpu_threads& threads, Condition condition, Body body) {
    gs_cpu_each_row<SetsIndex>(threads, [&](const gs_cpu_row row) GS_CPU_LOOP {
        row.parts([&](const auto part) GS_CPU_LOOP {
            uint32_t found = 0;
            part.template each<SetsIndex>([&](const auto turn) GS_CPU_LOOP {
                found |= condition(turn) ? gs_cpu_lane_bit[turn.thread - part.first] : 0;
            });
            for (; found != 0; found &= found - 1) part.template one<SetsIndex>((uint32_t)__builtin_ctz(found), body);
        });
    });
}

// Stores what the body returns for each thread.
template <bool SetsIndex = false, class Body, class T = typename std::decay<decltype(std::declval<Body>()(
                          std::declval<const gs_cpu_turn<true>&>()))>::type>
static inline GS_CPU_LOOP gs_cpu_values<T> gs_cpu_gather(const gs_cpu_threads& threads, Body body) {
    gs_cpu_values<T> values;
    gs_cpu_each<SetsIndex>(threads, [&](const auto turn) GS_CPU_LOOP { values.at[turn.thread] = body(turn); });
    return values;
}

// The outcome of a vote: for each warp, the lanes that run and those whose predicate holds.
struct gs_cpu_votes {
    uint64_t active[32], held[32];
    uint32_t count = 0, against = 0;

    template <bool WholeWarp>
    uint64_t ballot(const gs_cpu_turn<WholeWarp>& turn) const { return held[turn.thread / turn.threads.warp]; }
    template <bool WholeWarp>
    int any(const gs_cpu_turn<WholeWarp>& turn) const { return ballot(turn) != 0; }
    template <bool WholeWarp>
    int every(const gs_cpu_turn<WholeWarp>& turn) const {
        return ballot(turn) == active[turn.thread / turn.threads.warp];
    }
};
template <bool SetsIndex = false, class Body>
static inline GS_CPU_LOOP gs_cpu_votes gs_cpu_vote(const gs_cpu_threads& threads, Body body) {
    gs_cpu_values<uint8_t> holds;
    gs_cpu_each<SetsIndex>(threads, [&](const auto turn) GS_CPU_LOOP { holds.at[turn.thread] = body(turn) != 0; });
    gs_cpu_votes votes;
    for (uint32_t first = 0, warp = 0; first < threads.count; first += threads.warp, ++warp) {
        uint64_t active = 0, held = 0;
        for (uint32_t lane = 0; lane < threads.warp && first + lane < threads.count; ++lane) {
            const uint64_t runs = threads.all || threads.runs[first + lane];
            active |= runs << lane;
            held |= (runs & holds.at[first + lane]) << lane;
        }
        votes.active[warp] = active, votes.held[warp] = held;
        votes.count += (uint32_t)__builtin_popcountll(held);
        votes.against += (uint32_t)__builtin_popcountll(active & ~held);
    }
    return votes;
}

// Returns the threads that take one side of a branch.
template <bool SetsIndex = false, class Body>
static inline GS_CPU_LOOP gs_cpu_threads gs_cpu_branch(const gs_cpu_threads& threads, Body body) {
    gs_cpu_threads side(threads.x, threads.y, threads.z);
    side.fill(0);
    gs_cpu_each<SetsIndex>(threads, [&](const auto turn) GS_CPU_LOOP { side.runs[turn.thread] = body(turn) ? 1 : 0; });
    side.settle();
    return side;
}

// Takes the threads out that return. Returns whether any are left.
template <bool SetsIndex = false, class Body>
static inline GS_CPU_LOOP bool gs_cpu_each_but(gs_cpu_threads& threads, Body body) {
    gs_cpu_values<uint8_t> returns;
    std::memset(returns.at, 1, threads.count);
    gs_cpu_each<SetsIndex>(threads, [&](const auto turn) GS_CPU_LOOP { body(turn, returns.at[turn.thread]); });
    // A thread that returned before counts here, too.
    uint32_t gone = 0;
    for (uint32_t thread = 0; thread < threads.count; ++thread) gone += returns.at[thread];
    if (gone == 0) return true;
    if (gone == threads.count) return false;
    if (threads.all) threads.fill(1);
    for (uint32_t thread = 0; thread < threads.count; ++thread) threads.runs[thread] &= (uint8_t)!returns.at[thread];
    threads.settle();
    return true;
}

// Returns an address that the compiler keeps instead of finding it anew.
template <class T>
static inline GS_CPU_LOOP T* gs_cpu_address(T* address) {
    __asm__("" : "+r"(address));
    return address;
}

// Sums in an index. A sum of signed numbers may not overflow; GCC forgets that of a sum in a branch, and could no longer
// tell that neighbours touch neighbouring memory.
template <class Left, class Right>
static inline GS_CPU_LOOP constexpr auto gs_cpu_sum(Left a, Right b) {
    if constexpr (std::is_signed<Left>::value && std::is_signed<Right>::value) {
        return (ptrdiff_t)a + (ptrdiff_t)b;
    } else {
        return a + b;
    }
}
template <class Left, class Right>
static inline GS_CPU_LOOP constexpr auto gs_cpu_difference(Left a, Right b) {
    if constexpr (std::is_signed<Left>::value && std::is_signed<Right>::value) {
        return (ptrdiff_t)a - (ptrdiff_t)b;
    } else {
        return a - b;
    }
}

// Atomics on the shared memory of a block, which one OS thread has for itself. The empty statement keeps the compiler
// from taking several threads at once, whose places may be one.
namespace gs_cpu_own {
template <class T, class Step>
static inline GS_CPU_LOOP T update(T* place, Step step) {
    const T old = *place;
    *place = step(old);
    __asm__ volatile("" : "+m"(*place));
    return old;
}
#define GS_CPU_OWN(name, expression)                                                                      \
    template <class T, class V>                                                                           \
    static inline GS_CPU_LOOP T name(T* place, V with) {                                                  \
        const T v = (T)with;                                                                              \
        return update(place, [v](T old) -> T { return expression; });                                     \
    }
GS_CPU_OWN(atomicAdd, old + v)
GS_CPU_OWN(atomicSub, old - v)
GS_CPU_OWN(atomicAnd, old & v)
GS_CPU_OWN(atomicOr, old | v)
GS_CPU_OWN(atomicXor, old ^ v)
GS_CPU_OWN(atomicExch, v)
GS_CPU_OWN(atomicMin, old < v ? old : v)
GS_CPU_OWN(atomicMax, old < v ? v : old)
#undef GS_CPU_OWN
template <class T, class U, class V>
static inline GS_CPU_LOOP T atomicCAS(T* place, U compare, V with) {
    return update(place, [=](T old) -> T { return old == (T)compare ? (T)with : old; });
}
}  // namespace gs_cpu_own

#endif
