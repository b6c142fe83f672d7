//! Finding and opening HIP devices.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use gpustream_hal::{Backend, BackendName, Device, DriverLibrary, Error, ErrorKind, Identity, Probe, Result};

use crate::compiler::Hiprtc;
use crate::device::HipDevice;
use crate::driver::{Driver, Found};
use crate::error::error;
use crate::identity::identity;
use crate::info::kernel_driver;
use crate::rocprofiler::{self, Rocprofiler};

/// HIP, as one libamdhip64 offers it. We open the library on first use. We can never close it, because HIP has threads
/// of its own.
pub struct Hip {
    choice: Option<PathBuf>,
    found: OnceLock<Found>,
}

/// Returns the backend for the libamdhip64 that is installed, or that `GPUSTREAM_HIP_LIBRARY` names.
pub fn backend() -> &'static dyn Backend {
    static HIP: Hip = Hip { choice: None, found: OnceLock::new() };
    &HIP
}

impl Hip {
    /// Returns HIP through the library at `path`, and no other.
    ///
    /// # Safety
    /// `path` must name a libamdhip64, or something that behaves like it. You must not use devices from two libraries
    /// together: they carry the same name, but neither library can use handles from the other.
    pub unsafe fn at(path: impl Into<PathBuf>) -> Self {
        Self { choice: Some(path.into()), found: OnceLock::new() }
    }

    fn found(&self) -> &Found {
        // SAFETY: only `at` makes a choice, and its caller vouches for it.
        self.found.get_or_init(|| unsafe { Found::open(self.choice.as_deref()) })
    }

    fn driver(&self) -> Result<&Arc<Driver>> {
        self.found().driver.as_ref().map_err(Error::clone)
    }

    /// Returns the driver of device `ordinal`, and how many devices there are.
    fn driver_of(&self, ordinal: usize) -> Result<(&Arc<Driver>, usize)> {
        let driver = self.driver()?;
        let count = driver.device_count()?;
        if ordinal < count {
            return Ok((driver, count));
        }
        let message = format!("there is no device hip:{ordinal}: the devices are hip:0 to hip:{}", count - 1);
        Err(error(ErrorKind::NoDevice, message))
    }
}

// SAFETY: each call makes its own device, under this name.
unsafe impl Backend for Hip {
    fn name(&self) -> BackendName {
        BackendName::HIP
    }

    fn device_count(&self) -> Result<usize> {
        self.driver()?.device_count()
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        let (driver, count) = self.driver_of(ordinal)?;
        Ok(Arc::new(HipDevice::open(Arc::clone(driver), ordinal, count)?))
    }

    fn identity(&self, ordinal: usize) -> Result<Identity> {
        let (driver, _) = self.driver_of(ordinal)?;
        Ok(identity(&driver.api, ordinal as c_int))
    }

    fn library(&self) -> Option<DriverLibrary> {
        let Found { driver, tried } = self.found();
        let path = driver.as_ref().ok()?.path.clone();
        Some(DriverLibrary { path, found_by: tried.last()?.clone() })
    }

    fn expect_traces(&self) {
        // We must do this before we open the library, because that starts HIP.
        if self.found.get().is_none() {
            rocprofiler::set_up();
        }
    }

    fn probe(&self) -> Probe {
        let found = self.found();
        let mut probe = Probe::default();
        probe.tried.clone_from(&found.tried);
        match &found.driver {
            Ok(driver) => {
                probe.library = Some(driver.path.clone());
                probe.driver_version = kernel_driver(&driver.api);
                probe.runtime_version = Some(driver.version.to_string());
                probe.runtime_compiler = driver.hiprtc().ok().map(Hiprtc::description);
                probe.tracer = rocprofiler::opened().map(Rocprofiler::description);
                probe.problem = driver.device_count().err().map(|error| error.to_string());
            }
            Err(error) => probe.problem = Some(error.to_string()),
        }
        probe
    }
}
