//! The program's own memory, page-locked in place.

use std::sync::Arc;

use gpustream_hal::{self as hal, HostPtr, RawBuffer, Result};

use super::PAGE_LOCKED;
use crate::inside;

/// Memory that was handed over to be page-locked. Dropping the value unlocks and frees the memory, which nothing may
/// use any more.
pub struct Registration {
    host: usize,
    len: usize,
    /// Frees `len` elements at `host`.
    free: unsafe fn(usize, usize),
    device: Arc<dyn hal::Device>,
}

/// Frees a leaked box of `len` elements at `host`.
///
/// # Safety
/// `host` and `len` came from a leaked box of that many elements, which is not used again.
unsafe fn free_box<T>(host: usize, len: usize) {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(host as *mut T, len)) });
}

impl Registration {
    /// Page-locks `memory` (`cuMemHostRegister`), which is not empty. The elements are plain data, so any thread may
    /// free them.
    pub fn new<T: bytemuck::Pod>(device: &Arc<dyn hal::Device>, memory: Box<[T]>) -> Result<Self> {
        let (len, bytes) = (memory.len(), size_of_val(&*memory));
        // From here on the memory is used through this pointer alone: a box would claim exclusive access.
        let host = Box::into_raw(memory).cast::<T>() as usize;
        PAGE_LOCKED.include(host, bytes);
        // SAFETY: the memory is mapped, and stays so until `drop` unregisters it.
        match unsafe { device.host_register(host as HostPtr, bytes) } {
            Ok(()) => Ok(Self { host, len, free: free_box::<T>, device: device.clone() }),
            Err(error) => {
                // SAFETY: the box was leaked above, and nobody uses it.
                unsafe { free_box::<T>(host, len) };
                Err(error)
            }
        }
    }

    pub(crate) fn host(&self) -> HostPtr {
        self.host as HostPtr
    }

    /// Returns the address at which kernels see the memory (`cuMemHostGetDevicePointer`).
    pub(crate) fn device_address(&self) -> Result<RawBuffer> {
        // SAFETY: the memory is registered.
        unsafe { self.device.pinned_device_address(self.host()) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        super::note_return();
        let (device, host, len, free) = (self.device.clone(), self.host, self.len, self.free);
        inside::outside(move || {
            // SAFETY: the memory is registered, and its owner drops this only after all uses are done.
            if unsafe { device.host_unregister(host as HostPtr) }.is_ok() {
                // SAFETY: `new` leaked the box, and nothing uses it any more. If unlocking failed the box stays leaked,
                // because the driver may still count it as locked.
                unsafe { free(host, len) };
            }
        });
    }
}
