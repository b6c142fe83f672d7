//! Memory that other processes can map: the driver's virtual memory, because its handles travel as file descriptors.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use cudarc::driver::sys::{
    CUdevice, CUmemAccess_flags, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationType, CUuuid,
};
use gpustream_hal::{ErrorKind, Exports, RawBuffer, Result, SharedMapping};

use crate::api::Api;
use crate::buffer::location;
use crate::declarations::{CUmemAccessDesc, CUmemAllocationProp};
use crate::device::CudaDevice;
use crate::error::error;
use crate::handle::address_of;

const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// SAFETY: the driver keeps the memory while any process maps it, and knows its length.
unsafe impl Exports for CudaDevice {
    fn uuid(&self) -> Result<[u8; 16]> {
        let api = self.enter()?;
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer is to a local.
        unsafe { api.cuDeviceGetUuid_v2(&raw mut uuid, self.context.device) }.ok()?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    fn shared_alloc(&self, bytes: usize) -> Result<SharedMapping> {
        let api = self.enter()?;
        let (len, properties) = (self.mapped(bytes)?, self.properties());
        let mut handle = 0;
        // SAFETY: both pointers are to locals.
        unsafe { api.cuMemCreate(&raw mut handle, len, &raw const properties, 0) }.ok()?;
        self.map(handle, len)
    }

    unsafe fn shared_export(&self, mapping: &SharedMapping) -> Result<OwnedFd> {
        let api = self.enter()?;
        let mut descriptor: c_int = -1;
        let to = (&raw mut descriptor).cast();
        // SAFETY: with this handle type the driver writes a descriptor, here to a local; the caller vouches for the mapping.
        unsafe { api.cuMemExportToShareableHandle(to, mapping.handle, DESCRIPTOR, 0) }.ok()?;
        // SAFETY: the driver has just made the descriptor for the caller.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn shared_import(&self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<SharedMapping> {
        let api = self.enter()?;
        let (len, mut handle) = (self.mapped(bytes)?, 0);
        let from: *mut c_void = ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: the first pointer is to a local; with this handle type the second is a descriptor's number.
        let imported = unsafe { api.cuMemImportFromShareableHandle(&raw mut handle, from, DESCRIPTOR) };
        imported.ok_or(ErrorKind::InvalidArgument)?;
        // We need not check the length, because the driver refuses to map more than there is.
        self.map(handle, len)
    }

    unsafe fn shared_unmap(&self, mapping: SharedMapping) -> Result<()> {
        let api = self.enter()?;
        let address = address_of(mapping.address);
        // SAFETY: this value owns the mapping and the handle, and the caller promises that they are out of use.
        unsafe {
            let unmapped = api.cuMemUnmap(address, mapping.mapped).ok();
            let freed = unmapped.and_then(|()| api.cuMemAddressFree(address, mapping.mapped).ok());
            let released = api.cuMemRelease(mapping.handle).ok();
            freed.and(released)
        }
    }
}

impl CudaDevice {
    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: DESCRIPTOR,
            location: location(self.context.device),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: [0; 8],
        }
    }

    /// Returns how many bytes the driver maps if you ask for this many.
    fn mapped(&self, bytes: usize) -> Result<usize> {
        let (mut granularity, properties) = (0, self.properties());
        let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let api = &self.context.api;
        // SAFETY: both pointers are to locals.
        unsafe { api.cuMemGetAllocationGranularity(&raw mut granularity, &raw const properties, minimum) }
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
    fn map(&self, handle: u64, len: usize) -> Result<SharedMapping> {
        let api = self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local and the handle is the caller's. If a later call fails, we undo everything made here.
        unsafe {
            let reserved = api.cuMemAddressReserve(&raw mut address, len, 0, 0, 0).ok();
            let mapped = reserved.and_then(|()| {
                let mapped = api.cuMemMap(address, len, 0, handle, 0).ok();
                mapped.inspect_err(|_| drop(api.cuMemAddressFree(address, len).ok()))
            });
            mapped.inspect_err(|_| drop(api.cuMemRelease(handle).ok()))?;
        }
        let mapping = SharedMapping { address: RawBuffer(address as usize), mapped: len, handle };
        let access = self.reachers(api).and_then(|devices| {
            let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            let access = |&device: &CUdevice| CUmemAccessDesc { location: location(device), flags };
            let all: Vec<_> = devices.iter().map(access).collect();
            // SAFETY: the list has this many entries, and we mapped the range above.
            unsafe { api.cuMemSetAccess(address, len, all.as_ptr(), all.len()) }.ok()
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
    fn reachers(&self, api: &Api) -> Result<Vec<CUdevice>> {
        let here = self.context.device;
        let mut reachers = vec![here];
        for ordinal in 0..self.driver.contexts.len() {
            let (mut device, mut can): (CUdevice, c_int) = (0, 0);
            // SAFETY: the pointers are to locals; the driver counted the ordinal.
            unsafe {
                api.cuDeviceGet(&raw mut device, ordinal as c_int).ok()?;
                if device != here {
                    api.cuDeviceCanAccessPeer(&raw mut can, device, here).ok()?;
                }
            }
            if can != 0 {
                reachers.push(device);
            }
        }
        Ok(reachers)
    }
}
