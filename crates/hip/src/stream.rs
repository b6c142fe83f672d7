//! Streams.

use std::ffi::c_void;
use std::ptr;

use gpustream_hal::driver::Status;
use gpustream_hal::{
    DefaultStream, ErrorKind, HostFn, RawBuffer, RawEvent, RawStream, Result, StreamOptions, Streams,
    WaitValue,
};

use crate::device::HipDevice;
use crate::error::error;
use crate::ffi::{
    hipStream_t, hipStreamDefault, hipStreamNonBlocking, hipStreamPerThread, hipStreamWaitValueAnd,
    hipStreamWaitValueEq, hipStreamWaitValueGte,
};
use crate::handle::{address_of, event_of, stream_of};
use crate::info;
use crate::version::Version;

const _: () = {
    assert!(WaitValue::AtLeast(0).comparison().0 == hipStreamWaitValueGte);
    assert!(WaitValue::Equal(0).comparison().0 == hipStreamWaitValueEq);
    assert!(WaitValue::AnyBit(0).comparison().0 == hipStreamWaitValueAnd);
};

/// How many mask bits we set together. HIP spreads the bits over a device's dies and shader engines in turn, and a die
/// without a bit would not do its part of a kernel. With eight bits we can reach each of them.
const TOGETHER: u32 = 8;

impl HipDevice {
    /// Makes a stream with a mask of at least `least` compute units. The call has no parameter for the priority or for
    /// the default stream. So the priority must be the ordinary one, and the stream and the legacy default stream must
    /// wait for each other.
    fn stream_on_part(&self, least: u32, options: StreamOptions) -> Result<RawStream> {
        let refused = |message: String| Err(error(ErrorKind::Unsupported, message));
        if self.driver.version < Version::MASKS {
            return refused(format!(
                "HIP {} cannot make a stream on a part of a device, because it numbers the units in a mask differently: that needs 5.7 or later",
                self.driver.version
            ));
        }
        if options.priority != 0 {
            return refused(format!(
                "HIP cannot give a priority to a stream on a part of a device, but you asked for priority {} and {least} \
                 multiprocessors: ask for only one of the two",
                options.priority
            ));
        }
        let api = self.enter()?;
        let units = info::maskable_units(&self.api, self.ordinal())?;
        // RDNA's units are workgroup processors, with two compute units each.
        let in_unit = (self.info.multiprocessors / units).max(1);
        let group = least.div_ceil(in_unit).next_multiple_of(TOGETHER).min(units);
        self.shares.add(group * in_unit, (units / group) as usize, |number| {
            let first = number as u32 * group;
            let mut mask = vec![0_u32; units.div_ceil(u32::BITS) as usize];
            for unit in first..first + group {
                mask[(unit / u32::BITS) as usize] |= 1 << (unit % u32::BITS);
            }
            let mut stream = ptr::null_mut();
            // SAFETY: the pointers are to locals; the list has this many words.
            unsafe { api.hipExtStreamCreateWithCUMask(&raw mut stream, mask.len() as u32, mask.as_ptr()) }
                .ok()?;
            Ok(RawStream(stream as usize))
        })
    }
}

// SAFETY: each method is the HIP call that it names, and answers what the driver answered.
unsafe impl Streams for HipDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        if let Some(least) = options.multiprocessors {
            return self.stream_on_part(least, options);
        }
        let api = self.enter()?;
        let flags = if options.blocking_with_default { hipStreamDefault } else { hipStreamNonBlocking };
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local. The driver clamps the priority to its range.
        unsafe { api.hipStreamCreateWithPriority(&raw mut stream, flags, options.priority) }.ok()?;
        Ok(RawStream(stream as usize))
    }

    unsafe fn stream_multiprocessors(&self, stream: RawStream) -> Option<u32> {
        self.shares.multiprocessors(stream)
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        self.shares.remove(stream);
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipStreamDestroy(stream_of(stream)) }.ok()
    }

    /// For the legacy stream we must use the null handle. `hipStreamLegacy` is newer, and in one release a wait for an
    /// event recorded on it crashed.
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
        // SAFETY: the caller vouches for both handles; the event may belong to another device.
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
        // Before HIP 5.3 there is only a callback with another signature, and you cannot capture it into a graph.
        let call = Box::into_raw(Box::new(HostCall { function, data })).cast();
        // SAFETY: the caller vouches for the handle; the trampoline takes the box that we pass.
        let answer = unsafe { api.hipStreamAddCallback(stream, Some(run_host_call), call, 0) };
        if answer.status != Some(Status::SUCCESS) {
            // SAFETY: HIP never calls a callback that it refused, so this function still owns the box.
            drop(unsafe { Box::from_raw(call.cast::<HostCall>()) });
        }
        answer.ok()
    }
}

/// What [`run_host_call`] has to call.
struct HostCall {
    function: HostFn,
    data: *mut c_void,
}

/// Calls a host function with the signature that `hipStreamAddCallback` wants.
unsafe extern "C" fn run_host_call(_: hipStream_t, _: Status, call: *mut c_void) {
    // SAFETY: we made the box `call` for this one call.
    let call = unsafe { Box::from_raw(call.cast::<HostCall>()) };
    // SAFETY: the caller of `stream_host_fn` vouches for the function and its data.
    unsafe { (call.function)(call.data) };
}
