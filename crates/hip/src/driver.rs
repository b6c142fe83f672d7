//! Opening libamdhip64.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use gpustream_hal::driver::{Status, list_missing};
use gpustream_hal::hint::cold_path;
use gpustream_hal::library::{Library, Search, file_of};
use gpustream_hal::lock::lock;
use gpustream_hal::{Error, ErrorKind, Fault, Result};

use crate::api::Api;
use crate::compiler::Hiprtc;
use crate::error::error;
use crate::library::driver_names;
use crate::memset::MemsetOrder;
use crate::version::Version;

/// The advice where there is no library.
const INSTALL: &str = "install ROCm's HIP runtime (package hip-runtime-amd from AMD, libamdhip64-5 or later \
                       from Debian and Ubuntu), or set GPUSTREAM_HIP_LIBRARY to its path";

/// An opened and initialised libamdhip64. It is never closed: HIP keeps threads of its own.
pub(crate) struct Driver {
    pub(crate) api: Api,
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
    pub(crate) library: ManuallyDrop<Library>,
    pub(crate) memset_order: MemsetOrder,
    /// The outcome of `hipInit(0)`: a machine without a device fails here on some versions, later on others.
    initialised: Result<()>,
    hiprtc: OnceLock<Result<Hiprtc>>,
    /// The faults of devices, by their ordinals.
    faults: Mutex<HashMap<usize, Fault>>,
}

/// The outcome of looking for libamdhip64; kept for [`Probe`](gpustream_hal::Probe).
pub(crate) struct Found {
    pub(crate) driver: Result<Arc<Driver>>,
    /// Each name tried, in order, with the reason why it was not opened.
    pub(crate) tried: Vec<String>,
}

impl Found {
    /// Opens the library at `choice`, or the one that the environment names, or the newest that is installed.
    ///
    /// # Safety
    /// `choice` names a libamdhip64.
    pub(crate) unsafe fn open(choice: Option<&Path>) -> Self {
        // SAFETY: the names are HIP's, and `choice` as this function's caller vouches.
        let Search { library, tried } = unsafe {
            match choice {
                Some(path) => Search::only(path),
                None => Search::open("GPUSTREAM_HIP_LIBRARY", driver_names()),
            }
        };
        let driver = match library {
            Some(library) => Driver::initialise(library, tried.last().map_or("libamdhip64", String::as_str)),
            None => Err(error(
                ErrorKind::DriverMissing,
                format!("libamdhip64 cannot be opened: {}; {INSTALL}", tried.join("; ")),
            )),
        };
        Self { driver: driver.map(Arc::new), tried }
    }
}

impl Driver {
    fn initialise(library: Library, name: &str) -> Result<Self> {
        let library = ManuallyDrop::new(library);
        // SAFETY: it is opened as libamdhip64, and never closed.
        let (api, missing) = unsafe { Api::load(&library) };
        let path = api.hipInit.and_then(|function| file_of(function as usize));
        let path = path.unwrap_or_else(|| PathBuf::from(name));
        if !missing.is_empty() {
            return Err(error(
                ErrorKind::DriverMissing,
                format!(
                    "{} is no libamdhip64 of HIP {} or later: it lacks {}; {INSTALL}",
                    path.display(),
                    Version::OLDEST,
                    list_missing(&missing),
                ),
            ));
        }
        // SAFETY: no requirement.
        let initialised = unsafe { api.hipInit(0) }.initialised();
        let mut number: c_int = 0;
        // SAFETY: the pointer is to a local.
        unsafe { api.hipRuntimeGetVersion(&raw mut number) }.ok()?;
        let version = Version::from(number);
        if version < Version::OLDEST {
            return Err(error(
                ErrorKind::DriverMissing,
                format!("{} is HIP {version}, older than {}; {INSTALL}", path.display(), Version::OLDEST),
            ));
        }
        let memset_order = MemsetOrder::of(version);
        let (hiprtc, faults) = (OnceLock::new(), Mutex::default());
        Ok(Self { api, version, path, library, memset_order, initialised, hiprtc, faults })
    }

    /// Returns the number of devices, which is not zero.
    pub(crate) fn device_count(&self) -> Result<usize> {
        self.initialised.clone().map_err(|failure| self.without_device(failure))?;
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a local.
        let answer = unsafe { self.api.hipGetDeviceCount(&raw mut count) };
        match answer.status {
            Some(Status::SUCCESS) if count > 0 => Ok(count as usize),
            Some(Status::SUCCESS | Status::NO_DEVICE | Status::INVALID_DEVICE) => Err(self.no_device()),
            _ => answer.ok().map(|()| 0),
        }
    }

    /// Returns the run-time compiler, opened on first use.
    pub(crate) fn hiprtc(&self) -> Result<&Hiprtc> {
        let open = || Hiprtc::open(&self.library, &self.path, self.version);
        self.hiprtc.get_or_init(open).as_ref().map_err(Error::clone)
    }

    /// Returns the functions for calls on device `ordinal`; all handles of the device share its fault.
    pub(crate) fn api_of(&self, ordinal: usize) -> Api {
        let mut faults = lock(&self.faults);
        self.api.for_device(faults.entry(ordinal).or_default().clone())
    }

    fn without_device(&self, failure: Error) -> Error {
        if failure.kind() == ErrorKind::NoDevice { self.no_device() } else { failure }
    }

    #[cold]
    fn no_device(&self) -> Error {
        let message = format!(
            "HIP {} ({}) finds no AMD GPU; check that the amdgpu kernel driver is loaded, that /dev/kfd may be \
             opened (group `render`), and that HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES hide none",
            self.version,
            self.path.display(),
        );
        error(ErrorKind::NoDevice, message)
    }
}

impl Api {
    /// Makes `device` the calling thread's (`hipGetDevice`, and `hipSetDevice` only where it is not).
    ///
    /// HIP asks this of nearly every call. The question reads a thread-local, so a thread that stays with one device
    /// pays that alone.
    #[inline]
    pub(crate) fn make_current(&self, device: c_int) -> Result<()> {
        let mut current: c_int = -1;
        // SAFETY: the pointer is to a local.
        unsafe { self.hipGetDevice(&raw mut current) }.ok()?;
        if current == device {
            return Ok(());
        }
        cold_path();
        // SAFETY: no requirement.
        unsafe { self.hipSetDevice(device) }.ok()
    }
}
