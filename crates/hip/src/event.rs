//! Events. An event knows its device, so we must make a device current only for two calls: to make one and to record
//! one.

use std::ptr;
use std::time::Duration;

use gpustream_hal::{EventOptions, Events, RawEvent, RawStream, Result, WaitPolicy};

use crate::device::HipDevice;
use crate::ffi::{hipEventBlockingSync, hipEventDefault, hipEventDisableTiming};
use crate::handle::{event_of, stream_of};

// SAFETY: each method makes the HIP call that it names, and returns what the driver said.
unsafe impl Events for HipDevice {
    fn event_create(&self, options: EventOptions) -> Result<RawEvent> {
        let api = self.enter()?;
        let mut flags = hipEventDefault;
        if !options.timing {
            flags |= hipEventDisableTiming;
        }
        // HIP's other way to wait polls. Whether it yields depends on the device's settings.
        if options.wait == WaitPolicy::Block {
            flags |= hipEventBlockingSync;
        }
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.hipEventCreateWithFlags(&raw mut event, flags) }.ok()?;
        Ok(RawEvent(event as usize))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()> {
        let api = &self.api;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipEventDestroy(event_of(event)) }.ok()
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for both handles.
        unsafe { api.hipEventRecord(event_of(event), stream_of(stream)) }.ok()
    }

    unsafe fn event_query(&self, event: RawEvent) -> Result<bool> {
        let api = &self.api;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipEventQuery(event_of(event)) }.ready()
    }

    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()> {
        let api = &self.api;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.hipEventSynchronize(event_of(event)) }.ok()
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration> {
        let api = &self.api;
        let mut milliseconds = 0_f32;
        // SAFETY: the pointer is to a local; the caller vouches for both handles.
        unsafe { api.hipEventElapsedTime(&raw mut milliseconds, event_of(start), event_of(end)) }.ok()?;
        // Negative if `end` came first. A duration cannot be negative, and zero is the nearest.
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) * 1e-3).unwrap_or_default())
    }
}
