// The C interface between a CPU kernel module and the backend that runs it. crates/cpu/src/abi.rs
// mirrors it: if you change one, change both, and raise GS_CPU_ABI.
#ifndef GPUSTREAM_CPU_ABI_H
#define GPUSTREAM_CPU_ABI_H

#include <stdint.h>

#define GS_CPU_ABI 7u

// The only symbol that a module exports. Its type is `const gs_cpu_module`.
#define GS_CPU_MODULE_SYMBOL gpustream_cpu_module

// How much dynamic shared memory a block can have, in bytes: as much as an H100 offers if you opt in.
#define GS_CPU_DYNAMIC_SHARED_MAX 232448

// How many bytes a kernel's parameters can take together: as many as CUDA allows from 12.1 on.
#define GS_CPU_PARAMS_MAX 32764

// How strictly a parameter can be aligned.
#define GS_CPU_PARAMS_ALIGN_MAX 256

// If a grid has at most this many threads along x, it can use the entry with 32-bit index hints.
#define GS_CPU_NARROW_MAX 0x7fff0000u

#ifdef __cplusplus
#define GS_CPU_NOEXCEPT noexcept
extern "C" {
#else
#define GS_CPU_NOEXCEPT
#endif

typedef struct gs_cpu_dim {
    uint32_t x, y, z;
} gs_cpu_dim;

typedef struct gs_cpu_context gs_cpu_context;

enum gs_cpu_warp_kind {
    GS_CPU_WARP_SYNC = 0,     // value 0
    GS_CPU_WARP_SHUFFLE = 1,  // value of lane `source`; the lane's own where `source` takes no part
    GS_CPU_WARP_BALLOT = 2,   // mask of the lanes that gave a value other than 0
    GS_CPU_WARP_MATCH = 3,    // mask of the lanes that gave the same value
    // These two are for single threads of a block, which agree on a value.
    GS_CPU_WARP_AWAIT = 4,  // waits until a thread of the block calls the next with the same value
    GS_CPU_WARP_WAKE = 5    // lets the threads go on that wait with the same value, and goes on itself
};

// A thread's part in a warp operation.
typedef struct gs_cpu_lane {
    uint64_t value;    // the value it gives; afterwards the result it gets
    uint64_t active;   // afterwards: mask of the lanes that took part
    uint64_t mask;     // the lanes it waits for; 0 means those lanes of the warp that can get here
    const char* file;  // the place in the source where it waits
    uint32_t line;
    uint32_t kind;    // gs_cpu_warp_kind
    uint32_t source;  // the lane a shuffle reads
    uint32_t reserved;
} gs_cpu_lane;

enum gs_cpu_channel {
    GS_CPU_CHANNEL_U8 = 0,
    GS_CPU_CHANNEL_I8 = 1,
    GS_CPU_CHANNEL_U16 = 2,
    GS_CPU_CHANNEL_I16 = 3,
    GS_CPU_CHANNEL_U32 = 4,
    GS_CPU_CHANNEL_I32 = 5,
    GS_CPU_CHANNEL_F16 = 6,
    GS_CPU_CHANNEL_F32 = 7
};

enum gs_cpu_address {
    GS_CPU_ADDRESS_WRAP = 0,
    GS_CPU_ADDRESS_CLAMP = 1,
    GS_CPU_ADDRESS_MIRROR = 2,
    GS_CPU_ADDRESS_BORDER = 3
};

// A texture or a surface. Kernels get its address as the object's handle.
typedef struct gs_cpu_image {
    unsigned char* data;             // the first texel
    uint64_t row;                    // bytes from one row to the next
    uint64_t slice;                  // bytes from one plane or layer to the next
    uint64_t extent[3];              // texels of a row, rows, and planes or layers
    uint8_t dimensions;              // 1 to 3, without the layers
    uint8_t layered;                 // the slices are layers
    uint8_t linear;                  // a texture of linear memory
    uint8_t surface;                 // a surface
    uint8_t channel;                 // gs_cpu_channel
    uint8_t channels;                // 1, 2 or 4
    uint8_t address[3];              // gs_cpu_address, along x, y and z
    uint8_t filter;                  // linear filtering
    uint8_t normalized_coordinates;  // coordinates run from 0 to 1
    uint8_t normalized_values;       // integers are read as numbers from 0 or -1 to 1
} gs_cpu_image;

// Where a cooperative launch's blocks meet.
typedef struct gs_cpu_meeting {
    uint64_t state;   // number of blocks that run, times 2^32, and number of those that wait
    uint32_t round;   // how often all have met
    uint32_t failed;  // a block ended with an error
} gs_cpu_meeting;

// The backend's functions for kernels. `thread` is the calling thread's number in its block.
typedef struct gs_cpu_host {
    // Returns when all the block's threads that have not returned are here, with `context->vote` set.
    void (*barrier)(gs_cpu_context* context, uint32_t thread, uint32_t predicate, const char* file,
                    uint32_t line) GS_CPU_NOEXCEPT;
    // Returns when the lanes that `context->lanes[thread]` waits for are here, with the result in it.
    void (*warp)(gs_cpu_context* context, uint32_t thread) GS_CPU_NOEXCEPT;
    // Ends the kernel with an error. Never returns.
    void (*fail)(gs_cpu_context* context, uint32_t thread, const char* message, const char* file,
                 uint32_t line) GS_CPU_NOEXCEPT;
} gs_cpu_host;

// One worker's part in a launch.
struct gs_cpu_context {
    const gs_cpu_host* host;
    const unsigned char* params;
    gs_cpu_dim grid;
    gs_cpu_dim block;
    uint32_t warp_size;
    uint32_t dynamic_shared;
    uint64_t current_block;   // written by the entry: the linear number of the block it is in
    uint32_t current_thread;  // written by the entry where that is cheap, and by the backend on a switch
    uint32_t wide;            // grid.x * block.x exceeds GS_CPU_NARROW_MAX
    uint32_t check;           // errors that a GPU would not notice are reported
    uint32_t vote;            // the number of predicates that held at the last barrier
    gs_cpu_lane* lanes;       // one per thread of a block
    gs_cpu_meeting* meeting;  // null in a launch that is not cooperative
};

// Runs blocks [first, end), linear numbers with x fastest. If `first_thread` is not 0, runs that thread and its
// successors in block `first`, which must be the block that this OS thread began last. If a thread waited inside, it
// does not go on to its successors, because the backend has started them elsewhere.
typedef void (*gs_cpu_entry)(gs_cpu_context* context, uint64_t first, uint64_t end, uint32_t first_thread);

typedef struct gs_cpu_param {
    uint32_t offset;
    uint32_t size;
} gs_cpu_param;

typedef struct gs_cpu_kernel {
    const char* name;
    gs_cpu_entry entry;
    const gs_cpu_param* params;
    uint32_t param_count;
    uint32_t params_size;  // bytes of the parameter block
    uint32_t max_threads;  // 0: the kernel sets no limit
    uint32_t params_align; // of the parameter block, in bytes
} gs_cpu_kernel;

// A __constant__ or __device__ variable. The module owns its memory.
typedef struct gs_cpu_global {
    const char* name;
    void* address;
    uint64_t size;  // bytes
} gs_cpu_global;

typedef struct gs_cpu_module {
    uint32_t abi;  // GS_CPU_ABI
    uint32_t kernel_count;
    const gs_cpu_kernel* kernels;
    const gs_cpu_global* globals;
    uint64_t global_count;
    // The address of the calling thread's gs_cpu_anchor. The symbol table's offsets for shared arrays count from
    // it.
    unsigned char* (*anchor)(void);
} gs_cpu_module;

#ifdef __cplusplus
}
#endif
#endif
