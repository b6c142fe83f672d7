//! The device's primary context, shared with every other library in the process.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{Fault, Result};

use crate::api::Api;
use crate::error::BACKEND;
use crate::green_contexts::GreenContexts;

/// A retained primary context.
///
/// A context is retained once per device and never released, as NVIDIA's own runtime does: creating one costs a tenth
/// of a second, releasing the last reference would invalidate all that other libraries hold in the context, and the
/// process's end releases the context anyway.
pub(crate) struct Context {
    pub(crate) raw: CUcontext,
    pub(crate) device: CUdevice,
    /// The driver's functions, for calls in this context.
    pub(crate) api: Api,
    pub(crate) greens: GreenContexts,
}

// SAFETY: its handles are ones that the driver accepts from any thread.
unsafe impl Send for Context {}
// SAFETY: its handles are ones that the driver accepts from any thread, and they are not mutated.
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
        Ok(Self {
            raw,
            device,
            api: api.for_device(Fault::of(BACKEND, ordinal)),
            greens: GreenContexts::default(),
        })
    }

    /// Makes this the thread's current context (`cuCtxGetCurrent`, and `cuCtxSetCurrent` only where it is not).
    ///
    /// The driver is asked at every call: another library may have switched the thread's context since the last one,
    /// and no cache of ours would know. The question is a read of the driver's thread-local state.
    #[inline]
    pub(crate) fn make_current(&self) -> Result<()> {
        let mut current = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.api.cuCtxGetCurrent(&raw mut current) }.ok()?;
        if current == self.raw {
            return Ok(());
        }
        cold_path();
        // SAFETY: the context is retained for good.
        unsafe { self.api.cuCtxSetCurrent(self.raw) }.ok()
    }
}
