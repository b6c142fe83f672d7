//! Guides: writing kernels, the functions that kernels can call, matrix cores, this library's names beside cudarc's, using other
//! libraries in the same program, writing a library of your own, servers, and seeing what ran when.
//!
//! These modules hold no items, only text. The tests compile and run the examples.

/// How to write kernels: types, headers, contracts, shared memory, constants, compiling at run time, and the errors of a
/// build.
#[doc = include_str!("guide/writing_kernels.md")]
pub mod writing_kernels {}

/// What `<gpustream/kernel.cuh>` has for kernels: loops, reductions, scans, atomics, warps. Each function with who has to call it
/// and the shared memory that it uses.
#[doc = include_str!("guide/device_header.md")]
pub mod device_header {}

/// How a kernel multiplies matrices on matrix cores, in steps from a triple loop.
#[doc = include_str!("guide/matrix_cores.md")]
pub mod matrix_cores {}

/// If you know cudarc: its names and ours side by side.
#[doc = include_str!("guide/coming_from_cudarc.md")]
pub mod coming_from_cudarc {}

/// How to use other libraries' work and memory, ordered and kept alive like the library's own.
#[doc = include_str!("guide/bringing_your_own.md")]
pub mod bringing_your_own {}

/// How to write a library that others call in their streams, with a small BLAS as the example.
#[doc = include_str!("guide/library_on_top.md")]
pub mod library_on_top {}

/// How to serve many requests on a few threads: which calls block, back-pressure, memory, cancellation, and what to do when
/// the device fails.
#[doc = include_str!("guide/servers.md")]
pub mod servers {}

/// How to see what ran: traces, reports and pictures.
#[doc = include_str!("guide/seeing_what_ran.md")]
pub mod seeing_what_ran {}
