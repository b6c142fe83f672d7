//! Files in memory that processes share.
//!
//! Another process may shrink a file that it holds, and this one would crash when it uses the missing pages. So a file that is
//! mapped by several processes has seals: its length is fixed forever.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{io, ptr};

use crate::file_limit;

const LENGTH_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// Makes an empty file in memory, whose length you may change and seal. The system shows it as `name`.
///
/// # Errors
/// The system's, if it has no file descriptor left.
pub fn create(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes a file of `bytes` zero bytes in memory. All of its pages exist, and its length is fixed. The system shows it as `name`.
///
/// # Errors
/// The system's, if it has no file descriptor or memory left; that of [`file_limit::check`].
pub fn create_sealed(name: &CStr, bytes: usize) -> io::Result<OwnedFd> {
    let size = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    file_limit::check(bytes as u64)?;
    let file = create(name)?;
    let raw = file.as_raw_fd();
    // SAFETY: the descriptor belongs to this function.
    let made = unsafe {
        libc::fallocate(raw, 0, 0, size) == 0
            && libc::fcntl(raw, libc::F_ADD_SEALS, LENGTH_SEALS | libc::F_SEAL_SEAL) == 0
    };
    if made { Ok(file) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if the descriptor belongs to a file in memory whose length is fixed.
#[must_use]
pub fn is_sealed(descriptor: BorrowedFd<'_>) -> bool {
    // SAFETY: a query of a descriptor that is open.
    let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & LENGTH_SEALS == LENGTH_SEALS
}

/// Returns how many bytes a file has.
///
/// # Errors
/// The system's, if it does not know that.
pub fn length(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(File::from(descriptor.try_clone_to_owned()?).metadata()?.len())
}

/// Maps the first `bytes` bytes of a file as memory that is shared with the other processes. Returns its address.
///
/// # Errors
/// The system's, if it refuses.
pub fn map(descriptor: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, at an address that the system chooses.
    let map = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, descriptor.as_raw_fd(), 0) };
    if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(map as usize) }
}

/// Ends a mapping. If the system refuses, the memory stays mapped.
///
/// # Safety
/// [`map`] returned the address for as many bytes, and the memory is no longer used.
pub unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe { libc::munmap(address as *mut _, bytes) };
}
