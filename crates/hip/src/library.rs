//! Finding and opening libamdhip64.

use std::ffi::c_int;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gpustream_hal::library::{Search, file_of};
use gpustream_hal::{Error, ErrorKind, Result};
use libloading::Library;

use crate::api::{Api, symbol};
use crate::error::{Status, error};
use crate::hiprtc::Hiprtc;
use crate::memset::MemsetOrder;

/// Library names, newest first. Python wheels and run-time packages lack the plain one. HIP 7.15, which comes
/// with ROCm 10, still is `.so.7`; an `.so.8` that appeared would be an interface nobody here has read.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// What to do where there is no library.
const INSTALL: &str = "install ROCm's HIP runtime (package hip-runtime-amd from AMD, libamdhip64-5 or later \
                       from Debian and Ubuntu), or set GPUSTREAM_HIP_LIBRARY to its path";

/// A version of HIP: `major * 10^7 + minor * 10^5 + patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32);

impl Version {
    /// The oldest version whose required functions and behaviour this backend knows.
    pub(crate) const OLDEST: Self = Self::new(5, 0);

    pub(crate) const fn new(major: u32, minor: u32) -> Self {
        Self(major * 10_000_000 + minor * 100_000)
    }

    pub(crate) const fn major(self) -> u32 {
        self.0 / 10_000_000
    }

    pub(crate) const fn minor(self) -> u32 {
        self.0 / 100_000 % 100
    }
}

impl fmt::Display for Version {
    /// `6.4.43483`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.0 % 100_000)
    }
}

/// An opened and initialised libamdhip64. It is never closed: HIP keeps threads of its own.
pub(crate) struct Runtime {
    pub(crate) api: Api,
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
    pub(crate) library: ManuallyDrop<Library>,
    pub(crate) memset_order: MemsetOrder,
    /// What `hipInit(0)` said: a machine without a device fails here on some versions, later on others.
    initialised: Result<()>,
    hiprtc: OnceLock<Result<Hiprtc>>,
}

/// What came of looking for libamdhip64.
pub(crate) struct Found {
    pub(crate) runtime: Result<Arc<Runtime>>,
    /// What was tried, in order, and why it was not opened.
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
                None => Search::open("GPUSTREAM_HIP_LIBRARY", names()),
            }
        };
        let runtime = match library {
            Some(library) => {
                Runtime::from_library(library, tried.last().map_or("libamdhip64", String::as_str))
            }
            None => Err(error(
                ErrorKind::DriverMissing,
                format!("libamdhip64 cannot be opened: {}; {INSTALL}", tried.join("; ")),
            )),
        };
        Self { runtime: runtime.map(Arc::new), tried }
    }
}

impl Runtime {
    fn from_library(library: Library, name: &str) -> Result<Self> {
        let library = ManuallyDrop::new(library);
        // SAFETY: it is opened as libamdhip64, and never closed.
        let (api, missing) = unsafe { Api::load(&library) };
        // SAFETY: the function is only pointed at, never called.
        let path = unsafe { symbol::<usize>(&library, "hipInit") }.and_then(file_of);
        let path = path.unwrap_or_else(|| PathBuf::from(name));
        if !missing.is_empty() {
            return Err(error(
                ErrorKind::DriverMissing,
                format!(
                    "{} is no libamdhip64 of HIP {} or later: it lacks {}; {INSTALL}",
                    path.display(),
                    Version::OLDEST,
                    missing.join(", "),
                ),
            ));
        }
        // SAFETY: no requirement.
        let initialised = unsafe { api.hipInit(0) }.ok();
        let mut number: c_int = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { api.hipRuntimeGetVersion(&raw mut number) }.ok()?;
        let version = Version(u32::try_from(number).unwrap_or(0));
        if version < Version::OLDEST {
            return Err(error(
                ErrorKind::DriverMissing,
                format!("{} is HIP {version}, older than {}; {INSTALL}", path.display(), Version::OLDEST),
            ));
        }
        let memset_order = MemsetOrder::of(version);
        Ok(Self { api, version, path, library, memset_order, initialised, hiprtc: OnceLock::new() })
    }

    /// The number of devices, which is not zero.
    pub(crate) fn device_count(&self) -> Result<usize> {
        self.initialised.clone().map_err(|failure| self.without_device(failure))?;
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a live integer.
        let answer = unsafe { self.api.hipGetDeviceCount(&raw mut count) };
        match answer.status {
            Some(Status::SUCCESS) if count > 0 => Ok(count as usize),
            Some(Status::SUCCESS | Status::NO_DEVICE | Status::INVALID_DEVICE) => Err(self.no_device()),
            _ => answer.ok().map(|()| 0),
        }
    }

    /// The run-time compiler, opened on first use.
    pub(crate) fn hiprtc(&self) -> Result<&Hiprtc> {
        self.hiprtc.get_or_init(|| Hiprtc::open(self)).as_ref().map_err(Error::clone)
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

/// Where libamdhip64 may be, in order: where the linker looks, then where ROCm installs it.
fn names() -> impl Iterator<Item = PathBuf> {
    let installed = rocm_roots().into_iter().flat_map(|root| NAMES.map(|name| root.join("lib").join(name)));
    NAMES.into_iter().map(PathBuf::from).chain(installed)
}

/// Where ROCm may be installed: `ROCM_PATH`, `HIP_PATH`, the default.
pub(crate) fn rocm_roots() -> Vec<PathBuf> {
    let named = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(std::env::var_os);
    let mut roots: Vec<PathBuf> = named.filter(|root| !root.is_empty()).map(PathBuf::from).collect();
    roots.push(PathBuf::from("/opt/rocm"));
    roots.dedup();
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_the_vendor_writes_them() {
        for (number, text) in [(50_221_153, "5.2.21153"), (60_443_483, "6.4.43483"), (71_500_001, "7.15.1")] {
            assert_eq!(Version(number).to_string(), text);
        }
        assert!(Version(50_221_153) > Version::OLDEST && Version(40_500_000) < Version::OLDEST);
    }

    #[test]
    fn the_newest_name_comes_first() {
        let names: Vec<_> = names().collect();
        assert_eq!(names[0], Path::new("libamdhip64.so.7"));
        assert_eq!(names.last().unwrap(), Path::new("/opt/rocm/lib/libamdhip64.so"));
    }
}
