//! Streams.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{CUevent, CUstream, CUstream_flags};
use gpustream_hal::{DefaultStream, HostFn, RawEvent, RawStream, Result, StreamOptions, Streams};

use crate::device::CudaDevice;
use crate::driver::{Status, call};

// SAFETY: each method is the CUDA call that it names, and answers what the driver answered.
unsafe impl Streams for CudaDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        let driver = self.enter()?;
        let flags = if options.blocking_with_default {
            CUstream_flags::CU_STREAM_DEFAULT
        } else {
            CUstream_flags::CU_STREAM_NON_BLOCKING
        };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local. The driver clamps the priority to its range.
        unsafe {
            call!(driver, cuStreamCreateWithPriority(&raw mut stream, flags as u32, options.priority))?;
        }
        Ok(RawStream(stream as usize))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(driver, cuStreamDestroy_v2(raw(stream))) }
    }

    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, which are macros and so not in the bindings.
        Ok(RawStream(match which {
            DefaultStream::Legacy => 1,
            DefaultStream::PerThread => 2,
        }))
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        let driver = self.enter_for(stream)?;
        // SAFETY: the caller vouches for the handle.
        match unsafe { (driver.api.cuStreamQuery)(raw(stream)) } {
            Status::OK => Ok(true),
            Status::NOT_READY => Ok(false),
            status => driver.check("cuStreamQuery", status).map(|()| true),
        }
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(driver, cuStreamSynchronize(raw(stream))) }
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let driver = self.enter_for(stream)?;
        // SAFETY: the caller vouches for both handles; the event may be of another device.
        unsafe { call!(driver, cuStreamWaitEvent(raw(stream), event.0 as CUevent, 0)) }
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches for the handle, and for `data` until the function has run.
        unsafe { call!(driver, cuLaunchHostFunc(raw(stream), Some(function), data)) }
    }
}

/// The driver's handle.
pub(crate) const fn raw(stream: RawStream) -> CUstream {
    stream.0 as CUstream
}
