// Arithmetic on float4 and its relatives. HIP has it, and CUDA leaves it to you. These are templates, so if you write
// your own operators, the compiler takes yours.
#ifndef GPUSTREAM_CPU_VECTORS_CUH
#define GPUSTREAM_CPU_VECTORS_CUH

// A short vector's element type and how many it has.
template <class V>
struct gs_cpu_vector {};
#define GS_CPU_VECTOR(name, T)                                                                                  \
    template <> struct gs_cpu_vector<name##2> { typedef T element; typedef name##2 type; enum { count = 2 }; }; \
    template <> struct gs_cpu_vector<name##3> { typedef T element; typedef name##3 type; enum { count = 3 }; }; \
    template <> struct gs_cpu_vector<name##4> { typedef T element; typedef name##4 type; enum { count = 4 }; };
GS_CPU_VECTOR(char, signed char)
GS_CPU_VECTOR(uchar, unsigned char)
GS_CPU_VECTOR(short, short)
GS_CPU_VECTOR(ushort, unsigned short)
GS_CPU_VECTOR(int, int)
GS_CPU_VECTOR(uint, unsigned int)
GS_CPU_VECTOR(long, long)
GS_CPU_VECTOR(ulong, unsigned long)
GS_CPU_VECTOR(longlong, long long)
GS_CPU_VECTOR(ulonglong, unsigned long long)
GS_CPU_VECTOR(float, float)
GS_CPU_VECTOR(double, double)
#undef GS_CPU_VECTOR

template <class V, class Op>
static inline __attribute__((always_inline)) V gs_cpu_each(V a, V b, Op op) {
    typedef typename gs_cpu_vector<V>::element T;
    a.x = (T)op(a.x, b.x);
    a.y = (T)op(a.y, b.y);
    if constexpr (gs_cpu_vector<V>::count > 2) a.z = (T)op(a.z, b.z);
    if constexpr (gs_cpu_vector<V>::count > 3) a.w = (T)op(a.w, b.w);
    return a;
}
template <class V>
static inline __attribute__((always_inline)) V gs_cpu_splat(typename gs_cpu_vector<V>::element x) {
    V v;
    v.x = v.y = x;
    if constexpr (gs_cpu_vector<V>::count > 2) v.z = x;
    if constexpr (gs_cpu_vector<V>::count > 3) v.w = x;
    return v;
}

#define GS_CPU_VECTOR_OPERATOR(op)                                                                          \
    template <class V, class T = typename gs_cpu_vector<V>::element>                                        \
    static inline __attribute__((always_inline)) V operator op(V a, V b) {                                  \
        return gs_cpu_each(a, b, [](T x, T y) { return x op y; });                                          \
    }                                                                                                       \
    template <class V, class T = typename gs_cpu_vector<V>::element, class S,                               \
              class = typename std::enable_if<std::is_arithmetic<S>::value>::type>                          \
    static inline __attribute__((always_inline)) V operator op(V a, S b) {                                  \
        return gs_cpu_each(a, gs_cpu_splat<V>((T)b), [](T x, T y) { return x op y; });                      \
    }                                                                                                       \
    template <class S, class V, class T = typename gs_cpu_vector<V>::element,                               \
              class = typename std::enable_if<std::is_arithmetic<S>::value>::type, int = 0>                 \
    static inline __attribute__((always_inline)) V operator op(S a, V b) {                                  \
        return gs_cpu_each(gs_cpu_splat<V>((T)a), b, [](T x, T y) { return x op y; });                      \
    }                                                                                                       \
    template <class V, class T = typename gs_cpu_vector<V>::element, class B>                               \
    static inline __attribute__((always_inline)) V& operator op##=(V& a, B b) {                             \
        return a = a op b;                                                                                  \
    }
GS_CPU_VECTOR_OPERATOR(+)
GS_CPU_VECTOR_OPERATOR(-)
GS_CPU_VECTOR_OPERATOR(*)
GS_CPU_VECTOR_OPERATOR(/)
#undef GS_CPU_VECTOR_OPERATOR
template <class V, class T = typename gs_cpu_vector<V>::element>
static inline __attribute__((always_inline)) V operator-(V a) {
    return gs_cpu_each(a, a, [](T x, T) { return -x; });
}
template <class V, class T = typename gs_cpu_vector<V>::element>
static inline __attribute__((always_inline)) bool operator==(V a, V b) {
    bool same = true;
    gs_cpu_each(a, b, [&](T x, T y) { return same = same && x == y, x; });
    return same;
}
template <class V, class T = typename gs_cpu_vector<V>::element>
static inline __attribute__((always_inline)) bool operator!=(V a, V b) {
    return !(a == b);
}

#endif
