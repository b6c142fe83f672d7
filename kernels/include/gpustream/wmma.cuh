// CUDA's `nvcuda::wmma` for other compilers: what `<mma.h>` includes there.
//
// All of CUDA's fragments exist except those of less than eight bits. Fragments of 16 by 16 by 16 for 16-bit floats, and of 16 by 16
// by 8 for `precision::tf32`, are in the lanes where `matrix.cuh` has them, so matrix cores multiply them if the target has some.
// The others are multiplied by ordinary arithmetic. As CUDA says, which lane has which element depends on the target.
#ifndef GPUSTREAM_WMMA_CUH
#define GPUSTREAM_WMMA_CUH

#include <gpustream/half.cuh>
#include <gpustream/matrix.cuh>

namespace gs {
template <>
struct MatrixType<unsigned char> {
    typedef int32_t Sum;
    static constexpr int depth = 32;
};
}  // namespace gs

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

namespace gs_detail {

// What matrix cores call a factor's type, and which shapes CUDA has for it.
template <class T, int m, int n, int k>
struct Factor {
    typedef T Type;
    typedef T Held;
    static constexpr bool exists = k == 16 && ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32));
    static_assert(sizeof(T) <= 2, "nvcuda::wmma has no factors of this type: use half, bfloat16, char, precision::tf32 or double");
};
template <int m, int n, int k>
struct Factor<precision::tf32, m, n, k> {
    typedef gs::tf32 Type;
    typedef float Held;
    static constexpr bool exists = m == 16 && n == 16 && k == 8;
};
template <int m, int n, int k>
struct Factor<double, m, n, k> {
    typedef double Type;
    typedef double Held;
    static constexpr bool exists = m == 8 && n == 8 && k == 4;
};

// Which type of factors has its sums in the same lanes as this one, for an accumulator knows only its own type.
template <class Sum, int k>
struct FactorOf {
    typedef gs::half Type;
};
template <>
struct FactorOf<float, 8> {
    typedef precision::tf32 Type;
};
template <>
struct FactorOf<int, 16> {
    typedef signed char Type;
};
template <>
struct FactorOf<double, 4> {
    typedef double Type;
};

template <bool first, class A, class B>
struct Choose {
    typedef A Type;
};
template <class A, class B>
struct Choose<false, A, B> {
    typedef B Type;
};

// How the lanes share the matrices.
template <class T, int m, int n, int k>
struct Shared {
    typedef gs_detail::Factor<T, m, n, k> Factor;
    static_assert(Factor::exists, "nvcuda::wmma has no fragments of this shape for this type");
    typedef typename Factor::Type Type;
    static constexpr bool by_cores = m == 16 && n == 16 && k == gs::MatrixType<Type>::depth;
    typedef typename Choose<by_cores, gs::MatrixLayout<Type>, gs::OrdinaryLayout<Type, m, n, k>>::Type Layout;
};

// A lane's elements. It may have fewer than there is room for. Then the others are zero, and you can compute with all.
template <class T, int room>
struct Elements {
    typedef T element_type;
    typedef T storage_element_type;
    enum { num_elements = room, num_storage_elements = room };
    T x[room];
};

// A lane's elements of a factor, as gs::load_runs wants them.
template <class T, class Shared, bool is_a>
struct Loaded {
    typedef T Element;
    typedef Shared Layout;
    T at[is_a ? Layout::room_a : Layout::room_b];
    static GS_INLINE int size() { return is_a ? Layout::size_a() : Layout::size_b(); }
    // Where an element is in memory. Lines run along the depth or across it.
    static GS_INLINE size_t place(int e, bool along, size_t stride) {
        const gs::u32 lane = gs::lane();
        const size_t line = is_a ? Layout::row_a(lane, e) : Layout::column_b(lane, e);
        const size_t deep = is_a ? Layout::depth_a(lane, e) : Layout::depth_b(lane, e);
        return along ? line * stride + deep : deep * stride + line;
    }
};

GS_INLINE constexpr bool is_a(matrix_a) { return true; }
GS_INLINE constexpr bool is_a(matrix_b) { return false; }
GS_INLINE constexpr bool by_rows(row_major) { return true; }
GS_INLINE constexpr bool by_rows(col_major) { return false; }

template <class Sum>
GS_INLINE Sum wide(Sum, Sum x) {
    return x;
}
template <class Sum, class T>
GS_INLINE Sum wide(Sum, T x) {
    return gs::to_float(x);
}
template <class Sum>
GS_INLINE void narrow(Sum x, Sum& to) {
    to = x;
}
template <class Sum, class T>
GS_INLINE void narrow(Sum x, T& to) {
    to = gs::from_float<T>(x);
}

}  // namespace gs_detail

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment;
template <int m, int n, int k, class T, class Layout>
struct fragment<matrix_a, m, n, k, T, Layout>
    : gs_detail::Elements<typename gs_detail::Factor<T, m, n, k>::Held, gs_detail::Shared<T, m, n, k>::Layout::room_a> {};
template <int m, int n, int k, class T, class Layout>
struct fragment<matrix_b, m, n, k, T, Layout>
    : gs_detail::Elements<typename gs_detail::Factor<T, m, n, k>::Held, gs_detail::Shared<T, m, n, k>::Layout::room_b> {};
template <int m, int n, int k, class T>
struct fragment<accumulator, m, n, k, T, void>
    : gs_detail::Elements<T, gs_detail::Shared<typename gs_detail::FactorOf<T, k>::Type, m, n, k>::Layout::room_c> {
    typedef typename gs_detail::Shared<typename gs_detail::FactorOf<T, k>::Type, m, n, k>::Layout Shared;
};

GS_INLINE float __float_to_tf32(float x) { return x; }

template <class Use, int m, int n, int k, class T, class Layout, class Value>
GS_INLINE void fill_fragment(fragment<Use, m, n, k, T, Layout>& to, const Value& value) {
    typedef fragment<Use, m, n, k, T, Layout> Fragment;
    const typename Fragment::element_type filled = static_cast<typename Fragment::element_type>(value);
    GS_UNROLL
    for (int e = 0; e < Fragment::num_elements; ++e) to.x[e] = filled;
}

// The same as the functions below, for lanes that have already waited for each other.
template <class Use, int m, int n, int k, class T, class Layout>
GS_INLINE void gs_load_matrix(fragment<Use, m, n, k, T, Layout>& to, const typename fragment<Use, m, n, k, T, Layout>::element_type* from,
                              unsigned stride) {
    constexpr bool is_a = gs_detail::is_a(Use{}), along = is_a == gs_detail::by_rows(Layout{});
    typedef gs_detail::Shared<T, m, n, k> Shared;
    gs_detail::Loaded<typename Shared::Type, typename Shared::Layout, is_a> loaded = {};
    const auto where = [=](int e) { return loaded.place(e, along, stride); };
    if constexpr (along) {
        gs::load_runs(loaded, from, where);
    } else {
        gs::load_each(loaded, from, where);
    }
    static_assert(sizeof(to.x) == sizeof(loaded.at), "the elements are the same");
    GS_MEMCPY_(to.x, loaded.at, sizeof(to.x));
}
template <int m, int n, int k, class T>
GS_INLINE size_t gs_place(const fragment<accumulator, m, n, k, T>&, int e, unsigned stride, layout_t layout) {
    typedef typename fragment<accumulator, m, n, k, T>::Shared Shared;
    const size_t row = Shared::row_c(gs::lane(), e), column = Shared::column_c(gs::lane(), e);
    return layout == mem_row_major ? row * stride + column : column * stride + row;
}
template <int m, int n, int k, class T>
GS_INLINE void gs_load_matrix(fragment<accumulator, m, n, k, T>& to, const T* from, unsigned stride, layout_t layout) {
    typedef fragment<accumulator, m, n, k, T> Fragment;
    GS_UNROLL
    for (int e = 0; e < Fragment::num_elements; ++e) {
        to.x[e] = e < Fragment::Shared::size_c() ? from[gs_place(to, e, stride, layout)] : static_cast<T>(0.0f);
    }
}
template <int m, int n, int k, class T>
GS_INLINE void gs_store_matrix(T* to, const fragment<accumulator, m, n, k, T>& from, unsigned stride, layout_t layout) {
    typedef fragment<accumulator, m, n, k, T> Fragment;
    GS_UNROLL
    for (int e = 0; e < Fragment::Shared::size_c(); ++e) to[gs_place(from, e, stride, layout)] = from.x[e];
}

// The lanes of a warp wait for each other first, so a matrix may be what other lanes have just written. They also wait after a store,
// because on GPUs they go on together.
template <class Use, int m, int n, int k, class T, class Layout>
GS_INLINE void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& to, const typename fragment<Use, m, n, k, T, Layout>::element_type* from,
                                unsigned stride) {
    gs::sync_warp();
    gs_load_matrix(to, from, stride);
}
template <int m, int n, int k, class T>
GS_INLINE void load_matrix_sync(fragment<accumulator, m, n, k, T>& to, const T* from, unsigned stride, layout_t layout) {
    gs::sync_warp();
    gs_load_matrix(to, from, stride, layout);
}
template <int m, int n, int k, class T>
GS_INLINE void store_matrix_sync(T* to, const fragment<accumulator, m, n, k, T>& from, unsigned stride, layout_t layout) {
    gs::sync_warp();
    gs_store_matrix(to, from, stride, layout);
    gs::sync_warp();
}

template <int m, int n, int k, class D, class T, class LayoutA, class LayoutB, class C>
GS_INLINE void mma_sync(fragment<accumulator, m, n, k, D>& to, const fragment<matrix_a, m, n, k, T, LayoutA>& a,
                        const fragment<matrix_b, m, n, k, T, LayoutB>& b, const fragment<accumulator, m, n, k, C>& c) {
    typedef gs_detail::Shared<T, m, n, k> Shared;
    typedef typename Shared::Layout Layout;
    typedef typename Layout::Sum Sum;
    static_assert(Layout::room_c == (int)fragment<accumulator, m, n, k, D>::num_elements, "the sums of these factors have another type");
    typename Shared::Type left[Layout::room_a], right[Layout::room_b];
    Sum sums[Layout::room_c];
    GS_MEMCPY_(left, a.x, sizeof(left));
    GS_MEMCPY_(right, b.x, sizeof(right));
    GS_UNROLL
    for (int e = 0; e < Layout::room_c; ++e) sums[e] = gs_detail::wide(Sum(), c.x[e]);
    Layout::accumulate(sums, left, right);
    GS_UNROLL
    for (int e = 0; e < Layout::room_c; ++e) gs_detail::narrow(sums[e], to.x[e]);
}

}  // namespace wmma
}  // namespace nvcuda

#endif
