//! Device memory that several processes map.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::{Error, RawBuffer, Result};

/// A mapping of memory that other processes can map too.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedMapping {
    /// The first byte, aligned at least to a page.
    pub address: RawBuffer,
    /// How many bytes are mapped: as many as you asked for, or more.
    pub mapped: usize,
    /// The backend's handle for the memory: `CUmemGenericAllocationHandle`, `hipMemGenericAllocationHandle_t`, or on the
    /// CPU the number of a file descriptor.
    pub handle: u64,
}

/// Memory that you can pass to other processes as a file descriptor. It stays as long as any process maps it or holds such
/// a descriptor.
///
/// # Safety
/// The safe crate uses a mapping like an allocation. So if you implement this, you promise the same for a mapping as
/// [`Buffers`](crate::Buffers) does for an allocation, except that other processes may read and write it too. Whatever they
/// do with the memory and the descriptors, every byte of the mapping can be read and written until it is unmapped.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Exports {
    /// Returns the device's UUID, which is the same in all processes (`cuDeviceGetUuid`, `hipDeviceGetUuid`). A device of
    /// the backend can import memory if it returns the same UUID as the exporting device.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend or the driver cannot tell.
    fn uuid(&self) -> Result<[u8; 16]> {
        Err(Error::unsupported(WHAT))
    }

    /// Allocates memory that you can export (`cuMemCreate`, `cuMemMap`). Its contents are unspecified. `bytes` must not be
    /// zero.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no such memory;
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if it has no room.
    fn shared_alloc(&self, bytes: usize) -> Result<SharedMapping> {
        Err(Error::unsupported(WHAT))
    }

    /// Makes a file descriptor for the memory (`cuMemExportToShareableHandle`).
    ///
    /// # Errors
    /// The driver's failure, for example because the process cannot have another descriptor.
    ///
    /// # Safety
    /// `mapping` came from this device, and is mapped.
    unsafe fn shared_export(&self, mapping: &SharedMapping) -> Result<OwnedFd> {
        Err(Error::unsupported(WHAT))
    }

    /// Maps `bytes` bytes of the memory behind a descriptor (`cuMemImportFromShareableHandle`, `cuMemMap`). You cannot
    /// trust the descriptor and the length, because they come from another process. `bytes` is not zero.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the descriptor is for something else, for memory that
    /// another process could take away, or for memory that is shorter.
    fn shared_import(&self, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<SharedMapping> {
        Err(Error::unsupported(WHAT))
    }

    /// Unmaps memory, and releases the handle (`cuMemUnmap`, `cuMemRelease`).
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
