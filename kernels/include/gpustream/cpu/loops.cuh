// Runs kernels whose threads meet, as loops over a block's threads between two meetings.
//
// gpustream-build writes such a kernel's second form with the names in this header. If a thread's variable lives
// longer than one loop, it is an array with one value per thread, and a shuffle reads another thread's value there.
#ifndef GPUSTREAM_CPU_LOOPS_CUH
#define GPUSTREAM_CPU_LOOPS_CUH

// If a grid has at most this many blocks in each direction, it can run as loops, on warps with this many lanes. Then
// the compiler can see that a thread's index grows by one from thread to thread.
#define GS_CPU_LOOPS_GRID_MAX (1u << 20)
#define GS_CPU_LOOPS_WARP 32
#define GS_CPU_LOOPS_WARP_BITS 5

// We fetch at most this many bytes of a row ahead.
#define GS_CPU_LOOPS_AHEAD 4096

#define GS_CPU_LOOP __attribute__((always_inline))

// Marks a form with a shuffle that reads what the shuffle before it stored. Each of its vectors lies across two that
// were just stored, and the longer they are, the longer a processor waits for them. Clang makes no longer ones by
// itself.
#if defined(__x86_64__) && !defined(__clang__)
#define GS_CPU_CHAINED __attribute__((target("prefer-vector-width=256")))
#else
#define GS_CPU_CHAINED
#endif

// The types that a template's parameter stands for if a function takes `T`, or `const T*`.
template <class Value> using gs_cpu_value_type = std::decay_t<Value>;
template <class Value>
using gs_cpu_element_type = std::remove_cv_t<std::remove_pointer_t<std::decay_t<Value>>>;

// How a loop goes over threads.
enum gs_cpu_how : unsigned {
    gs_cpu_sets_index = 1,  // it sets `threadIdx` itself, which functions outside of the kernel read
    gs_cpu_by_warp = 2,     // warp by warp, because it asks for the warp or the lane
    gs_cpu_any_order = 4,   // each thread may touch memory in any order, which GCC infers from `ivdep`
    gs_cpu_large = 8        // the compiler should see its body only a few times
};

// Whether we know that a comparison holds for all threads in a row. Unknown if a loop does not ask.
static constexpr std::false_type gs_within{};

#define GS_CPU_AT_MOST(value, bound) \
    if ((value) > (bound)) __builtin_unreachable()

// Begins such a form. It makes the block's indices constants that hide the thread-local variables, because the compiler
// needs a call for their addresses and would read them again after each store.
#define GS_CPU_LOOPS_BEGIN                                                                    \
    const uint3 blockIdx = gs_threads.index, gridDim = gs_threads.grid;                       \
    const uint3 blockDim = {gs_threads.x, gs_threads.y, gs_threads.z};                        \
    GS_CPU_AT_MOST(blockIdx.x, GS_CPU_LOOPS_GRID_MAX);                                        \
    GS_CPU_AT_MOST(blockIdx.y, GS_CPU_LOOPS_GRID_MAX);                                        \
    GS_CPU_AT_MOST(blockDim.x, 1024u);                                                        \
    GS_CPU_AT_MOST(blockDim.y, 1024u);                                                        \
    (void)blockIdx, (void)blockDim, (void)gridDim

// One value for each thread in a block, aligned like the processor's cache. A shuffle may look at a warp before the first
// thread and after the last, and ignores what it finds there.
template <class T, bool = std::is_trivially_copyable<T>::value>
struct alignas(64) gs_cpu_values {
    T before[64];
    T at[1024];
    T after[64];
};

// The same without first values, because the type may have none.
template <class T>
struct alignas(64) gs_cpu_values<T, true> {
    union { T before[64]; };
    union { T at[1024]; };
    union { T after[64]; };
    gs_cpu_values() {}
};

// The same for a variable that a loop changes and also reads from other threads. These must read the values from before
// the loop, so there are two arrays, and after the loop they change places.
template <class T>
struct gs_cpu_twofold {
    gs_cpu_values<T> places[2];
    T *at = places[0].at, *next = places[1].at;
    gs_cpu_twofold() = default;
    gs_cpu_twofold(const gs_cpu_twofold&) = delete;
};

// The threads in a block that run: all of them, or those that have not returned and take the same way as the block.
struct gs_cpu_threads {
    static constexpr uint32_t warp = GS_CPU_LOOPS_WARP;
    uint32_t x, y, z;  // the block's extents
    uint32_t count;    // the block's threads
    uint32_t end;      // behind the last warp of which a thread runs
    bool all;          // all threads run, and rows consist of halves of warps
    uint32_t warps = 0;  // those that run, if rows consist of whole warps, of which each runs or does not; or else 0
    // If not all run: whether each thread does, with zeros after the block, and which lanes in each warp do.
    uint8_t runs[1024 + 2 * warp];
    uint32_t lanes[32];

    gs_cpu_threads(uint32_t x, uint32_t y, uint32_t z)
        : x(x), y(y), z(z), count(x * y * z), end(count), all(x % (warp / 2) == 0 && count % warp == 0) {}
    void fill(uint8_t value) {
        std::memset(runs, value, count);
        std::memset(runs + count, 0, 2 * warp);
    }
    // Counts the lanes that run after `runs` has changed.
    void settle() {
        end = 0, warps = 0;
        bool whole = x % warp == 0;
        for (uint32_t first = 0, number = 0; first < count; first += warp, ++number) {
            uint64_t eight[warp / 8];
            std::memcpy(eight, runs + first, warp);
            uint64_t sums = 0;  // of every eighth lane
            for (const uint64_t ones : eight) sums += ones;
            const uint32_t sum = (uint32_t)(sums * 0x0101010101010101u >> 56);
            lanes[number] = sum;
            if (sum != 0) end = first + warp;
            warps |= sum / warp << number;
            whole &= sum % warp == 0;
        }
        if (!whole) warps = 0;
        all = false;
    }
    bool any() const { return end != 0; }
    // Ends a loop that changed such a variable. With `Keeps`, a thread that did not run keeps its value.
    template <bool Keeps, class T>
    GS_CPU_LOOP void renew(gs_cpu_twofold<T>& values) const {
        if (Keeps) keep(values);
        T* const old = values.at;
        values.at = values.next, values.next = old;
    }
    template <class T>
    void keep(gs_cpu_twofold<T>& values) const {
        for (uint32_t first = 0; first < count && !all; first += warp) {
            if (lanes[first / warp] == 0) {
                std::memcpy(values.next + first, values.at + first, warp * sizeof(T));
            } else if (lanes[first / warp] != warp) {
                for (uint32_t thread = first; thread < first + warp; ++thread) {
                    if (!runs[thread]) values.next[thread] = values.at[thread];
                }
            }
        }
    }
    // Returns the warps that run, if rows consist of whole warps that each run or do not. Otherwise returns
    // 0.
    uint32_t whole_warps() const {
        if (!all) return warps;
        return x % warp == 0 && count != 0 ? ~0u >> (32 - count / warp) : 0;
    }
    // Whether a thread's whole warp runs.
    bool whole_warp(size_t thread) const { return all || lanes[thread / warp] == warp; }
};

// A block's threads at its beginning, and which block it is.
struct gs_cpu_block : gs_cpu_threads {
    uint3 index, grid;

    gs_cpu_block(const gs_cpu_context* context, uint3 index)
        : gs_cpu_threads(context->block.x, context->block.y, context->block.z),
          index(index),
          grid{context->grid.x, context->grid.y, context->grid.z} {
        if (!all) {
            fill(1);
            settle();
        }
    }
};

// Threads whose whole warps run. They have their own type, so that a loop over them has one form.
struct gs_cpu_warps {
    gs_cpu_threads& threads;

    GS_CPU_LOOP operator const gs_cpu_threads&() const { return threads; }
    GS_CPU_LOOP uint32_t whole_warps() const { return threads.warps; }
    template <bool Keeps, class T>
    GS_CPU_LOOP void renew(gs_cpu_twofold<T>& values) const { threads.renew<Keeps>(values); }
};

// A thread's place in its row. The warp is the same for all threads that the compiler takes at once.
struct gs_cpu_in_row {
    int x;            // threadIdx.x, in a type whose sums do not wrap around
    int warp_x;       // x / warpSize
    uint32_t lane_x;  // x % warpSize
};

// One of two values, without a branch, because GCC could move a branch to a point that lets it foresee the outcome for
// half of a loop.
template <class T>
static inline GS_CPU_LOOP T gs_cpu_either(bool first, T a, T b) {
    if constexpr (std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8)) {
        typename std::conditional<sizeof(T) == 4, uint32_t, uint64_t>::type mask = 0, x, y;
        std::memcpy(&x, &a, sizeof x), std::memcpy(&y, &b, sizeof y);
        mask -= first;
        x = (x & mask) | (y & ~mask);
        std::memcpy(&a, &x, sizeof x);
        return a;
    } else {
        return first ? a : b;
    }
}

// The lanes among which a shuffle with this width moves values.
static inline GS_CPU_LOOP uint32_t gs_cpu_segment(int width) {
    return width > 0 && width < GS_CPU_LOOPS_WARP ? (uint32_t)width : GS_CPU_LOOPS_WARP;
}

// One thread, in a loop over a block's threads.
template <bool WholeWarp>
struct gs_cpu_turn : gs_cpu_in_row {
    const gs_cpu_threads& threads;
    size_t thread;   // number in the block
    uint32_t lane;   // and in the warp
    uint3 index;     // its threadIdx

    GS_CPU_LOOP gs_cpu_turn(gs_cpu_in_row place, const gs_cpu_threads& threads, size_t thread, uint32_t lane,
                            uint3 index)
        : gs_cpu_in_row(place), threads(threads), thread(thread), lane(lane), index(index) {}

    bool takes_part(size_t other) const { return WholeWarp || threads.runs[other] != 0; }
    // The results of shuffles. As in warp.cuh, you get the thread's own value if the source takes no part. We load
    // both values whatever the outcome, at addresses that grow by one from thread to thread, because then the compiler
    // can vectorise the loop.
    template <class Values>
    GS_CPU_LOOP auto up(const Values& values, unsigned delta, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width), at = lane & (segment - 1);
        const uint32_t step = delta < segment ? delta : 0;
        const auto far = (values.at - step)[thread], own = values.at[thread];
        return gs_cpu_either(at >= step && (WholeWarp || threads.runs[at >= step ? thread - step : thread]), far, own);
    }
    template <class Values>
    GS_CPU_LOOP auto down(const Values& values, unsigned delta, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width), at = lane & (segment - 1);
        const uint32_t step = delta < segment ? delta : 0;
        const auto far = (values.at + step)[thread], own = values.at[thread];
        return gs_cpu_either(at + step < segment && (WholeWarp || threads.runs[thread + step]), far, own);
    }
    template <class Values>
    GS_CPU_LOOP auto other(const Values& values, int lane_mask, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width), at = lane;
        const uint32_t mask = (uint32_t)lane_mask;
        const auto own = values.at[thread];
        if (mask < threads.warp && (mask & (mask - 1)) == 0 && segment == threads.warp) {
            const auto below = (values.at - mask)[thread], above = (values.at + mask)[thread];
            const bool is_above = (at & mask) != 0;
            const auto there = gs_cpu_either(is_above, below, above);
            return WholeWarp || threads.runs[thread ^ mask] ? there : own;
        }
        const uint32_t from = at ^ mask;
        if (from >= (at & ~(segment - 1)) + segment) return own;
        const size_t source = thread - at + from;
        return takes_part(source) ? values.at[source] : own;
    }
    template <class Values>
    GS_CPU_LOOP auto from(const Values& values, int of, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width);
        const size_t source = (thread & ~(size_t)(segment - 1)) + ((uint32_t)of & (segment - 1));
        return takes_part(source) ? values.at[source] : values.at[thread];
    }
};

// One bit for each lane, in memory, because older processors cannot shift each number in a vector by its own count.
struct gs_cpu_bit_of {
    uint32_t at[GS_CPU_LOOPS_WARP];
    constexpr gs_cpu_bit_of() : at() {
        for (uint32_t lane = 0; lane < GS_CPU_LOOPS_WARP; ++lane) at[lane] = uint32_t(1) << lane;
    }
    constexpr uint32_t operator[](size_t lane) const { return at[lane]; }
};
alignas(64) static constexpr gs_cpu_bit_of gs_cpu_lane_bit;

// A zero that the compiler does not know. If it knew the first value, GCC would move half of the first turn out of a
// loop.
struct gs_cpu_start {
    int zero = 0;
    GS_CPU_LOOP gs_cpu_start() { __asm__("" : "+r"(zero)); }
};

// How far a number is below a bound that we found it to be below; 0 if the numbers are not integers.
template <class Number, class Bound>
static inline GS_CPU_LOOP constexpr uint64_t gs_cpu_room(Number number, Bound bound) {
    if constexpr (std::is_integral<Number>::value && std::is_integral<Bound>::value) {
        typedef typename std::make_unsigned<decltype(number + bound)>::type wide;
        return (wide)((wide)bound - (wide)number);
    } else {
        return 0;
    }
}

// Whether this many numbers from `first` on are below a bound.
template <class Number, class Bound>
static inline GS_CPU_LOOP constexpr bool gs_cpu_fits(Number first, Bound bound, uint32_t count) {
    if constexpr (std::is_integral<Number>::value && std::is_integral<Bound>::value) {
        typedef decltype(first + bound) common;
        if constexpr (sizeof(common) < 8) {
            return (int64_t)(common)bound - (int64_t)(common)first >= (int64_t)count;
        } else {
            return first < bound && gs_cpu_room(first, bound) >= count;
        }
    } else {
        return false;
    }
}

// Neighbours in a row of the block. All of them run: `Length` threads, or whole warps if `Length` is
// GS_CPU_LOOPS_WARPS. If `Length` is 0, only some run, within at most one warp.
#define GS_CPU_LOOPS_WARPS 1
template <uint32_t Length>
struct gs_cpu_part {
    static constexpr bool whole = Length != 0;
    const gs_cpu_threads& threads;
    size_t first;  // number of the first of them in the block
    uint3 index;   // its threadIdx
    uint32_t length;
    gs_cpu_start start;

    // Runs the body for each thread. Between two meetings threads have no order, so the compiler can take several at
    // once, and with a constant number there is no rest.
    template <unsigned How, class Body>
    GS_CPU_LOOP void each(Body body) const {
        constexpr uint32_t warp = gs_cpu_threads::warp;
        const uint32_t y = index.y, z = index.z;
        const size_t before = first - index.x;
        // If a loop asks for lanes, it takes a whole warp at once.
        constexpr bool unrolled = Length == warp && (How & gs_cpu_by_warp) != 0 && (How & gs_cpu_any_order) != 0;
        int begin = (int)index.x, warp_x = begin / (int)warp;
        if constexpr (!unrolled) {
            __asm__("" : "+r"(begin));
            __asm__("" : "+r"(warp_x));
        }
        GS_CPU_AT_MOST((uint32_t)begin, 1023u);
        GS_CPU_AT_MOST((uint32_t)start.zero, warp - 1);
        GS_CPU_AT_MOST(length, Length == GS_CPU_LOOPS_WARPS ? 1024u : warp);
        const int end = begin + (Length == GS_CPU_LOOPS_WARPS ? (int)(length & ~(warp - 1))
                                 : whole                      ? (int)Length
                                                              : (int)length);
        const auto one = [&](int x, int at) GS_CPU_LOOP {
            const uint32_t number = (uint32_t)x;
            const size_t thread = before + number;
            if (How & gs_cpu_sets_index) ::threadIdx.x = number;
            if (whole || threads.runs[thread]) {
                const uint32_t lane_x = (Length == warp ? (uint32_t)at : number) % warp;
                const uint32_t lane = Length == warp ? lane_x : (uint32_t)thread % warp;
                const bool apart = whole && Length != GS_CPU_LOOPS_WARPS;
                const gs_cpu_in_row place = {x, apart ? warp_x : x / (int)warp, lane_x};
                body(gs_cpu_turn<whole>(place, threads, thread, lane, {number, y, z}));
            }
        };
        // `at` is the lane in a whole warp, so each warp in a row has the same vectors, and an unrolled loop has
        // constants.
        if constexpr (unrolled) {
#pragma GCC ivdep
            for (int at = 0; at < (int)warp; ++at) one(begin + at, at);
        } else if constexpr ((How & gs_cpu_any_order) != 0) {
#pragma GCC ivdep
#pragma GCC unroll 1
            for (int x = begin, at = start.zero; x < end; ++x, ++at) one(x, at);
        } else if constexpr ((How & gs_cpu_large) != 0) {
#pragma GCC unroll 1
            for (int x = begin, at = start.zero; x < end; ++x, ++at) one(x, at);
        } else {
            // One thread after the other, because atomics need that.
#pragma GCC unroll 4
            for (int x = begin, at = start.zero; x < end; ++x, ++at) one(x, at);
        }
    }
    // Runs the body for one thread in the row.
    template <unsigned How, class Body>
    GS_CPU_LOOP void one(uint32_t x, Body body) const {
        const size_t thread = first - index.x + x;
        const uint32_t lane = (uint32_t)thread % threads.warp;
        if (How & gs_cpu_sets_index) ::threadIdx.x = x;
        body(gs_cpu_turn<whole>({(int)x, (int)(x / threads.warp), x % threads.warp}, threads, thread, lane,
                                {x, index.y, index.z}));
    }
};

// A row of threads, at its first thread.
struct gs_cpu_row : gs_cpu_in_row {
    const gs_cpu_threads& threads;
    size_t first;
    uint3 index;
    uint32_t length;  // its threads
    bool all;         // `threads.all`
    gs_cpu_start start;

    GS_CPU_LOOP gs_cpu_row(const gs_cpu_threads& threads, size_t first, uint3 index, uint32_t length, bool all,
                           gs_cpu_start start)
        : gs_cpu_in_row{0, 0, 0}, threads(threads), first(first), index(index), length(length), all(all), start(start) {}

    // Runs the body for each part of the row that has running threads. A part is at most a warp.
    template <class Body>
    GS_CPU_LOOP void parts(Body body) const {
        constexpr uint32_t warp = GS_CPU_LOOPS_WARP, half = warp / 2;
        for (uint32_t begin = 0, count; begin < length && first + begin < threads.end; begin += count) {
            const size_t thread = first + begin;
            const uint3 index = {begin, this->index.y, this->index.z};
            if (length % warp == 0 && (all || threads.whole_warp(thread))) {
                count = warp;
                body(gs_cpu_part<warp>{threads, thread, index, warp, start});
            } else if (all) {
                count = half;
                body(gs_cpu_part<half>{threads, thread, index, half, start});
            } else {
                count = warp - (uint32_t)thread % warp;
                if (count > length - begin) count = length - begin;
                if (threads.lanes[thread / warp] != 0) body(gs_cpu_part<0>{threads, thread, index, count, start});
            }
        }
    }
    // Runs the body for each thread that runs.
    template <unsigned How, class Body>
    GS_CPU_LOOP void each(Body body) const {
        constexpr uint32_t warp = GS_CPU_LOOPS_WARP, half = warp / 2;
        // The compiler aligns the loop that we expect.
        if constexpr ((How & gs_cpu_large) != 0) {
            constexpr uint32_t warps = GS_CPU_LOOPS_WARPS;
            if (!all) {
                for (uint32_t begin = 0, count; begin < length && first + begin < threads.end; begin += count) {
                    const size_t thread = first + begin;
                    count = warp - (uint32_t)thread % warp;
                    if (count > length - begin) count = length - begin;
                    const uint3 index = {begin, this->index.y, this->index.z};
                    gs_cpu_part<0>{threads, thread, index, count, start}.template each<How>(body);
                }
            } else if (length % warp != 0) {
                for (uint32_t begin = 0; begin < length; begin += half) {
                    const uint3 index = {begin, this->index.y, this->index.z};
                    gs_cpu_part<half>{threads, first + begin, index, half, start}.template each<How>(body);
                }
            } else {
                gs_cpu_part<warps>{threads, first, index, length, start}.template each<How>(body);
            }
        } else if (__builtin_expect(!all, 0)) {
            parts([&](const auto part) GS_CPU_LOOP { part.template each<How>(body); });
        } else if (length % warp != 0) {
            for (uint32_t begin = 0; begin < length; begin += half) {
                const uint3 index = {begin, this->index.y, this->index.z};
                gs_cpu_part<half>{threads, first + begin, index, half, start}.template each<How>(body);
            }
        } else if ((How & gs_cpu_by_warp) || length == warp) {
            for (uint32_t begin = 0; begin < length; begin += warp) {
                const uint3 index = {begin, this->index.y, this->index.z};
                gs_cpu_part<warp>{threads, first + begin, index, warp, start}.template each<How>(body);
            }
        } else {
            gs_cpu_part<GS_CPU_LOOPS_WARPS>{threads, first, index, length, start}.template each<How>(body);
        }
    }
    // Whether the threads' numbers count up by one from `first`. If a 64-bit number has a 32-bit part, it can begin
    // again at zero, unless we know that it is `Wide`.
    template <bool Wide, class Number>
    GS_CPU_LOOP bool grows(Number first) const {
        if constexpr (!std::is_integral<Number>::value) {
            return false;
        } else if constexpr (sizeof(Number) > 4) {
            return Wide;
        } else {
            return std::is_signed<Number>::value || first < (Number)0x7fff0000;
        }
    }
    // Whether such numbers are all below a bound.
    template <bool Wide, class Number, class Bound>
    GS_CPU_LOOP bool below(Number first, Bound bound) const {
        return grows<Wide>(first) && gs_cpu_fits(first, bound, length);
    }
    // Like `each`, but also tells the body whether something holds for all threads in the row.
    template <unsigned How, class Body>
    GS_CPU_LOOP void each_within(bool holds, Body body) const {
        if constexpr ((How & gs_cpu_large) != 0) {
            each<How>([&](const auto turn) GS_CPU_LOOP { body(turn, std::false_type()); });
        } else if (holds) {
            each<How>([&](const auto turn) GS_CPU_LOOP { body(turn, std::true_type()); });
        } else {
            each<How>([&](const auto turn) GS_CPU_LOOP { body(turn, std::false_type()); });
        }
    }
    // Tells the processor to fetch the elements after those that the row touches. The loop's next row or the next block
    // needs them, but the processor's own prefetch cannot reach from one short row to the next.
    template <class T>
    GS_CPU_LOOP void behind(const volatile T* pointer, uint64_t first) const {
        fetch((uintptr_t)pointer + (first + length) * sizeof(T), length * sizeof(T));
    }
    // Also has the processor fetch what the row's next turn reads, because its own prefetch ends with
    // a page.
    template <class Number, class Step, class Bound, class... T>
    GS_CPU_LOOP void ahead(Number first, Step step, Bound bound, const T*... pointers) const {
        const uint64_t by = (uint64_t)step;
        if (by <= length || gs_cpu_room(first, bound) <= by) return;
        (fetch((uintptr_t)pointers + ((uint64_t)first + by) * sizeof(T), length * sizeof(T)), ...);
    }
    static GS_CPU_LOOP void fetch(uintptr_t address, size_t bytes) {
        const size_t most = GS_CPU_LOOPS_AHEAD, count = bytes < most ? bytes : most;
        for (size_t at = 0; at < count; at += 64) __builtin_prefetch((const char*)(address + at));
        __builtin_prefetch((const char*)(address + count - 1));
    }
    // Whether any of its threads runs.
    GS_CPU_LOOP bool runs() const {
        return all || (first < threads.end && std::memchr(threads.runs + first, 1, length) != nullptr);
    }
    // The row's first threads, in whole warps if the row consists of them.
    GS_CPU_LOOP gs_cpu_row begin(uint32_t count) const {
        constexpr uint32_t warp = GS_CPU_LOOPS_WARP;
        const uint32_t end = (count + warp - 1) / warp * warp;
        return gs_cpu_row(threads, first, index, length % warp == 0 && end < length ? end : length, all, start);
    }
    // Runs the body for one thread, if it runs.
    template <unsigned How, class Body>
    GS_CPU_LOOP void one(uint32_t x, Body body) const {
        if (!all && !threads.runs[first + x]) return;
        gs_cpu_part<0>{threads, first, index, length, start}.template one<How>(x, body);
    }
};
template <unsigned How = 0, class Body>
static inline GS_CPU_LOOP void gs_cpu_each_row(const gs_cpu_threads& threads, Body body) {
    const uint32_t x = threads.x, y = threads.y, z = threads.z;
    const bool all = threads.all;
    const gs_cpu_start start;
    const uint32_t rows = y * z;
    size_t first = 0;
    for (uint32_t row = 0, j = 0, k = 0; row < rows; ++row, first += x) {
        GS_CPU_AT_MOST(j, 1023u);
        GS_CPU_AT_MOST(k, 1023u);
        if (How & gs_cpu_sets_index) ::threadIdx.y = j, ::threadIdx.z = k;
        body(gs_cpu_row(threads, first, {0, j, k}, x, all, start));
        if (++j == y) j = 0, ++k;
    }
}
template <unsigned How = 0, class Body>
static inline GS_CPU_LOOP void gs_cpu_each(const gs_cpu_threads& threads, Body body) {
    gs_cpu_each_row<How>(threads,
                               [&](const gs_cpu_row row) GS_CPU_LOOP { row.each<How>(body); });
}
// Runs the body for the warps with these bits, each with its first thread's number and `threadIdx`.
template <class Body>
static inline GS_CPU_LOOP void gs_cpu_each_warp(const gs_cpu_threads& threads, uint32_t warps, Body body) {
    for (; warps != 0; warps &= warps - 1) {
        const uint32_t first = (uint32_t)__builtin_ctz(warps) * GS_CPU_LOOPS_WARP;
        uint3 index = {first, 0, 0};
        if (first >= threads.x) {
            const uint32_t row = first / threads.x;
            index = {first % threads.x, row % threads.y, row / threads.y};
        }
        body(first, index);
    }
}
template <unsigned How = 0, class Body>
static inline GS_CPU_LOOP void gs_cpu_each(const gs_cpu_warps& whole, Body body) {
    constexpr uint32_t warp = GS_CPU_LOOPS_WARP;
    const gs_cpu_threads& threads = whole.threads;
    const gs_cpu_start start;
    gs_cpu_each_warp(threads, threads.warps, [&](size_t first, uint3 index) GS_CPU_LOOP {
        if (How & gs_cpu_sets_index) ::threadIdx.y = index.y, ::threadIdx.z = index.z;
        gs_cpu_part<warp>{threads, first, index, warp, start}.template each<How>(body);
    });
}
// Runs the body for the few threads that fulfil a condition.
template <unsigned How = 0, class Condition, class Body>
static inline GS_CPU_LOOP void gs_cpu_each_of_few(const gs_cpu_threads& threads, Condition condition, Body body) {
    gs_cpu_each_row<How>(threads, [&](const gs_cpu_row row) GS_CPU_LOOP {
        row.parts([&](const auto part) GS_CPU_LOOP {
            uint32_t found = 0;
            part.template each<How>([&](const auto turn) GS_CPU_LOOP {
                found |= condition(turn) ? gs_cpu_lane_bit[turn.thread - part.first] : 0;
            });
            for (; found != 0; found &= found - 1) {
                part.template one<How>(part.index.x + (uint32_t)__builtin_ctz(found), body);
            }
        });
    });
}
// How far one number is ahead of another, modulo 2^32. If they are not integers, there is no
// distance.
template <class Left, class Right>
static inline GS_CPU_LOOP constexpr auto gs_cpu_distance(Left from, Right to) {
    if constexpr (std::is_integral<Left>::value && std::is_integral<Right>::value) {
        return (uint32_t)to - (uint32_t)from;
    } else {
        return nullptr;
    }
}
// In each row, runs the body only for the threads that can fulfil its condition: the one at `distance` from the first, and
// if `every` is not 0, each one that is a multiple of `every` threads away from it. The body still asks for the condition.
template <unsigned How = 0, class Distance, class Body>
static inline GS_CPU_LOOP void gs_cpu_each_at(const gs_cpu_threads& threads, uint32_t every, Distance distance,
                                              Body body) {
    gs_cpu_each_row<How>(threads, [&](const gs_cpu_row row) GS_CPU_LOOP {
        const auto at = distance(row);
        if constexpr (std::is_same<decltype(at), const std::nullptr_t>::value) {
            row.each<How>(body);
        } else if (every == 0) {
            if (at < threads.x) row.one<How>(at, body);
        } else if ((every & (every - 1)) != 0) {
            // If 32 bits wrap around, such an index does not go on.
            row.each<How>(body);
        } else {
            for (uint32_t x = at & (every - 1); x < threads.x; x += every) row.one<How>(x, body);
        }
    });
}
// How many numbers from zero on are below a bound, at most a block's threads. `Index` is the type of the numbers.
template <class Index, class Bound>
static inline GS_CPU_LOOP constexpr uint32_t gs_cpu_count_below(Index, Bound bound) {
    if constexpr (std::is_integral<Bound>::value) {
        const decltype(Index() + Bound()) end = bound;
        return end < 1 ? 0 : end < 1024 ? (uint32_t)end : 1024;
    } else {
        return 1024;
    }
}
// In each row, runs the body only for the first threads, which can fulfil its condition. The body still asks for the
// condition.
template <unsigned How = 0, class Count, class Body>
static inline GS_CPU_LOOP void gs_cpu_each_below(const gs_cpu_threads& threads, Count count, Body body) {
    gs_cpu_each_row<How>(threads, [&](const gs_cpu_row row) GS_CPU_LOOP {
        row.begin(count(row)).template each<How>(body);
    });
}

// Stores what the body returns for each thread.
template <unsigned How = 0, class Body,
          class T = typename std::decay<decltype(std::declval<Body>()(
              std::declval<const gs_cpu_turn<true>&>()))>::type>
static inline GS_CPU_LOOP gs_cpu_values<T> gs_cpu_gather(const gs_cpu_threads& threads, Body body) {
    gs_cpu_values<T> values;
    gs_cpu_each<How>(threads, [&](const auto turn) GS_CPU_LOOP { values.at[turn.thread] = body(turn); });
    return values;
}

// The outcome of a vote: for each warp, the lanes that run, and those whose predicate holds.
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
template <unsigned How = 0, class Body>
static inline GS_CPU_LOOP gs_cpu_votes gs_cpu_vote(const gs_cpu_threads& threads, Body body) {
    gs_cpu_values<uint8_t> holds;
    gs_cpu_each<How>(
        threads, [&](const auto turn) GS_CPU_LOOP { holds.at[turn.thread] = body(turn) != 0; });
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
template <unsigned How = 0, class Body>
static inline GS_CPU_LOOP gs_cpu_threads gs_cpu_branch(const gs_cpu_threads& threads, Body body) {
    gs_cpu_threads side(threads.x, threads.y, threads.z);
    if (threads.all) {
        std::memset(side.runs + side.count, 0, 2 * threads.warp);
    } else {
        side.fill(0);
    }
    gs_cpu_each<How>(
        threads, [&](const auto turn) GS_CPU_LOOP { side.runs[turn.thread] = body(turn) ? 1 : 0; });
    side.settle();
    return side;
}

// Runs the body for one side of a branch, unless no thread takes it.
template <class Body>
static inline GS_CPU_LOOP void gs_cpu_enter(gs_cpu_threads& side, Body body) {
    if (side.warps != 0) {
        const gs_cpu_warps warps{side};
        body(warps);
    } else if (side.any()) {
        body(side);
    }
}

// Removes the threads that return. Returns true if any are left.
template <unsigned How = 0, class Body>
static inline GS_CPU_LOOP bool gs_cpu_each_but(gs_cpu_threads& threads, Body body) {
    gs_cpu_values<uint8_t> returns;
    std::memset(returns.at, 1, threads.count);
    gs_cpu_each<How>(threads, [&](const auto turn) GS_CPU_LOOP { body(turn, returns.at[turn.thread]); });
    // A thread that returned earlier counts here too.
    uint32_t gone = 0;
    for (uint32_t thread = 0; thread < threads.count; ++thread) gone += returns.at[thread];
    if (gone == 0) return true;
    if (gone == threads.count) return false;
    if (threads.all) threads.fill(1);
    for (uint32_t thread = 0; thread < threads.count; ++thread) threads.runs[thread] &= (uint8_t)!returns.at[thread];
    threads.settle();
    return true;
}

// Returns an address that the compiler keeps, so that it does not compute it again.
template <class T>
static inline GS_CPU_LOOP T* gs_cpu_address(T* address) {
    __asm__("" : "+r"(address));
    return address;
}

// Sums in an index. A signed sum must not overflow, but in a branch GCC forgets that, and then it cannot tell that
// neighbours touch neighbouring memory.
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

// Atomics on a block's shared memory. Only one OS thread uses it. The empty statement keeps the compiler from taking
// several threads at once, because they can hit the same place.
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
