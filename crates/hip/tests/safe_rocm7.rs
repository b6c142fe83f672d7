//! The safe crate over the backend, under ROCm 7 as the recorder plays it.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

mod safe;

pub(crate) const PROFILE: fake_hip::Profile = fake_hip::Profile::Rocm7;
