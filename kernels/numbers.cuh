// Keys as numbers, so that one instance of a kernel serves all types with one width. `kind` says what a key's bits are; the host
// chooses it (`kind` in `rank.rs`).
#ifndef GPUSTREAM_KERNELS_NUMBERS_CUH
#define GPUSTREAM_KERNELS_NUMBERS_CUH

#include <gpustream/kernel.cuh>

constexpr gs::u32 kind_unsigned = 0, kind_signed = 1, kind_float = 2, kind_bfloat16 = 3;

// Returns the number that a key is. Integers above 2^53 are rounded.
GS_INLINE double number_of(unsigned char key, gs::u32 kind) { return kind == kind_signed ? (double)(int8_t)key : (double)key; }
GS_INLINE double number_of(gs::u16 key, gs::u32 kind) {
    switch (kind) {
        case kind_signed: return (double)(int16_t)key;
        case kind_float: return (double)gs::to_float(gs::bit_cast<gs::half>(key));
        case kind_bfloat16: return (double)gs::to_float(gs::bit_cast<gs::bfloat16>(key));
        default: return (double)key;
    }
}
GS_INLINE double number_of(gs::u32 key, gs::u32 kind) {
    switch (kind) {
        case kind_signed: return (double)(int32_t)key;
        case kind_float: return (double)gs::bit_cast<float>(key);
        default: return (double)key;
    }
}
GS_INLINE double number_of(gs::u64 key, gs::u32 kind) {
    switch (kind) {
        case kind_signed: return (double)(int64_t)key;
        case kind_float: return gs::bit_cast<double>(key);
        default: return (double)key;
    }
}

#endif
