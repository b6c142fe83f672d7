//! Streams on `hipStream_t`.

use std::ffi::c_void;
use std::ptr;

use gpustream_hal::driver::Status;
use gpustream_hal::{DefaultStream, HostFn, RawEvent, RawStream, Result, StreamOptions, Streams};

use crate::device::HipDevice;
use crate::ffi::{hipStream_t, hipStreamDefault, hipStreamNonBlocking, hipStreamPerThread};

/// HIP's form of a stream.
pub(crate) fn stream_of(stream: RawStream) -> hipStream_t {
    stream.0 as hipStream_t
}

// SAFETY: each method is the HIP call that it names, and answers what the driver answered.
unsafe impl Streams for HipDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        let api = self.enter()?;
        let flags = if options.blocking_with_default { hipStreamDefault } else { hipStreamNonBlocking };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local. HIP clamps the priority.
        unsafe { api.hipStreamCreateWithPriority(&raw mut stream, flags, options.priority) }.ok()?;
        Ok(RawStream(stream as usize))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the stream is alive and not used again, by the trait's contract.
        unsafe { api.hipStreamDestroy(stream_of(stream)) }.ok()
    }

    /// The legacy stream is the null handle: `hipStreamLegacy` is younger, and waiting for an event recorded on
    /// it crashed in one release.
    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        Ok(match which {
            DefaultStream::Legacy => RawStream(0),
            DefaultStream::PerThread => RawStream(hipStreamPerThread),
        })
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        let api = self.enter()?;
        // SAFETY: the stream is alive, by the trait's contract.
        unsafe { api.hipStreamQuery(stream_of(stream)) }.ready()
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the stream is alive, by the trait's contract.
        unsafe { api.hipStreamSynchronize(stream_of(stream)) }.ok()
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: both are alive, by the trait's contract.
        unsafe { api.hipStreamWaitEvent(stream_of(stream), event.0 as *mut c_void, 0) }.ok()
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        let api = self.enter()?;
        let stream = stream_of(stream);
        if api.hipLaunchHostFunc.is_some() {
            // SAFETY: the stream is alive, and `data` is the function's, by the trait's contract.
            return unsafe { api.hipLaunchHostFunc(stream, Some(function), data) }.ok();
        }
        // Before HIP 5.3: a callback with another signature, which cannot be captured into a graph.
        let call = Box::into_raw(Box::new(HostCall { function, data })).cast();
        // SAFETY: the stream is alive; the trampoline takes the box that is passed.
        let answer = unsafe { api.hipStreamAddCallback(stream, Some(run_host_call), call, 0) };
        if answer.status != Some(Status::SUCCESS) {
            // SAFETY: a refused callback is never called, so the box is still this function's.
            drop(unsafe { Box::from_raw(call.cast::<HostCall>()) });
        }
        answer.ok()
    }
}

/// What [`run_host_call`] is to call.
struct HostCall {
    function: HostFn,
    data: *mut c_void,
}

/// Calls a host function the way `hipStreamAddCallback` calls.
unsafe extern "C" fn run_host_call(_: hipStream_t, _: Status, call: *mut c_void) {
    // SAFETY: `call` is the box made for this one call.
    let call = unsafe { Box::from_raw(call.cast::<HostCall>()) };
    // SAFETY: the one who passed the function vouches for it and its data.
    unsafe { (call.function)(call.data) };
}
