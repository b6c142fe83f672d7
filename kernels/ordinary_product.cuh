// Products of tiles in shared memory by ordinary arithmetic, with the functions of `gs::BlockProduct`.
#ifndef GPUSTREAM_KERNELS_ORDINARY_PRODUCT_CUH
#define GPUSTREAM_KERNELS_ORDINARY_PRODUCT_CUH

#include <gpustream/async_copy.cuh>
#include <gpustream/kernel.cuh>

// `Depth` lines in shared memory, each with one depth of `Lines` rows of a or columns of b. So a thread reads neighbouring rows at
// once. A line ends with four elements that keep lines in different banks.
template <class T, int Lines, int Depth>
struct alignas(16) DeepTile {
    typedef T Memory;
    static constexpr int lines = Lines, depth = Depth;
    static constexpr bool is_deep = true;
    T at[Depth * (Lines + 4)];
    static GS_INLINE constexpr int index(int line, int deep) { return deep * (Lines + 4) + line; }
};

// Each of `Threads` threads has `Tall` rows and `Wide` columns of the sums, in quads of four: so much is computed with each element
// that it reads. Thirty-two threads are neighbours, four down and eight across, so that they read the same elements or the next.
template <class T, int Rows, int Columns, int Depth, int Tall, int Wide>
struct OrdinaryProduct {
    typedef T Sum;
    static constexpr int rows = Rows, columns = Columns, depth = Depth;
    static constexpr int count = Rows / Tall * (Columns / Wide), tall = Tall / 4, wide = Wide / 4;
    static_assert(Rows % (4 * Tall) == 0 && Columns % (8 * Wide) == 0 && Tall % 4 == 0 && Wide % 4 == 0, "whole groups have quads");
    static GS_INLINE constexpr unsigned int threads() { return count; }
    typedef DeepTile<T, Rows, Depth> TileA;
    typedef DeepTile<T, Columns, Depth> TileB;
    struct alignas(16) Piece {
        static constexpr int size = 4;
        T at[size];
    };
    static constexpr int scratch = count * 4 * wide * 4;
    T sums[Tall][Wide];
    // This thread's first row and column.
    int row, column;

    GS_INLINE OrdinaryProduct() {
        constexpr int across = Columns / (8 * Wide);
        const int thread = (int)gs::thread_in_block(), group = thread / 32, in_group = thread % 32;
        row = group / across * (4 * Tall) + in_group / 8 * 4;
        column = group % across * (8 * Wide) + in_group % 8 * 4;
        GS_UNROLL
        for (int i = 0; i < Tall; ++i) {
            GS_UNROLL
            for (int j = 0; j < Wide; ++j) sums[i][j] = 0;
        }
    }

    template <int Stages, class Stage, class Fill>
    GS_INLINE void multiply_add(int steps, Stage* stages, int parts, Fill fill) {
        GS_UNROLL
        for (int s = 0; s < Stages - 1; ++s) {
            GS_UNROLL
            for (int part = 0; part < parts; ++part) fill(stages[s], part);
            gs::commit_copies();
        }
        int now = 0, empty = Stages - 1;
        for (int step = 0; step < steps; ++step) {
            gs::wait_for_copies<Stages - 2>();
            __syncthreads();
            GS_UNROLL
            for (int part = 0; part < parts; ++part) fill(stages[empty], part);
            gs::commit_copies();
            add(stages[now].a, stages[now].b);
            empty = now;
            now = now + 1 < Stages ? now + 1 : 0;
        }
        gs::wait_for_copies();
    }

    // There is one copy of the code in `visit` for a few pieces: the sums of a loop must be in memory, because registers have no index.
    // Each thread only uses its own part of it.
    template <class Visit>
    GS_INLINE void for_each_piece(T* memory, Visit visit) const {
        Piece* const own = reinterpret_cast<Piece*>(memory) + gs::thread_in_block();
        GS_UNROLL
        for (int q = 0; q < tall; ++q) {
            GS_UNROLL
            for (int i = 0; i < 4; ++i) {
                GS_UNROLL
                for (int w = 0; w < wide; ++w) {
                    GS_UNROLL
                    for (int e = 0; e < 4; ++e) own[(i * wide + w) * count].at[e] = sums[q * 4 + i][w * 4 + e];
                }
            }
#pragma unroll 1
            for (int p = 0; p < 4 * wide; ++p) visit(row + q * 16 + p / wide, column + p % wide * 32, own[p * count]);
        }
    }

private:
    GS_INLINE void add(const TileA& a, const TileB& b) {
        GS_UNROLL
        for (int k = 0; k < Depth; ++k) {
            T x[Tall], y[Wide];
            GS_UNROLL
            for (int q = 0; q < tall; ++q) load(x + q * 4, a.at + TileA::index(row + q * 16, k));
            GS_UNROLL
            for (int q = 0; q < wide; ++q) load(y + q * 4, b.at + TileB::index(column + q * 32, k));
            GS_UNROLL
            for (int i = 0; i < Tall; ++i) {
                GS_UNROLL
                for (int j = 0; j < Wide; ++j) sums[i][j] += x[i] * y[j];
            }
        }
    }
    static GS_INLINE void load(T* to, const T* from) {
        const Piece piece = *reinterpret_cast<const Piece*>(from);
        GS_UNROLL
        for (int e = 0; e < 4; ++e) to[e] = piece.at[e];
    }
};

#endif
