//! Finding and opening CUDA devices.

use std::sync::Arc;

use gpustream_hal::{Backend, BackendName, Device, DriverLibrary, Identity, Probe, Result};

use crate::compiler::{Nvrtc, compiler};
use crate::cupti::{Cupti, cupti};
use crate::device::CudaDevice;
use crate::driver::{Found, driver, found};
use crate::info::kernel_driver;

/// The CUDA driver.
struct Cuda;

/// Returns the backend for the libcuda that is installed, or that `GPUSTREAM_CUDA_LIBRARY` names.
pub fn backend() -> &'static dyn Backend {
    &Cuda
}

// SAFETY: each call makes its own device, under this name.
unsafe impl Backend for Cuda {
    fn name(&self) -> BackendName {
        BackendName::CUDA
    }

    fn device_count(&self) -> Result<usize> {
        driver()?.device_count()
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(CudaDevice::open(driver()?, ordinal)?))
    }

    fn identity(&self, ordinal: usize) -> Result<Identity> {
        driver()?.identity(ordinal)
    }

    fn library(&self) -> Option<DriverLibrary> {
        let Found { driver, tried } = found();
        let path = driver.as_ref().ok()?.path.clone();
        Some(DriverLibrary { path, found_by: tried.last()?.clone() })
    }

    fn probe(&self) -> Probe {
        let found = found();
        let mut probe = Probe::default();
        probe.tried.clone_from(&found.tried);
        match &found.driver {
            Ok(driver) => {
                probe.library = Some(driver.path.clone());
                probe.driver_version = kernel_driver();
                probe.runtime_version = Some(format!("CUDA {}", driver.version));
                probe.tracer = cupti().ok().map(Cupti::description);
                probe.problem = driver.device_count().err().map(|error| error.to_string());
            }
            Err(error) => probe.problem = Some(error.to_string()),
        }
        match compiler().map(Nvrtc::description) {
            Ok(description) => probe.runtime_compiler = Some(description),
            Err(error) => {
                probe.problem.get_or_insert_with(|| error.to_string());
            }
        }
        probe
    }
}
