//! A module as the driver has it.

use std::sync::Arc;

use gpustream_hal::{self as hal, RawModule};

use crate::inside;

/// A loaded module; unloaded when its last kernel is dropped and done.
pub(crate) struct ModuleCore {
    pub(crate) raw: RawModule,
    pub(crate) device: Arc<dyn hal::Device>,
}

impl Drop for ModuleCore {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), self.raw);
        inside::outside(move || {
            // SAFETY: no handle is left, and the device drops a parked module only when no kernel of it can run.
            let _ = unsafe { device.module_unload(raw) };
        });
    }
}
