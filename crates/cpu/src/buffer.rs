//! Memory and copies. Host and device share one address space, so a buffer is a plain address, and you could
//! even read it from the host.

use gpustream_hal::{
    Buffers, Copy1d, Copy3d, CopyDirection, ErrorKind, FillPattern, HostPtr, ManagedAdvice, PinnedOptions,
    RawBuffer, RawStream, Result,
};

use crate::device::CpuDevice;
use crate::error::error;
use crate::memory::DEVICE_MEMORY;
use crate::work::{Strided, Task, pieces};

impl CpuDevice {
    unsafe fn copy(
        &self,
        direction: CopyDirection,
        (dst, src): (usize, usize),
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::Copy { direction, dst, src, bytes })
    }

    unsafe fn free_memory(&self, address: usize) -> Result<()> {
        self.shared.not_forked()?;
        // SAFETY: passed on to the caller.
        unsafe { self.shared.memory.free(address) }
    }
}

// SAFETY: memory comes from the system, is as long as asked for, and is freed only when the caller says so.
unsafe impl Buffers for CpuDevice {
    fn alloc(&self, bytes: usize) -> Result<RawBuffer> {
        self.shared.alive()?;
        self.shared.memory.alloc(bytes, DEVICE_MEMORY).map(RawBuffer)
    }

    unsafe fn free(&self, buffer: RawBuffer) -> Result<()> {
        // This works on a lost device too, once none of its work is running.
        // SAFETY: passed on to the caller.
        unsafe { self.free_memory(buffer.0) }
    }

    unsafe fn alloc_async(&self, bytes: usize, stream: RawStream) -> Result<RawBuffer> {
        // SAFETY: passed on to the caller.
        if let Some(capture) = unsafe { self.stream(stream) }.capture() {
            capture.invalidate("memory was allocated in stream order");
            return Err(error(
                ErrorKind::Captured,
                "a stream-ordered allocation cannot be captured: allocate before the capture",
            ));
        }
        self.alloc(bytes)
    }

    unsafe fn free_async(&self, buffer: RawBuffer, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::Free(buffer.0))
    }

    fn pinned_alloc(&self, bytes: usize, _options: PinnedOptions) -> Result<HostPtr> {
        self.shared.alive()?;
        self.shared.memory.alloc(bytes, "pinned memory").map(|address| address as HostPtr)
    }

    unsafe fn pinned_free(&self, ptr: HostPtr) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.free_memory(ptr as usize) }
    }

    unsafe fn host_register(&self, _ptr: HostPtr, _bytes: usize) -> Result<()> {
        // There is nothing to do, because the device can access all memory of the host.
        self.shared.alive()
    }

    unsafe fn host_unregister(&self, _ptr: HostPtr) -> Result<()> {
        Ok(())
    }

    unsafe fn pinned_device_address(&self, ptr: HostPtr) -> Result<RawBuffer> {
        Ok(RawBuffer(ptr as usize))
    }

    fn managed_alloc(&self, bytes: usize) -> Result<RawBuffer> {
        self.shared.alive()?;
        self.shared.memory.alloc(bytes, "managed memory").map(RawBuffer)
    }

    unsafe fn managed_prefetch(
        &self,
        _buffer: RawBuffer,
        _bytes: usize,
        _to_device: bool,
        _stream: RawStream,
    ) -> Result<()> {
        self.shared.alive()
    }

    unsafe fn managed_advise(&self, _buffer: RawBuffer, _bytes: usize, _advice: ManagedAdvice) -> Result<()> {
        self.shared.alive()
    }

    unsafe fn fill(
        &self,
        dst: RawBuffer,
        pattern: FillPattern,
        count: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::Fill { dst: dst.0, pattern, count })
    }

    unsafe fn copy_to_device(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.copy(CopyDirection::ToDevice, (dst.0, src as usize), bytes, stream) }
    }

    unsafe fn copy_to_host(
        &self,
        dst: HostPtr,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.copy(CopyDirection::ToHost, (dst as usize, src.0), bytes, stream) }
    }

    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.copy(CopyDirection::OnDevice, (dst.0, src.0), bytes, stream) }
    }

    unsafe fn copy_from_peer(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        _src_ordinal: usize,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller: all CPU devices share the address space.
        unsafe { self.copy(CopyDirection::FromPeer, (dst.0, src.0), bytes, stream) }
    }

    /// A batch is one operation. Workers share its copies.
    unsafe fn copy_batch(&self, copies: &[Copy1d], stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::Batch(pieces(copies)))
    }

    unsafe fn copy_3d(&self, copy: &Copy3d, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let strided = unsafe { Strided::new(copy) };
        if !strided.is_apart() {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!(
                    "the rows of the copy have {} bytes, but one of its pitches is smaller, so rows would overlap: \
                     make the pitches at least as long as the rows",
                    copy.width
                ),
            ));
        }
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::Copy3d(Box::new(strided)))
    }
}
