// threadIdx and its relatives, and a kernel's calls to the backend.
#ifndef GPUSTREAM_CPU_BUILTINS_CUH
#define GPUSTREAM_CPU_BUILTINS_CUH

// These are static and we never take their address. So the compiler can keep them in registers across the loop over
// a block's threads. Otherwise it could vectorise no kernel.
static thread_local uint3 threadIdx;
static thread_local uint3 blockIdx;
static thread_local uint3 blockDim;
static thread_local uint3 gridDim;
static thread_local int warpSize;

// The launch that this OS thread works on.
static thread_local gs_cpu_context* gs_cpu_current;
// Whether the running thread has waited, so its successors run on another fiber.
static thread_local bool gs_cpu_moved;
// Whether this OS thread runs a block as loops over its threads. Then no single thread can wait.
static thread_local bool gs_cpu_looping;
// The symbol table's offsets for shared arrays count from here.
static thread_local unsigned char gs_cpu_anchor;

// Returns the running thread's number in its block.
static inline __attribute__((always_inline)) uint32_t gs_cpu_thread() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// Ends the kernel with an error that names the thread.
__attribute__((noreturn)) static inline void gs_cpu_fail(const char* message, const char* file, uint32_t line) {
    gs_cpu_current->host->fail(gs_cpu_current, gs_cpu_thread(), message, file, line);
    __builtin_unreachable();
}

// Gives variables the names from your source: the build calls a kernel's second `i` gs_64_i.
static inline void gs_cpu_in_users_words(char* text) {
    static const char of_words[] = "_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char* to = text;
    while (*text != '\0') {
        const size_t word = strspn(text, of_words);
        const size_t digits = strncmp(text, "gs_", 3) == 0 ? strspn(text + 3, "0123456789") : 0;
        const size_t ours = digits > 0 && text[3 + digits] == '_' ? 3 + digits + 1 : 0;
        const size_t kept = word > 0 ? word - ours : 1;
        memmove(to, text + ours, kept);
        to += kept;
        text += ours + kept;
    }
    *to = '\0';
}

// `assert` calls __assert_fail. In a kernel, a failed assertion is a device error, and does not end the process. We only give
// the symbol this name, because the C libraries declare functions with different types: musl's line is an `int`.
extern "C" __attribute__((noreturn, visibility("hidden"), noinline)) void gs_cpu_assert_fail(
    const char* assertion, const char* file, unsigned int line, const char* function) noexcept __asm__("__assert_fail");
void gs_cpu_assert_fail(const char* assertion, const char* file, unsigned int line, const char* function) noexcept {
    (void)function;
    char message[256];
    snprintf(message, sizeof message, "assertion `%s` fails", assertion);
    gs_cpu_in_users_words(message);
    gs_cpu_fail(message, file, line);
}

// A thread calls this before it waits, if the build saw none of the calls that led here, because they go through a
// function object or a pointer.
static inline __attribute__((always_inline)) void gs_cpu_waits(const char* file, uint32_t line) {
    if (gs_cpu_looping) {
        gs_cpu_fail("waits in a function whose name the build could not see in the kernel: call it by its name", file, line);
    }
}

#if defined(GS_CPU_CHECKED)
// If an index is outside an array with a known size, -fsanitize=bounds calls this. In checked mode it is an error;
// otherwise we ignore it, as a GPU does.
struct gs_cpu_bounds_type {
    uint16_t kind, info;
    char name[1];
};
struct gs_cpu_bounds {
    const char* file;
    uint32_t line, column;
    const gs_cpu_bounds_type* array;
    const gs_cpu_bounds_type* index;
};
extern "C" __attribute__((visibility("hidden"), noinline, cold, used)) void __ubsan_handle_out_of_bounds(
    gs_cpu_bounds* site, uintptr_t index) {
    if (!gs_cpu_current->check) return;
    char message[160];
    snprintf(message, sizeof message, "index %lld is outside an array of type %s", (long long)index,
             site->array->name);
    gs_cpu_fail(message, site->file, site->line);
}
#endif

__attribute__((noreturn)) static inline void __trap(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    gs_cpu_fail("calls __trap()", file, line);
}

static inline long long clock64() {
#if defined(__x86_64__)
    return (long long)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (long long)ticks;
#else
#error "gpustream kernels on the CPU need x86-64 or aarch64"
#endif
}
static inline long long wall_clock64() { return clock64(); }

static inline void __nanosleep(unsigned int ns) {
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, nullptr);
}

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
static inline __attribute__((always_inline)) T __ldg(const T* address) { return *address; }
template <class T>
static inline __attribute__((always_inline)) T __ldcg(const T* address) { return *address; }
template <class T>
static inline __attribute__((always_inline)) T __ldcs(const T* address) { return *address; }
template <class T>
static inline __attribute__((always_inline)) void __stcg(T* address, T value) { *address = value; }
template <class T>
static inline __attribute__((always_inline)) void __stcs(T* address, T value) { *address = value; }
#define GS_CPU_LOAD(name)                                                                                   \
    template <class T>                                                                                      \
    static inline __attribute__((always_inline)) T name(const T* address) { return *address; }
GS_CPU_LOAD(__ldca)
GS_CPU_LOAD(__ldcv)
GS_CPU_LOAD(__ldlu)
#undef GS_CPU_LOAD
template <class T>
static inline __attribute__((always_inline)) void __stwb(T* address, T value) { *address = value; }
template <class T>
static inline __attribute__((always_inline)) void __stwt(T* address, T value) { *address = value; }

// HIP's older names for the indices.
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

#endif
