//! Memory and copies.

use std::ffi::c_int;
use std::ptr;

use gpustream_hal::driver::Status;
use gpustream_hal::{
    Buffers, Copy1d, Copy3d, CopyEnd, ErrorKind, FillPattern, HostPtr, ManagedAdvice, PinnedOptions,
    RawBuffer, RawStream, Result, copy_each,
};

use crate::device::HipDevice;
use crate::error::error;
#[allow(clippy::wildcard_imports)] // Flags and structs under HIP's own names.
use crate::ffi::*;
use crate::handle::{address_of, array_of, is_default, stream_of};
use crate::version::Version;

impl HipDevice {
    /// Refuses if the device has no memory pool. We cannot just look for the functions, because HIP 5 exports them, but
    /// they do not work.
    fn need_pool(&self) -> Result<()> {
        if gpustream_hal::Device::info(self).features.memory_pools {
            return Ok(());
        }
        let message = format!("HIP {} has no memory pool for this device", self.driver.version);
        Err(error(ErrorKind::Unsupported, message))
    }
}

// SAFETY: the addresses come from the HIP driver, which allocated at least as many bytes as we asked for.
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
        // SAFETY: the caller vouches that the buffer is one of ours and out of use.
        unsafe { api.hipFree(address_of(buffer)) }.ok()
    }

    unsafe fn alloc_async(&self, bytes: usize, stream: RawStream) -> Result<RawBuffer> {
        self.need_pool()?;
        let api = self.enter()?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the stream.
        unsafe { api.hipMallocAsync(&raw mut pointer, bytes, stream_of(stream)) }.ok()?;
        Ok(RawBuffer(pointer as usize))
    }

    unsafe fn free_async(&self, buffer: RawBuffer, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that uses of the buffer are ordered before this point.
        unsafe { api.hipFreeAsync(address_of(buffer), stream_of(stream)) }.ok()
    }

    /// We must ask for coherence, because otherwise portable memory only has it if an environment variable says so. You
    /// may ask for write-combining, but HIP ignores it.
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
        // SAFETY: the caller vouches that the memory is one of ours and out of use.
        unsafe { api.hipHostFree(pointer.cast()) }.ok()
    }

    unsafe fn host_register(&self, pointer: HostPtr, bytes: usize) -> Result<()> {
        let api = self.enter()?;
        let flags = hipHostRegisterPortable | hipHostRegisterMapped;
        // SAFETY: the caller vouches that the range is mapped and stays so.
        unsafe { api.hipHostRegister(pointer.cast(), bytes, flags) }.ok()
    }

    unsafe fn host_unregister(&self, pointer: HostPtr) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the range is registered and out of use.
        unsafe { api.hipHostUnregister(pointer.cast()) }.ok()
    }

    unsafe fn pinned_device_address(&self, pointer: HostPtr) -> Result<RawBuffer> {
        let api = self.enter()?;
        let mut device = ptr::null_mut();
        // SAFETY: the first pointer is to a local; the caller vouches for the other.
        unsafe { api.hipHostGetDevicePointer(&raw mut device, pointer.cast(), 0) }.ok()?;
        Ok(RawBuffer(device as usize))
    }

    fn ordinal_of(&self, address: RawBuffer) -> Result<Option<usize>> {
        let (api, mut ordinal) = (self.enter()?, 0_i32);
        // SAFETY: the first pointer is to a local; the driver does not follow the address.
        let answer = unsafe {
            let data = (&raw mut ordinal).cast();
            api.hipPointerGetAttribute(data, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address_of(address))
        };
        match answer.status {
            None | Some(Status::INVALID_VALUE) => Ok(None),
            _ => answer.ok().map(|()| usize::try_from(ordinal).ok()),
        }
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
        // SAFETY: the caller vouches for the range and the stream.
        let answer = unsafe { api.hipMemPrefetchAsync(address_of(buffer), bytes, target, stream_of(stream)) };
        answer.ok()
    }

    unsafe fn managed_advise(&self, buffer: RawBuffer, bytes: usize, advice: ManagedAdvice) -> Result<()> {
        let api = self.enter()?;
        let here = self.ordinal();
        let (advice, device) = match advice {
            ManagedAdvice::ReadMostly => (hipMemAdviseSetReadMostly, here),
            ManagedAdvice::PreferDevice => (hipMemAdviseSetPreferredLocation, here),
            ManagedAdvice::PreferHost => (hipMemAdviseSetPreferredLocation, hipCpuDeviceId),
            ManagedAdvice::AccessedByDevice => (hipMemAdviseSetAccessedBy, here),
            _ => return Err(error(ErrorKind::Unsupported, "the HIP backend does not know this advice")),
        };
        // SAFETY: the caller vouches for the range.
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
        // SAFETY: the caller vouches for the range, its alignment and the stream.
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
        let src = src.cast_mut().cast();
        // SAFETY: the caller vouches for both ranges until the copy is done; the source is only read.
        unsafe { api.hipMemcpyHtoDAsync(address_of(dst), src, bytes, stream_of(stream)) }.ok()
    }

    unsafe fn copy_to_host(
        &self,
        dst: HostPtr,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for both ranges until the copy is done.
        unsafe { api.hipMemcpyDtoHAsync(dst.cast(), address_of(src), bytes, stream_of(stream)) }.ok()
    }

    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for both ranges.
        unsafe { api.hipMemcpyDtoDAsync(address_of(dst), address_of(src), bytes, stream_of(stream)) }.ok()
    }

    unsafe fn copy_from_peer(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        src_ordinal: usize,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let (here, there) = (self.ordinal(), src_ordinal as c_int);
        let api = self.enter()?;
        let (dst, src, stream) = (address_of(dst), address_of(src), stream_of(stream));
        // SAFETY: the caller vouches for both ranges and for their devices.
        unsafe { api.hipMemcpyPeerAsync(dst, here, src, there, bytes, stream) }.ok()
    }

    /// We must pass no attributes, because up to ROCm 7.2 calls with some are refused. Without them the copies follow the
    /// stream's order.
    unsafe fn copy_batch(&self, copies: &[Copy1d], stream: RawStream) -> Result<()> {
        /// A batch may have at most 8192 copies, because some versions of HIP 7.15 crash on larger ones.
        const MOST: usize = 8192;

        let api = self.enter()?;
        let knows_batches = api.hipMemcpyBatchAsync.is_some() && self.driver.version >= Version::BATCHES;
        if !knows_batches || is_default(stream) {
            // SAFETY: passed on to the caller.
            return unsafe { copy_each(self, copies, stream) };
        }
        copies.chunks(MOST).try_for_each(|copies| {
            let mut dsts: Vec<_> = copies.iter().map(|copy| address_of(copy.dst.address())).collect();
            let mut srcs: Vec<_> = copies.iter().map(|copy| address_of(copy.src.address())).collect();
            let mut sizes: Vec<_> = copies.iter().map(|copy| copy.bytes).collect();
            let mut failed = 0;
            // SAFETY: the lists have the same length; the caller vouches for all ranges until the copies are done, and for the
            // stream.
            let answer = unsafe {
                api.hipMemcpyBatchAsync(
                    dsts.as_mut_ptr(),
                    srcs.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    sizes.len(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    0,
                    &raw mut failed,
                    stream_of(stream),
                )
            };
            answer.ok()
        })
    }

    /// We copy through `hipMemcpy3DAsync`, because its copy kinds kept their numbers. We could not use
    /// `hipDrvMemcpy3DAsync` for all versions, because it names its ends by `hipMemoryType`, which HIP 6 renumbered.
    unsafe fn copy_3d(&self, copy: &Copy3d, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        let copy = copy_params(copy);
        // SAFETY: `copy` is a local, which the driver reads before it returns; the caller vouches for the rows.
        unsafe { api.hipMemcpy3DAsync(&raw const copy, stream_of(stream)) }.ok()
    }
}

/// Returns a strided copy, as HIP describes it.
pub(crate) fn copy_params(copy: &Copy3d) -> hipMemcpy3DParms {
    let nowhere = (ptr::null_mut(), hipPos { x: 0, y: 0, z: 0 });
    let end = |end: CopyEnd, pitch, rows| {
        let pitched = |ptr| hipPitchedPtr { ptr, pitch, xsize: copy.width, ysize: rows };
        match end {
            CopyEnd::Device(buffer) => (nowhere, pitched(address_of(buffer))),
            CopyEnd::Host(pointer) => (nowhere, pitched(pointer.cast())),
            CopyEnd::Array { array, at: [x, y, z], .. } => {
                let none = hipPitchedPtr { ptr: ptr::null_mut(), pitch: 0, xsize: 0, ysize: 0 };
                ((array_of(array), hipPos { x, y, z }), none)
            }
        }
    };
    let ((src_array, src_at), src) = end(copy.src, copy.src_pitch, copy.src_rows);
    let ((dst_array, dst_at), dst) = end(copy.dst, copy.dst_pitch, copy.dst_rows);
    // If one end is an array, the width counts texels.
    let unit = match (copy.src, copy.dst) {
        (CopyEnd::Array { texel, .. }, _) | (_, CopyEnd::Array { texel, .. }) => texel,
        _ => 1,
    };
    let is_host = |end| matches!(end, CopyEnd::Host(_));
    hipMemcpy3DParms {
        srcArray: src_array,
        srcPos: src_at,
        srcPtr: src,
        dstArray: dst_array,
        dstPos: dst_at,
        dstPtr: dst,
        extent: hipExtent { width: copy.width / unit, height: copy.height, depth: copy.depth },
        kind: match (is_host(copy.src), is_host(copy.dst)) {
            (true, true) => hipMemcpyHostToHost,
            (true, false) => hipMemcpyHostToDevice,
            (false, true) => hipMemcpyDeviceToHost,
            (false, false) => hipMemcpyDeviceToDevice,
        },
    }
}
