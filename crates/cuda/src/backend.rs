//! Finding and opening CUDA devices.

use std::sync::Arc;

use gpustream_hal::{Backend, Device, Error, ErrorKind, Probe, Result};

use crate::device::CudaDevice;
use crate::driver::{driver, found};
use crate::nvrtc;

/// The CUDA driver.
struct Cuda;

/// The one value of this backend.
pub fn backend() -> &'static dyn Backend {
    &Cuda
}

// SAFETY: each opening makes a device of its own, under this name.
unsafe impl Backend for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device_count(&self) -> Result<usize> {
        match driver()?.contexts.len() {
            0 => Err(Error::new(
                ErrorKind::NoDevice,
                "the driver offers no device; check nvidia-smi and CUDA_VISIBLE_DEVICES",
            )
            .with_backend("cuda")),
            count => Ok(count),
        }
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(CudaDevice::open(driver()?, ordinal)?))
    }

    fn probe(&self) -> Probe {
        let found = found();
        let mut probe = Probe::default();
        probe.library.clone_from(&found.library);
        probe.tried.clone_from(&found.tried);
        match &found.driver {
            Ok(driver) => {
                probe.driver_version = kernel_driver();
                probe.runtime_version = Some(format!("CUDA {}", driver.version_text()));
                if let Err(error) = self.device_count() {
                    probe.problem = Some(error.to_string());
                }
            }
            Err(error) => probe.problem = Some(error.to_string()),
        }
        match nvrtc::compiler() {
            Ok(nvrtc) => probe.runtime_compiler = Some(nvrtc.description()),
            Err(error) => {
                probe.problem.get_or_insert_with(|| error.to_string());
            }
        }
        probe
    }
}

/// The kernel module's version, such as `580.159.03`, where the system shows it.
pub(crate) fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    // NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue …
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}
