//! Finding and opening libamdhip64.

use std::error::Error as _;
use std::ffi::{OsString, c_int};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gpustream_hal::{Error, ErrorKind, Result};
use libloading::Library;

use crate::api::Api;
use crate::error::{Status, error};
use crate::hiprtc::Hiprtc;

/// The environment variable that names the library to open instead of searching.
pub(crate) const LIBRARY_VARIABLE: &str = "GPUSTREAM_HIP_LIBRARY";

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
    /// What `hipInit(0)` said: a machine without a device fails here on some versions, later on others.
    initialised: Result<()>,
    hiprtc: OnceLock<Result<Hiprtc>>,
}

impl Runtime {
    /// Opens the library at `choice`, or the one that the environment names, or the newest that is installed.
    pub(crate) fn open(choice: Option<&Path>) -> Result<Self> {
        let tried = candidates(choice);
        let mut failures = Vec::new();
        for candidate in &tried {
            // SAFETY: libamdhip64's initialisers and finalisers are made to be loaded like this; a path that
            // the user names is theirs to vouch for.
            match unsafe { Library::new(candidate) } {
                Ok(library) => return Self::from_library(library, candidate),
                // The linker's own words, which name file and reason, are the source.
                Err(failure) => {
                    failures.push(failure.source().map_or_else(|| failure.to_string(), ToString::to_string));
                }
            }
        }
        Err(error(
            ErrorKind::DriverMissing,
            format!("libamdhip64 cannot be opened: {}; {INSTALL}", failures.join("; ")),
        ))
    }

    fn from_library(library: Library, candidate: &Path) -> Result<Self> {
        let library = ManuallyDrop::new(library);
        // SAFETY: it is opened as libamdhip64, and never closed.
        let (api, missing) = unsafe { Api::load(&library) };
        let path = origin(&library).unwrap_or_else(|| candidate.to_owned());
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
        Ok(Self { api, version, path, library, initialised, hiprtc: OnceLock::new() })
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

/// What to try, in order.
pub(crate) fn candidates(choice: Option<&Path>) -> Vec<PathBuf> {
    let named = choice.map(Path::to_owned).or_else(|| variable(LIBRARY_VARIABLE).map(PathBuf::from));
    if let Some(path) = named {
        return vec![path];
    }
    let mut tried: Vec<PathBuf> = NAMES.iter().map(PathBuf::from).collect();
    for root in rocm_roots() {
        tried.extend(NAMES.iter().map(|name| root.join("lib").join(name)));
    }
    tried
}

/// Where ROCm may be installed: `ROCM_PATH`, `HIP_PATH`, the default.
pub(crate) fn rocm_roots() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["ROCM_PATH", "HIP_PATH"].iter().filter_map(|name| variable(name)).map(PathBuf::from).collect();
    roots.push(PathBuf::from("/opt/rocm"));
    roots.dedup();
    roots
}

/// An environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The file a library was opened from.
#[cfg(unix)]
pub(crate) fn origin(library: &Library) -> Option<PathBuf> {
    use std::ffi::{CStr, OsStr, c_void};
    use std::os::unix::ffi::OsStrExt;

    // SAFETY: the function is only pointed at, never called.
    let address = unsafe {
        crate::api::symbol::<*const c_void>(library, "hipInit")
            .or_else(|| crate::api::symbol::<*const c_void>(library, "hiprtcVersion"))?
    };
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is live; any address may be asked about.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gave a C string that lives as long as the library, which is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The file a library was opened from.
#[cfg(not(unix))]
pub(crate) fn origin(_: &Library) -> Option<PathBuf> {
    None
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
    fn a_named_library_is_the_only_candidate() {
        assert_eq!(candidates(Some(Path::new("/x/y.so"))), [PathBuf::from("/x/y.so")]);
    }
}
