//! The HIP backend of gpustream: AMD GPUs, through a libamdhip64 that is opened at run time.
//!
//! Nothing is linked: a program that contains this backend starts on a machine without ROCm, where
//! [`backend`](mod@backend) answers [`DriverMissing`](gpustream_hal::ErrorKind::DriverMissing). One binary works with ROCm
//! 5, 6 and 7: [`api`] lists every function with the version that brought it, and a meaning or layout that changed
//! between versions is handled at its use.
//!
//! The files have the names of the traits they implement, as in the other backends: [`device`], [`stream`], [`event`],
//! [`buffer`], [`module`], [`launch`], [`graph`], [`error`]. Besides them [`ffi`] declares HIP's types, [`api`] its
//! functions, [`handle`] turns handles into HIP's, [`version`] reads version numbers, [`library`] says where
//! libamdhip64 may be, [`driver`] opens the library, [`backend`](mod@backend) finds devices, [`info`] describes one, [`memset`]
//! writes a fill's parameters in the order that HIP reads, [`compiler`] compiles at run time, [`rocprofiler`] measures
//! when operations run, [`roctx`] shows operations to rocprof, and [`arch`] compares processor names. `gpustream-cuda`
//! has the same files with the same functions in the same order.
//!
//! # Environment
//!
//! * `GPUSTREAM_HIP_LIBRARY`: path of the libamdhip64 to open, instead of searching for
//!   `libamdhip64.so.7`, `.6`, `.5`, the plain name, and those in `ROCM_PATH/lib`, `HIP_PATH/lib` and
//!   `/opt/rocm/lib`.
//! * `GPUSTREAM_HIPRTC_LIBRARY`: the same for HIPRTC.
//! * `GPUSTREAM_ROCPROFILER_LIBRARY`: the same for rocprofiler-sdk, which tells traces when operations ran.
//! * `GPUSTREAM_ROCTX_LIBRARY`: the same for roctx, through which rocprof learns of ranges.
//!
//! # hip-runtime-sys
//!
//! The declarations in [`ffi`] and the prototypes in [`api`] are proved equal to those of the crate
//! hip-runtime-sys while this one compiles, under the feature of that name (on by default here, off in
//! `gpustream`'s feature `hip`). They are not imported from it because its build script fails where ROCm is
//! not installed, and only the configuration of the workspace that is built can keep cargo from running it:
//! every user who turns HIP on would have to write that configuration. A test proves them equal to those of HIP 6.2 to
//! 7.14 as well (`tests/newer_bindings.rs`).
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
