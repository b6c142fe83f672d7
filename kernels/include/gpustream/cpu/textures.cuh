// Textures and surfaces, which the CPU backend does not have: to read one is an error that says so.
#ifndef GPUSTREAM_CPU_TEXTURES_CUH
#define GPUSTREAM_CPU_TEXTURES_CUH

template <class T>
struct gs_cpu_never {
    static constexpr bool value = false;
};
#define GS_CPU_TEXTURE(name)                                                                                \
    template <class T = float, class... Any>                                                                \
    static inline T name(Any&&...) {                                                                        \
        static_assert(gs_cpu_never<T>::value, #name ": the CPU backend has no textures and surfaces; leave `cpu` out of " \
                                                    "this file's backends, or read plain memory where GS_CPU is defined"); \
        return T();                                                                                         \
    }
GS_CPU_TEXTURE(tex1D)
GS_CPU_TEXTURE(tex1Dfetch)
GS_CPU_TEXTURE(tex1DLayered)
GS_CPU_TEXTURE(tex1DLod)
GS_CPU_TEXTURE(tex2D)
GS_CPU_TEXTURE(tex2DLayered)
GS_CPU_TEXTURE(tex2DLod)
GS_CPU_TEXTURE(tex2DGrad)
GS_CPU_TEXTURE(tex2Dgather)
GS_CPU_TEXTURE(tex3D)
GS_CPU_TEXTURE(tex3DLod)
GS_CPU_TEXTURE(texCubemap)
GS_CPU_TEXTURE(surf1Dread)
GS_CPU_TEXTURE(surf1Dwrite)
GS_CPU_TEXTURE(surf2Dread)
GS_CPU_TEXTURE(surf2Dwrite)
GS_CPU_TEXTURE(surf3Dread)
GS_CPU_TEXTURE(surf3Dwrite)
#undef GS_CPU_TEXTURE

#endif
