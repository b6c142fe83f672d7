//! The HIP backend: AMD GPUs, through a libamdhip64 that we open at run time.
//!
//! We link nothing, so your program also starts on a machine without ROCm; there [`backend`](mod@backend) returns
//! [`DriverMissing`](gpustream_hal::ErrorKind::DriverMissing). One binary works with ROCm 5, 6 and 7: [`api`] lists
//! every function with the version that brought it. If a meaning or a layout changed between versions, the code that
//! uses it must cope with both.
//!
//! The files are named after the traits they implement, as in the other backends: [`device`], [`stream`], [`event`],
//! [`buffer`], [`module`], [`launch`], [`graph`], [`error`]. `gpustream-cuda` has the same files with the same functions in the
//! same order. The others are:
//!
//! | module | what it does |
//! |---|---|
//! | [`ffi`], [`api`] | declare HIP's types and functions |
//! | [`library`], [`driver`] | list the places that libamdhip64 can be in, and open it |
//! | [`backend`](mod@backend), [`info`] | find devices, and describe one |
//! | [`handle`], [`version`], [`arch`] | turn handles into HIP's, read version numbers, compare processor names |
//! | [`memset`] | writes a fill's parameters in the order that this HIP reads |
//! | [`compiler`] | compiles at run time |
//! | [`rocprofiler`], [`roctx`] | measure when operations run, and show ranges to rocprof |
//!
//! # Environment
//!
//! * `GPUSTREAM_HIP_LIBRARY`: path of the libamdhip64 to open. Otherwise we search for `libamdhip64.so.7`, `.6`, `.5`, the plain
//!   name, and those in `ROCM_PATH/lib`, `HIP_PATH/lib` and `/opt/rocm/lib`.
//! * `GPUSTREAM_HIPRTC_LIBRARY`: the same for HIPRTC.
//! * `GPUSTREAM_ROCPROFILER_LIBRARY`: the same for rocprofiler-sdk, which tells traces when operations ran.
//! * `GPUSTREAM_ROCTX_LIBRARY`: the same for roctx, which tells rocprof about ranges.
//!
//! # hip-runtime-sys
//!
//! With the feature `hip-runtime-sys`, the compiler proves that the declarations in [`ffi`] and the prototypes in [`api`] equal
//! those of that crate (the feature is on by default here, and off in `gpustream`'s feature `hip`). We do not import them,
//! because that crate's build script fails if ROCm is not installed. Only the configuration of the workspace that you build can
//! keep cargo from running it, so you would have to write that configuration to turn HIP on. A test proves that they equal those
//! of HIP 6.2 to 7.14 as well (`tests/newer_bindings.rs`).
#![warn(clippy::missing_errors_doc)]
#![allow(rustdoc::private_intra_doc_links)]

mod api;
mod arch;
mod backend;
mod buffer;
mod compiler;
mod device;
mod driver;
mod error;
mod event;
mod export;
mod ffi;
mod graph;
mod handle;
mod identity;
mod info;
mod launch;
mod library;
mod memset;
mod module;
mod rocprofiler;
mod roctx;
mod stream;
mod texture;
mod trace;
mod version;

pub use backend::{Hip, backend};
