// Textures and surfaces: texture fetches by the formulas in the CUDA C++ Programming Guide, "Texture Fetching", and
// reads and writes on surfaces. A handle is the address of a gs_cpu_image, which the backend made. We compare every
// coordinate with the image's extents. If an element does not have the texels' type, you get an error here; a GPU
// would return some bits.
#ifndef GPUSTREAM_CPU_TEXTURES_CUH
#define GPUSTREAM_CPU_TEXTURES_CUH

#define GS_CPU_HERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

// An element that a kernel reads or writes: its lanes' type, and how many there are.
template <class T>
struct gs_cpu_element {
    static constexpr bool known = false;
};
#define GS_CPU_ELEMENT(T, Lane, count)          \
    template <>                                 \
    struct gs_cpu_element<T> {                  \
        static constexpr bool known = true;     \
        static constexpr int lanes = count;     \
        typedef Lane lane;                      \
    };
#define GS_CPU_ELEMENTS(T, Lane)  \
    GS_CPU_ELEMENT(T##1, Lane, 1) \
    GS_CPU_ELEMENT(T##2, Lane, 2) \
    GS_CPU_ELEMENT(T##4, Lane, 4)
GS_CPU_ELEMENT(char, signed char, 1)
GS_CPU_ELEMENT(signed char, signed char, 1)
GS_CPU_ELEMENT(unsigned char, unsigned char, 1)
GS_CPU_ELEMENT(short, short, 1)
GS_CPU_ELEMENT(unsigned short, unsigned short, 1)
GS_CPU_ELEMENT(int, int, 1)
GS_CPU_ELEMENT(unsigned int, unsigned int, 1)
GS_CPU_ELEMENT(float, float, 1)
GS_CPU_ELEMENTS(char, signed char)
GS_CPU_ELEMENTS(uchar, unsigned char)
GS_CPU_ELEMENTS(short, short)
GS_CPU_ELEMENTS(ushort, unsigned short)
GS_CPU_ELEMENTS(int, int)
GS_CPU_ELEMENTS(uint, unsigned int)
GS_CPU_ELEMENTS(float, float)
#undef GS_CPU_ELEMENTS
#undef GS_CPU_ELEMENT

template <class T>
static inline T gs_cpu_load(const unsigned char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

// Returns true if the kernel reads the image as floating-point numbers.
static inline bool gs_cpu_reads_floats(const gs_cpu_image& image) {
    return image.normalized_values || image.channel == GS_CPU_CHANNEL_F16 || image.channel == GS_CPU_CHANNEL_F32;
}

// Returns a channel as a number: an integer unchanged, or normalised.
static inline float gs_cpu_channel_float(const gs_cpu_image& image, const unsigned char* texel, int channel) {
    switch (image.channel) {
        case GS_CPU_CHANNEL_U8: return (float)texel[channel] / 255.0f;
        case GS_CPU_CHANNEL_I8: {
            const float value = (float)(signed char)texel[channel] / 127.0f;
            return value < -1.0f ? -1.0f : value;
        }
        case GS_CPU_CHANNEL_U16: return (float)gs_cpu_load<uint16_t>(texel + 2 * channel) / 65535.0f;
        case GS_CPU_CHANNEL_I16: {
            const float value = (float)gs_cpu_load<int16_t>(texel + 2 * channel) / 32767.0f;
            return value < -1.0f ? -1.0f : value;
        }
        case GS_CPU_CHANNEL_F16: return gs_cpu_from_half(gs_cpu_load<uint16_t>(texel + 2 * channel));
        case GS_CPU_CHANNEL_F32: return gs_cpu_load<float>(texel + 4 * channel);
        default: return 0;
    }
}
static inline int64_t gs_cpu_channel_integer(const gs_cpu_image& image, const unsigned char* texel, int channel) {
    switch (image.channel) {
        case GS_CPU_CHANNEL_U8: return texel[channel];
        case GS_CPU_CHANNEL_I8: return (signed char)texel[channel];
        case GS_CPU_CHANNEL_U16: return gs_cpu_load<uint16_t>(texel + 2 * channel);
        case GS_CPU_CHANNEL_I16: return gs_cpu_load<int16_t>(texel + 2 * channel);
        case GS_CPU_CHANNEL_U32: return gs_cpu_load<uint32_t>(texel + 4 * channel);
        case GS_CPU_CHANNEL_I32: return gs_cpu_load<int32_t>(texel + 4 * channel);
        default: return 0;
    }
}

// The texels along one axis that a value comes from: one, or two and the second's weight. An index of -1 means the
// border.
struct gs_cpu_taps {
    int64_t index[2];
    float weight;
    int count;
};

// Returns which texel to use for `index`, which can be outside the `texels`.
static inline int64_t gs_cpu_tap(int64_t index, int64_t texels, uint8_t address) {
    if (index >= 0 && index < texels) return index;
    switch (address) {
        case GS_CPU_ADDRESS_WRAP: index %= texels; return index < 0 ? index + texels : index;
        case GS_CPU_ADDRESS_MIRROR: {
            index %= 2 * texels;
            if (index < 0) index += 2 * texels;
            return index < texels ? index : 2 * texels - 1 - index;
        }
        case GS_CPU_ADDRESS_CLAMP: return index < 0 ? 0 : texels - 1;
        default: return -1;
    }
}

static inline gs_cpu_taps gs_cpu_along(const gs_cpu_image& image, int axis, float x) {
    const int64_t texels = (int64_t)image.extent[axis];
    const uint8_t address = image.address[axis];
    if (image.normalized_coordinates) {
        const float whole = std::floor(x);
        if (address == GS_CPU_ADDRESS_WRAP) {
            x -= whole;
        } else if (address == GS_CPU_ADDRESS_MIRROR) {
            const float part = x - whole;
            x = std::fmod(whole, 2.0f) == 0 ? part : 1.0f - part;
        }
        x *= (float)texels;
    }
    if (image.filter) x -= 0.5f;
    // Outside these bounds there is only the edge; a NaN coordinate becomes 0.
    const float least = -2.0f, most = (float)texels + 2.0f;
    x = x > least ? (x < most ? x : most) : (x <= least ? least : 0.0f);
    const float whole = std::floor(x);
    const int64_t index = (int64_t)whole;
    gs_cpu_taps taps = {{gs_cpu_tap(index, texels, address), 0}, 0, 1};
    if (image.filter) {
        taps.index[1] = gs_cpu_tap(index + 1, texels, address);
        // Nine bits, eight of them after the point.
        taps.weight = std::floor((x - whole) * 256.0f + 0.5f) / 256.0f;
        taps.count = 2;
    }
    return taps;
}

static inline gs_cpu_taps gs_cpu_one(int64_t index) {
    return {{index, 0}, 0, 1};
}

static inline size_t gs_cpu_texel_size(const gs_cpu_image& image) {
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 2, 4};
    return (size_t)sizes[image.channel & 7] * image.channels;
}

// Returns a texel, or null for the border.
static inline const unsigned char* gs_cpu_texel(const gs_cpu_image& image, int64_t x, int64_t y, int64_t z) {
    if (x < 0 || y < 0 || z < 0) return nullptr;
    return image.data + (uint64_t)z * image.slice + (uint64_t)y * image.row + (uint64_t)x * gs_cpu_texel_size(image);
}

template <class T>
static inline T gs_cpu_gather(const gs_cpu_image& image, const gs_cpu_taps* along) {
    typedef typename gs_cpu_element<T>::lane Lane;
    constexpr int lanes = gs_cpu_element<T>::lanes;
    Lane values[lanes];
    if constexpr (std::is_same<Lane, float>::value) {
        float sums[lanes] = {};
        for (int k = 0; k < along[2].count; k++)
            for (int j = 0; j < along[1].count; j++)
                for (int i = 0; i < along[0].count; i++) {
                    const unsigned char* texel =
                        gs_cpu_texel(image, along[0].index[i], along[1].index[j], along[2].index[k]);
                    if (!texel) continue;
                    float weight = 1;
                    if (along[0].count == 2) weight *= i ? along[0].weight : 1 - along[0].weight;
                    if (along[1].count == 2) weight *= j ? along[1].weight : 1 - along[1].weight;
                    if (along[2].count == 2) weight *= k ? along[2].weight : 1 - along[2].weight;
                    // A texel without weight can be infinite.
                    if (weight == 0) continue;
                    for (int c = 0; c < lanes; c++) sums[c] += weight * gs_cpu_channel_float(image, texel, c);
                }
        for (int c = 0; c < lanes; c++) values[c] = sums[c];
    } else {
        const unsigned char* texel = gs_cpu_texel(image, along[0].index[0], along[1].index[0], along[2].index[0]);
        for (int c = 0; c < lanes; c++) values[c] = texel ? (Lane)gs_cpu_channel_integer(image, texel, c) : Lane(0);
    }
    T value;
    static_assert(sizeof value == sizeof values, "an element is its lanes");
    std::memcpy(&value, values, sizeof value);
    return value;
}

__attribute__((noreturn, noinline, cold)) static void gs_cpu_texture_fails(const char* what, const char* call,
                                                                           const gs_cpu_image& image,
                                                                           const char* file, unsigned line) {
    static const char* const names[] = {"unsigned char", "char",  "unsigned short", "short",
                                        "unsigned int",  "int",   "half",           "float"};
    char message[320];
    snprintf(message, sizeof message, "%s of a %s of %s%d dimensions with %d channels of type %s, %s: %s", call,
             image.surface ? "surface" : "texture", image.linear ? "linear memory of " : image.layered ? "layers of " : "",
             image.dimensions, image.channels, names[image.channel & 7],
             image.surface                ? "whose bytes kernels read and write"
             : gs_cpu_reads_floats(image) ? "which are read as floating-point numbers"
                                          : "which are read as integers",
             what);
    gs_cpu_fail(message, file, line);
}

// Returns the image for a handle, if the kernel may read elements of type T from it with a call for such
// images.
template <class T>
static inline const gs_cpu_image& gs_cpu_texture(unsigned long long handle, int dimensions, bool layered, bool linear,
                                                 const char* call, const char* file, unsigned line) {
    static_assert(gs_cpu_element<T>::known,
                  "a texture is read as char, short, int, float, their unsigned types, or vectors of 1, 2 or 4 of them");
    if (!handle) gs_cpu_fail("reads a texture whose handle is 0", file, line);
    const gs_cpu_image& image = *reinterpret_cast<const gs_cpu_image*>(handle);
    if (image.surface || image.dimensions != dimensions || (bool)image.layered != layered || (bool)image.linear != linear)
        gs_cpu_texture_fails("the call is for another kind", call, image, file, line);
    constexpr bool floats = std::is_same<typename gs_cpu_element<T>::lane, float>::value;
    if (floats != gs_cpu_reads_floats(image))
        gs_cpu_texture_fails("the kernel reads another type", call, image, file, line);
    if (gs_cpu_element<T>::lanes > image.channels)
        gs_cpu_texture_fails("the kernel reads more channels", call, image, file, line);
    return image;
}

static inline int64_t gs_cpu_layer(const gs_cpu_image& image, int layer) {
    const int64_t last = (int64_t)image.extent[2] - 1;
    return layer < 0 ? 0 : layer > last ? last : layer;
}

// One form returns the value, and one writes the value to memory. The numbers in parentheses stand for the
// parameters and for the arguments.
#define GS_CPU_BOTH(name, parameters, arguments)                                                             \
    template <class T>                                                                                       \
    static inline void name(T* to, unsigned long long texture, GS_CPU_UNPACK parameters, GS_CPU_HERE) {      \
        *to = name<T>(texture, GS_CPU_UNPACK arguments, file, line);                                         \
    }
#define GS_CPU_UNPACK(...) __VA_ARGS__

template <class T>
static inline T tex1Dfetch(unsigned long long texture, int x, GS_CPU_HERE) {
    const gs_cpu_image& image = gs_cpu_texture<T>(texture, 1, false, true, "tex1Dfetch", file, line);
    const bool inside = x >= 0 && (uint64_t)x < image.extent[0];
    const gs_cpu_taps along[3] = {gs_cpu_one(inside ? x : -1), gs_cpu_one(0), gs_cpu_one(0)};
    return gs_cpu_gather<T>(image, along);
}
GS_CPU_BOTH(tex1Dfetch, (int x), (x))

// One fetch's forms, with its name, its dimensions, and the third axis: coordinates, and the taps along x, y, z.
#define GS_CPU_FETCH(name, dimensions, layered, parameters, arguments, x, y, z)                              \
    template <class T>                                                                                       \
    static inline T name(unsigned long long texture, GS_CPU_UNPACK parameters, GS_CPU_HERE) {                \
        const gs_cpu_image& image =                                                                          \
            gs_cpu_texture<T>(texture, dimensions, layered, false, #name, file, line);                       \
        const gs_cpu_taps along[3] = {x, y, z};                                                              \
        return gs_cpu_gather<T>(image, along);                                                               \
    }                                                                                                        \
    GS_CPU_BOTH(name, parameters, arguments)
#define GS_CPU_X gs_cpu_along(image, 0, x)
#define GS_CPU_Y gs_cpu_along(image, 1, y)
#define GS_CPU_Z gs_cpu_along(image, 2, z)
#define GS_CPU_LAYER gs_cpu_one(gs_cpu_layer(image, layer))
#define GS_CPU_FIRST gs_cpu_one(0)
GS_CPU_FETCH(tex1D, 1, false, (float x), (x), GS_CPU_X, GS_CPU_FIRST, GS_CPU_FIRST)
GS_CPU_FETCH(tex2D, 2, false, (float x, float y), (x, y), GS_CPU_X, GS_CPU_Y, GS_CPU_FIRST)
GS_CPU_FETCH(tex3D, 3, false, (float x, float y, float z), (x, y, z), GS_CPU_X, GS_CPU_Y, GS_CPU_Z)
GS_CPU_FETCH(tex1DLayered, 1, true, (float x, int layer), (x, layer), GS_CPU_X, GS_CPU_FIRST, GS_CPU_LAYER)
GS_CPU_FETCH(tex2DLayered, 2, true, (float x, float y, int layer), (x, y, layer), GS_CPU_X, GS_CPU_Y, GS_CPU_LAYER)
// We have no mipmaps, so every level is the first.
GS_CPU_FETCH(tex1DLod, 1, false, (float x, float), (x, 0), GS_CPU_X, GS_CPU_FIRST, GS_CPU_FIRST)
GS_CPU_FETCH(tex2DLod, 2, false, (float x, float y, float), (x, y, 0), GS_CPU_X, GS_CPU_Y, GS_CPU_FIRST)
GS_CPU_FETCH(tex3DLod, 3, false, (float x, float y, float z, float), (x, y, z, 0), GS_CPU_X, GS_CPU_Y, GS_CPU_Z)
#undef GS_CPU_X
#undef GS_CPU_Y
#undef GS_CPU_Z
#undef GS_CPU_LAYER
#undef GS_CPU_FIRST
#undef GS_CPU_FETCH
#undef GS_CPU_BOTH

// What happens if an access misses a surface: a mode of CUDA, or of HIP, whose numbers differ.
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum hipSurfaceBoundaryMode { hipBoundaryModeZero, hipBoundaryModeTrap, hipBoundaryModeClamp };
struct gs_cpu_boundary {
    cudaSurfaceBoundaryMode mode;
    gs_cpu_boundary(cudaSurfaceBoundaryMode cuda) : mode(cuda) {}
    gs_cpu_boundary(hipSurfaceBoundaryMode hip)
        : mode(hip == hipBoundaryModeTrap    ? cudaBoundaryModeTrap
               : hip == hipBoundaryModeClamp ? cudaBoundaryModeClamp
                                             : cudaBoundaryModeZero) {}
};

// Returns the address of an element of T in a surface. Null if it is outside; the access must then do nothing. `x`
// counts bytes.
template <class T>
static inline unsigned char* gs_cpu_surface(unsigned long long handle, int dimensions, bool layered, const char* call,
                                            int64_t x, int64_t y, int64_t z, gs_cpu_boundary boundary, const char* file,
                                            unsigned line) {
    static_assert(gs_cpu_element<T>::known,
                  "a surface has elements of char, short, int, float, their unsigned types, or vectors of 1, 2 or 4 of them");
    if (!handle) gs_cpu_fail("uses a surface whose handle is 0", file, line);
    const gs_cpu_image& image = *reinterpret_cast<const gs_cpu_image*>(handle);
    if (!image.surface || image.dimensions != dimensions || (bool)image.layered != layered)
        gs_cpu_texture_fails("the call is for another kind", call, image, file, line);
    if (sizeof(T) != gs_cpu_texel_size(image))
        gs_cpu_texture_fails("the kernel's element has another size", call, image, file, line);
    if (x % (int64_t)sizeof(T)) gs_cpu_texture_fails("the first coordinate is in bytes, and inside a texel", call, image, file, line);
    int64_t at[3] = {x / (int64_t)sizeof(T), y, z};
    for (int axis = 0; axis < 3; axis++) {
        const int64_t last = (int64_t)image.extent[axis] - 1;
        if (at[axis] >= 0 && at[axis] <= last) continue;
        if (boundary.mode == cudaBoundaryModeZero) return nullptr;
        if (boundary.mode != cudaBoundaryModeClamp)
            gs_cpu_texture_fails("the coordinates are beside the surface", call, image, file, line);
        at[axis] = at[axis] < 0 ? 0 : last;
    }
    return const_cast<unsigned char*>(gs_cpu_texel(image, at[0], at[1], at[2]));
}

// One access's forms. HIP's have the boundary mode Zero if you say nothing, because its devices do that. CUDA's devices end
// the kernel.
#define GS_CPU_SURFACE(kind, dimensions, layered, parameters, arguments, x, y, z)                                     \
    template <class T>                                                                                                \
    static inline T kind##read(unsigned long long surface, GS_CPU_UNPACK parameters,                                  \
                               gs_cpu_boundary boundary = cudaBoundaryModeTrap, GS_CPU_HERE) {                        \
        T value = {};                                                                                                 \
        const unsigned char* from =                                                                                   \
            gs_cpu_surface<T>(surface, dimensions, layered, #kind "read", x, y, z, boundary, file, line);             \
        if (from) std::memcpy(&value, from, sizeof value);                                                            \
        return value;                                                                                                 \
    }                                                                                                                 \
    template <class T>                                                                                                \
    static inline void kind##read(T* to, unsigned long long surface, GS_CPU_UNPACK parameters,                        \
                                  gs_cpu_boundary boundary = cudaBoundaryModeTrap, GS_CPU_HERE) {                     \
        *to = kind##read<T>(surface, GS_CPU_UNPACK arguments, boundary, file, line);                                  \
    }                                                                                                                 \
    template <class T>                                                                                                \
    static inline void kind##write(T value, unsigned long long surface, GS_CPU_UNPACK parameters,                     \
                                   gs_cpu_boundary boundary = cudaBoundaryModeTrap, GS_CPU_HERE) {                    \
        unsigned char* to =                                                                                           \
            gs_cpu_surface<T>(surface, dimensions, layered, #kind "write", x, y, z, boundary, file, line);            \
        if (to) std::memcpy(to, &value, sizeof value);                                                                \
    }
GS_CPU_SURFACE(surf1D, 1, false, (int x), (x), x, 0, 0)
GS_CPU_SURFACE(surf2D, 2, false, (int x, int y), (x, y), x, y, 0)
GS_CPU_SURFACE(surf3D, 3, false, (int x, int y, int z), (x, y, z), x, y, z)
GS_CPU_SURFACE(surf1DLayered, 1, true, (int x, int layer), (x, layer), x, 0, layer)
GS_CPU_SURFACE(surf2DLayered, 2, true, (int x, int y, int layer), (x, y, layer), x, y, layer)
#undef GS_CPU_SURFACE
#undef GS_CPU_UNPACK
#undef GS_CPU_HERE

template <class T>
struct gs_cpu_never {
    static constexpr bool value = false;
};
#define GS_CPU_TEXTURE(name)                                                                                \
    template <class T = float, class... Any>                                                                \
    static inline T name(Any&&...) {                                                                        \
        static_assert(gs_cpu_never<T>::value, #name ": the CPU backend lacks this fetch; leave `cpu` out of this file's " \
                                                    "backends, or read plain memory where GS_CPU is defined"); \
        return T();                                                                                         \
    }
GS_CPU_TEXTURE(tex2DGrad)
GS_CPU_TEXTURE(tex2Dgather)
GS_CPU_TEXTURE(texCubemap)
#undef GS_CPU_TEXTURE

#endif
