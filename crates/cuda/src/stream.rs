//! Streams.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUstream_flags::{CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING};
use gpustream_hal::{DefaultStream, HostFn, RawEvent, RawStream, Result, StreamOptions, Streams};

use crate::device::CudaDevice;
use crate::handle::{event_of, stream_of};

// SAFETY: each method is the CUDA call that it names, and answers what the driver answered.
unsafe impl Streams for CudaDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        let api = self.enter()?;
        let flags = if options.blocking_with_default { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local. The driver clamps the priority to its range.
        unsafe { api.cuStreamCreateWithPriority(&raw mut stream, flags as u32, options.priority) }.ok()?;
        Ok(RawStream(stream as usize))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuStreamDestroy_v2(stream_of(stream)) }.ok()
    }

    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, which are macros and so not in the bindings.
        Ok(RawStream(match which {
            DefaultStream::Legacy => 1,
            DefaultStream::PerThread => 2,
        }))
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        let api = self.enter_for(stream)?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuStreamQuery(stream_of(stream)) }.ready()
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuStreamSynchronize(stream_of(stream)) }.ok()
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let api = self.enter_for(stream)?;
        // SAFETY: the caller vouches for both handles; the event may be of another device.
        unsafe { api.cuStreamWaitEvent(stream_of(stream), event_of(event), 0) }.ok()
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle, and for `data` until the function has run.
        unsafe { api.cuLaunchHostFunc(stream_of(stream), Some(function), data) }.ok()
    }
}
