//! The CUDA backend: the traits of [`gpustream_hal`] on NVIDIA's driver API.
//!
//! Nothing of the CUDA toolkit is needed to build this crate, and nothing of NVIDIA's is linked: `libcuda` is
//! opened when the first device is asked for, NVRTC when the first source is compiled, and CUPTI when the first trace
//! begins. A machine without them gets an [`Error`](gpustream_hal::Error) that lists the names tried.
//!
//! # cudarc
//!
//! Types, constants and prototypes come from [`cudarc`]'s `sys` layer; its functions are not called. They
//! return `CUresult` as a Rust enum, so that a code from a newer driver would be undefined behaviour, and
//! they panic where the library or a symbol is missing. The module `api` holds a table of function pointers that
//! return a plain integer instead, each checked against cudarc's prototype when this crate is compiled.
//!
//! cudarc compiles its bindings for one version of CUDA, which all crates of an application share, and does not compile if two
//! are chosen. So this crate chooses none. The application may, in one of these ways:
//!
//! * It does nothing. cudarc takes the version of the `nvcc` on the path, or its newest one without an `nvcc`.
//! * It depends on cudarc with a feature such as `cuda-12080`:
//!   `cudarc = { version = "0.19", default-features = false, features = ["cuda-12080"] }`.
//! * It is built with the environment variable `CUDARC_CUDA_VERSION=12080`, and no crate has such a feature. This also helps if
//!   cudarc does not know the version of the `nvcc` that it finds, and refuses to compile.
//!
//! The version must be 12.0 or newer, in any cudarc of 0.19. It makes no difference to what this crate can do: newer functions
//! are called if the driver has them, by our own declarations if the bindings do not (the module `declarations`). How an
//! application has cudarc linked (`dynamic-linking`, `static-linking` or `dynamic-loading`) is its choice too: this crate asks
//! for `fallback-dynamic-loading`, which only counts if nothing else is chosen, and refers to none of NVIDIA's symbols.
//!
//! # Reading order
//!
//! `library` says where the driver may be, `api` lists its functions with the types of `declarations`, `driver` opens it and keeps a `context` for each
//! device, `device` ties them together; then one file per noun, with the same names as in the trait crate. `handle` turns
//! that crate's handles into the driver's, `error` and `log` its failures into errors. `trace` says when operations ran, by
//! `cupti`, and shows them to profilers, by `nvtx`.
//! `gpustream-hip` has the same files with the same functions in the same order.
//!
//! # Errors
//!
//! The message of an error has the driver's words for the code, the last reason that the driver's own log gives for this
//! function and code, and advice. The log is there from CUDA 12.9 on, and is read after a failure alone (`log.rs`); its
//! other entries are not carried, nor are its warnings. `CUDA_LOG_FILE=stderr` prints all of it.
//!
//! # Environment
//!
//! * `GPUSTREAM_CUDA_LIBRARY`: the driver library to open instead of searching (a path, or a name for the
//!   dynamic linker).
//! * `GPUSTREAM_NVRTC_LIBRARY`: the same for the run-time compiler.
//! * `GPUSTREAM_CUPTI_LIBRARY`: the same for CUPTI, which measures when operations run.
//! * `NVTX_INJECTION64_PATH`: the library of a profiler, set by the profiler.
#![warn(clippy::missing_errors_doc)]

mod api;
mod arch;
mod backend;
mod buffer;
mod compiler;
mod condition;
mod context;
mod cupti;
mod declarations;
mod device;
mod driver;
mod error;
mod event;
mod export;
mod graph;
mod green_contexts;
mod handle;
mod identity;
mod image;
mod info;
mod launch;
mod library;
mod log;
mod module;
mod nvtx;
mod stream;
mod texture;
mod trace;
mod version;

pub use backend::backend;
