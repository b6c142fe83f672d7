// Kernels that use CUDA's names to fetch from textures and write surfaces.
#include <gpustream/kernel.cuh>

// AMD's processors without image instructions cannot compile these, and you cannot make a texture there either.
#if defined(__HIP_NO_IMAGE_SUPPORT) || defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || \
    defined(__gfx942__) || defined(__gfx950__)
#define TEXTURES 0
#else
#define TEXTURES 1
#endif

/// Fetches at each coordinate in `at`.
/// requires: n <= len(at), n <= len(out), 0 <= n
/// covers: n
extern "C" __global__ void fetch_1d(cudaTextureObject_t texture, const float* at, float* out, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        out[i] = tex1D<float>(texture, at[i]);
#endif
    }
}

/// Fetches at each pair of coordinates in `at`.
/// requires: 2 * n <= len(at), n <= len(out), 0 <= n
/// covers: n
extern "C" __global__ void fetch_2d(cudaTextureObject_t texture, const float* at, float* out, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        out[i] = tex2D<float>(texture, at[2 * i], at[2 * i + 1]);
#endif
    }
}

/// Fetches at each triple of coordinates in `at`.
/// requires: 3 * n <= len(at), n <= len(out), 0 <= n
/// covers: n
extern "C" __global__ void fetch_3d(cudaTextureObject_t texture, const float* at, float* out, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        out[i] = tex3D<float>(texture, at[3 * i], at[3 * i + 1], at[3 * i + 2]);
#endif
    }
}

/// Fetches from a layer, at each pair of coordinates in `at`.
/// requires: 2 * n <= len(at), n <= len(out), 0 <= n
/// covers: n
extern "C" __global__ void fetch_2d_layer(cudaTextureObject_t texture, int layer, const float* at, float* out, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        out[i] = tex2DLayered<float>(texture, at[2 * i], at[2 * i + 1], layer);
#endif
    }
}

/// Fetches from a layer, at each coordinate in `at`.
/// requires: n <= len(at), n <= len(out), 0 <= n
/// covers: n
extern "C" __global__ void fetch_1d_layer(cudaTextureObject_t texture, int layer, const float* at, float* out, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        out[i] = tex1DLayered<float>(texture, at[i], layer);
#endif
    }
}

/// Adds two to every texel of a surface, in place. Texels outside the box must not change.
/// requires: 0 <= width, 0 <= height
/// covers: width, height by 8, 8
extern "C" __global__ void add_two(cudaSurfaceObject_t surface, int width, int height) {
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height) return;
#if TEXTURES
    float value;
    surf2Dread(&value, surface, x * (int)sizeof value, y);
    surf2Dwrite(value + 2.0f, surface, x * (int)sizeof value, y);
#endif
}

/// Copies a texture to a surface, texel by texel.
/// requires: 0 <= width, 0 <= height
/// covers: width, height by 8, 8
extern "C" __global__ void transfer(cudaTextureObject_t texture, cudaSurfaceObject_t surface, int width, int height) {
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height) return;
#if TEXTURES
    surf2Dwrite(tex2D<float>(texture, (float)x, (float)y), surface, x * (int)sizeof(float), y);
#endif
}

/// Fetches the middle of each texel.
/// types: T = unsigned char, char, unsigned short, short, unsigned int, int, float, uchar4, char2, short2, ushort4, int4, uint2, float2, float4
/// requires: 0 <= width, 0 <= height, width * height <= len(out)
/// covers: width, height by 8, 8
template <class T>
__global__ void texels(cudaTextureObject_t texture, T* out, int width, int height) {
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height) return;
#if TEXTURES
    out[y * width + x] = tex2D<T>(texture, (float)x + 0.5f, (float)y + 0.5f);
#endif
}

/// Fetches from linear memory by index. The first index is one too small and the last one is one too large, so that a
/// test can see what lies outside.
/// types: T = unsigned char, int, float, float4
/// requires: 0 <= n, n + 2 <= len(out)
/// covers: n + 2
template <class T>
__global__ void elements(cudaTextureObject_t texture, T* out, int n) {
    GS_FOR_EACH(i, n + 2) {
#if TEXTURES
        out[i] = tex1Dfetch<T>(texture, (int)i - 1);
#endif
    }
}

/// Writes each texel of a surface.
/// types: T = unsigned char, uchar4, short2, float, float4
/// requires: 0 <= width, 0 <= height, width * height <= len(values)
/// covers: width, height by 8, 8
template <class T>
__global__ void store(cudaSurfaceObject_t surface, const T* values, int width, int height) {
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height) return;
#if TEXTURES
    surf2Dwrite(values[y * width + x], surface, x * (int)sizeof(T), y);
#endif
}

/// Doubles each texel of a row.
/// requires: 0 <= n
/// covers: n
extern "C" __global__ void double_1d(cudaSurfaceObject_t surface, int n) {
    GS_FOR_EACH(i, n) {
#if TEXTURES
        float value;
        surf1Dread(&value, surface, (int)i * 4);
        surf1Dwrite(2 * value, surface, (int)i * 4);
#endif
    }
}

/// Doubles each texel of a volume.
/// requires: 0 <= width, 0 <= height, 0 <= depth
/// covers: width, height, depth by 4, 4, 4
extern "C" __global__ void double_3d(cudaSurfaceObject_t surface, int width, int height, int depth) {
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)(blockIdx.y * blockDim.y + threadIdx.y),
              z = (int)(blockIdx.z * blockDim.z + threadIdx.z);
    if (x >= width || y >= height || z >= depth) return;
#if TEXTURES
    float value;
    surf3Dread(&value, surface, x * 4, y, z);
    surf3Dwrite(2 * value, surface, x * 4, y, z);
#endif
}

/// Doubles each texel of a layer.
/// requires: 0 <= width, 0 <= height
/// covers: width, height by 8, 8
extern "C" __global__ void double_layer(cudaSurfaceObject_t surface, int layer, int width, int height) {
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x), y = (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width || y >= height) return;
#if TEXTURES
    float value;
    surf2DLayeredread(&value, surface, x * 4, y, layer);
    surf2DLayeredwrite(2 * value, surface, x * 4, y, layer);
#endif
}

/// Reads a row of a surface, and one texel more on each side. There you get zeros, and in `clamped` the texel at the
/// edge. AMD's devices can only give zeros. Elsewhere it also writes outside, which must change nothing.
/// requires: 0 <= n, n + 2 <= len(zero), n + 2 <= len(clamped)
/// covers: n + 2
extern "C" __global__ void edges(cudaSurfaceObject_t surface, float* zero, float* clamped, int n) {
    GS_FOR_EACH(i, n + 2) {
#if defined(GS_HIP) && TEXTURES
        surf1Dread(&zero[i], surface, ((int)i - 1) * 4);
        clamped[i] = zero[i];
#elif !defined(GS_HIP)
        const int x = ((int)i - 1) * 4;
        surf1Dread(&zero[i], surface, x, cudaBoundaryModeZero);
        surf1Dread(&clamped[i], surface, x, cudaBoundaryModeClamp);
        surf1Dwrite(77.0f, surface, i == 0 ? -4 : n * 4, cudaBoundaryModeZero);
#endif
    }
}

/// Writes one texel, even if the coordinates lie outside the surface.
extern "C" __global__ void write_one(cudaSurfaceObject_t surface, float value, int x, int y) {
#if TEXTURES
    surf2Dwrite(value, surface, x * 4, y);
#endif
}
