// What existing CUDA and HIP kernels often do. It must mean the same on every backend, so we do not include our own
// header here.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>

/// sums[b] = sum over block b. Threads beyond the end return before the first barrier, and after each step half of the
/// others return. The barriers must not wait for them.
/// requires: grid.x <= len(sums), n <= len(x), block.x <= 1024, block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void sum_of_those_left(const unsigned* x, unsigned* sums, unsigned n) {
    __shared__ unsigned partial[1024];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned left = min(blockDim.x, n - blockIdx.x * blockDim.x);
    partial[threadIdx.x] = x[i];
    __syncthreads();
    while (left > 1) {
        const unsigned half = (left + 1) / 2;
        if (threadIdx.x >= half) return;
        if (threadIdx.x + half < left) partial[threadIdx.x] += partial[threadIdx.x + half];
        left = half;
        __syncthreads();
    }
    sums[blockIdx.x] = partial[0];
}

namespace cg = cooperative_groups;

/// Stores what the groups of one block report: tiles of 16, tiles of 4 inside them, and the threads whose number is a
/// multiple of 3.
/// requires: 20 * block.x <= len(out), block.y * block.z * grid.x * grid.y * grid.z == 1
extern "C" __global__ void groups_of_a_block(unsigned* out) {
    cg::thread_block block = cg::this_thread_block();
    unsigned* mine = out + 20 * block.thread_rank();
    auto tile = cg::tiled_partition<16>(block);
    const unsigned me = threadIdx.x;
    mine[0] = block.size();
    mine[1] = tile.thread_rank();
    mine[2] = tile.size();
    mine[3] = tile.meta_group_rank();
    mine[4] = tile.shfl(me, 3);
    mine[5] = tile.shfl_down(me, 5);
    mine[6] = tile.shfl_up(me, 5);
    mine[7] = tile.shfl_xor(me, 6);
    mine[8] = tile.any(me == 5) != 0;
    mine[9] = tile.all(me < 40) != 0;
    mine[10] = (unsigned)tile.ballot(me % 5 == 0);
    mine[11] = cg::reduce(tile, me, cg::plus<unsigned>());
    mine[12] = cg::reduce(tile, (int)me - 20, cg::less<int>()) + 20;
    mine[13] = cg::inclusive_scan(tile, me);
    mine[14] = cg::exclusive_scan(tile, me, cg::plus<unsigned>());
    cg::thread_block_tile<4> small = cg::tiled_partition<4>(tile);
    mine[15] = cg::reduce(small, me, cg::greater<unsigned>());
    mine[16] = small.meta_group_rank();
    cg::sync(tile);
    if (me % 3 == 0) {
        // A GPU does not promise that all of these are together. You can only rely on the sum over the warp's groups.
        cg::coalesced_group together = cg::coalesced_threads();
        mine[17] = together.thread_rank() < together.size();
        mine[18] = cg::reduce(together, 1u, cg::plus<unsigned>()) == together.size();
        mine[19] = together.shfl(me, 0) % 3 == 0 && together.shfl(me, together.thread_rank()) == me;
    }
}

/// x[i] += the sum of all of x before, `rounds` times. There is a grid barrier after each step.
/// requires: cooperative, n <= len(x), 2 <= len(sums), block.x <= 1024, block.y * block.z * grid.y * grid.z == 1
extern "C" __global__ void add_the_sum(unsigned* x, unsigned* sums, unsigned rounds, unsigned n) {
    cg::grid_group grid = cg::this_grid();
    for (unsigned round = 0; round < rounds; ++round) {
        unsigned* sum = sums + round % 2;
        for (unsigned i = (unsigned)grid.thread_rank(); i < n; i += (unsigned)grid.size()) atomicAdd(sum, x[i]);
        grid.sync();
        for (unsigned i = (unsigned)grid.thread_rank(); i < n; i += (unsigned)grid.size()) x[i] += *sum;
        if (grid.thread_rank() == 0) sums[1 - round % 2] = 0;
        grid.sync();
    }
}

/// Stores what masked operations report to each thread of one block. A mask of 32 bits must mean the whole warp, even
/// if a warp has 64 lanes.
/// requires: 12 * block.x <= len(out), block.y * block.z * grid.x * grid.y * grid.z == 1
extern "C" __global__ void masked_warps(unsigned* out) {
    const unsigned me = threadIdx.x, lane = me % warpSize, at = lane % 32, base = lane - at;
    unsigned* mine = out + 12 * me;
    mine[0] = __shfl_sync(0xffffffff, me, 3, 32);
    mine[1] = __shfl_up_sync(0xffffffff, me, 2, 32);
    mine[2] = __shfl_down_sync(0xffffffff, me, 2, 8);
    mine[3] = (unsigned)__shfl_xor_sync(0xffffffff, (double)me, 5);
    mine[4] = (unsigned)(__ballot_sync(0xffffffff, at % 3 == 0) >> base);
    mine[5] = __any_sync(0xffffffff, at == 31) != 0;
    mine[6] = __all_sync(0xffffffff, at < 31) != 0;
    mine[7] = (unsigned)(__match_any_sync(0xffffffff, at % 4 + base) >> base);
    int same = 0;
    __match_all_sync(0xffffffff, 7, &same);
    mine[8] = same != 0;
    mine[9] = __activemask() != 0;
    __syncwarp();
    mine[10] = __shfl_sync(0xffffffff, (unsigned short)(me + 1), 4, 32);
    mine[11] = __popcll(__ballot_sync(0xffffffff, 1)) == warpSize;
}

/// Stores what integer intrinsics compute from a and b.
/// requires: n <= len(a), n <= len(b), 28 * n <= len(out)
/// covers: n
extern "C" __global__ void integer_intrinsics(const unsigned* a, const unsigned* b, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned x = a[i], y = b[i];
    unsigned* o = out + 28 * i;
    o[0] = __vadd4(x, y);
    o[1] = __vsub2(x, y);
    o[2] = __vaddss4(x, y);
    o[3] = __vsubus4(x, y);
    o[4] = __vabsdiffu4(x, y);
    o[5] = __vmaxs2(x, y);
    o[6] = __vminu4(x, y);
    o[7] = __vcmpgts4(x, y);
    o[8] = __vsetltu2(x, y);
    o[9] = __vavgu4(x, y);
    o[10] = __vabs4(x);
    o[11] = __vneg2(x);
    o[12] = __vsadu4(x, y);
    o[13] = (unsigned)__dp4a((int)x, (int)y, 3);
    o[14] = __dp4a(x, y, 3u);
    o[15] = __funnelshift_l(x, y, 37);
    o[16] = __funnelshift_rc(x, y, 33);
    o[17] = __byte_perm(x, y, 0x6240);
    o[18] = __brev(x);
    o[19] = (unsigned)(__ffs((int)x) + 64 * __clz((int)y) + 4096 * __popc(x));
    o[20] = (unsigned)__mul24((int)x, (int)y);
    o[21] = __umulhi(x, y);
    const double d = __hiloint2double((int)x, (int)y);
    o[22] = (unsigned)__double2hiint(d);
    o[23] = (unsigned)__double2loint(d);
    o[24] = __uhadd(x, y);
    o[25] = __usad(x, y, 9);
    o[26] = umin(x, y) ^ umax(x, y);
    o[27] = min(x, y) - max(x, 3u);
}

/// Stores what CUDA's instructions for dynamic programming compute from a, b and c.
/// requires: n <= len(a), n <= len(b), n <= len(c), 37 * n <= len(out)
/// covers: n
extern "C" __global__ void dynamic_programming(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* out,
                                               unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned x = a[i], y = b[i], z = c[i];
    const int sx = (int)x, sy = (int)y, sz = (int)z;
    unsigned* o = out + 37 * i;
    o[0] = (unsigned)__vimax3_s32(sx, sy, sz);
    o[1] = (unsigned)__vimin3_s32(sx, sy, sz);
    o[2] = (unsigned)__viaddmax_s32(sx, sy, sz);
    o[3] = (unsigned)__viaddmin_s32(sx, sy, sz);
    o[4] = (unsigned)__vimax3_s32_relu(sx, sy, sz);
    o[5] = (unsigned)__vimin3_s32_relu(sx, sy, sz);
    o[6] = (unsigned)__viaddmax_s32_relu(sx, sy, sz);
    o[7] = (unsigned)__viaddmin_s32_relu(sx, sy, sz);
    o[8] = (unsigned)__vimax_s32_relu(sx, sy);
    o[9] = (unsigned)__vimin_s32_relu(sx, sy);
    o[10] = __vimax3_u32(x, y, z);
    o[11] = __vimin3_u32(x, y, z);
    o[12] = __viaddmax_u32(x, y, z);
    o[13] = __viaddmin_u32(x, y, z);
    o[14] = __vimax3_s16x2(x, y, z);
    o[15] = __vimin3_s16x2(x, y, z);
    o[16] = __viaddmax_s16x2(x, y, z);
    o[17] = __viaddmin_s16x2(x, y, z);
    o[18] = __vimax3_s16x2_relu(x, y, z);
    o[19] = __vimin3_s16x2_relu(x, y, z);
    o[20] = __viaddmax_s16x2_relu(x, y, z);
    o[21] = __viaddmin_s16x2_relu(x, y, z);
    o[22] = __vimax_s16x2_relu(x, y);
    o[23] = __vimin_s16x2_relu(x, y);
    o[24] = __vimax3_u16x2(x, y, z);
    o[25] = __vimin3_u16x2(x, y, z);
    o[26] = __viaddmax_u16x2(x, y, z);
    o[27] = __viaddmin_u16x2(x, y, z);
    bool first[4], high[4], low[4];
    o[28] = (unsigned)__vibmax_s32(sx, sy, &first[0]);
    o[29] = (unsigned)__vibmin_s32(sx, sy, &first[1]);
    o[30] = __vibmax_u32(x, y, &first[2]);
    o[31] = __vibmin_u32(x, y, &first[3]);
    o[32] = __vibmax_s16x2(x, y, &high[0], &low[0]);
    o[33] = __vibmin_s16x2(x, y, &high[1], &low[1]);
    o[34] = __vibmax_u16x2(x, y, &high[2], &low[2]);
    o[35] = __vibmin_u16x2(x, y, &high[3], &low[3]);
    unsigned said = 0;
    for (int k = 0; k < 4; ++k) said |= (unsigned)(first[k] + 2 * high[k] + 4 * low[k]) << (3 * k);
    o[36] = said;
}

/// Every thread uses each kind of counter. The test says what must come out.
/// requires: 8 <= len(words), 2 <= len(wide), 2 <= len(shorts), 1 <= len(doubles)
extern "C" __global__ void counters(unsigned* words, unsigned long long* wide, unsigned short* shorts, double* doubles) {
    atomicInc(&words[0], 9);
    atomicDec(&words[1], 9);
    atomicAdd_block(&words[5], 0u);
    atomicAdd_system(&words[2], 1u);
    atomicOr(&words[3], 1u << (threadIdx.x % 32));
    unsigned seen = words[4], old;
    do {
        old = seen;
        seen = atomicCAS_system(&words[4], old, old + 3);
    } while (seen != old);
    unsigned long long wide_seen = wide[0], wide_old;
    do {
        wide_old = wide_seen;
        wide_seen = atomicCAS(&wide[0], wide_old, wide_old + (1ull << 33));
    } while (wide_seen != wide_old);
    unsigned short short_seen = shorts[1], short_old;
    do {
        short_old = short_seen;
        short_seen = atomicCAS(&shorts[1], short_old, (unsigned short)(short_old + 1));
    } while (short_seen != short_old);
    atomicAdd(doubles, 0.5);
    atomicMax(&wide[1], (unsigned long long)threadIdx.x << 40);
}

/// Stores 24 results for each a and b: sums, products, quotients, roots and conversions, rounded down, up and towards
/// zero. AMD's compiler has no such functions.
/// requires: n <= len(a), n <= len(b), 24 * n <= len(out)
/// covers: n
extern "C" __global__ void directed_rounding(const double* a, const double* b, double* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double* o = out + 24 * i;
#if defined(__HIP__) || defined(__HIPCC_RTC__)
    o[0] = a[i] + b[i];
#else
    const double x = a[i], y = b[i];
    const long long whole = (long long)x * 0x100000001ll;
    o[0] = __dadd_rd(x, y);
    o[1] = __dadd_ru(x, y);
    o[2] = __dadd_rz(x, y);
    o[3] = __dsub_rd(x, y);
    o[4] = __dsub_ru(x, y);
    o[5] = __dmul_rd(x, y);
    o[6] = __dmul_ru(x, y);
    o[7] = __dmul_rz(x, y);
    o[8] = __ddiv_rd(x, y);
    o[9] = __ddiv_ru(x, y);
    o[10] = __ddiv_rz(x, y);
    o[11] = __drcp_rd(y);
    o[12] = __drcp_ru(y);
    o[13] = __dsqrt_rd(x * x + 2);
    o[14] = __dsqrt_ru(x * x + 2);
    o[15] = __fmaf_rd((float)x, (float)y, 1e-9f);
    o[16] = __fmaf_ru((float)x, (float)y, 1e-9f);
    o[17] = __ll2float_rd(whole);
    o[18] = __ll2float_ru(whole);
    o[19] = __ll2float_rz(whole);
    o[20] = __ull2float_ru((unsigned long long)whole);
    o[21] = __ll2double_rd(whole * 0x1001);
    o[22] = __ull2double_ru((unsigned long long)whole * 0x1001);
    o[23] = (double)__fns((unsigned)whole, 1, 2);
#endif
}

/// Stores eight results for each y between 0 and 2: from the inverse error function and similar ones, and lengths of
/// vectors.
/// requires: n <= len(y), 8 * n <= len(out)
/// covers: n
extern "C" __global__ void special_functions(const double* y, double* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double x = y[i];
    out[8 * i] = erfcinv(x);
    out[8 * i + 1] = erfinv(x - 1);
    out[8 * i + 2] = normcdfinv(x / 2);
    out[8 * i + 3] = erfcx(x);
    out[8 * i + 4] = cyl_bessel_i0(x);
    out[8 * i + 5] = cyl_bessel_i1(x);
    out[8 * i + 6] = norm4d(x, 2, 3, 4);
    out[8 * i + 7] = rnorm3d(x, 2, 3);
}

/// Stores the least and the greatest of each pair: as `float`, as `double`, and of the overloaded functions.
/// requires: n <= len(x), n <= len(y), 6 * n <= len(out)
/// covers: n
extern "C" __global__ void extremes(const float* x, const float* y, double* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[6 * i] = fminf(x[i], y[i]);
    out[6 * i + 1] = fmaxf(x[i], y[i]);
    out[6 * i + 2] = fmin((double)x[i], (double)y[i]);
    out[6 * i + 3] = fmax((double)x[i], (double)y[i]);
    out[6 * i + 4] = min(x[i], y[i]);
    out[6 * i + 5] = max(x[i], y[i]);
}
