//! The backend under ROCm 6, as the recorder plays it.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

#[path = "../../../tests/backends/mod.rs"]
mod backends;
mod own;

pub(crate) use fake_hip::{Call, Current, Options, Recorder, image, image_with_globals, load_with};
pub(crate) use gpustream_hip::backend;

pub(crate) const VENDOR: backends::Vendor = backends::Vendor::Rocm(6);

pub(crate) fn options() -> Options {
    Options::of(fake_hip::Profile::Rocm6)
}
