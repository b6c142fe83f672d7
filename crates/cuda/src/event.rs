//! Events.

use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::CUevent_flags;
use gpustream_hal::{EventOptions, Events, RawEvent, RawStream, Result, WaitPolicy};

use crate::device::CudaDevice;
use crate::handle::{event_of, stream_of};

// SAFETY: each method makes the CUDA call that it names, and returns what the driver said.
unsafe impl Events for CudaDevice {
    fn event_create(&self, options: EventOptions) -> Result<RawEvent> {
        let api = self.enter()?;
        let mut flags = 0;
        if !options.timing {
            flags |= CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        }
        // The driver's other way to wait spins or yields as the context says, which is the same for all events.
        if options.wait == WaitPolicy::Block {
            flags |= CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        }
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { api.cuEventCreate(&raw mut event, flags) }.ok()?;
        Ok(RawEvent(event as usize))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuEventDestroy_v2(event_of(event)) }.ok()
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        let api = self.enter_for(stream)?;
        // SAFETY: the caller vouches for both handles.
        unsafe { api.cuEventRecord(event_of(event), stream_of(stream)) }.ok()
    }

    unsafe fn event_query(&self, event: RawEvent) -> Result<bool> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuEventQuery(event_of(event)) }.ready()
    }

    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches for the handle.
        unsafe { api.cuEventSynchronize(event_of(event)) }.ok()
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Result<Duration> {
        let api = self.enter()?;
        let mut milliseconds = 0_f32;
        // SAFETY: the pointer is to a local; the caller vouches for both handles.
        unsafe { api.cuEventElapsedTime(&raw mut milliseconds, event_of(start), event_of(end)) }.ok()?;
        // Negative if `end` came first. A duration cannot be negative, and zero is the nearest.
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) * 1e-3).unwrap_or_default())
    }
}
