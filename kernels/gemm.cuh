// All kernels that multiply matrices use this: it says where the matrices are, gives each block its tiles, and stores the sums.
#ifndef GPUSTREAM_KERNELS_GEMM_CUH
#define GPUSTREAM_KERNELS_GEMM_CUH

#include <gpustream/kernel.cuh>

/// Where equal matrices are: element `e` of line `l` of matrix `i` is at `i * stride + l * leading + e`. Lines are rows or columns.
struct Lines {
    unsigned int lines, width;
    size_t leading, stride;
};

namespace {

// A block's shared memory: the stages, and in the end the sums.
template <class Form>
union Room {
    struct Stage {
        typename Form::Product::TileA a;
        typename Form::Product::TileB b;
    };
    Stage stages[Form::stages];
    typename Form::Product::Sum sums[Form::Product::scratch];
};

constexpr unsigned int relu = 1, gelu = 2;

GS_INLINE float by_gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
GS_INLINE double by_gelu(double x) { return 0.5 * x * (1.0 + erf(x * 0.70710678118654752)); }
GS_INLINE int32_t by_gelu(int32_t x) { return x; }

// NaN stays NaN.
template <class Sum>
GS_INLINE Sum activated(Sum x, unsigned int activation) {
    if (activation == gelu) return by_gelu(x);
    return activation == relu && x < Sum(0) ? Sum(0) : x;
}

// Returns `a * b + c`. Integers wrap around.
GS_INLINE float scaled(float a, float b, float c) { return a * b + c; }
GS_INLINE double scaled(double a, double b, double c) { return a * b + c; }
GS_INLINE int32_t scaled(int32_t a, int32_t b, int32_t c) {
    return (int32_t)((uint32_t)a * (uint32_t)b + (uint32_t)c);
}

// Elements of the result as sums, and sums as elements.
template <class Out>
GS_INLINE auto to_sum(Out x) { return gs::to_float(x); }
GS_INLINE int32_t to_sum(int32_t x) { return x; }
GS_INLINE int32_t to_sum(int8_t x) { return x; }
template <class Out, class Sum>
GS_INLINE Out of_sum(Sum x) {
    if constexpr (sizeof(Out) == sizeof(Sum)) {
        return x;
    } else {
        return gs::from_float<Out>(x);
    }
}

// Scales and activates the sums, and stores them.
template <class Out, class Sum>
struct Results {
    Out* to;
    const Out* bias;
    Lines place;
    Sum alpha, beta;
    unsigned int activation;
    bool is_aligned;

    template <class Piece>
    GS_INLINE void store(unsigned int row, unsigned int column, const Piece& sums) const {
        if (row >= place.lines || column >= place.width) return;
        Out* const first = to + row * place.leading + column;
        const int count = (int)gs::smaller(place.width - column, Piece::size);
        struct alignas(16) Whole {
            Out at[Piece::size];
        } whole;
        const bool is_whole = is_aligned && count == Piece::size;
        if (beta != 0) {
            if (is_whole) {
                whole = *reinterpret_cast<const Whole*>(first);
            } else {
                GS_UNROLL
                for (int e = 0; e < Piece::size; ++e) whole.at[e] = first[e < count ? e : 0];
            }
        }
        GS_UNROLL
        for (int e = 0; e < Piece::size; ++e) {
            Sum result = scaled(alpha, sums.at[e], Sum(0));
            if (beta != 0) result = scaled(beta, to_sum(whole.at[e]), result);
            if (bias) result = scaled(Sum(1), to_sum(bias[e < count ? column + e : column]), result);
            whole.at[e] = of_sum<Out>(activated(result, activation));
        }
        if (is_whole) {
            *reinterpret_cast<Whole*>(first) = whole;
        } else {
            GS_UNROLL
            for (int e = 0; e < Piece::size; ++e) {
                if (e < count) first[e] = whole.at[e];
            }
        }
    }
};

// Blocks that run at the same time should need the same rows and columns, so that these come from the L2 cache. So tiles are
// numbered in groups of a few rows: down first, then across, and then in the next group.
struct TilePlace {
    unsigned int row, column;
    GS_INLINE TilePlace(size_t tile, unsigned int down, unsigned int across, unsigned int group) {
        const unsigned int first = (unsigned int)(tile / (group * (size_t)across)) * group;
        const unsigned int in_group = (unsigned int)(tile - first * (size_t)across);
        const unsigned int rows = down - first < group ? down - first : group;
        row = first + in_group % rows;
        column = in_group / rows;
    }
};

// Multiplies with one block's threads. `across_a` and `across_b` say that the depth runs across the lines.
template <class Form, class Memory, class Out, class Sum>
GS_INLINE void multiply(void* shared, const Memory* a, const Memory* b, const Results<Out, Sum>& results, const Lines& of_a,
                        const Lines& of_b, unsigned int batch, bool across_a, bool across_b) {
    typedef typename Form::Product Product;
    // In a smaller block, parts of the tiles would have no thread, and in a larger one, threads no part.
    if (gs::threads_in_block() != Product::threads()) return;
    Room<Form>& room = *reinterpret_cast<Room<Form>*>(shared);
    const unsigned int depth = across_a ? of_a.lines : of_a.width;
    const int steps = (int)((depth + Product::depth - 1) / Product::depth);
    const unsigned int down = (results.place.lines + Product::rows - 1) / Product::rows;
    const unsigned int across = (results.place.width + Product::columns - 1) / Product::columns;
    const size_t in_matrix = (size_t)down * across;
    GS_FOR_EACH_TILE(tile, in_matrix * batch) {
        const size_t matrix = tile / in_matrix;
        const TilePlace place(tile - matrix * in_matrix, down, across, Form::group);
        const unsigned int row = place.row * Product::rows, column = place.column * Product::columns;
        typename Form::CopiesA copies_a(a + matrix * of_a.stride, of_a, row, across_a);
        typename Form::CopiesB copies_b(b + matrix * of_b.stride, of_b, column, across_b);
        const int parts_a = copies_a.parts(), parts = parts_a + copies_b.parts();
        Product product;
        product.template multiply_add<Form::stages>(steps, room.stages, parts, [&](typename Room<Form>::Stage& stage, int part) {
            if (part < parts_a) {
                copies_a.copy(stage.a, part);
            } else {
                copies_b.copy(stage.b, part - parts_a);
            }
            if (part == parts - 1) {
                copies_a.advance();
                copies_b.advance();
            }
        });
        Results<Out, Sum> own = results;
        own.to += matrix * own.place.stride;
        own.is_aligned = ((size_t)own.to | own.place.leading * sizeof(Out)) % 16 == 0;
        __syncthreads();
        product.for_each_piece(room.sums, [&](int r, int c, const typename Product::Piece& sums) {
            own.store(row + r, column + c, sums);
        });
        __syncthreads();
    }
}

}  // namespace

#endif
