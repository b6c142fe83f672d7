//! A module as the driver has it: loaded code, until it is unloaded.
//!
//! This layer knows the driver's handle of a module. The kernels of a module are known above, in
//! `gpustream::Module`.

use std::sync::Arc;

use gpustream_hal::{self as hal, RawModule};

use crate::inside;

/// A loaded module, which is unloaded when its last kernel is dropped and done.
pub struct ModuleCore {
    raw: RawModule,
    device: Arc<dyn hal::Device>,
}

impl ModuleCore {
    /// Takes over a module that `device` has loaded.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(raw: RawModule, device: Arc<dyn hal::Device>) -> Self {
        Self { raw, device }
    }

    /// Returns the driver's handle.
    pub fn raw(&self) -> RawModule {
        self.raw
    }
}

impl Drop for ModuleCore {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), self.raw);
        inside::outside(move || {
            // SAFETY: no handle is left, and the device drops a parked module only when no kernel of the module can
            // run.
            let _ = unsafe { device.module_unload(raw) };
        });
    }
}
