//! The device's primary context, which we share with every other library in the process.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{Fault, Result};

use crate::api::Api;
use crate::error::BACKEND;
use crate::green_contexts::GreenContexts;

/// A retained primary context.
///
/// We retain a context once for each device and never release it, as NVIDIA's runtime does. To create one takes a tenth
/// of a second. We could not release the last reference safely, because everything that other libraries hold in the
/// context would become invalid. The driver releases it anyway when the process ends.
pub(crate) struct Context {
    pub(crate) raw: CUcontext,
    pub(crate) device: CUdevice,
    /// The driver's functions, for calls in this context.
    pub(crate) api: Api,
    pub(crate) greens: GreenContexts,
}

// SAFETY: the driver accepts these handles from any thread.
unsafe impl Send for Context {}
// SAFETY: the driver accepts these handles from any thread, and we never change them.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the primary context of device `ordinal` (`cuDevicePrimaryCtxRetain`). The driver must have counted that device.
    pub(crate) fn retain(api: &Api, ordinal: usize) -> Result<Self> {
        let mut device = 0;
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are to locals; the driver counted the ordinal.
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

    /// Makes this the thread's current context: `cuCtxGetCurrent`, then `cuCtxSetCurrent` if it is another one.
    ///
    /// We must ask the driver at every call, because another library can switch the thread's context at any time and no
    /// cache of ours could notice. The question is cheap: the driver reads a thread-local variable.
    #[inline]
    pub(crate) fn make_current(&self) -> Result<()> {
        let mut current = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.api.cuCtxGetCurrent(&raw mut current) }.ok()?;
        if current == self.raw {
            return Ok(());
        }
        cold_path();
        // SAFETY: we never release the context.
        unsafe { self.api.cuCtxSetCurrent(self.raw) }.ok()
    }
}
