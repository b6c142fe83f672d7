// Arrays with more elements than 32 bits can count.
#include <gpustream/kernel.cuh>

/// keys[i] = the low 32 bits of i * factor. If the factor is odd, each number appears once in 2^32 keys.
/// requires: n <= len(keys)
/// covers: n
extern "C" __global__ void multiples(unsigned int* __restrict__ keys, size_t n, unsigned int factor) {
    GS_FOR_EACH(i, n) keys[i] = (unsigned int)i * factor;
}

/// bytes[i] = the top byte of those keys
/// requires: n <= len(bytes)
/// covers: n
extern "C" __global__ void multiples_as_bytes(unsigned char* __restrict__ bytes, size_t n, unsigned int factor) {
    GS_FOR_EACH(i, n) bytes[i] = (unsigned char)((unsigned int)i * factor >> 24);
}

/// wrong += how many of the keys are not the numbers from 0 on, of which `first`, `second` and `third` appear twice
/// requires: n <= len(sorted), 1 <= len(wrong)
/// covers: n
extern "C" __global__ void count_wrong(const unsigned int* __restrict__ sorted, size_t n, unsigned int first, unsigned int second,
                                       unsigned int third, unsigned long long* __restrict__ wrong) {
    GS_FOR_EACH(i, n) {
        const size_t before = (size_t)(i > first) + (size_t)(i > second + (size_t)1) + (size_t)(i > third + (size_t)2);
        if (sorted[i] != (unsigned int)(i - before)) gs::atomic_add(wrong, 1ull);
    }
}
