//! Compiles CUDA C++ kernels for NVIDIA, AMD and the CPU, and writes typed Rust launchers for them.
//!
//! # Use from a build script
//!
//! ```toml
//! [dependencies]
//! gpustream = "0.1"
//! [build-dependencies]
//! gpustream-build = "0.1"
//! ```
//!
//! ```no_run
//! // build.rs
//! # #[allow(clippy::needless_doctest_main)]
//! fn main() {
//!     gpustream_build::Kernels::new().file("kernels/saxpy.cu").build().unwrap_or_else(|e| e.exit());
//! }
//! ```
//!
//! ```ignore
//! // src/main.rs
//! mod saxpy { gpustream::include_kernels!("saxpy"); }
//!
//! let kernels = saxpy::Kernels::load(&device)?;
//! kernels.saxpy(&stream, 3.0, &x, &mut y, n)?;
//! ```
//!
//! # What happens to a file
//!
//! 1. **Parsing.** Every `extern "C" __global__ void` kernel of the file becomes a method of the generated
//!    `Kernels` struct. What cannot be bound (a template, a reference, an unknown type, …) is an error at
//!    `file:line:column` that says what to write instead; all of a file's errors are reported at once.
//! 2. **Compiling**, for the backends that were asked for ([`Backend`]): a shared object per instruction level
//!    for the CPU, one fat binary for CUDA, one bundle for HIP. Files whose text, headers, options and compiler
//!    did not change are not compiled again.
//! 3. **Checking.** The parameter table that each compiler wrote (`.nv.info` in a cubin, the notes of an AMD
//!    code object, `sizeof` on the CPU) is compared with the parsed signature; a difference is an error.
//! 4. **Writing** `OUT_DIR/NAME.rs` with the launchers, the embedded images and the source.
//!
//! The source and the headers it includes are always embedded: a device for which no image was built gets one
//! from the run-time compiler (NVRTC, HIPRTC), which `gpustream` calls at load and whose output it keeps in a
//! disk cache. So a build machine needs no GPU compiler, only a C++ compiler for the CPU.
//!
//! # Which backends
//!
//! The CPU always; CUDA and HIP where the vendor's compiler is installed system-wide, or another one (Python wheels,
//! a distribution's Clang) on a machine that has the vendor's GPU. Then a missing compiler is no
//! reason to fail: the run-time compiler stands in. Saying which ones, by [`Kernels::backend`] or the environment,
//! makes a missing one an error, and uses whatever compiler there is.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUSTREAM_BACKENDS` | comma list of `cpu`, `cuda`, `hip`, or `none` to embed the source alone |
//! | `GPUSTREAM_CPU_LEVELS` | instruction levels: `x86-64-v2`, `x86-64-v3`, `x86-64-v4`; `aarch64`; of the first also an image for checked mode |
//! | `GPUSTREAM_CUDA_ARCHS` | real architectures, `sm_80,sm_90` |
//! | `GPUSTREAM_HIP_ARCHS` | targets, `gfx90a,gfx1100` |
//! | `CXX`, `NVCC`, `CUDA_HOME`, `HIPCC`, `ROCM_PATH` | where compilers are; see [`toolchain`] |
//!
//! # Contracts
//!
//! The doc comment above a kernel may state what a launch must satisfy:
//!
//! ```cpp
//! /// y[i] += a * x[i]
//! /// requires: n <= len(x), n <= len(y)
//! /// covers: n
//! extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, size_t n)
//! ```
//!
//! * `requires:` lists comparisons of integer expressions over integer parameters, `len(pointer)` (elements),
//!   literals and the launch's `grid.x|y|z`, `block.x|y|z` and `shared` (dynamic bytes). Each launch checks
//!   them, in 128-bit arithmetic that treats overflow as a violation. A kernel with a `requires:` line (or
//!   `requires: nothing`) gets a safe launcher: **the line is a promise that the kernel touches nothing beyond
//!   its arguments when the conditions hold**. Without one the launcher is an `unsafe fn`.
//! * `covers: n` gives the default launch shape: enough threads for `n`, or, where the kernel loops with
//!   `GS_FOR_EACH`, a grid of a few elements per thread (one that just fills the device if it uses shared memory). `covers: x, y by 16, 16` is a grid of 16×16 blocks over x×y; the `by`
//!   part is optional in one dimension.

mod bindings;
mod compile;
mod contract;
mod diagnostic;
mod headers;
mod kernels;
mod parse;
mod plan;
mod report;
mod schedule;
mod signature;
mod tables;
pub mod toolchain;
mod unit;

pub use diagnostic::{Diagnostic, Error, Result};
pub use kernels::{Backend, Built, BuiltFile, Kernels};
pub use report::{KernelReport, Occupancy};
