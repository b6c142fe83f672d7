//! Finding and opening CUDA devices.

use std::sync::Arc;

use gpustream_hal::{Backend, Device, Probe, Result};

use crate::compiler::{Nvrtc, compiler};
use crate::device::CudaDevice;
use crate::driver::{driver, found};
use crate::error::BACKEND;

/// The CUDA driver.
struct Cuda;

/// Returns the backend for the libcuda that is installed, or that `GPUSTREAM_CUDA_LIBRARY` names.
pub fn backend() -> &'static dyn Backend {
    &Cuda
}

// SAFETY: each opening makes a device of its own, under this name.
unsafe impl Backend for Cuda {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn device_count(&self) -> Result<usize> {
        driver()?.device_count()
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(CudaDevice::open(driver()?, ordinal)?))
    }

    fn probe(&self) -> Probe {
        let found = found();
        let mut probe = Probe::default();
        probe.tried.clone_from(&found.tried);
        probe.library.clone_from(&found.library);
        match &found.driver {
            Ok(driver) => {
                probe.driver_version = kernel_driver();
                probe.runtime_version = Some(format!("CUDA {}", driver.version));
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

/// Returns the kernel module's version, such as `580.159.03`, where the system shows it.
pub(crate) fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    // NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue …
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}
