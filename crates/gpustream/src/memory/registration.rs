//! The program's own memory, page-locked in place.

use std::sync::Arc;

use gpustream_hal::{self as hal, HostPtr, RawBuffer, Result};

use super::PAGE_LOCKED;
use crate::inside;

/// Memory that was handed over to be page-locked. Dropping it unlocks and frees; nothing may use it any more then.
pub(crate) struct Registration {
    host: usize,
    len: usize,
    /// Frees `len` elements at `host`.
    free: unsafe fn(usize, usize),
    device: Arc<dyn hal::Device>,
}

/// # Safety
/// `host` and `len` came from a leaked box of that many elements, which is used no more.
unsafe fn free_box<T>(host: usize, len: usize) {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(host as *mut T, len)) });
}

impl Registration {
    /// Page-locks `memory` (`cuMemHostRegister`), which is not empty.
    /// Elements are plain data, so that any thread may free them.
    pub(crate) fn new<T: bytemuck::Pod>(device: &Arc<dyn hal::Device>, memory: Box<[T]>) -> Result<Self> {
        let (len, bytes) = (memory.len(), size_of_val(&*memory));
        // From here on through this pointer alone: a box would claim the memory for itself.
        let host = Box::into_raw(memory).cast::<T>() as usize;
        PAGE_LOCKED.include(host, bytes);
        // SAFETY: the memory is mapped, and stays so until `drop` unregisters it.
        match unsafe { device.host_register(host as HostPtr, bytes) } {
            Ok(()) => Ok(Self { host, len, free: free_box::<T>, device: device.clone() }),
            Err(error) => {
                // SAFETY: leaked above, and nobody uses it.
                unsafe { free_box::<T>(host, len) };
                Err(error)
            }
        }
    }

    pub(crate) fn host(&self) -> HostPtr {
        self.host as HostPtr
    }

    /// Where kernels see it (`cuMemHostGetDevicePointer`).
    pub(crate) fn device_address(&self) -> Result<RawBuffer> {
        // SAFETY: registered.
        unsafe { self.device.pinned_device_address(self.host()) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let (device, host, len, free) = (self.device.clone(), self.host, self.len, self.free);
        inside::outside(move || {
            // SAFETY: registered, and whoever drops this has seen that all uses are done.
            if unsafe { device.host_unregister(host as HostPtr) }.is_ok() {
                // SAFETY: leaked by `new`, and used no more. Where unlocking failed it stays leaked: the driver may
                // still believe that it is there.
                unsafe { free(host, len) };
            }
        });
    }
}
