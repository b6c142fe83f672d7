//! Device memory that several processes map.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::{Error, RawBuffer, Result};

/// A mapping of memory that other processes can map too.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedMapping {
    /// The first byte, aligned to a page at least.
    pub address: RawBuffer,
    /// Bytes that are mapped: as many as were asked for, or more.
    pub mapped: usize,
    /// The backend's handle of the memory: `CUmemGenericAllocationHandle`, `hipMemGenericAllocationHandle_t`, the number of
    /// a file descriptor on the CPU.
    pub handle: u64,
}

/// Memory that is passed to other processes as a file descriptor. The memory stays while a process maps it or holds a
/// descriptor of it.
///
/// # Safety
/// The safe crate uses a mapping as it uses an allocation. An implementor promises of a mapping what
/// [`Buffers`](crate::Buffers) promises of allocations, but that other processes may read and write it: whatever these do
/// with the memory and with the descriptors, every byte of the mapping can be read and written until it is unmapped.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Exports {
    /// Returns the number by which all processes know the device (`cuDeviceGetUuid`, `hipDeviceGetUuid`). Memory can be
    /// imported by devices of the backend that answer the same.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend or the driver cannot tell.
    fn uuid(&self) -> Result<[u8; 16]> {
        Err(Error::unsupported(WHAT))
    }

    /// Allocates memory that can be exported (`cuMemCreate`, `cuMemMap`). Contents are unspecified. `bytes` is not zero.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no such memory;
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if it has no room.
    fn shared_alloc(&self, bytes: usize) -> Result<SharedMapping> {
        Err(Error::unsupported(WHAT))
    }

    /// Makes a file descriptor of the memory (`cuMemExportToShareableHandle`).
    ///
    /// # Errors
    /// The driver's failure, also where the process can have no further descriptor.
    ///
    /// # Safety
    /// `mapping` came from this device, and is mapped.
    unsafe fn shared_export(&self, mapping: &SharedMapping) -> Result<OwnedFd> {
        Err(Error::unsupported(WHAT))
    }

    /// Maps `bytes` bytes of the memory of a descriptor (`cuMemImportFromShareableHandle`, `cuMemMap`). The descriptor and
    /// the length come from another process and may be anything; `bytes` is not zero.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a descriptor of something else, of memory that could be
    /// taken away, and of memory that is shorter.
    fn shared_import(&self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<SharedMapping> {
        Err(Error::unsupported(WHAT))
    }

    /// Unmaps memory, and gives up the handle (`cuMemUnmap`, `cuMemRelease`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `mapping` came from this device; all work of this process that uses it is done.
    unsafe fn shared_unmap(&self, mapping: SharedMapping) -> Result<()> {
        Err(Error::unsupported(WHAT))
    }
}

const WHAT: &str = "memory that other processes can map";
