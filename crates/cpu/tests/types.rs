//! The prelude's half-precision types, atomics and functions. We compare them with Rust's, because both
//! follow the same standard.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;

use half::{bf16, f16};
use support::{Bench, compile_for, options};

const KERNELS: &str = r#"
extern "C" __global__ void half_all(float* to_float, __half* from_float, const float* f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 65536) return;
    to_float[i] = __half2float(__half::from_bits((unsigned short)i));
    for (int k = i; k < n; k += 65536) from_float[k] = __float2half(f[k]);
}
extern "C" __global__ void bf_all(float* to_float, __nv_bfloat16* from_float, const float* f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 65536) return;
    to_float[i] = __bfloat162float(__nv_bfloat16::from_bits((unsigned short)i));
    for (int k = i; k < n; k += 65536) from_float[k] = __float2bfloat16(f[k]);
}
template <class T> __device__ void operate(const T* a, const T* b, const T* c, T* out, const double* d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = a[i] + b[i];
    out[n + i] = a[i] - b[i];
    out[2 * n + i] = a[i] * b[i];
    out[3 * n + i] = a[i] / b[i];
    out[4 * n + i] = __hfma(a[i], b[i], c[i]);
    out[5 * n + i] = T(d[i]);
}
extern "C" __global__ void half_ops(const __half* a, const __half* b, const __half* c, __half* out, const double* d, int n) {
    operate(a, b, c, out, d, n);
}
extern "C" __global__ void bf_ops(const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c, __nv_bfloat16* out, const double* d, int n) {
    operate(a, b, c, out, d, n);
}
extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d, __half* h, __nv_bfloat16* b, unsigned n) {
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    atomicAdd(&i[0], 1); atomicSub(&i[1], 2); atomicMin(&i[2], (int)t); atomicMax(&i[3], (int)t);
    atomicAdd(&u[0], 3u); atomicAnd(&u[1], ~(1u << t % 32)); atomicOr(&u[2], 1u << t % 32); atomicXor(&u[3], 1u << t % 32);
    atomicInc(&u[4], 9); atomicDec(&u[5], 9); atomicExch(&u[6], 42u);
    unsigned seen = u[7], wanted;
    do { wanted = seen; seen = atomicCAS(&u[7], wanted, wanted + 1); } while (seen != wanted);
    atomicAdd(&l[0], 5ull); atomicMax(&l[1], (unsigned long long)t << 40);
    atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
    if (t < 64) { atomicAdd(h, __half(1.0f)); atomicAdd(b, __nv_bfloat16(2.0f)); }
}
extern "C" __global__ void bits(const unsigned* x, int* out) {
    unsigned v = x[threadIdx.x];
    int* o = out + threadIdx.x * 8;
    o[0] = __popc(v); o[1] = __clz((int)v); o[2] = __ffs((int)v); o[3] = (int)__brev(v);
    o[4] = (int)__umulhi(v, 0x12345678u); o[5] = __clzll((long long)v); o[6] = max((int)v, 5); o[7] = (int)__funnelshift_l(v, ~v, 7);
}
"#;

fn benches() -> impl Iterator<Item = Bench> {
    // With the machine's conversions and without them.
    static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        if cfg!(target_arch = "aarch64") {
            return vec![compile_for(KERNELS, "armv8-a", false)];
        }
        let mut levels = vec!["x86-64-v2"];
        if gpustream_cpu::backend().open(0).unwrap().target_rank("x86-64-v3").is_some() {
            levels.push("x86-64-v3");
        }
        levels.into_iter().map(|level| compile_for(KERNELS, level, false)).collect()
    });
    IMAGES.iter().map(|image| Bench::with(options(), image))
}

/// Returns floats around everything that rounding could get wrong.
fn floats() -> Vec<f32> {
    let mut all =
        vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    for bits in 0..=u16::MAX {
        for value in [f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()] {
            let bits = value.to_bits();
            // The value, half a step further, and both sides of that, for both types' steps.
            for step in [0, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001] {
                all.push(f32::from_bits(bits.wrapping_add(step)));
            }
        }
    }
    all
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// A 16-bit float from the crate `half`, with the names of its kernels.
trait Narrow {
    const CONVERT: &str;
    const OPERATE: &str;
    /// How many of the operations round once.
    const ROUND_ONCE: usize;
    /// Below this magnitude `f32` itself rounds first.
    const LEAST: f32;
    fn widened(bits: u16) -> f32;
    fn rounded(value: f32) -> u16;
}

impl Narrow for f16 {
    const CONVERT: &str = "half_all";
    const OPERATE: &str = "half_ops";
    const ROUND_ONCE: usize = 6;
    const LEAST: f32 = 0.0;
    fn widened(bits: u16) -> f32 {
        Self::from_bits(bits).to_f32()
    }
    fn rounded(value: f32) -> u16 {
        Self::from_f32(value).to_bits()
    }
}

impl Narrow for bf16 {
    const CONVERT: &str = "bf_all";
    const OPERATE: &str = "bf_ops";
    const ROUND_ONCE: usize = 4;
    const LEAST: f32 = 1e-37;
    fn widened(bits: u16) -> f32 {
        Self::from_bits(bits).to_f32()
    }
    fn rounded(value: f32) -> u16 {
        Self::from_f32(value).to_bits()
    }
}

fn check_conversions<T: Narrow>(bench: &Bench, values: &[f32]) {
    let stream = bench.stream();
    let (to, from) = (bench.memory::<f32>(65536), bench.memory::<u16>(values.len()));
    let arguments = args![&to, &from, &bench.memory_of(values), values.len() as i32];
    bench.launch(stream, T::CONVERT, 256, 256, arguments);
    bench.sync(stream).unwrap();
    for bits in 0..=u16::MAX {
        let (got, want) = (to.as_ref()[bits as usize], T::widened(bits));
        assert!(same(got, want), "{} {bits:#x}: {got} {want}", T::CONVERT);
    }
    for (&value, &got) in values.iter().zip(from.as_ref()) {
        let (got, want) = (T::widened(got), T::widened(T::rounded(value)));
        assert!(same(got, want), "{} {value:e}: {got} {want}", T::CONVERT);
    }
}

#[test]
fn half_conversions_are_exact_and_round_to_nearest_even() {
    let values = floats();
    for bench in benches() {
        check_conversions::<f16>(&bench, &values);
        check_conversions::<bf16>(&bench, &values);
    }
}

/// Returns the next number of a reproducible sequence.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Finds the narrow value nearest to `exact` by trying; ties go to even. `narrow` maps ordered bits to
/// values.
fn nearest(exact: f64, low: u16, narrow: impl Fn(u16) -> f64) -> u16 {
    let candidates = low.saturating_sub(2)..=low.saturating_add(2);
    let distance = |bits: u16| (narrow(bits) - exact).abs();
    candidates
        .filter(|&bits| narrow(bits).is_finite())
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
        .unwrap_or(low)
}

fn check_arithmetic<T: Narrow>(bench: &Bench) {
    let stream = bench.stream();
    let n = 100_000;
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let bits = [(); 3].map(|()| (0..n).map(|_| random(&mut seed) as u16).collect::<Vec<_>>());
    let value = |operand: usize, i: usize| f64::from(T::widened(bits[operand][i]));
    let double = |i| value(0, i) * (1.0 + f64::from(bits[1][i]) * 2f64.powi(-40));
    let doubles: Vec<f64> = (0..n).map(double).collect();
    let [a, b, c] = bits.each_ref().map(|bits| bench.memory_of(bits));
    let (d, out) = (bench.memory_of(&doubles), bench.memory::<u16>(6 * n));
    bench.launch(stream, T::OPERATE, n.div_ceil(256) as u32, 256, args![&a, &b, &c, &out, &d, n as i32]);
    bench.sync(stream).unwrap();
    for (i, &double) in doubles.iter().enumerate() {
        let (a, b, c) = (value(0, i), value(1, i), value(2, i));
        // Sums and products of halves are exact in double, except for sums of numbers far apart. There it
        // does not matter. With these exponents the fused operation is exact too whenever the result is near
        // a tie.
        let exact = [a + b, a - b, a * b, a / b, a.mul_add(b, c), double];
        let named = ["+", "-", "*", "/", "fma", "double"].iter().zip(exact);
        for (k, (what, exact)) in named.take(T::ROUND_ONCE).enumerate() {
            let got = out.as_ref()[k * n + i];
            let value = T::widened(got);
            if exact.is_nan() {
                assert!(value.is_nan(), "{} {what} {i}", T::OPERATE);
            } else if value.is_finite() && value.abs() > T::LEAST {
                let best = nearest(exact.abs(), got & 0x7fff, |bits| f64::from(T::widened(bits)));
                assert_eq!(got & 0x7fff, best, "{} {what} {i}: {exact:e} gave {value}", T::OPERATE);
            }
        }
    }
}

#[test]
fn half_arithmetic_rounds_once() {
    for bench in benches() {
        check_arithmetic::<f16>(&bench);
        check_arithmetic::<bf16>(&bench);
    }
}

#[test]
fn atomics_lose_nothing() {
    for bench in benches() {
        let stream = bench.stream();
        let n = 100_000u32;
        let i = bench.memory_of(&[0, 0, i32::MAX, i32::MIN]);
        let u = bench.memory_of(&[0u32, u32::MAX, 0, 0, 0, 0, 0, 0]);
        let l = bench.memory::<u64>(2);
        let (f, d) = (bench.memory::<f32>(1), bench.memory::<f64>(1));
        let (h, b) = (bench.memory::<f16>(1), bench.memory::<bf16>(1));
        bench.launch(stream, "atomics", n.div_ceil(256), 256, args![&i, &u, &l, &f, &d, &h, &b, n]);
        bench.sync(stream).unwrap();
        assert_eq!(i.as_ref(), [n as i32, -2 * n as i32, 0, n as i32 - 1]);
        let xor = (0..n).fold(0u32, |x, t| x ^ 1 << (t % 32));
        let down = (0..n).fold(0u32, |x, _| if x == 0 || x > 9 { 9 } else { x - 1 });
        assert_eq!(u.as_ref(), [3 * n, 0, u32::MAX, xor, n % 10, down, 42, n]);
        assert_eq!(l.as_ref(), [5 * u64::from(n), u64::from(n - 1) << 40]);
        assert_eq!((f.as_ref()[0], d.as_ref()[0]), (n as f32 * 0.5, f64::from(n) * 0.25));
        assert_eq!((h.as_ref()[0].to_f32(), b.as_ref()[0].to_f32()), (64.0, 128.0));
    }
}

#[test]
fn bit_functions_agree_with_rusts() {
    for bench in benches() {
        let stream = bench.stream();
        let values = [0, 1, 2, 0x8000_0000, u32::MAX, 0x1234_5678, 0x00f0_0f00];
        let (x, out) = (bench.memory_of(&values), bench.memory::<i32>(8 * values.len()));
        bench.launch(stream, "bits", 1, values.len() as u32, args![&x, &out]);
        bench.sync(stream).unwrap();
        for (v, got) in values.into_iter().zip(out.as_ref().chunks(8)) {
            let ffs = if v == 0 { 0 } else { v.trailing_zeros() + 1 };
            let high = (u64::from(v) * 0x1234_5678) >> 32;
            let shifted = ((u64::from(!v) << 32 | u64::from(v)) << 7 >> 32) as u32;
            let want = [
                v.count_ones(),
                v.leading_zeros(),
                ffs,
                v.reverse_bits(),
                high as u32,
                u64::from(v).leading_zeros(),
                (v as i32).max(5) as u32,
                shifted,
            ];
            assert_eq!(got, want.map(|w| w as i32), "{v:#x}");
        }
    }
}
