// The soak program's kernels.
#include <gpustream/kernel.cuh>

// AMD's processors without image instructions cannot compile these, and you cannot make a texture there either.
#if defined(__HIP_NO_IMAGE_SUPPORT) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || \
    defined(__gfx942__) || defined(__gfx950__)
#define TEXTURES 0
#else
#define TEXTURES 1
#endif

/// x[i] = x[i] * 5 + value, so the result depends on the order of the steps.
/// requires: n <= len(x)
/// covers: n
extern "C" __global__ void step(unsigned* __restrict__ x, unsigned value, size_t n) { GS_FOR_EACH(i, n) x[i] = x[i] * 5 + value; }

/// Subtracts one from `left`, and sets `go_on` if anything is left.
/// requires: 1 <= len(left), 1 <= len(go_on)
extern "C" __global__ void count_down(unsigned* left, volatile unsigned* go_on) { *go_on = --*left != 0; }

/// out[i] = texel i of a row.
/// requires: n <= len(out), 0 <= n
/// covers: n
extern "C" __global__ void fetch(cudaTextureObject_t texture, float* out, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        out[i] = tex1D<float>(texture, i + 0.5f);
#endif
    }
}

/// Writes to any address.
extern "C" __global__ void wild(size_t address) { *(volatile unsigned*)address = 1; }

/// Stops the device.
/// requires: nothing
extern "C" __global__ void give_up() {
#if defined(GS_HIP)
    __builtin_trap();
#else
    __trap();
#endif
}
