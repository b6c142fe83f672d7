//! Guides: writing kernels, this library's names beside those of cudarc, and other libraries in one program with it.
//!
//! The modules hold no items. The tests compile and run their examples.

/// Writing kernels: types, headers, contracts, shared memory, constants, and the errors of a build.
#[doc = include_str!("writing_kernels.md")]
pub mod writing_kernels {}

/// Coming from cudarc: its names and this library's side by side.
#[doc = include_str!("coming_from_cudarc.md")]
pub mod coming_from_cudarc {}

/// Bringing your own: other libraries' work and memory, ordered and owned like this library's.
#[doc = include_str!("bringing_your_own.md")]
pub mod bringing_your_own {}
