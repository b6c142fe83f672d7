//! Memory that other processes can map: the driver's virtual memory, because its handles travel as file descriptors.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use gpustream_hal::{ErrorKind, Exports, RawBuffer, Result, SharedMapping};

use crate::api::Api;
use crate::device::HipDevice;
use crate::error::error;
#[allow(clippy::wildcard_imports)] // Constants and structs under HIP's own names.
use crate::ffi::*;
use crate::handle::address_of;
use crate::version::Version;

// SAFETY: the driver keeps the memory while any process maps it, and knows its length.
unsafe impl Exports for HipDevice {
    fn uuid(&self) -> Result<[u8; 16]> {
        let api = self.enter()?;
        let mut uuid = hipUUID { bytes: [0; 16] };
        // SAFETY: the pointer is to a local.
        unsafe { api.hipDeviceGetUuid(&raw mut uuid, self.ordinal()) }.ok()?;
        Ok(uuid.bytes)
    }

    fn shared_alloc(&self, bytes: usize) -> Result<SharedMapping> {
        let api = self.enter()?;
        let (len, properties) = (self.mapped(bytes)?, self.properties());
        let mut handle = ptr::null_mut();
        // SAFETY: both pointers are to locals.
        unsafe { api.hipMemCreate(&raw mut handle, len, &raw const properties, 0) }.ok()?;
        self.map(handle, len)
    }

    unsafe fn shared_export(&self, mapping: &SharedMapping) -> Result<OwnedFd> {
        let api = self.enter()?;
        let mut descriptor: c_int = -1;
        let to = (&raw mut descriptor).cast();
        // SAFETY: with this handle type the driver writes a descriptor, here to a local; the caller vouches for the mapping.
        unsafe {
            api.hipMemExportToShareableHandle(
                to,
                handle_of(mapping.handle),
                hipMemHandleTypePosixFileDescriptor,
                0,
            )
        }
        .ok()?;
        // SAFETY: the driver has just made the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn shared_import(&self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<SharedMapping> {
        let api = self.enter()?;
        let (len, mut handle) = (self.mapped(bytes)?, ptr::null_mut());
        // We must check the length, because HIP maps whatever length you ask for.
        let there = length(descriptor);
        if there < len as u64 {
            let message =
                format!("cannot import {bytes} bytes of memory: the descriptor's memory has only {there}");
            return Err(error(ErrorKind::InvalidArgument, message));
        }
        let mut number: c_int = descriptor.as_raw_fd();
        let from: *mut c_void = if self.driver.version >= Version::DESCRIPTORS_BY_VALUE {
            ptr::without_provenance_mut(number as usize)
        } else {
            (&raw mut number).cast()
        };
        // SAFETY: the pointers are to locals; later versions take a descriptor's number as the second.
        let imported = unsafe {
            api.hipMemImportFromShareableHandle(&raw mut handle, from, hipMemHandleTypePosixFileDescriptor)
        };
        imported.ok_or(ErrorKind::InvalidArgument)?;
        self.map(handle, len)
    }

    unsafe fn shared_unmap(&self, mapping: SharedMapping) -> Result<()> {
        let api = self.enter()?;
        let address = address_of(mapping.address);
        // SAFETY: this value owns the mapping and the handle, and the caller promises that they are out of use.
        unsafe {
            let unmapped = api.hipMemUnmap(address, mapping.mapped).ok();
            let freed = unmapped.and_then(|()| api.hipMemAddressFree(address, mapping.mapped).ok());
            let released = api.hipMemRelease(handle_of(mapping.handle)).ok();
            freed.and(released)
        }
    }
}

impl HipDevice {
    fn properties(&self) -> hipMemAllocationProp {
        hipMemAllocationProp {
            type_: hipMemAllocationTypePinned,
            requestedHandleType: hipMemHandleTypePosixFileDescriptor,
            location: location(self.ordinal()),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: [0; 4],
        }
    }

    /// Returns how many bytes the driver maps if you ask for this many.
    fn mapped(&self, bytes: usize) -> Result<usize> {
        let (mut granularity, properties) = (0, self.properties());
        let minimum = hipMemAllocationGranularityMinimum;
        let api = &self.api;
        // SAFETY: both pointers are to locals.
        unsafe { api.hipMemGetAllocationGranularity(&raw mut granularity, &raw const properties, minimum) }
            .ok()?;
        let len = bytes.checked_next_multiple_of(granularity.max(1));
        len.ok_or_else(|| {
            error(
                ErrorKind::OutOfMemory,
                format!("cannot share {bytes} bytes, because the address space is smaller; ask for fewer"),
            )
        })
    }

    /// Maps memory for this device and for those that can reach its memory. The mapping owns the handle; if this fails, we
    /// release the handle.
    fn map(&self, handle: hipMemGenericAllocationHandle_t, len: usize) -> Result<SharedMapping> {
        let api = self.enter()?;
        let mut address = ptr::null_mut();
        // SAFETY: the pointer is to a local and the handle is the caller's. If a later call fails, we undo everything made here.
        unsafe {
            let reserved = api.hipMemAddressReserve(&raw mut address, len, 0, ptr::null_mut(), 0).ok();
            let mapped = reserved.and_then(|()| {
                let mapped = api.hipMemMap(address, len, 0, handle, 0).ok();
                mapped.inspect_err(|_| drop(api.hipMemAddressFree(address, len).ok()))
            });
            mapped.inspect_err(|_| drop(api.hipMemRelease(handle).ok()))?;
        }
        let mapping = SharedMapping {
            address: RawBuffer(address as usize),
            mapped: len,
            handle: handle.expose_provenance() as u64,
        };
        let access = self.reachers(api).and_then(|devices| {
            let flags = hipMemAccessFlagsProtReadWrite;
            let access = |&device: &c_int| hipMemAccessDesc { location: location(device), flags };
            let all: Vec<_> = devices.iter().map(access).collect();
            // SAFETY: the list has this many entries, and we mapped the range above.
            unsafe { api.hipMemSetAccess(address, len, all.as_ptr(), all.len()) }.ok()
        });
        if let Err(error) = access {
            // SAFETY: no work has seen the mapping.
            let _ = unsafe { self.shared_unmap(mapping) };
            return Err(error);
        }
        Ok(mapping)
    }

    /// Returns the devices that can reach this one's memory, and this one itself. If you turn on peer access later,
    /// those devices still cannot reach this memory.
    fn reachers(&self, api: &Api) -> Result<Vec<c_int>> {
        let here = self.ordinal();
        let mut reachers = vec![here];
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a local.
        unsafe { api.hipGetDeviceCount(&raw mut count) }.ok()?;
        for device in (0..count).filter(|&device| device != here) {
            let mut can: c_int = 0;
            // SAFETY: the pointer is to a local; the driver counted the device.
            unsafe { api.hipDeviceCanAccessPeer(&raw mut can, device, here) }.ok()?;
            if can != 0 {
                reachers.push(device);
            }
        }
        Ok(reachers)
    }
}

fn location(device: c_int) -> hipMemLocation {
    hipMemLocation { type_: hipMemLocationTypeDevice, id: device }
}

fn handle_of(handle: u64) -> hipMemGenericAllocationHandle_t {
    ptr::with_exposed_provenance_mut(handle as usize)
}

/// Returns how much memory a descriptor stands for, as the system's own buffers (`dma_buf`) state it; 0 for other things.
fn length(descriptor: BorrowedFd<'_>) -> u64 {
    let file = descriptor.try_clone_to_owned().map(File::from);
    file.and_then(|mut file| file.seek(SeekFrom::End(0))).unwrap_or(0)
}
