//! The device's primary context, shared with every other library in the process.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};
use gpustream_hal::Result;

use crate::api::Api;

/// A retained primary context.
///
/// A context is retained once per device and never released, as NVIDIA's own runtime does: creating one costs a tenth
/// of a second, releasing the last reference would invalidate all that other libraries hold in the context, and the
/// process's end releases the context anyway.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) raw: CUcontext,
    pub(crate) device: CUdevice,
}

// SAFETY: both are handles, which the driver accepts from any thread.
unsafe impl Send for Context {}
// SAFETY: both are handles, which the driver accepts from any thread, and nothing is mutated.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the primary context of device `ordinal`, one that the driver counted (`cuDevicePrimaryCtxRetain`).
    pub(crate) fn retain(api: &Api, ordinal: usize) -> Result<Self> {
        let mut device = 0;
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are to locals; the ordinal is one that the driver counted.
        unsafe {
            api.cuDeviceGet(&raw mut device, ordinal as i32).ok()?;
            api.cuDevicePrimaryCtxRetain(&raw mut raw, device).ok()?;
        }
        Ok(Self { raw, device })
    }
}
