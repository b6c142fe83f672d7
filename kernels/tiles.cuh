// A tile is what a block works on at once. Each warp has a contiguous part of it. In that part the lanes take packs of elements
// in turn, so that accesses are wide and neighbouring lanes access neighbouring packs.
#ifndef GPUSTREAM_KERNELS_TILES_CUH
#define GPUSTREAM_KERNELS_TILES_CUH

#include <gpustream/kernel.cuh>

// Elements that are loaded and stored together.
template <class T, int Size>
struct alignas(sizeof(T) * Size) TilePack {
    T at[Size];
};

// Each thread has `Packs` packs of `PerPack` elements.
template <int Packs, int PerPack>
struct Tile {
    static constexpr int packs = Packs, per_pack = PerPack, per_thread = Packs * PerPack;

    size_t begin;    // the tile's first element
    gs::u32 len;     // how many elements it has
    gs::u32 first;   // where this thread's first pack begins in the tile
    gs::u32 stride;  // from one of its packs to the next
    bool whole;      // it has all elements

    static GS_INLINE gs::u32 size() { return gs::threads_in_block() * (gs::u32)per_thread; }

    // Makes tile `number` of n elements; it must have some.
    GS_INLINE Tile(size_t number, size_t n) : begin(number * size()) {
        const gs::u32 lanes = gs::warp_size();
        whole = n - begin >= size();
        len = whole ? size() : (gs::u32)(n - begin);
        first = gs::warp_in_block() * lanes * (gs::u32)per_thread + gs::lane() * (gs::u32)per_pack;
        stride = lanes * (gs::u32)per_pack;
    }

    // Returns where element k of this thread's pack p is in the tile, and whether there is one.
    GS_INLINE gs::u32 at(int p, int k) const { return first + (gs::u32)p * stride + (gs::u32)k; }
    GS_INLINE bool has(int p, int k) const { return whole || at(p, k) < len; }

    // Loads this thread's elements of x. Those that do not exist become `fill`.
    template <class T>
    GS_INLINE void load(const T* x, T fill, T (&item)[Packs][PerPack]) const {
        typedef TilePack<T, PerPack> P;
        x += begin;
        if (whole && (size_t)x % sizeof(P) == 0) {
            GS_UNROLL
            for (int p = 0; p < Packs; ++p) {
                const P pack = *reinterpret_cast<const P*>(x + at(p, 0));
                GS_UNROLL
                for (int k = 0; k < PerPack; ++k) item[p][k] = pack.at[k];
            }
        } else {
            GS_UNROLL
            for (int p = 0; p < Packs; ++p) {
                GS_UNROLL
                for (int k = 0; k < PerPack; ++k) item[p][k] = at(p, k) < len ? x[at(p, k)] : fill;
            }
        }
    }

    // Stores this thread's elements to y.
    template <class T>
    GS_INLINE void store(T* y, const T (&item)[Packs][PerPack]) const {
        typedef TilePack<T, PerPack> P;
        y += begin;
        if (whole && (size_t)y % sizeof(P) == 0) {
            GS_UNROLL
            for (int p = 0; p < Packs; ++p) {
                P pack;
                GS_UNROLL
                for (int k = 0; k < PerPack; ++k) pack.at[k] = item[p][k];
                *reinterpret_cast<P*>(y + at(p, 0)) = pack;
            }
        } else {
            GS_UNROLL
            for (int p = 0; p < Packs; ++p) {
                GS_UNROLL
                for (int k = 0; k < PerPack; ++k) {
                    if (at(p, k) < len) y[at(p, k)] = item[p][k];
                }
            }
        }
    }

    // Returns the element before this warp's part of x in its first lane, and the one after it in its last, if there is one. Load
    // them before the elements, so that the loads overlap.
    template <class T>
    GS_INLINE T before_warp(const T* x) const {
        const size_t i = begin + at(0, 0);
        return gs::lane() == 0 && i > 0 && has(0, 0) ? x[i - 1] : T();
    }
    template <class T>
    GS_INLINE T after_warp(const T* x, size_t n) const {
        const size_t i = begin + at(Packs - 1, PerPack);
        return gs::lane() + 1 == gs::warp_size() && i < n ? x[i] : T();
    }

    // Returns a thread's elements as bits: whether each differs from the one before it, or is the first of all. See `bit`.
    template <class T>
    GS_INLINE gs::u32 heads(const T (&item)[Packs][PerPack], T before_warp) const {
        static_assert(per_thread <= 32, "a thread's elements are the bits of a word");
        const gs::u32 lane_before = (gs::lane() + gs::warp_size() - 1) % gs::warp_size();
        gs::u32 heads = 0;
        T wrapped = before_warp;
        GS_UNROLL
        for (int p = 0; p < Packs; ++p) {
            // In the first lane this is the pack's last element, which comes before the next pack.
            const T rotated = gs::shfl(item[p][PerPack - 1], lane_before);
            const T previous = gs::lane() == 0 ? wrapped : rotated;
            wrapped = rotated;
            if (item[p][0] != previous || begin + at(p, 0) == 0) heads |= bit(p, 0);
            GS_UNROLL
            for (int k = 1; k < PerPack; ++k) {
                if (item[p][k] != item[p][k - 1]) heads |= bit(p, k);
            }
        }
        return heads;
    }
    static GS_INLINE gs::u32 bit(int p, int k) { return 1u << (p * PerPack + k); }

    // Returns the bits of the elements that exist.
    GS_INLINE gs::u32 existing() const {
        gs::u32 bits = 0;
        GS_UNROLL
        for (int p = 0; p < Packs; ++p) {
            GS_UNROLL
            for (int k = 0; k < PerPack; ++k) {
                if (has(p, k)) bits |= bit(p, k);
            }
        }
        return bits;
    }
};

// Shared memory through which the threads of a warp hand over packs for strips: the contiguous elements of one thread each. What
// neighbours combine to takes one scan with strips, and one for each pack without. A warp has its own rows, so no call needs a
// barrier of the block. There are at most 256 threads.
template <class T, int Packs, int PerPack>
struct Strips {
    typedef TilePack<T, PerPack> P;
    static constexpr int per_thread = Packs * PerPack;
    // With one pack more than there are, neighbouring threads use different banks.
    P row[256][Packs + 1];

    // Returns the room as an array, which has space for all elements of a tile.
    GS_INLINE T* flat() { return row[0][0].at; }

    GS_INLINE void put_packs(const T (&item)[Packs][PerPack]) {
        GS_UNROLL
        for (int p = 0; p < Packs; ++p) pack(p) = to_pack(item[p]);
        gs::sync_warp();
    }
    GS_INLINE void get_packs(T (&item)[Packs][PerPack]) {
        gs::sync_warp();
        GS_UNROLL
        for (int p = 0; p < Packs; ++p) from_pack(pack(p), item[p]);
    }
    GS_INLINE void put_strip(const T (&item)[per_thread]) {
        GS_UNROLL
        for (int p = 0; p < Packs; ++p) row[gs::thread_in_block()][p] = to_pack(item + p * PerPack);
    }
    GS_INLINE void get_strip(T (&item)[per_thread]) const {
        GS_UNROLL
        for (int p = 0; p < Packs; ++p) from_pack(row[gs::thread_in_block()][p], item + p * PerPack);
    }

private:
    // Returns where this thread's pack p is in the strip that has it.
    GS_INLINE P& pack(int p) {
        const gs::u32 lanes = gs::warp_size(), place = (gs::u32)p * lanes + gs::lane();
        return row[gs::warp_in_block() * lanes + place / Packs][place % Packs];
    }
    static GS_INLINE P to_pack(const T* item) {
        P pack;
        GS_UNROLL
        for (int k = 0; k < PerPack; ++k) pack.at[k] = item[k];
        return pack;
    }
    static GS_INLINE void from_pack(const P& pack, T* item) {
        GS_UNROLL
        for (int k = 0; k < PerPack; ++k) item[k] = pack.at[k];
    }
};

// Scans a tile. Afterwards item[p][k] combines the elements of pack p up to k, and before[p] everything in the tile before that
// pack. Returns what the whole tile combines to. `op` must be associative. All threads of the block must come here.
template <class V, class Op, int Packs, int PerPack>
GS_INLINE V scan_tile(V (&item)[Packs][PerPack], V (&before)[Packs], V identity, Op op) {
    __shared__ V of_warp[gs::max_warps];
    const gs::u32 last = gs::warp_size() - 1;
    V carry = identity;
    GS_UNROLL
    for (int p = 0; p < Packs; ++p) {
        GS_UNROLL
        for (int k = 1; k < PerPack; ++k) item[p][k] = op(item[p][k - 1], item[p][k]);
        const V upto = gs::warp_inclusive_scan(item[p][PerPack - 1], op);
        const V previous = gs::shfl_up(upto, 1);
        before[p] = gs::lane() == 0 ? carry : op(carry, previous);
        carry = op(carry, gs::shfl(upto, last));
    }
    if (gs::lane() == 0) of_warp[gs::warp_in_block()] = carry;
    __syncthreads();
    V earlier = identity, total = identity;
    const gs::u32 warps = gs::warps_in_block(), self = gs::warp_in_block();
    for (gs::u32 w = 0; w < warps; ++w) {
        if (w == self) earlier = total;
        total = op(total, of_warp[w]);
    }
    GS_UNROLL
    for (int p = 0; p < Packs; ++p) before[p] = op(earlier, before[p]);
    return total;
}

#endif
