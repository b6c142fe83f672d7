//! A module as the driver has it: loaded code, until it is unloaded.

use std::sync::Arc;

use gpustream_hal::{self as hal, RawModule};

use crate::deferred_drop::ForeignOwner;
use crate::reentrancy;
use crate::sync::Mutex;

/// A loaded module, which is let go when its last kernel is dropped and done.
pub struct ModuleCore {
    raw: RawModule,
    loader: Loader,
}

/// The party that loaded a module.
enum Loader {
    /// This library, which unloads it.
    Ours(Arc<dyn hal::Device>),
    /// Somebody else, whose owner of the module is dropped.
    Foreign { _owner: Mutex<ForeignOwner> },
}

impl ModuleCore {
    /// Takes over a module that `device` has loaded.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(raw: RawModule, device: Arc<dyn hal::Device>) -> Self {
        Self { raw, loader: Loader::Ours(device) }
    }

    /// Makes a value of a module that somebody else loaded and `owner` keeps loaded.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety), but for the module's owner.
    pub unsafe fn foreign(raw: RawModule, owner: ForeignOwner) -> Self {
        Self { raw, loader: Loader::Foreign { _owner: Mutex::new(owner) } }
    }

    /// Returns the driver's handle.
    pub fn raw(&self) -> RawModule {
        self.raw
    }
}

impl Drop for ModuleCore {
    fn drop(&mut self) {
        let Loader::Ours(device) = &self.loader else { return };
        let (device, raw) = (device.clone(), self.raw);
        reentrancy::outside(move || {
            // SAFETY: no handle is left, and the device drops a parked module only when no kernel of the module can
            // run.
            let _ = unsafe { device.module_unload(raw) };
        });
    }
}
