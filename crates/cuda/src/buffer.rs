//! Memory and copies.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY3D, CUdevice, CUdeviceptr, CUmem_advise, CUmemLocation, CUmemLocationType,
    CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUmemorytype,
};
use gpustream_hal::{
    Buffers, Copy3d, CopyEnd, Error, FillPattern, HostPtr, ManagedAdvice, PinnedOptions, RawBuffer,
    RawStream, Result,
};

use crate::device::CudaDevice;
use crate::driver::call;
use crate::stream;

/// `CU_DEVICE_CPU`, a macro and so not in the bindings.
const HOST: CUdevice = -1;

// SAFETY: addresses are the CUDA driver's, for at least as many bytes as asked for.
unsafe impl Buffers for CudaDevice {
    fn alloc(&self, bytes: usize) -> Result<RawBuffer> {
        let driver = self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(driver, cuMemAlloc_v2(&raw mut address, bytes)) }.map_err(|e| of_size(e, bytes))?;
        Ok(RawBuffer(address as usize))
    }

    unsafe fn free(&self, buffer: RawBuffer) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches that the buffer is one of ours and out of use.
        unsafe { call!(driver, cuMemFree_v2(raw(buffer))) }
    }

    unsafe fn alloc_async(&self, bytes: usize, stream: RawStream) -> Result<RawBuffer> {
        let driver = self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local; the caller vouches for the stream.
        unsafe { call!(driver, cuMemAllocAsync(&raw mut address, bytes, stream::raw(stream))) }
            .map_err(|e| of_size(e, bytes))?;
        Ok(RawBuffer(address as usize))
    }

    unsafe fn free_async(&self, buffer: RawBuffer, stream: RawStream) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches that uses of the buffer are ordered before this point.
        unsafe { call!(driver, cuMemFreeAsync(raw(buffer), stream::raw(stream))) }
    }

    fn pinned_alloc(&self, bytes: usize, options: PinnedOptions) -> Result<HostPtr> {
        let driver = self.enter()?;
        let mut flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        if options.write_combined {
            flags |= sys::CU_MEMHOSTALLOC_WRITECOMBINED;
        }
        let mut address = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(driver, cuMemHostAlloc(&raw mut address, bytes, flags)) }
            .map_err(|e| of_size(e, bytes))?;
        Ok(address.cast())
    }

    unsafe fn pinned_free(&self, ptr: HostPtr) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches that the memory is one of ours and out of use.
        unsafe { call!(driver, cuMemFreeHost(ptr.cast())) }
    }

    unsafe fn host_register(&self, ptr: HostPtr, bytes: usize) -> Result<()> {
        let driver = self.enter()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller vouches that the range is mapped and stays so.
        unsafe { call!(driver, cuMemHostRegister_v2(ptr.cast(), bytes, flags)) }
    }

    unsafe fn host_unregister(&self, ptr: HostPtr) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches that the range is registered and out of use.
        unsafe { call!(driver, cuMemHostUnregister(ptr.cast())) }
    }

    unsafe fn pinned_device_address(&self, ptr: HostPtr) -> Result<RawBuffer> {
        let driver = self.enter()?;
        let mut address = 0;
        // SAFETY: the first pointer is to a local; the caller vouches for the other.
        unsafe { call!(driver, cuMemHostGetDevicePointer_v2(&raw mut address, ptr.cast(), 0))? };
        Ok(RawBuffer(address as usize))
    }

    fn managed_alloc(&self, bytes: usize) -> Result<RawBuffer> {
        let driver = self.enter()?;
        let mut address = 0;
        let flags = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as u32;
        // SAFETY: the pointer is to a local.
        unsafe { call!(driver, cuMemAllocManaged(&raw mut address, bytes, flags)) }
            .map_err(|e| of_size(e, bytes))?;
        Ok(RawBuffer(address as usize))
    }

    unsafe fn managed_prefetch(
        &self,
        buffer: RawBuffer,
        bytes: usize,
        to_device: bool,
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        let (stream, device) = (stream::raw(stream), if to_device { self.context.device } else { HOST });
        // SAFETY: the caller vouches for the range and the stream.
        unsafe {
            if let Some(prefetch) = driver.api.cuMemPrefetchAsync_v2 {
                let status = prefetch(raw(buffer), bytes, location(device), 0, stream);
                driver.check("cuMemPrefetchAsync", status)
            } else if let Some(prefetch) = driver.api.cuMemPrefetchAsync {
                driver.check("cuMemPrefetchAsync", prefetch(raw(buffer), bytes, device, stream))
            } else {
                Err(Error::unsupported("prefetching managed memory with this driver").with_backend("cuda"))
            }
        }
    }

    unsafe fn managed_advise(&self, buffer: RawBuffer, bytes: usize, advice: ManagedAdvice) -> Result<()> {
        let driver = self.enter()?;
        let here = self.context.device;
        let (advice, device) = match advice {
            ManagedAdvice::ReadMostly => (CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY, here),
            ManagedAdvice::PreferDevice => (CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here),
            ManagedAdvice::PreferHost => (CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST),
            ManagedAdvice::AccessedByDevice => (CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, here),
            _ => return Err(Error::unsupported(format!("the advice {advice:?}")).with_backend("cuda")),
        };
        // SAFETY: the caller vouches for the range.
        unsafe {
            if let Some(advise) = driver.api.cuMemAdvise_v2 {
                driver.check("cuMemAdvise", advise(raw(buffer), bytes, advice, location(device)))
            } else if let Some(advise) = driver.api.cuMemAdvise {
                driver.check("cuMemAdvise", advise(raw(buffer), bytes, advice, device))
            } else {
                Err(Error::unsupported("advice on managed memory with this driver").with_backend("cuda"))
            }
        }
    }

    unsafe fn fill(
        &self,
        dst: RawBuffer,
        pattern: FillPattern,
        count: usize,
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        let (dst, stream) = (raw(dst), stream::raw(stream));
        // SAFETY: the caller vouches for the range, its alignment and the stream.
        unsafe {
            match pattern {
                FillPattern::U8(value) => call!(driver, cuMemsetD8Async(dst, value, count, stream)),
                FillPattern::U16(value) => call!(driver, cuMemsetD16Async(dst, value, count, stream)),
                FillPattern::U32(value) => call!(driver, cuMemsetD32Async(dst, value, count, stream)),
            }
        }
    }

    unsafe fn copy_to_device(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for both ranges until the copy is done.
        unsafe { call!(driver, cuMemcpyHtoDAsync_v2(raw(dst), src.cast(), bytes, stream::raw(stream))) }
    }

    unsafe fn copy_inline(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        let Some(copy) = driver.api.cuMemcpyBatchAsync else {
            return Err(Error::unsupported("cuMemcpyBatchAsync (CUDA 12.8)").with_backend("cuda"));
        };
        let (mut dst, mut src, mut size) = (raw(dst), src.expose_provenance() as CUdeviceptr, bytes);
        let nowhere = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
        let mut attributes = CUmemcpyAttributes {
            srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: 0,
        };
        let (mut first, mut failed) = (0, 0);
        // SAFETY: the pointers are to locals, lists of one; the caller vouches for both ranges and the stream.
        let status = unsafe {
            copy(
                &raw mut dst,
                &raw mut src,
                &raw mut size,
                1,
                &raw mut attributes,
                &raw mut first,
                1,
                &raw mut failed,
                stream::raw(stream),
            )
        };
        driver.check("cuMemcpyBatchAsync", status)
    }

    unsafe fn copy_to_host(
        &self,
        dst: HostPtr,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for both ranges until the copy is done.
        unsafe { call!(driver, cuMemcpyDtoHAsync_v2(dst.cast(), raw(src), bytes, stream::raw(stream))) }
    }

    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for both ranges.
        unsafe { call!(driver, cuMemcpyDtoDAsync_v2(raw(dst), raw(src), bytes, stream::raw(stream))) }
    }

    unsafe fn copy_from_peer(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        src_ordinal: usize,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        let peer = self.driver.context(src_ordinal)?;
        let driver = self.enter()?;
        // SAFETY: the caller vouches for both ranges; both contexts are retained for good.
        unsafe {
            call!(
                driver,
                cuMemcpyPeerAsync(raw(dst), self.context.raw, raw(src), peer.raw, bytes, stream::raw(stream))
            )
        }
    }

    unsafe fn copy_3d(&self, copy: &Copy3d, stream: RawStream) -> Result<()> {
        let driver = self.enter()?;
        let copy = memcpy_3d(copy);
        // SAFETY: `copy` is a local that the driver reads before it returns; the caller vouches for the rows.
        unsafe { call!(driver, cuMemcpy3DAsync_v2(&raw const copy, stream::raw(stream))) }
    }
}

/// The driver's address.
pub(crate) const fn raw(buffer: RawBuffer) -> CUdeviceptr {
    buffer.0 as CUdeviceptr
}

/// A strided copy as the driver describes it.
pub(crate) fn memcpy_3d(copy: &Copy3d) -> CUDA_MEMCPY3D {
    let (src_type, src_host, src_device) = match copy.src {
        CopyEnd::Device(buffer) => (CUmemorytype::CU_MEMORYTYPE_DEVICE, ptr::null_mut(), raw(buffer)),
        CopyEnd::Host(host) => (CUmemorytype::CU_MEMORYTYPE_HOST, host.cast::<c_void>(), 0),
    };
    let (dst_type, dst_host, dst_device) = match copy.dst {
        CopyEnd::Device(buffer) => (CUmemorytype::CU_MEMORYTYPE_DEVICE, ptr::null_mut(), raw(buffer)),
        CopyEnd::Host(host) => (CUmemorytype::CU_MEMORYTYPE_HOST, host.cast::<c_void>(), 0),
    };
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: src_type,
        srcHost: src_host,
        srcDevice: src_device,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: copy.src_pitch,
        srcHeight: copy.src_rows,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: dst_type,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: copy.dst_pitch,
        dstHeight: copy.dst_rows,
        WidthInBytes: copy.width,
        Height: copy.height,
        Depth: copy.depth,
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    let type_ = if device == HOST {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
    } else {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
    };
    CUmemLocation { type_, id: device.max(0) }
}

#[cold]
fn of_size(error: Error, bytes: usize) -> Error {
    error.with_context(format_args!("allocating {bytes} bytes"))
}
