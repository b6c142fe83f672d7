// CUDA's own headers for matrix cores, asynchronous copies, barriers and pipelines, as existing programs use them.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <gpustream/kernel.cuh>
#include <mma.h>

using namespace nvcuda;
namespace cg = cooperative_groups;

#define THREADS 128
#define STAGES 2

#ifdef __CUDACC__
#pragma nv_diag_suppress static_var_with_dynamic_init
#endif

// c = 2 a b + c for small matrices: a by rows, b by columns, c by rows.
template <int M, int N, int K, class T, class Memory, class Sum>
__device__ void multiply_once(const Memory* a, const Memory* b, Sum* c) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sums, before;
    wmma::load_matrix_sync(left, a, K);
    wmma::load_matrix_sync(right, b, K);
    wmma::load_matrix_sync(before, c, N, wmma::mem_row_major);
    wmma::fill_fragment(sums, Sum(0));
    wmma::mma_sync(sums, left, right, sums);
    for (int i = 0; i < sums.num_elements; ++i) sums.x[i] = Sum(2) * sums.x[i] + before.x[i];
    wmma::store_matrix_sync(c, sums, N, wmma::mem_row_major);
}

/// For matrices of M by 16 and 16 by 256 / M.
/// requires: 512 <= len(a), 512 <= len(b), 256 <= len(c), block.x % 32 == 0
/// types: M = 8, 16
template <int M>
__global__ void multiply_halves(const half* a, const half* b, float* c) {
    multiply_once<M, 256 / M, 16, half>(a, b, c);
}

/// For matrices of 32 by 16 and 16 by 8.
/// requires: 512 <= len(a), 128 <= len(b), 256 <= len(c), block.x % 32 == 0
__global__ void multiply_bfloats(const gs::bfloat16* a, const gs::bfloat16* b, float* c) {
    multiply_once<32, 8, 16, gs::bfloat16>(a, b, c);
}

/// For matrices of 16 by 16.
/// requires: 256 <= len(a), 256 <= len(b), 256 <= len(c), block.x % 32 == 0
/// types: T = int8_t, uint8_t
template <class T>
__global__ void multiply_bytes(const T* a, const T* b, int* c) {
    multiply_once<16, 16, 16, T>(a, b, c);
}

/// For matrices of 16 by 8 and 8 by 16.
/// requires: 128 <= len(a), 128 <= len(b), 256 <= len(c), block.x % 32 == 0
__global__ void multiply_tf32(const float* a, const float* b, float* c) {
    multiply_once<16, 16, 8, wmma::precision::tf32>(a, b, c);
}

/// For matrices of 8 by 4 and 4 by 8.
/// requires: 32 <= len(a), 32 <= len(b), 64 <= len(c), block.x % 32 == 0
__global__ void multiply_doubles(const double* a, const double* b, double* c) {
    multiply_once<8, 8, 4, double>(a, b, c);
}

/// c = a b for 32 rows, 32 columns and a depth of 16 steps, all by rows. Each of two warps has 16 rows. The next tiles are copied while the
/// block multiplies, and half sums are made of float ones.
/// requires: 512 * steps <= len(a), 512 * steps <= len(b), 1024 <= len(c), block.x % 64 == 0, block.x <= 128
__global__ void multiply_tiles(const half* a, const half* b, half* c, int steps) {
    __shared__ __align__(16) half rows[STAGES][32 * 16], columns[STAGES][16 * 32], room[32 * 32];
    const int warp = threadIdx.x / warpSize;
    auto copy = [&](int step) {
        const int stage = step % STAGES;
        for (int i = threadIdx.x; i < 64; i += blockDim.x) {
            const int row = i / 2, piece = i % 2 * 8;
            __pipeline_memcpy_async(&rows[stage][row * 16 + piece], a + row * steps * 16 + step * 16 + piece, 16);
            __pipeline_memcpy_async(&columns[stage][i * 8], b + step * 512 + i * 8, sizeof(half) * 8);
        }
    };
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2];
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[j], 0.0f);
    copy(0);
    __pipeline_commit();
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) copy(step + 1);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
        wmma::load_matrix_sync(left, &rows[step % STAGES][(warp % 2) * 256], 16);
        for (int j = 0; j < 2; ++j) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
            wmma::load_matrix_sync(right, &columns[step % STAGES][j * 16], 32);
            wmma::mma_sync(sums[j], left, right, sums[j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; ++j) {
        wmma::fragment<wmma::accumulator, 16, 16, 16, half> rounded;
        for (int i = 0; i < rounded.num_elements; ++i) rounded.x[i] = __float2half(sums[j].x[i]);
        if (warp < 2) wmma::store_matrix_sync(room + warp * 512 + j * 16, rounded, 32, wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) c[i] = room[i];
}

/// y = x, each block reversed. Threads meet at a barrier, in one step and in two.
/// requires: 2 * grid.x * block.x <= len(x), 2 * grid.x * block.x <= len(y), block.x <= 128, block.y * block.z == 1
__global__ void reverse_by_barrier(const float* x, float* y) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ barrier bar;
    __shared__ float tile[THREADS];
    auto block = cg::this_thread_block();
    const int t = threadIdx.x, other = blockDim.x - 1 - t;
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    for (int half = 0; half < 2; ++half) {
        const int first = (2 * blockIdx.x + half) * blockDim.x;
        tile[t] = x[first + t];
        bar.arrive_and_wait();
        y[first + t] = tile[other];
        barrier::arrival_token token = bar.arrive();
        bar.wait(std::move(token));
    }
}

/// y = x + 1, block by block, which is copied to shared memory by all threads together.
/// requires: steps * block.x <= len(x), steps * block.x <= len(y), grid.x == 1, block.x <= 128, block.y * block.z == 1
__global__ void copy_by_barrier(const float* x, float* y, int steps) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ __align__(16) float tile[THREADS];
    auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        cuda::memcpy_async(block, tile, x + step * blockDim.x, sizeof(float) * blockDim.x, bar);
        bar.arrive_and_wait();
        y[step * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x] + 1;
        block.sync();
    }
}

__device__ void produce(cuda::barrier<cuda::thread_scope_block>* ready, cuda::barrier<cuda::thread_scope_block>* filled,
                        int (*room)[THREADS], const int* x, int steps, int rank, int producers) {
    for (int step = 0; step < steps; ++step) {
        ready[step % STAGES].arrive_and_wait();
        for (int i = rank; i < THREADS; i += producers) room[step % STAGES][i] = x[step * THREADS + i];
        (void)filled[step % STAGES].arrive();
    }
}

__device__ void consume(cuda::barrier<cuda::thread_scope_block>* ready, cuda::barrier<cuda::thread_scope_block>* filled,
                        int (*room)[THREADS], int* sums, int steps, int rank, int consumers) {
    (void)ready[0].arrive();
    (void)ready[1].arrive();
    for (int step = 0; step < steps; ++step) {
        filled[step % STAGES].arrive_and_wait();
        for (int i = rank; i < THREADS; i += consumers) sums[i] += (step + 1) * room[step % STAGES][THREADS - 1 - i];
        (void)ready[step % STAGES].arrive();
    }
}

/// sums[i] += (step + 1) x[step][127 - i] over all steps. The first warp copies, and the others add. Who meets is decided by data.
/// requires: 128 * steps <= len(x), 128 <= len(sums), grid.x == 1, block.x <= 1024, block.y * block.z == 1, block.x >= 128
__global__ void sum_by_roles(const int* x, int* sums, int steps) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar[2 * STAGES];
    __shared__ int room[STAGES][THREADS];
    auto block = cg::this_thread_block();
    if (block.thread_rank() < 2 * STAGES) init(bar + block.thread_rank(), block.size());
    block.sync();
    if (block.thread_rank() < warpSize) {
        produce(bar, bar + STAGES, room, x, steps, block.thread_rank(), warpSize);
    } else {
        consume(bar, bar + STAGES, room, sums, steps, block.thread_rank() - warpSize, block.size() - warpSize);
    }
}

/// y = the sums of neighbours in a block. Each thread has a pipeline of its own.
/// requires: steps * block.x <= len(x), steps * block.x <= len(y), grid.x == 1, block.x <= 128, block.y * block.z == 1
__global__ void sum_by_threads(const float* x, float* y, int steps) {
    __shared__ float tiles[STAGES][THREADS];
    const int t = threadIdx.x, threads = blockDim.x;
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&tiles[0][t], x + t, sizeof(float), pipe);
    pipe.producer_commit();
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tiles[(step + 1) % STAGES][t], x + (step + 1) * threads + t, cuda::aligned_size_t<4>(sizeof(float)), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        __syncthreads();
        y[step * threads + t] = tiles[step % STAGES][t] + tiles[step % STAGES][(t + 1) % threads];
        __syncthreads();
        pipe.consumer_release();
    }
}

/// The same with a pipeline of the block.
/// requires: steps * block.x <= len(x), steps * block.x <= len(y), grid.x == 1, block.x <= 128, block.y * block.z == 1
__global__ void sum_by_block(const float* x, float* y, int steps) {
    __shared__ float tiles[STAGES][THREADS];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    const int t = threadIdx.x, threads = blockDim.x;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int filled = 0;
    for (int step = 0; step < steps; ++step) {
        for (; filled < steps && filled < step + STAGES; ++filled) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tiles[filled % STAGES], x + filled * threads, sizeof(float) * threads, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        y[step * threads + t] = tiles[step % STAGES][t] + tiles[step % STAGES][(t + 1) % threads];
        pipe.consumer_release();
    }
}

/// The same sums of 128 neighbours. The first warp copies, and the others add: by their number, or by roles.
/// requires: 128 * steps <= len(x), 128 * steps <= len(y), grid.x == 1, block.x <= 1024, block.x >= 128, block.y * block.z == 1
/// types: by_role = true, false
template <bool by_role>
__global__ void sum_by_pipeline_roles(const float* x, float* y, int steps) {
    __shared__ float tiles[STAGES][THREADS];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    const bool produces = block.thread_rank() < warpSize;
    const auto role = produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = by_role ? cuda::make_pipeline(block, &state, role) : cuda::make_pipeline(block, &state, (size_t)warpSize);
    for (int step = 0; step < steps; ++step) {
        float* const tile = tiles[step % STAGES];
        if (produces) {
            pipe.producer_acquire();
            for (int i = block.thread_rank(); i < THREADS; i += warpSize) {
                cuda::memcpy_async(tile + i, x + step * THREADS + i, sizeof(float), pipe);
            }
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            for (int i = block.thread_rank() - warpSize; i < THREADS; i += block.size() - warpSize) {
                y[step * THREADS + i] = tile[i] + tile[(i + 1) % THREADS];
            }
            pipe.consumer_release();
        }
    }
}

/// Waits for an arrival that never comes, on backends that notice.
__global__ void wait_in_vain() {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
    __syncthreads();
    bar.arrive_and_wait();
}
