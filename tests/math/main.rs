//! Vendor mathematics on every backend: the suite of `gpustream-math`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::unnecessary_wraps, reason = "all tests have one signature")]

mod conjugated;
mod convolutions;
mod each;
mod epilogues;
mod fft;
mod gemm;
mod host;
mod numbers;
mod routines;

fn main() {
    // While a handle is open, the context stays, with the kernels that the vendors' libraries have loaded into it. Otherwise each
    // test would load them again.
    let opened = gpustream::backends()
        .into_iter()
        .filter_map(|backend| gpustream::Device::open(backend.name().as_str()).ok());
    let _kept: Vec<_> = opened.collect();
    conformance::main();
}
