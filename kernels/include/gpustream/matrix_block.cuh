// All warps of a block multiply tiles in shared memory. You build your own product from this.
//
// You say how large the tiles are, bring them to shared memory in your way, and do with the sums what you like:
//
//     // 64 rows, 64 columns, a depth of 32 in each step; the warps stand in two rows and two columns.
//     typedef gs::BlockProduct<gs::half, 64, 64, 32, 2, 2> Product;
//     __shared__ Product::TileA a;
//     __shared__ Product::TileB b;
//     __shared__ float scratch[Product::scratch];
//     Product product;
//     for (int step = 0; step < steps; ++step) {
//         GS_FOR_EACH_IN_BLOCK(i, 64 * 32) a.set(i / 32, i % 32, x[i / 32 * stride + step * 32 + i % 32]);
//         GS_FOR_EACH_IN_BLOCK(i, 32 * 64) b.set(i / 64, i % 64, y[(step * 32 + i / 64) * 64 + i % 64]);
//         __syncthreads();
//         product.multiply_add(a, b);
//         __syncthreads();
//     }
//     product.for_each_piece(scratch, [&](int row, int column, const Product::Piece& sums) {
//         for (int i = 0; i < sums.size; ++i) out[row * 64 + column + i] = sums.at[i];
//     });
//
// The block must have `Product::threads()` threads. To copy the next tiles while the block multiplies, use `gs::pipeline` of
// `async_copy.cuh`.
//
// Include this file too, because `<gpustream/kernel.cuh>` does not.
#ifndef GPUSTREAM_MATRIX_BLOCK_CUH
#define GPUSTREAM_MATRIX_BLOCK_CUH

#include <gpustream/async_copy.cuh>
#include <gpustream/matrix.cuh>
#include <gpustream/matrix_group.cuh>

namespace gs {

/// `gs::SharedTile<T, Lines, Width>` is a tile of `Lines` lines with `Width` elements each, in shared memory. A line is a row or a
/// column. Element `(line, column)` is `at[index(line, column)]`, and `set(line, column, value)` sets it. Sixteen bytes whose column
/// is a multiple of `piece` elements lie together, so you can copy them at once. `Width` must be a power of two, and a line has at
/// least 32 bytes.
/// Signature: struct gs::SharedTile
//
// A warp loads eight lines at once, sixteen bytes of each. If they lay below each other, all would be in the same banks. So we
// exchange the pieces of a line: those of eight neighbouring lines then lie in all banks. Without `Exchanged` they stay as they
// are, which suits a warp that reads along one line.
template <class T, int Lines, int Width, bool Exchanged = true, int Boundary = 128>
struct alignas(Boundary) SharedTile {
    typedef typename MatrixMemory<T>::Type Memory;
    static constexpr int lines = Lines, width = Width;
    static constexpr int piece = 16 / (int)sizeof(Memory), pieces = Width / piece;
    static_assert(pieces >= 2 && (pieces & (pieces - 1)) == 0, "a line has a power of two of bytes, and at least 32");
    // How many lines lie in the 128 bytes of all banks, and how many pieces of a line change places.
    static constexpr int together = pieces < 8 ? 8 / pieces : 1, exchanged = !Exchanged ? 1 : pieces < 8 ? pieces : 8;
    Memory at[Lines * Width];

    // Without ldmatrix, 16 lanes load doubles at once: two pieces of each of four lines.
    static GS_INLINE u32 exchange(u32 line) { return line / together * (sizeof(Memory) == 8 ? 2 : 1) % exchanged; }
    static GS_INLINE int index(u32 line, u32 column) {
        return (int)(line * Width + (column / piece ^ exchange(line)) * piece + column % piece);
    }
    GS_INLINE void set(int line, int column, Memory value) { at[index(line, column)] = value; }
};

// ldmatrix moves sixteen bytes of a line to four lanes. With .trans it deals elements of two bytes out down the lines.
#if defined(GS_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GS_LDMATRIX_ 1
template <class T, bool Across>
constexpr bool by_matrices = Across ? sizeof(T) == 2 : sizeof(T) <= 4;
#else
template <class T, bool Across>
constexpr bool by_matrices = false;
#endif

// Loads the factors of one operation. `IsA` says which one M is. If `Across` is false, the depth runs along the tile's lines, which
// are rows of A or columns of B. If it is true, each line has the elements of one depth.
template <class M, class Tile, bool IsA, bool Across>
struct TileReader {
    typedef typename M::Element T;
    static constexpr int depth = M::Layout::depth;
#if defined(GS_LDMATRIX_)
    // Where this lane's line is in the tile, in bytes. Operations are 32 bytes of a line or 16 lines apart. The first changes bits
    // that the lane's own place leaves zero, so an exclusive or adds it, and commutes with the exchange.
    u32 place;
    GS_INLINE TileReader(int first) {
        const u32 l = lane();
        const bool is_deep = IsA != Across;
        const u32 line = (is_deep ? l % 16 : l / 16 * 8 + l % 8) + (Across ? 0 : first);
        const u32 piece = (is_deep ? l / 16 : l / 8 % 2) + (Across ? first / Tile::piece : 0);
        place = (line * Tile::pieces + (piece ^ Tile::exchange(line))) * 16;
        origin = first;
    }
#else
    GS_INLINE TileReader(int first) : origin(first) {}
#endif
    int origin;

    // Loads number `number` of the warp's matrices, at a depth of `step` operations.
    GS_INLINE void load(M& matrix, const Tile& tile, int number, int step) const {
#if defined(GS_LDMATRIX_)
        if constexpr (by_matrices<T, Across>) {
            constexpr u32 line = Tile::pieces * 16;
            const u32 from = (u32)__cvta_generic_to_shared(tile.at) + (place ^ (u32)(Across ? number : step) * 32) +
                             (u32)(Across ? step : number) * 16 * line;
            u32 words[4];
            if constexpr (Across) {
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                             : "r"(from)
                             : "memory");
            } else {
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                             : "r"(from)
                             : "memory");
            }
            typename MatrixMemory<T>::Type loaded[16 / sizeof(T)];
            GS_MEMCPY_(loaded, words, 16);
            GS_UNROLL
            for (int e = 0; e < M::size(); ++e) matrix.at[e] = MatrixMemory<T>::load(loaded[e]);
            return;
        }
#endif
        const int first = origin + number * 16, deep = step * depth;
        if constexpr (Across) {
            load_each(matrix, tile.at, [=](int e) { return Tile::index(deep + deep_of(e), first + line_of(e)); });
        } else {
            load_runs(matrix, tile.at, [=](int e) { return Tile::index(first + line_of(e), deep + deep_of(e)); });
        }
    }

private:
    static GS_INLINE int line_of(int e) {
        if constexpr (IsA) {
            return M::row(e);
        } else {
            return M::column(e);
        }
    }
    static GS_INLINE int deep_of(int e) {
        if constexpr (IsA) {
            return M::column(e);
        } else {
            return M::row(e);
        }
    }
};
#undef GS_LDMATRIX_

/// `gs::BlockProduct<T, Rows, Columns, Depth, Down, Across, AByColumns, BByColumns>` is a product of `Rows` rows and `Columns` columns
/// that the warps of a block sum up, from tiles with a depth of `Depth`. The warps stand in `Down` rows and `Across` columns, and each
/// has a part of 16, 32, 64 or 128 rows and columns. `Depth` is a multiple of `gs::MatrixA<T>::columns`. `TileA` and `TileB` are the
/// types of the tiles. Their lines are rows, or columns if the last two arguments say so, which are `false` by default. A block must
/// have `threads()` threads. A new product is zero.
///
/// On `sm_90a`, the matrix cores read the tiles themselves (`wgmma`) if they can: for `gs::half` and `gs::bfloat16`, if `Across` is 1,
/// each of 4, 8, … warps has 16 rows, and the lines of both tiles have 16, 32 or 64 elements. The tiles then begin on a boundary of
/// 1024 bytes.
/// Threads: all of the block.
/// Signature: struct gs::BlockProduct

/// Adds the product of two tiles. Write `__syncthreads()` between filling the tiles and this call, and again before you change them.
/// Threads: all of the block.
/// Signature: void gs::BlockProduct::multiply_add(const TileA& a, const TileB& b)

/// Adds the products of `count` pairs of tiles, which are copied while the block multiplies. There are `Stages` stages in shared
/// memory, each with tiles `a` and `b`. `fill(stage, part)` begins to copy one of the `parts` parts of the next pair, in order. If a
/// part is one copy of a thread, it fits between the operations. After the last pair, `fill` is called for `Stages - 1` more,
/// which are not used. When the function returns, other threads may still read the stages.
/// Threads: all of the block, with the same numbers.
/// Shared memory: `stages`.
/// Signature: void gs::BlockProduct::multiply_add<Stages>(int count, Stage* stages, int parts, fill)

/// Calls `visit(row, column, piece)` for all sums, eight neighbours of a row at a time: `piece.at[0]` to `piece.at[7]`. Neighbouring
/// threads have neighbouring pieces, so you can store them sixteen bytes at a time. They go through `memory`, which has room
/// for `scratch` sums. It may be the memory of the tiles, after `__syncthreads()`.
/// Threads: all of the block.
/// Shared memory: `memory`, on a boundary of 16 bytes.
/// Signature: void gs::BlockProduct::for_each_piece(Sum* memory, visit)

// If wgmma can read the tiles. A line has as many bytes as it exchanges pieces in.
template <int Width>
constexpr bool is_panel = Width == 16 || Width == 32 || Width == 64;
#if defined(GS_TENSOR_COPIES)
template <class T, int RowsOfWarp, int Down, int Across, int WidthOfA, int WidthOfB>
constexpr bool by_groups =
    sizeof(T) == 2 && RowsOfWarp == 16 && Down % 4 == 0 && Across == 1 && is_panel<WidthOfA> && is_panel<WidthOfB>;
#else
template <class T, int RowsOfWarp, int Down, int Across, int WidthOfA, int WidthOfB>
constexpr bool by_groups = false;
#endif

template <class T, int Rows, int Columns, int Depth, int Down, int Across, bool AByColumns = false, bool BByColumns = false>
struct BlockProduct {
    typedef typename MatrixType<T>::Sum Sum;
    static constexpr int rows = Rows, columns = Columns, depth = Depth, warps = Down * Across;
    static constexpr int warp_rows = Rows / Down, warp_columns = Columns / Across;
    static constexpr int down = warp_rows / 16, across = warp_columns / 16, steps = Depth / MatrixA<T>::columns;
    static_assert(Rows % Down == 0 && Columns % Across == 0 && warp_rows % 16 == 0 && warp_columns % 16 == 0 &&
                      (warp_rows & (warp_rows - 1)) == 0 && (warp_columns & (warp_columns - 1)) == 0,
                  "each warp has 16, 32, 64 or 128 rows and columns");
    static_assert(Depth % MatrixA<T>::columns == 0, "a step is a whole number of operations");

    static constexpr int width_a = AByColumns ? Rows : Depth, width_b = BByColumns ? Depth : Columns;
    static constexpr bool is_by_groups = by_groups<T, warp_rows, Down, Across, width_a, width_b>;
    static constexpr int boundary = is_by_groups ? 1024 : 128;
    typedef SharedTile<T, AByColumns ? Depth : Rows, width_a, !AByColumns || by_matrices<T, true>, boundary> TileA;
    typedef SharedTile<T, BByColumns ? Columns : Depth, width_b, BByColumns || by_matrices<T, true>, boundary> TileB;
    struct alignas(16) Piece {
        static constexpr int size = 8;
        Sum at[size];
    };

    // A line of the scratch memory ends with four sums that keep lines in different banks.
    static constexpr int scratch_line = warp_columns + 4;
    static constexpr int scratch = warps * 16 * scratch_line;

    // Only the CPU decides at run time how many lanes a warp has.
#if defined(GS_CPU)
    static GS_INLINE u32 threads() { return warps * warp_size(); }
#elif defined(__GFX9__)
    static GS_INLINE constexpr u32 threads() { return warps * 64; }
#else
    static GS_INLINE constexpr u32 threads() { return warps * 32; }
#endif

    MatrixC<T> sums[down][across];

    GS_INLINE BlockProduct() : reader_a(warp_row()), reader_b(warp_column()) {
        GS_UNROLL
        for (int i = 0; i < down; ++i) {
            GS_UNROLL
            for (int j = 0; j < across; ++j) sums[i][j].fill(0);
        }
    }

    GS_INLINE void multiply_add(const TileA& a, const TileB& b) {
        if constexpr (is_by_groups) {
            begin(a, b);
            finish();
            return;
        }
        // While the matrix cores work on one step, the next one's factors are loaded.
        Factors factors[2];
        load(factors[0], a, b, 0);
        GS_UNROLL
        for (int step = 0; step < steps; ++step) {
            if (step + 1 < steps) load(factors[(step + 1) % 2], a, b, step + 1);
            multiply_add(factors[step % 2]);
        }
    }

    template <int Stages, class Stage, class Fill>
    GS_INLINE void multiply_add(int count, Stage* stages, int parts, Fill fill) {
        static_assert(Stages >= 2, "one stage is filled while another one is used");
        GS_UNROLL
        for (int s = 0; s < Stages - 1; ++s) {
            GS_UNROLL
            for (int part = 0; part < parts; ++part) fill(stages[s], part);
            commit_copies();
        }
        int now = 0, empty = Stages - 1;
        if constexpr (is_by_groups) {
            for (int c = 0; c < count; ++c) {
                // This stage has arrived for all threads, and no product reads the empty one any more.
                wait_for_copies<Stages - 2>();
                __syncthreads();
                begin(stages[now].a, stages[now].b);
                GS_UNROLL
                for (int part = 0; part < parts; ++part) fill(stages[empty], part);
                commit_copies();
                finish();
                empty = now;
                now = now + 1 < Stages ? now + 1 : 0;
            }
            wait_for_copies();
            return;
        }
        wait_for_copies<Stages - 2>();
        __syncthreads();
        Factors factors[2];
        load(factors[0], stages[0].a, stages[0].b, 0);
        for (int c = 0; c < count; ++c) {
            const int next = now + 1 < Stages ? now + 1 : 0;
            // The copies stand between the operations, so that they cost no time of the matrix cores. All of them are begun before
            // we wait for the next stage. After that no thread reads the stage of this step any more.
            constexpr int places = (steps > 1 ? steps - 1 : 1) * down;
            const int at_once = (parts + places - 1) / places;
            GS_UNROLL
            for (int step = 0; step < steps; ++step) {
                if (steps == 1) {
                    GS_UNROLL
                    for (int part = 0; part < parts; ++part) fill(stages[empty], part);
                }
                if (step + 1 == steps) {
                    commit_copies();
                    wait_for_copies<Stages - 2>();
                    __syncthreads();
                    load(factors[steps % 2], stages[next].a, stages[next].b, 0);
                } else {
                    load(factors[(step + 1) % 2], stages[now].a, stages[now].b, step + 1);
                }
                GS_UNROLL
                for (int i = 0; i < down; ++i) {
                    GS_UNROLL
                    for (int j = 0; j < across; ++j)
                        gs::multiply_add(sums[i][j], factors[step % 2].a[i], factors[step % 2].b[j]);
                    if (step + 1 < steps) {
                        GS_UNROLL
                        for (int p = 0; p < at_once; ++p) {
                            const int part = (step * down + i) * at_once + p;
                            if (part < parts) fill(stages[empty], part);
                        }
                    }
                }
            }
            if (steps % 2 == 1) factors[0] = factors[1];
            empty = now;
            now = next;
        }
        wait_for_copies();
    }

    template <class Visit>
    GS_INLINE void for_each_piece(Sum* memory, Visit visit) const {
        constexpr int in_row = warp_columns / Piece::size;
        Sum* const own = memory + warp_in_block() * (16 * scratch_line);
        GS_UNROLL
        for (int i = 0; i < down; ++i) {
            sync_warp();
            GS_UNROLL
            for (int j = 0; j < across; ++j) store_rows(sums[i][j], own + j * 16, scratch_line);
            sync_warp();
            for (int p = (int)lane(); p < 16 * in_row; p += (int)warp_size()) {
                const int row = p / in_row, column = p % in_row * Piece::size;
                const Piece piece = *reinterpret_cast<const Piece*>(own + row * scratch_line + column);
                visit(warp_row() + i * 16 + row, warp_column() + column, piece);
            }
        }
    }

private:
    struct Factors {
        MatrixA<T> a[down];
        MatrixB<T> b[across];
    };
    TileReader<MatrixA<T>, TileA, true, AByColumns> reader_a;
    TileReader<MatrixB<T>, TileB, false, !BByColumns> reader_b;

    // Where the warp's part of the product begins.
    static GS_INLINE int warp_row() { return (int)warp_in_block() / Across * warp_rows; }
    static GS_INLINE int warp_column() { return (int)warp_in_block() % Across * warp_columns; }

    // A product by wgmma goes on beside the threads from `begin` to `finish`.
    GS_INLINE void begin(const TileA& a, const TileB& b) {
#if defined(GS_TENSOR_COPIES)
        if constexpr (is_by_groups) {
            // The threads have written the tiles, and the matrix cores read shared memory in another way.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            const int row = (int)warp_in_block() / 4 * 64;
            GS_UNROLL
            for (int k = 0; k < Depth; k += 16) {
                const u64 of_a = described<AByColumns>(a, row, k), of_b = described<!BByColumns>(b, 0, k);
                GroupSums<T, AByColumns, !BByColumns, across>::add(sums[0], of_a, of_b);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
#endif
    }
    GS_INLINE void finish() {
#if defined(GS_TENSOR_COPIES)
        if constexpr (is_by_groups) wait_for_products<0>();
#endif
    }
#if defined(GS_TENSOR_COPIES)
    // Describes a tile from an element on. If the depth runs across the lines, a step is 16 lines.
    template <bool IsAcross, class Tile>
    static GS_INLINE u64 described(const Tile& tile, int line, int deep) {
        constexpr u32 bytes = Tile::width * 2;
        const u32 first = IsAcross ? deep * bytes + line * 2 : line * bytes + deep * 2;
        return described_tile<bytes>(in_shared(tile.at) + first, 16, 8 * bytes);
    }
#endif

    GS_INLINE void load(Factors& factors, const TileA& a, const TileB& b, int step) const {
        GS_UNROLL
        for (int i = 0; i < down; ++i) reader_a.load(factors.a[i], a, i, step);
        GS_UNROLL
        for (int j = 0; j < across; ++j) reader_b.load(factors.b[j], b, j, step);
    }
    GS_INLINE void multiply_add(const Factors& factors) {
        GS_UNROLL
        for (int i = 0; i < down; ++i) {
            GS_UNROLL
            for (int j = 0; j < across; ++j) gs::multiply_add(sums[i][j], factors.a[i], factors.b[j]);
        }
    }
};

}  // namespace gs

#endif
