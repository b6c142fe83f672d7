//! Memory and copies on `hipDeviceptr_t`.

use std::ffi::{c_int, c_void};
use std::ptr;

use gpustream_hal::{
    Buffers, Copy3d, CopyEnd, ErrorKind, FillPattern, HostPtr, ManagedAdvice, PinnedOptions, RawBuffer,
    RawStream, Result,
};

use crate::device::HipDevice;
use crate::error::error;
#[allow(clippy::wildcard_imports)] // Flags and structs under HIP's own names.
use crate::ffi::*;
use crate::stream::stream_of;

pub(crate) fn address_of(buffer: RawBuffer) -> hipDeviceptr_t {
    buffer.0 as *mut c_void
}

impl HipDevice {
    /// The driver's pool, where the device has one: HIP 5 exports the functions and refuses to work.
    fn need_pool(&self) -> Result<()> {
        if gpustream_hal::Device::info(self).memory_pools {
            return Ok(());
        }
        let message = format!("HIP {} has no memory pool for this device", self.driver.version);
        Err(error(ErrorKind::Unsupported, message))
    }
}

// SAFETY: addresses are the HIP driver's, for at least as many bytes as asked for.
unsafe impl Buffers for HipDevice {
    fn alloc(&self, bytes: usize) -> Result<RawBuffer> {
        let api = self.enter()?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.hipMalloc(&raw mut pointer, bytes) }.ok()?;
        Ok(RawBuffer(pointer as usize))
    }

    unsafe fn free(&self, buffer: RawBuffer) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the memory came from this device and is not used again, by the trait's contract.
        unsafe { api.hipFree(address_of(buffer)) }.ok()
    }

    unsafe fn alloc_async(&self, bytes: usize, stream: RawStream) -> Result<RawBuffer> {
        self.need_pool()?;
        let api = self.enter()?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is to a local; the stream is alive, by the trait's contract.
        unsafe { api.hipMallocAsync(&raw mut pointer, bytes, stream_of(stream)) }.ok()?;
        Ok(RawBuffer(pointer as usize))
    }

    unsafe fn free_async(&self, buffer: RawBuffer, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the memory's last use is ordered before this point, by the trait's contract.
        unsafe { api.hipFreeAsync(address_of(buffer), stream_of(stream)) }.ok()
    }

    /// Coherence is asked for: portable memory has it only by an environment variable. Write-combining is
    /// accepted and ignored by HIP.
    fn pinned_alloc(&self, bytes: usize, options: PinnedOptions) -> Result<HostPtr> {
        let api = self.enter()?;
        let mut flags = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;
        if options.write_combined {
            flags |= hipHostMallocWriteCombined;
        }
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.hipHostMalloc(&raw mut pointer, bytes, flags) }.ok()?;
        Ok(pointer.cast())
    }

    unsafe fn pinned_free(&self, pointer: HostPtr) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the memory came from `pinned_alloc` and is not used again, by the trait's contract.
        unsafe { api.hipHostFree(pointer.cast()) }.ok()
    }

    unsafe fn host_register(&self, pointer: HostPtr, bytes: usize) -> Result<()> {
        let api = self.enter()?;
        let flags = hipHostRegisterPortable | hipHostRegisterMapped;
        // SAFETY: the range is mapped and stays so, by the trait's contract.
        unsafe { api.hipHostRegister(pointer.cast(), bytes, flags) }.ok()
    }

    unsafe fn host_unregister(&self, pointer: HostPtr) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the range is registered and not used by the device, by the trait's contract.
        unsafe { api.hipHostUnregister(pointer.cast()) }.ok()
    }

    unsafe fn pinned_device_address(&self, pointer: HostPtr) -> Result<RawBuffer> {
        let api = self.enter()?;
        let mut device = ptr::null_mut();
        // SAFETY: the memory is pinned, by the trait's contract; the pointer is to a local.
        let answer = unsafe { api.hipHostGetDevicePointer(&raw mut device, pointer.cast(), 0) };
        answer.ok()?;
        Ok(RawBuffer(device as usize))
    }

    fn managed_alloc(&self, bytes: usize) -> Result<RawBuffer> {
        let api = self.enter()?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.hipMallocManaged(&raw mut pointer, bytes, hipMemAttachGlobal) }.ok()?;
        Ok(RawBuffer(pointer as usize))
    }

    unsafe fn managed_prefetch(
        &self,
        buffer: RawBuffer,
        bytes: usize,
        to_device: bool,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        let target = if to_device { self.ordinal() } else { hipCpuDeviceId };
        // SAFETY: the range is managed memory and the stream alive, by the trait's contract.
        let answer = unsafe { api.hipMemPrefetchAsync(address_of(buffer), bytes, target, stream_of(stream)) };
        answer.ok()
    }

    unsafe fn managed_advise(&self, buffer: RawBuffer, bytes: usize, advice: ManagedAdvice) -> Result<()> {
        let api = self.enter()?;
        let (advice, device) = match advice {
            ManagedAdvice::ReadMostly => (hipMemAdviseSetReadMostly, self.ordinal()),
            ManagedAdvice::PreferDevice => (hipMemAdviseSetPreferredLocation, self.ordinal()),
            ManagedAdvice::PreferHost => (hipMemAdviseSetPreferredLocation, hipCpuDeviceId),
            ManagedAdvice::AccessedByDevice => (hipMemAdviseSetAccessedBy, self.ordinal()),
            _ => return Err(error(ErrorKind::Unsupported, "this advice is not known to the HIP backend")),
        };
        // SAFETY: the range is managed memory, by the trait's contract.
        unsafe { api.hipMemAdvise(address_of(buffer), bytes, advice, device) }.ok()
    }

    unsafe fn fill(
        &self,
        dst: RawBuffer,
        pattern: FillPattern,
        count: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        let (dst, stream) = (address_of(dst), stream_of(stream));
        // SAFETY: the range is allocated and aligned, the stream alive, by the trait's contract.
        let answer = unsafe {
            match pattern {
                FillPattern::U8(value) => api.hipMemsetD8Async(dst, value, count, stream),
                FillPattern::U16(value) => api.hipMemsetD16Async(dst, value, count, stream),
                FillPattern::U32(value) => api.hipMemsetD32Async(dst, value as c_int, count, stream),
            }
        };
        answer.ok()
    }

    unsafe fn copy_to_device(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        let (dst, src, stream) = (address_of(dst), src.cast_mut().cast(), stream_of(stream));
        // SAFETY: both ranges are valid, by the trait's contract; the source is only read.
        unsafe { api.hipMemcpyHtoDAsync(dst, src, bytes, stream) }.ok()
    }

    unsafe fn copy_to_host(
        &self,
        dst: HostPtr,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        let (src, stream) = (address_of(src), stream_of(stream));
        // SAFETY: both ranges are valid, by the trait's contract.
        unsafe { api.hipMemcpyDtoHAsync(dst.cast(), src, bytes, stream) }.ok()
    }

    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        let (dst, src, stream) = (address_of(dst), address_of(src), stream_of(stream));
        // SAFETY: both ranges are allocated, by the trait's contract.
        unsafe { api.hipMemcpyDtoDAsync(dst, src, bytes, stream) }.ok()
    }

    unsafe fn copy_from_peer(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        src_ordinal: usize,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        let (dst, src, stream) = (address_of(dst), address_of(src), stream_of(stream));
        let (here, there) = (self.ordinal(), src_ordinal as c_int);
        // SAFETY: both ranges are allocated on the devices named, by the trait's contract.
        unsafe { api.hipMemcpyPeerAsync(dst, here, src, there, bytes, stream) }.ok()
    }

    /// Through `hipMemcpy3DAsync`, whose copy kinds kept their numbers; `hipDrvMemcpy3DAsync` names its ends by
    /// `hipMemoryType`, which HIP 6 renumbered.
    unsafe fn copy_3d(&self, copy: &Copy3d, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        let params = copy_params(copy);
        // SAFETY: every row lies in valid memory, by the trait's contract; HIP copies the parameters.
        unsafe { api.hipMemcpy3DAsync(&raw const params, stream_of(stream)) }.ok()
    }
}

/// HIP's form of a strided copy.
pub(crate) fn copy_params(copy: &Copy3d) -> hipMemcpy3DParms {
    let origin = hipPos { x: 0, y: 0, z: 0 };
    let end = |end: CopyEnd, pitch, rows| {
        let ptr = match end {
            CopyEnd::Device(buffer) => address_of(buffer),
            CopyEnd::Host(pointer) => pointer.cast(),
        };
        hipPitchedPtr { ptr, pitch, xsize: copy.width, ysize: rows }
    };
    hipMemcpy3DParms {
        srcArray: ptr::null_mut(),
        srcPos: origin,
        srcPtr: end(copy.src, copy.src_pitch, copy.src_rows),
        dstArray: ptr::null_mut(),
        dstPos: origin,
        dstPtr: end(copy.dst, copy.dst_pitch, copy.dst_rows),
        extent: hipExtent { width: copy.width, height: copy.height, depth: copy.depth },
        kind: match (copy.src, copy.dst) {
            (CopyEnd::Host(_), CopyEnd::Host(_)) => hipMemcpyHostToHost,
            (CopyEnd::Host(_), CopyEnd::Device(_)) => hipMemcpyHostToDevice,
            (CopyEnd::Device(_), CopyEnd::Host(_)) => hipMemcpyDeviceToHost,
            (CopyEnd::Device(_), CopyEnd::Device(_)) => hipMemcpyDeviceToDevice,
        },
    }
}
