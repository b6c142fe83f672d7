// Ranks of keys in a block, by one digit: where each key goes if the block's keys are sorted by that digit, and keys with the same
// digit keep their order.
//
// Each warp counts the digits of its own keys. Then we add up: the first key with digit d of warp w comes after all keys
// with a lower digit, and after those with digit d in the warps before. At last each warp goes through its keys again. Lanes with
// the same digit find each other by votes, and the highest of them takes places for all of them.
#ifndef GPUSTREAM_KERNELS_RADIX_CUH
#define GPUSTREAM_KERNELS_RADIX_CUH

#include <gpustream/kernel.cuh>

// The values of a digit. Blocks have at least as many threads.
constexpr gs::u32 bins = 256;

// A key's digit: `bits` bits from `shift` on, at most eight.
template <class Key>
struct Digit {
    gs::u32 shift, mask;
    GS_INLINE Digit(gs::u32 shift, gs::u32 bits) : shift(shift), mask((1u << bits) - 1) {}
    GS_INLINE gs::u32 operator()(Key key) const { return (gs::u32)(key >> shift) & mask; }
};

// Return how many bits the digit has that begins at `shift`.
GS_INLINE gs::u32 digit_bits(gs::u32 shift, gs::u32 end_bit) { return end_bit - shift < 8 ? end_bit - shift : 8; }

// How many lanes a warp has: a constant if the compiler knows it, so that loops over warps unroll.
#if defined(GS_CUDA)
GS_INLINE constexpr gs::u32 warp_width() { return 32; }
#else
GS_INLINE gs::u32 warp_width() { return gs::warp_size(); }
#endif

// Returns the place of this key, and counts it. `next` has for each digit the place of the warp's next key with that digit.
// All lanes of a full warp call it together.
GS_INLINE gs::u32 take_place(gs::u32* next, gs::u32 digit) {
#if defined(GS_CUDA)
    // match_any would be one instruction, but it takes twice as long as eight votes.
    gs::u32 same = ~0u;
    GS_UNROLL
    for (int b = 0; b < 8; ++b) {
        gs::u32 vote;
        asm("{\n.reg .pred p;\nand.b32 %0, %1, %2;\nsetp.ne.u32 p, %0, 0;\nvote.sync.ballot.b32 %0, p, 0xffffffff;\n"
            "@!p not.b32 %0, %0;\n}"
            : "=r"(vote)
            : "r"(digit), "r"(1u << b));
        same &= vote;
    }
    gs::u32 upto_self;
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(upto_self));
    const gs::u32 highest = 31 - (gs::u32)__clz((int)same), upto = (gs::u32)__popc(same & upto_self);
    gs::u32 place = 0;
    // An atomic, because the next key need not wait for its result.
    if ((same & ~upto_self) == 0) place = atomicAdd(next + digit, upto);
    return __shfl_sync(~0u, place, (int)highest) + upto - 1;
#else
    gs::u64 same = ~(gs::u64)0;
    for (int b = 0; b < 8; ++b) {
        const bool set = (digit >> b & 1) != 0;
        const gs::u64 vote = gs::ballot(set);
        same &= set ? vote : ~vote;
    }
    if (warp_width() < 64) same &= ((gs::u64)1 << warp_width()) - 1;
    const gs::u64 below = same & (((gs::u64)1 << gs::lane()) - 1);
    const gs::u32 place = next[digit];
    gs::sync_warp();
    if (below == 0) next[digit] = place + (gs::u32)__popcll(same);
    gs::sync_warp();
    return place + (gs::u32)__popcll(below);
#endif
}

// Returns the sum of the counts of all threads before this one. Only the first 256 threads get a result. `totals` has room for 8.
GS_INLINE gs::u32 sum_before(gs::u32 count, gs::u32* totals) {
    const gs::u32 width = warp_width(), warp = gs::thread_in_block() / width;
    const gs::u32 upto = gs::warp_inclusive_scan(count, gs::Sum());
    if (gs::lane() == width - 1 && warp < bins / width) totals[warp] = upto;
    __syncthreads();
    gs::u32 before = upto - count;
    GS_UNROLL
    for (gs::u32 w = 0; w < bins / width; ++w) before += w < warp ? totals[w] : 0;
    return before;
}

// Ranks the block's keys and calls put(i, rank) for each key i of this thread. A warp's keys are consecutive: key i is `width`
// after key i - 1. `next` has a row of 256 words per warp, all zero. Each thread has `used` keys. Sets `count` to how many keys
// have digit number `thread`, and `before` to how many have a lower one; calls counted() when `count` is known. `next` may be
// used again after a barrier.
template <gs::u32 Threads, int Items, class Key, class Counted, class Put>
GS_INLINE void rank_keys(gs::u32* next, gs::u32* totals, const Key* keys, int used, Digit<Key> digit, gs::u32& count,
                         gs::u32& before, Counted counted, Put put) {
    const gs::u32 thread = gs::thread_in_block(), width = warp_width(), warps = Threads / width;
    gs::u32* const own = next + thread / width * bins;
    GS_UNROLL
    for (int i = 0; i < Items; ++i) {
        if (i < used) gs::shared_add(own + digit(keys[i]), 1u);
    }
    __syncthreads();
    count = 0;
    if (thread < bins) {
        GS_UNROLL
        for (gs::u32 w = 0; w < warps; ++w) {
            const gs::u32 of_warp = next[w * bins + thread];
            next[w * bins + thread] = count;
            count += of_warp;
        }
        counted();
    }
    before = sum_before(count, totals);
    if (thread < bins) {
        GS_UNROLL
        for (gs::u32 w = 0; w < warps; ++w) next[w * bins + thread] += before;
    }
    __syncthreads();
    GS_UNROLL
    for (int i = 0; i < Items; ++i) {
        if (i < used) put(i, take_place(own, digit(keys[i])));
    }
}

#endif
