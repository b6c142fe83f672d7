// CUDA's primitives for asynchronous copies, for other compilers: what `<cuda_pipeline.h>` includes there. The copies are done when
// the call returns, or as `gs::copy_async` says.
#ifndef GPUSTREAM_PIPELINE_PRIMITIVES_CUH
#define GPUSTREAM_PIPELINE_PRIMITIVES_CUH

#include <gpustream/async_copy.cuh>

// The last `zeros` of the bytes become 0.
GS_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t size, size_t zeros = 0) {
    const gs::u32 bytes = (gs::u32)(size - zeros);
    if (size == 16) {
        gs::copy_async<16>(to, from, bytes);
    } else if (size == 8) {
        gs::copy_async<8>(to, from, bytes);
    } else {
        gs::copy_async<4>(to, from, bytes);
    }
}
GS_INLINE void __pipeline_commit() { gs::commit_copies(); }
// CUDA takes a number of groups that may be under way. We wait for all.
GS_INLINE void __pipeline_wait_prior(size_t) { gs::wait_for_copies(); }

#endif
