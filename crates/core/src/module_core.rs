//! A module in the driver: code that is loaded, until we unload it.

use std::sync::Arc;

use gpustream_hal::{self as hal, RawModule};

use crate::deferred_drop::ForeignOwner;
use crate::reentrancy;
use crate::sync::Mutex;

/// A loaded module. We let go of it once its last kernel is dropped and done.
pub struct ModuleCore {
    raw: RawModule,
    loader: Loader,
}

/// Who loaded a module, and so who unloads it.
enum Loader {
    /// We did, and we unload it.
    Ours(Arc<dyn hal::Device>),
    /// You or another library did. We only drop the owner that we were given.
    Foreign { _owner: Mutex<ForeignOwner> },
}

impl ModuleCore {
    /// Takes a module that `device` has loaded. We will unload it.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(raw: RawModule, device: Arc<dyn hal::Device>) -> Self {
        Self { raw, loader: Loader::Ours(device) }
    }

    /// Makes a value for a module that we did not load. It stays loaded as long as `owner` lives.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety), except that `owner` owns the module.
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
            // SAFETY: no handle is left, and the device drops a parked module only once none of its kernels can be running.
            let _ = unsafe { device.module_unload(raw) };
        });
    }
}
