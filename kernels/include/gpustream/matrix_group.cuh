// A product that groups of four warps sum up from tiles in shared memory, which the matrix cores of Hopper read themselves.
//
// The warps of `gs::BlockProduct` load factors into registers for each operation. Hopper's `wgmma` (`sm_90a`) takes its factors from
// shared memory instead, works beside the warps, and multiplies 64 rows by 256 columns at once. Only so do its matrix cores reach
// their full speed. Copy the tiles with `gs::copy_box` of `tensor_copy.cuh`, by a warp of its own, which runs ahead.
//
//     typedef gs::GroupProduct<gs::half, 128, 64> Product;   // 128 rows are two groups
//     Product product;                                       // all of the groups from here on
//     for (int step = 0; step < steps; ++step) {
//         full[stage].wait(phase);
//         product.multiply_add(stages[stage].a, stages[stage].b);
//         gs::wait_for_products<1>();                        // the product before this one is done, so its tiles are free
//         …
//     }
//     gs::wait_for_products<0>();
//     product.for_each_piece([&](int row, int column, const Product::Piece& sums) { … });
//
// Like `tensor_copy.cuh`, this exists only for `sm_90a`: write `#if defined(GS_TENSOR_COPIES)`.
//
// Include this file too, because `<gpustream/kernel.cuh>` does not.
#ifndef GPUSTREAM_MATRIX_GROUP_CUH
#define GPUSTREAM_MATRIX_GROUP_CUH

#include <gpustream/matrix.cuh>
#include <gpustream/tensor_copy.cuh>

#if defined(GS_TENSOR_COPIES)

namespace gs {

/// `gs::PanelTile<T, Lines, Width>` is a tile of `Lines` lines with `Width` elements of two bytes, in panels of 64 elements. A panel's
/// lines follow each other, and `panel(i)` is where panel `i` begins: one box of a tensor map.
/// Signature: struct gs::PanelTile
//
// As in gs::SharedTile, the pieces of eight lines change places. The TMA writes them so, and wgmma reads them so.
template <class T, int Lines, int Width>
struct alignas(1024) PanelTile {
    static_assert(sizeof(T) == 2 && Width % 64 == 0 && Lines % 8 == 0, "panels have 64 elements of two bytes, and 8 lines or more");
    static constexpr int lines = Lines, width = Width, panels = Width / 64;
    T at[Lines * Width];
    GS_INLINE T* panel(int i) { return at + i * (Lines * 64); }
};

// PTX ISA, "Matrix descriptor" of wgmma: where a tile begins, how many bytes it is to the next panel and to the next eight lines, and
// in how many bytes of a line the pieces change places.
template <int Exchanged>
GS_INLINE u64 described_tile(u32 first, u32 panel, u32 eight_lines) {
    static_assert(Exchanged == 32 || Exchanged == 64 || Exchanged == 128, "wgmma knows no other exchange");
    const u64 mode = Exchanged == 128 ? 1 : Exchanged == 64 ? 2 : 3;
    return (u64)(first >> 4 & 0x3fff) | (u64)(panel / 16) << 16 | (u64)(eight_lines / 16) << 32 | mode << 62;
}

// PTX ISA, "wgmma.mma_async": one operation for 64 rows and `Pieces * 16` columns. It takes the sums, the descriptions of both tiles, and
// if the depth runs across their lines. The sums lie as those of mma.sync do, in one piece after another.
template <class T, bool AcrossA, bool AcrossB, int Pieces>
struct GroupSums;
#define GS_PIECE_(i) "+f"(c[i].at[0]), "+f"(c[i].at[1]), "+f"(c[i].at[2]), "+f"(c[i].at[3]), \
    "+f"(c[i].at[4]), "+f"(c[i].at[5]), "+f"(c[i].at[6]), "+f"(c[i].at[7])
#define GS_PIECES_1_ GS_PIECE_(0)
#define GS_PIECES_2_ GS_PIECES_1_, GS_PIECE_(1)
#define GS_PIECES_4_ GS_PIECES_2_, GS_PIECE_(2), GS_PIECE_(3)
#define GS_PIECES_8_ GS_PIECES_4_, GS_PIECE_(4), GS_PIECE_(5), GS_PIECE_(6), GS_PIECE_(7)
#define GS_PIECES_16_ GS_PIECES_8_, GS_PIECE_(8), GS_PIECE_(9), GS_PIECE_(10), GS_PIECE_(11), GS_PIECE_(12), GS_PIECE_(13), \
    GS_PIECE_(14), GS_PIECE_(15)
#define GS_NAMES_1_ "%0, %1, %2, %3, %4, %5, %6, %7"
#define GS_NAMES_2_ GS_NAMES_1_ ", %8, %9, %10, %11, %12, %13, %14, %15"
#define GS_NAMES_4_ GS_NAMES_2_ ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GS_NAMES_8_ GS_NAMES_4_ ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GS_NAMES_16_ GS_NAMES_8_ ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define GS_GROUP_SUMS_(T, type, pieces, columns, a_at, b_at, a_across, b_across) \
    template <bool AcrossA, bool AcrossB> \
    struct GroupSums<T, AcrossA, AcrossB, pieces> { \
        static GS_INLINE void add(MatrixC<T>* c, u64 a, u64 b) { \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" GS_NAMES_##pieces##_ "}, " \
                         a_at ", " b_at ", 1, 1, 1, " a_across ", " b_across ";" \
                         : GS_PIECES_##pieces##_ : "l"(a), "l"(b), "n"((int)AcrossA), "n"((int)AcrossB)); \
        } \
    };
#define GS_GROUP_SUMS_OF_(T, type) \
    GS_GROUP_SUMS_(T, type, 1, "16", "%8", "%9", "%10", "%11") \
    GS_GROUP_SUMS_(T, type, 2, "32", "%16", "%17", "%18", "%19") \
    GS_GROUP_SUMS_(T, type, 4, "64", "%32", "%33", "%34", "%35") \
    GS_GROUP_SUMS_(T, type, 8, "128", "%64", "%65", "%66", "%67") \
    GS_GROUP_SUMS_(T, type, 16, "256", "%128", "%129", "%130", "%131")
GS_GROUP_SUMS_OF_(half, "f16")
GS_GROUP_SUMS_OF_(bfloat16, "bf16")
#undef GS_GROUP_SUMS_OF_
#undef GS_GROUP_SUMS_
#undef GS_NAMES_16_
#undef GS_NAMES_8_
#undef GS_NAMES_4_
#undef GS_NAMES_2_
#undef GS_NAMES_1_
#undef GS_PIECES_16_
#undef GS_PIECES_8_
#undef GS_PIECES_4_
#undef GS_PIECES_2_
#undef GS_PIECES_1_
#undef GS_PIECE_

/// Waits until at most the `Count` newest calls of `multiply_add` of this group are under way.
/// Threads: all of the group.
/// Signature: void gs::wait_for_products<Count>()
template <int Count>
GS_INLINE void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Count) : "memory");
}

/// Lets each thread of this group have `Count` registers from now on, a multiple of 8 from 24 to 240. A group gives some back with fewer
/// than the kernel began with, and another one waits until it can have more. Only kernels with `__launch_bounds__` may call this.
/// Threads: all of the group.
/// Signature: void gs::give_registers<Count>()
template <int Count>
GS_INLINE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

/// The same with more registers.
/// Threads: all of the group.
/// Signature: void gs::take_registers<Count>()
template <int Count>
GS_INLINE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/// `gs::GroupProduct<T, Rows, Depth, AByColumns, BByColumns>` is a product of `Rows` rows and 256 columns of `gs::half` or
/// `gs::bfloat16`, from tiles with a depth of `Depth`, a multiple of 64. Each four warps of the block, from the first one on, have 64
/// rows. `TileA` and `TileB` are the types of the tiles. Their lines are rows, or columns if the last two arguments say so, which are
/// `false` by default. A new product is zero.
/// Threads: the first `threads` of the block.
/// Signature: struct gs::GroupProduct

/// Begins to add the product of two tiles. It is done after `gs::wait_for_products`, and until then the tiles must stay as they are.
/// Threads: the first `threads` of the block.
/// Signature: void gs::GroupProduct::multiply_add(const TileA& a, const TileB& b)

/// Calls `visit(row, column, piece)` for all sums, eight neighbours of a row at a time: `piece.at[0]` to `piece.at[7]`. The products
/// must be done. You can store a piece as sixteen bytes, and four neighbouring threads have neighbouring pieces.
/// Threads: the first `threads` of the block.
/// Signature: void gs::GroupProduct::for_each_piece(visit)

template <class T, int Rows, int Depth, bool AByColumns = false, bool BByColumns = false>
struct GroupProduct {
    static constexpr int rows = Rows, columns = 256, depth = Depth, groups = Rows / 64, threads = groups * 128;
    static_assert(Rows % 64 == 0 && Depth % 64 == 0, "a group has 64 rows, and a panel a depth of 64");
    typedef PanelTile<T, AByColumns ? Depth : Rows, AByColumns ? Rows : Depth> TileA;
    typedef PanelTile<T, BByColumns ? columns : Depth, BByColumns ? Depth : columns> TileB;
    struct alignas(16) Piece {
        static constexpr int size = 8;
        float at[size];
    };
    // As in the fragments of mma.sync: lanes share rows in fours, and 8 columns are 4 sums.
    MatrixC<T> sums[columns / 16];

    GS_INLINE GroupProduct() {
        GS_UNROLL
        for (int i = 0; i < columns / 16; ++i) sums[i].fill(0);
    }

    GS_INLINE void multiply_add(const TileA& a, const TileB& b) {
        const u32 row = thread_in_block() / 128 * 64;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        GS_UNROLL
        for (int k = 0; k < Depth; k += 16) {
            GroupSums<T, AByColumns, !BByColumns, columns / 16>::add(sums, describe<TileA, AByColumns>(a, row, k),
                                                                     describe<TileB, !BByColumns>(b, 0, k));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }

    // What you do with a piece may be much code. So there are four copies of it, in a loop: with one for each piece, fetching the
    // instructions would take longer than running them. Registers have no index, so in each turn the sums move down.
    template <class Visit>
    GS_INLINE void for_each_piece(Visit visit) const {
        constexpr int at_once = 64;
        const int row = (int)warp_in_block() * 16 + (int)lane() / 4, own = (int)lane() % 4 * 8;
        float rest[columns / 2];
        GS_UNROLL
        for (int e = 0; e < columns / 2; ++e) rest[e] = sums[e / 8].at[e % 8];
#pragma unroll 1
        for (int first = 0; first < columns; first += at_once) {
            GS_UNROLL
            for (int h = 0; h < 2; ++h) {
                GS_UNROLL
                for (int c = 0; c < at_once; c += 32) {
                    // The four lanes of a row have two columns each of eight, four times. They exchange them so that each has eight.
                    float even[4], odd[4];
                    GS_UNROLL
                    for (int q = 0; q < 4; ++q) {
                        even[q] = rest[c / 2 + q * 4 + h * 2];
                        odd[q] = rest[c / 2 + q * 4 + h * 2 + 1];
                    }
                    transpose_in_lanes(even);
                    transpose_in_lanes(odd);
                    Piece piece;
                    GS_UNROLL
                    for (int q = 0; q < 4; ++q) {
                        piece.at[2 * q] = even[q];
                        piece.at[2 * q + 1] = odd[q];
                    }
                    visit(row + h * 8, first + c + own, piece);
                }
            }
            GS_UNROLL
            for (int e = 0; e < (columns - at_once) / 2; ++e) rest[e] = rest[e + at_once / 2];
        }
    }

private:
    // A panel's lines have 128 bytes. If the depth runs across them, a step is 16 lines.
    template <class Tile, bool Across>
    static GS_INLINE u64 describe(const Tile& tile, u32 line, int deep) {
        constexpr u32 panel = Tile::lines * 128;
        const u32 first = Across ? line / 64 * panel + deep * 128 : line * 128 + deep / 64 * panel + deep % 64 * 2;
        return described_tile<128>(in_shared(tile.at) + first, Across ? panel : 16, 1024);
    }

    // Transposes a matrix of four by four whose columns four lanes have.
    static GS_INLINE void transpose_in_lanes(float (&x)[4]) {
        GS_UNROLL
        for (int bit = 1; bit <= 2; bit *= 2) {
            const bool upper = lane() & bit;
            GS_UNROLL
            for (int i = 0; i < 4; ++i) {
                if (i & bit) continue;
                const float got = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + bit], bit);
                if (upper) {
                    x[i] = got;
                } else {
                    x[i + bit] = got;
                }
            }
        }
    }
};

}  // namespace gs
#endif

#endif
