// The module table. The build includes it after a kernel's source, and then writes one
// GS_CPU_MODULE(…).
#ifndef GPUSTREAM_CPU_EXPORT_CUH
#define GPUSTREAM_CPU_EXPORT_CUH

#include "lanes.cuh"
#include "loops.cuh"

// The last type that is an integer with 32 or 64 bits. That is mostly the type for a kernel's length.
template <class Found, class... T>
struct gs_cpu_index_of {
    typedef Found type;
};
template <class Found, class T, class... Rest>
struct gs_cpu_index_of<Found, T, Rest...> {
    static constexpr bool counts = std::is_integral<T>::value && sizeof(T) >= 4;
    typedef T here;
    typedef typename gs_cpu_index_of<typename std::conditional<counts, here, Found>::type, Rest...>::type type;
};

// What a launch passes for a parameter. For a reference that is an address.
template <class P>
struct gs_cpu_passed {
    typedef P type;
};
template <class P>
struct gs_cpu_passed<P&> {
    typedef P* type;
};

// Returns a parameter. If a copy constructor takes what is not const, it gets bytes of its own.
template <class P>
static inline __attribute__((always_inline)) P gs_cpu_argument(const unsigned char* bytes) {
    if constexpr (std::is_reference<P>::value) {
        return **reinterpret_cast<typename gs_cpu_passed<P>::type const*>(bytes);
    } else if constexpr (std::is_constructible<P, const P&>::value) {
        return *reinterpret_cast<const P*>(bytes);
    } else {
        alignas(P) unsigned char own[sizeof(P)];
        std::memcpy(own, bytes, sizeof(P));
        return P(*reinterpret_cast<P*>(own));
    }
}

// A kernel's entry. If the kernel also has a form as loops between its meetings, this is that form's entry too.
template <class F, F Kernel, class L, L Loops>
struct gs_cpu_entry_of;

template <class... P, void (*Kernel)(P...), class L, L Loops>
struct gs_cpu_entry_of<void (*)(P...), Kernel, L, Loops> {
    static constexpr size_t count = sizeof...(P);

    struct table {
        gs_cpu_param at[count ? count : 1];
        uint32_t bytes, align;
    };
    // Puts each parameter at its natural alignment, as CUDA and HIP do.
    static constexpr table lay_out() {
        table t{};
        const size_t sizes[] = {sizeof(typename gs_cpu_passed<P>::type)..., 1};
        const size_t aligns[] = {alignof(typename gs_cpu_passed<P>::type)..., 1};
        size_t end = 0, align = 1;
        for (size_t i = 0; i < count; ++i) {
            const size_t offset = (end + aligns[i] - 1) / aligns[i] * aligns[i];
            if (aligns[i] > align) align = aligns[i];
            t.at[i].offset = (uint32_t)offset;
            t.at[i].size = (uint32_t)sizes[i];
            end = offset + sizes[i];
        }
        t.bytes = (uint32_t)end, t.align = (uint32_t)align;
        return t;
    }
    static constexpr table params = lay_out();
    static_assert(params.bytes <= GS_CPU_PARAMS_MAX, "a kernel's parameters have at most 32764 bytes");
    static_assert(params.align <= GS_CPU_PARAMS_ALIGN_MAX, "a kernel's parameters are aligned to at most 256 bytes");
    // Like a launch on a GPU, we pass bytes. Each thread then copies its parameters as C++ does.
    static_assert(((std::is_trivially_destructible<P>::value && std::is_constructible<P, P&>::value) && ... && true),
                  "a kernel's parameters must be copyable and have no destructor");

    // The type that the kernel probably compares its thread's number in. We guess it from its parameters.
    typedef typename gs_cpu_index_of<unsigned int, P...>::type index;
    // A 64-bit number can come from a 32-bit product, `blockIdx.x * blockDim.x`, or from a 64-bit one,
    // `(size_t)blockIdx.x * blockDim.x`. No loop suits both, and the wrong one can be ten times slower. So these
    // kernels get two loops, and we time the first blocks to find the faster one.
    static constexpr int forms = sizeof(index) == 8 ? 2 : 1;

    // Runs one row of threads, in a form that the compiler can optimise well. The loop counts the thread's number over
    // the whole grid, so the kernel's own `blockIdx.x * blockDim.x + threadIdx.x` folds to the loop's counter. Then the
    // compiler can split a guard `i < n` off the loop, and sees that neighbours touch neighbouring addresses. We
    // measured each line here.
    template <int Form>
    static inline __attribute__((always_inline)) void row(P... args) {
        const uint32_t bx = blockDim.x;
        // For signed 64-bit numbers, the compiler splits the guard off in only one form; in the other it becomes
        // a mask.
        constexpr bool masked = forms == 2 && Form == 0 && std::is_signed<index>::value;
        if constexpr (forms == 2 && Form == 0 && !masked) {
            const index first = (index)blockIdx.x * blockDim.x, last = first + bx;
            if (bx > 1024) __builtin_unreachable();
            for (index i = first; i < last; ++i) {
                const index thread = i - first;
                if (thread > (index)1023) __builtin_unreachable();
                threadIdx.x = (uint32_t)thread;
                Kernel(args...);
                if (gs_cpu_moved) return;
            }
        } else {
            typedef typename std::conditional<masked, uint32_t, index>::type number;
            const number first = (number)(blockIdx.x * blockDim.x);
            if ((uint32_t)first > GS_CPU_NARROW_MAX) __builtin_unreachable();
            if (first > (number)GS_CPU_NARROW_MAX) __builtin_unreachable();
            if (bx > 1024) __builtin_unreachable();
            const number last = first + (number)bx;
            for (number i = first; i < last; ++i) {
                threadIdx.x = (uint32_t)i - (uint32_t)first;
                Kernel(args...);
                if (gs_cpu_moved) return;
            }
        }
        // We never use the last index, but without this the loop would have to carry it.
        threadIdx.x = 0;
    }

    // Runs one block's threads from `first` on, in a grid of any size. We call the kernel rather than inline it, so
    // that the compiler makes each kernel into loops only once, and so that the index is in memory, because we trace a
    // fault to its thread by it. Returns true if a thread waited, like all functions below.
    static inline __attribute__((always_inline)) bool rest(gs_cpu_context* context, uint32_t first, P... args) {
        const uint32_t bx = context->block.x, by = context->block.y, bz = context->block.z;
        void (*kernel)(P...) = Kernel;
        __asm__("" : "+r"(kernel));
        gs_cpu_moved = false;
        uint32_t x = first, y = 0, z = 0;
        if (x >= bx) y = x / bx % by, z = x / bx / by, x %= bx;
        for (; z < bz; ++z, y = 0) {
            for (; y < by; ++y, x = 0) {
                for (; x < bx; ++x) {
                    threadIdx.x = x, threadIdx.y = y, threadIdx.z = z;
                    kernel(args...);
                    if (gs_cpu_moved) return true;
                }
            }
        }
        return false;
    }

    // We use a separate function for one row, because in a loop over rows the compiler would hoist the hints away from
    // the code that needs them. It writes all that a row needs, because each function that touches thread-local
    // variables asks the loader for their address.
    template <int Form, size_t... I>
    static __attribute__((noinline, flatten)) bool fast(gs_cpu_context* context, uint32_t y, uint32_t z,
                                                        std::index_sequence<I...>) {
        threadIdx.y = y, threadIdx.z = z;
        blockDim.x = context->block.x;
        gs_cpu_moved = false;
        row<Form>(gs_cpu_argument<P>(context->params + params.at[I].offset)...);
        return gs_cpu_moved;
    }
    // Runs all threads in one block.
    template <int Form>
    static bool whole_block(gs_cpu_context* context) {
        const uint32_t by = context->block.y, bz = context->block.z;
        for (uint32_t k = 0; k < bz; ++k) {
            for (uint32_t j = 0; j < by; ++j) {
                if (fast<Form>(context, j, k, std::index_sequence_for<P...>())) return true;
            }
        }
        return false;
    }
    // Runs all threads in one block, in the form that was faster so far. Workers can disagree for a moment; both
    // are right.
    static bool best_block(gs_cpu_context* context) {
        static uint32_t tried;
        static uint64_t fastest[2] = {~uint64_t(0), ~uint64_t(0)};
        uint32_t number = __atomic_load_n(&tried, __ATOMIC_RELAXED);
        int form;
        if (number >= 32) {
            form = __atomic_load_n(&fastest[1], __ATOMIC_RELAXED) < __atomic_load_n(&fastest[0], __ATOMIC_RELAXED);
        } else {
            form = (int)(number & 1);
        }
        const long long begun = number < 32 ? clock64() : 0;
        const bool moved = form == 0 ? whole_block<0>(context) : whole_block<1>(context);
        if (number >= 32 || moved) return moved;
        const uint64_t took = (uint64_t)(clock64() - begun);
        if (took < __atomic_load_n(&fastest[form], __ATOMIC_RELAXED)) {
            __atomic_store_n(&fastest[form], took, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&tried, number + 1, __ATOMIC_RELAXED);
        return false;
    }
    static bool runs_as_loops(const gs_cpu_context* context) {
#if defined(GS_CPU_CHECKED)
        return false;
#else
        const uint32_t most = GS_CPU_LOOPS_GRID_MAX;
        return !std::is_same<L, std::nullptr_t>::value && !context->wide && context->warp_size == GS_CPU_LOOPS_WARP &&
               context->grid.x <= most && context->grid.y <= most;
#endif
    }
    // Goes on to the next block. Returns true if that is before the end.
    static inline __attribute__((always_inline)) bool next_block(gs_cpu_context* context, uint64_t end, uint3* index) {
        if (++context->current_block >= end) return false;
        if (++index->x == context->grid.x) {
            index->x = 0;
            if (++index->y == context->grid.y) {
                index->y = 0;
                ++index->z;
            }
        }
        return true;
    }
    // Runs blocks as loops between the meetings of their threads.
    template <size_t... I>
    static void blocks_of_loops(gs_cpu_context* context, uint64_t end, std::index_sequence<I...>) {
        if constexpr (!std::is_same<L, std::nullptr_t>::value) {
            uint3* const index = gs_cpu_address(&::blockIdx);
            gs_cpu_looping = true;
            do {
                gs_cpu_block block(context, *index);
                Loops(block, gs_cpu_argument<P>(context->params + params.at[I].offset)...);
            } while (next_block(context, end, index));
            gs_cpu_looping = false;
        }
    }
    template <size_t... I>
    static __attribute__((noinline)) bool general(gs_cpu_context* context, uint32_t first_thread,
                                                  std::index_sequence<I...>) {
        return rest(context, first_thread, gs_cpu_argument<P>(context->params + params.at[I].offset)...);
    }
    // Runs all threads in one block.
    static bool block(gs_cpu_context* context) {
#if defined(GS_CPU_CHECKED)
        return general(context, 0, std::index_sequence_for<P...>());
#else
        if (context->wide) return general(context, 0, std::index_sequence_for<P...>());
        if constexpr (forms == 2) {
            return best_block(context);
        } else {
            return whole_block<0>(context);
        }
#endif
    }

    static void run(gs_cpu_context* context, uint64_t first, uint64_t end, uint32_t first_thread) {
        if (first_thread) {
            // Runs the rest of this OS thread's block. Everything is set except the thread's index.
            general(context, first_thread, std::index_sequence_for<P...>());
            return;
        }
        const uint32_t gx = context->grid.x, gy = context->grid.y;
        gs_cpu_current = context;
        gs_cpu_looping = false;
        warpSize = (int)context->warp_size;
        gridDim.x = gx, gridDim.y = gy, gridDim.z = context->grid.z;
        blockDim.x = context->block.x, blockDim.y = context->block.y, blockDim.z = context->block.z;
        blockIdx.x = (uint32_t)(first % gx), blockIdx.y = (uint32_t)(first / gx % gy);
        blockIdx.z = (uint32_t)(first / gx / gy);
        context->current_block = first;
        if (runs_as_loops(context)) {
            blocks_of_loops(context, end, std::index_sequence_for<P...>());
        } else {
            while (!block(context) && next_block(context, end, &blockIdx)) {
            }
        }
    }
};

// A kernel that is declared noexcept has the same entry.
template <class... P, void (*Kernel)(P...) noexcept, class L, L Loops>
struct gs_cpu_entry_of<void (*)(P...) noexcept, Kernel, L, Loops> : gs_cpu_entry_of<void (*)(P...), Kernel, L, Loops> {};

static unsigned char* gs_cpu_anchor_address() { return &gs_cpu_anchor; }

// Defines the array that `extern __shared__ T name[]` declares, once per name and file. All such arrays start at the
// same address, as on a GPU. We let the assembler define them, because C++ cannot define one array under several
// types. The 4096 bytes on either side are unused, so that checked mode can find writes there.
#define GS_CPU_TEXT_(x) #x
#define GS_CPU_TEXT(x) GS_CPU_TEXT_(x)
#define GS_CPU_DYNAMIC_SHARED(name)                                                                           \
    __asm__(".pushsection .tbss.gs_dynamic_shared,\"awT\",%nobits\n"                                          \
            ".ifndef gs_cpu_dynamic_shared\n"                                                                 \
            ".balign 256\n"                                                                                   \
            ".zero 4096\n"                                                                                    \
            ".type gs_cpu_dynamic_shared, %tls_object\n"                                                      \
            ".size gs_cpu_dynamic_shared, " GS_CPU_TEXT(GS_CPU_DYNAMIC_SHARED_MAX) "\n"                       \
            "gs_cpu_dynamic_shared:\n"                                                                        \
            ".zero " GS_CPU_TEXT(GS_CPU_DYNAMIC_SHARED_MAX) " + 4096\n"                                       \
            ".endif\n"                                                                                        \
            ".globl " #name "\n"                                                                              \
            ".hidden " #name "\n"                                                                             \
            ".type " #name ", %tls_object\n"                                                                  \
            ".set " #name ", gs_cpu_dynamic_shared\n"                                                         \
            ".popsection\n");

// One entry of GS_CPU_MODULE, without a comma after it: the kernel's name for programs; the bound in its
// __launch_bounds__, or 0; in parentheses the address of its form as loops, or nullptr; and its address.
#define GS_CPU_KERNEL_WITH(name, threads, loops, ...)                                                         \
    {name, &gs_cpu_entry_of<decltype(__VA_ARGS__), __VA_ARGS__, decltype(loops), loops>::run,                 \
     gs_cpu_entry_of<decltype(__VA_ARGS__), __VA_ARGS__, decltype(loops), loops>::params.at,                  \
     (uint32_t)gs_cpu_entry_of<decltype(__VA_ARGS__), __VA_ARGS__, decltype(loops), loops>::count,            \
     gs_cpu_entry_of<decltype(__VA_ARGS__), __VA_ARGS__, decltype(loops), loops>::params.bytes, threads,       \
     gs_cpu_entry_of<decltype(__VA_ARGS__), __VA_ARGS__, decltype(loops), loops>::params.align},

// The same for a kernel without such a form.
#define GS_CPU_KERNEL(name, threads, ...) GS_CPU_KERNEL_WITH(name, threads, nullptr, __VA_ARGS__)

// One entry of GS_CPU_GLOBALS, without a comma after it: the variable's name for programs, and the variable.
#define GS_CPU_GLOBAL(name, ...) {name, (void*)__builtin_addressof(__VA_ARGS__), sizeof(__VA_ARGS__)},

// Both lists end with an entry without a name. So a file without variables or kernels is a module too.
#define GS_CPU_GLOBALS(...) static const gs_cpu_global gs_cpu_globals[] = {__VA_ARGS__{nullptr, nullptr, 0}};

#define GS_CPU_MODULE(...)                                                                                    \
    static const gs_cpu_kernel gs_cpu_kernels[] = {__VA_ARGS__{nullptr, nullptr, nullptr, 0, 0, 0, 0}};       \
    extern "C" __attribute__((visibility("default"), used)) const gs_cpu_module GS_CPU_MODULE_SYMBOL = {      \
        GS_CPU_ABI,                                                                                           \
        (uint32_t)(sizeof(gs_cpu_kernels) / sizeof(gs_cpu_kernels[0]) - 1),                                   \
        gs_cpu_kernels,                                                                                       \
        gs_cpu_globals,                                                                                       \
        sizeof(gs_cpu_globals) / sizeof(gs_cpu_globals[0]) - 1,                                               \
        &gs_cpu_anchor_address};

#endif
