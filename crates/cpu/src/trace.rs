//! Traces: this backend does not measure when operations run.

use gpustream_hal::Traces;

use crate::device::CpuDevice;

impl Traces for CpuDevice {}
