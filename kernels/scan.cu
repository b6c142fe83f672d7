// Scans: y[i] combines x[0], ..., x[i], or without x[i] if the scan is exclusive.
//
// On GPUs one kernel reads each element once (`lookback.cuh`). On the CPU each worker has a contiguous share, and a kernel is
// launched three times, because workers need not be there at the same time:
//
//   step 0   totals[b] combines share b                  one block with one thread for each share
//   step 1   totals[b] combines the shares before b      one block
//   step 2   y = the scan of each share, starting from totals[b]     as in step 0
//
// Sums of integers wrap around. We sum 16-bit floats in float and round each result once.
#include "counted.cuh"
#include "lookback.cuh"
#include "order.cuh"
#include "tiles.cuh"

namespace {

// What a scan combines, and how: `get` and `put` convert elements from and to what we combine. `Bits` are the elements
// as the kernel sees them.
template <class T>
struct Sums {
    typedef decltype(gs::to_float(T())) Value;
    static GS_INLINE Value identity() { return Value(0); }
    GS_INLINE Value get(T x) const { return gs::to_float(x); }
    GS_INLINE T put(Value x) const { return gs::from_float<T>(x); }
    GS_INLINE Value operator()(Value a, Value b) const { return a + b; }
};
template <class T>
struct WholeSums {
    typedef T Value;
    static GS_INLINE T identity() { return 0; }
    GS_INLINE T get(T x) const { return x; }
    GS_INLINE T put(T x) const { return x; }
    GS_INLINE T operator()(T a, T b) const { return a + b; }
};
template <>
struct Sums<gs::u32> : WholeSums<gs::u32> {};
template <>
struct Sums<gs::u64> : WholeSums<gs::u64> {};

template <class T>
struct Products {
    typedef T Value;
    static GS_INLINE T identity() { return T(1); }
    GS_INLINE T get(T x) const { return x; }
    GS_INLINE T put(T x) const { return x; }
    GS_INLINE T operator()(T a, T b) const { return a * b; }
};

// The key that comes last in an order, as its rank: the largest key in ascending order, the smallest in descending order.
template <class Bits>
struct Extremes {
    typedef Bits Value;
    Order<Bits> order;
    static GS_INLINE Bits identity() { return 0; }
    GS_INLINE Bits get(Bits x) const { return order.rank(x); }
    GS_INLINE Bits put(Bits x) const { return order.key(x); }
    GS_INLINE Bits operator()(Bits a, Bits b) const { return a < b ? b : a; }
};

// How a thread's elements are grouped: in packs of sixteen bytes.
template <class T>
using ScanTile = Tile<sizeof(T) < 4 ? 2 : 6, 16 / (int)sizeof(T)>;

template <class T, class Scan>
GS_INLINE void scan_tiles(const T* x, T* y, size_t n, const gs::u64* count, gs::u64* state, size_t tiles, bool exclusive,
                          const Scan& scan) {
    typedef typename Scan::Value V;
    typedef ScanTile<T> Part;
    n = live(n, count);
    const Tiles all{state, tiles};
    const size_t number = all.take();
    if (number * Part::size() >= n) return;
    const Part tile(number, n);
    T raw[Part::packs][Part::per_pack];
    tile.load(x ? x : y, T(), raw);
    V item[Part::packs][Part::per_pack], before[Part::packs];
    GS_UNROLL
    for (int p = 0; p < Part::packs; ++p) {
        GS_UNROLL
        for (int k = 0; k < Part::per_pack; ++k) item[p][k] = tile.has(p, k) ? scan.get(raw[p][k]) : Scan::identity();
    }
    const V total = scan_tile(item, before, Scan::identity(), scan);
    const V prefix = all.before(number, total, Scan::identity(), scan);
    GS_UNROLL
    for (int p = 0; p < Part::packs; ++p) {
        V earlier = scan(prefix, before[p]);
        GS_UNROLL
        for (int k = 0; k < Part::per_pack; ++k) {
            const V upto = scan(earlier, item[p][k]);
            const V previous = k == 0 ? earlier : scan(earlier, item[p][k > 0 ? k - 1 : 0]);
            raw[p][k] = scan.put(exclusive ? previous : upto);
        }
    }
    tile.store(y, raw);
}

// Returns the beginning of share b of n elements.
GS_INLINE size_t share(size_t n, size_t b) { return gs::share_begin(n, b, gs::blocks_in_grid(), 64); }

template <class T, class Scan>
GS_INLINE void scan_shares(int step, const T* x, typename Scan::Value* totals, size_t shares, T* y, size_t n, bool exclusive,
                           const Scan& scan) {
    typedef typename Scan::Value V;
    if (!x) x = y;
    if (step == 1) {
        V carry = Scan::identity();
        for (size_t b = 0; b < shares; ++b) {
            const V total = totals[b];
            totals[b] = carry;
            carry = scan(carry, total);
        }
        return;
    }
    const size_t b = gs::block_in_grid(), end = share(n, b + 1);
    size_t i = share(n, b);
    if (step == 0) {
        // We keep several partial results, because then the compiler can vectorise.
        constexpr int lanes = 32;
        V part[lanes];
        for (int k = 0; k < lanes; ++k) part[k] = Scan::identity();
        for (; i < end && end - i >= (size_t)lanes; i += lanes) {
            for (int k = 0; k < lanes; ++k) part[k] = scan(part[k], scan.get(x[i + k]));
        }
        for (; i < end; ++i) part[0] = scan(part[0], scan.get(x[i]));
        V total = part[0];
        for (int k = 1; k < lanes; ++k) total = scan(total, part[k]);
        totals[b] = total;
        return;
    }
    V carry = totals[b];
    if (exclusive) {
        for (; i < end; ++i) {
            const V next = scan(carry, scan.get(x[i]));
            y[i] = scan.put(carry);
            carry = next;
        }
    } else {
        for (; i < end; ++i) y[i] = scan.put(carry = scan(carry, scan.get(x[i])));
    }
}

}  // namespace

/// Running sums: y[i] combines the x up to i, with x[i] unless the scan is exclusive. Without x, y is scanned in place. Each block
/// has one tile. Without a state there is one block.
/// types: T = float, double, gs::half, gs::bfloat16, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(y), 1 <= len(count), 2 + 2 * (tiles + tiles / 32 + tiles / 1024 + 3) <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: x, count, state
template <class T>
__global__ void __launch_bounds__(256, 4) scan_sum(const T* x, T* y, size_t n, const gs::u64* count, gs::u64* state, size_t tiles,
                                                bool exclusive) {
    scan_tiles(x, y, n, count, state, tiles, exclusive, Sums<T>());
}

/// Running products. As `scan_sum`.
/// types: T = float, double, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(y), 1 <= len(count), 2 + 2 * (tiles + tiles / 32 + tiles / 1024 + 3) <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: x, count, state
template <class T>
__global__ void __launch_bounds__(256, 4) scan_product(const T* x, T* y, size_t n, const gs::u64* count, gs::u64* state,
                                                    size_t tiles, bool exclusive) {
    scan_tiles(x, y, n, count, state, tiles, exclusive, Products<T>());
}

/// The last key of those so far, in the order of `if_set` and `if_clear` (`order.cuh`): the largest if that is ascending, the
/// smallest if it is descending. As `scan_sum`.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(y), 1 <= len(count), 2 + 2 * (tiles + tiles / 32 + tiles / 1024 + 3) <= len(state),
///           block.x == 256, block.y == 1, block.z == 1
/// optional: x, count, state
template <class T>
__global__ void __launch_bounds__(256, 4) scan_extreme(const T* x, T* y, size_t n, const gs::u64* count, gs::u64* state,
                                                    size_t tiles, gs::u64 if_set, gs::u64 if_clear) {
    scan_tiles(x, y, n, count, state, tiles, false, Extremes<T>{{(T)if_set, (T)if_clear}});
}

/// Running sums on the CPU, in three steps.
/// types: (T, Total) = (float, float), (double, double), (gs::half, float), (gs::bfloat16, float), (unsigned int, unsigned int), (unsigned long long, unsigned long long)
/// requires: n <= len(x), n <= len(y), 1 <= len(count), grid.x <= shares, shares <= len(totals), 0 <= step, step <= 2,
///           grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: x, count
template <class T, class Total>
__global__ void scan_sum_shares(int step, const T* x, Total* totals, size_t shares, T* y, size_t n, const gs::u64* count,
                                bool exclusive) {
    scan_shares(step, x, totals, shares, y, live(n, count), exclusive, Sums<T>());
}

/// Running products on the CPU, in three steps.
/// types: T = float, double, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(y), 1 <= len(count), grid.x <= shares, shares <= len(totals), 0 <= step, step <= 2,
///           grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: x, count
template <class T>
__global__ void scan_product_shares(int step, const T* x, T* totals, size_t shares, T* y, size_t n, const gs::u64* count,
                                    bool exclusive) {
    scan_shares(step, x, totals, shares, y, live(n, count), exclusive, Products<T>());
}

/// `scan_extreme` on the CPU, in three steps.
/// types: T = unsigned char, unsigned short, unsigned int, unsigned long long
/// requires: n <= len(x), n <= len(y), 1 <= len(count), grid.x <= shares, shares <= len(totals), 0 <= step, step <= 2,
///           grid.y == 1, grid.z == 1, block.x == 1, block.y == 1, block.z == 1
/// optional: x, count
template <class T>
__global__ void scan_extreme_shares(int step, const T* x, T* totals, size_t shares, T* y, size_t n, const gs::u64* count,
                                    gs::u64 if_set, gs::u64 if_clear) {
    scan_shares(step, x, totals, shares, y, live(n, count), false, Extremes<T>{{(T)if_set, (T)if_clear}});
}
