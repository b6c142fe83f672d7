// How many elements an algorithm has. The host knows the capacity, and chooses the grid by it. If a kernel before decided how
// many there are, only the device knows, and then `count` points to that number. Blocks beyond it have nothing to do.
#ifndef GPUSTREAM_KERNELS_COUNTED_CUH
#define GPUSTREAM_KERNELS_COUNTED_CUH

#include <gpustream/kernel.cuh>

// Returns how many of `capacity` elements there are. A count above the capacity is the mistake of a kernel before; downloads
// report it.
GS_INLINE size_t live(size_t capacity, const gs::u64* count) {
    return count && *count < capacity ? (size_t)*count : capacity;
}

#endif
