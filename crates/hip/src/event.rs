//! Events on `hipEvent_t`. An event knows its device, so that only making and recording one depend on the
//! thread's current device.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use gpustream_hal::{EventOptions, Events, RawEvent, RawStream, Result, WaitPolicy};

use crate::device::HipDevice;
use crate::ffi::{hipEvent_t, hipEventBlockingSync, hipEventDefault, hipEventDisableTiming};
use crate::stream::stream_of;

fn event_of(event: RawEvent) -> hipEvent_t {
    event.0 as *mut c_void
}

// SAFETY: each method is the HIP call that it names, and answers what the driver answered.
unsafe impl Events for HipDevice {
    /// HIP has one flag for waiting: without it the thread polls, yielding or not as the device is set up.
    fn event_create(&self, options: EventOptions) -> Result<RawEvent> {
        let api = self.enter()?;
        let timing = if options.timing { hipEventDefault } else { hipEventDisableTiming };
        let wait = if options.wait == WaitPolicy::Block { hipEventBlockingSync } else { hipEventDefault };
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.hipEventCreateWithFlags(&raw mut event, timing | wait) }.ok()?;
        Ok(RawEvent(event as usize))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()> {
        let api = &self.driver.api;
        // SAFETY: the event is alive and not used again, by the trait's contract.
        unsafe { api.hipEventDestroy(event_of(event)) }.ok()
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: both are alive, by the trait's contract.
        unsafe { api.hipEventRecord(event_of(event), stream_of(stream)) }.ok()
    }

    unsafe fn event_query(&self, event: RawEvent) -> Result<bool> {
        let api = &self.driver.api;
        // SAFETY: the event is alive, by the trait's contract.
        unsafe { api.hipEventQuery(event_of(event)) }.ready()
    }

    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()> {
        let api = &self.driver.api;
        // SAFETY: the event is alive, by the trait's contract.
        unsafe { api.hipEventSynchronize(event_of(event)) }.ok()
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration> {
        let api = &self.driver.api;
        let mut milliseconds = 0_f32;
        // SAFETY: both are alive, by the trait's contract; the pointer is to a local.
        let answer =
            unsafe { api.hipEventElapsedTime(&raw mut milliseconds, event_of(start), event_of(end)) };
        answer.ok()?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}
