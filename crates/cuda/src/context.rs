//! The device's primary context, shared with every other library in the process.

use std::ptr;

use cudarc::driver::sys::{CUcontext, CUdevice};
use gpustream_hal::{ErrorKind, Result};

use crate::driver::Driver;
use crate::error::error;

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

impl Driver {
    /// Returns the primary context of device `ordinal` (`cuDevicePrimaryCtxRetain` on first use).
    pub(crate) fn context(&self, ordinal: usize) -> Result<Context> {
        let Some(slot) = self.contexts.get(ordinal) else {
            let message = match self.contexts.len() {
                0 => "there is no CUDA device; check nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned(),
                count => {
                    format!("there is no device cuda:{ordinal}: the driver has {count}, numbered from 0")
                }
            };
            return Err(error(ErrorKind::NoDevice, message));
        };
        if let Some(context) = slot.get() {
            return Ok(*context);
        }
        let mut device = 0;
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are to locals; the ordinal is one that the driver counted.
        unsafe {
            self.api.cuDeviceGet(&raw mut device, ordinal as i32).ok()?;
            self.api.cuDevicePrimaryCtxRetain(&raw mut raw, device).ok()?;
        }
        // Two threads that come here at once hold the same context, retained twice.
        Ok(*slot.get_or_init(|| Context { raw, device }))
    }

    /// Makes `context` current on this thread (`cuCtxGetCurrent`, and `cuCtxSetCurrent` only where it is not).
    ///
    /// The driver is asked at every call: another library may have switched the thread's context since the last one,
    /// and no cache of ours would know. The question is a read of the driver's thread-local state.
    #[inline]
    pub(crate) fn make_current(&self, context: CUcontext) -> Result<()> {
        let mut current = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.api.cuCtxGetCurrent(&raw mut current) }.ok()?;
        if current == context {
            return Ok(());
        }
        // SAFETY: the context is retained for good.
        unsafe { self.api.cuCtxSetCurrent(context) }.ok()
    }
}
