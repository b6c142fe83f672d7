//! Traces: rocprofiler-sdk's records say when operations ran, and roctx shows ranges. A machine may lack either.

use gpustream_hal::{Ran, Result, TraceClock, Traces};

use crate::device::HipDevice;
use crate::rocprofiler::{enter, leave, opened, rocprofiler};
use crate::roctx;

impl Traces for HipDevice {
    fn trace_begin(&self) -> Result<TraceClock> {
        let error = rocprofiler()?.begin()?;
        Ok(TraceClock::Rocprofiler { error })
    }

    fn trace_end(&self) {
        if let Some(rocprofiler) = opened() {
            rocprofiler.end();
        }
    }

    #[inline]
    fn trace_enter(&self, operation: u64) {
        enter(operation);
    }

    #[inline]
    fn trace_leave(&self) {
        leave();
    }

    fn trace_take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        opened().map_or(Ok(0), |rocprofiler| rocprofiler.take(flush, each))
    }

    fn range_begin(&self) -> Result<()> {
        roctx::open()
    }

    fn range_push(&self, label: &str) {
        roctx::push(label);
    }

    fn range_pop(&self) {
        roctx::pop();
    }
}
