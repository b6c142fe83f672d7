//! Guides: writing kernels, this library's names beside those of cudarc, other libraries in one program with it, and
//! seeing what ran when.
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

/// Seeing what ran: traces, reports and pictures.
#[doc = include_str!("seeing_what_ran.md")]
pub mod seeing_what_ran {}
