//! Opening libcuda.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use gpustream_hal::driver::list_missing;
use gpustream_hal::library::{Library, Search, file_of};
use gpustream_hal::{Error, ErrorKind, Identity, RawFunction, Result};

use crate::api::Api;
use crate::context::Context;
use crate::error::error;
use crate::identity::{identity, name};
use crate::library::driver_names;
use crate::version::Version;

/// What we advise if there is no library.
const INSTALL: &str = "install the NVIDIA driver, 525 or newer (in a container: start it with GPU access, for example \
                       `--gpus all`), or set GPUSTREAM_CUDA_LIBRARY to the path of libcuda.so.1";

/// An opened and initialised libcuda. A process has one, and must never close it, because `api` points into it.
pub(crate) struct Driver {
    pub(crate) api: Api,
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
    /// Primary contexts by device ordinal. We fill this on first use and keep it until the process ends.
    pub(crate) contexts: Box<[OnceLock<Context>]>,
    /// The kernels that set conditions, by device ordinal. We load them on first use.
    pub(crate) setters: Box<[Mutex<Option<RawFunction>>]>,
    /// What `cuInit(0)` returned. It fails on a machine without a device, but you may still ask for the driver's
    /// version.
    initialised: Result<()>,
}

/// What we found when we looked for libcuda; we keep it for [`Probe`](gpustream_hal::Probe).
pub(crate) struct Found {
    pub(crate) driver: Result<Driver>,
    /// Each name that we tried, in order, and why we could not open it.
    pub(crate) tried: Vec<String>,
}

/// Opens and initialises the driver on first use. Later calls return the same answer.
pub(crate) fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(Found::open)
}

/// Returns the driver, or why there is none.
pub(crate) fn driver() -> Result<&'static Driver> {
    found().driver.as_ref().map_err(Error::clone)
}

impl Found {
    /// Opens the library that the environment names, or else the first one installed.
    fn open() -> Self {
        // SAFETY: these are the names of NVIDIA's driver.
        let search = unsafe { Search::open("GPUSTREAM_CUDA_LIBRARY", driver_names()) };
        let failure = search.failure();
        let Search { library, tried, .. } = search;
        let driver = match library {
            Some(library) => Driver::initialise(library, tried.last().map_or("libcuda", String::as_str)),
            None => Err(error(failure, format!("cannot open libcuda: {}; {INSTALL}", tried.join("; ")))),
        };
        Self { driver, tried }
    }
}

impl Driver {
    fn initialise(library: Library, name: &str) -> Result<Self> {
        let library = ManuallyDrop::new(library);
        // SAFETY: we open it as libcuda and never close it.
        let (api, missing) = unsafe { Api::load(&library) };
        let path = api.cuInit.and_then(|function| file_of(function as usize));
        let path = path.unwrap_or_else(|| PathBuf::from(name));
        if !missing.is_empty() {
            return Err(error(
                ErrorKind::DriverUnusable,
                format!(
                    "{} is not a libcuda of CUDA {} or later, because it lacks {}; {INSTALL}",
                    path.display(),
                    Version::OLDEST,
                    list_missing(&missing),
                ),
            ));
        }
        // SAFETY: no requirement.
        let initialised = unsafe { api.cuInit(0) }.initialised();
        let (mut number, mut count): (c_int, c_int) = (0, 0);
        // SAFETY: the pointer is to a local.
        unsafe { api.cuDriverGetVersion(&raw mut number) }.ok()?;
        let version = Version(number);
        if version < Version::OLDEST {
            return Err(error(
                ErrorKind::DriverUnusable,
                format!(
                    "{} has CUDA {version}, but we need {} or later; {INSTALL}",
                    path.display(),
                    Version::OLDEST
                ),
            ));
        }
        if initialised.is_ok() {
            // SAFETY: the pointer is to a local.
            unsafe { api.cuDeviceGetCount(&raw mut count) }.ok()?;
        }
        let contexts = (0..count).map(|_| OnceLock::new()).collect();
        let setters = (0..count).map(|_| Mutex::default()).collect();
        Ok(Self { api, version, path, contexts, setters, initialised })
    }

    /// Returns the number of devices, which is never zero.
    pub(crate) fn device_count(&self) -> Result<usize> {
        self.initialised.clone().map_err(|failure| self.without_device(failure))?;
        match self.contexts.len() {
            0 => Err(self.no_device()),
            count => Ok(count),
        }
    }

    /// Returns the names that NVIDIA's tools use for device `ordinal`.
    pub(crate) fn identity(&self, ordinal: usize) -> Result<Identity> {
        self.slot(ordinal)?;
        let mut device = 0;
        // SAFETY: the pointer is to a local; the driver counted the ordinal.
        unsafe { self.api.cuDeviceGet(&raw mut device, ordinal as c_int) }.ok()?;
        Ok(identity(&self.api, device, &name(&self.api, device)?))
    }

    fn slot(&self, ordinal: usize) -> Result<&OnceLock<Context>> {
        let count = self.device_count()?;
        self.contexts.get(ordinal).ok_or_else(|| {
            let message =
                format!("there is no device cuda:{ordinal}: the devices are cuda:0 to cuda:{}", count - 1);
            error(ErrorKind::NoDevice, message)
        })
    }

    /// Returns the primary context of device `ordinal`. The first call retains it.
    pub(crate) fn context(&self, ordinal: usize) -> Result<&Context> {
        let slot = self.slot(ordinal)?;
        if let Some(context) = slot.get() {
            return Ok(context);
        }
        let context = Context::retain(&self.api, ordinal)?;
        // If two threads come here at once, they get the same context, retained twice.
        Ok(slot.get_or_init(|| context))
    }

    fn without_device(&self, failure: Error) -> Error {
        if failure.kind() == ErrorKind::NoDevice { self.no_device() } else { failure }
    }

    #[cold]
    fn no_device(&self) -> Error {
        let message = format!(
            "CUDA {} ({}) finds no NVIDIA GPU; check nvidia-smi, that CUDA_VISIBLE_DEVICES hides none, and the \
             container's GPU access",
            self.version,
            self.path.display(),
        );
        error(ErrorKind::NoDevice, message)
    }
}
