//! Traces: the device itself measures when operations run, see `recorder`.

use gpustream_hal::{Ran, Result, TraceClock, Traces};

use crate::device::CpuDevice;
use crate::recorder;

impl Traces for CpuDevice {
    fn trace_begin(&self) -> Result<TraceClock> {
        self.shared.alive()?;
        self.shared.recorder.begin();
        Ok(TraceClock::Host)
    }

    fn trace_end(&self) {
        self.shared.recorder.end();
    }

    fn trace_enter(&self, operation: u64) {
        self.shared.recorder.enter(operation);
    }

    fn trace_leave(&self) {
        recorder::leave();
    }

    /// Hands out everything, because an operation's parts are always there before its stream continues.
    fn trace_take(&self, _flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        self.shared.not_forked()?;
        Ok(self.shared.recorder.take(each))
    }
}
