//! Guides: how kernels are written, and this library's names beside those of cudarc.
//!
//! They hold no items. Their examples are compiled and run by the tests.

/// Writing kernels: types, headers, contracts, shared memory, constants, and how to read a build's errors.
#[doc = include_str!("writing_kernels.md")]
pub mod writing_kernels {}

/// Coming from cudarc: its names and this library's side by side.
#[doc = include_str!("coming_from_cudarc.md")]
pub mod coming_from_cudarc {}
