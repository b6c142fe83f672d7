//! Opening libcuda.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::CUcontext;
use gpustream_hal::driver::{Status, list_missing};
use gpustream_hal::library::{Library, Search, file_of};
use gpustream_hal::{Error, ErrorKind, Result};

use crate::api::Api;
use crate::context::Context;
use crate::error::error;
use crate::library::driver_names;
use crate::version::Version;

/// The opened and initialised driver. One per process; it is never closed.
pub(crate) struct Driver {
    pub(crate) api: Api,
    pub(crate) version: Version,
    /// Primary contexts by device ordinal, filled on first use and kept until the process ends.
    pub(crate) contexts: Box<[OnceLock<Context>]>,
}

/// The outcome of looking for libcuda; kept for [`Probe`](gpustream_hal::Probe).
pub(crate) struct Found {
    pub(crate) driver: Result<Driver>,
    pub(crate) library: Option<PathBuf>,
    /// Each name tried, in order, with the reason why it was not opened.
    pub(crate) tried: Vec<String>,
}

/// Opens and initialises the driver on first use; later calls return the same answer.
pub(crate) fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(Found::open)
}

/// Returns the driver, or why there is none.
pub(crate) fn driver() -> Result<&'static Driver> {
    found().driver.as_ref().map_err(Error::clone)
}

impl Found {
    /// Opens the library that the environment names, or the first that is installed.
    fn open() -> Self {
        // SAFETY: the names are those of NVIDIA's driver.
        let Search { library, tried } = unsafe { Search::open("GPUSTREAM_CUDA_LIBRARY", driver_names()) };
        let Some(library) = library else {
            let tried_or_nothing = if tried.is_empty() { "nothing".to_owned() } else { tried.join("; ") };
            let message = format!(
                "NVIDIA's driver library was not found; install the NVIDIA driver (in a container: start it with \
                 GPU access, for example `--gpus all`), or set GPUSTREAM_CUDA_LIBRARY to libcuda.so.1; tried: \
                 {tried_or_nothing}"
            );
            return Self { driver: Err(error(ErrorKind::DriverMissing, message)), library: None, tried };
        };
        let (driver, library) = Driver::open(library, tried.last().map_or("libcuda", String::as_str));
        Self { driver, library, tried }
    }
}

impl Driver {
    /// Initialises the driver in `library`, which was found by `name`; also gives the library's file.
    fn open(library: Library, name: &str) -> (Result<Self>, Option<PathBuf>) {
        let library = ManuallyDrop::new(library);
        // SAFETY: it is opened as libcuda, and never closed.
        let (api, missing) = unsafe { Api::load(&library) };
        let path = api.cuInit.and_then(|function| file_of(function as usize));
        if !missing.is_empty() {
            let message = format!(
                "{name} is no libcuda of CUDA {} or later: it lacks {}; install driver 525 or newer",
                Version::OLDEST,
                list_missing(&missing),
            );
            return (Err(error(ErrorKind::DriverMissing, message)), Some(name.into()));
        }
        (Self::initialise(api), path)
    }

    fn initialise(api: Api) -> Result<Self> {
        // SAFETY: no requirement.
        let answer = unsafe { api.cuInit(0) };
        let kind = match answer.status {
            // Every device is hidden by CUDA_VISIBLE_DEVICES, or there is none.
            Some(Status::NO_DEVICE | Status::INVALID_DEVICE) => ErrorKind::NoDevice,
            // Any other failure is one of the driver's installation.
            _ => ErrorKind::DriverMissing,
        };
        answer.ok_or(kind)?;
        let (mut version, mut count): (c_int, c_int) = (0, 0);
        // SAFETY: the pointer is to a local.
        unsafe { api.cuDriverGetVersion(&raw mut version) }.ok()?;
        let version = Version(version);
        if version < Version::OLDEST {
            let oldest = Version::OLDEST;
            let message = format!(
                "the driver supports CUDA {version}, and {oldest} is needed: install driver 525 or newer"
            );
            return Err(error(ErrorKind::DriverMissing, message));
        }
        // SAFETY: the pointer is to a local.
        unsafe { api.cuDeviceGetCount(&raw mut count) }.ok()?;
        let contexts = (0..count).map(|_| OnceLock::new()).collect();
        Ok(Self { api, version, contexts })
    }

    /// Returns the number of devices, which is not zero.
    pub(crate) fn device_count(&self) -> Result<usize> {
        match self.contexts.len() {
            0 => Err(error(
                ErrorKind::NoDevice,
                "the driver offers no device; check nvidia-smi and CUDA_VISIBLE_DEVICES",
            )),
            count => Ok(count),
        }
    }

    /// Returns the primary context of device `ordinal`, retained on first use.
    pub(crate) fn context(&self, ordinal: usize) -> Result<Context> {
        let count = self.device_count()?;
        let Some(slot) = self.contexts.get(ordinal) else {
            let message =
                format!("there is no device cuda:{ordinal}: devices are cuda:0 to cuda:{}", count - 1);
            return Err(error(ErrorKind::NoDevice, message));
        };
        if let Some(context) = slot.get() {
            return Ok(*context);
        }
        let context = Context::retain(&self.api, ordinal)?;
        // Two threads that come here at once hold the same context, retained twice.
        Ok(*slot.get_or_init(|| context))
    }

    /// Makes `context` current on this thread (`cuCtxGetCurrent`, and `cuCtxSetCurrent` only where it is not).
    ///
    /// The driver is asked at every call: another library may have switched the thread's context since the last one,
    /// and no cache of ours would know. The question is a read of the driver's thread-local state.
    #[inline]
    pub(crate) fn make_current(&self, context: CUcontext) -> Result<()> {
        let mut current = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.api.cuCtxGetCurrent(&raw mut current) }.ok()?;
        if current == context {
            return Ok(());
        }
        // SAFETY: the context is retained for good.
        unsafe { self.api.cuCtxSetCurrent(context) }.ok()
    }
}
