//! The random numbers of `<curand_kernel.h>` must be cuRAND's, so that you get the same results on the CPU
//! and on a GPU.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use support::Bench;

const SOURCE: &str = r#"
#include <curand_kernel.h>
extern "C" __global__ void xorwow(float* uniform, unsigned int* skipped, int seed) {
    curandState state;
    curand_init(seed, threadIdx.x, 0, &state);
    uniform[threadIdx.x] = curand_uniform(&state);
    for (int i = 0; i < 999; ++i) curand(&state);
    skipped[2 * threadIdx.x] = curand(&state);
    curand_init(seed, threadIdx.x, 1000, &state);
    skipped[2 * threadIdx.x + 1] = curand(&state);
}
extern "C" __global__ void philox(unsigned int* known, unsigned int* skipped) {
    curandStatePhilox4_32_10_t state, other;
    curand_init(0, 0, 0, &state);
    uint4 out = curand4(&state);
    known[0] = out.x, known[1] = out.y, known[2] = out.z, known[3] = out.w;
    out = curand_Philox4x32_10(make_uint4(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u),
                               make_uint2(0xa4093822u, 0x299f31d0u));
    known[4] = out.x, known[5] = out.y, known[6] = out.z, known[7] = out.w;
    curand_init(99, 7, 0, &state);
    curand_init(99, 7, threadIdx.x, &other);
    for (unsigned i = 0; i < threadIdx.x; ++i) curand(&state);
    skipped[2 * threadIdx.x] = curand(&state);
    skipped[2 * threadIdx.x + 1] = curand(&other);
}
template <class State>
__device__ void mixed(unsigned int* out) {
    State state;
    curand_init(1234, 7, 5, &state);
    for (int i = 0; i < 4; ++i) curand_normal(&state);
    curand_normal2(&state);
    for (int i = 0; i < 3; ++i) curand_normal_double(&state);
    curand_normal2_double(&state);
    curand_log_normal(&state, 0.5f, 2.0f);
    curand_log_normal_double(&state, 0.5, 2.0);
    out[0] = curand(&state);
    skipahead(12345ull, &state);
    out[1] = curand(&state);
    skipahead_sequence(3ull, &state);
    out[2] = curand(&state);
}
extern "C" __global__ void every_kind(unsigned int* xorwow, unsigned int* philox) {
    mixed<curandStateXORWOW_t>(xorwow);
    mixed<curandStatePhilox4_32_10_t>(philox);
}
extern "C" __global__ void normal(double* sums) {
    curandState state;
    curandStatePhilox4_32_10_t other;
    curand_init(5, 0, 0, &state);
    curand_init(5, 0, 0, &other);
    for (int i = 0; i < 100000; ++i) {
        const double x[4] = {curand_normal(&state), curand_normal_double(&state), curand_normal(&other),
                             curand_normal_double(&other)};
        for (int k = 0; k < 4; ++k) sums[2 * k] += x[k], sums[2 * k + 1] += x[k] * x[k];
    }
}
"#;

/// cuRAND's manual has an example that prints ten numbers. With the default order its first numbers come from one
/// subsequence each, so we can expect the first numbers of ten subsequences with seed 1234.
#[test]
fn xorwow_gives_the_numbers_of_curands_manual() {
    let bench = Bench::new(SOURCE);
    let stream = bench.stream();
    let (uniform, skipped) = (bench.memory::<f32>(10), bench.memory::<u32>(20));
    bench.launch(stream, "xorwow", 1, 10, args![&uniform, &skipped, 1234]);
    bench.sync(stream).unwrap();
    let printed = [0.1455, 0.8202, 0.5504, 0.2948, 0.9147, 0.8690, 0.3219, 0.7829, 0.0113, 0.2855];
    for (got, want) in uniform.as_ref().iter().zip(printed) {
        assert!((got - want).abs() < 5.1e-5, "{got} and {want}");
    }
    assert!(skipped.as_ref().chunks(2).all(|pair| pair[0] == pair[1]), "{:?}", skipped.as_ref());
}

/// The generator's authors publish these known answers with Random123.
#[test]
fn philox_gives_the_known_answers_of_its_authors() {
    let bench = Bench::new(SOURCE);
    let stream = bench.stream();
    let (known, skipped) = (bench.memory::<u32>(8), bench.memory::<u32>(40));
    bench.launch(stream, "philox", 1, 20, args![&known, &skipped]);
    bench.sync(stream).unwrap();
    let zeros = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let pi = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
    assert_eq!(known.as_ref(), [zeros, pi].concat());
    assert!(skipped.as_ref().chunks(2).all(|pair| pair[0] == pair[1]), "{:?}", skipped.as_ref());
}

/// cuRAND 13.0 returned these numbers on an H200 after the same calls.
#[test]
fn every_kind_draws_as_many_numbers_as_in_curand() {
    let bench = Bench::new(SOURCE);
    let stream = bench.stream();
    let (xorwow, philox) = (bench.memory::<u32>(3), bench.memory::<u32>(3));
    bench.launch(stream, "every_kind", 1, 1, args![&xorwow, &philox]);
    bench.sync(stream).unwrap();
    assert_eq!(xorwow.as_ref(), [0xbcea_13ff, 0x140d_184c, 0x3066_6c6d]);
    assert_eq!(philox.as_ref(), [0x74a3_4bb7, 0xf1e1_0237, 0xc3c1_fe55]);
}

#[test]
fn normal_numbers_have_mean_zero_and_variance_one() {
    let bench = Bench::new(SOURCE);
    let stream = bench.stream();
    let sums = bench.memory::<f64>(8);
    bench.launch(stream, "normal", 1, 1, args![&sums]);
    bench.sync(stream).unwrap();
    for sum in sums.as_ref().chunks(2) {
        assert!(sum[0].abs() / 1e5 < 0.02 && (sum[1] / 1e5 - 1.0).abs() < 0.03, "{sum:?}");
    }
}
