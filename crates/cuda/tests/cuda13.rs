//! The backend under CUDA 13.0, as the recorder plays it.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

#[path = "../../../tests/backends/mod.rs"]
mod backends;
mod own;

pub(crate) use fake_cuda::{Call, Current, Options, Recorder, image, image_with_globals, load_with};
pub(crate) use gpustream_cuda::backend;

pub(crate) const VENDOR: backends::Vendor = backends::Vendor::Cuda;

pub(crate) fn options() -> Options {
    Options::default()
}
