//! The calls that CUDA and HIP share, on CUDA.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

#[path = "../../../tests/backends/mod.rs"]
mod backends;

pub(crate) use fake_cuda::{Call, Current, Recorder, load};
pub(crate) use gpustream_cuda::backend;

pub(crate) const VENDOR: backends::Vendor = backends::Vendor::Cuda;
