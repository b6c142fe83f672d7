//! Memory that other processes can map: sealed anonymous files. Ordinary allocations cannot be shared
//! afterwards, so you must ask for such memory.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use gpustream_hal::{ErrorKind, Exports, RawBuffer, Result, SharedMapping, memory_file};

use crate::device::CpuDevice;
use crate::error::error;
use crate::fiber::page_size;

// SAFETY: the bytes of a file that cannot shrink stay while the file is mapped.
unsafe impl Exports for CpuDevice {
    /// Returns the same value for all CPU devices, because they share the machine's memory.
    fn uuid(&self) -> Result<[u8; 16]> {
        Ok(*b"the machine's   ")
    }

    fn shared_alloc(&self, bytes: usize) -> Result<SharedMapping> {
        self.shared.alive()?;
        let free = self.shared.memory.free_bytes();
        let none = |why: &dyn fmt::Display| {
            error(
                ErrorKind::OutOfMemory,
                format!("cannot allocate {bytes} bytes of shared memory: {why}; {free} bytes are free"),
            )
        };
        let len = bytes
            .checked_next_multiple_of(page_size())
            .ok_or_else(|| none(&"the address space is smaller"))?;
        if bytes as u64 > free {
            return Err(none(&"the device has less memory"));
        }
        let file = memory_file::create_sealed(c"gpustream", len).map_err(|why| none(&why))?;
        let address = memory_file::map(file.as_fd(), len).map_err(|why| none(&why))?;
        Ok(self.keep(address, bytes, len, file))
    }

    unsafe fn shared_export(&self, mapping: &SharedMapping) -> Result<OwnedFd> {
        self.shared.alive()?;
        // SAFETY: the descriptor is the mapping's, which is not unmapped, by the caller's promise.
        let file = unsafe { BorrowedFd::borrow_raw(mapping.handle as i32) };
        file.try_clone_to_owned().map_err(|why| {
            error(ErrorKind::Driver, format!("cannot duplicate the descriptor of the shared memory: {why}"))
        })
    }

    fn shared_import(&self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<SharedMapping> {
        self.shared.alive()?;
        let wrong = |what: &dyn fmt::Display| {
            error(ErrorKind::InvalidArgument, format!("cannot import {bytes} bytes of memory: {what}"))
        };
        if !memory_file::is_sealed(descriptor) {
            return Err(wrong(
                &"the file's length may change, so the descriptor does not come from an export",
            ));
        }
        let there = memory_file::length(descriptor).map_err(|why| {
            wrong(&format_args!("the system does not know the length of the descriptor's file: {why}"))
        })?;
        if there < bytes as u64 {
            return Err(wrong(&format_args!("the descriptor's file has only {there}")));
        }
        // The system refuses more memory than the machine could have.
        let len = bytes.checked_next_multiple_of(page_size());
        let len = len.ok_or_else(|| wrong(&"the address space is smaller"))?;
        let mapped =
            descriptor.try_clone_to_owned().and_then(|file| Ok((memory_file::map(descriptor, len)?, file)));
        let (address, file) =
            mapped.map_err(|why| wrong(&format_args!("the system refuses to map them: {why}")))?;
        Ok(self.keep(address, bytes, len, file))
    }

    unsafe fn shared_unmap(&self, mapping: SharedMapping) -> Result<()> {
        self.shared.not_forked()?;
        // SAFETY: the descriptor belongs to the mapping, which ends here.
        drop(unsafe { OwnedFd::from_raw_fd(mapping.handle as i32) });
        // SAFETY: passed on to the caller.
        unsafe { self.shared.memory.free(mapping.address.0) }
    }
}

impl CpuDevice {
    /// Counts a mapping as memory of the device.
    fn keep(&self, address: usize, bytes: usize, len: usize, file: OwnedFd) -> SharedMapping {
        self.shared.memory.adopt(address, len, bytes, "shared memory");
        SharedMapping { address: RawBuffer(address), mapped: len, handle: file.into_raw_fd() as u64 }
    }
}
