// Kernels with every kind of barrier, vote and shuffle that the CPU backend can turn into loops. They must mean the
// same on every backend.
#include <gpustream/kernel.cuh>

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define THREADS 128
#define LAST(n) ((n) - 1)
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/// out[b] = sum of x over block b
/// requires: grid.x <= len(out), n <= len(x), block.x == 128, block.y * block.z == 1
__global__ void halves(const int* x, int* out, int n) {
    __shared__ int partial[THREADS];
    const int t = threadIdx.x;
    partial[t] = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) partial[t] += x[i];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = partial[LAST(1)];
}

/// Computes the same sums, but each thread carries its sum from loop to loop, and there are shuffles in a branch that
/// one warp takes.
/// requires: grid.x <= len(out), n <= len(x), block.x <= 1024, block.y * block.z == 1, grid.x * block.x >= n
template <class T>
__global__ void warps_of(const T* x, T* out, int n) {
    __shared__ T of_warp[32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T sum = i < n ? x[i] : T(0);
    for (int step = 16; step > 0; step /= 2) {
        T other = __shfl_down_sync(0xffffffffu, sum, step, 32);
        if (threadIdx.x + step < blockDim.x && lane + step < 32) sum += other;
    }
    if (lane == 0) of_warp[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < (blockDim.x + 31) / 32 ? of_warp[lane] : T(0);
        for (int step = 1; step < 32; step *= 2) {
            const T other = __shfl_xor_sync(0xffffffffu, sum, step, 32);
            sum += (lane ^ step) < blockDim.x ? other : T(0);
        }
        if (lane == 0) out[blockIdx.x] = sum;
    } else {
        // Nothing waits here, but the threads may no longer be together.
        const int other = __shfl_sync(0xffffffffu, warp, 0, 32);
        if (other != warp) out[blockIdx.x] = T(-1);
    }
}
template __global__ void warps_of<int>(const int* x, int* out, int n);
template __global__ void warps_of<double>(const double* x, double* out, int n);

/// Stores what each thread learns from votes and shuffles. The block has three dimensions, and some threads may return
/// before.
/// requires: grid.x * grid.y * grid.z == 1, 8 * block.x * block.y * block.z <= len(out)
__global__ void votes(int* out, int stays) {
    const int me = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int* mine = out + 8 * me;
    if (me >= stays) return;
    const unsigned all = 0xffffffffu;
    mine[0] = __syncthreads_count(me % 3 == 0);
    mine[1] = __syncthreads_or(me == stays - 1) != 0;
    mine[2] = __syncthreads_and(me < stays - 1) != 0;
    const int any = __any_sync(all, me % 32 == 7);
    mine[3] = any != 0;
    mine[4] = __all_sync(all, me < 40) != 0;
    mine[5] = (int)__ballot_sync(all, me % 5 == 0);
    int value = me * me;
    mine[6] = __shfl_sync(all, value + 1, 3, 8);
    value = __shfl_up_sync(all, value, 1, 16) + __shfl_up_sync(all, value, 2, 16);
    mine[7] = value;
}

/// y[i] = sum of the x[j] around i. Each thread has an array that must survive the barriers, and the launch gives the
/// size of the shared memory.
/// requires: n <= len(x), n <= len(y), block.x == 128, grid.x * 128 >= n, shared >= 128 * 4
__global__ void windows(const int* x, int* y, int n) {
    extern __shared__ int near[];
    int parts[3] = {0, 1};
    int i = blockIdx.x * THREADS + threadIdx.x;
    near[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 0; d < 3; ++d) {
        const int at = threadIdx.x + d - 1;
        parts[d] += at >= 0 && at < THREADS ? near[at] : 0;
        __syncthreads();
        atomicAdd(&near[threadIdx.x], 1);
        __syncthreads();
    }
    {
        int i = parts[0] + parts[1];
        parts[2] += i;
    }
    if (i < n) y[i] = parts[2];
}

/// Counts bytes in shared memory. The loop changes its parameters `rounds` and `bytes`.
/// requires: grid.x * grid.y * grid.z == 1, 256 <= len(bins), n * rounds <= len(bytes)
__global__ void counted(const unsigned char* bytes, unsigned* bins, int n, int rounds) {
    __shared__ unsigned mine[256];
    __shared__ int most;
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) mine[bin] = 0;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    while (rounds > 0) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const unsigned before = atomicAdd(&mine[bytes[i]], 1u);
            atomicMax(&most, (int)before + 1);
        }
        bytes += n;
        --rounds;
        __syncthreads();
        if (rounds == 100) break;
    }
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) bins[bin] = mine[bin] + (bin == 0 ? 0 : 0 * most);
    if (threadIdx.x == 0) atomicMax(&bins[255], (unsigned)most);
}

/// Each thread returns in a different round, so the barriers get fewer threads. The loop has no end.
/// requires: block.x <= len(out), grid.x * grid.y * grid.z * block.y * block.z == 1
__global__ void leave(int* out) {
    int round = 0;
    while (true) {
        const int left = __syncthreads_count(1);
        if (left == (int)threadIdx.x + 1) {
            out[threadIdx.x] = round;
            return;
        }
        __syncthreads();
        ++round;
    }
}

#define ME threadIdx.x
struct Pair {
    int first, second;
};
__device__ void add_to(int& sum, int what) { sum += what; }

/// Threads keep values across barriers: through a pointer, in structures, and behind macros.
/// requires: grid.x * grid.y * grid.z == 1, 4 * block.x <= len(out), block.y * block.z == 1, block.x % 32 == 0
__global__ void held(int* out, int n) {
    __shared__ int last;
    int value = ME, sum = 0, count = 0;
    int* at = &value;
    Pair pair = {1, (int)ME};
    if (ME == blockDim.x - 1) last = n;
    __syncthreads();
    *at += last;
    pair.first += __shfl_sync(0xffffffffu, value, 1, 32);
    __syncthreads();
    add_to(sum, *at);
    pair.second = pair.first + value;
    for (int round = 0; round < 10; ++round) {
        __syncthreads();
        count += round;
        if (round == n) {
            __syncthreads();
            break;
        }
        if (round == n + 1) continue;
    }
    if (ME < 32) {
        int three = 3;
        three += __shfl_down_sync(0xffffffffu, three + (int)ME, 1, 32);
        sum += three;
    }
    out[4 * ME] = *at, out[4 * ME + 1] = sum, out[4 * ME + 2] = pair.second, out[4 * ME + 3] = count;
}

/// out[thread] = sum of the values in the thread's column. One thread of each row adds 100 to its own value, and
/// another one adds its value from the row before. Threads beyond `width` return at once, so a row may have any length.
/// requires: block.x * block.y <= len(out), grid.x * grid.y * grid.z * block.z == 1
__global__ void columns(int* out, unsigned width, int first, unsigned second) {
    if (threadIdx.x >= width) return;
    __shared__ int values[1024];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    int value = thread;
    if ((int)threadIdx.x == first) value += 100;
    values[thread] = value;
    __syncthreads();
    if (threadIdx.x == second && threadIdx.y > 0) {
        const int before = thread - (int)blockDim.x;
        value += values[before];
    }
    __syncthreads();
    values[thread] = value;
    __syncthreads();
    int sum = 0;
    for (unsigned row = 0; row < blockDim.y; ++row) sum += values[row * blockDim.x + threadIdx.x];
    out[thread] = sum;
}

/// out[2 t] = sum over the thread's group of 8. out[2 t + 1] = the next value in its group of 32, multiplied by the
/// rank of that group, plus the last rank. Adds 1000 to the sums of a warp if one of its values is above 600.
/// requires: n <= len(x), 2 * n <= len(out), grid.x * block.x * block.y * block.z >= n
/// requires: block.x % 32 == 0, grid.y * grid.z == 1
__global__ void grouped(const int* x, int* out, int n) {
    cg::thread_block block = cg::this_thread_block();
    const auto eight = cg::tiled_partition<8>(block);
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    __shared__ int last;
    const int i = block.group_index().x * block.size() + block.thread_rank();
    int sum = i < n ? x[i] : 0;
    const int next = tile.shfl(sum, tile.thread_rank() + 1);
    if (block.thread_rank() == block.num_threads() - 1) last = tile.meta_group_rank();
    for (int bits = eight.size() / 2; bits > 0; bits /= 2) sum += eight.shfl_xor(sum, bits);
    cg::sync(block);
    const bool some = tile.any(next > 600);
#if !defined(UNKNOWN_TO_ALL)
    if (some) sum += 1000;
#endif
    block.sync();
    if (i < n) {
        out[2 * i] = sum;
        out[2 * i + 1] = next * (int)tile.meta_group_rank() + last;
    }
}

/// Moves a block's share of x by `by` places, and then by as many again.
__device__ void turn(int* tile, cg::thread_block block, int by) {
    for (int i = 0; i < SMALLER(by + 1, 2); ++i) {
        cg::sync(block);
        const int next = tile[(block.thread_rank() + by) % block.size()];
        block.sync();
        tile[block.thread_rank()] = next;
    }
    cg::sync(block);
}

/// out[i] = x[i + 2 * by] within the block's share, which wraps around. A function gets the block as an argument.
/// requires: grid.x * block.x <= len(x), grid.x * block.x <= len(out), block.x <= 128, block.y * block.z == 1
__global__ void turned_around(const int* x, int* out, int by) {
    cg::thread_block whole = cg::this_thread_block();
    __shared__ int tile[THREADS];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i];
    cg::sync(whole);
    turn(tile, whole, by);
    out[i] = tile[threadIdx.x];
}

/// Counts in shared memory. The block's element of `rounds` says how often, so the compiler cannot know how often the
/// block meets.
/// requires: grid.x <= len(rounds), grid.x <= len(out), grid.y * grid.z == 1
__global__ void as_often(const int* rounds, int* out) {
    __shared__ int left;
    __shared__ int sum[1];
    if (threadIdx.x == 0) left = rounds[blockIdx.x], sum[0] = 0;
    __syncthreads();
    const int all = rounds[blockIdx.x];
    while (left > 0) {
        atomicAdd(&sum[0], all);
        __syncthreads();
        if (threadIdx.x == 0) --left;
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sum[0];
}

__device__ int warp_total(int v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d, 32);
    return v;
}
// Returns the sum over a block's threads, in each thread.
template <class T>
__device__ T block_total(T v, T* of_warp) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_total(v);
    if (lane == 0) of_warp[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? of_warp[lane] : 0;
    if (warp == 0) {
        v = warp_total(v);
        if (lane == 0) of_warp[0] = v;
    }
    __syncthreads();
    const T total = of_warp[0];
    __syncthreads();
    return total;
}
template <int Step>
__device__ void add_neighbour(int* values, int& sum, unsigned i) {
    values[i] = sum;
    __syncthreads();
    sum += values[(i + Step) % blockDim.x];
    __syncthreads();
}

__device__ int half_of(int v) {
    __syncthreads();
    return v / 2;
}

/// out[i] = x[i] + x[i + 3] + half of 0.75 x[i], plus the sum of all x and twice the sum of all i. There is one block,
/// and its barriers are inside functions.
/// requires: block.x <= len(x), block.x <= len(out), block.x % 32 == 0, block.y * block.z * grid.x * grid.y * grid.z == 1
__global__ void in_functions(const int* x, int* out) {
    __shared__ int of_warp[32];
    __shared__ int values[1024];
    const unsigned i = threadIdx.x;
    int sum = x[i];
    const int all = block_total(sum, of_warp);
    add_neighbour<3>(values, sum, i);
    const float part = x[i] * 0.75f;
    sum += half_of(part);
    sum += all + 2 * block_total<int>((int)threadIdx.x, of_warp);
    out[threadIdx.x] = sum;
}

#define BELOW 7

/// Counts for each thread how often a condition picks it while the bound changes. The CPU backend may run only the first
/// threads in a row, or only some rows. The divisor is zero in the first row in which no thread runs.
/// requires: grid.x * grid.y * grid.z == 1, block.z == 1, 7 * block.x * block.y <= len(out)
__global__ void below(int* out, int first, int last, int rows) {
    const int tx = threadIdx.x, ty = threadIdx.y, me = tx + blockDim.x * ty;
    const size_t wide = threadIdx.x;
    const unsigned self = threadIdx.x;
    if (ty >= rows) return;
    int* mine = out + BELOW * me;
    __syncthreads();
    for (int end = last; end >= first; --end) {
        const long long far = end * (1ll << 32);
        __syncthreads();
        if (tx < end) mine[0] += 1;
        __syncthreads();
        if (end > self) mine[1] += 1;
        __syncthreads();
        if (end > wide) mine[2] += 1;
        __syncthreads();
        if (threadIdx.x < far) mine[3] += 1;
    }
    for (float end = 0; end < 3; end += 0.75f) {
        __syncthreads();
        if (tx < end) mine[4] += 1;
    }
    for (int step = 1; step <= 4; step *= 2) {
        const int by = step;
        __syncthreads();
        if (ty % by == 0) mine[5] += by;
    }
    if (12 % (rows - ty) == 0) mine[6] = 1;
}

#define PICKS 20

/// Stores which conditions are true for each thread. Each of them picks a few threads, and the CPU backend may run only
/// those. Also stores the thread's place in its row.
/// requires: grid.x * grid.y * grid.z == 1, block.z == 1, 20 * block.x * block.y <= len(out)
__global__ void picked(int* out, int at, float part, int stays) {
    const int me = threadIdx.x + blockDim.x * threadIdx.y;
    const int tx = threadIdx.x, behind = tx - 3, low = tx & 7, third = me % 3;
    const unsigned self = threadIdx.x, lane = self % 32, warp = threadIdx.x >> 5, wrapped = self - 5u;
    if (me >= stays) return;
    int* mine = out + PICKS * me;
    __syncthreads();
    if (tx == at) mine[0] = 1;
    if (tx >= 0 && at == behind) mine[1] = 1 + warp;
    if (lane == at) mine[2] += 1 + warp;
    if (low == 7 && tx > at) mine[3] = lane;
    if (wrapped == 0xffffffffu) mine[4] = tx;
    if (threadIdx.x - 5u == 0xfffffffeu) mine[5] = tx;
    if (third == 2) mine[6] = me;
    if (threadIdx.x == part) mine[7] = 1;
    if (me == at) mine[8] = 1;
    if ((tx & 6) == 2) mine[9] = 1;
    if (tx == (int)threadIdx.y) mine[10] = 1;
    if (blockDim.x - 1 == threadIdx.x) {
        for (int i = 0; i < 3; ++i) mine[11] += i + 1;
    }
    __syncthreads();
    mine[12] = 100 * warp + lane;
    mine[13] = 10 * (tx / 8) + low;
    const int parts = threadIdx.x / 2.5f;
    mine[18] = parts;
    if (at > 0 && tx == stays / at) mine[19] = 1;
    const unsigned char byte = tx % 512;
    if (byte == 3) mine[14] = 1;
    if (threadIdx.y == 1) mine[15] = tx;
    if (2 == threadIdx.y && tx > 3) mine[16] = tx;
    if (threadIdx.y == 0 && lane == 3) mine[17] += tx;
}

/// out[i] = x[i], and in every second row of 32 threads also `rounds` sums of two neighbours. There is one block, and
/// only some warps take the branch, so the others must keep their values.
/// requires: block.x <= len(x), block.x <= len(out), block.x <= 1024, block.y * block.z * grid.x * grid.y * grid.z == 1
__global__ void kept(const int* x, int* out, int rounds) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32;
    int value = x[threadIdx.x], steps = 0;
    if (row % 2 == 1) {
        int twice = value;
        for (int round = 0; round < rounds; ++round) {
            const int other = __shfl_xor_sync(0xffffffffu, value, 1, 32);
            value += (threadIdx.x ^ 1) < blockDim.x ? other : 0;
            const int own = __shfl_sync(0xffffffffu, twice, lane, 32);
            twice += own;
        }
        steps = twice;
    }
    out[threadIdx.x] = value + steps;
}

/// out[i] = x[i] + x[n - 1 - i] in one block. The parameters are written as arrays.
/// requires: n <= len(x), n <= len(out), n <= block.x, block.y * block.z * grid.x * grid.y * grid.z == 1
__global__ void mirrored(const int x[], int out[], int n) {
    const int i = threadIdx.x;
    if (i < n) out[i] = x[i];
    __syncthreads();
    const int other = i < n ? out[n - 1 - i] : 0;
    __syncthreads();
    if (i < n) out[i] += other;
}

__device__ int place() { return threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z; }

/// Warps may take either side of a branch, as `pick` says. Inside one side there is another branch for half of a warp.
/// requires: 4 * block.x * block.y * block.z <= len(out), grid.x * grid.y * grid.z == 1
/// requires: block.x * block.y * block.z % 32 == 0
__global__ void sides(int* out, unsigned pick) {
    const int me = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int lane = me % 32;
    int* const mine = out + 4 * me;
    int value = me * me, mark = 0;
    if ((pick >> me / 32 & 1) != 0) {
        const int other = __shfl_xor_sync(0xffffffffu, value, 4, 32);
        value += other;
        mark = __popc(__ballot_sync(0xffffffffu, lane % 3 == 0)) + place();
        if (lane >= 16) {
            const int one = __shfl_sync(0xffff0000u, value, 20, 32);
            value += one;
        }
        mine[0] = 7 * lane;
    } else {
        const int before = __shfl_up_sync(0xffffffffu, value, 1, 32);
        value -= before;
        mine[0] = -1;
    }
    mine[1] = value;
    mine[2] = mark;
    mine[3] = __shfl_down_sync(0xffffffffu, value, 1, 32);
}

struct Nonconst {
    int count;
};
__device__ int advance(Nonconst& from, int by) { return from.count += by; }

/// out[i] = 2 * (from.count + i) + 1. A function changes the parameter, so each thread must have its own.
/// requires: block.x <= len(out), block.y * block.z * grid.x * grid.y * grid.z == 1
__global__ void advanced(Nonconst from, int* out) {
    const int first = advance(from, threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = first + advance(from, 1);
}

/// Changes a place that depends on `k`, and then reads the places around it. The compiler cannot know which place that
/// is, so each thread must keep its order.
/// requires: grid.x * block.x <= len(x), 4 * grid.x * block.x <= len(out), block.x <= 128, block.y * block.z == 1
__global__ void in_own_order(const int* x, int* out, unsigned k) {
    __shared__ int pairs[2 * THREADS];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    int own[3] = {1, t, 5};
    pairs[2 * t] = t;
    pairs[2 * t + 1] = 3 * t;
    __syncthreads();
    own[1] += 7;
    own[k % 3] ^= x[i];
    out[4 * i] = own[0] + 11 * own[1] + 13 * own[2];
    __syncthreads();
    const int before = pairs[2 * t];
    pairs[2 * t + k % 2] = x[i];
    out[4 * i + 1] = before + 11 * pairs[2 * t] + 13 * pairs[2 * t + 1];
    __syncthreads();
    out[4 * i + 2] = 1;
    out[4 * i + 2 + k % 2] = x[i];
    out[4 * i + 3] += out[4 * i + 2];
}

/// Computes sums, the largest value with its place, and distances. The shuffles depend on each other, with only
/// arithmetic in between, so the CPU backend may keep the values in vectors. Threads from number `stays` on have
/// returned before.
/// requires: block.x * block.y * block.z <= len(x), 6 * block.x * block.y * block.z <= len(out), stays % 32 == 0
/// requires: grid.x * grid.y * grid.z == 1, block.x * block.y * block.z % 32 == 0
template <class T>
__global__ void in_registers(const T* x, T* out, int stays) {
    const unsigned all = 0xffffffffu;
    const int me = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int lane = me & 31;
    T* const mine = out + 6 * me;
    if (me >= stays) return;
    T sum = x[me], most = sum, parts = sum;
    int at = lane;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T before = __shfl_up_sync(all, sum, step, 32);
        if (lane >= step) sum += before;
    }
    for (int step = 16; step > 0; step >>= 1) {
        const T other = __shfl_down_sync(all, most, step, 32);
        const int its = __shfl_down_sync(all, at, step, 32);
        const bool is_more = lane + step < 32 && !(other <= most);
        if (is_more) {
            most = other;
            at = its;
        }
    }
    most = __shfl_sync(all, most, 0, 32);
    at = __shfl_sync(all, at, 0, 32);
    mine[0] = sum;
    mine[1] = most;
    mine[2] = T(at);
    // The distance from the largest value's place, within groups of eight.
    T least = __shfl_xor_sync(all, (T)(lane < at ? at - lane : lane - at), 5, 8);
    least = min(least, __shfl_xor_sync(all, least, 3, 32));
    least -= max(__shfl_down_sync(all, least, 2, 8), T(3)) * T(2);
    mine[3] = least;
    // The compiler cannot know these distances.
    for (int step = 1; step < 16 && step < stays; step = 3 * step + 1) {
        parts += __shfl_up_sync(all, parts, step, 16) - __shfl_sync(all, parts, step, 8);
        parts = -parts;
    }
    mine[4] = parts;
    T a = __shfl_xor_sync(all, parts, 16, 32);
    a = __shfl_xor_sync(all, a, 1, 32);
    mine[5] = a;
}
template __global__ void in_registers<int>(const int* x, int* out, int stays);
template __global__ void in_registers<unsigned>(const unsigned* x, unsigned* out, int stays);
template __global__ void in_registers<float>(const float* x, float* out, int stays);
template __global__ void in_registers<double>(const double* x, double* out, int stays);
template __global__ void in_registers<long long>(const long long* x, long long* out, int stays);

/// All threads of a block leave together, after each has written.
/// requires: block.x * grid.x <= len(x), grid.x <= len(ends)
__global__ void leave_together(const int* ends, int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int end = ends[blockIdx.x];
    if (end < 0) {
        x[i] = -i;
        return;
    }
    x[i] = 0;
    for (int turn = 0; turn < n; ++turn) {
        if (turn == end) {
            x[i] += 1000 * threadIdx.x;
            break;
        }
        __syncthreads();
        x[i] += 1;
    }
}

/// Sums rows. Each warp takes every `warps`-th row, so some have more of them than others. After the loop, adds the sum of
/// the row numbers that the warp has had.
/// requires: rows * columns <= len(x), rows <= len(sums), block.x * grid.x <= 32 * len(had), block.x % 32 == 0
__global__ void rows_by_warps(const int* x, int* sums, int* had, int rows, int columns) {
    constexpr int width = 32;
    const int lane = threadIdx.x % width, warps = gridDim.x * (blockDim.x / width);
    const int warp = blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
    int numbers = 0;
    for (int row = warp; row < rows; row += warps) {
        int sum = 0;
        for (int i = lane; i < columns; i += width) sum += x[row * columns + i];
        for (int step = width / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step, width);
        if (lane == 0) sums[row] = sum;
        numbers += row;
    }
    numbers = __shfl_sync(0xffffffffu, numbers, 0, width);
    if (lane == 0) had[warp] = numbers;
}

/// Sums rows, and a `return` ends the function before the kernel ends.
__device__ void sum_rows(const int* x, int* sums, int rows, int columns) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) {
        return;
    }
    int sum[1] = {0};
    for (int i = threadIdx.x; i < columns; i += 32) sum[0] += x[row * columns + i];
    for (int step = 16; step > 0; step /= 2) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], step, 32);
    if (threadIdx.x == 0) sums[row] = sum[0];
}
/// requires: rows * columns <= len(x), rows <= len(sums), block.x == 32
__global__ void rows_by_function(const int* x, int* sums, int rows, int columns) { sum_rows(x, sums, rows, columns); }
