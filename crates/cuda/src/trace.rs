//! Traces: this backend does not measure when operations run.

use gpustream_hal::Traces;

use crate::device::CudaDevice;

impl Traces for CudaDevice {}
