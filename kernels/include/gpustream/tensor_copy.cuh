// Copies of boxes from matrices in global memory to shared memory, by one thread and a unit of the hardware.
//
// Hopper (`sm_90a`) has a unit, the TMA, that copies a whole tile of a matrix after a single instruction, lays it out for the
// matrix cores, and sets what lies outside of the matrix to 0. It needs a description of the matrix, the tensor map. Usually the
// host makes it. Here a warp makes it in the kernel, because a map holds an address. If that were hidden in an argument, nobody
// could know which memory the kernel uses.
//
//     if (warp == 0) {
//         gs::make_tensor_map(maps + blockIdx.x, room, x, {width, lines, 1, leading, 0}, 64, 128);
//         if (gs::lane() == 0) {
//             barrier.expect(sizeof(tile));
//             gs::copy_box(tile.at, maps + blockIdx.x, column, line, 0, barrier);
//         }
//     }
//     barrier.wait(0);
//
// Only files with a line `#define GS_SM_90A 1` are compiled for `sm_90a`. They must have other code for other targets: write
// `#if defined(GS_TENSOR_COPIES)`.
//
// Include this file too, because `<gpustream/kernel.cuh>` does not.
#ifndef GPUSTREAM_TENSOR_COPY_CUH
#define GPUSTREAM_TENSOR_COPY_CUH

#include <gpustream/kernel.cuh>

#if defined(GS_CUDA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GS_TENSOR_COPIES 1

namespace gs {

GS_INLINE u32 in_shared(const void* address) { return (u32)__cvta_generic_to_shared(address); }

/// A barrier in shared memory, for copies and for threads that hand memory to each other. Its phases are counted: you wait for
/// phase 0, 1, 0, 1, … A phase ends after all arrivals and after all bytes that were expected.
/// Signature: struct gs::CopyBarrier

/// Prepares the barrier for `arrivals` in each phase. Afterwards the same thread calls `gs::publish_barriers`, and then all threads
/// call `__syncthreads()`.
/// Threads: one.
/// Signature: void gs::CopyBarrier::init(u32 arrivals)

/// Arrives.
/// Threads: any.
/// Signature: void gs::CopyBarrier::arrive()

/// Arrives, and adds bytes that must be copied before the phase ends.
/// Threads: any.
/// Signature: void gs::CopyBarrier::expect(u32 bytes)

/// Waits until the phase has ended. Before the first one ends, phase 1 counts as over.
/// Threads: any.
/// Signature: void gs::CopyBarrier::wait(u32 phase)

struct CopyBarrier {
    u64 state;

    GS_INLINE void init(u32 arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(in_shared(this)), "r"(arrivals) : "memory");
    }
    GS_INLINE void arrive() {
        asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(in_shared(this)) : "memory");
    }
    GS_INLINE void expect(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(in_shared(this)), "r"(bytes) : "memory");
    }
    GS_INLINE void wait(u32 phase) {
        asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1; @!done bra again; }"
                     ::"r"(in_shared(this)), "r"(phase) : "memory");
    }
};

/// Lets the unit that copies see the barriers that this thread has prepared.
/// Threads: one.
GS_INLINE void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}

/// What a tensor map describes: `matrices` matrices with `lines` lines of `width` elements. It is `leading` elements from one line
/// to the next, and `stride` from one matrix to the next. Both are multiples of 16 bytes, and so is the address.
/// Signature: struct gs::TensorShape
struct TensorShape {
    u32 width, lines, matrices;
    u64 leading, stride;
};

/// Makes the map of a tensor with elements of two bytes, for boxes of `box_lines` lines and `box_width` elements. 64 elements are
/// what a `gs::PanelTile` has beside each other. A box has at most 256 lines. The map is in global memory, `to`, on a boundary of 64
/// bytes, and only this launch may use it. The blocks of a launch may each have one.
/// Threads: all of the warp.
/// Shared memory: `room`, 128 bytes on a boundary of 128.
/// Signature: void gs::make_tensor_map(void* to, void* room, const void* elements, TensorShape shape, u32 box_width, u32 box_lines)
//
// PTX ISA, "tensormap.replace": every field of a map of zeros is set. Ranks count from 0. Element type 1 is 16 bits, and swizzle
// mode 3 exchanges pieces in 128 bytes.
GS_INLINE void make_tensor_map(void* to, void* room, const void* elements, TensorShape shape, u32 box_width, u32 box_lines) {
    reinterpret_cast<u32*>(room)[lane()] = 0;
    sync_warp();
    if (lane() == 0) {
        const u32 map = in_shared(room);
        // A dimension of one element has a distance too, which nobody uses.
        const u64 leading = shape.leading * 2, stride = shape.matrices > 1 ? shape.stride * 2 : 16;
#define GS_FIELD_(field, bits, constraint, value) \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." bits ", %1;" ::"r"(map), constraint(value) : "memory")
#define GS_CONSTANT_(field, value) asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], " value ";" ::"r"(map) : "memory")
        GS_FIELD_("global_address", "b64 [%0]", "l", elements);
        GS_CONSTANT_("rank", "2");
        GS_FIELD_("box_dim", "b32 [%0], 0", "r", box_width);
        GS_FIELD_("box_dim", "b32 [%0], 1", "r", box_lines);
        GS_FIELD_("box_dim", "b32 [%0], 2", "r", 1);
        GS_FIELD_("global_dim", "b32 [%0], 0", "r", shape.width);
        GS_FIELD_("global_dim", "b32 [%0], 1", "r", shape.lines);
        GS_FIELD_("global_dim", "b32 [%0], 2", "r", shape.matrices);
        GS_FIELD_("global_stride", "b64 [%0], 0", "l", leading);
        GS_FIELD_("global_stride", "b64 [%0], 1", "l", stride);
        GS_FIELD_("element_stride", "b32 [%0], 0", "r", 1);
        GS_FIELD_("element_stride", "b32 [%0], 1", "r", 1);
        GS_FIELD_("element_stride", "b32 [%0], 2", "r", 1);
        GS_CONSTANT_("elemtype", "1");
        GS_CONSTANT_("interleave_layout", "0");
        GS_CONSTANT_("swizzle_mode", "3");
        GS_CONSTANT_("fill_mode", "0");
#undef GS_FIELD_
#undef GS_CONSTANT_
    }
    sync_warp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
                 ::"l"(to), "r"(in_shared(room)) : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(to) : "memory");
    sync_warp();
}

/// Begins to copy a box whose first element is `(line, column)` of matrix `matrix`. It goes to `to`, on a boundary of 1024 bytes, and
/// its bytes count for `barrier`, also those that are outside of the matrix and become 0.
/// Threads: one of the warp that made the map.
GS_INLINE void copy_box(void* to, const void* map, u32 column, u32 line, u32 matrix, CopyBarrier& barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(in_shared(to)), "l"(map), "r"(column), "r"(line), "r"(matrix), "r"(in_shared(&barrier)) : "memory");
}

}  // namespace gs
#endif

#endif
