//! Traces: CUPTI's activity records say when operations ran, and NVTX shows ranges. A machine may lack either.

use gpustream_hal::{Ran, Result, TraceClock, Traces};

use crate::cupti::{self, opened};
use crate::device::CudaDevice;
use crate::nvtx;

impl Traces for CudaDevice {
    fn trace_begin(&self) -> Result<TraceClock> {
        self.enter()?;
        cupti::begin()?;
        Ok(TraceClock::Cupti)
    }

    fn trace_end(&self) {
        if let Some(cupti) = opened() {
            cupti.end();
        }
    }

    #[inline]
    fn trace_enter(&self, operation: u64) {
        if let Some(cupti) = opened() {
            cupti.enter(operation);
        }
    }

    #[inline]
    fn trace_leave(&self) {
        if let Some(cupti) = opened() {
            cupti.leave();
        }
    }

    fn trace_take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        opened().map_or(Ok(0), |cupti| cupti.take(flush, each))
    }

    fn range_begin(&self) -> Result<()> {
        nvtx::attach()
    }

    fn range_push(&self, label: &str) {
        nvtx::push(label);
    }

    fn range_pop(&self) {
        nvtx::pop();
    }
}
