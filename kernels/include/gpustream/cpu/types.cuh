// dim3 and the short vector types, with CUDA's sizes and alignments. Memory of other types may be accessed through
// them, as kernels do to move 16 bytes at once.
#ifndef GPUSTREAM_CPU_TYPES_CUH
#define GPUSTREAM_CPU_TYPES_CUH

struct __attribute__((may_alias)) char1 { signed char x; };
struct __attribute__((aligned(2), may_alias)) char2 { signed char x, y; };
struct __attribute__((may_alias)) char3 { signed char x, y, z; };
struct __attribute__((aligned(4), may_alias)) char4 { signed char x, y, z, w; };
static inline char1 make_char1(signed char x) { return {x}; }
static inline char2 make_char2(signed char x, signed char y) { return {x, y}; }
static inline char3 make_char3(signed char x, signed char y, signed char z) { return {x, y, z}; }
static inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) uchar1 { unsigned char x; };
struct __attribute__((aligned(2), may_alias)) uchar2 { unsigned char x, y; };
struct __attribute__((may_alias)) uchar3 { unsigned char x, y, z; };
struct __attribute__((aligned(4), may_alias)) uchar4 { unsigned char x, y, z, w; };
static inline uchar1 make_uchar1(unsigned char x) { return {x}; }
static inline uchar2 make_uchar2(unsigned char x, unsigned char y) { return {x, y}; }
static inline uchar3 make_uchar3(unsigned char x, unsigned char y, unsigned char z) { return {x, y, z}; }
static inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) short1 { short x; };
struct __attribute__((aligned(4), may_alias)) short2 { short x, y; };
struct __attribute__((may_alias)) short3 { short x, y, z; };
struct __attribute__((aligned(8), may_alias)) short4 { short x, y, z, w; };
static inline short1 make_short1(short x) { return {x}; }
static inline short2 make_short2(short x, short y) { return {x, y}; }
static inline short3 make_short3(short x, short y, short z) { return {x, y, z}; }
static inline short4 make_short4(short x, short y, short z, short w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) ushort1 { unsigned short x; };
struct __attribute__((aligned(4), may_alias)) ushort2 { unsigned short x, y; };
struct __attribute__((may_alias)) ushort3 { unsigned short x, y, z; };
struct __attribute__((aligned(8), may_alias)) ushort4 { unsigned short x, y, z, w; };
static inline ushort1 make_ushort1(unsigned short x) { return {x}; }
static inline ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }
static inline ushort3 make_ushort3(unsigned short x, unsigned short y, unsigned short z) { return {x, y, z}; }
static inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) int1 { int x; };
struct __attribute__((aligned(8), may_alias)) int2 { int x, y; };
struct __attribute__((may_alias)) int3 { int x, y, z; };
struct __attribute__((aligned(16), may_alias)) int4 { int x, y, z, w; };
static inline int1 make_int1(int x) { return {x}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) uint1 { unsigned int x; };
struct __attribute__((aligned(8), may_alias)) uint2 { unsigned int x, y; };
struct __attribute__((may_alias)) uint3 { unsigned int x, y, z; };
struct __attribute__((aligned(16), may_alias)) uint4 { unsigned int x, y, z, w; };
static inline uint1 make_uint1(unsigned int x) { return {x}; }
static inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
static inline uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) { return {x, y, z}; }
static inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) long1 { long x; };
struct __attribute__((aligned(16), may_alias)) long2 { long x, y; };
struct __attribute__((may_alias)) long3 { long x, y, z; };
struct __attribute__((aligned(16), may_alias)) long4 { long x, y, z, w; };
static inline long1 make_long1(long x) { return {x}; }
static inline long2 make_long2(long x, long y) { return {x, y}; }
static inline long3 make_long3(long x, long y, long z) { return {x, y, z}; }
static inline long4 make_long4(long x, long y, long z, long w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) ulong1 { unsigned long x; };
struct __attribute__((aligned(16), may_alias)) ulong2 { unsigned long x, y; };
struct __attribute__((may_alias)) ulong3 { unsigned long x, y, z; };
struct __attribute__((aligned(16), may_alias)) ulong4 { unsigned long x, y, z, w; };
static inline ulong1 make_ulong1(unsigned long x) { return {x}; }
static inline ulong2 make_ulong2(unsigned long x, unsigned long y) { return {x, y}; }
static inline ulong3 make_ulong3(unsigned long x, unsigned long y, unsigned long z) { return {x, y, z}; }
static inline ulong4 make_ulong4(unsigned long x, unsigned long y, unsigned long z, unsigned long w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) longlong1 { long long x; };
struct __attribute__((aligned(16), may_alias)) longlong2 { long long x, y; };
struct __attribute__((may_alias)) longlong3 { long long x, y, z; };
struct __attribute__((aligned(16), may_alias)) longlong4 { long long x, y, z, w; };
static inline longlong1 make_longlong1(long long x) { return {x}; }
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
static inline longlong3 make_longlong3(long long x, long long y, long long z) { return {x, y, z}; }
static inline longlong4 make_longlong4(long long x, long long y, long long z, long long w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) ulonglong1 { unsigned long long x; };
struct __attribute__((aligned(16), may_alias)) ulonglong2 { unsigned long long x, y; };
struct __attribute__((may_alias)) ulonglong3 { unsigned long long x, y, z; };
struct __attribute__((aligned(16), may_alias)) ulonglong4 { unsigned long long x, y, z, w; };
static inline ulonglong1 make_ulonglong1(unsigned long long x) { return {x}; }
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
static inline ulonglong3 make_ulonglong3(unsigned long long x, unsigned long long y, unsigned long long z) { return {x, y, z}; }
static inline ulonglong4 make_ulonglong4(unsigned long long x, unsigned long long y, unsigned long long z, unsigned long long w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) float1 { float x; };
struct __attribute__((aligned(8), may_alias)) float2 { float x, y; };
struct __attribute__((may_alias)) float3 { float x, y, z; };
struct __attribute__((aligned(16), may_alias)) float4 { float x, y, z, w; };
static inline float1 make_float1(float x) { return {x}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct __attribute__((may_alias)) double1 { double x; };
struct __attribute__((aligned(16), may_alias)) double2 { double x, y; };
struct __attribute__((may_alias)) double3 { double x, y, z; };
struct __attribute__((aligned(16), may_alias)) double4 { double x, y, z, w; };
static inline double1 make_double1(double x) { return {x}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }
static inline double3 make_double3(double x, double y, double z) { return {x, y, z}; }
static inline double4 make_double4(double x, double y, double z, double w) { return {x, y, z, w}; }

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
