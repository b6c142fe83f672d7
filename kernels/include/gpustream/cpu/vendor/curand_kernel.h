// <curand_kernel.h> on the CPU: the generators XORWOW and Philox4_32_10, with cuRAND's seeding, subsequences and layout of
// states, so that integers and uniform numbers are those of cuRAND. Normal numbers come from the same integers by the
// same formula, and differ by what the CPU's logf, sinf and cosf differ from a GPU's.
//
// XORWOW: G. Marsaglia, Xorshift RNGs, 2003. Philox: J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
#ifndef GPUSTREAM_CPU_VENDOR_CURAND_KERNEL_H
#define GPUSTREAM_CPU_VENDOR_CURAND_KERNEL_H

struct curandStateXORWOW {
    unsigned int d, v[5];
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState;
typedef curandStateXORWOW curandState_t;

struct curandStatePhilox4_32_10 {
    uint4 ctr, output;
    uint2 key;
    unsigned int STATE;  // the next number's place in `output`
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

// XORWOW: one step of the xorshift part is a matrix of 160 by 160 bits, and n steps are its power.
struct gs_cpu_xorwow_matrix {
    uint32_t column[160][5];
    void apply(const uint32_t from[5], uint32_t to[5]) const {
        uint32_t sum[5] = {};
        for (int bit = 0; bit < 160; ++bit) {
            const uint32_t mask = 0u - (from[bit / 32] >> (bit % 32) & 1u);
            for (int word = 0; word < 5; ++word) sum[word] ^= column[bit][word] & mask;
        }
        std::memcpy(to, sum, sizeof sum);
    }
};
static inline void gs_cpu_xorwow_step(uint32_t v[5]) {
    const uint32_t t = v[0] ^ v[0] >> 2;
    v[0] = v[1], v[1] = v[2], v[2] = v[3], v[3] = v[4];
    v[4] = v[4] ^ v[4] << 4 ^ t ^ t << 1;
}
// The powers 2^0 to 2^130. Subsequences are 2^67 steps apart.
struct gs_cpu_xorwow_powers {
    gs_cpu_xorwow_matrix of[131];
    gs_cpu_xorwow_powers() {
        for (int bit = 0; bit < 160; ++bit) {
            uint32_t v[5] = {};
            v[bit / 32] = 1u << (bit % 32);
            gs_cpu_xorwow_step(v);
            std::memcpy(of[0].column[bit], v, sizeof v);
        }
        for (int k = 1; k < 131; ++k) {
            for (int bit = 0; bit < 160; ++bit) of[k - 1].apply(of[k - 1].column[bit], of[k].column[bit]);
        }
    }
};
static __attribute__((noinline)) void gs_cpu_xorwow_skip(uint32_t v[5], unsigned long long n, int power) {
    static const gs_cpu_xorwow_powers powers;
    for (; n != 0; n >>= 1, ++power) {
        if (n & 1) powers.of[power].apply(v, v);
    }
}

static inline void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
    gs_cpu_xorwow_skip(state->v, n, 0);
    state->d += 362437u * (unsigned int)n;
}
static inline void skipahead_sequence(unsigned long long n, curandStateXORWOW_t* state) {
    gs_cpu_xorwow_skip(state->v, n, 67);
}
static inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                               curandStateXORWOW_t* state) {
    const unsigned int low = 1099087573u * ((unsigned int)seed ^ 0xaad26b49u);
    const unsigned int high = 2591861531u * ((unsigned int)(seed >> 32) ^ 0xf7dcefddu);
    state->d = 6615241u + high + low;
    state->v[0] = 123456789u + low, state->v[1] = 362436069u ^ low, state->v[2] = 521288629u + high;
    state->v[3] = 88675123u ^ high, state->v[4] = 5783321u + low;
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
    state->boxmuller_flag = state->boxmuller_flag_double = 0;
    state->boxmuller_extra = 0, state->boxmuller_extra_double = 0;
}
static inline unsigned int curand(curandStateXORWOW_t* state) {
    gs_cpu_xorwow_step(state->v);
    state->d += 362437u;
    return state->v[4] + state->d;
}

// Philox with four words and ten rounds.
static inline uint4 curand_Philox4x32_10(uint4 c, uint2 k) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = (uint64_t)0xD2511F53u * c.x, b = (uint64_t)0xCD9E8D57u * c.z;
        c = make_uint4((uint32_t)(b >> 32) ^ c.y ^ k.x, (uint32_t)b, (uint32_t)(a >> 32) ^ c.w ^ k.y, (uint32_t)a);
        k.x += 0x9E3779B9u, k.y += 0xBB67AE85u;
    }
    return c;
}
static inline void gs_cpu_philox_advance(curandStatePhilox4_32_10_t* state, unsigned long long n) {
    const uint64_t low = ((uint64_t)state->ctr.y << 32 | state->ctr.x) + n;
    state->ctr.x = (uint32_t)low, state->ctr.y = (uint32_t)(low >> 32);
    if (low < n && ++state->ctr.z == 0) ++state->ctr.w;
    state->output = curand_Philox4x32_10(state->ctr, state->key);
}
static inline void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    state->STATE += (unsigned int)(n & 3);
    n /= 4;
    if (state->STATE > 3) {
        n += 1;
        state->STATE -= 4;
    }
    gs_cpu_philox_advance(state, n);
}
static inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    const uint64_t high = ((uint64_t)state->ctr.w << 32 | state->ctr.z) + n;
    state->ctr.z = (uint32_t)high, state->ctr.w = (uint32_t)(high >> 32);
    state->output = curand_Philox4x32_10(state->ctr, state->key);
}
static inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                               curandStatePhilox4_32_10_t* state) {
    *state = curandStatePhilox4_32_10_t();
    state->key = make_uint2((unsigned int)seed, (unsigned int)(seed >> 32));
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}
static inline unsigned int curand(curandStatePhilox4_32_10_t* state) {
    const unsigned int words[4] = {state->output.x, state->output.y, state->output.z, state->output.w};
    const unsigned int result = words[state->STATE & 3];
    if (++state->STATE == 4) {
        state->STATE = 0;
        gs_cpu_philox_advance(state, 1);
    }
    return result;
}
static inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
    uint4 result;
    result.x = curand(state), result.y = curand(state), result.z = curand(state), result.w = curand(state);
    return result;
}

// Uniform numbers, above 0 and up to 1.
static inline float gs_cpu_uniform(unsigned int x) {
    return gs_cpu_unfused(x * 2.3283064e-10f) + 2.3283064e-10f / 2.0f;
}
static inline double gs_cpu_uniform_53(unsigned int x, unsigned int y) {
    const unsigned long long z = (unsigned long long)x ^ (unsigned long long)y << 21;
    return z * 1.1102230246251565e-16 + 1.1102230246251565e-16 / 2.0;
}
template <class State>
static inline float curand_uniform(State* state) {
    return gs_cpu_uniform(curand(state));
}
static inline double curand_uniform_double(curandStateXORWOW_t* state) {
    const unsigned int x = curand(state), y = curand(state);
    return gs_cpu_uniform_53(x, y);
}
static inline double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    return curand(state) * 2.3283064365386963e-10 + 2.3283064365386963e-10;
}
static inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    return make_float4(gs_cpu_uniform(x.x), gs_cpu_uniform(x.y), gs_cpu_uniform(x.z), gs_cpu_uniform(x.w));
}
static inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    return make_double2(gs_cpu_uniform_53(x.x, x.y), gs_cpu_uniform_53(x.z, x.w));
}

// Normal numbers, by the method of Box and Muller.
static inline float2 gs_cpu_box_muller(unsigned int x, unsigned int y) {
    const float scale = 2.3283064e-10f * 6.2831855f, angle = y * scale + scale / 2.0f;
    const float length = ::sqrtf(-2.0f * ::logf(gs_cpu_uniform(x)));
    return make_float2(::sinf(angle) * length, ::cosf(angle) * length);
}
static inline double2 gs_cpu_box_muller_double(unsigned int x0, unsigned int x1, unsigned int y0, unsigned int y1) {
    const unsigned long long z = (unsigned long long)y0 ^ (unsigned long long)y1 << 21;
    const double turns = z * (1.1102230246251565e-16 * 2.0) + 1.1102230246251565e-16;
    const double length = ::sqrt(-2.0 * ::log(gs_cpu_uniform_53(x0, x1)));
    return make_double2(sinpi(turns) * length, cospi(turns) * length);
}
template <class State>
static inline float2 curand_normal2(State* state) {
    const unsigned int x = curand(state), y = curand(state);
    return gs_cpu_box_muller(x, y);
}
// Numbers come in pairs, of which the second is kept. As in cuRAND, one kind's is not handed out for the other's.
enum { gs_cpu_normal = 1, gs_cpu_log_normal = 2 };

template <class State>
static inline float curand_normal(State* state) {
    if (state->boxmuller_flag == gs_cpu_normal) {
        state->boxmuller_flag = 0;
        return state->boxmuller_extra;
    }
    const float2 pair = curand_normal2(state);
    state->boxmuller_flag = gs_cpu_normal;
    state->boxmuller_extra = pair.y;
    return pair.x;
}
template <class State>
static inline double2 curand_normal2_double(State* state) {
    const unsigned int x0 = curand(state), x1 = curand(state), y0 = curand(state), y1 = curand(state);
    return gs_cpu_box_muller_double(x0, x1, y0, y1);
}
template <class State>
static inline double curand_normal_double(State* state) {
    if (state->boxmuller_flag_double == gs_cpu_normal) {
        state->boxmuller_flag_double = 0;
        return state->boxmuller_extra_double;
    }
    const double2 pair = curand_normal2_double(state);
    state->boxmuller_flag_double = gs_cpu_normal;
    state->boxmuller_extra_double = pair.y;
    return pair.x;
}
static inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    const float2 a = gs_cpu_box_muller(x.x, x.y), b = gs_cpu_box_muller(x.z, x.w);
    return make_float4(a.x, a.y, b.x, b.y);
}
template <class State>
static inline float curand_log_normal(State* state, float mean, float deviation) {
    if (state->boxmuller_flag == gs_cpu_log_normal) {
        state->boxmuller_flag = 0;
        return state->boxmuller_extra;
    }
    const float2 pair = curand_normal2(state);
    state->boxmuller_flag = gs_cpu_log_normal;
    state->boxmuller_extra = ::expf(mean + deviation * pair.y);
    return ::expf(mean + deviation * pair.x);
}
template <class State>
static inline double curand_log_normal_double(State* state, double mean, double deviation) {
    if (state->boxmuller_flag_double == gs_cpu_log_normal) {
        state->boxmuller_flag_double = 0;
        return state->boxmuller_extra_double;
    }
    const double2 pair = curand_normal2_double(state);
    state->boxmuller_flag_double = gs_cpu_log_normal;
    state->boxmuller_extra_double = ::exp(mean + deviation * pair.y);
    return ::exp(mean + deviation * pair.x);
}
template <class State>
static inline unsigned int curand_poisson(State*, double) {
    static_assert(gs_cpu_never<State>::value, "curand_poisson: the CPU backend has the uniform, normal and log-normal numbers "
                                              "of XORWOW and Philox4_32_10 alone");
    return 0;
}

#endif
