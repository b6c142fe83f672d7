//! Vendor mathematics on every backend: the suite of `gpustream-math`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::unnecessary_wraps, reason = "all tests have one signature")]

mod fft;
mod gemm;
mod numbers;
mod routines;

fn main() {
    conformance::main();
}
