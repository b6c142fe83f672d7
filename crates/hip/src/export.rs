//! Memory that other processes map.

use gpustream_hal::Exports;

use crate::device::HipDevice;

// SAFETY: nothing is implemented.
unsafe impl Exports for HipDevice {}
