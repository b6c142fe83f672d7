//! Streams.

use std::ffi::c_void;
use std::ptr;

use gpustream_hal::driver::Status;
use gpustream_hal::{
    DefaultStream, HostFn, RawBuffer, RawEvent, RawStream, Result, StreamOptions, Streams, WaitValue,
};

use crate::device::HipDevice;
use crate::ffi::{
    hipStream_t, hipStreamDefault, hipStreamNonBlocking, hipStreamPerThread, hipStreamWaitValueAnd,
    hipStreamWaitValueEq, hipStreamWaitValueGte,
};
use crate::handle::{address_of, event_of, stream_of};

const _: () = {
    assert!(WaitValue::AtLeast(0).comparison().0 == hipStreamWaitValueGte);
    assert!(WaitValue::Equal(0).comparison().0 == hipStreamWaitValueEq);
    assert!(WaitValue::AnyBit(0).comparison().0 == hipStreamWaitValueAnd);
};

// SAFETY: each method is the HIP call that it names, and answers what the driver answered.
unsafe impl Streams for HipDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        let api = self.enter()?;
        let flags = if options.blocking_with_default { hipStreamDefault } else { hipStreamNonBlocking };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local. The driver clamps the priority to its range.
        unsafe { api.hipStreamCreateWithPriority(&raw mut stream, flags, options.priority) }.ok()?;
        Ok(RawStream(stream as usize))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipStreamDestroy(stream_of(stream)) }.ok()
    }

    /// The legacy stream is the null handle: `hipStreamLegacy` is younger, and waiting for an event recorded on
    /// it crashed in one release.
    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        Ok(RawStream(match which {
            DefaultStream::Legacy => 0,
            DefaultStream::PerThread => hipStreamPerThread,
        }))
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipStreamQuery(stream_of(stream)) }.ready()
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipStreamSynchronize(stream_of(stream)) }.ok()
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for both handles; the event may be of another device.
        unsafe { api.hipStreamWaitEvent(stream_of(stream), event_of(event), 0) }.ok()
    }

    unsafe fn stream_wait_value32(
        &self,
        stream: RawStream,
        address: RawBuffer,
        until: WaitValue,
    ) -> Result<()> {
        const ALL_BITS: u32 = u32::MAX;
        let api = self.enter()?;
        let ((flags, value), stream) = (until.comparison(), stream_of(stream));
        // SAFETY: the caller vouches for the handle, and for the word until the wait is done.
        unsafe { api.hipStreamWaitValue32(stream, address_of(address), value, flags, ALL_BITS) }.ok()
    }

    unsafe fn stream_write_value32(&self, stream: RawStream, address: RawBuffer, value: u32) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle, and for the word until the write is done; flags are reserved.
        unsafe { api.hipStreamWriteValue32(stream_of(stream), address_of(address), value, 0) }.ok()
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        let api = self.enter()?;
        let stream = stream_of(stream);
        if api.hipLaunchHostFunc.is_some() {
            // SAFETY: the caller vouches for the handle, and for `data` until the function has run.
            return unsafe { api.hipLaunchHostFunc(stream, Some(function), data) }.ok();
        }
        // Before HIP 5.3 there is a callback with another signature, which cannot be captured into a graph.
        let call = Box::into_raw(Box::new(HostCall { function, data })).cast();
        // SAFETY: the caller vouches for the handle; the trampoline takes the box that is passed.
        let answer = unsafe { api.hipStreamAddCallback(stream, Some(run_host_call), call, 0) };
        if answer.status != Some(Status::SUCCESS) {
            // SAFETY: a refused callback is never called, so the box is still this function's.
            drop(unsafe { Box::from_raw(call.cast::<HostCall>()) });
        }
        answer.ok()
    }
}

/// The call that [`run_host_call`] is to make.
struct HostCall {
    function: HostFn,
    data: *mut c_void,
}

/// Calls a host function the way `hipStreamAddCallback` calls.
unsafe extern "C" fn run_host_call(_: hipStream_t, _: Status, call: *mut c_void) {
    // SAFETY: `call` is the box made for this one call.
    let call = unsafe { Box::from_raw(call.cast::<HostCall>()) };
    // SAFETY: the caller of `stream_host_fn` vouches for the function and its data.
    unsafe { (call.function)(call.data) };
}
