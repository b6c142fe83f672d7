//! Memory of the device, host memory that the device can reach, and copies between them.

use crate::handle::RawArray;
use crate::{Error, RawStream, Result};

pub use crate::handle::RawBuffer;

/// An address in host memory.
pub type HostPtr = *mut u8;

/// Options of new page-locked host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedOptions {
    /// True if the device should read the memory fast, even if the host then reads it slowly
    /// (`CU_MEMHOSTALLOC_WRITECOMBINED`).
    pub write_combined: bool,
}

impl PinnedOptions {
    /// Sets whether the host will only write the memory.
    #[must_use]
    pub const fn write_combined(mut self, write_combined: bool) -> Self {
        self.write_combined = write_combined;
        self
    }
}

/// The value that a fill repeats. It can be 1, 2 or 4 bytes wide, because drivers offer no other widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillPattern {
    /// One byte (`cuMemsetD8Async`).
    U8(u8),
    /// Two bytes (`cuMemsetD16Async`).
    U16(u16),
    /// Four bytes (`cuMemsetD32Async`).
    U32(u32),
}

impl FillPattern {
    /// Returns the pattern's width in bytes.
    pub const fn width(self) -> usize {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }

    /// Returns the pattern's bytes as a number, filled up with zeros.
    pub const fn value(self) -> u32 {
        match self {
            Self::U8(value) => value as u32,
            Self::U16(value) => value as u32,
            Self::U32(value) => value,
        }
    }
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// Device memory.
    Device(RawBuffer),
    /// Pinned host memory.
    Host(HostPtr),
    /// An array. You can only use it in strided copies; the copy's pitch and rows mean nothing for this end.
    Array {
        /// The array.
        array: RawArray,
        /// Bytes of a texel.
        texel: usize,
        /// The first texel: along x, along y, and the plane or layer.
        at: [usize; 3],
    },
}

impl CopyEnd {
    /// Returns the address, in the one address space of host and devices. For an array, returns its handle.
    pub fn address(self) -> RawBuffer {
        match self {
            Self::Device(buffer) => buffer,
            Self::Host(pointer) => RawBuffer(pointer.expose_provenance()),
            Self::Array { array, .. } => RawBuffer(array.0),
        }
    }
}

/// A strided copy of up to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy3d {
    /// The first byte to write.
    pub dst: CopyEnd,
    /// Bytes from one row of `dst` to the next.
    pub dst_pitch: usize,
    /// Rows from one plane of `dst` to the next.
    pub dst_rows: usize,
    /// The first byte to read.
    pub src: CopyEnd,
    /// Bytes from one row of `src` to the next.
    pub src_pitch: usize,
    /// Rows from one plane of `src` to the next.
    pub src_rows: usize,
    /// Bytes of a row to copy.
    pub width: usize,
    /// Rows of a plane to copy.
    pub height: usize,
    /// Planes to copy.
    pub depth: usize,
}

/// The value that a range of device memory is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The first byte to write.
    pub dst: RawBuffer,
    /// The value.
    pub pattern: FillPattern,
    /// How often the value is written.
    pub count: usize,
}

/// Between which kinds of memory a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the host.
    ToDevice,
    /// To the host.
    ToHost,
    /// Within a device. Pinned memory counts as the device's if the copy was given its device address.
    OnDevice,
    /// From another device.
    FromPeer,
}

impl CopyDirection {
    /// Returns the direction of a copy between these ends.
    pub const fn between(dst: CopyEnd, src: CopyEnd) -> Self {
        match (dst, src) {
            (_, CopyEnd::Host(_)) => Self::ToDevice,
            (CopyEnd::Host(_), _) => Self::ToHost,
            _ => Self::OnDevice,
        }
    }
}

/// A copy of one range. At most one end may be the host's. If you copy between two ranges of pinned memory, give the
/// device's addresses for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy1d {
    /// The first byte to write.
    pub dst: CopyEnd,
    /// The first byte to read.
    pub src: CopyEnd,
    /// Length.
    pub bytes: usize,
}

impl Copy1d {
    /// Makes the description of a copy from pinned memory.
    pub const fn to_device(dst: RawBuffer, src: *const u8, bytes: usize) -> Self {
        Self { dst: CopyEnd::Device(dst), src: CopyEnd::Host(src.cast_mut()), bytes }
    }

    /// Makes the description of a copy to pinned memory.
    pub const fn to_host(dst: HostPtr, src: RawBuffer, bytes: usize) -> Self {
        Self { dst: CopyEnd::Host(dst), src: CopyEnd::Device(src), bytes }
    }

    /// Makes the description of a copy within the device's memory.
    pub const fn on_device(dst: RawBuffer, src: RawBuffer, bytes: usize) -> Self {
        Self { dst: CopyEnd::Device(dst), src: CopyEnd::Device(src), bytes }
    }

    /// Returns the direction of the copy.
    pub const fn direction(&self) -> CopyDirection {
        CopyDirection::between(self.dst, self.src)
    }

    /// Returns the same copy as a strided one of a single row.
    pub const fn as_row(&self) -> Copy3d {
        let Self { dst, src, bytes } = *self;
        Copy3d {
            dst,
            dst_pitch: bytes,
            dst_rows: 1,
            src,
            src_pitch: bytes,
            src_rows: 1,
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    /// Makes this copy, in stream order.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// As for [`Buffers::copy_to_device`], [`Buffers::copy_to_host`] or [`Buffers::copy_on_device`].
    #[inline]
    pub unsafe fn enqueue(self, device: &(impl Buffers + ?Sized), stream: RawStream) -> Result<()> {
        let bytes = self.bytes;
        // SAFETY: passed on to the caller.
        unsafe {
            match (self.dst, self.src) {
                (CopyEnd::Device(dst), CopyEnd::Host(src)) => device.copy_to_device(dst, src, bytes, stream),
                (CopyEnd::Host(dst), CopyEnd::Device(src)) => device.copy_to_host(dst, src, bytes, stream),
                (dst, src) => device.copy_on_device(dst.address(), src.address(), bytes, stream),
            }
        }
    }
}

/// Makes the copies of a batch one after the other, with one call each.
///
/// # Errors
/// The first failure of a copy. The copies after it are not made.
///
/// # Safety
/// As for [`Buffers::copy_batch`].
pub unsafe fn copy_each(
    device: &(impl Buffers + ?Sized),
    copies: &[Copy1d],
    stream: RawStream,
) -> Result<()> {
    // SAFETY: passed on to the caller.
    copies.iter().try_for_each(|copy| unsafe { copy.enqueue(device, stream) })
}

/// How you expect to use managed memory (`cuMemAdvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManagedAdvice {
    /// You will mostly read the memory, so each side keeps a copy.
    ReadMostly,
    /// The memory stays on the device.
    PreferDevice,
    /// The memory stays on the host.
    PreferHost,
    /// The device will access the memory, so it stays mapped there.
    AccessedByDevice,
}

/// Allocation, fills and copies. All sizes are in bytes, and all addresses are this device's.
///
/// # Safety
/// The safe crate makes references from the addresses. So if you implement this, you promise that an allocation has at least
/// the size that was asked for, belongs to no one else, and stays until it is freed; that the host can read and write pinned
/// and managed memory at the address that you return; and that a copy or fill touches only the ranges that it was given, in
/// its stream's order.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Buffers {
    /// Allocates device memory, aligned to at least 256 bytes (`cuMemAlloc`, `hipMalloc`). Its contents are unspecified.
    /// `bytes` must not be zero, except on a [checked](crate::DeviceQuirks::checked) device. May synchronise the device.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the device has no room.
    fn alloc(&self, bytes: usize) -> Result<RawBuffer>;

    /// Frees what [`alloc`](Self::alloc) gave (`cuMemFree`). May block until the device is idle.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `buffer` came from `alloc` of this device; all work that uses it is done.
    unsafe fn free(&self, buffer: RawBuffer) -> Result<()>;

    /// Allocates from the driver's own stream-ordered pool (`cuMemAllocAsync`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if there is no pool; [`OutOfMemory`](crate::ErrorKind::OutOfMemory);
    /// [`Captured`](crate::ErrorKind::Captured) if a capture of the stream cannot have the call.
    ///
    /// # Safety
    /// `stream` is alive.
    unsafe fn alloc_async(&self, bytes: usize, stream: RawStream) -> Result<RawBuffer> {
        Err(Error::unsupported("a driver memory pool"))
    }

    /// Frees in stream order what [`alloc_async`](Self::alloc_async) gave (`cuMemFreeAsync`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the driver has no pool;
    /// [`Captured`](crate::ErrorKind::Captured) if a capture of the stream cannot have the call.
    ///
    /// # Safety
    /// All work that uses `buffer` is done or ordered before this point of `stream`.
    unsafe fn free_async(&self, buffer: RawBuffer, stream: RawStream) -> Result<()> {
        Err(Error::unsupported("a driver memory pool"))
    }

    /// Allocates page-locked host memory that every device of the backend can reach, coherent with a running kernel
    /// (`cuMemHostAlloc` portable and mapped, `hipHostMalloc` portable and coherent). Aligned as by [`alloc`](Self::alloc);
    /// its contents are unspecified.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if the host has no room, or cannot lock more pages.
    fn pinned_alloc(&self, bytes: usize, options: PinnedOptions) -> Result<HostPtr>;

    /// Frees what [`pinned_alloc`](Self::pinned_alloc) gave (`cuMemFreeHost`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// All work that uses the memory is done.
    unsafe fn pinned_free(&self, ptr: HostPtr) -> Result<()>;

    /// Page-locks host memory that you allocated elsewhere (`cuMemHostRegister`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot lock such memory;
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory); otherwise the driver's failure, for example because the range is
    /// registered already.
    ///
    /// # Safety
    /// The range is mapped, and stays mapped until [`host_unregister`](Self::host_unregister).
    unsafe fn host_register(&self, ptr: HostPtr, bytes: usize) -> Result<()> {
        Err(Error::unsupported("page-locking of host memory"))
    }

    /// Undoes [`host_register`](Self::host_register) (`cuMemHostUnregister`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot lock such memory; otherwise the driver's
    /// failure.
    ///
    /// # Safety
    /// `ptr` is registered; all work that uses the range is done.
    unsafe fn host_unregister(&self, ptr: HostPtr) -> Result<()> {
        Err(Error::unsupported("page-locking of host memory"))
    }

    /// Returns the address at which kernels see pinned memory (`cuMemHostGetDevicePointer`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `ptr` lies in memory from [`pinned_alloc`](Self::pinned_alloc) or
    /// [`host_register`](Self::host_register).
    unsafe fn pinned_device_address(&self, ptr: HostPtr) -> Result<RawBuffer>;

    /// Returns the device that the memory at `address` was allocated for, even if another library allocated it
    /// (`cuPointerGetAttribute`). `None` if the driver cannot tell.
    ///
    /// # Errors
    /// The driver's failure. It is not an error if the driver does not know the address.
    fn ordinal_of(&self, address: RawBuffer) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Allocates memory that migrates between host and device (`cuMemAllocManaged`), aligned as by [`alloc`](Self::alloc).
    /// Free it with [`free`](Self::free).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no managed memory;
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if there is no room.
    fn managed_alloc(&self, bytes: usize) -> Result<RawBuffer> {
        Err(Error::unsupported("managed memory"))
    }

    /// Moves managed memory to the device, or to the host, in stream order (`cuMemPrefetchAsync`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend has no managed memory; otherwise the driver's
    /// failure.
    ///
    /// # Safety
    /// The range is managed memory.
    unsafe fn managed_prefetch(
        &self,
        buffer: RawBuffer,
        bytes: usize,
        to_device: bool,
        stream: RawStream,
    ) -> Result<()> {
        Err(Error::unsupported("managed memory"))
    }

    /// Tells the driver how you will use managed memory (`cuMemAdvise`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend does not know this advice; otherwise the driver's
    /// failure.
    ///
    /// # Safety
    /// The range is managed memory.
    unsafe fn managed_advise(&self, buffer: RawBuffer, bytes: usize, advice: ManagedAdvice) -> Result<()> {
        Err(Error::unsupported("managed memory"))
    }

    /// Writes `pattern` `count` times (elements, not bytes), starting at `dst` (`cuMemsetD8Async` and so on).
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if the stream's capture has failed; otherwise the driver's failure.
    ///
    /// # Safety
    /// The range is allocated and `dst` is aligned to the pattern's width.
    unsafe fn fill(
        &self,
        dst: RawBuffer,
        pattern: FillPattern,
        count: usize,
        stream: RawStream,
    ) -> Result<()>;

    /// Copies from host to device in stream order (`cuMemcpyHtoDAsync`).
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    ///
    /// # Safety
    /// Both ranges are valid; the host's stays valid and unchanged until the copy is done.
    unsafe fn copy_to_device(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()>;

    /// Copies at most [`DeviceLimits::inline_copies`](crate::DeviceLimits::inline_copies) bytes from any host memory to the
    /// device, in stream order. When the call returns, it has read them (`cuMemcpyBatchAsync` with
    /// `CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL`; for 1, 2 or 4 aligned bytes `cuMemsetD8Async` and its kin).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if [`DeviceLimits::inline_copies`](crate::DeviceLimits::inline_copies)
    /// is 0; otherwise the driver's failure.
    ///
    /// # Safety
    /// Both ranges are valid; the host's need not outlive the call. `stream` was made by
    /// [`stream_create`](crate::Streams::stream_create) and is not being captured.
    unsafe fn copy_inline(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        Err(Error::unsupported("a copy of host memory that the call itself reads"))
    }

    /// Copies from device to host in stream order (`cuMemcpyDtoHAsync`).
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    ///
    /// # Safety
    /// Both ranges are valid; the host's stays valid and untouched until the copy is done.
    unsafe fn copy_to_host(
        &self,
        dst: HostPtr,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()>;

    /// Copies within the device in stream order (`cuMemcpyDtoDAsync`). The ranges must not overlap.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    ///
    /// # Safety
    /// Both ranges are allocated.
    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()>;

    /// Copies from another device of the backend (`cuMemcpyPeerAsync`). `stream` must be on this device.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend has no such copy; otherwise as for
    /// [`fill`](Self::fill).
    ///
    /// # Safety
    /// Both ranges are allocated, `src` on device `src_ordinal`.
    unsafe fn copy_from_peer(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        src_ordinal: usize,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        Err(Error::unsupported("a copy between devices"))
    }

    /// Makes several copies as one operation in stream order, but in any order among themselves (`cuMemcpyBatchAsync`,
    /// `hipMemcpyBatchAsync`). If the driver has no such function, makes one call for each copy.
    ///
    /// # Errors
    /// The driver's failure. Some of the copies may have been made.
    ///
    /// # Safety
    /// Each copy is as for [`copy_to_device`](Self::copy_to_device), [`copy_to_host`](Self::copy_to_host) or
    /// [`copy_on_device`](Self::copy_on_device), and no copy writes what another one reads or writes. `copies` need not
    /// outlive the call. `stream` is not being captured, because drivers refuse batches there.
    unsafe fn copy_batch(&self, copies: &[Copy1d], stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { copy_each(self, copies, stream) }
    }

    /// Makes a strided copy in stream order (`cuMemcpy3DAsync`, `hipMemcpy3DAsync`).
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a pitch is shorter than a row, or longer than the driver
    /// takes; otherwise as for [`fill`](Self::fill).
    ///
    /// # Safety
    /// Every row lies in valid memory; no extent is zero; host memory is pinned, and stays valid as
    /// for the plain copies.
    unsafe fn copy_3d(&self, copy: &Copy3d, stream: RawStream) -> Result<()>;
}
