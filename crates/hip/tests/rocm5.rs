//! The backend under ROCm 5, as the recorder plays it.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

#[path = "../../../tests/backends/mod.rs"]
mod backends;
mod suite;

pub(crate) use fake_hip::{Call, Current, Recorder};
pub(crate) use gpustream_hip::backend;

pub(crate) const PROFILE: fake_hip::Profile = fake_hip::Profile::Rocm5;
pub(crate) const VENDOR: backends::Vendor = backends::Vendor::Rocm(5);

pub(crate) fn load() -> Recorder {
    fake_hip::load(PROFILE)
}
