// What a warp's threads compute between shuffles, as vectors with one value per lane, so that it stays in registers.
//
// If code contains only arithmetic and shuffles, a kernel's form as loops goes through it warp after warp. In a loop
// over all threads, a shuffle would read from memory what the loop before has just stored.
#ifndef GPUSTREAM_CPU_LANES_CUH
#define GPUSTREAM_CPU_LANES_CUH

#include "loops.cuh"

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define GS_CPU_SHUFFLE(low, high, ...) __builtin_shufflevector(low, high, __VA_ARGS__)
#endif
#endif
#ifndef GS_CPU_SHUFFLE
#define GS_CPU_SHUFFLE(low, high, ...) __builtin_shuffle(low, high, truths{__VA_ARGS__})
#endif

// Whether vectors can hold a type's values.
template <class T>
static constexpr bool gs_cpu_fits_lanes =
    std::is_same<T, bool>::value || (std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8));

// Vectors of `Element`, which has 4 or 8 bytes, for a warp's lanes.
template <class Element>
struct gs_cpu_vectors {
    static constexpr int wide = 32 / sizeof(Element), count = GS_CPU_LOOPS_WARP / wide;
    typedef typename std::conditional<sizeof(Element) == 4, int32_t, int64_t>::type truth;
    typedef Element vector __attribute__((vector_size(32)));
    typedef truth truths __attribute__((vector_size(32)));
    typedef Element stored __attribute__((vector_size(32), aligned(sizeof(Element)), may_alias));
    vector at[count];

    gs_cpu_vectors() = default;
    GS_CPU_LOOP explicit gs_cpu_vectors(Element value) {
        // A sum would lose the sign of a zero.
        for (vector& part : at) part = value - vector{};
    }
    template <class Other>
    GS_CPU_LOOP explicit gs_cpu_vectors(const gs_cpu_vectors<Other>& other) {
        constexpr int others = gs_cpu_vectors<Other>::wide, size = wide < others ? wide : others;
        typedef Other from __attribute__((vector_size(size * sizeof(Other))));
        typedef Element to __attribute__((vector_size(size * sizeof(Element))));
        for (int first = 0; first < GS_CPU_LOOPS_WARP; first += size) {
            from old;
            std::memcpy(&old, (const char*)other.at + first * sizeof(Other), sizeof old);
            const to made = __builtin_convertvector(old, to);
            std::memcpy((char*)at + first * sizeof(Element), &made, sizeof made);
        }
    }
    // The values of the lanes that `Source` names. For one vector they lie in at most two.
    template <class Source, int Part, size_t... Lane>
    GS_CPU_LOOP vector moved(std::index_sequence<Lane...>) const {
        constexpr int first = Part * wide, low = Source::of(first) / wide, high = Source::of(first + wide - 1) / wide;
        constexpr auto from = [](int lane) {
            return Source::of(lane) % wide + (Source::of(lane) / wide == low ? 0 : wide);
        };
        return GS_CPU_SHUFFLE(at[low], at[high], from(first + (int)Lane)...);
    }
    template <class Source, size_t... Part>
    GS_CPU_LOOP gs_cpu_vectors all_moved(std::index_sequence<Part...>) const {
        gs_cpu_vectors result;
        ((result.at[Part] = moved<Source, Part>(std::make_index_sequence<wide>())), ...);
        return result;
    }
    template <class Source>
    GS_CPU_LOOP gs_cpu_vectors moved() const {
        return all_moved<Source>(std::make_index_sequence<count>());
    }
};

// One value for each lane in a warp. If a type does not fit, it has none.
template <class T, bool = gs_cpu_fits_lanes<T>>
struct gs_cpu_lanes {};
template <class T>
struct gs_cpu_lanes<T, true> {
    // A truth value is 0 or -1, because vector comparisons give it that way.
    typedef typename std::conditional<std::is_same<T, bool>::value, int32_t, T>::type element;
    gs_cpu_vectors<element> in;

    gs_cpu_lanes() = default;
    GS_CPU_LOOP explicit gs_cpu_lanes(const gs_cpu_vectors<element>& in) : in(in) {}
    template <class Other, class = typename std::enable_if<std::is_arithmetic<Other>::value>::type>
    GS_CPU_LOOP gs_cpu_lanes(Other value) : in(std::is_same<T, bool>::value ? -(element)(bool)value : (element)value) {}
    template <class Other>
    GS_CPU_LOOP gs_cpu_lanes(const gs_cpu_lanes<Other>& other) {
        if constexpr (std::is_same<T, bool>::value) {
            in = (other != Other(0)).in;
        } else if constexpr (std::is_same<Other, bool>::value) {
            gs_cpu_vectors<int32_t> ones = other.in;
            for (auto& part : ones.at) part = -part;
            in = gs_cpu_vectors<element>(ones);
        } else {
            in = gs_cpu_vectors<element>(other.in);
        }
    }
};

template <class T>
using gs_cpu_number = typename std::enable_if<std::is_arithmetic<T>::value>::type;
// A type for sums and products of another type that cannot overflow.
template <class T>
using gs_cpu_modulo =
    typename std::conditional<std::is_integral<T>::value, std::make_unsigned<T>, std::common_type<T>>::type::type;

// Returns values; `step` makes each vector from two.
template <class Result, class T, class Step>
static inline GS_CPU_LOOP gs_cpu_vectors<Result> gs_cpu_zip(const gs_cpu_lanes<T>& a, const gs_cpu_lanes<T>& b,
                                                            Step step) {
    gs_cpu_vectors<Result> result;
    for (int part = 0; part < result.count; ++part) result.at[part] = step(a.in.at[part], b.in.at[part]);
    return result;
}

// An operator's forms, if at least one side has a value for each lane.
#define GS_CPU_LANES_OPERATOR(op, ...)                                                                          \
    template <class T, class Other>                                                                             \
    static inline GS_CPU_LOOP auto operator op(const gs_cpu_lanes<T>& left, const gs_cpu_lanes<Other>& right) { \
        __VA_ARGS__                                                                                             \
    }                                                                                                           \
    template <class T, class Other, class = gs_cpu_number<Other>>                                               \
    static inline GS_CPU_LOOP auto operator op(const gs_cpu_lanes<T>& left, Other right) {                      \
        return left op gs_cpu_lanes<decltype(+right)>(right);                                                   \
    }                                                                                                           \
    template <class T, class Other, class = gs_cpu_number<T>>                                                   \
    static inline GS_CPU_LOOP auto operator op(T left, const gs_cpu_lanes<Other>& right) {                      \
        return gs_cpu_lanes<decltype(+left)>(left) op right;                                                    \
    }
#define GS_CPU_LANES_ARITHMETIC(op, Type, Sum)                                                                  \
    GS_CPU_LANES_OPERATOR(op, {                                                                                 \
        typedef Sum sum;                                                                                        \
        typedef Type type;                                                                                      \
        const auto step = [](const auto& x, const auto& y) GS_CPU_LOOP { return x op y; };                      \
        const gs_cpu_lanes<type> a(left), b(right);                                                             \
        return gs_cpu_lanes<sum>(gs_cpu_lanes<type>(gs_cpu_zip<type>(a, b, step)));                             \
    })                                                                                                          \
    template <class T, class Other>                                                                             \
    static inline GS_CPU_LOOP gs_cpu_lanes<T>& operator op##=(gs_cpu_lanes<T>& left, const Other& right) {      \
        return left = left op right;                                                                            \
    }
#define GS_CPU_LANES_COMPARISON(op)                                                                             \
    GS_CPU_LANES_OPERATOR(op, {                                                                                 \
        typedef decltype(T() + Other()) type;                                                                   \
        const auto step = [](const auto& x, const auto& y) GS_CPU_LOOP { return x op y; };                      \
        const gs_cpu_lanes<type> a(left), b(right);                                                             \
        typedef typename gs_cpu_vectors<type>::truth truth;                                                     \
        return gs_cpu_lanes<bool>(gs_cpu_vectors<int32_t>(gs_cpu_zip<truth>(a, b, step)));                      \
    })
#define GS_CPU_LANES_LOGICAL(op, of_bits)                                                                       \
    GS_CPU_LANES_OPERATOR(op, {                                                                                 \
        const auto step = [](const auto& x, const auto& y) GS_CPU_LOOP { return x of_bits y; };                 \
        const gs_cpu_lanes<bool> a(left), b(right);                                                             \
        return gs_cpu_lanes<bool>(gs_cpu_zip<int32_t>(a, b, step));                                             \
    })
#define GS_CPU_SUM decltype(T() + Other())
#define GS_CPU_LEFT decltype(+T())
GS_CPU_LANES_ARITHMETIC(+, gs_cpu_modulo<sum>, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(-, gs_cpu_modulo<sum>, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(*, gs_cpu_modulo<sum>, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(/, sum, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(%, sum, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(&, sum, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(|, sum, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(^, sum, GS_CPU_SUM)
GS_CPU_LANES_ARITHMETIC(<<, gs_cpu_modulo<sum>, GS_CPU_LEFT)
GS_CPU_LANES_ARITHMETIC(>>, sum, GS_CPU_LEFT)
GS_CPU_LANES_COMPARISON(<)
GS_CPU_LANES_COMPARISON(<=)
GS_CPU_LANES_COMPARISON(>)
GS_CPU_LANES_COMPARISON(>=)
GS_CPU_LANES_COMPARISON(==)
GS_CPU_LANES_COMPARISON(!=)
GS_CPU_LANES_LOGICAL(&&, &)
GS_CPU_LANES_LOGICAL(||, |)
#undef GS_CPU_LEFT
#undef GS_CPU_SUM
#undef GS_CPU_LANES_LOGICAL
#undef GS_CPU_LANES_COMPARISON
#undef GS_CPU_LANES_ARITHMETIC
#undef GS_CPU_LANES_OPERATOR

template <class T>
static inline GS_CPU_LOOP auto operator+(const gs_cpu_lanes<T>& values) {
    return gs_cpu_lanes<decltype(+T())>(values);
}
template <class T>
static inline GS_CPU_LOOP auto operator-(const gs_cpu_lanes<T>& values) {
    gs_cpu_lanes<decltype(-T())> result(values);
    for (auto& part : result.in.at) part = -part;
    return result;
}
template <class T>
static inline GS_CPU_LOOP auto operator~(const gs_cpu_lanes<T>& values) {
    return values ^ decltype(+T())(-1);
}
template <class T>
static inline GS_CPU_LOOP auto operator!(const gs_cpu_lanes<T>& values) {
    return values == T(0);
}

// The type of one value.
template <class T>
struct gs_cpu_lane_type { typedef T type; };
template <class T>
struct gs_cpu_lane_type<gs_cpu_lanes<T>> { typedef T type; };
template <class T>
using gs_cpu_lane_of = typename gs_cpu_lane_type<typename std::decay<T>::type>::type;

// The value of a conditional expression whose parts may differ between lanes. We evaluate all parts.
template <class Condition, class First, class Second>
static inline GS_CPU_LOOP auto gs_cpu_choose(const Condition& condition, const First& a, const Second& b) {
    typedef decltype(true ? gs_cpu_lane_of<First>() : gs_cpu_lane_of<Second>()) type;
    typedef typename gs_cpu_lanes<type>::element element;
    const gs_cpu_vectors<typename gs_cpu_vectors<element>::truth> truths(gs_cpu_lanes<bool>(condition).in);
    gs_cpu_lanes<type> x(a);
    const gs_cpu_lanes<type> y(b);
    for (int part = 0; part < x.in.count; ++part) x.in.at[part] = truths.at[part] ? x.in.at[part] : y.in.at[part];
    return x;
}
// The smaller and the larger of two values, if one of them can be NaN.
template <class First, class Second>
static inline GS_CPU_LOOP auto gs_cpu_least(const First& a, const Second& b) {
    return gs_cpu_choose(a < b || b != b, a, b);
}
template <class First, class Second>
static inline GS_CPU_LOOP auto gs_cpu_most(const First& a, const Second& b) {
    return gs_cpu_choose(a > b || b != b, a, b);
}

// The lanes that a warp's lanes read in a shuffle by a constant.
template <int Delta>
struct gs_cpu_lane_up {
    static constexpr int of(int lane) { return lane >= Delta ? lane - Delta : lane; }
};
template <int Delta>
struct gs_cpu_lane_down {
    static constexpr int of(int lane) { return lane + Delta < GS_CPU_LOOPS_WARP ? lane + Delta : lane; }
};
template <int Mask>
struct gs_cpu_lane_other {
    static constexpr int of(int lane) { return lane ^ Mask; }
};

// A warp whose threads all run.
struct gs_cpu_whole_warp {
    static constexpr uint32_t lanes = GS_CPU_LOOPS_WARP;
    struct {
        gs_cpu_lanes<uint32_t> x;
        uint32_t y, z;
    } index;                        // threadIdx
    size_t first;                   // number of its first thread in the block
    int warp_x;                     // threadIdx.x / warpSize
    gs_cpu_lanes<uint32_t> lane_x;  // threadIdx.x % warpSize

    GS_CPU_LOOP gs_cpu_whole_warp(size_t first, uint3 at) : first(first), warp_x((int)(at.x / lanes)) {
        for (int part = 0; part < lane_x.in.count; ++part) {
            for (int lane = 0; lane < lane_x.in.wide; ++lane) lane_x.in.at[part][lane] = part * lane_x.in.wide + lane;
        }
        index = {lane_x + at.x, at.y, at.z};
    }
    // A value for each lane, from what may be one value.
    template <class T, class Other>
    GS_CPU_LOOP gs_cpu_lanes<T> as(const Other& value) const { return gs_cpu_lanes<T>(value); }
    // A variable's values, and their place.
    template <class T>
    GS_CPU_LOOP gs_cpu_lanes<T> load(const T* values) const {
        gs_cpu_lanes<T> loaded;
        if constexpr (std::is_same<T, bool>::value) {
            int32_t each[lanes];
            for (uint32_t lane = 0; lane < lanes; ++lane) each[lane] = -values[first + lane];
            std::memcpy(&loaded, each, sizeof each);
        } else {
            typedef const typename gs_cpu_vectors<T>::stored stored;
            constexpr int wide = gs_cpu_vectors<T>::wide;
            for (int i = 0; i < loaded.in.count; ++i) loaded.in.at[i] = *(stored*)(values + first + i * wide);
        }
        return loaded;
    }
    template <class T>
    GS_CPU_LOOP void store(T* to, const gs_cpu_lanes<T>& values) const {
        if constexpr (std::is_same<T, bool>::value) {
            int32_t each[lanes];
            std::memcpy(each, &values, sizeof each);
            for (uint32_t lane = 0; lane < lanes; ++lane) to[first + lane] = each[lane] != 0;
        } else {
            typedef typename gs_cpu_vectors<T>::stored stored;
            constexpr int wide = gs_cpu_vectors<T>::wide;
            for (int i = 0; i < values.in.count; ++i) *(stored*)(to + first + i * wide) = values.in.at[i];
        }
    }
    // The results of shuffles, like those of `gs_cpu_turn`.
    template <class T>
    GS_CPU_LOOP gs_cpu_lanes<T> up(const gs_cpu_lanes<T>& values, unsigned delta, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width);
        return moved<gs_cpu_lane_up>(values, segment, delta, [=](uint32_t lane) GS_CPU_LOOP {
            return delta < segment && (lane & (segment - 1)) >= delta ? lane - delta : lane;
        });
    }
    template <class T>
    GS_CPU_LOOP gs_cpu_lanes<T> down(const gs_cpu_lanes<T>& values, unsigned delta, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width);
        return moved<gs_cpu_lane_down>(values, segment, delta, [=](uint32_t lane) GS_CPU_LOOP {
            return delta < segment && (lane & (segment - 1)) + delta < segment ? lane + delta : lane;
        });
    }
    template <class T>
    GS_CPU_LOOP gs_cpu_lanes<T> other(const gs_cpu_lanes<T>& values, int lane_mask, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width), mask = (uint32_t)lane_mask;
        return moved<gs_cpu_lane_other>(values, segment, mask, [=](uint32_t lane) GS_CPU_LOOP {
            return (lane ^ mask) < (lane & ~(segment - 1)) + segment ? lane ^ mask : lane;
        });
    }
    template <class T>
    GS_CPU_LOOP gs_cpu_lanes<T> from(const gs_cpu_lanes<T>& values, int of, int width = 0) const {
        const uint32_t segment = gs_cpu_segment(width);
        return read(values, [=](uint32_t lane) GS_CPU_LOOP {
            return (lane & ~(segment - 1)) + ((uint32_t)of & (segment - 1));
        });
    }

  private:
    // A shuffle by a number that the compiler knows, because it has unrolled the loop around it.
    template <template <int> class Source, class T, class Lane>
    static GS_CPU_LOOP gs_cpu_lanes<T> moved(const gs_cpu_lanes<T>& values, uint32_t segment, uint32_t number,
                                             Lane source) {
        typedef gs_cpu_lanes<T> result;
        switch (segment == lanes ? number : 0) {
            case 1: return result(values.in.template moved<Source<1>>());
            case 2: return result(values.in.template moved<Source<2>>());
            case 4: return result(values.in.template moved<Source<4>>());
            case 8: return result(values.in.template moved<Source<8>>());
            case 16: return result(values.in.template moved<Source<16>>());
            default: return read(values, source);
        }
    }
    // A shuffle from the lane that `source` returns for each.
    template <class T, class Lane>
    static GS_CPU_LOOP gs_cpu_lanes<T> read(const gs_cpu_lanes<T>& values, Lane source) {
        typename gs_cpu_lanes<T>::element old[lanes], each[lanes];
        std::memcpy(old, &values, sizeof old);
        for (uint32_t lane = 0; lane < lanes; ++lane) each[lane] = old[source(lane)];
        gs_cpu_lanes<T> result;
        std::memcpy(&result, each, sizeof each);
        return result;
    }
};

// Runs the body for each warp, if rows consist of whole warps that run or do not, and vectors can hold values of
// these types. Returns true if it did.
template <class... T, class Threads, class Body>
static inline GS_CPU_LOOP bool gs_cpu_in_lanes(const Threads& threads, Body body) {
    if constexpr ((gs_cpu_fits_lanes<typename std::remove_cv<T>::type> && ...)) {
        const uint32_t warps = threads.whole_warps();
        gs_cpu_each_warp(threads, warps, [&](size_t first, uint3 index) GS_CPU_LOOP {
            body(gs_cpu_whole_warp(first, index));
        });
        return std::is_same<Threads, gs_cpu_warps>::value || warps != 0;
    } else {
        return false;
    }
}

#endif
