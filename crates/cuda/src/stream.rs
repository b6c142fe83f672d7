//! Streams.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::CUstream_flags::{CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING};
use cudarc::driver::sys::CUstreamWaitValue_flags_enum as CUstreamWaitValue_flags;
use cudarc::driver::sys::CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT;
use gpustream_hal::{
    DefaultStream, ErrorKind, HostFn, RawBuffer, RawEvent, RawStream, Result, StreamOptions, Streams,
    WaitValue,
};

use crate::device::CudaDevice;
use crate::error::error;
use crate::green_contexts::SmGroup;
use crate::handle::{address_of, event_of, stream_of};

const _: () = {
    assert!(WaitValue::AtLeast(0).comparison().0 == CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32);
    assert!(WaitValue::Equal(0).comparison().0 == CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32);
    assert!(WaitValue::AnyBit(0).comparison().0 == CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_AND as u32);
};

impl CudaDevice {
    /// Makes a stream in a green context with at least `least` multiprocessors. It may get more, because the driver
    /// rounds up.
    fn stream_on_part(&self, least: u32, options: StreamOptions) -> Result<RawStream> {
        if options.blocking_with_default {
            let message = "CUDA cannot make a stream that runs on a part of a device and also waits for the legacy default stream: \
                           ask for only one of the two";
            return Err(error(ErrorKind::Unsupported, message));
        }
        let api = self.enter()?;
        let device = self.context.device;
        let groups = SmGroup::split(api, device, least)?;
        let size = groups[0].multiprocessors();
        self.shares.add(size, groups.len(), |number| {
            let green = self.context.greens.of(api, device, (size, number), groups[number])?;
            green.stream(api, options.priority)
        })
    }
}

// SAFETY: each method makes the CUDA call that it names, and returns what the driver said.
unsafe impl Streams for CudaDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        if let Some(least) = options.multiprocessors {
            return self.stream_on_part(least, options);
        }
        let api = self.enter()?;
        let flags = if options.blocking_with_default { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local. The driver clamps the priority to its range.
        unsafe { api.cuStreamCreateWithPriority(&raw mut stream, flags as u32, options.priority) }.ok()?;
        Ok(RawStream(stream as usize))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        self.shares.remove(stream);
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuStreamDestroy_v2(stream_of(stream)) }.ok()
    }

    unsafe fn stream_multiprocessors(&self, stream: RawStream) -> Option<u32> {
        self.shares.multiprocessors(stream)
    }

    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are macros, so the bindings do not have them.
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
        // SAFETY: the caller vouches for both handles; the event may belong to another device.
        unsafe { api.cuStreamWaitEvent(stream_of(stream), event_of(event), 0) }.ok()
    }

    unsafe fn stream_wait_value32(
        &self,
        stream: RawStream,
        address: RawBuffer,
        until: WaitValue,
    ) -> Result<()> {
        let api = self.enter()?;
        let (flags, value) = until.comparison();
        // SAFETY: the caller vouches for the handle, and for the word until the wait is done.
        unsafe { api.cuStreamWaitValue32_v2(stream_of(stream), address_of(address), value, flags) }.ok()
    }

    unsafe fn stream_write_value32(&self, stream: RawStream, address: RawBuffer, value: u32) -> Result<()> {
        let api = self.enter()?;
        let flags = CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: the caller vouches for the handle, and for the word until the write is done.
        unsafe { api.cuStreamWriteValue32_v2(stream_of(stream), address_of(address), value, flags) }.ok()
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle, and for `data` until the function has run.
        unsafe { api.cuLaunchHostFunc(stream_of(stream), Some(function), data) }.ok()
    }
}
