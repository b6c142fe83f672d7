// <curand_kernel.h> for compilers without that header: the generators XORWOW and Philox4_32_10, with cuRAND's seeding,
// subsequences and layout of states, so that integers and uniform numbers are those of cuRAND. Normal numbers come from the
// same integers by the same formula, and differ by what logf, sinf and cosf differ from cuRAND's.
//
// XORWOW: G. Marsaglia, Xorshift RNGs, 2003. Philox: J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
// Skipping: H. Haramoto et al., Efficient jump ahead for F2-linear random number generators, 2008.
#ifndef GPUSTREAM_CURAND_KERNEL_CUH
#define GPUSTREAM_CURAND_KERNEL_CUH

#define GS_RANDOM static __device__ __forceinline__

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

// XORWOW. One step of the xorshift part is a linear map of 160 bits.
GS_RANDOM void gs_xorwow_step(unsigned int v[5]) {
    const unsigned int t = v[0] ^ v[0] >> 2;
    v[0] = v[1], v[1] = v[2], v[2] = v[3], v[3] = v[4];
    v[4] = v[4] ^ v[4] << 4 ^ t ^ t << 1;
}
// Many steps are a polynomial in that map. Here are x^(2^k) modulo the map's characteristic polynomial, for k from 0 to 130:
// a polynomial is 160 bits, with the constant term in the lowest. Subsequences are 2^67 steps apart.
struct gs_xorwow_jumps {
    unsigned int of[131][5];
    __host__ __device__ constexpr gs_xorwow_jumps() : of() {
        of[0][0] = 2;
        for (int k = 1; k < 131; ++k) {
            // The square: the sum of a bit * x^(2 bit), by Horner's rule.
            for (int bit = 159; bit >= 0; --bit) {
                times_x(of[k]);
                times_x(of[k]);
                of[k][0] ^= of[k - 1][bit / 32] >> (bit % 32) & 1u;
            }
        }
    }
    __host__ __device__ static constexpr void times_x(unsigned int (&p)[5]) {
        const unsigned int carry = 0u - (p[4] >> 31);
        p[4] = (p[4] << 1 | p[3] >> 31) ^ (carry & 0x00000f0eu);
        p[3] = (p[3] << 1 | p[2] >> 31) ^ (carry & 0x0f3c0035u);
        p[2] = (p[2] << 1 | p[1] >> 31) ^ (carry & 0x00062121u);
        p[1] = (p[1] << 1 | p[0] >> 31) ^ (carry & 0x08610030u);
        p[0] = p[0] << 1 ^ (carry & 0x00060001u);
    }
};
static __constant__ constexpr gs_xorwow_jumps gs_xorwow_jump;

static __device__ __noinline__ void gs_xorwow_skip(unsigned int v[5], unsigned long long n, int power) {
    for (; n != 0; n >>= 1, ++power) {
        if ((n & 1) == 0) continue;
        unsigned int sum[5] = {};
        for (int bit = 0; bit < 160; ++bit) {
            const unsigned int mask = 0u - (gs_xorwow_jump.of[power][bit / 32] >> (bit % 32) & 1u);
            for (int word = 0; word < 5; ++word) sum[word] ^= v[word] & mask;
            gs_xorwow_step(v);
        }
        for (int word = 0; word < 5; ++word) v[word] = sum[word];
    }
}

GS_RANDOM void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
    gs_xorwow_skip(state->v, n, 0);
    state->d += 362437u * (unsigned int)n;
}
GS_RANDOM void skipahead_sequence(unsigned long long n, curandStateXORWOW_t* state) {
    gs_xorwow_skip(state->v, n, 67);
}
GS_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
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
GS_RANDOM unsigned int curand(curandStateXORWOW_t* state) {
    gs_xorwow_step(state->v);
    state->d += 362437u;
    return state->v[4] + state->d;
}

// Philox with four words and ten rounds.
GS_RANDOM uint4 curand_Philox4x32_10(uint4 c, uint2 k) {
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = (unsigned long long)0xD2511F53u * c.x, b = (unsigned long long)0xCD9E8D57u * c.z;
        c = make_uint4((unsigned int)(b >> 32) ^ c.y ^ k.x, (unsigned int)b, (unsigned int)(a >> 32) ^ c.w ^ k.y, (unsigned int)a);
        k.x += 0x9E3779B9u, k.y += 0xBB67AE85u;
    }
    return c;
}
GS_RANDOM void gs_philox_advance(curandStatePhilox4_32_10_t* state, unsigned long long n) {
    const unsigned long long low = ((unsigned long long)state->ctr.y << 32 | state->ctr.x) + n;
    state->ctr.x = (unsigned int)low, state->ctr.y = (unsigned int)(low >> 32);
    if (low < n && ++state->ctr.z == 0) ++state->ctr.w;
    state->output = curand_Philox4x32_10(state->ctr, state->key);
}
GS_RANDOM void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    state->STATE += (unsigned int)(n & 3);
    n /= 4;
    if (state->STATE > 3) {
        n += 1;
        state->STATE -= 4;
    }
    gs_philox_advance(state, n);
}
GS_RANDOM void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
    const unsigned long long high = ((unsigned long long)state->ctr.w << 32 | state->ctr.z) + n;
    state->ctr.z = (unsigned int)high, state->ctr.w = (unsigned int)(high >> 32);
    state->output = curand_Philox4x32_10(state->ctr, state->key);
}
GS_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                               curandStatePhilox4_32_10_t* state) {
    *state = curandStatePhilox4_32_10_t();
    state->key = make_uint2((unsigned int)seed, (unsigned int)(seed >> 32));
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}
GS_RANDOM unsigned int curand(curandStatePhilox4_32_10_t* state) {
    const unsigned int words[4] = {state->output.x, state->output.y, state->output.z, state->output.w};
    const unsigned int result = words[state->STATE & 3];
    if (++state->STATE == 4) {
        state->STATE = 0;
        gs_philox_advance(state, 1);
    }
    return result;
}
GS_RANDOM uint4 curand4(curandStatePhilox4_32_10_t* state) {
    uint4 result;
    result.x = curand(state), result.y = curand(state), result.z = curand(state), result.w = curand(state);
    return result;
}

// Uniform numbers, above 0 and up to 1.
GS_RANDOM float gs_uniform(unsigned int x) {
    return x * 2.3283064e-10f + 2.3283064e-10f / 2.0f;
}
GS_RANDOM double gs_uniform_53(unsigned int x, unsigned int y) {
    const unsigned long long z = (unsigned long long)x ^ (unsigned long long)y << 21;
    return z * 1.1102230246251565e-16 + 1.1102230246251565e-16 / 2.0;
}
template <class State>
GS_RANDOM float curand_uniform(State* state) {
    return gs_uniform(curand(state));
}
GS_RANDOM double curand_uniform_double(curandStateXORWOW_t* state) {
    const unsigned int x = curand(state), y = curand(state);
    return gs_uniform_53(x, y);
}
GS_RANDOM double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    return curand(state) * 2.3283064365386963e-10 + 2.3283064365386963e-10;
}
GS_RANDOM float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    return make_float4(gs_uniform(x.x), gs_uniform(x.y), gs_uniform(x.z), gs_uniform(x.w));
}
GS_RANDOM double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    return make_double2(gs_uniform_53(x.x, x.y), gs_uniform_53(x.z, x.w));
}

// Normal numbers, by the method of Box and Muller.
GS_RANDOM float2 gs_box_muller(unsigned int x, unsigned int y) {
    const float scale = 2.3283064e-10f * 6.2831855f, angle = y * scale + scale / 2.0f;
    const float length = ::sqrtf(-2.0f * ::logf(gs_uniform(x)));
    return make_float2(__sinf(angle) * length, __cosf(angle) * length);
}
GS_RANDOM double2 gs_box_muller_double(unsigned int x0, unsigned int x1, unsigned int y0, unsigned int y1) {
    const unsigned long long z = (unsigned long long)y0 ^ (unsigned long long)y1 << 21;
    const double turns = z * (1.1102230246251565e-16 * 2.0) + 1.1102230246251565e-16;
    const double length = ::sqrt(-2.0 * ::log(gs_uniform_53(x0, x1)));
    return make_double2(sinpi(turns) * length, cospi(turns) * length);
}
template <class State>
GS_RANDOM float2 curand_normal2(State* state) {
    const unsigned int x = curand(state), y = curand(state);
    return gs_box_muller(x, y);
}
// Numbers come in pairs, of which the second is kept. As in cuRAND, one kind's is not handed out for the other's.
enum { gs_normal = 1, gs_log_normal = 2 };

template <class State>
GS_RANDOM float curand_normal(State* state) {
    if (state->boxmuller_flag == gs_normal) {
        state->boxmuller_flag = 0;
        return state->boxmuller_extra;
    }
    const float2 pair = curand_normal2(state);
    state->boxmuller_flag = gs_normal;
    state->boxmuller_extra = pair.y;
    return pair.x;
}
template <class State>
GS_RANDOM double2 curand_normal2_double(State* state) {
    const unsigned int x0 = curand(state), x1 = curand(state), y0 = curand(state), y1 = curand(state);
    return gs_box_muller_double(x0, x1, y0, y1);
}
template <class State>
GS_RANDOM double curand_normal_double(State* state) {
    if (state->boxmuller_flag_double == gs_normal) {
        state->boxmuller_flag_double = 0;
        return state->boxmuller_extra_double;
    }
    const double2 pair = curand_normal2_double(state);
    state->boxmuller_flag_double = gs_normal;
    state->boxmuller_extra_double = pair.y;
    return pair.x;
}
GS_RANDOM float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = curand4(state);
    const float2 a = gs_box_muller(x.x, x.y), b = gs_box_muller(x.z, x.w);
    return make_float4(a.x, a.y, b.x, b.y);
}
template <class State>
GS_RANDOM float curand_log_normal(State* state, float mean, float deviation) {
    if (state->boxmuller_flag == gs_log_normal) {
        state->boxmuller_flag = 0;
        return state->boxmuller_extra;
    }
    const float2 pair = curand_normal2(state);
    state->boxmuller_flag = gs_log_normal;
    state->boxmuller_extra = ::expf(mean + deviation * pair.y);
    return ::expf(mean + deviation * pair.x);
}
template <class State>
GS_RANDOM double curand_log_normal_double(State* state, double mean, double deviation) {
    if (state->boxmuller_flag_double == gs_log_normal) {
        state->boxmuller_flag_double = 0;
        return state->boxmuller_extra_double;
    }
    const double2 pair = curand_normal2_double(state);
    state->boxmuller_flag_double = gs_log_normal;
    state->boxmuller_extra_double = ::exp(mean + deviation * pair.y);
    return ::exp(mean + deviation * pair.x);
}
template <class State>
GS_RANDOM unsigned int curand_poisson(State*, double) {
    static_assert(sizeof(State) == 0, "curand_poisson: without cuRAND there are the uniform, normal and log-normal numbers of "
                                      "XORWOW and Philox4_32_10 alone");
    return 0;
}

#undef GS_RANDOM
#endif
