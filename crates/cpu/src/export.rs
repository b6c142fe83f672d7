//! Memory that other processes can map: sealed anonymous files. Ordinary allocations cannot be shared
//! afterwards, so you must ask for such memory.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::{fmt, io, ptr};

use gpustream_hal::{ErrorKind, Exports, RawBuffer, Result, SharedMapping, file_limit};

use crate::device::CpuDevice;
use crate::error::error;
use crate::fiber::page_size;

/// A file with these seals keeps its length forever. Otherwise another process could shrink it, and this one
/// would crash when it uses the missing pages.
const LENGTH_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

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
        let file = sealed_file(len).map_err(|why| none(&why))?;
        let address = map(file.as_fd(), len).map_err(|why| none(&why))?;
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
        // SAFETY: a query of a descriptor that is open.
        let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & LENGTH_SEALS != LENGTH_SEALS {
            return Err(wrong(
                &"the file's length may change, so the descriptor does not come from an export",
            ));
        }
        let there = length(descriptor).map_err(|why| {
            wrong(&format_args!("the system does not know the length of the descriptor's file: {why}"))
        })?;
        if there < bytes as u64 {
            return Err(wrong(&format_args!("the descriptor's file has only {there}")));
        }
        // The system refuses more memory than the machine could have.
        let len = bytes.checked_next_multiple_of(page_size());
        let len = len.ok_or_else(|| wrong(&"the address space is smaller"))?;
        let mapped = descriptor.try_clone_to_owned().and_then(|file| Ok((map(descriptor, len)?, file)));
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

/// Makes an empty file in memory. The system shows it as `name`.
pub(crate) fn memory_file(name: &CStr, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes a file of `len` zero bytes in memory. All of its pages exist, and its length is fixed.
fn sealed_file(len: usize) -> io::Result<OwnedFd> {
    let size = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    file_limit::check(len as u64)?;
    let file = memory_file(c"gpustream", libc::MFD_ALLOW_SEALING)?;
    let raw = file.as_raw_fd();
    // SAFETY: the descriptor belongs to this function.
    let made = unsafe {
        libc::fallocate(raw, 0, 0, size) == 0
            && libc::fcntl(raw, libc::F_ADD_SEALS, LENGTH_SEALS | libc::F_SEAL_SEAL) == 0
    };
    if made { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Returns the length of a file.
fn length(file: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: a structure of integers.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local, and the descriptor is open.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(status.st_size).unwrap_or(0))
}

/// Maps the beginning of a file as shared memory.
fn map(file: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, at an address that the system chooses.
    let map = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, file.as_raw_fd(), 0) };
    if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(map as usize) }
}
