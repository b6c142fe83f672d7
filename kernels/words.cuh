// Words that several blocks load and store at the same time.
#ifndef GPUSTREAM_KERNELS_WORDS_CUH
#define GPUSTREAM_KERNELS_WORDS_CUH

#include <gpustream/kernel.cuh>

// Load and store a word of four or eight bytes that other blocks store and load meanwhile. Nothing else is ordered by them.
template <class Word>
GS_INLINE Word load_word(const Word* word) {
#if defined(GS_CUDA)
    return *reinterpret_cast<const volatile Word*>(word);
#elif defined(GS_HIP)
    return __hip_atomic_load(const_cast<Word*>(word), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}
template <class Word>
GS_INLINE void store_word(Word* word, Word value) {
#if defined(GS_CUDA)
    *reinterpret_cast<volatile Word*>(word) = value;
#elif defined(GS_HIP)
    __hip_atomic_store(word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
#endif
}

#endif
