//! Opening libamdhip64.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use gpustream_hal::cold_path::cold_path;
use gpustream_hal::driver::{Status, list_missing};
use gpustream_hal::library::{Library, Search, file_of};
use gpustream_hal::lock::lock;
use gpustream_hal::{Error, ErrorKind, Fault, Result};

use crate::api::Api;
use crate::compiler::Hiprtc;
use crate::error::{BACKEND, error};
use crate::library::driver_names;
use crate::memset::MemsetOrder;
use crate::version::Version;

/// What we advise if there is no library.
const INSTALL: &str = "install ROCm's HIP runtime (package hip-runtime-amd from AMD, libamdhip64-5 or later \
                       from Debian and Ubuntu), or set GPUSTREAM_HIP_LIBRARY to its path";

/// An opened and initialised libamdhip64. We must never close it, because HIP has threads of its own.
pub(crate) struct Driver {
    pub(crate) api: Api,
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
    pub(crate) library: ManuallyDrop<Library>,
    pub(crate) memset_order: MemsetOrder,
    /// What `hipInit(0)` returned. On a machine without a device, it may fail here or only later, because that depends
    /// on the version.
    initialised: Result<()>,
    hiprtc: OnceLock<Result<Hiprtc>>,
    /// The faults of devices, by their ordinals.
    faults: Mutex<HashMap<usize, Fault>>,
}

/// What we found when we looked for libamdhip64; we keep it for [`Probe`](gpustream_hal::Probe).
pub(crate) struct Found {
    pub(crate) driver: Result<Arc<Driver>>,
    /// Each name that we tried, in order, and why we could not open it.
    pub(crate) tried: Vec<String>,
}

impl Found {
    /// Opens the library at `choice`. Without one, opens the library that the environment names, or else the newest one
    /// installed.
    ///
    /// # Safety
    /// `choice` names a libamdhip64.
    pub(crate) unsafe fn open(choice: Option<&Path>) -> Self {
        // SAFETY: the names are HIP's; this function's caller vouches for `choice`.
        let search = unsafe {
            match choice {
                Some(path) => Search::only(path),
                None => Search::open("GPUSTREAM_HIP_LIBRARY", driver_names()),
            }
        };
        let failure = search.failure();
        let Search { library, tried, .. } = search;
        let driver = match library {
            Some(library) => Driver::initialise(library, tried.last().map_or("libamdhip64", String::as_str)),
            None => Err(error(failure, format!("cannot open libamdhip64: {}; {INSTALL}", tried.join("; ")))),
        };
        Self { driver: driver.map(Arc::new), tried }
    }
}

impl Driver {
    fn initialise(library: Library, name: &str) -> Result<Self> {
        let library = ManuallyDrop::new(library);
        // SAFETY: we open it as libamdhip64 and never close it.
        let (api, missing) = unsafe { Api::load(&library) };
        let path = api.hipInit.and_then(|function| file_of(function as usize));
        let path = path.unwrap_or_else(|| PathBuf::from(name));
        if !missing.is_empty() {
            return Err(error(
                ErrorKind::DriverUnusable,
                format!(
                    "{} is not a libamdhip64 of HIP {} or later, because it lacks {}; {INSTALL}",
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
                ErrorKind::DriverUnusable,
                format!(
                    "{} has HIP {version}, but we need {} or later; {INSTALL}",
                    path.display(),
                    Version::OLDEST
                ),
            ));
        }
        let memset_order = MemsetOrder::of(version);
        let (hiprtc, faults) = (OnceLock::new(), Mutex::default());
        Ok(Self { api, version, path, library, memset_order, initialised, hiprtc, faults })
    }

    /// Returns the number of devices, which is never zero.
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

    /// Returns the run-time compiler. The first call opens it.
    pub(crate) fn hiprtc(&self) -> Result<&Hiprtc> {
        let open = || Hiprtc::open(&self.library, &self.path, self.version);
        self.hiprtc.get_or_init(open).as_ref().map_err(Error::clone)
    }

    /// Returns the functions for calls on device `ordinal`. All handles to the device share its fault.
    pub(crate) fn api_of(&self, ordinal: usize) -> Api {
        let mut faults = lock(&self.faults);
        self.api.for_device(faults.entry(ordinal).or_insert_with(|| Fault::of(BACKEND, ordinal)).clone())
    }

    fn without_device(&self, failure: Error) -> Error {
        if failure.kind() == ErrorKind::NoDevice { self.no_device() } else { failure }
    }

    #[cold]
    fn no_device(&self) -> Error {
        let (version, path) = (self.version, self.path.display());
        if is_forbidden(Path::new(KFD)) {
            let message = format!(
                "HIP {version} ({path}) finds no AMD GPU, because this user may not open {KFD}; add the user \
                 to the group that owns the file (`render` or `video`; in a container: its number), or hide the file"
            );
            return error(ErrorKind::DriverUnusable, message);
        }
        let message = format!(
            "HIP {version} ({path}) finds no AMD GPU; check that the amdgpu kernel driver is loaded, that /dev/kfd may be \
             opened (group `render`), and that HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES hide none"
        );
        error(ErrorKind::NoDevice, message)
    }
}

/// The kernel driver's file, which every process with an AMD GPU opens.
const KFD: &str = "/dev/kfd";

/// Returns true if the file exists but this process may not open it. HIP then counts no devices, so you could not tell
/// that from a machine without any.
fn is_forbidden(file: &Path) -> bool {
    let opened = File::options().read(true).write(true).open(file);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

impl Api {
    /// Makes `device` the calling thread's device: `hipGetDevice`, then `hipSetDevice` if it is another one.
    ///
    /// HIP needs this before nearly every call. The question reads a thread-local variable, so a thread that stays with one
    /// device pays only for that.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_there_is_forbidden() {
        assert!(!is_forbidden(Path::new("/nowhere/kfd")));
        assert!(!is_forbidden(Path::new("/dev/null")));
        // This must not run as root, because root can open everything except an executable that runs, and that is
        // another error.
        let forbidden = std::env::temp_dir().join(format!("gpustream-kfd-{}", std::process::id()));
        std::fs::write(&forbidden, "").unwrap();
        let mut permissions = std::fs::metadata(&forbidden).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o000);
        std::fs::set_permissions(&forbidden, permissions).unwrap();
        let is_root = File::open(&forbidden).is_ok();
        let seen = is_forbidden(&forbidden);
        std::fs::remove_file(&forbidden).unwrap();
        assert_eq!(seen, !is_root);
    }
}
