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
//! For a tour of a kernel file from top to bottom, read `guide::writing_kernels` in `gpustream`.
//!
//! # What happens to a file
//!
//! 1. **Parsing.** Every `__global__ void` kernel of the file becomes a method of the generated `Kernels`
//!    struct. If we cannot bind a declaration (a reference, an unknown type, …), you get an error at
//!    `file:line:column` that says what to write instead. All errors of all files are reported at once.
//! 2. **Compiling**, for the backends that you asked for ([`Backend`]): one shared object per instruction
//!    level for the CPU, one fat binary for CUDA, one bundle for HIP. We skip a file if its text, headers,
//!    options and compiler have not changed.
//! 3. **Checking.** Each compiler leaves a table of the parameters (`.nv.info` in a cubin, the notes of an
//!    AMD code object, `sizeof` on the CPU). We compare it with the parsed signature, and a difference is an
//!    error. Kernels that are not `extern "C"` are found there by their C++ names.
//! 4. **Writing.** `OUT_DIR/NAME.rs` gets the launchers, the embedded images and the source. An index of
//!    these files is written next to it.
//!
//! The source and the headers it includes are always embedded, so the build machine needs no GPU compiler,
//! only a C++ compiler for the CPU. If no image suits a device, `gpustream` compiles the source with NVRTC or
//! HIPRTC when you load the module, and keeps the result in a disk cache.
//!
//! # Backends
//!
//! Files are always compiled for the CPU. They are also compiled for CUDA and HIP if the vendor's compiler is
//! installed system-wide, or if the machine has the vendor's GPU and another compiler is found (Python
//! wheels, a distribution's Clang). Otherwise we leave the backend out, because the run-time compiler can
//! stand in. If you choose backends yourself, with [`Kernels::backend`] or the environment, then any compiler
//! that we find is used and a missing one is an error.
//!
//! These variables override the build script, so that you can change a build without editing it. They do not
//! override [`Kernels::file_for`], and you can turn the precedence around with
//! [`Kernels::environment_overrides`].
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUSTREAM_BACKENDS` | comma-separated list of `cpu`, `cuda`, `hip`; or `none` to embed only the source |
//! | `GPUSTREAM_CPU_LEVELS` | instruction levels: `x86-64-v2`, `x86-64-v3`, `x86-64-v4`; `aarch64`; or `native` for the level of the machine that builds. The first level also gets an image for checked mode |
//! | `GPUSTREAM_CUDA_ARCHS` | real architectures, `sm_80,sm_90` |
//! | `GPUSTREAM_HIP_ARCHS` | targets, `gfx90a,gfx1100` |
//! | `CXX`, `NVCC`, `CUDA_HOME`, `HIPCC`, `ROCM_PATH` | where the compilers are; see [`toolchain`] |
//!
//! A CUDA file that uses instructions of `sm_90a`, such as `wgmma` and tensor maps, asks for an image beside that for `sm_90` with a
//! line `#define GS_SM_90A 1`, and has ordinary code for other targets. The driver runs the `sm_90a` image on Hopper.
//!
//! # Build times
//!
//! Cargo does not optimise build scripts and their dependencies. That suits most crates, because this one then compiles fast and
//! reads a kernel file in milliseconds. But it takes seconds for a very large file: 4 s for one of 52 kB with a header of 254 kB,
//! on a busy machine. If you change such a file often, optimise a little:
//!
//! ```toml
//! [profile.dev.build-override]
//! opt-level = 1
//! ```
//!
//! The same file then takes 1 s, but a clean build takes 50 s of CPU time more.
//!
//! # Contracts
//!
//! The doc comment above a kernel's definition may end with a contract: the conditions that each launch must
//! satisfy.
//!
//! ```cpp
//! /// y[i] += a * x[i]
//! /// requires: n <= len(x),
//! ///           n <= len(y)
//! /// covers: n
//! __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, size_t n)
//! ```
//!
//! * `types:` lists what to compile a template for: `types: T = float, double, tile = 16, 32` gives four
//!   instances. Put parameters that must be chosen together in parentheses:
//!   `types: (T, Sum) = (float, double), (int, int64_t)`. The launcher is generic over the same parameters.
//!   If two C++ types are the same in Rust (`long`, `long long`), only the first one listed gets an instance.
//!   In generic code, name the trait that the launcher asks for: `axpy` makes `HasAxpy`. The first type of
//!   each instance implements it (or `Kernels`, if the template has only numbers), and the trait's parameters
//!   are the rest. See also [`Kernels::instantiate`].
//! * `requires:` lists conditions separated by commas; all of them must hold. Each condition compares two
//!   integer expressions (`<` `<=` `>` `>=` `==` `!=`). You may use integer parameters, integers in structs and
//!   vectors that are passed by value (`s.width`, `s.size[1]`, `cells.x`), `len(pointer)` (in elements),
//!   literals, the launch's `grid.x|y|z`, `block.x|y|z` and `shared` (dynamic bytes), `+ - * / %`,
//!   signs and parentheses. Every launch evaluates them in 128-bit arithmetic. If a condition is false,
//!   overflows or divides by zero, the launch returns an error and nothing runs.
//! * A kernel with a `requires:` line (or `requires: nothing`) gets a safe launcher, because **the line is
//!   the author's promise: if the conditions hold, the kernel touches nothing but its arguments and the
//!   file's variables**, whatever values those variables have. We cannot check that promise, so review the
//!   line as you would review an `unsafe` block. Without the line the launcher is an `unsafe fn`.
//! * A kernel with a safe launcher must say for every pointer how long its memory has to be: some condition
//!   must bound `len(pointer)` from below. If the kernel does not touch the memory, write
//!   `0 <= len(pointer)`. A pointer without such a condition is an error.
//! * `reads: a, b` lists non-`const` pointers that the kernel only reads through, so that the launcher can
//!   borrow their memory as shared. No compiler checks this; it is your promise.
//! * `optional: a, b` lists pointers that may be null: the launcher takes an `Option` for each. If you pass
//!   `None`, the conditions on its length count as satisfied. `covers:` cannot use such a length.
//! * If a kernel with a safe launcher uses an `extern __shared__` array, it must also say how many bytes of
//!   dynamic shared memory it needs: `4 * block.x <= shared`, or `0 <= shared` if it touches none.
//! * The condition `cooperative` is for kernels whose blocks wait for each other: all blocks must then be on
//!   the device at once, otherwise the kernel hangs. The launch is cooperative, so it returns an error if the
//!   grid does not fit or the device cannot do that. If we find a grid barrier (`gs::grid_barrier`, or `sync`
//!   on a cooperative group of the grid) in a kernel or in anything that it can reach in the file and your
//!   headers, we add the condition and warn you. We cannot see a barrier that you build from atomics in a
//!   loop.
//! * `covers: n` sets the default launch shape: enough threads for `n`. If the kernel loops with
//!   `GS_FOR_EACH`, the grid is smaller and each thread gets a few elements; if such a kernel uses shared
//!   memory, the grid just fills the device. `covers: x, y by 16, 16` means blocks of 16×16 over x×y. In one
//!   dimension you may leave out the `by` part.
//! * With `covers:` a kernel `name` has two launchers: `name` chooses the shape, and `name_with` takes a `Launch` after the
//!   stream. Without `covers:` there is no `name_with`, because `name` itself takes the `Launch`. So if you add the line
//!   later, calls of `name` that pass a `Launch` become calls of `name_with`.
//! * A line of the contract continues on the following lines until another kind of line begins or the comment
//!   ends. The contract must therefore come last in its comment, and any other text after it is an error. A
//!   line that only looks like a contract (`- requires:`, `Requires:`) is an error too, and so is a contract
//!   line in an ordinary comment above, because otherwise you would believe in a check that never happens.
//!
//! # Variables
//!
//! Each `__constant__` or `__device__` variable `name` of the file or your headers becomes a method `name` of
//! `Kernels` that returns a `gpustream::Global`. A constant also gets `set_name`. Variables that are `const`,
//! hold pointers or `bool`s, or have a type without a name in Rust get no methods. If a method of the same
//! name already exists, that is an error.
//!
//! Launches of a file with a `__device__` variable never overlap, because any of them might write it. A
//! variable can hide from the parser in a macro, a template, an `#if` or a function, but not in the compiled
//! image. If we find one there, the file counts as having a `__device__` variable, and a warning names it.
//!
//! # Pointer arguments
//!
//! A `const T*` parameter takes memory that the kernel reads (`AsView<T>`), a `T*` parameter memory that it
//! writes (`AsViewMut<T>`). While the kernel runs, no one else writes that memory.
//!
//! `const volatile T*` and `volatile T*` accept the same and also a `Flag`. **Volatile memory can change
//! between two reads**, because the host and other kernels may write a flag at any time. So a kernel must
//! check a copy of the value that it uses: `unsigned i = *flag; if (i < n) y[i] = 1;`. Reading `*flag` once
//! for the check and again for the access would break the contract's promise. A volatile pointer cannot be
//! `__restrict__`, because two arguments may be the same flag.
//!
//! # When the compiler sees something else
//!
//! The parser reads the file as you wrote it, but macros, `#if` and `#pragma pack` can turn it into something
//! else for each compiler. We therefore append assertions about every parameter's type and every struct's
//! layout, and every compiler checks them: the CPU's, nvcc, hipcc, and at run time NVRTC and HIPRTC. The
//! assertions undefine every name that they use, so no macro can change them. Defining one type twice in
//! different ways is an error.
//!
//! # Images
//!
//! The bindings contain the SHA-256 of each image, and `Kernels::load` compares it before a loader sees the
//! image. This catches damaged images and images of another build. It does not protect you from someone who
//! can change your program.
//!
//! You can use bindings in a crate with `#![forbid(unsafe_code)]`, because a hidden macro of `gpustream`
//! writes their `unsafe` blocks, and the lint does not look into that macro.
#![warn(clippy::missing_errors_doc)]

/// Entry points for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use crate::diagnostic::SourceFile;

    pub fn kernel_file(text: &str) {
        let included = crate::headers::Included { by: "k.cu".into(), written: "\"k.cuh\"".to_owned() };
        let header =
            crate::parse::Helper { source: SourceFile::new("k.cuh", text), included: vec![included] };
        let _ =
            crate::parse::parse(&SourceFile::new("k.cu", text), &[header], crate::parse::Script::default());
    }

    pub fn cubin(bytes: &[u8]) {
        let _ = crate::tables::nvidia::kernels(bytes);
        let _ = crate::tables::nvidia::variables(bytes);
        let _ = gpustream_hal::variables::writable(bytes);
    }

    pub fn code_object(bytes: &[u8]) {
        let _ = crate::tables::amdgpu::kernels(bytes);
        let _ = crate::tables::amdgpu::variables(bytes);
    }
}

mod backend;
mod bindings;
mod compile;
mod contract;
mod definition;
mod diagnostic;
mod headers;
mod kernels;
mod loops;
mod names;
mod parse;
mod plan;
mod preprocessed;
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
