//! The CUDA backend: the traits of [`gpustream_hal`] on NVIDIA's driver API.
//!
//! You need nothing from the CUDA toolkit to build this crate, and it links no library from NVIDIA. We open `libcuda`
//! when you ask for the first device, NVRTC when you compile the first source, and CUPTI when the first trace begins.
//! If a machine lacks one, you get an [`Error`](gpustream_hal::Error) that lists the names we tried.
//!
//! # cudarc
//!
//! Types, constants and prototypes come from [`cudarc`]'s `sys` layer, but we do not call its functions. They return `CUresult`
//! as a Rust enum, so a new code from a newer driver would be undefined behaviour, and they panic if the library or a symbol is
//! missing. Instead, the module `api` holds a table of function pointers that return a plain integer. The compiler checks each
//! one against cudarc's prototype.
//!
//! cudarc compiles its bindings for one version of CUDA, which all crates in an application share, and it does not compile if two
//! are chosen. So this crate chooses none. Your application can choose in one of these ways:
//!
//! * Do nothing. cudarc takes the version of the `nvcc` on the path, or its newest one if there is no `nvcc`.
//! * Depend on cudarc with a feature such as `cuda-12080`: `cudarc = { version = "0.19", default-features = false, features =
//!   ["cuda-12080"] }`.
//! * Build with the environment variable `CUDARC_CUDA_VERSION=12080`, if no crate has such a feature. This also helps if cudarc
//!   finds an `nvcc` whose version it does not know, and refuses to compile.
//!
//! The version must be 12.0 or newer, in any cudarc 0.19. Your choice does not limit what this crate can do: if the
//! driver has a newer function, we call it, if necessary by our own declarations (the module `declarations`). You also
//! choose how cudarc is linked (`dynamic-linking`, `static-linking` or `dynamic-loading`). This crate asks for
//! `fallback-dynamic-loading`, which only counts if you choose nothing else, and it refers to no symbol from NVIDIA.
//!
//! # Reading order
//!
//! `library` lists the places of the driver. `api` lists its functions with the types of `declarations`, `driver` opens
//! it and keeps a `context` for each device, and `device` ties them together. Then comes one file per noun, with the
//! names of the trait crate. `handle` turns that crate's handles into the driver's; `error` and `log` turn its failures
//! into errors. `trace` says when operations ran, through `cupti`, and shows them to profilers, through `nvtx`.
//! `gpustream-hip` has the same files with the same functions in the same order.
//!
//! # Errors
//!
//! An error's message has the driver's words for the code, the last reason that the driver's own log gives for this function and
//! code, and advice. The log exists from CUDA 12.9 on, and we only read it after a failure (`log.rs`). We do not pass on its
//! other entries or its warnings. If you want all of it, set `CUDA_LOG_FILE=stderr`.
//!
//! # Environment
//!
//! * `GPUSTREAM_CUDA_LIBRARY`: the driver library to open, instead of a search (a path, or a name for the dynamic linker).
//! * `GPUSTREAM_NVRTC_LIBRARY`: the same for the run-time compiler.
//! * `GPUSTREAM_CUPTI_LIBRARY`: the same for CUPTI, which measures when operations run.
//! * `NVTX_INJECTION64_PATH`: a profiler's library. The profiler sets it.
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
