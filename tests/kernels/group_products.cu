// Products of tiles by a block whose warps stand below each other, so that Hopper's wgmma can read the tiles.
#define GS_SM_90A 1
#include <gpustream/kernel.cuh>
#include <gpustream/matrix_block.cuh>

/// out = x y, for 64 rows, `columns` columns and a depth of `2 * deep * steps`. The first half of the depth goes through one stage,
/// and the second half through two. Tiles are stored by columns if the last two arguments say so.
template <class T, int columns, int deep, int a_by_columns, int b_by_columns>
__global__ void multiply_by_groups(const T* x, const T* y, float* out, int steps) {
    typedef gs::BlockProduct<T, 64, columns, deep, 4, 1, a_by_columns != 0, b_by_columns != 0> Product;
    struct Stage {
        typename Product::TileA a;
        typename Product::TileB b;
    };
    // A kernel may declare 48 KiB.
    union Room {
        Stage stages[2];
        float sums[Product::scratch];
    };
    __shared__ Room room;
    Stage* const stages = room.stages;
    const int depth = 2 * steps * deep;
    const auto fill = [&](Stage& stage, int step) {
        GS_FOR_EACH_IN_BLOCK(i, 64 * deep) {
            const int row = i / deep, k = i % deep;
            const T value = x[row * depth + step * deep + k];
            if (a_by_columns) {
                stage.a.set(k, row, value);
            } else {
                stage.a.set(row, k, value);
            }
        }
        GS_FOR_EACH_IN_BLOCK(i, deep * columns) {
            const int k = i / columns, column = i % columns;
            const T value = y[(step * deep + k) * columns + column];
            if (b_by_columns) {
                stage.b.set(column, k, value);
            } else {
                stage.b.set(k, column, value);
            }
        }
    };
    Product product;
    for (int step = 0; step < steps; ++step) {
        fill(stages[0], step);
        __syncthreads();
        product.multiply_add(stages[0].a, stages[0].b);
        __syncthreads();
    }
    int next = steps;
    product.template multiply_add<2>(steps, stages, 1, [&](Stage& stage, int) {
        if (next < 2 * steps) fill(stage, next);
        ++next;
    });
    __syncthreads();
    product.for_each_piece(room.sums, [&](int row, int column, const typename Product::Piece& sums) {
        for (int i = 0; i < sums.size; ++i) out[row * columns + column + i] = sums.at[i];
    });
}

template __global__ void multiply_by_groups<gs::half, 64, 64, 0, 0>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::half, 64, 64, 0, 1>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::half, 64, 64, 1, 0>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::half, 64, 64, 1, 1>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::half, 16, 32, 0, 0>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::half, 32, 16, 0, 1>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::half, 128, 32, 1, 1>(const gs::half*, const gs::half*, float*, int);
template __global__ void multiply_by_groups<gs::bfloat16, 64, 32, 0, 0>(const gs::bfloat16*, const gs::bfloat16*, float*, int);
