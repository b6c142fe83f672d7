// dim3 and the short vector types, with CUDA's sizes and alignments. You can access memory of other types through
// them, as kernels do to move 16 bytes at once.
#ifndef GPUSTREAM_CPU_TYPES_CUH
#define GPUSTREAM_CPU_TYPES_CUH

// Types with two and four elements are aligned as a whole, up to 16 bytes.
#define GS_CPU_VECTORS(name, T)                                                                               \
    struct __attribute__((may_alias)) name##1 { T x; };                                                       \
    struct __attribute__((aligned(2 * sizeof(T)), may_alias)) name##2 { T x, y; };                            \
    struct __attribute__((may_alias)) name##3 { T x, y, z; };                                                 \
    struct __attribute__((aligned(sizeof(T) < 4 ? 4 * sizeof(T) : 16), may_alias)) name##4 { T x, y, z, w; }; \
    static inline name##1 make_##name##1(T x) { return {x}; }                                                 \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                         \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                 \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
GS_CPU_VECTORS(char, signed char)
GS_CPU_VECTORS(uchar, unsigned char)
GS_CPU_VECTORS(short, short)
GS_CPU_VECTORS(ushort, unsigned short)
GS_CPU_VECTORS(int, int)
GS_CPU_VECTORS(uint, unsigned int)
GS_CPU_VECTORS(long, long)
GS_CPU_VECTORS(ulong, unsigned long)
GS_CPU_VECTORS(longlong, long long)
GS_CPU_VECTORS(ulonglong, unsigned long long)
GS_CPU_VECTORS(float, float)
GS_CPU_VECTORS(double, double)
#undef GS_CPU_VECTORS

struct __attribute__((may_alias)) dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    // Converts from blockDim and its relatives.
    template <class Index, class = typename Index::gs_cpu_is_index>
    dim3(const Index& v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

#endif
