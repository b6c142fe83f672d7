//! Your own memory, page-locked in place.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use gpustream_hal::{self as hal, HostPtr, RawBuffer, Result};

use super::PAGE_LOCKED;
use crate::reentrancy;

/// Memory that you handed over to be page-locked. If you drop this, the memory is unlocked and its owner is dropped. Nothing
/// may use the memory any more.
pub struct Registration {
    host: usize,
    owner: Option<Box<dyn Any + Send>>,
    device: Arc<dyn hal::Device>,
}

/// A box that we only use through its address, because a box would claim exclusive access.
struct Leaked<T> {
    host: usize,
    len: usize,
    element: PhantomData<fn(T)>,
}

impl<T> Drop for Leaked<T> {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.host as *mut T, self.len);
        // SAFETY: a box of that many elements was leaked there, and nothing uses it any more.
        drop(unsafe { Box::from_raw(memory) });
    }
}

impl Registration {
    /// Page-locks a box that is not empty. The elements are plain data, so any thread may free them.
    ///
    /// # Errors
    /// The driver's refusal; then the memory is dropped.
    pub fn of_box<T: bytemuck::Pod>(device: &Arc<dyn hal::Device>, memory: Box<[T]>) -> Result<Self> {
        let (len, bytes) = (memory.len(), size_of_val(&*memory));
        let host = Box::into_raw(memory).cast::<T>() as usize;
        let owner = Leaked { host, len, element: PhantomData::<fn(T)> };
        // SAFETY: the box is mapped until its owner is dropped.
        unsafe { Self::new(device, host as HostPtr, bytes, Box::new(owner)) }
    }

    /// Page-locks the `bytes` bytes at `host` (`cuMemHostRegister`). There must be at least one.
    ///
    /// # Errors
    /// The driver's refusal; then the owner is dropped.
    ///
    /// # Safety
    /// The memory stays mapped until `owner` is dropped.
    pub unsafe fn new(
        device: &Arc<dyn hal::Device>,
        host: HostPtr,
        bytes: usize,
        owner: Box<dyn Any + Send>,
    ) -> Result<Self> {
        PAGE_LOCKED.include(host as usize, bytes);
        // SAFETY: the memory stays mapped until `drop` unregisters it.
        unsafe { device.host_register(host, bytes) }?;
        Ok(Self { host: host as usize, owner: Some(owner), device: device.clone() })
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
        let (device, host, owner) = (self.device.clone(), self.host, self.owner.take());
        reentrancy::outside(move || {
            // SAFETY: the memory is registered, and its owner drops this only after all uses are done.
            if unsafe { device.host_unregister(host as HostPtr) }.is_err() {
                // The driver may still count the memory as locked.
                std::mem::forget(owner);
            }
        });
    }
}
