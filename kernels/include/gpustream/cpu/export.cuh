// The module table: included after a kernel's source, followed by one GS_CPU_MODULE(…).
#ifndef GPUSTREAM_CPU_EXPORT_CUH
#define GPUSTREAM_CPU_EXPORT_CUH

template <class F, F* Kernel>
struct gs_cpu_entry_of;

template <class... P, void (*Kernel)(P...)>
struct gs_cpu_entry_of<void(P...), Kernel> {
    static constexpr size_t count = sizeof...(P);

    struct table {
        gs_cpu_param at[count ? count : 1];
        uint32_t bytes;
    };
    // Each parameter at its natural alignment, as CUDA and HIP lay them out.
    static constexpr table lay_out() {
        table t{};
        const size_t sizes[] = {sizeof(P)..., 1}, aligns[] = {alignof(P)..., 1};
        size_t end = 0;
        for (size_t i = 0; i < count; ++i) {
            const size_t offset = (end + aligns[i] - 1) / aligns[i] * aligns[i];
            t.at[i].offset = (uint32_t)offset;
            t.at[i].size = (uint32_t)sizes[i];
            end = offset + sizes[i];
        }
        t.bytes = (uint32_t)end;
        return t;
    }
    static constexpr table params = lay_out();
    static_assert(params.bytes <= GS_CPU_PARAMS_MAX, "a kernel's parameters have at most 4096 bytes");
    static_assert((std::is_trivially_copyable<P>::value && ... && true),
                  "a kernel's parameters must be trivially copyable");

    // The threads of one block, one after another. `Fast` starts at the first and tells the compiler that a thread's
    // number in its row fits 31 bits; only then does it see that neighbours touch neighbouring addresses, and
    // vectorise.
    template <bool Fast>
    static inline __attribute__((always_inline)) void threads(gs_cpu_context* context, uint32_t first_thread,
                                                              P... args) {
        const uint32_t bx = context->block.x, by = context->block.y, bz = context->block.z;
        gs_cpu_moved = false;
        blockDim.x = bx, blockDim.y = by, blockDim.z = bz;
        if (Fast && blockIdx.x * blockDim.x > GS_CPU_NARROW_MAX) __builtin_unreachable();
        if (Fast && bx > 1024) __builtin_unreachable();
        // Where the general loop calls it, the index is in memory for a fault to be traced to its thread.
        void (*out_of_line)(P...) = Kernel;
        if constexpr (!Fast) __asm__("" : "+r"(out_of_line));
        uint32_t tx = Fast ? 0 : first_thread, ty = 0, tz = 0;
        if (tx >= bx) ty = tx / bx % by, tz = tx / bx / by, tx %= bx;
        for (uint32_t k = tz; k < bz; ++k) {
            for (uint32_t j = ty; j < by; ++j) {
                threadIdx.y = j, threadIdx.z = k;
                for (uint32_t i = tx; i < bx; ++i) {
                    threadIdx.x = i;
                    if constexpr (Fast) Kernel(args...);
                    else out_of_line(args...);
                    if (gs_cpu_moved) return;
                }
                if (!Fast) tx = 0;
            }
            if (!Fast) ty = 0;
        }
    }

    // A function for one block: in a loop over blocks the hints would be hoisted away from where they are needed.
    template <size_t... I>
    static __attribute__((noinline, flatten)) void fast(gs_cpu_context* context, std::index_sequence<I...>) {
        threads<true>(context, 0, *reinterpret_cast<const P*>(context->params + params.at[I].offset)...);
    }
    // Calls the kernel instead of containing it, so that each is compiled into loops once.
    template <size_t... I>
    static __attribute__((noinline)) void general(gs_cpu_context* context, uint32_t first_thread,
                                                  std::index_sequence<I...>) {
        threads<false>(context, first_thread, *reinterpret_cast<const P*>(context->params + params.at[I].offset)...);
    }

    static void run(gs_cpu_context* context, uint64_t first, uint64_t end, uint32_t first_thread) {
        if (first_thread) {
            // The rest of the block that this OS thread is in: all but the thread's index is set.
            general(context, first_thread, std::index_sequence_for<P...>());
            return;
        }
        const uint32_t gx = context->grid.x, gy = context->grid.y;
        gs_cpu_current = context;
        warpSize = (int)context->warp_size;
        gridDim.x = gx, gridDim.y = gy, gridDim.z = context->grid.z;
        uint32_t x = (uint32_t)(first % gx), y = (uint32_t)(first / gx % gy), z = (uint32_t)(first / gx / gy);
        for (uint64_t block = first; block < end; ++block) {
            blockIdx.x = x, blockIdx.y = y, blockIdx.z = z;
            context->current_block = block;
            if (context->wide) {
                general(context, 0, std::index_sequence_for<P...>());
            } else {
                fast(context, std::index_sequence_for<P...>());
            }
            if (gs_cpu_moved) return;
            if (++x == gx) {
                x = 0;
                if (++y == gy) {
                    y = 0;
                    ++z;
                }
            }
        }
    }
};

// A kernel that is declared noexcept has the same entry.
template <class... P, void (*Kernel)(P...) noexcept>
struct gs_cpu_entry_of<void(P...) noexcept, Kernel> : gs_cpu_entry_of<void(P...), Kernel> {};

static unsigned char* gs_cpu_anchor_address() { return &gs_cpu_anchor; }

// Defines the array that `extern __shared__ T name[]` declares, once per name and file. All of them start at the
// same address, as on a GPU. The assembler does it because C++ cannot define one array under several types.
// 4096 bytes on either side are nobody's: the backend's checked mode finds writes there.
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

// One entry of GS_CPU_MODULE, without a comma after it. The second form states the kernel's __launch_bounds__.
#define GS_CPU_KERNEL(name) GS_CPU_KERNEL_BOUNDS(name, 0)
#define GS_CPU_KERNEL_BOUNDS(name, threads)                                                                   \
    {#name, &gs_cpu_entry_of<decltype(name), &name>::run, gs_cpu_entry_of<decltype(name), &name>::params.at,  \
     (uint32_t)gs_cpu_entry_of<decltype(name), &name>::count,                                                 \
     gs_cpu_entry_of<decltype(name), &name>::params.bytes, threads, 0},

// The list ends in an entry without a name, so that a file without kernels is a module too.
#define GS_CPU_MODULE(...)                                                                                    \
    static const gs_cpu_kernel gs_cpu_kernels[] = {__VA_ARGS__{nullptr, nullptr, nullptr, 0, 0, 0, 0}};       \
    extern "C" __attribute__((visibility("default"), used)) const gs_cpu_module GS_CPU_MODULE_SYMBOL = {      \
        GS_CPU_ABI, (uint32_t)(sizeof(gs_cpu_kernels) / sizeof(gs_cpu_kernels[0]) - 1), gs_cpu_kernels,       \
        &gs_cpu_anchor_address};

#endif
