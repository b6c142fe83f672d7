// Products of small matrices by a warp: on matrix cores where the target has them, by ordinary arithmetic elsewhere.
//
// The lanes of a warp share a matrix of 16 rows and 16 columns, and each target deals out its elements in another way. So you
// load and store matrices as a whole, and ask an element where it is:
//
//     gs::MatrixA<gs::half> a;   gs::MatrixB<gs::half> b;   gs::MatrixC<gs::half> c;
//     c.fill(0);
//     for (int k = 0; k < depth; k += a.columns) {
//         gs::load_rows(a, x + k, depth);
//         gs::load_rows(b, y + k * 16, 16);
//         gs::multiply_add(c, a, b);
//     }
//     for (int e = 0; e < c.size(); ++e) c.at[e] += bias[c.column(e)];
//     gs::store_rows(c, out, 16);
//
//     element      sums in    columns of A   matrix cores of
//     gs::half     float           16        sm_80 and newer, gfx90a, gfx942, gfx11, gfx12
//     gs::bfloat16 float           16        the same
//     int8_t       int32_t         32        the same
//     gs::tf32     float            8        sm_80 and newer, gfx90a, gfx942
//     double       double           4        sm_80 and newer, gfx90a, gfx942
//
// Elsewhere (older NVIDIA GPUs, gfx10, the CPU) each lane computes some elements of C, and has all of A and B that it needs for
// them. The results differ only in the order in which products are added. `gs::tf32` are floats of which the hardware may use
// only ten bits of the fraction; gfx90a and ordinary arithmetic use all.
//
// Include this file too, because `<gpustream/kernel.cuh>` does not. Blocks must consist of full warps.
#ifndef GPUSTREAM_MATRIX_CUH
#define GPUSTREAM_MATRIX_CUH

#include <gpustream/kernel.cuh>

namespace gs {

/// A float, `value`, that matrix cores may round to ten bits of fraction before they multiply.
/// Signature: struct gs::tf32
struct tf32 {
    float value;
};

// What matrix cores make of elements: the type of sums, and how many columns of A one operation takes.
template <class T>
struct MatrixType;
template <>
struct MatrixType<half> {
    typedef float Sum;
    static constexpr int depth = 16;
};
template <>
struct MatrixType<bfloat16> {
    typedef float Sum;
    static constexpr int depth = 16;
};
template <>
struct MatrixType<int8_t> {
    typedef int32_t Sum;
    static constexpr int depth = 32;
};
template <>
struct MatrixType<tf32> {
    typedef float Sum;
    static constexpr int depth = 8;
};
template <>
struct MatrixType<double> {
    typedef double Sum;
    static constexpr int depth = 4;
};

GS_INLINE float to_float(tf32 x) { return x.value; }

#if defined(GS_HIP)
// Returns a lane's elements as the vector that AMD's builtins take.
template <class To, class From>
GS_INLINE To matrix_operand(const From* from) {
    To to;
    GS_MEMCPY_(&to, from, sizeof(To));
    return to;
}
#endif

// How the lanes share the matrices. A has `depth` columns, and B as many rows. Each function takes a lane and the number of one of
// its elements. A lane's elements of A and B are neighbours in the direction of the depth, `run` at a time.
//
// Ordinary arithmetic: a lane has a row of A, and some columns of B and C. Only `wmma.cuh` asks for other sizes than 16 by 16.
template <class T, int Rows = 16, int Columns = 16, int Depth = MatrixType<T>::depth>
struct OrdinaryLayout {
    typedef typename MatrixType<T>::Sum Sum;
#if defined(GS_CPU)
    static constexpr int most = Rows * Columns / 32;  // columns of a lane: there are at least 32 lanes
    static GS_INLINE int width() { return Rows * Columns / (int)warp_size(); }
#elif defined(__GFX9__)
    static constexpr int most = Rows * Columns / 64;
    static GS_INLINE constexpr int width() { return most; }
#else
    static constexpr int most = Rows * Columns / 32;
    static GS_INLINE constexpr int width() { return most; }
#endif
    static constexpr int depth = Depth, run = 1;
    static constexpr int room_a = depth, room_b = depth * most, room_c = most;
    static GS_INLINE int size_a() { return depth; }
    static GS_INLINE int size_b() { return depth * width(); }
    static GS_INLINE int size_c() { return width(); }
    static GS_INLINE int row_a(u32 lane, int) { return lane % Rows; }
    static GS_INLINE int depth_a(u32, int e) { return e; }
    static GS_INLINE int column_b(u32 lane, int e) { return (int)(lane / Rows) * width() + e % width(); }
    static GS_INLINE int depth_b(u32, int e) { return e / width(); }
    static GS_INLINE int row_c(u32 lane, int) { return lane % Rows; }
    static GS_INLINE int column_c(u32 lane, int e) { return (int)(lane / Rows) * width() + e; }
    // Which lane has an element of C, and under which number.
    static GS_INLINE u32 lane_of_c(int row, int column) { return (u32)(column / width() * Rows + row); }
    static GS_INLINE int number_of_c(int, int column) { return column % width(); }

    static GS_INLINE Sum wide(T x) {
        if constexpr (sizeof(T) == 1) {
            return (Sum)x;
        } else {
            return (Sum)to_float(x);
        }
    }
    static GS_INLINE void accumulate(Sum* c, const T* a, const T* b) {
        const int columns = width();
        GS_UNROLL
        for (int k = 0; k < depth; ++k) {
            const Sum factor = wide(a[k]);
            GS_UNROLL
            for (int j = 0; j < columns; ++j) c[j] += factor * wide(b[k * columns + j]);
        }
    }
};

#if defined(GS_CUDA) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)

// PTX ISA, "Matrix Fragments for mma": a register has `run` elements, four lanes share a row of A or a column of B, and eight rows
// or columns lie between registers.
template <class T>
struct MatrixLayout {
    typedef typename MatrixType<T>::Sum Sum;
    static constexpr int depth = MatrixType<T>::depth, run = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    static constexpr int room_a = depth / 2, room_b = depth / 2, room_c = 8, half_b = room_b / 2;
    static GS_INLINE constexpr int size_a() { return room_a; }
    static GS_INLINE constexpr int size_b() { return room_b; }
    static GS_INLINE constexpr int size_c() { return room_c; }
    static GS_INLINE int row_a(u32 lane, int e) { return lane / 4 + e / run % 2 * 8; }
    static GS_INLINE int depth_a(u32 lane, int e) { return (lane % 4 + e / run / 2 * 4) * run + e % run; }
    static GS_INLINE int column_b(u32 lane, int e) { return lane / 4 + e / half_b * 8; }
    static GS_INLINE int depth_b(u32 lane, int e) { return (lane % 4 + e % half_b / run * 4) * run + e % run; }
    static GS_INLINE int row_c(u32 lane, int e) { return lane / 4 + e / 2 % 2 * 8; }
    static GS_INLINE int column_c(u32 lane, int e) { return lane % 4 * 2 + e % 2 + e / 4 * 8; }
    static GS_INLINE u32 lane_of_c(int row, int column) { return (u32)(row % 8 * 4 + column % 8 / 2); }
    static GS_INLINE int number_of_c(int row, int column) { return column / 8 * 4 + row / 8 * 2 + column % 2; }

    static GS_INLINE void accumulate(Sum* c, const T* a, const T* b) {
        GS_UNROLL
        for (int h = 0; h < 2; ++h) eight_columns(c + h * 4, a, b + h * half_b);
    }

private:
    static GS_INLINE u32 word(const T* x, int r) {
        u32 word;
        GS_MEMCPY_(&word, x + r * run, 4);
        return word;
    }
#define GS_MMA_(shape, sum) asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+" sum(c[0]), "+" sum(c[1]), "+" sum(c[2]), "+" sum(c[3]) \
        : "r"(word(a, 0)), "r"(word(a, 1)), "r"(word(a, 2)), "r"(word(a, 3)), "r"(word(b, 0)), "r"(word(b, 1)))
    static GS_INLINE void eight_columns(float* c, const half* a, const half* b) {
        GS_MMA_("m16n8k16.row.col.f32.f16.f16.f32", "f");
    }
    static GS_INLINE void eight_columns(float* c, const bfloat16* a, const bfloat16* b) {
        GS_MMA_("m16n8k16.row.col.f32.bf16.bf16.f32", "f");
    }
    static GS_INLINE void eight_columns(int32_t* c, const int8_t* a, const int8_t* b) {
        GS_MMA_("m16n8k32.row.col.s32.s8.s8.s32", "r");
    }
    static GS_INLINE void eight_columns(float* c, const tf32* a, const tf32* b) {
        GS_MMA_("m16n8k8.row.col.f32.tf32.tf32.f32", "f");
    }
#undef GS_MMA_
    static GS_INLINE void eight_columns(double* c, const double* a, const double* b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                     : "d"(a[0]), "d"(a[1]), "d"(b[0]));
#else
        GS_UNROLL
        for (int i = 0; i < 2; ++i) {
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                         : "+d"(c[2 * i]), "+d"(c[2 * i + 1])
                         : "d"(a[i]), "d"(b[0]));
        }
#endif
    }
};

#elif defined(__gfx90a__) || defined(__gfx942__)

// AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator): a lane has a row of A or a column of B,
// and a quarter of its depth.
template <class T>
struct MatrixLayout {
    typedef typename MatrixType<T>::Sum Sum;
    static constexpr int depth = MatrixType<T>::depth, room_a = depth / 4, room_b = depth / 4, room_c = 4, run = room_a;
    static GS_INLINE constexpr int size_a() { return room_a; }
    static GS_INLINE constexpr int size_b() { return room_b; }
    static GS_INLINE constexpr int size_c() { return room_c; }
    static GS_INLINE int row_a(u32 lane, int) { return lane % 16; }
    static GS_INLINE int depth_a(u32 lane, int e) { return lane / 16 * room_a + e; }
    static GS_INLINE int column_b(u32 lane, int) { return lane % 16; }
    static GS_INLINE int depth_b(u32 lane, int e) { return lane / 16 * room_a + e; }
    // Doubles lie four rows apart, the others below each other.
    static constexpr bool is_double = sizeof(T) == 8;
    static GS_INLINE int row_c(u32 lane, int e) { return is_double ? e * 4 + lane / 16 : lane / 16 * 4 + e; }
    static GS_INLINE int column_c(u32 lane, int) { return lane % 16; }
    static GS_INLINE u32 lane_of_c(int row, int column) {
        return (u32)((is_double ? row % 4 : row / 4) * 16 + column);
    }
    static GS_INLINE int number_of_c(int row, int) { return is_double ? row / 4 : row % 4; }

    typedef Sum Four __attribute__((ext_vector_type(4)));
    static GS_INLINE void accumulate(Sum* c, const T* a, const T* b) {
        Four sums;
        GS_MEMCPY_(&sums, c, sizeof(sums));
        sums = product(sums, a, b);
        GS_MEMCPY_(c, &sums, sizeof(sums));
    }

private:
    static GS_INLINE Four product(Four c, const half* a, const half* b) {
        typedef _Float16 Operand __attribute__((ext_vector_type(4)));
        return __builtin_amdgcn_mfma_f32_16x16x16f16(matrix_operand<Operand>(a), matrix_operand<Operand>(b), c, 0, 0, 0);
    }
    static GS_INLINE Four product(Four c, const bfloat16* a, const bfloat16* b) {
        typedef short Operand __attribute__((ext_vector_type(4)));
        return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(matrix_operand<Operand>(a), matrix_operand<Operand>(b), c, 0, 0, 0);
    }
    static GS_INLINE Four product(Four c, const int8_t* a, const int8_t* b) {
#if defined(__gfx942__)
        return __builtin_amdgcn_mfma_i32_16x16x32_i8(matrix_operand<long>(a), matrix_operand<long>(b), c, 0, 0, 0);
#else
        // Half of each lane's depth at a time: A and B agree on which.
        c = __builtin_amdgcn_mfma_i32_16x16x16i8(matrix_operand<int>(a), matrix_operand<int>(b), c, 0, 0, 0);
        return __builtin_amdgcn_mfma_i32_16x16x16i8(matrix_operand<int>(a + 4), matrix_operand<int>(b + 4), c, 0, 0, 0);
#endif
    }
    static GS_INLINE Four product(Four c, const tf32* a, const tf32* b) {
#if defined(__gfx942__)
        typedef float Operand __attribute__((ext_vector_type(2)));
        return __builtin_amdgcn_mfma_f32_16x16x8_xf32(matrix_operand<Operand>(a), matrix_operand<Operand>(b), c, 0, 0, 0);
#else
        c = __builtin_amdgcn_mfma_f32_16x16x4f32(a[0].value, b[0].value, c, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_16x16x4f32(a[1].value, b[1].value, c, 0, 0, 0);
#endif
    }
    static GS_INLINE Four product(Four c, const double* a, const double* b) {
        return __builtin_amdgcn_mfma_f64_16x16x4f64(a[0], b[0], c, 0, 0, 0);
    }
};

#elif defined(__GFX11__) || defined(__GFX12__)

// AMD's ISA guides for RDNA 3 and 4, "WMMA": a lane has a row of A or a column of B. In RDNA 3 it has the whole depth, and the
// upper sixteen lanes have the same; in RDNA 4 each half of the lanes has half of it.
template <class T>
struct WmmaLayout {
    typedef typename MatrixType<T>::Sum Sum;
    static constexpr int depth = MatrixType<T>::depth, room_c = 8;
#if defined(__GFX12__)
    static constexpr int room_a = depth / 2, room_b = depth / 2, run = 8;
    static GS_INLINE int depth_a(u32 lane, int e) { return lane / 16 * 8 + e % 8 + e / 8 * 16; }
    static GS_INLINE int row_c(u32 lane, int e) { return lane / 16 * 8 + e; }
    static GS_INLINE u32 lane_of_c(int row, int column) { return (u32)(row / 8 * 16 + column); }
    static GS_INLINE int number_of_c(int row, int) { return row % 8; }
#else
    static constexpr int room_a = depth, room_b = depth, run = 16 / sizeof(T);
    static GS_INLINE int depth_a(u32, int e) { return e; }
    static GS_INLINE int row_c(u32 lane, int e) { return e * 2 + lane / 16; }
    static GS_INLINE u32 lane_of_c(int row, int column) { return (u32)(row % 2 * 16 + column); }
    static GS_INLINE int number_of_c(int row, int) { return row / 2; }
#endif
    static GS_INLINE constexpr int size_a() { return room_a; }
    static GS_INLINE constexpr int size_b() { return room_b; }
    static GS_INLINE constexpr int size_c() { return room_c; }
    static GS_INLINE int row_a(u32 lane, int) { return lane % 16; }
    static GS_INLINE int column_b(u32 lane, int) { return lane % 16; }
    static GS_INLINE int depth_b(u32 lane, int e) { return depth_a(lane, e); }
    static GS_INLINE int column_c(u32 lane, int) { return lane % 16; }

    typedef Sum Eight __attribute__((ext_vector_type(8)));
    static GS_INLINE void accumulate(Sum* c, const T* a, const T* b) {
        Eight sums;
        GS_MEMCPY_(&sums, c, sizeof(sums));
        sums = product(sums, a, b);
        GS_MEMCPY_(c, &sums, sizeof(sums));
    }

private:
#if defined(__GFX12__)
    typedef _Float16 Halves __attribute__((ext_vector_type(8)));
    typedef short Bfloats __attribute__((ext_vector_type(8)));
    typedef int Bytes __attribute__((ext_vector_type(2)));
#define GS_WMMA_(types) __builtin_amdgcn_wmma_##types##_w32_gfx12
#else
    typedef _Float16 Halves __attribute__((ext_vector_type(16)));
    typedef short Bfloats __attribute__((ext_vector_type(16)));
    typedef int Bytes __attribute__((ext_vector_type(4)));
#define GS_WMMA_(types) __builtin_amdgcn_wmma_##types##_w32
#endif
    static GS_INLINE Eight product(Eight c, const half* a, const half* b) {
        return GS_WMMA_(f32_16x16x16_f16)(matrix_operand<Halves>(a), matrix_operand<Halves>(b), c);
    }
    static GS_INLINE Eight product(Eight c, const bfloat16* a, const bfloat16* b) {
        return GS_WMMA_(f32_16x16x16_bf16)(matrix_operand<Bfloats>(a), matrix_operand<Bfloats>(b), c);
    }
    static GS_INLINE Eight product(Eight c, const int8_t* a, const int8_t* b) {
        c = GS_WMMA_(i32_16x16x16_iu8)(true, matrix_operand<Bytes>(a), true, matrix_operand<Bytes>(b), c, false);
        return GS_WMMA_(i32_16x16x16_iu8)(true, matrix_operand<Bytes>(a + sizeof(Bytes)), true, matrix_operand<Bytes>(b + sizeof(Bytes)), c, false);
    }
#undef GS_WMMA_
};
template <class T>
struct MatrixLayout : WmmaLayout<T> {};
template <>
struct MatrixLayout<tf32> : OrdinaryLayout<tf32> {};
template <>
struct MatrixLayout<double> : OrdinaryLayout<double> {};

#else

template <class T>
struct MatrixLayout : OrdinaryLayout<T> {};

#endif

/// A matrix of 16 rows and `columns` columns, which is the left factor of a product. This lane has the elements `at[0]` to
/// `at[size() - 1]`; `row(e)` and `column(e)` return where element `e` is. Several lanes may have the same
/// element. `fill(value)` sets all elements.
/// Threads: all of the warp.
/// Signature: struct gs::MatrixA<T>
template <class T>
struct MatrixA {
    typedef T Element;
    typedef MatrixLayout<T> Layout;
    static constexpr int rows = 16, columns = Layout::depth;
    T at[Layout::room_a];

    static GS_INLINE int size() { return Layout::size_a(); }
    static GS_INLINE int row(int e) { return Layout::row_a(lane(), e); }
    static GS_INLINE int column(int e) { return Layout::depth_a(lane(), e); }
    GS_INLINE void fill(T value) {
        GS_UNROLL
        for (int e = 0; e < size(); ++e) at[e] = value;
    }
};

/// The right factor: a matrix of `rows` rows and 16 columns. Otherwise as `gs::MatrixA`.
/// Threads: all of the warp.
/// Signature: struct gs::MatrixB<T>
template <class T>
struct MatrixB {
    typedef T Element;
    typedef MatrixLayout<T> Layout;
    static constexpr int rows = Layout::depth, columns = 16;
    T at[Layout::room_b];

    static GS_INLINE int size() { return Layout::size_b(); }
    static GS_INLINE int row(int e) { return Layout::depth_b(lane(), e); }
    static GS_INLINE int column(int e) { return Layout::column_b(lane(), e); }
    GS_INLINE void fill(T value) {
        GS_UNROLL
        for (int e = 0; e < size(); ++e) at[e] = value;
    }
};

/// The sum of products of `gs::MatrixA<T>` and `gs::MatrixB<T>`: 16 rows and 16 columns. Its elements are floats for the 16-bit
/// types and `gs::tf32`, `int32_t` for `int8_t`, and `double` for `double`. Each element is in one lane.
/// Threads: all of the warp.
/// Signature: struct gs::MatrixC<T>
template <class T>
struct MatrixC {
    typedef typename MatrixType<T>::Sum Element;
    typedef MatrixLayout<T> Layout;
    static constexpr int rows = 16, columns = 16;
    Element at[Layout::room_c];

    static GS_INLINE int size() { return Layout::size_c(); }
    static GS_INLINE int row(int e) { return Layout::row_c(lane(), e); }
    static GS_INLINE int column(int e) { return Layout::column_c(lane(), e); }
    GS_INLINE void fill(Element value) {
        GS_UNROLL
        for (int e = 0; e < size(); ++e) at[e] = value;
    }
};

// What memory holds for an element: floats for gs::tf32.
template <class T>
struct MatrixMemory {
    typedef T Type;
    static GS_INLINE T load(T x) { return x; }
};
template <>
struct MatrixMemory<tf32> {
    typedef float Type;
    static GS_INLINE tf32 load(float x) {
#if defined(GS_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        // Without this the hardware cuts bits off, and all products become smaller.
        u32 rounded;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
        return tf32{bit_cast<float>(rounded)};
#else
        return tf32{x};
#endif
    }
};

// Loads elements that are `where(e)` behind `from`, and neighbours in memory, `run` at a time.
template <class M, class Memory, class Where>
GS_INLINE void load_runs(M& matrix, const Memory* from, Where where) {
    typedef typename M::Element Element;
    constexpr int run = M::Layout::run;
    struct alignas(sizeof(Element) * run) Run {
        Memory at[run];
    };
    GS_UNROLL
    for (int e = 0; e < M::size(); e += run) {
        const Memory* const first = from + where(e);
        if (run > 1 && (size_t)first % sizeof(Run) == 0) {
            const Run loaded = *reinterpret_cast<const Run*>(first);
            GS_UNROLL
            for (int i = 0; i < run; ++i) matrix.at[e + i] = MatrixMemory<Element>::load(loaded.at[i]);
        } else {
            GS_UNROLL
            for (int i = 0; i < run; ++i) matrix.at[e + i] = MatrixMemory<Element>::load(first[i]);
        }
    }
}
template <class M, class Memory, class Where>
GS_INLINE void load_each(M& matrix, const Memory* from, Where where) {
    GS_UNROLL
    for (int e = 0; e < M::size(); ++e) matrix.at[e] = MatrixMemory<typename M::Element>::load(from[where(e)]);
}

/// Load a matrix from memory of any kind. With `load_rows`, element `(r, c)` is at `from[r * stride + c]`, and with
/// `load_columns`, at `from[c * stride + r]`. Strides count elements.
/// Threads: all of the warp.
/// Signature: void gs::load_rows(matrix, const T* from, size_t stride)
/// Signature: void gs::load_columns(matrix, const T* from, size_t stride)
template <class T>
GS_INLINE void load_rows(MatrixA<T>& matrix, const typename MatrixMemory<T>::Type* from, size_t stride) {
    load_runs(matrix, from, [=](int e) { return MatrixA<T>::row(e) * stride + MatrixA<T>::column(e); });
}
template <class M>
GS_INLINE void load_rows(M& matrix, const typename MatrixMemory<typename M::Element>::Type* from, size_t stride) {
    load_each(matrix, from, [=](int e) { return M::row(e) * stride + M::column(e); });
}
template <class T>
GS_INLINE void load_columns(MatrixB<T>& matrix, const typename MatrixMemory<T>::Type* from, size_t stride) {
    load_runs(matrix, from, [=](int e) { return MatrixB<T>::column(e) * stride + MatrixB<T>::row(e); });
}
template <class M>
GS_INLINE void load_columns(M& matrix, const typename MatrixMemory<typename M::Element>::Type* from, size_t stride) {
    load_each(matrix, from, [=](int e) { return M::column(e) * stride + M::row(e); });
}

/// Store sums, as `gs::load_rows` and `gs::load_columns` load them.
/// Threads: all of the warp.
/// Signature: void gs::store_rows(const gs::MatrixC<T>& matrix, Sum* to, size_t stride)
/// Signature: void gs::store_columns(const gs::MatrixC<T>& matrix, Sum* to, size_t stride)
template <class T>
GS_INLINE void store_rows(const MatrixC<T>& matrix, typename MatrixC<T>::Element* to, size_t stride) {
    typedef MatrixC<T> M;
    GS_UNROLL
    for (int e = 0; e < M::size(); ++e) to[(size_t)M::row(e) * stride + M::column(e)] = matrix.at[e];
}
template <class T>
GS_INLINE void store_columns(const MatrixC<T>& matrix, typename MatrixC<T>::Element* to, size_t stride) {
    typedef MatrixC<T> M;
    GS_UNROLL
    for (int e = 0; e < M::size(); ++e) to[(size_t)M::column(e) * stride + M::row(e)] = matrix.at[e];
}

/// Computes `c += a b`.
/// Threads: all of the warp.
/// Signature: void gs::multiply_add(gs::MatrixC<T>& c, const gs::MatrixA<T>& a, const gs::MatrixB<T>& b)
template <class T>
GS_INLINE void multiply_add(MatrixC<T>& c, const MatrixA<T>& a, const MatrixB<T>& b) {
    MatrixLayout<T>::accumulate(c.at, a.at, b.at);
}

/// Makes the left factor of the next product from sums, with `f(sum)` as its elements. It has as many columns, so the type must be
/// one whose `MatrixA` has 16: a 16-bit float. On NVIDIA the elements already are in the right lanes; elsewhere the lanes
/// exchange them.
/// Threads: all of the warp.
/// Signature: gs::MatrixA<T> gs::to_factor(const gs::MatrixC<T>& c, f)
template <class T, class F>
GS_INLINE MatrixA<T> to_factor(const MatrixC<T>& c, F f) {
    static_assert(MatrixA<T>::columns == 16, "a factor of 16 columns is made of sums");
    typedef MatrixLayout<T> Layout;
    MatrixA<T> a;
    GS_UNROLL
    for (int e = 0; e < MatrixA<T>::size(); ++e) {
#if defined(GS_CUDA) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
        // A register of A is what two neighbours of C are.
        a.at[e] = f(c.at[e]);
#else
        const int row = MatrixA<T>::row(e), column = MatrixA<T>::column(e);
        const u32 source = Layout::lane_of_c(row, column);
        const int number = Layout::number_of_c(row, column);
        typename MatrixC<T>::Element value = 0;
        GS_UNROLL
        for (int n = 0; n < MatrixC<T>::size(); ++n) {
            const auto other = shfl(c.at[n], source);
            value = n == number ? other : value;
        }
        a.at[e] = f(value);
#endif
    }
    return a;
}

}  // namespace gs

#endif
