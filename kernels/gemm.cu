// Products of matrices of 16-bit floats, c = f(alpha a b + beta c + bias), in strided batches of any shape and order of storage.
#define GS_SM_90A 1
#include "gemm.cuh"

#include <gpustream/async_copy.cuh>
#include <gpustream/matrix_block.cuh>
#include <gpustream/matrix_group.cuh>

namespace {

// Copies one operand's tiles to shared memory, step after step. The depth runs along a tile's lines, or across them. If `whole`,
// lines begin on boundaries of 16 bytes and have no part of a piece.
template <class Product, class Tile, bool across, bool whole>
struct TileCopies {
    typedef typename Tile::Memory Memory;
    // A thread copies the same piece of every `apart()`-th line, so it needs one address. `lines` and `width` are what the matrix has from
    // that piece on.
    const Memory* from;
    size_t leading;
    int line, column, lines, width;
    unsigned int alignment;

    static GS_INLINE int apart() { return (int)Product::threads() / Tile::pieces; }
    // How many pieces a thread copies.
    static GS_INLINE int parts() { return Tile::lines / apart(); }

    // The tile begins at line `first` of the matrix, or at column `first` of its lines if the depth runs across them.
    GS_INLINE TileCopies(const Memory* matrix, const Lines& place, unsigned int first, bool)
        : leading(place.leading), alignment((unsigned int)((size_t)matrix | place.leading * sizeof(Memory))) {
        const int thread = (int)gs::thread_in_block();
        line = thread / Tile::pieces;
        column = thread % Tile::pieces * Tile::piece;
        const unsigned int first_line = (across ? 0 : first) + line, first_column = (across ? first : 0) + column;
        from = matrix + first_line * leading + first_column;
        lines = (int)place.lines - (int)first_line;
        width = (int)place.width - (int)first_column;
    }

    // Begins to copy a piece. What lies outside of the matrix becomes 0.
    GS_INLINE void copy(Tile& tile, int part) const {
        const int l = part * apart();
        Memory* const to = tile.at + Tile::index(line + l, column);
        const Memory* const piece = from + l * leading;
        if (whole) {
            gs::copy_async_if<16>(l < lines && width > 0, to, piece);
            return;
        }
        const int valid = l >= lines || width < 0 ? 0 : width < Tile::piece ? width : Tile::piece;
        if (alignment % 16 == 0) {
            gs::copy_async<16>(to, piece, valid * (int)sizeof(Memory));
        } else if (sizeof(Memory) >= 4 || alignment % 4 == 0) {
            constexpr int in_word = sizeof(Memory) < 4 ? 4 / sizeof(Memory) : 1;
            GS_UNROLL
            for (int e = 0; e < Tile::piece; e += in_word) {
                const int left = valid < e ? 0 : valid - e < in_word ? valid - e : in_word;
                gs::copy_async<in_word * (int)sizeof(Memory)>(to + e, piece + e, left * (int)sizeof(Memory));
            }
        } else {
            gs::Pack<Memory> pack;
            GS_UNROLL
            for (int e = 0; e < Tile::piece; ++e) pack.at[e] = e < valid ? piece[e] : gs::bit_cast<Memory>(Zero{});
            gs::store_wide(to, pack);
        }
    }
    GS_INLINE void advance() {
        if (across) {
            from += Product::depth * leading;
            lines -= Product::depth;
        } else {
            from += Product::depth;
            width -= Product::depth;
        }
    }

private:
    struct Zero {
        unsigned char at[sizeof(Memory)] = {};
    };
};

// How blocks share the work: what a block multiplies, and in how many stages of tiles.
//
// Form 0 is for small matrices, because it gives more blocks, and for GPUs with little shared memory. On the CPU, where it only has
// to be right, it is smaller still. Form 1 is for large matrices on NVIDIA: a warp that multiplies 64 by 64 loads half as many
// factors per product as one that multiplies 32 by 32. On an H200, 4 stages are no faster than 3, and a depth of 32, tiles of 256
// by 128, or two blocks with 128 by 128 on a multiprocessor are slower by up to 5 %.
template <class T, int form, bool a_by_columns, bool b_by_columns>
struct Form {
    static constexpr int stages = 3, group = 8, depth = 64 / sizeof(T);
#if defined(GS_CPU)
    typedef gs::BlockProduct<T, 32, 32, depth, 1, 1, a_by_columns, b_by_columns> Product;
#else
    typedef gs::BlockProduct<T, 64, 64, depth, 2, 2, a_by_columns, b_by_columns> Product;
#endif
    typedef TileCopies<Product, typename Product::TileA, a_by_columns, false> CopiesA;
    typedef TileCopies<Product, typename Product::TileB, !b_by_columns, false> CopiesB;
};
template <class T, bool a_by_columns, bool b_by_columns>
struct Form<T, 1, a_by_columns, b_by_columns> {
    static constexpr int stages = 3, group = 8, depth = 128 / sizeof(T);
    typedef gs::BlockProduct<T, 128, 256, depth, 2, 4, a_by_columns, b_by_columns> Product;
    typedef TileCopies<Product, typename Product::TileA, a_by_columns, true> CopiesA;
    typedef TileCopies<Product, typename Product::TileB, !b_by_columns, true> CopiesB;
};

#if defined(GS_TENSOR_COPIES)
// The same on Hopper: two groups of four warps multiply, and a warp copies tiles ahead, also those of the next product while the
// sums of the last one are stored. Its group gives its registers to the others. On an H200, tiles of 128 by 128 and clusters of two
// blocks that share the tiles of b are no faster, and copies with cp.async are 20 % slower.
template <class T, bool a_by_columns, bool b_by_columns>
struct Tensor {
    typedef gs::GroupProduct<T, 128, 64, a_by_columns, b_by_columns> Product;
    struct Stage {
        typename Product::TileA a;
        typename Product::TileB b;
    };
    static constexpr int stages = 4, group = 8;
    // Of one block: what the other functions need.
    const Lines &of_a, &of_b, &of_c;
    unsigned int batch, down, across, steps;
    Stage* stage;
    gs::CopyBarrier *full, *empty;

    static GS_INLINE gs::TensorShape shape(const Lines& of, unsigned int batch) {
        return {of.width, of.lines, of.stride ? batch : 1, of.leading, of.stride};
    }

    // Calls `work(matrix, row, column)` for each tile of this block.
    template <class Work>
    GS_INLINE void for_each_tile(Work work) const {
        const size_t in_matrix = (size_t)down * across;
        for (size_t tile = blockIdx.x; tile < in_matrix * batch; tile += gridDim.x) {
            const size_t matrix = tile / in_matrix;
            const TilePlace place(tile - matrix * in_matrix, down, across, group);
            work((unsigned int)matrix, place.row * Product::rows, place.column * Product::columns);
        }
    }

    // Begins to copy one operand's tile. `first` is the tile's first row of a or column of b.
    template <bool runs_across, class Tile>
    static GS_INLINE void copy(Tile& tile, const void* map, unsigned int first, unsigned int deep, unsigned int matrix,
                               gs::CopyBarrier& barrier) {
        GS_UNROLL
        for (int p = 0; p < Tile::panels; ++p) {
            if (runs_across) {
                gs::copy_box(tile.panel(p), map, first + p * 64, deep, matrix, barrier);
            } else {
                gs::copy_box(tile.panel(p), map, deep + p * 64, first, matrix, barrier);
            }
        }
    }

    GS_INLINE void copy_all(const void* map_a, const void* map_b) const {
        unsigned int now = 0, phase = 1;
        for_each_tile([&](unsigned int matrix, unsigned int row, unsigned int column) {
            for (unsigned int step = 0; step < steps; ++step) {
                empty[now].wait(phase);
                full[now].expect(sizeof(Stage));
                const unsigned int deep = step * Product::depth;
                copy<a_by_columns>(stage[now].a, map_a, row, deep, of_a.stride ? matrix : 0, full[now]);
                copy<!b_by_columns>(stage[now].b, map_b, column, deep, of_b.stride ? matrix : 0, full[now]);
                if (++now == stages) {
                    now = 0;
                    phase ^= 1;
                }
            }
        });
    }

    GS_INLINE void multiply_all(const Results<T, float>& results) const {
        const bool speaks = gs::thread_in_block() % 128 == 0;  // for its group
        unsigned int now = 0, phase = 0;
        for_each_tile([&](unsigned int matrix, unsigned int row, unsigned int column) {
            Product product;
            unsigned int before = 0;
            for (unsigned int step = 0; step < steps; ++step) {
                full[now].wait(phase);
                product.multiply_add(stage[now].a, stage[now].b);
                gs::wait_for_products<1>();
                if (step > 0 && speaks) empty[before].arrive();
                before = now;
                if (++now == stages) {
                    now = 0;
                    phase ^= 1;
                }
            }
            gs::wait_for_products<0>();
            if (steps > 0 && speaks) empty[before].arrive();
            Results<T, float> own = results;
            own.to += matrix * own.place.stride;
            own.is_aligned = ((size_t)own.to | own.place.leading * sizeof(T)) % 16 == 0;
            product.for_each_piece([&](int r, int c, const typename Product::Piece& sums) { own.store(row + r, column + c, sums); });
        });
    }
};

template <class T, bool a_by_columns, bool b_by_columns>
GS_INLINE void multiply_by_tensors(void* shared, unsigned char* maps, const T* a, const T* b, const Results<T, float>& results,
                                   const Lines& of_a, const Lines& of_b, unsigned int batch) {
    typedef Tensor<T, a_by_columns, b_by_columns> Own;
    typedef typename Own::Product Product;
    __shared__ gs::CopyBarrier full[Own::stages], empty[Own::stages];
    __shared__ __align__(128) unsigned char map_room[2][128];
    // The tiles begin on a boundary of 1024 bytes, so that the places of their pieces follow from their addresses.
    typename Own::Stage* const stage = reinterpret_cast<typename Own::Stage*>(((size_t)shared + 1023) / 1024 * 1024);
    if (gs::thread_in_block() == 0) {
        for (int s = 0; s < Own::stages; ++s) {
            full[s].init(1);
            empty[s].init(Product::groups);
        }
        gs::publish_barriers();
    }
    __syncthreads();
    const unsigned int depth = a_by_columns ? of_a.lines : of_a.width;
    const Own own{of_a,
                  of_b,
                  results.place,
                  batch,
                  (results.place.lines + Product::rows - 1) / Product::rows,
                  (results.place.width + Product::columns - 1) / Product::columns,
                  (depth + Product::depth - 1) / Product::depth,
                  stage,
                  full,
                  empty};
    if (gs::thread_in_block() < Product::threads) {
        gs::take_registers<232>();
        own.multiply_all(results);
        return;
    }
    gs::give_registers<40>();
    if (gs::warp_in_block() > Product::threads / 32) return;
    unsigned char* const map = maps + blockIdx.x * (size_t)256;
    gs::make_tensor_map(map, map_room[0], a, Own::shape(of_a, batch), 64, Product::TileA::lines);
    gs::make_tensor_map(map + 128, map_room[1], b, Own::shape(of_b, batch), 64, Product::TileB::lines);
    if (gs::lane() == 0) own.copy_all(map, map + 128);
}
#endif

}  // namespace

/// c = f(alpha a b + beta c + bias) for `batch` products. The lines of c are rows. Those of a and b are rows too, or columns if
/// `a_by_columns` or `b_by_columns` is 1. `bias` has an element for each column. f is relu if `activation` is 1, gelu if it is 2,
/// and otherwise the identity. c is not read if beta is 0. A block has `room` bytes of shared memory. For form 1, the addresses,
/// widths and distances of a and b must be multiples of 16 bytes.
/// types: T = gs::half, gs::bfloat16, form = 0, 1, a_by_columns = 0, 1, b_by_columns = 0, 1
/// requires: (of_a.lines - 1) * of_a.leading + of_a.width + (batch - 1) * of_a.stride <= len(a),
///           (of_b.lines - 1) * of_b.leading + of_b.width + (batch - 1) * of_b.stride <= len(b),
///           (of_c.lines - 1) * of_c.leading + of_c.width + (batch - 1) * of_c.stride <= len(c),
///           of_a.lines <= 1000000000, of_a.width <= 1000000000, of_b.lines <= 1000000000, of_b.width <= 1000000000,
///           of_c.lines <= 1000000000, of_c.width <= 1000000000, of_c.width <= len(bias), room <= shared
/// optional: bias
template <class T, int form, int a_by_columns, int b_by_columns>
__global__ void __launch_bounds__(256) gemm(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, const T* __restrict__ bias,
                                            Lines of_a, Lines of_b, Lines of_c, unsigned int batch, float alpha, float beta,
                                            unsigned int activation, unsigned int room) {
    extern __shared__ __align__(128) unsigned char gemm_room[];
    typedef Form<T, form, a_by_columns != 0, b_by_columns != 0> Chosen;
    if (room < sizeof(Room<Chosen>)) return;
#if !defined(GS_CUDA) || defined(GS_TENSOR_COPIES)
    // AMD's GPUs have less shared memory and the CPU fewer registers, and Hopper has the kernel below.
    if constexpr (form == 1) return;
#endif
    const Results<T, float> results{c, bias, of_c, alpha, beta, activation, false};
    multiply<Chosen>(gs::shared_address(gemm_room), a, b, results, of_a, of_b, batch, a_by_columns != 0, b_by_columns == 0);
}

/// The same on Hopper, for matrices whose addresses and distances are multiples of 16 bytes, in blocks of 384 threads. A block has
/// `room` bytes of shared memory, and 256 bytes of `maps`. On other targets, the kernel does nothing and declares no shared memory.
/// types: T = gs::half, gs::bfloat16, a_by_columns = 0, 1, b_by_columns = 0, 1
/// requires: (of_a.lines - 1) * of_a.leading + of_a.width + (batch - 1) * of_a.stride <= len(a),
///           (of_b.lines - 1) * of_b.leading + of_b.width + (batch - 1) * of_b.stride <= len(b),
///           (of_c.lines - 1) * of_c.leading + of_c.width + (batch - 1) * of_c.stride <= len(c),
///           of_a.lines <= 1000000000, of_a.width <= 1000000000, of_b.lines <= 1000000000, of_b.width <= 1000000000,
///           of_c.lines <= 1000000000, of_c.width <= 1000000000, of_c.width <= len(bias), room <= shared, 256 * blocks <= len(maps)
/// optional: bias
template <class T, int a_by_columns, int b_by_columns>
__global__ void __launch_bounds__(384) gemm_by_tensors(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c,
                                                       const T* __restrict__ bias, Lines of_a, Lines of_b, Lines of_c,
                                                       unsigned int batch, float alpha, float beta, unsigned int activation,
                                                       unsigned int room, unsigned char* __restrict__ maps, unsigned int blocks) {
#if defined(GS_TENSOR_COPIES)
    extern __shared__ __align__(128) unsigned char gemm_room[];
    typedef Tensor<T, a_by_columns != 0, b_by_columns != 0> Chosen;
    if (room < Chosen::stages * sizeof(typename Chosen::Stage) + 1024 || gridDim.x > blocks || gs::threads_in_block() != 384) return;
    const Results<T, float> results{c, bias, of_c, alpha, beta, activation, false};
    multiply_by_tensors<T, a_by_columns != 0, b_by_columns != 0>(gemm_room, maps, a, b, results, of_a, of_b, batch);
#endif
}

/// The products of a group, with the small form. All are stored in this order.
/// types: T = gs::half, gs::bfloat16, a_by_columns = 0, 1, b_by_columns = 0, 1
template <class T, int a_by_columns, int b_by_columns>
__global__ void __launch_bounds__(group_threads) gemm_group(const Group group, unsigned int room) {
    extern __shared__ __align__(128) unsigned char gemm_room[];
    typedef Form<T, 0, a_by_columns != 0, b_by_columns != 0> Chosen;
    if (room < sizeof(Room<Chosen>)) return;
    multiply_group<Chosen, T>(gs::shared_address(gemm_room), group);
}
