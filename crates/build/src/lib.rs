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
//! The module `guide::writing_kernels` of `gpustream` goes through a kernel file from top to bottom.
//!
//! # The way of a file
//!
//! 1. **Parsing.** Every `__global__ void` kernel of the file becomes a method of the generated `Kernels` struct. A declaration that cannot be bound (a reference, an unknown type, …) is an error at
//!    `file:line:column` that says what to write instead; all of a file's errors are reported at once.
//! 2. **Compiling**, for the backends that were asked for ([`Backend`]): a shared object per instruction level
//!    for the CPU, one fat binary for CUDA, one bundle for HIP. Files whose text, headers, options and compiler
//!    did not change are not compiled again.
//! 3. **Checking.** The parameter table that each compiler wrote (`.nv.info` in a cubin, the notes of an AMD
//!    code object, `sizeof` on the CPU) is compared with the parsed signature; a difference is an error. A kernel that is
//!    not `extern "C"` is found there by its name in C++.
//! 4. **Writing** `OUT_DIR/NAME.rs` with the launchers, the embedded images and the source, and an index of these files.
//!
//! The source and the headers it includes are always embedded: a device for which no image was built gets one
//! from the run-time compiler (NVRTC, HIPRTC), which `gpustream` calls at load and whose output it keeps in a
//! disk cache. So a build machine needs no GPU compiler, only a C++ compiler for the CPU.
//!
//! # Backends
//!
//! Files are compiled for the CPU always; for CUDA and HIP where the vendor's compiler is installed system-wide, or
//! another one (Python wheels, a distribution's Clang) on a machine that has the vendor's GPU. Then a missing compiler
//! is no reason to fail: the run-time compiler stands in. A choice of backends, by [`Kernels::backend`] or the
//! environment, makes a missing compiler an error, and uses any compiler that is found.
//!
//! These variables replace what the build script says, but for files that it names backends for ([`Kernels::file_for`]);
//! [`Kernels::environment_overrides`] turns that around.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUSTREAM_BACKENDS` | comma list of `cpu`, `cuda`, `hip`, or `none` to embed the source alone |
//! | `GPUSTREAM_CPU_LEVELS` | instruction levels: `x86-64-v2`, `x86-64-v3`, `x86-64-v4`; `aarch64`; of the first also an image for checked mode |
//! | `GPUSTREAM_CUDA_ARCHS` | real architectures, `sm_80,sm_90` |
//! | `GPUSTREAM_HIP_ARCHS` | targets, `gfx90a,gfx1100` |
//! | `CXX`, `NVCC`, `CUDA_HOME`, `HIPCC`, `ROCM_PATH` | places of compilers; see [`toolchain`] |
//!
//! # Contracts
//!
//! The doc comment above a kernel's definition may end with the conditions that a launch must satisfy:
//!
//! ```cpp
//! /// y[i] += a * x[i]
//! /// requires: n <= len(x),
//! ///           n <= len(y)
//! /// covers: n
//! __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, size_t n)
//! ```
//!
//! * `types:` lists what a template is compiled for: `types: T = float, double, tile = 16, 32` are four instances.
//!   Parameters that are chosen together stand in parentheses: `types: (T, Sum) = (float, double), (int, int64_t)`. The
//!   launcher is generic over the same parameters. Types that are one in Rust (`long`, `long long`) make one instance, of
//!   the type that is listed first. Generic code names the trait that the launcher asks for: `axpy` makes
//!   `HasAxpy`, which the first type of each instance has (`Kernels`, if there are numbers alone), and whose parameters
//!   are the others. See also [`Kernels::instantiate`].
//! * `requires:` lists conditions between commas, all of which must hold. Each compares two integer expressions (`<`
//!   `<=` `>` `>=` `==` `!=`) over integer parameters, `len(pointer)` (elements), literals and the launch's
//!   `grid.x|y|z`, `block.x|y|z` and `shared` (dynamic bytes), with `+ - * / %`, signs and parentheses. Each launch
//!   checks them in 128-bit arithmetic; where that overflows, or divides by zero, the condition does not hold. A
//!   condition that does not hold is an error, and nothing is launched.
//! * A kernel with a `requires:` line (or `requires: nothing`) gets a safe launcher: **the line is the author's promise
//!   that the kernel touches nothing beyond its arguments and the file's variables when the conditions hold**, whatever
//!   values a program sets variables to. Without such a line the launcher is an `unsafe fn`.
//! * Such a kernel says of every pointer how long its memory must be: some condition bounds `len(pointer)` from below.
//!   `0 <= len(pointer)` does for memory that is not touched. A pointer without such a condition is an error.
//! * `reads: a, b` lists pointers that are not `const` and through which the kernel only reads: the launcher then shares
//!   their memory. This is a promise of the author's that no compiler checks.
//! * `optional: a, b` lists pointers that may be null: the launcher takes an `Option` for each. Conditions on the length of
//!   one that is not given hold. `covers:` cannot use such a length.
//! * Such a kernel that uses an `extern __shared__` array also says how many bytes of dynamic shared memory there must
//!   be: `4 * block.x <= shared`, or `0 <= shared` where the kernel touches none.
//! * The condition `cooperative` asks for all blocks to be on the device at once. The launcher then launches so, and a
//!   grid that does not fit, or a device without cooperative launches, is an error. The condition belongs to kernels
//!   whose blocks wait for each other. Where the generator finds a barrier of the grid (`gs::grid_barrier`, or `sync`
//!   of a cooperative group with the grid) in a kernel, or in a definition of the file or of a user's header that the
//!   kernel can reach, it adds the condition itself and warns. The generator cannot see a barrier made by hand, of
//!   atomics in a loop.
//! * `covers: n` gives the default launch shape: enough threads for `n`, or, where the kernel loops with
//!   `GS_FOR_EACH`, a grid of a few elements per thread (one that just fills the device if it uses shared memory).
//!   `covers: x, y by 16, 16` is a grid of 16×16 blocks over x×y; the `by` part is optional in one dimension.
//! * A line goes on in the next ones, until the other kind of line begins or the comment ends. So the contract comes
//!   last in its comment, and text behind the contract that is no part of it is an error. So is a line that looks like
//!   a contract's and is none (`- requires:`, `Requires:`), and a contract line in an ordinary comment above.
//!
//! # Variables
//!
//! A `__constant__` or `__device__` variable `name` of the file, or of a header of the user's, is a method `name` of
//! `Kernels` that returns a `gpustream::Global`; a constant also has `set_name`. Variables that are `const`, that hold
//! pointers or `bool`s, or whose types Rust has no name for have no methods. A name that another method has is an error.
//!
//! Launches of a file with a `__device__` variable never overlap. The compiled images tell about variables that a macro, a
//! template, an `#if` or a function hides from the parser: such a file counts as having one, and a warning names it.
//!
//! # Arguments of pointers
//!
//! `const T*` takes memory that is read (`AsView<T>`), `T*` memory that is written (`AsViewMut<T>`). No one else writes
//! this memory while the kernel runs.
//!
//! `const volatile T*` and `volatile T*` take the same, and a `Flag` too. **Volatile memory can change between two
//! reads**, since the host and other kernels write a flag at any time. A kernel that checks a value and then uses it
//! must check a copy: `unsigned i = *flag; if (i < n) y[i] = 1;`. Checking `*flag` and then using `*flag` breaks the
//! promise of its contract. A volatile pointer cannot be `__restrict__`, for two arguments may be one flag.
//!
//! # Agreement with compilers
//!
//! The parser reads the file as it is written. Macros, `#if` and `#pragma pack` can make a different file of it for
//! each compiler. So assertions about every parameter's type and every struct's layout follow the file wherever it
//! is compiled: on the CPU, by nvcc and hipcc, and by NVRTC and HIPRTC at run time. The assertions undefine every name
//! that they use. A type that the file defines twice in different ways is an error.
//!
//! # Images
//!
//! The SHA-256 of each image stands in the bindings. `Kernels::load` compares this sum before any loader sees the
//! image: against damage, and a file of another build. (There is no check against someone who can change the program.)
//!
//! Bindings compile in a crate that has `#![forbid(unsafe_code)]`: their own `unsafe` is written by a hidden macro of
//! `gpustream`, which this lint does not look into.
#![warn(clippy::missing_errors_doc)]

/// Entries for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use crate::diagnostic::SourceFile;

    /// Parses any text as a kernel file.
    pub fn kernel_file(text: &str) {
        let included = crate::headers::Included { by: "k.cu".into(), written: "\"k.cuh\"".to_owned() };
        let header =
            crate::parse::Helper { source: SourceFile::new("k.cuh", text), included: vec![included] };
        let _ =
            crate::parse::parse(&SourceFile::new("k.cu", text), &[header], crate::parse::Script::default());
    }

    /// Reads any bytes as a cubin.
    pub fn cubin(bytes: &[u8]) {
        let _ = crate::tables::nvidia::kernels(bytes);
        let _ = crate::tables::nvidia::variables(bytes);
        let _ = gpustream_hal::variables::writable(bytes);
    }

    /// Reads any bytes as a code object.
    pub fn code_object(bytes: &[u8]) {
        let _ = crate::tables::amdgpu::kernels(bytes);
        let _ = crate::tables::amdgpu::variables(bytes);
    }
}

mod backend;
mod bindings;
mod compile;
mod contract;
mod diagnostic;
mod headers;
mod kernels;
mod loops;
mod names;
mod parse;
mod plan;
mod report;
mod schedule;
mod signature;
mod tables;
pub mod toolchain;
mod types;
mod unit;

pub use backend::Backend;
pub use diagnostic::{Diagnostic, Error, Result};
pub use kernels::{Built, BuiltFile, Kernels};
pub use report::{KernelReport, Occupancy, Threads};
