// Loops over arrays with sixteen-byte accesses. They are right at any alignment and length.
//
// With one element per thread you lose a quarter of the memory bandwidth on an H200, because not enough bytes are in
// flight. So these loops load and store 16-byte packs, a few per thread at once. They can do so if all arrays reach a
// 16-byte boundary at the same element; then they access only the elements before the first boundary and after the last
// one by one. If not, they access all elements one by one. On the CPU they are plain loops, which the compiler
// vectorises.
#ifndef GPUSTREAM_WIDE_CUH
#define GPUSTREAM_WIDE_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>

namespace gs {

/// Returns how many elements sixteen bytes hold. The types must have the same size, which divides 16.
/// Threads: any.
template <class T, class... Rest>
GS_INLINE constexpr int pack_size() {
    static_assert(16 % sizeof(T) == 0, "a pack holds a whole number of elements");
    static_assert(((sizeof(Rest) == sizeof(T)) && ... && true), "wide loops take elements of one size");
    return 16 / sizeof(T);
}

/// Elements that you load or store together, in the array `at`.
template <class T, int Size = pack_size<T>()>
struct alignas(16) Pack {
    T at[Size];
};

/// Load and store sixteen bytes at once. `address` must be on a 16-byte boundary.
/// Threads: any.
template <class T>
GS_INLINE Pack<T> load_wide(const T* address) {
    return *reinterpret_cast<const Pack<T>*>(address);
}
template <class T>
GS_INLINE void store_wide(T* address, const Pack<T>& pack) {
    *reinterpret_cast<Pack<T>*>(address) = pack;
}

/// Returns how many elements there are from `address` to the next 16-byte boundary: fewer than a pack. The array must be
/// aligned to its elements. Only the first array counts.
/// Threads: any.
template <class T, class... Rest>
GS_INLINE size_t to_boundary(const T* address, Rest...) {
    return (0 - (size_t)address) % 16 / sizeof(T);
}

/// Returns true if all addresses are on 16-byte boundaries.
/// Threads: any.
GS_INLINE bool on_boundary() { return true; }
template <class... Rest>
GS_INLINE bool on_boundary(const void* first, Rest... rest) {
    return (size_t)first % 16 == 0 && on_boundary(rest...);
}

#if !defined(GS_SERIAL)

// Returns f of each lane.
template <class Out, int Size, class F, class... In>
GS_INLINE Pack<Out, Size> map_pack(F f, const Pack<In, Size>&... in) {
    Pack<Out, Size> out;
    GS_UNROLL
    for (int lane = 0; lane < Size; ++lane) out.at[lane] = f(in.at[lane]...);
    return out;
}

// Shares 0..n among the grid's threads. Calls packs(c, i, stride) for c packs of `Lanes` elements that begin at i, i +
// stride, ..., and singles(c, i, stride) for c elements at i, i + stride, .... The first pack begins at element `head`;
// without `aligned` there are no packs. c is `Batch` or 1, and a constant once inlined. It cannot be a template
// parameter, because NVRTC refuses generic lambdas.
template <int Batch, int Lanes, class Packs, class Singles>
GS_INLINE void walk_wide(size_t n, size_t head, bool aligned, Packs packs, Singles singles) {
    const size_t thread = thread_in_grid(), threads = threads_in_grid();
    if (!aligned) {
        size_t i = thread;
        for (; i < n && n - i > (Batch - 1) * threads; i += Batch * threads) singles(Batch, i, threads);
        for (; i < n; i += threads) singles(1, i, 0);
        return;
    }
    head = smaller(head, n);
    const size_t whole = (n - head) / Lanes;
    size_t p = thread;
    for (; p < whole && whole - p > (Batch - 1) * threads; p += Batch * threads)
        packs(Batch, head + p * Lanes, threads * Lanes);
    for (; p < whole; p += threads) packs(1, head + p * Lanes, 0);
    // The elements before the first pack and after the last.
    const size_t rest = n - whole * Lanes;
    for (size_t r = thread; r < rest; r += threads) singles(1, r < head ? r : whole * Lanes + r, 0);
}

#endif

// The function behind GS_FOR_EACH_WIDE.
template <class F, class Out, class... In>
GS_INLINE void for_each_wide(size_t n, Out* out, F f, const In*... in) {
#if defined(GS_SERIAL)
    GS_FOR_EACH(i, n) out[i] = f(in[i]...);
#else
    constexpr int lanes = pack_size<Out, In...>();
    // How many packs are under way at once: enough to cover the memory's latency, few enough that all threads
    // stay resident.
    constexpr int batch = sizeof...(In) > 2 ? 1 : sizeof...(In) == 2 ? 2 : 4;
    const size_t head = to_boundary(out);
    walk_wide<batch, lanes>(
        n, head, on_boundary((const void*)(in + head)...),
        [=](int c, size_t i, size_t stride) {
            Pack<Out> result[batch];
            // All loads come before the first store, because the compiler must not move a load over a
            // store.
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b)
                result[b] = map_pack<Out, lanes>(f, load_wide(in + i + b * stride)...);
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) store_wide(out + i + b * stride, result[b]);
        },
        [=](int c, size_t i, size_t stride) {
            Out result[batch];
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) result[b] = f(in[i + b * stride]...);
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) out[i + b * stride] = result[b];
        });
#endif
}

/// Combines `map(in[i]...)` over this thread's share of `0..n`, starting from `identity`; the grid's threads share
/// `0..n`. Pass each thread's result to `gs::block_reduce` to combine a block's. `combine` must be associative and
/// commutative up to rounding. The order depends only on the launch shape, the arrays' alignment and `n`, so if you
/// repeat a launch you get the same bits.
/// Threads: all of the grid. The shares of threads that do not come here are missing in the result.
template <class Acc, class Combine, class Map, class... In>
GS_INLINE Acc fold_wide(size_t n, Acc identity, Combine combine, Map map, const In*... in) {
    // With independent accumulators there is no chain of dependent additions, and on the CPU they
    // become vectors.
#if defined(GS_SERIAL)
    constexpr int lanes = 128 / sizeof(Acc);
    Acc acc[lanes];
    for (int lane = 0; lane < lanes; ++lane) acc[lane] = identity;
    const size_t end = grid_end(n);
    size_t i = grid_begin(n);
    for (; end - i >= lanes; i += lanes) {
        for (int lane = 0; lane < lanes; ++lane) acc[lane] = combine(acc[lane], (Acc)map(in[i + lane]...));
    }
    for (; i < end; ++i) acc[0] = combine(acc[0], (Acc)map(in[i]...));
#else
    constexpr int lanes = pack_size<In...>();
    constexpr int batch = sizeof...(In) > 1 ? 2 : 4;
    Acc acc[lanes];
    GS_UNROLL
    for (int lane = 0; lane < lanes; ++lane) acc[lane] = identity;
    const size_t head = to_boundary(in...);
    walk_wide<batch, lanes>(
        n, head, on_boundary((const void*)(in + head)...),
        [&](int c, size_t i, size_t stride) {
            Pack<Acc, lanes> mapped[batch];
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b)
                mapped[b] = map_pack<Acc, lanes>(map, load_wide(in + i + b * stride)...);
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) {
                GS_UNROLL
                for (int lane = 0; lane < lanes; ++lane) acc[lane] = combine(acc[lane], mapped[b].at[lane]);
            }
        },
        [&](int c, size_t i, size_t stride) {
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b)
                acc[b % lanes] = combine(acc[b % lanes], (Acc)map(in[i + b * stride]...));
        });
#endif
    GS_UNROLL
    for (int width = lanes / 2; width > 0; width /= 2) {
        GS_UNROLL
        for (int lane = 0; lane < width; ++lane) acc[lane] = combine(acc[lane], acc[lane + width]);
    }
    return acc[0];
}

// Shares 0..n among the grid's threads, and calls visit(pack) for packs of one element or more. `Visit` is a struct with a
// template, because NVRTC refuses generic lambdas.
template <class In, class Visit>
GS_INLINE void visit_packs(size_t n, const In* in, const Visit& visit) {
#if defined(GS_SERIAL)
    GS_FOR_EACH(i, n) visit(Pack<In, 1>{{in[i]}});
#else
    constexpr int lanes = pack_size<In>(), batch = 2;
    walk_wide<batch, lanes>(
        n, to_boundary(in), true,
        [&](int c, size_t i, size_t stride) {
            Pack<In> loaded[batch];
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) loaded[b] = load_wide(in + i + b * stride);
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) visit(loaded[b]);
        },
        [&](int c, size_t i, size_t stride) {
            GS_UNROLL
            for (int b = 0; b < batch && b < c; ++b) visit(Pack<In, 1>{{in[i + b * stride]}});
        });
#endif
}

// The function behind GS_FOR_EACH_WIDE_IN.
template <class Visit>
struct EachLane {
    const Visit& visit;
    template <class In, int Size>
    GS_INLINE void operator()(const Pack<In, Size>& pack) const {
        GS_UNROLL
        for (int lane = 0; lane < Size; ++lane) visit(pack.at[lane]);
    }
};
template <class Visit, class In>
GS_INLINE void visit_wide(size_t n, const In* in, Visit visit) {
    visit_packs(n, in, EachLane<Visit>{visit});
}

}  // namespace gs

/// Sets `out[i] = f(in[i]...)` for each `i` of `0..n`, over all threads of the grid. An input can be `out` itself, but
/// must not overlap `out` in another way. All arrays must have elements with the same size.
///
///     GS_FOR_EACH_WIDE(n, y, [=](float x, float y) { return a * x + y; }, x, y);
///
/// Threads: all of the grid. Elements of threads that do not come here are not set.
/// Signature: GS_FOR_EACH_WIDE(n, out, f, in...)
#define GS_FOR_EACH_WIDE(...) ::gs::for_each_wide(__VA_ARGS__)

/// Calls `visit(in[i])` for each `i` of `0..n`, over all threads of the grid.
/// Threads: all of the grid. Elements of threads that do not come here are not visited.
/// Signature: GS_FOR_EACH_WIDE_IN(n, in, visit)
#define GS_FOR_EACH_WIDE_IN(...) ::gs::visit_wide(__VA_ARGS__)

#endif
