// All kernels that multiply matrices use this: it says where the matrices are, gives each block its tiles, and stores the sums.
#ifndef GPUSTREAM_KERNELS_GEMM_CUH
#define GPUSTREAM_KERNELS_GEMM_CUH

#include <gpustream/kernel.cuh>

/// Where equal matrices are: element `e` of line `l` of matrix `i` is at `i * stride + l * leading + e`. Lines are rows or columns.
struct Lines {
    unsigned int lines, width;
    size_t leading, stride;
};

/// One product of a group, with the addresses of its matrices. `bias` is 0 if there is none. `first` is the number of its first tile.
struct Part {
    size_t a, b, c, bias;
    Lines of_a, of_b, of_c;
    size_t first;
    float alpha, beta;
    unsigned int batch, activation, a_by_columns, b_by_columns;
};

/// The products of one launch, with `tiles` tiles together. All parameters of a kernel have at most 4096 bytes.
struct Group {
    Part parts[28];
    unsigned int count;
    size_t tiles;
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

// The tiles of a product.
template <class Product>
struct Tiles {
    unsigned int down, across;
    GS_INLINE explicit Tiles(const Lines& of_c)
        : down((of_c.lines + Product::rows - 1) / Product::rows), across((of_c.width + Product::columns - 1) / Product::columns) {}
    GS_INLINE size_t in_matrix() const { return (size_t)down * across; }
};

// Computes one tile with one block's threads. `across_a` and `across_b` say that the depth runs across the lines.
template <class Form, class Memory, class Out, class Sum>
GS_INLINE void multiply_tile(Room<Form>& room, const Memory* a, const Memory* b, const Results<Out, Sum>& results, const Lines& of_a,
                             const Lines& of_b, bool across_a, bool across_b, const Tiles<typename Form::Product>& tiles, size_t tile) {
    typedef typename Form::Product Product;
    const unsigned int depth = across_a ? of_a.lines : of_a.width;
    const int steps = (int)((depth + Product::depth - 1) / Product::depth);
    const size_t matrix = tile / tiles.in_matrix();
    const TilePlace place(tile - matrix * tiles.in_matrix(), tiles.down, tiles.across, Form::group);
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

// Computes the tiles of a product with one block's threads.
template <class Form, class Memory, class Out, class Sum>
GS_INLINE void multiply(void* shared, const Memory* a, const Memory* b, const Results<Out, Sum>& results, const Lines& of_a,
                        const Lines& of_b, unsigned int batch, bool across_a, bool across_b) {
    typedef typename Form::Product Product;
    // In a smaller block, parts of the tiles would have no thread, and in a larger one, threads no part.
    if (gs::threads_in_block() != Product::threads()) return;
    Room<Form>& room = *reinterpret_cast<Room<Form>*>(shared);
    const Tiles<Product> tiles(results.place);
    GS_FOR_EACH_TILE(tile, tiles.in_matrix() * batch) {
        multiply_tile<Form>(room, a, b, results, of_a, of_b, across_a, across_b, tiles, tile);
    }
}

// A group's blocks have four warps. If they could have more threads, the compiler would give each fewer registers.
#if defined(GS_CUDA)
constexpr unsigned int group_threads = 128;
#else
constexpr unsigned int group_threads = 256;
#endif

// Computes the tiles of a group.
template <class Form, class T>
GS_INLINE void multiply_group(void* shared, const Group& group) {
    typedef typename Form::Product Product;
    if (gs::threads_in_block() != Product::threads()) return;
    Room<Form>& room = *reinterpret_cast<Room<Form>*>(shared);
    unsigned int at = 0;
    GS_FOR_EACH_TILE(tile, group.tiles) {
        // A block's tiles have rising numbers.
        while (at + 1 < group.count && group.parts[at + 1].first <= tile) ++at;
        const Part& part = group.parts[at];
        const Results<T, float> results{reinterpret_cast<T*>(part.c), reinterpret_cast<const T*>(part.bias), part.of_c,
                                        part.alpha,                   part.beta,                             part.activation,
                                        false};
        multiply_tile<Form>(room, reinterpret_cast<const T*>(part.a), reinterpret_cast<const T*>(part.b), results, part.of_a,
                            part.of_b, part.a_by_columns != 0, part.b_by_columns == 0, Tiles<Product>(part.of_c), tile - part.first);
    }
}

}  // namespace

#endif
