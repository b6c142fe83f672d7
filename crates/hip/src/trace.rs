//! Traces: this backend does not measure when operations run. It shows them to profilers, by roctx.

use gpustream_hal::{Result, Traces};

use crate::device::HipDevice;
use crate::roctx;

impl Traces for HipDevice {
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
