// Integer intrinsics that CUDA offers without an include, for compilers that lack them: host compilers, and AMD's.
//
// All are templates. So if the vendor or you have a function with the same parameters, the compiler takes that
// one.
#ifndef GPUSTREAM_INTRINSICS_CUH
#define GPUSTREAM_INTRINSICS_CUH

#define GS_INTRINSIC template <int = 0> static __device__ __forceinline__

// A double's bits, and a double from bits.
GS_INTRINSIC int __double2hiint(double x) {
    unsigned long long bits;
    __builtin_memcpy(&bits, &x, 8);
    return (int)(unsigned)(bits >> 32);
}
GS_INTRINSIC int __double2loint(double x) {
    unsigned long long bits;
    __builtin_memcpy(&bits, &x, 8);
    return (int)(unsigned)bits;
}
GS_INTRINSIC double __hiloint2double(int high, int low) {
    const unsigned long long bits = (unsigned long long)(unsigned)high << 32 | (unsigned)low;
    double x;
    __builtin_memcpy(&x, &bits, 8);
    return x;
}

// Shifts the upper (l) or lower (r) half out of a pair; `c` stops at 32.
GS_INTRINSIC unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
GS_INTRINSIC unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
GS_INTRINSIC unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
GS_INTRINSIC unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

// Averages without overflow: rounded down, and rounded up.
GS_INTRINSIC int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
GS_INTRINSIC int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
GS_INTRINSIC unsigned __uhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b) >> 1); }
GS_INTRINSIC unsigned __urhadd(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a + b + 1) >> 1); }
GS_INTRINSIC unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }

GS_INTRINSIC unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
GS_INTRINSIC unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
GS_INTRINSIC long long llmin(long long a, long long b) { return b < a ? b : a; }
GS_INTRINSIC long long llmax(long long a, long long b) { return a < b ? b : a; }
GS_INTRINSIC unsigned long long ullmin(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
GS_INTRINSIC unsigned long long ullmax(unsigned long long a, unsigned long long b) { return a < b ? b : a; }

namespace gs_intrinsics {

// Cuts a word into parts of `Bits` bits, and sign- or zero-extends part `at`.
template <int Bits, bool Signed>
static __device__ __forceinline__ int part(unsigned word, int at) {
    const unsigned low = word >> (at * Bits) & ((1u << Bits) - 1);
    return Signed ? (int)(low << (32 - Bits)) >> (32 - Bits) : (int)low;
}
template <int Bits, bool Signed, class Op>
static __device__ __forceinline__ unsigned each(unsigned a, unsigned b, Op op) {
    unsigned result = 0;
    for (int at = 0; at < 32 / Bits; ++at) {
        const unsigned value = (unsigned)op(part<Bits, Signed>(a, at), part<Bits, Signed>(b, at));
        result |= (value & ((1u << Bits) - 1)) << (at * Bits);
    }
    return result;
}
template <int Bits, bool Signed>
static __device__ __forceinline__ int saturated(int x) {
    const int least = Signed ? -(1 << (Bits - 1)) : 0, most = (Signed ? 1 << (Bits - 1) : 1 << Bits) - 1;
    return x < least ? least : x > most ? most : x;
}
template <int Bits, bool Signed>
static __device__ __forceinline__ unsigned sum_of_differences(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (int at = 0; at < 32 / Bits; ++at) {
        const int x = part<Bits, Signed>(a, at), y = part<Bits, Signed>(b, at);
        sum += (unsigned)(x > y ? x - y : y - x);
    }
    return sum;
}

}  // namespace gs_intrinsics

// Instructions on a word's four bytes or two halves: __vadd4, __vadd2 and their kin. `s` and `u` mean signed and
// unsigned, `ss` and `us` signed and unsigned saturation.
#define GS_SIMD(name, bits, is_signed, expression)                                                  \
    GS_INTRINSIC unsigned name(unsigned a, unsigned b) {                                            \
        return gs_intrinsics::each<bits, is_signed>(a, b, [](int x, int y) -> int { return expression; }); \
    }
#define GS_SIMD_1(name, bits, expression)                                                           \
    GS_INTRINSIC unsigned name(unsigned a) {                                                        \
        return gs_intrinsics::each<bits, true>(a, 0, [](int x, int) -> int { return expression; }); \
    }
#define GS_SIMD_COMPARE(name, bits, operation)          \
    GS_SIMD(__vcmp##name##s##bits, 32 / bits, true, x operation y ? -1 : 0)  \
    GS_SIMD(__vcmp##name##u##bits, 32 / bits, false, x operation y ? -1 : 0) \
    GS_SIMD(__vset##name##s##bits, 32 / bits, true, x operation y ? 1 : 0)   \
    GS_SIMD(__vset##name##u##bits, 32 / bits, false, x operation y ? 1 : 0)
#define GS_SIMD_ALL(n)                                                                              \
    GS_SIMD(__vadd##n, 32 / n, false, x + y)                                                        \
    GS_SIMD(__vsub##n, 32 / n, false, x - y)                                                        \
    GS_SIMD(__vaddss##n, 32 / n, true, (gs_intrinsics::saturated<32 / n, true>(x + y)))             \
    GS_SIMD(__vaddus##n, 32 / n, false, (gs_intrinsics::saturated<32 / n, false>(x + y)))           \
    GS_SIMD(__vsubss##n, 32 / n, true, (gs_intrinsics::saturated<32 / n, true>(x - y)))             \
    GS_SIMD(__vsubus##n, 32 / n, false, (gs_intrinsics::saturated<32 / n, false>(x - y)))           \
    GS_SIMD(__vavgs##n, 32 / n, true, (x + y + (x + y >= 0)) >> 1)                                  \
    GS_SIMD(__vavgu##n, 32 / n, false, (x + y + 1) >> 1)                                            \
    GS_SIMD(__vhaddu##n, 32 / n, false, (x + y) >> 1)                                               \
    GS_SIMD(__vmaxs##n, 32 / n, true, x > y ? x : y)                                                \
    GS_SIMD(__vmaxu##n, 32 / n, false, x > y ? x : y)                                               \
    GS_SIMD(__vmins##n, 32 / n, true, x < y ? x : y)                                                \
    GS_SIMD(__vminu##n, 32 / n, false, x < y ? x : y)                                               \
    GS_SIMD(__vabsdiffs##n, 32 / n, true, x > y ? x - y : y - x)                                    \
    GS_SIMD(__vabsdiffu##n, 32 / n, false, x > y ? x - y : y - x)                                   \
    GS_SIMD(__vcmpeq##n, 32 / n, false, x == y ? -1 : 0)                                            \
    GS_SIMD(__vcmpne##n, 32 / n, false, x != y ? -1 : 0)                                            \
    GS_SIMD(__vseteq##n, 32 / n, false, x == y)                                                     \
    GS_SIMD(__vsetne##n, 32 / n, false, x != y)                                                     \
    GS_SIMD_COMPARE(ge, n, >=)                                                                      \
    GS_SIMD_COMPARE(gt, n, >)                                                                       \
    GS_SIMD_COMPARE(le, n, <=)                                                                      \
    GS_SIMD_COMPARE(lt, n, <)                                                                       \
    GS_SIMD_1(__vabs##n, 32 / n, x < 0 ? -x : x)                                                    \
    GS_SIMD_1(__vabsss##n, 32 / n, (gs_intrinsics::saturated<32 / n, true>(x < 0 ? -x : x)))        \
    GS_SIMD_1(__vneg##n, 32 / n, -x)                                                                \
    GS_SIMD_1(__vnegss##n, 32 / n, (gs_intrinsics::saturated<32 / n, true>(-x)))                    \
    GS_INTRINSIC unsigned __vsads##n(unsigned a, unsigned b) {                                      \
        return gs_intrinsics::sum_of_differences<32 / n, true>(a, b);                               \
    }                                                                                               \
    GS_INTRINSIC unsigned __vsadu##n(unsigned a, unsigned b) {                                      \
        return gs_intrinsics::sum_of_differences<32 / n, false>(a, b);                              \
    }
GS_SIMD_ALL(2)
GS_SIMD_ALL(4)
#undef GS_SIMD
#undef GS_SIMD_1
#undef GS_SIMD_COMPARE
#undef GS_SIMD_ALL

// Adds to c the scalar product of four bytes, or of two halves and two of the bytes.
GS_INTRINSIC int __dp4a(int a, int b, int c) {
    for (int at = 0; at < 4; ++at) {
        c += gs_intrinsics::part<8, true>((unsigned)a, at) * gs_intrinsics::part<8, true>((unsigned)b, at);
    }
    return c;
}
GS_INTRINSIC unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int at = 0; at < 4; ++at) {
        c += (unsigned)(gs_intrinsics::part<8, false>(a, at) * gs_intrinsics::part<8, false>(b, at));
    }
    return c;
}
GS_INTRINSIC int __dp4a(char4 a, char4 b, int c) { return c + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
GS_INTRINSIC unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return c + (unsigned)(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w);
}
GS_INTRINSIC int __dp2a_lo(int a, int b, int c) {
    for (int at = 0; at < 2; ++at) {
        c += gs_intrinsics::part<16, true>((unsigned)a, at) * gs_intrinsics::part<8, true>((unsigned)b, at);
    }
    return c;
}
GS_INTRINSIC int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, (int)((unsigned)b >> 16), c); }
GS_INTRINSIC unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
    for (int at = 0; at < 2; ++at) {
        c += (unsigned)(gs_intrinsics::part<16, false>(a, at) * gs_intrinsics::part<8, false>(b, at));
    }
    return c;
}
GS_INTRINSIC unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }

// The steps for dynamic programming that CUDA calls DPX: the largest or smallest of three numbers, or of a number and a sum,
// which wraps around. With `relu` the result is never below zero. Those on two numbers also say which it was: the first if
// they are equal.
namespace gs_intrinsics {
template <class T>
static __device__ __forceinline__ T most(T a, T b) { return a > b ? a : b; }
template <class T>
static __device__ __forceinline__ T least(T a, T b) { return a < b ? a : b; }
template <class T>
static __device__ __forceinline__ T sum(T a, T b) { return (T)((unsigned)a + (unsigned)b); }
}  // namespace gs_intrinsics
#define GS_DPX(kind, T, most, least, sum)                                                   \
    GS_INTRINSIC T __vimax3_##kind(T a, T b, T c) { return most(most(a, b), c); }           \
    GS_INTRINSIC T __vimin3_##kind(T a, T b, T c) { return least(least(a, b), c); }         \
    GS_INTRINSIC T __viaddmax_##kind(T a, T b, T c) { return most(sum(a, b), c); }          \
    GS_INTRINSIC T __viaddmin_##kind(T a, T b, T c) { return least(sum(a, b), c); }
#define GS_DPX_RELU(kind, T, most, least, sum)                                                           \
    GS_DPX(kind, T, most, least, sum)                                                                    \
    GS_INTRINSIC T __vimax_##kind##_relu(T a, T b) { return most(most(a, b), T(0)); }                    \
    GS_INTRINSIC T __vimin_##kind##_relu(T a, T b) { return most(least(a, b), T(0)); }                   \
    GS_INTRINSIC T __vimax3_##kind##_relu(T a, T b, T c) { return most(most(most(a, b), c), T(0)); }     \
    GS_INTRINSIC T __vimin3_##kind##_relu(T a, T b, T c) { return most(least(least(a, b), c), T(0)); }   \
    GS_INTRINSIC T __viaddmax_##kind##_relu(T a, T b, T c) { return most(most(sum(a, b), c), T(0)); }    \
    GS_INTRINSIC T __viaddmin_##kind##_relu(T a, T b, T c) { return most(least(sum(a, b), c), T(0)); }
#define GS_DPX_WHICH(kind, T)                                                                            \
    GS_INTRINSIC T __vibmax_##kind(T a, T b, bool* first) { return (*first = a >= b) ? a : b; }          \
    GS_INTRINSIC T __vibmin_##kind(T a, T b, bool* first) { return (*first = a <= b) ? a : b; }
#define GS_DPX_WHICH_OF_HALVES(kind, is_signed, most, least)                                             \
    GS_INTRINSIC unsigned __vibmax_##kind(unsigned a, unsigned b, bool* high, bool* low) {               \
        using gs_intrinsics::part;                                                                       \
        *high = part<16, is_signed>(a, 1) >= part<16, is_signed>(b, 1);                                  \
        *low = part<16, is_signed>(a, 0) >= part<16, is_signed>(b, 0);                                   \
        return most(a, b);                                                                               \
    }                                                                                                    \
    GS_INTRINSIC unsigned __vibmin_##kind(unsigned a, unsigned b, bool* high, bool* low) {               \
        using gs_intrinsics::part;                                                                       \
        *high = part<16, is_signed>(a, 1) <= part<16, is_signed>(b, 1);                                  \
        *low = part<16, is_signed>(a, 0) <= part<16, is_signed>(b, 0);                                   \
        return least(a, b);                                                                              \
    }
GS_DPX_RELU(s32, int, gs_intrinsics::most, gs_intrinsics::least, gs_intrinsics::sum)
GS_DPX(u32, unsigned, gs_intrinsics::most, gs_intrinsics::least, gs_intrinsics::sum)
GS_DPX_RELU(s16x2, unsigned, __vmaxs2, __vmins2, __vadd2)
GS_DPX(u16x2, unsigned, __vmaxu2, __vminu2, __vadd2)
GS_DPX_WHICH(s32, int)
GS_DPX_WHICH(u32, unsigned)
GS_DPX_WHICH_OF_HALVES(s16x2, true, __vmaxs2, __vmins2)
GS_DPX_WHICH_OF_HALVES(u16x2, false, __vmaxu2, __vminu2)
#undef GS_DPX
#undef GS_DPX_RELU
#undef GS_DPX_WHICH
#undef GS_DPX_WHICH_OF_HALVES

#undef GS_INTRINSIC

#endif
