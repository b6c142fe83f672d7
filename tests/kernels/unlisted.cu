// The builder's parser sees none of these variables, because each is declared in a way that it does not read. You can
// find them only in the compiled images.
#include <gpustream/kernel.cuh>

#if defined(__CUDACC__) || defined(__HIP__)
__device__ unsigned in_an_if;
#endif
template <class T>
__device__ T in_a_template;
#define DECLARE(type, name) __device__ type name
DECLARE(unsigned, by_a_macro);
#define DEVICE __device__
DEVICE unsigned with_a_macro;
unsigned __device__ type_first;
extern "C" __device__ unsigned plain = 0;

__device__ volatile unsigned* variable(unsigned which) {
    static __device__ unsigned in_a_function;
    switch (which) {
        case 0: return &in_an_if;
        case 1: return &in_a_template<unsigned>;
        case 2: return &by_a_macro;
        case 3: return &with_a_macro;
        case 4: return &type_first;
        case 5: return &plain;
        default: return &in_a_function;
    }
}

/// Runs until `go` is not zero.
/// requires: 1 <= len(go)
extern "C" __global__ void hold(const volatile unsigned* go) {
    while (*go == 0) {
    }
}

/// variable = variable * 5 + value, so the result depends on the order of the launches.
/// requires: grid.x * grid.y * grid.z == 1, block.x * block.y * block.z == 1
extern "C" __global__ void count(unsigned which, unsigned value) {
    volatile unsigned* x = variable(which);
    *x = *x * 5 + value;
}

/// Stores all variables.
/// requires: 7 <= len(out), grid.x * grid.y * grid.z == 1, block.x * block.y * block.z == 1
extern "C" __global__ void look(unsigned* __restrict__ out) {
    for (unsigned which = 0; which < 7; ++which) out[which] = *variable(which);
}
